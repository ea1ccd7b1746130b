"""The tables of the learned detector beside the bins of one signal."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from unmask.lab.analysis.learned import ComparedKey, LearnedCell, LearnedFindings, LearnedMean
from unmask.report.formats import count, number, percent, point, share, share_point
from unmask.report.sheet import AnySheet, Column, Format, Sheet, Value, attribute
from unmask.report.tables.shared import MEAN, diagnosed, missing_sheet, notes
from unmask.report.verdicts import rival_verdict
from unmask.stats import COVERAGES, Estimate
from unmask.stats.measures import DETECTORS

LIFT = ("ranked_lift", 0.1)
"""The measure that says whether a learned detector helps."""
_MEASURES: tuple[tuple[str, tuple[str, Any], str, Format, Format], ...] = (
    ("auroc", ("auroc", ""), "AUROC", point, number),
    ("auroc_within", ("auroc_within", ""), "at the same step", point, number),
    ("captured_10", ("captured", 0.1), "C_det(10 %)", share_point, share),
    ("lift_10", LIFT, "lift at 10 %", point, number),
    ("selective", ("selective", ""), "selective lift", point, number),
)
"""Shown to people; files have the others, too."""
_MORE = ("auroc_among", "spearman", "coverage")
_CONTROLS = (
    ("concentration", "C*(10 %)", share_point),
    ("random_captured", "random C(10 %)", share_point),
    ("random_lift", "random lift", point),
    ("oracle_lift", "oracle-gate lift", point),
)


def sheets(findings: LearnedFindings, suffix: str = "") -> tuple[AnySheet, ...]:
    """In the order of the page; `suffix` is for the names of files."""
    return learned_sheet(findings, suffix), learned_coverage_sheet(findings, suffix), weights_sheet(findings, suffix)


@dataclass(frozen=True)
class RivalRow:
    """A cell, or a mean over tasks."""

    model: str
    task: str
    axis: str
    diagnostic: str
    numbers: Mapping[ComparedKey, Estimate]
    unreliable: str
    partial: str
    settings: int
    cell: LearnedCell | None


def rival_rows(findings: LearnedFindings) -> Iterator[RivalRow]:
    """Each model's settings, and then its means."""
    for model in dict.fromkeys(c.model for c in findings.cells):
        yield from (_row(c, c.task, 1, c) for c in findings.cells if c.model == model)
        yield from (_row(mean, MEAN, mean.settings) for mean in findings.means if mean.model == model)


def _row(one: LearnedCell | LearnedMean, task: str, settings: int, cell: LearnedCell | None = None) -> RivalRow:
    names = (one.model, task, one.axis, one.diagnostic)
    return RivalRow(*names, one.numbers, one.unreliable, one.partial, settings, cell)


def learned_sheet(findings: LearnedFindings, suffix: str) -> AnySheet:
    rows = list(rival_rows(findings))
    columns: tuple[Column[RivalRow], ...] = (
        *diagnosed(rows, "model", "task"),
        *(column for measure in _MEASURES for column in _rivals(*measure)),
        *(column for key in _MORE for column in _rivals(key, (key, ""))),
        Column(
            "verdict",
            "lift at 10 %: learned is",
            lambda row: rival_verdict(row.numbers["difference", *LIFT], row.unreliable),
            left=True,
        ),
        *(Column(f"{key}_10", head, _control(key), show, wide=True) for key, head, show in _CONTROLS),
        *notes(lambda row: row, attrgetter("partial")),
        Column("penalty", None, _of_cell(lambda cell: cell.detector.penalty)),
        Column("validation_states", None, _of_cell(lambda cell: cell.detector.states)),
        Column("validation_prompts", None, _of_cell(lambda cell: cell.detector.prompts)),
        Column("tau", None, _of_cell(lambda cell: cell.detector.tau.value)),
        Column("tau_reason", None, _of_cell(lambda cell: cell.detector.tau.reason)),
        Column("tau_out_of_fold", None, _of_cell(lambda cell: cell.detector.tau.out_of_fold)),
        Column("bins_never", None, _of_cell(lambda cell: cell.bins_never)),
        attribute("settings", "settings", count),
    )
    return Sheet(
        f"e3-learned{suffix}",
        "A learned detector beside the bins of one signal",
        "Both rank the same held-out states, and the diagnostic's own action is taken at those ranked first. Bins: "
        "mean opportunity by the diagnostic's own signal. Learned: a ridge regression of opportunity on what all "
        "diagnostics read, how far the run is, and entropies and margins of the prediction; its penalty and threshold "
        "are chosen out of fold on validation prompts. Δ: learned less bins, with its paired interval. At the same "
        "step: states with a signal compared only with states as far into their run. Selective: acting where the gate "
        "opens that validation chose. Random states, the oracle gate and C* are the same whoever ranks. Means count "
        "each task the same.",
        columns,
        rows,
        empty="None.",
    )


