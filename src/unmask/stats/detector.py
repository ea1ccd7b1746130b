"""The opportunity detector: which states are worth deviating at, by a lookup of the diagnostic's signal.

Validation states are cut into bins at quantiles of the signal; a bin predicts the mean opportunity of its states
(`eq:opportunity_detector`). Two thresholds come from the same states: theta, the signal below which the diagnostic
abstains, and tau, the predicted opportunity from which on the selective policy deviates (`eq:selective_policy`).
NumPy in, numbers out; docs/detection.md says why it is done this way.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from unmask.stats.bootstrap import cluster_sums, codes
from unmask.stats.capture import rounded
from unmask.stats.crossfit import TIE, Array, Bools, Ints, mean_of
from unmask.stats.estimates import stages
from unmask.stats.tables import Graded, ValidationTable, only_validation


@dataclass(frozen=True)
class Detector:
    """Bins of the signal. Bin b starts at `start_E[b - 1]` and ends before the next; the first has no start."""

    start_E: Array
    g_B: Array
    """Mean cross-fitted opportunity of the validation states in each bin; NaN without any state."""
    states_B: Ints
    positive_B: Ints
    """How many of them have a positive one."""
    silent: int
    """Validation states without a signal; they are in no bin."""

    def bin_of(self, signal_S: ArrayLike) -> Ints:
        """The bin of each signal, -1 for NaN. Signals beyond all that were seen go to the end bins."""
        signal = np.asarray(signal_S, dtype=np.float64)
        return np.where(np.isnan(signal), -1, np.searchsorted(self.start_E, signal, side="right"))

    def predict(self, signal_S: ArrayLike) -> Array:
        """Expected opportunity. NaN where there is no signal: none is expected, it ranks last and opens no gate."""
        bin_S = self.bin_of(signal_S)
        return np.where(bin_S < 0, np.nan, self.g_B[bin_S])


@dataclass(frozen=True)
class Threshold:
    """From where on to act: None is never, -inf is wherever there is a signal."""

    value: float | None
    lift: float
    """Mean gain over the fixed action on validation states; the threshold was chosen for it, so it flatters."""
    out_of_fold: float
    """The same where each fold of prompts uses the threshold that the other folds choose; this one does not."""
    error: float
    """Standard error of `out_of_fold` over prompts."""
    reason: str
    """Why never; empty otherwise."""

    def active(self, score_S: ArrayLike) -> Bools:
        """Where to act; not where the score is NaN."""
        score = np.asarray(score_S, dtype=np.float64)
        if self.value is None:
            return np.zeros(score.shape, dtype=np.bool_)
        return np.asarray(score >= self.value)


@dataclass(frozen=True)
class Schedule:
    """The stage-only baseline: one action for each stage, whatever the state."""

    action_K: Ints
    states_K: Ints

    def actions(self, masked_S: ArrayLike) -> Ints:
        """The action of each state by its masked fraction."""
        return self.action_K[stages(masked_S, len(self.action_K))]


@dataclass(frozen=True)
class OutOfFold:
    """What a gate gains over the fixed action at each validation state, its threshold chosen on other prompts."""

    gain_S: Array
    """Its mean is `Threshold.out_of_fold`."""
    prompt_S: Ints


def fit_detector(seen: Graded[ValidationTable], bins: int) -> Detector:
    """Quantile bins of the signal with their mean opportunity. `eq:opportunity_detector`"""
    only_validation(seen.table)
    used = seen.fit.used_S
    return binned(seen.table.signal_S[used], seen.fit.g_S[used], bins)


def fit_theta(seen: Graded[ValidationTable], bins: int, *, folds: int, caution: float, seed: int) -> Threshold:
    """The action threshold: below it the diagnostic abstains. It is one of the starts of the bins, or none."""
    only_validation(seen.table)
    used, signal_S = seen.used_S, seen.table.signal_S
    levels = [*quantile_starts(signal_S[used], bins)[::-1].tolist(), -np.inf]
    prompt_S, prompts = codes(seen.table.prompt_S)
    fold_S = prompt_folds(prompts, folds, seed)[prompt_S]
    return choose_threshold(signal_S[used], seen.gain_S[used], prompt_S[used], fold_S[used], levels, caution)


def fit_gate(seen: Graded[ValidationTable], bins: int, *, folds: int, caution: float, seed: int) -> Threshold:
    """The gate threshold tau of `eq:selective_policy`, by what it gains where predictions are out of fold.

    A state's prediction comes from a detector that saw none of its prompt's fold. Thresholds lie halfway between the
    predictions of neighbouring bins, so that the small differences between those detectors do not decide.
    """
    only_validation(seen.table)
    used = seen.used_S
    if not used.any():
        return _never("no validation state has the utilities of the fixed action and the proposal")
    positive = int((seen.fit.g_S[used] > 0).sum())
    if positive in (0, used.sum()):
        which = "no" if positive == 0 else "every"
        return _never(f"{which} validation state has a positive opportunity: there is nothing to tell apart")
    return choose_threshold(*_gate_scores(seen, bins, folds, seed), caution)


def fit_mean_gate(seen: Graded[ValidationTable], bins: int, *, folds: int, caution: float, seed: int) -> Threshold:
    """Tau as the mean validation opportunity: the gate opens in bins above it.

    The mean is that of all states in bins. It asks nothing of the proposal, so that a gate may open and lose; what it
    gains out of fold is measured all the same. `caution` has no say here.
    """
    only_validation(seen.table)
    detector = fit_detector(seen, bins)
    tau = _above_mean(detector)
    if tau is None:
        return _never("no bin has an opportunity above the mean of validation states")
    used = seen.used_S
    opens_S = detector.predict(seen.table.signal_S)[used] >= tau
    gains = mean_gate_gains(seen, bins, folds=folds, seed=seed)
    error = _cluster_error(gains.gain_S, gains.prompt_S)
    return Threshold(tau, float((seen.gain_S[used] * opens_S).mean()), float(gains.gain_S.mean()), error, "")


def mean_gate_gains(seen: Graded[ValidationTable], bins: int, *, folds: int, seed: int) -> OutOfFold:
    """The gains behind `fit_mean_gate`'s out-of-fold lift: bins and mean are those of the other folds."""
    only_validation(seen.table)
    used, signal_S = seen.used_S, seen.table.signal_S
    prompt_S, prompts = codes(seen.table.prompt_S)
    fold_S = prompt_folds(prompts, folds, seed)[prompt_S]
    opens_S = np.zeros(len(signal_S), dtype=np.bool_)
    for k in range(fold_S.max() + 1):
        rest = seen.fit.used_S & (fold_S != k)
        detector = binned(signal_S[rest], seen.fit.g_S[rest], bins)
        tau = _above_mean(detector)
        if tau is not None:
            opens_S[fold_S == k] = detector.predict(signal_S[fold_S == k]) >= tau
    return OutOfFold(np.where(opens_S, seen.gain_S, 0.0)[used], prompt_S[used])


