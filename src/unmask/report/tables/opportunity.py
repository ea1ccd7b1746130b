"""The tables of E1: how much choosing by state could gain, where that lies, and how concentrated it is."""

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

from unmask.lab.analysis.opportunity import OpportunityCell, OpportunityFindings, OpportunityMean
from unmask.report.formats import count, number, point, share, share_point, text_or_none
from unmask.report.sheet import AnySheet, Column, Sheet, Value, attribute
from unmask.report.tables.shared import CELL, STAGE_NAMES, counts, mark, measure, named, notes, positive_rate
from unmask.stats import COVERAGES, STAGES
from unmask.stats.measures import Opportunity

_NOTES = notes(attrgetter("overall"), attrgetter("partial"))
_DELTA = measure("delta", "Δ_adapt", number, path="overall")
_RATE = positive_rate("overall")
_FREQUENCY = measure("frequency", "frequency", share, path="overall")
_MARGIN = measure("margin", "× margin", number, path="overall")
_BIDIRECTIONAL = measure("bidirectional", "bidirectional mass", number, path="overall")


def sheets(findings: OpportunityFindings) -> tuple[AnySheet, ...]:
    """In the order of the page."""
    return (
        opportunity_sheet(findings),
        means_sheet(findings),
        stages_sheet(findings),
        reversal_sheet(findings),
        pairs_sheet(findings),
        concentration_sheet(findings),
        audit_sheet(findings),
    )


def opportunity_sheet(findings: OpportunityFindings) -> AnySheet:
    columns: tuple[Column[OpportunityCell], ...] = (
        *CELL,
        attribute("fixed", "fixed action", path="fixed_name", left=True),
        Column("is_reference", None, lambda cell: cell.fixed.action == 0),
        attribute("fixed_utility", "its utility", number, path="base"),
        _DELTA,
        *_NOTES,
        _RATE,
        _FREQUENCY,
        _MARGIN,
        *(Column(f"stage_{k}", STAGE_NAMES[k], _delta_at(k), point, wide=True) for k in range(STAGES)),
        *counts("prompts", path="overall."),
        attribute("positive_prompts", "with a gain", count, path="overall.positive_prompts"),
        *counts("states", "excluded", path="overall."),
        attribute("validation_states", None, path="fixed.states"),
    )
    return Sheet(
        "opportunity",
        "Opportunity by axis",
        "Δ_adapt: mean gain of each state's best candidate over the fixed action, which was chosen on validation "
        "prompts (of equal ones the reference, then the first by name). Positive states: share with a gain. Frequency "
        "× margin = Δ_adapt: how often another candidate looks better, and what it then gains. The four columns after "
        "that are Δ_adapt by the masked share of the answer, from the start of decoding to its end.",
        columns,
        findings.cells,
        empty="Nothing could be measured; the reasons are below.",
    )


def _delta_at(stage: int) -> Callable[[OpportunityCell], Value]:
    def get(cell: OpportunityCell) -> Value:
        return cell.stages[stage]["delta"] if stage in cell.stages else None

    return get


def means_sheet(findings: OpportunityFindings) -> AnySheet:
    columns: tuple[Column[OpportunityMean], ...] = (
        *named("model", "axis"),
        Column("tasks", "tasks", lambda mean: len(mean.tasks), count),
        _DELTA,
        *notes(attrgetter("overall"), lambda mean: partial_mean(findings, mean)),
        _RATE,
        _FREQUENCY,
        _MARGIN,
        _BIDIRECTIONAL,
        Column("top_10", "held by the top 10 %", _held_by(0.1), share, wide=True),
    )
    return Sheet(
        "means",
        "Means over tasks",
        "Each task counts the same, with its own fixed action. Only tasks that have numbers are in it.",
        columns,
        findings.means,
        empty="None.",
    )


def partial_mean(findings: OpportunityFindings, mean: OpportunityMean) -> str:
    """What a mean over tasks lacks: tasks without numbers, and those of which only a part is there."""
    key = (mean.model, mean.axis)
    lost = [x.task for x in findings.missing if (x.model, x.axis) == key]
    part = [c.task for c in findings.cells if (c.model, c.axis) == key and c.partial]
    return "; ".join([f"without {', '.join(lost)}"] * bool(lost) + [f"part of {', '.join(part)}"] * bool(part))


@dataclass(frozen=True)
class StageRow:
    """One stage of a cell."""

    cell: OpportunityCell
    stage: int
    overall: Opportunity


def stages_sheet(findings: OpportunityFindings) -> AnySheet:
    columns: tuple[Column[StageRow], ...] = (
        *named("model", "task", "axis", path="cell."),
        attribute("stage", None),
        Column("masked", "stage", lambda row: STAGE_NAMES[row.stage], left=True),
        *counts("states", path="overall."),
        _DELTA,
        *notes(attrgetter("overall"), attrgetter("cell.partial")),
        _RATE,
        measure("margin", "margin", number, path="overall"),
    )
    return Sheet(
        "stages",
        "By stage, with intervals",
        "Quarters of the masked share of the answer; the fixed action is that of the whole.",
        columns,
        [StageRow(cell, k, part) for cell in findings.cells for k, part in cell.stages.items()],
        folded=True,
    )


