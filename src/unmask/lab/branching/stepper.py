"""Steps at one fixed shape of forward: of the reference, of candidates, and of whole methods that act once.

At one shape the bits of a row depend neither on its company nor on the order of work, and so neither do tables.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from unmask.base.errors import require
from unmask.core import (
    ALL,
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
    decide,
    hide_noise,
    predict,
    raise_faults,
    recompute_last_step,
)
from unmask.methods import has_own_input
from unmask.models import pad_input

SLOTS = 32
"""Inputs are padded to a multiple of this, as networks pad anyway."""


class OwnCost(NamedTuple):
    """Cost of a step beside the forward that all branches of a state share."""

    forwards: int = 0
    """Look-aheads, as `decode` counts them: passes beyond the step's own."""
    tokens: int = 0
    """Slots read beyond one pass over the canvas, by look-aheads and by slots of the method's own."""
    passes: int = 0
    """Row-forwards that were run for it alone: look-aheads, and the pass over an input of its own."""


class CandidateStep(NamedTuple):
    """An action at some states, its transition, and its cost for each row."""

    prediction: Prediction
    """Prediction that the step is recorded with."""
    action: Action
    change: Transition
    costs: tuple[OwnCost, ...]

    @property
    def passes(self) -> tuple[int, ...]:
        return tuple(cost.passes for cost in self.costs)


def needs_own_forward(policy: Policy) -> bool:
    """Tell whether a step of the policy takes more than one forward of the plain canvas."""
    return policy.looks_ahead or has_own_input(policy)


def check_plain_step(policy: Policy, traj: Trajectory) -> None:
    """Refuse a policy whose step takes more than one forward of the plain canvas."""
    todo = "it cannot be branched here: study whole methods alone (axes = ['policy']), or use `unmask compare`"
    allowed = "policies that do not look ahead, around the four axes"
    require(not policy.looks_ahead, f"looks_ahead of {policy.name}", True, allowed, todo)
    inputs = policy.model_input(traj)
    plain = inputs.tokens_BN is traj.state.tokens_BL and inputs.attend_BNN is None
    require(plain, f"the view of {policy.name}", "special", "the canvas itself, around the four axes", todo)


