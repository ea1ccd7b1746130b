"""Runs as streams: steps as they happen, several tabs, and what becomes of a tab that goes away."""

import time

import pytest

from tests.helpers.view_server import events, exact, held, next_event, serving
from unmask.base.errors import ConfigError
from unmask.viewer.explorer import Explorer, LoadedModels
from unmask.viewer.jobs import format_event
from unmask.viewer.server import Server

RUN = {"model": "slow", "prompt": "ab", "options": {"max_new_tokens": 6, "steps": 6}}


def test_text_cannot_begin_another_event():
    odd = 'a\n\nevent: end\ndata: "x"\r\n\u2028'
    assert events(format_event("step", odd).decode()) == [("step", odd)]


def test_steps_arrive_before_the_next_is_taken():
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


def test_slow_model_blocks_neither_pages_nor_other_tabs():
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


def test_closed_tab_frees_its_thread():
    slow = held(exact())
    with serving({"slow": slow}) as client:
        connection, answer = client.open("POST", "api/run", RUN)
        slow.denoiser.go.release()
        assert next_event(answer)[0] == "start"
        assert len(client.server.jobs.jobs) == 1
        answer.close()
        connection.close()
        # The server hears of it while the second forward still waits; then the run ends at that step.
        end = time.monotonic() + 20
        while not _all_cancelled(client.server.jobs) and time.monotonic() < end:
            time.sleep(0.01)
        for _ in range(6):
            slow.denoiser.go.release()
        while client.server.jobs.jobs and time.monotonic() < end:
            time.sleep(0.01)
        assert not client.server.jobs.jobs
        assert slow.denoiser.forwards <= 2  # of six


def _all_cancelled(jobs):
    return all(job.cancelled.is_set() for job in tuple(jobs.jobs))


def test_closing_ends_running_and_waiting_jobs(monkeypatch):
    monkeypatch.setattr("unmask.viewer.jobs.MOST_WAITING", 1)
    slow = held(exact())
    with serving({"slow": slow}) as client:
        running = [client.open("POST", "api/run", RUN) for _ in range(2)]
        for _ in running:
            assert slow.denoiser.begun.acquire(timeout=20)
        waiting, answer = client.open("POST", "api/run", RUN)
        assert next_event(answer) == ("waiting", {"before": 1})
        assert "try again later" in client.refused("api/run", RUN)
        client.server.stop()
        assert ("done", None) in events(answer.read().decode())
        for _ in range(4):
            slow.denoiser.go.release()
        for connection, _ in [*running, (waiting, answer)]:
            connection.close()
    assert slow.denoiser.forwards == 2


def test_port_in_use_is_refused():
    with serving() as client, pytest.raises(ConfigError, match="choose another with --port"):
        Server(Explorer(LoadedModels({})), client.server.port)


def test_browser_is_started_without_the_token(monkeypatch):
    """Command lines are visible to every user of the machine, so the browser gets a private file instead."""
    with serving() as client:
        page = client.server.write_opening_page()
        assert client.server.token not in page.as_uri()
        assert client.server.address in page.read_text(encoding="utf-8")
        assert page.stat().st_mode & 0o077 == 0
    assert not page.exists()
