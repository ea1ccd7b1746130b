"""GSM8K, HumanEval and JSON Mode Eval: the right files, or a clear word about what is missing."""

import gzip
import json
import re
import shutil
import sys
from types import ModuleType

import jsonschema
import pytest

from unmask.tasks import SPLITS, TASKS, ChangedData, MissingData, find_task, official, score
from unmask.tasks.code_answers import find_completion
from unmask.tasks.extract import normalise_spaces
from unmask.tasks.official import (
    DATA_VARIABLE,
    GSM8K_TEST,
    HUMANEVAL_FILE,
    JSON_MODE_EVAL_FILE,
    intended_schema,
    read_rows,
)

FILES = {"gsm8k": GSM8K_TEST, "humaneval": HUMANEVAL_FILE, "json-mode-eval": JSON_MODE_EVAL_FILE}
OFFICIAL = [name for name, task in TASKS.items() if not task.generator]


@pytest.fixture
def no_folder(monkeypatch):
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    official._read_from_hub.cache_clear()
    yield
    official._read_from_hub.cache_clear()


@pytest.mark.parametrize("name", OFFICIAL)
def test_splits_cover_the_data_set(name, data):
    by_split = {split: find_task(name).examples(split, data) for split in SPLITS}
    assert {split: len(by_split[split]) for split in SPLITS} == dict(TASKS[name].counts)
    ids = [e.id for split in SPLITS for e in by_split[split]]
    prompts = {normalise_spaces(e.prompt) for split in SPLITS for e in by_split[split]}
    assert len(ids) == len(set(ids)) == len(prompts) == FILES[name].rows


@pytest.mark.parametrize("name", ["gsm8k", "json-mode-eval"])
def test_gold_scores_one(name, data):
    for split in SPLITS:
        for e in find_task(name).examples(split, data):
            verdict = score(f"<answer>{e.target}</answer>", e)
            assert verdict.utility == 1.0, e.id
            assert len(verdict.parts) == len(e.parts)
            assert score("nothing", e).utility == 0.0


def test_the_environment_variable_names_the_folder(data, monkeypatch):
    monkeypatch.setenv(DATA_VARIABLE, str(data))
    assert len(find_task("humaneval").examples()) == 100


@pytest.mark.parametrize("name", OFFICIAL)
def test_a_missing_file_is_named_with_its_origin(name, tmp_path):
    file = FILES[name]
    with pytest.raises(MissingData) as caught:
        find_task(name).examples(data_dir=tmp_path)
    for expected in (str(tmp_path / file.path), file.sha256, file.origin, file.licence):
        assert expected in str(caught.value)


@pytest.mark.parametrize("content", [b"", b'{"question": "1?", "answer": "#### 1"}\n', b"\xff\xfe", b"\x00" * 1000])
def test_a_changed_file_is_refused(content, tmp_path):
    for name in OFFICIAL:
        path = tmp_path / FILES[name].path
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        with pytest.raises(ChangedData, match=FILES[name].sha256):
            find_task(name).examples(data_dir=tmp_path)


def test_a_mended_file_is_read_again(data, tmp_path):
    path = tmp_path / FILES["humaneval"].path
    path.parent.mkdir()
    path.write_bytes(gzip.compress(b"{}"))
    with pytest.raises(ChangedData):
        find_task("humaneval").examples(data_dir=tmp_path)
    shutil.copy(data / FILES["humaneval"].path, path)
    assert len(find_task("humaneval").examples(data_dir=tmp_path)) == 100


def fake_hub(monkeypatch, download, rows=None):
    """Stand-ins for huggingface_hub and pyarrow."""
    hub, pyarrow, parquet = ModuleType("huggingface_hub"), ModuleType("pyarrow"), ModuleType("pyarrow.parquet")
    hub.snapshot_download = download  # type: ignore[attr-defined]

    class Table:
        def to_pylist(self):
            return rows

    parquet.read_table = lambda path: Table()  # type: ignore[attr-defined]
    pyarrow.parquet = parquet  # type: ignore[attr-defined]
    for module in (hub, pyarrow, parquet):
        monkeypatch.setitem(sys.modules, module.__name__, module)


