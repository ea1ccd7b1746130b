"""The history of a run: all a policy may see, and what `decode` returns."""

import math
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unmask.base.display import Displayable
from unmask.base.errors import ConfigError, SchemaError, StorageError, format_value, require
from unmask.base.files import atomic_write
from unmask.base.options import fits
from unmask.core.action import RULES, Action
from unmask.core.archive import STORED_NAMES, json_part, pack, pack_text, unpack
from unmask.core.prediction import Posterior, Prediction, Statistics
from unmask.core.proposal import SamplingParams
from unmask.core.rng import Noise
from unmask.core.rows import Selectable, Shown, select
from unmask.core.shapes import check_value
from unmask.core.state import State

_LATER: Mapping[str, Any] = {"omitted_if_none": True}
"""Of fields that came later: a file without them holds the same bytes as before."""


@dataclass(frozen=True, repr=False)
class Step(Shown):
    """One transition of the rows that were still running."""

    rows_B: Tensor
    """Which rows of the run these are."""
    policy: str
    """Who acted."""
    state: State
    """Before the transition."""
    prediction: Prediction
    action: Action
    revealed_BL: Tensor
    remasked_BL: Tensor
    confidence_BL: Tensor
    """Clean probability of each newly revealed token; 0 elsewhere, NaN where it was not the proposal."""
    forwards_B: Tensor
    """Denoiser passes spent on the row in this step, looks ahead included."""
    processed_B: Tensor
    """Tokens those passes read."""
    planner_forwards_B: Tensor | None = field(default=None, metadata=_LATER)
    """Passes of a second network; None where there is none."""
    prepaid_B: Tensor | None = field(default=None, metadata=_LATER)
    """Rows whose own pass was a look of the step before, which paid for it; None where nothing was remembered."""


