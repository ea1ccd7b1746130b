"""E3: can opportunity be detected, and how much one-step utility does acting on it recover?

Sections 6.4 and 6.5. Mean utility of several ways to choose the action of held-out states, how well the detector ranks
them, and what limited coverage recovers. NumPy in, numbers out.
"""

from dataclasses import dataclass

import numpy as np

from unmask.stats.bootstrap import Estimate
from unmask.stats.calibration import Calibration, graded
from unmask.stats.crossfit import Array
from unmask.stats.detection import Detection, Scored, detection_measures, ranks
from unmask.stats.experiment import Experiment
from unmask.stats.resample import means, resampled
from unmask.stats.selection import measured

ARMS = ("fixed", "stage", "always", "diagnostic", "selective", "oracle")


@dataclass(frozen=True)
class TransitionUtility:
    """One step chosen in several ways, then the reference to the end."""

    calibration: Calibration
    utility: dict[str, Estimate]
    """Mean Q of each of `ARMS`. `always` is the diagnostic wherever it proposes, `diagnostic` where its signal reaches
    theta, `selective` where the detector's prediction reaches tau."""
    lift: dict[str, Estimate]
    """Mean over all states of Q(chosen) - Q(fixed), of each of `ARMS` but the fixed one; paired."""
    coverage: Estimate
    """Share of states where the selective policy deviates."""
    detection: Detection
    """Lifts at a coverage are those of the diagnostic's action wherever it proposes one, coverage standing for theta;
    `theta_lift` beside them has both."""
    states: int
    excluded: int
    """States left out: no utility of the fixed action, the scheduled one or the proposal."""
    crossfitted: bool

    @property
    def unreliable(self) -> str:
        """Why the intervals should not be relied on; empty where they may be."""
        return self.detection.unreliable


@dataclass(frozen=True)
class SelectiveUtility:
    """E3 with the diagnostic's own actions, and with the nearest candidates in their place."""

    raw: TransitionUtility
    snapped: TransitionUtility


def selective_utility(experiment: Experiment) -> SelectiveUtility:
    """E3: what validation states chose, measured on held-out ones."""
    return SelectiveUtility(_transition(experiment, "raw"), _transition(experiment, "snapped"))


def _transition(experiment: Experiment, proposal: str) -> TransitionUtility:
    held_out, settings, chosen = experiment.held_out, experiment.settings, experiment.calibrations[proposal]
    held = graded(held_out, chosen.fixed.action, chosen.settings)
    stage_S, used_S = measured(held, chosen)
    predicted_S = chosen.detector.predict(held_out.signal_S)
    acts_S = chosen.theta.active(held_out.signal_S) & ~held_out.abstained_S
    opens_S = chosen.tau.active(predicted_S) & ~held_out.abstained_S
    gain = {
        "stage": stage_S,
        "always": held.gain_S,
        "diagnostic": np.where(acts_S, held.gain_S, 0.0),
        "selective": np.where(opens_S, held.gain_S, 0.0),
        "oracle": held.fit.g_S,
    }
    fixed_S, gain = held.fixed_utility_S[used_S], {name: x_S[used_S] for name, x_S in gain.items()}
    deviates_S = opens_S[used_S].astype(np.float64)

    def numbers(weight_DS: Array) -> dict[tuple[str, str], Array]:
        base_D = means(weight_DS, fixed_S)
        lift = {name: means(weight_DS, x_S) for name, x_S in gain.items()}
        utility = {"fixed": base_D} | {name: base_D + x_D for name, x_D in lift.items()}
        columns = {("utility", name): x_D for name, x_D in utility.items()}
        columns |= {("lift", name): x_D for name, x_D in lift.items()}
        return columns | {("gate", "coverage"): means(weight_DS, deviates_S)}

    estimates = resampled(
        numbers, held_out.prompt_S[used_S], seed=settings.seed, resamples=settings.resamples, level=settings.level
    )
    states = Scored(
        score_S=ranks(predicted_S, held_out.signal_S, settings.ties)[used_S],
        g_S=held.fit.g_S[used_S],
        g_FS=held.fit.g_FS[:, used_S],
        seen_FS=held.fit.seen_FS[:, used_S],
        gain_FS=held.gain_FS[:, used_S],
        acts_S=acts_S[used_S],
        prompt_S=held_out.prompt_S[used_S],
    )
    return TransitionUtility(
        calibration=chosen,
        utility={arm: estimates["utility", arm] for arm in ARMS},
        lift={arm: estimates["lift", arm] for arm in ARMS[1:]},
        coverage=estimates["gate", "coverage"],
        detection=detection_measures(states, settings),
        states=int(used_S.sum()),
        excluded=int((~used_S).sum()),
        crossfitted=held.fit.crossfitted,
    )
