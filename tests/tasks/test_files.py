"""Files of examples and of predictions."""

import hashlib
import json
import os

import pytest

from tests.helpers.cases import each_case
from unmask.base.errors import ConfigError, SchemaError, StorageError, UnknownName
from unmask.tasks import MissingData, example_line, export_tasks, find_task, score_predictions
from unmask.tasks.draw import canonical

NAMES = ["carry-rtl", "constrained-json-fill"]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def gold(name="carry-rtl", split="evaluation"):
    return [{"id": e.id, "text": f"<answer>{e.target}</answer>"} for e in find_task(name).examples(split)]


# Export


def test_export_holds_every_example(tmp_path):
    paths = export_tasks(tmp_path / "new" / "folder", NAMES)
    assert [p.name for p in paths] == [
        f"{name}.{split}.jsonl" for name in NAMES for split in ("development", "validation", "evaluation")
    ]
    for path in paths:
        name, split, _ = path.name.split(".")
        task = find_task(name)
        lines = path.read_text("ascii").splitlines()
        assert lines == [example_line(e, task.prompts_version) for e in task.examples(split)]
        assert all(json.loads(row)["split"] == split for row in lines)
    assert sorted(os.listdir(tmp_path / "new" / "folder")) == sorted(p.name for p in paths)


def test_line_carries_its_hash():
    record = json.loads(example_line(find_task("carry-rtl").examples()[0], "1"))
    assert record.keys() == {
        *("constraints", "id", "level", "parts", "prompt"),
        *("sha256", "split", "target", "task", "version"),
    }
    given = record.pop("sha256")
    assert hashlib.sha256(canonical(record).encode()).hexdigest() == given


def test_export_of_missing_data_leaves_nothing(tmp_path):
    with pytest.raises(MissingData):
        export_tasks(tmp_path / "out", ["carry-rtl", "gsm8k"], data_dir=tmp_path)
    assert not (tmp_path / "out").exists()


def test_export_errors(tmp_path):
    with pytest.raises(UnknownName):
        export_tasks(tmp_path, ["nope"])
    with pytest.raises(UnknownName):
        export_tasks(tmp_path, ["carry-rtl"], ["test"])
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be made"):
        export_tasks(tmp_path / "file", ["carry-rtl"])
    (tmp_path / "carry-rtl.validation.jsonl").mkdir()
    with pytest.raises(StorageError, match="is no plain file"):
        export_tasks(tmp_path, ["carry-rtl"], ["validation"])
    assert sorted(os.listdir(tmp_path)) == ["carry-rtl.validation.jsonl", "file"]


# Predictions


def test_gold_predictions(tmp_path):
    heard = []
    summary, verdicts = score_predictions("carry-rtl", write(tmp_path / "p", gold()), on_verdict=heard.append)
    assert [summary[key] for key in ("mean", "scored", "perfect", "unavailable")] == [1.0, 500, 500, 0]
    assert [summary[key] for key in ("missing", "elsewhere", "unknown")] == [[], [], []]
    assert [level["level"] for level in summary["levels"]] == [1, 2, 3, 4]
    assert sum(level["scored"] for level in summary["levels"]) == 500
    assert heard == verdicts
    json.dumps(summary)


def test_part_of_the_predictions(tmp_path):
    rows = gold()[:10]
    rows[0]["text"] = "no idea"
    rows += [*gold(split="validation")[:2], {"id": "someone-else", "text": "x"}]
    summary, _ = score_predictions("carry-rtl", write(tmp_path / "p", rows))
    assert [summary[key] for key in ("examples", "scored", "mean", "perfect")] == [500, 10, 0.9, 9]
    assert len(summary["missing"]) == 490
    assert summary["elsewhere"] == [row["id"] for row in rows[10:12]]
    assert summary["unknown"] == ["someone-else"]


def test_names_of_fields(tmp_path):
    a, b, c = gold()[:3]
    rows = [a, {"id": b["id"], "prediction": b["text"], "seed": 3}, {"task_id": c["id"], "completion": c["text"]}]
    content = "\ufeff" + "\n\n".join(json.dumps(row) for row in rows)
    (tmp_path / "p").write_text(content, encoding="utf-8")
    assert score_predictions("carry-rtl", tmp_path / "p")[0]["perfect"] == 3


@each_case(
    ("content", "message"),
    [
        (b"", "has no predictions"),
        (b"\n\n", "has no predictions"),
        (b"{}\n", "line 1 .* has no field 'id' or 'task_id'"),
        (b'\n{"id": "a"}', "line 2 .* has no field 'text' or 'prediction' or 'completion'"),
        (b'{"id": "a", "text": "x", "prediction": "y"}', "line 1 .* has the fields text, prediction"),
        (b'{"id": "a", "text": null}', "line 1 .* has a NoneType in 'text'"),
        (b'{"id": 3, "text": "x"}', "line 1 .* has a int in 'id'"),
        (b'{"id": "a", "text": "x"}\n{"id": "a", "text": "y"}', "line 2 .* which line 1 has too"),
        (b'{"id": "a", "text": "x"}\n{"id": ', "line 2 .* is not JSON"),
        (b'["a", "x"]', "line 1 .* is a JSON list"),
        (b'{"id": "a", "text": "\xff"}', "line 1 .* is not UTF-8 .byte 22"),
        (b"[" * 100_000, "line 1 .* is not JSON"),
        (b'{"id": "a", "text": "x"}', "no prediction for the evaluation split .* 0 of its 1 ids"),
    ],
)
def test_bad_predictions(content, message, tmp_path):
    (tmp_path / "p").write_bytes(content)
    with pytest.raises(SchemaError, match=message):
        score_predictions("carry-rtl", tmp_path / "p")


def test_predictions_for_another_split(tmp_path):
    path = write(tmp_path / "p", gold(split="validation"))
    with pytest.raises(SchemaError, match="100 of its 100 ids belong to another split"):
        score_predictions("carry-rtl", path)
    assert score_predictions("carry-rtl", path, "validation")[0]["mean"] == 1.0


def test_humaneval_predictions(data, tmp_path):
    """HumanEval's own sample files are understood, and programs run side by side."""
    some = find_task("humaneval").examples("development", data)[:4]
    rows = [{"task_id": e.id, "completion": e.target} for e in some]
    rows[1]["completion"] = "    return object()\n"
    rows[2]["completion"] = ""
    heard = []
    path = write(tmp_path / "p", rows)
    summary, verdicts = score_predictions("humaneval", path, "development", data, workers=2, on_verdict=heard.append)
    if summary["unavailable"]:
        pytest.skip(f"no sandbox here: {verdicts[0].reason}")
    assert [verdict.utility for verdict in verdicts] == [1.0, 0.0, 0.0, 1.0]
    assert len(heard) == 4