def _rivals(
    key: str, name: tuple[str, Any], head: str | None = None, show: Format = str, difference: Format = str
) -> tuple[Column[RivalRow], ...]:
    """Bins, learned and the difference of one measure; without a head in files only."""
    heads = (None, None, None) if head is None else (f"{head}: bins", "learned", "Δ")
    shows = (show, show, difference)
    return tuple(
        Column(f"{rival}_{key}", said, _number(rival, name), written, wide=True)
        for rival, said, written in zip((*DETECTORS, "difference"), heads, shows, strict=True)
    )


def _number(rival: str, name: tuple[str, Any]) -> Callable[[RivalRow], Value]:
    return lambda row: row.numbers[rival, *name]


def _control(key: str) -> Callable[[RivalRow], Value]:
    return lambda row: None if row.cell is None else row.cell.controls[key, 0.1]


def _of_cell(get: Callable[[LearnedCell], Value]) -> Callable[[RivalRow], Value]:
    """What means do not have."""
    return lambda row: None if row.cell is None else get(row.cell)


@dataclass(frozen=True)
class RivalCoverageRow(RivalRow):
    """A setting where only the best-ranked share of states may deviate."""

    coverage: float


def _coverage_rows(findings: LearnedFindings) -> Iterator[RivalCoverageRow]:
    for cell in findings.cells:
        row = _row(cell, cell.task, 1, cell)
        for c in COVERAGES:
            yield RivalCoverageRow(**vars(row), coverage=c)


def learned_coverage_sheet(findings: LearnedFindings, suffix: str) -> AnySheet:
    rows = list(_coverage_rows(findings))
    columns: tuple[Column[RivalCoverageRow], ...] = (
        *diagnosed(rows, "model", "task"),
        attribute("coverage", "coverage", percent),
        *_at_coverage("captured", "C_det", share_point, share),
        _control_at("concentration", "C*", share_point),
        _control_at("random_captured", "random", share_point),
        *_at_coverage("lift", "lift", point, number, name="ranked_lift"),
        _control_at("random_lift", "random lift", point),
        _control_at("oracle_lift", "oracle-gate lift", point),
        *notes(lambda row: row, attrgetter("partial")),
    )
    return Sheet(
        f"e3-learned-coverage{suffix}",
        "A learned detector at limited coverage",
        "Acting on the share of states that bins, or the learned detector, rank first, beside as many random states "
        "and an oracle gate. Δ: learned less bins.",
        columns,
        rows,
        folded=True,
        empty="None.",
    )


def _control_at(key: str, head: str, show: Format) -> Column[RivalCoverageRow]:
    def get(row: RivalCoverageRow) -> Value:
        assert row.cell is not None
        return row.cell.controls[key, row.coverage]

    return Column(key, head, get, show, wide=True)


def _at_coverage(
    key: str, head: str, show: Format, difference: Format, name: str = ""
) -> tuple[Column[RivalCoverageRow], ...]:
    shown = (("bins", f"{head}: bins", show), ("learned", "learned", show), ("difference", "Δ", difference))
    return tuple(
        Column(f"{rival}_{key}", said, _number_at(rival, name or key), written, wide=True)
        for rival, said, written in shown
    )


def _number_at(rival: str, name: str) -> Callable[[RivalCoverageRow], Value]:
    return lambda row: row.numbers[rival, name, row.coverage]


@dataclass(frozen=True)
class WeightRow:
    """One column of a learned detector."""

    model: str
    task: str
    axis: str
    diagnostic: str
    rank: int
    column: str
    weight: float


def weights_sheet(findings: LearnedFindings, suffix: str) -> AnySheet:
    rows = [
        WeightRow(cell.model, cell.task, cell.axis, cell.diagnostic, rank, name, weight)
        for cell in findings.cells
        for rank, (name, weight) in enumerate(cell.detector.sorted_weights(), 1)
    ]
    columns: tuple[Column[WeightRow], ...] = (
        *diagnosed(rows, "model", "task"),
        attribute("rank", "rank", count),
        attribute("column", "column", left=True),
        attribute("weight", "weight", number),
    )
    return Sheet(
        f"e3-learned-weights{suffix}",
        "What the learned detectors weigh",
        "Weights of a detector's columns, the largest first: opportunity for one standard deviation of a column.",
        columns,
        rows,
        aside=True,
        empty="None.",
    )


def learned_missing_sheet(findings: LearnedFindings) -> AnySheet:
    return missing_sheet(
        "e3-learned-missing",
        "Nothing could be learned",
        "Settings with bins and without a learned detector.",
        findings.missing,
        "None: every setting with bins has a learned detector.",
    )
