"""Everything that validation prompts choose for one model, task and axis, and the file it is kept in.

The fixed action, the stage-only schedule, the detector and its two thresholds. NumPy in, numbers out.
"""

import itertools
import math
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from unmask.stats.bootstrap import RESAMPLES, Estimate, codes, ratio_intervals
from unmask.stats.crossfit import Array, Folds
from unmask.stats.detector import (
    Detector,
    Schedule,
    Threshold,
    fit_detector,
    fit_gate,
    fit_schedule,
    fit_theta,
    gate_gains,
    prompt_folds,
)
from unmask.stats.errors import NotEnough
from unmask.stats.estimates import FixedAction, choose_fixed
from unmask.stats.hashed_json import HashMismatch, from_hashed_json, to_hashed_json
from unmask.stats.tables import PROPOSALS, Graded, T, ValidationTable, grade, only_validation

FORMAT = "unmask-detector-1"


class DetectorFileError(ValueError):
    """A file is not a detector, is one of another version, or was edited."""


@dataclass(frozen=True)
class CalibrationSettings:
    """How choices are made on validation states."""

    seed: int
    """Deals prompts into folds."""
    proposal: str = "raw"
    """Which action the thresholds are chosen for: the diagnostic's own, or the candidate nearest to it (`snapped`)."""
    bins: int = 10
    stages: int = 4
    prompt_folds: int = 5
    caution: float = 0.0
    """Standard errors by which acting must pay out of fold; with 0 any gain will do."""
    apart: bool = True
    """Opportunity and gains are those over the fixed action that a prompt's *other* folds choose. Over the one that all
    prompts choose, which is best on these very states by luck as well, nothing seems to gain."""
    theta: bool = True
    """Choose an action threshold; otherwise the diagnostic acts wherever it has a signal."""
    folds: Folds | None = None
    """Rollouts for cross-fitting, as in `cross_fit`."""
    deterministic: bool = False

    def __post_init__(self) -> None:
        if self.proposal not in PROPOSALS:
            raise ValueError(f"proposal is {self.proposal!r}; it must be one of {', '.join(PROPOSALS)}")
        for name, least in (("bins", 1), ("stages", 1), ("prompt_folds", 2), ("seed", 0), ("caution", 0)):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= least):
                raise ValueError(f"{name} is {getattr(self, name)}; it must be {least} or more")
        if self.folds is not None:
            object.__setattr__(self, "folds", tuple(tuple(int(r) for r in fold) for fold in self.folds))


@dataclass(frozen=True)
class Calibration:
    """What was chosen on validation prompts, before any held-out state is looked at."""

    candidates: tuple[str, ...]
    reference: int
    fixed: FixedAction
    schedule: Schedule
    detector: Detector
    theta: Threshold
    """On the signal: below it the diagnostic abstains. It shapes the one-step experiments only."""
    tau: Threshold
    """On the detector's prediction: from it on the selective policy takes the diagnostic's action."""
    prompts: int
    """Validation prompts behind all of this."""
    settings: CalibrationSettings

    def to_json(self) -> str:
        """The file's text; the same calibration gives the same bytes."""
        return to_hashed_json(FORMAT, _body(self))

    @classmethod
    def from_json(cls, text: str) -> "Calibration":
        """Back from the file's text; refused if it is of another format or not exactly what was written."""
        try:
            return from_hashed_json(FORMAT, text, "detector", _calibration, _body)
        except HashMismatch as error:
            raise DetectorFileError(f"{error}; pass one with the text of `to_json`, or calibrate again") from error

    def agrees(self, other: "Calibration") -> bool:
        """Whether the two are equal, but for how the arithmetic of another machine may round."""
        return _close(_body(self), _body(other))

    @classmethod
    def load(cls, path: str | Path) -> "Calibration":
        """Read a file with the text of `to_json`; whoever writes it decides how."""
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except UnicodeDecodeError as error:
            raise DetectorFileError(f"{path} is not text ({error}); pass one with the text of `to_json`") from error
        except DetectorFileError as error:
            raise DetectorFileError(f"{path}: {error}") from error

    def inspect(self) -> str:
        """What was chosen, in plain text."""
        return "\n".join(_lines(self))