@dataclass(frozen=True, repr=False)
class Trajectory(Selectable, Displayable):
    """Where B rows are and how they got there.

    While decoding it holds the rows still running. What `decode` returns holds every row's last state, and steps
    of which each names its rows: `row(b)` is one row's own history, `resume(b, t)` continues it from any step.
    """

    state: State
    noise: Noise
    rows_B: Tensor
    forwards_B: Tensor
    processed_B: Tensor
    prediction: Prediction | None = None
    steps: tuple[Step, ...] = ()
    planner_forwards_B: Tensor | None = field(default=None, metadata=_LATER)
    """Passes of a second network so far; None where there is none."""
    remasks_B: Tensor | None = field(default=None, metadata=_LATER)
    """Positions re-opened so far. Not in files, whose steps say it; None after reading one without steps."""
    prepaid_B: Tensor | None = field(default=None, metadata=_LATER)
    """Of a resumed run: rows whose next pass the past has paid for, because it looked at this canvas."""
    sampling: SamplingParams | None = field(default=None, metadata=_LATER)
    """How its tokens were proposed: `decode` goes on like that unless told otherwise."""
    config: Mapping[str, Any] | None = field(default=None, metadata=_LATER)
    """The resolved configuration of the `generate`, `infill` or `branch` that made it: model and its fingerprint,
    policy and its settings, options, rows. Plain JSON values; None for a run of `decode` alone."""

    @classmethod
    def start(cls, state: State, noise: Noise) -> "Trajectory":
        zero_B = torch.zeros_like(state.step_B)
        rows_B = torch.arange(state.batch, device=zero_B.device)
        return cls(state, noise, rows_B, zero_B, zero_B, remasks_B=zero_B)

    @property
    def current_prediction(self) -> Prediction:
        """The current prediction; asking before a forward pass is a bug in the policy."""
        if self.prediction is None:
            raise ConfigError(
                "no prediction yet; allowed: after a forward pass; call it from act, not from model_input"
            )
        return self.prediction

    # The numbers that methods read most, on the canvas alone: predictions may have more slots behind it.

    @property
    def confidence_BL(self) -> Tensor:
        """Clean probability of the sampled token at each canvas position."""
        return self._on_canvas(self.current_prediction.confidence_BN)

    @property
    def proposed_BL(self) -> Tensor:
        """Probability of the sampled token under the distribution that it was drawn from."""
        return self._on_canvas(self.current_prediction.proposed_BN)

    @property
    def token_BL(self) -> Tensor:
        """Token that each canvas position would take in this step."""
        return self._on_canvas(self.current_prediction.token_BN)

    @property
    def top_p_BL(self) -> Tensor:
        """Largest clean probability at each canvas position."""
        return self._on_canvas(self.current_prediction.clean.p_BNK[..., 0])

    @property
    def top_token_BL(self) -> Tensor:
        """Most probable token at each canvas position."""
        return self._on_canvas(self.current_prediction.clean.top_BNK[..., 0])

    @property
    def entropy_BL(self) -> Tensor:
        """Clean entropy in nats at each canvas position."""
        return self._on_canvas(self.current_prediction.clean.entropy_BN)

    def _on_canvas(self, value_BN: Tensor) -> Tensor:
        return value_BN[:, : self.state.tokens_BL.shape[1]]

    @property
    def last(self) -> Step | None:
        return self.steps[-1] if self.steps else None

    @property
    def notes(self) -> Mapping[str, Tensor]:
        """What the last action asked to be given back."""
        return self.steps[-1].action.notes if self.steps else {}

    @property
    def previous_posterior(self) -> Posterior | None:
        """The previous step's posterior, where it was kept."""
        return self.steps[-1].prediction.posterior if self.steps else None

    def uniform(self, purpose: str) -> Tensor:
        """One random number in (0, 1) per canvas position, fixed by row, step, position and purpose."""
        position_L = torch.arange(self.state.tokens_BL.shape[1], device=self.state.tokens_BL.device)
        return self.noise.uniform(self.state.step_B, position_L.expand_as(self.state.tokens_BL), purpose)

    def select(self, rows_U: Tensor) -> "Trajectory":
        return replace(self, **{f.name: select(getattr(self, f.name), rows_U) for f in fields(self)})

    def row(self, row: int) -> "Trajectory":
        """One row's own trajectory, from a finished run."""
        if not (fits(row, int) and 0 <= row < self.state.batch):
            raise ConfigError(
                f"row is {format_value(row)}; allowed: 0 to {self.state.batch - 1}; pick a row of this run"
            )
        steps = []
        for step in self.steps:
            at = (step.rows_B == row).nonzero().flatten()
            if len(at):
                steps.append(replace(select(step, at), rows_B=torch.zeros_like(at)))
        here = torch.tensor([row], device=self.rows_B.device)
        whole = replace(self, steps=(), prediction=None, config=None).select(here)
        return replace(whole, rows_B=torch.zeros_like(here), steps=tuple(steps), config=self._config_of(row))

    def resume(self, row: int, step: int) -> "Trajectory":
        """The row as it stood before its given step, ready to be decoded to the end again."""
        own = self.row(row)
        if not own.steps:
            raise ConfigError(f"row {row} has no steps; allowed: a recorded run; decode it again with record=True")
        if not (fits(step, int) and 0 <= step < len(own.steps)):
            raise ConfigError(
                f"step is {format_value(step)}; allowed: 0 to {len(own.steps) - 1}; pick a step of row {row}"
            )
        past = own.steps[:step]
        zero_B = torch.zeros_like(own.forwards_B)
        return replace(
            own,
            state=own.steps[step].state,
            steps=past,
            prepaid_B=own.steps[step].prepaid_B,
            forwards_B=sum((s.forwards_B for s in past), zero_B),
            processed_B=sum((s.processed_B for s in past), zero_B),
            planner_forwards_B=_total([s.planner_forwards_B for s in past], own.planner_forwards_B),
            remasks_B=sum((s.remasked_BL.sum(-1) for s in past), zero_B),
        )

    def _config_of(self, row: int) -> Mapping[str, Any] | None:
        """The configuration with one row's own line."""
        config = self.config or {}
        rows = config.get("rows")
        if not (isinstance(rows, list) and len(rows) == self.state.batch):
            return self.config
        return {**config, "rows": [rows[row]]}

    def canvases(self) -> Iterator[Tensor]:
        """The canvas (one row's) before each step and after the last: what a viewer draws."""
        for step in self.steps:
            yield step.state.tokens_BL[0]
        yield self.state.tokens_BL[0]

    def save(self, path: str | Path) -> None:
        """Write to one `.npz` file, whole or not at all."""
        named = isinstance(path, str | Path) and bool(Path(path).name)
        require(named, "path of the trajectory", path, "the name of a file", "give one, such as 'run.npz'")
        try:
            with atomic_write(Path(path)) as partial:
                partial.write_bytes(self.to_bytes())
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise StorageError(
                f"{format_value(str(path))} cannot be written to ({why}); choose another place"
            ) from error

    def to_bytes(self) -> bytes:
        """What `save` writes: the same bytes for the same values."""
        arrays: dict[str, np.ndarray] = {}
        tree = _flatten(replace(self, prediction=None, remasks_B=None), "", arrays)
        return pack({"format": _FORMAT, "tree": tree}, arrays)

    def rows_to_bytes(self, rows: Sequence[int]) -> list[bytes]:
        """What `to_bytes` gives of each of these rows by itself, as row 0; all rows must have taken all steps."""
        zero_B = torch.zeros_like(self.rows_B)
        steps = tuple(replace(step, rows_B=zero_B) for step in self.steps)
        alone = replace(self, rows_B=zero_B, steps=steps, prediction=None, remasks_B=None)
        arrays: dict[str, np.ndarray] = {}
        text = json_part({"format": _FORMAT, "tree": _flatten(alone, "", arrays)})
        return [pack_text(text, {path: array[row : row + 1] for path, array in arrays.items()}) for row in rows]

    @classmethod
    def load(cls, path: str | Path) -> "Trajectory":
        """Read what `save` wrote: nothing of it is trusted before it is checked."""
        # os.path's version, since it answers for names that are too long or hold a zero byte too.
        if not (isinstance(path, str | Path) and os.path.isfile(path)):
            place = format_value(str(path) if isinstance(path, Path) else path)
            raise SchemaError(f"no trajectory at {place}; allowed: a file written by Trajectory.save; check it")
        try:
            # Both look at the file's end only.
            small = Path(path).stat().st_size <= _LARGEST and zipfile.is_zipfile(path)
            content = Path(path).read_bytes() if small else b""
        except OSError as error:
            raise SchemaError(f"{str(path)!r} cannot be read ({error.strerror}); allowed: a readable file") from error
        return cls._read(content, str(path))

    @classmethod
    def from_bytes(cls, content: bytes) -> "Trajectory":
        """Read what `to_bytes` gave."""
        return cls._read(content, "the bytes")

    @classmethod
    def _read(cls, content: bytes, path: str) -> "Trajectory":
        try:
            value = _value(*unpack(content))
        except SchemaError as error:
            raise SchemaError(f"{path!r} is not a trajectory ({error}); write it with Trajectory.save") from error
        return value


