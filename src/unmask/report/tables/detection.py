"""The tables of E2 and E3: which actions diagnostics choose, and whether their signals say where to take them."""

from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise
from math import inf

import numpy as np

from unmask.lab.analysis.detection import RANKINGS, DetectionFindings, SettingOutcome
from unmask.report.tables.opportunity import (
    CELL,
    NOTES,
    RATE,
    Column,
    Sheet,
    Value,
    count,
    notes,
    number,
    share,
    text_or_none,
)
from unmask.report.tables.selection import PROPOSAL, STATES, cell_key, diagnostics, outcomes, selection, threshold
from unmask.stats import ARMS, COVERAGES, Detection, TransitionUtility

ARM_NAMES = {
    "fixed": "fixed",
    "stage": "stage-only",
    "always": "always",
    "diagnostic": "diagnostic",
    "selective": "selective",
    "oracle": "oracle",
}


def sheets(found: DetectionFindings, suffix: str = "") -> tuple[Sheet, ...]:
    """All tables, in the order of the page; `suffix` is for the names of files."""
    made = (selection, diagnostics, _lifts, _utility, _detection, _means, _coverage, _bins)
    return tuple(build(found, suffix) for build in made)


def missing_sheet(found: DetectionFindings) -> Sheet:
    return Sheet(
        "e23-missing",
        "Diagnostics without numbers",
        "Models, tasks and diagnosed axes that nothing is reported on.",
        (*CELL, Column("reason", "reason", left=True)),
        tuple((m.model, m.task, m.axis, m.reason) for m in found.missing),
        empty="None: every diagnosed model, task and axis has numbers.",
    )


class DetectionVerdict(StrEnum):
    """What the interval of the selective policy's lift allows to say."""

    LIFT = "lift"
    HINT = "hint: too few prompts"
    NOTHING = "no significant lift"
    LOSS = "loss"
    NEVER = "never deviates"


def verdict(utility: TransitionUtility) -> DetectionVerdict:
    lift = utility.lift["selective"]
    if utility.calibration.tau.value is None:
        return DetectionVerdict.NEVER
    if lift.positive:
        return DetectionVerdict.HINT if utility.unreliable else DetectionVerdict.LIFT
    return DetectionVerdict.LOSS if lift.high < 0 else DetectionVerdict.NOTHING


def _lifts(found: DetectionFindings, suffix: str) -> Sheet:
    columns = (
        *CELL,
        PROPOSAL,
        Column("verdict", "selective policy", left=True),
        *NOTES,
        Column("coverage", "deviates at", share, wide=True),
        *(Column(arm, ARM_NAMES[arm], number, wide=True) for arm in ARMS[1:]),
        Column("tau", "", number),
        Column("", "deviates where the prediction is at least", left=True),
        Column("tau_reason", ""),
        Column("tau_out_of_fold", "out-of-fold lift on validation", number),
        Column("tau_error", "± standard error", number),
    )
    return Sheet(
        f"e3-lift{suffix}",
        "Would acting pay? Lift over the fixed action",
        "Mean over all held-out states of Q(chosen) − Q(fixed), one step at a time. Stage-only: the best action of "
        "each stage; always: the diagnostic's action wherever it proposes one; diagnostic: where its signal reaches "
        "theta; selective: where the detector's prediction reaches tau; oracle: the best candidate. Everything was "
        "chosen on validation prompts; never: they gave no reason to deviate. A lift is one if its interval lies "
        "above zero.",
        columns,
        tuple(
            (
                *cell_key(cell),
                proposal,
                verdict(outcome.utility),
                *notes(outcome.utility, cell.partial),
                outcome.utility.coverage,
                *(outcome.utility.lift[arm] for arm in ARMS[1:]),
                outcome.calibration.tau.value,
                threshold(outcome.calibration.tau),
                outcome.calibration.tau.reason,
                outcome.calibration.tau.out_of_fold,
                outcome.calibration.tau.error,
            )
            for cell, proposal, outcome in outcomes(found)
        ),
        empty="None.",
    )


