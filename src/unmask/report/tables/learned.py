"""The tables of the learned detector beside the bins of one signal."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter

from unmask.lab.analysis.learned import LearnedCell, LearnedFindings, LearnedMean
from unmask.report.formats import count, number, percent, point, share, share_point
from unmask.report.sheet import AnySheet, Column, Format, Sheet, Value, attribute
from unmask.report.tables.shared import MEAN, diagnosed, missing_sheet, notes
from unmask.report.verdicts import rival_verdict
from unmask.stats import AtCoverage, Estimate
from unmask.stats.learned import weights
from unmask.stats.rivals import Key, at

_MEASURES: tuple[tuple[str, str, Format, Format], ...] = (
    ("auroc", "AUROC", point, number),
    ("auroc_within", "at the same step", point, number),
    (at("captured", 0.1), "C_det(10 %)", share_point, share),
    (at("lift", 0.1), "lift at 10 %", point, number),
    ("selective", "selective lift", point, number),
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
    numbers: Mapping[Key, Estimate]
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
        *(column for key in _MORE for column in _rivals(key)),
        Column(
            "verdict",
            "lift at 10 %: learned is",
            lambda row: rival_verdict(row.numbers["difference", at("lift", 0.1)], row.unreliable),
            left=True,
        ),
        *(Column(f"{key}_10", head, _control(key), show, wide=True) for key, head, show in _CONTROLS),
        *notes(lambda row: row, attrgetter("partial")),
        Column("penalty", None, _of_cell(lambda cell: cell.gate.detector.penalty)),
        Column("validation_states", None, _of_cell(lambda cell: cell.gate.detector.states)),
        Column("validation_prompts", None, _of_cell(lambda cell: cell.gate.detector.prompts)),
        Column("tau", None, _of_cell(lambda cell: cell.gate.tau.value)),
        Column("tau_reason", None, _of_cell(lambda cell: cell.gate.tau.reason)),
        Column("tau_out_of_fold", None, _of_cell(lambda cell: cell.gate.tau.out_of_fold)),
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
    key: str, head: str | None = None, show: Format = str, difference: Format = str
) -> tuple[Column[RivalRow], ...]:
    """Bins, learned and the difference of one measure; without a head in files only."""
    heads = (None, None, None) if head is None else (f"{head}: bins", "learned", "Δ")
    shows = (show, show, difference)
    return tuple(
        Column(f"{rival}_{key}", said, _number(rival, key), written, wide=True)
        for rival, said, written in zip(("bins", "learned", "difference"), heads, shows, strict=True)
    )


def _number(rival: str, key: str) -> Callable[[RivalRow], Value]:
    return lambda row: row.numbers[rival, key]


def _control(key: str) -> Callable[[RivalRow], Value]:
    return lambda row: None if row.cell is None else getattr(row.cell.controls[0.1], key)


def _of_cell(get: Callable[[LearnedCell], Value]) -> Callable[[RivalRow], Value]:
    """What means do not have."""
    return lambda row: None if row.cell is None else get(row.cell)


@dataclass(frozen=True)
class RivalCoverageRow(RivalRow):
    """A setting where only the best-ranked share of states may deviate."""

    coverage: float
    control: AtCoverage


def _coverage_rows(findings: LearnedFindings) -> Iterator[RivalCoverageRow]:
    for cell in findings.cells:
        row = _row(cell, cell.task, 1, cell)
        for c, control in cell.controls.items():
            yield RivalCoverageRow(**vars(row), coverage=c, control=control)


def learned_coverage_sheet(findings: LearnedFindings, suffix: str) -> AnySheet:
    rows = list(_coverage_rows(findings))
    columns: tuple[Column[RivalCoverageRow], ...] = (
        *diagnosed(rows, "model", "task"),
        attribute("coverage", "coverage", percent),
        *_at_coverage("captured", "C_det", share_point, share),
        attribute("concentration", "C*", share_point, path="control.concentration", wide=True),
        attribute("random_captured", "random", share_point, path="control.random_captured", wide=True),
        *_at_coverage("lift", "lift", point, number),
        attribute("random_lift", "random lift", point, path="control.random_lift", wide=True),
        attribute("oracle_lift", "oracle-gate lift", point, path="control.oracle_lift", wide=True),
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


def _at_coverage(name: str, head: str, show: Format, difference: Format) -> tuple[Column[RivalCoverageRow], ...]:
    shown = (("bins", f"{head}: bins", show), ("learned", "learned", show), ("difference", "Δ", difference))
    return tuple(
        Column(f"{rival}_{name}", said, _number_at(rival, name), written, wide=True) for rival, said, written in shown
    )


def _number_at(rival: str, name: str) -> Callable[[RivalCoverageRow], Value]:
    return lambda row: row.numbers[rival, at(name, row.coverage)]


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
        for rank, (name, weight) in enumerate(weights(cell.gate.detector), 1)
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
