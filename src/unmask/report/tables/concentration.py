"""How concentrated opportunity is beside how much of it the detector finds: C* and C_det in one table."""

from operator import attrgetter

from unmask.lab.analysis.detection import DetectionFindings
from unmask.report.formats import share
from unmask.report.sheet import AnySheet, Column, Sheet
from unmask.report.tables.selection import OutcomeRow
from unmask.report.tables.shared import measure, named, notes, positive_rate

SHOWN = (0.05, 0.1, 0.2)
"""The paper's columns; all coverages are in e3-coverage."""


def concentration_detection_sheet(findings: DetectionFindings, suffix: str = "") -> AnySheet:
    path = "outcome.measures"
    columns: tuple[Column[OutcomeRow], ...] = (
        *named("model", "task", "axis", "diagnostic", path="cell."),
        positive_rate(path),
        *(
            measure(f"concentration_{100 * c:.0f}", f"C*({c:.0%})", share, path=path, name="concentration", at=c)
            for c in SHOWN
        ),
        *(
            measure(f"captured_{100 * c:.0f}", f"C_det({c:.0%})", share, path=path, name="captured", at=c)
            for c in SHOWN
        ),
        *notes(attrgetter(path), attrgetter("partial")),
    )
    return Sheet(
        f"e3-concentration{suffix}",
        "Concentrated, and found?",
        "Share of all opportunity in the 5, 10 and 20 % of held-out states that hold most of it (C*), and in those "
        "that the detector ranks first (C_det). Where C* is high and C_det is not, opportunity lies in few states that "
        "the signal does not find.",
        columns,
        [OutcomeRow(cell, "raw", cell.raw) for cell in findings.cells],
        empty="None.",
    )
