"""What is fitted on validation states (bins of a signal, thresholds, a schedule by stage), and the file it is kept in.

Needs NumPy alone, because a light install opens gate files. `protocol` says on which states all of this is fitted;
docs/protocol.md says why it is done this way.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field

from unmask.base.errors import ConfigError
from unmask.base.json_files import from_hashed_json, to_hashed_json
from unmask.base.options import Options
from unmask.stats.ranking import TIE, round_scores
from unmask.stats.resampling import Array, Bools, Ints, number_prompts, sum_by_cluster

FORMAT = "unmask-detector-1"
STAGES = 4
FIXED_BY = ("one-step", "end-to-end")
"""Ways to choose the fixed action: by one step, after which the reference goes on (the paper's), or by whole runs."""


# The fitted values


@dataclass(frozen=True)
class FixedAction:
    """The action with the best mean utility on validation states."""

    action: int
    mean_A: Array
    """Mean utility of every action; NaN for one without any utility."""
    states: int
    """States behind the means: those where every action that can be chosen has a utility. Prompts, for whole runs."""
    excluded: int


@dataclass(frozen=True)
class StageSchedule:
    """One action for each stage of an answer, the same at every state of the stage: a baseline for diagnostics."""

    action_K: Ints
    states_K: Ints

    def actions(self, masked_S: ArrayLike) -> Ints:
        """Return the scheduled action of each state, given the masked fraction of its answer."""
        return self.action_K[stage_numbers(masked_S, len(self.action_K))]


@dataclass(frozen=True)
class Detector:
    """Expected opportunity by bin of the signal. Bin b starts at `start_E[b - 1]`; the first has no start."""

    start_E: Array
    g_B: Array
    """Mean cross-fitted opportunity of the validation states in each bin; NaN without any state."""
    states_B: Ints
    positive_B: Ints
    """Number of these states whose opportunity is positive."""
    without_signal: int
    """Validation states without a signal, which are in no bin."""

    def find_bin(self, signal_S: ArrayLike) -> Ints:
        """Return the bin of each signal, -1 for NaN. Signals beyond the fitted range go to the first or last bin."""
        signal = np.asarray(signal_S, dtype=np.float64)
        return np.where(np.isnan(signal), -1, np.searchsorted(self.start_E, signal, side="right"))

    def predict(self, signal_S: ArrayLike) -> Array:
        """Return the expected opportunity, NaN where there is no signal: such a state ranks last and opens no gate."""
        bin_S = self.find_bin(signal_S)
        return np.where(bin_S < 0, np.nan, self.g_B[bin_S])


@dataclass(frozen=True)
class Threshold:
    """Smallest score at which to act; None to never act, -inf to act wherever there is a score."""

    value: float | None
    lift: float = 0.0
    """Mean gain over the fixed action on validation states; the threshold was chosen for it, so it flatters."""
    out_of_fold: float = 0.0
    """Mean gain where each fold of prompts uses the threshold that the other folds choose, which does not flatter."""
    error: float = 0.0
    """Standard error of `out_of_fold` over prompts."""
    reason: str = ""
    """Reason why no threshold is used; empty where one is."""

    def is_reached(self, score_S: ArrayLike) -> Bools:
        """Mark the states whose score reaches the threshold; False where the score is NaN."""
        score = np.asarray(score_S, dtype=np.float64)
        return np.zeros(score.shape, dtype=np.bool_) if self.value is None else np.asarray(score >= self.value)


# Fitting


@dataclass(frozen=True)
class ValidationGains:
    """Signals and gains of validation states, which bins and thresholds are fitted on."""

    prompt_S: Ints
    """Prompts as numbers; they are what was drawn at random."""
    fold_S: Ints
    """The fold of each state's prompt."""
    signal_S: Array
    g_S: Array
    """Cross-fitted opportunity over the fixed action; NaN where that has no utility."""
    gain_S: Array
    """Gain of the diagnostic's proposal over the fixed action; NaN where one of the two has no utility."""

    @property
    def used_S(self) -> Bools:
        """Mask of the states whose opportunity and whose proposal's gain are both known."""
        return np.asarray(np.isfinite(self.g_S) & np.isfinite(self.gain_S))

    @property
    def folds(self) -> range:
        return range(int(self.fold_S.max()) + 1)


def fit_detector(signal_S: Array, g_S: Array, bins: int) -> Detector:
    """Cut the signal into quantile bins and average the opportunity of the states in each.

    `eq:opportunity_detector`
    """
    known_S = ~np.isnan(g_S)
    signal_S, g_S = signal_S[known_S], g_S[known_S]
    seen_S = ~np.isnan(signal_S)
    start_E = quantile_bin_starts(signal_S, bins)
    bin_S = np.searchsorted(start_E, signal_S[seen_S], side="right")
    columns = np.stack([np.ones(len(bin_S)), g_S[seen_S] > 0, g_S[seen_S]], 1)
    states_B, positive_B, total_B = sum_by_cluster(columns, bin_S, len(start_E) + 1).T
    mean_B = np.divide(total_B, states_B, out=np.full(len(states_B), np.nan), where=states_B > 0)
    return Detector(start_E, mean_B, states_B.astype(np.int64), positive_B.astype(np.int64), int((~seen_S).sum()))


def quantile_bin_starts(signal_S: Array, bins: int) -> Array:
    """Compute the signals at which the quantile bins start, without the first bin. Equal signals share a bin."""
    known = np.sort(signal_S[~np.isnan(signal_S)])
    if not len(known):
        return known
    # Values that were seen, not quantiles between them: interpolation would split equal signals by rounding.
    start_E = np.unique(known[np.arange(1, bins) * len(known) // bins])
    return start_E[start_E > known[0]]


def fit_action_threshold(states: ValidationGains, bins: int, caution: float) -> Threshold:
    """Fit theta, the signal below which the diagnostic abstains: the start of a bin, -inf, or None for never acting."""
    used_S = states.used_S
    levels = [*quantile_bin_starts(states.signal_S[used_S], bins)[::-1].tolist(), -np.inf]
    return choose_threshold(states, states.signal_S, levels, caution)


def fit_gate_threshold(states: ValidationGains, bins: int, caution: float, rule: str) -> Threshold:
    """Fit tau, the smallest expected opportunity at which the selective policy deviates. `eq:selective_policy`

    With the rule `lift` it is chosen by what the proposal gains where predictions are out of fold, and lies halfway
    between the predictions of neighbouring bins, so that small differences between detectors do not decide. With the
    rule `mean` the gate opens in bins above the mean validation opportunity. That asks nothing of the proposal, so a
    gate may open and lose; what it gains out of fold is measured all the same, and `caution` has no say.
    """
    used_S = states.used_S
    detector = fit_detector(states.signal_S, states.g_S, bins)
    if rule == "mean":
        tau = _threshold_above_mean(detector)
        if tau is None:
            return Threshold(None, reason="no bin has an opportunity above the mean of validation states")
        open_S = detector.predict(states.signal_S)[used_S] >= tau
        lift = float((states.gain_S[used_S] * open_S).mean())
        gain_S = gate_gains(states, bins, rule)
        return Threshold(tau, lift, float(gain_S.mean()), _clustered_standard_error(gain_S, states.prompt_S[used_S]))
    if not used_S.any():
        return Threshold(None, reason="no validation state has the utilities of the fixed action and the proposal")
    positive = int((states.g_S[used_S] > 0).sum())
    if positive in (0, used_S.sum()):
        which = "no" if positive == 0 else "every"
        why = f"{which} validation state has a positive opportunity: there is nothing to tell apart"
        return Threshold(None, reason=why)
    return choose_threshold(states, predict_out_of_fold(states, bins), list_gate_thresholds(detector), caution)


def gate_gains(states: ValidationGains, bins: int, rule: str) -> Array:
    """Compute the gain at each used state of a gate whose threshold was chosen on the other folds of prompts."""
    used_S = states.used_S
    if rule == "lift":
        levels = list_gate_thresholds(fit_detector(states.signal_S, states.g_S, bins))
        return _gains_by_threshold(states, predict_out_of_fold(states, bins), levels)[1]
    open_S = np.zeros(len(used_S), dtype=np.bool_)
    for fold in states.folds:
        here_S = states.fold_S == fold
        detector = fit_detector(states.signal_S[~here_S], states.g_S[~here_S], bins)
        tau = _threshold_above_mean(detector)
        if tau is not None:
            open_S[here_S] = detector.predict(states.signal_S[here_S]) >= tau
    return np.where(open_S, states.gain_S, 0.0)[used_S]


def list_gate_thresholds(detector: Detector) -> list[float]:
    """List thresholds between the predictions of neighbouring bins, the highest first, then -inf (always open)."""
    # Bins whose means differ by rounding only must not be told apart by a threshold between them.
    distinct = np.unique(round_scores(detector.g_B[np.isfinite(detector.g_B)]))
    return [*((distinct[1:] + distinct[:-1]) / 2)[::-1].tolist(), -np.inf]


def choose_threshold(states: ValidationGains, score_S: Array, levels: Sequence[float], caution: float) -> Threshold:
    """Choose the threshold with the largest mean gain, or never if that rule gains nothing on prompts left out.

    `levels` are from the highest to the lowest; of equal gains the highest counts, which deviates least.
    """
    used_S = states.used_S
    if len(np.unique(states.fold_S[used_S])) < 2:
        why = "there are fewer than 2 validation prompts with utilities: no fold could choose for another"
        return Threshold(None, reason=why)
    gain_SH, gain_S = _gains_by_threshold(states, score_S, levels)
    out_of_fold, error = float(gain_S.mean()), _clustered_standard_error(gain_S, states.prompt_S[used_S])
    best = int(_first_largest_column(gain_SH.sum(0, keepdims=True))[0])
    if best == 0:
        return Threshold(None, 0.0, out_of_fold, error, "no threshold gains anything on validation states")
    if out_of_fold <= caution * error + TIE:
        least = f", not more than {caution:g} standard errors of {error:.4g}" if caution else ""
        return Threshold(None, 0.0, out_of_fold, error, f"out of fold it gains {out_of_fold:.4g}{least}")
    return Threshold(levels[best - 1], float(gain_SH[:, best].mean()), out_of_fold, error)


def fit_schedule(mean_SA: Array, masked_S: ArrayLike, fixed: int, reference: int, count: int = STAGES) -> StageSchedule:
    """Choose the action with the best mean utility in each stage of the answer.

    Actions are compared on the states where each has a utility. Ties without the fixed action go to the reference,
    then to the first.
    """
    known_A = np.isfinite(mean_SA).any(0)
    complete_S = np.isfinite(mean_SA[:, known_A]).all(1)
    stage_S = stage_numbers(masked_S, count)
    action_K, states_K = np.full(count, fixed), np.zeros(count, dtype=np.int64)
    for k in range(count):
        row_S = complete_S & (stage_S == k)
        states_K[k] = row_S.sum()
        if row_S.any():
            mean_A = np.where(known_A, mean_SA[row_S].mean(0), -np.inf)
            best_A = mean_A >= mean_A.max() - TIE
            action_K[k] = next((a for a in (fixed, reference) if best_A[a]), int(best_A.argmax()))
    return StageSchedule(action_K, states_K)


def stage_numbers(masked_S: ArrayLike, count: int = STAGES) -> Ints:
    """Compute the stage of each state from its masked fraction.

    Of four stages, 0 has more than 3/4 of the answer masked, 3 at most 1/4.
    """
    masked = np.asarray(masked_S, dtype=np.float64)
    if not ((masked >= 0) & (masked <= 1)).all():
        raise ValueError(f"masked_S has values {masked.ravel()[:3]}...; it must be fractions of the answer in [0, 1]")
    return np.minimum(np.floor(count * (1 - masked)), count - 1).astype(np.int64)


def assign_prompt_folds(prompts: int, folds: int, seed: int) -> Ints:
    """Deal prompts into folds at random, as equal in size as can be."""
    # A stream of its own: the bootstrap draws from (seed,) and (seed, 0), random states and halves from [seed, 2].
    return np.random.default_rng([seed, 1]).permutation(prompts) % min(folds, prompts)


def predict_out_of_fold(states: ValidationGains, bins: int) -> Array:
    """Predict the opportunity of each state by a detector that is fitted without the fold of its prompt."""
    predicted_S = np.full(len(states.signal_S), np.nan)
    for fold in states.folds:
        here_S = states.fold_S == fold
        # As the bins of the gate: on every state with an opportunity, whether its proposal has a utility or not.
        if np.isfinite(states.g_S[~here_S]).any():
            detector = fit_detector(states.signal_S[~here_S], states.g_S[~here_S], bins)
            predicted_S[here_S] = detector.predict(states.signal_S[here_S])
    return predicted_S


def _gains_by_threshold(states: ValidationGains, score_S: Array, levels: Sequence[float]) -> tuple[Array, Array]:
    """Return gains of used states by threshold (column 0: never), and with the threshold that other folds choose."""
    used_S = states.used_S
    # Column 0 is never, which gains nothing.
    gain_SH = states.gain_S[used_S, None] * (score_S[used_S, None] >= np.array(levels))
    gain_SH = np.pad(gain_SH, ((0, 0), (1, 0)))
    fold_S = states.fold_S[used_S]
    sum_FH = sum_by_cluster(gain_SH, fold_S, int(fold_S.max()) + 1)
    # Each fold is graded with the threshold that has the largest gain on all other folds.
    pick_F = _first_largest_column(sum_FH.sum(0) - sum_FH)
    return gain_SH, gain_SH[np.arange(len(gain_SH)), pick_F[fold_S]]


def _threshold_above_mean(detector: Detector) -> float | None:
    """Return the smallest bin prediction above the mean opportunity of all states; None if there is none."""
    known = detector.states_B > 0
    if not known.any():
        return None
    mean = np.average(detector.g_B[known], weights=detector.states_B[known])
    above = detector.g_B[known][detector.g_B[known] > mean + TIE]
    return float(above.min()) if len(above) else None


def _first_largest_column(sum_FH: Array) -> Ints:
    """Return the first column with the largest sum, up to rounding, for each row."""
    return np.asarray((sum_FH >= sum_FH.max(1, keepdims=True) - TIE).argmax(1))


def _clustered_standard_error(x_S: Array, prompt_S: Ints) -> float:
    """Compute the standard error of the mean over states, with all states of a prompt as one cluster."""
    code_S, prompts = number_prompts(prompt_S)
    sum_P = sum_by_cluster((x_S - x_S.mean())[:, None], code_S, prompts)[:, 0]
    return float(np.sqrt(prompts / max(prompts - 1, 1) * (sum_P**2).sum()) / len(x_S))


# Settings, and the file


class CalibrationSettings(Options):
    """Options for the choices made on validation states."""

    seed: int = Field(ge=0)
    """Seed of the folds of prompts."""
    proposal: Literal["raw", "snapped"] = "raw"
    """Action that thresholds are chosen for: the diagnostic's own, or the candidate nearest to it."""
    bins: int = Field(default=10, ge=1)
    stages: int = Field(default=STAGES, ge=1)
    prompt_folds: int = Field(default=5, ge=2)
    caution: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Number of standard errors that an out-of-fold gain must exceed for a threshold to be used."""
    fixed_out_of_fold: bool = True
    """Whether gains are over the fixed action that a prompt's *other* folds choose. The one that all prompts choose is
    best on these very states partly by luck, so that nothing seems to gain over it."""
    deterministic: bool = False
    """Whether rollouts cannot differ, so that one is the truth and nothing is cross-fitted."""
    rule: Literal["lift", "mean"] = "lift"
    """Rule for tau: what the proposal gains out of fold, or the mean validation opportunity."""
    fixed: Literal["one-step", "end-to-end"] = "one-step"
    """How the fixed action is chosen: one of `FIXED_BY`."""

    def with_changes(self, **changes: Any) -> "CalibrationSettings":
        """Return the settings with some of them changed."""
        return CalibrationSettings(**{**self.model_dump(), **changes})

    def to_body(self) -> dict[str, Any]:
        """Return the settings as a calibration file stores them, with its old options `theta` and `folds`."""
        body = self.model_dump()
        usual = {"rule": "lift", "fixed": "one-step"}
        later = {name: body.pop(name) for name in usual}
        deterministic = body.pop("deterministic")
        # The order of the keys is that of the bytes, which gates and studies have hashed.
        body["apart"] = body.pop("fixed_out_of_fold")  # stored name
        body |= {"theta": True, "folds": None, "deterministic": deterministic}
        return body | {name: value for name, value in later.items() if value != usual[name]}

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> "CalibrationSettings":
        """Build settings from the form that a calibration file stores."""
        renamed = {"fixed_out_of_fold" if name == "apart" else name: value for name, value in body.items()}
        return cls(**{name: value for name, value in renamed.items() if name not in ("theta", "folds")})


@dataclass(frozen=True)
class Calibration:
    """All choices made on validation prompts, before any held-out state is looked at."""

    candidates: tuple[str, ...]
    reference: int
    fixed: FixedAction
    schedule: StageSchedule
    detector: Detector
    theta: Threshold
    """Threshold of the signal below which the diagnostic abstains. It shapes the one-step experiments only."""
    tau: Threshold
    """Threshold of the detector's prediction from which the selective policy takes the diagnostic's action."""
    prompts: int
    """Number of validation prompts behind these choices."""
    settings: CalibrationSettings

    @property
    def fixed_name(self) -> str:
        return self.candidates[self.fixed.action]

    def to_json(self) -> str:
        """Write the calibration as JSON text; the same calibration gives the same bytes."""
        return to_hashed_json(FORMAT, _to_json_types(self))

    @classmethod
    def from_json(cls, text: str) -> "Calibration":
        """Build a calibration from a file's text; `HashMismatch` if it is not exactly what `to_json` wrote."""
        return from_hashed_json(
            FORMAT, text, _parse_calibration, kind="detector", to_body=_to_json_types, refusals=(ConfigError, TypeError)
        )

    @classmethod
    def load(cls, path: str | Path) -> "Calibration":
        """Read a calibration file."""
        return cls.from_json(Path(path).read_text(encoding="utf-8"))

    def agrees(self, other: "Calibration") -> bool:
        """Return whether two calibrations are equal up to rounding, which may differ between machines."""
        return _is_close(_to_json_types(self), _to_json_types(other))

    def inspect(self) -> str:
        """Describe the calibration in plain text: the fixed action, the stages, the thresholds and the bins."""
        whole = self.settings.fixed == "end-to-end"
        mean = f"{self.fixed.mean_A[self.fixed.action]:.4f}, {self.fixed.states} {'prompts' if whole else 'states'}"
        lines = [
            f"calibrated on {self.prompts} validation prompts, {self.settings.proposal} proposals",
            f"fixed action: {self.fixed_name} ({'best end to end, ' if whole else ''}mean utility {mean}); reference: "
            f"{self.candidates[self.reference]}",
            "stages, most masked first: " + ", ".join(self.candidates[a] for a in self.schedule.action_K),
            f"theta: the diagnostic acts {_describe_threshold(self.theta, 'its signal')}",
            f"tau: the selective policy deviates {_describe_threshold(self.tau, 'the expected opportunity')}",
            f"{'signal':>24}  {'states':>6}  {'positive':>8}  expected opportunity",
        ]
        edges = [-math.inf, *self.detector.start_E.tolist(), math.inf]
        open_B = self.tau.is_reached(self.detector.g_B)
        for b, (low, high) in enumerate(itertools.pairwise(edges)):
            lines.append(
                f"{f'[{low:.4g}, {high:.4g})':>24}  {self.detector.states_B[b]:>6}  {self.detector.positive_B[b]:>8}  "
                f"{self.detector.g_B[b]:+.4f}{'  deviates' if open_B[b] else ''}"
            )
        lines.append(f"{'no signal':>24}  {self.detector.without_signal:>6}  {'':>8}  never deviates")
        return "\n".join(lines)


def _describe_threshold(threshold: Threshold, what: str) -> str:
    if threshold.value is None:
        return f"never: {threshold.reason}"
    gain = f"out of fold {threshold.out_of_fold:+.4f} ± {threshold.error:.4f} a state"
    if math.isinf(threshold.value):
        return f"wherever there is a signal ({gain})"
    return f"where {what} is {threshold.value:.4g} or more ({gain})"


def _to_json_types(value: Any) -> Any:
    """Convert a calibration to JSON types, in the order of the file's fields."""
    if isinstance(value, CalibrationSettings):
        return value.to_body()
    if is_dataclass(value):
        stored = {"without_signal": "silent"}  # stored name
        return {stored.get(f.name, f.name): _to_json_types(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, np.ndarray | tuple):
        return [_to_json_types(x) for x in (value.tolist() if isinstance(value, np.ndarray) else value)]
    if isinstance(value, float) and not math.isfinite(value):
        # JSON has no infinities and no NaN.
        return None if math.isnan(value) else str(value)
    return value


def _parse_calibration(body: dict[str, Any]) -> Calibration:
    """Build a calibration from the body of its file; refuse actions or bins that do not fit together."""
    fixed, detector, schedule = body["fixed"], body["detector"], body["schedule"]
    actions = len(body["candidates"])
    start_E, g_B = _floats_from_json(detector["start_E"]), _floats_from_json(detector["g_B"])
    states_B, positive_B = (np.array(detector[name], dtype=np.int64) for name in ("states_B", "positive_B"))
    # The hash holds against accidents; a body that was hashed anew must not index beyond the candidates.
    chosen = [fixed["action"], body["reference"], *schedule["action_K"]]
    if not all(0 <= a < actions for a in chosen) or len(fixed["mean_A"]) != actions:
        raise ValueError(f"actions are {chosen} of {actions} candidates")
    if not len(g_B) == len(states_B) == len(positive_B) == len(start_E) + 1 or not (np.diff(start_E) > 0).all():
        raise ValueError(f"{len(g_B)} bins have starts {start_E.tolist()}")
    return Calibration(
        candidates=tuple(body["candidates"]),
        reference=body["reference"],
        fixed=FixedAction(fixed["action"], _floats_from_json(fixed["mean_A"]), fixed["states"], fixed["excluded"]),
        schedule=StageSchedule(*(np.array(schedule[name], dtype=np.int64) for name in ("action_K", "states_K"))),
        detector=Detector(start_E, g_B, states_B, positive_B, detector["silent"]),
        theta=_read_threshold(body["theta"]),
        tau=_read_threshold(body["tau"]),
        prompts=body["prompts"],
        settings=CalibrationSettings.from_body(body["settings"]),
    )


def _floats_from_json(values: list[Any]) -> Array:
    return np.array([math.nan if v is None else float(v) for v in values], dtype=np.float64)


def _read_threshold(entry: dict[str, Any]) -> Threshold:
    return Threshold(**{**entry, "value": None if entry["value"] is None else float(entry["value"])})


def _is_close(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_close(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_close, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return bool(one == other)
