"""Tables as LaTeX."""

import re

import pytest

from tests.helpers import made_reports
from tests.helpers.cases import each_case
from unmask.report.latex import escape, table_latex

_COMMAND = re.compile(r"\\(?:[A-Za-z]+(?:\{\})?|[{}$&#%_\\])")


def test_a_table():
    assert table_latex(made_reports.fruit()).splitlines() == [
        "% What was eaten",
        "% Of <all> kinds.",
        r"\begin{tabular}{lrrr}",
        r"\toprule",
        r"fruit & eaten & $\Delta$\_taste & note \\",
        r"\midrule",
        r"apple \& pear & 12,345 & 0.5000 [0.2500, 0.7500] &  \\",
        r"50 \%\_\textbar{}off\textbar{} plums & 3 & -- & \dag{} \\",
        r"-- & 0 & $-$0.1250 [$-$0.5000, nan] &  \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


@each_case(
    ("text", "latex"),
    [
        (r"a\b", r"a\textbackslash{}b"),
        ("{x}", r"\{x\}"),
        ("$5 & 3 # 100 %", r"\$5 \& 3 \# 100 \%"),
        ("x^2 ~ y_1", r"x\textasciicircum{}2 \textasciitilde{} y\_1"),
        ("a < b > c | d", r"a \textless{} b \textgreater{} c \textbar{} d"),
        ("Δ × τ ± ∞ − a ⇄ b", r"$\Delta$ $\times$ $\tau$ $\pm$ $\infty$ $-$ a $\rightleftharpoons$ b"),
        ("0–25 †‡", r"0--25 \dag{}\ddag{}"),
        ("-0.1 [-0.2, 0.3]", "$-$0.1 [$-$0.2, 0.3]"),
        ("end-to-end count-2 1e-05", "end-to-end count-2 1e-05"),
        ("two\nlines", "two lines"),
    ],
)
def test_escaping(text, latex):
    assert escape(text) == latex


def test_without_rows():
    lines = table_latex(made_reports.fruit((), empty="None: 0 % were eaten.")).splitlines()
    assert lines[-3] == r"\multicolumn{4}{l}{None: 0 \% were eaten.} \\"


@pytest.mark.parametrize("name", ["[1] a bracket", "* a star"])
def test_a_first_cell_is_no_argument_of_the_row_before(name):
    """`\\\\` would take a bracket for a length and a star for its starred form."""
    text = table_latex(made_reports.fruit([made_reports.FRUIT[0], made_reports.Fruit(name, 1, None)]))
    assert f"{{}}{name}" in text


def test_every_table_of_a_study_is_well_formed(whole_report):
    """As many cells as columns, and no character that LaTeX would take for a command of its own."""
    for sheet in whole_report.sheets:
        lines = [line for line in table_latex(sheet).splitlines() if not line.startswith("%")]
        wanted = re.fullmatch(r"\\begin\{tabular\}\{([lr]+)\}", lines[0]).group(1)
        assert (lines[1], lines[3], lines[-2]) == (r"\toprule", r"\midrule", r"\bottomrule")
        assert lines[-1] == r"\end{tabular}"
        for line in (lines[2], *lines[4:-2]):
            assert line.endswith(r" \\")
            cells = re.split(r"(?<!\\)&", line)
            assert len(cells) == len(wanted) or "multicolumn" in line
            plain = _COMMAND.sub("", re.sub(r"\$[^$]+\$", "", line))
            assert "multicolumn" in line or not set(plain) & set("\\{}$#%_^~<>|"), line
