"""Whole runs of several arms, prompt by prompt: means, paired differences and how often a gate was open.

NumPy in, numbers out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unmask.stats.bootstrap import RESAMPLES, Estimate, bootstrap, mean_of_tasks, task_seeds
from unmask.stats.crossfit import Array

Pair = tuple[str, str]
"""Two arms, the second subtracted from the first."""


@dataclass(frozen=True)
class ArmGrid:
    """The runs of every arm over the same prompts."""

    prompts: tuple[str, ...]
    utility: Mapping[str, Array]
    """Mean over draws by arm, (P,); NaN where one could not be judged."""
    steps: Mapping[str, Array]
    """Of arms with a gate: evaluated and deviated steps of each prompt, (P, 2); NaN where it was not counted."""

    def judged(self, arms: Sequence[str]) -> NDArray[np.bool_]:
        """Prompts on which all of these arms have a utility."""
        return np.asarray(np.isfinite(np.stack([self.utility[arm] for arm in arms])).all(0))


def arm_grid(
    arm_W: Sequence[str],
    draw_W: Sequence[int],
    prompt_W: Sequence[str],
    *,
    utility_W: ArrayLike,
    evaluated_W: ArrayLike,
    deviated_W: ArrayLike,
) -> ArmGrid:
    """From W whole runs, each of an arm, a draw and a prompt; NaN is unjudged, or not counted."""
    numbers = {
        name: np.asarray(x_W, dtype=np.float64)
        for name, x_W in (("utility", utility_W), ("evaluated", evaluated_W), ("deviated", deviated_W))
    }
    prompts = tuple(sorted(set(prompt_W)))
    names_W, at_W = np.array(arm_W), np.searchsorted(prompts, prompt_W)
    utility: dict[str, Array] = {}
    steps: dict[str, Array] = {}
    for arm in dict.fromkeys(arm_W):
        of_arm_W = names_W == arm
        draws = len({draw for draw, of_arm in zip(draw_W, of_arm_W, strict=True) if of_arm})
        # NaN goes through sums: a prompt has a mean where each of its draws was judged.
        sums = {name: _sums(x_W[of_arm_W], at_W[of_arm_W], len(prompts)) for name, x_W in numbers.items()}
        # A prompt that lacks a draw has none either.
        whole_P = np.bincount(at_W[of_arm_W], minlength=len(prompts)) == draws
        utility[arm] = np.where(whole_P, sums["utility"] / draws, nan)
        if np.isfinite(numbers["deviated"][of_arm_W]).any():
            steps[arm] = np.stack([sums["evaluated"], sums["deviated"]], 1)
    return ArmGrid(prompts, utility, steps)


def _sums(x_W: Array, at_W: NDArray, prompts: int) -> Array:
    return np.asarray(np.bincount(at_W, x_W, prompts), dtype=np.float64)


def gate_coverage(steps_P2: Array) -> float:
    """Deviations by evaluated steps, (P, 2). Where those were not counted the gate never opened."""
    evaluated, deviated = steps_P2.sum(0)
    if not isfinite(evaluated):
        return 0.0 if deviated == 0 else nan
    return float(deviated / evaluated) if evaluated else nan


def paired_columns(
    utility: Mapping[str, Array], used_P: NDArray[np.bool_], arms: Sequence[str], pairs: Sequence[Pair]
) -> Array:
    """Utilities of the arms, then differences, (P, M): prompts are drawn whole, so pairs stay pairs."""
    columns = [utility[arm] for arm in arms] + [utility[one] - utility[other] for one, other in pairs]
    return np.stack(columns, 1)[used_P]


def arm_estimates(
    tables: Mapping[str, Array], arms: Sequence[str], pairs: Sequence[Pair], *, seed: int, resamples: int = RESAMPLES
) -> tuple[dict[str, Estimate], dict[Pair, Estimate]]:
    """Means of task means of every column of `paired_columns`; prompts are drawn within each task."""
    sums_T = [np.pad(x_PM, ((0, 0), (1, 0)), constant_values=1.0) for x_PM in tables.values()]
    estimates = bootstrap(
        lambda count_DP: mean_of_tasks(sums_T, count_DP)[:, 1:],
        [len(sums_PM) for sums_PM in sums_T],
        seeds=task_seeds(seed, tables),
        resamples=resamples,
        width=next(iter(tables.values())).shape[1],
    )
    return dict(zip(arms, estimates, strict=False)), dict(zip(pairs, estimates[len(arms) :], strict=True))
