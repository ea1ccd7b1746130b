"""Named numbers of one table with prompt-cluster intervals. NumPy in, numbers out."""

from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from unmask.stats.bootstrap import LEVEL, RESAMPLES, Estimate, bootstrap, codes
from unmask.stats.crossfit import Array
from unmask.stats.opportunity import FEWEST

Name = TypeVar("Name", bound=Hashable)


def resampled(
    numbers: Callable[[Array], Mapping[Name, Array]],
    prompt_S: NDArray,
    *,
    seed: int,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> dict[Name, Estimate]:
    """Intervals of what `numbers` computes from weights of states: (D, S) in, one vector for each name out.

    Prompts are drawn, and the states of a prompt count as often as it was.
    """
    code_S, prompts = codes(prompt_S)
    names: list[Name] = []

    def columns(count_DP: Array) -> Array:
        values = numbers(count_DP[:, code_S])
        names[:] = values
        return np.stack(list(values.values()), 1)

    estimates = bootstrap(columns, [prompts], seeds=[(seed, 0)], resamples=resamples, level=level, width=len(code_S))
    return dict(zip(names, estimates, strict=True))


def means(weight_DS: Array, value_S: Array) -> Array:
    """Weighted mean for each replicate; NaN without weight."""
    mass_D = weight_DS.sum(1)
    return np.divide(weight_DS @ value_S, mass_D, out=np.full(len(mass_D), np.nan), where=mass_D > 0)


def few_positive(prompt_S: NDArray, g_S: Array) -> str:
    """Why intervals should not be relied on; empty where they may be."""
    prompts, positive = len(np.unique(prompt_S)), len(np.unique(prompt_S[g_S > 0]))
    if positive >= FEWEST:
        return ""
    return f"{positive} of {prompts} prompts have a positive opportunity; intervals need {FEWEST} or more"
