"""Intervals from resampled prompts: the states of a prompt share its difficulty, so they move together.

A replicate is a vector of counts, how often each prompt was drawn. Whatever is a ratio of sums over states is then
one matrix product: counts (D replicates by P prompts) times sums (P prompts by M columns). NumPy in, numbers out.

`ratio_intervals` is for states; `mean_intervals` and those beside it are for one number per prompt and policy, where
NaN is a missing value: it leaves the mean and the count, and never counts as 0.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unmask.stats.errors import NotEnough

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

RESAMPLES = 1000
MEAN_RESAMPLES = 2000
"""Of means over prompts, which are quick."""
LEVEL = 0.95
_CELLS = 1 << 21
"""Entries of the widest array held at a time: 16 MiB. A statistic may hold a few of them."""


@dataclass(frozen=True)
class Estimate:
    """A number and its percentile interval; NaN where there is none."""

    value: float
    low: float
    high: float
    undefined: int = 0
    """Replicates in which the number does not exist; the interval is that of the others."""
    n: int | None = None
    """Prompts behind a mean over prompts; None for other numbers."""

    @property
    def positive(self) -> bool:
        """The whole interval lies above zero."""
        return self.low > 0


def ratio_intervals(
    top_SM: ArrayLike,
    bottom_SM: ArrayLike,
    prompt_S: ArrayLike,
    *,
    seed: int,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> tuple[Estimate, ...]:
    """Sum of `top` over sum of `bottom`, for each column, with intervals over prompts.

    A mean over states has ones below; a share of states zeros and ones above. `prompt_S` names each state's prompt.
    """
    top, bottom, (prompt, prompts) = _columns("top_SM", top_SM), _columns("bottom_SM", bottom_SM), codes(prompt_S)
    if top.shape != bottom.shape or len(top) != len(prompt):
        raise ValueError(
            f"top_SM has shape {top.shape}, bottom_SM {bottom.shape} and prompt_S {len(prompt)} entries; "
            "they must have one row for each state, and as many columns"
        )
    top_PM, bottom_PM = cluster_sums(top, prompt, prompts), cluster_sums(bottom, prompt, prompts)
    return bootstrap(
        lambda weight_DP: ratio(weight_DP @ top_PM, weight_DP @ bottom_PM),
        [prompts],
        seeds=[(seed,)],
        resamples=resamples,
        level=level,
        width=top.shape[1],
    )


def mean_interval(x_P: ArrayLike, *, seed: int, resamples: int = MEAN_RESAMPLES, level: float = LEVEL) -> Estimate:
    """Mean over prompts."""
    return mean_intervals(_vector("x_P", x_P)[:, None], seed=seed, resamples=resamples, level=level)[0]


def mean_intervals(
    x_PA: ArrayLike, *, seed: int, resamples: int = MEAN_RESAMPLES, level: float = LEVEL
) -> tuple[Estimate, ...]:
    """Mean of every column, all from the same resampled prompts: policies stay paired in every replicate."""
    return macro_intervals([x_PA], seed=seed, resamples=resamples, level=level)


def paired_difference(
    a_P: ArrayLike, b_P: ArrayLike, *, seed: int, resamples: int = MEAN_RESAMPLES, level: float = LEVEL
) -> Estimate:
    """Mean of a - b over the prompts that have both."""
    a, b = _vector("a_P", a_P), _vector("b_P", b_P)
    if len(a) != len(b):
        raise ValueError(f"a_P has {len(a)} prompts and b_P {len(b)}; they must be the same prompts, in one order")
    return mean_interval(a - b, seed=seed, resamples=resamples, level=level)


def paired_differences(
    x_PA: ArrayLike, reference: int, *, seed: int, resamples: int = MEAN_RESAMPLES, level: float = LEVEL
) -> tuple[Estimate, ...]:
    """Mean of every column less the reference's, over the prompts that have both."""
    return mean_intervals(against(x_PA, reference), seed=seed, resamples=resamples, level=level)


def macro_intervals(
    tables: Sequence[ArrayLike], *, seed: int, resamples: int = MEAN_RESAMPLES, level: float = LEVEL
) -> tuple[Estimate, ...]:
    """Mean over tasks of the mean over prompts, for every column; tasks are fixed, prompts are resampled in each.

    A column without any value in some task has no such mean. `n` counts the prompts of all tasks.
    """
    return macro_ratios(tables, None, seed=seed, resamples=resamples, level=level)


