"""A transformer as a denoiser: views in, logits of the wanted slots out. The only place that knows the logit shift."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.core import Logits, Needs, View, Vocabulary
from unmask.core.prediction import CountedSlots
from unmask.denoisers.readout import Output, run
from unmask.denoisers.transformer import Transformer
from unmask.errors import DenoiserError
from unmask.recorded import StepRecorder

BUCKET = 32
"""Canvases are padded to a multiple of this many slots: few shapes, and room for few kernels to differ in."""
PACK = 64
"""Rows of the head come in multiples of this: small products use other kernels, which round differently."""

PIECE = 2048
"""Slots that go through the layers together on a CPU: more leave its cache, and cost a quarter to a third more."""

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
    forward: Forward | None = None
    """Runs the layers: the model itself, or something that replays it."""
    recorder: StepRecorder | None = None
    """Keeps recordings of whole steps; None where a decode runs them one operation at a time."""

    @property
    def device(self) -> torch.device:
        return self.model.device

    @torch.inference_mode()
    def __call__(self, view: View, needs: Needs) -> Logits:
        self._check(view, needs)
        slots = view.tokens_BN.shape[1]
        padded = pad_view(view, -(-slots // BUCKET) * BUCKET)
        bias = attention_bias(padded, self.model.dtype)
        watch = self.readout if needs.attention else ()
        # Before the pass: counting the wanted slots waits for the device, which then has the pass ahead of it.
        counted = view.packed or CountedSlots(view.wanted_BN)
        index_R = counted.index_R
        source_R = self.source(padded)[index_R // slots, index_R % slots]
        output = (self.forward or self._layers)(padded.tokens_BN, padded.position_BN, bias, watch=watch)
        normed_RH = self.normed(output.x_BNH, source_R)
        attention_BNN = output.attention_BNN
        if attention_BNN is not None:
            attention_BNN = attention_BNN[:, :slots, :slots] * view.valid_BN[:, :, None]
        return Logits(
            self.logits(normed_RH),
            view.wanted_BN,
            attention_BNN=attention_BNN,
            hidden_RH=normed_RH if needs.hidden else None,
            counted=counted,
        )

    def _layers(self, tokens_BN: Tensor, position_BN: Tensor, bias: Tensor, watch: tuple[int, ...]) -> Output:
        """The layers, on a CPU a few rows at a time."""
        rows, slots = tokens_BN.shape
        size = max(1, PIECE // slots) if tokens_BN.device.type == "cpu" else rows
        if rows <= size:
            return run(self.model, tokens_BN, position_BN, bias, watch=watch)
        pieces = zip(tokens_BN.split(size), position_BN.split(size), bias.split(size), strict=True)
        parts = [run(self.model, *piece, watch=watch) for piece in pieces]
        read = [part.attention_BNN for part in parts if part.attention_BNN is not None]
        return Output(torch.cat([part.x_BNH for part in parts]), torch.cat(read) if read else None)

    def source(self, view: View) -> Tensor:
        """Flat index of the slot that each slot's prediction is read at."""
        batch, slots = view.tokens_BN.shape
        own_BN = torch.arange(slots, device=view.tokens_BN.device).expand(batch, slots)
        if self.shift:
            # The slot before, if it holds the position before; else (a run of extra slots begins) the canvas's own.
            follows_BN = view.position_BN == F.pad(view.position_BN, (1, -1), value=-1) + 1
            before_BN = torch.where(follows_BN, own_BN - 1, view.position_BN - 1)
            own_BN = torch.where(view.position_BN > 0, before_BN, own_BN)
        return own_BN + slots * torch.arange(batch, device=own_BN.device)[:, None]

    def normed(self, x_BNH: Tensor, index_R: Tensor) -> Tensor:
        """Hidden states of some slots, through the final norm."""
        return self.model.norm(x_BNH.flatten(0, 1)[index_R])

    def logits(self, normed_RH: Tensor) -> Tensor:
        """The head, on a multiple of `PACK` rows."""
        rows = len(normed_RH)
        return self.model.head_of(F.pad(normed_RH, (0, 0, 0, -rows % PACK)))[:rows]

    def _check(self, view: View, needs: Needs) -> None:
        if needs.attention and not self.readout:
            raise DenoiserError("no layers to read attention from; allowed: one or more; load the model with readout")
        if self.shift and needs.shadows:
            raise DenoiserError(
                "the policy verifies tokens with slots that may not see them, but this model's predictions are read "
                "one slot early, where they can be seen; allowed: policies without shadow slots; choose another"
            )
        # Out of range, an embedding look-up on a GPU kills the process's CUDA context; here it costs a host read.
        if view.tokens_BN.device.type == "cpu" and view.packed is None:
            low, high = int(view.tokens_BN.min()), int(view.tokens_BN.max())
            if low < 0 or high >= self.model.spec.vocab:
                raise DenoiserError(
                    f"a canvas holds token {low if low < 0 else high}; allowed: 0 to {self.model.spec.vocab - 1}; "
                    "encode the text with this model's tokenizer"
                )


def pad_view(view: View, slots: int) -> View:
    """The same view with padding slots behind it; nothing attends to them."""
    extra = slots - view.tokens_BN.shape[1]
    if extra == 0:
        return view
    return replace(
        view,
        tokens_BN=F.pad(view.tokens_BN, (0, extra)),
        position_BN=F.pad(view.position_BN, (0, extra)),
        valid_BN=F.pad(view.valid_BN, (0, extra)),
        fixed_BN=F.pad(view.fixed_BN, (0, extra)),
        wanted_BN=F.pad(view.wanted_BN, (0, extra)),
        attend_BNN=None if view.attend_BNN is None else F.pad(view.attend_BNN, (0, extra, 0, extra)),
        given_BN=None if view.given_BN is None else F.pad(view.given_BN, (0, extra), value=-1),
    )


def attention_bias(view: View, dtype: torch.dtype) -> Tensor:
    """0 where a query may read a key, -inf elsewhere: (B, 1, 1 or N, N).

    Always given, also when it is all zeros: with and without a bias, attention runs other kernels that round
    differently, and a row's bits would depend on its neighbours' padding.
    """
    allowed_BQN = view.valid_BN[:, None, :]
    if view.attend_BNN is not None:
        allowed_BQN = view.attend_BNN & allowed_BQN
        # A query with nothing to read would be NaN: it reads itself, as padding does, which nobody else reads.
        itself_NN = torch.eye(view.tokens_BN.shape[1], dtype=torch.bool, device=view.tokens_BN.device)
        allowed_BQN = allowed_BQN | (itself_NN & ~allowed_BQN.any(-1, keepdim=True))
    zero = torch.zeros((), dtype=dtype, device=view.tokens_BN.device)
    return torch.where(allowed_BQN, zero, float("-inf"))[:, None]
