"""The tables of a study's report as values, and each as HTML cells, Markdown and CSV."""

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite, isnan
from typing import Protocol

from unmask.lab.analysis.opportunity import OpportunityCell, OpportunityFindings, OpportunityMean
from unmask.policies.candidates import AXES
from unmask.stats import COVERAGES, Estimate
from unmask.stats.estimates import STAGES
from unmask.stats.opportunity import FEWEST

UNRELIABLE, PARTIAL, NONE = "†", "‡", "–"
LEGEND = {
    UNRELIABLE: f"fewer than {FEWEST} prompts have a state with a gain: do not rely on the interval, which is then too "
    "short as a rule. Where the number is 0, no state gained; rare gains may have been missed.",
    PARTIAL: "some prompts are not finished, of those that choose the fixed action or of those it is measured on.",
    NONE: "does not exist or is not known; never 0.",
}

STAGE_NAMES = tuple(
    f"masked {100 * (STAGES - 1 - k) // STAGES}–{100 * (STAGES - k) // STAGES} %" for k in range(STAGES)
)
"""By the masked share of the answer, beginning with the start."""

Value = str | int | float | Estimate | None


@dataclass(frozen=True)
class Column:
    key: str
    """In CSV; empty for a column that only people see."""
    head: str
    """For people; empty for a column that only CSV has."""
    show: Callable[[Value], str] = str
    left: bool = False
    wide: bool = False
    """An estimate: in CSV also `key_low`, `key_high` and `key_undefined`."""


@dataclass(frozen=True)
class Sheet:
    """One table."""

    name: str
    title: str
    note: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    folded: bool = False
    """Long, and seldom read: the page hides it until asked."""
    aside: bool = False
    """CSV only."""
    empty: str = ""
    """What to say where there are no rows."""
    shown: tuple[tuple[str, ...], ...] = field(init=False)
    """The cells that people see, formatted."""

    def __post_init__(self) -> None:
        cells = tuple(
            tuple(c.show(value) for c, value in zip(self.columns, row, strict=True) if c.head) for row in self.rows
        )
        object.__setattr__(self, "shown", cells)

    @property
    def heads(self) -> tuple[Column, ...]:
        """The columns that people see."""
        return tuple(c for c in self.columns if c.head)


# How values look


def number(value: Value) -> str:
    """Four digits, with the interval of an estimate."""
    return _spelled(value, "{:.4f}")


def share(value: Value) -> str:
    """Per cent."""
    return _spelled(value, "{:.1%}").replace("%", " %")


def count(value: Value) -> str:
    return NONE if value is None else f"{value:,}"


def _spelled(value: Value, spec: str) -> str:
    if isinstance(value, Estimate):
        ends = f" [{spec.format(value.low)}, {spec.format(value.high)}]" if isfinite(value.low) else ""
        return _spelled(value.value, spec) + ends
    if value is None or isinstance(value, str) or isnan(value):
        return NONE
    return spec.format(value)


def text_or_none(value: Value) -> str:
    return NONE if value is None or value == "" else str(value)


