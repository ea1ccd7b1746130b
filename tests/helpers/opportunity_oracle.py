"""E1's numbers by their definitions, state by state and action by action: what the array code is held to."""

import itertools

import numpy as np

COVERAGES = (0.05, 0.1, 0.2, 0.5, 1.0)


NAMES = ("delta", "positive", "negative", "frequency", "margin", "positive_rate", "naive", "optimism")


def fold_means(q_AR, rollouts):
    """Mean utility of each action over some rollouts; NaN where none has one."""
    return [np.nanmean(q_R[rollouts]) if np.isfinite(q_R[rollouts]).any() else np.nan for q_R in q_AR]


def states_of(q_SAR, fixed):
    """Of each usable state: mean utilities in both folds (NaN where one has none), and the two picks."""
    half = q_SAR.shape[2] // 2
    found = []
    for q_AR in q_SAR:
        folds = [fold_means(q_AR, slice(half)), fold_means(q_AR, slice(half, None))]
        q_FA = np.where(np.isfinite(folds).all(0), folds, np.nan)
        if np.isnan(q_FA[0, fixed]):
            continue
        picks = []
        for q_A in q_FA:
            tied = [a for a in range(len(q_A)) if q_A[a] >= np.nanmax(q_A) - 1e-9]
            picks.append(fixed if fixed in tied else tied[0])
        found.append((q_AR, q_FA, picks))
    return found


def gains(q_SAR, fixed):
    """Of each usable state: what its folds see, what the other fold pays, and the naive opportunity."""
    rows = []
    for q_AR, q_FA, picks in states_of(q_SAR, fixed):
        seen = [q_FA[f, picks[f]] - q_FA[f, fixed] for f in (0, 1)]
        paid = [q_FA[1 - f, picks[f]] - q_FA[1 - f, fixed] for f in (0, 1)]
        mean_A = np.where(np.isfinite(q_FA[0]), fold_means(q_AR, slice(None)), np.nan)
        rows.append((seen, paid, np.nanmax(mean_A) - mean_A[fixed]))
    return rows


def ratios(q_SAR, fixed):
    """Delta_adapt, its parts, and the naive estimate."""
    rows = gains(q_SAR, fixed)
    if not rows:
        return dict.fromkeys(NAMES, np.nan)
    g = np.round([np.mean(paid) for _, paid, _ in rows], 12)
    frequency = np.mean([np.mean([s > 1e-9 for s in seen]) for seen, _, _ in rows])
    margin = g.mean() / frequency if frequency else np.nan
    naive = np.mean([n for _, _, n in rows])
    parts = (np.maximum(g, 0).mean(), np.minimum(g, 0).mean())
    values = (g.mean(), *parts, frequency, margin, (g > 1e-9).mean(), naive, naive - g.mean())
    return dict(zip(NAMES, values, strict=True))


def wins(q_SAR, a, b):
    """Utility that a wins from b per state: one fold says where it is better, the other by how much, and back."""
    half = q_SAR.shape[2] // 2
    total, states = 0.0, 0
    for q_AR in q_SAR:
        d = []
        for fold in (q_AR[:, :half], q_AR[:, half:]):
            known = [np.isfinite(fold[x]).any() for x in (a, b)]
            d.append(np.nanmean(fold[a]) - np.nanmean(fold[b]) if all(known) else np.nan)
        if np.isfinite(d).all():
            states += 1
            total += ((d[0] > 1e-9) * d[1] + (d[1] > 1e-9) * d[0]) / 2
    return total / states if states else np.nan


def bidirectional(q_SAR):
    """The largest utility that two actions each win from the other, and the pair; 0 and None where none reverses."""
    pairs = itertools.combinations(range(q_SAR.shape[1]), 2)
    mass = {(a, b): min(wins(q_SAR, a, b), wins(q_SAR, b, a)) for a, b in pairs}
    known = {pair: x for pair, x in mass.items() if not np.isnan(x)}
    best = max(known.values(), default=0.0)
    pair = next((p for p, x in known.items() if x >= best - 1e-9), None)
    return (best, pair) if best > 0 else (0.0, None)


def concentration(q_SAR, fixed, coverages=COVERAGES):
    """C*(c): one fold ranks, the other pays; ties at the cut share what is left of it."""
    rows = gains(q_SAR, fixed)
    total = sum(sum(paid) for _, paid, _ in rows)
    shares = {}
    for c in coverages:
        top = 0.0
        for f in (0, 1):
            left = c * len(rows)
            ranked = sorted(((round(seen[f], 9), paid[f]) for seen, paid, _ in rows), reverse=True)
            for _, group in itertools.groupby(ranked, lambda pair: pair[0]):
                values = [value for _, value in group]
                top += sum(values) * min(1.0, max(0.0, left / len(values)))
                left -= len(values)
        shares[c] = top / total if total > 1e-9 else np.nan
    return shares
