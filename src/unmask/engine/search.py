"""What `decode` does around a method that owns its loop: start it, count what it spends, and check its end."""

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
from unmask.engine.step import LookCache, StepSettings, add_counts, append_step, apply_action_to_state, hide_noise
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
    """Let a search decode, count what it spends, and refuse an end with masks or with changed given tokens."""
    context = CountingContext(settings, start.rows_B, on_step)
    # A search pays for every pass itself: what an earlier look-ahead has paid for is not its own.
    shown = hide_noise(replace(start, prepaid_B=None), search)
    end = search.decode(context, tensors_to_device(shown, HOST) if context.on_host else shown)
    steps = (*start.steps, *tensors_to_device(end.steps[len(start.steps) :], start.rows_B.device)) if record else ()
    end = tensors_to_device(replace(end, noise=start.noise, prediction=None, steps=()), start.rows_B.device)
    fixed_BL, open_B = start.state.fixed_BL, end.state.masked_BL.any(-1)
    if not torch.equal(end.state.tokens_BL[fixed_BL], start.state.tokens_BL[fixed_BL]):
        raise InvalidAction(f"{search.name} changed a given token; allowed: answer positions only; leave the rest")
    if bool(open_B.any()):
        row = int(open_B.nonzero()[0])
        raise Unfinished(f"{search.name} left masks in row {row}; allowed: none; fill every answer position")
    return replace(
        end,
        steps=steps,
        forwards_B=start.forwards_B + context.cost.forwards_B,
        processed_B=start.processed_B + context.cost.processed_B,
        planner_forwards_B=add_counts(start.planner_forwards_B, context.cost.planner_forwards_B),
    )


class CountingContext(LookCache):
    """The `SearchContext` of one run. It keeps no passes: a path of a search keeps its own prediction.

    Where the model runs on a GPU the paths stay on the CPU, because they are many and small and launches would take
    longer than the work. The canvases of a look-ahead go to the model together, and their predictions come back.
    """

    keep = False

    def __init__(self, settings: StepSettings, rows_B: Tensor, on_step: Callable[[Trajectory], None] | None):
        super().__init__(settings)
        self.begin(rows_B)
        self.on_step = on_step
        self.on_host = on_other_device(rows_B.device)

    def predict(
        self,
        states: State,
        owner_U: Tensor,
        needs: Needs | None = None,
        given_UL: Tensor | None = None,
        **options: Any,
    ) -> Prediction:
        """Predict for hypothetical rows, as `LookAhead.predict` says."""
        if not self.on_host:
            return super().predict(states, owner_U, needs, given_UL, **options)
        states, owner_U, given_UL, options = tensors_to_device((states, owner_U, given_UL, options), self.rows_B.device)
        prediction = super().predict(states, owner_U, needs, given_UL, **options)
        # The posterior is large and stays where it is.
        return replace(tensors_to_device(replace(prediction, posterior=None), HOST), posterior=prediction.posterior)

    def ask_planner(
        self, states: State, owner_U: Tensor, needs: Needs | None = None, *, inputs: ModelInput | None = None
    ) -> ModelOutput:
        """Run the second network on hypothetical rows."""
        if not self.on_host:
            return super().ask_planner(states, owner_U, needs, inputs=inputs)
        states, owner_U, inputs = tensors_to_device((states, owner_U, inputs), self.rows_B.device)
        return tensors_to_device(super().ask_planner(states, owner_U, needs, inputs=inputs), HOST)

    @property
    def forwards_B(self) -> Tensor:
        """Forwards that every row has paid for so far."""
        return self.cost.forwards_B.to(HOST) if self.on_host else self.cost.forwards_B

    def apply_action(self, traj: Trajectory, policy: str, action: Action) -> Trajectory:
        """Apply an action to hypothetical rows, and append the step to their trajectories.

        The step has no cost of its own: `cost` counts the passes of the whole search.
        """
        change = apply_action_to_state(self.settings, traj, action)
        raise_faults(change.fault_B, traj.state.step_B, traj.rows_B)
        light = replace(traj, prediction=traj.current_prediction.light)
        return append_step(light, policy, action, change, keep=ALL)

    def report_paths(self, paths: Sequence[Trajectory]) -> None:
        """Show whoever watches the run the best path of each row, as the rows of one trajectory."""
        if self.on_step is None or not paths:
            return
        last = concat([path.steps[-1] for path in paths])
        rows = concat([replace(path, steps=(), prediction=None) for path in paths])
        self.on_step(replace(rows, steps=(last,), forwards_B=rows.forwards_B + self.forwards_B[rows.rows_B]))


def on_other_device(device: torch.device) -> bool:
    """Whether the model runs elsewhere than on the CPU, where a search keeps its paths."""
    return device.type != HOST.type


def tensors_to_device(value: T, device: torch.device) -> T:
    """Copy all tensors of a value to a device."""
    return map_tensors(value, lambda tensor: tensor.to(device))
