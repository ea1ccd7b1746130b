"""What the command line shows: canvases as they fill in, results, and tables."""

import time
from collections.abc import Mapping, Sequence
from math import isnan
from types import TracebackType
from typing import Any

import torch
from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from unmask.core import State, Step, Trajectory
from unmask.denoisers import Codec
from unmask.report.demo.summary import DemoSummary, summary_columns

# From Okabe and Ito's palette, which the colour-blind can tell apart.
_CONFIDENCE = ((0.9, "black on #56b4e9"), (0.6, "black on #2fc99b"), (0.3, "black on #f0e442"))
_UNSURE = "black on #e8772e"
_UNKNOWN = "black on white"
REMASKED = "black on #cc79a7"

MASKED, NEWLINE, CUT = "░", "↵", "…"
"""A masked token, whatever its long name; a line break, which would tear a canvas apart; what is left out."""
PROMPT_CELLS = 60
"""Letters of a prompt that are shown, its last."""
_MARGIN = 5
"""Columns for the number of a row."""


class DecodeScreen:
    """Canvases as they fill in: redrawn in place on a terminal, a line per row and step elsewhere.

    Of a search: the best path of each row so far, and the size of its tree.
    Give it to `Model.generate` as `on_step`, inside a `with` block.
    """

    def __init__(self, codec: Codec, console: Console, delay: float = 0.0):
        self.codec, self.console, self.delay = codec, console, delay
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
            if self._live is None:
                self.console.print(Text(self._plain(traj.state, step, at, row)), soft_wrap=True)
            self._lines[row] = self._coloured(traj.state, step, at)
        self._refresh()

    def _draw_start(self, step: Step) -> None:
        nothing = torch.zeros_like(step.revealed_BL)
        for at, row in enumerate(step.rows_B.tolist()):
            self._lines[row] = self._cells(step.state, at, nothing, nothing, step.confidence_BL)
            self._forwards[row] = 0
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
        return head.append(" re-masked ", REMASKED)

    def _numbered(self, most: int) -> list[Text]:
        """Every row with its number, in at most so many lines: the last, since a canvas ends with its answer."""
        shown: list[Text] = []
        for row, line in sorted(self._lines.items()):
            lines = list(line.wrap(self.console, max(1, self.console.width - _MARGIN)))
            cut = len(lines) > max(1, most)
            lines = lines[-max(1, most) :] or [Text()]
            heads = [f"{row:>3} {CUT if cut else ' '}", *[" " * _MARGIN] * (len(lines) - 1)]
            shown += [Text.assemble((head, "dim"), part) for head, part in zip(heads, lines, strict=True)]
        return shown

    def _coloured(self, state: State, step: Step, at: int) -> Text:
        return self._cells(state, at, step.revealed_BL, step.remasked_BL, step.confidence_BL)

    def _cells(
        self, state: State, at: int, new_BL: torch.Tensor, again_BL: torch.Tensor, confidence_BL: torch.Tensor
    ) -> Text:
        start = _prompt_length(state, at)
        line = Text().append(_folded(self._shown(state.tokens_BL[at, :start].tolist())), "dim")
        for position in range(start, int(state.length_B[at])):
            token = int(state.tokens_BL[at, position])
            if new_BL[at, position]:
                style = _by_confidence(float(confidence_BL[at, position]))
            elif again_BL[at, position]:
                style = REMASKED
            else:
                style = "dim" if token == state.mask_id or state.fixed_BL[at, position] else ""
            line.append(self._shown([token]), style)
        return line

    def _shown(self, tokens: Sequence[int]) -> str:
        """Text on one line, with one cell for a masked token."""
        mask = self.codec.mask
        text = self.codec.decode(tokens)
        return text.replace(mask, mask if len(mask) == 1 else MASKED).replace("\r", "").replace("\n", NEWLINE)

    def _plain(self, state: State, step: Step, at: int, row: int) -> str:
        tokens, start = state.tokens_BL[at, : int(state.length_B[at])].tolist(), _prompt_length(state, at)
        prompt = self._shown(tokens[:start])
        # Whole if it may be: some tokenizers set spaces between tokens only.
        canvas = self._shown(tokens) if _folded(prompt) == prompt else _folded(prompt) + self._shown(tokens[start:])
        new, again = int(step.revealed_BL[at].sum()), int(step.remasked_BL[at].sum())
        note = f", {again} re-masked" if again else ""
        tree = f", tree {self._tree[row]}" if row in self._tree else ""
        return f"step {self._step:>3}  row {row:>2}  {canvas}  +{new}{note}  (forwards {self._forwards[row]}{tree})"


def _prompt_length(state: State, at: int) -> int:
    """Given tokens before the first one to fill in."""
    length = int(state.length_B[at])
    free = (~state.fixed_BL[at, :length]).nonzero()
    return int(free[0]) if len(free) else length


def _folded(prompt: str) -> str:
    return prompt if len(prompt) <= PROMPT_CELLS else CUT + prompt[1 - PROMPT_CELLS :]


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


def results(prompts: Sequence[str], texts: Sequence[str], steps: Sequence[int], forwards: Sequence[int]) -> Table:
    """One line per decoded row."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for name in ("row", "prompt", "text", "steps", "forwards"):
        table.add_column(name, justify="right" if name in ("row", "steps", "forwards") else "left", overflow="fold")
    for row, (prompt, text, taken, spent) in enumerate(zip(prompts, texts, steps, forwards, strict=True)):
        table.add_row(str(row), Text(prompt), Text(text, "bold"), str(taken), str(spent))
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


def comparison(summaries: Sequence[DemoSummary]) -> Table:
    """The demonstration's result, best utility first."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("policy", no_wrap=True)
    shown = summary_columns()
    for column in shown:
        table.add_column(column.head or "", justify="left" if column.left else "right", no_wrap=True)
    for s in summaries:
        cells = (column.show(column.get(s)) for column in shown)
        table.add_row(f"{s.label}{' *' * s.frontier}", *cells, style="dim italic" if s.baseline else "")
    return table
