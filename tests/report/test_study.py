"""The report on a study, from stores made by hand: nothing here runs a model."""

import base64
import csv
import gzip
import json
import re
from pathlib import Path

import pytest

from tests.helpers import made_studies as made
from tests.helpers.markup import tree
from unmask.base.errors import ConfigError
from unmask.cli.terminal import Console, print_report
from unmask.lab.analysis import analyse
from unmask.report.study import FILE_LIST, markdown, page, study_report, to_document, write_report


def csv_rows(folder, name):
    return list(csv.DictReader((folder / f"{name}.csv").read_text().splitlines()))


@pytest.fixture(scope="module")
def folder(whole_report, tmp_path_factory):
    """The files of a study that has everything."""
    place = tmp_path_factory.mktemp("report") / "new" / "folder"
    written = write_report(whole_report, place)
    assert all(path.is_file() for path in written)
    return place


class TestFiles:
    def test_every_table_everywhere(self, whole_report, folder):
        text, plain = (folder / "report.html").read_text(), (folder / "report.md").read_text()
        assert plain == markdown(whole_report)
        for table in whole_report.tables:
            assert (folder / f"{table.name}.csv").read_text() == table.to_csv()
            assert (folder / f"{table.name}.tex").read_text() == table.to_latex()
            assert f'<details class="sheet" id="{table.name}"' in text
            assert table.files_only or f"## {table.title}" in plain

    def test_the_extension_has_tables_of_its_own(self, folder):
        for name, axes in {
            "e3-lift-revision": {"commitment"},
            "e4-axes-revision": {"commitment"},
            "e4-controls-revision": {"commitment"},
        }.items():
            rows = csv_rows(folder, name)
            assert {row["axis"] for row in rows} == axes
            assert {row["model"] for row in rows} == {"mini-dream"}
        dream = [row for row in csv_rows(folder, "e4-axes") if row["model"] == "mini-dream"]
        assert "commitment" not in {row["axis"] for row in dream}

    def test_files_of_an_earlier_report_go_and_others_stay(self, diagnosed_report, known_report, tmp_path):
        write_report(diagnosed_report, tmp_path, figures="svg")
        (tmp_path / "mine.csv").write_text("mine")
        written = write_report(known_report, tmp_path)
        there = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
        assert there == {str(path.relative_to(tmp_path)) for path in written} | {"mine.csv", FILE_LIST}

    def test_a_list_that_points_elsewhere_removes_nothing(self, known_report, tmp_path):
        (tmp_path / "keep").write_text("mine")
        (tmp_path / "r").mkdir()
        (tmp_path / "r" / FILE_LIST).write_text(json.dumps(["../keep"]))
        write_report(known_report, tmp_path / "r")
        assert (tmp_path / "keep").read_text() == "mine"

    def test_the_same_findings_give_the_same_bytes(self, known, tmp_path):
        for name in ("one", "other"):
            write_report(study_report(known), tmp_path / name, figures="svg")
        for path in (tmp_path / "one").rglob("*.*"):
            assert path.read_bytes() == (tmp_path / "other" / path.relative_to(tmp_path / "one")).read_bytes()

    def test_an_unknown_kind_of_figures_writes_nothing(self, known_report, tmp_path):
        with pytest.raises(ConfigError, match=r"'gif'.*pdf"):
            write_report(known_report, tmp_path / "r", figures="gif")
        assert not (tmp_path / "r").exists()

    def test_a_page_of_states_beside_it(self, known_report, tmp_path):
        def states(folder):
            (folder / "states.html").write_text("states")
            return folder / "states.html"

        written = write_report(known_report, tmp_path / "r", states=states)
        assert tmp_path / "r" / "states.html" in written
        assert 'href="states.html"' in written[0].read_text()


