"""One forward shape for all, and steps of policies at it: plain ones, and those with looks ahead and own views."""

from dataclasses import replace
from typing import NamedTuple

import torch

from unmask.base.errors import require
from unmask.core import (
    Action,
    Denoiser,
    DenoiserWrapper,
    ModelInput,
    ModelOutput,
    Needs,
    Policy,
    Prediction,
    SamplingParams,
    Trajectory,
    concat,
    select,
)
from unmask.engine import (
    LookCache,
    StepSettings,
    Transition,
    add_prediction,
    append_step,
    apply,
    decide,
    hide_noise,
    predict,
    raise_faults,
    recompute_last_step,
)
from unmask.methods import has_own_input
from unmask.models import pad_input

SLOTS = 32
"""Views are padded to a multiple of this, as networks pad anyway."""


class StepCost(NamedTuple):
    """What a step took; of a branch's own step, beside the forward that all branches of its state share."""

    forwards: int = 0
    """Looks ahead, as `decode` counts them: passes beyond the step's own."""
    tokens: int = 0
    """Slots that were read beyond one pass over the canvas: by looks ahead, and by slots of its own."""
    passes: int = 0
    """Row-forwards that were run for it alone: looks ahead, and its own view's."""


class OwnStep(NamedTuple):
    """What somebody does at some states, and what that took, row by row."""

    prediction: Prediction
    """What is recorded as seen."""
    action: Action
    change: Transition
    costs: tuple[StepCost, ...]

    @property
    def passes(self) -> tuple[int, ...]:
        """Row by row."""
        return tuple(cost.passes for cost in self.costs)


def acts_whole(policy: Policy) -> bool:
    """Whether a step of it takes more than one forward of the plain canvas."""
    return policy.looks_ahead or has_own_input(policy)


def check_plain(policy: Policy, traj: Trajectory) -> None:
    """Refuse a policy that takes more than one forward of the plain canvas."""
    todo = "it cannot be branched here: study whole methods alone (axes = ['policy']), or use `unmask compare`"
    allowed = "policies that do not look ahead, around the four axes"
    require(not policy.looks_ahead, f"looks_ahead of {policy.name}", True, allowed, todo)
    inputs = policy.model_input(traj)
    plain = inputs.tokens_BN is traj.state.tokens_BL and inputs.attend_BNN is None
    require(plain, f"the view of {policy.name}", "special", "the canvas itself, around the four axes", todo)


