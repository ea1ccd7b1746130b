"""The report on whole answers, from results made by hand: nothing here runs a model."""

import csv
import json
import re
from dataclasses import replace
from math import isnan, nan
from xml.etree import ElementTree

import pytest

from tests.helpers import made_studies as made
from unmask.cli.app import main
from unmask.lab.analysis.detection import detect
from unmask.lab.analysis.end_to_end import (
    ARMS,
    CHOSEN,
    CONTROLS,
    DIFFERENCES,
    EndToEndCell,
    EndToEndFindings,
    EndToEndMean,
    JointCell,
)
from unmask.lab.analysis.opportunity import Missing, measure
from unmask.report.figures.end_to_end import end_to_end_figure
from unmask.report.study import answer, document, legend, markdown, notes, page, screen_e4, write
from unmask.report.tables.end_to_end import (
    MEAN,
    EndToEndVerdict,
    axes_sheet,
    cell_verdict,
    controls_sheet,
    full_sheet,
    joint_sheet,
    mean_verdict,
    missing_sheet,
    verdict,
)
from unmask.report.tables.opportunity import PARTIAL, table_csv
from unmask.report.words.detection import EXTENSION
from unmask.report.words.end_to_end import BEYOND
from unmask.stats import Estimate

SVG = "{http://www.w3.org/2000/svg}"
GAINS = {
    "find": Estimate(0.05, 0.02, 0.08),
    "guess": Estimate(0.01, -0.02, 0.04),
    "same": Estimate(-0.1, -0.2, -0.05),
    "mute": Estimate(0.0, 0.0, 0.0),
}
"""Selective less fixed on the chosen axis."""
WINS = {"find": (20, 4, 16), "guess": (9, 8, 23), "same": (0, 4, 36), "mute": (0, 0, 40)}


def numbers(gain, shift=0.0):
    """Every arm and every difference has a number of its own."""
    arms = {arm: Estimate(0.3 + shift + 0.01 * at, 0.2, 0.6 + at) for at, arm in enumerate((*ARMS, *CONTROLS))}
    differences = {pair: Estimate(0.001 * at + shift, -0.5 - at, 0.5) for at, pair in enumerate(DIFFERENCES)}
    return {"utility": arms, "difference": differences | {("selective", "fixed"): gain}}


def cell(task, axis="region", *, model="small", reference="llada", gain=None, chosen=True, **more):
    wins, losses, ties = WINS[task]
    values = {
        "fixed_name": "full",
        "end_to_end_name": f"block:{len(task)}",
        "never": "no bin of validation states gains" if task == "mute" else "",
        "coverage": {"always": 0.9, "selective": {"mute": 0.0, "same": nan}.get(task, 0.25), "random gate": 0.26},
        "wins": wins,
        "losses": losses,
        "ties": ties,
        "prompts": wins + losses + ties,
        "unjudged": 3 if task == "guess" else 0,
        "out_of_fold": 0.0125,
        **numbers(GAINS[task] if gain is None else gain, 0.1 * len(task)),
        **more,
    }
    return EndToEndCell(model, task, axis, reference, chosen, **values)


def mean(cells, axis=CHOSEN, gain=None, partial=""):
    gains = [c.difference["selective", "fixed"] for c in cells]
    return EndToEndMean(
        model=cells[0].model,
        reference=cells[0].reference,
        axis=axis,
        tasks=tuple(c.task for c in cells),
        **numbers(Estimate(-0.01, -0.04, 0.02) if gain is None else gain),
        coverage=0.125,
        better=sum(g.value > 0 for g in gains),
        worse=sum(g.value < 0 for g in gains),
        same=sum(g.value == 0 for g in gains),
        significant_up=sum(g.low > 0 for g in gains),
        significant_down=sum(g.high < 0 for g in gains),
        partial=partial,
    )


