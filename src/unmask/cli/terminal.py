"""What commands write on a terminal: text and JSON on stdout, canvases as they fill in, and tables.

A terminal may hold fewer characters than a result has (`LANG=C`, `PYTHONIOENCODING=ascii`), or be gone. Neither may
end a command that has done its work; `prepare_streams` sees to that for everything that is printed.
"""

import codecs
import os
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby, takewhile
from math import isnan
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, NoReturn
from unicodedata import category

import rich.console
from rich.cells import cell_len, set_cell_size
from rich.console import Group
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:  # `unmask --help` must not wait for torch and pandas.
    from torch import Tensor

    from unmask.core import State, Step, Trajectory
    from unmask.models import Codec
    from unmask.report.study import Report

# Standard streams

PLAIN_SIGNS = {
    **{"↑": "^", "↓": "v", "…": ".", "↵": "/", "░": "_", "·": ".", "★": "*", "†": "+", "‡": "#", "Δ": "D", "τ": "t"},
    **{"→": ">", "│": "|", "└": "+", "×": "x", "–": "-", "—": "-", "−": "-", "─": "-", "±": "+-", "∞": "inf"},
}
"""ASCII in place of this library's signs, of the same width where possible; other characters become their number."""
ASCII_SIGNS, JSON_ESCAPES = "unmask-signs", "unmask-json"
"""Names of the two error handlers for characters that a stream cannot encode."""


def _replace_with_signs(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(PLAIN_SIGNS.get(c) or c.encode("ascii", "backslashreplace").decode() for c in text), error.end


def _replace_with_json_escapes(error: UnicodeError) -> tuple[str, int]:
    # JSON spells a character beyond 16 bits as two surrogates. Characters beyond ASCII occur in its strings only.
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)), error.end


codecs.register_error(ASCII_SIGNS, _replace_with_signs)
codecs.register_error(JSON_ESCAPES, _replace_with_json_escapes)


def prepare_streams() -> None:
    """Let stdout and stderr replace characters that they cannot encode, and open them if they are closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=ASCII_SIGNS)


def silence_stream(stream: IO[str]) -> None:
    """Send the rest of a closed stream to nowhere. Otherwise the interpreter flushes it at exit and complains."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class PipeClosed(Exception):
    """The program that reads our output has stopped, as `head` does."""


class Console(rich.console.Console):
    """rich's console, which raises `PipeClosed` instead of ending the process."""

    def on_broken_pipe(self) -> NoReturn:
        raise PipeClosed


def print_text(text: str) -> None:
    """Print plain text to stdout, unwrapped."""
    try:
        print(text, flush=True)
    except BrokenPipeError as error:
        raise PipeClosed from error


def print_json(text: str) -> None:
    """Print a JSON text to stdout; characters that stdout cannot hold become JSON's own escapes."""
    encoding = sys.stdout.encoding or "utf-8"
    print_text(text.encode(encoding, JSON_ESCAPES).decode(encoding))


def print_note(text: str) -> None:
    """Print a line to stderr. A closed stderr is no reason to stop working."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        silence_stream(sys.stderr)


def wide_console() -> Console:
    """Return the console of stdout for tables. A file has no width; rich would cut tables at 80 columns there."""
    return Console() if sys.stdout.isatty() else Console(width=160)


# Canvases as they fill in

# Colours of Okabe and Ito's palette, which colour-blind people can tell apart.
CONFIDENCE_STYLES = ((0.9, "black on #56b4e9"), (0.6, "black on #2fc99b"), (0.3, "black on #f0e442"))
LOW_CONFIDENCE_STYLE, UNKNOWN_STYLE = "black on #e8772e", "black on white"
REMASKED_STYLE = "black on #cc79a7"

MASK_SIGN, END_SIGN, CUT_SIGN, UNPRINTABLE_SIGN = "░", "·", "…", "\N{REPLACEMENT CHARACTER}"
"""A masked position, a token that ends or pads a text, the mark of a text that was cut, an invisible character."""
LINE_SIGNS = {"\n": "↵", "\r": "", "\t": "→"}
"""Signs in place of characters that would tear a canvas apart."""
BIDI_CONTROLS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that turn the direction of what follows, so that cells would change places."""
CELL_WIDTH = 7
"""Columns of a position where tokens are words."""
MARGIN_WIDTH = 5
"""Columns for the number of a row."""


