"""Files and folders are there whole or not at all, locks end with their holder, and any text can be stored."""

import errno
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.fresh_python import environment
from unmask.base.errors import StorageError
from unmask.base.files import (
    atomic_folder,
    atomic_write,
    find_leftovers,
    lock,
    replace_surrogates,
    sync_file,
    write_text,
)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def fail_while(writing, write):
    """Fail in the middle of writing."""
    with writing as partial:
        write(partial)
        raise RuntimeError("stop")


class TestFile:
    def test_is_there_when_it_is_whole(self, tmp_path):
        target = tmp_path / "a.txt"
        with atomic_write(target) as partial, partial.open("w") as file:
            file.write("new")
            sync_file(file)
            assert partial.read_text() == "new"
            assert not target.exists()
        assert target.read_text() == "new"
        assert names(tmp_path) == ["a.txt"]

    def test_stays_as_it_was_if_something_goes_wrong(self, tmp_path):
        target = tmp_path / "a.txt"
        target.write_text("old")
        with pytest.raises(RuntimeError, match="stop"):
            fail_while(atomic_write(target), lambda partial: partial.write_text("half"))
        assert target.read_text() == "old"
        assert names(tmp_path) == ["a.txt"]

    @pytest.mark.parametrize("mask", [0o022, 0o027, 0o077, 0o002])
    def test_has_the_mode_of_any_new_file(self, mask, tmp_path):
        def through_a_private_file(partial):
            handle, name = tempfile.mkstemp(dir=partial.parent)
            os.close(handle)
            os.replace(name, partial)

        before = os.umask(mask)
        try:
            write_text(tmp_path / "text", "a")
            with atomic_write(tmp_path / "private") as partial:
                through_a_private_file(partial)
        finally:
            os.umask(before)
        for name in ("text", "private"):
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o666 & ~mask

    def test_two_writers_have_a_place_each(self, tmp_path):
        target = tmp_path / "a.txt"
        with atomic_write(target) as one, atomic_write(target) as other:
            assert one != other
            one.write_text("one")
            other.write_text("other")
        assert target.read_text() == "one"
        assert names(tmp_path) == ["a.txt"]


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

    def test_stays_as_it_was_if_something_goes_wrong(self, target):
        with pytest.raises(RuntimeError, match="stop"):
            fail_while(atomic_folder(target), lambda partial: (partial / "new").write_text("half"))
        assert names(target) == ["old"]
        assert names(target.parent) == ["model"]

    def test_comes_back_if_the_new_one_cannot_take_its_place(self, target):
        with pytest.raises(FileNotFoundError), atomic_folder(target) as partial:
            partial.rmdir()
        assert names(target) == ["old"]
        assert names(target.parent) == ["model"]

    def test_what_a_kill_left_is_known(self, target):
        (target.parent / ".model.12-ab.partial").mkdir()
        (target.parent / ".model.12-cd.old").mkdir()
        (target.parent / ".model-other.12-cd.old").mkdir()
        with atomic_folder(target) as partial:
            assert names(partial) == []
        assert sorted(path.name for path in find_leftovers(target)) == [".model.12-ab.partial", ".model.12-cd.old"]
        assert find_leftovers(target.parent / "nowhere" / "model") == []


LOCKED = """
import os, sys, time
from pathlib import Path
from unmask.base.files import lock

started, start = os.pipe()
with lock(Path(sys.argv[1])) as sure:
    if os.fork() == 0:
        os.close(1)
        os.write(start, b"1")
        time.sleep(60)
        os._exit(0)
    # A forked process gives the lock up when it first runs, which on a busy machine may be late.
    os.read(started, 1)
    print(sure, flush=True)
    sys.stdin.read()
"""


class TestLock:
    def test_is_held_once(self, tmp_path):
        with lock(tmp_path / "lock") as sure:
            assert sure
            with pytest.raises(BlockingIOError, match="this process"), lock(tmp_path / "lock"):
                pass
            with pytest.raises(BlockingIOError), lock(tmp_path / "." / "lock"):
                pass
            with lock(tmp_path / "other"):
                pass
        with lock(tmp_path / "lock"):
            pass

    def test_a_file_system_without_locks_is_reported(self, tmp_path, monkeypatch):
        """A lock that is only a file would be held forever by a killed process."""

        def no_locks(*args):
            raise OSError(errno.ENOSYS, "not implemented")

        monkeypatch.setattr("fcntl.flock", no_locks)
        with lock(tmp_path / "lock") as sure:
            assert not sure

    def test_another_process_is_named_and_its_death_frees(self, tmp_path):
        """Even if a process that it forked off lives on."""
        command = [sys.executable, "-c", LOCKED, str(tmp_path / "lock")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, env=environment(), start_new_session=True, **pipes) as holder:
            try:
                assert holder.stdout.readline() == "True\n"
                message = f"process {holder.pid} on "
                with pytest.raises(BlockingIOError, match=message), lock(tmp_path / "lock"):
                    pass
                os.kill(holder.pid, signal.SIGKILL)
                holder.wait()
                with lock(tmp_path / "lock") as sure:
                    assert sure
            finally:
                os.killpg(holder.pid, signal.SIGKILL)


class TestSpecialFiles:
    """What a rename would destroy is refused: as root, `--out /dev/null` took the device away."""

    @pytest.fixture(params=["pipe", "folder", "socket"])
    def special(self, request, tmp_path):
        path = tmp_path / request.param
        if request.param == "pipe":
            os.mkfifo(path)
        elif request.param == "folder":
            path.mkdir()
        else:
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(str(path))
        return path

    def test_is_never_replaced_by_a_file(self, special):
        before = special.stat().st_mode
        with (
            pytest.raises(StorageError, match=r"is there and is no plain file; allowed: a new name"),
            atomic_write(special),
        ):
            raise AssertionError("the body must not run")
        assert special.stat().st_mode == before
        assert [path.name for path in special.parent.iterdir()] == [special.name]

    def test_a_device_by_a_link(self, tmp_path):
        """A link to a device stands for the device."""
        (tmp_path / "link").symlink_to("/dev/null")
        with pytest.raises(StorageError, match="no plain file"), atomic_write(tmp_path / "link"):
            raise AssertionError("the body must not run")
        assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


class TestStorableText:
    @settings(max_examples=30)
    @given(st.text())
    def test_text_that_utf8_holds_is_not_changed(self, text):
        assert replace_surrogates(text) == text

    @given(st.lists(st.integers(0, 0x10FFFF)).map(lambda codes: "".join(map(chr, codes))))
    def test_whatever_comes_in_can_be_stored(self, text):
        replace_surrogates(text).encode("utf-8")

    @pytest.mark.parametrize(
        ("text", "stored"),
        [("\ud800", "\ufffd"), ("a\udc00b", "a\ufffdb"), ("\ud83d\ude00", "\U0001f600"), ("", ""), ("x\x00", "x\x00")],
    )
    def test_two_halves_that_belong_together_are_one_character(self, text, stored):
        assert replace_surrogates(text) == stored
