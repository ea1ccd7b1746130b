"""The tables of E4 that say what depends on a choice: how the axis is chosen, and how the gate is."""

from collections import Counter

from unmask.lab.analysis.end_to_end import EndToEndFindings, Headline
from unmask.lab.analysis.gates import GateCell
from unmask.lab.gates import LIFT
from unmask.report.formats import count, number, point, share, text_or_none, yes_no
from unmask.report.sheet import AnySheet, Column, Sheet, attribute
from unmask.report.tables.shared import counts, diagnosed
from unmask.report.verdicts import GAIN, plain_verdict


def _axes(row: Headline) -> str:
    """Which were chosen, and on how many tasks."""
    return ", ".join(f"{name} {tasks}" for name, tasks in Counter(row.axes.values()).most_common())


def headlines_sheet(findings: EndToEndFindings) -> AnySheet:
    columns: tuple[Column[Headline], ...] = (
        Column("model", "model", lambda row: row.mean.model, left=True),
        attribute("by", "axis chosen by", left=True),
        attribute("revision", "with revision", yes_no),
        attribute("usual", "as in the tables", yes_no),
        Column("axes", "axes, tasks of each", _axes, left=True),
        _mean_arm("reference", "Ref."),
        _mean_arm("fixed", "Fixed"),
        _mean_arm("selective", "Selective"),
        Column("delta", "Δ = Selective − Fixed", lambda row: row.mean.difference[GAIN], number, wide=True),
        Column("verdict", "interval of Δ", lambda row: plain_verdict(row.mean.difference[GAIN]), left=True),
        *(
            attribute(key, head, count, path=f"mean.{key}")
            for key, head in (("better", "tasks better"), ("worse", "worse"), ("same", "same"))
        ),
        attribute("partial", "note", text_or_none, path="mean.partial", left=True),
    )
    return Sheet(
        "e4-headlines",
        "End to end, by how the axis is chosen",
        "The mean over tasks, each on one axis that validation prompts choose: the one whose gate promises the largest "
        "lift, or the one with the largest opportunity, which is what the paper's rows suggest. With revision: the "
        "axis that a decoder without revision is extended by is among them.",
        columns,
        findings.headlines,
        empty="None: no axis could be chosen.",
    )


def gates_sheet(findings: EndToEndFindings) -> AnySheet:
    columns: tuple[Column[GateCell], ...] = (
        *diagnosed(findings.gates, "model", "task"),
        attribute("gate", "gate", left=True),
        attribute("coverage", "Coverage", share),
        _arm("fixed", "Fixed", "fixed"),
        _arm("selective", "Selective", "selective"),
        _arm("random_gate", "Random gate", "random gate"),
        *(
            column
            for key, head, other in (
                ("delta", "Δ = Selective − Fixed", "fixed"),
                ("over_random_gate", "Selective − random", "random gate"),
                ("over_lift", "Selective − lift's", LIFT),
            )
            for column in _difference(key, head, ("selective", other))
        ),
        attribute("tau", "tau", number),
        attribute("never", "why it never opens", text_or_none, left=True),
        *counts("prompts"),
    )
    return Sheet(
        "e4-gates",
        "End to end, by how the gate is chosen",
        "Lift: tau by what the proposal gains out of fold, the gate of all other tables. Mean: bins above the mean "
        "validation opportunity open. Together: opportunity over the fixed action that all validation prompts choose; "
        "otherwise over the one that the other folds choose. Snapped: the candidate nearest to the proposal, behind a "
        "gate that was calibrated for those. Each has a random gate of its own coverage.",
        columns,
        findings.gates,
        empty="None.",
    )


def _mean_arm(arm: str, head: str) -> Column[Headline]:
    return Column(arm, head, lambda row: row.mean.utility[arm], point, wide=True)


def _arm(key: str, head: str, arm: str) -> Column[GateCell]:
    return Column(key, head, lambda cell: cell.utility[arm], point, wide=True)


def _difference(key: str, head: str, pair: tuple[str, str]) -> tuple[Column[GateCell], ...]:
    return (
        Column(key, head, lambda cell: cell.difference[pair], number, wide=True),
        Column(f"{key}_verdict", "interval", lambda cell: plain_verdict(cell.difference[pair]), left=True),
    )
