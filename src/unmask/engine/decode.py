"""Decode canvases from their first mask to the last: the loop over steps, and single steps.

One step runs the network once on all running rows, samples a token for every mask, lets the policy decide which of them
to reveal, and writes those to the canvases (`take_step`). Rows that have finished leave the batch before the next step.

`decode` is the reference: graphed steps on a GPU and branches of a study give the same tokens, costs and steps.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from unmask.base.errors import ConfigError, InvalidAction, SchemaError, require
from unmask.core import (
    RULES,
    Action,
    Denoiser,
    LookAhead,
    Noise,
    Policy,
    SamplingParams,
    Search,
    State,
    Step,
    Trajectory,
    check_tensor_fields,
    concat,
)
from unmask.engine.graphed_decode import decode_graphed
from unmask.engine.search import run_search
from unmask.engine.step import LookAheadCache, StepSettings, forbid_noise, recompute_last_step, take_step
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
    """Decode every row to its end.

    Args:
        start: a state, for which `noise` must be given; or a trajectory to continue, for example from
            `Trajectory.resume`, with its own noise and sampling unless others are given.
        planner: a second network, for methods that need one.
        eos_fill: once a row reveals an end of text, fill the masks behind it with end of text.
        record: whether the result has the steps of the run.
        record_top: least number of most probable tokens at each position that recorded steps keep.
        on_step: called after every transition with the rows that took it; in a search, with each row's best path.
    """
    require(type(record_top) is int and record_top >= 0, "record_top", record_top, "0 or more", "5 is common")
    require(on_step is None or callable(on_step), "on_step", on_step, "a function, or None", "leave it out")
    traj = _prepare_start(denoiser, policy, start, noise)
    sampling = sampling or traj.sampling or SamplingParams()
    traj = replace(traj, sampling=sampling)
    eos_ids = denoiser.vocabulary.eos_ids if eos_fill else ()
    settings = StepSettings(denoiser, sampling, planner, eos_ids, record_top)
    if isinstance(policy, Search):
        return run_search(settings, policy, traj, record=record, on_step=on_step)

    look_ahead = LookAheadCache(settings) if policy.looks_ahead else None
    if look_ahead is None:
        # The pass was paid for in advance by a look-ahead of an earlier policy. This policy has to pay for its own.
        traj = replace(traj, prepaid_B=None)
    ended: list[Trajectory] = []
    steps = list(traj.steps) if record else []
    if traj.steps:
        # Files do not keep the posterior and the attention of a step, which the policy may compare with the next ones.
        traj = recompute_last_step(settings, traj, policy.model_input, policy.needs)
    if getattr(denoiser, "step_graphs", None) is not None and on_step is None and not record_top:
        # On a GPU whole steps are replayed as graphs where they can be; the loop below decodes the rows that are left.
        ended, graphed, traj = decode_graphed(settings, policy, traj, record=record)
        steps += graphed
    # Invalid actions of the last step, as flags. They do not raise at once, because then the host would wait twice.
    fault_B = torch.zeros_like(traj.rows_B)
    while True:
        done_B = policy.done(forbid_noise(traj, policy))
        # The only time in a step that the host waits for the device: to learn of finished rows and of faults together.
        any_fault, any_done = torch.stack((fault_B != 0, done_B)).any(-1).tolist()
        if any_fault:
            # The faulty step has been counted already.
            raise_faults(fault_B, traj.state.step_B - 1, traj.rows_B)
        if any_done:
            ended.append(replace(traj, steps=(), prediction=None, prepaid_B=None).select(done_B.nonzero().flatten()))
            traj = traj.select((~done_B).nonzero().flatten())
        if traj.state.batch == 0:
            return join_rows(ended, steps)
        traj, step, fault_B = take_step(settings, policy, traj, look_ahead)
        if record:
            steps.append(step)
        if on_step is not None:
            on_step(traj)


def join_rows(parts: Sequence[Trajectory], steps: Iterable[Step] | None = None) -> Trajectory:
    """Join rows that ended at different times into one trajectory; without `steps` it gets the steps of all parts."""
    if steps is None:
        steps = (step for part in parts for step in part.steps)
    whole = concat([replace(part, steps=(), prediction=None) for part in parts])
    return replace(whole.select(whole.rows_B.argsort()), steps=tuple(steps))


def decode_one_step(
    denoiser: Denoiser, policy: Policy, start: Trajectory, *, eos_fill: bool = False, record_top: int = 0
) -> Trajectory:
    """Take one step with a policy, and return the trajectory after it.

    The step also keeps the notes of the step before, so that another policy that continues from there can read its own.
    """
    traj = _prepare_start(denoiser, policy, start, None)
    eos_ids = denoiser.vocabulary.eos_ids if eos_fill else ()
    settings = StepSettings(denoiser, traj.sampling or SamplingParams(), eos_ids=eos_ids, record_top=record_top)
    traj = recompute_last_step(settings, traj, policy.model_input, policy.needs)
    after, step, fault_B = take_step(settings, policy, traj, LookAheadCache(settings) if policy.looks_ahead else None)
    raise_faults(fault_B, traj.state.step_B, traj.rows_B)
    action = replace(step.action, notes={**traj.notes, **step.action.notes})
    return replace(after, steps=(*(past.drop_large_parts() for past in traj.steps), replace(step, action=action)))


@dataclass(frozen=True)
class GivenAction(Policy):
    """Policy that takes the same action in every step."""

    name: ClassVar[str] = "given"
    action: Action

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        return self.action

    def check(self, state: State) -> None:
        """Refuse an action that was made for canvases of another shape."""
        sizes = {"B": state.batch, "L": state.tokens_BL.shape[1], "J": len(RULES)}
        try:
            check_tensor_fields(self.action, "action", sizes)
        except SchemaError as error:
            allowed = f"an Action for {sizes['B']} row of {sizes['L']} positions"
            raise InvalidAction(f"{error}; allowed: {allowed}") from error


def _prepare_start(
    denoiser: Denoiser, policy: Policy | Search, start: State | Trajectory, noise: Noise | None
) -> Trajectory:
    """Return the start as a trajectory; refuse one that the denoiser or the policy cannot decode."""
    state = start.state if isinstance(start, Trajectory) else start
    theirs, ours = denoiser.vocabulary.mask_id, state.mask_id
    require(ours == theirs, "mask_id of the state", ours, f"{theirs}, the denoiser's", "build the state with that one")
    if not policy.extra_steps:
        # With more steps than answer positions, some steps would find nothing to reveal.
        for row, (steps, most) in enumerate(torch.stack((state.horizon_B, state.answer_BL.sum(-1)), -1).tolist()):
            allowed = f"1 to {most} (the row's number of answer positions) with {policy.name}"
            require(steps <= most, f"steps of row {row}", steps, allowed, "lower steps or ask for more tokens")
    policy.check(state)
    if isinstance(start, Trajectory):
        return start if noise is None else replace(start, noise=noise)
    if noise is None:
        raise ConfigError("noise is None; allowed: a Noise with one key per row; e.g. Noise.of([row_key(0, prompt)])")
    return Trajectory.start(start, noise)
