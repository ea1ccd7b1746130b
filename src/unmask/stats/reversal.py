"""How much a state-dependent choice can gain over one fixed action, and from how many states.

`q_SA[s, a]` is the utility of action a at state s; states count equally unless weights are given, which are
scaled to sum to 1. NumPy in, numbers out. `thm:strategy_reversal`
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unmask.stats.errors import NotEnough

Array = NDArray[np.float64]


@dataclass(frozen=True)
class FrequencyMargin:
    """A mean opportunity split into how often it arises and how large it then is."""

    frequency: float
    """Pr(g > 0)."""
    margin: float
    """E[g | g > 0]; 0 where no state has an opportunity."""
    gap: float
    """E[g], which is frequency * margin."""


def best_fixed(q_SA: ArrayLike, weights_S: ArrayLike | None = None) -> int:
    """The action with the best mean utility; among ties the first."""
    means = [_mean(utility_S, weights_S) for utility_S in _table(q_SA).T]
    return means.index(max(means))


def opportunity(q_SA: ArrayLike, fixed: int) -> Array:
    """g_S: what the best action of each state gains over `fixed`, wherever that was chosen.

    `eq:state_opportunity`, and `eq:crossfit_axis_opportunity` with a `fixed` from validation states.
    """
    q = _table(q_SA)
    _check_action("fixed", fixed, q)
    return np.asarray(q.max(1) - q[:, fixed])


def adaptation_gap(q_SA: ArrayLike, fixed: int | None = None, weights_S: ArrayLike | None = None) -> float:
    """Mean opportunity over `fixed`, by default the best fixed action of this table. `eq:adaptation_gap`"""
    if fixed is None:
        fixed = best_fixed(q_SA, weights_S)
    return _mean(opportunity(q_SA, fixed), weights_S)


def frequency_margin(g_S: ArrayLike, weights_S: ArrayLike | None = None) -> FrequencyMargin:
    """Split a mean opportunity into frequency and margin. `eq:frequency_margin_decomposition`

    Only true opportunities split this way: an estimate that may be negative has a mean, but no such product.
    """
    g = _vector("g_S", g_S)
    if (g < 0).any():
        raise ValueError(f"g_S has {g.min()}; an opportunity is >= 0: clip it, or report its plain mean")
    frequency = _mean((g > 0).astype(np.float64), weights_S)
    gap = _mean(g, weights_S)
    return FrequencyMargin(frequency, gap / frequency if frequency > 0 else 0.0, gap)


def pairwise_gap(d_S: ArrayLike, weights_S: ArrayLike | None = None) -> float:
    """The adaptation gap of two actions from their utility difference D: (E|D| - |E D|) / 2.

    `eq:pairwise_adaptation_gap`
    """
    d = _vector("d_S", d_S)
    return (_mean(np.abs(d), weights_S) - abs(_mean(d, weights_S))) / 2


def reversal_lower_bound(
    q_SA: ArrayLike,
    challenger: int,
    margin: float,
    *,
    fixed: int | None = None,
    weights_S: ArrayLike | None = None,
) -> float:
    """p * m, where `challenger` beats the fixed action by at least m = margin on a fraction p of states.

    The gap is never smaller, so one challenger that wins clearly and often enough settles that adapting pays.
    `thm:strategy_reversal`
    """
    q = _table(q_SA)
    if fixed is None:
        fixed = best_fixed(q, weights_S)
    _check_action("fixed", fixed, q)
    _check_action("challenger", challenger, q)
    if not margin > 0:
        raise ValueError(f"margin is {margin}; it must be > 0: a win by nothing bounds nothing")
    beats_S = q[:, challenger] - q[:, fixed] >= margin
    return margin * _mean(beats_S.astype(np.float64), weights_S)


def _table(q_SA: ArrayLike) -> Array:
    q = np.asarray(q_SA, dtype=np.float64)
    if q.ndim != 2 or 0 in q.shape or not np.isfinite(q).all():
        wrong = NotEnough if q.ndim == 2 and len(q) == 0 else ValueError
        raise wrong(f"q_SA has shape {q.shape}; it must be states by actions, non-empty and finite")
    return q


def _vector(name: str, value_S: ArrayLike) -> Array:
    value = np.asarray(value_S, dtype=np.float64)
    if value.ndim != 1 or value.size == 0 or not np.isfinite(value).all():
        wrong = NotEnough if value.shape == (0,) else ValueError
        raise wrong(f"{name} has shape {value.shape}; it must be one finite number per state")
    return value


def _mean(value_S: Array, weights_S: ArrayLike | None) -> float:
    if weights_S is None:
        return float(value_S.mean())
    w, n = _vector("weights_S", weights_S), len(value_S)
    if len(w) != n or (w < 0).any() or w.sum() <= 0:
        raise ValueError(f"weights_S has {len(w)} entries, least {w.min()}; pass {n}, all >= 0, some > 0")
    return float((w * value_S).sum() / w.sum())


def _check_action(name: str, action: int, q_SA: Array) -> None:
    if not 0 <= action < q_SA.shape[1]:
        raise ValueError(f"{name} is {action}; the table has actions 0..{q_SA.shape[1] - 1}")
