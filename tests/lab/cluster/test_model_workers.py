"""Calls to workers in their order, few of them ahead; without a cluster."""

from concurrent.futures import Future

import pytest

from unmask.lab.cluster.model_workers import AHEAD, ModelWorkers, WorkersLost, result_of
from unmask.lab.cluster.pool import WorkerDied


class TwoWorkers:
    """Ends calls in reverse, as soon as somebody waits for one; counts those under way."""

    size = 2

    def __init__(self):
        self.open, self.most = [], 0

    def submit(self, function, spec, inner, arguments, **named):
        future = _Waited(self)
        self.open.append((future, lambda: inner(spec, *arguments)))
        self.most = max(self.most, len(self.open))
        return future

    def work(self):
        for future, call in reversed(self.open):
            future.set_result(call())
        self.open = []


class _Waited(Future):
    def __init__(self, pool):
        super().__init__()
        self.pool = pool

    def result(self, timeout=None):
        if not self.done():
            self.pool.work()
        return super().result(timeout)


def test_results_come_in_the_order_of_the_calls_and_few_are_ahead():
    pool = TwoWorkers()
    asked = []

    def calls():
        for at in range(20):
            asked.append(at)
            yield (at,)

    results = ModelWorkers(pool, "model").in_order(lambda model, at: (model, at), calls())
    assert next(results) == ("model", 0)
    assert len(asked) == AHEAD * pool.size
    assert list(results) == [("model", at) for at in range(1, 20)]
    assert pool.most <= AHEAD * pool.size


def test_work_that_kills_workers_is_said_in_one_line():
    future = Future()
    future.set_exception(WorkerDied("worker-3 died at generate: killed; it is tried again by another"))
    with pytest.raises(WorkersLost, match=r"3 workers died .*worker-3 died at generate: killed\); allowed") as caught:
        result_of(future)
    assert "\n" not in str(caught.value)
