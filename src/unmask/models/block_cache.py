"""Approximate block caches (Fast-dLLM, Wu et al.): keys and values outside the active block are reused between steps.

In a bidirectional network every key beyond the first layer depends on every token, so reuse is an approximation:
results differ from those of the plain network, and everything that reports them says so.

Each row has a seat: its keys and values lie at one place of a memory that stays where it is, and have an age of their
own. So rows join and leave without a change for their neighbours, and passes can be recorded as CUDA graphs.
"""

import itertools
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.base.errors import DenoiserError, require
from unmask.core import ModelInput, ModelOutput, Needs, Slots, State, Vocabulary, copy_in
from unmask.models.cuda_graphs import GraphCache
from unmask.models.execution import PassGraphs
from unmask.models.invariance import Bounds
from unmask.models.network import BUCKET, Network, make_attention_bias, pad_input

CACHE_KINDS = ("prefix", "dual")
SPARE_SLOTS = 8
"""Unread slots behind each seat's canvas, where rows with less to recompute than others write the surplus."""
GRAPHED_BYTES = 4 << 30
"""Largest cache, in bytes, that is recorded in CUDA graphs; a larger one gains little from them."""
MOST_PASS_GRAPHS = 64
"""Number of recorded passes to keep: a prefix cache needs one for each block of a long answer."""
SPARE_ROWS = 64
"""Most rows by which a pass is filled up so that its bits do not depend on the number of rows."""
T = TypeVar("T")
_MEMORY_NUMBERS = itertools.count()
_INPUT_FIELDS = ("tokens_BN", "position_BN", "valid_BN", "fixed_BN", "wanted_BN")


