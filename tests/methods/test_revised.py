"""Any policy plus ReMDM's re-masking, on a denoiser whose posteriors are exact."""

import json
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from math import inf
from typing import ClassVar

import pytest
import torch

from tests.helpers.cases import each_case
from tests.helpers.paths import GOLDEN
from unmask.axes import ReMDM, cardinality, score
from unmask.core import ALL, Action, ModelInput, Needs, Noise, Policy, SamplingParams, State, Trajectory, sample
from unmask.engine import decode
from unmask.methods import WINO, CoRe, Dream, InfoGain, LLaDA, fixed_action, make_policy, with_remasking
from unmask.models import ExactDenoiser, JointDistribution

REMDM = json.loads((GOLDEN / "remdm.json").read_text())
VARIANTS = ("cap", "rescale", "conf", "loop")
NO_NOISE = Noise.of([0])
ANSWER = 6
SAMPLED = SamplingParams(temperature=1.0)


@pytest.fixture(scope="module")
def exact():
    return ExactDenoiser(JointDistribution.random(ANSWER + 1, 3, dependence=1.0, seed=4))


def start_of(exact, rows=1, steps=ANSWER):
    prompts = [[row % 3] for row in range(rows)]
    return State.from_prompts(prompts, new_tokens=ANSWER, steps=steps, mask_id=exact.mask_id)


def revised(variant="conf", base=None, **settings):
    return with_remasking(base or fixed_action(commitment="none"), ReMDM(variant, **settings))


def run(exact, policy, rows=64, steps=ANSWER, proposal=SAMPLED):
    return decode(exact, policy, start_of(exact, rows, steps), noise=Noise(torch.arange(rows)), sampling=proposal)


@pytest.mark.parametrize("variant", VARIANTS)
def test_only_revisable_positions_are_re_masked(variant, exact):
    settings = {"t_on": 0.9, "t_off": 0.0, "alpha_on": 0.7} if variant == "loop" else {}
    base = fixed_action(commitment="confidence:0.7")
    end = run(exact, revised(variant, base, eta=0.4, **settings))
    some = False
    for step in end.steps:
        assert not (step.remasked_BL & ~step.state.revisable_BL).any()
        assert torch.equal(step.remasked_BL, step.action.remask_BL)
        some |= bool(step.remasked_BL.any())
    assert some
    assert end.state.committed_BL[:, 1:].any(), "the base commits something, so there was something to spare"


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_row_is_full_exactly_at_its_horizon(variant, exact):
    settings = {"t_on": 0.9, "t_off": 0.0, "alpha_on": 0.7} if variant == "loop" else {}
    for base in (
        fixed_action(commitment="none"),
        fixed_action(commitment="none", cardinality="count:3"),
        Dream("entropy"),
    ):
        end = run(exact, revised(variant, base, eta=0.4, **settings))
        assert not end.state.masked_BL.any()
        assert (end.state.step_B == ANSWER).all()
        assert len(end.steps) == ANSWER
        assert not end.steps[-1].remasked_BL.any()


def test_blocks_are_refilled_after_a_re_mask(exact):
    """LLaDA's clock with everything revisable: what is re-opened in a closed block must still be filled."""
    base = fixed_action(region="block:2", commitment="none")
    end = run(exact, revised("rescale", base, eta=0.5))
    assert not end.state.masked_BL.any()
    assert (end.state.step_B == ANSWER).all()
    assert sum(int(s.remasked_BL.sum()) for s in end.steps) > 0


def test_psi_is_the_probability_at_reveal_and_reset_on_re_mask(exact):
    """Kept by an independent book-keeping over the recorded steps, row by row."""
    end = run(exact, revised("conf"), rows=16)
    seen_reset = False
    for row in range(16):
        own = end.row(row)
        expected = [inf] * (ANSWER + 1)
        for number, step in enumerate(own.steps):
            found = step.action.notes["psi_BL"][0].tolist()
            assert found == pytest.approx(expected)
            after = own.steps[number + 1].state if number + 1 < len(own.steps) else own.state
            for i in range(ANSWER + 1):
                if step.remasked_BL[0, i]:
                    expected[i] = inf
                    seen_reset = True
                if step.revealed_BL[0, i]:
                    token = int(after.tokens_BL[0, i])
                    probability = exact.joint.marginals(evidence(step.state, exact.mask_id))[i][token]
                    expected[i] = probability
    assert seen_reset