def _utility(found: DetectionFindings, suffix: str) -> Sheet:
    return Sheet(
        f"e3-utility{suffix}",
        "Transition utility",
        "Mean utility of each way to choose one action, after which the reference goes on to the end.",
        (*CELL, PROPOSAL, *(Column(arm, ARM_NAMES[arm], number, wide=True) for arm in ARMS), *NOTES, *STATES),
        tuple(
            (
                *cell_key(cell),
                proposal,
                *(outcome.utility.utility[arm] for arm in ARMS),
                *notes(outcome.utility, cell.partial),
                outcome.utility.states,
                outcome.utility.excluded,
            )
            for cell, proposal, outcome in outcomes(found)
        ),
        empty="None.",
    )


_AT_TEN = (
    ("captured", "C_det(10 %)", share),
    ("concentration", "C*(10 %)", share),
    ("efficiency", "efficiency", share),
    ("lift", "lift at 10 %", number),
    ("oracle_lift", "with an oracle gate", number),
    ("random_lift", "with random states", number),
)


def _detection(found: DetectionFindings, suffix: str) -> Sheet:
    columns = (
        *CELL,
        PROPOSAL,
        Column("auroc", "AUROC", number, wide=True),
        Column("auroc_among", "where there is a signal", number, wide=True),
        Column("auroc_within", "at the same step", number, wide=True),
        Column("spearman", "Spearman", number, wide=True),
        RATE,
        *(Column(f"{key}_10", head, show, wide=True) for key, head, show in _AT_TEN),
        *NOTES,
        Column("reason", "why something is missing", left=True, show=text_or_none),
    )
    return Sheet(
        f"e3-detection{suffix}",
        "Predictable before acting?",
        "How the detector's prediction ranks held-out states. AUROC: for states with a gain, 0.5 is chance. States "
        "without a signal rank last, which alone may move it; beside it those with one, and those with one compared "
        "only with states as far into their run, where knowing the stage does not help. C_det: share of all "
        "opportunity in the 10 % ranked first; C*: in the 10 % that hold most; efficiency: the one by the other. "
        "Lifts are those of the diagnostic's action on those 10 % only, whatever theta. To rank well and to gain are "
        "two things.",
        columns,
        tuple(
            (
                *cell_key(cell),
                proposal,
                ranking.auroc,
                outcome.auroc_among,
                outcome.auroc_within,
                ranking.spearman,
                ranking.positive_rate,
                *(getattr(ranking.at[0.1], key) for key, _, _ in _AT_TEN),
                *notes(ranking, cell.partial),
                ranking.reason,
            )
            for cell, proposal, outcome in outcomes(found)
            for ranking in (outcome.utility.detection,)
        ),
        empty="None.",
    )


def _means(found: DetectionFindings, suffix: str) -> Sheet:
    heads = {
        "auroc": ("AUROC", number),
        "spearman": ("Spearman", number),
        "captured_10": ("C_det(10 %)", share),
        "efficiency_10": ("efficiency", share),
        "lift_10": ("lift at 10 %", number),
    }
    columns = (
        Column("model", "model", left=True),
        Column("axis", "axis", left=True),
        PROPOSAL,
        Column("tasks", "tasks", count),
        Column("fixed", "fixed", number, wide=True),
        *(Column(arm, "", wide=True) for arm in ARMS[1:]),
        *(Column(f"{arm}_lift", f"{ARM_NAMES[arm]} lift", number, wide=True) for arm in ARMS[1:]),
        Column("less_regret", "regret saved", number, wide=True),
        Column("recovered", "recovered gap", share, wide=True),
        Column("coverage", "deviates at", share, wide=True),
        *(c for key, (head, show) in heads.items() for c in (Column(key, head, show), Column(f"{key}_tasks", ""))),
        *NOTES,
    )
    return Sheet(
        f"e3-means{suffix}",
        "Diagnostics: means over tasks",
        "Each task counts the same, with its own fixed action and detector; intervals draw prompts within each task. "
        "The recovered gap is mean lift by mean gap. Means of AUROC, Spearman, C_det, efficiency and lift at 10 % are "
        "over the tasks on which they exist, and have no intervals.",
        columns,
        tuple(
            (
                m.model,
                m.axis,
                m.proposal,
                len(m.tasks),
                *(m.utility[arm] for arm in ARMS),
                *(m.lift[arm] for arm in ARMS[1:]),
                m.less_regret,
                m.recovered,
                m.coverage,
                *(x for name in RANKINGS for x in (m.plain[name].value, m.plain[name].tasks)),
                *notes(m, m.partial),
            )
            for m in found.means
        ),
        empty="None.",
    )


