"""Fixed memory for the passes of a block cache: keys and values by layer, and the view that is read.

Every pass reads and writes the same addresses and asks nothing of the host, so that it can be recorded. A pass over
fewer rows uses the first ones.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.core import CountedSlots, ModelInput, copy_in
from unmask.models.graphs import Graphs, Replays
from unmask.models.invariance import Bounds
from unmask.models.network import Network, attention_bias

SPARE = 8
"""Slots behind every remembered row: rows with less to recompute than others write there, and nobody reads it."""
RECORDED_BYTES = 4 << 30
"""Keys and values up to this size are kept for the next decode with their recordings; above, launches cost little."""
SHAPES = 64
"""Recordings of passes that are kept: a prefix cache has one for each block of a long answer."""
COPIES = 64
"""Rows that a pass may have more than there are, so that it has enough of them."""
T = TypeVar("T")
_NUMBERS = itertools.count()
_INPUTS = ("tokens_BN", "position_BN", "valid_BN", "fixed_BN", "wanted_BN")


class Spans(NamedTuple):
    """Where each row is to be recomputed, on the device."""

    start_B: Tensor
    stop_B: Tensor
    inside_BN: Tensor
    """Wanted slots inside the span."""
    source_BN: Tensor
    """The slot that a slot's prediction is read at."""
    canvas_BN: Tensor
    """Tokens, -1 for padding."""
    numbers_B6: Tensor
    """What the host has to know of each row: the numbers of a `RowClock`."""


class RowClock(NamedTuple):
    """What the host has to know of a row."""

    id: int
    start: int
    stop: int
    kept: int
    """Whether nothing changed since the last pass but masks of the span that were filled."""
    inside: int
    """Wanted slots in the span."""
    wanted: int
    """Wanted slots."""


class PassPlan(NamedTuple):
    """The shapes of a pass."""

    rows: int
    width: int
    """Slots that are recomputed of every row; 0 where all rows begin anew."""
    fresh: int
    """Rows that begin anew: they are computed as a whole."""


@dataclass(frozen=True)
class SpanRule:
    """Which slots of a row are recomputed: its leftmost block with a mask, or that and all behind it."""

    block: int
    to_end: bool
    mask_id: int
    shift: int

    def __call__(self, inputs: ModelInput, old_BN: Tensor, network: Network) -> Spans:
        assert inputs.row_B is not None
        slots = inputs.tokens_BN.shape[1]
        answer_BN = inputs.valid_BN & ~inputs.fixed_BN
        block_BN = (answer_BN.long().cumsum(-1) - 1) // self.block
        masked_BN = answer_BN & (inputs.tokens_BN == self.mask_id)
        active_B1 = torch.where(masked_BN, block_BN, slots).amin(-1, keepdim=True)
        inside_BN = answer_BN & (block_BN == active_B1)
        slot_N = torch.arange(slots, device=inputs.tokens_BN.device)
        # Dream reads position i at slot i - 1, so the slot before the block is recomputed with it.
        start_B = (torch.where(inside_BN, slot_N, slots).amin(-1) - self.shift).clamp(min=0)
        stop_B = torch.where(inputs.valid_BN if self.to_end else inside_BN, slot_N + 1, 0).amax(-1)
        span_BN = (slot_N >= start_B[:, None]) & (slot_N < stop_B[:, None])
        canvas_BN = torch.where(inputs.valid_BN, inputs.tokens_BN, -1)
        kept_B = ((old_BN == canvas_BN) | ((old_BN == self.mask_id) & span_BN)).all(-1)
        wanted_BN = inputs.wanted_BN & span_BN
        clock = (inputs.row_B, start_B, stop_B, kept_B.long(), wanted_BN.sum(-1), inputs.wanted_BN.sum(-1))
        return Spans(start_B, stop_B, wanted_BN, network.source(inputs) % slots, canvas_BN, torch.stack(clock, -1))


