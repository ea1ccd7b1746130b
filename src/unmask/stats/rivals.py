"""Two detectors on the same held-out states, bins of one signal and a learned one: each number, and the difference.

States, opportunity, proposals and resampled prompts are the same for both, so that differences are paired; controls
(random states, an oracle gate, C*) do not depend on who ranks. NumPy in, numbers out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unmask.stats.bootstrap import Estimate, bootstrap, task_seeds
from unmask.stats.calibration import Calibration, graded
from unmask.stats.capture import Ranked, captured_shares, top_sums
from unmask.stats.crossfit import Array, Bools, Ints, snap
from unmask.stats.detection import ExperimentSettings, ranks
from unmask.stats.learned import Featured, LearnedGate
from unmask.stats.ranking import auroc, spearman
from unmask.stats.resample import means, resampled
from unmask.stats.selection import measured
from unmask.stats.tables import HeldOutTable, LeakageError

RIVALS = ("bins", "learned")
WHOLE = ("auroc", "auroc_among", "auroc_within", "spearman", "selective", "coverage")
"""Ranking of all states, of those with a signal, of those as far into their run; with opportunity itself; lift and
coverage of the gate that validation chose."""
Key = tuple[str, str]
"""A rival, or `difference` for learned less bins; and a measure: of `WHOLE`, or a name from `at`."""


def at(name: str, coverage: float) -> str:
    """The name of a measure at a coverage: `captured` (C_det) or `lift`."""
    return f"{name}_{100 * coverage:g}"


@dataclass(frozen=True)
class RivalStates:
    """Held-out states as columns, with what either detector says of them."""

    prompt_S: NDArray
    place_S: Ints
    """Which of its prompt's states it is, in the order of the run."""
    seen_S: Bools
    """Those with a signal."""
    g_S: Array
    """Cross-fitted opportunity."""
    gain_S: Array
    """What the diagnostic's action gains over the fixed one, 0 where it proposes none."""
    score: Mapping[str, Array]
    """What ranks them, by `RIVALS`; NaN ranks last."""
    opens: Mapping[str, Bools]
    """Where the gate is open."""


def rival_states(
    held_out: Featured[HeldOutTable], chosen: Calibration, gate: LearnedGate, place_S: Ints, ties: str = "expectation"
) -> RivalStates:
    """The states that E3 measures the bins on, all of them and no others."""
    table = held_out.table
    if not isinstance(table, HeldOutTable):
        raise LeakageError(f"the table to measure on is a {type(table).__name__}; it must be a HeldOutTable")
    held = graded(table, chosen.fixed.action, chosen.settings)
    _, used_S = measured(held, chosen)
    binned_S, learned_S = chosen.detector.predict(table.signal_S), gate.detector.predict(held_out.inputs_SN)
    opens = {
        "bins": chosen.tau.active(binned_S) & ~table.abstained_S,
        "learned": gate.opens(learned_S, table.abstained_S),
    }
    score = {"bins": ranks(binned_S, table.signal_S, ties), "learned": learned_S}
    return RivalStates(
        prompt_S=table.prompt_S[used_S],
        place_S=place_S[used_S],
        seen_S=~np.isnan(table.signal_S[used_S]),
        g_S=held.fit.g_S[used_S],
        gain_S=held.gain_S[used_S],
        score={name: x_S[used_S] for name, x_S in score.items()},
        opens={name: x_S[used_S] for name, x_S in opens.items()},
    )


def compare_rivals(states: RivalStates, settings: ExperimentSettings) -> dict[Key, Estimate]:
    """Both rivals and their difference, with intervals over held-out prompts; what was fitted stays as it is."""
    return resampled(
        lambda weight_DS: _numbers(states, settings.coverages, weight_DS),
        states.prompt_S,
        seed=settings.seed,
        resamples=settings.resamples,
        level=settings.level,
    )


