"""Tables as LaTeX, to be put into a paper: `\\input` one where a tabular may stand. They need the package booktabs."""

import re
from collections.abc import Sequence

from unmask.report.sheet import AnySheet

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}
_SIGNS = {
    "†": r"\dag{}",
    "‡": r"\ddag{}",
    "–": "--",
    "−": "$-$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "⇄": r"$\rightleftharpoons$",
    "∞": r"$\infty$",
    "Δ": r"$\Delta$",
    "τ": r"$\tau$",
}
"""Characters that fonts of LaTeX do not have under their own names."""
_ESCAPES = str.maketrans(_SPECIAL | _SIGNS)
_MINUS = re.compile(r"(?<![\w.-])-(?=\d)")


def escape(text: str) -> str:
    """Text that LaTeX sets as it is read; a hyphen before a number becomes a minus."""
    return _MINUS.sub("$-$", " ".join(text.split()).translate(_ESCAPES))


def table_latex(sheet: AnySheet) -> str:
    """The cells that people see, as a `tabular` with rules of booktabs; title and note are comments above it."""
    heads = [column.head or "" for column in sheet.heads]
    sides = "".join("l" if column.left else "r" for column in sheet.heads)
    rows = [_row([escape(cell) for cell in cells]) for cells in sheet.shown]
    if not rows:
        rows = [_row([rf"\multicolumn{{{len(heads)}}}{{l}}{{{escape(sheet.empty)}}}"])]
    return "\n".join(
        [
            *_comment(sheet.title),
            *_comment(sheet.note),
            rf"\begin{{tabular}}{{{sides}}}",
            r"\toprule",
            _row([escape(head) for head in heads]),
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def _row(cells: Sequence[str]) -> str:
    line = " & ".join(cells)
    # After the end of the row before, a bracket would be its space and a star its kind.
    return f"{'{}' if line.startswith(('[', '*')) else ''}{line} \\\\"


def _comment(text: str) -> list[str]:
    return [f"% {line}" for line in text.splitlines()]