def _above_mean(detector: Detector) -> float | None:
    """The smallest opportunity of a bin that is above the mean of its states; None if no bin is."""
    known = detector.states_B > 0
    if not known.any():
        return None
    mean = np.average(detector.g_B[known], weights=detector.states_B[known])
    above = detector.g_B[known][detector.g_B[known] > mean + TIE]
    return float(above.min()) if len(above) else None


def gate_gains(seen: Graded[ValidationTable], bins: int, *, folds: int, seed: int) -> OutOfFold:
    """The gains behind `fit_gate`'s out-of-fold lift; prompts are numbered, and states without utilities left out."""
    only_validation(seen.table)
    scores = _gate_scores(seen, bins, folds, seed)
    _, graded_S = _graded(*scores)
    return OutOfFold(graded_S, scores[2])


def fit_schedule(seen: Graded[ValidationTable], count: int) -> Schedule:
    """The best mean utility in each stage; the fixed action where a stage is empty or the fixed action is as good.

    As in `choose_fixed`, actions are compared on the states where each has a utility. Ties without the fixed action go
    to the reference, then to the first.
    """
    only_validation(seen.table)
    mean_SA = mean_of(seen.table.q_SAR)
    known_A = np.isfinite(mean_SA).any(0)
    complete_S = np.isfinite(mean_SA[:, known_A]).all(1)
    stage_S = stages(seen.table.masked_S, count)
    action_K, states_K = np.full(count, seen.fixed), np.zeros(count, dtype=np.int64)
    for k in range(count):
        row_S = complete_S & (stage_S == k)
        states_K[k] = row_S.sum()
        if row_S.any():
            mean_A = np.where(known_A, mean_SA[row_S].mean(0), -np.inf)
            best_A = mean_A >= mean_A.max() - TIE
            action_K[k] = next((a for a in (seen.fixed, seen.table.reference) if best_A[a]), int(best_A.argmax()))
    return Schedule(action_K, states_K)


def prompt_folds(prompts: int, folds: int, seed: int) -> Ints:
    """The fold of each prompt: as equal in size as can be, drawn at random."""
    return np.random.default_rng([seed, 1]).permutation(prompts) % min(folds, prompts)


