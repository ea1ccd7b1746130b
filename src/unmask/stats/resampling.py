"""Numbers with intervals from resampled prompts. Needs NumPy alone.

The states of a prompt share its difficulty, so prompts are drawn whole. A resample is a vector of counts: how often
each prompt was drawn. A ratio of sums over states is then one matrix product of counts (D resamples by P prompts) and
sums (P prompts by M columns).

Letters: D resamples, P prompts, S states, A policies, M numbers, T tasks.
"""

import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Key = TypeVar("Key", bound=Hashable)

RESAMPLES = 1000
PROMPT_RESAMPLES = 2000
"""Resamples for means of one number per prompt, which are quick."""
LEVEL = 0.95
FEWEST_PROMPTS = 10
"""Fewest prompts with a positive opportunity for a reliable interval; docs/protocol.md shows why."""
MAX_ENTRIES = 1 << 21
"""Limit on the entries of an array held at a time: 16 MiB. A statistic may hold a few such arrays."""


class NotEnough(ValueError):
    """Error for data too small for a quantity: no usable state, one rollout, nothing to average.

    A caller may report a missing number with this message. A wrong shape or value is a plain ValueError.
    """


@dataclass(frozen=True)
class Estimate:
    """A number with its percentile interval; NaN where it does not exist."""

    value: float
    low: float
    high: float
    undefined: int = 0
    """Resamples in which the number does not exist; the interval is that of the others."""
    n: int | None = None
    """Prompts behind a mean over prompts; None for other numbers."""

    @property
    def positive(self) -> bool:
        """Whether the whole interval lies above zero."""
        return self.low > 0


# The bootstrap


