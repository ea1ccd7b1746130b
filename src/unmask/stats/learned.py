"""A learned detector: expected opportunity from many numbers of a state, a rival of the bins of one signal.

It begins with those bins, and a ridge regression predicts what they leave of the cross-fitted opportunity: whatever
they can say, it can, and where the other numbers say nothing it says the same. There are a few hundred states of about
a hundred prompts, and most gain nothing: a model with few effective parameters, in closed form, is what such tables
bear. Its penalty is chosen out of fold by prompt. It reads ranks among the states it was fitted to, so that, as for
quantile bins, only the order of a number counts, not its tails. Products of the signal with every other number are
among its columns, because how far the signal is to be believed may depend on the state. NumPy in, numbers out;
scikit-learn is the extra `learned`.
"""

from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unmask.stats.bootstrap import codes
from unmask.stats.calibration import CalibrationSettings, graded_apart
from unmask.stats.crossfit import TIE, Array, Bools, Ints
from unmask.stats.detector import Detector, Threshold, binned, choose_threshold, prompt_folds, quantile_starts
from unmask.stats.errors import MissingExtra, NotEnough
from unmask.stats.opportunity import FEWEST
from unmask.stats.tables import Graded, T, ValidationTable, only_validation

PENALTIES = tuple(10.0**k for k in range(6, -1, -1))
"""Of squared weights of standardised columns, beside the sum of squared errors over states; the first leaves next to
nothing but the order."""
_DIGITS = 12
"""Predictions are rounded to these: how a machine sums must not break ties."""


@dataclass(frozen=True)
class Featured(Generic[T]):
    """A table with numbers of its states, all known before acting."""

    table: T
    names: tuple[str, ...]
    value_SN: Array
    """NaN where one is not known."""

    def __post_init__(self) -> None:
        value = np.array(self.value_SN, dtype=np.float64)
        if value.shape != (len(self.table), len(self.names)) or len(set(self.names)) != len(self.names):
            raise ValueError(
                f"value_SN has shape {value.shape} and names are {self.names}; there must be a row for each of "
                f"{len(self.table)} states and a column for each name, no name twice"
            )
        if np.isinf(value).any():
            raise ValueError("value_SN has infinite values; write NaN where a number is not known")
        value.setflags(write=False)
        object.__setattr__(self, "value_SN", value)

    @property
    def inputs_SN(self) -> Array:
        """The signal first."""
        return np.column_stack([self.table.signal_S, self.value_SN])


@dataclass(frozen=True)
class LearnedDetector:
    """Plain numbers: the bins, and what each column is compared with and weighs."""

    bins: Detector
    names: tuple[str, ...]
    """Of the columns: `signal`, the numbers, and `signal x` each number."""
    sorted_N: tuple[Array, ...]
    """Known values of every input at the states it was fitted to, the signal first; ranks are among these."""
    mean_M: Array
    scale_M: Array
    weight_M: Array
    """Of standardised columns: opportunity beyond the bin's per standard deviation."""
    penalty: float
    states: int
    prompts: int

    def predict(self, inputs_SN: Array) -> Array:
        """Expected opportunity. NaN where there is no signal, as for bins: no action is proposed there."""
        if inputs_SN.shape[1] != len(self.sorted_N):
            raise ValueError(f"inputs have {inputs_SN.shape[1]} columns; this detector reads {len(self.sorted_N)}")
        column_SM = _columns(inputs_SN, self.sorted_N)
        beyond_S = ((column_SM - self.mean_M) / self.scale_M * self.weight_M).sum(1)
        return np.round(self.bins.predict(inputs_SN[:, 0]) + beyond_S, _DIGITS)


@dataclass(frozen=True)
class LearnedGate:
    """A learned detector, and from which prediction on its gate opens."""

    detector: LearnedDetector
    tau: Threshold

    def opens(self, predicted_S: ArrayLike, abstained_S: Bools) -> Bools:
        return self.tau.active(predicted_S) & ~abstained_S


def fit_learned(validation: Featured[ValidationTable], fixed: int, settings: CalibrationSettings) -> LearnedGate:
    """Fit to validation states as the bins are: same opportunity, same folds of prompts, same rule for tau.

    Predictions that choose tau are out of fold: a state's comes from a detector, penalty included, that saw none of its
    prompt's fold.
    """
    only_validation(validation.table)
    seen = graded_apart(validation.table, fixed, settings)
    inputs_SN, fitted_S = validation.inputs_SN, seen.fit.used_S & ~np.isnan(validation.table.signal_S)
    prompt_S, prompts = codes(validation.table.prompt_S)
    there = len(np.unique(prompt_S[fitted_S]))
    if there < FEWEST:
        raise NotEnough(f"{there} validation prompts have a state with a signal; {FEWEST} or more are needed to learn")
    fold_S = prompt_folds(prompts, settings.prompt_folds, settings.seed)[prompt_S]
    predicted_S = np.full(len(fold_S), np.nan)
    for fold in range(int(fold_S.max()) + 1):
        rest_S, here_S = fitted_S & (fold_S != fold), fold_S == fold
        predicted_S[here_S] = _fitted(validation.names, inputs_SN, seen, rest_S, settings).predict(inputs_SN[here_S])
    detector = _fitted(validation.names, inputs_SN, seen, fitted_S, settings)
    return LearnedGate(detector, _tau(seen, predicted_S, prompt_S, fold_S, settings))