def macro_ratios(
    tops: Sequence[ArrayLike],
    bottoms: Sequence[ArrayLike] | None,
    *,
    reference: int | None = None,
    seed: int,
    resamples: int = MEAN_RESAMPLES,
    level: float = LEVEL,
) -> tuple[Estimate, ...]:
    """Mean over tasks of the sum of `top` over the sum of `bottom`, for every column; tasks are fixed.

    Without `bottoms` these are means over prompts. With a `reference` every column is divided by that one's number in
    the same draw, over the prompts that have both: how many times its cost. NaN above or below is a missing value. What
    is drawn are rows: prompts, or whatever was measured together. `n` counts those of all tasks.
    """
    tops_T = [_table(x_PA) for x_PA in tops]
    bottoms_T = [np.ones_like(x_PA) for x_PA in tops_T] if bottoms is None else [_table(x_PA) for x_PA in bottoms]
    shapes = [x_PA.shape for x_PA in tops_T]
    if len({columns for _, columns in shapes}) != 1 or shapes != [x_PA.shape for x_PA in bottoms_T]:
        raise ValueError(f"tables have {[c for _, c in shapes]} columns; pass one or more tables, as many in each")
    columns = shapes[0][1]
    if reference is not None and not 0 <= reference < columns:
        raise ValueError(f"reference is {reference}; the tables have columns 0..{columns - 1}")
    known_T = [np.isfinite(top) & np.isfinite(bottom) for top, bottom in zip(tops_T, bottoms_T, strict=True)]
    if reference is not None:
        known_T = [known_PA & known_PA[:, [reference]] for known_PA in known_T]
    edges = np.cumsum([0, *(rows for rows, _ in shapes)])

    def means(count_DP: Array, column: int | None = None) -> Array:
        parts = []
        for start, top, bottom, known in zip(edges, tops_T, bottoms_T, known_T, strict=False):
            count = count_DP[:, start : start + len(top)]
            if column is not None:
                top, bottom = top[:, [column]], bottom[:, [column]]
            parts.append(ratio(count @ np.where(known, top, 0.0), count @ np.where(known, bottom, 0.0)))
        return np.asarray(np.mean(parts, 0))

    estimates = bootstrap(
        means if reference is None else lambda count_DP: ratio(means(count_DP), means(count_DP, reference)),
        [rows for rows, _ in shapes],
        seeds=[(seed, task) for task in range(len(shapes))],
        resamples=resamples,
        level=level,
        width=len(shapes) * columns,
    )
    n_A = np.sum([known_PA.sum(0) for known_PA in known_T], 0)
    return tuple(replace(estimate, n=int(n)) for estimate, n in zip(estimates, n_A, strict=True))


def against(x_PA: ArrayLike, reference: int) -> Array:
    """Every column less the reference's; NaN where either is."""
    x = _table(x_PA)
    if not 0 <= reference < x.shape[1]:
        raise ValueError(f"reference is {reference}; the table has columns 0..{x.shape[1] - 1}")
    return np.asarray(x - x[:, [reference]])