_AT = (
    ("captured", "C_det", share),
    ("concentration", "C*", share),
    ("efficiency", "efficiency", share),
    ("random_captured", "random", share),
    ("lift", "lift", number),
    ("random_lift", "random lift", number),
    ("oracle_lift", "oracle-gate lift", number),
    ("precision", "precision", share),
    ("recall", "recall", share),
)


def _coverage(found: DetectionFindings, suffix: str) -> Sheet:
    columns = (
        *CELL,
        PROPOSAL,
        Column("coverage", "coverage", _percent),
        *(Column(key, head, show, wide=True) for key, head, show in _AT),
        *NOTES,
    )
    return Sheet(
        f"e3-coverage{suffix}",
        "At limited coverage",
        "Acting on the best-ranked share of states only. Random: 10,000 random choices of as many states, with the "
        "interval over choices. Oracle gate: states ranked by one fold's opportunity, the diagnostic's gain from the "
        "other fold. Precision: share of the chosen states with a gain; recall: share of the states with a gain that "
        "are chosen.",
        columns,
        tuple(_coverage_rows(found)),
        folded=True,
        empty="None.",
    )


def _coverage_rows(found: DetectionFindings) -> Iterator[tuple[Value, ...]]:
    for cell, proposal, outcome in outcomes(found):
        detection: Detection = outcome.utility.detection
        for c in COVERAGES:
            values = (getattr(detection.at[c], key) for key, _, _ in _AT)
            yield (*cell_key(cell), proposal, c, *values, *notes(detection, cell.partial))


def _percent(value: Value) -> str:
    return f"{100 * float(value):g} %" if isinstance(value, float) else str(value)


def held_out_bins(outcome: SettingOutcome) -> list[tuple[int, float]]:
    """Held-out states in each of the detector's bins, and their mean opportunity; NaN without any."""
    states = outcome.states
    inside = [states.g_S[states.bin_S == b] for b in range(len(outcome.calibration.detector.g_B))]
    return [(len(g), float(np.mean(g)) if len(g) else float("nan")) for g in inside]


def _bins(found: DetectionFindings, suffix: str) -> Sheet:
    columns = (
        *CELL,
        PROPOSAL,
        Column("bin", "bin", count),
        Column("from", "signal from", _edge),
        Column("to", "to below", _edge),
        Column("states", "validation states", count),
        Column("positive", "with a gain", count),
        Column("predicted", "predicted opportunity", number),
        Column("opens", "deviates", _yes),
        Column("held_out_states", "held-out states", count),
        Column("held_out", "their opportunity", number),
    )
    return Sheet(
        f"e3-bins{suffix}",
        "Detectors",
        "Bins of the signal with the mean opportunity of their validation states, which is what a detector predicts, "
        "and beside it that of the held-out states in the same bin. States without a signal are in none.",
        columns,
        tuple(_bin_rows(found)),
        folded=True,
        empty="None.",
    )


def _bin_rows(found: DetectionFindings) -> Iterator[tuple[Value, ...]]:
    for cell, proposal, outcome in outcomes(found):
        detector = outcome.calibration.detector
        opens_B = outcome.calibration.tau.active(detector.g_B)
        edges = [-inf, *detector.start_E.tolist(), inf]
        for b, ((low, high), (states, g)) in enumerate(zip(pairwise(edges), held_out_bins(outcome), strict=True)):
            seen = (int(detector.states_B[b]), int(detector.positive_B[b]), float(detector.g_B[b]))
            yield (*cell_key(cell), proposal, b, low, high, *seen, bool(opens_B[b]), states, g)


def _edge(value: Value) -> str:
    return "–∞" if value == -inf else "∞" if value == inf else f"{value:.4g}"


def _yes(value: Value) -> str:
    return "yes" if value else "no"