def joint(task="find", axes=("score", "region"), **more):
    arms = ("reference", "joint fixed", "joint", "selective")
    pairs = (("joint", "reference"), ("joint", "joint fixed"), ("joint", "selective"))
    values = {
        "utility": {arm: Estimate(0.7 + 0.01 * at, 0.1, 0.9) for at, arm in enumerate(arms)},
        "difference": {pair: Estimate(0.02 + at, 0.01 - at, 2.0 + at) for at, pair in enumerate(pairs)},
        "coverage": {"score": 0.125, "region": nan},
        "prompts": 38,
        "unjudged": 2,
    }
    return JointCell("small", task, "llada", axes, **(values | more))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    kinds = {"find": "finds", "guess": "useless", "same": "constant", "mute": "abstains"}
    tables, read = made.diagnosed(kinds, prompts=40)
    return made.store(tmp_path_factory.mktemp("e4") / "study", tables, read=read)


@pytest.fixture(scope="module")
def pair(place):
    found = measure(place, resamples=200)
    return found, detect(place, found, draws=50)


@pytest.fixture(scope="module")
def decoded():
    cells = [cell(task) for task in GAINS]
    other = cell("find", "score", chosen=False, gain=Estimate(0.2, 0.1, 0.3))
    lost = Missing("small", "gone", "region", "not decoded <end to end> yet")
    means = (mean(cells, partial="without gone"), mean([other], "score"), mean(cells, "region"))
    return EndToEndFindings((cells[0], other, *cells[1:]), (joint(),), means, (lost,))


@pytest.fixture(scope="module")
def whole(pair, decoded):
    return (*pair, decoded)


@pytest.fixture(scope="module")
def dream(tmp_path_factory):
    """A native axis, and the revision extension with a gain that must count nowhere else."""
    tables, read = made.both_kinds("useless")
    place = made.store(tmp_path_factory.mktemp("dream") / "study", tables, read=read, reference="dream")
    found = measure(place, resamples=200)
    native = cell("find", reference="dream", gain=GAINS["guess"])
    apart = cell("find", "commitment", reference="dream", chosen=False, gain=Estimate(0.77, 0.66, 0.88))
    means = (
        mean([native], gain=GAINS["guess"]),
        mean([native], "region", gain=GAINS["guess"]),
        mean([apart], "commitment", gain=Estimate(0.77, 0.66, 0.88)),
    )
    return found, detect(place, found, draws=50), EndToEndFindings((native, apart), (), means, ())


def rows(sheet):
    return list(csv.DictReader(table_csv(sheet).splitlines()))


def same(row, key, estimate):
    for end, value in {"": estimate.value, "_low": estimate.low, "_high": estimate.high}.items():
        assert row[key + end] == ("" if isnan(value) else repr(value)), (key, end)
    assert int(row[f"{key}_undefined"]) == estimate.undefined


def shown(sheet, head):
    """The cells under a head that people see, by task and axis."""
    at = [column.head for column in sheet.heads].index(head)
    return {row[1:3]: row[at] for row in sheet.shown}


class TestVerdict:
    @pytest.mark.parametrize(
        ("low", "high", "differ", "said"),
        [
            (0.01, 0.1, 10, EndToEndVerdict.BETTER),
            (0.01, 0.1, 9, EndToEndVerdict.HINT_BETTER),
            (-0.1, -0.01, 10, EndToEndVerdict.WORSE),
            (-0.1, -0.01, 9, EndToEndVerdict.HINT_WORSE),
            (-0.01, 0.1, 40, EndToEndVerdict.NOTHING),
            (0.0, 0.1, 40, EndToEndVerdict.NOTHING),
            (-0.1, 0.0, 40, EndToEndVerdict.NOTHING),
        ],
    )
    def test_what_an_interval_allows(self, low, high, differ, said):
        assert verdict(Estimate((low + high) / 2, low, high), differ) is said

    def test_never_and_not_known(self):
        assert verdict(Estimate(0.0, 0.0, 0.0), 0, "no bin") is EndToEndVerdict.NEVER
        assert verdict(Estimate(nan, nan, nan), 0) is EndToEndVerdict.UNKNOWN

    def test_of_cells(self, decoded):
        said = [cell_verdict(c) for c in decoded.cells if c.chosen]
        assert said == [
            EndToEndVerdict.BETTER,
            EndToEndVerdict.NOTHING,
            EndToEndVerdict.HINT_WORSE,
            EndToEndVerdict.NEVER,
        ]

    def test_a_mean_counts_the_prompts_of_its_own_cells(self, decoded):
        up = Estimate(0.1, 0.05, 0.2)
        few = replace(decoded.means[0], tasks=("same", "mute"), difference={("selective", "fixed"): up})
        assert mean_verdict(decoded, few) is EndToEndVerdict.HINT_BETTER
        assert mean_verdict(decoded, replace(few, tasks=("find", "same"))) is EndToEndVerdict.BETTER
        assert mean_verdict(decoded, replace(few, tasks=("mute",))) is EndToEndVerdict.NEVER


