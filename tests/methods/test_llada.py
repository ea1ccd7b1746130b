"""LLaDA against the authors' loop (`tests/golden/llada.json`) and against numbers computed by hand."""

import json
from dataclasses import replace

import pytest
import torch

from tests.helpers import paths
from tests.helpers.cases import each_case
from tests.methods.worked import table
from unmask.axes import cardinality
from unmask.base.errors import ConfigError
from unmask.core import ModelInput, Needs, Noise, SamplingParams, State
from unmask.engine import decode
from unmask.methods import LLaDA
from unmask.methods.examples import load_cases, scripted_model
from unmask.models import GuidedDenoiser

GOLDEN = json.loads((paths.GOLDEN / "llada.json").read_text())
SKIPPED = {"llada-06": "more steps than masks: State refuses that (see the next test)"}
NO_NOISE = Noise.of([0])


def proposal(case):
    return SamplingParams(
        temperature=case["temperature"],
        sampler="gumbel",
        logits_eos_inf=case["logits_eos_inf"],
        confidence_eos_eot_inf=case["confidence_eos_eot_inf"],
    )


@each_case("case", [c for c in GOLDEN["cases"] if c["id"] not in SKIPPED], ids=lambda c: c["id"])
def test_same_tokens_as_the_authors(case, replay):
    ours = replay(case, LLaDA(case["block_length"], case["remasking"]), proposal(case))
    assert ours.canvases == case["canvases"]
    assert ours.final == case["final"]
    assert ours.forwards == case["forward_rows"]
    assert not ours.unused()
    revealed = [int(step.revealed_BL.sum()) for step in ours.traj.steps]
    assert revealed == case["quotas"] * (case["gen_length"] // case["block_length"])


@pytest.mark.parametrize("case", [c for c in GOLDEN["cases"] if c["id"] in SKIPPED], ids=lambda c: c["id"])
def test_more_steps_than_masks_is_refused(case, replay):
    with pytest.raises(ConfigError, match=r"steps of row 0 is 12; allowed: 1 to 8"):
        replay(case, LLaDA(case["block_length"]))


@pytest.mark.parametrize("case", GOLDEN["quirk_cases"], ids=lambda c: c["id"])
def test_the_eos_trick_at_a_temperature_differs_by_the_eos_column_only(case, replay):
    """Above temperature 0 the published code distrusts EoT alone; ours distrusts EOS too, as at temperature 0."""
    policy = LLaDA(case["block_length"])
    assert replay(case, policy, proposal(case), eos_ids=(10,)).canvases == case["canvases"]
    assert replay(case, policy, proposal(case)).canvases != case["canvases"]


@pytest.mark.parametrize(("masks", "steps", "quotas"), [(7, 3, [3, 2, 2]), (3, 5, [1, 1, 1, 0, 0])])
def test_schedule(masks, steps, quotas):
    step_B = torch.arange(steps)
    found = cardinality.llada_quota(torch.full_like(step_B, masks), torch.full_like(step_B, steps), step_B)
    assert found.tolist() == quotas


(STATIC,) = table("llada")


def test_static_confidences(predict):
    seen = predict(STATIC)
    expected = [0.786986, 0.576117, 0.964663, 0.909443, 0.691438, 0.367165]
    assert seen.confidence_BN[0].tolist() == pytest.approx(expected, abs=5e-7)
    assert seen.token_BN[0].tolist() == [0, 1, 2, 0, 1, 0]


@pytest.mark.parametrize("case", load_cases("llada"), ids=lambda case: case.title)
def test_static_tokens(case):
    state = State.from_canvases([[3] * 6], steps=case.steps, mask_id=3)
    end = decode(scripted_model(case.script), case.policy, state, noise=NO_NOISE)
    assert end.state.tokens_BL[0].tolist() == [0, 1, 2, 0, 1, 0]
    assert end.forwards_B.tolist() == [case.steps]
    assert end.state.committed_BL.all()


@pytest.mark.parametrize(
    ("temperature", "values", "token", "confidence"),
    [(1.0, [1.180535, 15.648379, 1.442695], 1, 0.307196), (0.1, [2.500765, 2.064807, 1.037331], 0, 0.506480)],
)
def test_gumbel(temperature, values, token, confidence, predict, constant):
    """The values themselves show in how far a rival's logit must rise to win: ln of the ratio of two values."""
    logits = torch.tensor([1.0, 0.5, 0.0])
    noise = constant({"token": [0.1, 0.9, 0.5]})
    sampling = SamplingParams(temperature=temperature, sampler="gumbel")

    def drawn(logits):
        return predict(logits[None], sampling, noise=noise)

    seen = drawn(logits)
    assert seen.token_BN.item() == token
    assert seen.confidence_BN.item() == pytest.approx(confidence, abs=5e-7)
    for rival in {0, 1, 2} - {token}:
        deficit = torch.tensor(values[token] / values[rival]).log().item()
        for lift, winner in ((deficit - 2e-6, token), (deficit + 2e-6, rival)):
            raised = logits.double().clone()
            raised[rival] += lift
            assert drawn(raised).token_BN.item() == winner


@pytest.mark.parametrize(("scale", "guided"), [(1.0, [3, 1, -1]), (0.5, [2.5, 1, -0.5])])
def test_guidance(scale, guided, scripted):
    def script(tokens, slot, call):
        return [2.0, 1.0, 0.0] if tokens[0] == 0 else [1.0, 1.0, 1.0]

    scripted_model = GuidedDenoiser(scripted(script, vocab=3), scale)
    state = State.from_prompts([[0]], new_tokens=1, steps=1, mask_id=3)
    answer = scripted_model(ModelInput.of(state, Needs()), Needs())
    assert answer.logits_RV.tolist() == [guided]
    assert answer.forwards == 2
    assert decode(scripted_model, LLaDA(), state, noise=NO_NOISE).forwards_B.tolist() == [2]


EOS_LOGITS = [[0, 1, 3, 0], [2, 0, 0, 0], [0, 0, 0, 2.5]]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    ("trick", "confidences", "first"),
    [(False, [0.809776, 0.711235, 0.802404], 0), (True, [0, 0.880797, 0], 1)],
)
def test_eos_trick(trick, confidences, first, temperature, scripted, constant):
    """Equal uniforms leave the proposals alone, so temperature must change nothing."""
    scripted_model = scripted(lambda tokens, slot, call: EOS_LOGITS[slot], vocab=4, eos_ids=(2, 3))
    state = State.from_canvases([[4] * 3], steps=3, mask_id=4)
    sampling = SamplingParams(temperature=temperature, sampler="gumbel", confidence_eos_eot_inf=trick)
    noise = constant({"token": [0.5] * 4})
    step = decode(scripted_model, LLaDA(), state, noise=noise, sampling=sampling).steps[0]
    assert step.prediction.token_BN[0].tolist() == [2, 0, 3]
    assert step.prediction.confidence_BN[0].tolist() == pytest.approx(confidences, abs=5e-7)
    assert step.revealed_BL[0].nonzero().flatten().tolist() == [first]


