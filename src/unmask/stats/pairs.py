"""Two actions at a time: how much utility each wins from the other, in both directions.

`over_AA[a, b]` estimates E[(Q_a - Q_b)_+]: one fold of rollouts says where a is better, the other by how much, and
back. A fold that sees a tie counts for neither. NumPy in, numbers out.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from unmask.stats.crossfit import TIE, Array, Bools, CrossFit, snap


@dataclass(frozen=True)
class Bidirectional:
    """The largest utility that two actions each win from the other."""

    mass: float
    pair: tuple[int, int] | None
    """The pair that attains it; None where no pair reverses."""
    mass_AA: Array
    """min(over_AA, its transpose); NaN where no state has both actions."""


def over(fit: CrossFit) -> Array:
    """over_AA: what each row's action wins from each column's, per state; NaN where no state has both."""
    won_SAA, both_SAA = wins(fit)
    states_AA = both_SAA.sum(0)
    return np.divide(won_SAA.sum(0), states_AA, out=np.full(states_AA.shape, np.nan), where=states_AA > 0)


def pairwise_reversal(fit: CrossFit, mean_A: ArrayLike | None = None) -> Array:
    """What choosing by state gains for each pair over the better of the two. `eq:pairwise_adaptation_gap`

    In its second form: if a is the better fixed action, the gain is E[(Q_b - Q_a)_+]. This is the cross-fitted gap of
    a table with these two actions. `mean_A` are mean utilities on validation states, which say which one is better; by
    default those of this table, which makes the gain look a little small. Symmetric, 0 on the diagonal.
    """
    mean = table_means(fit) if mean_A is None else np.asarray(mean_A, dtype=np.float64)
    over_AA = over(fit)
    if mean.shape != (len(over_AA),):
        raise ValueError(f"mean_A has shape {mean.shape}; pass one mean utility for each of {len(over_AA)} actions")
    return np.where(better(mean), over_AA.T, over_AA)


def bidirectional(fit: CrossFit) -> Bidirectional:
    """B = max over pairs of min{E[D_+], E[(-D)_+]}, and the pair (section 6.2).

    An action paired with itself wins nothing, so B >= 0.
    """
    over_AA = over(fit)
    mass_AA = np.minimum(over_AA, over_AA.T)
    if np.isnan(mass_AA).all():
        return Bidirectional(float("nan"), None, mass_AA)
    a_U, b_U = np.triu_indices(len(mass_AA), 1)
    mass_U = np.where(np.isnan(mass_AA), -np.inf, mass_AA)[a_U, b_U]
    k = first_largest(mass_U)
    if k is None or mass_U[k] <= 0:
        return Bidirectional(0.0, None, mass_AA)
    return Bidirectional(float(mass_U[k]), (int(a_U[k]), int(b_U[k])), mass_AA)


def wins(fit: CrossFit) -> tuple[Array, Bools]:
    """For each state what a wins from b, 0 where nothing, and whether both have utilities in both folds."""
    q_FSA = fit.q_FSA
    both_SAA = np.isfinite(q_FSA[0])[:, :, None] & np.isfinite(q_FSA[0])[:, None, :]
    d0, d1 = (snap(q_SA[:, :, None] - q_SA[:, None, :]) for q_SA in np.nan_to_num(q_FSA))
    return np.where(both_SAA, ((d0 > 0) * d1 + (d1 > 0) * d0) / 2, 0.0), both_SAA


def first_largest(x_U: Array) -> int | None:
    """Where the largest is, the first of those that differ by rounding only; None of nothing."""
    return int(np.argmax(x_U >= x_U.max() - TIE)) if len(x_U) else None


def better(mean_A: Array) -> Bools:
    """better_AA[a, b]: a has the larger mean, or the same and a smaller number; an unknown mean is the smallest."""
    mean = np.where(np.isfinite(mean_A), mean_A, -np.inf)
    with np.errstate(invalid="ignore"):
        lead_AA = np.nan_to_num(snap(mean[:, None] - mean[None, :]))
    earlier_AA = np.arange(len(mean))[:, None] < np.arange(len(mean))[None, :]
    return (lead_AA > 0) | ((lead_AA == 0) & earlier_AA)


def table_means(fit: CrossFit, keep_S: Bools | None = None) -> Array:
    """Mean utility of each action over the states that have it; of some states only, where given."""
    q_SA = fit.q_FSA.mean(0)[... if keep_S is None else keep_S]
    states_A = np.isfinite(q_SA).sum(0)
    return np.divide(np.nansum(q_SA, 0), states_A, out=np.full(len(states_A), np.nan), where=states_A > 0)
