"""How far a run is: the share of its answer that is still masked. NumPy in, numbers out."""

import numpy as np
from numpy.typing import ArrayLike

from unmask.stats.crossfit import Array


def masked_share(prompt_S: ArrayLike, masked_S: ArrayLike) -> Array:
    """m_t by the length of the answer, (S,), from each state's prompt and its number of masked positions.

    State 0 of every prompt is taken before the first step, so the largest count of a prompt is its answer's length.
    """
    masked = np.asarray(masked_S)
    _, code_S = np.unique(np.asarray(prompt_S), return_inverse=True)
    most_P = np.zeros(code_S.max() + 1)
    np.maximum.at(most_P, code_S, masked)
    return np.asarray(masked / np.maximum(most_P[code_S], 1))
