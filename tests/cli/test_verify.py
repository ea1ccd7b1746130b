"""`unmask verify` as a user types it, on a tiny checkpoint with short answers."""

import csv
import json
from contextlib import contextmanager
from dataclasses import replace

import pytest

from unmask.lab import published
from unmask.methods import LLaDA


@pytest.fixture(scope="module")
def tiny(scaled, tmp_path_factory):
    return scaled.llada(tmp_path_factory.mktemp("ck") / "llada")


@pytest.fixture
def short(monkeypatch, shared):
    """Answers of eight tokens in two steps, and the data folder."""

    def cut(model):
        runs = (replace(run, new_tokens=8, steps=2, policy=LLaDA(), shots=0) for run in model.runs)
        return replace(model, runs=tuple(runs))

    monkeypatch.setattr(published, "PUBLISHED", tuple(cut(model) for model in published.PUBLISHED))
    monkeypatch.setenv("UNMASK_DATA", str(shared / "data"))


def test_table_files_and_exit_code(run, tiny, short, tmp_path):
    arguments = ("verify", "--model", tiny, "--device", "cpu", "--prompts", 2, "--out", tmp_path / "out")
    code, out, err = run(*arguments, "--published", "llada")
    assert code == 0, err
    assert "gsm8k: 2 of 1319 problems, 8 tokens in 2 steps each: at most 4 forwards of one row" in err
    assert "2/2 answers" in err
    assert "about 0 s left" in err
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["gsm8k", "humaneval"]
    assert "78.6" in lines[1]
    assert "humaneval: a subset: 2 of 164 problems, drawn by a hash of their ids" in lines
    assert any(line.startswith("gsm8k: below: the published 78.6 lies above the interval") for line in lines)
    assert lines[-1] == str(tmp_path / "out" / "verify.json")
    document = json.loads((tmp_path / "out" / "verify.json").read_text(encoding="utf-8"))
    gsm8k, humaneval = document["tasks"]
    assert (gsm8k["published"]["percent"], gsm8k["verdict"], gsm8k["judged"]) == (78.6, "below", 2)
    assert humaneval["settings"]["logits_eos_inf"] is True
    assert len(document["data"]["gsm8k/test.jsonl"]) == 64
    with (tmp_path / "out" / "answers.csv").open(encoding="utf-8", newline="") as file:
        assert [row["task"] for row in csv.DictReader(file)] == ["gsm8k"] * 2 + ["humaneval"] * 2
    before = (tmp_path / "out" / "verify.json").read_bytes()
    code, _, err = run(*arguments, "--published", "llada")
    assert (code, "2/2 answers (2 from before)" in err) == (0, True)
    assert (tmp_path / "out" / "verify.json").read_bytes() == before


def test_strict(run, tiny, short):
    arguments = ("verify", "--model", tiny, "--device", "cpu", "--prompts", 2, "--task", "gsm8k", "--quiet", "--json")
    code, out, err = run(*arguments, "--published", "llada", "--strict")
    assert (code, err, json.loads(out)["tasks"][0]["verdict"]) == (1, "", "below")
    assert run(*arguments, "--published", "llada")[0] == 0
    code, out, _ = run(*arguments, "--strict")
    assert (code, json.loads(out)["tasks"][0]["verdict"]) == (0, "no figure")
    assert json.loads(out)["trial"] is True


def test_ctrl_c_says_what_is_kept(run, tiny, short, tmp_path, monkeypatch):
    @contextmanager
    def pressed(text, quiet, at_once):
        def on_progress(now):
            raise KeyboardInterrupt

        yield on_progress

    arguments = ("verify", "--model", tiny, "--device", "cpu", "--prompts", 2, "--task", "gsm8k", "--batch-size", 1)
    with monkeypatch.context() as during:
        during.setattr("unmask.cli.verify.show_answers", pressed)
        code, out, err = run(*arguments, "--out", tmp_path)
        assert (code, out) == (130, "")
        assert f"interrupted: finished batches are in {tmp_path}; the same command goes on" in err
        assert "nothing is kept; with --out FOLDER the same command goes on" in run(*arguments)[2]
    assert not (tmp_path / "verify.json").exists()
    code, _, err = run(*arguments, "--out", tmp_path)
    assert (code, "2/2 answers (1 from before)" in err) == (0, True)
