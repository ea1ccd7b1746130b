"""Read-only copies."""

from unmask.viewer.export import exported_runs, exported_study
from unmask.viewer.studies import StudyFolder

PROMPT = {"model": "exact", "prompt": "ab", "options": {"max_new_tokens": 6, "steps": 3}}


def test_runs_travel_whole_and_as_text(client):
    run = client.told("api/run", PROMPT)["end"]
    branch = client.told("api/branch", {"run": run["run"], "step": 1, "instead": {"policy": "dream"}})["end"]
    status, page = client.ask("POST", "api/export", {"runs": [run["run"], branch["run"]]})
    assert status == 200
    assert client.server.token not in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert run["record"]["text"] in page
    odd = {**run["record"], "prompt": "</pre><script>hurt()</script>", "text": "<img src=x onerror=hurt()>"}
    page = exported_runs([odd])
    assert "<script>hurt()" not in page
    assert "<img" not in page


def test_a_study_travels_with_its_states(study):
    page = exported_study(StudyFolder(study))
    assert "States of the study look" in page
    assert page.count("<details>") == 4
    assert "share:1.0" in page


def test_runs_that_are_not_there_are_refused(client):
    for runs in ([], ["x"] * 9, "x", [3], None):
        assert "runs" in client.refused("api/export", {"runs": runs})
    assert "decode it again" in client.refused("api/export", {"runs": ["x"]})
