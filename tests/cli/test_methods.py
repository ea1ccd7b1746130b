"""`unmask methods` as a user types it."""

from dataclasses import replace

from tests.helpers import methods_page
from unmask.methods import METHODS, TAXONOMY, examples

PAPER = {
    "llada": ("confidence", "scheduled", "full", "irreversible", "none"),
    "fast-dllm": ("confidence", "threshold-adaptive", "block", "irreversible", "none"),
    "klass": ("KL stability + confidence", "adaptive multi-token", "full", "irreversible", "none"),
    "eb-sampler": ("entropy bound", "adaptive", "full", "irreversible", "none"),
    "dos": ("attention dependency", "base sampler", "full", "irreversible", "none"),
    "dus": ("joint-entropy criterion", "group-based", "dilated groups", "irreversible", "none"),
    "dsb": ("state-dependent", "dynamic block size", "sliding block", "irreversible", "none"),
    "swordsman": ("entropy shift / confidence", "adaptive threshold", "adaptive blocks", "irreversible", "none"),
    "dcd": ("confidence", "confidence-adaptive", "sliding window", "irreversible", "none"),
    "vsb": (
        "future-context divergence",
        "variable block size",
        "self-contained blocks",
        "irreversible",
        "future-aware criterion",
    ),
    "remdm": ("confidence / re-mask schedule", "schedule-dependent", "full", "re-maskable", "none"),
    "wino": ("draft verification", "parallel draft", "active region", "re-maskable", "draft-verify"),
    "core": ("context robustness", "revision-budget dependent", "full", "re-maskable", "none"),
    "info-gain": (
        "certainty + information gain",
        "candidate-set dependent",
        "full",
        "irreversible",
        "one-step look-ahead",
    ),
    "lookum": ("path uncertainty", "candidate-set budget", "full", "irreversible", "path look-ahead"),
    "soar": ("confidence", "state-adaptive", "position beam", "search-delayed", "beam search"),
    "order-token-search": (
        "action likelihood",
        "search-dependent",
        "full",
        "search-delayed",
        "joint trajectory search",
    ),
    "medal": ("confidence / search value", "search-dependent", "full", "search-delayed", "MCTS"),
}


def test_methods(command):
    found = command("methods", "--json").json
    assert [method["name"] for method in found] == list(METHODS)
    by_name = {method["name"]: method for method in found}
    assert by_name["llada"]["settings"] == {"block_length": None, "remasking": "low_confidence"}
    assert by_name["wino"]["commitment"] == "re-maskable"
    shown = command("methods").out
    assert all(name in shown for name in METHODS)
    assert "window=[0.25,0.75]" in shown


def test_the_rows_are_the_papers(command):
    """Of the extended table; its dash is "none", and its spelling of re-maskable ours."""
    rows = {row["name"]: row for row in command("methods", "--json").json}
    for name, expected in PAPER.items():
        assert tuple(rows[name][axis] for axis in TAXONOMY) == expected, name


def test_selective_has_a_page_though_it_is_no_method_of_the_table(command):
    shown = command("methods", "show", "Selective")
    assert shown.code == 0
    assert "unmask calibrate" in shown.out
    assert "docs/protocol.md" in shown.out
    assert command("methods", "show", "selective", "--json").json["name"] == "selective"
    assert "selective" not in METHODS


def test_show(command):
    shown = command("methods", "show", "KLASS").out
    assert "Kim et al. 2025" in shown
    assert "preset       llada/gsm8k: --policy klass:block_length=64,threshold=0.6,epsilon=0.015" in shown
    assert "differs" in shown
    assert "example      unmask methods show klass --example" in shown
    assert "steps        set a schedule, but do not end the run" in shown
    assert "made for     temperature 1 and at least as many steps" in command("methods", "show", "remdm").out
    one = command("methods", "show", "klass", "--json").json
    assert one["name"] == "klass"
    assert one["presets"]["dream/math"]["epsilon"] == 0.005


def test_an_example_step_by_step(command):
    shown = command("methods", "show", "WINO", "--example").out
    assert "step 2  reveals 3=1, 4=1; re-masks 1, 2" in shown
    told = command("methods", "show", "wino", "--example", "--json").json["cases"][0]
    assert told["steps"][1] == {"revealed": {"3": 1, "4": 1}, "remasked": [1, 2]}
    assert told["as_expected"] is True


def test_an_example_of_a_single_decision_shows_its_numbers(command):
    shown = command("methods", "show", "order-token-search", "--example").out
    assert "  survivors [2, 1]\n" in shown
    assert "1 of 1 as expected" in shown


def test_an_example_that_comes_out_otherwise(command, monkeypatch):
    wrong = tuple(replace(case, expected={"revealed": [[0]]}) for case in examples.load_cases("klass"))
    monkeypatch.setattr(examples, "load_cases", lambda name: wrong)
    ended = command("methods", "show", "klass", "--example")
    assert ended.code == 1
    assert "NOT as expected: revealed [[0]]" in ended.out


def test_the_page_is_made_of_the_classes():
    assert methods_page.page() == methods_page.PAGE.read_text(encoding="utf-8")
