"""A branch's own first step, as it is stored, against the action taken by hand from the stored state."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from tests.helpers.branch_frames import branches_of, states_of
from unmask.adapt import needs_of
from unmask.adapt.diagnostics import DIAGNOSTICS
from unmask.api.request import Request
from unmask.axes import ReMDM
from unmask.core import Noise, Policy, SamplingParams, row_key
from unmask.engine import decode
from unmask.lab.branching import BatchSettings, BranchPlan, branch, random_stream
from unmask.methods import Composed, candidates, fixed_action, reference_of, with_remasking
from unmask.models import ExactDenoiser, JointDistribution

N, V, PROMPT = 9, 3, 2
MODEL = ExactDenoiser(JointDistribution.random(N, V, dependence=2.5, seed=4))
OPERATOR = ReMDM("rescale", eta=0.9)
REVISES = with_remasking(fixed_action(commitment="none"), ReMDM("cap", eta=0.5))
DIAGNOSED = {name: DIAGNOSTICS[name] for name in ("score", "region", "cardinality", "commitment")}


def start(a, b, length):
    blanks = length - PROMPT
    given = (True,) * PROMPT + (False,) * blanks
    return Request(f"{a}{b}", (a, b) + (MODEL.mask_id,) * blanks, given, 5, (PROMPT, length))


# One canvas is shorter than the others' bucket: positions are those of a canvas without padding.
STARTS = [start(0, 1, N), start(2, 1, N - 2)]


def plan(reference, sets, temperature=0.0, diagnostics=None):
    return BranchPlan(
        reference,
        sets,
        OPERATOR,
        rollouts=2,
        states=2,
        seed=0,
        temperature=temperature,
        diagnostics=diagnostics or {},
    )


DREAM = candidates("dream")
REVISING = {
    "score": {
        "ref": REVISES,
        "margin": Composed(REVISES, score="margin"),
        "uniform": Composed(REVISES, score="uniform"),
    },
    "region": {"ref": REVISES, "block:2": Composed(REVISES, region="block:2")},
    "cardinality": {"ref": REVISES, "count:1": Composed(REVISES, cardinality="count:1")},
}
REGIMES = {
    "greedy": plan(fixed_action(), candidates(), diagnostics=DIAGNOSED),
    "drawn tokens": plan(fixed_action(), candidates(), 0.8, DIAGNOSED),
    "dream": plan(reference_of(DREAM), DREAM),
    "a reference that revises": plan(REVISES, REVISING),
}


@dataclass(frozen=True)
class OneStep(Policy):
    """Another policy's action, once."""

    name: ClassVar[str] = "one step"
    at: int
    inner: Policy

    @property
    def needs(self):
        return needs_of([self.inner])

    @property
    def past_steps(self):
        return max(1, self.inner.past_steps)

    @property
    def random(self):
        return self.inner.random

    def done(self, traj):
        return traj.state.step_B > self.at

    def act(self, traj, look_ahead):
        return self.inner.act(traj, look_ahead)


def by_hand(chosen, request, stored, policy, rollout):
    """The states before and after one step from a stored state, and the step."""
    step = int(stored.state.step_B)
    noise = Noise.of([row_key(chosen.seed, request.key, random_stream(step, rollout))])
    sampling = SamplingParams(temperature=chosen.temperature)
    end = decode(MODEL, OneStep(step, policy), stored, noise=noise, sampling=sampling)
    return stored.state, end.state, end.steps[-1]


@pytest.mark.parametrize("regime", REGIMES)
def test_first_steps_are_what_the_action_does_at_the_stored_state(regime):
    chosen = REGIMES[regime]
    block, naive = (branch(MODEL, chosen, STARTS, BatchSettings(rows=16, merge=merge)) for merge in (True, False))
    assert branches_of(block) == branches_of(naive)
    states, requests = states_of(block), {one.id: one for one in STARTS}
    policies = {(one.axis, one.candidate, one.diagnostic): one.policy for one in chosen.alternatives}
    remasked = committed = 0
    for first in branches_of(block)[::3]:
        request, stored = requests[first.prompt], states[first.prompt, first.state]
        policy = policies[first.axis, first.candidate, first.diagnostic]
        before, after, step = by_hand(chosen, request, stored, policy, first.rollout)
        n = len(request.canvas)
        assert first.revealed == tuple(step.revealed_BL[0].nonzero().flatten().tolist())
        assert first.remasked == tuple(step.remasked_BL[0].nonzero().flatten().tolist())
        canvas = before.tokens_BL[0, :n].tolist()
        for position in first.remasked:
            canvas[position] = MODEL.mask_id
        for position, token in zip(first.revealed, first.revealed_tokens, strict=True):
            assert canvas[position] == MODEL.mask_id
            canvas[position] = token
        assert canvas == after.tokens_BL[0, :n].tolist()
        now_final = before.committed_BL[0, :n].tolist()
        for position in first.newly_committed:
            assert not now_final[position]
            now_final[position] = True
        assert now_final == after.committed_BL[0, :n].tolist()
        remasked, committed = remasked + len(first.remasked), committed + len(first.newly_committed)
    revises = regime == "a reference that revises"
    assert (bool(remasked), bool(committed)) == (revises, not revises)