@dataclass(frozen=True)
class BlockCache:
    """A network that, inside a block of the answer, recomputes only part of the canvas.

    A row's active block is the leftmost one with a mask. The first pass of a block is complete and fills the cache
    (so does every `refresh`-th); later ones recompute the block alone (`dual`) or the block and all behind it
    (`prefix`), and predict only there. Rows are told apart by `ModelInput.row_B`.
    """

    network: Network
    kind: str
    block: int
    """Answer positions per block: the policy's own block length."""
    refresh: int = 0
    """Passes from one complete pass to the next; 0 for only one at the start of a block, 1 for no reuse."""
    _seats: "list[SeatAssignment]" = field(default_factory=list, repr=False, compare=False)
    """The seats of the last pass; empty before the first pass and after a failed one."""

    def __post_init__(self) -> None:
        require(
            self.kind in CACHE_KINDS, "cache", self.kind, " or ".join(CACHE_KINDS), "or leave it out: the exact network"
        )
        require(self.block >= 1, "block", self.block, "1 or more", "use the policy's block length")
        require(self.refresh >= 0, "cache_refresh", self.refresh, "0 or more", "0 refreshes at the start of a block")

    @property
    def vocabulary(self) -> Vocabulary:
        return self.network.vocabulary

    @property
    def device(self) -> torch.device:
        return self.network.device

    @property
    def step_graphs(self) -> GraphCache | None:
        """The CUDA graphs in which the network records whole decoding steps."""
        return self.network.step_graphs

    @property
    def variant(self) -> tuple[object, ...]:
        """Settings, besides the weights, that change the output or the slots that a pass recomputes."""
        return type(self).__name__, self.kind, self.block, self.refresh, *self.network.variant

    def step_denoiser(self, rows: int, slots: int) -> "CachedStep | None":
        """Return a denoiser for steps recorded as CUDA graphs; None where the cache is too large for that."""
        padded = _pad_to_bucket(slots)
        in_pieces = self.network.row_bounds is not None and self.network.find_row_bounds(padded).most is not None
        return None if in_pieces or count_cache_bytes(self.network, rows, padded) > GRAPHED_BYTES else CachedStep(self)

    @torch.inference_mode()
    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        if inputs.row_B is None:
            # A look-ahead: nothing of a hypothetical canvas may enter the memory of a real row.
            return self.network(inputs, needs)
        refused = {
            "pairwise attention": inputs.attend_BNN is not None,
            "attention": needs.attention,
            "predictions of revealed tokens": needs.revealed,
        }
        for name, asked in refused.items():
            if asked:
                raise DenoiserError(
                    f"the policy asks for {name}; allowed: predictions of masked slots under an approximate cache; "
                    "choose another policy, or leave the cache out"
                )
        self.network.check_input(inputs, needs)
        seats, shape, wanted = self.plan_cached_pass(inputs)
        memory = seats.memory
        cached = CachedPass(self.network, memory, shape, memory.graphs)
        # Started before slots are packed: the device need not wait for that.
        hidden_BNH = cached.compute_hidden()
        wanted_BN, processed_B = memory.find_answered_slots(inputs)
        output = cached.compute_output(hidden_BNH, Slots.of(wanted_BN, wanted), processed_B, needs)
        # Only now: what a pass that failed has left behind is not read again.
        self._seats.append(seats)
        return output

    def plan_cached_pass(
        self, inputs: ModelInput, *, skip_done: bool = False
    ) -> tuple["SeatAssignment", "PassShape", int]:
        """Assign the rows of a pass to places in the cache, and find the slots to recompute.

        Return the seats, which the caller puts back, the sizes of the pass, and the number of slots that get logits.
        Rows without a mask are recomputed whole, unless `skip_done` leaves them out.
        """
        padded = pad_input(inputs, _pad_to_bucket(inputs.tokens_BN.shape[1]))
        seats = self._take_last_seats(padded)
        spans = seats.assign_rows(padded, self.block, self.kind == "prefix")
        ages = seats.advance_ages(spans, self.refresh)
        fresh = [b for b, age in enumerate(ages) if age == 0 and not (skip_done and spans[b].start >= spans[b].stop)]
        seats.memory.mark_fresh_rows(fresh, len(spans))
        widths = [span.stop - span.start for b, span in enumerate(spans) if b not in set(fresh)]
        widths = [width for width in widths if width > 0]
        width = 0
        if widths or not fresh:
            width = max(widths, default=1)
            if self.network.forward is not None or self.network.row_bounds is not None:
                # Few different widths, where each has its own graph, or its own bits.
                width = min(_pad_to_bucket(width), seats.memory.slots)
        wanted = sum(span.inside if age else span.wanted for span, age in zip(spans, ages, strict=True))
        return seats, PassShape(len(spans), width, len(fresh)), wanted

    def _take_last_seats(self, inputs: ModelInput) -> "SeatAssignment":
        """Take over the seats of the last pass, and move its rows to a larger memory where they do not fit."""
        rows, slots = inputs.tokens_BN.shape
        old = self._seats.pop() if self._seats else None
        if old is not None and rows <= old.memory.rows and slots == old.memory.slots:
            return old
        assert inputs.row_B is not None
        if old is not None and (slots < old.memory.slots or set(old.row_ids).isdisjoint(inputs.row_B.tolist())):
            # Another run. Its memory is given back first, because the new one may need the room.
            old = None
        # The narrowest passes need most rows.
        least = (
            self.network.find_row_bounds(min(BUCKET, slots), slots + SPARE_SLOTS).least
            if self.network.row_bounds
            else 1
        )
        rows = max(rows, least, 0 if old is None else old.memory.rows)
        seats = SeatAssignment(SeatMemory.find_free(self.network, rows, slots))
        if old is not None:
            seats.memory.copy_from(old.memory)
            seats.row_ids, seats.bounds, seats.ages = old.row_ids, old.bounds, old.ages
        return seats


class CachedStep:
    """The block cache inside steps recorded as CUDA graphs; the host plans each pass before its step."""

    def __init__(self, cache: BlockCache):
        self.cache = cache
        self._pass: CachedPass | None = None

    @property
    def vocabulary(self) -> Vocabulary:
        return self.cache.vocabulary

    @property
    def device(self) -> torch.device:
        return self.cache.device

    def plan_pass(self, state: State, rows_B: Tensor) -> Hashable:
        """Plan the pass of the next step, and return the key of its graph: sizes of the pass and its memory."""
        with torch.inference_mode():
            # The state made anew: what was derived from it belongs to an earlier step.
            inputs = replace(ModelInput.of(replace(state), Needs()), row_B=rows_B)
            seats, shape, _ = self.cache.plan_cached_pass(inputs, skip_done=True)
            self.cache._seats.append(seats)
        # No graphs: they cannot be recorded inside another one.
        self._pass = CachedPass(self.cache.network, seats.memory, shape, None)
        return shape, seats.memory.number

    @torch.inference_mode()
    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        assert self._pass is not None, "planned before it runs"
        assert inputs.packed is not None, "a graphed step names its slots"
        wanted_BN, processed_B = self._pass.memory.find_answered_slots(inputs)
        output = self._pass.compute_output(self._pass.compute_hidden(), inputs.packed, processed_B, needs)
        return replace(output, wanted_BN=wanted_BN)