def reversal_sheet(findings: OpportunityFindings) -> AnySheet:
    columns: tuple[Column[OpportunityCell], ...] = (
        *CELL,
        _RATE,
        _BIDIRECTIONAL,
        Column("pair", "between", lambda cell: _pair(cell, cell.overall.pair), text_or_none, left=True),
        Column("pairwise", "largest pairwise value", _largest_pairwise, number, wide=True),
        Column("pairwise_pair", "of", lambda cell: _pair(cell, cell.overall.largest_pair), text_or_none, left=True),
        *_NOTES,
    )
    return Sheet(
        "reversal",
        "Anatomy of reversals",
        "Bidirectional mass: the most utility that two candidates each win from the other, so that both are needed; "
        "it is not a percentage. Pairwise value: what a choice by state between two candidates gains over the better "
        "of them on validation; the largest of all pairs is shown, which flatters it. `pairs.csv` has all of them.",
        columns,
        findings.cells,
    )


def _pair(cell: OpportunityCell, pair: tuple[int, int] | None) -> str | None:
    names = cell.names(pair)
    return None if names is None else " ⇄ ".join(names)


def _largest_pairwise(cell: OpportunityCell) -> Value:
    largest = cell.overall.largest_pair
    return None if largest is None else cell.overall["pairwise", largest]


@dataclass(frozen=True)
class PairRow:
    """Two candidates of a cell."""

    cell: OpportunityCell
    a: int
    b: int


def _pairwise(row: PairRow) -> Value:
    return row.cell.overall["pairwise", (row.a, row.b)]


def pairs_sheet(findings: OpportunityFindings) -> AnySheet:
    columns: tuple[Column[PairRow], ...] = (
        *named("model", "task", "axis", path="cell."),
        Column("a", "a", lambda row: row.cell.candidates[row.a]),
        Column("b", "b", lambda row: row.cell.candidates[row.b]),
        Column(
            "pairwise", "pairwise value", lambda row: row.cell.overall["pairwise", (row.a, row.b)], number, wide=True
        ),
    )
    pairs = [PairRow(cell, a, b) for cell in findings.cells for b in range(len(cell.candidates)) for a in range(b)]
    return Sheet("pairs", "Every pair", "", columns, pairs, aside=True)


def concentration_sheet(findings: OpportunityFindings) -> AnySheet:
    tops = [round(100 * coverage) for coverage in COVERAGES]
    columns: tuple[Column[OpportunityCell], ...] = (
        *CELL,
        _RATE,
        *(
            Column(f"top_{top}", f"top {top} %", _held_by(coverage), share, wide=True)
            for top, coverage in zip(tops, COVERAGES, strict=True)
        ),
        *_NOTES,
    )
    return Sheet(
        "concentration",
        "Concentration",
        "C*(c): the share of all opportunity that the best c of states hold, ranked by one fold of rollouts and "
        "summed by the other. Where fewer states gain than c, all of it lies in the top c. Above 100 % the rest is a "
        "loss; the last column is 100 % wherever there is any opportunity.",
        columns,
        findings.cells,
    )


def _held_by(coverage: float) -> Callable[[OpportunityCell | OpportunityMean], Value]:
    """The share of the opportunity that the best states hold."""
    return lambda row: row.overall["concentration", coverage]


def audit_sheet(findings: OpportunityFindings) -> AnySheet:
    columns: tuple[Column[OpportunityCell], ...] = (
        *CELL,
        *counts("states", "same", "noisy", path="overall."),
        measure("naive", "naive", number, path="overall"),
        measure("delta", "cross-fitted", number, path="overall"),
        measure("optimism", "optimism", number, path="overall"),
        Column("bracket_low", "bracket from", lambda cell: _bracket(cell)[0], number),
        Column("bracket_high", "to", lambda cell: _bracket(cell)[1], number),
        *_NOTES,
        attribute("crossfitted", None, path="overall.crossfitted"),
    )
    return Sheet(
        "audit",
        "Audit: naive and cross-fitted",
        "Naive picks and grades the best candidate on the same rollouts; optimism is what that adds. Same: states "
        "where both give one number. Noisy: states where rollouts of a candidate differ; where there are many, the "
        "true Δ_adapt lies above the cross-fitted number and below the naive one, and the bracket is to be reported.",
        columns,
        findings.cells,
    )


def _bracket(cell: OpportunityCell) -> tuple[float, float] | tuple[None, None]:
    """Only where rollouts differ is there anything to bracket."""
    return cell.overall.bracket if cell.overall.noisy else (None, None)


def screen_sheet(findings: OpportunityFindings) -> AnySheet:
    """What fits on a terminal."""
    columns: tuple[Column[OpportunityCell], ...] = (
        *named(*["model"] * (len(findings.models) > 1), "task", "axis"),
        attribute("fixed", "fixed action", path="fixed_name"),
        _DELTA,
        Column(None, "", lambda cell: mark(cell.overall, cell.partial)),
        Column("positive_rate", "positive", lambda cell: cell.overall["positive_rate"], share_point),
        Column("top_10", "top 10 % hold", _held_by(0.1), share_point),
    )
    return Sheet("screen-opportunity", "", "", columns, findings.cells)
