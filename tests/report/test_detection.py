"""The report on diagnostics, from stores with planted truth: nothing here runs a model."""

import csv
import json
import re
from math import isinf, isnan
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.helpers import made_studies as made
from unmask.cli.app import main
from unmask.lab.analysis.detection import detect
from unmask.lab.analysis.opportunity import measure
from unmask.report.figures.detection import setting_figure
from unmask.report.study import answer, document, legend, markdown, notes, page, write
from unmask.report.tables.detection import DetectionVerdict, missing_sheet, sheets, verdict
from unmask.report.tables.opportunity import UNRELIABLE, table_csv
from unmask.report.words.detection import EXTENSION
from unmask.stats import ARMS, COVERAGES

SVG = "{http://www.w3.org/2000/svg}"
KINDS = {"find": "finds", "guess": "useless", "same": "constant", "mute": "abstains"}


def both(place):
    found = measure(place, resamples=200)
    return found, detect(place, found, draws=50)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    tables, read = made.diagnosed(KINDS, prompts=40)
    return made.store(tmp_path_factory.mktemp("e23") / "study", tables, read=read)


@pytest.fixture(scope="module")
def pair(place):
    return both(place)


@pytest.fixture(scope="module")
def found(pair):
    return pair[0]


@pytest.fixture(scope="module")
def detected(pair):
    return pair[1]


@pytest.fixture(scope="module")
def dream(tmp_path_factory):
    """Both a native axis and the revision extension."""
    tables, read = made.both_kinds("useless")
    return both(made.store(tmp_path_factory.mktemp("dream") / "study", tables, read=read, reference="dream"))


def rows(text):
    return list(csv.DictReader(text.splitlines()))


def table(detected, name):
    (one,) = [s for s in (*sheets(detected), missing_sheet(detected)) if s.name == name]
    return rows(table_csv(one))


def cell(detected, task):
    (one,) = [c for c in detected.cells if c.task == task]
    return one


def same(row, key, estimate):
    ends = {"": estimate.value, "_low": estimate.low, "_high": estimate.high}
    for end, value in ends.items():
        assert row[key + end] == ("" if isnan(value) else repr(value)), (key, end)
    assert int(row[f"{key}_undefined"]) == estimate.undefined


