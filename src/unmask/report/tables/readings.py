"""The table that shows which conclusion of E4 hangs on which reading of the paper."""

from collections import Counter
from collections.abc import Sequence

from unmask.lab.analysis.readings import ReadingMean
from unmask.report.formats import count, number, point, share
from unmask.report.sheet import AnySheet, Column, Sheet, attribute
from unmask.report.verdicts import GAIN, plain_verdict


def _axes(row: ReadingMean) -> str:
    return ", ".join(f"{name} {tasks}" for name, tasks in Counter(row.chosen.values()).most_common())


def readings_sheet(rows: Sequence[ReadingMean]) -> AnySheet:
    columns: tuple[Column[ReadingMean], ...] = (
        attribute("model", "model", left=True),
        attribute("anchor", "reading", path="reading.anchor", left=True),
        Column("changed", "but for", lambda row: row.reading.changed or "-", left=True),
        Column("axes", "axes, tasks of each", _axes, left=True),
        attribute("open", "gates that open", count),
        attribute("coverage", "Coverage", share),
        *(_arm(key, head) for key, head in (("reference", "Ref."), ("fixed", "Fixed"), ("selective", "Selective"))),
        *_difference("delta", "Selective − Fixed", GAIN),
        *_difference("over_reference", "Selective − Ref.", ("selective", "reference")),
        *_difference("over_random_gate", "Selective − random", ("selective", "random gate")),
        attribute("better", "tasks better", count),
        attribute("worse", "worse", count),
    )
    return Sheet(
        "e4-readings",
        "Which conclusion hangs on which reading",
        "Two whole readings of the paper, and each with one choice changed at a time. Ours: diagnostics with every "
        "other axis at the reference, a gate that asks what the proposal gains, the axis whose gate promises most. "
        "Literal: the diagnosed mixture and the region program's support where the text has them, a gate that opens "
        "above the mean opportunity over one fixed action, the axis with the largest opportunity, revision included.",
        columns,
        rows,
        empty="None: there is one reading.",
    )


def _arm(key: str, head: str) -> Column[ReadingMean]:
    return Column(key, head, lambda row: row.utility[key], point, wide=True)


def _difference(key: str, head: str, pair: tuple[str, str]) -> tuple[Column[ReadingMean], ...]:
    return (
        Column(key, head, lambda row: row.difference[pair], number, wide=True),
        Column(f"{key}_verdict", "interval", lambda row: plain_verdict(row.difference[pair]), left=True),
    )
