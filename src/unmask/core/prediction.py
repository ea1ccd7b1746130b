"""What one forward pass gave: raw logits of the wanted slots, and the statistics made of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from unmask.core.rows import Selectable, Shown


class CountedSlots:
    """The flat slots that a tensor of flags wants. Good for that very tensor: rows cut or joined are counted again."""

    __slots__ = ("index_R", "wanted_BN")

    def __init__(self, wanted_BN: Tensor):
        self.wanted_BN, self.index_R = wanted_BN, wanted_BN.flatten().nonzero().squeeze(-1)


class PackedSlots(CountedSlots):
    """Flagged slots with a row of logits each, and so many rows however many are flagged: the shape stays."""

    __slots__ = ("row_BN",)

    def __init__(self, flags_BN: Tensor, rows: int):
        """The first so many; where fewer are flagged, rows of slot 0 fill up. Nothing waits for the device."""
        rank_BN = flags_BN.flatten().cumsum(0).view_as(flags_BN) - 1
        self.wanted_BN = flags_BN & (rank_BN < rows)
        self.row_BN = torch.where(self.wanted_BN, rank_BN, -1)
        """Packed row of each slot, -1 where there is none."""
        place_BN = torch.where(self.wanted_BN, rank_BN, rows)
        slot_N = torch.arange(place_BN.numel(), device=place_BN.device)
        # All that have no row are written behind the end.
        self.index_R = slot_N.new_zeros(rows + 1).scatter_(0, place_BN.flatten(), slot_N)[:rows]


@dataclass(frozen=True, repr=False)
class ModelOutput(Shown):
    """A denoiser's answer to a view: packed rows, one for each wanted slot in row-major order.

    Where the view names packed slots there is one for each of those instead, and the unwanted among them say nothing.
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
    counted: CountedSlots | None = None
    """From a denoiser that has counted the wanted slots: on a GPU each count waits for the device."""

    @property
    def index_R(self) -> Tensor:
        """Flat slot of each packed row."""
        if self.packed is not None:
            return self.packed.index_R
        if self.counted is not None and self.counted.wanted_BN is self.wanted_BN:
            return self.counted.index_R
        return CountedSlots(self.wanted_BN).index_R

    @property
    def packed(self) -> PackedSlots | None:
        """Where the rows are not those of the wanted slots alone."""
        return self.counted if isinstance(self.counted, PackedSlots) else None

    @property
    def wanted_R(self) -> Tensor | None:
        """Which rows are wanted; None for all."""
        return None if self.packed is None else self.wanted_BN.flatten()[self.packed.index_R]

    @property
    def slot_BN(self) -> Tensor:
        """Packed row of each slot, -1 where there is none."""
        if self.packed is not None:
            return torch.where(self.wanted_BN, self.packed.row_BN, -1)
        return torch.where(self.wanted_BN, self.wanted_BN.flatten().cumsum(0).view_as(self.wanted_BN) - 1, -1)


@dataclass(frozen=True)
class Edit:
    """Additive changes to logit columns (EOS options, the barred mask), applied wherever logits are read."""

    ids: tuple[int, ...] = ()
    deltas: tuple[float, ...] = ()

    def apply_(self, scratch_RV: Tensor) -> Tensor:
        """In place, on a scratch copy only."""
        for token, delta in zip(self.ids, self.deltas, strict=True):
            scratch_RV[:, token] += delta
        return scratch_RV


