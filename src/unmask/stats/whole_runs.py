"""Whole runs of candidates: what each is worth at every step of an answer. NumPy in, numbers out."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unmask.stats.crossfit import Array
from unmask.stats.estimates import FixedAction, choose_fixed

FIXED = ("one-step", "end-to-end")
"""How a fixed action is chosen: by one step, after which the reference goes on (the paper's), or by whole runs."""


@dataclass(frozen=True)
class WholeRuns:
    """Validation prompts, decoded from beginning to end with each candidate."""

    prompt_P: NDArray
    utility_PA: Array
    """NaN where an answer could not be judged."""

    def __post_init__(self) -> None:
        prompt_P, utility_PA = np.asarray(self.prompt_P), np.asarray(self.utility_PA, dtype=np.float64)
        if prompt_P.ndim != 1 or utility_PA.ndim != 2 or len(prompt_P) != len(utility_PA):
            raise ValueError(
                f"prompts have shape {prompt_P.shape} and utilities {utility_PA.shape}; they must be P and P x actions"
            )
        object.__setattr__(self, "prompt_P", prompt_P)
        object.__setattr__(self, "utility_PA", utility_PA)

    def of(self, prompts: ArrayLike) -> "WholeRuns":
        """Those of some prompts."""
        these_P = np.isin(self.prompt_P, np.asarray(prompts))
        return WholeRuns(self.prompt_P[these_P], self.utility_PA[these_P])

    def best(self, reference: int) -> FixedAction:
        """The best mean utility over prompts that have an answer of each candidate; of equal ones the reference.

        Means and counts in it are of prompts, not of states.
        """
        return choose_fixed(self.utility_PA[:, :, None], reference=reference)
