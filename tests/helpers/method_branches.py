"""Whole methods branched on a model whose answers are known: plans, and a branch decoded by hand."""

from dataclasses import replace

from unmask.api.request import Request
from unmask.axes import POLICY, ReMDM
from unmask.core import Noise, SamplingParams, Trajectory, row_key
from unmask.engine import decode, decode_one_step
from unmask.lab.branching import BranchPlan, random_stream
from unmask.models import ExactDenoiser, JointDistribution

N, V, PROMPT = 8, 3, 2
MODEL = ExactDenoiser(JointDistribution.random(N, V, dependence=2.0, seed=0))
MASK = MODEL.mask_id
SEED = 1


def start(a, b, steps, length=N):
    blanks = length - PROMPT
    given = (True,) * PROMPT + (False,) * blanks
    return Request(f"{a}{b}", (a, b) + (MASK,) * blanks, given, steps, (PROMPT, length))


STARTS = [start(0, 1, 5), start(2, 1, 4, N - 2)]


def plan(reference, temperature=0.0, rollouts=2, states=2, *, guests, sets=None):
    chosen = {**(sets or {}), POLICY: {"reference": reference, **guests}}
    return BranchPlan(reference, chosen, ReMDM("conf"), rollouts, states, seed=SEED, temperature=temperature)


def noise_of(branch) -> Noise:
    """The random numbers of a branch."""
    request = next(one for one in STARTS if one.id == branch.prompt)
    return Noise.of([row_key(SEED, request.key, random_stream(branch.step, branch.rollout))])


def by_hand(reference, guest, state: Trajectory, noise, temperature):
    """One step of the method on the stored state without notes, then the reference with those that it had.

    Written with what `decode` offers; returns the step and the end.
    """
    sampling = SamplingParams(temperature=temperature)
    begin = replace(state, noise=noise, sampling=sampling)
    bare = tuple(replace(step, action=replace(step.action, notes={})) for step in begin.steps)
    after = decode_one_step(MODEL, guest, replace(begin, steps=bare))
    own = after.steps[-1]
    kept = replace(own, action=replace(own.action, notes=dict(begin.notes)))
    going_on = replace(after, steps=(*after.steps[:-1], kept), prepaid_B=None)
    return own, decode(MODEL, reference, going_on)
