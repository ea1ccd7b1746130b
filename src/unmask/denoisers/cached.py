"""Approximate block caches (Fast-dLLM, Wu et al.): keys and values outside the active block are reused between steps.

In a bidirectional network every key beyond the first layer depends on every token, so reuse is an approximation:
results differ from those of the plain network, and everything that reports them says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from unmask.core import Logits, Needs, View, Vocabulary
from unmask.core.rows import select
from unmask.denoisers.network import BUCKET, Network, attention_bias, pad_view
from unmask.denoisers.readout import Output, run
from unmask.errors import DenoiserError, require

KINDS = ("prefix", "dual")
_SPARE = 8
"""Slots behind every remembered row: rows with less to recompute than others write there, and nobody reads it."""


@dataclass(frozen=True)
class ApproximateCache:
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
    _kept: "dict[str, _CachedRows]" = field(default_factory=dict, repr=False, compare=False)

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
    def __call__(self, view: View, needs: Needs) -> Logits:
        if view.row_B is None:
            # A look at a hypothetical canvas: nothing of it may enter a real row's memory.
            return self.network(view, needs)
        self._check(view, needs)
        spans = self._spans(view)
        memory = self._recall(view, spans)
        groups = {
            self._fill: [b for b, age in enumerate(memory.age) if age == 0],
            self._reuse: [b for b, age in enumerate(memory.age) if age > 0],
        }
        parts = [
            (rows, run(select(view, torch.tensor(rows, device=self.device)), needs, memory, rows))
            for run, rows in groups.items()
            if rows
        ]
        step = [age + 1 for age in memory.age]
        self._kept["memory"] = replace(memory, age=[age % self.refresh for age in step] if self.refresh else step)
        return parts[0][1] if len(parts) == 1 else _interleave(parts, view)

    def _spans(self, view: View) -> list[tuple[int, int]]:
        """First and last slot (exclusive) to recompute, per row."""
        answer_BN = view.valid_BN & ~view.fixed_BN
        block_BN = (answer_BN.long().cumsum(-1) - 1) // self.block
        masked_BN = answer_BN & (view.tokens_BN == self.vocabulary.mask_id)
        active_B1 = torch.where(masked_BN, block_BN, view.tokens_BN.shape[1]).amin(-1, keepdim=True)
        inside_BN = answer_BN & (block_BN == active_B1)
        slot_N = torch.arange(view.tokens_BN.shape[1], device=self.device)
        # Dream reads position i at slot i - 1, so the slot before the block is recomputed with it.
        start_B = (torch.where(inside_BN, slot_N, len(slot_N)).amin(-1) - self.network.shift).clamp(min=0)
        last_BN = inside_BN if self.kind == "dual" else view.valid_BN
        stop_B = torch.where(last_BN, slot_N + 1, 0).amax(-1)
        return list(zip(start_B.tolist(), stop_B.tolist(), strict=True))

    def _recall(self, view: View, spans: list[tuple[int, int]]) -> "_CachedRows":
        """What is remembered of these rows. A new block begins anew, at age 0; so does any change of the canvas
        since the last pass but masks of the span being filled: re-masked tokens, or another run.
        """
        assert view.row_B is not None
        ids, old = view.row_B.tolist(), self._kept.pop("memory", None)
        slots = -(-view.tokens_BN.shape[1] // BUCKET) * BUCKET + _SPARE
        canvas_BN = torch.where(view.valid_BN, view.tokens_BN, -1)
        if old is None or old.tokens_BN.shape[1] != canvas_BN.shape[1] or not set(ids) <= set(old.ids):
            return _CachedRows.empty(self.network, ids, spans, canvas_BN, slots)
        at = [old.ids.index(i) for i in ids]
        if ids != old.ids:
            old = old.select(torch.tensor(at, device=self.device))
        filled_BN = (old.tokens_BN == self.vocabulary.mask_id) & _inside(spans, view)
        valid_B = ((old.tokens_BN == canvas_BN) | filled_BN).all(-1).tolist()
        age = [
            old.age[j] if valid and old.spans[j] == span else 0
            for j, valid, span in zip(at, valid_B, spans, strict=True)
        ]
        return replace(old, ids=ids, spans=spans, tokens_BN=canvas_BN, age=age)

    def _fill(self, view: View, needs: Needs, memory: "_CachedRows", rows: list[int]) -> Logits:
        """A complete pass that leaves its keys and values behind."""
        target = _Fill(memory, torch.tensor(rows, device=self.device))

        def forward(*args: Tensor, **options: Any) -> Output:
            return run(self.network.model, *args, **options, memory=target)

        return replace(self.network, forward=forward)(view, needs)

    def _reuse(self, view: View, needs: Needs, memory: "_CachedRows", rows: list[int]) -> Logits:
        """A pass over each row's span that reads the remembered rest."""
        batch, slots = view.tokens_BN.shape
        whole = pad_view(view, memory.keys[0].shape[2])
        start_B, stop_B = torch.tensor([memory.spans[b] for b in rows], device=self.device).T
        offset_S = torch.arange(int((stop_B - start_B).max()), device=self.device)
        index_BS = start_B[:, None] + offset_S
        index_BS = torch.where(index_BS < stop_B[:, None], index_BS, whole.tokens_BN.shape[1] - 1)
        everyone = len(rows) == len(memory.ids)
        source = _Reuse(memory if everyone else memory.select(torch.tensor(rows, device=self.device)), index_BS)
        hidden = self.network.model(
            whole.tokens_BN.gather(1, index_BS),
            whole.position_BN.gather(1, index_BS),
            attention_bias(whole, self.network.model.dtype),
            memory=source,
        )
        wanted_BN = view.wanted_BN & _inside([memory.spans[b] for b in rows], view)
        # Where a prediction is read: its slot in the row, counted from the span's start.
        read_BN = self.network.source(view) % slots - start_B[:, None]
        flat_BN = read_BN + len(offset_S) * torch.arange(batch, device=self.device)[:, None]
        normed_RH = self.network.normed(hidden.x_BNH, flat_BN[wanted_BN])
        return Logits(
            self.network.logits(normed_RH),
            wanted_BN,
            hidden_RH=normed_RH if needs.hidden else None,
            processed_B=stop_B - start_B,
        )

    def _check(self, view: View, needs: Needs) -> None:
        refused = {
            "pairwise attention": view.attend_BNN is not None,
            "attention": needs.attention,
            "predictions of revealed tokens": needs.revealed,
        }
        for name, asked in refused.items():
            if asked:
                raise DenoiserError(
                    f"the policy asks for {name}; allowed: predictions of masked slots under an approximate cache; "
                    "choose another policy, or leave the cache out"
                )


