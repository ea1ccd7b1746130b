"""The decode loop, and how methods look ahead. The only runtime code that calls a denoiser."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from unmask.core import (
    ALL,
    NO_LOOK_AHEAD,
    Action,
    Denoiser,
    Logits,
    Needs,
    Noise,
    Policy,
    Prediction,
    Proposal,
    Search,
    State,
    Step,
    Trajectory,
    View,
    propose,
)
from unmask.core.rows import concat, select
from unmask.errors import ConfigError, InvalidAction, Unfinished, require
from unmask.transition import Transition, apply, fill_after_eos, raise_faults


def decode(
    denoiser: Denoiser,
    policy: Policy | Search,
    start: State | Trajectory,
    *,
    noise: Noise | None = None,
    proposal: Proposal | None = None,
    eos_fill: bool = False,
    record: bool = True,
    on_step: Callable[[Trajectory], None] | None = None,
) -> Trajectory:
    """Decode every row to its end. A trajectory from `resume` is taken up where it stood.

    A state needs `noise`; a trajectory brings its own unless other noise is given.

    `eos_fill` closes a row's tail with end-of-text tokens once one is revealed. `record=False` returns no steps.
    `on_step` sees the rows still running after every transition.
    """
    traj = _begin(denoiser, start, noise)
    runner = Runner(denoiser, proposal or Proposal())
    if isinstance(policy, Search):
        own = "it owns its loop: leave the option out"
        require(not eos_fill and on_step is None, "eos_fill or on_step", "set", f"neither with {policy.name}", own)
        return _search(policy, runner, traj)
    policy.check(traj.state)
    eos_ids = denoiser.vocabulary.eos_ids if eos_fill else ()
    finished = _Finished(traj, record)
    traj = runner.recall(traj, policy)
    for _ in range(limit := _step_limit(traj.state)):
        traj = finished.retire(traj, policy.done(traj))
        if traj.state.batch == 0:
            return finished.whole()
        traj = runner.observe(traj, policy.view(traj), policy.needs)
        action = policy.act(traj, runner if policy.looks_ahead else NO_LOOK_AHEAD)
        change = apply(traj.state, traj.seen, action)
        if eos_ids:
            change = fill_after_eos(change, eos_ids)
        step = runner.step(traj, policy.name, action, change)
        finished.record(step, change.fault_B)
        traj = _advance(traj, step, change.state, policy.memory)
        if on_step is not None:
            on_step(traj)
    raise Unfinished(
        f"{policy.name} had not finished row {int(traj.rows_B[0])} after {limit} steps; allowed: a policy that "
        "reveals positions; look at its kappa and at what it re-masks"
    )


class Runner:
    """Runs the denoiser for the loop and, as look-ahead, on hypothetical canvases; counts what rows spend.

    Looks are remembered by canvas until the next real forward, so a look-ahead that comes true is not run again.
    """

    def __init__(self, denoiser: Denoiser, proposal: Proposal):
        self.denoiser, self.proposal = denoiser, proposal
        self._memo: dict[bytes, tuple[Logits, int]] = {}

    def begin(self, traj: Trajectory) -> None:
        """Start counting for a step (or a whole search) of these rows."""
        self.rows_B = traj.rows_B
        self.forwards_B = torch.zeros_like(traj.rows_B)
        self.processed_B = torch.zeros_like(traj.rows_B)

    def observe(self, traj: Trajectory, view: View, needs: Needs) -> Trajectory:
        """The step's own forward: the trajectory with its prediction."""
        self.begin(traj)
        logits = self._run(replace(view, row_B=traj.rows_B), needs)
        return replace(traj, prediction=self._propose(logits, view, needs, traj, self.proposal))

    def look(
        self, states: State, owner_R: Tensor, needs: Needs | None = None, given_RL: Tensor | None = None
    ) -> Prediction:
        """Greedy predictions for hypothetical rows; `owner_R` says which running row pays for each."""
        needs = needs or Needs()
        view = replace(View.of(states, needs), given_BN=given_RL)
        logits = self._forward(view, needs, owner_R)
        for row, key in enumerate(_keys(view, needs, self.rows_B[owner_R])):
            self._memo[key] = (logits, row)
        alone = Trajectory.start(states, Noise(torch.zeros_like(states.step_B)))
        return self._propose(logits, view, needs, alone, self.proposal.greedy)

    def recall(self, traj: Trajectory, policy: Policy) -> Trajectory:
        """Give a resumed trajectory back the posterior a recording does not keep, if the policy reads it.

        This repeats a forward that the recorded past has already been charged for.
        """
        needs = policy.needs
        if not traj.steps or not (needs.divergence or needs.posterior or needs.attention):
            return traj
        last = traj.steps[-1]
        before = replace(traj, state=last.state, steps=traj.steps[:-1])
        again = self.observe(before, policy.view(before), needs).seen
        whole = replace(last.prediction, posterior=again.posterior, attention_BNN=again.attention_BNN)
        return replace(traj, steps=(*traj.steps[:-1], replace(last, prediction=whole)))

    def step(self, traj: Trajectory, name: str, action: Action, change: Transition) -> Step:
        """The record of one transition, with what it cost."""
        return record_of(traj, name, action, change, self.forwards_B, self.processed_B)

    def _propose(self, logits: Logits, view: View, needs: Needs, traj: Trajectory, proposal: Proposal) -> Prediction:
        return propose(
            logits,
            view,
            proposal,
            needs,
            self.denoiser.vocabulary,
            noise=traj.noise,
            step_B=traj.state.step_B,
            previous=traj.posterior,
        )

    def _run(self, view: View, needs: Needs) -> Logits:
        """Logits of every row, from memory where the canvas was looked at."""
        every_B = torch.arange(view.tokens_BN.shape[0], device=view.tokens_BN.device)
        if not self._memo or view.attend_BNN is not None:
            self._memo = {}
            return self._forward(view, needs, every_B)
        keys = _keys(view, needs, self.rows_B)
        missing = [row for row, key in enumerate(keys) if key not in self._memo]
        if missing:
            rows_R = torch.tensor(missing, device=every_B.device)
            fresh = self._forward(select(view, rows_R), needs, rows_R)
            self._memo.update({keys[row]: (fresh, at) for at, row in enumerate(missing)})
        found = [self._memo[key] for key in keys]
        self._memo = {}
        return _gather(found)

    def _forward(self, view: View, needs: Needs, owner_R: Tensor) -> Logits:
        logits = self.denoiser(view, needs)
        self.forwards_B = self.forwards_B.index_add(0, owner_R, torch.full_like(owner_R, logits.forwards))
        read_R = view.valid_BN.sum(-1) if logits.processed_B is None else logits.processed_B
        self.processed_B = self.processed_B.index_add(0, owner_R, logits.forwards * read_R)
        return logits


