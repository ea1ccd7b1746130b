"""Held-out states as columns: what each arm gains at each, how the detector ranks them, and means over tasks.

`selective_utility` has the means of one table; these columns are behind them. NumPy in, numbers out.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from unmask.stats.bootstrap import Estimate, bootstrap, cluster_sums, codes, mean_of_tasks, ratio, task_seeds
from unmask.stats.calibration import Calibration, graded
from unmask.stats.crossfit import Array, Ints
from unmask.stats.detection import ExperimentSettings
from unmask.stats.ranking import auroc
from unmask.stats.resample import resampled
from unmask.stats.selection import measured
from unmask.stats.selective import ARMS
from unmask.stats.tables import HeldOutTable


@dataclass(frozen=True)
class HeldOutStates:
    """What each way to choose an action gains at the states that have all utilities."""

    prompt_S: np.ndarray
    place_S: Ints
    """Which of its prompt's states it is, in the order of the run."""
    fixed_S: Array
    """Q of the fixed action."""
    gain: Mapping[str, Array]
    """Of each of `ARMS` but the fixed one."""
    deviates_S: Array
    """1 where the gate is open."""
    bin_S: Ints
    """The detector's bin; -1 without a signal."""

    @property
    def g_S(self) -> Array:
        """Cross-fitted opportunity."""
        return self.gain["oracle"]


def states_of(held_out: HeldOutTable, chosen: Calibration, place_S: Ints) -> HeldOutStates:
    """The columns that `selective_utility` averages: it has no means over tasks, and no bins of held-out states."""
    held = graded(held_out, chosen.fixed.action, chosen.settings)
    stage_S, used_S = measured(held, chosen)
    proposed_S, signal_S = ~held_out.abstained_S, held_out.signal_S
    opens_S = chosen.tau.active(chosen.detector.predict(signal_S)) & proposed_S
    gain = {
        "stage": stage_S,
        "always": held.gain_S,
        "diagnostic": np.where(chosen.theta.active(signal_S) & proposed_S, held.gain_S, 0.0),
        "selective": np.where(opens_S, held.gain_S, 0.0),
        "oracle": held.fit.g_S,
    }
    return HeldOutStates(
        prompt_S=held_out.prompt_S[used_S],
        place_S=place_S[used_S],
        fixed_S=held.fixed_utility_S[used_S],
        gain={arm: x_S[used_S] for arm, x_S in gain.items()},
        deviates_S=opens_S[used_S].astype(np.float64),
        bin_S=chosen.detector.bin_of(signal_S)[used_S],
    )


def aurocs(states: HeldOutStates, chosen: Calibration, settings: ExperimentSettings) -> tuple[Estimate, Estimate]:
    """How the detector ranks the held-out states that have a signal: all of them, and those of equal place."""
    seen_S = states.bin_S >= 0
    if not seen_S.any():
        unknown = Estimate(float("nan"), float("nan"), float("nan"), settings.resamples)
        return unknown, unknown
    predicted_S, positive_S = chosen.detector.g_B[states.bin_S[seen_S]], (states.g_S > 0)[seen_S].astype(np.float64)
    place_S = states.place_S[seen_S]
    estimates = resampled(
        lambda weight_DS: {
            "among": auroc(predicted_S, positive_S, weight_DS),
            "within": auroc(predicted_S, positive_S, weight_DS, place_S),
        },
        states.prompt_S[seen_S],
        seed=settings.seed,
        resamples=settings.resamples,
        level=settings.level,
    )
    return estimates["among"], estimates["within"]


def macro(held: Mapping[str, HeldOutStates], settings: ExperimentSettings) -> dict[tuple[str, str], Estimate]:
    """Means of task means, by kind of number and arm; prompts are drawn within each task, and calibrations stay."""
    sums_T = []
    for states in held.values():
        code_S, prompts = codes(states.prompt_S)
        columns = [np.ones(len(code_S)), states.fixed_S, *(states.gain[arm] for arm in ARMS[1:]), states.deviates_S]
        sums_T.append(cluster_sums(np.stack(columns, 1), code_S, prompts))
    names: list[tuple[str, str]] = []

    def numbers(count_DP: Array) -> Array:
        by_name = _macro_numbers(mean_of_tasks(sums_T, count_DP))
        names[:] = by_name
        return np.stack(list(by_name.values()), 1)

    estimates = bootstrap(
        numbers,
        [len(sums_PM) for sums_PM in sums_T],
        seeds=task_seeds(settings.seed, held),
        resamples=settings.resamples,
        level=settings.level,
    )
    return dict(zip(names, estimates, strict=True))


def _macro_numbers(mean_DM: Array) -> dict[tuple[str, str], Array]:
    """From means of counts, the fixed action's utility, the arms' gains and open gates to everything said of them."""
    lift = {arm: mean_DM[:, 2 + at] for at, arm in enumerate(ARMS[1:])}
    base_D = mean_DM[:, 1]
    numbers = {("utility", "fixed"): base_D} | {("utility", arm): base_D + x_D for arm, x_D in lift.items()}
    numbers |= {("lift", arm): x_D for arm, x_D in lift.items()} | {("gate", "coverage"): mean_DM[:, -1]}
    numbers["choice", "recovered"] = ratio(lift["diagnostic"], lift["oracle"])
    numbers["choice", "less_regret"] = lift["diagnostic"] - lift["stage"]
    return numbers