class BlockSpan(NamedTuple):
    """The part of each row that a pass recomputes, as tensors on the device."""

    start_B: Tensor
    stop_B: Tensor
    inside_BN: Tensor
    """Wanted slots inside the span."""
    source_BN: Tensor
    """Index of the slot at which each slot's prediction is read; Dream reads it one slot earlier."""
    canvas_BN: Tensor
    """Tokens, -1 for padding."""
    numbers_B6: Tensor
    """The numbers of a `RowSpan`."""


class RowSpan(NamedTuple):
    """The part of one row that a pass recomputes, as plain numbers on the host."""

    row_id: int
    start: int
    stop: int
    kept: int
    """1 if since the last pass only masks inside the span were filled, so the cached keys still hold; else 0."""
    inside: int
    """Wanted slots in the span."""
    wanted: int
    """Wanted slots."""


class PassShape(NamedTuple):
    """Sizes of a pass over the cache. Passes of equal sizes share a CUDA graph."""

    rows: int
    width: int
    """Slots to recompute of each row; 0 where all rows are computed whole."""
    fresh: int
    """Number of rows to compute whole, because their cached keys no longer hold."""


def find_block_span(inputs: ModelInput, old_BN: Tensor, network: Network, block: int, to_end: bool) -> BlockSpan:
    """Find the slots of each row to recompute: the leftmost block with a mask, with `to_end` also all behind it.

    `old_BN` holds the canvases of the last pass.
    """
    assert inputs.row_B is not None
    slots, mask_id = inputs.tokens_BN.shape[1], network.vocabulary.mask_id
    answer_BN = inputs.valid_BN & ~inputs.fixed_BN
    block_BN = (answer_BN.long().cumsum(-1) - 1) // block
    masked_BN = answer_BN & (inputs.tokens_BN == mask_id)
    # Rows without a mask get a block that no slot has, hence an empty span.
    active_B1 = torch.where(masked_BN, block_BN, slots).amin(-1, keepdim=True)
    inside_BN = answer_BN & (block_BN == active_B1)
    slot_N = torch.arange(slots, device=inputs.tokens_BN.device)
    # Dream reads position i at slot i - 1, so the slot before the block is recomputed with it.
    start_B = (torch.where(inside_BN, slot_N, slots).amin(-1) - network.shift).clamp(min=0)
    stop_B = torch.where(inputs.valid_BN if to_end else inside_BN, slot_N + 1, 0).amax(-1)
    span_BN = (slot_N >= start_B[:, None]) & (slot_N < stop_B[:, None])
    canvas_BN = torch.where(inputs.valid_BN, inputs.tokens_BN, -1)
    # A revealed mask inside the span is what every step does. Any other change makes the stored keys wrong.
    kept_B = ((old_BN == canvas_BN) | ((old_BN == mask_id) & span_BN)).all(-1)
    wanted_BN = inputs.wanted_BN & span_BN
    numbers = (inputs.row_B, start_B, stop_B, kept_B.long(), wanted_BN.sum(-1), inputs.wanted_BN.sum(-1))
    return BlockSpan(
        start_B, stop_B, wanted_BN, network.find_source_slots(inputs) % slots, canvas_BN, torch.stack(numbers, -1)
    )


