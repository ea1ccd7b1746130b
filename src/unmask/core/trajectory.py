"""The trajectory of a run: its state, its steps and their cost. Policies read it, and `decode` returns it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unmask.base.display import Displayable
from unmask.base.errors import ConfigError, SchemaError, require
from unmask.core import trajectory_file
from unmask.core.batch import BatchValue, concat, leaves, pad_canvas
from unmask.core.noise import Noise
from unmask.core.prediction import Posterior, Prediction, Statistics
from unmask.core.sampling import SamplingParams
from unmask.core.state import RULES, Action, State


@dataclass(frozen=True, repr=False)
class Step(BatchValue):
    """One step of the rows that were still running."""

    rows_B: Tensor
    """Numbers of these rows in the run."""
    policy: str
    """Name of the policy that acted."""
    state: State
    """The state before the transition."""
    prediction: Prediction
    action: Action
    revealed_BL: Tensor
    remasked_BL: Tensor
    confidence_BL: Tensor
    """Clean probability of each newly revealed token, NaN if it was not the sampled one; 0 at other positions."""
    forwards_B: Tensor
    """Denoiser passes that the row paid for in this step, with look-aheads."""
    processed_B: Tensor
    """Number of tokens that those passes read."""
    planner_forwards_B: Tensor | None = None
    """Passes of the second network; None in a run without one."""
    prepaid_B: Tensor | None = None
    """Rows whose pass was already a look-ahead of the step before, which paid for it; None if none was remembered."""

    def drop_large_parts(self) -> "Step":
        """Return the step without the parts of its prediction that are too large to keep for every step."""
        small = self.prediction.drop_large_parts()
        return self if small is self.prediction else replace(self, prediction=small)


@dataclass(frozen=True, repr=False)
class Trajectory(BatchValue, Displayable):
    """The state of B rows, with the steps that led to it.

    During a run it holds the rows that are still running. The result of `decode` holds the last state of all rows, and
    every step names its rows: `row(b)` is the history of one row, `resume(b, t)` a start from its step t.
    """

    state: State
    noise: Noise
    rows_B: Tensor
    forwards_B: Tensor
    processed_B: Tensor
    prediction: Prediction | None = None
    steps: tuple[Step, ...] = ()
    planner_forwards_B: Tensor | None = None
    """Passes of the second network so far; None in a run without one."""
    remasks_B: Tensor | None = None
    """Number of positions that were masked again so far. Not stored; None after loading a file without steps."""
    prepaid_B: Tensor | None = None
    """Rows of a resumed run whose next pass is paid for, because an earlier look-ahead was at this canvas."""
    sampling: SamplingParams | None = None
    """How tokens were sampled. `decode` continues with it, unless it is given other params."""
    config: Mapping[str, Any] | None = None
    """Resolved configuration of the `generate`, `infill` or `branch` call as JSON values: model, policy, options, rows.
    None for a run of `decode` alone."""

    @classmethod
    def start(cls, state: State, noise: Noise) -> "Trajectory":
        """Create the trajectory of a run before its first step."""
        zero_B = torch.zeros_like(state.step_B)
        rows_B = torch.arange(state.batch, device=zero_B.device)
        return cls(state, noise, rows_B, zero_B, zero_B, remasks_B=zero_B)

    # --- for policies

    @property
    def current_prediction(self) -> Prediction:
        """The prediction at the current state. Raises before the step's forward pass."""
        if self.prediction is None:
            raise ConfigError(
                "no prediction yet; allowed: after a forward pass; call it from act, not from model_input"
            )
        return self.prediction

    # The current prediction on the canvas alone; a prediction may have more slots behind the canvas.

    @property
    def confidence_BL(self) -> Tensor:
        """Probability of the sampled token, before temperature and filters, at each canvas position."""
        return self.current_prediction.confidence_BN[:, : self.state.tokens_BL.shape[1]]

    @property
    def proposed_BL(self) -> Tensor:
        """Probability of the sampled token under the distribution that it was drawn from."""
        return self.current_prediction.proposed_BN[:, : self.state.tokens_BL.shape[1]]

    @property
    def token_BL(self) -> Tensor:
        """Sampled token of each canvas position."""
        return self.current_prediction.token_BN[:, : self.state.tokens_BL.shape[1]]

    @property
    def top_p_BL(self) -> Tensor:
        """Largest probability, before temperature and filters, at each canvas position."""
        return self.current_prediction.clean.p_BNK[:, : self.state.tokens_BL.shape[1], 0]

    @property
    def top_token_BL(self) -> Tensor:
        """Most probable token at each canvas position."""
        return self.current_prediction.clean.top_BNK[:, : self.state.tokens_BL.shape[1], 0]

    @property
    def entropy_BL(self) -> Tensor:
        """Entropy in nats of the model's distribution, before temperature and filters, at each canvas position."""
        return self.current_prediction.clean.entropy_BN[:, : self.state.tokens_BL.shape[1]]

    @property
    def last(self) -> Step | None:
        """The latest step, if any is kept."""
        return self.steps[-1] if self.steps else None

    @property
    def notes(self) -> Mapping[str, Tensor]:
        """Notes of the last action."""
        return self.steps[-1].action.notes if self.steps else {}

    @property
    def previous_posterior(self) -> Posterior | None:
        """Posterior of the previous step, if it is kept."""
        return self.steps[-1].prediction.posterior if self.steps else None

    def uniform(self, purpose: str) -> Tensor:
        """Return one random number in (0, 1) per canvas position, a function of row, step, position and purpose."""
        position_L = torch.arange(self.state.tokens_BL.shape[1], device=self.state.tokens_BL.device)
        return self.noise.uniform(self.state.step_B, position_L.expand_as(self.state.tokens_BL), purpose)

    # --- finished runs

    def row(self, row: int) -> "Trajectory":
        """Return the trajectory of one row of a finished run."""
        known = type(row) is int and 0 <= row < self.state.batch
        require(known, "row", row, f"0 to {self.state.batch - 1}", "pick a row of this run")
        steps = []
        for step in self.steps:
            place_U = (step.rows_B == row).nonzero().flatten()
            if len(place_U):
                steps.append(replace(step.select(place_U), rows_B=torch.zeros_like(place_U)))
        row_U = torch.tensor([row], device=self.rows_B.device)
        end = replace(self, steps=(), prediction=None, config=None).select(row_U)
        config = self.config
        if config is not None and isinstance(config.get("rows"), list) and len(config["rows"]) == self.state.batch:
            config = {**config, "rows": [config["rows"][row]]}
        return replace(end, rows_B=torch.zeros_like(row_U), steps=tuple(steps), config=config)

    def resume(self, row: int, step: int) -> "Trajectory":
        """Return the trajectory of one row before one of its steps, from which `decode` can continue."""
        own = self.row(row)
        if not own.steps:
            raise ConfigError(f"row {row} has no steps; allowed: a recorded run; decode it again with record=True")
        known = type(step) is int and 0 <= step < len(own.steps)
        require(known, "step", step, f"0 to {len(own.steps) - 1}", f"pick a step of row {row}")
        past, zero_B = own.steps[:step], torch.zeros_like(own.forwards_B)
        planner_counts = [s.planner_forwards_B for s in past if s.planner_forwards_B is not None]
        return replace(
            own,
            state=own.steps[step].state,
            steps=past,
            prepaid_B=own.steps[step].prepaid_B,
            forwards_B=sum((s.forwards_B for s in past), zero_B),
            processed_B=sum((s.processed_B for s in past), zero_B),
            planner_forwards_B=None if own.planner_forwards_B is None else sum(planner_counts, zero_B),
            remasks_B=sum((s.remasked_BL.sum(-1) for s in past), zero_B),
        )

    def canvases(self) -> Iterator[Tensor]:
        """Yield the canvas of the first row before each step and after the last one."""
        for step in self.steps:
            yield step.state.tokens_BL[0]
        yield self.state.tokens_BL[0]

    # --- files

    def save(self, path: str | Path) -> None:
        """Write the trajectory to an `.npz` file, whole or not at all."""
        trajectory_file.write_file(path, self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the bytes that `save` writes; equal values give equal bytes."""
        return trajectory_file.to_bytes(self._storable(), _KINDS)

    def rows_to_bytes(self, rows: Sequence[int]) -> list[bytes]:
        """Return the `to_bytes` of each of these rows alone. All rows must have taken all steps."""
        zero_B = torch.zeros_like(self.rows_B)
        steps = tuple(replace(step, rows_B=zero_B) for step in self.steps)
        return trajectory_file.rows_to_bytes(replace(self, rows_B=zero_B, steps=steps)._storable(), _KINDS, rows)

    def _storable(self) -> "Trajectory":
        """Return the trajectory without the parts that are not stored."""
        return replace(
            self, steps=tuple(step.drop_large_parts() for step in self.steps), prediction=None, remasks_B=None
        )

    @classmethod
    def load(cls, path: str | Path) -> "Trajectory":
        """Read a file of `save`. Everything in it is checked before it is used."""
        return cls._read(trajectory_file.read_file(path), str(path))

    @classmethod
    def from_bytes(cls, content: bytes) -> "Trajectory":
        """Read the bytes of `to_bytes`."""
        return cls._read(content, "the bytes")

    @classmethod
    def _read(cls, content: bytes, path: str) -> "Trajectory":
        try:
            traj = trajectory_file.from_bytes(content, _KINDS)
            if type(traj) is not Trajectory:
                raise SchemaError(f"it holds a {type(traj).__name__}; allowed: Trajectory")
            _check_values(traj)
        except SchemaError as error:
            raise SchemaError(f"{path!r} is not a trajectory ({error}); write it with Trajectory.save") from error
        if not traj.steps and bool(traj.state.step_B.any()):
            return traj
        remasks_B = torch.zeros_like(traj.forwards_B)
        for step in traj.steps:
            remasks_B = remasks_B.index_add(0, step.rows_B, step.remasked_BL.sum(-1))
        return replace(traj, remasks_B=remasks_B)


_KINDS = (Trajectory, Step, State, Action, Prediction, Statistics, Noise, SamplingParams)
"""Types of the values in a trajectory's file."""


def _check_values(traj: Trajectory) -> None:
    """Check the shapes, types and ranges of a trajectory that was read from a file."""
    sizes: dict[str, int] = {}
    trajectory_file.check_value(traj, "trajectory", sizes)
    states = [traj.state]
    for number, step in enumerate(traj.steps):
        if type(step) is not Step:
            raise SchemaError(f"step {number} is a {type(step).__name__}")
        # Rows leave a run, so every step has its own B; L and J are the same in all steps.
        own = {"L": sizes["L"], "J": len(RULES), "B": len(step.rows_B)}
        trajectory_file.check_value(step, f"step {number}", own)
        if own["B"] and not 0 <= int(step.rows_B.min()) <= int(step.rows_B.max()) < traj.state.batch:
            raise SchemaError(f"step {number} names a row that is not there")
        for name, note in step.action.notes.items():
            if not (isinstance(note, Tensor) and note.ndim >= 1 and len(note) == own["B"]):
                raise SchemaError(f"note {name!r} of step {number} has not one entry per row")
        states.append(step.state)
    for state in states:
        wide = state.tokens_BL.shape[1]
        if state.batch < 1 or int(state.length_B.max()) > wide or int(state.tokens_BL.min()) < 0 or state.mask_id < 0:
            raise SchemaError(f"a state does not fit its canvas of {wide} positions")


def join_runs(runs: Sequence[Trajectory], rows: Sequence[Sequence[int]]) -> Trajectory:
    """Join finished runs into one trajectory, as if their rows had been decoded together.

    `rows` has the new number of each row of each run. Canvases are padded to the longest. Steps with the same number
    are joined, except those of runs where the method kept different tensors: they stay separate steps, each with its
    own rows. The result has no `config`.
    """
    fits_rows = bool(runs) and [run.state.batch for run in runs] == [len(own) for own in rows]
    places = sorted(place for own in rows for place in own)
    if not fits_rows or places != list(range(len(places))):
        raise ConfigError(
            f"rows are {[list(own) for own in rows]!s:.80}; allowed: for each run the place of every row, from 0, none "
            "twice; say where the rows belong"
        )
    wide = max(run.state.tokens_BL.shape[1] for run in runs)
    ends = [replace(run, state=run.state.pad_to(wide), steps=(), prediction=None, config=None) for run in runs]
    forms = {_form_apart_from_rows(end) for end in ends}
    require(len(forms) == 1, "runs", len(forms), "runs of one model with one proposal", "merge those of one call")
    place = [torch.tensor(own, dtype=torch.long) for own in rows]
    whole = concat([replace(end, rows_B=own) for end, own in zip(ends, place, strict=True)])
    numbered = [
        [
            replace(
                pad_canvas(step, step.state.tokens_BL.shape[1], wide),
                state=step.state.pad_to(wide),
                rows_B=own[step.rows_B],
            )
            for step in run.steps
        ]
        for run, own in zip(runs, place, strict=True)
    ]
    steps = []
    for number in range(max(map(len, numbered))):
        alike: dict[Any, list[Step]] = {}
        for step in (own[number] for own in numbered if number < len(own)):
            alike.setdefault(_form_apart_from_rows(step), []).append(step)
        joined = map(concat, alike.values())
        steps += [step.select(step.rows_B.argsort()) for step in joined]
    return replace(whole.select(whole.rows_B.argsort()), steps=tuple(steps))


def _form_apart_from_rows(value: Any) -> Any:
    """Return everything that two values must have in common to be joined: all but the rows of their tensors."""
    return tuple(
        (path, (leaf.dtype, leaf.shape[1:]) if isinstance(leaf, Tensor) else leaf) for path, leaf in leaves(value)
    )


class AnswerCost(NamedTuple):
    """The cost of one answer, or of several together."""

    forwards: int
    """Denoiser passes, look-ahead and guidance included."""
    extra_forwards: int
    """Denoiser passes beyond one per step."""
    planner_forwards: int
    """Passes of the second network, which `forwards` does not include."""
    remasks: int
    """Number of times that a revealed position was masked again."""
    processed_tokens: int
    """Number of tokens that the denoiser's passes read, because a pass over a long canvas costs more."""
    tokens: int
    """Number of answer positions, with end-of-text filler; `answer_tokens` counts without filler."""


def cost_columns(traj: Trajectory) -> tuple[Tensor, ...]:
    """Return the fields of `AnswerCost` for every row, as tensors on the run's device."""
    zero_B = torch.zeros_like(traj.forwards_B)
    return (
        traj.forwards_B,
        traj.forwards_B - traj.state.step_B,
        zero_B if traj.planner_forwards_B is None else traj.planner_forwards_B,
        zero_B if traj.remasks_B is None else traj.remasks_B,
        traj.processed_B,
        traj.state.answer_BL.sum(-1),
    )


def total_cost(traj: Trajectory) -> AnswerCost:
    """Return the cost of all rows together."""
    return AnswerCost(*torch.stack(cost_columns(traj), 1).sum(0).tolist())


def answer_tokens(state: State, ends: Sequence[int], *, cut: bool) -> Tensor:
    """Count the answer tokens of each row without end of text; with `cut`, only those before the first end of text."""
    end_BL = torch.isin(state.tokens_BL, torch.tensor(ends, dtype=torch.long, device=state.tokens_BL.device))
    end_BL &= state.answer_BL
    return (state.answer_BL & ~(end_BL.cumsum(-1) > 0 if cut else end_BL)).sum(-1)