_FORMAT = "unmask-trajectory-2"
_LARGEST = 1 << 33
"""Bytes of a file that is read at all."""
_STORABLE = (Trajectory, Step, State, Action, Prediction, Statistics, Noise, SamplingParams)
_TYPES = {STORED_NAMES.get(kind.__name__, kind.__name__): kind for kind in _STORABLE}
"""Types of a file by their stored names."""


def _value(meta: Any, arrays: Mapping[str, np.ndarray]) -> Trajectory:
    """The trajectory of a file, checked."""
    named = meta.get("format") if isinstance(meta, dict) else None
    if named != _FORMAT:
        older = "; files of format 1 do not say which model and proposal made them: decode again and save"
        raise SchemaError(f"format is {named!r}; allowed: {_FORMAT!r}{older if named == _OLDER else ''}")
    try:
        value = _unflatten(meta["tree"], arrays)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError, ConfigError) as error:
        raise SchemaError(f"its tree makes no sense: {type(error).__name__}") from error
    if type(value) is not Trajectory:
        raise SchemaError(f"it holds a {type(value).__name__}; allowed: Trajectory")
    _check(value)
    return replace(value, remasks_B=_remasks(value))


_OLDER = "unmask-trajectory-1"


def _check(traj: Trajectory) -> None:
    """Shapes, types and ranges of all that was read."""
    sizes: dict[str, int] = {}
    check_value(traj, "trajectory", sizes)
    _check_state(traj.state)
    for number, step in enumerate(traj.steps):
        if type(step) is not Step:
            raise SchemaError(f"step {number} is a {type(step).__name__}")
        own = {"L": sizes["L"], "J": len(RULES), "B": len(step.rows_B)}
        check_value(step, f"step {number}", own)
        if own["B"] and not 0 <= int(step.rows_B.min()) <= int(step.rows_B.max()) < traj.state.batch:
            raise SchemaError(f"step {number} names a row that is not there")
        _check_state(step.state)
        for name, note in step.action.notes.items():
            if not (isinstance(note, Tensor) and note.ndim >= 1 and len(note) == own["B"]):
                raise SchemaError(f"note {name!r} of step {number} has not one entry per row")