class KVBuffers:
    """Keys and values of running rows, the view of the pass at hand, and recordings of the passes."""

    def __init__(self, network: Network, rows: int, slots: int):
        model, spec = network.model, network.model.spec
        self.network, self.rows, self.slots = network, rows, slots
        shape = (rows, spec.kv_heads, slots + SPARE, spec.head_dim)
        self.keys, self.values = (
            [torch.zeros(shape, dtype=model.dtype, device=model.device) for _ in range(spec.layers)] for _ in range(2)
        )
        zeros = partial(torch.zeros, (rows, slots), device=model.device)
        flags = partial(zeros, dtype=torch.bool)
        self.view = ModelInput(
            tokens_BN=zeros(dtype=torch.long),
            position_BN=zeros(dtype=torch.long),
            valid_BN=flags().fill_(True),
            fixed_BN=flags(),
            wanted_BN=flags(),
            row_B=torch.zeros(rows, dtype=torch.long, device=model.device),
        )
        self.canvas_BN = zeros(dtype=torch.long).fill_(-1)
        """The canvases of the last pass, -1 for padding."""
        numbers = partial(torch.zeros, dtype=torch.long, device=model.device)
        self.found = Spans(
            start_B=numbers(rows),
            stop_B=numbers(rows),
            inside_BN=flags(),
            source_BN=numbers(rows, slots),
            canvas_BN=numbers(rows, slots),
            numbers_B6=numbers(rows, 6),
        )
        self.rows_U = numbers(rows + COPIES)
        """Rows that begin anew, then the first of them again: for passes that need more rows."""
        self.place_B = numbers(rows)
        """Where each row stands among those, -1 for the others."""
        self._begun: tuple[int, ...] | None = None
        self.number = next(_NUMBERS)
        """Tells buffers apart."""
        graphs, small = network.forward, self.bytes(network, rows, slots) <= RECORDED_BYTES
        self.replays = Replays(model, SHAPES, graphs.replays.memory) if small and isinstance(graphs, Graphs) else None

    @staticmethod
    def bytes(network: Network, rows: int, slots: int) -> int:
        """Of the keys and values of so many rows."""
        spec = network.model.spec
        each = spec.kv_heads * spec.head_dim * network.model.dtype.itemsize
        return 2 * spec.layers * rows * (slots + SPARE) * each

    def load(self, inputs: ModelInput) -> None:
        """Put the view of a pass in its place."""
        assert inputs.row_B is not None
        here = self._rows(len(inputs.tokens_BN))
        names = (*_INPUTS, "row_B")
        copy_in([getattr(here, name) for name in names], [getattr(inputs, name) for name in names])

    def spans(self, rule: SpanRule, rows: int) -> Spans:
        """Where the loaded rows are to be recomputed."""
        count = self._rounded(rows)

        def work() -> None:
            # Copied out of what a recording may overwrite.
            here = Spans(*(held[:count] for held in self.found))
            copy_in(here, rule(self._rows(count), self.canvas_BN[:count], self.network))

        self._run(("spans", rule, count), work)
        return Spans(*(held[:rows] for held in self.found))

    def keep(self, places: Sequence[int]) -> None:
        """Move rows to the front; the others are forgotten."""
        if list(places) == list(range(len(places))):
            return
        places_U = torch.tensor(places, device=self.canvas_BN.device)
        for held in (self.canvas_BN, *self.keys, *self.values):
            held[: len(places)] = held[places_U]

    def begin(self, fresh: Sequence[int], rows: int) -> None:
        """Say which of the loaded rows begin anew."""
        if self._begun == (rows, *fresh):
            return
        self._begun = (rows, *fresh)
        place_B = [-1] * rows
        for place, row in enumerate(fresh):
            place_B[row] = place
        filled = [*fresh, *list(fresh[:1]) * (len(self.rows_U) - len(fresh))] if fresh else []
        # One copy from the host for both.
        both = torch.tensor([*place_B, *filled], device=self.rows_U.device)
        self.place_B[:rows] = both[:rows]
        if fresh:
            self.rows_U.copy_(both[rows:])

    def answered(self, inputs: ModelInput) -> tuple[Tensor, Tensor]:
        """Slots for which there is an answer, and how many were computed for it, by row."""
        rows, slots = inputs.tokens_BN.shape
        fresh_B, found = self.place_B[:rows] >= 0, Spans(*(held[:rows] for held in self.found))
        span_B = (found.stop_B - found.start_B).clamp(min=0)
        wanted_BN = inputs.wanted_BN & (fresh_B[:, None] | found.inside_BN[:, :slots])
        return wanted_BN, torch.where(fresh_B, inputs.valid_BN.sum(-1), span_B)

    def start(self, plan: PassPlan) -> Tensor:
        """Hidden states of the pass over spans, or of the complete one where all rows begin anew."""
        if plan.width:
            return self.reuse(plan.rows, plan.width)
        return self.fill(plan.fresh, everyone=plan.fresh == plan.rows)

    def hidden(self, plan: PassPlan, started: Tensor, packed: CountedSlots) -> Tensor:
        """Hidden states of packed slots: from the pass that was started, and of rows that begin anew beside it."""
        slots = packed.wanted_BN.shape[1]
        row_R = packed.index_R // slots
        source_R = self.found.source_BN[row_R, packed.index_R % slots]
        whole_R = self.place_B[row_R].clamp(min=0) * self.slots + source_R
        if not plan.width:
            return started.flatten(0, 1)[whole_R]
        # Rows that begin anew are in this pass, too, and what it says of them is not read: one shape for all steps.
        inside_R = (source_R - self.found.start_B[row_R]).clamp(0, plan.width - 1)
        span_RH = started.flatten(0, 1)[row_R * plan.width + inside_R]
        if not plan.fresh:
            return span_RH
        whole_RH = self.fill(plan.fresh, everyone=False).flatten(0, 1)[whole_R]
        return torch.where((self.place_B[row_R] >= 0)[:, None], whole_RH, span_RH)

    def fill(self, fresh: int, everyone: bool) -> Tensor:
        """Complete passes over rows that begin anew, which leave their keys and values behind: hidden states."""
        bounds = self.network.bounds(self.slots)
        size = bounds.most or fresh
        parts = []
        for at in range(0, fresh, size):
            piece = min(size, fresh - at)
            count = max(piece if everyone else self._rounded(piece), bounds.least)
            x_UNH = self._run(("fill", at, count), partial(self._fill, at, count))[:piece]
            parts.append(x_UNH if piece == fresh else x_UNH.clone())
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def reuse(self, rows: int, width: int) -> Tensor:
        """Passes over each row's span, padded to one width, that read the remembered rest: hidden states."""
        bounds = self.network.bounds(width, self.slots + SPARE) if self.network.floors else Bounds()
        size = bounds.most or max(self._rounded(rows), bounds.least)
        parts: list[Tensor] = []
        done = 0
        while done < rows:
            # A last piece begins earlier instead of being shorter: the same span is computed twice, to the same keys.
            first = max(0, min(done, self.rows - size))
            stop = min(first + size, self.rows)
            x_BSH = self._run(("reuse", first, stop, width), partial(self._reuse, first, stop, width))[done - first :]
            parts.append(x_BSH if stop >= rows and not parts else x_BSH.clone())
            done = stop
        return (parts[0] if len(parts) == 1 else torch.cat(parts))[:rows]

    def _rounded(self, rows: int) -> int:
        """How many rows a pass over so many has: few different numbers where each has its own recording."""
        return rows if self.replays is None else min(_round_number(rows), self.rows)

    def _run(self, key: tuple[object, ...], work: Callable[[], T]) -> T:
        if self.replays is None:
            return work()
        about = f"passes of a block cache over {self.rows} rows of {self.slots} slots"
        return self.replays(key, work, (), about)

    def _rows(self, rows: int) -> ModelInput:
        names = (*_INPUTS, "row_B")
        return replace(self.view, **{name: getattr(self.view, name)[:rows] for name in names})

    def _fill(self, at: int, count: int) -> Tensor:
        rows_U = self.rows_U[at : at + count]
        some = replace(self.view, **{name: getattr(self.view, name)[rows_U] for name in _INPUTS}, row_B=None)
        bias = attention_bias(some, self.network.model.dtype)
        memory = _Fill(self, rows_U)
        x_BNH: Tensor = self.network.model(some.tokens_BN, some.position_BN, bias, kv_store=memory).x_BNH
        return x_BNH

    def _reuse(self, first: int, stop: int, width: int) -> Tensor:
        some, rows = self.view, slice(first, stop)
        index_BS = self.found.start_B[rows, None] + torch.arange(width, device=some.tokens_BN.device)
        index_BS = torch.where(index_BS < self.found.stop_B[rows, None], index_BS, self.slots + SPARE - 1)
        inside_BS = index_BS.clamp(max=self.slots - 1)
        zero = torch.zeros((), dtype=self.network.model.dtype, device=index_BS.device)
        bias = torch.where(F.pad(some.valid_BN[rows], (0, SPARE)), zero, float("-inf"))[:, None, None]
        x_BNH: Tensor = self.network.model(
            some.tokens_BN[rows].gather(1, inside_BS),
            some.position_BN[rows].gather(1, inside_BS),
            bias,
            kv_store=_Reuse(self, rows, index_BS),
        ).x_BNH
        return x_BNH


