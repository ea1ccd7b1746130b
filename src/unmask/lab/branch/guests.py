"""Whole methods as candidates: each acts for one transition, as on a trajectory that it has just met.

What it reads of the past is what the reference recorded; its own notes are empty, and the reference gets its own back
afterwards. Looks ahead and views of its own run at fixed shapes: `rows` canvases a forward, and a longer view at its
own padded length, which follows from the canvas alone.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

import torch

from unmask.core import ALL, NO_LOOK_AHEAD, Action, Policy, Trajectory
from unmask.core.rows import concat
from unmask.decode import Runner
from unmask.lab.branch.bucket import Actor, own_view
from unmask.lab.branch.futures import StepCost
from unmask.lab.branch.states import Stepper, without_noise
from unmask.transition import Transition


class OwnStep(NamedTuple):
    """What somebody does at some states, and what that took, row by row."""

    action: Action
    change: Transition
    costs: tuple[StepCost, ...]

    @property
    def passes(self) -> int:
        """Of all rows."""
        return sum(cost.passes for cost in self.costs)


def own_step(stepper: Stepper, actor: Actor, seen: Trajectory) -> OwnStep:
    """The step of a rule of an axis, or of a method that acts here once."""
    if not actor.guest:
        return OwnStep(*stepper.act(seen, actor.policy), (StepCost(),) * seen.state.batch)
    # So many at a time: looks ahead multiply the rows, and their logits.
    at_B = torch.arange(seen.state.batch, device=seen.rows_B.device)
    parts = [_once(stepper, actor.policy, seen.select(at_U)) for at_U in at_B.split(stepper.forward.rows)]
    return reduce(_joined, parts)


def _joined(one: OwnStep, other: OwnStep) -> OwnStep:
    return OwnStep(concat([one.action, other.action]), concat([one.change, other.change]), one.costs + other.costs)


def _once(stepper: Stepper, policy: Policy, seen: Trajectory) -> OwnStep:
    """One transition of a method on rows that have their plain forward."""
    # A runner of its own: what it looked at is forgotten, for the reference goes on and pays for its own forwards.
    runner = Runner(stepper.forward, stepper.runner.proposal)
    traj, canvas_B = newcomer(seen, policy), seen.state.valid_BL.sum(-1)
    runner.reset_costs(traj)
    if own_view(policy):
        traj = runner.observe(traj, policy.view(without_noise(traj, policy)), policy.needs)
    own_B = runner.forwards_B
    action = policy.act(without_noise(traj, policy), runner if policy.looks_ahead else NO_LOOK_AHEAD)
    change = stepper.change(traj, action)
    spent = (runner.forwards_B - own_B, runner.processed_B - own_B * canvas_B, runner.forwards_B)
    costs = tuple(StepCost(*row) for row in torch.stack(spent, 1).tolist())
    # Names of notes mean other things to other methods: the reference goes on with those it had.
    return OwnStep(replace(action, notes=dict(seen.notes)), change, costs)


def newcomer(traj: Trajectory, policy: Policy) -> Trajectory:
    """As a method sees it that was not there before: as many recorded steps as it reads, and no notes."""
    most = len(traj.steps) if policy.memory == ALL else max(policy.memory, 1)
    past = traj.steps[len(traj.steps) - min(most, len(traj.steps)) :]
    return replace(traj, steps=tuple(replace(step, action=replace(step.action, notes={})) for step in past))


def memory_of_past(policies: Sequence[Policy], least: int) -> int:
    """Steps of the reference's way that are kept at a state: as many as anybody reads."""
    return ALL if any(policy.memory == ALL for policy in policies) else max([least, *(p.memory for p in policies)])
