"""Input and output of a model: one forward pass over all rows of a batch."""

from dataclasses import dataclass, fields
from typing import Protocol

import torch
from torch import Tensor

from unmask.core.batch import BatchValue
from unmask.core.state import State


@dataclass(frozen=True)
class Vocabulary:
    """Size of a model's vocabulary and the ids of its special tokens."""

    size: int
    mask_id: int
    eos_ids: tuple[int, ...] = ()
    """End of text, then end of turn; empty if the model has neither."""


@dataclass(frozen=True)
class Needs:
    """Parts of a prediction that a policy reads, so that nothing else has to be computed."""

    top_k: int = 2
    """Number of most probable tokens."""
    draws: int = 1
    """Number of tokens to sample independently per position; they differ only above temperature 0."""
    filtered: bool = False
    """Statistics of the distribution after temperature and filters too (Dream's scores read them)."""
    divergence: bool = False
    """KL divergences, in both directions, from the posterior of the previous step."""
    posterior: bool = False
    """The whole distribution over the vocabulary at wanted positions."""
    attention: bool = False
    """Mean attention of the denoiser, query by key."""
    hidden: bool = False
    """Hidden states at wanted positions."""
    revealed: bool = False
    """Predictions at revealed answer positions too, not only at masked positions."""
    shadows: bool = False
    """Extra slots that predict a token they must not see. A model that shifts its predictions cannot serve them."""
    planner: bool = False
    """Calls of the run's second network (`LookAhead.ask_planner`)."""

    def __or__(self, other: "Needs") -> "Needs":
        """Combine two sets of needs: flags by "or", counts by their maximum."""
        # `max` does both: True is the larger of two truth values.
        return Needs(**{f.name: max(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)})


class Slots:
    """Flat index of the slot that each packed row of logits belongs to.

    An index is valid for one tensor of flags only; after rows are selected or joined it must be counted again. So this
    is not a dataclass, whose tensors `select` and `concat` would change.
    """

    __slots__ = ("index_R", "is_packed", "wanted_BN")

    def __init__(self, wanted_BN: Tensor, index_R: Tensor, is_packed: bool = False):
        self.wanted_BN, self.index_R = wanted_BN, index_R
        self.is_packed = is_packed
        """Whether the number of rows is fixed, so that there may be more rows than wanted slots."""

    @classmethod
    def of(cls, wanted_BN: Tensor, count: int | None = None) -> "Slots":
        """Give each wanted slot one row. Without their `count` this waits for the device."""
        if count is None:
            return cls(wanted_BN, wanted_BN.flatten().nonzero().squeeze(-1))
        return cls(wanted_BN, cls.pack(wanted_BN, count).index_R)

    @classmethod
    def pack(cls, flags_BN: Tensor, rows: int) -> "Slots":
        """Give the first `rows` flagged slots a row each. Rows that are left over repeat slot 0 and mean nothing.

        Shapes then do not depend on the number of flags, so that the host need not wait for the device to count them.
        """
        # Without `nonzero`, whose output has a size that the host must wait for.
        rank_BN = _number_flagged_slots(flags_BN)
        wanted_BN = flags_BN & (rank_BN < rows)
        place_BN = torch.where(wanted_BN, rank_BN, rows)
        slot_N = torch.arange(place_BN.numel(), device=place_BN.device)
        # All slots without a row are written behind the last row, which is cut off.
        index_R = slot_N.new_zeros(rows + 1).scatter_(0, place_BN.flatten(), slot_N)[:rows]
        return cls(wanted_BN, index_R, is_packed=True)

    @property
    def row_BN(self) -> Tensor:
        """Packed row of each slot, -1 for slots without one."""
        return _number_flagged_slots(self.wanted_BN)


def _number_flagged_slots(flags_BN: Tensor) -> Tensor:
    """Number the flagged slots in row-major order, from 0; other slots get -1."""
    return torch.where(flags_BN, flags_BN.flatten().cumsum(0).view_as(flags_BN) - 1, -1)


@dataclass(frozen=True, repr=False)
class ModelInput(BatchValue):
    """Input of one forward pass: N >= L slots, first the canvas, then any extra slots (shadows, probes)."""

    tokens_BN: Tensor
    position_BN: Tensor
    valid_BN: Tensor
    """Slots that may be attended to: all but padding."""
    fixed_BN: Tensor
    """Prompt and given tokens, which guidance hides from the unconditional pass."""
    wanted_BN: Tensor
    """Slots to predict: only these get logits."""
    attend_BNN: Tensor | None = None
    """Pairs of slots that may attend, query by key; None lets every slot read every valid one."""
    given_BN: Tensor | None = None
    """Token at each slot whose probability to compute; -1 for none."""
    row_B: Tensor | None = None
    """Number of each row in its run, for caches between steps; None for hypothetical canvases."""
    packed: Slots | None = None
    """Fixed number of slots to compute logits for, for CUDA graphs; None for exactly the wanted slots."""

    @classmethod
    def of(cls, state: State, needs: Needs) -> "ModelInput":
        """Create the input of a pass over the canvases; `needs.revealed` decides which positions are wanted."""
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
    """Output of one forward pass: logits as packed rows, one for each wanted slot in row-major order.

    If the input has `packed` slots, there is a row for each of those instead; rows of unwanted slots mean nothing.
    """

    logits_RV: Tensor
    wanted_BN: Tensor
    attention_BNN: Tensor | None = None
    """Mean attention from query (second axis) to key (third), rows summing to one."""
    hidden_RH: Tensor | None = None
    forwards: int = 1
    """Number of denoiser passes per row (2 under guidance)."""
    processed_B: Tensor | None = None
    """Number of slots that a pass computed for each row, if a cache held the others; None for all valid slots."""
    counted: Slots | None = None
    """Index of the packed rows, if the denoiser has it already: on a GPU counting slots waits for the device."""

    @property
    def slots(self) -> Slots:
        """Index of the slot that each packed row of logits belongs to."""
        # An index that was made for other flags is wrong: rows may have been selected or joined since.
        if self.counted is not None and (self.counted.is_packed or self.counted.wanted_BN is self.wanted_BN):
            return self.counted
        return Slots.of(self.wanted_BN)

    @property
    def slot_BN(self) -> Tensor:
        """Packed row of each wanted slot, -1 for all other slots."""
        is_packed = self.counted is not None and self.counted.is_packed
        return torch.where(
            self.wanted_BN, _number_flagged_slots(self.slots.wanted_BN if is_packed else self.wanted_BN), -1
        )


class Denoiser(Protocol):
    """A masked diffusion model: predicts all wanted slots of an input in one bidirectional forward pass."""

    @property
    def vocabulary(self) -> Vocabulary: ...

    @property
    def device(self) -> torch.device:
        """Device that inputs must be on."""
        ...

    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput: ...


class DenoiserWrapper:
    """Base of denoisers that wrap another denoiser and share its vocabulary and device."""

    denoiser: Denoiser

    @property
    def vocabulary(self) -> Vocabulary:
        return self.denoiser.vocabulary

    @property
    def device(self) -> torch.device:
        return self.denoiser.device
