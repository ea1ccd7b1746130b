"""What goes into a model and what comes out of it: one forward pass over all rows of a batch."""

from dataclasses import dataclass, fields
from typing import Protocol

import torch
from torch import Tensor

from unmask.core.batch import BatchValue
from unmask.core.state import State


@dataclass(frozen=True)
class Vocabulary:
    """The token ids that sampling has to know about."""

    size: int
    mask_id: int
    eos_ids: tuple[int, ...] = ()
    """End of text first, then end of turn, as far as the model has them."""


@dataclass(frozen=True)
class Needs:
    """What a policy reads beyond the sampled token. It is static, so that nothing is computed for nobody."""

    top_k: int = 2
    """How many of the largest probabilities."""
    draws: int = 1
    """How many independent tokens to sample per position; they differ only above temperature 0."""
    filtered: bool = False
    """Statistics of the tempered, filtered distribution as well (Dream scores that one)."""
    divergence: bool = False
    """KL in both directions against the previous step's posterior."""
    posterior: bool = False
    """The whole posterior of the wanted positions."""
    attention: bool = False
    """The denoiser's attention read-out, query by key."""
    hidden: bool = False
    """Hidden states of the wanted positions."""
    revealed: bool = False
    """Predictions at revealed answer positions too, not only at masked ones."""
    shadows: bool = False
    """Extra slots that predict tokens they may not see: each prediction must be read at its own slot."""
    planner: bool = False
    """The run's second network on hypothetical canvases (`LookAhead.ask_planner`)."""

    def __or__(self, other: "Needs") -> "Needs":
        """Return the needs of both together."""
        # Flags and counts alike: True is the larger of two truth values.
        return Needs(**{f.name: max(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)})


class Slots:
    """Flat index of the slot that each packed row of logits belongs to.

    They belong to one tensor of flags: after rows were cut or joined, slots are counted anew. So this is no dataclass,
    whose tensors `select` and `concat` would change.
    """

    __slots__ = ("index_R", "is_packed", "wanted_BN")

    def __init__(self, wanted_BN: Tensor, index_R: Tensor, is_packed: bool = False):
        self.wanted_BN, self.index_R = wanted_BN, index_R
        self.is_packed = is_packed
        """Whether there is a fixed number of rows, with some behind those of the wanted slots."""

    @classmethod
    def of(cls, wanted_BN: Tensor, count: int | None = None) -> "Slots":
        """One row for each wanted slot. Where their `count` is not known this waits for the device."""
        if count is None:
            return cls(wanted_BN, wanted_BN.flatten().nonzero().squeeze(-1))
        return cls(wanted_BN, cls.pack(wanted_BN, count).index_R)

    @classmethod
    def pack(cls, flags_BN: Tensor, rows: int) -> "Slots":
        """A fixed number of rows, so that shapes do not depend on how many slots are flagged, and nothing waits.

        The first `rows` flagged slots get a row each; rows that are left over repeat slot 0 and are not wanted.
        """
        rank_BN = _number_flagged_slots(flags_BN)
        wanted_BN = flags_BN & (rank_BN < rows)
        place_BN = torch.where(wanted_BN, rank_BN, rows)
        slot_N = torch.arange(place_BN.numel(), device=place_BN.device)
        # Slots without a row are all written to the place behind the last row, which is cut off.
        index_R = slot_N.new_zeros(rows + 1).scatter_(0, place_BN.flatten(), slot_N)[:rows]
        return cls(wanted_BN, index_R, is_packed=True)

    @property
    def row_BN(self) -> Tensor:
        """Packed row of each slot, -1 where there is none."""
        return _number_flagged_slots(self.wanted_BN)


def _number_flagged_slots(flags_BN: Tensor) -> Tensor:
    """Number the flagged slots in row-major order, from 0; -1 for the others."""
    return torch.where(flags_BN, flags_BN.flatten().cumsum(0).view_as(flags_BN) - 1, -1)


@dataclass(frozen=True, repr=False)
class ModelInput(BatchValue):
    """One forward pass: N >= L slots, the canvas first, any extra slots (shadows, probes) after it."""

    tokens_BN: Tensor
    position_BN: Tensor
    valid_BN: Tensor
    """Key mask: padding is never attended to."""
    fixed_BN: Tensor
    """Prompt and given tokens: what guidance hides."""
    wanted_BN: Tensor
    """Slots whose prediction is asked for: only these get logits."""
    attend_BNN: Tensor | None = None
    """Pairwise attention, query by key; None lets every slot read every valid one."""
    given_BN: Tensor | None = None
    """Tokens whose probability is asked for at their slot; -1 asks for nothing."""
    row_B: Tensor | None = None
    """Which running row each one is, for caches that live between steps; None for hypothetical canvases."""
    packed: Slots | None = None
    """Slots to answer for, the wanted ones among them, where shapes may not depend on what is wanted (CUDA graphs).
    None for the wanted ones alone."""

    @classmethod
    def of(cls, state: State, needs: Needs) -> "ModelInput":
        """Make the input of a pass over the canvases, with predictions wanted at the positions that `needs` ask for."""
        length = state.tokens_BL.shape[1]
        position_L = torch.arange(length, device=state.tokens_BL.device)
        return cls(
            tokens_BN=state.tokens_BL,
            position_BN=position_L.expand(state.batch, length),
            valid_BN=state.valid_BL,
            fixed_BN=state.fixed_BL & state.valid_BL,
            wanted_BN=state.answer_BL if needs.revealed else state.masked_BL,
        )


@dataclass(frozen=True, repr=False)
class ModelOutput(BatchValue):
    """Logits of a forward pass as packed rows, one for each wanted slot in row-major order.

    Where the input names packed slots there is one for each of those instead; rows of unwanted ones mean nothing.
    """

    logits_RV: Tensor
    wanted_BN: Tensor
    attention_BNN: Tensor | None = None
    """Mean attention from query (second axis) to key (third), rows summing to one."""
    hidden_RH: Tensor | None = None
    forwards: int = 1
    """Denoiser passes spent on each row (2 under guidance)."""
    processed_B: Tensor | None = None
    """Slots recomputed per row and pass, where a cache held the others; None for every valid one."""
    counted: Slots | None = None
    """From a denoiser that has counted the wanted slots: on a GPU each count waits for the device."""

    @property
    def slots(self) -> Slots:
        """Slots that the packed rows of logits belong to."""
        # The count of another tensor does not fit: rows may have been cut or joined since.
        if self.counted is not None and (self.counted.is_packed or self.counted.wanted_BN is self.wanted_BN):
            return self.counted
        return Slots.of(self.wanted_BN)

    @property
    def slot_BN(self) -> Tensor:
        """Packed row of each wanted slot, -1 for the others."""
        is_packed = self.counted is not None and self.counted.is_packed
        return torch.where(
            self.wanted_BN, _number_flagged_slots(self.slots.wanted_BN if is_packed else self.wanted_BN), -1
        )


class Denoiser(Protocol):
    """A masked diffusion model: one bidirectional forward pass over all rows of an input."""

    @property
    def vocabulary(self) -> Vocabulary: ...

    @property
    def device(self) -> torch.device:
        """Device on which the inputs must be."""
        ...

    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput: ...


class DenoiserWrapper:
    """Base of denoisers that wrap another one, whose vocabulary and device they have."""

    denoiser: Denoiser

    @property
    def vocabulary(self) -> Vocabulary:
        return self.denoiser.vocabulary

    @property
    def device(self) -> torch.device:
        return self.denoiser.device
