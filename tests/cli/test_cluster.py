"""`unmask calibrate --ray local`: the gate and the measurements of one process."""

import json
import sys

import pytest

from tests.helpers.local_ray import local_ray
from tests.helpers.own_policies import GOOD
from unmask.cli.app import main
from unmask.lab.store import Store

LINES = [{"prompt": f"Say w{n}.", "target": f"w{n}"} for n in range(6)]
SCORING = '''
import zlib

def score(text, example):
    """Without sense, but with variety: a network with random weights is never right."""
    return zlib.crc32(f"{text} {example['id']}".encode()) % 5 / 4
'''
CLUSTER = ["--ray", "local", "--workers", "2"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, LINES)), encoding="utf-8")
    (tmp_path / "scoring.py").write_text(SCORING, encoding="utf-8")
    (tmp_path / "mine.py").write_text(GOOD, encoding="utf-8")
    return tmp_path


@pytest.mark.cluster
def test_the_same_gate_and_the_same_tables(folder, scaled):
    """Around a policy and with a scoring function of one's own, which no worker has seen."""
    tiny = scaled.llada(folder / "tiny", layers=1, d_model=32, mlp=64, heads=2, kv_heads=2)
    asked = [
        "calibrate",
        "--model",
        str(tiny),
        "--task",
        "mine.jsonl",
        "--scorer",
        "scoring.py:score",
        "--max-new-tokens",
        "6",
    ]
    asked += ["--axis", "region", "--policy", "mine.py:Counted:count=2", "--device", "cpu", "--quiet"]
    asked += ["--prompts", "3", "--states", "2", "--rollouts", "2", "--batch-size", "2"]
    assert main([*asked, "--out", "one.json"]) == 0
    with local_ray(cores=3):
        assert main([*asked, *CLUSTER, "--out", "two.json"]) == 0
    assert (folder / "one.json").read_bytes() == (folder / "two.json").read_bytes()
    one, two = (Store(folder / f"{name}.json.study") for name in ("one", "two"))
    assert one.content_hash() == two.content_hash()
    assert one.names() == two.names() != []


def test_options_of_a_cluster_need_one(folder, capsys):
    asked = ["calibrate", "--model", "mini", "--task", "carry-rtl", "--axis", "region", "--out", "gate.json"]
    assert main([*asked, "--gpus-per-worker", "1"]) == 2
    err = capsys.readouterr().err
    assert "--gpus-per-worker is 1.0; allowed: nothing without --ray" in err
    assert err.count("\n") == 1
    assert not list(folder.glob("gate*"))
