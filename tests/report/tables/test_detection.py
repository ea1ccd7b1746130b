"""The tables of E3, from stores with planted truth."""

from dataclasses import replace
from math import isinf, isnan

from tests.helpers import made_findings
from tests.helpers import made_studies as made
from tests.helpers.made_findings import assert_estimate, rows
from unmask.report.tables import detection, selection
from unmask.report.tables.selection import outcome_rows
from unmask.report.verdicts import lift_verdict
from unmask.stats import COVERAGES
from unmask.stats.measures import ARMS


def outcomes(diagnosed, sheet, each=1):
    """The rows of a table beside the outcomes that they are about."""
    wanted = [row for row in outcome_rows(diagnosed.detection) for _ in range(each)]
    for row, of in zip(rows(sheet), wanted, strict=True):
        assert (row["task"], row["axis"], row["proposal"]) == (of.cell.task, of.cell.axis, of.proposal)
        yield row, of.outcome


def test_arms(diagnosed):
    for row, outcome in outcomes(diagnosed, detection.utility_sheet(diagnosed.detection, "")):
        for arm in ARMS:
            assert_estimate(row, arm, outcome.measures["utility", arm])
    for row, outcome in outcomes(diagnosed, detection.lift_sheet(diagnosed.detection, "")):
        for arm in ARMS[1:]:
            assert_estimate(row, arm, outcome.measures["lift", arm])
        assert_estimate(row, "coverage", outcome.measures["coverage"])
        tau = outcome.calibration.tau
        assert row["tau"] == ("" if tau.value is None else repr(tau.value))
        assert row["verdict"] == lift_verdict(outcome)


def test_detection(diagnosed):
    for row, outcome in outcomes(diagnosed, detection.detection_sheet(diagnosed.detection, "")):
        for key in ("auroc", "auroc_among", "auroc_within", "spearman", "positive_rate"):
            assert_estimate(row, key, outcome.measures[key])
        for key in ("captured", "theta_lift"):
            assert_estimate(row, f"{key}_10", outcome.measures[key, 0.1])
        assert_estimate(row, "lift_10", outcome.measures["ranked_lift", 0.1])
        assert row["reason"] == outcome.reason


def test_coverage(diagnosed):
    keys = ("precision", "recall", "captured", "concentration", "efficiency", "theta_lift", "oracle_lift")
    sheet = detection.coverage_sheet(diagnosed.detection, "")
    for at, (row, outcome) in enumerate(outcomes(diagnosed, sheet, each=5)):
        c = COVERAGES[at % 5]
        assert float(row["coverage"]) == c
        for key in (*keys, "random_captured", "random_lift"):
            assert_estimate(row, key, outcome.measures[key, c])
        assert_estimate(row, "lift", outcome.measures["ranked_lift", c])


def test_bins(diagnosed):
    table = [row for row in rows(detection.bins_sheet(diagnosed.detection, "")) if row["proposal"] == "raw"]
    by_task = {task: [row for row in table if row["task"] == task] for task in made_findings.KINDS}
    for cell in diagnosed.detection.cells:
        bins, frame = by_task[cell.task], cell.raw.frame
        detector = cell.raw.calibration.detector
        assert [row["predicted"] for row in bins] == ["" if isnan(g) else repr(g) for g in detector.g_B.tolist()]
        assert sum(int(row["held_out_states"]) for row in bins) == (frame["bin"] >= 0).sum()
        assert isinf(float(bins[0]["from"]))
    assert [row["opens"] for row in by_task["find"]][-1] == "true"
    assert by_task["find"][0]["opens"] == "false"


def test_means(diagnosed):
    table = rows(detection.means_sheet(diagnosed.detection, ""))
    for row, mean in zip(table, diagnosed.detection.means, strict=True):
        for arm in ARMS:
            assert_estimate(row, arm, mean.utility[arm])
        assert_estimate(row, "selective_lift", mean.estimates["lift", "selective"])
        assert row["auroc"] == repr(mean.plain["auroc"].value)
        assert row["theta_lift_10"] == repr(mean.plain["theta_lift_10"].value)
        assert (row["tasks"], row["spearman_tasks"]) == ("4", "3")


def test_a_signal_alone_is_no_prediction(diagnosed):
    """A constant signal ranks what has one above what has none; the first states of answers gain nothing."""
    (outcome,) = [cell.raw for cell in diagnosed.detection.cells if cell.task == "same"]
    assert outcome.measures["auroc"].low > 0.5
    assert outcome.measures["auroc_among"].value == 0.5


def test_missing(tmp_path):
    tables, read = made.diagnosed({"find": "finds", "guess": "useless"})
    lost = ("small", "guess", "evaluation")
    rest = {key: held for key, held in tables.items() if key != lost}
    findings = made_findings.diagnosed(tmp_path, rest, read, unfinished=[lost])
    (row,) = rows(detection.missing_sheet(findings.detection))
    assert row["reason"] == "no evaluation prompt is finished yet"


def test_diagnostics_are_named_where_one_is_not_called_as_its_axis(diagnosed):
    """And nowhere else: tables of other studies stay as they are."""
    found = diagnosed.detection
    other = [replace(c, diagnostic="region:share") for c in found.cells]
    several = replace(found, cells=(*found.cells, *other), missing=[*found.missing])
    for build in (detection.lift_sheet, detection.coverage_sheet, selection.diagnostics_sheet):
        assert "by" not in rows(build(found, ""))[0]
        named = rows(build(several, ""))
        assert [row["by"] for row in named] == [row["axis"] for row in named[: len(named) // 2]] + ["region:share"] * (
            len(named) // 2
        )