class TestTables:
    def test_the_papers_table(self, decoded):
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
            for arm in ARMS:
                same(row, arm, one.utility[arm])
            same(row, "delta", one.difference["selective", "fixed"])
            assert row["verdict"] == cell_verdict(one)
            assert (int(row["prompts"]), int(row["unjudged"])) == (one.prompts, one.unjudged)
            assert (int(row["wins"]), int(row["losses"]), int(row["ties"])) == (one.wins, one.losses, one.ties)
            assert row["coverage"] == ("" if isnan(one.coverage["selective"]) else repr(one.coverage["selective"]))
        assert (macro["task"], macro["axis"], macro["partial"]) == (MEAN, CHOSEN, "without gone")
        same(macro, "delta", decoded.means[0].difference["selective", "fixed"])
        keys = ("better", "worse", "same", "significant_up", "significant_down", "wins", "unjudged")
        assert [macro[key] for key in keys] == ["2", "1", "1", "1", "1", "29", "3"]
        assert shown(sheet, "interval of Δ")[MEAN, CHOSEN] == (
            "not significant; 2 better, 1 worse, 1 same; intervals exclude 0 on 1 above, 1 below"
        )

    def test_intervals_that_include_zero_are_called_so(self, decoded):
        said = shown(full_sheet(decoded), "interval of Δ")
        assert said["guess", "region"] == "not significant"
        assert said["find", "region"] == "better"

    def test_never_and_nan_are_told_in_words(self, decoded):
        coverage = shown(full_sheet(decoded), "Coverage")
        assert coverage["same", "region"] == "no step had a signal"
        assert coverage["find", "region"] == "25.0 %"
        assert coverage["mute", "region"] == "0.0 %"
        assert shown(full_sheet(decoded), "interval of Δ")["mute", "region"] == "never deviates"
        why = shown(axes_sheet(decoded), "why the gate never opens")
        assert why["mute", "region"] == "no bin of validation states gains"
        assert "nan" not in page_text(decoded)

    def test_every_axis(self, decoded):
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
            for arm in ARMS:
                same(row, arm, one.utility[arm])
            for key, both in pairs.items():
                same(row, key, one.difference[both])
            assert row["axis"] == one.axis
        assert [row["chosen"] for row in table] == ["true", "false", "true", "true", "true", "", ""]
        assert {row["out_of_fold"] for row in table} == {"0.0125", ""}
        assert table[0]["fixed_name"] == "full"

    def test_controls(self, decoded):
        for row, one in zip(rows(controls_sheet(decoded)), [*decoded.cells, *decoded.means], strict=True):
            for key, control in (("end_to_end_fixed", "end-to-end fixed"), ("random_gate", "random gate")):
                same(row, key, one.utility[control])
                same(row, f"over_{key}", one.difference["selective", control])
                assert row[f"over_{key}_verdict"] == "not significant"
            assert row["end_to_end_name"] == getattr(one, "end_to_end_name", "")
        assert rows(controls_sheet(decoded))[0]["random_gate_coverage"] == "0.26"

    def test_joint(self, decoded):
        (row,) = rows(joint_sheet(decoded))
        (one,) = decoded.joints
        for arm, estimate in one.utility.items():
            same(row, arm.replace(" ", "_"), estimate)
        same(row, "over_reference", one.difference["joint", "reference"])
        same(row, "over_joint_fixed", one.difference["joint", "joint fixed"])
        same(row, "over_selective", one.difference["joint", "selective"])
        assert (row["over_reference_verdict"], row["over_selective_verdict"]) == ("better", "not significant")
        assert (row["axes"], row["coverage_score"], row["coverage_region"]) == ("score, region", "0.125", "")
        assert row["coverage_cardinality"] == ""
        assert (row["prompts"], row["unjudged"]) == ("38", "2")
        (people,) = joint_sheet(decoded).shown
        assert "score 12.5 %, region no signal" in people

    def test_missing(self, decoded):
        (row,) = rows(missing_sheet(decoded))
        assert (row["task"], row["axis"], row["reason"]) == ("gone", "region", "not decoded <end to end> yet")

    def test_heads_do_not_depend_on_the_rows(self, decoded):
        nothing = EndToEndFindings((), (), (), ())
        for build in (full_sheet, axes_sheet, controls_sheet, joint_sheet, missing_sheet):
            assert table_csv(build(decoded)).splitlines()[0] == table_csv(build(nothing)).splitlines()[0]


