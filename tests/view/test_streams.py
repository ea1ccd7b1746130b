"""Runs as streams: steps as they happen, several tabs, and what becomes of a tab that goes away."""

import time

from tests.helpers.view_server import events, exact, held, next_event, serving
from unmask.viewer.streams import as_event

RUN = {"model": "slow", "prompt": "ab", "options": {"max_new_tokens": 6, "steps": 6}}


def test_a_text_cannot_begin_another_event():
    odd = 'a\n\nevent: end\ndata: "x"\r\n\u2028'
    assert events(as_event("step", odd).decode()) == [("step", odd)]


def test_a_step_is_told_before_the_next_one_is_taken():
    slow = held(exact())
    with serving({"slow": slow}) as client:
        connection, answer = client.open("POST", "api/run", RUN)
        slow.denoiser.go.release()
        assert next_event(answer)[0] == "start"
        name, step = next_event(answer)
        assert (name, step["step"]) == ("step", 1)
        assert slow.denoiser.begun.acquire(timeout=20)
        assert slow.denoiser.begun.acquire(timeout=20)
        assert slow.denoiser.forwards == 2  # the second waits: the first step was told meanwhile
        for _ in range(5):
            slow.denoiser.go.release()
        assert [name for name, _ in events(answer.read().decode())] == ["step"] * 5 + ["end", "done"]
        connection.close()


def test_a_slow_model_keeps_neither_the_page_nor_another_tab():
    slow = held(exact())
    with serving({"slow": slow, "quick": exact(seed=1)}) as client:
        connection, answer = client.open("POST", "api/run", RUN)
        assert slow.denoiser.begun.acquire(timeout=20)
        assert client.ask("GET", "")[0] == 200
        assert len(client.get("api/about")["models"]) == 2
        other = client.told("api/run", {**RUN, "model": "quick"})["end"]
        assert other["record"]["model"] == "quick"
        assert slow.denoiser.forwards == 1
        # Pages open, too, while every worker is at a long answer.
        second, later = client.open("POST", "api/run", RUN)
        assert slow.denoiser.begun.acquire(timeout=20)
        assert len(client.get("api/about")["models"]) == 2
        for _ in range(12):
            slow.denoiser.go.release()
        told = dict(events(answer.read().decode()))
        assert told["end"]["record"]["text"] == exact().generate("ab", max_new_tokens=6, steps=6).text
        assert dict(events(later.read().decode()))["end"]["record"] == told["end"]["record"]
        connection.close()
        second.close()


def test_a_tab_that_goes_away_frees_its_worker():
    slow = held(exact())
    with serving({"slow": slow}) as client:
        connection, answer = client.open("POST", "api/run", RUN)
        slow.denoiser.go.release()
        assert next_event(answer)[0] == "start"
        assert client.server.workers.running == 1
        answer.close()
        connection.close()
        # The server hears of it while the second forward still waits; then the run ends at that step.
        end = time.monotonic() + 20
        while not _cancelled(client.server.workers) and time.monotonic() < end:
            time.sleep(0.01)
        for _ in range(6):
            slow.denoiser.go.release()
        while client.server.workers.running and time.monotonic() < end:
            time.sleep(0.01)
        assert client.server.workers.running == 0
        assert slow.denoiser.forwards <= 2  # of six


def _cancelled(workers):
    return all(job._cancelled.is_set() for job in tuple(workers._running))
