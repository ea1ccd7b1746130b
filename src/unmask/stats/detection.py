"""Can opportunity be seen before acting? How well a score ranks held-out states, and what acting on it gains.

Section 5.2: AUROC, Spearman, precision and recall, `eq:captured_opportunity`, realised lift, and two controls: states
chosen at random, and states ranked by their true opportunity. NumPy in, numbers out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unmask.stats.bootstrap import LEVEL, RESAMPLES, Estimate, percentiles, ratio
from unmask.stats.calibration import CalibrationSettings
from unmask.stats.capture import COVERAGES, Ranked, captured_shares, top_sums
from unmask.stats.crossfit import TIE, Array, Bools
from unmask.stats.ranking import auroc, by_signal, spearman
from unmask.stats.resample import few_positive, means, resampled

DRAWS = 10_000
_CELLS = 1 << 21
"""Entries of the table of random orders held at a time."""

TIES = ("expectation", "signal")


@dataclass(frozen=True)
class ExperimentSettings:
    """How choices are made on validation states, and how held-out states are measured."""

    calibration: CalibrationSettings
    seed: int
    """Of resampled prompts and random coverage."""
    coverages: tuple[float, ...] = COVERAGES
    curve: tuple[float, ...] = field(default=tuple(k / 20 for k in range(1, 21)))
    """Coverages of the lift curve."""
    ties: str = "expectation"
    """States with one prediction: the expectation over random order, or by `signal`, the larger first."""
    draws: int = DRAWS
    resamples: int = RESAMPLES
    level: float = LEVEL

    def __post_init__(self) -> None:
        if self.ties not in TIES:
            raise ValueError(f"ties is {self.ties!r}; it must be one of {', '.join(TIES)}")
        if not all(0 < c <= 1 for c in (*self.coverages, *self.curve)):
            raise ValueError(f"coverages are {self.coverages} and {self.curve}; each must be above 0 and at most 1")
        if self.draws < 1 or self.resamples < 1 or not 0 < self.level < 1:
            raise ValueError(
                f"draws is {self.draws}, resamples {self.resamples} and level {self.level}; "
                "they must be 1 or more, 1 or more, and between 0 and 1"
            )


@dataclass(frozen=True)
class Scored:
    """Held-out states, best understood as columns: what is known before acting, and what is true."""

    score_S: Array
    """What ranks them; NaN ranks last."""
    g_S: Array
    """Cross-fitted opportunity."""
    g_FS: Array
    seen_FS: Array
    """Opportunity as fold f sees it, which ranks for the oracle; the other fold says what is gained."""
    gain_FS: Array
    """What the diagnostic's action gains over the fixed one, 0 where it keeps that."""
    acts_S: Bools
    """Where its signal reaches theta."""
    prompt_S: NDArray


@dataclass(frozen=True)
class AtCoverage:
    """What the best-ranked share c of all held-out states holds, and what acting on just them gains."""

    precision: Estimate
    """Share of them with a positive opportunity."""
    recall: Estimate
    """Share of all states with a positive opportunity that is among them."""
    captured: Estimate
    """C_det(c): their share of all opportunity. `eq:captured_opportunity`"""
    concentration: Estimate
    """C*(c): the share of the states that are best by opportunity itself."""
    efficiency: Estimate
    """C_det(c) / C*(c)."""
    lift: Estimate
    """Mean over all states of Q(chosen) - Q(fixed), with the diagnostic's action on these and the fixed on others."""
    theta_lift: Estimate
    """The same where the signal reaches theta, too; the fixed action on the other ones of these."""
    oracle_lift: Estimate
    """The lift with the states that are best by opportunity: what a perfect gate would gain with this action."""
    random_captured: Estimate
    """C(c) of states chosen at random; mean and interval over draws."""
    random_lift: Estimate