@dataclass(frozen=True, repr=False)
class Posterior(Selectable):
    """p_t of the wanted slots, kept as logits and normalisers so that keeping it costs no arithmetic."""

    logits_RV: Tensor
    logz_R: Tensor
    slot_BN: Tensor
    edit: Edit = Edit()

    def log_prob(self, rows_C: Tensor) -> Tensor:
        """log p of packed rows, at least float32."""
        return self.normalise_(self.logits_RV[rows_C].to(self.logz_R.dtype), rows_C)

    def normalise_(self, scratch_CV: Tensor, rows_C: Tensor) -> Tensor:
        """Turn a copy of packed rows' logits into log p; barred tokens are at -1e4, so that 0 * log 0 is 0."""
        return self.edit.apply_(scratch_CV).sub_(self.logz_R[rows_C, None]).clamp_(min=-1e4)

    def dense(self) -> Tensor:
        """Probabilities as (B, N, V), zero where unwanted: for small vocabularies and for tests."""
        known_BN = self.slot_BN >= 0
        log_p = self.log_prob(self.slot_BN[known_BN])
        out = log_p.new_zeros(*self.slot_BN.shape, log_p.shape[-1])
        out[known_BN] = log_p.exp()
        return out

    def select(self, rows_U: Tensor) -> "Posterior":
        return replace(self, slot_BN=self.slot_BN[rows_U])

    def join(self, others: "Sequence[Posterior]") -> "Posterior":
        """Packed rows stand behind each other, once for all parts that share them."""
        base: dict[int, tuple[int, Posterior]] = {}
        slots, size = [], 0
        for part in (self, *others):
            if id(part.logits_RV) not in base:
                base[id(part.logits_RV)] = (size, part)
                size += len(part.logits_RV)
            start = base[id(part.logits_RV)][0]
            slots.append(torch.where(part.slot_BN >= 0, part.slot_BN + start, -1))
        parts = [part for _, part in base.values()]
        return replace(
            self,
            logits_RV=torch.cat([part.logits_RV for part in parts]),
            logz_R=torch.cat([part.logz_R for part in parts]),
            slot_BN=torch.cat(slots),
        )


@dataclass(frozen=True, repr=False)
class Statistics(Shown):
    """Of one distribution per slot; zero where unwanted."""

    top_BNK: Tensor
    p_BNK: Tensor
    entropy_BN: Tensor

    def largest(self, k: int) -> "Statistics":
        """With the k largest probabilities only."""
        return replace(self, top_BNK=self.top_BNK[..., :k], p_BNK=self.p_BNK[..., :k])

    @property
    def margin_BN(self) -> Tensor:
        return self.p_BNK[..., 0] - self.p_BNK[..., 1]


@dataclass(frozen=True, repr=False)
class Prediction(Shown):
    """Everything a policy may know about the forward pass, on the view's slots (the canvas first).

    `confidence_BN` is the *clean* probability of the proposed token (LLaDA scores that); `proposed_BN` its
    probability under the filtered distribution it was drawn from (Dream scores that). They are the same number at
    temperature 0 without filters, and whenever `Needs.filtered` did not ask for the second.
    """

    wanted_BN: Tensor
    token_BN: Tensor
    confidence_BN: Tensor
    proposed_BN: Tensor
    clean: Statistics
    filtered: Statistics
    logz_BN: Tensor
    vocab: int
    token_BND: Tensor
    """Every draw; the first is `token_BN`."""
    confidence_BND: Tensor
    given_BN: Tensor | None = None
    """Clean probability of the token the view asked about."""
    drift_BN: Tensor | None = None
    """KL(p_t || p_{t-1}): new first, the mutual-information direction. NaN without a previous posterior."""
    displacement_BN: Tensor | None = None
    """KL(p_{t-1} || p_t): old first, distance from the centre of the commitment ball. NaN likewise."""
    attention_BNN: Tensor | None = None
    visible_BN: Tensor | None = None
    """Attention mass of each slot on visible tokens, where attention was asked for."""
    hidden_BNH: Tensor | None = None
    posterior: Posterior | None = None

    @property
    def light(self) -> "Prediction":
        """Without the parts that grow with the vocabulary or with N squared: what a recording keeps."""
        if self.attention_BNN is None and self.hidden_BNH is None and self.posterior is None:
            return self
        return replace(self, attention_BNN=None, hidden_BNH=None, posterior=None)
