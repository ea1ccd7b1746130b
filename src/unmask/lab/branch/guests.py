"""Whole methods at a state: the candidates of the policy axis, each for one transition, and what the reference does.

What a candidate reads of the past is what the reference recorded, as on a trajectory that it has just met; its own
notes are empty, and the reference gets its own back afterwards. Looks ahead and views of its own run at fixed shapes:
`rows` canvases a forward, and a longer view at its own padded length, which follows from the canvas alone.
"""

from collections.abc import Sequence
from dataclasses import replace

from unmask.core import ALL, Policy, Trajectory
from unmask.lab.branch.bucket import Actor
from unmask.lab.branch.stepper import OwnStep, StepCost, Stepper, acts_whole
from unmask.methods import has_own_input


def own_step(stepper: Stepper, actor: Actor, seen: Trajectory) -> OwnStep:
    """The step of a rule of an axis, of the reference, or of a method that acts here once; rows have their forward."""
    policy = actor.policy
    if actor.guest:
        step = stepper.whole_step(newcomer(seen, policy), policy)
        # Names of notes mean other things to other methods: the reference goes on with those it had.
        return step._replace(prediction=seen.current_prediction, action=replace(step.action, notes=dict(seen.notes)))
    if acts_whole(policy):
        step = stepper.whole_step(seen, policy)
        return step if has_own_input(policy) else step._replace(prediction=seen.current_prediction)
    return OwnStep(seen.current_prediction, *stepper.act(seen, policy), (StepCost(),) * seen.state.batch)


def newcomer(traj: Trajectory, policy: Policy) -> Trajectory:
    """As a method sees it that was not there before: as many recorded steps as it reads, and no notes."""
    most = len(traj.steps) if policy.past_steps == ALL else max(policy.past_steps, 1)
    past = traj.steps[len(traj.steps) - min(most, len(traj.steps)) :]
    return replace(traj, steps=tuple(replace(step, action=replace(step.action, notes={})) for step in past))


def memory_of_past(policies: Sequence[Policy], least: int) -> int:
    """Steps of the reference's way that are kept at a state: as many as anybody reads."""
    return (
        ALL if any(policy.past_steps == ALL for policy in policies) else max([least, *(p.past_steps for p in policies)])
    )