def _tau(
    seen: Graded[ValidationTable], predicted_S: Array, prompt_S: Ints, fold_S: Ints, settings: CalibrationSettings
) -> Threshold:
    """Thresholds to choose from are as many quantiles of the predictions as there are bins, and always."""
    used = seen.used_S
    levels = [*quantile_starts(predicted_S[used], settings.bins)[::-1].tolist(), -np.inf]
    return choose_threshold(
        predicted_S[used], seen.gain_S[used], prompt_S[used], fold_S[used], levels, settings.caution
    )


def _fitted(
    names: tuple[str, ...],
    inputs_SN: Array,
    seen: Graded[ValidationTable],
    these_S: Bools,
    settings: CalibrationSettings,
) -> LearnedDetector:
    """Ridge regression on some states, with the penalty that does best out of fold among them."""
    Ridge, StandardScaler = _scikit_learn()
    x_SN, g_S = inputs_SN[these_S], seen.fit.g_S[these_S]
    prompt_S, prompts = codes(seen.table.prompt_S[these_S])
    bins = binned(x_SN[:, 0], g_S, settings.bins)
    left_S = g_S - bins.predict(x_SN[:, 0])
    sorted_N = tuple(np.sort(x_S[~np.isnan(x_S)]) for x_S in x_SN.T)
    column_SM = _columns(x_SN, sorted_N)
    scaler = StandardScaler().fit(column_SM)
    standard_SM = scaler.transform(column_SM)
    penalty = _penalty(standard_SM, left_S, prompt_folds(prompts, settings.prompt_folds, settings.seed)[prompt_S])
    # What the bins leave has mean 0, and so have the columns: no intercept.
    ridge = Ridge(alpha=penalty, fit_intercept=False).fit(standard_SM, left_S)
    return LearnedDetector(
        bins=bins,
        names=("signal", *names, *(f"signal x {name}" for name in names)),
        sorted_N=sorted_N,
        mean_M=scaler.mean_,
        scale_M=scaler.scale_,
        weight_M=ridge.coef_,
        penalty=penalty,
        states=len(g_S),
        prompts=prompts,
    )


def _penalty(column_SM: Array, left_S: Array, fold_S: Ints) -> float:
    """The one with the smallest squared error at states of other folds; of equal ones, or without any, the largest."""
    if fold_S.max() == 0:
        return PENALTIES[0]
    Ridge, _ = _scikit_learn()
    error = np.zeros(len(PENALTIES))
    for fold in range(int(fold_S.max()) + 1):
        rest_S, here_S = fold_S != fold, fold_S == fold
        # One target for each penalty: all are solved together.
        ridge = Ridge(alpha=np.array(PENALTIES)).fit(column_SM[rest_S], np.tile(left_S[rest_S, None], len(PENALTIES)))
        error += ((ridge.predict(column_SM[here_S]) - left_S[here_S, None]) ** 2).sum(0)
    return PENALTIES[int((error <= error.min() * (1 + TIE) + TIE).argmax())]


def _columns(inputs_SN: Array, sorted_N: tuple[Array, ...]) -> Array:
    """Ranks from -1 to 1, 0 where a number is not known, and their products with the signal's."""
    rank_SN = np.stack([_ranks(x_S, known) for x_S, known in zip(inputs_SN.T, sorted_N, strict=True)], 1)
    return np.column_stack([rank_SN, rank_SN[:, :1] * rank_SN[:, 1:]])


def _ranks(x_S: Array, known: Array) -> Array:
    """Share of the known values below less share above: of equal ones the middle."""
    if not len(known):
        return np.zeros(len(x_S))
    below_S, upto_S = (np.searchsorted(known, x_S, side=side) for side in ("left", "right"))
    return np.where(np.isnan(x_S), 0.0, (below_S + upto_S) / len(known) - 1.0)


def _scikit_learn() -> tuple[Any, Any]:
    """Loaded only where something is learned."""
    try:
        from sklearn.linear_model import Ridge
        from sklearn.preprocessing import StandardScaler
    except ImportError as error:
        raise MissingExtra(
            f"the learned detector is fitted with scikit-learn, which cannot be loaded ({error}); allowed: version 1.4 "
            "or newer; pip install 'unmask[lab]'"
        ) from error
    return Ridge, StandardScaler


def weights(detector: LearnedDetector) -> list[tuple[str, float]]:
    """Names and weights of all columns, the largest first, whatever their sign."""
    order: NDArray = np.argsort(-np.abs(np.round(detector.weight_M, _DIGITS)), kind="stable")
    return [(detector.names[at], float(detector.weight_M[at])) for at in order]
