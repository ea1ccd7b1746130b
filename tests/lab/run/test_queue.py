"""Studies that are killed, shared and resumed, and that run out of disk: the tables come out the same."""

import errno
import multiprocessing
import os
import random
import signal
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
import torch

from unmask.errors import StorageError
from unmask.lab.run.driver import run_study
from unmask.lab.store import Store
from unmask.lab.store import store as storage


@pytest.fixture(name="study")
def _study(tiny_study):
    return tiny_study


@pytest.fixture(name="loaded")
def _loaded(tiny_load):
    return tiny_load


@pytest.fixture(name="whole")
def _whole(tiny_run):
    return tiny_run


def work(study, loaded, out):
    """What a child process does."""
    torch.set_num_threads(1)
    run_study(study, Store.create(out, study.config), loaded)


def spawn(study, loaded, out):
    child = multiprocessing.get_context("fork").Process(target=work, args=(study, loaded, out))
    child.start()
    return child


class TestKilled:
    def test_twenty_times_at_random_moments(self, study, loaded, tmp_path):
        # More shards that take less time each: some are done before the kill, and some are being written.
        splits = {role: replace(part, prompts=6) for role, part in study.splits.items()}
        longer = replace(study, splits=splits, states=1, rollouts=1)
        straight = Store.create(tmp_path / "straight", longer.config)
        run_study(longer, straight, loaded)
        draw = random.Random(0)
        kills = seen = 0
        for _ in range(20):
            child = spawn(longer, loaded, tmp_path / "out")
            child.join(draw.uniform(0.02, 0.2))
            if child.is_alive():
                os.kill(child.pid, signal.SIGKILL)
                kills += 1
            child.join()
            if (tmp_path / "out" / "shards").is_dir():
                there = len(Store(tmp_path / "out").names())
                assert there >= seen
                seen = there
        assert kills >= 5
        last = Store.create(tmp_path / "out", longer.config)
        assert run_study(longer, last, loaded).complete
        assert last.content_hash() == straight.content_hash()
        assert not [p for p in (tmp_path / "out").rglob("*") if p.name.startswith(".")]

    def test_two_processes_share_the_work(self, whole, study, loaded, tmp_path):
        children = [spawn(study, loaded, tmp_path / "out") for _ in range(2)]
        for child in children:
            child.join(60)
            assert child.exitcode == 0
        assert Store.open(tmp_path / "out").content_hash() == whole.content_hash()

    def test_a_dead_process_holds_nothing(self, whole, study, loaded, tmp_path, monkeypatch):
        """Its lock is free and its litter is removed."""
        monkeypatch.setattr(storage, "rename_folder", lambda partial, target: os.kill(os.getpid(), signal.SIGKILL))
        child = spawn(study, loaded, tmp_path / "out")
        child.join(60)
        assert child.exitcode == -signal.SIGKILL
        monkeypatch.undo()
        place = Store.open(tmp_path / "out")
        assert place.names() == []
        assert [p for p in place.shards.iterdir() if p.name.startswith(".")]
        run_study(study, place, loaded)
        assert place.content_hash() == whole.content_hash()
        assert not [p for p in place.shards.iterdir() if p.name.startswith(".")]


def test_a_full_disk_loses_the_shard_in_flight_only(whole, study, loaded, tmp_path, monkeypatch):
    place = Store.create(tmp_path / "out", study.config)
    written = []
    real = pq.write_table

    def full(data, file, **options):
        written.append(1)
        # Three tables a shard.
        if len(written) > 7:
            file.write(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        real(data, file, **options)

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(StorageError, match=r"No space left on device.*run the study again"):
        run_study(study, place, loaded)
    assert len(place.names()) == 2
    assert not [p for p in place.shards.iterdir() if p.name.startswith(".")]
    monkeypatch.undo()
    run_study(study, place, loaded)
    assert place.content_hash() == whole.content_hash()
