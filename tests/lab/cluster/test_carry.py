"""A user's own code travels: as files, under the same names, to a process that has none of them."""

import pickle
import sys

import pytest

from tests.helpers.fresh_python import fresh_python
from unmask.base.user_code import code_hash, load_user_code
from unmask.lab.cluster.carry import packed

OPENED = """
import pickle, sys
from unmask.base.user_code import code_hash
function = pickle.load(open(sys.argv[1], "rb")).open()
print(function("ab"), code_hash(function))
"""


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A scorer in a file of its own, which imports another."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "lengths_of_mine.py").write_text("def length(text):\n    return len(text)\n")
    source = "import lengths_of_mine\n\ndef score(text):\n    return lengths_of_mine.length(text) * 10\n"
    (tmp_path / "mine.py").write_text(source)
    yield tmp_path
    sys.modules.pop("lengths_of_mine", None)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mine.py:score", "mine:score"])
def test_code_by_its_file_or_module(written, name, tmp_path_factory):
    function = load_user_code(name)
    try:
        parcel, hashed = packed(function), code_hash(function)
    finally:
        sys.modules.pop("mine", None)
    place = tmp_path_factory.mktemp("elsewhere") / "parcel"
    place.write_bytes(pickle.dumps(parcel))
    for file in written.glob("*.py"):
        file.unlink()
    run = fresh_python(OPENED, str(place))
    assert run.stdout.split() == ["20", hashed], run.stderr


def test_what_is_installed_is_not_carried():
    assert packed((print, pytest.raises, packed)).files == ()