def bootstrap(
    measures: Callable[[Array], Mapping[Key, Array]],
    strata: Sequence[int],
    seeds: Sequence[Sequence[int]],
    *,
    resamples: int = RESAMPLES,
    width: int = 1,
) -> dict[Key, Estimate]:
    """Estimate named measures with bootstrap intervals over prompts.

    `measures` takes counts of the prompts, (D, P), and returns a vector of D numbers per name.

    `strata` has the number of prompts of each stratum, such as a task; prompts are drawn within each, with its own
    seed. `width` is the number of entries that the measures hold per resample. It bounds how many resamples are
    computed at a time, which changes no number.
    """
    if resamples < 1:
        raise ValueError(f"resamples is {resamples}; it must be 1 or more: ask for 1000")
    prompts = sum(strata)
    # The value itself is that of every prompt drawn once.
    point = measures(np.ones((1, prompts)))
    at_once = max(1, MAX_ENTRIES // max(width, prompts, 1))
    parts = [measures(count_DP) for count_DP in draw_counts(strata, seeds, resamples, at_once)]
    drawn_DM = np.concatenate([np.stack(list(part.values()), 1) for part in parts])
    low_M, high_M = quantile_interval(drawn_DM)
    undefined_M = (~np.isfinite(drawn_DM)).sum(0)
    columns = zip(point.items(), low_M, high_M, undefined_M, strict=True)
    return {name: Estimate(float(x[0]), float(low), float(high), int(n)) for (name, x), low, high, n in columns}


def draw_counts(strata: Sequence[int], seeds: Sequence[Sequence[int]], resamples: int, at_once: int) -> Iterator[Array]:
    """Draw how often each prompt counts in each resample; yield `at_once` resamples at a time."""
    # One generator per stratum: a task's draws do not depend on which other tasks there are.
    generators = [np.random.default_rng(list(seed)) for seed in seeds]
    for start in range(0, resamples, at_once):
        rows = min(at_once, resamples - start)
        parts = []
        for rng, prompts in zip(generators, strata, strict=True):
            drawn = rng.integers(prompts, size=(rows, prompts)) if prompts else np.zeros((rows, 0), dtype=np.int64)
            # Every resample counts in its own stretch of the bins, so that one `bincount` serves them all.
            bins = drawn + prompts * np.arange(rows)[:, None]
            parts.append(np.bincount(bins.ravel(), minlength=rows * prompts).reshape(rows, prompts))
        yield np.concatenate(parts, 1).astype(np.float64)


def quantile_interval(drawn_DM: Array, level: float = LEVEL) -> Array:
    """Compute both ends of the interval of each column, (2, M), over its finite values."""
    # As np.nanquantile but for last digits, which all stored intervals have; infinities count as undefined.
    ordered_DM = np.sort(np.where(np.isfinite(drawn_DM), drawn_DM, np.nan), 0)
    last_M = np.isfinite(ordered_DM).sum(0) - 1
    place_2M = np.array([[(1 - level) / 2], [(1 + level) / 2]]) * np.maximum(last_M, 0)
    below_2M = np.floor(place_2M).astype(np.int64)
    above_2M = np.minimum(below_2M + 1, np.maximum(last_M, 0))
    low, high = (np.take_along_axis(ordered_DM, index, 0) for index in (below_2M, above_2M))
    return low + (place_2M - below_2M) * (high - low)


def task_seeds(seed: int, tasks: Iterable[str]) -> list[tuple[int, int]]:
    """Return a seed for each task that does not depend on which other tasks there are."""
    return [(seed, zlib.crc32(task.encode())) for task in tasks]


# Numbers of states, and numbers of prompts


def estimate_measures(
    measures: Callable[[Array], Mapping[Key, Array]], prompt_S: ArrayLike, *, seed: int, resamples: int = RESAMPLES
) -> dict[Key, Estimate]:
    """Estimate named measures over states with bootstrap intervals over prompts.

    `measures` takes weights of the states, (D, S), and returns a vector of D numbers per name. The states
    of a prompt weigh as often as the prompt was drawn.
    """
    code_S, prompts = number_prompts(prompt_S)
    # (seed, 0) here and (seed,) in `estimate_ratio`: stored intervals were drawn with these seeds.
    draws = {"strata": [prompts], "seeds": [(seed, 0)], "resamples": resamples, "width": len(code_S)}
    return bootstrap(lambda count_DP: measures(count_DP[:, code_S]), **draws)  # type: ignore[arg-type]


def estimate_ratio(
    top_S: ArrayLike, bottom_S: ArrayLike, prompt_S: ArrayLike, *, seed: int, resamples: int = RESAMPLES
) -> Estimate:
    """Estimate the ratio of two sums over states with an interval over prompts; with ones as `bottom`, a mean."""
    code_S, prompts = number_prompts(prompt_S)
    columns_S = [np.asarray(x_S, dtype=np.float64)[:, None] for x_S in (top_S, bottom_S)]
    top_P1, bottom_P1 = (sum_by_cluster(column_S, code_S, prompts) for column_S in columns_S)
    if not np.isfinite(top_P1 + bottom_P1).all():
        raise ValueError("top_S or bottom_S has values that are not finite; leave missing ones out")
    return bootstrap(
        lambda count_DP: {"": divide_or_nan(count_DP @ top_P1, count_DP @ bottom_P1)[:, 0]},
        [prompts],
        [(seed,)],
        resamples=resamples,
    )[""]


def mean_over_tasks(
    tops: Sequence[ArrayLike],
    bottoms: Sequence[ArrayLike] | None = None,
    *,
    relative_to: int | None = None,
    seed: int,
    resamples: int = PROMPT_RESAMPLES,
) -> tuple[Estimate, ...]:
    """Average over tasks the ratio of the sums of `tops` and `bottoms`, for every column of the tables of prompts.

    Without `bottoms` these are means over prompts. Columns share their resampled prompts and so stay paired; tasks are
    fixed. With `relative_to` every column is divided by that column's number of the same resample, over the rows that
    have both. NaN is a missing value: it leaves the sum and the count, and never counts as 0. `n` counts rows.
    """
    top_T = [np.asarray(x_PA, dtype=np.float64) for x_PA in tops]
    bottom_T = [np.ones_like(x) for x in top_T] if bottoms is None else [np.asarray(x, np.float64) for x in bottoms]
    known_T = [np.isfinite(top) & np.isfinite(bottom) for top, bottom in zip(top_T, bottom_T, strict=True)]
    if relative_to is not None:
        known_T = [known_PA & known_PA[:, [relative_to]] for known_PA in known_T]
    edges = np.cumsum([0, *map(len, top_T)])

    def means(count_DP: Array, columns: slice = slice(None)) -> Array:
        parts = []
        for start, top, bottom, known in zip(edges, top_T, bottom_T, known_T, strict=False):
            count = count_DP[:, start : start + len(top)]
            # Missing values are 0 in both sums, so that a matrix product serves every resample at once. `known` is not
            # cut to the columns: the one that is divided by is summed anew over the rows that each other one has.
            sums = (count @ np.where(known, x[:, columns], 0.0) for x in (top, bottom))
            parts.append(divide_or_nan(*sums))
        return np.asarray(np.mean(parts, 0))

    def named_means(count_DP: Array) -> dict[int, Array]:
        mean_DA = means(count_DP)
        if relative_to is not None:
            mean_DA = divide_or_nan(mean_DA, means(count_DP, slice(relative_to, relative_to + 1)))
        return dict(enumerate(mean_DA.T))

    estimates = bootstrap(
        named_means,
        [len(top) for top in top_T],
        [(seed, task) for task in range(len(top_T))],
        resamples=resamples,
        width=len(top_T) * top_T[0].shape[1],
    )
    n_A = np.sum([known_PA.sum(0) for known_PA in known_T], 0)
    return tuple(replace(estimate, n=int(n)) for estimate, n in zip(estimates.values(), n_A, strict=True))


# Sums


def mean_of_task_means(sums_T: Sequence[Array], count_DP: Array) -> Array:
    """Average the means of tasks, (D, M), so that each task counts the same.

    A task has a row of M sums for every prompt. The first column counts what its other columns add up.
    """
    edges = np.cumsum([0, *(len(sums_PM) for sums_PM in sums_T)])
    mean_DM = np.zeros((len(count_DP), sums_T[0].shape[1]))
    for sums_PM, start in zip(sums_T, edges, strict=False):
        sum_DM = count_DP[:, start : start + len(sums_PM)] @ sums_PM
        mean_DM += sum_DM / sum_DM[:, :1] / len(sums_T)
    return mean_DM


def sum_by_cluster(x_SM: Array, code_S: Ints, clusters: int) -> Array:
    """Sum each column over the states of each cluster, (clusters, M).

    `reduceat` on sorted rows fixes the order of the additions. `bincount` and `np.add.at` give other last bits, and
    whether two bins of a detector tie can depend on them.
    """
    sums_PM = np.zeros((clusters, x_SM.shape[1]))
    if len(x_SM):
        order = np.argsort(code_S, kind="stable")
        present, starts = np.unique(code_S[order], return_index=True)
        sums_PM[present] = np.add.reduceat(x_SM[order], starts, axis=0)
    return sums_PM


def number_prompts(prompt_S: ArrayLike) -> tuple[Ints, int]:
    """Number prompts 0..P-1 in the order of their names; return the number of each state, and P."""
    names = np.asarray(prompt_S)
    if len(names) == 0:
        raise NotEnough("there is no state; a number over prompts needs one or more")
    distinct, code_S = np.unique(names, return_inverse=True)
    return code_S.astype(np.int64), len(distinct)


def divide_or_nan(top: Array, bottom: Array) -> Array:
    """Divide `top` by `bottom`; NaN where there is nothing to divide by."""
    return np.divide(top, bottom, out=np.full(np.shape(top), np.nan), where=bottom > 0)


def weighted_mean(weight_DS: Array, value_S: Array) -> Array:
    """Compute the weighted mean for each resample; NaN without weight."""
    return divide_or_nan(weight_DS @ value_S, weight_DS.sum(1))