class DecodeScreen:
    """Canvases as they fill in: redrawn in place on a terminal, one line per row and step elsewhere.

    Pass it to `Model.generate` as `on_step`, inside a `with` block. Every position has a cell of fixed width, so that
    nothing moves while the canvas fills. For a search it shows each row's best path so far and the size of its tree.

    `prompts` are those of the rows as the user typed them. They stand above the answers, in place of the tokens that a
    chat template made of them; without them the given tokens have cells too. `fillers` are tokens that end or pad a
    text.
    """

    def __init__(
        self,
        codec: "Codec",
        console: rich.console.Console,
        delay: float = 0.0,
        *,
        prompts: Sequence[str] = (),
        fillers: Collection[int] = (),
    ):
        self.codec, self.console, self.delay = codec, console, delay
        self.prompts, self.fillers = [to_one_line(prompt) for prompt in prompts], frozenset(fillers)
        # Codecs of single letters spell the mask as one letter, too.
        self.cell_width = 1 if len(codec.mask) == 1 else CELL_WIDTH
        self._lines: dict[int, Text] = {}
        self._forwards: dict[int, int] = {}
        self._tree: dict[int, int] = {}
        """Canvases in the tree of each row's search; empty for other methods."""
        self._step = 0
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> "DecodeScreen":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, traj: "Trajectory") -> None:
        """Draw the rows that took this step; rows that finished earlier keep their last line."""
        step = traj.last
        if step is None:
            return
        if not self._lines:
            self._draw_start(step)
        self._step += 1
        forwards = traj.forwards_B.tolist()
        for at, row in enumerate(traj.rows_B.tolist()):
            self._forwards[row] = forwards[at]
            if "tree" in step.action.notes:
                self._tree[row] = int(step.action.notes["tree"][at])
            self._lines[row] = self._draw_row(traj.state, at, row, step)
            if self._live is None:
                self.console.print(Text(self._plain_line(step, at, row)), soft_wrap=True)
        self._refresh()

    def _draw_start(self, step: "Step") -> None:
        for at, row in enumerate(step.rows_B.tolist()):
            self._lines[row] = self._draw_row(step.state, at, row)
            self._forwards[row] = 0
            if self._live is None and row < len(self.prompts):
                self.console.print(Text(f"prompt    row {row:>2}  {self.prompts[row]}"), soft_wrap=True)
        self._refresh()

    def _refresh(self) -> None:
        if self._live is not None:
            legend = self._legend().wrap(self.console, self.console.width)
            lines_per_row = (self.console.height - len(legend)) // max(1, len(self._lines))
            self._live.update(Group(*legend, *self._numbered_rows(lines_per_row)), refresh=True)
            time.sleep(self.delay)

    def _legend(self) -> Text:
        tree = f"  tree {sum(self._tree.values())}" if self._tree else ""
        legend = Text().append(f"step {self._step}  forwards {sum(self._forwards.values())}{tree}", "bold")
        legend.append("   new, by confidence: ", "dim")
        for least, style in CONFIDENCE_STYLES:
            legend.append(f" >{least} ", style)
        legend.append(" less ", LOW_CONFIDENCE_STYLE).append("  ").append(" re-masked ", REMASKED_STYLE)
        return legend.append(f"   {MASK_SIGN} masked  {END_SIGN} end of text" if self.fillers else "", "dim")

    def _numbered_rows(self, most: int) -> list[Text]:
        """Return every row with its number in at most `most` lines: its prompt, and the last of its cells."""
        numbered: list[Text] = []
        for row, line in sorted(self._lines.items()):
            has_prompt = row < len(self.prompts) and most > 1
            lines = self._cut_line(line)
            room = max(1, most - has_prompt)
            is_cut = len(lines) > room
            lines = lines[-room:] or [Text()]
            if has_prompt:
                prompt = Text(self.prompts[row], "dim")
                prompt.truncate(max(1, self.console.width - MARGIN_WIDTH), overflow="ellipsis")
                lines = [prompt, *lines]
            margins = [f"{row:>3} {CUT_SIGN if is_cut else ' '}", *[" " * MARGIN_WIDTH] * (len(lines) - 1)]
            numbered += [Text.assemble((margin, "dim"), part) for margin, part in zip(margins, lines, strict=True)]
        return numbered

    def _cut_line(self, line: Text) -> list[Text]:
        """Cut a row into lines of as many whole cells as the console is wide."""
        columns = max(1, (self.console.width - MARGIN_WIDTH) // self.cell_width) * self.cell_width
        cuts, width = [], 0
        for at, letter in enumerate(line.plain):
            size = cell_len(letter)  # East Asian letters take two columns.
            if width + size > columns:
                cuts.append(at)
                width = 0
            width += size
        return list(line.divide(cuts)) if cuts else [line]

    def _draw_row(self, state: "State", at: int, row: int, step: "Step | None" = None) -> Text:
        """Draw the cells of a row; without a step nothing on it is new."""
        line = Text()
        start = _first_blank(state, at) if row < len(self.prompts) else 0
        for position in range(start, int(state.length_B[at])):
            token = int(state.tokens_BL[at, position])
            quiet = token == state.mask_id or token in self.fillers or state.fixed_BL[at, position]
            style = "dim" if quiet else ""
            if step is not None and step.revealed_BL[at, position]:
                style = _confidence_style(float(step.confidence_BL[at, position]))
            elif step is not None and step.remasked_BL[at, position]:
                style = REMASKED_STYLE
            line.append(self._spell_cell(token, state.mask_id), style)
        return line

    def _spell_cell(self, token: int, mask_id: int) -> str:
        """Spell a token in a cell, cut or padded to the width of all cells."""
        if token == mask_id:
            text = self.codec.mask if len(self.codec.mask) == 1 else MASK_SIGN
        else:
            text = END_SIGN if token in self.fillers else to_one_line(self.codec.decode([token]))
        # A space ends each cell where there is room for one, so that neighbours can be told apart.
        most = max(1, self.cell_width - 1)
        if cell_len(text) > most:
            text = set_cell_size(text, most - 1).rstrip() + CUT_SIGN if most > 1 else CUT_SIGN
        return set_cell_size(text, self.cell_width)

    def _plain_line(self, step: "Step", at: int, row: int) -> str:
        revealed, remasked = int(step.revealed_BL[at].sum()), int(step.remasked_BL[at].sum())
        more = f", {remasked} re-masked" if remasked else ""
        tree = f", tree {self._tree[row]}" if row in self._tree else ""
        cells = self._lines[row].plain
        return f"step {self._step:>3}  row {row:>2}  {cells}  +{revealed}{more}  (forwards {self._forwards[row]}{tree})"


def to_one_line(text: str) -> str:
    """Spell line breaks and tabs as signs, and replace characters that would command a terminal."""
    return "".join(
        LINE_SIGNS.get(c, UNPRINTABLE_SIGN if category(c) in ("Cc", "Cs") or c in BIDI_CONTROLS else c) for c in text
    )


def _first_blank(state: "State", at: int) -> int:
    """Return the number of given tokens before the first position to fill."""
    length = int(state.length_B[at])
    blanks: Tensor = (~state.fixed_BL[at, :length]).nonzero()
    return int(blanks[0]) if len(blanks) else length


def _confidence_style(confidence: float) -> str:
    if isnan(confidence):
        return UNKNOWN_STYLE
    return next((style for least, style in CONFIDENCE_STYLES if confidence > least), LOW_CONFIDENCE_STYLE)


def split_filled_text(codec: "Codec", tokens: Sequence[int], is_blank: Sequence[bool]) -> list[tuple[str, bool]]:
    """Cut a text where given and filled tokens meet; the parts together are `codec.text(tokens)`.

    A letter that is made of tokens of both kinds goes to the part that ends it.
    """
    whole = codec.text(tokens)
    parts: list[tuple[str, bool]] = []
    at = end = 0
    for filled, group in groupby(is_blank):
        at += len(list(group))
        text = codec.text(tokens[:at]) if at < len(tokens) else whole
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text, whole, strict=False)))
        parts.append((whole[end:same], filled))
        end = max(end, same)
    return [(text, filled) for text, filled in parts if text]


