"""Which code a scoring function is: its file and the local modules that it imports, however deep."""

import importlib
import sys

import pytest

from unmask.tasks import own_code
from unmask.tasks.own_code import code_hash

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
    assert code_hash(score(name, text)) != before


def test_what_is_not_imported_or_only_looks_different_does_not(score):
    before = code_hash(score())
    assert code_hash(score("unused_e.py", "nothing = 2\n")) == before
    assert code_hash(score("late_d.py", "late = 0.5\r\n")) == before


def test_nothing_is_imported_to_find_out(score):
    function = score()
    code_hash(function)
    assert "late_d" not in sys.modules


def test_no_file_no_hash():
    assert code_hash(len) == ""


def test_installed_packages_and_this_one_are_not_local(tmp_path):
    path = tmp_path / "scorer_f.py"
    path.write_text("import json, numpy, pyarrow.compute, unmask.errors\nfrom unmask.tasks import find\n")
    assert own_code._local_files("scorer_f", path) == {"scorer_f": path}
