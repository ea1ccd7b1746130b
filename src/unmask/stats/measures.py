"""The numbers of E1 to E3 as functions of weights over states, so that one bootstrap serves them all.

A measure is keyed by its name and by what it is taken at: an arm ("lift", "selective"), a coverage ("captured", 0.1),
a pair of actions ("pairwise", (0, 1)), or nothing ("delta", ""). docs/protocol.md says what each number
means.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from unmask.stats.fitting import FixedAction, stage_numbers
from unmask.stats.protocol import CrossFit, cross_fit
from unmask.stats.ranking import (
    COVERAGES,
    TIE,
    auroc,
    captured_shares,
    round_scores,
    spearman,
    sum_top_states,
    zero_rounding,
)
from unmask.stats.resampling import (
    FEWEST_PROMPTS,
    MAX_ENTRIES,
    RESAMPLES,
    Array,
    Estimate,
    Ints,
    bootstrap,
    divide_or_nan,
    estimate_measures,
    mean_of_task_means,
    number_prompts,
    quantile_interval,
    sum_by_cluster,
    task_seeds,
    weighted_mean,
)

Key = tuple[str, Any]
"""Name of a measure, and what it is taken at; "" for nothing."""
DRAWS = 10_000
"""Number of random selections of states that a ranking is compared with."""
CURVE_COVERAGES = tuple(k / 20 for k in range(1, 21))
"""Coverages at which the curve of lift is computed."""
ARMS = ("fixed", "stage", "always", "diagnostic", "selective", "oracle")
"""Ways to choose one action: columns of `held_out_frame`."""
DETECTORS = ("bins", "learned")


@dataclass(frozen=True)
class Measures:
    """Estimates of a group of states, and the counts behind them."""

    estimates: Mapping[Key, Estimate] = field(repr=False)
    states: int
    excluded: int
    """Number of states left out because some utility is missing."""
    prompts: int
    positive_prompts: int
    """Number of prompts with a state whose cross-fitted opportunity is positive."""

    def __getitem__(self, key: str | Key) -> Estimate:
        """Return the estimate of a key; a name alone stands for (name, "")."""
        return self.estimates[(key, "") if isinstance(key, str) else key]

    @property
    def why_unreliable(self) -> str:
        """Reason why the intervals are unreliable; empty where they are reliable."""
        return why_few_positive(self.positive_prompts, self.prompts)


def why_few_positive(positive: int, prompts: int) -> str:
    """Explain that too few prompts have opportunity for reliable intervals; empty where there are enough."""
    if positive >= FEWEST_PROMPTS:
        return ""
    return f"{positive} of {prompts} prompts have a positive opportunity; intervals need {FEWEST_PROMPTS} or more"


def count_prompts(prompt_S: ArrayLike, g_S: Array) -> tuple[int, int]:
    """Count the prompts with a positive opportunity, and all prompts."""
    names = np.asarray(prompt_S)
    return len(np.unique(names[g_S > 0])), len(np.unique(names))


# E1: how much choosing by state could gain over one fixed action, where that lies, and how concentrated it is

_MASS, _G, _ABOVE, _BELOW, _SEEN, _POSITIVE, _NAIVE, _OPTIMISM = range(8)
RATIO_COLUMNS = {
    "delta": (_G, _MASS),
    "positive": (_ABOVE, _MASS),
    "negative": (_BELOW, _MASS),
    "frequency": (_SEEN, _MASS),
    "margin": (_G, _SEEN),
    "positive_rate": (_POSITIVE, _MASS),
    "naive": (_NAIVE, _MASS),
    "optimism": (_OPTIMISM, _MASS),
}
"""The column of sums that is divided, and the one that divides it, for each measure. Frequency times margin is delta
however noisy the rollouts are: where the picking fold sees no reversal it keeps the fixed action, which gains
exactly 0."""


@dataclass(frozen=True)
class Opportunity(Measures):
    """Measures of opportunity (E1): `RATIO_COLUMNS`, `bidirectional`, `concentration` and `pairwise` by pair a < b."""

    pair: tuple[int, int] | None
    """Pair of actions with the largest bidirectional mass, the first of ties; None where no pair reverses."""
    same: int
    """Number of states whose naive and cross-fitted opportunity are equal."""
    noisy: int
    """Number of states where rollouts of some action differ. With 0 there is nothing to correct."""
    crossfitted: bool
    """Whether folds of rollouts were used; False where rollouts cannot differ."""

    @property
    def largest_pair(self) -> tuple[int, int] | None:
        """Pair of actions with the largest pairwise value; None where no value is above 0."""
        pairs = [at for name, at in self.estimates if name == "pairwise"]
        values_U = np.nan_to_num([self["pairwise", pair].value for pair in pairs])
        largest = _index_of_largest(values_U)
        return None if largest is None or values_U[largest] <= 0 else pairs[largest]

    @property
    def delta_bounds(self) -> tuple[float, float]:
        """Bounds of the opportunity for noisy rollouts: from the lower end of `delta` to the upper end of `naive`.

        Few rollouts miss some of the opportunity, so `delta` is too small on average, and `naive` is too large.
        """
        return self["delta"].low, self["naive"].high


@dataclass(frozen=True)
class OpportunityStates:
    """States of one task with their cross-fitted opportunity, prompt, stage and the columns to be summed."""

    fit: CrossFit
    prompt_S: NDArray[Any]
    stage_S: Ints
    column_SM: Array
    """Columns that are summed over states: those of `RATIO_COLUMNS`, then four for each pair of actions."""


def prepare_opportunity_states(
    q_SAR: ArrayLike,
    prompt_S: ArrayLike,
    masked_S: ArrayLike,
    fixed: FixedAction,
    *,
    reference: int | None = None,
    deterministic: bool = False,
) -> OpportunityStates:
    """Prepare held-out states for `measure_opportunity`, given the fixed action that validation chose."""
    fit = cross_fit(q_SAR, fixed.action, reference=reference, deterministic=deterministic)
    g_S = fit.g_S
    columns = (
        np.ones(len(g_S)),
        g_S,
        np.maximum(g_S, 0.0),
        np.minimum(g_S, 0.0),
        (fit.seen_FS > 0).mean(0),
        (g_S > 0).astype(np.float64),
        fit.naive_S,
        fit.naive_S - g_S,
    )
    # An excluded state adds nothing to any sum.
    column_SM = np.where(fit.used_S[:, None], np.stack(columns, 1), 0.0)
    pair_SM = _action_pair_columns(fit, np.where(np.arange(len(fixed.mean_A)) == fixed.action, 2.0, fixed.mean_A))
    columns_SM = np.concatenate([column_SM, pair_SM], 1)
    return OpportunityStates(fit, np.asarray(prompt_S), stage_numbers(masked_S), columns_SM)


def measure_opportunity(
    tasks: Mapping[str, OpportunityStates], *, stage: int | None = None, seed: int, resamples: int = RESAMPLES
) -> Opportunity:
    """Compute all measures of opportunity (E1) over some tasks, each counting the same whatever its states.

    Prompts are drawn within tasks, and the states of a prompt move together. A resample chooses neither the fixed
    action nor the pair of `bidirectional` again: the largest of resampled masses lies above the largest mass. With a
    `stage` only its states are summed; weights and drawn prompts stay those of all.
    """
    parts: list[tuple[NDArray[Any], ...]] = []
    strata: list[int] = []
    names = sorted(tasks)
    for states in (tasks[name] for name in names):
        code_S, prompts = number_prompts(states.prompt_S)
        row_S = np.arange(len(code_S)) if stage is None else np.flatnonzero(states.stage_S == stage)
        # Weights sum to 1 over the usable states of a task, and stay so when only one stage is summed.
        weight_S = np.full(len(row_S), 1 / max(1, int(states.fit.used_S.sum())))
        fit = states.fit
        per_state = (fit.used_S, fit.g_S, *fit.g_FS, *fit.seen_FS, np.abs(fit.naive_S - fit.g_S) <= TIE, fit.noisy_S)
        parts.append(
            (states.column_SM[row_S], code_S[row_S] + sum(strata), weight_S, *(x_S[row_S] for x_S in per_state))
        )
        strata.append(prompts)
    joined = [np.concatenate(x) for x in zip(*parts, strict=True)]
    column_SM, prompt_S, weight_S, used_S, g_S, *halves, same_S, noisy_S = joined
    sum_PM = sum_by_cluster(column_SM * weight_S[:, None], prompt_S, sum(strata))
    # One fold ranks and the other grades, both ways: ranked and graded on one fold, noise would look concentrated.
    cells = [_rank_cells(halves[2 + f][used_S], halves[f][used_S], prompt_S[used_S], weight_S[used_S]) for f in (0, 1)]
    mass_U = _action_pair_masses(sum_PM.sum(0, keepdims=True))[0][0]
    largest = _index_of_largest(mass_U)

    actions = next(iter(tasks.values())).fit.q_FSA.shape[2]
    pairs = [(int(a), int(b)) for a, b in zip(*np.triu_indices(actions, 1), strict=True)]

    def measures(count_DP: Array) -> dict[Key, Array]:
        sum_DM = count_DP @ sum_PM
        mass_DU, reversal_DU = _action_pair_masses(sum_DM)
        # An action paired with itself wins nothing, hence the 0.
        mass_D = mass_DU[:, [] if largest is None else [largest]].max(1, initial=0.0)
        ranked = [(score, value, count_DP[:, prompt] * mass) for score, value, prompt, mass in cells]
        share_DC = captured_shares(ranked, COVERAGES)
        named: dict[Key, Array] = {
            (name, ""): divide_or_nan(sum_DM[:, top], sum_DM[:, bottom])
            for name, (top, bottom) in RATIO_COLUMNS.items()
        }
        named["bidirectional", ""] = np.where(sum_DM[:, _MASS] > 0, mass_D, np.nan)
        named |= {("concentration", c): share_DC[:, k] for k, c in enumerate(COVERAGES)}
        return named | {("pairwise", pair): reversal_DU[:, k] for k, pair in enumerate(pairs)}

    return Opportunity(
        estimates=bootstrap(measures, strata, task_seeds(seed, names), resamples=resamples, width=len(prompt_S)),
        states=int(used_S.sum()),
        excluded=int((~used_S).sum()),
        prompts=len(np.unique(prompt_S[used_S])),
        positive_prompts=len(np.unique(prompt_S[g_S > 0])),
        pair=None if largest is None or mass_U[largest] <= 0 else pairs[largest],
        same=int(same_S[used_S].sum()),
        noisy=int(noisy_S[used_S].sum()),
        crossfitted=all(states.fit.crossfitted for states in tasks.values()),
    )


def _rank_cells(score_S: Array, g_S: Array, prompt_S: Ints, weight_S: Array) -> tuple[Array, Array, Ints, Array]:
    """Join states of one prompt that have the same score; return score, mean value, prompt and mass of each group.

    Such states are drawn together and tied. Joining them changes no number and leaves little
    to sort where opportunity is rare.
    """
    cells, cell_S = np.unique(np.stack([round_scores(score_S), prompt_S], 1), axis=0, return_inverse=True)
    mass, total = sum_by_cluster(np.stack([weight_S, weight_S * g_S], 1), cell_S.ravel(), len(cells)).T
    return cells[:, 0], divide_or_nan(total, mass), cells[:, 1].astype(np.int64), mass


def _action_pair_columns(fit: CrossFit, mean_A: Array) -> Array:
    """Compute four columns for each pair of actions: gain of a over b, of b over a, of the worse one, and both known.

    One fold of rollouts says where a is better than b, the other by how much, and back; a fold that sees a tie counts
    for neither. `mean_A` says which of the two is better as a fixed action.
    """
    # NaN would spread through the products below; states without both actions are set to 0 afterwards.
    both_SAA = np.isfinite(fit.q_FSA[0])[:, :, None] & np.isfinite(fit.q_FSA[0])[:, None, :]
    d0, d1 = (zero_rounding(q_SA[:, :, None] - q_SA[:, None, :]) for q_SA in np.nan_to_num(fit.q_FSA))
    won_SAA = np.where(both_SAA, ((d0 > 0) * d1 + (d1 > 0) * d0) / 2, 0.0)
    a, b = np.triu_indices(won_SAA.shape[1], 1)
    up_SU, down_SU = won_SAA[:, a, b], won_SAA[:, b, a]
    # An unknown mean is the smallest, and of equal means the first action counts as the better one.
    mean = np.where(np.isfinite(mean_A), mean_A, -np.inf)
    with np.errstate(invalid="ignore"):
        lead_U = np.nan_to_num(zero_rounding(mean[a] - mean[b]))
    return np.concatenate([up_SU, down_SU, np.where(lead_U >= 0, down_SU, up_SU), both_SAA[:, a, b]], 1)


def _action_pair_masses(sum_DM: Array) -> tuple[Array, Array]:
    """Compute the bidirectional mass of each pair (-inf where no state has both actions) and its pairwise value."""
    up_DU, down_DU, reversal_DU, both_DU = np.split(sum_DM[:, len(RATIO_COLUMNS) :], 4, axis=1)
    mass_DU = np.minimum(divide_or_nan(up_DU, both_DU), divide_or_nan(down_DU, both_DU))
    return np.where(np.isnan(mass_DU), -np.inf, mass_DU), divide_or_nan(reversal_DU, both_DU)


def _index_of_largest(x_U: Array) -> int | None:
    """Return the index of the largest value, the first of equal ones up to rounding; None for an empty array."""
    return int(np.argmax(x_U >= x_U.max() - TIE)) if len(x_U) else None


# E2 and E3: which actions the diagnostic picks, whether its signal says where to act, and what acting gains


def measure_detection(
    frame: pd.DataFrame, *, excluded: int = 0, seed: int, resamples: int = RESAMPLES, draws: int = DRAWS
) -> Measures:
    """Compute all measures of E2 and E3 for a `held_out_frame`, with intervals over prompts.

    Choices that were made on validation states stay fixed in every resample.
    """
    coverages = tuple(dict.fromkeys((*COVERAGES, *CURVE_COVERAGES)))
    estimates: dict[Key, Estimate] = estimate_measures(
        lambda weight_DS: detection_measures(frame, coverages, weight_DS),
        frame["prompt"],
        seed=seed,
        resamples=resamples,
    )
    estimates |= _estimate_random_choice(frame, seed, draws)
    # Other prompts to draw from: those that have a state with a signal.
    seen = frame[frame["bin"] >= 0]
    nowhere = Estimate(float("nan"), float("nan"), float("nan"), resamples)
    estimates |= {("auroc_among", ""): nowhere, ("auroc_within", ""): nowhere}
    if len(seen):
        score_S, positive_S = _float_column(seen, "predicted"), _float_column(seen, "oracle") > 0
        place_S = seen["place"].to_numpy()
        estimates |= estimate_measures(
            lambda weight_DS: {
                ("auroc_among", ""): auroc(score_S, positive_S, weight_DS),
                ("auroc_within", ""): auroc(score_S, positive_S, weight_DS, place_S),
            },
            seen["prompt"],
            seed=seed,
            resamples=resamples,
        )
    positive, prompts = count_prompts(frame["prompt"], _float_column(frame, "oracle"))
    return Measures(estimates, len(frame), excluded, prompts, positive)


def detection_measures(frame: pd.DataFrame, coverages: Sequence[float], weight_DS: Array) -> dict[Key, Array]:
    """Compute every measure of E2 and E3 for weights of the states, one vector per measure.

    E2: `regret` against the oracle, `recovered` share of its gap, `agrees_...`, a share of the proposals. E3: `utility`
    and `lift` of each arm, and how the prediction ranks states. At a coverage c only the best-ranked share c of all
    states takes the proposal (`ranked_lift`), of them those that reach theta (`theta_lift`), or those that are best by
    opportunity itself (`oracle_lift`); `captured` is C_det of `eq:captured_opportunity`, `concentration` C*.
    """
    mean = {
        name: weighted_mean(weight_DS, _float_column(frame, name)) for name in ("fixed", *ARMS[1:], "proposes", "acts")
    }
    named: dict[Key, Array] = {("utility", "fixed"): mean["fixed"]}
    for arm in ARMS[1:]:
        named |= {("utility", arm): mean["fixed"] + mean[arm], ("lift", arm): mean[arm]}
    # Agreement is a share of the proposals, not of all states.
    abstained_D = weighted_mean(weight_DS, 1 - _float_column(frame, "proposes"))
    whole = {
        "coverage": weighted_mean(weight_DS, _float_column(frame, "opens")),
        "acted": mean["acts"],
        "abstained": abstained_D,
        "regret": mean["oracle"] - mean["diagnostic"],
        "stage_regret": mean["oracle"] - mean["stage"],
        "less_regret": mean["diagnostic"] - mean["stage"],
        "recovered": divide_or_nan(mean["diagnostic"], mean["oracle"]),
        "stage_recovered": divide_or_nan(mean["stage"], mean["oracle"]),
    }
    for name in ("fixed", "oracle", "any"):
        share_D = weighted_mean(weight_DS, _float_column(frame, f"same_{name}"))
        whole[f"agrees_{name}"] = divide_or_nan(share_D, 1 - abstained_D)
    score_S, g_S = _float_column(frame, "predicted"), _float_column(frame, "oracle")
    positive_S, mass_D1 = (g_S > 0).astype(np.float64), weight_DS.sum(1, keepdims=True)
    whole["auroc"] = auroc(score_S, positive_S, weight_DS)
    whole["spearman"] = spearman(score_S, g_S, weight_DS)
    whole["positive_rate"] = weighted_mean(weight_DS, positive_S)
    g_FS, seen_FS, gain_FS = (
        [_float_column(frame, f"{name}_{f}") for f in (0, 1)] for name in ("oracle", "seen", "always")
    )
    # Not the column `always`, from which differences that are only rounding were taken: stored lifts have them.
    gain_S = np.stack(gain_FS).mean(0)
    found_DC = sum_top_states(score_S, positive_S, coverages, weight_DS)
    captured_DC = captured_shares([(score_S, g_S, weight_DS)], coverages)
    best_DC = captured_shares([(seen_FS[f], g_FS[f], weight_DS) for f in (0, 1)], coverages)
    # One fold ranks, the other one grades.
    oracle_DC = sum(sum_top_states(seen_FS[f], gain_FS[1 - f], coverages, weight_DS) for f in (0, 1)) / 2
    acting_S = np.where(frame["acts"].to_numpy(), gain_S, 0.0)
    by_coverage = {
        "precision": found_DC / (mass_D1 * np.array(coverages)),
        "recall": divide_or_nan(found_DC, np.broadcast_to(weight_DS @ positive_S[:, None], found_DC.shape)),
        "captured": captured_DC,
        "concentration": best_DC,
        "efficiency": divide_or_nan(captured_DC, best_DC),
        "ranked_lift": sum_top_states(score_S, gain_S, coverages, weight_DS) / mass_D1,
        "theta_lift": sum_top_states(score_S, acting_S, coverages, weight_DS) / mass_D1,
        "oracle_lift": oracle_DC / mass_D1,
    }
    named |= {(name, ""): x_D for name, x_D in whole.items()}
    return named | {(name, c): x_DC[:, k] for name, x_DC in by_coverage.items() for k, c in enumerate(coverages)}


def mean_detection(frames: Mapping[str, pd.DataFrame], *, seed: int, resamples: int = RESAMPLES) -> dict[Key, Estimate]:
    """Average the utility, lift and coverage of each arm over tasks, from one held-out frame per task.

    Intervals resample prompts within each task; what was calibrated on validation prompts is not fitted again.
    """
    sums_T = []
    for frame in frames.values():
        code_S, prompts = number_prompts(frame["prompt"])
        columns = [np.ones(len(frame)), *(_float_column(frame, name) for name in (*ARMS, "opens"))]
        sums_T.append(sum_by_cluster(np.stack(columns, 1), code_S, prompts))

    def name_means(mean_DM: Array) -> dict[Key, Array]:
        lift = {arm: mean_DM[:, 2 + at] for at, arm in enumerate(ARMS[1:])}
        numbers: dict[Key, Array] = {("utility", "fixed"): mean_DM[:, 1]}
        numbers |= {("utility", arm): mean_DM[:, 1] + x_D for arm, x_D in lift.items()}
        numbers |= {("lift", arm): x_D for arm, x_D in lift.items()}
        numbers["coverage", ""] = mean_DM[:, -1]
        numbers["recovered", ""] = divide_or_nan(lift["diagnostic"], lift["oracle"])
        numbers["less_regret", ""] = lift["diagnostic"] - lift["stage"]
        return numbers

    return bootstrap(
        lambda count_DP: name_means(mean_of_task_means(sums_T, count_DP)),
        [len(sums_PM) for sums_PM in sums_T],
        task_seeds(seed, frames),
        resamples=resamples,
    )


def why_ranking_missing(frame: pd.DataFrame) -> str:
    """Explain why AUROC, Spearman or the captured share do not exist for these states; empty where they do."""
    score_S, g_S = _float_column(frame, "predicted"), _float_column(frame, "oracle")
    positive, count = int((g_S > 0).sum()), len(g_S)
    reasons = []
    if positive in (0, count):
        reasons.append(f"{positive} of {count} held-out states have a positive opportunity: AUROC needs both kinds")
    if np.isnan(spearman(score_S, g_S)[0]):
        what = "opportunities" if np.ptp(g_S) <= TIE else "predictions"
        reasons.append(f"all {what} are the same: Spearman needs different ones")
    if not float(g_S.sum()) > TIE * count:
        reasons.append("all opportunity together is 0 or less: nothing to capture a share of")
    return "; ".join(reasons)


def _estimate_random_choice(frame: pd.DataFrame, seed: int, draws: int) -> dict[Key, Estimate]:
    """Estimate the captured share and the lift when a random share c of the states is selected instead of a ranked one.

    As in `sum_top_states`, c times the number of states is not rounded. One random order serves all coverages.
    """
    g_S, gain_S = (
        _float_column(frame, "oracle"),
        np.stack([_float_column(frame, f"always_{f}") for f in (0, 1)]).mean(0),
    )
    states, total = len(g_S), float(g_S.sum())
    # Without opportunity there is none to share.
    value_MS = [g_S / (total if total > TIE * states else float("nan")), gain_S / states]
    whole_C = [int(np.floor(c * states + TIE)) for c in COVERAGES]
    rng, at_once = np.random.default_rng([seed, 2]), max(1, MAX_ENTRIES // states)
    first_DS = np.broadcast_to(np.arange(states), (at_once, states))
    parts: list[list[Array]] = [[], []]
    for start in range(0, draws, at_once):
        # The rest of an order is never looked at, but drawing it whole lets one order serve all coverages.
        order_DS = rng.permuted(first_DS[: draws - start], axis=1)
        for part, value_S in zip(parts, value_MS, strict=True):
            upto_DS = np.pad(value_S[order_DS].cumsum(1), ((0, 0), (1, 1)), mode="edge")
            upto_DS[:, 0] = 0.0
            sums = [
                upto_DS[:, n] + max(c * states - n, 0.0) * (upto_DS[:, n + 1] - upto_DS[:, n])
                for c, n in zip(COVERAGES, whole_C, strict=True)
            ]
            part.append(np.stack(sums, 1))
    estimates: dict[Key, Estimate] = {}
    for name, part in zip(("random_captured", "random_lift"), parts, strict=True):
        drawn_DC = np.concatenate(part)
        low_C, high_C = quantile_interval(drawn_DC)
        undefined = int((~np.isfinite(drawn_DC[:, 0])).sum())
        for k, c in enumerate(COVERAGES):
            mean = float(drawn_DC.mean(0)[k])
            estimates[name, c] = Estimate(mean, float(low_C[k]), float(high_C[k]), undefined)
    return estimates


# Two detectors on the same held-out states: bins of one signal, and a learned one


def compare_detectors(frame: pd.DataFrame, weight_DS: Array) -> dict[tuple[str, str, Any], Array]:
    """Compute measures of the binned detector, the learned detector and their difference, for weights of the states.

    `frame` is a held-out frame with the columns `learned`, the prediction of the learned detector, and `learned_opens`.
    States, proposals and weights are the same for both, so that differences are paired. Keys are detector, or
    `difference`, name and coverage.
    """
    by_detector = {
        "bins": _detector_measures(frame, _float_column(frame, "predicted"), _float_column(frame, "opens"), weight_DS),
        "learned": _detector_measures(
            frame, _float_column(frame, "learned"), _float_column(frame, "learned_opens"), weight_DS
        ),
    }
    named = {(which, *key): x_D for which, measures in by_detector.items() for key, x_D in measures.items()}
    bins, learned = by_detector["bins"], by_detector["learned"]
    # What is only rounding must not lie above zero.
    return named | {("difference", *key): zero_rounding(learned[key] - bins[key]) for key in bins}


def _detector_measures(frame: pd.DataFrame, score_S: Array, opens_S: Array, weight_DS: Array) -> dict[Key, Array]:
    """Compute how well one detector's predictions rank states, and the gain where its gate opens."""
    g_S, gain_S, seen_S = _float_column(frame, "oracle"), _float_column(frame, "always"), frame["bin"].to_numpy() >= 0
    positive_S, nowhere_D = (g_S > 0).astype(np.float64), np.full(len(weight_DS), np.nan)
    with_signal = (score_S[seen_S], positive_S[seen_S], weight_DS[:, seen_S])
    place_S = frame["place"].to_numpy()[seen_S]
    named: dict[Key, Array] = {
        ("auroc", ""): auroc(score_S, positive_S, weight_DS),
        ("auroc_among", ""): auroc(*with_signal) if seen_S.any() else nowhere_D,
        ("auroc_within", ""): auroc(*with_signal, place_S) if seen_S.any() else nowhere_D,
        ("spearman", ""): spearman(score_S, g_S, weight_DS),
        ("selective", ""): weighted_mean(weight_DS, np.where(opens_S > 0, gain_S, 0.0)),
        ("coverage", ""): weighted_mean(weight_DS, opens_S),
    }
    captured_DC = captured_shares([(score_S, g_S, weight_DS)], COVERAGES)
    lift_DC = sum_top_states(score_S, gain_S, COVERAGES, weight_DS) / weight_DS.sum(1, keepdims=True)
    for k, c in enumerate(COVERAGES):
        named |= {("captured", c): captured_DC[:, k], ("ranked_lift", c): lift_DC[:, k]}
    return named


