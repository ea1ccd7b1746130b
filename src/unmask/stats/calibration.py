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

from unmask.base.json_files import HashMismatch, from_hashed_json, to_hashed_json
from unmask.stats.bootstrap import RESAMPLES, Estimate, codes, ratio_intervals
from unmask.stats.crossfit import Array, Folds
from unmask.stats.detector import (
    Detector,
    Schedule,
    Threshold,
    fit_detector,
    fit_gate,
    fit_mean_gate,
    fit_schedule,
    fit_theta,
    gate_gains,
    mean_gate_gains,
    prompt_folds,
)
from unmask.stats.errors import NotEnough
from unmask.stats.estimates import FixedAction, choose_fixed
from unmask.stats.tables import PROPOSALS, Graded, T, ValidationTable, grade, only_validation
from unmask.stats.whole_runs import FIXED, WholeRuns

FORMAT = "unmask-detector-1"
RULES = ("lift", "mean")
"""How tau is chosen: by what the proposal gains out of fold, or as the mean validation opportunity."""
_LATER = ("rule", "fixed")
"""Settings that a file names only where they are not the defaults, so that older files stay what they are."""


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
    rule: str = "lift"
    """One of `RULES`."""
    fixed: str = "one-step"
    """How the fixed action is chosen; end to end it takes whole runs of the candidates."""

    def __post_init__(self) -> None:
        for name, allowed in (("proposal", PROPOSALS), ("rule", RULES), ("fixed", FIXED)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must be one of {', '.join(allowed)}")
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
            return from_hashed_json(FORMAT, text, _calibration, kind="detector", to_body=_body)
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


def calibrate(table: ValidationTable, settings: CalibrationSettings, runs: WholeRuns | None = None) -> Calibration:
    """Make every choice, in the order in which they depend on each other. Only validation states can be passed.

    `runs` are whole runs of the candidates, in the table's order, where they choose the fixed action.
    """
    only_validation(table)
    if (runs is not None) != (settings.fixed == "end-to-end"):
        raise ValueError(
            f"fixed is {settings.fixed!r} and whole runs were {'not ' if runs is None else ''}given; they must be "
            "given with 'end-to-end' and not with 'one-step'"
        )
    fixed = choose_fixed(table.q_SAR, reference=table.reference) if runs is None else runs.best(table.reference)
    seen = graded_apart(table, fixed.action, settings, runs)
    how: dict[str, Any] = {"folds": settings.prompt_folds, "caution": settings.caution, "seed": settings.seed}
    fit = fit_gate if settings.rule == "lift" else fit_mean_gate
    return Calibration(
        candidates=table.candidates,
        reference=table.reference,
        fixed=fixed,
        schedule=fit_schedule(graded(table, fixed.action, settings), settings.stages),
        detector=fit_detector(seen, settings.bins),
        theta=fit_theta(seen, settings.bins, **how) if settings.theta else Threshold(-math.inf, 0.0, 0.0, 0.0, ""),
        tau=fit(seen, settings.bins, **how),
        prompts=len(np.unique(table.prompt_S)),
        settings=settings,
    )


def gate_lift(
    table: ValidationTable, chosen: Calibration, runs: WholeRuns | None = None, *, resamples: int = RESAMPLES
) -> Estimate:
    """What the gate is expected to gain over the fixed action per state; a gate that never opens gains nothing.

    Of the validation states that it was calibrated on, but out of fold, with an interval over prompts.
    """
    only_validation(table)
    if chosen.tau.value is None:
        return Estimate(0.0, 0.0, 0.0)
    how = chosen.settings
    seen = graded_apart(table, chosen.fixed.action, how, runs)
    of_rule = gate_gains if how.rule == "lift" else mean_gate_gains
    gains = of_rule(seen, how.bins, folds=how.prompt_folds, seed=how.seed)
    return _per_state(gains.gain_S, gains.prompt_S, how.seed, resamples)


def lift_elsewhere(table: ValidationTable, chosen: Calibration, *, resamples: int = RESAMPLES) -> Estimate:
    """The same on states of prompts that the calibration has not seen, with the gate as it is."""
    only_validation(table)
    seen = graded(table, chosen.fixed.action, chosen.settings)
    opens_S = chosen.tau.active(chosen.detector.predict(table.signal_S)) & ~table.abstained_S
    gain_S = np.where(opens_S, seen.gain_S, 0.0)[seen.used_S]
    return _per_state(gain_S, table.prompt_S[seen.used_S], chosen.settings.seed, resamples)


def _per_state(gain_S: Array, prompt_S: ArrayLike, seed: int, resamples: int) -> Estimate:
    return ratio_intervals(gain_S, np.ones(len(gain_S)), np.asarray(prompt_S), seed=seed, resamples=resamples)[0]


def graded(table: T, fixed: ArrayLike, settings: CalibrationSettings) -> Graded[T]:
    """A table beside a fixed action, in the way of a calibration."""
    return grade(table, fixed, settings.proposal, folds=settings.folds, deterministic=settings.deterministic)


def graded_apart(
    table: ValidationTable, fixed: int, settings: CalibrationSettings, runs: WholeRuns | None = None
) -> Graded[ValidationTable]:
    """Validation states beside the fixed action that the other folds of prompts choose; `fixed` where they cannot."""
    only_validation(table)
    if not settings.apart:
        return graded(table, fixed, settings)
    prompt_S, prompts = codes(table.prompt_S)
    fold_S = prompt_folds(prompts, settings.prompt_folds, settings.seed)[prompt_S]
    fixed_S = np.full(len(fold_S), fixed)
    for fold in range(int(fold_S.max()) + 1):
        with suppress(NotEnough):  # No state of the others has every utility.
            others_S = fold_S != fold
            fixed_S[~others_S] = (
                choose_fixed(table.q_SAR[others_S], reference=table.reference)
                if runs is None
                else runs.of(table.prompt_S[others_S]).best(table.reference)
            ).action
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
        "settings": _settings(calibration.settings) | {"folds": None if folds is None else [list(f) for f in folds]},
    }


def _settings(settings: CalibrationSettings) -> dict[str, Any]:
    usual = {field.name: field.default for field in fields(settings) if field.name in _LATER}
    return {name: value for name, value in asdict(settings).items() if name not in usual or value != usual[name]}


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
    whole = calibration.settings.fixed == "end-to-end"
    lines = [
        f"calibrated on {calibration.prompts} validation prompts, {calibration.settings.proposal} proposals",
        f"fixed action: {names[fixed.action]} ({'best end to end, ' if whole else ''}mean utility "
        f"{fixed.mean_A[fixed.action]:.4f}, {fixed.states} {'prompts' if whole else 'states'}); reference: "
        f"{names[calibration.reference]}",
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
