"""`unmask calibrate` as a user types it, on a tiny checkpoint."""

import json
import sys

import pytest

from tests.helpers.own_policies import GOOD
from unmask.adapt import Gate

LINES = [{"prompt": f"Say w{n}.", "target": f"w{n}"} for n in range(5)]


@pytest.fixture(scope="module")
def tiny(scaled, tmp_path_factory):
    small = {"layers": 1, "d_model": 32, "mlp": 64, "heads": 2, "kv_heads": 2}
    return scaled.llada(tmp_path_factory.mktemp("ck") / "llada", **small)


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, LINES)), encoding="utf-8")
    return "mine.jsonl"


def quick(model, task, *more):
    own = ("--scorer", "contains", "--max-new-tokens", 6) if str(task).endswith(".jsonl") else ()
    small = ("--prompts", 3, "--states", 2, "--rollouts", 2, "--batch-size", 4, "--device", "cpu")
    return "calibrate", "--model", model, "--task", task, *own, "--axis", "region", "--out", "gate.json", *small, *more


def forget_references(monkeypatch):
    """Leave the references that another process would know."""
    module = sys.modules["unmask.methods.candidates"]
    kept = {name: module._REFERENCES[name] for name in ("llada", "dream")}
    monkeypatch.setattr(module, "_REFERENCES", kept)
    module.candidates.cache_clear()


def test_around_a_policy_of_ones_own(run, tiny, mine, tmp_path, monkeypatch):
    """The gate's file says which policy it was, and runs nothing: whoever uses it names the policy again."""
    (tmp_path / "mine.py").write_text(GOOD, encoding="utf-8")
    code, out, _ = run(*quick(tiny, mine, "--policy", "mine.py:Counted:count=3"))
    assert code == 0
    assert "--policy mine.py:Counted:count=3 --gate gate.json" in out
    # As in another process.
    forget_references(monkeypatch)
    use = ("generate", "--model", tiny, "--gate", "gate.json", "--max-new-tokens", 6, "--device", "cpu", "Say w1.")
    code, _, err = run(*use)
    assert code == 2
    assert "is a policy that nobody has named here" in err
    assert "name it: --policy path.py:Class" in err
    assert run(*use, "--policy", "mine.py:Counted:count=3")[0] == 0
    forget_references(monkeypatch)
    assert run(*use, "--policy", "mine.py:Counted:count=2")[0] == 2
    (tmp_path / "mine.py").write_text(GOOD + "# other code\n", encoding="utf-8")
    assert run(*use, "--policy", "mine.py:Counted:count=3")[0] == 2


def test_calibrate_then_generate(run, tiny, mine, tmp_path):
    code, out, _ = run(*quick(tiny, mine))
    assert code == 0
    gate = Gate.load(tmp_path / "gate.json")
    assert out.startswith(gate.inspect())
    assert "No opportunity found: the gate never opens" in out
    assert "decodes as the fixed action" in out
    assert out.lower().count("no opportunity found") == 1
    # A network with random weights never says the word, however it is decoded.
    scores = "score 0.000 with the reference, 0.000 with the fixed action at every step and 0.000 with this gate"
    assert f"Decoded end to end, the same prompts {scores}" in out
    assert out.splitlines()[-1] == f'use it:  unmask generate --model {tiny} --gate gate.json --max-new-tokens 6 "..."'
    assert (tmp_path / "gate.json.study" / "manifest.json").exists()
    given = ("--max-new-tokens", 6, "--device", "cpu", "--json")
    code, out, _ = run("generate", "--model", tiny, "--gate", "gate.json", *given, "Say w9.")
    assert code == 0
    assert json.loads(out)["config"]["gate"]["hash"] == gate.hash


def test_a_guarantee_is_shown_by_generate(run, tiny, mine, tmp_path):
    code, out, _ = run(*quick(tiny, mine, "--guarantee", 0.05, "--fixed-by", "one-step", "--prompts", 5))
    assert code == 0
    gate = Gate.load(tmp_path / "gate.json")
    held = gate.guarantee
    # An own file keeps half of its five prompts for evaluation.
    assert (held.risk, held.margin, held.fitted + held.tested) == (0.05, 0.05, gate.end_to_end.prompts)
    assert f"guarantee: {held.inspect()}" in out
    given = ("--policy", "selective", "--gate", "gate.json", "--max-new-tokens", 6, "--device", "cpu")
    code, out, err = run("generate", "--model", tiny, *given, "Say w9.")
    assert code == 0
    assert f"guarantee=0.95 margin=0.05 n={held.tested}" in " ".join(out.split())
    code, _, err = run(*quick(tiny, mine, "--margin", 0.1))
    assert code == 2
    assert "add --guarantee 0.05, or drop it" in err


def test_json_is_all_of_stdout(run, tiny, mine):
    code, out, _ = run(*quick(tiny, mine, "--json"))
    document = json.loads(out)
    assert code == 0
    assert (document["gate"], document["study"], document["opens"]) == ("gate.json", "gate.json.study", False)
    assert (document["task"], document["axis"], document["prompts"]) == ("mine", "region", 3)
    assert document["hash"] == Gate.load("gate.json").hash
    assert document["verdict"].startswith("No opportunity found")
    assert document["end_to_end"] == {"reference": 0, "fixed": 0, "selective": 0, "low": 0, "high": 0} | {
        "prompts": 3,
        "differ": 0,
    }


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "raise KeyError(example['answer'])",
            "fails on the targets of its own prompts (scores.py:score raised KeyError",
        ),
        ("return 'good'", "returned 'good' for prompt"),
        ("return 7", "returned 7 for prompt"),
        ("return None", "returned None for prompt"),
    ],
)
def test_a_scoring_function_is_tried_before_anything_is_decoded(run, mine, tmp_path, monkeypatch, body, message):
    monkeypatch.setattr("unmask.api.load.load", lambda *name, **options: pytest.fail("a model was read"))
    (tmp_path / "scores.py").write_text(f"def score(text, example):\n    {body}\n", encoding="utf-8")
    code, _, err = run(*quick("mini", mine, "--scorer", "scores.py:score"))
    assert code == 2
    assert message in err
    assert "allowed: a" in err
    assert "number from 0 to 1" in err
    given = ("compare", "--model", "mini", "--task", mine, "--scorer", "scores.py:score", "--max-new-tokens", 6)
    assert message in run(*given)[2]
    assert not list(tmp_path.glob("gate*"))


def test_again_it_goes_on_from_what_is_there(run, tiny, mine, tmp_path):
    run(*quick(tiny, mine, "-q"))
    first = (tmp_path / "gate.json").read_bytes()
    (tmp_path / "gate.json").unlink()
    code, out, err = run(*quick(tiny, mine, "-q"))
    assert (code, out, err) == (0, "gate.json\n", "")
    assert (tmp_path / "gate.json").read_bytes() == first
    code, _, err = run(*quick(tiny, mine, "--seed", 3))
    assert code == 2
    assert "seed differ" in err
    assert "remove that one" in err
    code, _, _ = run(*quick(tiny, mine, "--seed", 3, "--work-dir", "elsewhere"))
    assert code == 0
    assert (tmp_path / "elsewhere" / "manifest.json").exists()
