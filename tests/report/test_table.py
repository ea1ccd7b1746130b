"""Tables: what files have, what people see, in every format."""

import csv
import io
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest

from unmask.report.table import Column, Table, escape_latex, parse_columns, to_plain

NAN = float("nan")
COLUMNS = """
name=fruit | eaten=eaten:count | taste=Δ_taste:number± | <marks=note | ripe:flag | weight:number |
why<reason=why | share=share:share_point±"""


def fruit(**more):
    rows = [
        {"name": "apple & pear", "eaten": 12345.0, "taste": 0.5, "taste_low": 0.25, "taste_high": 0.75, "ripe": 1.0},
        {"name": "50 %_|off|\nplums", "eaten": 3.0, "taste": NAN, "ripe": 0.0},
        {"name": "fig", "eaten": NAN, "taste": -0.125, "taste_low": NAN, "taste_high": NAN, "ripe": NAN},
    ]
    more_columns = {"taste_undefined": [0.0, 7.0, 0.0], "marks": ["", "†", ""], "reason": ["", "late", ""]}
    more_columns |= {"weight": [1 / 3, -np.inf, NAN], "share": [0.25, NAN, 1.0], "share_low": 0.1, "share_high": 0.5}
    frame = pd.DataFrame(rows).assign(share_undefined=0.0, **more_columns)
    return Table("fruit", "Fruit", "What <grows>.", COLUMNS, frame, **more)


class TestColumns:
    def test_key_source_head_and_format(self):
        assert parse_columns("a | b<c=The head: of it:share± | <d=seen | e:±") == (
            Column("a", "a", None, "text", False),
            Column("b", "c", "The head: of it", "share", True),
            Column("", "d", "seen", "text", False),
            Column("e", "e", None, "number", True),
        )

    def test_two_columns_of_one_name_are_refused(self):
        with pytest.raises(ValueError, match="more than one column a"):
            parse_columns("a | b | a<c=head")


def test_csv_has_every_digit_and_empty_cells_for_what_is_missing():
    heads, *rows = csv.reader(io.StringIO(fruit().to_csv()))
    ends = ["taste", "taste_low", "taste_high", "taste_undefined"]
    shares = ["share", "share_low", "share_high", "share_undefined"]
    assert heads == ["name", "eaten", *ends, "ripe", "weight", "why", *shares]
    assert rows[0][:7] == ["apple & pear", "12345", "0.5", "0.25", "0.75", "0", "true"]
    assert float(rows[0][7]) == 1 / 3
    assert rows[1] == ["50 %_|off|\nplums", "3", "", "", "", "7", "false", "-inf", "late", "", "0.1", "0.5", "0"]
    assert rows[2][:7] == ["fig", "", "-0.125", "", "", "0", ""]


def test_people_see_rounded_cells_with_intervals():
    assert [column.head for column in fruit().visible_columns] == ["fruit", "eaten", "Δ_taste", "note", "why", "share"]
    assert fruit().cells == [
        ["apple & pear", "12,345", "0.5000 [0.2500, 0.7500]", "", "", "25.0 %"],
        ["50 %_|off|\nplums", "3", "–", "†", "late", "–"],
        ["fig", "–", "-0.1250", "", "", "100.0 %"],
    ]


def test_records_are_json():
    apple, plums, _ = fruit().to_records()
    assert apple["taste"] == {"value": 0.5, "low": 0.25, "high": 0.75, "undefined": 0}
    assert (apple["eaten"], apple["ripe"], apple["why"]) == (12345, True, "")
    assert plums["taste"] == {"value": None, "low": None, "high": None, "undefined": 7}
    assert plums["weight"] is None
    assert to_plain({"a": (1, NAN), "b": [float("inf")]}) == {"a": [1, None], "b": [None]}


def test_a_number_that_was_never_asked_for_has_no_interval():
    frame = pd.DataFrame({"name": ["a"]})
    table = Table("t", "", "", "name | x:number±", frame)
    assert table.to_csv() == "name,x,x_low,x_high,x_undefined\na,,,,\n"
    assert table.to_records() == [{"name": "a", "x": None}]


def test_markdown_keeps_a_cell_in_its_cell():
    head, sides, _, second, _ = fruit().to_markdown().splitlines()
    assert head == "| fruit | eaten | Δ_taste | note | why | share |"
    assert sides == "| --- | ---: | ---: | --- | --- | ---: |"
    assert second == "| 50 %_\\|off\\| plums | 3 | – | † | late | – |"


def test_without_rows_there_are_heads():
    empty = Table("fruit", "", "", COLUMNS, fruit().frame[:0], "Nothing grows.")
    assert empty.to_csv().startswith("name,eaten,taste,")
    assert empty.cells == []
    assert r"\multicolumn{6}{l}{Nothing grows.}" in empty.to_latex()


class TestLatex:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("a_b & 5 % #1 {x} $", r"a\_b \& 5 \% \#1 \{x\} \$"),
            ("-0.5 [-1, 2]", r"$-$0.5 [$-$1, 2]"),
            ("e4-axes, 2024-01-02", "e4-axes, 2024-01-02"),
            ("Δ ≤ † ‡ – × ∞", r"$\Delta$ ≤ \dag{} \ddag{} -- $\times$ $\infty$"),
            (
                "<a|b> \\ ~ ^",
                r"\textless{}a\textbar{}b\textgreater{} \textbackslash{} \textasciitilde{} \textasciicircum{}",
            ),
        ],
    )
    def test_text_is_set_as_it_is_read(self, text, said):
        assert escape_latex(text) == said

    def test_a_row_may_begin_with_a_bracket_or_star(self):
        frame = pd.DataFrame({"a": ["[x]", "*", "y"]})
        rows = Table("t", "", "", "a=a", frame).to_latex().splitlines()
        assert rows[4:7] == [r"{}[x] \\", r"{}* \\", r"y \\"]

    @pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs LaTeX")
    def test_it_compiles(self, tmp_path):
        head = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n"
        (tmp_path / "t.tex").write_text(f"{head}{fruit().to_latex()}\\end{{document}}\n")
        command = ["pdflatex", "-interaction=batchmode", "t.tex"]
        assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0
