"""The fingerprint of the code that computes: of its source, and of nothing else."""

import pytest
import torch

from unmask.versions import COMPUTES, code_fingerprint, code_parts, hash_of_parts, source_hash, versions


def test_every_part_is_there_and_what_shows_results_is_not():
    assert code_fingerprint() == hash_of_parts(code_parts())
    assert set(code_parts()) == set(COMPUTES)
    assert len(set(code_parts().values())) == len(COMPUTES)
    assert not [part for part in COMPUTES if part.split("/")[0] in ("report", "cli")]


@pytest.fixture(name="folder")
def _folder(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "a.py").write_bytes(b"x = 1\ny = 2\n")
    (tmp_path / "inner" / "b.py").write_bytes(b"z = 3\n")
    return tmp_path


def test_line_ends_and_other_files_do_not_count(folder):
    before = source_hash(folder)
    (folder / "a.py").write_bytes(b"x = 1\r\ny = 2\r\n")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "a.pyc").write_bytes(b"compiled")
    (folder / "notes.txt").write_text("mine")
    assert source_hash(folder) == before


@pytest.mark.parametrize("change", ["edit", "add", "remove", "move"])
def test_every_change_of_source_counts(folder, change):
    before = source_hash(folder)
    if change == "edit":
        (folder / "inner" / "b.py").write_bytes(b"z = 4\n")
    elif change == "add":
        (folder / "c.py").touch()
    elif change == "remove":
        (folder / "inner" / "b.py").unlink()
    else:
        (folder / "inner" / "b.py").rename(folder / "b.py")
    assert source_hash(folder) != before


def test_threads_are_named():
    assert versions()["threads"] == str(torch.get_num_threads())