def _remasks(traj: Trajectory) -> Tensor | None:
    """What a file does not hold, from its steps."""
    count_B = torch.zeros_like(traj.forwards_B)
    if not traj.steps and bool(traj.state.step_B.any()):
        return None
    for step in traj.steps:
        count_B = count_B.index_add(0, step.rows_B, step.remasked_BL.sum(-1))
    return count_B


def _check_state(state: State) -> None:
    wide = state.tokens_BL.shape[1]
    if state.batch < 1 or int(state.length_B.max()) > wide or int(state.tokens_BL.min()) < 0 or state.mask_id < 0:
        raise SchemaError(f"a state does not fit its canvas of {wide} positions")


def _flatten(value: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    """A JSON tree whose leaves name arrays; heavy posteriors are left out."""
    if isinstance(value, Tensor):
        arrays[path] = value.cpu().numpy()
        return {"array": path}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, Step):
        value = replace(value, prediction=value.prediction.light)
    if isinstance(value, tuple):
        return {"tuple": [_flatten(v, f"{path}.{i}", arrays) for i, v in enumerate(value)]}
    if isinstance(value, Mapping):
        return {"dict": {k: _flatten(v, f"{path}.{k}", arrays) for k, v in value.items()}}
    name = _stored(type(value).__name__)
    if _TYPES.get(name) is type(value):
        kept = {_stored(f.name): getattr(value, f.name) for f in _kept(value)}
        return {"type": name, "fields": {k: _flatten(v, f"{path}.{k}", arrays) for k, v in kept.items()}}
    return {"value": value}


def _stored(name: str) -> str:
    return STORED_NAMES.get(name, name)


def _kept(value: Any) -> "list[Field[Any]]":
    return [f for f in fields(value) if not (f.metadata.get("omitted_if_none") and getattr(value, f.name) is None)]


def _total(parts: list[Tensor | None], whole: Tensor | None) -> Tensor | None:
    """What some steps spent; None where nobody counted."""
    if whole is None:
        return None
    return sum((part for part in parts if part is not None), torch.zeros_like(whole))


def _unflatten(tree: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
    if "array" in tree:
        return torch.from_numpy(arrays[tree["array"]].copy())
    if "tuple" in tree:
        return tuple(_unflatten(v, arrays) for v in tree["tuple"])
    if "dict" in tree:
        return {k: _unflatten(v, arrays) for k, v in tree["dict"].items()}
    if "type" in tree:
        kind = _TYPES[tree["type"]]
        names = {_stored(f.name): f.name for f in fields(kind)}
        return kind(**{names[k]: _unflatten(v, arrays) for k, v in tree["fields"].items()})
    return float(tree["float"]) if "float" in tree else tree["value"]
