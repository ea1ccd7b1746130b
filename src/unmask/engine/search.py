"""Decoding by a method that owns its loop: start it, count the passes it pays for, and check its result."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from unmask.base.errors import InvalidAction, Unfinished
from unmask.core import (
    ALL,
    Action,
    ModelInput,
    ModelOutput,
    Needs,
    Prediction,
    Search,
    State,
    Trajectory,
    concat,
    map_tensors,
)
from unmask.engine.step import (
    LookAheadCache,
    StepSettings,
    add_optional_counts,
    append_step,
    apply_action,
    forbid_noise,
)
from unmask.engine.transition import raise_faults

T = TypeVar("T")
HOST = torch.device("cpu")


def run_search(
    settings: StepSettings,
    search: Search,
    start: Trajectory,
    *,
    record: bool = True,
    on_step: Callable[[Trajectory], None] | None = None,
) -> Trajectory:
    """Let a search decode, and add the cost of its passes; refuse a result with masks or with changed given tokens."""
    context = CountingContext(settings, start.rows_B, on_step)
    device, fixed_BL = start.rows_B.device, start.state.fixed_BL
    # A search pays for all its passes itself, so a pass that an earlier look-ahead paid for is no use to it.
    end = search.decode(context, to_device(forbid_noise(replace(start, prepaid_B=None), search), HOST))
    steps = (*start.steps, *to_device(end.steps[len(start.steps) :], device)) if record else ()
    end = to_device(replace(end, noise=start.noise, prediction=None, steps=()), device)
    if not torch.equal(end.state.tokens_BL[fixed_BL], start.state.tokens_BL[fixed_BL]):
        raise InvalidAction(f"{search.name} changed a given token; allowed: answer positions only; leave the rest")
    unfinished = end.state.masked_BL.any(-1).nonzero()
    if len(unfinished):
        row = int(unfinished[0])
        raise Unfinished(f"{search.name} left masks in row {row}; allowed: none; fill every answer position")
    return replace(
        end,
        steps=steps,
        forwards_B=start.forwards_B + context.cost.forwards_B,
        processed_B=start.processed_B + context.cost.processed_B,
        planner_forwards_B=add_optional_counts(start.planner_forwards_B, context.cost.planner_forwards_B),
    )


class CountingContext(LookAheadCache):
    """`SearchContext` of one run, which counts the passes. It keeps no outputs: every path keeps its own prediction.

    Paths live on the CPU even if the model runs on a GPU: they are many and small, and launching kernels for them would
    take longer than the work. The canvases of a look-ahead are copied to the model, and its predictions back.
    """

    keep = False

    def __init__(self, settings: StepSettings, rows_B: Tensor, on_step: Callable[[Trajectory], None] | None):
        super().__init__(settings)
        self.start_counting(rows_B)
        self.on_step = on_step

    def predict(
        self,
        states: State,
        owner_U: Tensor,
        needs: Needs | None = None,
        given_UL: Tensor | None = None,
        **options: Any,
    ) -> Prediction:
        """Predict for hypothetical rows (see `LookAhead.predict`)."""
        states, owner_U, given_UL, options = to_device((states, owner_U, given_UL, options), self.rows_B.device)
        prediction = super().predict(states, owner_U, needs, given_UL, **options)
        # The posterior stays on the model's device, because it is as large as the vocabulary.
        return replace(to_device(replace(prediction, posterior=None), HOST), posterior=prediction.posterior)

    def ask_planner(
        self, states: State, owner_U: Tensor, needs: Needs | None = None, *, inputs: ModelInput | None = None
    ) -> ModelOutput:
        """Run the second network on hypothetical rows (see `LookAhead.ask_planner`)."""
        states, owner_U, inputs = to_device((states, owner_U, inputs), self.rows_B.device)
        return to_device(super().ask_planner(states, owner_U, needs, inputs=inputs), HOST)

    @property
    def forwards_B(self) -> Tensor:
        """Forwards that each row has paid for so far."""
        return self.cost.forwards_B.to(HOST)

    def apply_action(self, traj: Trajectory, policy: str, action: Action) -> Trajectory:
        """Apply an action to hypothetical rows, and append the step to their trajectories.

        The step is recorded without a cost, because `cost` counts the passes of the whole search.
        """
        change = apply_action(self.settings, traj, action)
        raise_faults(change.fault_B, traj.state.step_B, traj.rows_B)
        light = replace(traj, prediction=traj.current_prediction.drop_large_parts())
        return append_step(light, policy, action, change, keep=ALL)

    def report_paths(self, paths: Sequence[Trajectory]) -> None:
        """Call `on_step` with the best path of each row, joined to one trajectory."""
        if self.on_step is None or not paths:
            return
        last = concat([path.steps[-1] for path in paths])
        rows = concat([replace(path, steps=(), prediction=None) for path in paths])
        self.on_step(replace(rows, steps=(last,), forwards_B=rows.forwards_B + self.forwards_B[rows.rows_B]))


def to_device(value: T, device: torch.device) -> T:
    """Copy all tensors of a value to a device; tensors that are there already are not copied."""
    return map_tensors(value, lambda tensor: tensor.to(device))
