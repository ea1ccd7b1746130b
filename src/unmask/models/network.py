"""A transformer as a denoiser: views in, logits of the wanted slots out. The only place that knows the logit shift."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.base.errors import DenoiserError, require
from unmask.core import CountedSlots, ModelInput, ModelOutput, Needs, State, Vocabulary
from unmask.models.cuda_graphs import GraphCache
from unmask.models.invariance import Bounds, Floors
from unmask.models.readout import Output, run
from unmask.models.transformer import Transformer

BUCKET = 32
"""Canvases are padded to a multiple of this many slots: few shapes, and room for few kernels to differ in."""
PACK = 64
"""Rows of the head come in multiples of this: small products use other kernels, which round differently."""

PIECE = 2048
"""Slots that go through the layers together on a CPU: more leave its cache, and cost a quarter to a third more."""

QUERIES = ("own", "predicting")

Forward = Callable[..., Output]


@dataclass(frozen=True)
class Network:
    """One forward pass over a padded batch; hidden states of wanted slots are gathered before the head."""

    model: Transformer
    vocabulary: Vocabulary
    shift: int = 0
    """0: slot i predicts itself. 1: slot i - 1 predicts slot i, and the first one itself (Dream)."""
    readout: tuple[int, ...] = ()
    """Layers whose attention is averaged when a policy asks for it."""
    query: str = "own"
    """Whose attention is read out for a slot: its own, or that of the slot its prediction is read at. The same unless
    predictions are shifted."""
    forward: Forward | None = None
    """Runs the layers: the model itself, or something that replays it."""
    floors: Floors | None = None
    """Where a row is to have the same bits alone and in a batch: how many rows a pass needs for that."""
    wanted_only: bool = False
    """Whether only slots that are read go through the second half of the last layer."""
    step_graphs: GraphCache | None = None
    """Graphs of whole decoding steps; None where a decode runs them one operation at a time."""

    def __post_init__(self) -> None:
        require(self.query in QUERIES, "query", self.query, " or ".join(QUERIES), "whose attention is read out")

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def variant(self) -> tuple[object, ...]:
        """What decides, beside the weights, what it says: networks that share a recorder may differ in it."""
        return self.shift, self.readout, self.query, self.wanted_only, self.floors is not None

    def step_denoiser(self, rows: int, slots: int) -> "Network":
        """The network as a part of graphed steps: without graphs of its own, which cannot be recorded inside."""
        return replace(self, forward=None, step_graphs=None)

    def plan_pass(self, state: State, rows_B: Tensor) -> Hashable:
        """Nothing but its sizes decides about the shapes of a pass."""
        return None

    @torch.inference_mode()
    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        self.check(inputs, needs)
        slots = inputs.tokens_BN.shape[1]
        padded = pad_view(inputs, -(-slots // BUCKET) * BUCKET)
        bias = attention_bias(padded, self.model.dtype)
        watch = self.readout if needs.attention else ()
        # Before the pass: counting the wanted slots waits for the device, which then has the pass ahead of it.
        counted = inputs.packed or CountedSlots(inputs.wanted_BN)
        index_R = counted.index_R
        source_R = self.source(padded)[index_R // slots, index_R % slots]
        keep_R = self._kept(source_R, padded) if self.wanted_only else None
        output = self._layers(padded.tokens_BN, padded.position_BN, bias, watch, keep_R)
        x_RH = output.x_BNH.flatten(0, 1)
        normed_RH, logits_RV = self.answers(x_RH[source_R] if keep_R is None else x_RH[: len(source_R)])
        return ModelOutput(
            logits_RV,
            inputs.wanted_BN,
            attention_BNN=self._attention(output, inputs, padded),
            hidden_RH=normed_RH if needs.hidden else None,
            counted=counted,
        )

    def bounds(self, queries: int, keys: int | None = None) -> Bounds:
        """How many rows go through the layers together: on a CPU a few, and enough of them to be invariant."""
        here = self.forward is None and self.device.type == "cpu"
        most = max(1, PIECE // queries) if here else None
        return Bounds(1, most) if self.floors is None else self.floors.rows(queries, keys or queries, most)

    def _kept(self, source_R: Tensor, inputs: ModelInput) -> Tensor | None:
        """Flat slots that go through all of the last layer, filled up to a power of two; None for all.

        Where bits may not depend on how many they are, they are as many as a pass needs for that.
        """
        rows, slots = inputs.tokens_BN.shape
        bounds = self.bounds(slots)
        least = max(PACK, bounds.least * slots if self.floors else 0)
        count = max(1 << (len(source_R) - 1).bit_length() if len(source_R) else 0, least)
        if rows > (bounds.most or rows) or count >= max(rows, bounds.least) * slots:
            return None
        return F.pad(source_R, (0, count - len(source_R)))

    def _layers(
        self, tokens_BN: Tensor, position_BN: Tensor, bias: Tensor, watch: tuple[int, ...], keep_R: Tensor | None
    ) -> Output:
        rows, slots = tokens_BN.shape
        forward, bounds = self.forward or partial(run, self.model), self.bounds(slots)
        if bounds.least <= rows <= (bounds.most or rows):
            kept = () if keep_R is None else (keep_R,)
            return forward(tokens_BN, position_BN, bias, *kept, watch=watch)
        size = bounds.most or rows
        pieces = zip(tokens_BN.split(size), position_BN.split(size), bias.split(size), strict=True)
        parts = [_filled_up(forward, bounds.least, piece, watch) for piece in pieces]
        read = [part.attention_BNN for part in parts if part.attention_BNN is not None]
        return Output(torch.cat([part.x_BNH for part in parts]), torch.cat(read) if read else None)

    def _attention(self, output: Output, inputs: ModelInput, padded: ModelInput) -> Tensor | None:
        """The read-out of each slot's query, cut to the view's slots."""
        attention_BNN, slots = output.attention_BNN, inputs.tokens_BN.shape[1]
        if attention_BNN is None:
            return None
        if self.query == "predicting":
            query_BN = self.source(padded) % padded.tokens_BN.shape[1]
            attention_BNN = attention_BNN.gather(1, query_BN[:, :, None].expand_as(attention_BNN))
        return attention_BNN[:, :slots, :slots] * inputs.valid_BN[:, :, None]

    def source(self, inputs: ModelInput) -> Tensor:
        """Flat index of the slot that each slot's prediction is read at."""
        batch, slots = inputs.tokens_BN.shape
        own_BN = torch.arange(slots, device=inputs.tokens_BN.device).expand(batch, slots)
        if self.shift:
            # The slot before, if it holds the position before; else (a run of extra slots begins) the canvas's own.
            follows_BN = inputs.position_BN == F.pad(inputs.position_BN, (1, -1), value=-1) + 1
            before_BN = torch.where(follows_BN, own_BN - 1, inputs.position_BN - 1)
            own_BN = torch.where(inputs.position_BN > 0, before_BN, own_BN)
        return own_BN + slots * torch.arange(batch, device=own_BN.device)[:, None]

    def answers(self, x_RH: Tensor) -> tuple[Tensor, Tensor]:
        """Packed hidden states through the final norm, and their logits; both on a multiple of `PACK` rows."""
        bounds = Bounds() if self.floors is None else self.floors.packs(PACK)
        packs = -(-len(x_RH) // PACK)
        most = (bounds.most or max(packs, bounds.least)) * PACK
        parts = [self._pieces_answer(part_RH, bounds.least * PACK) for part_RH in x_RH.split(most)]
        if len(parts) == 1:
            return parts[0]
        return torch.cat([normed_RH for normed_RH, _ in parts]), torch.cat([logits_RV for _, logits_RV in parts])

    def _pieces_answer(self, x_RH: Tensor, least: int) -> tuple[Tensor, Tensor]:
        rows = len(x_RH)
        normed_RH = self.model.norm(F.pad(x_RH, (0, 0, 0, max(-rows % PACK, least - rows))))
        return normed_RH[:rows], self.model.head_of(normed_RH)[:rows]

    def check(self, inputs: ModelInput, needs: Needs) -> None:
        if needs.attention and not self.readout:
            raise DenoiserError("no layers to read attention from; allowed: one or more; load the model with readout")
        if self.shift and needs.shadows:
            raise DenoiserError(
                "the policy verifies tokens with slots that may not see them, but this model's predictions are read "
                "one slot early, where they can be seen; allowed: policies without shadow slots; choose another"
            )
        # Out of range, an embedding look-up on a GPU kills the process's CUDA context; here it costs a host read.
        if inputs.tokens_BN.device.type == "cpu" and inputs.packed is None:
            low, high = int(inputs.tokens_BN.min()), int(inputs.tokens_BN.max())
            if low < 0 or high >= self.model.spec.vocab:
                raise DenoiserError(
                    f"a canvas holds token {low if low < 0 else high}; allowed: 0 to {self.model.spec.vocab - 1}; "
                    "encode the text with this model's tokenizer"
                )


def _filled_up(forward: Forward, least: int, piece: tuple[Tensor, ...], watch: tuple[int, ...]) -> Output:
    """A pass over at least so many rows: the first one is repeated, and nobody reads the copies."""
    rows = len(piece[0])
    more = max(0, least - rows)
    output = forward(*(torch.cat((x, x[:1].expand(more, *x.shape[1:]))) for x in piece), watch=watch)
    attention_BNN = output.attention_BNN
    # A replayed pass leaves its result where the next one writes.
    return Output(output.x_BNH[:rows].clone(), None if attention_BNN is None else attention_BNN[:rows].clone())


def pad_view(inputs: ModelInput, slots: int) -> ModelInput:
    """The same view with padding slots behind it; nothing attends to them."""
    extra = slots - inputs.tokens_BN.shape[1]
    if extra == 0:
        return inputs
    return replace(
        inputs,
        tokens_BN=F.pad(inputs.tokens_BN, (0, extra)),
        position_BN=F.pad(inputs.position_BN, (0, extra)),
        valid_BN=F.pad(inputs.valid_BN, (0, extra)),
        fixed_BN=F.pad(inputs.fixed_BN, (0, extra)),
        wanted_BN=F.pad(inputs.wanted_BN, (0, extra)),
        attend_BNN=None if inputs.attend_BNN is None else F.pad(inputs.attend_BNN, (0, extra, 0, extra)),
        given_BN=None if inputs.given_BN is None else F.pad(inputs.given_BN, (0, extra), value=-1),
    )


def attention_bias(inputs: ModelInput, dtype: torch.dtype) -> Tensor:
    """0 where a query may read a key, -inf elsewhere: (B, 1, 1 or N, N).

    Always given, also when it is all zeros: with and without a bias, attention runs other kernels that round
    differently, and a row's bits would depend on its neighbours' padding.
    """
    allowed_BQN = inputs.valid_BN[:, None, :]
    if inputs.attend_BNN is not None:
        allowed_BQN = inputs.attend_BNN & allowed_BQN
        # A query with nothing to read would be NaN: it reads itself, as padding does, which nobody else reads.
        itself_NN = torch.eye(inputs.tokens_BN.shape[1], dtype=torch.bool, device=inputs.tokens_BN.device)
        allowed_BQN = allowed_BQN | (itself_NN & ~allowed_BQN.any(-1, keepdim=True))
    zero = torch.zeros((), dtype=dtype, device=inputs.tokens_BN.device)
    return torch.where(allowed_BQN, zero, float("-inf"))[:, None]