@dataclass(frozen=True)
class _Fill:
    """Takes in the keys and values of complete rows."""

    buffers: KVBuffers
    rows_U: Tensor

    def exchange(self, layer: int, k_BGNF: Tensor, v_BGNF: Tensor) -> tuple[Tensor, Tensor]:
        for held, new in ((self.buffers.keys, k_BGNF), (self.buffers.values, v_BGNF)):
            held[layer][:, :, : self.buffers.slots].index_copy_(0, self.rows_U, new)
        return k_BGNF, v_BGNF


@dataclass(frozen=True)
class _Reuse:
    """Remembered keys and values, those of the span overwritten by the pass's own."""

    buffers: KVBuffers
    rows: slice
    index_BS: Tensor

    def exchange(self, layer: int, k_BGSF: Tensor, v_BGSF: Tensor) -> tuple[Tensor, Tensor]:
        index = self.index_BS[:, None, :, None].expand_as(k_BGSF)
        keys, values = self.buffers.keys[layer][self.rows], self.buffers.values[layer][self.rows]
        return keys.scatter_(2, index, k_BGSF), values.scatter_(2, index, v_BGSF)


def _round_number(rows: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, 24, ...: at most half as many again."""
    power = 1 << (rows - 1).bit_length()
    return 3 * power // 4 if rows <= 3 * power // 4 and power >= 4 else power
