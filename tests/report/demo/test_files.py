"""The files of a comparison, from rows made by hand: nothing here runs a model."""

import base64
import csv
import io
import re
import struct
from dataclasses import replace

import pytest

from tests.helpers.made_demo import COMPARISON, ROWS
from unmask.errors import ConfigError
from unmask.lab.demo import MODE
from unmask.report import files
from unmask.report.demo.files import markdown, table_csv, write


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write(COMPARISON, tmp_path_factory.mktemp("report") / "new" / "folder")


def test_all_four(written):
    assert sorted(p.name for p in written.page.parent.iterdir()) == ["demo.csv", "demo.html", "demo.md", "demo.png"]


def test_csv_has_every_digit(written):
    rows = list(csv.DictReader(io.StringIO(written.rows.read_text(encoding="utf-8"))))
    assert len(rows) == len(ROWS)
    for text, row in zip(rows, ROWS, strict=True):
        assert float(text["utility"]) == row.utility
        assert (text["forwards"] == "") == (row.forwards is None)
    assert rows[4]["tokens_per_forward"] == "1.0"
    third = replace(ROWS[0], utility=1 / 3)
    assert float(table_csv([third]).splitlines()[1].split(",")[4]) == 1 / 3


def test_markdown():
    lines = [line for line in markdown(COMPARISON).splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 6
    assert len({line.count("|") for line in lines}) == 1
    assert lines[2].startswith(f"| *{MODE}* | 1.000 |")
    assert lines[3] == "| slow & sure ★ | 0.800 |  | 4.00 | 1.00 | 0.900 | 0.700 | exactly |"
    assert "| dice | 0.500 | 0.021 |" in lines[6]


def test_page_is_self_contained(written):
    text = written.page.read_text(encoding="utf-8")
    assert not re.findall(r"(?:src|href)=[\"'](?!data:)", text)
    assert "http" not in text.replace("http-equiv", "")
    assert "url(" not in text
    (image,) = re.findall(r'src="data:image/png;base64,([^"]+)"', text)
    assert base64.b64decode(image) == written.figure.read_bytes()


def test_page_says_what_it_shows(written):
    text = written.page.read_text(encoding="utf-8")
    assert "slow &amp; sure" in text
    assert "slow & sure" not in text
    for words in ("How to read this", "± 0.021", "4 seeds", "block_length=null", "&quot;prompt_length&quot;: 1"):
        assert words in text
    assert text.index(MODE) < text.index("slow &amp; sure ★") < text.index("quick ★")


def test_figure_is_large_enough(written):
    head = written.figure.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    assert width >= 1200
    assert height >= 600


def test_same_rows_same_bytes(written, tmp_path):
    again = write(COMPARISON, tmp_path)
    for before, after in zip(written.paths, again.paths, strict=True):
        assert before.read_bytes() == after.read_bytes()


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(ConfigError, match=r"'.*taken' is a file; allowed: a folder"):
        write(COMPARISON, tmp_path / "taken")
    with pytest.raises(ConfigError, match="cannot be made"):
        files.folder(tmp_path / "taken" / "deeper")
    assert (tmp_path / "taken").read_text() == "mine"
