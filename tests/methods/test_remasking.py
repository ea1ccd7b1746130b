"""Methods that take tokens back: ReMDM alone and around any policy, WINO, CoRe, P2."""

from dataclasses import replace
from functools import cache
from math import inf, log

import pytest
import torch

from tests.helpers.cases import each_case
from tests.methods.conftest import Toy
from tests.methods.worked import VOCAB, confidences, peak_logits, table
from unmask.axes import ReMDM
from unmask.base.errors import ConfigError
from unmask.core import ModelOutput, Noise, SamplingParams, State, Trajectory, Vocabulary, row_key
from unmask.engine import decode
from unmask.methods import (
    P2,
    WINO,
    CoRe,
    Dream,
    LLaDA,
    ReMDMLLaDA,
    ReMDMSampler,
    fixed_action,
    with_remasking,
)
from unmask.methods.check import Problem
from unmask.methods.examples import ScriptedDenoiser, load_cases
from unmask.models import ExactDenoiser, JointDistribution

NO_NOISE = Noise.of([0])


def positions(mask_BL):
    return mask_BL[0].nonzero().flatten().tolist()


# ReMDM as a decoder: marginals that hold, and the count loop for LLaDA


def rates(operator, step, steps, revealed=()):
    state = State.from_canvases([[VOCAB] * 6], steps=steps, mask_id=VOCAB, extra_steps=True)
    tokens_BL = state.tokens_BL.clone()
    psi_BL = torch.full(tokens_BL.shape, float("inf"), dtype=torch.float64)
    for at, psi in enumerate(revealed):
        tokens_BL[0, at], psi_BL[0, at] = 1, psi
    state = replace(state, tokens_BL=tokens_BL, step_B=torch.tensor([step]))
    reveal_B, sigma_BL = ReMDMSampler(operator).rates(state, psi_BL)
    return float(reveal_B), sigma_BL[0].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["cap", "rescale", "conf", "loop"])