def page_text(decoded):
    built = (full_sheet, axes_sheet, controls_sheet, joint_sheet)
    return " ".join(text for build in built for row in build(decoded).shown for text in row)


class TestWords:
    def test_the_last_answer(self, whole):
        pays = answer(*whole)[-1].text
        assert "selective − fixed is -0.0100 [-0.0400, 0.0200] over 4 tasks of small (no significant lift: 2 " in pays
        assert ": 2 better, 1 worse, 1 same; intervals exclude 0 on 1 above, 1 below); of 3 open gates" in pays
        assert "; 1 of the intervals rests on fewer than 10 prompts that differ: a hint, no more; " in pays
        assert "; small without gone." in pays
        # The reference, then the controls.
        ends = [whole[2].means[0].difference["selective", to] for to in ("reference", *CONTROLS)]
        told = [f"{e.value:.4f} [{e.low:.4f}, {e.high:.4f}]" for e in ends]
        assert pays.endswith(
            f"Selective differs from the reference by {told[0]} (not significant), from the best fixed action end to "
            f"end by {told[1]} (not significant) and from a random gate of equal coverage by {told[2]} (not "
            "significant) with small."
        )
        assert "not measured" not in pays

    def test_at_most_three_sentences(self, whole, dream):
        for each in (whole, dream):
            for one in answer(*each):
                assert 1 <= len(re.findall(r"\.(?=\s[A-Z]|$)", one.text)) <= 3, one

    @pytest.mark.parametrize(
        ("gain", "said"),
        [
            (Estimate(0.1, 0.05, 0.2), "a significant lift"),
            (Estimate(-0.1, -0.2, -0.05), "a significant loss"),
            (Estimate(0.1, 0.0, 0.2), "no significant lift"),
        ],
    )
    def test_claims_follow_the_interval(self, pair, gain, said):
        one = cell("find", gain=gain)
        pays = answer(*pair, EndToEndFindings((one,), (), (mean([one], gain=gain),), ()))[-1].text
        assert f"over 1 task of small ({said}: " in pays
        assert "by chance" not in pays.split("End to end")[1]

    def test_few_prompts_are_a_hint(self, pair):
        up = Estimate(0.1, 0.05, 0.2)
        one = cell("same", gain=up)
        pays = answer(*pair, EndToEndFindings((one,), (), (mean([one], gain=up),), ()))[-1].text
        assert "over 1 task of small (no more than a hint, fewer than 10 prompts differ: " in pays
        assert "a significant" not in pays.split("End to end")[1]

    def test_chance_is_named_where_something_was_found(self, pair):
        cells = [cell("guess"), cell("mute")]
        pays = answer(*pair, EndToEndFindings(tuple(cells), (), (mean(cells),), ()))[-1].text
        assert "by chance" not in pays.split("End to end")[1]
        cells = [cell("guess"), cell("find")]
        pays = answer(*pair, EndToEndFindings(tuple(cells), (), (mean(cells),), ()))[-1].text
        assert "of 2 open gates, about 2.5 % each would show such an interval above zero by chance" in pays

    def test_without_any_number(self, pair):
        decoded = EndToEndFindings((), (), (), (Missing("small", "find", "region", "not decoded end to end yet"),))
        assert "End to end: not known" in answer(*pair, decoded)[-1].text
        assert "None: no axis could be chosen; the reasons are below." in markdown(*pair, decoded)
        ElementTree.fromstring(page(*pair, decoded))

    def test_what_is_missing_or_not_judged(self, whole):
        told = notes(*whole)
        assert any("5 of 243 prompts, counted once for each axis, are left out" in text for text in told)
        assert told[-1] == "End to end without numbers: gone of small (region); the tables have the reasons."

    def test_joint_is_beyond_the_paper(self, whole):
        (text,) = [text for text in notes(*whole) if text.startswith(BEYOND)]
        assert "Of 1 model-task pair, the interval of joint − reference lies above zero on 1 and below on 0" in text
        assert not any("joint" in one.text for one in answer(*whole))

    def test_the_extension_is_told_apart(self, dream):
        found, detected, decoded = dream
        assert not any("0.7700" in one.text for one in answer(found, detected, decoded))
        (text,) = [text for text in notes(found, detected, decoded) if text.startswith(EXTENSION)]
        assert "selective − fixed is 0.7700 [0.6600, 0.8800] over 1 task of small (a significant lift: " in text

    def test_signs(self, whole, pair):
        assert [line[0] for line in legend(*whole)] == [PARTIAL]
        assert legend(*pair) == []


