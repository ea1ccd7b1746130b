"""Files of examples and of predictions."""

import hashlib
import json
import os

import pytest

from tests.helpers.cases import each_case
from unmask.base.errors import ConfigError, SchemaError, StorageError, UnknownName
from unmask.tasks import MissingData, export_tasks, find_task, score_predictions, write_example_line
from unmask.tasks.draw import canonical_json


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def gold(split="evaluation"):
    return [{"id": e.id, "text": f"<answer>{e.target}</answer>"} for e in find_task("carry-rtl").examples(split)]


def test_export_holds_every_example_with_its_hash(tmp_path):
    names, folder = ["carry-rtl", "constrained-json-fill"], tmp_path / "new" / "folder"
    paths = export_tasks(folder, names)
    files = [f"{name}.{split}.jsonl" for name in names for split in ("development", "validation", "evaluation")]
    assert [path.name for path in paths] == files
    assert sorted(os.listdir(folder)) == sorted(files)
    for path in paths:
        name, split, _ = path.name.split(".")
        task = find_task(name)
        lines = path.read_text("ascii").splitlines()
        assert lines == [write_example_line(e, task.prompts_version) for e in task.examples(split)]
        record = json.loads(lines[0])
        given = record.pop("sha256")
        assert hashlib.sha256(canonical_json(record).encode()).hexdigest() == given
        assert " ".join(sorted(record)) == "constraints id level parts prompt split target task version"


def test_a_failed_export_leaves_nothing(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "carry-rtl.validation.jsonl").mkdir()
    for folder, names, more, error in (
        (tmp_path / "out", ["carry-rtl", "gsm8k"], {"data_dir": tmp_path}, MissingData),
        (tmp_path / "out", ["nope"], {}, UnknownName),
        (tmp_path / "out", ["carry-rtl"], {"splits": ["test"]}, UnknownName),
        (tmp_path / "file", ["carry-rtl"], {}, ConfigError),
        (tmp_path, ["carry-rtl"], {"splits": ["validation"]}, StorageError),
    ):
        with pytest.raises(error):
            export_tasks(folder, names, **more)
    assert sorted(os.listdir(tmp_path)) == ["carry-rtl.validation.jsonl", "file"]


def test_gold_predictions_are_perfect(tmp_path):
    heard = []
    summary, verdicts = score_predictions("carry-rtl", write(tmp_path / "p", gold()), on_verdict=heard.append)
    assert [summary[key] for key in ("mean", "scored", "perfect", "unavailable")] == [1.0, 500, 500, 0]
    assert [summary[key] for key in ("missing", "elsewhere", "unknown")] == [[], [], []]
    assert [level["level"] for level in summary["levels"]] == [1, 2, 3, 4]
    assert sum(level["scored"] for level in summary["levels"]) == 500
    assert heard == verdicts
    json.dumps(summary)


def test_missing_and_foreign_predictions_are_counted_apart(tmp_path):
    rows = gold()[:10]
    rows[0]["text"] = "no idea"
    rows += [*gold("validation")[:2], {"id": "someone-else", "text": "x"}]
    summary, _ = score_predictions("carry-rtl", write(tmp_path / "p", rows))
    assert [summary[key] for key in ("examples", "scored", "mean", "perfect")] == [500, 10, 0.9, 9]
    assert len(summary["missing"]) == 490
    assert summary["elsewhere"] == [row["id"] for row in rows[10:12]]
    assert summary["unknown"] == ["someone-else"]


def test_fields_may_have_the_names_of_other_harnesses(tmp_path):
    a, b, c = gold()[:3]
    rows = [a, {"id": b["id"], "prediction": b["text"], "seed": 3}, {"task_id": c["id"], "completion": c["text"]}]
    content = "\ufeff" + "\n\n".join(json.dumps(row) for row in rows)
    (tmp_path / "p").write_text(content, encoding="utf-8")
    assert score_predictions("carry-rtl", tmp_path / "p")[0]["perfect"] == 3


@each_case(
    ("content", "named"),
    [
        (b"\n\n", "0 of its 0 ids"),
        (b"{}\n", "line 1 .* nothing for 'id' or 'task_id'"),
        (b'\n{"id": "a"}', "line 2 .* nothing for 'text'"),
        (b'{"id": "a", "text": "x", "prediction": "y"}', "line 1 .* text = 'x' and prediction = 'y'"),
        (b'{"id": "a", "text": null}', "line 1 .* text = None"),
        (b'{"id": 3, "text": "x"}', "line 1 .* id = 3"),
        (b'{"id": "a", "text": "x"}\n{"id": "a", "text": "y"}', "line 2 .* 'a' of line 1"),
        (b'{"id": "a", "text": "x"}\n{"id": ', "line 2 "),
        (b'["a", "x"]', "line 1 .* list"),
        (b'{"id": "a", "text": "\xff"}', "line 1 .*byte 22"),
        (b"[" * 100_000, "line 1 "),
        (b'{"id": "a", "text": "x"}', "0 of its 1 ids"),
        ("".join(json.dumps(row) + "\n" for row in gold("validation")).encode(), "100 of its 100 ids"),
    ],
)
def test_bad_predictions_are_refused(content, named, tmp_path):
    (tmp_path / "p").write_bytes(content)
    with pytest.raises(SchemaError, match=named):
        score_predictions("carry-rtl", tmp_path / "p")


def test_programs_of_a_file_run_side_by_side(data, tmp_path):
    some = find_task("humaneval").examples("development", data)[:3]
    rows = [{"task_id": e.id, "completion": e.target} for e in some]
    rows[1]["completion"] = "    return object()\n"
    path, heard = write(tmp_path / "p", rows), []
    summary, verdicts = score_predictions("humaneval", path, "development", data, workers=2, on_verdict=heard.append)
    if summary["unavailable"]:
        pytest.skip(f"no sandbox here: {verdicts[0].reason}")
    assert [verdict.utility for verdict in verdicts] == [1.0, 0.0, 1.0]
    assert len(heard) == 3
