"""The report on a study, from stores made by hand: nothing here runs a model."""

import csv
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.helpers import made_studies as made
from unmask.cli.app import main
from unmask.errors import ConfigError
from unmask.lab.analysis.opportunity import measure
from unmask.report.figures.opportunity import concentration_figure, gap_figure
from unmask.report.study import answer, document, legend, markdown, notes, page, warnings, write
from unmask.report.tables.opportunity import LEGEND, NONE, PARTIAL, UNRELIABLE, number, share, sheets, table_csv
from unmask.stats import Estimate, choose_fixed, summary

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return made.store(tmp_path_factory.mktemp("report") / "study", made.known())


@pytest.fixture(scope="module")
def found(place):
    return measure(place)


@pytest.fixture(scope="module")
def written(found, tmp_path_factory):
    return write(found, tmp_path_factory.mktemp("out") / "new" / "folder")


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """Not complete, something unjudged, a task without data, and names that HTML must not take for markup."""
    tables = made.known()
    lost = ("small", "sort", "evaluation")
    del tables[lost]
    margin = tables["small", "fill", "evaluation"]["score"]["margin"].copy()
    margin[0, 3] = np.nan
    tables["small", "fill", "evaluation"]["score"]["margin"] = margin
    place = made.store(
        tmp_path_factory.mktemp("broken") / "study",
        tables,
        unfinished=[lost],
        unavailable={"gsm8k": "no <file> & no hub"},
        reason="exit | code\n1",
    )
    return measure(place)


def words(found):
    return " ".join([*warnings(found), *(one.text for one in answer(found)), *notes(found)])


def rows(text):
    return list(csv.DictReader(text.splitlines()))


def sheet(found, name):
    (one,) = [s for s in sheets(found) if s.name == name]
    return one


def hinted(tmp_path, prompts):
    """Only so many of 20 prompts have a state that gains, by 0.5."""
    late = made.flat(0.0)
    late[:prompts, 3] = 1.0
    tables = made.known()
    for task in ("fill", "sort"):
        same = {"confidence": made.flat(0.5), "margin": made.flat(0.5)}
        score = {"confidence": late, "margin": made.flat(0.5)} if task == "fill" else same
        tables["small", task, "evaluation"] = {"score": score}
        tables["small", task, "validation"] = {"score": tables["small", task, "validation"]["score"]}
    return measure(made.store(tmp_path / "s", tables, axes=["score"]))


