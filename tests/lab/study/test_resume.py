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

from tests.helpers.own_tasks import parsed
from unmask.base.errors import StorageError
from unmask.lab.store import Store
from unmask.lab.store import local as storage
from unmask.lab.study.prompts import load_examples
from unmask.lab.study.protocol import run_study


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
    @pytest.mark.slow
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
        assert [p for p in (place.folder / "shards").iterdir() if p.name.startswith(".")]
        run_study(study, place, loaded)
        assert place.content_hash() == whole.content_hash()
        assert not [p for p in (place.folder / "shards").iterdir() if p.name.startswith(".")]


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
    assert not [p for p in (place.folder / "shards").iterdir() if p.name.startswith(".")]
    monkeypatch.undo()
    run_study(study, place, loaded)
    assert place.content_hash() == whole.content_hash()


class TestFailing:
    """A user's scorer that returns no number at some prompts: their shards fail, and no others."""

    @pytest.fixture
    def failing(self, prompt_file, scorer, tmp_path):
        """A study of one prompt a shard; `bad.txt` names those that fail."""
        study = parsed(prompt_file.parent, own__mine__score=scorer("leaves"), engine__prompts=1)
        roles = load_examples(study)[0]["mine"]
        (tmp_path / "bad.txt").write_text(roles["validation"][0].id)
        return study

    def test_is_set_aside_and_the_rest_goes_on(self, failing, loaded, tmp_path):
        place = Store.create(tmp_path / "out", failing.config)
        heard = []
        outcome = run_study(failing, place, loaded, on_failure=heard.append)
        assert len(place.names()) == 4
        (failed,) = outcome.failures
        assert [failure.attempts for failure in heard] == [1, 2, 3]
        assert (outcome.complete, outcome.hashes) == (False, {})
        assert outcome.reason.startswith("1 shard was set aside after 3 attempts (the first: tiny.mine.validation")
        assert "returned no more: \ufffd for prompt" in outcome.reason
        assert "ContractError: " in failed.traceback
        assert failed.name not in place.names()

    def test_is_not_tried_again_until_it_is_forgotten(self, failing, loaded, tmp_path):
        place = Store.create(tmp_path / "out", failing.config)
        run_study(failing, place, loaded)
        heard = []
        again = run_study(failing, place, lambda spec: pytest.fail("nothing is left to do"), on_failure=heard.append)
        assert (len(again.failures), heard) == (1, [])
        (tmp_path / "bad.txt").write_text("")
        assert run_study(failing, place, loaded, retry_failed=True).complete
        assert place.failures.all() == []
        straight = Store.create(tmp_path / "straight", failing.config)
        assert run_study(failing, straight, loaded).complete
        assert place.content_hash() == straight.content_hash()

    def test_attempts_of_processes_that_ended_count(self, failing, loaded, tmp_path):
        """Three runs, each stopped after its first failure."""
        place = Store.create(tmp_path / "out", failing.config)
        for attempt in (1, 2, 3):
            with pytest.raises(KeyboardInterrupt):
                run_study(failing, place, loaded, on_failure=stop)
            assert place.failures.all()[0].attempts == attempt
        assert len(run_study(failing, place, loaded).failures) == 1

    def test_two_processes_count_together(self, failing, loaded, tmp_path):
        children = [spawn(failing, loaded, tmp_path / "out") for _ in range(2)]
        for child in children:
            child.join(60)
            assert child.exitcode == 0
        place = Store.open(tmp_path / "out")
        assert len(place.names()) == 4
        assert [failure.attempts for failure in place.failures.all()] == [3]

    def test_end_to_end_waits_for_branches_that_choose_for_it(self, failing, loaded, tmp_path):
        study = replace(failing, diagnostics=("region",), end_to_end=True)
        place = Store.create(tmp_path / "out", study.config)
        assert not run_study(study, place, loaded).complete
        assert place.names("decodes") == []
        (tmp_path / "bad.txt").write_text("")
        assert run_study(study, place, loaded, retry_failed=True).complete
        assert len(place.names("decodes")) == 1

    def test_a_unit_is_set_aside_too(self, failing, loaded, tmp_path):
        study = replace(failing, diagnostics=("region",))
        bad = (tmp_path / "bad.txt").read_text()
        (tmp_path / "bad.txt").write_text("")
        place = Store.create(tmp_path / "out", study.config)
        assert run_study(study, place, loaded).complete
        (tmp_path / "bad.txt").write_text(bad)
        outcome = run_study(replace(study, end_to_end=True), place, loaded)
        (failed,) = outcome.failures
        assert not outcome.complete
        assert failed.name.startswith("tiny.mine.")
        assert "set aside" in outcome.reason


def stop(failure):
    raise KeyboardInterrupt
