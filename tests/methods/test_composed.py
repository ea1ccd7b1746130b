"""Compositions: those that are a published method give its tokens, every rule has an effect, and what is refused."""

import pytest
import torch

from tests.helpers.cases import each_case
from tests.methods.conftest import Toy
from tests.methods.worked import confidences, revealed, run
from unmask.axes import ReMDM
from unmask.base.errors import ConfigError, UnknownName
from unmask.core import Noise, SamplingParams, State
from unmask.engine import decode
from unmask.methods import (
    DCD,
    DSB,
    DUS,
    P2,
    Composed,
    EBSampler,
    FastDLLM,
    LLaDA,
    ReMDMLLaDA,
    compose,
    fixed_action,
    make_policy,
    with_remasking,
)
from unmask.methods.examples import ScriptedDenoiser
from unmask.models import ExactDenoiser, JointDistribution

METHODS = [
    (LLaDA(), compose(cardinality="quota")),
    (LLaDA(4), compose(region="block:4", cardinality="quota")),
    (LLaDA(4, "random"), compose("random", "block:4", "quota")),
    (FastDLLM(threshold=0.6, block_length=4), compose(region="block:4", cardinality="above:0.6")),
    (FastDLLM(threshold=0.5, block_length=None), compose(cardinality="above:0.5")),
    (FastDLLM("factor", block_length=4), compose(region="block:4", cardinality="factor:1")),
    (FastDLLM("factor", factor=0.5, block_length=None), compose(cardinality="factor:0.5")),
    (EBSampler(0.5), compose("entropy", cardinality="eb:0.5")),
    (EBSampler(1.0, "margin", block_length=4), compose("margin", "block:4", "eb:1")),
    (DSB(FastDLLM(threshold=0.6), 3, 3), compose(region="sliding:3", cardinality="above:0.6")),
    (DSB(FastDLLM(threshold=0.6), 3, 5), compose(region="sliding:3:5", cardinality="above:0.6")),
    (DCD(0.6, 3, 5), compose(region="masks:3:5", cardinality="above:0.6")),
    (DCD(0.6, 3, None), compose(region="masks:3", cardinality="above:0.6")),
    (DUS(4), compose(region="groups:4", cardinality="all")),
    *(
        (with_remasking(fixed_action(commitment="none"), ReMDM(variant)), compose(commitment=f"remdm-{variant}"))
        for variant in ("cap", "rescale", "conf", "loop")
    ),
    (with_remasking(fixed_action("margin", "block:2", "count:1", "confidence:0.6"), ReMDM("conf", 0.5)),
     compose("margin", "block:2", "count:1", "confidence:0.6+remdm-conf:0.5")),
    (fixed_action("confidence", "near:2", "share:0.5"), compose(region="near:2", cardinality="share:0.5")),
    (fixed_action({"confidence": 0.25, "margin": 0.75}), compose("0.25*confidence+0.75*margin")),
]  # fmt: skip
ids = [f"{method.name}-{number}" for number, (method, _) in enumerate(METHODS)]


def start(exact, steps):
    prompts = [[0], [1], [2]]
    state = State.from_prompts(prompts, new_tokens=8, steps=steps, mask_id=exact.mask_id)
    return state, Noise.of([3, 4, 5])


@pytest.fixture(scope="module")
def exact():
    return ExactDenoiser(JointDistribution.random(9, 3, dependence=2.0, seed=1))


def same_run(denoiser, one, other, state, noise, temperature):
    sampling = SamplingParams(temperature=temperature)
    ours, theirs = (decode(denoiser, policy, state, noise=noise, sampling=sampling) for policy in (one, other))
    assert torch.equal(ours.state.tokens_BL, theirs.state.tokens_BL)
    for row in range(state.batch):
        assert revealed(ours.row(row)) == revealed(theirs.row(row))
    assert torch.equal(ours.forwards_B, theirs.forwards_B)


@each_case("temperature", [0.0, 0.9])
@each_case(("method", "composed"), METHODS, ids=ids)
def test_a_method_as_a_composition(method, composed, temperature, exact):
    for steps in (4, 8):
        same_run(exact, composed, method, *start(exact, steps), temperature)


