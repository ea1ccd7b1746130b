"""User code by name: what is run, what is refused, and what its hash depends on."""

import importlib
import sys

import pytest

from tests.helpers.fresh_python import fresh_python
from unmask.base.errors import ConfigError
from unmask.base.user_code import code_hash, describe_error, is_shipped_code, load_user_code, local_modules


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty current folder, and imports that are undone after the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    for name in ("mine", "helper"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_files_and_modules_are_loaded(here):
    write(here / "mine.py", "class Thing:\n    class Inner: ...\n")
    assert load_user_code("mine.py:Thing").__name__ == "Thing"
    assert load_user_code(f"{here}/mine.py:Thing.Inner").__name__ == "Inner"
    assert load_user_code("mine:Thing").__name__ == "Thing"
    write(here / "json.py", "VALUE = 5\n")
    assert load_user_code("json.py:VALUE") == 5
    write(here / "folder" / "helper.py", "VALUE = 5\n")
    write(here / "folder" / "mine.py", "from helper import VALUE\n")
    assert load_user_code("folder/mine.py:VALUE") == 5


def test_a_changed_file_is_run_again(here):
    write(here / "mine.py", "VALUE = 5\n")
    first = load_user_code("mine.py:VALUE")
    write(here / "mine.py", "VALUE = 6\n")
    assert (first, load_user_code("mine.py:VALUE")) == (5, 6)


def test_a_module_is_not_run_for_a_name_that_it_cannot_have(here):
    write(here / "setup.py", "open('ran', 'w')\n")
    with pytest.raises(ConfigError, match=r"'setup' of 'setup\.cfg:x'"):
        load_user_code("setup.cfg:x")
    assert not (here / "ran").exists()


REFUSED = [
    *(("", name, "names no code") for name in ("a b:x", "mine.py", "mine", ":x", "mine.py:", "mine.py:a b", "", ".")),
    ("", "nowhere.py:X", "No such file"),
    ("", f"{'a' * 5000}.py:X", "File name too long"),
    ("", "no\0thing.py:X", "cannot be read"),
    ("", "nowhere:X", "'nowhere' of 'nowhere:X' is not found"),
    ("", "nowhere.deeper:X", "'nowhere.deeper' of .* is not found"),
    ("def f(:\n", "mine.py:X", "SyntaxError: .*mine.py, line 1"),
    ("def f(:\n", "mine:X", "SyntaxError"),
    ("a\0b\n", "mine.py:X", "cannot be run"),
    ("import nowhere\n", "mine:X", "ModuleNotFoundError: No module named 'nowhere'"),
    ("raise SystemExit(3)\n", "mine.py:X", "SystemExit: 3"),
    ("raise SystemExit(3)\n", "mine:X", "SystemExit: 3"),
    ("class Thing: ...\n", "mine.py:Think", "'Think'; did you mean Thing"),
]


@pytest.mark.parametrize(("text", "name", "words"), REFUSED)
def test_refusals(here, text, name, words):
    write(here / "mine.py", text)
    with pytest.raises(ConfigError, match=words):
        load_user_code(name)


def test_errors_are_described_even_if_their_text_raises():
    class Shy(Exception):
        def __str__(self):
            raise RuntimeError

    assert describe_error(Shy()) == "Shy: (no message)"
    assert describe_error(ValueError("two\nlines \ud800")) == "ValueError: two lines \ufffd"


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
    """A function that changes a file and imports the scorer anew."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    for name, text in FILES.items():
        write(tmp_path / name, text)

    def call(name="scorer_a.py", text=FILES["scorer_a.py"]):
        (tmp_path / name).write_bytes(text.encode())
        for name in [name for name in sys.modules if name.split(".")[0] in ("scorer_a", "helper_b", "package_c")]:
            del sys.modules[name]
        importlib.invalidate_caches()
        return importlib.import_module("scorer_a").score

    return call


def test_hashes_depend_on_all_local_imports_and_on_nothing_else(score):
    function = score()
    before = code_hash(function)
    assert len(before) == 16
    assert "late_d" not in sys.modules, "nothing is imported to find the files"
    assert code_hash(score("unused_e.py", "nothing = 2\n")) == before
    assert code_hash(score("late_d.py", "late = 0.5\r\n")) == before
    for name in ("scorer_a.py", "helper_b.py", "package_c/deep.py", "package_c/__init__.py", "late_d.py"):
        assert code_hash(score(name, FILES[name] + "# changed\n")) != before, name
        score(name, FILES[name])
    assert code_hash(score()) == before


def test_hashes_do_not_depend_on_the_folder_or_the_form_of_the_name(here):
    write(here / "mine.py", "class Thing: ...\n")
    write(here / "folder" / "mine.py", "class Thing: ...\n")
    names = ("mine.py:Thing", "folder/mine.py:Thing", "mine:Thing")
    assert len({code_hash(load_user_code(name)) for name in names}) == 1


def test_code_without_a_file_has_no_hash():
    made = type("Made", (), {"__module__": "nowhere"})
    assert code_hash(made) == code_hash(len) == ""
    assert not is_shipped_code(made)
    assert is_shipped_code(load_user_code)
    code = "from unmask.base.user_code import code_hash, error_location\nclass Mine: pass\n"
    run = fresh_python(code + "print(repr(code_hash(Mine)), error_location(ValueError(), Mine))")
    assert run.stdout.split() == ["''", "Mine"], run.stderr


def test_installed_packages_and_this_one_are_not_local(tmp_path, monkeypatch):
    path = tmp_path / "scorer_f.py"
    path.write_text("import json, numpy, pyarrow.compute, unmask.base.errors\nfrom unmask.tasks import find\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert local_modules(["scorer_f", "json", "numpy", "unmask.tasks"]) == {"scorer_f": path}