def mean_detector_comparison(
    frames: Mapping[str, Sequence[pd.DataFrame]], *, seed: int, resamples: int = RESAMPLES
) -> dict[tuple[str, str, Any], Estimate]:
    """Average `compare_detectors` over tasks, each counting the same, and over the settings of each task.

    Prompts are drawn within each task, once for all its settings. A setting in which a number does not exist is no part
    of that number's mean.
    """
    prompts = [np.unique(np.concatenate([one["prompt"].to_numpy() for one in group])) for group in frames.values()]
    edges = np.cumsum([0, *map(len, prompts)])
    cells = [
        (task, one, start + np.searchsorted(names, one["prompt"].to_numpy()))
        for task, (group, names, start) in enumerate(zip(frames.values(), prompts, edges, strict=False))
        for one in group
    ]

    def numbers(count_DP: Array) -> dict[tuple[str, str, Any], Array]:
        tables = [compare_detectors(one, count_DP[:, prompt_S]) for _, one, prompt_S in cells]
        return {key: np.stack([table[key] for table in tables]) for key in tables[0]}

    # Tasks that have a number weigh the same in its mean, and the settings of a task share its weight.
    task_N = np.array([task for task, _, _ in cells])
    share = {}
    for key, values in numbers(np.ones((1, edges[-1]))).items():
        there_N = np.isfinite(values[:, 0])
        size_N = np.array([(task_N[there_N] == task).sum() for task in task_N])
        tasks = len(np.unique(task_N[there_N]))
        share[key] = np.where(there_N, 1 / np.maximum(tasks * size_N, 1), 0.0)

    def means(count_DP: Array) -> dict[tuple[str, str, Any], Array]:
        found = {}
        for key, values in numbers(count_DP).items():
            there = share[key] > 0
            found[key] = share[key][there] @ values[there] if there.any() else np.full(values.shape[1], np.nan)
        return found

    return bootstrap(
        means,
        [len(names) for names in prompts],
        task_seeds(seed, frames),
        resamples=resamples,
        width=sum(len(one) for _, one, _ in cells),
    )


def _float_column(frame: pd.DataFrame, name: str) -> Array:
    """Return a column as contiguous floats, because a strided one may be summed in another order."""
    return np.ascontiguousarray(frame[name].to_numpy(), dtype=np.float64)
