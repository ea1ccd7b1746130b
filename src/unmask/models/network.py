"""The transformer as a denoiser: padding, the logit shift, and the head on wanted slots."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.base.errors import DenoiserError
from unmask.core import ModelInput, ModelOutput, Needs, Slots, State, Vocabulary
from unmask.models.attention_readout import read_attention
from unmask.models.cuda_graphs import GraphCache
from unmask.models.invariance import Bounds, RowBounds
from unmask.models.transformer import Transformer

BUCKET = 32
"""Multiple of slots to which canvases are padded, so that few different shapes and kernels run."""
PACK = 64
"""Multiple of rows on which the head runs: smaller products use other kernels, which round differently."""
PIECE = 2048
"""Most slots in a pass on a CPU: more leave its cache, and cost a quarter to a third more."""
QUERIES = ("own", "predicting")
"""Slots whose attention can be read out for a slot: its own, or the slot at which it is predicted."""


def default_readout_layers(layers: int) -> tuple[int, ...]:
    """Return the default layers to read attention from: four spread over the upper half, which reads content."""
    upper = range(layers // 2, layers)
    return tuple(sorted({upper[(2 * i + 1) * len(upper) // 8] for i in range(4)}))


class LayersOutput(NamedTuple):
    """Result of a pass through the layers."""

    x_BNH: Tensor
    """The last hidden states, before the final norm."""
    attention_BNN: Tensor | None
    """Mean attention of the watched layers; None without any."""


def run_layers(
    model: Transformer,
    tokens_BN: Tensor,
    position_BN: Tensor,
    bias: Tensor,
    *,
    watch: Sequence[int] = (),
) -> LayersOutput:
    """Run all layers, and compute the mean attention of those in `watch`."""
    hidden = model(tokens_BN, position_BN, bias, watch=watch)
    return LayersOutput(hidden.x_BNH, read_attention(model, hidden.watched, bias) if watch else None)


@dataclass(frozen=True)
class Network:
    """A transformer as a denoiser: one forward pass over a padded batch, and the head on wanted slots only."""

    model: Transformer
    vocabulary: Vocabulary
    shift: int = 0
    """0 if slot i predicts itself; 1 if slot i - 1 predicts slot i, except the first, as in Dream."""
    readout: tuple[int, ...] = ()
    """Layers whose attention is averaged when a policy asks for it."""
    query: str = "own"
    """One of `QUERIES`; they differ only where predictions are shifted."""
    forward: Callable[..., LayersOutput] | None = None
    """Function that replays the layers from CUDA graphs; None runs them one operation at a time."""
    row_bounds: RowBounds | None = None
    """Row bounds that give a row the same bits alone and in a batch; None if `invariant` is off."""
    step_graphs: GraphCache | None = None
    """Graphs of whole decoding steps; None where a decode runs them one operation at a time."""

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def variant(self) -> tuple[object, ...]:
        """Settings besides the weights that change the output.

        Part of the key of every recorded graph, because networks with different settings share recordings.
        """
        return self.shift, self.readout, self.query, self.row_bounds is not None, type(self.model.ops)

    def step_denoiser(self, rows: int, slots: int) -> "Network":
        """Return the network without CUDA graphs of its own, as needed inside the graph of a whole step."""
        return replace(self, forward=None, step_graphs=None)

    def plan_pass(self, state: State, rows_B: Tensor) -> Hashable:
        """Return None, because a pass of a plain network needs no plan beyond the sizes of its input."""
        return None

    @torch.inference_mode()
    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        self.check_input(inputs, needs)
        slots = inputs.tokens_BN.shape[1]
        padded = pad_input(inputs, -(-slots // BUCKET) * BUCKET)
        bias = make_attention_bias(padded, self.model.dtype)
        # Before the pass: counting the wanted slots waits for the device, which then has the pass ahead of it.
        counted = inputs.packed or Slots.of(inputs.wanted_BN)
        source_R = self.find_source_slots(padded)[counted.index_R // slots, counted.index_R % slots]
        watch = self.readout if needs.attention else ()
        output = self._run_in_pieces((padded.tokens_BN, padded.position_BN, bias), watch)
        # The last layer ran for every slot: leaving slots out would make a row's bits depend on what others still want.
        normed_RH, logits_RV = self.compute_logits(output.x_BNH.flatten(0, 1)[source_R])
        attention_BNN = output.attention_BNN
        if attention_BNN is not None:
            if self.query == "predicting":
                query_BN = self.find_source_slots(padded) % padded.tokens_BN.shape[1]
                attention_BNN = attention_BNN.gather(1, query_BN[:, :, None].expand_as(attention_BNN))
            attention_BNN = attention_BNN[:, :slots, :slots] * inputs.valid_BN[:, :, None]
        return ModelOutput(
            logits_RV,
            inputs.wanted_BN,
            attention_BNN=attention_BNN,
            hidden_RH=normed_RH if needs.hidden else None,
            counted=counted,
        )

    def check_input(self, inputs: ModelInput, needs: Needs) -> None:
        """Refuse inputs and needs that this network cannot serve."""
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

    def find_row_bounds(self, queries: int, keys: int | None = None) -> Bounds:
        """Find the least and largest number of rows in a pass, for a number of queries and keys per row."""
        # A GPU takes all rows at once; on a CPU a large pass falls out of its cache.
        cut = self.forward is None and self.device.type == "cpu"
        most = max(1, PIECE // queries) if cut else None
        return (
            Bounds(1, most)
            if self.row_bounds is None
            else self.row_bounds.find_layer_bounds(queries, keys or queries, most)
        )

    def find_source_slots(self, inputs: ModelInput) -> Tensor:
        """Return the flat index of the slot at which each slot's prediction is read."""
        batch, slots = inputs.tokens_BN.shape
        source_BN = torch.arange(slots, device=inputs.tokens_BN.device).expand(batch, slots)
        if self.shift:
            # The slot before, if it holds the position before; else (a run of extra slots begins) the canvas's own.
            follows_BN = inputs.position_BN == F.pad(inputs.position_BN, (1, -1), value=-1) + 1
            before_BN = torch.where(follows_BN, source_BN - 1, inputs.position_BN - 1)
            source_BN = torch.where(inputs.position_BN > 0, before_BN, source_BN)
        return source_BN + slots * torch.arange(batch, device=source_BN.device)[:, None]

    def compute_logits(self, x_RH: Tensor) -> tuple[Tensor, Tensor]:
        """Compute normed hidden states and logits of packed hidden states, on a multiple of `PACK` rows."""
        # The head reads packed rows of any canvases, so its bounds count packs and not rows of the batch.
        bounds = Bounds() if self.row_bounds is None else self.row_bounds.find_head_bounds(PACK)
        packs = -(-len(x_RH) // PACK)
        most = (bounds.most or max(packs, bounds.least)) * PACK
        normed, logits = [], []
        for part_RH in x_RH.split(most):
            rows = len(part_RH)
            # Padded with zeros, whose logits are dropped.
            normed_RH = self.model.norm(F.pad(part_RH, (0, 0, 0, max(-rows % PACK, bounds.least * PACK - rows))))
            normed.append(normed_RH[:rows])
            logits.append(self.model.head(normed_RH)[:rows])
        return (normed[0], logits[0]) if len(normed) == 1 else (torch.cat(normed), torch.cat(logits))

    def _run_in_pieces(self, values: tuple[Tensor, Tensor, Tensor], watch: tuple[int, ...]) -> LayersOutput:
        """Run the layers on tokens, positions and bias, in pieces of as many rows as the row bounds allow."""
        rows, slots = values[0].shape
        forward, bounds = self.forward or partial(run_layers, self.model), self.find_row_bounds(slots)
        if bounds.least <= rows <= (bounds.most or rows):
            return forward(*values, watch=watch)
        hidden, attention = [], []
        for piece in zip(*(value.split(bounds.most or rows) for value in values), strict=True):
            count = len(piece[0])
            # The first row is repeated up to the least number of rows, and the copies are dropped.
            copies = max(0, bounds.least - count)
            output = forward(*(torch.cat((x, x[:1].expand(copies, *x.shape[1:]))) for x in piece), watch=watch)
            # Cloned, because a replayed pass leaves its result where the next one writes.
            hidden.append(output.x_BNH[:count].clone())
            if output.attention_BNN is not None:
                attention.append(output.attention_BNN[:count].clone())
        return LayersOutput(torch.cat(hidden), torch.cat(attention) if attention else None)


def pad_input(inputs: ModelInput, slots: int) -> ModelInput:
    """Pad every row to a number of slots; no query attends to the padding."""
    extra = slots - inputs.tokens_BN.shape[1]
    if extra == 0:
        return inputs
    # Token 0 at position 0: any in range would do, since no query reads padding and nothing is wanted of it.
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


def make_attention_bias(inputs: ModelInput, dtype: torch.dtype) -> Tensor:
    """Make the attention bias: 0 where a query may read a key, -inf elsewhere, (B, 1, 1 or N, N).

    It is given also where it is all zeros: with and without a bias attention runs different kernels, which round
    differently, and a row's bits would depend on the padding of its neighbours.
    """
    allowed_BQN = inputs.valid_BN[:, None, :]
    if inputs.attend_BNN is not None:
        allowed_BQN = inputs.attend_BNN & allowed_BQN
        # A query with nothing to read would be NaN. It reads itself, as padding does, and nobody reads either.
        itself_NN = torch.eye(inputs.tokens_BN.shape[1], dtype=torch.bool, device=inputs.tokens_BN.device)
        allowed_BQN = allowed_BQN | (itself_NN & ~allowed_BQN.any(-1, keepdim=True))
    zero = torch.zeros((), dtype=dtype, device=inputs.tokens_BN.device)
    return torch.where(allowed_BQN, zero, float("-inf"))[:, None]
