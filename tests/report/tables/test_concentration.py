"""C* and C_det in one table."""

from tests.helpers.made_findings import assert_estimate, rows
from unmask.report.latex import table_latex
from unmask.report.tables.concentration import concentration_detection_sheet


def test_both_are_those_of_the_detection(diagnosed):
    sheet = concentration_detection_sheet(diagnosed.detection)
    table = rows(sheet)
    assert len(table) == len(diagnosed.detection.cells) == 4
    for row, cell in zip(table, diagnosed.detection.cells, strict=True):
        assert (row["model"], row["task"], row["diagnostic"]) == cell.key
        for coverage in (5, 10, 20):
            for name in ("concentration", "captured"):
                assert_estimate(row, f"{name}_{coverage}", cell.raw.measures[name, coverage / 100])


def test_concentrated_and_found_are_told_apart(diagnosed):
    """One signal finds what another cannot, of the same concentration."""
    table = {row["task"]: row for row in rows(concentration_detection_sheet(diagnosed.detection))}
    for row in (table["find"], table["guess"]):
        assert float(row["concentration_20"]) > 0.5
    assert float(table["find"]["captured_20"]) > 2 * float(table["guess"]["captured_20"])


def test_heads_and_latex(diagnosed):
    sheet = concentration_detection_sheet(diagnosed.detection, "-revision")
    assert sheet.name == "e3-concentration-revision"
    heads = [column.head for column in sheet.heads]
    assert heads[5:11] == ["C*(5%)", "C*(10%)", "C*(20%)", "C_det(5%)", "C_det(10%)", "C_det(20%)"]
    assert r"C\_det(10\%)" in table_latex(sheet)
