"""What `decode` does around a method that owns its loop: start it, check its end, and show what it holds meanwhile."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from unmask.base.errors import InvalidAction, Unfinished
from unmask.core import (
    Action,
    ForbiddenNoise,
    ModelInput,
    ModelOutput,
    Needs,
    Noise,
    Prediction,
    Search,
    SearchContext,
    State,
    Trajectory,
    concat,
    map_tensors,
)

T = TypeVar("T")


def searched(search: Search, context: SearchContext, start: Trajectory, record: bool = True) -> Trajectory:
    """The end of a search, checked. What it spent is not in it yet: whoever counts fills that in."""
    shown = start if search.random else replace(start, noise=ForbiddenNoise(start.noise.key_B))
    device = start.rows_B.device
    if not stays(device):
        context, shown = HostContext(context, device), _moved(shown, _HOST)
    end = search.decode(context, shown)
    steps = end.steps[len(start.steps) :] if record else ()
    end = _moved(replace(end, noise=start.noise, prediction=None, steps=steps), device)
    _check_end(search, start.state, end.state)
    return replace(end, steps=(*start.steps, *end.steps))


def stays(device: torch.device) -> bool:
    """Whether a search keeps its paths where the model runs."""
    return device.type == "cpu"


class HostContext:
    """A search's run with its paths on the CPU: they are many and small, and telling a GPU takes longer than the work.

    Canvases go to the model, predictions come back, all of a look together; a posterior stays where it is.
    """

    def __init__(self, context: SearchContext, device: torch.device):
        self.run, self.device = context, device

    @property
    def forwards_B(self) -> Tensor:
        return self.run.forwards_B.to(_HOST)

    def predict(
        self,
        states: State,
        owner_U: Tensor,
        needs: Needs | None = None,
        given_UL: Tensor | None = None,
        *,
        inputs: ModelInput | None = None,
        noise: Noise | None = None,
        temperature: float | None = None,
    ) -> Prediction:
        states, owner_U, given_UL, inputs, noise = _moved((states, owner_U, given_UL, inputs, noise), self.device)
        seen = self.run.predict(states, owner_U, needs, given_UL, inputs=inputs, noise=noise, temperature=temperature)
        return replace(_moved(replace(seen, posterior=None), _HOST), posterior=seen.posterior)

    def ask_planner(
        self, states: State, owner_U: Tensor, needs: Needs | None = None, *, inputs: ModelInput | None = None
    ) -> ModelOutput:
        states, owner_U, inputs = _moved((states, owner_U, inputs), self.device)
        return _moved(self.run.ask_planner(states, owner_U, needs, inputs=inputs), _HOST)

    def apply_action(self, traj: Trajectory, policy: str, action: Action) -> Trajectory:
        return self.run.apply_action(traj, policy, action)

    def report_paths(self, paths: Sequence[Trajectory]) -> None:
        self.run.report_paths(paths)


_HOST = torch.device("cpu")


def _moved(value: T, device: torch.device) -> T:
    return map_tensors(value, lambda tensor: tensor.to(device))


def together(paths: Sequence[Trajectory], forwards_B: Tensor) -> Trajectory:
    """One path of each row as the rows of one trajectory, with the last step of each: what a screen draws."""
    last = concat([path.steps[-1] for path in paths])
    rows = concat([replace(path, steps=(), prediction=None) for path in paths])
    return replace(rows, steps=(last,), forwards_B=rows.forwards_B + forwards_B.to(rows.rows_B.device)[rows.rows_B])


def _check_end(search: Search, start: State, end: State) -> None:
    """What a loop of its own must leave behind."""
    if not torch.equal(end.tokens_BL[start.fixed_BL], start.tokens_BL[start.fixed_BL]):
        raise InvalidAction(f"{search.name} changed a given token; allowed: answer positions only; leave the rest")
    if bool(end.masked_BL.any()):
        row = int(end.masked_BL.any(-1).nonzero()[0])
        raise Unfinished(f"{search.name} left masks in row {row}; allowed: none; fill every answer position")
