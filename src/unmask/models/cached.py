"""Approximate block caches (Fast-dLLM, Wu et al.): keys and values outside the active block are reused between steps.

In a bidirectional network every key beyond the first layer depends on every token, so reuse is an approximation:
results differ from those of the plain network, and everything that reports them says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from unmask.base.errors import DenoiserError, require
from unmask.core import CountedSlots, ModelInput, ModelOutput, Needs, Vocabulary
from unmask.models.cached_steps import CachedSteps
from unmask.models.graphs import Graphs
from unmask.models.kv_buffers import RECORDED_BYTES, SPARE, KVBuffers, PassPlan, RowClock, SpanRule
from unmask.models.network import BUCKET, Network, pad_input

KINDS = ("prefix", "dual")


@dataclass(frozen=True)
class BlockCache:
    """A network that, inside a block of the answer, recomputes only part of the canvas.

    A row's active block is the leftmost one with a mask. The first pass of a block is complete and fills the cache
    (so does every `refresh`-th); later ones recompute the block alone (`dual`) or the block and all behind it
    (`prefix`), and predict only there. Each row has its own clock and memory, so neighbours do not matter, as long
    as a row takes part in every pass until it is finished: policies that look ahead may skip one.
    """

    network: Network
    kind: str
    block: int
    """Answer positions per block: the policy's own block length."""
    refresh: int = 0
    """A complete pass every so many passes of a block; 0 for one at its start, 1 for no reuse at all."""
    _kept: "dict[str, _Memory]" = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        require(self.kind in KINDS, "cache", self.kind, " or ".join(KINDS), "or leave it out: the exact network")
        require(self.block >= 1, "block", self.block, "1 or more", "use the policy's block length")
        require(self.refresh >= 0, "cache_refresh", self.refresh, "0 or more", "0 refreshes at the start of a block")

    @property
    def vocabulary(self) -> Vocabulary:
        return self.network.vocabulary

    @property
    def device(self) -> torch.device:
        return self.network.device

    @torch.inference_mode()
    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        if inputs.row_B is None:
            # A look at a hypothetical canvas: nothing of it may enter a real row's memory.
            return self.network(inputs, needs)
        self._check(inputs, needs)
        self.network.check(inputs, needs)
        slots = inputs.tokens_BN.shape[1]
        padded = pad_input(inputs, -(-slots // BUCKET) * BUCKET)
        memory, clocks, ages = self._ages(padded)
        plan = self._plan(memory.buffers, clocks, [b for b, age in enumerate(ages) if age == 0])
        # Started before slots are packed: the device need not wait for that.
        started = memory.buffers.start(plan)
        count = sum(clock.inside if age else clock.wanted for clock, age in zip(clocks, ages, strict=True))
        whole = plan.fresh == plan.rows
        wanted_BN, processed_B = (inputs.wanted_BN, None) if whole else memory.buffers.answered(inputs)
        counted = _KnownSlots(wanted_BN, count)
        normed_RH, logits_RV = self.network.answers(memory.buffers.hidden(plan, started, counted))
        # Only now: what a pass left that did not come to its end is not to be read.
        self._kept["memory"] = memory
        return ModelOutput(
            logits_RV,
            counted.wanted_BN,
            hidden_RH=normed_RH if needs.hidden else None,
            processed_B=processed_B,
            counted=counted,
        )

    @property
    def recorder(self) -> CachedSteps | None:
        """Records whole steps where the network's are recorded."""
        return None if self.network.recorder is None else CachedSteps(self, self.network.recorder)

    @property
    def variant(self) -> tuple[object, ...]:
        """That of its network."""
        return self.network.variant

    @property
    def settings(self) -> tuple[object, ...]:
        """All that the spans depend on."""
        return type(self).__name__, self.kind, self.block, self.refresh

    def records(self, rows: int, slots: int) -> bool:
        """Whether the buffers of so many rows are small enough to be kept with recordings."""
        padded = -(-slots // BUCKET) * BUCKET
        cut = self.network.floors is not None and self.network.bounds(padded).most is not None
        return KVBuffers.bytes(self.network, rows, padded) <= RECORDED_BYTES and not cut

    def plan(self, inputs: ModelInput) -> tuple[KVBuffers, PassPlan]:
        """What the next pass over these rows recomputes, for a step that runs it. Rows that are done stay so."""
        padded = pad_input(inputs, -(-inputs.tokens_BN.shape[1] // BUCKET) * BUCKET)
        memory, clocks, ages = self._ages(padded)
        fresh = [b for b, age in enumerate(ages) if age == 0 and clocks[b].start < clocks[b].stop]
        self._kept["memory"] = memory
        return memory.buffers, self._plan(memory.buffers, clocks, fresh)

    def _ages(self, inputs: ModelInput) -> tuple["_Memory", list[RowClock], list[int]]:
        """The memory of these rows, their clocks, and how old it is of each."""
        memory = self._memory(inputs)
        clocks = self._clocks(memory, inputs)
        return memory, clocks, memory.advance(clocks, self.refresh)

    def _memory(self, inputs: ModelInput) -> "_Memory":
        """Room for this many rows of this many slots: what there is, or else anew."""
        rows, slots = inputs.tokens_BN.shape
        old = self._kept.pop("memory", None)
        if old is not None and rows <= old.buffers.rows and slots == old.buffers.slots:
            return old
        # Given back first: the new one may need its room.
        del old
        # The narrowest passes need most rows.
        least = self.network.bounds(min(BUCKET, slots), slots + SPARE).least if self.network.floors else 1
        return _Memory.lease(self.network, max(rows, least), slots)

    def _clocks(self, memory: "_Memory", inputs: ModelInput) -> list[RowClock]:
        """The rows' clocks, by one read of the host; memory then holds these rows and no others."""
        assert inputs.row_B is not None
        rule = SpanRule(self.block, self.kind == "prefix", self.vocabulary.mask_id, self.network.shift)
        for _ in range(2):
            memory.buffers.load(inputs)
            spans = memory.buffers.spans(rule, len(inputs.row_B))
            clocks = [RowClock(*numbers) for numbers in spans.numbers_B6.tolist()]
            if memory.hold([clock.id for clock in clocks]):
                break
        memory.buffers.canvas_BN[: len(clocks)] = spans.canvas_BN
        return clocks

    def _plan(self, buffers: KVBuffers, clocks: Sequence[RowClock], fresh: Sequence[int]) -> PassPlan:
        """The shapes of a pass in which some rows begin anew; the buffers know which."""
        begun = set(fresh)
        spans = [c.stop - c.start for b, c in enumerate(clocks) if b not in begun and c.start < c.stop]
        buffers.begin(fresh, len(clocks))
        width = self._width(max(spans, default=1), buffers.slots) if spans or not fresh else 0
        return PassPlan(len(clocks), width, len(fresh))

    def _width(self, width: int, slots: int) -> int:
        """Slots of a partial pass: few different numbers where each has its own recording, or its own bits."""
        fixed = self.network.forward is not None or self.network.floors is not None
        return min(-(-width // BUCKET) * BUCKET, slots) if fixed else width

    def _check(self, inputs: ModelInput, needs: Needs) -> None:
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


class _KnownSlots(CountedSlots):
    """Wanted slots whose number is known: nothing waits for the device."""

    __slots__ = ()

    def __init__(self, wanted_BN: Tensor, count: int):
        flags_N = wanted_BN.flatten()
        # Each wanted slot is written at its rank among them, all others behind the end.
        rank_N = torch.where(flags_N, flags_N.cumsum(0) - 1, count)
        slot_N = torch.arange(len(flags_N), device=flags_N.device)
        self.wanted_BN, self.index_R = wanted_BN, slot_N.new_zeros(count + 1).scatter_(0, rank_N, slot_N)[:count]


class _Memory:
    """Which rows the buffers hold, in order, and how old each one's keys and values are."""

    def __init__(self, buffers: KVBuffers):
        self.buffers = buffers
        self.ids: list[int] = []
        self.spans: list[tuple[int, int]] = []
        self.ages: list[int] = []
        """Passes since the last complete one; 0 asks for one."""

    @classmethod
    def lease(cls, network: Network, rows: int, slots: int) -> "_Memory":
        """Buffers that nobody uses now, or new ones."""
        idle = network.forward.idle if isinstance(network.forward, Graphs) else []
        for at, buffers in enumerate(idle):
            if buffers.rows == rows and buffers.slots == slots and buffers.network == network:
                return cls(idle.pop(at))
        idle.clear()
        return cls(KVBuffers(network, rows, slots))

    def __del__(self) -> None:
        """The next decode may go on with the buffers, and with the recordings that read them."""
        if self.buffers.replays is not None and isinstance(self.buffers.network.forward, Graphs):
            self.buffers.network.forward.idle[:] = [self.buffers]

    def hold(self, ids: list[int]) -> bool:
        """Hold these rows and no others; whether they stand where they stood. New ones begin all of them anew."""
        if ids == self.ids:
            return True
        known = set(ids) <= set(self.ids)
        at = [self.ids.index(row) for row in ids] if known else []
        self.buffers.keep(at)
        self.spans = [self.spans[j] for j in at] if known else [(-1, -1)] * len(ids)
        self.ages = [self.ages[j] for j in at] if known else [0] * len(ids)
        self.ids = ids
        return not known

    def advance(self, clocks: Sequence[RowClock], refresh: int) -> list[int]:
        """The ages at this pass. A new block begins anew, at age 0; so does any change of the canvas since the last
        pass but masks of the span being filled: re-masked tokens, or another run.
        """
        now = [(clock.start, clock.stop) for clock in clocks]
        kept = (clock.kept and span == old for clock, span, old in zip(clocks, now, self.spans, strict=True))
        ages = [age if same else 0 for age, same in zip(self.ages, kept, strict=True)]
        step = [age + 1 for age in ages]
        self.spans, self.ages = now, [age % refresh for age in step] if refresh else step
        return ages