def record_of(
    traj: Trajectory, name: str, action: Action, change: Transition, forwards_B: Tensor, processed_B: Tensor
) -> Step:
    """One transition, as policies and recordings read it."""
    return Step(
        rows_B=traj.rows_B,
        policy=name,
        state=traj.state,
        prediction=replace(traj.seen, hidden_BNH=None),
        action=action,
        revealed_BL=change.revealed_BL,
        remasked_BL=change.remasked_BL,
        confidence_BL=change.confidence_BL,
        forwards_B=forwards_B,
        processed_B=processed_B,
    )


class _Finished:
    """Rows that have left the loop, and the record of all."""

    def __init__(self, start: Trajectory, keep: bool):
        self.keep = keep
        self.steps = list(start.steps) if keep else []
        self.parts: list[Trajectory] = []
        self.fault_B, self.faulty_at_B, self.rows_B = torch.zeros_like(start.rows_B), start.state.step_B, start.rows_B

    def record(self, step: Step, fault_B: Tensor) -> None:
        """Keep the step; its fault flags are looked at when the loop next asks who is done."""
        self.fault_B, self.faulty_at_B, self.rows_B = fault_B, step.state.step_B, step.rows_B
        if self.keep:
            self.steps.append(replace(step, prediction=step.prediction.light))

    def retire(self, traj: Trajectory, done_B: Tensor) -> Trajectory:
        """Take finished rows out of the batch. The step's one host read serves the fault flags too."""
        faulty, some = torch.stack((self.fault_B != 0, done_B)).any(-1).tolist()
        if faulty:
            raise_faults(self.fault_B, self.faulty_at_B, self.rows_B)
        if not some:
            return traj
        gone = traj.select(done_B.nonzero().flatten())
        self.parts.append(replace(gone, steps=(), prediction=None))
        return traj.select((~done_B).nonzero().flatten())

    def whole(self) -> Trajectory:
        """Every row's last state, in the order they came, and all steps."""
        everyone = concat(self.parts)
        return replace(everyone.select(everyone.rows_B.argsort()), steps=tuple(self.steps))


