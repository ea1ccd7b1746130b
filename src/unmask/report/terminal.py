"""What the command line shows: canvases as they fill in, results, and tables."""

import time
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby, takewhile
from math import isnan
from types import TracebackType
from typing import TYPE_CHECKING, Any
from unicodedata import category

import torch
from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from unmask.core import State, Step, Trajectory
from unmask.models import Codec, LetterCodec

if TYPE_CHECKING:
    from unmask.report.demo.summary import DemoSummary  # It needs pandas, which decoding does not.

# From Okabe and Ito's palette, which the colour-blind can tell apart.
_CONFIDENCE = ((0.9, "black on #56b4e9"), (0.6, "black on #2fc99b"), (0.3, "black on #f0e442"))
_UNSURE = "black on #e8772e"
_UNKNOWN = "black on white"
REMASKED = "black on #cc79a7"

MASKED, FILLER, NEWLINE, TAB, CUT, UNSHOWN = "░", "·", "↵", "→", "…", "\N{REPLACEMENT CHARACTER}"
"""A masked token, whatever its long name; a token that ends a text or pads it; a line break and a tab, which would tear
a canvas apart; what is left out; a character that has no shape."""
_SIGNS = {"\n": NEWLINE, "\r": "", "\t": TAB}
_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that turn the direction of what follows: cells would change places."""
CELL = 7
"""Columns of a position, where a token is more than a letter."""
_MARGIN = 5
"""Columns for the number of a row."""


class DecodeScreen:
    """Canvases as they fill in: redrawn in place on a terminal, a line per row and step elsewhere.

    Every position has a cell of its own, always at the same place: nothing moves while the canvas fills.
    Of a search: the best path of each row so far, and the size of its tree.
    Give it to `Model.generate` as `on_step`, inside a `with` block.

    `prompts` are those of the rows as somebody typed them: they stand above the answer, in place of the tokens that a
    template made of them. Without them the given tokens have cells too. `fillers` are tokens that end a text or pad it.
    """

    def __init__(
        self,
        codec: Codec,
        console: Console,
        delay: float = 0.0,
        *,
        prompts: Sequence[str] = (),
        fillers: Collection[int] = (),
    ):
        self.codec, self.console, self.delay = codec, console, delay
        self.prompts, self.fillers = [one_line(prompt) for prompt in prompts], frozenset(fillers)
        self.cell = 1 if isinstance(codec, LetterCodec) else CELL
        """Columns of a position."""
        self._lines: dict[int, Text] = {}
        self._forwards: dict[int, int] = {}
        self._tree: dict[int, int] = {}
        """Canvases that a search has held for each row; empty for other methods."""
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

    def __call__(self, traj: Trajectory) -> None:
        """Show the rows that took this step; rows that finished earlier keep their last line."""
        step = traj.last
        if step is None:
            return
        if not self._lines:
            self._draw_start(step)
        self._step += 1
        spent = traj.forwards_B.tolist()
        for at, row in enumerate(traj.rows_B.tolist()):
            self._forwards[row] = spent[at]
            if "tree" in step.action.notes:
                self._tree[row] = int(step.action.notes["tree"][at])
            self._lines[row] = self._coloured(traj.state, step, at, row)
            if self._live is None:
                self.console.print(Text(self._plain(step, at, row)), soft_wrap=True)
        self._refresh()

    def _draw_start(self, step: Step) -> None:
        nothing = torch.zeros_like(step.revealed_BL)
        for at, row in enumerate(step.rows_B.tolist()):
            self._lines[row] = self._cells(step.state, at, row, nothing, nothing, step.confidence_BL)
            self._forwards[row] = 0
            if self._live is None and row < len(self.prompts):
                self.console.print(Text(f"prompt    row {row:>2}  {self.prompts[row]}"), soft_wrap=True)
        self._refresh()

    def _refresh(self) -> None:
        if self._live is not None:
            head = self._head().wrap(self.console, self.console.width)
            room = self.console.height - len(head)
            self._live.update(Group(*head, *self._numbered(room // max(1, len(self._lines)))), refresh=True)
            time.sleep(self.delay)

    def _head(self) -> Text:
        head = Text()
        tree = f"  tree {sum(self._tree.values())}" if self._tree else ""
        head.append(f"step {self._step}  forwards {sum(self._forwards.values())}{tree}", "bold")
        head.append("   new, by confidence: ", "dim")
        for least, style in _CONFIDENCE:
            head.append(f" >{least} ", style)
        head.append(" less ", _UNSURE).append("  ")
        head.append(" re-masked ", REMASKED)
        return head.append(f"   {MASKED} masked  {FILLER} end of text" if self.fillers else "", "dim")

    def _numbered(self, most: int) -> list[Text]:
        """Every row with its number, in at most so many lines: its prompt, and the last of its cells."""
        shown: list[Text] = []
        for row, line in sorted(self._lines.items()):
            asked = row < len(self.prompts) and most > 1
            lines = self._cut(line)
            fitting = max(1, most - asked)
            cut = len(lines) > fitting
            lines = lines[-fitting:] or [Text()]
            if asked:
                text = Text(self.prompts[row], "dim")
                text.truncate(max(1, self.console.width - _MARGIN), overflow="ellipsis")
                lines = [text, *lines]
            heads = [f"{row:>3} {CUT if cut else ' '}", *[" " * _MARGIN] * (len(lines) - 1)]
            shown += [Text.assemble((head, "dim"), part) for head, part in zip(heads, lines, strict=True)]
        return shown

    def _cut(self, line: Text) -> list[Text]:
        """Lines of as many whole cells as the console is wide."""
        columns = max(1, (self.console.width - _MARGIN) // self.cell) * self.cell
        starts = _offsets(line.plain, columns)
        return list(line.divide(starts)) if starts else [line]

    def _coloured(self, state: State, step: Step, at: int, row: int) -> Text:
        return self._cells(state, at, row, step.revealed_BL, step.remasked_BL, step.confidence_BL)

    def _cells(
        self, state: State, at: int, row: int, new_BL: torch.Tensor, again_BL: torch.Tensor, confidence_BL: torch.Tensor
    ) -> Text:
        line = Text()
        for position in range(_prompt_length(state, at) if row < len(self.prompts) else 0, int(state.length_B[at])):
            token = int(state.tokens_BL[at, position])
            if new_BL[at, position]:
                style = _by_confidence(float(confidence_BL[at, position]))
            elif again_BL[at, position]:
                style = REMASKED
            else:
                quiet = token == state.mask_id or token in self.fillers or state.fixed_BL[at, position]
                style = "dim" if quiet else ""
            line.append(self._shown(token, state.mask_id), style)
        return line

    def _shown(self, token: int, mask_id: int) -> str:
        """A token in its cell: cut or filled up to the width of all others."""
        if token == mask_id:
            text = self.codec.mask if len(self.codec.mask) == 1 else MASKED
        elif token in self.fillers:
            text = FILLER
        else:
            text = one_line(self.codec.decode([token]))
        # Two cells side by side are told apart by the space that ends each, where there is room for one.
        most = max(1, self.cell - 1)
        if cell_len(text) > most:
            text = set_cell_size(text, most - 1).rstrip() + CUT if most > 1 else CUT
        return set_cell_size(text, self.cell)

    def _plain(self, step: Step, at: int, row: int) -> str:
        new, again = int(step.revealed_BL[at].sum()), int(step.remasked_BL[at].sum())
        note = f", {again} re-masked" if again else ""
        tree = f", tree {self._tree[row]}" if row in self._tree else ""
        cells = self._lines[row].plain
        return f"step {self._step:>3}  row {row:>2}  {cells}  +{new}{note}  (forwards {self._forwards[row]}{tree})"


def one_line(text: str) -> str:
    """Text on one line: line breaks and tabs as signs, and no character that would command a terminal."""
    return "".join(_SIGNS.get(c, UNSHOWN if category(c) in ("Cc", "Cs") or c in _TURNING else c) for c in text)


def _offsets(text: str, columns: int) -> list[int]:
    """Where a text of whole cells is to be cut, so that each part has so many columns; a character may have two."""
    starts, filled = [], 0
    for at, letter in enumerate(text):
        width = cell_len(letter)
        if filled + width > columns:
            starts.append(at)
            filled = 0
        filled += width
    return starts


def text_parts(codec: Codec, tokens: Sequence[int], free: Sequence[bool]) -> list[tuple[str, bool]]:
    """A text cut where given tokens and filled ones meet; together the parts are `codec.text` of all tokens.

    Where a letter is made of tokens of both kinds it goes to the part that ends it.
    """
    whole = codec.text(tokens)
    parts: list[tuple[str, bool]] = []
    at = end = 0
    for new, group in groupby(free):
        at += len(list(group))
        shown = codec.text(tokens[:at]) if at < len(tokens) else whole
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(shown, whole, strict=False)))
        parts.append((whole[end:same], new))
        end = max(end, same)
    return [(text, new) for text, new in parts if text]


def _prompt_length(state: State, at: int) -> int:
    """Given tokens before the first one to fill in."""
    length = int(state.length_B[at])
    free = (~state.fixed_BL[at, :length]).nonzero()
    return int(free[0]) if len(free) else length


def _by_confidence(confidence: float) -> str:
    if isnan(confidence):
        return _UNKNOWN
    return next((style for least, style in _CONFIDENCE if confidence > least), _UNSURE)


def settings_line(settings: Mapping[str, Any]) -> str:
    """name=value pairs as `--set` takes them, parts with dots."""
    parts = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            inner = {k: v for k, v in value.items() if k != "name"}
            named = f"{key}={value['name']} " if "name" in value else ""
            parts.append(named + settings_line({f"{key}.{k}": v for k, v in inner.items()}))
        else:
            parts.append(f"{key}={_spell(value)}")
    return " ".join(parts)


def _spell(value: object) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return "[" + ",".join(map(_spell, value)) + "]"
    return str(value)


def results(prompts: Sequence[str], texts: Sequence[Text], steps: Sequence[int], forwards: Sequence[int]) -> Table:
    """One line per decoded row."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for name in ("row", "prompt", "text", "steps", "forwards"):
        table.add_column(name, justify="right" if name in ("row", "steps", "forwards") else "left", overflow="fold")
    for row, (prompt, text, taken, spent) in enumerate(zip(prompts, texts, steps, forwards, strict=True)):
        table.add_row(str(row), Text(prompt), text, str(taken), str(spent))
    return table


def named(pairs: Mapping[str, str]) -> Table:
    """Names and values in two columns."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs.items():
        table.add_row(name, Text(value))
    return table


def entry(name: str, source: str, about: str, settings: str) -> Group:
    """Something that can be chosen by name, and what can be set about it."""
    head = Text.assemble((name, "bold"), "  ", (source, "dim"))
    return Group(head, Padding(Text(about), (0, 0, 0, 2)), Padding(Text(settings, "dim"), (0, 0, 0, 2)))


def columns(heads: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> Table:
    """A plain table of texts; the first column stands out."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    for number, head in enumerate(heads):
        table.add_column(head, style="bold" if number == 0 else "", overflow="fold", no_wrap=number == 0)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def comparison(summaries: "Sequence[DemoSummary]") -> Table:
    """The demonstration's result, best utility first."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("policy", no_wrap=True)
    for head in summaries[0].cells if summaries else ():
        table.add_column(head, justify="left" if head == "computed" else "right", no_wrap=True)
    for s in summaries:
        table.add_row(f"{s.label}{' *' * s.frontier}", *s.cells.values(), style="dim italic" if s.baseline else "")
    return table
