"""A learned detector: expected opportunity from many numbers of a state, a rival of the bins of one signal.

It begins with those bins, and a ridge regression predicts what they leave of the cross-fitted opportunity: whatever
they can say, it can, and where the other numbers say nothing it says the same. There are a few hundred states of about
a hundred prompts, and most gain nothing: a model with few effective parameters, in closed form, is what such tables
bear. Its penalty is chosen out of fold by prompt. It reads ranks among the states it was fitted to, so that, as for
quantile bins, only the order of a number counts, not its tails. Products of the signal with every other number are
among its columns, because how far the signal is to be believed may depend on the state.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from unmask.base.errors import ConfigError
from unmask.stats.fitting import (
    CalibrationSettings,
    Detector,
    Threshold,
    ValidationGains,
    assign_prompt_folds,
    choose_threshold,
    fit_detector,
    quantile_bin_starts,
)
from unmask.stats.protocol import ValidationSet, gains_out_of_fold
from unmask.stats.ranking import TIE
from unmask.stats.resampling import FEWEST_PROMPTS, Array, Bools, Ints, NotEnough, number_prompts

try:
    from sklearn import config_context
    from sklearn.linear_model import Ridge
    from sklearn.preprocessing import StandardScaler
except ModuleNotFoundError as error:
    raise ConfigError(f"the learned detector needs scikit-learn ({error}); pip install 'unmask[lab]'") from error

PENALTIES = tuple(10.0**k for k in range(6, -1, -1))
"""Ridge penalties to choose from. The largest leaves next to nothing of the weights but their order."""
_DIGITS = 12
"""Digits of a prediction. Without rounding, the order of a machine's sums would break ties."""


@dataclass(frozen=True)
class LearnedDetector:
    """A fitted learned detector: bins of the signal, and the scales and weights of the regression's columns."""

    bins: Detector
    names: tuple[str, ...]
    """Names of the columns: `signal`, the features, and `signal x` each feature."""
    sorted_N: tuple[Array, ...]
    """Sorted values of every input at the fitted states, the signal first. Ranks are taken among these."""
    mean_M: Array
    scale_M: Array
    weight_M: Array
    """Weights of the standardised columns: opportunity beyond the bin's, per standard deviation."""
    penalty: float
    states: int
    prompts: int
    tau: Threshold
    """Smallest prediction at which the gate of this detector opens."""

    def predict(self, signal_S: Array, features: pd.DataFrame) -> Array:
        """Return the expected opportunity of each state; NaN without a signal, where no action is proposed."""
        return self._predict_from_inputs(_input_table(signal_S, features))

    def _predict_from_inputs(self, inputs_SN: Array) -> Array:
        if inputs_SN.shape[1] != len(self.sorted_N):
            raise ValueError(f"there are {inputs_SN.shape[1]} inputs; this detector reads {len(self.sorted_N)}")
        column_SM = _rank_columns(inputs_SN, self.sorted_N)
        beyond_S = ((column_SM - self.mean_M) / self.scale_M * self.weight_M).sum(1)
        return np.round(self.bins.predict(inputs_SN[:, 0]) + beyond_S, _DIGITS)

    def sorted_weights(self) -> list[tuple[str, float]]:
        """List names and weights of all columns by falling absolute weight."""
        order = np.argsort(-np.abs(np.round(self.weight_M, _DIGITS)), kind="stable")
        return [(self.names[at], float(self.weight_M[at])) for at in order]


def fit_learned(
    states: ValidationSet, features: pd.DataFrame, fixed: int, settings: CalibrationSettings
) -> LearnedDetector:
    """Fit bins of the signal, and a ridge regression that corrects them, to validation states.

    Opportunity, folds of prompts and the rule that chooses the gate's threshold tau are those of a detector of bins.
    `features` has a row per state and a column per number that is known before acting, NaN where one is not. The
    predictions that choose tau are out of fold: a state's comes from a detector, penalty included, that saw none of its
    prompt's fold.
    """
    gains = gains_out_of_fold(states, fixed, settings)
    inputs_SN, fitted_S = _input_table(gains.signal_S, features), np.isfinite(gains.g_S) & ~np.isnan(gains.signal_S)
    names = ("signal", *map(str, features), *(f"signal x {name}" for name in features))
    there = len(np.unique(gains.prompt_S[fitted_S]))
    if there < FEWEST_PROMPTS:
        raise NotEnough(
            f"{there} validation prompts have a state with a signal; {FEWEST_PROMPTS} or more are needed to learn"
        )
    predicted_S = np.full(len(fitted_S), np.nan)
    # Inputs are checked above; without this, checking them takes longer than fitting.
    with config_context(assume_finite=True, skip_parameter_validation=True):
        for fold in gains.folds:
            here_S = gains.fold_S == fold
            detector = _fit_ridge(names, inputs_SN, gains, fitted_S & ~here_S, settings)
            predicted_S[here_S] = detector._predict_from_inputs(inputs_SN[here_S])
        fitted = _fit_ridge(names, inputs_SN, gains, fitted_S, settings)
    # Thresholds to choose from are as many quantiles of the predictions as there are bins, and always.
    levels = [*quantile_bin_starts(predicted_S[gains.used_S], settings.bins)[::-1].tolist(), -np.inf]
    return replace(fitted, tau=choose_threshold(gains, predicted_S, levels, settings.caution))


