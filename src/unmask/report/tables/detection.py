"""The tables of E3: whether a diagnostic's signal says where to act, and what that gains. Those of E2 come first."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from operator import attrgetter

import numpy as np

from unmask.lab.analysis.detection import RANKINGS, DetectionCell, DetectionFindings, DetectionMean, SettingOutcome
from unmask.report.formats import count, edge, number, percent, share, share_point, text_or_none, yes_no
from unmask.report.sheet import AnySheet, Column, Sheet, Value, attribute
from unmask.report.tables import shared
from unmask.report.tables.selection import (
    PROPOSAL,
    OutcomeRow,
    diagnostics_sheet,
    outcome_columns,
    outcome_rows,
    selection_sheet,
    threshold,
)
from unmask.report.tables.shared import counts, diagnosed, mark, measure, notes, positive_rate
from unmask.report.verdicts import lift_verdict
from unmask.stats import COVERAGES
from unmask.stats.measures import ARMS

ARM_NAMES = {
    "fixed": "fixed",
    "stage": "stage-only",
    "always": "always",
    "diagnostic": "diagnostic",
    "selective": "selective",
    "oracle": "oracle",
}


def sheets(findings: DetectionFindings, suffix: str = "") -> tuple[AnySheet, ...]:
    """In the order of the page; `suffix` is for the names of files."""
    return tuple(
        build(findings, suffix)
        for build in (
            selection_sheet,
            diagnostics_sheet,
            lift_sheet,
            utility_sheet,
            detection_sheet,
            means_sheet,
            coverage_sheet,
            bins_sheet,
        )
    )


def missing_sheet(findings: DetectionFindings) -> AnySheet:
    return shared.missing_sheet(
        "e23-missing",
        "Diagnostics without numbers",
        "Models, tasks and diagnosed axes that nothing is reported on.",
        findings.missing,
        "None: every diagnosed model, task and axis has numbers.",
    )


def lift_sheet(findings: DetectionFindings, suffix: str) -> AnySheet:
    columns: tuple[Column[OutcomeRow], ...] = (
        *outcome_columns(findings),
        Column("verdict", "selective policy", lambda row: lift_verdict(row.outcome), left=True),
        *notes(attrgetter("outcome.measures"), attrgetter("partial")),
        measure("coverage", "deviates at", share, path="outcome.measures"),
        *(measure(arm, ARM_NAMES[arm], number, path="outcome.measures", name="lift", at=arm) for arm in ARMS[1:]),
        attribute("tau", None, path="outcome.calibration.tau.value"),
        Column(
            None,
            "deviates where the prediction is at least",
            lambda row: threshold(row.outcome.calibration.tau),
            left=True,
        ),
        attribute("tau_reason", None, path="outcome.calibration.tau.reason"),
        attribute(
            "tau_out_of_fold",
            "out-of-fold lift on validation",
            number,
            path="outcome.calibration.tau.out_of_fold",
        ),
        attribute("tau_error", "± standard error", number, path="outcome.calibration.tau.error"),
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
        list(outcome_rows(findings)),
        empty="None.",
    )


def utility_sheet(findings: DetectionFindings, suffix: str) -> AnySheet:
    columns: tuple[Column[OutcomeRow], ...] = (
        *outcome_columns(findings),
        *(measure(arm, ARM_NAMES[arm], number, path="outcome.measures", name="utility", at=arm) for arm in ARMS),
        *notes(attrgetter("outcome.measures"), attrgetter("partial")),
        *counts("states", "excluded", path="outcome.measures."),
    )
    return Sheet(
        f"e3-utility{suffix}",
        "Transition utility",
        "Mean utility of each way to choose one action, after which the reference goes on to the end.",
        columns,
        list(outcome_rows(findings)),
        empty="None.",
    )


_AT_TEN = (
    ("captured", "C_det(10 %)", share),
    ("concentration", "C*(10 %)", share),
    ("efficiency", "efficiency", share),
    ("lift", "lift at 10 %", number),
    ("theta_lift", "and from theta on", number),
    ("oracle_lift", "with an oracle gate", number),
    ("random_lift", "with random states", number),
)
_RANKED = {"lift": "ranked_lift"}
"""Measures at a coverage that are not called as their columns are."""


def detection_sheet(findings: DetectionFindings, suffix: str) -> AnySheet:
    path = "outcome.measures"
    columns: tuple[Column[OutcomeRow], ...] = (
        *outcome_columns(findings),
        measure("auroc", "AUROC", number, path=path),
        measure("auroc_among", "where there is a signal", number, path=path),
        measure("auroc_within", "at the same step", number, path=path),
        measure("spearman", "Spearman", number, path=path),
        positive_rate(path),
        *(
            measure(f"{key}_10", head, show, path=path, name=_RANKED.get(key, key), at=0.1)
            for key, head, show in _AT_TEN
        ),
        *notes(attrgetter(path), attrgetter("partial")),
        attribute("reason", "why something is missing", text_or_none, path="outcome.reason", left=True),
    )
    return Sheet(
        f"e3-detection{suffix}",
        "Predictable before acting?",
        "How the detector's prediction ranks held-out states. AUROC: for states with a gain, 0.5 is chance. States "
        "without a signal rank last, which alone may move it; beside it those with one, and those with one compared "
        "only with states as far into their run, where knowing the stage does not help. C_det: share of all "
        "opportunity in the 10 % ranked first; C*: in the 10 % that hold most; efficiency: the one by the other. "
        "Lifts are those of the diagnostic's action on those 10 % only, whatever theta; and from theta on: those of "
        "them alone whose signal reaches it. To rank well and to gain are two things.",
        columns,
        list(outcome_rows(findings)),
        empty="None.",
    )


_RANKINGS = {
    "auroc": ("AUROC", number),
    "spearman": ("Spearman", number),
    "captured_10": ("C_det(10 %)", share),
    "efficiency_10": ("efficiency", share),
    "lift_10": ("lift at 10 %", number),
    "theta_lift_10": ("and from theta on", number),
}


def means_sheet(findings: DetectionFindings, suffix: str) -> AnySheet:
    path = "estimates"
    columns: tuple[Column[DetectionMean], ...] = (
        *diagnosed(findings.means, "model"),
        PROPOSAL,
        Column("tasks", "tasks", lambda mean: len(mean.tasks), count),
        measure("fixed", "fixed", number, path=path, name="utility", at="fixed"),
        *(measure(arm, None, str, path=path, name="utility", at=arm) for arm in ARMS[1:]),
        *(measure(f"{arm}_lift", f"{ARM_NAMES[arm]} lift", number, path=path, name="lift", at=arm) for arm in ARMS[1:]),
        measure("less_regret", "regret saved", number, path=path),
        measure("recovered", "recovered gap", share, path=path),
        measure("coverage", "deviates at", share, path=path),
        *(column for name in RANKINGS for column in _mean_of_ranking(name)),
        *notes(lambda mean: mean, attrgetter("partial")),
    )
    return Sheet(
        f"e3-means{suffix}",
        "Diagnostics: means over tasks",
        "Each task counts the same, with its own fixed action and detector; intervals draw prompts within each task. "
        "The recovered gap is mean lift by mean gap. Means of AUROC, Spearman, C_det, efficiency and lifts at 10 % are "
        "over the tasks on which they exist, and have no intervals.",
        columns,
        findings.means,
        empty="None.",
    )


def _mean_of_ranking(name: str) -> tuple[Column[DetectionMean], ...]:
    """Its mean, and over how many tasks."""
    head, show = _RANKINGS[name]
    return (
        Column(name, head, lambda mean: mean.plain[name].value, show),
        Column(f"{name}_tasks", None, lambda mean: mean.plain[name].tasks),
    )


@dataclass(frozen=True)
class CoverageRow(OutcomeRow):
    """An outcome where only the best-ranked share of states may deviate."""

    coverage: float


def _at_coverage(key: str) -> Callable[[CoverageRow], Value]:
    return lambda row: row.outcome.measures[_RANKED.get(key, key), row.coverage]


_AT = (
    ("captured", "C_det", share),
    ("concentration", "C*", share),
    ("efficiency", "efficiency", share),
    ("random_captured", "random", share),
    ("lift", "lift", number),
    ("theta_lift", "lift with theta", number),
    ("random_lift", "random lift", number),
    ("oracle_lift", "oracle-gate lift", number),
    ("precision", "precision", share),
    ("recall", "recall", share),
)


def coverage_sheet(findings: DetectionFindings, suffix: str) -> AnySheet:
    columns: tuple[Column[CoverageRow], ...] = (
        *outcome_columns(findings),
        attribute("coverage", "coverage", percent),
        *(Column(key, head, _at_coverage(key), show, wide=True) for key, head, show in _AT),
        *notes(attrgetter("outcome.measures"), attrgetter("partial")),
    )
    return Sheet(
        f"e3-coverage{suffix}",
        "At limited coverage",
        "Acting on the best-ranked share of states only; with theta, on those of them whose signal reaches it, so that "
        "it stays as it is once all of these are among them. Random: 10,000 random choices of as many states, with the "
        "interval over choices. Oracle gate: states ranked by one fold's opportunity, the diagnostic's gain from the "
        "other fold. Precision: share of the chosen states with a gain; recall: share of the states with a gain that "
        "are chosen.",
        columns,
        [CoverageRow(r.cell, r.proposal, r.outcome, c) for r in outcome_rows(findings) for c in COVERAGES],
        folded=True,
        empty="None.",
    )


def held_out_bins(outcome: SettingOutcome) -> list[tuple[int, float]]:
    """Held-out states in each of the detector's bins, and their mean opportunity; NaN without any."""
    bin_S, g_S = outcome.frame["bin"].to_numpy(), outcome.frame["oracle"].to_numpy()
    inside = [g_S[bin_S == b] for b in range(len(outcome.calibration.detector.g_B))]
    return [(len(g), float(np.mean(g)) if len(g) else float("nan")) for g in inside]


