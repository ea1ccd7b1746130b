"""The one loop that carries jobs out: what fails, what is tried again, what is waited for, and what ends the run."""

import errno
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
import torch

from unmask.base.errors import ConfigError, ContractError, NotEnoughMemory, StorageError, WorkerDied
from unmask.lab.cluster.executor import LocalExecutor
from unmask.lab.store import ATTEMPTS, Shard, Store
from unmask.lab.study.jobs import JobEvents, ShardContent, Work, run_jobs

EMPTY = ShardContent({}, {})


@dataclass(frozen=True)
class Numbered:
    number: int

    @property
    def shard(self):
        return Shard(kind="branches", model="m", task="t", split="validation", block=self.number, depends="k")


class ThreadedExecutor:
    """Starts every call in a thread at once, as a cluster does."""

    is_local = False

    def __init__(self, ahead=3):
        self.ahead, self.threads = ahead, ThreadPoolExecutor(32)

    def submit(self, function, spec, *arguments, then=None):
        return self.threads.submit(lambda: (then or (lambda result: result))(function(None, *arguments)))


@pytest.fixture
def store(tmp_path):
    return Store.create(tmp_path / "out", {"name": "none", "models": []})


@pytest.fixture(params=["local", "threads"])
def executor(request):
    return LocalExecutor(lambda spec: None) if request.param == "local" else ThreadedExecutor()


def pairs(jobs):
    return [jobs[at : at + 2] for at in range(0, len(jobs), 2)]


def carry_out(executor, store, compute, score=list, jobs=6, stop=str, group=pairs, **events):
    """Run numbered jobs, two in a group: `compute` gets their numbers, `score` what it returns."""

    def start(group):
        numbers = [job.number for job in group]
        return executor.submit(lambda model, given: compute(given), None, numbers, then=score)

    done = []
    heard = {"on_stored": lambda shard, info: done.append(shard.block), **events}
    reason = run_jobs(executor, [Numbered(n) for n in range(jobs)], store, Work(start, group), stop, JobEvents(**heard))
    return done, reason


def test_every_job_is_stored_once(executor, store):
    done, reason = carry_out(executor, store, lambda numbers: [EMPTY] * len(numbers), jobs=20)
    assert (sorted(done), reason) == (list(range(20)), "")
    assert all(store.is_finished(Numbered(n).shard) for n in range(20))


def test_a_group_that_fails_is_run_job_by_job(executor, store):
    begun, failures = [], []

    def compute(numbers):
        begun.append(tuple(numbers))
        if 3 in numbers:
            raise ValueError("three")
        return [EMPTY] * len(numbers)

    done, _ = carry_out(executor, store, compute, on_failure=failures.append)
    assert sorted(done) == [0, 1, 2, 4, 5]
    assert (begun.count((2, 3)), begun.count((3,)), len(failures)) == (1, ATTEMPTS, ATTEMPTS)
    (aside,) = store.failures.set_aside()
    assert aside.error == "ValueError: three"


def test_a_job_whose_scoring_fails_is_tried_again_alone(executor, store):
    tries = []

    def score(numbers):
        tries.append(numbers)
        return [SystemExit("a scorer that leaves") if n == 1 and len(tries) < 3 else EMPTY for n in numbers]

    done, _ = carry_out(executor, store, list, score, jobs=2)
    assert (sorted(done), tries) == ([0, 1], [[0, 1], [1], [1]])
    assert store.failures.all() == []


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
@pytest.mark.parametrize("stage", ["compute", "score"])
def test_an_error_of_no_single_job_ends_the_run(store, stage, error, kind, words):
    def fail(numbers):
        raise error

    if stage == "score" and kind is KeyboardInterrupt:
        pytest.skip("Ctrl-C is raised in the main thread")
    stages = (fail, list) if stage == "compute" else (list, fail)
    with pytest.raises(kind, match=words):
        carry_out(LocalExecutor(lambda spec: None), store, *stages)
    assert store.failures.all() == []
    for number in range(6):
        with store.claim(Numbered(number).shard) as is_free:
            assert is_free


def test_a_promise_that_every_job_breaks_ends_the_run(store):
    """After three jobs, not after three attempts at each; any other error sets the jobs aside."""
    tried = []

    def fail(numbers):
        tried.append(numbers)
        raise errors[0]

    alone = lambda jobs: [[job] for job in jobs]  # noqa: E731
    local = LocalExecutor(lambda spec: None)
    errors = [ContractError("a utility is 1.7")]
    with pytest.raises(ContractError, match=r"1\.7"):
        carry_out(local, store, fail, jobs=9, group=alone)
    assert len(tried) <= 4
    store.failures.forget_all()
    errors = [ZeroDivisionError("unexpected")]
    assert carry_out(local, store, fail, jobs=9, group=alone) == ([], "")
    assert len(store.failures.set_aside()) == 9


def test_workers_that_die_at_first_do_not_end_the_run(store):
    killed = set()

    def compute(numbers):
        if len(killed) < 6 and tuple(numbers) not in killed:
            killed.add(tuple(numbers))
            raise WorkerDied("killed")
        return [EMPTY] * len(numbers)

    done, _ = carry_out(ThreadedExecutor(), store, compute)
    assert sorted(done) == list(range(6))


def test_what_is_under_way_is_finished_when_a_run_is_stopped(store):
    began = threading.Event()

    def compute(numbers):
        began.set()
        time.sleep(0.1)
        return [EMPTY] * len(numbers)

    stop = lambda: "enough" if began.is_set() else ""  # noqa: E731
    done, reason = carry_out(ThreadedExecutor(ahead=1), store, compute, jobs=20, stop=stop)
    assert reason == "enough"
    assert 0 < len(done) <= 4


def test_ctrl_c_keeps_what_is_computed(store):
    def compute(numbers):
        if 0 not in numbers:
            raise KeyboardInterrupt
        return [EMPTY] * len(numbers)

    with pytest.raises(KeyboardInterrupt):
        carry_out(LocalExecutor(lambda spec: None), store, compute)
    assert [store.is_finished(Numbered(n).shard) for n in range(3)] == [True, True, False]


def test_ctrl_c_does_not_wait_for_a_call_that_never_ends(store):
    def interrupt(running):
        raise KeyboardInterrupt

    class Endless(ThreadedExecutor):
        def submit(self, *arguments, **named):
            return Future()

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        carry_out(Endless(), store, list, on_tick=interrupt)
    assert time.monotonic() - began < 10


def test_a_job_of_another_process_is_waited_for_and_its_holder_named(store):
    found, told = [], []
    with ExitStack() as other:
        other.enter_context(Store(store.folder).claim(Numbered(1).shard))

        def on_wait(text):
            told.append(text)
            Store(store.folder).write(Numbered(1).shard, {}, {})
            other.close()

        local = LocalExecutor(lambda spec: None)
        done, _ = carry_out(
            local,
            store,
            lambda numbers: [EMPTY] * len(numbers),
            jobs=2,
            on_wait=on_wait,
            on_found=lambda: found.append(1),
        )
    assert (done, found, told) == ([0], [1], ["waiting for 1 shards of this process"])