def calibrate(table: ValidationTable, settings: CalibrationSettings) -> Calibration:
    """Make every choice, in the order in which they depend on each other. Only validation states can be passed."""
    only_validation(table)
    fixed = choose_fixed(table.q_SAR, reference=table.reference)
    seen = graded_apart(table, fixed.action, settings)
    how: dict[str, Any] = {"folds": settings.prompt_folds, "caution": settings.caution, "seed": settings.seed}
    return Calibration(
        candidates=table.candidates,
        reference=table.reference,
        fixed=fixed,
        schedule=fit_schedule(graded(table, fixed.action, settings), settings.stages),
        detector=fit_detector(seen, settings.bins),
        theta=fit_theta(seen, settings.bins, **how) if settings.theta else Threshold(-math.inf, 0.0, 0.0, 0.0, ""),
        tau=fit_gate(seen, settings.bins, **how),
        prompts=len(np.unique(table.prompt_S)),
        settings=settings,
    )


def gate_lift(table: ValidationTable, chosen: Calibration, *, resamples: int = RESAMPLES) -> Estimate:
    """What the gate is expected to gain over the fixed action per state; a gate that never opens gains nothing.

    Of the validation states that it was calibrated on, but out of fold, with an interval over prompts.
    """
    only_validation(table)
    if chosen.tau.value is None:
        return Estimate(0.0, 0.0, 0.0)
    how = chosen.settings
    seen = graded_apart(table, chosen.fixed.action, how)
    gains = gate_gains(seen, how.bins, folds=how.prompt_folds, seed=how.seed)
    ones_S = np.ones(len(gains.gain_S))
    return ratio_intervals(gains.gain_S, ones_S, gains.prompt_S, seed=how.seed, resamples=resamples)[0]


def graded(table: T, fixed: ArrayLike, settings: CalibrationSettings) -> Graded[T]:
    """A table beside a fixed action, in the way of a calibration."""
    return grade(table, fixed, settings.proposal, folds=settings.folds, deterministic=settings.deterministic)


def graded_apart(table: ValidationTable, fixed: int, settings: CalibrationSettings) -> Graded[ValidationTable]:
    """Validation states beside the fixed action that the other folds of prompts choose; `fixed` where they cannot."""
    only_validation(table)
    if not settings.apart:
        return graded(table, fixed, settings)
    prompt_S, prompts = codes(table.prompt_S)
    fold_S = prompt_folds(prompts, settings.prompt_folds, settings.seed)[prompt_S]
    fixed_S = np.full(len(fold_S), fixed)
    for fold in range(int(fold_S.max()) + 1):
        with suppress(NotEnough):  # No state of the others has every utility.
            fixed_S[fold_S == fold] = choose_fixed(table.q_SAR[fold_S != fold], reference=table.reference).action
    return graded(table, fixed_S, settings)


