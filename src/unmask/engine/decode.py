"""The decode loop: rows from their start to their end."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from unmask.base.errors import ConfigError, InvalidAction, SchemaError, require
from unmask.base.options import fits
from unmask.core import (
    ALL,
    NO_LOOK_AHEAD,
    RULES,
    Action,
    Denoiser,
    LookAhead,
    Noise,
    Policy,
    SamplingParams,
    Search,
    State,
    Trajectory,
    check_value,
)
from unmask.engine.graphed_decode import run_recorded
from unmask.engine.search import searched
from unmask.engine.step import Finished, Runner, added, append_step, light_step, step_limit, unfinished
from unmask.engine.transition import raise_faults


def decode(
    denoiser: Denoiser,
    policy: Policy | Search,
    start: State | Trajectory,
    *,
    noise: Noise | None = None,
    sampling: SamplingParams | None = None,
    planner: Denoiser | None = None,
    eos_fill: bool = False,
    record: bool = True,
    record_top: int = 0,
    on_step: Callable[[Trajectory], None] | None = None,
) -> Trajectory:
    """Decode every row to its end. A trajectory from `resume` is taken up where it stood.

    A state needs `noise`; a trajectory brings its own noise and proposal unless others are given.

    `planner` is a second network, for methods that ask one. `eos_fill` closes a row's tail with end-of-text tokens once
    one is revealed. `record=False` returns no steps. Those of a policy keep the `record_top` most probable tokens of
    each position where it reads fewer.
    `on_step` sees, after every transition, the rows that took it; of a search, the best path of each row so far.
    """
    require(fits(record_top, int) and record_top >= 0, "record_top", record_top, "0 or more", "5 is common")
    require(on_step is None or callable(on_step), "on_step", on_step, "a function, or None", "leave it out")
    traj = _checked_start(denoiser, policy, start, noise)
    sampling = sampling or traj.sampling or SamplingParams()
    traj = replace(traj, sampling=sampling)
    runner = Runner(denoiser, sampling, planner, denoiser.vocabulary.eos_ids if eos_fill else (), record_top)
    if isinstance(policy, Search):
        runner.remembers, runner.on_show = False, on_step
        return _search(policy, runner, traj, record)
    look_ahead = runner if policy.looks_ahead else NO_LOOK_AHEAD
    traj = traj if policy.looks_ahead else replace(traj, prepaid_B=None)
    finished = Finished(traj, record)
    traj = runner.recompute_last_step(traj, policy.model_input, policy.needs)
    limit = step_limit(traj.state)
    if on_step is None and not record_top:
        # As far as whole steps can be recorded and replayed: to the end, or not at all.
        traj = run_recorded(runner, policy, traj, finished)
    for _ in range(limit):
        traj = finished.retire(traj, policy.done(traj))
        if traj.state.batch == 0:
            return finished.whole()
        traj = runner.observe(traj, policy.model_input(traj), policy.needs)
        action = policy.act(traj, look_ahead)
        change = runner.change(traj, action)
        step = runner.step(traj, policy.name, action, change)
        finished.record(runner.recorded(step), change.fault_B)
        # One step is always kept: notes and the previous posterior come from there.
        traj = append_step(traj, step, change.state, policy.past_steps or 1)
        if on_step is not None:
            on_step(traj)
    raise unfinished(policy, traj, limit)


def decode_one_step(
    denoiser: Denoiser, policy: Policy, start: Trajectory, *, eos_fill: bool = False, record_top: int = 0
) -> Trajectory:
    """The trajectory after one step of a policy: another may go on from there, with the notes of the one before."""
    traj = _checked_start(denoiser, policy, start, None)
    eos_ids = denoiser.vocabulary.eos_ids if eos_fill else ()
    runner = Runner(denoiser, traj.sampling or SamplingParams(), eos_ids=eos_ids, record_top=record_top)
    traj = runner.recompute_last_step(traj, policy.model_input, policy.needs)
    traj = runner.observe(traj, policy.model_input(traj), policy.needs)
    action = policy.act(traj, runner if policy.looks_ahead else NO_LOOK_AHEAD)
    action = replace(action, notes={**traj.notes, **action.notes})
    change = runner.change(traj, action)
    raise_faults(change.fault_B, traj.state.step_B, traj.rows_B)
    step = runner.recorded(runner.step(traj, policy.name, action, change))
    return append_step(traj, light_step(step), change.state, ALL)


@dataclass(frozen=True)
class GivenAction(Policy):
    """The policy that takes one action, whatever it sees."""

    name: ClassVar[str] = "given"
    action: Action

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        return self.action

    def check(self, state: State) -> None:
        """Refuse an action for other canvases."""
        sizes = {"B": state.batch, "L": state.tokens_BL.shape[1], "J": len(RULES)}
        try:
            check_value(self.action, "action", sizes)
        except SchemaError as error:
            raise InvalidAction(
                f"{error}; allowed: an Action for {sizes['B']} row of {sizes['L']} positions"
            ) from error


def _search(search: Search, runner: Runner, start: Trajectory, record: bool) -> Trajectory:
    runner.reset_costs(start)
    end = searched(search, runner, replace(start, prepaid_B=None), record)
    return replace(
        end,
        steps=end.steps if record else (),
        forwards_B=start.forwards_B + runner.forwards_B,
        processed_B=start.processed_B + runner.processed_B,
        planner_forwards_B=added(start.planner_forwards_B, runner.planner_forwards_B),
    )


def _checked_start(
    denoiser: Denoiser, policy: Policy | Search, start: State | Trajectory, noise: Noise | None
) -> Trajectory:
    state = start.state if isinstance(start, Trajectory) else start
    theirs, ours = denoiser.vocabulary.mask_id, state.mask_id
    require(ours == theirs, "mask_id of the state", ours, f"{theirs}, the denoiser's", "build the state with that one")
    _check_clock(policy, state)
    policy.check(state)
    if isinstance(start, Trajectory):
        return start if noise is None else replace(start, noise=noise)
    if noise is None:
        raise ConfigError("noise is None; allowed: a Noise with one key per row; e.g. Noise.of([row_key(0, prompt)])")
    return Trajectory.start(start, noise)


def _check_clock(policy: Policy | Search, state: State) -> None:
    """More steps than answer positions are for policies that say so; for others some steps would find nothing."""
    if policy.extra_steps:
        return
    for row, (steps, most) in enumerate(torch.stack((state.horizon_B, state.answer_BL.sum(-1)), -1).tolist()):
        allowed = f"1 to {most} (the row's number of answer positions) with {policy.name}"
        require(steps <= most, f"steps of row {row}", steps, allowed, "lower steps or ask for more tokens")
