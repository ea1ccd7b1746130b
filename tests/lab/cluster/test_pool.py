"""Calls that outlive workers: what is heard of one that raises, dies, takes long, or computes with something else."""

import os
import time
from pathlib import Path

import pytest

from tests.cluster.nodes import until
from unmask.base.errors import ConfigError, UnknownName, WorkerDied
from unmask.lab.cluster.pool import PoolClosed, WorkerPool
from unmask.lab.cluster.progress import WorkerLogs
from unmask.lab.cluster.workers import Setup, WorkerActor, WorkerTraceback

pytestmark = pytest.mark.cluster


def twice(context, word):
    return context.model(word), os.getpid()


def unknown(context):
    raise UnknownName("thing", "x", ["y"])


def dies_once(context, mark):
    """The first worker that gets here dies."""
    if not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), 9)
    return "alive"


def full(context, mark):
    if not Path(mark).exists():
        Path(mark).touch()
        raise MemoryError("no room")
    return os.getpid()


def slow_once(context, mark, short):
    """The first worker that gets here takes for ever."""
    if not short and not Path(mark).exists():
        Path(mark).touch()
        time.sleep(600)
    return "done"


def joined(value, more):
    return [*value, more]


def alive_after(mark, deaths):
    """So many helpers die first; the one that lives says who it is."""
    Path(mark).touch()
    with Path(mark).open("a") as file:
        file.write("x")
    if len(Path(mark).read_text()) <= deaths:
        os.kill(os.getpid(), 9)
    return os.getpid()


class OlderWorker(WorkerActor):
    """Of another version."""

    def hello(self):
        about, node = super().hello()
        return {**about, "unmask": "0.1"}, node


@pytest.fixture
def pool(ray, where, tmp_path):
    with WorkerPool(ray, where, Setup.of(lambda spec: spec * 2), logs=WorkerLogs(tmp_path / "logs")) as pool:
        yield pool


def test_calls_and_what_is_beside_them(pool):
    words = [pool.submit(twice, word) for word in "abc"]
    assert [future.result()[0] for future in words] == ["aa", "bb", "cc"]
    kept = pool.submit(twice, "d", keep=True).result()
    value = pool.beside(joined, "more", kept=[kept]).result()
    assert (value[0], value[2]) == ("dd", "more")
    with pytest.raises(ConfigError, match="unknown thing 'x'") as caught:
        pool.submit(unknown).result()
    assert isinstance(caught.value.__cause__, WorkerTraceback)
    assert "UnknownName" in str(caught.value.__cause__)


def test_a_worker_that_dies_is_replaced(pool, tmp_path):
    with pytest.raises(WorkerDied, match="died at dies_once"):
        pool.submit(dies_once, str(tmp_path / "first")).result()
    assert pool.submit(dies_once, str(tmp_path / "second"), deaths=2).result() == "alive"
    until(lambda: len(pool.now().workers) == 3)
    assert pool.now().lost == 2
    assert any("lost while at dies_once" in log.read_text() for log in (tmp_path / "logs").iterdir())


def test_one_that_runs_out_of_memory_is_replaced(pool, tmp_path):
    assert pool.submit(full, str(tmp_path / "mark"), deaths=2).result()
    assert pool.now().lost == 1


def test_a_helper_stays_and_is_replaced_when_it_dies(pool, tmp_path):
    """Its process is used again; work that ends every process is given up."""
    first, second = (pool.beside(alive_after, str(tmp_path / "well"), 0).result() for _ in range(2))
    assert first == second
    assert pool.beside(alive_after, str(tmp_path / "twice"), 2).result() != first
    with pytest.raises(WorkerDied, match="alive_after ended its process"):
        pool.beside(alive_after, str(tmp_path / "always"), 99).result()
    assert pool.beside(alive_after, str(tmp_path / "again"), 0).result()


def test_a_helper_claims_no_core_that_may_go(nodes, pool, tmp_path):
    """Each node has one core, which a worker has. A claim would wait for ever."""
    until(lambda: all(worker.node for worker in pool.now().workers))
    nodes.kill()
    assert pool.beside(alive_after, str(tmp_path / "after"), 0).result(60)
    nodes.fill()


def test_who_takes_long_is_overtaken(pool, tmp_path):
    for _ in range(3):
        pool.submit(slow_once, str(tmp_path / "mark"), True).result()
    until(lambda: sum(bool(worker.node) for worker in pool.now().workers) >= 2)
    assert pool.submit(slow_once, str(tmp_path / "mark"), False).result(120) == "done"
    assert pool.now().copies == 1


def test_who_waits_hears_of_the_end(ray, where, tmp_path):
    with WorkerPool(ray, where, Setup.of(str)) as pool:
        future = pool.submit(slow_once, str(tmp_path / "mark"), False)
        until(lambda: pool.now().busy)
    with pytest.raises(PoolClosed):
        future.result(1)


def test_other_versions_are_refused(ray, where):
    said = r"unmask 0\.1 there, .* here.*allowed: the same versions and code"
    with WorkerPool(ray, where, Setup.of(str), actor=OlderWorker) as pool, pytest.raises(ConfigError, match=said):
        pool.submit(twice, "a").result()
