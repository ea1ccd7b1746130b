"""ReMDM as a decoder: marginals that hold, sigma 0, and the count loop for LLaDA."""

from dataclasses import replace

import pytest
import torch

from tests.methods.worked import VOCAB, confidences, peaked, run
from unmask.axes import ReMDM
from unmask.core import Noise, SamplingParams, State, row_key
from unmask.engine import decode
from unmask.methods.check import check_policy
from unmask.methods.examples import ScriptedDenoiser, load_cases, scripted_model
from unmask.methods.remdm import ReMDMLLaDA, ReMDMSampler


def rates(operator, step, steps, revealed=()):
    state = State.from_canvases([[VOCAB] * 6], steps=steps, mask_id=VOCAB, extra_steps=True)
    tokens_BL = state.tokens_BL.clone()
    psi_BL = torch.full(tokens_BL.shape, float("inf"), dtype=torch.float64)
    for at, psi in enumerate(revealed):
        tokens_BL[0, at], psi_BL[0, at] = 1, psi
    state = replace(state, tokens_BL=tokens_BL, step_B=torch.tensor([step]))
    reveal_B, sigma_BL = ReMDMSampler(operator).rates(state, psi_BL)
    return float(reveal_B), sigma_BL[0].tolist()


def test_nothing_is_revealed_at_the_first_step_for_sure_and_no_rate_is_nan():
    got, sigma_L = rates(ReMDM("conf"), 0, 10)
    assert got == pytest.approx(0.1, abs=1e-4)
    assert sigma_L == [0.0] * 6


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["cap", "rescale", "conf", "loop"])
def test_the_marginals_are_those_of_the_schedule(variant):
    """Over 400 rows of 16: the share revealed after each step is alpha, whatever is re-masked."""
    rows, length, steps = 400, 16, 8
    scripted_model = ScriptedDenoiser(lambda tokens, slot, call: peaked(0.5), VOCAB)
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


def test_sigma_zero_never_remasks():
    traj = run(confidences([[0.5] * 8]), ReMDMSampler(ReMDM("cap", 0.0)), 8)
    assert not any(bool(step.remasked_BL.any()) for step in traj.steps)


def test_the_count_loop_costs_two_forwards_a_position():
    traj = run(scripted_model(load_cases("remdm-llada")[0].script), ReMDMLLaDA(8, 1), 8)
    assert int(traj.forwards_B) == 16
    dropped = [int(step.remasked_BL.sum()) for step in traj.steps]
    assert dropped == [0] * 7 + [1] * 8 + [0]


def test_the_least_sure_is_dropped_before_the_forward_that_refills():
    """Position 2 was revealed with the least confidence; the forward after does not see it."""
    seen = []

    def answer(tokens, slot, call):
        seen.append((call, tuple(tokens)))
        return peaked({2: 0.3}.get(slot, 0.9 - slot / 100))

    traj = run(ScriptedDenoiser(answer, VOCAB), ReMDMLLaDA(8, 1), 8)
    dropping = traj.steps[7]
    at = dropping.remasked_BL[0].nonzero().flatten().tolist()
    psi = dropping.action.notes["psi_BL"][0]
    assert at == [int(psi.argmin())]
    canvas = next(tokens for call, tokens in seen if call == 7)
    assert canvas[at[0]] == VOCAB


@pytest.mark.parametrize("step", [8, 15, 16])
def test_what_somebody_else_left_open_is_filled_after_the_last_round(step):
    """The clock has passed the first block, of which two masks are left; its own rounds leave none."""
    canvas = [1, VOCAB, VOCAB, 1, *[1] * 4]
    start = State.from_canvases([canvas], steps=8, mask_id=VOCAB, given=[[False] * 8], extra_steps=True)
    start = replace(start, step_B=torch.tensor([step]))
    end = decode(confidences([[0.9] * 8]), ReMDMLLaDA(4, 1), start, noise=Noise.of([0]))
    assert not bool(end.state.masked_BL.any())
    assert int(end.state.step_B[0]) == 16 + 2
    assert not any(bool(one.remasked_BL.any()) for one in end.steps if int(one.state.step_B[0]) >= 16)


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy",
    [
        ReMDMSampler(),
        ReMDMSampler(ReMDM("conf")),
        ReMDMSampler(ReMDM("loop")),
        ReMDMSampler(ReMDM("rescale")),
        ReMDMLLaDA(None),
        ReMDMLLaDA(None, 2),
    ],
)
def test_contract(policy):
    check_policy(policy)