@dataclass(frozen=True)
class Curve:
    """Lift against coverage, for the detector, random states and the oracle gate."""

    coverage_C: Array
    lift_C: Array
    low_C: Array
    high_C: Array
    random_C: Array
    """Its expectation: a line from 0 to the lift of acting everywhere."""
    oracle_C: Array


@dataclass(frozen=True)
class Detection:
    """How well a score finds opportunity on held-out states."""

    auroc: Estimate
    """For the event g > 0."""
    spearman: Estimate
    """With g itself."""
    positive_rate: Estimate
    at: dict[float, AtCoverage]
    curve: Curve
    reason: str
    """Why AUROC, Spearman or capture do not exist; empty where they do."""
    unreliable: str
    """Why the intervals should not be relied on; empty where they may be."""


def detection_measures(states: Scored, settings: ExperimentSettings) -> Detection:
    """All measures, with intervals over held-out prompts; what the score was calibrated to stays as it is."""
    coverages = tuple(dict.fromkeys((*settings.coverages, *settings.curve)))
    estimates = resampled(
        lambda weight_DS: _numbers(states, coverages, weight_DS),
        states.prompt_S,
        seed=settings.seed,
        resamples=settings.resamples,
        level=settings.level,
    )
    gain_S = states.gain_FS.mean(0)
    random_captured, random_lift = random_coverage(
        np.stack([states.g_S / _total(states.g_S), gain_S / len(gain_S)], 1),
        settings.coverages,
        seed=settings.seed,
        draws=settings.draws,
        level=settings.level,
    )
    at = {
        c: AtCoverage(
            **{name: estimates[name, c] for name in _AT}, random_captured=random_captured[c], random_lift=random_lift[c]
        )
        for c in settings.coverages
    }
    return Detection(
        auroc=estimates["auroc", 0.0],
        spearman=estimates["spearman", 0.0],
        positive_rate=estimates["positive_rate", 0.0],
        at=at,
        curve=_curve(estimates, settings.curve, float(gain_S.mean())),
        reason=_reason(states),
        unreliable=few_positive(states.prompt_S, states.g_S),
    )