# Tables and lists


def spell_settings(settings: Mapping[str, Any]) -> str:
    """Spell settings as `--set` takes them: name=value, and dots in the names of nested ones."""
    parts = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            inner = {f"{key}.{k}": v for k, v in value.items() if k != "name"}
            parts.append((f"{key}={value['name']} " if "name" in value else "") + spell_settings(inner))
        else:
            parts.append(f"{key}={_spell_value(value)}")
    return " ".join(parts)


def _spell_value(value: object) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"[{','.join(map(_spell_value, value))}]" if isinstance(value, tuple | list) else str(value)


def make_table(heads: Sequence[str], rows: Sequence[Sequence[str | Text]], numbers: Collection[str] = ()) -> Table:
    """Make a plain table; columns named in `numbers` are aligned to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for at, head in enumerate(heads):
        right = "right" if head in numbers else "left"
        table.add_column(
            head,
            justify=right,  # type: ignore[arg-type]
            style="bold" if at == 0 else "",
            overflow="fold",
            no_wrap=at == 0,
        )
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return table


def make_name_table(pairs: Mapping[str, str]) -> Table:
    """Make a table of names and values."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs.items():
        table.add_row(name, Text(value))
    return table


def make_entry(name: str, source: str, about: str, settings: str) -> Group:
    """Describe a model or method: its name, its source, a sentence, and its settings."""
    head = Text.assemble((name, "bold"), "  ", (source, "dim"))
    return Group(head, Padding(Text(about), (0, 0, 0, 2)), Padding(Text(settings, "dim"), (0, 0, 0, 2)))


def print_report(report: "Report", written: str, console: Console) -> None:
    """Print a study's report: short tables, notes, where the files are, and the answers last."""
    for table in report.screens:
        console.print(make_table([column.head or "" for column in table.visible_columns], table.cells))
    for sign, meaning in report.signs.items():
        print_text(f"{sign} {meaning}")
    for text in (*report.notes, *report.warnings):
        console.print(Text(f"\n{text}"), soft_wrap=not console.is_terminal)
    print_text(f"\nwritten: {written}")
    for answer in report.answers:
        console.print(Text(f"\n{answer.question}", style="bold"))
        console.print(Text(answer.verdict), soft_wrap=not console.is_terminal)