class TestWords:
    def test_what_was_shown(self, found):
        text = words(found)
        assert "could gain on 2 of 6 task-axis pairs of small: there the 95 % interval" in text
        assert "0.7000 [0.7000, 0.7000] (region on fill, over the fixed action full)" in text
        assert "on top of a utility of 0.200; the best of 6 looks better than it is" in text
        assert "small (2 tasks, 40 evaluation prompts): score 0.0625 [0.0625, 0.0625], region 0.3500" in text
        assert "25.0 % to 100.0 % of states gain" in text
        assert "the best 10 % of states hold 10.0 % to 40.0 % of the opportunity" in text
        assert "Rollouts never differ in 480" in text
        assert "not complete" not in text

    def test_four_questions_in_order(self, found, broken):
        for one in (found, broken):
            asked = [told.question for told in answer(one)]
            assert asked == ["How much?", "How concentrated?", "Predictable?", "Does acting pay?"]
            assert all(1 <= len(re.findall(r"\.(?=\s[A-Z]|$)", told.text)) <= 3 for told in answer(one))
        *_, predictable, pays = answer(found)
        assert predictable.text.startswith("Not asked: the study reads no diagnostics")
        assert pays.text.startswith("Not measured: the study reads no diagnostics")

    def test_every_model_has_its_count(self, tmp_path):
        tables = made.known()
        tables |= {("other", *key[1:]): axes for key, axes in made.known().items()}
        for task in ("fill", "sort"):
            tables["other", task, "evaluation"] = tables["small", "sort", "evaluation"]
        found = measure(made.store(tmp_path / "s", tables, models={"small": "small", "other": "other"}))
        much, concentrated, *_ = answer(found)
        assert "could gain on 2 of 6 task-axis pairs of small and none of 6 of other:" in much.text
        assert "(small, region on fill, over the fixed action full)" in much.text
        assert "the best of 12 looks better than it is" in much.text
        assert "other" not in concentrated.text

    def test_no_claim_where_nothing_gains(self, tmp_path):
        text = words(hinted(tmp_path, 0))
        assert "No opportunity was shown: on none of 2 task-axis pairs" in text
        assert "could gain on" not in text
        assert "The largest" not in text
        assert "Not known: where no opportunity was shown" in text

    def test_no_claim_where_intervals_include_zero(self, tmp_path):
        """2 of 20 prompts: a resample misses both in 12 %."""
        found = hinted(tmp_path, 2)
        assert found.cells[0].overall.delta.low == 0 < found.cells[0].overall.delta.value
        text = words(found)
        assert "No opportunity was shown: on none of 2 task-axis pairs of small does the 95 % interval" in text
        assert "The largest estimate is 0.0125 [0.0000" in text
        assert "could gain on" not in text
        assert "by stage" not in text
        assert "Not known: where no opportunity was shown" in text

    def test_a_hint_is_no_claim(self, tmp_path):
        """8 of 20 prompts: the interval leaves zero out, but rests on too few prompts."""
        found = hinted(tmp_path, 8)
        assert found.cells[0].overall.delta.positive
        text = words(found)
        assert "No opportunity was shown reliably" in text
        assert "a hint, no more" in text
        assert "could gain on" not in text
        assert "by stage" not in text
        assert "On the pairs where there is a hint" in text
        assert "do not rely on the intervals: all of these" in text

    def test_enough_prompts_are_a_claim(self, tmp_path):
        text = words(hinted(tmp_path, 14))
        assert "could gain on 1 of 2 task-axis pairs" in text
        assert "by stage, small, score: 0.0000 (masked 75–100 %), 0.0000 (masked 50–75 %)" in text

    def test_what_is_missing_comes_first(self, broken):
        first, second = warnings(broken)
        assert first.startswith("This study is not complete: 3 of 4 shards are finished.")
        assert "no numbers yet for sort of small" in first
        assert second == "Left out: gsm8k: no <file> & no hub"
        assert any("4 of" in text and "could not be judged" in text for text in notes(broken))

    def test_a_name_is_not_a_model(self, tmp_path):
        """Whoever calls a small model LLaDA still reads what was loaded."""
        tables = {("LLaDA-8B", *key[1:]): axes for key, axes in made.known().items()}
        found = measure(made.store(tmp_path / "s", tables, models={"LLaDA-8B": "/models/mini"}))
        assert "LLaDA-8B (/models/mini) (2 tasks, 40 evaluation prompts)" in words(found)
        assert "numbers of LLaDA-8B (/models/mini) on these tasks and of no other model" in notes(found)[-1]
        assert "<h2>LLaDA-8B (/models/mini)</h2>" in page(found)

    def test_nothing_measured(self, tmp_path):
        found = measure(made.store(tmp_path / "s", made.known(rollouts=1), temperature=0.5))
        (text,) = warnings(found)
        assert answer(found)[0].text == "Not known: nothing could be measured."
        assert notes(found) == ()
        assert text.startswith("Nothing could be measured.")
        assert "cannot be cross-fitted" in text
        ElementTree.fromstring(page(found))
        assert "Nothing could be measured; the reasons are below." in markdown(found)

    def test_noise_is_told(self, tmp_path):
        lucky = made.flat(0.4)
        lucky[:, :, :2] = 1.0
        tables = made.known()
        tables["small", "fill", "evaluation"]["score"] = {"confidence": lucky, "margin": made.flat(0.5)}
        found = measure(made.store(tmp_path / "s", tables))
        assert any("Rollouts differ at 80 of 480" in text for text in notes(found))
        brackets = {(r["task"], r["axis"]): r["bracket_high"] for r in rows(table_csv(sheet(found, "audit")))}
        assert float(brackets["fill", "score"]) == pytest.approx(0.2)
        assert brackets["fill", "region"] == ""


