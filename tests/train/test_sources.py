"""Texts: functions of seed and index, the same from any number of processes, and never a prompt of the splits."""

import json
from dataclasses import replace

import pytest

from tests.helpers.cases import each_case
from tests.helpers.fresh_python import fresh_python
from unmask.base.errors import ContractError
from unmask.tasks import SPLITS, TASKS, find_task, score
from unmask.tasks.extract import normalise_spaces
from unmask.train import sources
from unmask.train.sources import CONSTRUCTED, FILES, WRITTEN, Folders, Text, generate_texts, stream_texts


@each_case("source", CONSTRUCTED)
def test_no_prompt_of_the_splits_is_trained_on(source):
    forbidden = {normalise_spaces(e.prompt) for split in SPLITS for e in find_task(source).examples(split)}
    assert len(forbidden) > 600
    for held_out in (False, True):
        drawn = generate_texts(source, 0, held_out, 0, 300, Folders())
        assert not forbidden & {normalise_spaces(text.prompt) for text in drawn}


def test_a_leak_is_caught_while_texts_are_made(monkeypatch):
    leaked = find_task("carry-rtl").examples("evaluation")[0]
    leaky = replace(find_task("carry-rtl"), make_training=lambda start, data_dir: iter([leaked]))
    monkeypatch.setattr(sources, "TASKS", {**TASKS, leaky.name: leaky})
    with pytest.raises(ContractError, match=leaked.id):
        generate_texts("carry-rtl", 0, False, 0, 1, Folders())
    # Under a false flag it is known by its prompt.
    hidden = replace(leaky, make_training=lambda start, data_dir: iter([replace(leaked, split="training")]))
    monkeypatch.setattr(sources, "TASKS", {**TASKS, leaky.name: hidden})
    with pytest.raises(ContractError, match=leaked.id):
        generate_texts("carry-rtl", 0, False, 0, 1, Folders())


@pytest.mark.parametrize("source", [*CONSTRUCTED[:2], *WRITTEN])
def test_example_i_is_a_function_of_seed_and_i(source):
    whole = generate_texts(source, 1, False, 0, 20, Folders())
    assert generate_texts(source, 1, False, 13, 7, Folders()) == whole[13:]
    assert generate_texts(source, 0, False, 0, 20, Folders()) != whole
    held_out = generate_texts(source, 1, True, 0, 20, Folders())
    assert held_out != whole


def test_processes_change_nothing(monkeypatch):
    monkeypatch.setattr(sources, "CHUNK", 200)
    wanted = {"carry-rtl": 900, "english": 900}
    alone = [(s, t) for s, chunk in stream_texts(wanted, 0, False, Folders(), 1) for t in chunk]
    shared = [(s, t) for s, chunk in stream_texts(wanted, 0, False, Folders(), 2) for t in chunk]
    assert alone == shared
    assert len(alone) == 1_800


def test_workers_load_no_torch_and_no_jsonschema():
    code = (
        "import sys; sys.modules['jsonschema'] = None\n"
        "from unmask.train import sources\n"
        "sources.generate_texts('constrained-json-fill', 0, False, 0, 2, sources.Folders())\n"
        "assert 'torch' not in sys.modules and 'tokenizers' not in sys.modules"
    )
    run = fresh_python(code)
    assert run.returncode == 0, run.stderr


# GSM8K


def test_gsm8k_is_its_training_file_with_solutions(shared):
    folders = Folders(data=str(shared / "data"))
    first = generate_texts("gsm8k", 0, False, 0, 50, folders)
    rows = [json.loads(line) for line in (shared / "data" / "gsm8k" / "train.jsonl").open(encoding="utf-8")]
    assert first[0].prompt is not None
    assert first[0].prompt.startswith(rows[0]["question"].strip())
    assert "<<" not in first[0].answer
    for text, example in zip(first, find_task("gsm8k").training(0, folders.data), strict=False):
        assert score(text.answer, example).utility == 1.0
    tests = {normalise_spaces(e.prompt) for split in SPLITS for e in find_task("gsm8k").examples(split, folders.data)}
    assert not tests & {
        normalise_spaces(text.prompt) for text in generate_texts("gsm8k", 0, False, 0, len(rows), folders)
    }
    held_out = generate_texts("gsm8k", 0, True, 0, 50, folders)
    assert not {text.prompt for text in held_out} & {text.prompt for text in first}
    assert held_out[0].prompt is not None
    assert held_out[0].prompt.startswith(rows[-1]["question"].strip())


# Texts of the user's


def test_passages_are_cut_in_order(tmp_path):
    (tmp_path / "b.txt").write_text("word " * 200 + "\n\nshort", encoding="utf-8")
    (tmp_path / "a.py").write_text("x = 1\n\n\n\ny = 2\n", encoding="utf-8")
    (tmp_path / "c.bin").write_bytes(b"\xff")
    found = generate_texts(FILES, 0, False, 0, 5, Folders(texts=str(tmp_path)))
    assert found[:2] == [Text(None, "x = 1", None), Text(None, "y = 2", None)]
    assert all(len(text.answer) <= sources.PASSAGE for text in found)
    assert "".join(text.answer for text in found[2:]).startswith("word word")