def test_published_eos_trick_at_a_temperature(predict, constant):
    """What the authors' code computes there: the same confidences as if EoT alone were distrusted."""
    sampling = SamplingParams(temperature=1.0, sampler="gumbel", confidence_eos_eot_inf=True)
    seen = predict(EOS_LOGITS, sampling, noise=constant({"token": [0.5] * 4}), eos_ids=(3,))
    assert seen.confidence_BN[0].tolist() == pytest.approx([0.843795, 0.786986, 0], abs=5e-7)


def test_logits_eos_inf_bars_end_of_text_but_not_end_of_turn(predict):
    seen = predict(EOS_LOGITS, SamplingParams(logits_eos_inf=True), eos_ids=(2, 3))
    assert seen.token_BN[0].tolist() == [1, 0, 3]


def test_random_order_follows_the_noise_not_the_confidence(scripted, constant):
    scripted_model = scripted(lambda tokens, slot, call: STATIC[slot], vocab=3)
    state = State.from_canvases([[3] * 6], steps=3, mask_id=3)
    noise = constant({"order": [0.1, 0.9, 0.2, 0.3, 0.8, 0.7]})
    end = decode(scripted_model, LLaDA(remasking="random"), state, noise=noise)
    revealed = [step.revealed_BL[0].nonzero().flatten().tolist() for step in end.steps]
    assert revealed == [[1, 4], [3, 5], [0, 2]]


@pytest.mark.parametrize(("step", "revealed"), [(3, [1, 1, 4]), (5, [6])])
def test_a_run_that_fell_behind_is_completed_on_the_last_step(step, revealed, scripted):
    """Taken up late (a policy before it waited), the schedule alone would leave masks."""
    scripted_model = scripted(lambda tokens, slot, call: STATIC[slot], vocab=3)
    late = replace(State.from_canvases([[3] * 6], steps=6, mask_id=3), step_B=torch.tensor([step]))
    end = decode(scripted_model, LLaDA(), late, noise=NO_NOISE)
    assert [int(s.revealed_BL.sum()) for s in end.steps] == revealed
    assert end.state.step_B.tolist() == [6]


@pytest.mark.parametrize(("block", "steps"), [(4, 3), (3, 3), (0, 6)])
def test_blocks_must_divide_answer_and_steps(block, steps, scripted):
    state = State.from_canvases([[3] * 6], steps=steps, mask_id=3)
    scripted_model = scripted(lambda tokens, slot, call: STATIC[slot], vocab=3)
    with pytest.raises(ConfigError, match="allowed"):
        decode(scripted_model, LLaDA(block), state, noise=NO_NOISE)


def test_unknown_remasking_is_refused():
    with pytest.raises(ConfigError, match="low_confidence or random"):
        LLaDA(remasking="confidence")
