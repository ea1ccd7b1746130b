"""GSM8K, HumanEval and JSON Mode Eval: the right files, or a clear word about what is missing."""

import gzip
import hashlib
import os
import shutil
import sys
from dataclasses import replace
from types import ModuleType

import pytest

from unmask.tasks import SPLITS, TASKS, ChangedData, MissingData, examples, score
from unmask.tasks.official import VARIABLE, gsm8k, humaneval, json_mode_eval
from unmask.tasks.official import data as official_data
from unmask.tasks.scoring.extract import squeeze

FILES = {
    gsm8k.TASK.name: gsm8k.TEST,
    humaneval.TASK.name: humaneval.FILE,
    json_mode_eval.TASK.name: json_mode_eval.FILE,
}
OFFICIAL = [name for name, task in TASKS.items() if not task.generator]


@pytest.fixture
def no_folder(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    official_data._from_hub.cache_clear()
    yield
    official_data._from_hub.cache_clear()


@pytest.mark.parametrize("name", OFFICIAL)
def test_splits_cover_the_data_set(name, data):
    by_split = {split: examples(name, split, data) for split in SPLITS}
    assert {split: len(by_split[split]) for split in SPLITS} == dict(TASKS[name].counts)
    ids = [e.id for split in SPLITS for e in by_split[split]]
    prompts = {squeeze(e.prompt) for split in SPLITS for e in by_split[split]}
    assert len(ids) == len(set(ids)) == len(prompts) == FILES[name].rows


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("gsm8k", ["gsm8k-test-0676", "gsm8k-test-0386", "gsm8k-test-1134"]),
        ("humaneval", ["HumanEval/47", "HumanEval/49", "HumanEval/111"]),
        ("json-mode-eval", ["json-mode-eval-86", "json-mode-eval-79", "json-mode-eval-27"]),
    ],
)
def test_splits_stay(name, first, data):
    """Published splits must not move; these are the first ids of each."""
    assert [examples(name, split, data)[0].id for split in SPLITS] == first


@pytest.mark.parametrize("name", ["gsm8k", "json-mode-eval"])
def test_gold_scores_one(name, data):
    for split in SPLITS:
        for e in examples(name, split, data):
            verdict = score(f"<answer>{e.target}</answer>", e)
            assert verdict.utility == 1.0, e.id
            assert len(verdict.parts) == len(e.parts)
            assert score("nothing", e).utility == 0.0


def test_environment_variable(data, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(data))
    assert len(examples("humaneval")) == 100


def test_rows_hash_fits_the_file(data):
    """What a download from the hub is checked against."""
    for file in (*FILES.values(), gsm8k.TRAIN):
        rows = official_data.rows(file, data)
        assert len(rows) == file.rows
        assert official_data.rows_hash(rows) == file.rows_sha256


@pytest.mark.parametrize("name", OFFICIAL)
def test_missing_file(name, tmp_path):
    file = FILES[name]
    with pytest.raises(MissingData) as caught:
        examples(name, data_dir=tmp_path)
    for expected in (str(tmp_path / file.path), file.sha256, file.origin, file.licence):
        assert expected in str(caught.value)


def test_folder_in_place_of_the_file(tmp_path):
    (tmp_path / "gsm8k/test.jsonl").mkdir(parents=True)
    with pytest.raises(MissingData, match="cannot be read"):
        examples("gsm8k", data_dir=tmp_path)


@pytest.mark.parametrize("content", [b"", b'{"question": "1?", "answer": "#### 1"}\n', b"\xff\xfe", b"\x00" * 1000])
def test_wrong_hash(content, tmp_path):
    for name in OFFICIAL:
        path = tmp_path / FILES[name].path
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        with pytest.raises(ChangedData, match=FILES[name].sha256):
            examples(name, data_dir=tmp_path)


def test_mended_file_is_read_again(data, tmp_path):
    path = tmp_path / FILES["humaneval"].path
    path.parent.mkdir()
    path.write_bytes(gzip.compress(b"{}"))
    with pytest.raises(ChangedData):
        examples("humaneval", data_dir=tmp_path)
    shutil.copy(data / FILES["humaneval"].path, path)
    assert len(examples("humaneval", data_dir=tmp_path)) == 100


def test_without_folder_and_hub(no_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingData, match=r"is not installed; put .* at DATA/gsm8k/test.jsonl, and name DATA with"):
        examples("gsm8k")


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


def test_unreachable_hub(no_folder, monkeypatch):
    def download(**_):
        raise OSError("no route\nto host")

    fake_hub(monkeypatch, download)
    with pytest.raises(MissingData, match="OSError, no route to host; put"):
        examples("json-mode-eval")


def test_hub(no_folder, monkeypatch, data, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/train-00000-of-00001.parquet").touch()
    rows = [{**row, "extra": 1} for row in official_data.rows(json_mode_eval.FILE, data)]
    asked = []

    def download(**keywords):
        asked.append(keywords)
        return str(tmp_path)

    fake_hub(monkeypatch, download, rows)
    assert examples("json-mode-eval") == examples("json-mode-eval", data_dir=data)
    assert asked == [
        {"repo_id": "NousResearch/json-mode-eval", "repo_type": "dataset", "allow_patterns": ["data/train-*.parquet"]}
    ]


@pytest.mark.parametrize("rows", [[{"prompt": [], "completion": "{}", "schema": "{}"}], [{"prompt": []}]])
def test_hub_with_other_rows(rows, no_folder, monkeypatch, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/train-00000-of-00001.parquet").touch()
    fake_hub(monkeypatch, lambda **_: str(tmp_path), rows)
    with pytest.raises(ChangedData):
        examples("json-mode-eval")


def test_hub_without_the_file(no_folder, monkeypatch, tmp_path):
    fake_hub(monkeypatch, lambda **_: str(tmp_path), [])
    with pytest.raises(MissingData, match="it has no file data/train"):
        examples("json-mode-eval")


def test_a_pipe_and_impossible_folders(tmp_path):
    (tmp_path / "gsm8k").mkdir()
    os.mkfifo(tmp_path / "gsm8k/test.jsonl")
    with pytest.raises(MissingData, match=r"cannot be read .no plain file"):
        examples("gsm8k", data_dir=tmp_path)
    for folder in ("a\0b", "x" * 5000):
        with pytest.raises(MissingData, match="there is no") as caught:
            examples("gsm8k", data_dir=folder)
        assert len(str(caught.value)) < 1500


def test_a_key_that_is_given_twice_is_refused(tmp_path):
    content = b'{"question": "1?", "answer": "#### 1", "answer": "#### 2"}\n'
    file = replace(gsm8k.TEST, sha256=hashlib.sha256(content).hexdigest())
    (tmp_path / "gsm8k").mkdir()
    (tmp_path / file.path).write_bytes(content)
    with pytest.raises(ChangedData, match="the key 'answer' is given twice"):
        official_data.rows(file, tmp_path)
