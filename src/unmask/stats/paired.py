"""Means over prompts, and differences on the same prompts, with bootstrap intervals.

Prompts are what is drawn at random, so prompts are resampled: whole rows of `x_PA`, one column per policy, so that
policies stay paired in every replicate. NumPy in, numbers out. NaN is a missing value: it leaves the mean and the
count, and never counts as 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

RESAMPLES = 2000
_CELLS = 1 << 22
"""Entries of the table of counts held at a time: 32 MiB."""


@dataclass(frozen=True)
class Interval:
    """A mean and its percentile interval; NaN where there is nothing to average."""

    mean: float
    low: float
    high: float
    n: int
    """Prompts behind it."""

    @property
    def positive(self) -> bool:
        """The whole interval lies above zero."""
        return self.low > 0


def mean_interval(x_P: ArrayLike, *, seed: int, resamples: int = RESAMPLES, level: float = 0.95) -> Interval:
    """Mean over prompts."""
    return mean_intervals(_vector("x_P", x_P)[:, None], seed=seed, resamples=resamples, level=level)[0]


def paired_difference(
    a_P: ArrayLike, b_P: ArrayLike, *, seed: int, resamples: int = RESAMPLES, level: float = 0.95
) -> Interval:
    """Mean of a - b over the prompts that have both."""
    a, b = _vector("a_P", a_P), _vector("b_P", b_P)
    if len(a) != len(b):
        raise ValueError(f"a_P has {len(a)} prompts and b_P {len(b)}; they must be the same prompts, in one order")
    return mean_interval(a - b, seed=seed, resamples=resamples, level=level)


def mean_intervals(
    x_PA: ArrayLike, *, seed: int, resamples: int = RESAMPLES, level: float = 0.95
) -> tuple[Interval, ...]:
    """Mean of every column, all from the same resampled prompts."""
    return macro_intervals([_table(x_PA)], seed=seed, resamples=resamples, level=level)


def paired_differences(
    x_PA: ArrayLike, reference: int, *, seed: int, resamples: int = RESAMPLES, level: float = 0.95
) -> tuple[Interval, ...]:
    """Mean of every column less the reference's, over the prompts that have both."""
    return mean_intervals(against(x_PA, reference), seed=seed, resamples=resamples, level=level)


def macro_intervals(
    tables: Sequence[ArrayLike], *, seed: int, resamples: int = RESAMPLES, level: float = 0.95
) -> tuple[Interval, ...]:
    """Mean over tasks of the mean over prompts, for every column; tasks are fixed, prompts are resampled in each.

    A column without any value in some task has no such mean. `n` counts the prompts of all tasks.
    """
    found = [_table(x_PA) for x_PA in tables]
    if len({x_PA.shape[1] for x_PA in found}) != 1:
        raise ValueError(f"tables have {[x.shape[1] for x in found]} columns; pass one or more tables, as many in each")
    if not (resamples >= 1 and 0 < level < 1):
        raise ValueError(f"resamples is {resamples} and level {level}; they must be >= 1 and between 0 and 1")
    means_A = np.mean([_means(np.ones((1, len(x_PA))), x_PA)[0] for x_PA in found], 0)
    count_A = np.sum([np.isfinite(x_PA).sum(0) for x_PA in found], 0)
    drawn_RA = np.mean([replicates(x_PA, seed=(seed, k), resamples=resamples) for k, x_PA in enumerate(found)], 0)
    low_A, high_A = _percentiles(drawn_RA, level)
    return tuple(
        Interval(float(m), float(low), float(high), int(n))
        for m, low, high, n in zip(means_A, low_A, high_A, count_A, strict=True)
    )


def against(x_PA: ArrayLike, reference: int) -> Array:
    """Every column less the reference's; NaN where either is."""
    x = _table(x_PA)
    if not 0 <= reference < x.shape[1]:
        raise ValueError(f"reference is {reference}; the table has columns 0..{x.shape[1] - 1}")
    return np.asarray(x - x[:, [reference]])


def replicates(x_PA: ArrayLike, *, seed: int | Sequence[int], resamples: int) -> Array:
    """Column means of resampled prompts, (resamples, A); NaN in a replicate that drew no value of a column."""
    x, rng = _table(x_PA), np.random.default_rng(seed)
    prompts = len(x)
    if prompts == 0:
        return np.full((resamples, x.shape[1]), np.nan)
    parts, at_once = [], max(1, _CELLS // prompts)
    for start in range(0, resamples, at_once):
        rows = min(at_once, resamples - start)
        drawn = rng.integers(prompts, size=(rows, prompts)) + prompts * np.arange(rows)[:, None]
        weight_RP = np.bincount(drawn.ravel(), minlength=rows * prompts).reshape(rows, prompts)
        parts.append(_means(weight_RP.astype(np.float64), x))
    return np.concatenate(parts)


def _means(weight_RP: Array, x_PA: Array) -> Array:
    known_PA = np.isfinite(x_PA)
    total_RA, mass_RA = weight_RP @ np.where(known_PA, x_PA, 0.0), weight_RP @ known_PA.astype(np.float64)
    return np.divide(total_RA, mass_RA, out=np.full_like(total_RA, np.nan), where=mass_RA > 0)


def _percentiles(drawn_RA: Array, level: float) -> Array:
    """Both ends for every column, over the replicates that are defined."""
    ends = [50 * (1 - level), 50 * (1 + level)]
    out = np.full((2, drawn_RA.shape[1]), np.nan)
    some_A = np.isfinite(drawn_RA).any(0)
    if some_A.any():
        out[:, some_A] = np.nanpercentile(drawn_RA[:, some_A], ends, axis=0)
    return out


def _vector(name: str, value_P: ArrayLike) -> Array:
    value = np.asarray(value_P, dtype=np.float64)
    if value.ndim != 1 or np.isinf(value).any():
        raise ValueError(f"{name} has shape {value.shape}; it must be one number per prompt, finite or NaN")
    return value


def _table(x_PA: ArrayLike) -> Array:
    x = np.asarray(x_PA, dtype=np.float64)
    if x.ndim != 2 or x.shape[1] == 0 or np.isinf(x).any():
        raise ValueError(f"x_PA has shape {x.shape}; it must be prompts by columns, finite or NaN")
    return x