def mean_rivals(held: Mapping[str, Sequence[RivalStates]], settings: ExperimentSettings) -> dict[Key, Estimate]:
    """Means over tasks, each of which counts the same, and so do the settings of a task, where there are several.

    Prompts are drawn within each task, once for all its settings. A setting in which a number does not exist is no part
    of that number's mean.
    """
    prompts = [np.unique(np.concatenate([one.prompt_S for one in group])) for group in held.values()]
    edges = np.cumsum([0, *map(len, prompts)])
    cells = [
        (task, one, start + np.searchsorted(names, one.prompt_S))
        for task, (group, names, start) in enumerate(zip(held.values(), prompts, edges, strict=False))
        for one in group
    ]

    def numbers(count_DP: Array) -> dict[Key, Array]:
        tables = [_numbers(one, settings.coverages, count_DP[:, at_S]) for _, one, at_S in cells]
        return {key: np.stack([table[key] for table in tables]) for key in tables[0]}

    once = numbers(np.ones((1, edges[-1])))
    share = {key: _shares(np.array([task for task, _, _ in cells]), values[:, 0]) for key, values in once.items()}

    def columns(count_DP: Array) -> Array:
        return np.stack([_weighted(values, share[key]) for key, values in numbers(count_DP).items()], 1)

    estimates = bootstrap(
        columns,
        [len(names) for names in prompts],
        seeds=task_seeds(settings.seed, held),
        resamples=settings.resamples,
        level=settings.level,
        width=sum(len(one.prompt_S) for _, one, _ in cells),
    )
    return dict(zip(once, estimates, strict=True))


def _shares(task: Ints, point: Array) -> Array:
    """What each setting counts: those that have the number share its task's part, and tasks that have it are equal."""
    there = np.isfinite(point)
    tasks, settings = np.unique(task[there], return_counts=True)
    size = dict(zip(tasks.tolist(), settings.tolist(), strict=True))
    return np.array([1 / (len(size) * size[one]) if known else 0.0 for one, known in zip(task, there, strict=True)])


def _weighted(values: Array, share: Array) -> Array:
    """NaN without any setting, and in replicates in which one of them has no number."""
    there = share > 0
    return share[there] @ values[there] if there.any() else np.full(values.shape[1], np.nan)


def _numbers(states: RivalStates, coverages: Sequence[float], weight_DS: Array) -> dict[Key, Array]:
    by_rival = {rival: _of_one(states, rival, coverages, weight_DS) for rival in RIVALS}
    numbers = {(rival, name): x_D for rival, named in by_rival.items() for name, x_D in named.items()}
    bins, learned = (by_rival[rival] for rival in RIVALS)
    # What is only rounding must not lie above zero.
    return numbers | {("difference", name): snap(learned[name] - bins[name]) for name in bins}


def _of_one(states: RivalStates, rival: str, coverages: Sequence[float], weight_DS: Array) -> dict[str, Array]:
    score_S, opens_S, seen_S = states.score[rival], states.opens[rival], states.seen_S
    positive_S, nowhere_D = (states.g_S > 0).astype(np.float64), np.full(len(weight_DS), np.nan)
    with_signal = (score_S[seen_S], positive_S[seen_S], weight_DS[:, seen_S])
    named = {
        "auroc": auroc(score_S, positive_S, weight_DS),
        "auroc_among": auroc(*with_signal) if seen_S.any() else nowhere_D,
        "auroc_within": auroc(*with_signal, states.place_S[seen_S]) if seen_S.any() else nowhere_D,
        "spearman": spearman(score_S, states.g_S, weight_DS),
        "selective": means(weight_DS, np.where(opens_S, states.gain_S, 0.0)),
        "coverage": means(weight_DS, opens_S.astype(np.float64)),
    }
    captured_DC = captured_shares([Ranked(score_S, states.g_S, weight_DS)], coverages)
    lift_DC = top_sums(score_S, states.gain_S, coverages, weight_DS) / weight_DS.sum(1, keepdims=True)
    for k, c in enumerate(coverages):
        named |= {at("captured", c): captured_DC[:, k], at("lift", c): lift_DC[:, k]}
    return named
