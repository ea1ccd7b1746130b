"""What the best action of each state gains, without letting the noise that picks it also grade it.

`q_SAR[s, a, r]` is the utility of action a at state s in rollout r, in [0, 1]; NaN where it is missing. The best of
several noisy means looks better than it is, even if all actions are equal. So rollouts come in two folds: each fold
picks an action, the other one grades it, and the two grades are averaged (the paper's appendix, "State Sampling and
Utility Evaluation"). NumPy in, numbers out.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unmask.stats.errors import NotEnough

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Folds = tuple[Collection[int], Collection[int]]

TIE = 1e-9
"""Utilities this close are equal: two means of the same thirds can differ in their last bit."""


@dataclass(frozen=True)
class CrossFit:
    """Opportunity of every state over its fixed action. Excluded states have NaN, and -1 for an action."""

    g_S: Array
    """The cross-fitted estimate of `eq:crossfit_axis_opportunity`; below 0 where the folds disagree."""
    g_FS: Array
    """Its two halves: picked on fold f, graded on the other."""
    seen_FS: Array
    """What fold f itself saw, >= 0. It ranks states; as a gain it would flatter."""
    chosen_FS: Ints
    """The action that fold f picked."""
    naive_S: Array
    """Picked and graded on all rollouts, for the audit; biased upwards."""
    noisy_S: Bools
    """Rollouts of some action differ."""
    used_S: Bools
    """The fixed action has a utility in both folds; otherwise the state is excluded."""
    fixed_S: Ints
    q_FSA: Array
    """Mean utility in each fold; NaN for an action without one in either, which cannot be picked."""
    crossfitted: bool
    """False: the caller vouched that rollouts cannot differ, and the folds are the same rollouts."""

    @property
    def excluded(self) -> int:
        """States without a usable fixed action."""
        return int((~self.used_S).sum())


def cross_fit(
    q_SAR: ArrayLike,
    fixed: ArrayLike,
    *,
    reference: int | None = None,
    folds: Folds | None = None,
    deterministic: bool = False,
) -> CrossFit:
    """Cross-fitted opportunity over `fixed`, one action or one per state, chosen elsewhere.

    Ties go to the fixed action, then to the reference, then to the first. `folds` are two sets of rollouts; by default
    the first and the second half, {0, 1} and {2, 3} of four. An action without a utility in one of the folds cannot
    be picked, because one fold could pick it and the other not grade it.

    One rollout cannot be cross-fitted and is refused: nothing in the table would show how much its maximum flatters.
    If utilities have no noise (temperature 0 and no random revision), one rollout is the truth: say so with
    `deterministic=True`. Every number is then the plain one, and the result is marked as not cross-fitted. Rollouts
    that differ are refused there.
    """
    q = utilities(q_SAR)
    states, actions, rollouts = q.shape
    fixed_S = _actions("fixed", fixed, states, actions)
    if reference is not None:
        _actions("reference", reference, 1, actions)
    first, second = _same_fold(q, folds) if deterministic else _two_folds(folds, rollouts)
    q_FSA = _fold_means(q, first, second)
    q = q[:, :, sorted({*first, *second})]
    used_S = np.isfinite(_at(q_FSA[0], fixed_S))
    chosen_FS = _pick(q_FSA, fixed_S, reference)
    gain_FSA = snap(q_FSA - np.stack([_at(q_SA, fixed_S) for q_SA in q_FSA])[:, :, None])
    g_FS = np.stack([_at(gain_FSA[1 - f], chosen_FS[f]) for f in (0, 1)])
    return CrossFit(
        g_S=snap(g_FS.mean(0)),
        g_FS=g_FS,
        seen_FS=np.stack([_at(gain_FSA[f], chosen_FS[f]) for f in (0, 1)]),
        chosen_FS=np.where(used_S, chosen_FS, -1),
        naive_S=_naive(np.where(np.isfinite(q_FSA[0]), mean_of(q), np.nan), fixed_S),
        noisy_S=np.any(spread(q) > TIE, axis=1),
        used_S=used_S,
        fixed_S=fixed_S,
        q_FSA=q_FSA,
        crossfitted=not deterministic,
    )


def utilities(q_SAR: ArrayLike) -> Array:
    """The table as floats, checked: states by actions by rollouts, in [0, 1] or NaN."""
    q = np.asarray(q_SAR, dtype=np.float64)
    if q.ndim != 3 or 0 in q.shape:
        wrong = NotEnough if q.ndim == 3 and 0 not in q.shape[1:] else ValueError
        raise wrong(f"q_SAR has shape {q.shape}; it must be states by actions by rollouts, none of them 0")
    wrong_SAR = (q < -TIE) | (q > 1 + TIE)
    if wrong_SAR.any():
        s, a, r = (int(i) for i in np.argwhere(wrong_SAR)[0])
        raise ValueError(
            f"q_SAR has {q[s, a, r]} at state {s}, action {a}, rollout {r}; utilities lie in [0, 1]: "
            "scale yours, and write NaN where one is missing"
        )
    return q


def mean_of(q_SAR: Array) -> Array:
    """Mean over the rollouts that have a utility; NaN where none has."""
    known_SA = np.isfinite(q_SAR).sum(2)
    total_SA = np.where(np.isfinite(q_SAR), q_SAR, 0.0).sum(2)
    return np.divide(total_SA, known_SA, out=np.full(total_SA.shape, np.nan), where=known_SA > 0)


def spread(q_SAR: Array) -> Array:
    """Largest less smallest utility among the rollouts of each action; 0 where fewer than two are known."""
    known = np.isfinite(q_SAR)
    high_SA, low_SA = np.where(known, q_SAR, -np.inf).max(2), np.where(known, q_SAR, np.inf).min(2)
    return np.where(known.any(2), high_SA, 0.0) - np.where(known.any(2), low_SA, 0.0)


def snap(x: Array) -> Array:
    """Differences that are only rounding become 0; NaN stays."""
    return np.where(np.abs(x) <= TIE, 0.0, x)


def _fold_means(q_SAR: Array, first: Collection[int], second: Collection[int]) -> Array:
    """Mean utility in each fold, over the rollouts that have one; NaN in both where either has none."""
    q_FSA = np.stack([mean_of(q_SAR[:, :, list(fold)]) for fold in (first, second)])
    return np.where(np.isfinite(q_FSA).all(0), q_FSA, np.nan)


def _naive(mean_SA: Array, fixed_S: Ints) -> Array:
    """Best mean less the fixed action's; NaN where that has none."""
    best_S = np.where(np.isfinite(mean_SA), mean_SA, -np.inf).max(1)
    fixed_mean_S = _at(mean_SA, fixed_S)
    return snap(np.where(np.isfinite(fixed_mean_S), best_S, 0.0) - fixed_mean_S)