class TestTables:
    def outcomes(self, detected, name, each=1):
        table_rows = iter(table(detected, name))
        for one in detected.cells:
            for proposal, outcome in one.outcomes.items():
                for _ in range(each):
                    row = next(table_rows)
                    assert (row["task"], row["axis"], row["proposal"]) == (one.task, one.axis, proposal)
                    yield row, outcome
        assert next(table_rows, None) is None

    def test_selection(self, detected):
        for row, outcome in self.outcomes(detected, "e2-selection"):
            for key in ("oracle_gap", "lift", "stage_lift", "regret", "stage_regret", "less_regret", "recovered"):
                same(row, key, getattr(outcome.choice, key))
            assert row["viable"] == str(outcome.choice.viability.passed).lower()
            assert int(row["states"]) == outcome.choice.states

    def test_diagnostics(self, detected):
        for row, one in zip(table(detected, "e2-diagnostics"), detected.cells, strict=True):
            for key in ("abstained", "acted", "agrees_fixed", "agrees_oracle", "agrees_any"):
                same(row, key, getattr(one.raw.choice, key))
            assert row["fixed"] == "full"
            assert row["theta_reason"] == one.raw.calibration.theta.reason

    def test_arms(self, detected):
        for row, outcome in self.outcomes(detected, "e3-utility"):
            for arm in ARMS:
                same(row, arm, outcome.utility.utility[arm])
        for row, outcome in self.outcomes(detected, "e3-lift"):
            for arm in ARMS[1:]:
                same(row, arm, outcome.utility.lift[arm])
            same(row, "coverage", outcome.utility.coverage)
            tau = outcome.calibration.tau
            assert row["tau"] == ("" if tau.value is None else repr(tau.value))
            assert row["verdict"] == verdict(outcome.utility)

    def test_detection(self, detected):
        for row, outcome in self.outcomes(detected, "e3-detection"):
            detection = outcome.utility.detection
            for key in ("auroc", "spearman", "positive_rate"):
                same(row, key, getattr(detection, key))
            same(row, "auroc_among", outcome.auroc_among)
            same(row, "auroc_within", outcome.auroc_within)
            same(row, "captured_10", detection.at[0.1].captured)
            assert row["reason"] == detection.reason

    def test_coverage(self, detected):
        keys = ("precision", "recall", "captured", "concentration", "efficiency", "lift", "oracle_lift")
        for at, (row, outcome) in enumerate(self.outcomes(detected, "e3-coverage", each=5)):
            c = COVERAGES[at % 5]
            assert float(row["coverage"]) == c
            for key in (*keys, "random_captured", "random_lift"):
                same(row, key, getattr(outcome.utility.detection.at[c], key))

    def test_bins(self, detected):
        for one in detected.cells:
            mine = [r for r in table(detected, "e3-bins") if (r["task"], r["proposal"]) == (one.task, "raw")]
            states = one.raw.states
            detector = one.raw.calibration.detector
            assert [r["predicted"] for r in mine] == ["" if isnan(g) else repr(g) for g in detector.g_B.tolist()]
            assert sum(int(r["held_out_states"]) for r in mine) == (states.bin_S >= 0).sum()
            assert isinf(float(mine[0]["from"]))
        find = [r for r in table(detected, "e3-bins") if (r["task"], r["proposal"]) == ("find", "raw")]
        assert [r["opens"] for r in find][-1] == "true"
        assert find[0]["opens"] == "false"

    def test_means(self, detected):
        for row, mean in zip(table(detected, "e3-means"), detected.means, strict=True):
            for arm in ARMS:
                same(row, arm, mean.utility[arm])
            same(row, "selective_lift", mean.lift["selective"])
            assert row["auroc"] == repr(mean.plain["auroc"].value)
            assert (row["tasks"], row["spearman_tasks"]) == ("4", "3")

    def test_a_signal_alone_is_no_prediction(self, detected):
        """A constant signal ranks what has one above what has none; the first states of answers gain nothing."""
        one = cell(detected, "same").raw
        assert one.utility.detection.auroc.low > 0.5
        assert one.auroc_among.value == 0.5