class TestTables:
    def test_csv_has_the_numbers_of_the_statistics(self, found, place):
        """All digits, intervals included."""
        table = rows(table_csv(sheet(found, "opportunity")))
        assert len(table) == 6
        for row in table:
            q = {
                role: place.utilities("small", row["task"], role, row["axis"]) for role in ("validation", "evaluation")
            }
            chosen = choose_fixed(q["validation"].utility_SAR, reference=0)
            wanted = summary(
                q["evaluation"].utility_SAR,
                q["evaluation"].prompt_S,
                fixed=chosen,
                seed=5,
                task_S=[row["task"]] * len(q["evaluation"].prompt_S),
                reference=0,
            ).overall
            assert row["fixed"] == q["evaluation"].candidates[chosen.action]
            for key in ("delta", "positive_rate", "frequency", "margin"):
                estimate = getattr(wanted, key)
                for end, value in (("", estimate.value), ("_low", estimate.low), ("_high", estimate.high)):
                    assert row[key + end] == ("" if np.isnan(value) else repr(value))
                assert int(row[f"{key}_undefined"]) == estimate.undefined
            assert (int(row["prompts"]), int(row["states"])) == (wanted.prompts, wanted.states)
            assert row["unreliable"] == wanted.unreliable

    def test_reversals_name_their_actions(self, found):
        by_key = {(r["task"], r["axis"]): r for r in rows(table_csv(sheet(found, "reversal")))}
        score, commitment = by_key["fill", "score"], by_key["fill", "commitment"]
        assert score["pair"] == score["pairwise_pair"] == "confidence ⇄ margin"
        assert float(score["bidirectional"]) == float(score["pairwise"]) == pytest.approx(0.125)
        assert commitment["pair"] == commitment["pairwise"] == ""
        # block:8 wins everywhere: much to gain over full, but nothing that full wins back.
        assert float(by_key["fill", "region"]["bidirectional"]) == 0
        assert float(by_key["fill", "region"]["pairwise"]) == pytest.approx(0.7)
        assert len(rows(table_csv(sheet(found, "pairs")))) == 6

    def test_concentration(self, found):
        by_key = {(r["task"], r["axis"]): r for r in rows(table_csv(sheet(found, "concentration")))}
        tops = [by_key["fill", "score"][f"top_{c}"] for c in (5, 10, 20, 50, 100)]
        assert [float(x) for x in tops] == pytest.approx([0.2, 0.4, 0.8, 1, 1])
        assert by_key["sort", "score"]["top_10"] == ""
        assert sheet(found, "concentration").shown[-1][4] == NONE

    def test_cost_adds_up(self, found):
        *_, last = rows(table_csv(sheet(found, "cost")))
        assert last["axis"] == "all"
        saved = sum(int(last[key]) for key in ("rollouts", "first", "futures", "settled"))
        assert int(last["naive"]) == int(last["done"]) + saved == 600
        assert float(last["seconds"]) == 6

    def test_missing_utilities_have_reasons(self, broken):
        (row,) = rows(table_csv(sheet(broken, "unjudged")).replace("\n1", " 1"))
        assert (row["branches"], row["reason"]) == ("4", "exit | code 1")
        assert {r["reason"] for r in rows(table_csv(sheet(broken, "missing")))} == {
            "no evaluation prompt is finished yet",
            "no <file> & no hub",
        }
        assert "exit \\| code 1" in markdown(broken)

    def test_heads_do_not_depend_on_the_rows(self, found, tmp_path):
        nothing = measure(made.store(tmp_path / "s", made.known(rollouts=1), temperature=0.5))
        for one, other in zip(sheets(found), sheets(nothing), strict=True):
            assert table_csv(one).splitlines()[0] == table_csv(other).splitlines()[0]

    def test_marks(self, found, broken):
        notes = {row[1:3]: row[6] for row in sheet(found, "opportunity").shown}
        assert notes["fill", "score"] == ""
        assert notes["sort", "score"] == UNRELIABLE
        assert {row[4] for row in sheet(broken, "means").shown if row[1] == "score"} == {PARTIAL}
        assert legend(found) == [f"{UNRELIABLE} {LEGEND[UNRELIABLE]}"]

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (Estimate(0.12345, 0.1, 0.2), "0.1235 [0.1000, 0.2000]"),
            (Estimate(float("nan"), float("nan"), float("nan")), NONE),
            (Estimate(0.5, float("nan"), float("nan")), "0.5000"),
            (float("nan"), NONE),
            (None, NONE),
            (0.0, "0.0000"),
        ],
    )
    def test_numbers(self, value, text):
        assert number(value) == text

    def test_shares(self):
        assert share(Estimate(0.125, 0.0, 1.0)) == "12.5 % [0.0 %, 100.0 %]"


