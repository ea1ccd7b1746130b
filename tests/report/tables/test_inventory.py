"""The tables of what a study has, lacks and cost."""

from dataclasses import replace

from tests.helpers.made_findings import rows
from unmask.report.csv import table_csv
from unmask.report.markdown import markdown
from unmask.report.tables import inventory


def test_cost_adds_up(known):
    *_, last = rows(inventory.cost_sheet(known.opportunity))
    assert last["axis"] == "all"
    saved = sum(int(last[key]) for key in ("rollouts", "first", "futures"))
    assert int(last["naive"]) == int(last["done"]) + saved == 600
    assert float(last["seconds"]) == 6


def test_missing_utilities_have_reasons(broken, broken_report):
    missing, unjudged, *_ = inventory.sheets(broken.opportunity)
    assert '"exit | code\n1"' in table_csv(unjudged)
    (row,) = unjudged.rows
    assert row[-2:] == (4, "exit | code\n1")
    assert {r["reason"] for r in rows(missing)} == {"no evaluation prompt is finished yet", "no <file> & no hub"}
    assert "exit \\| code 1" in markdown(broken_report)


def test_models_say_what_was_loaded(known):
    (row,) = rows(inventory.models_sheet(known.opportunity))
    assert (row["model"], row["reference"], row["family"], row["device"]) == ("small", "llada", "llada", "cpu")
    assert row["fingerprint"] == "f" * 16
    assert row["dtype"] == ""


def test_extent(broken):
    table = {(row["task"], row["split"]): row for row in rows(inventory.extent_sheet(broken.opportunity))}
    assert (table["sort", "evaluation"]["shards"], table["sort", "evaluation"]["planned"]) == ("0", "1")
    assert table["fill", "evaluation"]["prompts"] == "20"


def test_more_than_one_state_of_the_code_is_told(broken):
    assert "code" not in rows(inventory.extent_sheet(broken.opportunity))[0]
    first, *others = broken.opportunity.extents
    mixed = replace(broken.opportunity, extents=(replace(first, code=("a1", "b2")), *others))
    sheet = inventory.extent_sheet(mixed)
    assert rows(sheet)[0]["code"] == "a1 b2"
    assert "which the user accepted" in sheet.note