class TestWords:
    def test_both_answers(self, found, detected):
        *_, predictable, pays = (one.text for one in answer(found, detected))
        assert predictable.startswith("In part: on 1 of 4 task-axis pairs of small the 95 % interval of AUROC")
        assert "of 4 settings, at most about 2.5 % each would show such an interval above 0.5 by chance" in predictable
        assert "region on find; the best of 4 looks better than it is" in predictable
        assert "where knowing the stage does not help, the interval still lies above 0.5 on 1 of 1." in predictable
        assert pays.startswith("One step at a time, yes on 1 of 4 task-axis pairs of small: there the 95 % interval")
        # Shut gates are none that chance could open.
        shut = sum(verdict(c.raw.utility) == DetectionVerdict.NEVER for c in detected.cells)
        told = f"; of {4 - shut} open gates, about 2.5 % each would show such an interval above zero by chance;"
        assert (told in pays) == (shut < 3)
        assert "the gate never opens, because validation gave no reason" in pays
        assert pays.endswith("was not measured; `end_to_end = true` in the study file asks for it.")
        assert any("exploratory screen" in text for text in notes(found, detected))

    def test_at_most_three_sentences(self, found, detected, dream):
        for pair in ((found, detected), dream):
            for one in answer(*pair):
                assert 1 <= len(re.findall(r"\.(?=\s[A-Z]|$)", one.text)) <= 3, one

    def test_no_claim_without_a_signal(self, tmp_path):
        tables, read = made.diagnosed({"guess": "useless", "mute": "abstains"}, seed=3)
        found, detected = both(made.store(tmp_path / "s", tables, read=read))
        *_, predictable, pays = (one.text for one in answer(found, detected))
        assert predictable.startswith("Not shown: on none of 2 task-axis pairs of small is there")
        assert pays.startswith("One step at a time, no significant lift: on none of 2 task-axis pairs of small does")
        assert "the largest is" not in pays

    def test_few_prompts_are_a_hint(self, tmp_path):
        tables, read = made.diagnosed({"find": "finds"}, rate=0.25, prompts=24)
        for held in (tables, read):
            held["small", "find", "evaluation"] = {"region": made.planted(1, prompts=9)[held is read]}
        found, detected = both(made.store(tmp_path / "s", tables, read=read))
        assert verdict(detected.cells[0].raw.utility) == DetectionVerdict.HINT
        assert [line[0] for line in legend(found, detected)] == [UNRELIABLE]
        *_, predictable, pays = (one.text for one in answer(found, detected))
        assert predictable.startswith("Not shown reliably: on none of 1 task-axis pair of small")
        assert "no significant lift: on none of 1 task-axis pair of small does the 95 %" in pays
        assert "lie above zero reliably; the largest estimate is" in pays
        assert "1 interval lies above zero, but on fewer than 10 prompts with a gain: a hint, no more." in pays

    def test_the_extension_is_told_apart(self, dream):
        found, detected = dream
        *_, native, pays = (one.text for one in answer(found, detected))
        assert "on none of 1 task-axis pair" in native
        assert "no significant lift" in pays
        assert "commitment" not in native + pays
        (apart,) = [text for text in notes(found, detected) if text.startswith(EXTENSION)]
        assert "commitment on find" in apart
        assert "Predictable? In part: on 1 of 1 task-axis pair of small" in apart

    def test_what_is_missing(self, tmp_path):
        tables, read = made.diagnosed({"find": "finds", "guess": "useless"})
        lost = ("small", "guess", "evaluation")
        rest = {key: held for key, held in tables.items() if key != lost}
        found, detected = both(made.store(tmp_path / "s", rest, read=read, unfinished=[lost]))
        assert (
            notes(found, detected)[-1]
            == "Diagnostics of 1 task-axis pair have no numbers; the tables have the reasons."
        )
        (row,) = table(detected, "e23-missing")
        assert row["reason"] == "no evaluation prompt is finished yet"
        ElementTree.fromstring(page(found, detected))


class TestPage:
    def test_is_well_formed(self, found, detected):
        root = ElementTree.fromstring(page(found, detected))
        heads = [h.text for h in root.iter() if h.tag == "h2"]
        assert heads[:4] == [one.question for one in answer(found, detected)]
        assert heads[4:] == ["small", "Tables", "Diagnostics", "Configuration"]
        assert len([f for f in root.iter() if f.tag == f"{SVG}svg"]) == 2 + 4
        ids = [e.get("id") for e in root.iter() if e.get("id")]
        assert len(ids) == len(set(ids))

    def test_has_every_table(self, found, detected):
        text, plain = page(found, detected), markdown(found, detected)
        for one in (*sheets(detected), missing_sheet(detected)):
            assert f'<h3 id="{one.name}">' in text or f"<summary>{one.title}</summary>" in text
            assert f"### {one.title}" in plain

    def test_never_and_no_lift_are_told(self, found, detected):
        text = page(found, detected)
        assert "never: " in text
        assert str(DetectionVerdict.NOTHING) in text
        assert "exploratory" in text

    def test_the_extension_has_a_section_of_its_own(self, dream, tmp_path):
        found, detected = dream
        native, apart = page(found, detected).split(
            "<h2>Diagnostics: revision extension of a monotone native decoder</h2>"
        )
        assert EXTENSION in apart.replace("&#39;", "'")
        assert "commitment on find</figcaption>" in apart
        assert "commitment on find</figcaption>" not in native
        written = write(found, tmp_path / "r", detected)
        by_name = {path.name: rows(path.read_text()) for path in written.tables}
        assert {row["axis"] for row in by_name["e3-lift.csv"]} == {"region"}
        assert {row["axis"] for row in by_name["e3-lift-revision.csv"]} == {"commitment"}

    def test_a_study_without_readings_has_none_of_it(self, tmp_path):
        place = made.store(tmp_path / "s", made.known())
        found = measure(place)
        assert detect(place, found) is None
        assert page(found, None) == page(found)
        for word in ("Diagnostics", "e2-", "e3-", "svg .band", "AUROC"):
            assert word not in page(found)
        assert len(write(found, tmp_path / "r", None).tables) == 12
        assert legend(found, None) == legend(found)

    def test_the_rest_of_the_page_does_not_change(self, found, detected):
        """What diagnostics add lies between the style and the tables; nothing is taken away but two answers."""
        plain, more = page(found).splitlines(), page(found, detected).splitlines()
        plain = [line for line in plain if "the study reads no diagnostics" not in line]
        left = iter(more)
        assert all(line in left for line in plain)