@each_case(("method", "composed"), METHODS, ids=ids)
def test_a_method_as_a_composition_on_a_network(method, composed):
    state = State.from_prompts([[1, 2]], new_tokens=8, steps=8, mask_id=11)
    same_run(Toy(3), composed, method, state, Noise.of([7]), 0.0)


VARIED = {
    "score": ["confidence", "margin", "certainty", "stability", "dependency", "uniform", "random",
              "confidence+margin", "0.1*confidence+0.9*dependency"],
    "region": ["full", "block:3", "last-block:3", "window:3", "dilated:3", "near:1", "sliding:2:4", "masks:2",
               "groups:4"],
    "cardinality": ["schedule", "count:3", "share:0.6", "share:1.0", "above:0.5", "factor:1.5", "eb:0.5"],
    "commitment": ["all", "remdm-cap:0.5", "remdm-rescale:0.9", "remdm-conf", "remdm-loop:0.1"],
}  # fmt: skip


@pytest.mark.parametrize("axis", VARIED)
def test_every_rule_has_an_effect(axis):
    """No two rules of an axis give the same runs: what is revealed and re-masked when, over many rows."""
    exact = ExactDenoiser(JointDistribution.random(9, 3, dependence=0.7, seed=2))
    prompts = [[token] for token in (0, 1, 2)] * 4
    state = State.from_prompts(prompts, new_tokens=8, steps=8 if axis == "region" else 6, mask_id=exact.mask_id)
    seen = {}
    for rule in VARIED[axis]:
        end = decode(exact, compose(**{axis: rule}), state, noise=Noise.of([*range(12)]))
        record = [(step.revealed_BL.tolist(), step.remasked_BL.tolist()) for step in end.steps]
        assert record not in seen.values(), (rule, [name for name, other in seen.items() if other == record])
        seen[rule] = record


@pytest.mark.parametrize("rule", ["none", "confidence:0.99", "margin:0.98"])
def test_what_is_not_committed_may_be_revised(rule, exact):
    state, noise = start(exact, 8)
    ends = [decode(exact, compose(commitment=c), state, noise=noise) for c in ("all", rule, f"{rule}+remdm-conf")]
    assert not torch.equal(ends[0].state.committed_BL, ends[1].state.committed_BL)
    assert torch.equal(ends[0].state.tokens_BL, ends[1].state.tokens_BL)
    assert any(bool(step.remasked_BL.any()) for step in ends[2].steps)


def test_adaptive_counts_are_not_bound_by_the_steps():
    unsure = [[0.5, 0.4, 0.3, 0.2, 0.15, 0.1]]
    adaptive = compose(cardinality="above:0.9")
    assert adaptive.steps != "end"
    assert len(run(confidences(unsure), adaptive, 6, steps=2).steps) == 6
    scheduled = compose(cardinality="count:1")
    assert scheduled.steps == "end"
    assert len(run(confidences(unsure), scheduled, 6, steps=2).steps) == 2


def test_the_resolved_action():
    assert compose("margin", "block:32", "eb:0.1", "remdm-conf").rules == {
        "score": {"rule": "margin"},
        "region": {"rule": "block", "size": 32},
        "cardinality": {"rule": "eb", "gamma": 0.1, "within_steps": False},
        "commitment": {"rule": "none", "operator": "remdm-conf", "eta": 1.0},
    }
    other = compose("entropy", "sliding:8", "count:2", "confidence:0.9+remdm-cap:0.02").rules
    assert other["score"] == {"rule": "entropy"}
    assert compose("confidence+margin").rules["score"]["weights"] == {"confidence": 0.5, "margin": 0.5}
    assert other["region"] == {"rule": "sliding", "size": 8, "longest": 8}
    assert other["cardinality"] == {"rule": "count", "count": 2, "within_steps": True}
    assert other["commitment"] == {"rule": "confidence", "threshold": 0.9, "operator": "remdm-cap", "eta": 0.02}