def _plain(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


# The tables


def sheets(found: OpportunityFindings) -> tuple[Sheet, ...]:
    """All tables, in the order of the page."""
    return (
        _opportunity(found),
        _means(found),
        _stages(found),
        _reversal(found),
        _pairs(found),
        _concentration(found),
        _audit(found),
        _missing(found),
        _unjudged(found),
        _extents(found),
        _cost(found),
        _models(found),
    )


CELL = (Column("model", "model", left=True), Column("task", "task", left=True), Column("axis", "axis", left=True))
NOTES = (Column("", "note", left=True), Column("unreliable", ""), Column("partial", ""))
_DELTA = Column("delta", "Δ_adapt", number, wide=True)
RATE = Column("positive_rate", "positive states", share, wide=True)


def _key(cell: OpportunityCell) -> tuple[Value, ...]:
    return cell.model, cell.task, cell.axis


class Measured(Protocol):
    """Numbers that know whether their intervals may be relied on."""

    @property
    def unreliable(self) -> str: ...


def notes(measured: Measured, partial: str) -> tuple[Value, ...]:
    """The values of `NOTES`."""
    return mark(measured, partial), measured.unreliable, partial


def mark(measured: Measured, partial: str = "") -> str:
    """Signs of the legend."""
    return UNRELIABLE * bool(measured.unreliable) + PARTIAL * bool(partial)


def _opportunity(found: OpportunityFindings) -> Sheet:
    stages = tuple(Column(f"stage_{k}", STAGE_NAMES[k], _value, wide=True) for k in range(STAGES))
    columns = (
        *CELL,
        Column("fixed", "fixed action", left=True),
        Column("is_reference", ""),
        Column("fixed_utility", "its utility", number),
        _DELTA,
        *NOTES,
        RATE,
        Column("frequency", "frequency", share, wide=True),
        Column("margin", "× margin", number, wide=True),
        *stages,
        Column("prompts", "prompts", count),
        Column("positive_prompts", "with a gain", count),
        Column("states", "states", count),
        Column("excluded", "excluded", count),
        Column("validation_states", ""),
    )
    return Sheet(
        "opportunity",
        "Opportunity by axis",
        "Δ_adapt: mean gain of each state's best candidate over the fixed action, which was chosen on validation "
        "prompts. Positive states: share with a gain. Frequency × margin = Δ_adapt: how often another candidate "
        "looks better, and what it then gains. The four columns after that are Δ_adapt by the masked share of the "
        "answer, from the start of decoding to its end.",
        columns,
        tuple(
            (
                *_key(c),
                c.fixed_name,
                c.fixed.action == 0,
                c.base,
                c.overall.delta,
                *notes(c.overall, c.partial),
                c.overall.positive_rate,
                c.overall.frequency,
                c.overall.margin,
                *(c.found.stages[k].delta if k in c.found.stages else None for k in range(STAGES)),
                c.overall.prompts,
                c.overall.positive_prompts,
                c.overall.states,
                c.overall.excluded,
                c.fixed.states,
            )
            for c in found.cells
        ),
        empty="Nothing could be measured; the reasons are below.",
    )


def _value(value: Value) -> str:
    return number(value.value) if isinstance(value, Estimate) else number(value)


def _means(found: OpportunityFindings) -> Sheet:
    columns = (
        Column("model", "model", left=True),
        Column("axis", "axis", left=True),
        Column("tasks", "tasks", count),
        _DELTA,
        *NOTES,
        RATE,
        Column("frequency", "frequency", share, wide=True),
        Column("margin", "× margin", number, wide=True),
        Column("bidirectional", "bidirectional mass", number, wide=True),
        Column("top_10", "held by the top 10 %", share, wide=True),
    )
    return Sheet(
        "means",
        "Means over tasks",
        "Each task counts the same, with its own fixed action. Only tasks that have numbers are in it.",
        columns,
        tuple(
            (
                m.model,
                m.axis,
                len(m.tasks),
                m.overall.delta,
                *notes(m.overall, partial_mean(found, m)),
                m.overall.positive_rate,
                m.overall.frequency,
                m.overall.margin,
                m.overall.bidirectional,
                m.overall.concentration[0.1],
            )
            for m in found.means
        ),
        empty="None.",
    )


def partial_mean(found: OpportunityFindings, mean: OpportunityMean) -> str:
    """What a mean over tasks lacks: tasks without numbers, and those of which only a part is there."""
    lost = [x.task for x in found.missing if (x.model, x.axis) == (mean.model, mean.axis)]
    part = [c.task for c in found.cells if (c.model, c.axis) == (mean.model, mean.axis) and c.partial]
    told = [f"without {', '.join(lost)}"] * bool(lost) + [f"part of {', '.join(part)}"] * bool(part)
    return "; ".join(told)


def _stages(found: OpportunityFindings) -> Sheet:
    columns = (
        *CELL,
        Column("stage", ""),
        Column("masked", "stage", left=True),
        Column("states", "states", count),
        _DELTA,
        *NOTES,
        RATE,
        Column("margin", "margin", number, wide=True),
    )
    return Sheet(
        "stages",
        "By stage, with intervals",
        "Quarters of the masked share of the answer; the fixed action is that of the whole.",
        columns,
        tuple(
            (
                *_key(c),
                k,
                STAGE_NAMES[k],
                part.states,
                part.delta,
                *notes(part, c.partial),
                part.positive_rate,
                part.margin,
            )
            for c in found.cells
            for k, part in c.found.stages.items()
        ),
        folded=True,
    )


def _reversal(found: OpportunityFindings) -> Sheet:
    columns = (
        *CELL,
        RATE,
        Column("bidirectional", "bidirectional mass", number, wide=True),
        Column("pair", "between", left=True, show=text_or_none),
        Column("pairwise", "largest pairwise value", number, wide=True),
        Column("pairwise_pair", "of", left=True, show=text_or_none),
        *NOTES,
    )
    rows = []
    for c in found.cells:
        largest = c.overall.pairwise.largest
        rows.append(
            (
                *_key(c),
                c.overall.positive_rate,
                c.overall.bidirectional,
                _pair(c, c.overall.pair),
                None if largest is None else _pairwise(c, *largest),
                _pair(c, largest),
                *notes(c.overall, c.partial),
            )
        )
    return Sheet(
        "reversal",
        "Anatomy of reversals",
        "Bidirectional mass: the most utility that two candidates each win from the other, so that both are needed; "
        "it is not a percentage. Pairwise value: what a choice by state between two candidates gains over the better "
        "of them on validation; the largest of all pairs is shown, which flatters it. `pairs.csv` has all of them.",
        columns,
        tuple(rows),
    )


def _pair(cell: OpportunityCell, pair: tuple[int, int] | None) -> str | None:
    names = cell.names(pair)
    return None if names is None else " ⇄ ".join(names)


def _pairwise(cell: OpportunityCell, a: int, b: int) -> Estimate:
    table = cell.overall.pairwise
    ends = (float(table.value_AA[a, b]), float(table.low_AA[a, b]), float(table.high_AA[a, b]))
    return Estimate(*ends, int(table.undefined_AA[a, b]))


def _pairs(found: OpportunityFindings) -> Sheet:
    columns = (*CELL, Column("a", "a"), Column("b", "b"), Column("pairwise", "pairwise value", number, wide=True))
    return Sheet(
        "pairs",
        "Every pair",
        "",
        columns,
        tuple(
            (*_key(c), c.candidates[a], c.candidates[b], _pairwise(c, a, b))
            for c in found.cells
            for b in range(len(c.candidates))
            for a in range(b)
        ),
        aside=True,
    )


def _concentration(found: OpportunityFindings) -> Sheet:
    tops = tuple(Column(f"top_{round(100 * x)}", f"top {round(100 * x)} %", share, wide=True) for x in COVERAGES)
    return Sheet(
        "concentration",
        "Concentration",
        "C*(c): the share of all opportunity that the best c of states hold, ranked by one fold of rollouts and "
        "summed by the other. Where fewer states gain than c, all of it lies in the top c. Above 100 % the rest is a "
        "loss; the last column is 100 % wherever there is any opportunity.",
        (*CELL, RATE, *tops, *NOTES),
        tuple(
            (
                *_key(c),
                c.overall.positive_rate,
                *(c.overall.concentration[x] for x in COVERAGES),
                *notes(c.overall, c.partial),
            )
            for c in found.cells
        ),
    )


def _audit(found: OpportunityFindings) -> Sheet:
    columns = (
        *CELL,
        Column("states", "states", count),
        Column("same", "same", count),
        Column("noisy", "noisy", count),
        Column("naive", "naive", number, wide=True),
        Column("delta", "cross-fitted", number, wide=True),
        Column("optimism", "optimism", number, wide=True),
        Column("bracket_low", "bracket from", number),
        Column("bracket_high", "to", number),
        *NOTES,
        Column("crossfitted", ""),
    )
    return Sheet(
        "audit",
        "Audit: naive and cross-fitted",
        "Naive picks and grades the best candidate on the same rollouts; optimism is what that adds. Same: states "
        "where both give one number. Noisy: states where rollouts of a candidate differ; where there are many, the "
        "true Δ_adapt lies above the cross-fitted number and below the naive one, and the bracket is to be reported.",
        columns,
        tuple(
            (
                *_key(c),
                c.overall.audit.states,
                c.overall.audit.same,
                c.overall.audit.noisy,
                c.overall.naive,
                c.overall.delta,
                c.overall.optimism,
                *(c.overall.bracket if c.overall.audit.noisy else (None, None)),
                *notes(c.overall, c.partial),
                c.overall.crossfitted,
            )
            for c in found.cells
        ),
    )


def _missing(found: OpportunityFindings) -> Sheet:
    return Sheet(
        "missing",
        "Without numbers",
        "Models, tasks and axes of the study that nothing is reported on.",
        (*CELL, Column("reason", "reason", left=True)),
        tuple((m.model, m.task, m.axis, m.reason) for m in found.missing),
        empty="None: every model, task and axis has numbers.",
    )


def _unjudged(found: OpportunityFindings) -> Sheet:
    columns = (
        Column("model", "model", left=True),
        Column("task", "task", left=True),
        Column("split", "split", left=True),
        Column("axis", "axis", left=True),
        Column("branches", "branches", count),
        Column("reason", "reason", left=True, show=text_or_none),
    )
    return Sheet(
        "unjudged",
        "Utilities that are missing",
        "Branches whose answer the evaluator could not judge. They are left out, not counted as 0; a state whose "
        "fixed action is among them is excluded.",
        columns,
        tuple((u.model, u.task, u.split, u.axis, u.branches, u.reason) for u in found.unjudged),
        empty="None: every branch was judged.",
    )


def _extents(found: OpportunityFindings) -> Sheet:
    columns = (
        Column("model", "model", left=True),
        Column("task", "task", left=True),
        Column("split", "split", left=True),
        Column("shards", "shards", count),
        Column("planned", "of", count),
        Column("prompts", "prompts", count),
        Column("asked", "asked for", count),
        Column("states", "states", count),
    )
    return Sheet(
        "extent",
        "What is finished",
        "Fewer prompts than asked for in finished shards: the task has no more, or they do not fit into the model.",
        columns,
        tuple((e.model, e.task, e.split, e.shards, e.planned, e.prompts, e.asked, e.states) for e in found.extents),
    )


def _cost(found: OpportunityFindings) -> Sheet:
    columns = (
        Column("model", "model", left=True),
        Column("axis", "axis", left=True),
        Column("branches", "branches", count),
        Column("naive", "naive", count),
        Column("done", "done", count),
        Column("rollouts", "saved: identical rollouts", count),
        Column("first", "first transitions", count),
        Column("futures", "merged futures", count),
        Column("settled", "nothing to revise", count),
        Column("trajectory", "reference runs", count),
        Column("recalled", "recalled", count),
        Column("calls", "passes", count),
        Column("seconds", "seconds", _seconds),
    )
    return Sheet(
        "cost",
        "What it cost",
        "Row-forwards. Naive: every branch for itself; done and saved add up to it. On top come the reference's own "
        "runs and previous posteriors that were computed again (recalled). A pass is one forward of a whole batch.",
        columns,
        tuple(_cost_rows(found)),
    )


def _cost_rows(found: OpportunityFindings) -> Iterator[tuple[Value, ...]]:
    for cost in found.costs:
        report = cost.forwards
        for axis in (*(axis for axis in AXES if axis in report.axes), "all"):
            work = report.total if axis == "all" else report.axes[axis]
            spent = (work.branches, work.naive, work.done, work.rollouts, work.first, work.futures, work.settled)
            rest = (report.trajectory, report.recalled, report.calls, cost.seconds) if axis == "all" else (None,) * 4
            yield cost.model, axis, *spent, *rest


def _seconds(value: Value) -> str:
    return NONE if value is None else f"{value:,.1f}"


def _models(found: OpportunityFindings) -> Sheet:
    columns = tuple(
        Column(key, head, left=True, show=text_or_none)
        for key, head in (
            ("model", "name here"),
            ("loaded", "loaded from"),
            ("reference", "reference update"),
            ("family", "architecture"),
            ("fingerprint", "weights"),
            ("device", "device"),
            ("dtype", "dtype"),
        )
    )
    rows = []
    for spec in found.manifest["study"]["models"]:
        known = found.manifest["models"].get(spec["name"], {})
        options = {**spec.get("options", {}), **known.get("options", {})}
        told = (options.get("family"), options.get("fingerprint"), known.get("device"), options.get("dtype"))
        rows.append((spec["name"], spec["model"], spec["reference"], *told))
    return Sheet(
        "models",
        "Models",
        "Numbers belong to the weights named here. Reference update and architecture name a rule and a construction, "
        "not a published model.",
        columns,
        tuple(rows),
    )


# Other forms


def table_csv(sheet: Sheet) -> str:
    """Every value with all digits; an empty cell where there is none."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    keep = [at for at, column in enumerate(sheet.columns) if column.key]
    ends = ("", "_low", "_high", "_undefined")
    wanted = [sheet.columns[at] for at in keep]
    writer.writerow([c.key + end for c in wanted for end in (ends if c.wide else ends[:1])])
    for row in sheet.rows:
        writer.writerow([cell for at in keep for cell in _flat(row[at], sheet.columns[at].wide)])
    return text.getvalue()


def _flat(value: Value, wide: bool) -> Sequence[str]:
    if isinstance(value, Estimate):
        return [*(_digits(x) for x in (value.value, value.low, value.high)), str(value.undefined)]
    return [_digits(value) if isinstance(value, float) else _plain(value), *[""] * (3 * wide)]


def _digits(value: float) -> str:
    return "" if isnan(value) else repr(value)


def table_markdown(sheet: Sheet) -> str:
    """The cells that people see."""
    if not sheet.rows:
        return sheet.empty
    heads = [column.head for column in sheet.heads]
    sides = ["---" if column.left else "---:" for column in sheet.heads]
    lines = [heads, sides, *sheet.shown]
    return "\n".join(f"| {' | '.join(_inline(cell) for cell in line)} |" for line in lines)


def _inline(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