class TestPage:
    def test_it_is_self_contained(self, folder):
        text = (folder / "report.html").read_text()
        assert not re.findall(r"(?:src|href)=[\"'](?!data:|#)", text)
        assert "default-src 'none'" in text

    def test_each_experiment_has_one_open_table_and_pictures_are_inside(self, whole_report, folder):
        root = tree((folder / "report.html").read_text())
        opened = [e.get("id") for e in root.iter("details") if e.get("class") == "sheet" and "open" in e.attrib]
        assert opened == ["opportunity", "e2-selection", "e3-learned", "e4-end-to-end"]
        pictures = [e.get("src") for e in root.iter("img")]
        assert len(pictures) == len(whole_report.figures)
        assert all(source.startswith("data:image/svg+xml;base64,") for source in pictures)

    def test_every_table_can_be_saved_with_all_digits(self, known_report):
        (inside,) = re.findall(r'<script type="text/plain" id="numbers">(.*?)</script>', page(known_report))
        numbers = json.loads(gzip.decompress(base64.b64decode(inside)))
        assert numbers == {table.name: table.to_csv() for table in known_report.tables}

    def test_names_from_a_study_file_stay_text(self, tmp_path):
        odd = "<script>hurt()</script>"
        tables = {("small", odd, split): made.known()["small", "fill", split] for split in ("validation", "evaluation")}
        report = study_report(analyse(made.store(tmp_path / "s", tables), resamples=20))
        assert odd not in page(report)
        assert "&lt;script&gt;hurt()" in page(report)


class TestWords:
    def test_the_four_answers(self, diagnosed_report):
        said = {answer.question: answer.verdict for answer in diagnosed_report.answers}
        assert said["How much?"].startswith("Yes, there is something to gain: on 4 of 4 task-axis pairs")
        assert (
            said["Predictable?"] == "In part: on 1 of 4 task-axis pairs a signal says better than chance where to act."
        )
        assert said["Does acting pay?"].startswith("One step at a time, yes on 1 of 4")

    def test_what_is_missing_is_said(self, tmp_path):
        tables = made.known()
        lost = ("small", "sort", "evaluation")
        del tables[lost]
        store = made.store(tmp_path / "s", tables, unfinished=[lost], unavailable={"gsm8k": "no <file> & no hub"})
        report = study_report(analyse(store, resamples=20))
        assert report.warnings[0] == (
            "This study is not complete: 3 of 4 shards are finished. What follows is about those alone. There are no "
            "numbers yet for sort of small."
        )
        assert report.warnings[1] == "Left out: gsm8k: no <file> & no hub"
        assert "the study is not complete" in report.run["missing"]

    def test_nothing_could_be_measured(self, tmp_path):
        found = analyse(made.store(tmp_path / "s", made.known(rollouts=1), temperature=0.5), resamples=20)
        report = study_report(found)
        assert report.answers[0].verdict == "Not known: nothing could be measured."
        assert report.warnings[-1].startswith("Nothing could be measured. small, fill, commitment: 1 rollout of")
        assert "Nothing could be measured; the reasons are below." in page(report)

    def test_a_terminal_ends_with_the_answers(self, known_report, capsys):
        print_report(known_report, "here", Console(width=100))
        said = capsys.readouterr().out
        assert "0.7000 [0.7000, 0.7000]" in said
        assert "† fewer than 10 prompts" in said
        assert said.index("written: here") < said.index("How much?")
        assert said.endswith(f"\n\nDoes acting pay?\n{known_report.answers[-1].verdict}\n")


class TestCommand:
    def test_writes_beside_the_tables(self, known_store, known_report, run):
        code, said, _ = run("study", "report", known_store.folder)
        assert code == 0
        assert said.endswith(f"\n{known_report.answers[-1].verdict}\n")
        there = {path.name for path in (known_store.folder / "report").iterdir()}
        assert {"report.html", "report.md", "states.html", "opportunity.csv", "opportunity.tex"} <= there
        assert not [name for name in there if name.startswith(".")]

    def test_json(self, known_store, tmp_path, run):
        code, out, _ = run("study", "report", known_store.folder, "--json", "--out", tmp_path / "r")
        assert code == 0
        values = json.loads(out)
        assert all(Path(path).is_file() for path in values.pop("files"))
        assert values == json.loads(json.dumps(to_document(study_report(analyse(known_store)))))
        assert values["complete"] is True
        assert values["tables"]["opportunity"][1]["delta"] == pytest.approx(
            {"value": 0.7, "low": 0.7, "high": 0.7, "undefined": 0}
        )
        assert values["tables"]["opportunity"][0]["is_reference"] is False

    def test_figures_for_a_paper(self, known_store, known_report, tmp_path, run):
        code, _, _ = run("study", "report", known_store.folder, "--out", tmp_path / "r", "--figures", "pdf")
        assert code == 0
        names = sorted(path.name for path in (tmp_path / "r" / "figures").iterdir())
        assert names == sorted(f"{figure.name}.pdf" for figure in known_report.figures)