@each_case(
    ("wrong", "words"),
    [
        ({"score": "margn"}, "unknown scoring rule 'margn'; did you mean margin?"),
        ({"score": "confidence+margn"}, "unknown scoring rule 'margn'; did you mean margin?"),
        ({"score": "confidence+confidence"}, "every rule once"),
        ({"score": "0.7*confidence+margin"}, "a weight before each or none"),
        ({"score": "0.7*confidence+0.7*margin"}, "that sum to 1"),
        ({"region": "blok:3"}, "unknown region 'blok'; did you mean block"),
        ({"region": "block"}, "region is 'block'; allowed: 'block:SIZE', SIZE from 1 to 1000000"),
        ({"region": "sliding:2:x"}, "'sliding:SIZE' or 'sliding:SIZE:LONGEST'"),
        ({"cardinality": "ebb:1"}, "unknown cardinality 'ebb'; did you mean eb?"),
        ({"cardinality": "eb:-1"}, "allowed: 'eb:X', X 0 or more; e.g. 'eb:0.1'"),
        ({"cardinality": "factor:inf"}, "allowed: 'factor:X', X 0 or more"),
        ({"cardinality": "above:1.5"}, r"X in \[0, 1\]"),
        ({"commitment": "remdm-con"}, "unknown commitment 'remdm-con'; did you mean remdm-conf"),
        ({"commitment": "confidnce:1"}, "unknown commitment 'confidnce'; did you mean confidence"),
        ({"commitment": "all+remdm-conf"}, "an operator where something is left revisable"),
        ({"commitment": "remdm-cap:2"}, r"'remdm-cap:ETA', ETA in \[0, 1\]"),
        ({"commitment": "remdm-cap+remdm-conf"}, "one rule, one operator"),
    ],
)
def test_what_is_refused(wrong, words):
    with pytest.raises(ConfigError, match=words):
        compose(**wrong)


def test_an_uneven_quota_is_refused_before_the_first_forward():
    denoiser = ScriptedDenoiser(lambda *_: pytest.fail("asked the model"), vocab=3)
    with pytest.raises(ConfigError, match=r"block_length is 4; allowed: a divisor of the 6 new tokens"):
        run(denoiser, compose(region="block:4", cardinality="quota"), 6)


def test_by_name():
    assert make_policy("composed", score="margin", cardinality=0.5) == Composed(score="margin", cardinality=0.5)
    with pytest.raises(UnknownName, match="setting of composed"):
        make_policy("composed", kappa="eb:0.1")


def test_a_rule_that_is_no_text():
    with pytest.raises(ConfigError, match=r"region.*7"):
        compose(region=7)


@pytest.mark.parametrize(
    ("given", "words"),
    [({"cardinality": "eb:-1"}, "^cardinality is 'eb:-1'"), ({"commitment": "confidence:2"}, "^commitment is 'confid")],
)
def test_messages_name_the_rule_as_it_was_given(given, words):
    with pytest.raises(ConfigError, match=words):
        compose(**given)


@each_case(
    ("policy", "trait", "value"),
    [
        (with_remasking(P2(planner=True)), "looks_ahead", True),
        (with_remasking(P2(planner=True)), "needs", P2(planner=True).needs),
        (Composed(ReMDMLLaDA(), commitment="none"), "extra_steps", True),
        (Composed(ReMDMLLaDA(), commitment="none"), "past_steps", 1),
        (Composed(FastDLLM(), commitment="none"), "steps", "ignore"),
        (with_remasking(FastDLLM()), "steps", "pace"),
        (Composed(FastDLLM(), score="margin", region="block:8"), "steps", "pace"),
        (Composed(EBSampler(spacing=2), score="margin"), "cuda_graph", False),
        (Composed(LLaDA(remasking="random"), region="block:8"), "random", True),
        (Composed(P2(), commitment="none"), "remasks", True),
        (Composed(DUS(leave_skipped=True), score="margin"), "own_end", True),
    ],
)
def test_a_composition_declares_what_its_base_does(policy, trait, value):
    assert getattr(policy, trait) == value