def evidence(state, mask_id):
    return {i: t for i, t in enumerate(state.tokens_BL[0].tolist()) if t != mask_id}


def test_psi_survives_a_resume(exact):
    """A run taken up in the middle re-masks what the whole run did."""
    policy, rows = revised("conf"), 8
    whole = run(exact, policy, rows)
    for row in range(rows):
        again = decode(exact, policy, whole.resume(row, 3), noise=Noise(torch.tensor([row])), sampling=SAMPLED)
        assert torch.equal(again.state.tokens_BL[0], whole.state.tokens_BL[row])
        theirs = [s.remasked_BL[0].tolist() for s in whole.row(row).steps]
        assert [s.remasked_BL[0].tolist() for s in again.steps] == theirs


def test_variants_differ(exact):
    settings = {"loop": {"t_on": 0.9, "t_off": 0.0, "alpha_on": 0.7}}
    finals = {v: run(exact, revised(v, eta=0.3, **settings.get(v, {}))) for v in VARIANTS}
    patterns = {v: tuple(tuple(s.remasked_BL.flatten().tolist()) for s in end.steps) for v, end in finals.items()}
    assert len(set(patterns.values())) == len(VARIANTS)
    plain = run(exact, fixed_action(commitment="none"))
    for end in finals.values():
        assert not torch.equal(end.state.tokens_BL, plain.state.tokens_BL)


@each_case("variant", VARIANTS)
@each_case(
    "base",
    [
        fixed_action(commitment="none"),
        fixed_action(commitment="none", cardinality="count:3"),
        fixed_action(score="stability", commitment="none"),
    ],
)
def test_without_re_masking_it_is_the_base_policy(base, variant, exact):
    plain = run(exact, base, rows=16)
    ours = run(exact, revised(variant, base, eta=0.0), rows=16)
    assert torch.equal(ours.state.tokens_BL, plain.state.tokens_BL)
    assert (ours.state.step_B == ANSWER).all(), "the horizon is used up even when the canvas is full earlier"


@pytest.mark.parametrize("base", [LLaDA(), Dream("entropy"), fixed_action()])
def test_what_the_base_commits_is_out_of_reach(base, exact):
    plain = run(exact, base, rows=16)
    ours = run(exact, revised("conf", base), rows=16)
    assert torch.equal(ours.state.tokens_BL, plain.state.tokens_BL)
    assert not any(step.remasked_BL.any() for step in ours.steps)


@pytest.fixture(scope="module")
def run_many(exact):
    """A policy on 3 000 rows; each once."""
    return cache(lambda policy: run(exact, policy, rows=3000))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "settings"),
    [
        ("cap", {"eta": 0.2}),
        ("rescale", {"eta": 0.3}),
        ("conf", {}),
        ("loop", {"eta": 0.2, "t_on": 0.9, "t_off": 0.1, "alpha_on": 0.7}),
    ],
)
def test_number_of_re_masks_is_the_sum_of_sigma(variant, settings, run_many):
    """Over 3 000 rows, step by step: a sum of independent coins, within four standard deviations."""
    policy = revised(variant, **settings)
    end = run_many(policy)
    total = 0.0
    for step in end.steps:
        sigma_BL = policy.operator.sigma(step.state, step.action.notes["psi_BL"])
        expected, spread = float(sigma_BL.sum()), float((sigma_BL * (1 - sigma_BL)).sum()) ** 0.5
        assert abs(int(step.remasked_BL.sum()) - expected) <= 4 * spread + 1e-9
        total += expected
    assert total > 500


def test_conf_re_masks_the_less_sure_more_often(run_many):
    """Within a row and step, what goes was less sure than the average of what could go."""
    end = run_many(revised("conf"))
    excess = []
    for step in end.steps[1:-1]:
        able_BL = step.state.revisable_BL
        psi_BL = torch.where(able_BL, step.action.notes["psi_BL"], 0.0)
        mean_B1 = psi_BL.sum(-1, keepdim=True) / able_BL.sum(-1, keepdim=True).clamp(min=1)
        excess.append((psi_BL - mean_B1)[step.remasked_BL])
    excess_R = torch.cat(excess)
    assert excess_R.mean() < -4 * excess_R.std() / len(excess_R) ** 0.5