def _pick(q_FSA: Array, fixed_S: Ints, reference: int | None) -> Ints:
    """The best action of each state in each fold."""
    q = np.where(np.isfinite(q_FSA), q_FSA, -np.inf)
    tied_FSA = q >= q.max(2, keepdims=True) - TIE
    chosen_FS = tied_FSA.argmax(2)
    if reference is not None:
        chosen_FS = np.where(tied_FSA[:, :, reference], reference, chosen_FS)
    return np.where(np.stack([_at(tied_SA, fixed_S) for tied_SA in tied_FSA]), fixed_S, chosen_FS)


def _at(x_SA: NDArray[np.generic], action_S: Ints) -> NDArray[np.generic]:
    return x_SA[np.arange(len(x_SA)), action_S]


def _two_folds(folds: Folds | None, rollouts: int) -> Folds:
    if folds is None:
        if rollouts == 1:
            raise NotEnough(
                "q_SAR has 1 rollout; cross-fitting needs 2 or more: add rollouts, or pass deterministic=True if "
                "another rollout could not differ"
            )
        return range(rollouts // 2), range(rollouts // 2, rollouts)
    members = [r for fold in folds for r in fold]
    if len(folds) != 2 or not all(len(fold) for fold in folds) or not set(members) <= set(range(rollouts)):
        raise ValueError(f"folds are {folds}; they must be two non-empty sets of rollouts 0..{rollouts - 1}")
    if len(members) != len(set(members)):
        raise ValueError(f"folds are {folds}; a rollout may be in one of them only, or its noise would grade itself")
    return folds


def _same_fold(q_SAR: Array, folds: Folds | None) -> Folds:
    """All rollouts as either fold, if they are equal."""
    if folds is not None:
        raise ValueError(f"folds are {folds}; deterministic=True uses none: pass one of the two")
    differ = np.argwhere(spread(q_SAR) > TIE)
    if len(differ):
        s, a = (int(i) for i in differ[0])
        raise ValueError(
            f"rollouts of state {s}, action {a} are {q_SAR[s, a].tolist()}; with deterministic=True they must be "
            "equal: leave it out, so that folds are used"
        )
    return range(q_SAR.shape[2]), range(q_SAR.shape[2])


def _actions(name: str, value: ArrayLike, states: int, actions: int) -> Ints:
    """One action per state, from one for all or from a vector."""
    action = np.asarray(value)
    if action.shape not in ((), (states,)) or action.dtype.kind not in "iu":
        raise ValueError(f"{name} has shape {action.shape}; it must be one action, or one for each of {states} states")
    if not ((action >= 0) & (action < actions)).all():
        wrong = action.ravel()[((action < 0) | (action >= actions)).ravel()][0]
        raise ValueError(f"{name} is {wrong}; the table has actions 0..{actions - 1}")
    return np.broadcast_to(action.astype(np.int64), (states,))