class TestPage:
    def test_is_well_formed_and_self_contained(self, whole):
        text = page(*whole)
        root = ElementTree.fromstring(text)
        tags = {element.tag.split("}")[-1] for element in root.iter()}
        assert not tags & {"script", "link", "img", "iframe", "object", "image", "use"}
        assert not {key for element in root.iter() for key in element.attrib} & {"src", "href", "srcset", "onclick"}
        assert set(re.findall(r"https?://[^\"<\s]+", text)) <= {"http://www.w3.org/2000/svg"}
        assert not re.search(r"url\(|@import", text)
        ids = [e.get("id") for e in root.iter() if e.get("id")]
        assert len(ids) == len(set(ids))
        assert "not decoded &lt;end to end&gt; yet" in text

    def test_sections(self, whole, dream):
        heads = [h.text for h in ElementTree.fromstring(page(*whole)).iter() if h.tag == "h2"]
        joint = "End to end: all axes together, beyond the paper"
        assert heads[-5:] == ["Tables", "Diagnostics", "End to end", joint, "Configuration"]
        heads = [h.text for h in ElementTree.fromstring(page(*dream)).iter() if h.tag == "h2"]
        apart = "revision extension of a monotone native decoder"
        assert heads[-5:-1] == ["Diagnostics", f"Diagnostics: {apart}", "End to end", f"End to end: {apart}"]

    def test_the_extension_has_tables_of_its_own(self, dream, tmp_path):
        written = write(dream[0], tmp_path / "r", *dream[1:])
        by_name = {path.name: list(csv.DictReader(path.read_text().splitlines())) for path in written.tables}
        assert {row["axis"] for row in by_name["e4-axes.csv"]} == {"region"}
        assert {row["axis"] for row in by_name["e4-controls.csv"]} == {"region", CHOSEN}
        assert {row["axis"] for row in by_name["e4-end-to-end.csv"]} == {"region", CHOSEN}
        assert {row["axis"] for row in by_name["e4-axes-revision.csv"]} == {"commitment"}
        assert {row["axis"] for row in by_name["e4-controls-revision.csv"]} == {"commitment"}

    def test_every_table_everywhere(self, whole, tmp_path):
        text, plain = page(*whole), markdown(*whole)
        names = {path.stem for path in write(whole[0], tmp_path / "r", *whole[1:]).tables}
        for build in (full_sheet, axes_sheet, controls_sheet, joint_sheet, missing_sheet):
            one = build(whole[2])
            assert one.name in names
            assert f'<h3 id="{one.name}">{one.title}</h3>' in text
            assert f"### {one.title}" in plain

    def test_a_study_without_decodes_has_none_of_it(self, pair):
        assert page(*pair, None) == page(*pair)
        assert "e4-" not in page(*pair)
        assert not [name for name in document(*pair)["tables"] if name.startswith("e4")]

    def test_json(self, whole):
        told = json.loads(json.dumps(document(*whole), allow_nan=False))
        table = told["tables"]["e4-end-to-end"]
        assert table[0]["delta"] == {"value": 0.05, "low": 0.02, "high": 0.08, "undefined": 0}
        assert table[2]["coverage"] is None
        assert table[1]["verdict"] == "not significant"


