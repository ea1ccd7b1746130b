"""Studies that are killed, shared and resumed, and that run out of disk: the tables come out the same."""

import errno
import multiprocessing
import os
import random
import signal
import threading
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import pyarrow.parquet as pq
import pytest
import torch

from tests.helpers.own_tasks import parsed
from unmask.base.errors import ConfigError, ContractError, NotEnoughMemory, StorageError
from unmask.lab.store import Shard, Store
from unmask.lab.store import local as storage
from unmask.lab.study.attempts import work_in_groups, work_through
from unmask.lab.study.jobs import load_examples
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

    def test_what_succeeds_in_the_end_is_forgotten(self, failing, loaded, tmp_path):
        place = Store.create(tmp_path / "out", failing.config)
        outcome = run_study(failing, place, loaded, on_failure=lambda failure: (tmp_path / "bad.txt").write_text(""))
        assert outcome.complete
        assert place.failures.all() == []

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

    def test_half_a_character_of_a_scorer_ends_nothing(self, prompt_file, scorer, loaded, tmp_path):
        study = parsed(prompt_file.parent, own__mine__score=scorer("halves"), engine__prompts=1)
        place = Store.create(tmp_path / "out", study.config)
        outcome = run_study(study, place, loaded)
        roles = load_examples(study)[0]["mine"]
        fine = [e.id for part in roles.values() for e in part if e.id not in ("p0", "p3", "p5")]
        assert fine
        assert {prompt for info in place.infos().values() for prompt in info["prompts"]} >= set(fine)
        assert outcome.complete or outcome.failures


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (MemoryError(), NotEnoughMemory, "memory ran out"),
        (torch.OutOfMemoryError("CUDA"), NotEnoughMemory, "the same command"),
        (OSError(errno.ENOSPC, "No space left on device"), StorageError, "No space left"),
        (OSError(errno.EROFS, "Read-only file system"), StorageError, "Read-only"),
        (ConfigError("impossible"), ConfigError, "impossible"),
        (KeyboardInterrupt("enough"), KeyboardInterrupt, "enough"),
    ],
)
def test_what_is_not_of_a_shard_ends_the_run_and_is_not_counted(error, kind, words, whole, tmp_path):
    place = Store.create(tmp_path / "out", whole.manifest["study"])

    def do(shard):
        raise error

    with pytest.raises(kind, match=words):
        work_through(
            place,
            [Shard(kind="branches", model="m", task="t", split="validation", block=n, depends="k") for n in range(4)],
            lambda shard: shard,
            do,
            str,
        )
    assert place.failures.all() == []


def test_a_second_writer_that_waits_says_whom_it_waits_for(whole, tmp_path):
    place = Store.create(tmp_path / "out", whole.manifest["study"])
    (shard, info) = next(iter(whole.infos().items()))
    tables = {name: whole.read_arrow(name, shards=[shard]) for name in shard.layout.tables}
    told = []

    def on_wait(text):
        told.append(text)
        other.close()

    with ExitStack() as other:
        other.enter_context(Store.open(tmp_path / "out").claim(shard))
        do = lambda pieces: [partial(place.write, piece, tables, info) for piece in pieces]  # noqa: E731
        groups = lambda pieces: [list(pieces)]  # noqa: E731
        assert work_in_groups(place, [shard], lambda one: one, groups, do, str, on_wait=on_wait) == ""
    assert told == ["waiting for 1 shards of this process"]
    assert place.is_finished(shard)


def test_a_promise_that_every_shard_breaks_is_the_studys(whole, tmp_path):
    """Told after three shards, not after three times all of them; any other error sets them aside."""
    place = Store.create(tmp_path / "out", whole.manifest["study"])
    shards = [Shard(kind="branches", model="m", task="t", split="validation", block=n, depends="k") for n in range(9)]
    tried = []

    def do(shard):
        tried.append(shard)
        raise errors[0]

    errors = [ContractError("a utility is 1.7")]
    with pytest.raises(ContractError, match=r"1\.7"):
        work_through(place, shards, lambda shard: shard, do, str)
    assert tried == shards[:3]
    errors = [ZeroDivisionError("unexpected")]
    assert work_through(place, shards, lambda shard: shard, do, str) == ""
    assert len(place.failures.set_aside()) == 9


class TestGroups:
    """Shards that are done together, and finished while the next ones are done."""

    SHARDS = tuple(
        Shard(kind="branches", model="m", task="t", split="validation", block=n, depends="k") for n in range(4)
    )

    @pytest.fixture
    def place(self, whole, tmp_path):
        return Store.create(tmp_path / "out", whole.manifest["study"])

    def through(self, place, do, **heard):
        pairs = lambda left: [left[at : at + 2] for at in range(0, len(left), 2)]  # noqa: E731
        return work_in_groups(place, self.SHARDS, lambda shard: shard, pairs, do, str, **heard)

    def test_one_group_is_finished_while_the_next_is_done(self, place):
        """The first group's shards are not finished before the second group is under way, and stay claimed so long."""
        second, done, theirs = threading.Event(), [], []

        def finish():
            assert second.wait(30)
            with Store.open(place.folder).claim(self.SHARDS[0]) as free:
                theirs.append(free)

        def do(shards):
            if self.SHARDS[0] in shards:
                return [finish] * len(shards)
            second.set()
            return [lambda: None] * len(shards)

        place.set_metadata("models", "m", {"shards": {shard.name: {} for shard in self.SHARDS}})
        assert self.through(place, do, done=done.append) == ""
        assert done == list(self.SHARDS)
        assert theirs[0] is False

    def test_only_those_count_that_fail_by_themselves(self, place):
        tried, heard = [], []

        def do(shards):
            tried.append(len(shards))
            if self.SHARDS[1] in shards:
                raise ZeroDivisionError("of the second")
            return [lambda: None] * len(shards)

        assert self.through(place, do, lost=heard.append) == ""
        assert [failure.attempts for failure in heard] == [1, 2, 3]
        assert [failure.name for failure in place.failures.set_aside()] == [self.SHARDS[1].name]
        # The group, its two shards, the other group, and the one that fails twice more.
        assert tried == [2, 1, 1, 2, 1, 1]

    def test_what_fails_when_it_is_finished_is_tried_again(self, place):
        heard, late = [], []

        def finish():
            late.append(1)
            if len(late) == 1:
                raise SystemExit("a scorer that leaves")

        def do(shards):
            return [finish if shard is self.SHARDS[3] else lambda: None for shard in shards]

        assert self.through(place, do, lost=heard.append) == ""
        assert ([failure.attempts for failure in heard], len(late)) == ([1], 2)
        assert place.failures.all() == []

    def test_who_is_interrupted_keeps_what_is_computed(self, place):
        stored = []

        def do(shards):
            if self.SHARDS[0] not in shards:
                raise KeyboardInterrupt
            return [partial(stored.append, shard) for shard in shards]

        with pytest.raises(KeyboardInterrupt):
            self.through(place, do)
        assert stored == list(self.SHARDS[:2])

    def test_a_full_disk_ends_the_run_and_lets_everything_go(self, place):
        def do(shards):
            return [lambda: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device"))] * len(shards)

        with pytest.raises(StorageError, match="No space left"):
            self.through(place, do)
        assert place.failures.all() == []
        for shard in self.SHARDS:
            with place.claim(shard) as free:
                assert free


def stop(failure):
    raise KeyboardInterrupt