class TestPage:
    def test_is_well_formed_and_self_contained(self, broken, written):
        for text in (page(broken), written.page.read_text()):
            root = ElementTree.fromstring(text)
            tags = {element.tag.split("}")[-1] for element in root.iter()}
            assert not tags & {"script", "link", "img", "iframe", "object", "image", "use"}
            assert not {key for element in root.iter() for key in element.attrib} & {"src", "href", "srcset", "onclick"}
            assert set(re.findall(r"https?://[^\"<\s]+", text)) <= {"http://www.w3.org/2000/svg"}
            assert not re.search(r"url\(|@import", text)

    def test_names_and_reasons_are_escaped(self, broken):
        assert "no &lt;file&gt; &amp; no hub" in page(broken)
        assert "<file>" not in page(broken)

    def test_warns_before_anything_else(self, broken, found):
        text = page(broken)
        assert text.index("This study is not complete") < text.index("<svg")
        assert text.count('class="warn"') == 2
        assert 'class="warn"' not in page(found)

    def test_has_every_table_but_the_long_one(self, found):
        text = page(found)
        for one in sheets(found):
            assert (f'<h3 id="{one.name}">' in text or f"<summary>{one.title}</summary>" in text) != one.aside
        assert found.manifest["fingerprint"] in text
        assert all(digest in text for digest in found.hashes.values())
        assert f"unmask {found.manifest['versions']['unmask']}" in text

    def test_is_the_same_every_time(self, found):
        assert page(found) == page(found)