@dataclass(frozen=True)
class _CachedRows:
    """Keys and values of running rows, by layer, and what they were computed from."""

    ids: list[int]
    spans: list[tuple[int, int]]
    tokens_BN: Tensor
    """The canvases of the last pass, -1 for padding."""
    age: list[int]
    """Passes since the last complete one."""
    keys: list[Tensor]
    values: list[Tensor]

    @classmethod
    def empty(
        cls, network: Network, ids: list[int], spans: list[tuple[int, int]], tokens_BN: Tensor, slots: int
    ) -> "_CachedRows":
        spec, model = network.model.spec, network.model
        shape = (len(ids), spec.kv_heads, slots, spec.head_dim)
        keys, values = (
            [torch.zeros(shape, dtype=model.dtype, device=model.device) for _ in range(spec.layers)] for _ in range(2)
        )
        return cls(ids, spans, tokens_BN, [0] * len(ids), keys, values)

    def select(self, rows_U: Tensor) -> "_CachedRows":
        """Tensors of some rows; the caller names them anew."""
        return replace(
            self,
            tokens_BN=self.tokens_BN[rows_U],
            keys=[k[rows_U] for k in self.keys],
            values=[v[rows_U] for v in self.values],
        )


@dataclass(frozen=True)
class _Fill:
    memory: _CachedRows
    rows_U: Tensor

    def exchange(self, layer: int, k_BGNF: Tensor, v_BGNF: Tensor) -> tuple[Tensor, Tensor]:
        slots = k_BGNF.shape[2]
        self.memory.keys[layer][self.rows_U, :, :slots] = k_BGNF
        self.memory.values[layer][self.rows_U, :, :slots] = v_BGNF
        return k_BGNF, v_BGNF


@dataclass(frozen=True)
class _Reuse:
    """Remembered keys and values, those of the span overwritten by the pass's own."""

    memory: _CachedRows
    index_BS: Tensor

    def exchange(self, layer: int, k_BGSF: Tensor, v_BGSF: Tensor) -> tuple[Tensor, Tensor]:
        index = self.index_BS[:, None, :, None].expand_as(k_BGSF)
        return self.memory.keys[layer].scatter_(2, index, k_BGSF), self.memory.values[layer].scatter_(2, index, v_BGSF)


def _inside(spans: Sequence[tuple[int, int]], view: View) -> Tensor:
    slot_N = torch.arange(view.tokens_BN.shape[1], device=view.tokens_BN.device)
    start_B, stop_B = torch.tensor(spans, device=slot_N.device).T
    return (slot_N >= start_B[:, None]) & (slot_N < stop_B[:, None])


def _interleave(parts: Sequence[tuple[list[int], Logits]], view: View) -> Logits:
    """Answers for several groups of rows as one, in row order."""
    device = view.tokens_BN.device
    wanted_BN = torch.zeros_like(view.wanted_BN)
    processed_B = view.valid_BN.sum(-1)
    owner: list[Tensor] = []
    for rows, logits in parts:
        rows_U = torch.tensor(rows, device=device)
        wanted_BN[rows_U] = logits.wanted_BN
        if logits.processed_B is not None:
            processed_B[rows_U] = logits.processed_B
        owner.append(rows_U[logits.index_R // wanted_BN.shape[1]])
    # Within a row the order is kept, so a stable sort by row is all it takes.
    order_R = torch.cat(owner).argsort(stable=True)
    hidden = [logits.hidden_RH for _, logits in parts if logits.hidden_RH is not None]
    return Logits(
        torch.cat([logits.logits_RV for _, logits in parts])[order_R],
        wanted_BN,
        hidden_RH=torch.cat(hidden)[order_R] if hidden else None,
        processed_B=processed_B,
    )
