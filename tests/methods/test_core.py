"""CoRe against the authors' loop (`tests/golden/core.json`) and against numbers computed by hand."""

import json
from dataclasses import replace
from math import log

import pytest
import torch

from tests.helpers import paths
from tests.helpers.cases import each_case
from unmask.base.errors import ConfigError
from unmask.core import Noise, SamplingParams, State, Trajectory
from unmask.engine import LookCache, StepSettings, decode, predict
from unmask.methods import CoRe, LLaDA
from unmask.methods.examples import load_cases
from unmask.models import GuidedDenoiser

GOLDEN = json.loads((paths.GOLDEN / "core.json").read_text())
CASES = [*GOLDEN["cases"], *GOLDEN["control_cases"]]
SKIPPED = {
    "core-22": "more steps than masks: State refuses that (see the next test)",
    "core-c00": "margin_remask is the authors' control, not part of the method",
    "core-c01": "margin_remask is the authors' control, not part of the method",
    "core-c02": "random_remask is the authors' control, not part of the method",
}
NO_NOISE = Noise.of([0])


def positions(mask_BL):
    return mask_BL[0].nonzero().flatten().tolist()


def policy(case):
    return CoRe(
        block_length=case["block_length"],
        base=case["base_masking"],
        revise_every=case["revise_every"],
        candidates=case["candidate_m"],
        rewrites=case["remask_k"],
        tail=case["tail_protect"],
        joint_reeval=case["joint_reeval"],
    )


def proposal(case):
    """These authors' confidence_eos_eot_inf is no trick on confidences: it bars both tokens in every forward."""
    return SamplingParams(
        temperature=case["temperature"],
        sampler="gumbel",
        logits_eos_inf=case["logits_eos_inf"],
        eos_penalty=float("inf") if case["confidence_eos_eot_inf"] else 0.0,
    )


@each_case("case", [c for c in CASES if c["id"] not in SKIPPED], ids=lambda c: c["id"])
def test_same_tokens_as_the_authors(case, replay):
    ours = replay(case, policy(case), proposal(case))
    assert ours.canvases == case["canvases"]
    assert ours.final == case["final"]
    assert ours.forwards == case["forward_rows"]
    assert not ours.unused()
    per_call = case["forward_rows"] // case["forward_calls"]
    for step, theirs in zip(ours.traj.steps, case["steps_detail"], strict=True):
        assert positions(step.remasked_BL) == theirs["revised"]
        assert int(step.forwards_B) == per_call * theirs["forwards"]


@pytest.mark.parametrize("case", [c for c in CASES if c["id"] == "core-22"], ids=lambda c: c["id"])
def test_more_steps_than_masks_is_refused(case, replay):
    with pytest.raises(ConfigError, match=r"steps of row 0 is 12; allowed: 1 to 8"):
        replay(case, policy(case))


class Spy(LookCache):
    """A door that remembers what was looked at."""

    def predict(self, states, owner_U, needs=None, given_UL=None):
        seen = super().predict(states, owner_U, needs, given_UL)
        self.looks = [*getattr(self, "looks", []), (states, seen)]
        return seen


@each_case("case", [c for c in CASES if c["id"] not in SKIPPED], ids=lambda c: c["id"])
def test_probes_the_same_positions(case, toy, replay):
    """The jointly masked set of every probing step, at the authors' own canvas."""
    ours = replay(case, policy(case), proposal(case))
    network = toy(case["toy_seed"])
    denoiser = GuidedDenoiser(network, case["cfg_scale"]) if case["cfg_scale"] else network
    spy = Spy(StepSettings(denoiser, proposal(case)))
    for number, theirs in enumerate(case["steps_detail"]):
        spy.looks = []
        traj = ours.traj.resume(0, number)
        traj, _ = predict(spy.settings, traj, policy(case).model_input(traj), policy(case).needs)
        spy.begin(traj.rows_B)
        policy(case).act(traj, spy)
        if theirs["candidates"] is None:
            assert not spy.looks
        else:
            probed = spy.looks[0][0]
            assert positions(probed.masked_BL & ~traj.state.masked_BL) == theirs["candidates"]


