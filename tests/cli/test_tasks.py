"""`unmask tasks` as a user types it."""

import json

import pytest

from unmask.tasks import find_task

HORIZONS = {
    "csv-missing-cells": 16,
    "humaneval": 256,
    "multi-span-cloze": 64,
    "gsm8k": 256,
    "carry-rtl": 32,
    "td07-sparse-mask": 48,
    "json-mode-eval": 128,
    "constrained-json-fill": 96,
    "unique-list-commit": 48,
    "html-close-tags": 48,
}


def test_the_ten_tasks_with_the_papers_horizons(run):
    code, out, _ = run("tasks", "--json")
    found = json.loads(out)
    assert code == 0
    assert {task["name"]: task["horizon"] for task in found if not task["control"]} == HORIZONS
    assert [task["name"] for task in found if task["control"]] == ["td07-clustered-mask"]
    assert all(task["counts"]["evaluation"] >= 68 for task in found)
    code, out, _ = run("tasks")
    assert code == 0
    assert all(name in out for name in HORIZONS)
    assert "td07-clustered-mask: a control" in " ".join(out.split())


def test_show(run):
    code, out, _ = run("tasks", "show", "carry-rtl", "-n", 2)
    first, second = find_task("carry-rtl").examples("development")[:2]
    assert code == 0
    assert first.prompt in out
    assert f">>> {second.target}" in out
    code, out, _ = run("tasks", "show", "carry-rtl", "-n", 2, "--json")
    assert [e["id"] for e in json.loads(out)] == [first.id, second.id]


def test_export_twice_gives_the_same_bytes(run, tmp_path):
    for folder in ("a", "b"):
        code, out, _ = run("tasks", "show", "--out", tmp_path / folder, "html-close-tags")
        assert code == 0
        assert len(out.splitlines()) == 3
    files = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert len(files) == 3
    assert all((tmp_path / "a" / f).read_bytes() == (tmp_path / "b" / f).read_bytes() for f in files)


def test_score_gold_and_garbage(run, tmp_path):
    found = find_task("carry-rtl").examples("evaluation")[:10]
    path = tmp_path / "answers.jsonl"
    lines = [{"id": e.id, "text": f"<answer>{e.target}</answer>" if i else "no idea"} for i, e in enumerate(found)]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    code, out, _ = run("tasks", "score", "carry-rtl", "--predictions", path)
    assert code == 0
    assert "mean utility 0.9000 over 10 of 500" in out
    code, out, _ = run("tasks", "score", "carry-rtl", "--predictions", path, "--json")
    scores = json.loads(out)
    assert scores["mean"] == pytest.approx(0.9)
    assert [v["utility"] for v in scores["verdicts"]] == [0.0] + [1.0] * 9
    code, out, _ = run("tasks", "score", "carry-rtl", "--predictions", path, "--explain")
    assert out.count("found by") == 10


@pytest.mark.parametrize("how", [[], ["--explain"], ["--json"]])
def test_half_a_character_in_what_a_program_raises(run, how, shared, tmp_path):
    if not (shared / "data").is_dir():
        pytest.skip("needs the data sets: there is no folder 'shared/data' beside the checkout")
    first, second = find_task("humaneval").examples("development", shared / "data")[:2]
    lines = [
        {"id": first.id, "text": "    raise ValueError('\\ud800')\n"},
        {"id": second.id, "text": "    return '\ud800'\n"},
    ]
    path = tmp_path / "answers.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    data = ("--data-dir", shared / "data")
    code, out, err = run("tasks", "score", "humaneval", "--predictions", path, "--split", "development", *data, *how)
    assert code == 0, err
    out.encode("utf-8")
    assert "ValueError: \ufffd" in out or how != ["--explain"]