def _body(calibration: Calibration) -> dict[str, Any]:
    """Lists, numbers and texts only, in one order."""
    fixed, detector, folds = calibration.fixed, calibration.detector, calibration.settings.folds
    return {
        "candidates": list(calibration.candidates),
        "reference": calibration.reference,
        "fixed": {
            "action": fixed.action,
            "mean_A": _numbers(fixed.mean_A),
            "states": fixed.states,
            "excluded": fixed.excluded,
        },
        "schedule": {name: getattr(calibration.schedule, name).tolist() for name in ("action_K", "states_K")},
        "detector": {
            "start_E": _numbers(detector.start_E),
            "g_B": _numbers(detector.g_B),
            "states_B": detector.states_B.tolist(),
            "positive_B": detector.positive_B.tolist(),
            "silent": detector.silent,
        },
        "theta": {**asdict(calibration.theta), "value": _number(calibration.theta.value)},
        "tau": {**asdict(calibration.tau), "value": _number(calibration.tau.value)},
        "prompts": calibration.prompts,
        "settings": {
            **asdict(calibration.settings),
            "folds": None if folds is None else [list(fold) for fold in folds],
        },
    }


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_close(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_close, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return bool(one == other)


def _calibration(body: dict[str, Any]) -> Calibration:
    fixed, detector, schedule = body["fixed"], body["detector"], body["schedule"]
    actions = len(body["candidates"])
    start_E, g_B = _array(detector["start_E"]), _array(detector["g_B"])
    states_B, positive_B = (np.array(detector[name], dtype=np.int64) for name in ("states_B", "positive_B"))
    action_K = np.array(schedule["action_K"], dtype=np.int64)
    chosen = [fixed["action"], body["reference"], *schedule["action_K"]]
    if not all(0 <= a < actions for a in chosen) or len(fixed["mean_A"]) != actions:
        raise ValueError(f"actions are {chosen} of {actions} candidates")
    if not len(g_B) == len(states_B) == len(positive_B) == len(start_E) + 1 or not (np.diff(start_E) > 0).all():
        raise ValueError(f"{len(g_B)} bins have starts {start_E.tolist()}")
    return Calibration(
        candidates=tuple(body["candidates"]),
        reference=body["reference"],
        fixed=FixedAction(fixed["action"], _array(fixed["mean_A"]), fixed["states"], fixed["excluded"]),
        schedule=Schedule(action_K, np.array(schedule["states_K"], dtype=np.int64)),
        detector=Detector(start_E, g_B, states_B, positive_B, detector["silent"]),
        theta=_threshold(body["theta"]),
        tau=_threshold(body["tau"]),
        prompts=body["prompts"],
        settings=CalibrationSettings(**body["settings"]),
    )


def _numbers(x: Array) -> list[Any]:
    return [_number(v) for v in x.tolist()]


def _number(value: float | None) -> Any:
    """JSON has no infinities and no NaN."""
    if value is None or math.isnan(value):
        return None
    return value if math.isfinite(value) else str(value)


def _array(values: list[Any]) -> Array:
    return np.array([math.nan if v is None else float(v) for v in values], dtype=np.float64)


def _threshold(entry: dict[str, Any]) -> Threshold:
    if set(entry) != {f.name for f in fields(Threshold)}:
        raise ValueError(f"a threshold has entries {sorted(entry)}")
    return Threshold(**{**entry, "value": None if entry["value"] is None else float(entry["value"])})


def _lines(calibration: Calibration) -> list[str]:
    names, fixed, detector = calibration.candidates, calibration.fixed, calibration.detector
    lines = [
        f"calibrated on {calibration.prompts} validation prompts, {calibration.settings.proposal} proposals",
        f"fixed action: {names[fixed.action]} (mean utility {fixed.mean_A[fixed.action]:.4f}, "
        f"{fixed.states} states); reference: {names[calibration.reference]}",
        "stages, most masked first: " + ", ".join(names[a] for a in calibration.schedule.action_K),
        f"theta: the diagnostic acts {_where(calibration.theta, 'its signal')}",
        f"tau: the selective policy deviates {_where(calibration.tau, 'the expected opportunity')}",
        f"{'signal':>24}  {'states':>6}  {'positive':>8}  expected opportunity",
    ]
    edges = [-math.inf, *detector.start_E.tolist(), math.inf]
    open_B = calibration.tau.active(detector.g_B)
    for b, (low, high) in enumerate(itertools.pairwise(edges)):
        lines.append(
            f"{f'[{low:.4g}, {high:.4g})':>24}  {detector.states_B[b]:>6}  {detector.positive_B[b]:>8}  "
            f"{detector.g_B[b]:+.4f}{'  deviates' if open_B[b] else ''}"
        )
    lines.append(f"{'no signal':>24}  {detector.silent:>6}  {'':>8}  never deviates")
    return lines


def _where(threshold: Threshold, what: str) -> str:
    if threshold.value is None:
        return f"never: {threshold.reason}"
    gain = f"out of fold {threshold.out_of_fold:+.4f} ± {threshold.error:.4f} a state"
    if math.isinf(threshold.value):
        return f"wherever there is a signal ({gain})"
    return f"where {what} is {threshold.value:.4g} or more ({gain})"