def _fit_ridge(
    names: tuple[str, ...], inputs_SN: Array, gains: ValidationGains, these_S: Bools, settings: CalibrationSettings
) -> LearnedDetector:
    """Fit the ridge regression to some states, with the penalty that does best out of fold among them."""
    x_SN, g_S = inputs_SN[these_S], gains.g_S[these_S]
    prompt_S, prompts = number_prompts(gains.prompt_S[these_S])
    bins = fit_detector(x_SN[:, 0], g_S, settings.bins)
    left_S = g_S - bins.predict(x_SN[:, 0])
    # Ranks among these states alone: held-out states must not change the scale that weights were fitted on.
    sorted_N = tuple(np.sort(x_S[~np.isnan(x_S)]) for x_S in x_SN.T)
    scaler = StandardScaler().fit(_rank_columns(x_SN, sorted_N))
    standard_SM = scaler.transform(_rank_columns(x_SN, sorted_N))
    penalty = _choose_penalty(
        standard_SM, left_S, assign_prompt_folds(prompts, settings.prompt_folds, settings.seed)[prompt_S]
    )
    # What the bins leave has mean 0, and so have the columns: no intercept.
    ridge = Ridge(alpha=penalty, fit_intercept=False).fit(standard_SM, left_S)
    return LearnedDetector(
        bins=bins,
        names=names,
        sorted_N=sorted_N,
        mean_M=scaler.mean_,
        scale_M=scaler.scale_,
        weight_M=ridge.coef_,
        penalty=penalty,
        states=len(g_S),
        prompts=prompts,
        tau=Threshold(None),
    )


def _choose_penalty(column_SM: Array, left_S: Array, fold_S: Ints) -> float:
    """Choose the penalty with the smallest squared error out of fold; of equal ones the largest."""
    if fold_S.max() == 0:
        return PENALTIES[0]
    error = np.zeros(len(PENALTIES))
    for fold in range(int(fold_S.max()) + 1):
        rest_S, here_S = fold_S != fold, fold_S == fold
        # One target for each penalty: all are solved together.
        ridge = Ridge(alpha=np.array(PENALTIES)).fit(column_SM[rest_S], np.tile(left_S[rest_S, None], len(PENALTIES)))
        error += ((ridge.predict(column_SM[here_S]) - left_S[here_S, None]) ** 2).sum(0)
    return PENALTIES[int((error <= error.min() * (1 + TIE) + TIE).argmax())]


def _input_table(signal_S: Array, features: pd.DataFrame) -> Array:
    """Build the table of inputs, a row per state, with the signal in the first column."""
    value_SN = features.to_numpy(dtype=np.float64)
    if len(value_SN) != len(signal_S) or np.isinf(value_SN).any():
        raise ValueError(f"features have {len(value_SN)} rows for {len(signal_S)} states, or infinite values; use NaN")
    return np.column_stack([signal_S, value_SN])


def _rank_columns(inputs_SN: Array, sorted_N: Sequence[Array]) -> Array:
    """Build the columns of the regression: ranks from -1 to 1 (0 if unknown), and their products with the signal's."""
    rank_SN = np.stack([_rank_among_known(x_S, known) for x_S, known in zip(inputs_SN.T, sorted_N, strict=True)], 1)
    return np.column_stack([rank_SN, rank_SN[:, :1] * rank_SN[:, 1:]])


def _rank_among_known(x_S: Array, known: Array) -> Array:
    """Rank numbers among known values, from -1 to 1: the share of values below less the share above; 0 for NaN."""
    if not len(known):
        return np.zeros(len(x_S))
    below_S, upto_S = (np.searchsorted(known, x_S, side=side) for side in ("left", "right"))
    return np.where(np.isnan(x_S), 0.0, (below_S + upto_S) / len(known) - 1.0)
