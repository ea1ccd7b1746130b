"""The tables of E2, from stores with planted truth."""

from tests.helpers.made_findings import assert_estimate, rows
from unmask.report.tables.selection import diagnostics_sheet, outcome_rows, selection_sheet


def test_selection(diagnosed):
    outcomes = list(outcome_rows(diagnosed.detection))
    for row, of in zip(rows(selection_sheet(diagnosed.detection, "")), outcomes, strict=True):
        assert (row["task"], row["axis"], row["proposal"]) == (of.cell.task, of.cell.axis, of.proposal)
        measures = of.outcome.measures
        for key in ("regret", "stage_regret", "less_regret", "recovered"):
            assert_estimate(row, key, measures[key])
        for key, arm in {"oracle_gap": "oracle", "lift": "diagnostic", "stage_lift": "stage"}.items():
            assert_estimate(row, key, measures["lift", arm])
        assert row["viable"] == str(of.outcome.viable).lower()
        assert int(row["states"]) == measures.states


def test_diagnostics(diagnosed):
    table = rows(diagnostics_sheet(diagnosed.detection, ""))
    for row, cell in zip(table, diagnosed.detection.cells, strict=True):
        for key in ("abstained", "acted", "agrees_fixed", "agrees_oracle", "agrees_any"):
            assert_estimate(row, key, cell.raw.measures[key])
        assert row["fixed"] == "full"
        assert row["theta_reason"] == cell.raw.calibration.theta.reason
