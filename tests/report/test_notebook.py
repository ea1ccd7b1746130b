"""What a notebook shows of a run, its result and findings, and the notebooks themselves."""

import hashlib
import html
import re
import sys
from dataclasses import replace

import nbformat
import pytest

from notebooks.execute import FOLDER, MADE_FROM, code_hashes, executed
from tests.helpers import made_studies as made
from unmask.api.load import load
from unmask.base.errors import ConfigError, UnknownName
from unmask.core import Trajectory
from unmask.lab.analysis import analyse
from unmask.report import notebook
from unmask.report.run_data import run_data

EVIL = "<script>alert('1')</script> \"&quot;\" \u2028"


@pytest.fixture(scope="module")
def exact():
    return load("exact", n=10)


@pytest.fixture(scope="module")
def out(exact):
    return exact.generate(["ab", "cda"], policy="remdm", seed=3, record_top=4)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return analyse(made.store(tmp_path_factory.mktemp("known") / "study", made.known()), resamples=50)


def inside(cell):
    """The page in the frame of a cell."""
    (escaped,) = re.findall(r'<iframe [^>]*srcdoc="([^"]*)"', cell)
    return html.unescape(escaped)


class TestRuns:
    def test_the_frame_holds_a_whole_page_and_may_do_nothing_else(self, out):
        for value in (out, out.trajectory):
            cell = value._repr_html_()
            assert 'sandbox="allow-scripts"' in cell
            page = inside(cell)
            assert page.startswith("<!DOCTYPE html>")
            assert page.count('class="run-grid"') == 2
            # Nothing of the page stands outside its frame.
            assert "<script" not in cell
            assert "<style" not in cell

    def test_what_came_from_outside_stays_text(self, out, exact):
        rows = [{**row, "prompt": EVIL} for row in out.config["rows"]]
        config = {**out.config, "rows": rows, "policy": {"name": EVIL}}
        texts = (EVIL, EVIL)
        done = replace(out, texts=texts, config=config, trajectory=replace(out.trajectory, config=config))
        assert "<script>alert" not in done._repr_html_()
        assert "<script>alert" not in inside(done._repr_html_())

    def test_a_saved_run_finds_its_tokenizer(self, out, exact, tmp_path):
        out.trajectory.save(tmp_path / "run.npz")
        again = Trajectory.load(tmp_path / "run.npz")
        assert again._repr_html_() == out.trajectory._repr_html_()
        strange = replace(again, config={**again.config, "model": {"name": "nobody's"}})
        assert "&lt;0&gt;" in inside(strange.row(0)._repr_html_())
        assert "&lt;0&gt;" not in inside(again.row(0)._repr_html_())

    def test_a_cell_is_bounded_and_says_what_is_left(self, exact, out, monkeypatch):
        many = exact.generate(["a"] * 6, policy="llada")
        page = inside(many._repr_html_())
        assert page.count('class="run-grid"') == notebook.MOST_ROWS
        assert "2 more: .row(N).show()" in page
        assert "and 2 more in .texts" in many._repr_html_()
        monkeypatch.setattr(notebook, "MOST_CELLS", 5)
        assert "too large for a cell: <code>.show()</code>" in out._repr_html_()

    def test_without_steps_there_is_no_grid(self, exact):
        cell = exact.generate("a", record=False)._repr_html_()
        assert "no steps were recorded" in cell
        assert "<iframe" not in cell

    def test_the_page_has_every_row(self, exact):
        path = exact.generate(["a"] * 6, policy="llada").show(open=False)
        try:
            assert path.read_text(encoding="utf-8").count('class="run-grid"') == 6
        finally:
            path.unlink()

    def test_a_line_for_each_change(self, out, exact):
        table = out.trajectory.to_pandas()
        assert tuple(table.columns) == notebook.CHANGE
        for row in (0, 1):
            record = run_data(out.trajectory, row, exact.codec, top=4)
            own = table[table.row == row]
            changes = [change for step in record["steps"] for change in step["changes"]]
            assert own.position.tolist() == [position for position, _, _ in changes]
            assert own.token.isna().tolist() == [token is None for _, token, _ in changes]
        filled = table[table.token.notna()]
        assert {len(top) for top in filled.top} == {4}
        assert {len(top) for top in table[table.token.isna()].top} <= {0}
        assert all(abs(sum(p for _, p in top) - 1) < 0.01 for top in filled.top)

    def test_a_line_for_each_row(self, out):
        table = out.to_pandas()
        assert table.text.tolist() == list(out.texts)
        assert table.forwards.tolist() == list(out.row_forwards)
        assert table.prompt.tolist() == ["ab", "cda"]


class TestFindings:
    def test_answers_and_tables_are_plain_html(self, found):
        cell = found._repr_html_()
        assert "How much?" in cell
        assert "Does acting pay?" in cell
        assert cell.count("<table>") == cell.count("</table>") >= 1
        assert "<script" not in cell
        assert "<style" not in cell

    def test_a_table_by_its_name(self, found):
        table = found.to_pandas()
        assert len(table) == 6
        assert set(table.axis) == {"score", "region", "commitment"}
        assert table.delta.dtype == float
        assert len(found.to_pandas("cost"))
        with pytest.raises(UnknownName, match="opportunity"):
            found.to_pandas("oportunity")
        with pytest.raises(ConfigError, match="table is 3; allowed: the name of a table"):
            found.to_pandas(3)


def test_without_pandas_one_line_says_what_to_do(out, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    notebook._import_pandas.cache_clear()
    with pytest.raises(ConfigError, match=r"pip install 'unmask\[lab\]'"):
        out.to_pandas()


NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_both_are_there():
    assert [path.name[0] for path in NOTEBOOKS] == ["1", "2"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name[0])
def test_committed_outputs_are_those_of_the_committed_cells(path):
    committed = nbformat.read(path, as_version=4)
    code = [cell for cell in committed.cells if cell.cell_type == "code"]
    assert [cell.metadata[MADE_FROM] for cell in code] == code_hashes(committed), "run `make notebooks`"
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not [one for cell in code for one in cell.outputs if one.output_type == "error"]
    assert path.stat().st_size < 400_000
    shown = [one.data["text/html"] for cell in code for one in cell.outputs if "text/html" in one.get("data", {})]
    assert any("<iframe" in text for text in shown)
    assert any("<table" in text for text in shown)


def test_a_changed_cell_is_noticed():
    committed = nbformat.read(NOTEBOOKS[0], as_version=4)
    before = code_hashes(committed)
    first = next(cell for cell in committed.cells if cell.cell_type == "code")
    first.source += "\n"
    after = code_hashes(committed)
    assert len(after) == len(before)
    assert not set(after) & set(before)
    assert before[0] == hashlib.sha256(first.source[:-1].encode() + b"\0").hexdigest()[:16]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name[0])
def test_they_run(path, monkeypatch, tmp_path):
    """In their short version, with one thread; `make notebooks` runs them whole."""
    for name, value in {"UNMASK_NOTEBOOK_QUICK": "1", "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    committed, now = nbformat.read(path, as_version=4), executed(path)
    assert not [one for cell in now.cells for one in cell.get("outputs", ()) if one.output_type == "error"]
    assert [_kinds(cell) for cell in now.cells] == [_kinds(cell) for cell in committed.cells]


def _kinds(cell):
    """What sorts of outputs a cell has, not counting what is printed."""
    return [sorted(one.data) for one in cell.get("outputs", ()) if "data" in one]