def random_coverage(
    value_SM: ArrayLike, coverages: Sequence[float], *, seed: int, draws: int = DRAWS, level: float = LEVEL
) -> tuple[dict[float, Estimate], ...]:
    """Sum of each column over a random share c of states: mean and interval over draws without replacement.

    As in `top_sums`, c times the number of states is not rounded. One random order serves all coverages.
    """
    value, rng = np.asarray(value_SM, dtype=np.float64), np.random.default_rng([seed, 2])
    states, at_once = len(value), max(1, _CELLS // len(value))
    first_DS = np.broadcast_to(np.arange(states), (at_once, states))
    drawn_MDC = [
        _random_sums(rng.permuted(first_DS[: draws - start], axis=1), value, coverages)
        for start in range(0, draws, at_once)
    ]
    return tuple(_over_draws(x_DC, coverages, level) for x_DC in np.concatenate(drawn_MDC, 1))


def ranks(predicted_S: Array, signal_S: Array, ties: str) -> Array:
    """The score that ranks states: the prediction, with ties left to chance or broken by the signal."""
    return by_signal(predicted_S, signal_S) if ties == "signal" else predicted_S


_AT = ("precision", "recall", "captured", "concentration", "efficiency", "lift", "theta_lift", "oracle_lift")


def _numbers(states: Scored, coverages: Sequence[float], weight_DS: Array) -> dict[tuple[str, float], Array]:
    positive_S = (states.g_S > 0).astype(np.float64)
    mass_D1 = weight_DS.sum(1, keepdims=True)
    found_DC = top_sums(states.score_S, positive_S, coverages, weight_DS)
    captured_DC = captured_shares([Ranked(states.score_S, states.g_S, weight_DS)], coverages)
    best_DC = captured_shares([Ranked(states.seen_FS[f], states.g_FS[f], weight_DS) for f in (0, 1)], coverages)
    # One fold ranks, the other one grades.
    oracle_DC = sum(top_sums(states.seen_FS[f], states.gain_FS[1 - f], coverages, weight_DS) for f in (0, 1)) / 2
    gain_S = states.gain_FS.mean(0)
    at_C = {
        "precision": found_DC / (mass_D1 * np.array(coverages)),
        "recall": ratio(found_DC, np.broadcast_to(weight_DS @ positive_S[:, None], found_DC.shape)),
        "captured": captured_DC,
        "concentration": best_DC,
        "efficiency": ratio(captured_DC, best_DC),
        "lift": top_sums(states.score_S, gain_S, coverages, weight_DS) / mass_D1,
        "theta_lift": top_sums(states.score_S, np.where(states.acts_S, gain_S, 0.0), coverages, weight_DS) / mass_D1,
        "oracle_lift": oracle_DC / mass_D1,
    }
    whole = {
        ("auroc", 0.0): auroc(states.score_S, positive_S, weight_DS),
        ("spearman", 0.0): spearman(states.score_S, states.g_S, weight_DS),
        ("positive_rate", 0.0): means(weight_DS, positive_S),
    }
    return whole | {(name, c): x_DC[:, k] for name, x_DC in at_C.items() for k, c in enumerate(coverages)}


def _total(g_S: Array) -> float:
    """All opportunity; NaN where there is none to share."""
    total = float(g_S.sum())
    return total if total > TIE * len(g_S) else float("nan")


def _curve(estimates: dict[tuple[str, float], Estimate], coverages: tuple[float, ...], always: float) -> Curve:
    lift, oracle = ([estimates[name, c] for c in coverages] for name in ("lift", "oracle_lift"))
    columns = ([e.value for e in lift], [e.low for e in lift], [e.high for e in lift])
    random = [c * always for c in coverages]
    return Curve(*(np.array(x) for x in (coverages, *columns, random, [e.value for e in oracle])))


def _random_sums(order_DS: NDArray, value_SM: Array, coverages: Sequence[float]) -> Array:
    """Sum over the first c of each random order, (M, D, C)."""
    states = len(value_SM)
    out = np.empty((value_SM.shape[1], len(order_DS), len(coverages)))
    for k, value_S in enumerate(value_SM.T):
        upto_DS = np.pad(value_S[order_DS].cumsum(1), ((0, 0), (1, 1)), mode="edge")
        upto_DS[:, 0] = 0.0
        for i, c in enumerate(coverages):
            whole = int(np.floor(c * states + TIE))
            part = max(c * states - whole, 0.0)
            out[k, :, i] = upto_DS[:, whole] + part * (upto_DS[:, whole + 1] - upto_DS[:, whole])
    return out


def _over_draws(drawn_DC: Array, coverages: Sequence[float], level: float) -> dict[float, Estimate]:
    low_C, high_C = percentiles(drawn_DC, level)
    undefined = int((~np.isfinite(drawn_DC[:, 0])).sum()) if len(coverages) else 0
    columns = zip(coverages, drawn_DC.mean(0), low_C, high_C, strict=True)
    return {c: Estimate(float(mean), float(low), float(high), undefined) for c, mean, low, high in columns}


def _reason(states: Scored) -> str:
    positive, count = int((states.g_S > 0).sum()), len(states.g_S)
    reasons = []
    if positive in (0, count):
        reasons.append(f"{positive} of {count} held-out states have a positive opportunity: AUROC needs both kinds")
    if np.isnan(spearman(states.score_S, states.g_S)[0]):
        what = "opportunities" if np.ptp(states.g_S) <= TIE else "predictions"
        reasons.append(f"all {what} are the same: Spearman needs different ones")
    if np.isnan(_total(states.g_S)):
        reasons.append("all opportunity together is 0 or less: nothing to capture a share of")
    return "; ".join(reasons)