class FixedRows(DenoiserWrapper):
    """A denoiser at one forward shape: `rows` canvases of one length, the last ones filled up with dummies.

    At one shape a row's bits do not depend on its neighbours, so neither do tables on the order of work. A batch of any
    size goes through as many forwards as it takes. Views with slots of their own have one shape more.
    """

    def __init__(self, denoiser: Denoiser, rows: int):
        require(rows >= 1, "rows", rows, "1 or more", "the batch needs a row")
        self.denoiser, self.rows = denoiser, rows
        self.calls = 0
        """Forward passes, whatever they held."""

    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        """Logits of all rows, `rows` at a time."""
        slots = inputs.tokens_BN.shape[1]
        inputs = pad_input(replace(inputs, row_B=None), -(-slots // SLOTS) * SLOTS)
        at_B = torch.arange(len(inputs.tokens_BN), device=inputs.tokens_BN.device)
        parts = [inputs] if len(at_B) <= self.rows else [select(inputs, at_U) for at_U in at_B.split(self.rows)]
        logits = [self._forward(part, needs) for part in parts]
        return _without_padding(logits[0] if len(logits) == 1 else concat(logits), slots)

    def _forward(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        """Up to `rows` rows at the full shape."""
        live = len(inputs.tokens_BN)
        at_B = torch.arange(self.rows, device=inputs.tokens_BN.device)
        real_B1 = (at_B < live)[:, None]
        whole = inputs if live == self.rows else select(inputs, torch.where(at_B < live, at_B, 0))
        # Nothing is asked of the dummies, so the packed answer is that of the real rows.
        output = self.denoiser(replace(whole, wanted_BN=whole.wanted_BN & real_B1), needs)
        self.calls += output.forwards
        return replace(
            output,
            wanted_BN=output.wanted_BN[:live],
            attention_BNN=None if output.attention_BNN is None else output.attention_BNN[:live],
        )


def _without_padding(output: ModelOutput, slots: int) -> ModelOutput:
    """Nothing is wanted of the padding, so the packed rows stay."""
    if output.wanted_BN.shape[1] == slots:
        return output
    read_BNN = None if output.attention_BNN is None else output.attention_BNN[:, :slots, :slots]
    return replace(output, wanted_BN=output.wanted_BN[:, :slots], attention_BNN=read_BNN)


class Stepper:
    """The decoder's own stepping at one forward shape; batches of any size take a step at once."""

    def __init__(self, denoiser: Denoiser, sampling: SamplingParams, rows: int, live: int = 1):
        self.forward = FixedRows(denoiser, rows)
        self.settings = StepSettings(self.forward, sampling)
        self.live = max(rows, live)
        """Rows that take a step together, at most."""

    @property
    def denoiser(self) -> Denoiser:
        return self.forward.denoiser

    @property
    def calls(self) -> int:
        """Forward passes, whatever they held."""
        return self.forward.calls

    def add_prediction(self, traj: Trajectory, output: ModelOutput, inputs: ModelInput, needs: Needs) -> Trajectory:
        """The trajectory with what the logits say under its noise."""
        return add_prediction(self.settings, traj, inputs, output, needs)

    def step(self, traj: Trajectory, policy: Policy, needs: Needs | None = None) -> OwnStep:
        """A step of a policy that goes on by itself, all its passes counted; `needs` if somebody else reads them, too.

        The reference's own run and its steps after a branch are made of these. Its faults are for the caller to look
        at, together with what else he reads of the step: each look waits for the device.
        """
        if acts_whole(policy):
            return self.whole_step(traj, policy, needs)
        seen, _ = predict(self.settings, traj, policy.model_input(hide_noise(traj, policy)), needs or policy.needs)
        action, change = decide(self.settings, policy, seen)
        return OwnStep(seen.current_prediction, action, change, (StepCost(passes=1),) * traj.state.batch)

    def whole_step(self, traj: Trajectory, policy: Policy, needs: Needs | None = None) -> OwnStep:
        """A step with looks ahead and a view of its own; a plain forward that the rows have already serves it."""
        if not policy.looks_ahead:
            return self._whole_step(traj, policy, needs)
        # So many at a time: looks ahead multiply the rows, and their logits.
        at_B = torch.arange(traj.state.batch, device=traj.rows_B.device)
        parts = [self._whole_step(traj.select(at_U), policy, needs) for at_U in at_B.split(self.forward.rows)]
        return parts[0] if len(parts) == 1 else _joined(parts)

    def _whole_step(self, traj: Trajectory, policy: Policy, needs: Needs | None) -> OwnStep:
        # A cache of its own: what it looked at is forgotten, and every step pays for its own forwards.
        looks, canvas_B = LookCache(self.settings), traj.state.valid_BL.sum(-1)
        looks.begin(traj.rows_B)
        own = looks.cost
        if traj.prediction is None or has_own_input(policy):
            inputs = policy.model_input(hide_noise(traj, policy))
            traj, own = predict(self.settings, traj, inputs, needs or policy.needs)
        action, change = decide(self.settings, policy, traj, looks if policy.looks_ahead else None)
        raise_faults(change.fault_B, traj.state.step_B, traj.rows_B)
        cost = own + looks.cost
        spent = (looks.cost.forwards_B, cost.processed_B - own.forwards_B * canvas_B, cost.forwards_B)
        costs = tuple(StepCost(*row) for row in torch.stack(spent, 1).tolist())
        return OwnStep(traj.current_prediction, action, change, costs)

    def recompute_last_step(self, traj: Trajectory, needs: Needs) -> Trajectory:
        """Give the last step back what is not stored, if anybody reads it: its posterior and its attention.

        Costs a forward that was already paid for.
        """
        if not (needs.divergence or needs.posterior):
            return traj
        needs = replace(needs, hidden=False)
        return recompute_last_step(self.settings, traj, lambda before: ModelInput.of(before.state, needs), needs)

    def act(self, traj: Trajectory, policy: Policy) -> tuple[Action, Transition]:
        """What a policy that does not look ahead does on a prediction."""
        action, change = decide(self.settings, policy, traj)
        raise_faults(change.fault_B, traj.state.step_B, traj.rows_B)
        return action, change

    def change(self, traj: Trajectory, action: Action) -> Transition:
        """What an action does."""
        change = apply(traj.state, traj.current_prediction, action)
        raise_faults(change.fault_B, traj.state.step_B, traj.rows_B)
        return change


def moved_on(traj: Trajectory, name: str, step: OwnStep, keep: int) -> Trajectory:
    """The next state, with `keep` steps of the past (`ALL` for every one); nobody counts what it cost."""
    if keep == 0:
        return replace(traj, state=step.change.state, prediction=None, steps=())
    return append_step(replace(traj, prediction=step.prediction), name, step.action, step.change, keep=keep)


def _joined(parts: list[OwnStep]) -> OwnStep:
    predictions, actions, changes, costs = zip(*parts, strict=True)
    return OwnStep(concat(list(predictions)), concat(list(actions)), concat(list(changes)), sum(costs, ()))