class FixedShapeDenoiser(DenoiserWrapper):
    """A denoiser whose forwards have one shape: `rows` canvases, filled up with dummies.

    A batch of any size takes as many forwards as it needs. Inputs with slots of their own have one shape more.
    """

    def __init__(self, denoiser: Denoiser, rows: int):
        require(rows >= 1, "rows", rows, "1 or more", "the batch needs a row")
        self.denoiser, self.rows = denoiser, rows
        self.calls = 0
        """Forward passes so far, however many of their rows were dummies."""

    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        """Run all rows, `rows` at a time."""
        slots = inputs.tokens_BN.shape[1]
        inputs = pad_input(replace(inputs, row_B=None), -(-slots // SLOTS) * SLOTS)
        at_B = torch.arange(len(inputs.tokens_BN), device=inputs.tokens_BN.device)
        parts = [inputs] if len(at_B) <= self.rows else [select(inputs, at_U) for at_U in at_B.split(self.rows)]
        outputs = [self._forward(part, needs) for part in parts]
        output = outputs[0] if len(outputs) == 1 else concat(outputs)
        if output.wanted_BN.shape[1] == slots:
            return output
        # Nothing is wanted of the padding, so the packed rows of logits stay as they are.
        read_BNN = None if output.attention_BNN is None else output.attention_BNN[:, :slots, :slots]
        return replace(output, wanted_BN=output.wanted_BN[:, :slots], attention_BNN=read_BNN)

    def _forward(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        live = len(inputs.tokens_BN)
        at_B = torch.arange(self.rows, device=inputs.tokens_BN.device)
        real_B1 = (at_B < live)[:, None]
        whole = inputs if live == self.rows else select(inputs, torch.where(at_B < live, at_B, 0))
        # Nothing is wanted of the dummies, so the packed logits are those of the real rows.
        output = self.denoiser(replace(whole, wanted_BN=whole.wanted_BN & real_B1), needs)
        self.calls += output.forwards
        return replace(
            output,
            wanted_BN=output.wanted_BN[:live],
            attention_BNN=None if output.attention_BNN is None else output.attention_BNN[:live],
        )


class Stepper:
    """Takes the decoder's steps at one shape of forward, for batches of any size."""

    def __init__(self, denoiser: Denoiser, sampling: SamplingParams, rows: int, live: int = 1):
        self.forward = FixedShapeDenoiser(denoiser, rows)
        self.settings = StepSettings(self.forward, sampling)
        self.live = max(rows, live)
        """Most rows that take a step together."""

    @property
    def device(self) -> torch.device:
        return self.forward.device

    def step(self, traj: Trajectory, policy: Policy, needs: Needs | None = None) -> CandidateStep:
        """Take one step of the policy that continues a run, and count its passes.

        `needs` are those of everybody who reads the prediction. Faults are left to the caller, who reads them with
        other flags of the step: every read waits for the device.
        """
        if needs_own_forward(policy):
            return self.own_step(traj, policy, needs)
        seen, _ = predict(self.settings, traj, policy.model_input(hide_noise(traj, policy)), needs or policy.needs)
        action, change = decide(self.settings, policy, seen)
        return CandidateStep(seen.current_prediction, action, change, (OwnCost(passes=1),) * traj.state.batch)

    def own_step(self, traj: Trajectory, policy: Policy, needs: Needs | None = None) -> CandidateStep:
        """Take one step of a policy that may look ahead or have its own input; a prediction that is there is used."""
        if not policy.looks_ahead:
            return self._own_step(traj, policy, needs)
        # Look-aheads multiply the rows, and their logits with them: so many at a time bounds memory.
        at_B = torch.arange(traj.state.batch, device=traj.rows_B.device)
        parts = [self._own_step(traj.select(at_U), policy, needs) for at_U in at_B.split(self.forward.rows)]
        if len(parts) == 1:
            return parts[0]
        predictions, actions, changes, costs = zip(*parts, strict=True)
        return CandidateStep(concat(predictions), concat(actions), concat(changes), sum(costs, ()))

    def _own_step(self, traj: Trajectory, policy: Policy, needs: Needs | None) -> CandidateStep:
        # A cache that ends with this step: every step of a branch pays for its own forwards, whoever ran before.
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
        costs = tuple(OwnCost(*row) for row in torch.stack(spent, 1).tolist())
        return CandidateStep(traj.current_prediction, action, change, costs)

    def try_policy(self, policy: Policy, seen: Trajectory, *, one_step: bool = False) -> CandidateStep:
        """Take the step of a candidate, or of a whole method if `one_step`, at rows with a prediction."""
        if one_step:
            step = self.own_step(cut_past(seen, policy), policy)
            # Notes of the same name mean other things to other methods: the reference gets its own back.
            action = replace(step.action, notes=dict(seen.notes))
            return step._replace(prediction=seen.current_prediction, action=action)
        if needs_own_forward(policy):
            step = self.own_step(seen, policy)
            return step if has_own_input(policy) else step._replace(prediction=seen.current_prediction)
        action, change = decide(self.settings, policy, seen)
        raise_faults(change.fault_B, seen.state.step_B, seen.rows_B)
        return CandidateStep(seen.current_prediction, action, change, (OwnCost(),) * seen.state.batch)

    def add_prediction(self, traj: Trajectory, output: ModelOutput, inputs: ModelInput, needs: Needs) -> Trajectory:
        """Add the prediction of a forward to a trajectory, drawn with the trajectory's own random numbers."""
        return add_prediction(self.settings, traj, inputs, output, needs)

    def recompute_last_step(self, traj: Trajectory, needs: Needs) -> Trajectory:
        """Recompute posterior and attention of the last step, which are not stored, if some policy reads them.

        Costs each row a forward that was already paid for once.
        """
        if not (needs.divergence or needs.posterior):
            return traj
        needs = replace(needs, hidden=False)
        return recompute_last_step(self.settings, traj, lambda before: ModelInput.of(before.state, needs), needs)


def cut_past(traj: Trajectory, policy: Policy) -> Trajectory:
    """Cut a trajectory to the steps that a method reads, without the notes of other methods."""
    most = len(traj.steps) if policy.past_steps == ALL else max(policy.past_steps, 1)
    past = traj.steps[len(traj.steps) - min(most, len(traj.steps)) :]
    return replace(traj, steps=tuple(replace(step, action=replace(step.action, notes={})) for step in past))


def after_step(traj: Trajectory, name: str, step: CandidateStep, keep: int) -> Trajectory:
    """Return the trajectory after a step, with `keep` steps of its past (`ALL` for every one) and no costs."""
    if keep == 0:
        return replace(traj, state=step.change.state, prediction=None, steps=())
    return append_step(replace(traj, prediction=step.prediction), name, step.action, step.change, keep=keep)


def most_past_steps(policies: Sequence[Policy], least: int) -> int:
    """Return how many past steps to keep, so that each of these policies has what it reads."""
    if any(policy.past_steps == ALL for policy in policies):
        return ALL
    return max([least, *(policy.past_steps for policy in policies)])
