"""The report on a study, from stores made by hand: nothing here runs a model."""

import csv
import json
import sys
from pathlib import Path

import pytest

from tests.helpers import made_studies as made
from tests.helpers.made_findings import GAINS
from unmask.base.errors import ConfigError
from unmask.lab.analysis.end_to_end import CHOSEN
from unmask.report.html import page
from unmask.report.markdown import markdown
from unmask.report.plain import document
from unmask.report.study import write
from unmask.report.tables.end_to_end import axes_sheet, controls_sheet, full_sheet, joint_sheet
from unmask.report.tables.end_to_end import missing_sheet as end_to_end_missing
from unmask.report.tables.shared import MEAN, UNRELIABLE


@pytest.fixture
def analysed(monkeypatch):
    """Make the command find what is given, whatever lies in the folder: the analysis has tests of its own."""
    return lambda findings: monkeypatch.setattr("unmask.lab.analysis.findings.findings", lambda store: findings)


def axes_of(written):
    """By table, the axes that its CSV file has."""
    tables = {path.stem: list(csv.DictReader(path.read_text().splitlines())) for path in written.tables}
    return {name: {row["axis"] for row in rows if "axis" in row} for name, rows in tables.items()}


class TestFiles:
    def test_every_table_everywhere(self, whole, whole_report, tmp_path):
        text, plain = page(whole_report), markdown(whole_report)
        written = write(whole_report, tmp_path / "new" / "folder")
        assert written.page.read_text() == text
        assert written.text.read_text() == plain
        names = [sheet.name for sheet in whole_report.sheets]
        assert [path.stem for path in written.tables] == [path.stem for path in written.latex] == names
        assert all(path.is_file() for path in written.paths)
        for sheet in whole_report.sheets:
            assert f'<details class="sheet" id="{sheet.name}"' in text
            assert sheet.aside or f"### {sheet.title}" in plain
        for build in (full_sheet, axes_sheet, controls_sheet, joint_sheet, end_to_end_missing):
            one = build(whole.end_to_end)
            assert one.name in names
            assert f"<h3>{one.title}</h3>" in text

    def test_the_extension_has_tables_of_its_own(self, dream_report, tmp_path):
        axes = axes_of(write(dream_report, tmp_path / "r"))
        assert axes["e3-lift"] == {"region"}
        assert axes["e3-lift-revision"] == {"commitment"}
        assert axes["e4-axes"] == {"region"}
        assert axes["e4-controls"] == {"region", CHOSEN}
        assert axes["e4-end-to-end"] == {"region", CHOSEN}
        assert axes["e4-axes-revision"] == {"commitment"}
        assert axes["e4-controls-revision"] == {"commitment"}

    def test_what_a_study_does_not_have_is_not_written(self, known, known_report, tmp_path):
        assert known.detection is None
        assert len(write(known_report, tmp_path / "r").tables) == 12

    def test_an_unknown_kind_of_figures_writes_nothing(self, known_report, tmp_path):
        with pytest.raises(ConfigError, match=r"'gif'.*pdf"):
            write(known_report, tmp_path / "r", figures="gif")
        assert not (tmp_path / "r").exists()

    def test_a_page_of_states_beside_it(self, known_report, tmp_path):
        def states(folder):
            (folder / "states.html").write_text("states")
            return folder / "states.html"

        written = write(known_report, tmp_path / "r", states=states)
        assert written.states == tmp_path / "r" / "states.html"
        assert written.states in written.paths
        assert 'href="states.html"' in written.page.read_text()

    def test_an_output_that_is_a_file(self, known_report, tmp_path):
        (tmp_path / "file").write_text("mine")
        with pytest.raises(ConfigError, match="is a file; allowed: a folder"):
            write(known_report, tmp_path / "file")
        assert (tmp_path / "file").read_text() == "mine"


