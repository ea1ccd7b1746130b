"""E2: does the diagnostic pick useful actions? On held-out states, apart from whether it knows when to act.

Section 6.3. Regret against the cross-fitted oracle beside that of the stage-only schedule, the share of the oracle's
gap that is recovered, and how often the proposal leads where a candidate leads. NumPy in, numbers out.
"""

from dataclasses import dataclass

import numpy as np

from unmask.stats.bootstrap import Estimate, ratio
from unmask.stats.calibration import Calibration, graded
from unmask.stats.crossfit import Array, Bools
from unmask.stats.errors import NotEnough
from unmask.stats.experiment import Experiment
from unmask.stats.resample import few_positive, means, resampled
from unmask.stats.tables import Graded, HeldOutTable


@dataclass(frozen=True)
class Viability:
    """The paper's screen. Exploratory: it sees held-out outcomes, so it describes settings and confirms nothing."""

    lower_regret: bool
    """The diagnostic's regret is below the stage-only schedule's."""
    recovers: bool
    """It recovers a positive share of the oracle's gap."""
    label: str = "exploratory: chosen by held-out outcomes"

    @property
    def passed(self) -> bool:
        """Both hold."""
        return self.lower_regret and self.recovers


@dataclass(frozen=True)
class ActionChoice:
    """What the diagnostic's action is worth on held-out states, below theta the fixed action."""

    calibration: Calibration
    oracle_gap: Estimate
    """Mean cross-fitted opportunity: what a perfect choice among the candidates gains."""
    lift: Estimate
    """Mean over all states of Q(diagnostic) - Q(fixed)."""
    stage_lift: Estimate
    always_lift: Estimate
    """That of the diagnostic's action wherever it proposes one, whatever theta."""
    regret: Estimate
    """Oracle gap less lift; below 0 where a proposal outside the candidate set beats all of them."""
    stage_regret: Estimate
    less_regret: Estimate
    """Stage-only regret less the diagnostic's, on the same prompts; above 0 where the diagnostic is better."""
    recovered: Estimate
    """Lift over oracle gap, a ratio of means; NaN where there is no gap."""
    stage_recovered: Estimate
    acted: Estimate
    """Share of states where it takes its own action: it proposes one, and its signal reaches theta."""
    abstained: Estimate
    """Share of states where it proposes nothing."""
    agrees_fixed: Estimate
    """Of its proposals, the share with the next state of the fixed action."""
    agrees_oracle: Estimate
    """With that of the action that a fold picks; both folds averaged."""
    agrees_any: Estimate
    """With that of some candidate."""
    viability: Viability
    states: int
    excluded: int
    """States left out: no utility of the fixed action, the scheduled one or the proposal."""
    unreliable: str
    """Why the intervals should not be relied on; empty where they may be."""


@dataclass(frozen=True)
class ActionSelection:
    """E2 with the diagnostic's own actions, and with the nearest candidates in their place."""

    raw: ActionChoice
    snapped: ActionChoice


def select_actions(experiment: Experiment) -> ActionSelection:
    """E2: what validation states chose, measured on held-out ones."""
    return ActionSelection(_choice(experiment, "raw"), _choice(experiment, "snapped"))


def measured(held: Graded[HeldOutTable], chosen: Calibration) -> tuple[Array, Bools]:
    """Gain of the stage-only schedule, and the states on which every arm has a utility."""
    stage_S = held.action_gain(chosen.schedule.actions(held.table.masked_S))
    used_S = held.used_S & np.isfinite(stage_S)
    if not used_S.any():
        raise NotEnough(
            "no held-out state has utilities of the fixed action, the scheduled action and the proposal in both folds; "
            "one or more are needed: add rollouts, or leave this setting out"
        )
    return stage_S, used_S


def _choice(experiment: Experiment, proposal: str) -> ActionChoice:
    held_out, settings, chosen = experiment.held_out, experiment.settings, experiment.calibrations[proposal]
    held = graded(held_out, chosen.fixed.action, chosen.settings)
    stage_S, used_S = measured(held, chosen)
    proposed_S = ~held_out.abstained_S
    acts_S = chosen.theta.active(held_out.signal_S) & proposed_S
    same_SA = (held_out.raw if proposal == "raw" else held_out.snapped).same_SA
    row = np.arange(len(same_SA))
    column = {
        "oracle_gap": held.fit.g_S,
        "lift": np.where(acts_S, held.gain_S, 0.0),
        "stage_lift": stage_S,
        "always_lift": held.gain_S,
        "acted": acts_S,
        "abstained": ~proposed_S,
        "agrees_fixed": same_SA[:, held.fixed] & proposed_S,
        "agrees_oracle": np.mean([same_SA[row, chosen_S] for chosen_S in held.fit.chosen_FS], 0) * proposed_S,
        "agrees_any": same_SA.any(1) & proposed_S,
    }
    column = {name: x_S[used_S].astype(np.float64) for name, x_S in column.items()}

    def numbers(weight_DS: Array) -> dict[str, Array]:
        mean = {name: means(weight_DS, x_S) for name, x_S in column.items()}
        for name in ("agrees_fixed", "agrees_oracle", "agrees_any"):
            mean[name] = ratio(mean[name], 1 - mean["abstained"])
        return mean | {
            "regret": mean["oracle_gap"] - mean["lift"],
            "stage_regret": mean["oracle_gap"] - mean["stage_lift"],
            "less_regret": mean["lift"] - mean["stage_lift"],
            "recovered": ratio(mean["lift"], mean["oracle_gap"]),
            "stage_recovered": ratio(mean["stage_lift"], mean["oracle_gap"]),
        }

    prompt_S = held_out.prompt_S[used_S]
    estimates = resampled(numbers, prompt_S, seed=settings.seed, resamples=settings.resamples, level=settings.level)
    return ActionChoice(
        calibration=chosen,
        **estimates,
        viability=Viability(estimates["less_regret"].value > 0, estimates["recovered"].value > 0),
        states=int(used_S.sum()),
        excluded=int((~used_S).sum()),
        unreliable=few_positive(prompt_S, held.fit.g_S[used_S]),
    )