@dataclass(frozen=True)
class BinRow(OutcomeRow):
    """One bin of a detector's signal."""

    bin: int
    low: float
    high: float
    states: int
    positive: int
    predicted: float
    opens: bool
    held_out_states: int
    held_out: float


def _bin_rows(findings: DetectionFindings) -> Iterator[BinRow]:
    for row in outcome_rows(findings):
        detector, tau = row.outcome.calibration.detector, row.outcome.calibration.tau
        opens_B = tau.active(detector.g_B)
        edges = [-inf, *detector.start_E.tolist(), inf]
        bins = zip(pairwise(edges), held_out_bins(row.outcome), strict=True)
        for b, ((low, high), (states, g)) in enumerate(bins):
            seen = (int(detector.states_B[b]), int(detector.positive_B[b]), float(detector.g_B[b]))
            yield BinRow(row.cell, row.proposal, row.outcome, b, low, high, *seen, bool(opens_B[b]), states, g)


def bins_sheet(findings: DetectionFindings, suffix: str) -> AnySheet:
    columns: tuple[Column[BinRow], ...] = (
        *outcome_columns(findings),
        *counts("bin"),
        attribute("from", "signal from", edge, path="low"),
        attribute("to", "to below", edge, path="high"),
        attribute("states", "validation states", count),
        attribute("positive", "with a gain", count),
        attribute("predicted", "predicted opportunity", number),
        attribute("opens", "deviates", yes_no),
        attribute("held_out_states", "held-out states", count),
        attribute("held_out", "their opportunity", number),
    )
    return Sheet(
        f"e3-bins{suffix}",
        "Detectors",
        "Bins of the signal with the mean opportunity of their validation states, which is what a detector predicts, "
        "and beside it that of the held-out states in the same bin. States without a signal are in none.",
        columns,
        list(_bin_rows(findings)),
        folded=True,
        empty="None.",
    )


def screen_sheet(findings: DetectionFindings) -> AnySheet:
    """What fits on a terminal, of the diagnostics' own actions."""
    several = len({cell.model for cell in findings.cells}) > 1
    columns: tuple[Column[DetectionCell], ...] = (
        *diagnosed(findings.cells, *["model"] * several, "task"),
        Column("auroc", "AUROC", lambda cell: cell.raw.measures["auroc"], number),
        Column("selective", "selective lift", lambda cell: cell.raw.measures["lift", "selective"], number),
        Column(None, "", lambda cell: mark(cell.raw.measures, cell.partial)),
        Column("coverage", "deviates at", lambda cell: cell.raw.measures["coverage"], share_point),
        Column("verdict", "", lambda cell: lift_verdict(cell.raw)),
    )
    return Sheet("screen-detection", "", "", columns, findings.cells)