def _advance(traj: Trajectory, step: Step, state: State, memory: int) -> Trajectory:
    """The next state; of the past, only what the policy reads, and heavy parts only of the last step."""
    past = [replace(s, prediction=s.prediction.light) for s in traj.steps[-1:]]
    steps = (*traj.steps[:-1], *past, step)
    return replace(
        traj,
        state=state,
        prediction=None,
        steps=steps if memory == ALL else steps[-max(memory, 1) :],
        forwards_B=traj.forwards_B + step.forwards_B,
        processed_B=traj.processed_B + step.processed_B,
    )


def _search(policy: Search, runner: Runner, start: Trajectory) -> Trajectory:
    runner.begin(start)
    end = policy.decode(runner, start)
    fixed_BL = start.state.fixed_BL
    if not torch.equal(end.state.tokens_BL[fixed_BL], start.state.tokens_BL[fixed_BL]):
        raise InvalidAction(f"{policy.name} changed a given token; allowed: answer positions only; leave the rest")
    if bool(end.state.masked_BL.any()):
        row = int(end.state.masked_BL.any(-1).nonzero()[0])
        raise Unfinished(f"{policy.name} left masks in row {row}; allowed: none; fill every answer position")
    return replace(
        end,
        forwards_B=start.forwards_B + runner.forwards_B,
        processed_B=start.processed_B + runner.processed_B,
    )


def _begin(denoiser: Denoiser, start: State | Trajectory, noise: Noise | None) -> Trajectory:
    state = start.state if isinstance(start, Trajectory) else start
    theirs, ours = denoiser.vocabulary.mask_id, state.mask_id
    require(ours == theirs, "mask_id of the state", ours, f"{theirs}, the denoiser's", "build the state with that one")
    if isinstance(start, Trajectory):
        return start if noise is None else replace(start, noise=noise)
    if noise is None:
        raise ConfigError("noise is None; allowed: a Noise with one key per row; e.g. Noise.of([row_key(0, prompt)])")
    return Trajectory.start(start, noise)


def _step_limit(state: State) -> int:
    """More steps than any method here takes; reaching it means no progress."""
    return int(4 * (state.horizon_B.max() + state.tokens_BL.shape[1]))


def _keys(view: View, needs: Needs, rows_B: Tensor) -> list[bytes]:
    """What a row's logits depend on, as bytes; with the row itself, or its cost would depend on its neighbours."""
    extras = bytes((needs.attention, needs.hidden))
    flags = (view.valid_BN.long(), view.wanted_BN.long(), view.fixed_BN.long())
    own_BN = rows_B[:, None].expand_as(view.tokens_BN)
    table = torch.stack((own_BN, view.tokens_BN, view.position_BN, *flags), 1).cpu().numpy()
    return [extras + row.tobytes() for row in table]


def _gather(found: list[tuple[Logits, int]]) -> Logits:
    """One packed answer out of rows of several."""
    rows = [logits.slot_BN[row][logits.wanted_BN[row]] for logits, row in found]
    parts = [logits.logits_RV[r] for (logits, _), r in zip(found, rows, strict=True)]
    attention = [logits.attention_BNN[row] for logits, row in found if logits.attention_BNN is not None]
    hidden = [lg.hidden_RH[r] for (lg, _), r in zip(found, rows, strict=True) if lg.hidden_RH is not None]
    return Logits(
        torch.cat(parts),
        # A cache may have answered for fewer slots than the view wants.
        torch.stack([logits.wanted_BN[row] for logits, row in found]),
        attention_BNN=torch.stack(attention) if attention else None,
        hidden_RH=torch.cat(hidden) if hidden else None,
    )
