"""The tables of E4, from results made by hand."""

from dataclasses import replace
from math import isnan

import pytest

from tests.helpers import made_findings
from tests.helpers.made_findings import assert_estimate, rows
from unmask.lab.analysis.end_to_end import CHOSEN, DECODED_ARMS, EndToEndFindings
from unmask.report.csv import table_csv
from unmask.report.tables.end_to_end import (
    axes_sheet,
    controls_sheet,
    full_sheet,
    joint_sheet,
    missing_sheet,
    screen_sheet,
)
from unmask.report.tables.shared import MEAN
from unmask.report.verdicts import cell_verdict


@pytest.fixture(scope="module")
def decoded():
    return made_findings.decoded()


def shown(sheet, head):
    """The cells under a head that people see, by task and axis."""
    at = [column.head for column in sheet.heads].index(head)
    return {row[1:3]: row[at] for row in sheet.shown}


def test_the_papers_table(decoded):
    sheet = full_sheet(decoded)
    heads = [column.head for column in sheet.heads]
    assert heads[:10] == [
        *("model", "task", "axis", "Ref.", "Fixed", "Stage", "Always", "Selective"),
        *("Δ = Selective − Fixed", "Coverage"),
    ]
    *table, macro = rows(sheet)
    chosen = [c for c in decoded.cells if c.chosen]
    for row, one in zip(table, chosen, strict=True):
        assert (row["task"], row["axis"]) == (one.task, one.axis)
        for arm in DECODED_ARMS:
            assert_estimate(row, arm, one.utility[arm])
        assert_estimate(row, "delta", one.difference["selective", "fixed"])
        assert row["verdict"] == cell_verdict(one)
        assert (int(row["prompts"]), int(row["unjudged"])) == (one.prompts, one.unjudged)
        assert (int(row["wins"]), int(row["losses"]), int(row["ties"])) == (one.wins, one.losses, one.ties)
        assert row["coverage"] == ("" if isnan(one.coverage["selective"]) else repr(one.coverage["selective"]))
    assert (macro["task"], macro["axis"], macro["partial"]) == (MEAN, CHOSEN, "without gone")
    assert_estimate(macro, "delta", decoded.means[0].difference["selective", "fixed"])
    keys = ("better", "worse", "same", "significant_up", "significant_down", "wins", "unjudged")
    assert [macro[key] for key in keys] == ["2", "1", "1", "1", "1", "29", "3"]
    assert shown(sheet, "interval of Δ")[MEAN, CHOSEN] == (
        "not significant; 2 better, 1 worse, 1 same; intervals exclude 0 on 1 above, 1 below"
    )


def test_intervals_that_include_zero_are_called_so(decoded):
    said = shown(full_sheet(decoded), "interval of Δ")
    assert said["guess", "region"] == "not significant"
    assert said["find", "region"] == "better"


def test_never_and_nan_are_told_in_words(decoded):
    coverage = shown(full_sheet(decoded), "Coverage")
    assert coverage["same", "region"] == "no step had a signal"
    assert coverage["find", "region"] == "25.0 %"
    assert coverage["mute", "region"] == "0.0 %"
    assert shown(full_sheet(decoded), "interval of Δ")["mute", "region"] == "never deviates"
    why = shown(axes_sheet(decoded), "why the gate never opens")
    assert why["mute", "region"] == "no bin of validation states gains"
    built = (full_sheet, axes_sheet, controls_sheet, joint_sheet)
    assert "nan" not in " ".join(text for build in built for row in build(decoded).shown for text in row)


def test_every_axis(decoded):
    table = rows(axes_sheet(decoded))
    pairs = {
        "delta": ("selective", "fixed"),
        "over_reference": ("selective", "reference"),
        "over_always": ("selective", "always"),
        "always_over_fixed": ("always", "fixed"),
        "fixed_over_reference": ("fixed", "reference"),
    }
    means = [m for m in decoded.means if m.axis != CHOSEN]
    for row, one in zip(table, [*decoded.cells, *means], strict=True):
        for arm in DECODED_ARMS:
            assert_estimate(row, arm, one.utility[arm])
        for key, both in pairs.items():
            assert_estimate(row, key, one.difference[both])
        assert row["axis"] == one.axis
    assert [row["chosen"] for row in table] == ["true", "false", "true", "true", "true", "", ""]
    assert {row["out_of_fold"] for row in table} == {"0.0125", ""}
    assert table[0]["fixed_name"] == "full"


def test_controls(decoded):
    for row, one in zip(rows(controls_sheet(decoded)), [*decoded.cells, *decoded.means], strict=True):
        for key, control in (("end_to_end_fixed", "end-to-end fixed"), ("random_gate", "random gate")):
            assert_estimate(row, key, one.utility[control])
            assert_estimate(row, f"over_{key}", one.difference["selective", control])
            assert row[f"over_{key}_verdict"] == "not significant"
        assert row["end_to_end_name"] == getattr(one, "end_to_end_name", "")
    assert rows(controls_sheet(decoded))[0]["random_gate_coverage"] == "0.26"


def test_joint(decoded):
    (row,) = rows(joint_sheet(decoded))
    (one,) = decoded.joints
    for arm, estimate in one.utility.items():
        assert_estimate(row, arm.replace(" ", "_"), estimate)
    assert_estimate(row, "over_reference", one.difference["joint", "reference"])
    assert_estimate(row, "over_joint_fixed", one.difference["joint", "joint fixed"])
    assert_estimate(row, "over_selective", one.difference["joint", "selective"])
    assert (row["over_reference_verdict"], row["over_selective_verdict"]) == ("better", "not significant")
    assert (row["axes"], row["coverage_score"], row["coverage_region"]) == ("score, region", "0.125", "")
    assert row["coverage_cardinality"] == ""
    assert (row["prompts"], row["unjudged"]) == ("38", "2")
    (people,) = joint_sheet(decoded).shown
    assert "score 12.5 %, region no signal" in people


def test_missing(decoded):
    (row,) = rows(missing_sheet(decoded))
    assert (row["task"], row["axis"], row["reason"]) == ("gone", "region", "not decoded <end to end> yet")


def test_heads_do_not_depend_on_the_rows(decoded):
    nothing = EndToEndFindings((), (), (), ())
    for build in (full_sheet, axes_sheet, controls_sheet, joint_sheet, missing_sheet):
        assert table_csv(build(decoded)).splitlines()[0] == table_csv(build(nothing)).splitlines()[0]


def test_models_are_named_where_there_are_several(decoded):
    other = replace(decoded.cells[0], model="other")
    heads = [column.head for column in screen_sheet(replace(decoded, cells=(*decoded.cells, other))).heads]
    assert heads[0] == "model"
    assert screen_sheet(decoded).heads[0].head == "task"