class SeatMemory:
    """Buffers at fixed addresses for the running rows: keys and values of each layer, and the current input.

    Every pass reads and writes the same addresses, so that it can be recorded. The rows of a pass have the first seats,
    in their order.
    """

    def __init__(self, network: Network, rows: int, slots: int):
        model, spec = network.model, network.model.spec
        self.network, self.rows, self.slots = network, rows, slots
        # The spare slots behind the canvas take the writes of spans that are shorter than the pass is wide.
        shape = (rows, spec.kv_heads, slots + SPARE_SLOTS, spec.head_dim)
        self.keys, self.values = (
            [torch.zeros(shape, dtype=model.dtype, device=model.device) for _ in range(spec.layers)] for _ in range(2)
        )
        numbers = partial(torch.zeros, dtype=torch.long, device=model.device)
        flags = partial(torch.zeros, (rows, slots), dtype=torch.bool, device=model.device)
        self.inputs = ModelInput(
            tokens_BN=numbers(rows, slots),
            position_BN=numbers(rows, slots),
            valid_BN=flags().fill_(True),
            fixed_BN=flags(),
            wanted_BN=flags(),
            row_B=numbers(rows),
        )
        self.canvas_BN = numbers(rows, slots).fill_(-1)
        """The canvases of the last pass, -1 for padding."""
        self.span = BlockSpan(
            numbers(rows), numbers(rows), flags(), numbers(rows, slots), numbers(rows, slots), numbers(rows, 6)
        )
        self.fresh_U = numbers(rows + SPARE_ROWS)
        """Rows to compute whole, then the first of them repeated for passes that need more rows."""
        self.place_B = numbers(rows)
        """Place of each row in `fresh_U`; -1 for rows that are not computed whole."""
        self._last_fresh: tuple[int, ...] | None = None
        self.graphs: GraphCache | None = None
        """Graphs that read and write this memory; None where it is too large to be kept with them."""
        self.user: weakref.ref[SeatAssignment] | None = None
        """The running decode that uses this memory; once it is gone, another one may take the memory."""
        self.number = next(_MEMORY_NUMBERS)
        """Number that tells this memory from others in the keys of graphs."""

    @classmethod
    def find_free(cls, network: Network, rows: int, slots: int) -> "SeatMemory":
        """Return a memory that no running decode uses, with its recorded graphs; make a new one if there is none."""
        passes = network.forward
        if not isinstance(passes, PassGraphs):
            return cls(network, rows, slots)
        # Those of running decodes stay in the list, which must not lose them.
        kept, found = [], None
        for memory in passes.seat_memories:
            if memory.user is not None and memory.user() is not None:
                kept.append(memory)
            elif memory.rows == rows and memory.slots == slots and memory.network == network:
                found = memory
        # Other free ones go first, because a new one may need their room.
        passes.seat_memories = kept
        memory = found or cls(network, rows, slots)
        if count_cache_bytes(network, rows, slots) <= GRAPHED_BYTES:
            memory.graphs = memory.graphs or PassGraphs(network.model, MOST_PASS_GRAPHS, passes.pool)
            kept.append(memory)
        return memory

    def find_spans(self, inputs: ModelInput, block: int, to_end: bool) -> list[RowSpan]:
        """Copy the rows of a pass into the memory, and return the part of each row to recompute."""
        assert inputs.row_B is not None
        rows = len(inputs.row_B)
        count = self.round_rows(rows)
        names, here = (*_INPUT_FIELDS, "row_B"), self.view_first_rows(rows)
        copy_in([getattr(here, name) for name in names], [getattr(inputs, name) for name in names])

        def work() -> None:
            # Copied out of memory that the replay of another graph may overwrite.
            here = BlockSpan(*(held[:count] for held in self.span))
            copy_in(
                here, find_block_span(self.view_first_rows(count), self.canvas_BN[:count], self.network, block, to_end)
            )

        self.run(self.graphs, ("spans", block, to_end, count), work)
        return [RowSpan(*numbers) for numbers in self.span.numbers_B6[:rows].tolist()]

    def reorder(self, seats: Sequence[int]) -> None:
        """Move the rows of these seats to the first seats, in this order."""
        seat_U = torch.tensor(seats, device=self.canvas_BN.device)
        for held in (self.canvas_BN, *self.keys, *self.values):
            held[: len(seats)] = held[seat_U]

    def copy_from(self, other: "SeatMemory") -> None:
        """Copy canvases, keys and values from a smaller memory."""
        self.canvas_BN.fill_(-1)
        self.canvas_BN[: other.rows, : other.slots] = other.canvas_BN
        for new, old in zip((*self.keys, *self.values), (*other.keys, *other.values), strict=True):
            new[: other.rows, :, : other.slots] = old[:, :, : other.slots]

    def mark_fresh_rows(self, fresh: Sequence[int], rows: int) -> None:
        """Write to the device which rows are to be computed whole."""
        # Most steps have none, as the step before: then nothing is copied.
        if self._last_fresh == (rows, *fresh):
            return
        self._last_fresh = (rows, *fresh)
        place_B = [-1] * rows
        for place, row in enumerate(fresh):
            place_B[row] = place
        filled = [*fresh, *list(fresh[:1]) * (len(self.fresh_U) - len(fresh))] if fresh else []
        # One copy from the host for both.
        both = torch.tensor([*place_B, *filled], device=self.fresh_U.device)
        self.place_B[:rows] = both[:rows]
        if fresh:
            self.fresh_U.copy_(both[rows:])

    def find_answered_slots(self, inputs: ModelInput) -> tuple[Tensor, Tensor]:
        """Return which wanted slots get logits in this pass, and the number of slots computed of each row."""
        rows, slots = inputs.tokens_BN.shape
        fresh_B, span = self.place_B[:rows] >= 0, BlockSpan(*(held[:rows] for held in self.span))
        wanted_BN = inputs.wanted_BN & (fresh_B[:, None] | span.inside_BN[:, :slots])
        return wanted_BN, torch.where(fresh_B, inputs.valid_BN.sum(-1), (span.stop_B - span.start_B).clamp(min=0))

    def view_first_rows(self, rows: int) -> ModelInput:
        """Return the first rows of the current input, as views of the buffers."""
        return replace(self.inputs, **{name: getattr(self.inputs, name)[:rows] for name in (*_INPUT_FIELDS, "row_B")})

    def run(self, graphs: GraphCache | None, key: Hashable, work: Callable[[], T]) -> T:
        """Run `work`, from a CUDA graph if this memory has graphs, else one operation at a time."""
        if graphs is None:
            return work()
        name = f"passes of a block cache over {self.rows} rows of {self.slots} slots"
        return graphs.run(key, work, name=name)

    def round_rows(self, rows: int) -> int:
        """Round a number of rows up to 1, 2, 3, 4, 6, 8, 12, ... so that few different graphs are recorded."""
        if self.graphs is None:
            return rows
        power = 1 << (rows - 1).bit_length()
        return min(3 * power // 4 if rows <= 3 * power // 4 and power >= 4 else power, self.rows)


class SeatAssignment:
    """The seat of each row of a decode in a `SeatMemory`, and the age of its cached keys and values."""

    def __init__(self, memory: SeatMemory):
        self.memory = memory
        memory.user = weakref.ref(self)
        self.row_ids: list[int] = []
        """Identity of the row in each seat, as in `ModelInput.row_B`."""
        self.bounds: list[tuple[int, int]] = []
        """Start and end of each row's active span at the last pass."""
        self.ages: list[int] = []
        """Passes since each row was last computed whole; 0 means that it is due now."""

    def assign_rows(self, inputs: ModelInput, block: int, to_end: bool) -> list[RowSpan]:
        """Assign the rows of a pass to the first seats, in order, and return the part of each row to recompute.

        A row that was here before keeps its keys, values and age. A new row has no span yet, so only it begins anew.
        The host reads the device once, or twice where rows move.
        """
        for _ in range(2):
            spans = self.memory.find_spans(inputs, block, to_end)
            old = [self.row_ids.index(span.row_id) if span.row_id in self.row_ids else -1 for span in spans]
            self.row_ids = [span.row_id for span in spans]
            self.bounds = [self.bounds[seat] if seat >= 0 else (-1, -1) for seat in old]
            self.ages = [self.ages[seat] if seat >= 0 else 0 for seat in old]
            if all(seat in (-1, at) for at, seat in enumerate(old)):
                break
            # Keys and values follow their rows; the spans are then found again, beside the right canvases.
            self.memory.reorder([max(seat, 0) for seat in old])
        self.memory.canvas_BN[: len(spans)] = self.memory.span.canvas_BN[: len(spans)]
        return spans

    def advance_ages(self, spans: Sequence[RowSpan], refresh: int) -> list[int]:
        """Return the age of each row's cache at this pass, and store its age for the next pass.

        The age is 0 where a new block begins, and where since the last pass more has changed than filled masks of the
        block: tokens were masked again, or another run has begun.
        """
        bounds = [(span.start, span.stop) for span in spans]
        kept = (span.kept and now == old for span, now, old in zip(spans, bounds, self.bounds, strict=True))
        ages = [age if same else 0 for age, same in zip(self.ages, kept, strict=True)]
        self.bounds, self.ages = bounds, [(age + 1) % refresh if refresh else age + 1 for age in ages]
        return ages


@dataclass(frozen=True)
class CachedPass:
    """One pass of a block cache: some rows are computed whole, of the others only their active block."""

    network: Network
    memory: SeatMemory
    shape: PassShape
    graphs: GraphCache | None

    def compute_hidden(self) -> Tensor:
        """Run the layers and return hidden states: of the spans to recompute, or of whole rows where all are due."""
        return (
            self._compute_spans()
            if self.shape.width
            else self._compute_whole_rows(everyone=self.shape.fresh == self.shape.rows)
        )

    def compute_output(self, hidden_BNH: Tensor, packed: Slots, processed_B: Tensor, needs: Needs) -> ModelOutput:
        """Compute the logits of packed slots from hidden states; run a further pass for rows computed whole."""
        memory, slots = self.memory, packed.wanted_BN.shape[1]
        row_R = packed.index_R // slots
        source_R = memory.span.source_BN[row_R, packed.index_R % slots]
        whole_R = memory.place_B[row_R].clamp(min=0) * memory.slots + source_R
        if not self.shape.width:
            x_RH = hidden_BNH.flatten(0, 1)[whole_R]
        else:
            # Rows that begin anew are in this pass, too, and their part of it is not read: one shape for all steps.
            inside_R = (source_R - memory.span.start_B[row_R]).clamp(0, self.shape.width - 1)
            x_RH = hidden_BNH.flatten(0, 1)[row_R * self.shape.width + inside_R]
            if self.shape.fresh:
                whole_RH = self._compute_whole_rows(everyone=False).flatten(0, 1)[whole_R]
                x_RH = torch.where((memory.place_B[row_R] >= 0)[:, None], whole_RH, x_RH)
        normed_RH, logits_RV = self.network.compute_logits(x_RH)
        hidden_RH = normed_RH if needs.hidden else None
        return ModelOutput(logits_RV, packed.wanted_BN, hidden_RH=hidden_RH, processed_B=processed_B, counted=packed)

    def _compute_whole_rows(self, everyone: bool) -> Tensor:
        """Run the layers over the rows that are due, in pieces that fit the row bounds."""
        fresh, bounds = self.shape.fresh, self.network.find_row_bounds(self.memory.slots)
        size = bounds.most or fresh
        parts = []
        for at in range(0, fresh, size):
            piece = min(size, fresh - at)
            count = max(piece if everyone else self._round_rows(piece), bounds.least)
            work = partial(compute_whole_rows, self.memory, at, count)
            x_UNH = self.memory.run(self.graphs, ("fill", at, count), work)[:piece]
            # Cloned, because the next piece may be a replay that writes where this one lies.
            parts.append(x_UNH if piece == fresh else x_UNH.clone())
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _compute_spans(self) -> Tensor:
        """Run the layers over the span of every row, in pieces that fit the row bounds."""
        memory, (rows, width, _) = self.memory, self.shape
        bounds = (
            self.network.find_row_bounds(width, memory.slots + SPARE_SLOTS) if self.network.row_bounds else Bounds()
        )
        size = bounds.most or max(self._round_rows(rows), bounds.least)
        parts: list[Tensor] = []
        done = 0
        while done < rows:
            # A last piece begins earlier instead of being shorter: the same span is computed twice, to the same keys.
            first = max(0, min(done, memory.rows - size))
            stop = min(first + size, memory.rows)
            work = partial(compute_row_spans, memory, first, stop, width)
            # Results of the rows before `done` are computed again and dropped.
            x_BSH = memory.run(self.graphs, ("reuse", first, stop, width), work)[done - first :]
            parts.append(x_BSH if stop >= rows and not parts else x_BSH.clone())
            done = stop
        return (parts[0] if len(parts) == 1 else torch.cat(parts))[:rows]

    def _round_rows(self, rows: int) -> int:
        """Round a number of rows up, so that few shapes are recorded; unchanged without graphs."""
        return rows if self.graphs is None else self.memory.round_rows(rows)


def compute_whole_rows(memory: SeatMemory, at: int, count: int) -> Tensor:
    """Run the layers over whole rows, and store their keys and values in the cache."""
    rows_U = memory.fresh_U[at : at + count]
    some = replace(memory.inputs, **{name: getattr(memory.inputs, name)[rows_U] for name in _INPUT_FIELDS}, row_B=None)
    model = memory.network.model
    bias = make_attention_bias(some, model.dtype)
    x_BNH: Tensor = model(some.tokens_BN, some.position_BN, bias, kv_store=_FillStore(memory, rows_U)).x_BNH
    return x_BNH


def compute_row_spans(memory: SeatMemory, first: int, stop: int, width: int) -> Tensor:
    """Run the layers over parts of rows; keys and values of all other slots come from the cache."""
    some, rows, model = memory.inputs, slice(first, stop), memory.network.model
    index_BS = memory.span.start_B[rows, None] + torch.arange(width, device=some.tokens_BN.device)
    # Behind a row's own span everything goes to the last spare slot, which the bias hides from all queries.
    index_BS = torch.where(index_BS < memory.span.stop_B[rows, None], index_BS, memory.slots + SPARE_SLOTS - 1)
    # The input has no spare slots: what is read in their place is hidden from everybody, and never read.
    inside_BS = index_BS.clamp(max=memory.slots - 1)
    zero = torch.zeros((), dtype=model.dtype, device=index_BS.device)
    bias = torch.where(F.pad(some.valid_BN[rows], (0, SPARE_SLOTS)), zero, float("-inf"))[:, None, None]
    tokens_BS, position_BS = some.tokens_BN[rows].gather(1, inside_BS), some.position_BN[rows].gather(1, inside_BS)
    x_BSH: Tensor = model(tokens_BS, position_BS, bias, kv_store=_ReuseStore(memory, rows, index_BS)).x_BNH
    return x_BSH


@dataclass(frozen=True)
class _FillStore:
    """A KV store that writes the keys and values of whole rows to the cache."""

    memory: SeatMemory
    rows_U: Tensor

    def exchange(self, layer: int, k_BGNF: Tensor, v_BGNF: Tensor) -> tuple[Tensor, Tensor]:
        # Repeated rows of a filled-up pass write the same numbers to the same seat.
        for held, new in ((self.memory.keys, k_BGNF), (self.memory.values, v_BGNF)):
            held[layer][:, :, : self.memory.slots].index_copy_(0, self.rows_U, new)
        return k_BGNF, v_BGNF


@dataclass(frozen=True)
class _ReuseStore:
    """A KV store that updates the cache with the recomputed slots, and returns keys and values of all slots."""

    memory: SeatMemory
    rows: slice
    index_BS: Tensor

    def exchange(self, layer: int, k_BGSF: Tensor, v_BGSF: Tensor) -> tuple[Tensor, Tensor]:
        index = self.index_BS[:, None, :, None].expand_as(k_BGSF)
        keys, values = self.memory.keys[layer][self.rows], self.memory.values[layer][self.rows]
        return keys.scatter_(2, index, k_BGSF), values.scatter_(2, index, v_BGSF)


def count_cache_bytes(network: Network, rows: int, slots: int) -> int:
    """Count the bytes of cached keys and values for a number of rows and slots."""
    spec = network.model.spec
    each = spec.kv_heads * spec.head_dim * network.model.dtype.itemsize
    return 2 * spec.layers * rows * (slots + SPARE_SLOTS) * each


def _pad_to_bucket(slots: int) -> int:
    """Round a number of slots up to a multiple of `BUCKET`."""
    return -(-slots // BUCKET) * BUCKET