def test_a_re_masked_position_stays_masked_in_its_step(exact):
    """The base chose among what was masked before, so the token seen again is drawn from a later forward."""
    end = run(exact, revised("conf"))
    for step in end.steps:
        assert not (step.remasked_BL & step.revealed_BL).any()


def test_a_full_row_keeps_revising_until_its_horizon(exact):
    """Everything is revealed in the first step; later steps only re-open and refill."""
    end = run(exact, revised("cap", fixed_action(commitment="none", cardinality=1.0), eta=0.3), rows=200)
    assert not end.steps[1].state.masked_BL.any()
    assert sum(int(s.remasked_BL.sum()) for s in end.steps[1:]) > 100
    assert not end.state.masked_BL.any()
    assert (end.state.step_B == ANSWER).all()


@pytest.mark.slow
@pytest.mark.parametrize("eos_fill", [False, True])
@pytest.mark.parametrize("variant", ["cap", "conf"])
@pytest.mark.parametrize(
    "base",
    [
        WINO(8),
        CoRe(window=(0.0, 1.0), revise_every=1, tail=0),
        CoRe(8, window=(0.0, 1.0), revise_every=1, tail=0, joint_reeval=True),
        InfoGain(8),
        LLaDA(8),
    ],
    ids=lambda b: f"{b.name}-{b.block_length}",
)
def test_any_method_can_be_the_base(base, variant, eos_fill, toy):
    """A full canvas with steps left is new to them: they may still rewrite, but not what is committed."""
    for seed in range(3):
        start = State.from_prompts([[1, 2], [3], [4, 5, 6]], new_tokens=16, steps=[8, 16, 4], mask_id=11)
        noise = Noise(torch.arange(3))
        policy = revised(variant, base, eta=0.2)
        end = decode(toy(seed), policy, start, noise=noise, sampling=SAMPLED, eos_fill=eos_fill)
        assert not end.state.masked_BL.any()
        assert (end.state.step_B >= end.state.horizon_B).all()
        assert not any((s.remasked_BL & s.state.committed_BL).any() for s in end.steps)


def test_a_rewritten_token_counts_as_the_least_sure(toy):
    """CoRe's rewrites come from its probe: they have no probability under the step's own forward, hence psi 0."""
    start = State.from_prompts([[1, 2]], new_tokens=16, steps=16, mask_id=11)
    base = CoRe(window=(0.0, 1.0), revise_every=1, tail=0)
    seen = False
    for seed in range(5):
        steps = decode(toy(seed), revised("conf", base, eta=0.0), start, noise=NO_NOISE).steps
        for step, later in pairwise(steps):
            rewritten_BL = step.remasked_BL & step.revealed_BL
            assert (later.action.notes["psi_BL"][rewritten_BL] == 0).all()
            seen |= bool(rewritten_BL.any())
    assert seen


def test_memory_is_at_least_the_notes():
    assert revised(base=LLaDA()).past_steps == 1

    @dataclass(frozen=True)
    class Historian(LLaDA):
        past_steps = ALL

    assert revised(base=Historian()).past_steps == ALL


def test_one_forward_per_step(exact):
    assert run(exact, revised("conf"), rows=4).forwards_B.tolist() == [ANSWER] * 4


def test_by_name():
    policy = make_policy("revised", **{"operator.variant": "cap", "operator.eta": 0.04, "base.commit": "none"})
    assert policy.operator == ReMDM("cap", eta=0.04)
    assert policy.base == fixed_action(commitment="none")


