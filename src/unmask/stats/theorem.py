"""The reversal theorem's formulas for a table of true utilities `q_SA`, states by actions. `thm:strategy_reversal`

States count equally. A table of rollouts is measured by `measure_opportunity`, which allows for their noise.
"""

import numpy as np
from numpy.typing import ArrayLike

from unmask.stats.resampling import Array


def opportunity(q_SA: ArrayLike, fixed: int | None = None) -> Array:
    """Compute the gain of each state's best action over `fixed` (default: best on average). `eq:state_opportunity`"""
    q = np.asarray(q_SA, dtype=np.float64)
    fixed = int(q.mean(0).argmax()) if fixed is None else fixed
    return np.asarray(q.max(1) - q[:, fixed])


def adaptation_gap(q_SA: ArrayLike, fixed: int | None = None) -> float:
    """Compute the mean opportunity over a fixed action. `eq:adaptation_gap`"""
    return float(opportunity(q_SA, fixed).mean())


def frequency_margin(g_S: ArrayLike) -> tuple[float, float]:
    """Compute Pr(g > 0) and E[g | g > 0] of an opportunity g. `eq:frequency_margin_decomposition`

    Their product is the adaptation gap.
    """
    g = np.asarray(g_S, dtype=np.float64)
    # For an estimate Pr(g > 0) counts luck as opportunity; `measure_opportunity` has the product for rollouts.
    if (g < 0).any():
        raise ValueError(f"g_S has {g.min()}; a true opportunity is >= 0: an estimate has a mean, but no such product")
    frequency = float((g > 0).mean())
    return frequency, float(g.mean()) / frequency if frequency > 0 else 0.0


def pairwise_adaptation_gap(d_S: ArrayLike) -> float:
    """Compute the adaptation gap of two actions from their differences D by state: (E|D| - |E D|) / 2.

    `eq:pairwise_adaptation_gap`
    """
    d = np.asarray(d_S, dtype=np.float64)
    return float((np.abs(d).mean() - abs(d.mean())) / 2)


def reversal_lower_bound(q_SA: ArrayLike, challenger: int, margin: float, fixed: int | None = None) -> float:
    """Compute a lower bound of the adaptation gap: `margin` times the share of states where a challenger wins by it."""
    q = np.asarray(q_SA, dtype=np.float64)
    fixed = int(q.mean(0).argmax()) if fixed is None else fixed
    return margin * float((q[:, challenger] - q[:, fixed] >= margin).mean())
