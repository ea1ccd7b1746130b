"""The learned detector's tables: a row for every setting, all digits, and the controls that both rivals share."""

import pytest

from tests.helpers import made_studies as made
from tests.helpers.made_findings import assert_estimate, quick, rows
from unmask.report.study import study_report
from unmask.report.tables.learned import learned_coverage_sheet, learned_missing_sheet, learned_sheet, weights_sheet
from unmask.stats import COVERAGES


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    tables, read = made.learnable({"find": "together", "guess": "alone"}, prompts=30)
    return quick(made.store(tmp_path_factory.mktemp("learned") / "study", tables, read=read, learned=True))


def test_a_row_for_every_setting_and_mean(found):
    table = rows(learned_sheet(found.learned, ""))
    every = [*found.learned.cells, *found.learned.means]
    assert [(row["task"], row["axis"]) for row in table] == [
        ("find", "region"),
        ("guess", "region"),
        ("mean over tasks", "region"),
        ("mean over tasks", "all"),
    ]
    for row, one in zip(table, every, strict=True):
        for rival, name, at in one.numbers:
            column = {("captured", 0.1): "captured_10", ("ranked_lift", 0.1): "lift_10"}.get((name, at), name)
            if at in ("", 0.1):
                assert_estimate(row, f"{rival}_{column}", one.numbers[rival, name, at])
    assert [row["verdict"] for row in table[:2]] == ["better", "not significant"]


def test_the_controls_stand_beside_them(found):
    for row, cell in zip(rows(learned_sheet(found.learned, "")), found.learned.cells, strict=False):
        for key in ("random_lift", "oracle_lift", "concentration", "random_captured"):
            assert_estimate(row, f"{key}_10", cell.controls[key, 0.1])
        assert row["tau_reason"] == cell.detector.tau.reason
        assert float(row["penalty"]) == cell.detector.penalty


def test_every_coverage(found):
    table = rows(learned_coverage_sheet(found.learned, ""))
    assert len(table) == 2 * len(COVERAGES)
    for at_row, row in enumerate(table):
        cell, c = found.learned.cells[at_row // len(COVERAGES)], COVERAGES[at_row % len(COVERAGES)]
        assert float(row["coverage"]) == c
        for column, name in (("captured", "captured"), ("lift", "ranked_lift")):
            for rival in ("bins", "learned", "difference"):
                assert_estimate(row, f"{rival}_{column}", cell.numbers[rival, name, c])
            assert_estimate(row, f"random_{column}", cell.controls[f"random_{column}", c])


def test_weights_are_plain_numbers(found):
    table = rows(weights_sheet(found.learned, ""))
    for cell in found.learned.cells:
        mine = [row for row in table if row["task"] == cell.task]
        assert {row["column"]: float(row["weight"]) for row in mine} == dict(
            zip(cell.detector.names, cell.detector.weight_M.tolist(), strict=True)
        )
        assert [int(row["rank"]) for row in mine] == list(range(1, len(mine) + 1))


def test_the_section_is_there_where_it_was_asked_for(found, diagnosed_report):
    report = study_report(found)
    (section,) = [one for one in report.sections if one.title == "Learned detector"]
    assert [sheet.name for sheet in section.sheets] == [
        "e3-learned",
        "e3-learned-coverage",
        "e3-learned-weights",
        "e3-learned-missing",
    ]
    assert "the learned detector" in section.note
    assert not any("learned" in sheet.name for sheet in diagnosed_report.sheets)
    assert not any("learned" in note for note in diagnosed_report.notes)


def test_the_revision_extension_has_tables_of_its_own(tmp_path):
    tables, read = made.learnable({"find": "together"}, prompts=20, axis="commitment", names=("all", "none"))
    place = made.store(tmp_path / "study", tables, read=read, reference="dream", learned=True)
    report = study_report(quick(place))
    (section,) = [one for one in report.sections if one.title == "Learned detector"]
    by_name = {sheet.name: sheet for sheet in section.sheets}
    assert len(by_name["e3-learned"].items) == 0
    assert [row.task for row in by_name["e3-learned-revision"].items] == ["find", "mean over tasks"]
    assert "not known" in section.note


def test_what_could_not_be_learned(tmp_path):
    tables, read = made.learnable({"find": "together"}, prompts=6)
    learned = quick(made.store(tmp_path / "study", tables, read=read, learned=True)).learned
    (row,) = rows(learned_missing_sheet(learned))
    assert row["task"] == "find"
    assert "10 or more are needed to learn" in row["reason"]