def bootstrap(
    statistic: Callable[[Array], Array],
    prompts_T: Sequence[int],
    *,
    seeds: Sequence[Sequence[int]],
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    width: int = 1,
) -> tuple[Estimate, ...]:
    """Intervals of any statistic of prompt counts: (D, P) in, (D, M) out.

    Prompts are drawn within each of T strata, such as tasks, each with its own seed. `width` is the number of entries
    that the statistic holds per replicate; it bounds how many replicates it is given at a time.
    """
    if not (resamples >= 1 and 0 < level < 1):
        raise ValueError(f"resamples is {resamples} and level {level}; they must be >= 1 and between 0 and 1")
    point_M = statistic(np.ones((1, sum(prompts_T))))[0]
    at_once = max(1, _CELLS // max(width, sum(prompts_T), 1))
    drawn_DM = np.concatenate([statistic(w) for w in prompt_counts(prompts_T, seeds, resamples, at_once)])
    low_M, high_M = percentiles(drawn_DM, level)
    undefined_M = (~np.isfinite(drawn_DM)).sum(0)
    return tuple(
        Estimate(float(v), float(low), float(high), int(n))
        for v, low, high, n in zip(point_M, low_M, high_M, undefined_M, strict=True)
    )


def mean_of_tasks(sums_T: Sequence[Array], count_DP: Array) -> Array:
    """Mean over tasks of the means within each, (D, M): each counts the same.

    A task has one row of M sums for every prompt; its first column counts what its other columns add up.
    """
    edges = np.cumsum([0, *(len(sums_PM) for sums_PM in sums_T)])
    mean_DM = np.zeros((len(count_DP), sums_T[0].shape[1]))
    for sums_PM, start in zip(sums_T, edges, strict=False):
        sum_DM = count_DP[:, start : start + len(sums_PM)] @ sums_PM
        mean_DM += sum_DM / sum_DM[:, :1] / len(sums_T)
    return mean_DM


def task_seeds(seed: int, tasks: Iterable[str]) -> list[tuple[int, int]]:
    """A seed for each task, whatever other tasks there are."""
    return [(seed, zlib.crc32(task.encode())) for task in tasks]


def prompt_counts(
    prompts_T: Sequence[int], seeds: Sequence[Sequence[int]], resamples: int, at_once: int
) -> Iterator[Array]:
    """How often each prompt is drawn, `at_once` replicates at a time. The split changes no number."""
    generators = [np.random.default_rng(list(seed)) for seed in seeds]
    for start in range(0, resamples, at_once):
        rows = min(at_once, resamples - start)
        yield np.concatenate(
            [_counts(rng, rows, prompts) for rng, prompts in zip(generators, prompts_T, strict=True)], 1
        )


def percentiles(drawn_DM: Array, level: float) -> Array:
    """Both ends for every column, (2, M), over the replicates that are defined; linear between order statistics."""
    ordered_DM = np.sort(np.where(np.isfinite(drawn_DM), drawn_DM, np.nan), 0)
    last_M = np.isfinite(ordered_DM).sum(0) - 1
    place_2M = np.array([[(1 - level) / 2], [(1 + level) / 2]]) * np.maximum(last_M, 0)
    below_2M = np.floor(place_2M).astype(np.int64)
    above_2M = np.minimum(below_2M + 1, np.maximum(last_M, 0))
    low, high = (np.take_along_axis(ordered_DM, index, 0) for index in (below_2M, above_2M))
    return low + (place_2M - below_2M) * (high - low)


def cluster_sums(x_SM: Array, prompt_S: Ints, prompts: int) -> Array:
    """Sum over the states of each prompt, (P, M)."""
    out_PM = np.zeros((prompts, x_SM.shape[1]))
    if len(x_SM):
        order = np.argsort(prompt_S, kind="stable")
        present, starts = np.unique(prompt_S[order], return_index=True)
        out_PM[present] = np.add.reduceat(x_SM[order], starts, axis=0)
    return out_PM


def codes(prompt_S: ArrayLike) -> tuple[Ints, int]:
    """Prompts of any name as 0..P-1, and P."""
    names = np.asarray(prompt_S)
    if names.ndim != 1 or len(names) == 0:
        wrong = NotEnough if names.ndim == 1 else ValueError
        raise wrong(f"prompt_S has shape {names.shape}; it must name the prompt of each state, one or more")
    distinct, index = np.unique(names, return_inverse=True)
    return index.astype(np.int64), len(distinct)


def ratio(top: Array, bottom: Array) -> Array:
    """NaN where there is nothing to divide by."""
    return np.divide(top, bottom, out=np.full(np.shape(top), np.nan), where=bottom > 0)


def _counts(rng: np.random.Generator, rows: int, prompts: int) -> Array:
    if prompts == 0:
        return np.zeros((rows, 0))
    drawn = rng.integers(prompts, size=(rows, prompts)) + prompts * np.arange(rows)[:, None]
    return np.bincount(drawn.ravel(), minlength=rows * prompts).reshape(rows, prompts).astype(np.float64)


def _columns(name: str, value_SM: ArrayLike) -> Array:
    value = np.asarray(value_SM, dtype=np.float64)
    value = value[:, None] if value.ndim == 1 else value
    if value.ndim != 2 or not np.isfinite(value).all():
        raise ValueError(f"{name} has shape {value.shape}; it must be finite, states by columns: leave missing out")
    return value


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
