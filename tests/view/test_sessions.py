"""Workers and runs that are kept."""

import threading

import pytest

from tests.helpers.view_server import exact
from unmask.base.errors import ConfigError
from unmask.viewer.sessions import KeptRun, KeptRuns, Workers


@pytest.fixture
def workers():
    made = Workers(threads=1, waiting=1)
    yield made
    made.close()
    assert not any(thread.is_alive() for thread in made._threads)


def heard():
    """A listener, and what it has heard."""
    told = []
    return told, lambda event, value: told.append((event, value))


def test_an_error_is_one_line_and_the_thread_goes_on(workers):
    def fails(job):
        raise ValueError("two\nlines \ud800")

    told, tell = heard()
    assert workers.submit(fails, tell).done.wait(20)
    assert told == [("error", "unexpected ValueError: two lines \ufffd"), ("done", None)]
    told, tell = heard()
    assert workers.submit(lambda job: job.tell("value", 1), tell).done.wait(20)
    assert told == [("value", 1), ("done", None)]


def test_work_that_nobody_waits_for_never_begins_and_running_work_ends_at_its_next_word(workers):
    begun, go, words = threading.Event(), threading.Event(), []

    def slow(job):
        begun.set()
        assert go.wait(20)
        job.tell("first", None)
        words.append("after")

    told, tell = heard()
    first = workers.submit(slow, tell)
    assert begun.wait(20)
    assert workers.running == 1
    later_told, later_tell = heard()
    second = workers.submit(lambda job: words.append("second"), later_tell)
    assert later_told == [("waiting", {"before": 1})]
    with pytest.raises(ConfigError, match="fewer than 1 pieces; try again later"):
        workers.submit(lambda job: None, lambda event, value: None)
    first.cancel()
    second.cancel()
    go.set()
    assert first.done.wait(20)
    assert second.done.wait(20)
    assert words == []
    assert told == [("done", None)]


def test_closing_ends_what_runs_and_what_waits():
    workers, begun = Workers(threads=1), threading.Event()

    def endless(job):
        begun.set()
        while True:
            job.check()

    jobs = [workers.submit(endless, lambda event, value: None) for _ in range(3)]
    assert begun.wait(20)
    workers.close()
    assert all(job.done.is_set() for job in jobs)
    assert not any(thread.is_alive() for thread in workers._threads)


def test_the_oldest_run_is_forgotten_with_what_to_do():
    runs, done = KeptRuns(most=2), exact().generate("ab", max_new_tokens=2)
    first, second, third = (runs.keep(KeptRun(done, {}, "exact")) for _ in range(3))
    assert runs.get(second.id) is second
    assert runs.get(third.id) is third
    with pytest.raises(ConfigError, match="decode it again"):
        runs.get(first.id)
    assert len({first.id, second.id, third.id}) == 3
