"""Code of a user's own by its name: what is run, what is refused, and what its hash is of."""

import importlib
import sys

import pytest

from tests.helpers.fresh_python import fresh_python
from unmask.base.errors import ConfigError
from unmask.base.user_code import code_hash, describe_error, is_shipped, load_user_code, local_modules


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty current folder, and imports that are forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    # What other tests have imported under the names that are used here.
    for name in ("mine", "helper"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_and_a_module_are_found(here):
    write(here / "mine.py", "class Thing:\n    class Inner: ...\n")
    assert load_user_code("mine.py:Thing").__name__ == "Thing"
    assert load_user_code(f"{here}/mine.py:Thing.Inner").__name__ == "Inner"
    assert load_user_code("mine:Thing").__name__ == "Thing"


def test_a_file_finds_its_neighbours_wherever_one_is(here):
    write(here / "folder" / "helper.py", "VALUE = 5\n")
    write(here / "folder" / "mine.py", "from helper import VALUE\n")
    assert load_user_code("folder/mine.py:VALUE") == 5


def test_a_file_with_the_name_of_a_module_is_the_file(here):
    write(here / "json.py", "VALUE = 5\n")
    assert load_user_code("json.py:VALUE") == 5


def test_a_changed_file_is_run_again(here):
    path = write(here / "mine.py", "VALUE = 5\n")
    first = load_user_code("mine.py:VALUE")
    write(path, "VALUE = 6\n")
    assert (first, load_user_code("mine.py:VALUE")) == (5, 6)


@pytest.mark.parametrize("name", ["a b:x", "mine.py", "mine", ":x", "mine.py:", "mine.py:a b", "", "."])
def test_nothing_else_is_code(here, name):
    with pytest.raises(ConfigError, match=r"names no code; allowed: package.module:Name, or a file path.py:Name"):
        load_user_code(name)


def test_a_module_is_not_run_for_what_cannot_be_inside_it(here):
    write(here / "setup.py", "open('ran', 'w')\n")
    write(here / "setup.cfg", "")
    with pytest.raises(ConfigError, match=r"'setup' of 'setup.cfg:x' is a module, not a package"):
        load_user_code("setup.cfg:x")
    assert not (here / "ran").exists()


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("", "nowhere.py:X", "cannot be read .No such file"),
        ("", f"{'a' * 5000}.py:X", "cannot be read .File name too long"),
        ("", "no\0thing.py:X", "cannot be read"),
        ("", "nowhere:X", "module 'nowhere' of 'nowhere:X' is not found"),
        ("", "nowhere.deeper:X", "module 'nowhere.deeper' of .* is not found"),
        ("def f(:\n", "mine.py:X", "cannot be run .SyntaxError: .*mine.py, line 1"),
        ("def f(:\n", "mine:X", "cannot be imported .SyntaxError"),
        ("a\0b\n", "mine.py:X", "cannot be run"),
        ("import nowhere\n", "mine:X", "cannot be imported .ModuleNotFoundError: No module named 'nowhere'"),
        ("raise SystemExit(3)\n", "mine.py:X", "cannot be run .SystemExit: 3"),
        ("raise SystemExit(3)\n", "mine:X", "cannot be imported .SystemExit: 3"),
        ("class Thing: ...\n", "mine.py:Think", "unknown name in mine.py 'Think'; did you mean Thing"),
    ],
)
def test_refusals(here, text, name, words):
    write(here / "mine.py", text)
    with pytest.raises(ConfigError, match=words):
        load_user_code(name)


class TestHash:
    def test_does_not_depend_on_the_folder_or_the_way_it_was_named(self, here):
        write(here / "mine.py", "class Thing: ...\n")
        write(here / "folder" / "mine.py", "class Thing: ...\n")
        names = ("mine.py:Thing", "folder/mine.py:Thing", "mine:Thing")
        assert len({code_hash(load_user_code(name)) for name in names}) == 1

    def test_what_has_no_file_has_no_hash(self):
        made = type("Made", (), {"__module__": "nowhere"})
        assert code_hash(made) == code_hash(len) == ""
        assert not is_shipped(made)
        assert is_shipped(load_user_code)


def test_an_error_is_described_whatever_its_text_does():
    class Shy(Exception):
        def __str__(self):
            raise RuntimeError

    assert describe_error(Shy()) == "Shy: (no message)"
    assert describe_error(ValueError("two\nlines \ud800")) == "ValueError: two lines \ufffd"


# The hash, over modules that import each other

FILES = {
    "scorer_a.py": "import json\nfrom helper_b import weigh\n\ndef score(text, example):\n    return weigh(text)\n",
    "helper_b.py": "from package_c import limits\n\ndef weigh(text):\n    from late_d import late\n    return late\n",
    "package_c/__init__.py": "",
    "package_c/limits.py": "from . import deep\n",
    "package_c/deep.py": "MOST = 1\n",
    "late_d.py": "late = 0.5\n",
    "unused_e.py": "nothing = 1\n",
}


@pytest.fixture(name="score")
def _score(tmp_path, monkeypatch):
    """The function, imported anew after files were changed."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    def call(name="scorer_a.py", text=FILES["scorer_a.py"]):
        (tmp_path / name).write_bytes(text.encode())
        for name in [name for name in sys.modules if name.split(".")[0] in ("scorer_a", "helper_b", "package_c")]:
            del sys.modules[name]
        importlib.invalidate_caches()
        return importlib.import_module("scorer_a").score

    return call


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("scorer_a.py", FILES["scorer_a.py"] + "# changed\n"),
        ("helper_b.py", FILES["helper_b.py"] + "# changed\n"),
        ("package_c/deep.py", "MOST = 2\n"),
        ("package_c/__init__.py", "# changed\n"),
        ("late_d.py", "late = 0.25\n"),
    ],
)
def test_a_change_anywhere_counts(score, name, text):
    before = code_hash(score())
    assert len(before) == 16
    assert code_hash(score(name, text)) != before


def test_what_is_not_imported_or_only_looks_different_does_not(score):
    before = code_hash(score())
    assert code_hash(score("unused_e.py", "nothing = 2\n")) == before
    assert code_hash(score("late_d.py", "late = 0.5\r\n")) == before


def test_nothing_is_imported_to_find_out(score):
    function = score()
    code_hash(function)
    assert "late_d" not in sys.modules


def test_installed_packages_and_this_one_are_not_local(tmp_path, monkeypatch):
    path = tmp_path / "scorer_f.py"
    path.write_text("import json, numpy, pyarrow.compute, unmask.base.errors\nfrom unmask.tasks import find\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert local_modules(["scorer_f", "json", "numpy", "unmask.tasks"]) == {"scorer_f": path}


def test_a_class_of_a_shell_or_notebook_has_no_file():
    code = """
from unmask.base.user_code import code_hash, error_location
class Mine: pass
print(repr(code_hash(Mine)), error_location(ValueError(), Mine))
"""
    run = fresh_python(code)
    assert run.stdout.split() == ["''", "Mine"], run.stderr