def test_remdm_the_marginals_are_those_of_the_schedule(variant):
    """Over 400 rows of 16: the share revealed after each step is alpha, whatever is re-masked."""
    rows, length, steps = 400, 16, 8
    scripted_model = ScriptedDenoiser(lambda tokens, slot, call: peak_logits(0.5, VOCAB), VOCAB)
    state = State.from_canvases([[VOCAB] * length] * rows, steps=steps, mask_id=VOCAB)
    noise = Noise.of([row_key(7, bytes([row % 256, row // 256])) for row in range(rows)])
    operator = ReMDM(variant, 0.1)
    end = decode(scripted_model, ReMDMSampler(operator), state, noise=noise, sampling=SamplingParams(temperature=1.0))
    remasked = 0
    for number, step in enumerate(end.steps[1:steps], 1):
        t = 1 - (1 - 1e-5) * number / steps
        alpha = 1 - t
        if variant == "loop":
            alpha = (1 - t) * 0.9 / 0.45 if t > 0.55 else 0.9 if t > 0.05 else 1 - t * 0.1 / 0.05
        share = float(step.state.revealed_BL.double().mean())
        assert share == pytest.approx(alpha, abs=0.03), (variant, number)
        remasked += int(step.remasked_BL.sum())
    assert remasked > 0
    assert not bool(end.state.masked_BL.any())


@pytest.mark.parametrize("step", [8, 15, 16])
def test_remdm_what_somebody_else_left_open_is_filled_after_the_last_round(step):
    """The clock has passed the first block, of which two masks are left; its own rounds leave none."""
    canvas = [1, VOCAB, VOCAB, 1, *[1] * 4]
    start = State.from_canvases([canvas], steps=8, mask_id=VOCAB, given=[[False] * 8], extra_steps=True)
    start = replace(start, step_B=torch.tensor([step]))
    end = decode(confidences([[0.9] * 8]), ReMDMLLaDA(4, 1), start, noise=Noise.of([0]))
    assert not bool(end.state.masked_BL.any())
    assert int(end.state.step_B[0]) == 16 + 2
    assert not any(bool(one.remasked_BL.any()) for one in end.steps if int(one.state.step_B[0]) >= 16)


# ReMDM's remasking around any policy, on a denoiser whose posteriors are exact


VARIANTS = ("cap", "rescale", "conf", "loop")


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


def run_remasked(exact, policy, rows=64, steps=ANSWER, proposal=SAMPLED):
    return decode(exact, policy, start_of(exact, rows, steps), noise=Noise(torch.arange(rows)), sampling=proposal)


@pytest.mark.parametrize("variant", VARIANTS)
def test_remasking_only_revisable_positions_are_re_masked(variant, exact):
    settings = {"t_on": 0.9, "t_off": 0.0, "alpha_on": 0.7} if variant == "loop" else {}
    base = fixed_action(commitment="confidence:0.7")
    end = run_remasked(exact, revised(variant, base, eta=0.4, **settings))
    some = False
    for step in end.steps:
        assert not (step.remasked_BL & ~step.state.revisable_BL).any()
        assert torch.equal(step.remasked_BL, step.action.remask_BL)
        some |= bool(step.remasked_BL.any())
    assert some
    assert end.state.committed_BL[:, 1:].any(), "the base commits something, so there was something to spare"


@pytest.mark.parametrize("variant", VARIANTS)
def test_remasking_a_row_is_full_exactly_at_its_horizon(variant, exact):
    settings = {"t_on": 0.9, "t_off": 0.0, "alpha_on": 0.7} if variant == "loop" else {}
    for base in (
        fixed_action(commitment="none"),
        fixed_action(commitment="none", cardinality="count:3"),
        Dream("entropy"),
    ):
        end = run_remasked(exact, revised(variant, base, eta=0.4, **settings))
        assert not end.state.masked_BL.any()
        assert (end.state.step_B == ANSWER).all()
        assert len(end.steps) == ANSWER
        assert not end.steps[-1].remasked_BL.any()


def test_remasking_psi_is_the_probability_at_reveal_and_reset_on_re_mask(exact):
    """Kept by an independent book-keeping over the recorded steps, row by row."""
    end = run_remasked(exact, revised("conf"), rows=16)
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


def test_remasking_psi_survives_a_resume(exact):
    """A run taken up in the middle re-masks what the whole run did."""
    policy, rows = revised("conf"), 8
    whole = run_remasked(exact, policy, rows)
    for row in range(rows):
        again = decode(exact, policy, whole.resume(row, 3), noise=Noise(torch.tensor([row])), sampling=SAMPLED)
        assert torch.equal(again.state.tokens_BL[0], whole.state.tokens_BL[row])
        theirs = [s.remasked_BL[0].tolist() for s in whole.row(row).steps]
        assert [s.remasked_BL[0].tolist() for s in again.steps] == theirs


@each_case("variant", VARIANTS)
@each_case(
    "base",
    [
        fixed_action(commitment="none"),
        fixed_action(commitment="none", cardinality="count:3"),
        fixed_action(score="stability", commitment="none"),
    ],
)
def test_remasking_without_re_masking_it_is_the_base_policy(base, variant, exact):
    plain = run_remasked(exact, base, rows=16)
    ours = run_remasked(exact, revised(variant, base, eta=0.0), rows=16)
    assert torch.equal(ours.state.tokens_BL, plain.state.tokens_BL)
    assert (ours.state.step_B == ANSWER).all(), "the horizon is used up even when the canvas is full earlier"


@pytest.mark.parametrize("base", [LLaDA(), Dream("entropy"), fixed_action()])
def test_remasking_what_the_base_commits_is_out_of_reach(base, exact):
    plain = run_remasked(exact, base, rows=16)
    ours = run_remasked(exact, revised("conf", base), rows=16)
    assert torch.equal(ours.state.tokens_BL, plain.state.tokens_BL)
    assert not any(step.remasked_BL.any() for step in ours.steps)


@pytest.fixture(scope="module")
def run_many(exact):
    """A policy on 3 000 rows; each once."""
    return cache(lambda policy: run_remasked(exact, policy, rows=3000))


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
def test_remasking_number_of_re_masks_is_the_sum_of_sigma(variant, settings, run_many):
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


def test_remasking_a_full_row_keeps_revising_until_its_horizon(exact):
    """Everything is revealed in the first step; later steps only re-open and refill."""
    end = run_remasked(exact, revised("cap", fixed_action(commitment="none", cardinality=1.0), eta=0.3), rows=200)
    assert not end.steps[1].state.masked_BL.any()
    assert sum(int(s.remasked_BL.sum()) for s in end.steps[1:]) > 100
    assert not end.state.masked_BL.any()
    assert (end.state.step_B == ANSWER).all()


def test_remasking_a_start_with_tokens_of_unknown_origin_leaves_them_alone(exact):
    """Tokens without a recorded probability are never the least sure: no NaN, no re-mask under conf."""
    start = start_of(exact)
    tokens_BL = start.tokens_BL.clone()
    tokens_BL[0, 1] = 0
    traj = Trajectory.start(replace(start, tokens_BL=tokens_BL), NO_NOISE)
    end = decode(exact, revised("conf"), traj, noise=NO_NOISE, sampling=SAMPLED)
    assert end.state.tokens_BL[0, 1] == 0
    assert not end.state.masked_BL.any()


# WINO


def peaked_at_zero(p, vocab=10):
    """Token 0 with probability p, the others alike."""
    return [log(p), *[log((1 - p) / (vocab - 1))] * (vocab - 1)]


SURE = (dict.fromkeys(range(6), 0.9), dict.fromkeys(range(6), 0.99))


"""A row for the rest of a run: drafts everything, doubts nothing."""


def test_wino_a_closed_block_is_never_doubted_again():
    """Blocks of 3: once block 1 is open, the shadows double its positions and ask about its tokens alone."""
    shadow = {0: 0.9, 1: 0.9, 2: 0.9}
    script_rows = [
        ({0: 0.9, 1: 0.9, 2: 0.2, 3: 0.2, 4: 0.2, 5: 0.2}, shadow),
        ({2: 0.9, 3: 0.2, 4: 0.2, 5: 0.2}, shadow),
        ({3: 0.9, 4: 0.9, 5: 0.2}, {}),
        ({5: 0.9}, {0: 0.1, 1: 0.1}),
        ({}, {}),
    ]

    def script(tokens, slot, call):
        confidence, verify = script_rows[call]
        return peaked_at_zero(confidence[slot] if slot < 6 else verify[slot - 6])

    denoiser = ScriptedDenoiser(script, vocab=10)
    state = State.from_canvases([[10] * 6], steps=6, mask_id=10)
    end = decode(denoiser, WINO(3), state, noise=NO_NOISE)
    assert [positions(s.revealed_BL) for s in end.steps] == [[0, 1], [2], [3, 4], [5]]
    assert not any(s.remasked_BL.any() for s in end.steps)
    assert denoiser.calls[3].position_BN[0, 6:].tolist() == [3, 4, 5]
    assert denoiser.calls[3].given_BN[0, 6:].tolist() == [0, 0, -1]


def test_wino_committed_tokens_are_not_doubted():
    """Another policy may have committed some of the block, or the EOS fill: not asked about and not re-masked."""
    table = [
        ({3: 0.9, 4: 0.9, 5: 0.2}, {0: 0.1, 2: 0.1}),
        *[SURE] * 6,
    ]

    def script(tokens, slot, call):
        confidence, verify = table[call]
        return peaked_at_zero(confidence[slot] if slot < 6 else verify[slot - 6])

    start = State.from_canvases([[10] * 6], steps=6, mask_id=10)
    tokens_BL, committed_BL = torch.tensor([[0, 0, 0, 10, 10, 10]]), start.committed_BL.clone()
    committed_BL[0, 1] = True
    denoiser = ScriptedDenoiser(script, vocab=10)
    start = replace(start, tokens_BL=tokens_BL, committed_BL=committed_BL)
    first = decode(denoiser, WINO(6), start, noise=NO_NOISE).steps[0]
    assert denoiser.calls[0].given_BN[0, 6:].tolist() == [0, -1, 0, -1, -1, -1]
    assert positions(first.remasked_BL) == [0, 2]


# CoRe


A, B, C, M = 0, 1, 2, 3


_SAID, _PROBED = load_cases("core")[0].script["canvases"]


BEFORE = [M if token is None else token for token in _SAID["canvas"]]


NOW = _SAID["table"]


PROBE = {slot: p for slot, p in enumerate(_PROBED["table"]) if p is not None}


HIDDEN = [A, M, M, M, M, M]


def log_row(probabilities):
    return [log(p) for p in probabilities]


def example(steps, step):
    """The canvas of the worked example in the middle of a run."""
    start = State.from_canvases([[M] * 6], steps=steps, mask_id=M)
    return replace(start, tokens_BL=torch.tensor([BEFORE]), step_B=torch.tensor([step]))


def script(tokens, slot, call):
    """The two forwards of the example; anything later is flat."""
    if tokens == BEFORE:
        return log_row(NOW[slot])
    return log_row(PROBE.get(slot, (1 / 3, 1 / 3, 1 / 3))) if tokens == HIDDEN else [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("rewrites", "quota", "steps", "step", "rewritten", "after"),
    [
        (1, 1, 6, 2, [2], [A, B, A, B, A, M]),
        (2, 2, 3, 1, [2, 4], [A, B, A, B, B, A]),
    ],
)
def test_core_one_step_by_hand(rewrites, quota, steps, step, rewritten, after):
    policy = CoRe(candidates=3, rewrites=rewrites, tail=0, revise_every=1)
    denoiser = ScriptedDenoiser(script, vocab=3)
    end = decode(denoiser, policy, example(steps, step), noise=NO_NOISE)
    first = end.steps[0]
    assert positions(first.remasked_BL) == rewritten
    assert list(end.canvases())[1].tolist() == after
    assert int(first.forwards_B) == 2
    assert denoiser.calls[1].tokens_BN[0].tolist() == HIDDEN
    assert int(first.revealed_BL.sum()) == quota + len(rewritten)


def test_core_committed_tokens_are_not_probed():
    """Another policy may have committed position 2, which the probe would otherwise rewrite."""
    state = example(6, 2)
    committed_BL = state.committed_BL.clone()
    committed_BL[0, 2] = True
    denoiser = ScriptedDenoiser(script, vocab=3)
    policy = CoRe(candidates=3, tail=0, revise_every=1)
    first = decode(denoiser, policy, replace(state, committed_BL=committed_BL), noise=NO_NOISE).steps[0]
    assert denoiser.calls[1].tokens_BN[0].tolist() == [M, M, C, M, M, M]
    assert 2 not in positions(first.remasked_BL)


@pytest.mark.parametrize(
    ("steps", "every", "window", "probes"),
    [
        (16, 2, (0.25, 0.75), [4, 6, 8, 10]),
        (16, 3, (0.25, 0.75), [6, 9]),
        (16, 1, (0.0, 0.2), [1, 2]),
        (16, 0, (0.25, 0.75), []),
    ],
)
def test_core_when_probes_happen(steps, every, window, probes):
    """i mod E = 0 inside [int(start S), int(end S)); nothing is revealed yet at step 0, so nothing to probe."""
    policy = CoRe(revise_every=every, window=window, tail=0, candidates=4)
    state = State.from_prompts([[1, 2]], new_tokens=16, steps=steps, mask_id=11)
    end = decode(Toy(3), policy, state, noise=NO_NOISE)
    assert [i for i, step in enumerate(end.steps) if int(step.forwards_B) > 1] == probes


# P2


(P,) = table("p2")


def at_step_four(n=6):
    """Three of six revealed, three steps taken of six."""
    state = State.from_canvases([[VOCAB] * n], steps=n, mask_id=VOCAB)
    tokens = torch.tensor([[1] * 3 + [VOCAB] * (n - 3)])
    state = replace(state, tokens_BL=tokens, step_B=torch.tensor([3]))
    return Trajectory.start(state, Noise.of([0]))


def one_step(policy, p=P, planner=None):
    """Newly revealed, re-masked, and masked after the step."""
    traj = decode(confidences([p]), policy, at_step_four(len(p)), planner=planner)
    step = traj.steps[0]
    after = traj.steps[1].state.masked_BL[0] if len(traj.steps) > 1 else traj.state.masked_BL[0]
    return [mask_L.nonzero().flatten().tolist() for mask_L in (step.revealed_BL[0], step.remasked_BL[0], after)]


class Planner:
    """Says the sheet's probabilities of the draft at revealed positions."""

    vocabulary = Vocabulary(VOCAB, VOCAB)
    device = torch.device("cpu")

    def __init__(self, p):
        self.p, self.canvases = p, []

    def __call__(self, view, needs):
        self.canvases.append(view.tokens_BN[0].tolist())
        rows = [peak_logits(self.p[at], VOCAB) for _, at in view.wanted_BN.nonzero().tolist()]
        return ModelOutput(torch.tensor(rows).double(), view.wanted_BN)


def test_p2_a_planner_judges_what_stands():
    planner = Planner([0.95, 0.90, 0.30, 0.5, 0.5, 0.5])
    assert one_step(P2(planner=True), planner=planner) == [[3, 5], [2], [2, 4]]
    # It reads the whole draft: no mask is left in it.
    assert planner.canvases[0] == [1] * 6


def test_p2_the_planner_is_counted_apart():
    traj = decode(confidences([P]), P2(planner=True), at_step_four(), planner=Planner([0.5] * 6))
    assert int(traj.planner_forwards_B) == len(traj.steps) == int(traj.forwards_B)


def test_p2_without_a_planner_the_run_says_so():
    problem = Problem.default()
    with pytest.raises(ConfigError, match="pass planner="):
        decode(problem.denoiser, P2(planner=True), problem.state, noise=problem.noise)