def test_the_hub_gives_the_same_examples(no_folder, monkeypatch, data, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/train-00000-of-00001.parquet").touch()
    rows = [{**row, "extra": 1} for row in read_rows(JSON_MODE_EVAL_FILE, data)]
    asked = []

    def download(**keywords):
        asked.append(keywords)
        return str(tmp_path)

    fake_hub(monkeypatch, download, rows)
    assert find_task("json-mode-eval").examples() == find_task("json-mode-eval").examples(data_dir=data)
    assert asked == [
        {"repo_id": "NousResearch/json-mode-eval", "repo_type": "dataset", "allow_patterns": ["data/train-*.parquet"]}
    ]


# GSM8K


def test_gsm8k_reads_its_own_solutions(data):
    task = find_task("gsm8k")
    rows = [row for split in SPLITS for row in task.examples(split, data)]
    for example in (*rows, *task.training(0, data)):
        assert score(f"{example.constraints['solution']}\n#### {example.target}", example).utility == 1.0
        assert "answer>" not in example.target


def test_gsm8k_training_is_the_other_file(data):
    taken = {normalise_spaces(e.prompt) for split in SPLITS for e in find_task("gsm8k").examples(split, data)}
    drawn = list(find_task("gsm8k").training(data_dir=data))
    assert len(drawn) == 7473
    assert taken.isdisjoint(normalise_spaces(e.prompt) for e in drawn)
    assert list(find_task("gsm8k").training(5, data))[:2] == drawn[5:7]


# HumanEval


def problems(data):
    return [example for split in SPLITS for example in find_task("humaneval").examples(split, data)]


def test_every_canonical_solution_is_extracted(data):
    """Alone, at the margin, in a block of code, and with the function around it. The sandbox has its own tests."""
    for example in problems(data):
        head, entry = (str(example.constraints[key]) for key in ("prompt", "entry_point"))
        solution = example.target
        want = normalise_spaces(solution)
        for text in (solution, solution.strip(), f"Sure:\n```python\n{solution}```\nThat is it."):
            assert normalise_spaces(find_completion(text, head, entry).normalised) == want, example.id
        whole = find_completion(f"Here:\n```python\n{head}{solution}```", head, entry).normalised
        assert want in normalise_spaces(whole)
        compile(head + whole, "whole", "exec")


def test_what_a_program_raises_can_be_stored(data):
    e = find_task("humaneval").examples("development", data)[0]
    verdict = score("    raise ValueError('\\ud800')\n", e)
    if verdict.utility is None:
        pytest.skip(f"no sandbox here: {verdict.reason}")
    assert verdict.utility == 0.0
    assert "ValueError" in verdict.reason
    assert "\ufffd" in verdict.reason
    verdict.reason.encode("utf-8")


# JSON Mode Eval

OPEN = [19, 27, 33, 45, 72, 97]
"""Rows whose schemas accept everything as they were published."""


@pytest.fixture(scope="module")
def by_id(data):
    return {e.id: e for split in SPLITS for e in find_task("json-mode-eval").examples(split, data)}


def test_the_open_schemas_are_these_six(data):
    """All others are judged as published."""
    accepts = []
    for number, row in enumerate(read_rows(JSON_MODE_EVAL_FILE, data)):
        schema = json.loads(row["schema"])
        if jsonschema.Draft202012Validator(schema).is_valid({"no": ["such", "thing"]}):
            accepts.append(number)
        judged = intended_schema(schema, json.loads(row["completion"]))
        assert (judged == schema) == (number not in OPEN), number
    assert set(OPEN) <= set(accepts)
    # The others of them have properties, none of which is required.
    assert set(accepts) - set(OPEN) <= {4, 6, 17, 39, 50}


def changed(value, field, to):
    """The object with another value of a field, in all the places where the field is."""
    if isinstance(value, dict):
        changed_ = {key: changed(item, field, to) for key, item in value.items() if not (key == field and to is ...)}
        return {**changed_, field: to} if field in value and to is not ... else changed_
    return [changed(item, field, to) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (19, "totalShipments"),
        (27, "vehicleID"),
        (27, "cost"),
        (33, "target_language"),
        (45, "yield"),
        (72, "current_location"),
        (97, "reorderLevel"),
    ],
)
def test_required_fields_and_types_count_inside_the_wrapper(by_id, row, field):
    e = by_id[f"json-mode-eval-{row}"]
    gold = json.loads(e.target)
    assert score(json.dumps(gold), e).utility == 1.0
    for broken in (changed(gold, field, ...), changed(gold, field, ["neither", "text", "nor", "number"])):
        verdict = score(json.dumps(broken), e)
        assert verdict.utility == 0.0
        assert verdict.reason.startswith("breaks the schema")


def test_no_pattern_of_the_data_takes_long(data):
    """A pattern that backtracks without end would hang here."""
    for row in read_rows(JSON_MODE_EVAL_FILE, data):
        for pattern in re.findall(r'"pattern": ("(?:[^"\\\\]|\\\\.)*")', row["schema"]):
            for hostile in ("/dev/" + "a/" * 10_000 + "\0", "0" * 10_000 + ":", "a" * 10_000 + "!"):
                re.search(json.loads(pattern), hostile)