class TestFigure:
    def test_dots_are_where_the_numbers_are(self, decoded):
        root = ElementTree.fromstring(end_to_end_figure(decoded, "small", "x"))
        assert "find, region: 0.0500 [0.0200, 0.0800]" in root.find(f"{SVG}desc").text
        groups = root.findall(f"{SVG}g")
        assert [g.get("class").split()[0] for g in groups] == ["axis-region"] * 4 + ["axis-mean"]
        # find and guess rest on enough prompts, same and mute do not.
        assert ["doubt" in g.get("class") for g in groups] == [False, False, True, True, False]
        ticks = {t.text: float(t.get("x")) for t in root.iter(f"{SVG}text") if t.get("text-anchor") == "middle"}
        unit = (ticks["0"] - ticks["-0.2"]) / 0.2
        for group, gain in zip(groups, [*GAINS.values(), Estimate(-0.01, -0.04, 0.02)], strict=True):
            points = [float(p.split(",")[0]) for p in group.find(f"{SVG}polygon").get("points").split()]
            line = group.find(f"{SVG}line")
            ends = [float(line.get("x1")), (min(points) + max(points)) / 2, float(line.get("x2"))]
            assert ends == pytest.approx([ticks["0"] + unit * x for x in (gain.low, gain.value, gain.high)], abs=0.2)

    def test_a_number_that_does_not_exist_has_no_dot(self):
        lost = cell("find", gain=Estimate(nan, nan, nan))
        text = end_to_end_figure(EndToEndFindings((lost,), (), (), ()), "small", "x")
        assert "nan" not in text
        assert "polygon" not in text

    def test_only_chosen_axes(self, dream, decoded):
        assert "axis-score" not in end_to_end_figure(decoded, "small", "x")
        assert "axis-commitment" not in end_to_end_figure(dream[2], "small", "x")
        assert page(*dream).count('aria-labelledby="end-to-end-') == 1


class TestCommand:
    def test_the_last_screen(self, place, decoded, tmp_path, capsys, monkeypatch):
        monkeypatch.setattr("unmask.lab.analysis.end_to_end.end_to_end", lambda store, found, detected: decoded)
        assert main(["study", "report", str(place.folder), "--out", str(tmp_path / "r")]) == 0
        said = capsys.readouterr().out
        found = measure(place)
        last = "\n\n".join(f"{one.question}\n{one.text}" for one in answer(found, detect(place, found), decoded))
        assert said.endswith(f"\n\n{last}\n")
        assert "hint of worse" in said
        assert (tmp_path / "r" / "e4-joint.csv").is_file()

    def test_json(self, place, decoded, tmp_path, capsys, monkeypatch):
        monkeypatch.setattr("unmask.lab.analysis.end_to_end.end_to_end", lambda store, found, detected: decoded)
        assert main(["study", "report", str(place.folder), "--json", "--out", str(tmp_path / "r")]) == 0
        told = json.loads(capsys.readouterr().out)
        assert [row["task"] for row in told["tables"]["e4-end-to-end"]] == [*GAINS, MEAN]

    def test_without_decodes(self, place, tmp_path, capsys):
        assert main(["study", "report", str(place.folder), "--out", str(tmp_path / "r")]) == 0
        assert "`end_to_end = true` in the study file asks for it." in capsys.readouterr().out
        assert not list((tmp_path / "r").glob("e4-*"))

    def test_models_are_named_where_there_are_several(self, decoded):
        other = replace(decoded.cells[0], model="other")
        heads = [column.header for column in screen_e4(replace(decoded, cells=(*decoded.cells, other))).columns]
        assert heads[0] == "model"
        assert screen_e4(decoded).columns[0].header == "task"
