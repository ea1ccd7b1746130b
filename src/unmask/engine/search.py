"""What `decode` does around a method that owns its loop: start it, count what it spends, and check its end."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from unmask.base.errors import InvalidAction, Unfinished
from unmask.core import (
    ALL,
    Action,
    Search,
    Trajectory,
    concat,
)
from unmask.engine.step import (
    HOST,
    LookCache,
    StepSettings,
    add_counts,
    append_step,
    change_state,
    hide_noise,
    move_tensors,
)
from unmask.engine.transition import raise_faults


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
    shown = hide_noise(replace(start, prepaid_B=None), search)
    end = search.decode(context, move_tensors(shown, HOST) if context.on_host else shown)
    steps = (*start.steps, *move_tensors(end.steps[len(start.steps) :], start.rows_B.device)) if record else ()
    end = move_tensors(replace(end, noise=start.noise, prediction=None, steps=()), start.rows_B.device)
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

    Beside a GPU paths live on the CPU, because they are many and small, and telling a GPU takes longer than the work.
    Canvases go to the model and predictions come back, all of a look-ahead together; a posterior stays where it is.
    """

    keep = False

    def __init__(self, settings: StepSettings, rows_B: Tensor, on_step: Callable[[Trajectory], None] | None):
        super().__init__(settings)
        self.begin(rows_B)
        self.on_step = on_step
        self.on_host = on_other_device(rows_B.device)

    @property
    def forwards_B(self) -> Tensor:
        """Forwards that every row has paid for so far."""
        return self.cost.forwards_B.to(HOST) if self.on_host else self.cost.forwards_B

    def apply_action(self, traj: Trajectory, policy: str, action: Action) -> Trajectory:
        """Take one recorded transition of hypothetical rows. Its cost is counted for the whole search."""
        change = change_state(self.settings, traj, action)
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
