"""`unmask bench` as a user types it."""

import json

import pytest
import torch


def test_one_part_of_the_shipped_model(command, tmp_path):
    ended = command("bench", "decode", "--batch-size", "1", "--quick", "--device", "cpu", "--json", "found.json")
    assert ended.code == 0, ended.err
    assert "tokens/s" in ended.out
    assert ended.err == "decode, B 1\n"
    document = json.loads((tmp_path / "found.json").read_text())
    assert document["model"]["name"] == "mini"
    assert [line["part"] for line in document["lines"]] == ["decode"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "unknown part of the bench 'nothing'"),
        (["step", "--batch-size", "0"], "--batch-size is 0; allowed: 1 to 4096 rows"),
        (["step", "--batch-size", "1,x"], "--batch-size is '1,x'"),
        (["step", "--against", "authors=."], "'.' has no file generate.py"),
        (["step", "--against", "somebody=."], "unknown name before the = of --against 'somebody'"),
        (["step", "--shape", "llada"], "unknown shape 'llada'"),
        (["step", "--shape", "llada-8b", "--model", "mini"], "--model and --shape are both given"),
        (["step", "--shape", "llada-8b", "--device", "cpu", "--batch-size", "4096"], "llada-8b needs"),
        (["step", "--model", "exact"], "the model exact has no layers to be timed"),
        (["step", "--json", "."], "--json '.' is a folder"),
        (["step", "--json", "none/b.json"], "--json 'none/b.json' is in no folder"),
    ],
)
def test_bad_input_is_one_line_before_anything_is_measured(command, arguments, said):
    ended = command("bench", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(command):
    for more in ([], ["--shape", "llada-8b"]):
        assert "device is 'cuda'; allowed: auto, cpu" in command("bench", "step", "--device", "cuda", *more).err