A, B, C, M = 0, 1, 2, 3
_SAID, _PROBED = load_cases("core")[0].script["canvases"]
BEFORE = [M if token is None else token for token in _SAID["canvas"]]
NOW = _SAID["table"]
PROBE = {slot: p for slot, p in enumerate(_PROBED["table"]) if p is not None}
HIDDEN = [A, M, M, M, M, M]


def logs(probabilities):
    return [log(p) for p in probabilities]


def example(steps, step):
    """The canvas of the worked example in the middle of a run."""
    start = State.from_canvases([[M] * 6], steps=steps, mask_id=M)
    return replace(start, tokens_BL=torch.tensor([BEFORE]), step_B=torch.tensor([step]))


def script(tokens, slot, call):
    """The two forwards of the example; anything later is flat."""
    if tokens == BEFORE:
        return logs(NOW[slot])
    return logs(PROBE.get(slot, (1 / 3, 1 / 3, 1 / 3))) if tokens == HIDDEN else [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("rewrites", "quota", "steps", "step", "rewritten", "after"),
    [
        (1, 1, 6, 2, [2], [A, B, A, B, A, M]),
        (2, 2, 3, 1, [2, 4], [A, B, A, B, B, A]),
    ],
)
def test_one_step_by_hand(rewrites, quota, steps, step, rewritten, after, scripted):
    policy = CoRe(candidates=3, rewrites=rewrites, tail=0, revise_every=1)
    denoiser = scripted(script, vocab=3)
    end = decode(denoiser, policy, example(steps, step), noise=NO_NOISE)
    first = end.steps[0]
    assert positions(first.remasked_BL) == rewritten
    assert list(end.canvases())[1].tolist() == after
    assert int(first.forwards_B) == 2
    assert denoiser.calls[1].tokens_BN[0].tolist() == HIDDEN
    assert int(first.revealed_BL.sum()) == quota + len(rewritten)


@pytest.mark.parametrize(
    ("joint", "after", "forwards"), [(False, [A, B, A, B, A, M], 2), (True, [A, B, A, M, A, C], 3)]
)
def test_joint_reevaluation_renews_scores_and_tokens(joint, after, forwards, scripted):
    """Once 2 is rewritten, position 5 leads with another token than before; only the third forward can know."""

    def renewed(tokens, slot, call):
        if tokens == [A, B, A, M, A, M]:
            return logs({3: (0.20, 0.70, 0.10), 5: (0.05, 0.05, 0.90)}.get(slot, (0.5, 0.3, 0.2)))
        return script(tokens, slot, call)

    policy = CoRe(candidates=3, tail=0, revise_every=1, joint_reeval=joint)
    end = decode(scripted(renewed, vocab=3), policy, example(6, 2), noise=NO_NOISE)
    assert list(end.canvases())[1].tolist() == after
    assert int(end.steps[0].forwards_B) == forwards


def test_margins_and_instability_by_hand(scripted):
    """Margins of the visible tokens, then instability, replacement and its probability under the probe."""
    policy = CoRe(candidates=3, tail=0, revise_every=1)
    spy = Spy(StepSettings(scripted(script, vocab=3), SamplingParams()))
    traj = Trajectory.start(example(6, 2), NO_NOISE)
    traj, _ = predict(spy.settings, traj, policy.model_input(traj), policy.needs)
    spy.begin(traj.rows_B)
    margin = traj.current_prediction.clean.margin_BN[0]
    assert margin[[0, 1, 2, 4]].tolist() == pytest.approx([0.84, 0.15, 0.20, 0.30])
    policy.act(traj, spy)
    (probed, seen), *more = spy.looks
    assert not more
    assert positions(probed.masked_BL & ~traj.state.masked_BL) == [1, 2, 4]
    instability = -(seen.given_BN[0, [1, 2, 4]] + 1e-10).log()
    assert instability.tolist() == pytest.approx([0.5108, 2.5257, 1.6094], abs=5e-5)
    assert seen.token_BN[0, [1, 2, 4]].tolist() == [B, A, B]
    assert seen.confidence_BN[0, [1, 2, 4]].tolist() == pytest.approx([0.60, 0.72, 0.55])


