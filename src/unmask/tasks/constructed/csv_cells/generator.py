"""CSV Missing Cells: a small table with one cell hidden, and the rest of the table to find it by.

Each kind of table has a reason why the hidden cell can only be one value: arithmetic across a row or down a column, a
step, a lookup of another row, a code made from other cells. The rule is spelled out unless the table shows it by
itself.
"""

from collections.abc import Callable
from dataclasses import replace

from unmask.tasks import scorers
from unmask.tasks.constructed.common import check_level
from unmask.tasks.constructed.csv_cells import numbers, series, texts
from unmask.tasks.constructed.csv_cells.sheet import CsvSheet
from unmask.tasks.draw import Draw, Json
from unmask.tasks.splits import constructed
from unmask.tasks.task import Example, Scorer
from unmask.tasks.words import COLOURS, FIRST, MATERIALS, SITES, closing

HOLE = "???"
LIMIT = 20
"""Characters of the answer."""
DIGITS = 8
"""Digits of the answer: a tokeniser may spend one token on each."""

KINDS: dict[str, tuple[int, Callable[[Draw, int], CsvSheet]]] = {
    "product": (1, numbers.product),
    "total": (1, numbers.total),
    "difference": (1, numbers.difference),
    "running": (1, numbers.running),
    "step": (1, series.step),
    "lookup": (1, texts.lookup),
    "pairwise": (3, texts.pairwise),
    "convert": (1, numbers.convert),
    "coded": (1, texts.coded),
    "spelling": (1, texts.spelling),
    "rank": (1, numbers.rank),
    "extreme": (1, numbers.extreme),
    "duration": (1, series.duration),
    "column-total": (1, numbers.column_total),
    "points": (2, numbers.points),
    "discount": (2, numbers.discount),
    "graded": (2, texts.graded),
    "mirror": (1, texts.mirror),
    "turns": (1, series.turns),
    "duel": (2, texts.duel),
    "legs": (1, series.legs),
    "stay": (2, series.stay),
}
"""Each kind with the first level it appears at."""
WORDY = ("lookup", "coded", "spelling", "legs", "pairwise")

_FRAMES = (
    "{table}\n{rule}\nWhich value belongs where the question marks are?",
    "One cell of this table is hidden by ???.\n{table}\n{rule}\nFind it.",
    "Fill in the missing cell ???.\n{table}\n{rule}",
    "CSV with one gap:\n{table}\n{rule}\nWhich cell is ???",
    "A cell was lost when the file was saved.\n{table}\n{rule}\nRestore the ??? cell.",
    "{rule}\n{table}\nReplace ??? by the right value.",
    "{name} spilled ink on one cell.\n{table}\n{rule}\nWhat did the cell ??? say?",
    "Table from the {site}:\n{table}\n{rule}\nComplete it: ??? =",
    "Read the table and work out the cell marked ???.\n{table}\n{rule}",
    "The cell ??? can be found from the others.\n{rule}\n{table}",
    "{table}\n{rule}\nCompute or look up the unknown cell.",
    "data.csv\n{table}\n{rule}\nOnly one cell is unknown (???).",
    "Repair this file.\n{table}\n{rule}",
    "{name} exported this table with one cell missing:\n{table}\n{rule}\nSupply it.",
    "Unknown: ???\n{table}\n{rule}",
    "Check the rows, then give the value of ???.\n{rule}\n{table}",
)

_RULES = (
    "Rule: {rule}.",
    "Note: {rule}.",
    "It holds that {rule}.",
    "In this table, {rule}.",
    "({rule})",
    "Here {rule}.",
)

_WHAT = (
    "only the missing value",
    "just the hidden cell",
    "the missing cell",
    "the value of ???",
    "the value alone (not its row)",
)

_LENGTHS = (200, 230, 330, 390)


def _padded(draw: Draw, sheet: CsvSheet) -> CsvSheet:
    """The sheet with a column more, of words that have nothing to do with the hidden cell."""
    header, words = draw.choice((("shade", COLOURS), ("made_of", MATERIALS), ("clerk", FIRST), ("store", SITES)))
    if header in sheet.header:
        return sheet
    at = draw.between(0, len(sheet.header))
    cells = [draw.choice(words) for _ in sheet.rows]
    rows = tuple((*row[:at], cell, *row[at:]) for row, cell in zip(sheet.rows, cells, strict=True))
    row, column = sheet.hole
    return replace(
        sheet,
        header=(*sheet.header[:at], header, *sheet.header[at:]),
        rows=rows,
        hole=(row, column + (at <= column)),
    )


def _written(sheet: CsvSheet) -> str:
    rows = [list(row) for row in sheet.rows]
    row, column = sheet.hole
    rows[row][column] = HOLE
    return "\n".join(",".join(cells) for cells in [list(sheet.header), *rows])


def _fits(sheet: CsvSheet, level: int) -> bool:
    answer = sheet.rows[sheet.hole[0]][sheet.hole[1]]
    digits = sum(char.isdigit() for char in answer)
    return len(answer) <= LIMIT and digits <= DIGITS and len(_written(sheet)) <= _LENGTHS[level - 1] and answer != ""


def generate(draw: Draw, level: int) -> Example:
    """One example of the given level."""
    check_level(level)
    # Tables whose answer is a word come up twice as often: numbers repeat sooner.
    kind = draw.choice(
        [name for name, (first, _) in KINDS.items() if first <= level for _ in range(1 + (name in WORDY))]
    )
    sheet = KINDS[kind][1](draw, level)
    while not _fits(sheet, level):
        sheet = KINDS[kind][1](draw, level)
    if level > 2 and kind != "column-total" and draw.chance(0.35):
        sheet = _padded(draw, sheet)
    at = draw.below(len(_FRAMES))
    said = not (sheet.plain and draw.chance((0.2, 0.35, 0.5, 0.5)[level - 1]))
    rule = draw.choice(_RULES).format(rule=sheet.rule) if said else ""
    task = _FRAMES[at].format(table=_written(sheet), rule=rule, name=draw.choice(FIRST), site=draw.choice(SITES))
    prompt = f"{task}\n{closing(draw, draw.choice(_WHAT))}".replace("\n\n", "\n").strip()
    answer = sheet.rows[sheet.hole[0]][sheet.hole[1]]
    constraints: dict[str, Json] = {"kind": kind, "frame": str(at), "rule": sheet.rule, "stated": said}
    return Example(prompt, answer, (answer,), constraints, level)


SCORER = Scorer("binary", scorers.score_cell)
TASK = constructed(
    "csv-missing-cells", "CSV Missing Cells", SCORER, generate, max_new_tokens=16, output="one cell", version="1"
)