class TestFigures:
    def test_gaps_are_where_the_numbers_are(self, found):
        root = ElementTree.fromstring(gap_figure(found, "small", 0))
        assert root.find(f"{SVG}title").text
        assert "fill, region: 0.7000 [0.7000, 0.7000]" in root.find(f"{SVG}desc").text
        assert root.get("aria-labelledby").split() == ["gap-0-title", "gap-0-desc"]
        groups = root.findall(f"{SVG}g")
        assert len(groups) == 9  # six cells and three means
        ticks = {t.text: float(t.get("x")) for t in root.iter(f"{SVG}text") if t.get("text-anchor") == "middle"}
        unit = (ticks["0.7"] - ticks["0"]) / 0.7
        dots = [float(dot.get("cx")) for dot in root.iter(f"{SVG}circle")]
        assert dots == pytest.approx([ticks["0"] + unit * x for x in (0.125, 0.0, 0.0625)], abs=0.06)

    def test_a_loss_lies_left_of_zero(self, tmp_path):
        lucky = made.flat(0.4)
        lucky[:, :, :2] = 1.0
        tables = made.known()
        tables["small", "fill", "evaluation"]["score"] = {"confidence": lucky, "margin": made.flat(0.5)}
        root = ElementTree.fromstring(gap_figure(measure(made.store(tmp_path / "s", tables)), "small", 0))
        ticks = {t.text: float(t.get("x")) for t in root.iter(f"{SVG}text") if t.get("text-anchor") == "middle"}
        unit = (ticks["0.6"] - ticks["0"]) / 0.6
        assert float(next(root.iter(f"{SVG}circle")).get("cx")) == pytest.approx(ticks["0"] - 0.05 * unit, abs=0.1)

    def test_unreliable_ones_look_different(self, found):
        root = ElementTree.fromstring(gap_figure(found, "small", 0))
        doubt = ["doubt" in g.get("class") for g in root.findall(f"{SVG}g")]
        # fill: score and region have gains; sort: none; means: score and region rest on fill.
        assert doubt == [False, False, True, True, True, True, False, False, True]

    def test_curves(self, found):
        root = ElementTree.fromstring(concentration_figure(found, "small", 0))
        heads = [t.text for t in root.iter(f"{SVG}text") if t.get("class") == "head"]
        assert heads == ["score", "region"]  # commitment has nothing to share out
        thin = next(line for line in root.iter(f"{SVG}polyline") if "thin" in line.get("class"))
        points = [tuple(map(float, point.split(","))) for point in thin.get("points").split()]
        (left, bottom), (right, top) = points[0], points[-1]
        shares = [((x - left) / (right - left), (bottom - y) / (bottom - top)) for x, y in points]
        flat = [value for pair in shares for value in pair]
        assert flat == pytest.approx([0, 0, 0.05, 0.2, 0.1, 0.4, 0.2, 0.8, 0.5, 1, 1, 1], abs=0.002)

    def test_no_curve_without_opportunity(self, tmp_path):
        found = hinted(tmp_path, 0)
        assert concentration_figure(found, "small", 0) == ""
        assert "C*(c)" not in page(found).split("<h2>Tables</h2>")[0]
        dots = [float(d.get("cx")) for d in ElementTree.fromstring(gap_figure(found, "small", 0)).iter(f"{SVG}circle")]
        assert len(set(dots)) == 1


class TestCommand:
    def test_writes_beside_the_tables(self, place, capsys):
        assert main(["study", "report", str(place.folder)]) == 0
        said = capsys.readouterr().out
        last = "\n\n".join(f"{one.question}\n{one.text}" for one in answer(measure(place)))
        assert said.endswith(f"\n\n{last}\n")
        assert "could gain on 2 of 6 task-axis pairs" in said
        assert "0.7000 [0.7000, 0.7000]" in said
        assert f"{UNRELIABLE} fewer than 10 prompts" in said
        there = sorted(path.name for path in (place.folder / "report").iterdir())
        assert {"report.html", "report.md", "opportunity.csv", "reversal.csv", "concentration.csv"} <= set(there)
        assert len(there) == 14
        assert not [name for name in there if name.startswith(".")]

    def test_json(self, place, found, tmp_path, capsys):
        assert main(["study", "report", str(place.folder), "--json", "--out", str(tmp_path / "r")]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["complete"] is True
        assert [(one["question"], one["text"]) for one in told["answer"]] == [
            (one.question, one.text) for one in answer(found)
        ]
        assert told["notes"] == list(notes(found))
        assert all(Path(path).is_file() for path in told["files"])
        assert told["tables"]["opportunity"][1]["delta"] == pytest.approx(
            {"value": 0.7, "low": 0.7, "high": 0.7, "undefined": 0}
        )
        assert told["tables"]["opportunity"][0]["is_reference"] is False
        del told["files"]
        assert told == json.loads(json.dumps(document(found)))

    @pytest.mark.parametrize("kind", ["nowhere", "file", "other folder"])
    def test_what_is_no_study(self, kind, tmp_path, capsys):
        (tmp_path / "file").write_text("")
        (tmp_path / "other folder").mkdir()
        assert main(["study", "report", str(tmp_path / kind)]) == 2
        said = capsys.readouterr().err
        assert f"no study in '{tmp_path / kind}'" in said
        assert "allowed: a folder of `unmask study run`" in said

    def test_an_output_that_is_a_file(self, found, tmp_path):
        (tmp_path / "file").write_text("mine")
        with pytest.raises(ConfigError, match="is a file; allowed: a folder"):
            write(found, tmp_path / "file")
        assert (tmp_path / "file").read_text() == "mine"