@pytest.mark.parametrize(("replacement", "rewritten"), [(0.719, [2]), (0.721, [])])
def test_a_replacement_must_be_probable(replacement, rewritten, scripted):
    policy = CoRe(candidates=3, tail=0, revise_every=1, replacement=replacement)
    first = decode(scripted(script, vocab=3), policy, example(6, 2), noise=NO_NOISE).steps[0]
    assert positions(first.remasked_BL) == rewritten
    assert int(first.forwards_B) == 2, "the probe is spent either way"


@pytest.mark.parametrize(("tail", "probed"), [(0, {1, 2, 4}), (1, {1, 2, 4}), (2, {0, 1, 2}), (6, None)])
def test_the_tail_is_protected(tail, probed, scripted):
    denoiser = scripted(script, vocab=3)
    policy = CoRe(candidates=3, tail=tail, revise_every=1)
    first = decode(denoiser, policy, example(6, 2), noise=NO_NOISE).steps[0]
    assert int(first.forwards_B) == (1 if probed is None else 2)
    if probed is not None:
        hidden = {i for i, t in enumerate(denoiser.calls[1].tokens_BN[0].tolist()) if t == M}
        assert hidden - {3, 5} == probed


def test_committed_tokens_are_not_probed(scripted):
    """Another policy may have committed position 2, which the probe would otherwise rewrite."""
    state = example(6, 2)
    committed_BL = state.committed_BL.clone()
    committed_BL[0, 2] = True
    denoiser = scripted(script, vocab=3)
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
def test_when_probes_happen(steps, every, window, probes, toy):
    """i mod E = 0 inside [int(start S), int(end S)); nothing is revealed yet at step 0, so nothing to probe."""
    policy = CoRe(revise_every=every, window=window, tail=0, candidates=4)
    state = State.from_prompts([[1, 2]], new_tokens=16, steps=steps, mask_id=11)
    end = decode(toy(3), policy, state, noise=NO_NOISE)
    assert [i for i, step in enumerate(end.steps) if int(step.forwards_B) > 1] == probes


def test_published_setting_spends_eight_probes(scripted):
    """S = 128, E = 8: probes at 32, 40, ..., 88, 136 forwards in all."""
    state = State.from_canvases([[3] * 128], steps=128, mask_id=3)
    end = decode(scripted(lambda tokens, slot, call: [1.0, 0.0, 0.0], vocab=3), CoRe(), state, noise=NO_NOISE)
    assert [i for i, step in enumerate(end.steps) if int(step.forwards_B) > 1] == list(range(32, 89, 8))
    assert end.forwards_B.tolist() == [136]


def test_without_probes_it_is_llada(toy):
    state = State.from_prompts([[1, 2, 3]], new_tokens=16, steps=8, mask_id=11)
    plain = decode(toy(5), LLaDA(8), state, noise=NO_NOISE)
    ours = decode(toy(5), CoRe(8, revise_every=0), state, noise=NO_NOISE)
    assert torch.equal(ours.state.tokens_BL, plain.state.tokens_BL)


def test_nothing_is_committed(toy):
    state = State.from_prompts([[1, 2, 3]], new_tokens=16, steps=8, mask_id=11)
    end = decode(toy(5), CoRe(tail=0, revise_every=2), state, noise=NO_NOISE)
    assert torch.equal(end.state.committed_BL, end.state.fixed_BL)
