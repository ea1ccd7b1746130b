"""The files of the demonstration, from results made by hand: nothing here runs a study."""

import csv
import io
from dataclasses import replace

import pytest

from tests.helpers import made_demo
from tests.helpers.made_demo import ROWS
from unmask.base.errors import ConfigError
from unmask.report import files
from unmask.report.demo.files import table_csv, write


@pytest.fixture(scope="module")
def results(known):
    return made_demo.results(known)


@pytest.fixture(scope="module")
def written(results, tmp_path_factory):
    return write(results, tmp_path_factory.mktemp("report") / "new" / "folder")


def test_both(written):
    assert sorted(p.name for p in written.page.parent.iterdir()) == ["problems.csv", "report.html"]


def test_csv_has_every_digit(written):
    rows = list(csv.DictReader(io.StringIO(written.rows.read_text(encoding="utf-8"))))
    assert len(rows) == len(ROWS)
    for text, row in zip(rows, ROWS, strict=True):
        assert float(text["utility"]) == row.utility
        assert (text["forwards"] == "") == (row.forwards is None)
    assert rows[4]["tokens_per_forward"] == "1.0"
    third = replace(ROWS[0], utility=1 / 3)
    assert float(table_csv([third]).splitlines()[1].split(",")[4]) == 1 / 3


def test_same_results_same_bytes(results, written, tmp_path):
    again = write(results, tmp_path)
    for before, after in zip(written.paths, again.paths, strict=True):
        assert before.read_bytes() == after.read_bytes()


def test_a_file_is_no_folder(results, tmp_path):
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(ConfigError, match=r"'.*taken' is a file; allowed: a folder"):
        write(results, tmp_path / "taken")
    with pytest.raises(ConfigError, match="cannot be made"):
        files.folder(tmp_path / "taken" / "deeper")
    assert (tmp_path / "taken").read_text() == "mine"
