"""Files that are there whole or not at all."""

import os
from pathlib import Path

import pytest

from unmask.base.errors import ConfigError
from unmask.report import files


def test_whole_or_not_at_all(tmp_path, monkeypatch):
    target = files.write(tmp_path / "a.txt", b"old")

    def fail(self, content):
        os.close(os.open(self, os.O_CREAT))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(ConfigError, match="No space"):
        files.write(target, b"new")
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_place_is_checked_and_not_made(tmp_path):
    files.check_place(tmp_path / "new" / "deeper")
    assert not (tmp_path / "new").exists()
    (tmp_path / "taken").touch()
    for place in ("taken", "taken/deeper"):
        with pytest.raises(ConfigError, match="is a file; allowed: a folder"):
            files.check_place(tmp_path / place)