@each_case("row", REMDM["nucleus"], ids=lambda r: f"p{r['nucleus_p']}-at{r['position']}")
def test_our_nucleus_is_the_authors_plus_the_token_that_crosses(row, toy):
    """ReMDM drops the token whose mass crosses top_p, unless it is the first; our proposal keeps it, as Dream does."""
    state = State.from_canvases([REMDM["inputs"]["canvas"]], steps=1, mask_id=11)
    inputs = ModelInput.of(state, Needs())
    network = toy(REMDM["inputs"]["toy_seed"])
    seen = sample(
        network(inputs, Needs()),
        inputs,
        SamplingParams(top_p=row["nucleus_p"]),
        Needs(filtered=True, top_k=12),
        network.vocabulary,
        noise=NO_NOISE,
        step_B=state.step_B,
    )
    ours, clean = (whole_row(part, row["position"]) for part in (seen.filtered, seen.clean))
    theirs = torch.tensor(row["probabilities"], dtype=torch.float64)
    first_crosses = float(clean.max()) > row["nucleus_p"]
    assert int(((ours > 0) & (theirs == 0)).sum()) == (0 if first_crosses else 1)
    shared = torch.where(theirs > 0, ours, 0.0)
    torch.testing.assert_close(shared / shared.sum(), theirs, rtol=1e-5, atol=1e-6)


def whole_row(statistics, position):
    """The distribution at one position; tokens that a filter removed may be listed more than once, with 0."""
    top_K, p_K = statistics.top_BNK[0, position], statistics.p_BNK[0, position].double()
    return torch.zeros(12, dtype=torch.float64).index_add(0, top_K, p_K)


def test_our_nucleus_by_hand(predict):
    """top_p 0.9 on (.5, .3, .15, .05): ReMDM keeps (.625, .375), ours the third token too."""
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).double().log()
    kept = predict(logits, SamplingParams(top_p=0.9), Needs(filtered=True, top_k=4)).filtered.p_BNK[0, 0]
    assert kept.tolist() == pytest.approx([0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0])
    assert (kept[:2] / kept[:2].sum()).tolist() == pytest.approx([0.625, 0.375])


def test_a_start_with_tokens_of_unknown_origin_leaves_them_alone(exact):
    """Tokens without a recorded probability are never the least sure: no NaN, no re-mask under conf."""
    start = start_of(exact)
    tokens_BL = start.tokens_BL.clone()
    tokens_BL[0, 1] = 0
    traj = Trajectory.start(replace(start, tokens_BL=tokens_BL), NO_NOISE)
    end = decode(exact, revised("conf"), traj, noise=NO_NOISE, sampling=SAMPLED)
    assert end.state.tokens_BL[0, 1] == 0
    assert not end.state.masked_BL.any()


@dataclass(frozen=True)
class CountLoop(Policy):
    """The counts of ReMDM's LLaDA variant: fill to 7/8, then drop the worst and refill B times, then finish."""

    name: ClassVar[str] = "count-loop"
    past_steps = ALL
    block: int = 8

    def done(self, traj):
        return traj.state.step_B >= 2 * self.block

    def act(self, traj, look_ahead):
        state = traj.state
        threshold = 7 * self.block // 8
        looping_B = (state.step_B >= threshold) & (state.step_B < threshold + self.block)
        stored_BL = sum((s.confidence_BL * ~s.remasked_BL for s in traj.steps), torch.zeros(state.tokens_BL.shape))
        worst_BL = score.best(-stored_BL, state.revisable_BL, looping_B.long())
        kappa_B = cardinality.fraction(1, state.masked_BL.sum(-1))
        confidence_BJ = score.rows("confidence", state)
        return Action(confidence_BJ, state.masked_BL, kappa_B, torch.zeros_like(worst_BL), remask_BL=worst_BL)


def test_the_count_loop_of_the_sheet():
    """B = 8, one position: 7 reveals, eight rounds of drop and refill, the last reveal; sixteen forwards."""
    exact = ExactDenoiser(JointDistribution.random(9, 2, dependence=1.0, seed=4))
    state = State.from_prompts([[0]], new_tokens=8, steps=8, mask_id=exact.mask_id)
    traj = decode(exact, CountLoop(), state, noise=NO_NOISE)
    after = [*(s.state for s in traj.steps[1:]), traj.state]
    assert [int(s.masked_BL.sum()) for s in after] == [7, 6, 5, 4, 3, 2, 1, *[1] * 8, 0]
    assert [int(s.remasked_BL.sum()) for s in traj.steps] == [0] * 7 + [1] * 8 + [0]
    assert traj.forwards_B.tolist() == [16]
