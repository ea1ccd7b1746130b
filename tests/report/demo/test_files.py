"""The report, from rows made by hand: nothing here runs a model."""

import base64
import csv
import io
import os
import re
import struct
from dataclasses import replace
from math import sqrt
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from unmask.errors import ConfigError
from unmask.lab.demo import AT_ONCE, MODE, DemoComparison, DemoRow, Reveal
from unmask.report import files
from unmask.report.demo import figure
from unmask.report.demo.files import markdown, table_csv, write
from unmask.report.demo.summary import summarise


def made(label, method, utilities, forwards, stderr=0.0):
    """One row for each of two problems."""
    return [
        DemoRow(f"{family}/0", family, label, method, utility, stderr, 4 if stderr else 1, not stderr, forwards, 4)
        for family, utility in zip(("dense", "far"), utilities, strict=True)
    ]


ROWS = [
    *made(MODE, "", (1.0, 1.0), None),
    *made(AT_ONCE, "", (0.2, 0.4), 1.0),
    *made("slow & sure", "llada", (0.9, 0.7), 4.0),
    *made("slower", "dream", (0.9, 0.7), 5.0),
    *made("quick", "fixed", (0.8, 0.4), 2.0),
    *made("dice", "revised", (0.5, 0.5), 4.0, stderr=0.03),
]
REVEALS = (
    Reveal("slow & sure", (0, 1, 2, 3, 4), (0, 0, 0, 0, 0), "abaab", 0.9),
    Reveal("slower", (0, 4, 3, 2, 1), (0, 0, 0, 0, 0), "abaab", 0.9),
    Reveal("quick", (0, 1, 1, 2, 2), (0, 0, 0, 0, 0), "ababb", 0.8),
    Reveal("dice", (0, 4, 2, 3, 4), (0, 1, 0, 0, 2), "aaaab", 0.5),
)
CONFIG = {
    "problems": [
        {
            "name": f"{family}/0",
            "family": family,
            "seed": 0,
            "n": 5,
            "vocab": 2,
            "dependence": 2.0,
            "prompt_length": 1,
        }
        for family in ("dense", "far")
    ],
    "contenders": [
        {"label": reveal.label, "steps": 4, "policy": {"name": "llada", "block_length": None}} for reveal in REVEALS
    ],
    "seeds": 4,
    "temperature": 0.0,
    "versions": {"unmask": "0.0.0", "python": "3.11"},
}
COMPARISON = DemoComparison(tuple(ROWS), "dense/0, prompt 'a'", REVEALS, CONFIG)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write(COMPARISON, tmp_path_factory.mktemp("report") / "new" / "folder")


class TestSummary:
    def test_order(self):
        labels = [s.label for s in summarise(ROWS)]
        assert labels == [MODE, "slow & sure", "slower", "quick", "dice", AT_ONCE]

    def test_means(self):
        by_label = {s.label: s for s in summarise(ROWS)}
        sure = by_label["slow & sure"]
        assert sure.utility == pytest.approx(0.8)
        assert sure.by_family == {"dense": 0.9, "far": 0.7}
        assert (sure.forwards, sure.tokens_per_forward, sure.computed) == (4.0, 1.0, "exactly")
        assert by_label[MODE].forwards is None
        assert by_label[MODE].show_speed == ""

    def test_standard_error_of_a_mean_of_independent_means(self):
        dice = next(s for s in summarise(ROWS) if s.label == "dice")
        assert dice.stderr == pytest.approx(sqrt(2 * 0.03**2) / 2)
        assert dice.computed == "4 seeds"

    def test_frontier(self):
        assert {s.label for s in summarise(ROWS) if s.frontier} == {AT_ONCE, "quick", "slow & sure"}

    def test_equals_share_the_frontier(self):
        twins = made("one", "llada", (0.5, 0.5), 2.0) + made("two", "dream", (0.5, 0.5 + 1e-12), 2.0)
        assert all(s.frontier for s in summarise(twins))


