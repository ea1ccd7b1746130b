"""Files and folders that are there whole or not at all."""

import pytest

from unmask.atomic import atomic_folder, atomic_write, sync, write_text


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def spoilt(writing, write):
    """Something goes wrong half way."""
    with writing as partial:
        write(partial)
        raise RuntimeError("stop")


class TestFile:
    def test_is_there_when_it_is_whole(self, tmp_path):
        target = tmp_path / "a.txt"
        with atomic_write(target) as partial, partial.open("w") as file:
            file.write("new")
            sync(file)
            assert partial.read_text() == "new"
            assert not target.exists()
        assert target.read_text() == "new"
        assert names(tmp_path) == ["a.txt"]

    def test_stays_as_it_was_if_something_goes_wrong(self, tmp_path):
        target = tmp_path / "a.txt"
        target.write_text("old")
        with pytest.raises(RuntimeError, match="stop"):
            spoilt(atomic_write(target), lambda partial: partial.write_text("half"))
        assert target.read_text() == "old"
        assert names(tmp_path) == ["a.txt"]

    def test_of_text_has_the_same_bytes_everywhere(self, tmp_path):
        write_text(tmp_path / "a.txt", "é\nb\n")
        assert (tmp_path / "a.txt").read_bytes() == b"\xc3\xa9\nb\n"


class TestFolder:
    @pytest.fixture
    def target(self, tmp_path):
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "old").write_text("old")
        return tmp_path / "model"

    def test_takes_the_place_of_the_old_one(self, target):
        with atomic_folder(target) as partial:
            (partial / "new").write_text("new")
            assert names(target) == ["old"]
        assert names(target) == ["new"]
        assert names(target.parent) == ["model"]

    def test_that_is_new(self, tmp_path):
        with atomic_folder(tmp_path / "deep" / "model") as partial:
            (partial / "new").write_text("new")
        assert names(tmp_path / "deep") == ["model"]

    def test_stays_as_it_was_if_something_goes_wrong(self, target):
        with pytest.raises(RuntimeError, match="stop"):
            spoilt(atomic_folder(target), lambda partial: (partial / "new").write_text("half"))
        assert names(target) == ["old"]
        assert names(target.parent) == ["model"]

    def test_comes_back_if_the_new_one_cannot_take_its_place(self, target):
        with pytest.raises(FileNotFoundError), atomic_folder(target) as partial:
            partial.rmdir()
        assert names(target) == ["old"]
        assert names(target.parent) == ["model"]

    def test_what_a_kill_left_is_thrown_away(self, target):
        (target.parent / ".model.partial").mkdir()
        (target.parent / ".model.partial" / "half").write_text("half")
        with atomic_folder(target) as partial:
            assert names(partial) == []
        assert names(target.parent) == ["model"]
