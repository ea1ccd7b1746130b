"""`unmask study`: what it says of failures, exit codes, and what is kept when it is stopped."""

import json
import signal
import sys
import time

import pytest

from tests.helpers.own_tasks import LINES, TEXT
from tests.helpers.tiny_studies import SMALL

SCORER = """
import pathlib, time

class Odd:
    def __repr__(self):
        return "half a character: \\ud800"

def score(text, example):
    if example["id"] in pathlib.Path("bad.txt").read_text().split():
        return Odd()
    if example["id"] in pathlib.Path("slow.txt").read_text().split():
        pathlib.Path("waiting").touch()
        time.sleep(120)
    return 0.5
"""


@pytest.fixture(scope="module")
def folder(scaled, tmp_path_factory):
    return scaled.llada(tmp_path_factory.mktemp("ck") / "llada", **SMALL)


@pytest.fixture
def file(folder, tmp_path, monkeypatch):
    """A study file of five shards, its prompts and its scorer."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    text = TEXT.replace('model = "tiny"', f'model = "{folder}"').replace('"contains"', '"odd_scorer:score"')
    text = text.replace("prompts = 2\n", "prompts = 1\n")
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, LINES)), encoding="utf-8")
    (tmp_path / "odd_scorer.py").write_text(SCORER, encoding="utf-8")
    name_bad(tmp_path)
    return tmp_path / "study.toml"


def name_bad(folder, bad="", slow=""):
    (folder / "bad.txt").write_text(bad)
    (folder / "slow.txt").write_text(slow)


def ended(process):
    out, err = process.communicate(timeout=240)
    assert "Traceback" not in err
    return process.returncode, out, err


def test_shards_that_are_set_aside(file, command, tmp_path):
    name_bad(tmp_path, bad="p1 p2")
    study = ("study", "run", str(file), "--out", "out")
    ran = command(*study)
    out, err = ran.out, ran.err
    assert ran.code == 3
    assert "Traceback" not in err
    shards = [line for line in out.splitlines() if line.startswith("  set aside: ")]
    assert shards
    many = f"{len(shards)} shard{'s' * (len(shards) > 1)}"
    assert f"study own: not complete: {many} set aside" in out
    assert all("returned half a character: \ufffd for prompt" in line for line in shards)
    assert "(attempt 1 of 3; tried again after the others): " in err
    assert "(attempt 3 of 3; set aside)" in err
    assert f"{5 - len(shards)} of 5 shards are kept; the same command goes on; correct what failed" in err
    assert "branches " not in out.splitlines()[-1]
    assert "ContractError: odd_scorer:score returned half a character" in command("study", "status", "out").out
    status = command("study", "status", "out", "--json").json
    assert (status["complete"], len(status["failed"])) == (False, len(shards))
    assert all(one["set_aside"] and one["traceback"] and one["attempts"] == 3 for one in status["failed"])
    name_bad(tmp_path)
    assert command(*study, "--quiet").code == 3
    ran = command(*study, "--retry-failed")
    assert ran.code == 0
    assert "study own: complete" in ran.out
    assert command("study", "status", "out", "--json").json["failed"] == []


def test_a_budget_that_is_spent(file, command):
    file.write_text(file.read_text() + "\n[budget]\nminutes = 1e-9\n")
    ran = command("study", "run", str(file), "--out", "out")
    assert ran.code == 3
    said = "0 of 5 shards are kept; the same command goes on"
    assert f"not complete: the budget of 1e-09 minutes is spent; {said}" in ran.err
    assert "study own: not complete" in ran.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_stopped_by_a_signal(number, code, word, file, process, command, tmp_path):
    name_bad(tmp_path, slow=" ".join(f"p{n}" for n in range(8)))
    study = ("study", "run", str(file), "--out", "out")
    running = process(*study)
    until(lambda: (tmp_path / "waiting").exists(), running)
    running.send_signal(number)
    returned, out, err = ended(running)
    assert returned == code
    assert f"{word}: 0 of 5 shards are kept; the same command goes on" in err
    assert out == ""
    name_bad(tmp_path)
    assert command(*study, "--quiet").code == 0


def until(true, running):
    while not true():
        assert running.poll() is None, running.communicate()
        time.sleep(0.05)