class TestFiles:
    def test_all_four(self, written):
        assert sorted(p.name for p in written.page.parent.iterdir()) == ["demo.csv", "demo.html", "demo.md", "demo.png"]

    def test_csv_has_every_digit(self, written):
        rows = list(csv.DictReader(io.StringIO(written.rows.read_text(encoding="utf-8"))))
        assert len(rows) == len(ROWS)
        for text, row in zip(rows, ROWS, strict=True):
            assert float(text["utility"]) == row.utility
            assert (text["forwards"] == "") == (row.forwards is None)
        assert rows[4]["tokens_per_forward"] == "1.0"
        third = replace(ROWS[0], utility=1 / 3)
        assert float(table_csv([third]).splitlines()[1].split(",")[4]) == 1 / 3

    def test_markdown(self):
        lines = [line for line in markdown(COMPARISON).splitlines() if line.startswith("|")]
        assert len(lines) == 2 + 6
        assert len({line.count("|") for line in lines}) == 1
        assert lines[2].startswith(f"| *{MODE}* | 1.000 |")
        assert lines[3] == "| slow & sure ★ | 0.800 |  | 4.00 | 1.00 | 0.900 | 0.700 | exactly |"
        assert "| dice | 0.500 | 0.021 |" in lines[6]

    def test_page_is_self_contained(self, written):
        text = written.page.read_text(encoding="utf-8")
        assert not re.findall(r"(?:src|href)=[\"'](?!data:)", text)
        assert "http" not in text.replace("http-equiv", "")
        assert "url(" not in text
        (image,) = re.findall(r'src="data:image/png;base64,([^"]+)"', text)
        assert base64.b64decode(image) == written.figure.read_bytes()

    def test_page_says_what_it_shows(self, written):
        text = written.page.read_text(encoding="utf-8")
        assert "slow &amp; sure" in text
        assert "slow & sure" not in text
        for words in ("How to read this", "± 0.021", "4 seeds", "block_length=null", "&quot;prompt_length&quot;: 1"):
            assert words in text
        assert text.index(MODE) < text.index("slow &amp; sure ★") < text.index("quick ★")

    def test_figure_is_large_enough(self, written):
        head = written.figure.read_bytes()[:24]
        assert head[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", head[16:24])
        assert width >= 1200
        assert height >= 600

    def test_same_rows_same_bytes(self, written, tmp_path):
        again = write(COMPARISON, tmp_path)
        for before, after in zip(written.paths, again.paths, strict=True):
            assert before.read_bytes() == after.read_bytes()


class TestLabels:
    def test_none_covers_another_or_a_point(self):
        crowd = [
            row for k in range(14) for row in made(f"policy number {k}", "llada", (0.5 + k / 500, 0.5), 4.0 + k / 50)
        ]
        summaries = summarise([*ROWS, *crowd])
        fig = Figure((11.6, 6.2), dpi=100)
        ax = fig.subplots()
        figure._trade_off(ax, summaries)
        fig.draw_without_rendering()
        figure._place_labels(ax, summaries)
        boxes = [t.get_window_extent() for t in ax.texts if t.get_text()]
        assert len(boxes) == len(summaries)
        for at, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[:at])
        frame = ax.get_window_extent()
        assert all(frame.x0 <= b.x0 and b.x1 <= frame.x1 and frame.y0 <= b.y0 and b.y1 <= frame.y1 for b in boxes)


class TestWriting:
    def test_a_file_is_no_folder(self, tmp_path):
        (tmp_path / "taken").write_text("mine")
        with pytest.raises(ConfigError, match=r"'.*taken' is a file; allowed: a folder"):
            write(COMPARISON, tmp_path / "taken")
        with pytest.raises(ConfigError, match="cannot be made"):
            files.folder(tmp_path / "taken" / "deeper")
        assert (tmp_path / "taken").read_text() == "mine"

    def test_whole_or_not_at_all(self, tmp_path, monkeypatch):
        target = files.write(tmp_path / "a.txt", b"old")

        def fail(self, content):
            os.close(os.open(self, os.O_CREAT))
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "write_bytes", fail)
        with pytest.raises(ConfigError, match="No space"):
            files.write(target, b"new")
        assert target.read_bytes() == b"old"
        assert list(tmp_path.iterdir()) == [target]