class TestCommand:
    def test_writes_beside_the_tables(self, known_store, known_report, run):
        code, said, _ = run("study", "report", known_store.folder)
        assert code == 0
        last = "\n\n".join(f"{a.question}\n{a.verdict}\n{a.text}" for a in known_report.answers)
        assert said.endswith(f"\n\n{last}\n")
        assert "could gain on 2 of 6 task-axis pairs" in said
        assert "0.7000 [0.7000, 0.7000]" in said
        assert f"{UNRELIABLE} fewer than 10 prompts" in said
        there = sorted(path.name for path in (known_store.folder / "report").iterdir())
        assert {"report.html", "report.md", "opportunity.csv", "reversal.csv", "concentration.csv"} <= set(there)
        assert len([name for name in there if not name.endswith(".tex")]) == 15
        assert {f"{Path(name).stem}.tex" for name in there if name.endswith(".csv")} <= set(there)
        assert len(there) == 15 + 12
        assert not [name for name in there if name.startswith(".")]

    def test_json(self, known_store, known_report, tmp_path, run):
        code, out, _ = run("study", "report", known_store.folder, "--json", "--out", tmp_path / "r")
        assert code == 0
        values = json.loads(out)
        assert values["complete"] is True
        assert values["answer"] == [vars(answer) for answer in known_report.answers]
        assert values["notes"] == list(known_report.notes)
        assert all(Path(path).is_file() for path in values["files"])
        assert values["tables"]["opportunity"][1]["delta"] == pytest.approx(
            {"value": 0.7, "low": 0.7, "high": 0.7, "undefined": 0}
        )
        assert values["tables"]["opportunity"][0]["is_reference"] is False
        del values["files"]
        assert values == json.loads(json.dumps(document(known_report)))

    @pytest.mark.slow
    def test_diagnostics(self, diagnosed_store, tmp_path, run):
        code, said, _ = run("study", "report", diagnosed_store.folder, "--out", tmp_path / "r")
        assert code == 0
        assert "Predictable? In part: on 1 of 4" in " ".join(said.split())
        assert "never deviates" in said
        assert "`end_to_end = true` in the study file asks for it." in said
        there = {path.name for path in (tmp_path / "r").iterdir() if path.suffix != ".tex"}
        assert {"e2-selection.csv", "e2-diagnostics.csv", "e3-lift.csv", "e3-utility.csv", "e3-detection.csv"} <= there
        assert {"e3-coverage.csv", "e3-bins.csv", "e3-means.csv", "e23-missing.csv"} <= there
        assert "e3-concentration.csv" in there
        assert len(there) == 15 + 10
        assert not list((tmp_path / "r").glob("e4-*"))

    def test_whole_answers(self, diagnosed_store, whole, whole_report, analysed, tmp_path, run):
        analysed(whole)
        code, said, _ = run("study", "report", diagnosed_store.folder, "--out", tmp_path / "r")
        assert code == 0
        last = "\n\n".join(f"{a.question}\n{a.verdict}\n{a.text}" for a in whole_report.answers)
        assert said.endswith(f"\n\n{last}\n")
        assert "hint of worse" in said
        assert (tmp_path / "r" / "e4-joint.csv").is_file()

    def test_whole_answers_as_json(self, diagnosed_store, whole, analysed, tmp_path, run):
        analysed(whole)
        code, out, _ = run("study", "report", diagnosed_store.folder, "--json", "--out", tmp_path / "r")
        assert code == 0
        assert [row["task"] for row in json.loads(out)["tables"]["e4-end-to-end"]] == [*GAINS, MEAN]

    @pytest.mark.slow
    def test_figures_for_a_paper(self, known_store, known_report, tmp_path, run):
        code, said, _ = run("study", "report", known_store.folder, "--figures", "pdf", "--out", tmp_path / "r")
        assert code == 0
        made = sorted(path.name for path in (tmp_path / "r" / "figures").iterdir())
        assert "e1-all.pdf" in made
        assert made == sorted(f"{figure.name}.pdf" for figure in known_report.figures)
        assert f"{len(made)} figures as pdf" in said

    def test_without_plotly_all_but_the_page_is_written(self, known_store, tmp_path, run, monkeypatch):
        monkeypatch.setitem(sys.modules, "plotly", None)
        (tmp_path / "r").mkdir()
        (tmp_path / "r" / "report.html").write_text("of another time")
        code, said, note = run("study", "report", known_store.folder, "--out", tmp_path / "r")
        assert code == 0
        assert "report.html needs plotly, which is not installed here; everything else is written" in note
        assert f"written: {tmp_path / 'r' / 'report.md'}, states.html (its states) and 12 tables" in said
        there = {path.name for path in (tmp_path / "r").iterdir()}
        assert "report.html" not in there
        assert {"report.md", "opportunity.csv", "opportunity.tex"} <= there

    @pytest.mark.parametrize("split", ["validation", "evaluation"])
    def test_an_interrupted_study_has_a_page_of_what_is_missing(self, split, tmp_path, run):
        tables = made.known()
        lost = [key for key in tables if key[2] != split]
        made.store(tmp_path / "s", {k: v for k, v in tables.items() if k not in lost}, unfinished=lost)
        code, said, _ = run("study", "report", tmp_path / "s")
        assert code == 0
        assert "This study is not complete: 2 of 4 shards are finished." in said
        text = (tmp_path / "s" / "report" / "report.html").read_text()
        assert "the study is not complete: 2 of 4 shards are finished; 6 model-task-axis cells without numbers" in text

    def test_a_damaged_shard_is_named_and_nothing_is_written(self, tmp_path, run):
        store = made.store(tmp_path / "s", made.known())
        name = store.names()[1]
        table = (store.folder / "shards") / name / "branches.parquet"
        table.write_bytes(table.read_bytes()[:-7])
        code, _, said = run("study", "report", store.folder, "--out", tmp_path / "r")
        assert code == 2
        assert f"'{name}'" in said
        assert "damaged" in said
        assert "unmask study check" in said
        assert not (tmp_path / "r").exists()

    @pytest.mark.parametrize("kind", ["nowhere", "file", "other folder"])
    def test_what_is_no_study(self, kind, tmp_path, run):
        (tmp_path / "file").write_text("")
        (tmp_path / "other folder").mkdir()
        code, _, said = run("study", "report", tmp_path / kind)
        assert code == 2
        assert f"no study in '{tmp_path / kind}'" in said
        assert "allowed: a folder of `unmask study run`" in said
