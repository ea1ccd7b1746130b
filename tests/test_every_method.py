"""Every published method on every model of the package, as it is typed: `generate --policy`, and `compare`."""

import json

import pytest

from unmask.cli.app import main
from unmask.methods import METHODS, OURS

METHOD_NAMES = [name for name, method in METHODS.items() if method.label != OURS]
MODELS = {"exact": "ab", "mini": "Add 2 and 3.", "mini-dream": "Add 2 and 3."}
CANNOT = {("mini-dream", "vsb"), ("mini-dream", "wino")}
"""They verify tokens through slots that may not see them; Dream's predictions are read one slot early."""
ANSWERS = {"exact": 6, "mini": 8, "mini-dream": 8}
SAMPLE = [
    ("exact", "demask"),
    ("exact", "ddpd"),
    ("mini-dream", "soar"),
    ("mini-dream", "demask"),
    ("mini-dream", "ddpd"),
]
SETTINGS = {"vsb": ["--set", "window=4"], "order-token-search": ["--set", "block_length=4"]}


def generated(capsys, model, method):
    size = ["--max-new-tokens", str(ANSWERS[model])] if model != "exact" else []
    asked = ["generate", "--model", model, "--policy", method, *SETTINGS.get(method, []), *size, "--json"]
    code = main([*asked, MODELS[model]])
    return code, *capsys.readouterr()


def checked(capsys, model, method):
    code, out, err = generated(capsys, model, method)
    if (model, method) in CANNOT:
        assert code == 2
        assert "allowed:" in err
        return
    assert code == 0, err
    found = json.loads(out)
    row = found["rows"][0] if "rows" in found else found
    assert row["text"]


@pytest.mark.parametrize(("model", "method"), SAMPLE)
def test_a_method_as_it_is_typed(capsys, model, method):
    checked(capsys, model, method)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("method", METHOD_NAMES)
def test_every_method_as_it_is_typed(capsys, model, method):
    checked(capsys, model, method)


def test_all_of_them_compared_on_exact(capsys, tmp_path):
    prompts = [{"prompt": p, "target": t} for p, t in [("ab", "ccdddd"), ("ac", "a"), ("cc", "b"), ("dd", "cd")]]
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, prompts)), encoding="utf-8")
    own = ["--task", str(tmp_path / "own.jsonl"), "--scorer", "exact", "--max-new-tokens", "6", "--split", "validation"]
    arms = [argument for name in ("llada", "dream", "fast-dllm-dream") for argument in ("--policy", name)]
    given = ["--model", "exact", *own, "--policy", "all", *arms, "--compute-matched", "--json", "--quiet"]
    assert main(["compare", *given]) == 0
    found = json.loads(capsys.readouterr().out)
    decoded = {found["config"]["policies"].get(line["policy"], {}).get("name") for line in found["lines"]}
    assert set(METHOD_NAMES) <= decoded
    assert found["left_out"] == []
    assert sum(line["policy"].startswith("best of n like") for line in found["lines"]) == 4


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mini", "mini-dream"])
def test_all_of_them_compared_on_a_network(capsys, model):
    asked = ["--model", model, "--task", "csv-missing-cells", "--prompts", "1", "--policy", "all", "--compute-matched"]
    own = {"mini": "dream", "mini-dream": "llada"}[model]
    assert main(["compare", *asked, "--policy", own, "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    decoded = {found["config"]["policies"].get(line["policy"], {}).get("name") for line in found["lines"]}
    of_others = {"mini": {"llada", "fast-dllm-dream"}, "mini-dream": {"dream", "fast-dllm", "remdm-llada"}}[model]
    cannot = {method for where, method in CANNOT if where == model}
    assert set(METHOD_NAMES) - of_others - cannot <= decoded
    assert {lost["policy"] for lost in found["left_out"]} == cannot