class TestFigures:
    def test_bins_and_tau(self, detected):
        one = cell(detected, "find")
        root = ElementTree.fromstring(setting_figure(one, "x"))
        assert "AUROC" in root.find(f"{SVG}desc").text
        ticks = {
            t.text: float(t.get("y"))
            for t in root.iter(f"{SVG}text")
            if t.get("text-anchor") == "end" and float(t.get("x")) < 100
        }
        unit = (ticks["0.4"] - ticks["0"]) / 0.4
        told = [g for g in root.iter(f"{SVG}g") if g.find(f"{SVG}title") is not None]
        predicted = [g for g in told if g.find(f"{SVG}title").text.startswith("predicted")]
        middles = [
            np.mean([float(p.split(",")[1]) for p in g.find(f"{SVG}polygon").get("points").split()]) for g in predicted
        ]
        wanted = [ticks["0"] + unit * g for g in one.raw.calibration.detector.g_B]
        assert middles == pytest.approx(wanted, abs=0.2)
        (line,) = [e for e in root.iter(f"{SVG}line") if e.get("class") == "tau"]
        assert float(line.get("y1")) == pytest.approx(ticks["0"] + unit * one.raw.calibration.tau.value, abs=0.1)

    def test_lift_by_coverage(self, detected):
        one = cell(detected, "find")
        root = ElementTree.fromstring(setting_figure(one, "x"))
        (thick,) = [e for e in root.iter(f"{SVG}polyline") if "thick" in e.get("class")]
        points = [tuple(map(float, p.split(","))) for p in thick.get("points").split()]
        curve = one.raw.utility.detection.curve
        (left, bottom), (right, top) = points[0], points[-1]
        assert [(x - left) / (right - left) for x, _ in points[1:]] == pytest.approx(list(curve.coverage_C), abs=0.002)
        heights = [(bottom - y) / (bottom - top) * curve.lift_C[-1] for _, y in points[1:]]
        assert heights == pytest.approx(list(curve.lift_C), abs=0.001)
        assert [e.get("class") for e in root.iter(f"{SVG}polyline")] == ["even", "curve thin", "curve thick"]

    def test_without_any_signal(self, detected):
        text = setting_figure(cell(detected, "mute"), "x")
        assert "no validation state has a signal" in text
        assert "the gate never opens" in text
        assert "nan" not in text


class TestCommand:
    def test_writes_and_says(self, place, tmp_path, capsys):
        assert main(["study", "report", str(place.folder), "--out", str(tmp_path / "r")]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "Predictable? In part: on 1 of 4" in said
        assert "never deviates" in said
        there = {path.name for path in (tmp_path / "r").iterdir()}
        assert {"e2-selection.csv", "e2-diagnostics.csv", "e3-lift.csv", "e3-utility.csv", "e3-detection.csv"} <= there
        assert {"e3-coverage.csv", "e3-bins.csv", "e3-means.csv", "e23-missing.csv"} <= there
        assert len(there) == 14 + 9

    def test_json(self, found, detected):
        told = json.loads(json.dumps(document(found, detected), allow_nan=False))
        assert [one["text"] for one in told["answer"]] == [one.text for one in answer(found, detected)]
        never = [row for row in told["tables"]["e3-lift"] if row["task"] == "mute"]
        assert {row["verdict"] for row in never} == {"never deviates"}
        assert {row["tau"] for row in never} == {None}

    def test_no_sign_without_need(self, found, detected):
        assert legend(found, detected) == []