def binned(signal_S: Array, g_S: Array, bins: int) -> Detector:
    """Quantile bins of some states with their mean opportunity; who calls it vouches for where they are from."""
    known_S = ~np.isnan(signal_S)
    start_E = quantile_starts(signal_S, bins)
    bin_S = np.searchsorted(start_E, signal_S[known_S], side="right")
    columns = np.stack([np.ones(len(bin_S)), g_S[known_S] > 0, g_S[known_S]], 1)
    states_B, positive_B, total_B = cluster_sums(columns, bin_S, len(start_E) + 1).T
    mean_B = np.divide(total_B, states_B, out=np.full(len(states_B), np.nan), where=states_B > 0)
    return Detector(start_E, mean_B, states_B.astype(np.int64), positive_B.astype(np.int64), int((~known_S).sum()))


def quantile_starts(signal_S: Array, bins: int) -> Array:
    """Where bins after the first start: order statistics, so that equal signals share a bin and no bin is empty."""
    known = np.sort(signal_S[~np.isnan(signal_S)])
    if not len(known):
        return known
    start_E = np.unique(known[np.arange(1, bins) * len(known) // bins])
    return start_E[start_E > known[0]]


def _gate_scores(
    seen: Graded[ValidationTable], bins: int, folds: int, seed: int
) -> tuple[Array, Array, Ints, Ints, list[float]]:
    """Of the states that count: predictions out of fold, gains, prompts, folds; and the thresholds to choose from."""
    used, signal_S = seen.used_S, seen.table.signal_S
    prompt_S, prompts = codes(seen.table.prompt_S)
    fold_S = prompt_folds(prompts, folds, seed)[prompt_S]
    predicted_S = np.full(len(signal_S), np.nan)
    for k in range(fold_S.max() + 1):
        rest = used & (fold_S != k)
        if rest.any():
            predicted_S[fold_S == k] = binned(signal_S[rest], seen.fit.g_S[rest], bins).predict(signal_S[fold_S == k])
    return predicted_S[used], seen.gain_S[used], prompt_S[used], fold_S[used], gate_levels(fit_detector(seen, bins))


def gate_levels(detector: Detector) -> list[float]:
    """The thresholds that tell the detector's bins apart, from the highest, and last the one that is always open."""
    distinct = np.unique(rounded(detector.g_B[np.isfinite(detector.g_B)]))
    return [*((distinct[1:] + distinct[:-1]) / 2)[::-1].tolist(), -np.inf]


def _graded(score_S: Array, gain_S: Array, prompt_S: Ints, fold_S: Ints, levels: list[float]) -> tuple[Array, Array]:
    """Gains under never and every threshold, and those of the threshold that the other folds choose."""
    # Column 0 is never, which gains nothing.
    gain_SH = np.pad(gain_S[:, None] * (score_S[:, None] >= np.array(levels)), ((0, 0), (1, 0)))
    sum_FH = cluster_sums(gain_SH, fold_S, int(fold_S.max()) + 1)
    pick_F = _largest(sum_FH.sum(0) - sum_FH)
    return gain_SH, gain_SH[np.arange(len(gain_SH)), pick_F[fold_S]]


def choose_threshold(
    score_S: Array, gain_S: Array, prompt_S: Ints, fold_S: Ints, levels: list[float], caution: float
) -> Threshold:
    """The threshold with the largest mean gain, if choosing so pays on prompts that did not choose; else never.

    `levels` are from the highest to the lowest; of equal gains the highest counts, which deviates least.
    """
    if not len(score_S) or len(np.unique(fold_S)) < 2:
        return _never("there are fewer than 2 validation prompts with utilities: no fold could choose for another")
    gain_SH, graded_S = _graded(score_S, gain_S, prompt_S, fold_S, levels)
    out_of_fold, error = float(graded_S.mean()), _cluster_error(graded_S, prompt_S)
    best = int(_largest(gain_SH.sum(0, keepdims=True))[0])
    if best == 0:
        return Threshold(None, 0.0, out_of_fold, error, "no threshold gains anything on validation states")
    if out_of_fold <= caution * error + TIE:
        least = f", not more than {caution:g} standard errors of {error:.4g}" if caution else ""
        return Threshold(None, 0.0, out_of_fold, error, f"out of fold it gains {out_of_fold:.4g}{least}")
    return Threshold(levels[best - 1], float(gain_SH[:, best].mean()), out_of_fold, error, "")


def _largest(sum_FH: Array) -> Ints:
    """The first column with the largest sum, up to rounding."""
    return np.asarray((sum_FH >= sum_FH.max(1, keepdims=True) - TIE).argmax(1))


def _cluster_error(x_S: Array, prompt_S: Ints) -> float:
    """Standard error of the mean over states where prompts are what was drawn."""
    code_S, prompts = codes(prompt_S)
    sum_P = cluster_sums((x_S - x_S.mean())[:, None], code_S, prompts)[:, 0]
    return float(np.sqrt(prompts / max(prompts - 1, 1) * (sum_P**2).sum()) / len(x_S))


def _never(reason: str) -> Threshold:
    return Threshold(None, 0.0, 0.0, 0.0, reason)
