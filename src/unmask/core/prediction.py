"""The prediction p_t: statistics of a forward pass at every slot, and the whole posterior where it is needed.

`StatsRequest` and `VocabStats` are what one pass over the vocabulary is asked, and gives, for packed rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from unmask.core.batch import BatchValue


@dataclass(frozen=True)
class Edit:
    """Additive changes to logit columns (EOS options, the barred mask), applied wherever logits are read."""

    ids: tuple[int, ...] = ()
    deltas: tuple[float, ...] = ()

    def apply_(self, scratch_RV: Tensor) -> Tensor:
        """Add the changes in place; call it on a scratch copy of the logits only."""
        # One column at a time, as numbers: a list of ids would be copied to the device, which no CUDA graph can hold.
        for token, delta in zip(self.ids, self.deltas, strict=True):
            scratch_RV[:, token] += delta
        return scratch_RV


@dataclass(frozen=True, repr=False)
class Posterior(BatchValue):
    """Token distributions p_t of the wanted slots, kept as logits and normalisers: keeping them costs no arithmetic.

    Selecting rows copies no logits: all selections share the packed rows, and `slot_BN` says which of them they use.
    """

    logits_RV: Tensor
    logz_R: Tensor
    slot_BN: Tensor
    edit: Edit = Edit()

    def log_prob(self, rows_C: Tensor) -> Tensor:
        """Log-probabilities of packed rows, at least float32. Barred tokens are at -1e4, so that 0 * log 0 is 0."""
        # Indexing copies, so the edit does not reach the logits that others read.
        z_CV = self.edit.apply_(self.logits_RV[rows_C].to(self.logz_R.dtype))
        return z_CV.sub_(self.logz_R[rows_C, None]).clamp_(min=-1e4)

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
        """Put the packed rows behind each other, once for all parts that share them."""
        start: dict[int, int] = {}
        parts: list[Posterior] = []
        slots, size = [], 0
        for part in (self, *others):
            # By identity: rows of one batch share its logits, which would else be stored once for each row.
            if id(part.logits_RV) not in start:
                start[id(part.logits_RV)] = size
                size += len(part.logits_RV)
                parts.append(part)
            slots.append(torch.where(part.slot_BN >= 0, part.slot_BN + start[id(part.logits_RV)], -1))
        return replace(
            self,
            logits_RV=torch.cat([part.logits_RV for part in parts]),
            logz_R=torch.cat([part.logz_R for part in parts]),
            slot_BN=torch.cat(slots),
        )


@dataclass(frozen=True)
class TokenDraw:
    """How tokens are drawn from each row. Temperature 0 takes the most probable token, ties to the lower one."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    uniform_RD: Tensor | None = None
    """Inverse CDF: one uniform for each row and draw."""
    uniform_vocab: Callable[[Tensor], Tensor] | None = None
    """Gumbel noise, as in LLaDA's loop: maps indices of packed rows to one uniform per row, token and draw, (C, V, D).
    The returned tensor is overwritten."""
    bits_RD: Tensor | None = None
    """Counters (`Noise.bits`) from which `uniform_vocab` derives its uniforms; None for any other source of noise. The
    kernels derive the same uniforms from them, without a table of the vocabulary's size."""

    @property
    def has_filters(self) -> bool:
        return self.top_p < 1.0 or self.top_k > 0


@dataclass(frozen=True)
class StatsRequest:
    """Statistics to compute for each packed row."""

    top_k: int = 2
    """Number of most probable tokens to return."""
    edit: Edit = Edit()
    draw: TokenDraw = TokenDraw()
    filtered: bool = False
    """Compute the filtered statistics too; otherwise they are the clean ones."""
    untrusted: tuple[int, ...] = ()
    """Tokens whose confidence is 0 when they are drawn. The confidence of the others is normalised without them."""
    given_R: Tensor | None = None
    """One token per row whose probability to return; -1 for none."""
    previous: Posterior | None = None
    """Distributions of the last step, for the divergences."""
    previous_R: Tensor | None = None
    """Packed row of `previous` for each row, -1 where there is none."""

    @property
    def has_filtered(self) -> bool:
        """Whether the filtered statistics differ from the clean ones, so that they are computed."""
        return self.filtered and (self.draw.temperature > 0 or self.draw.has_filters)


class VocabStats(NamedTuple):
    """Statistics of packed rows. *Clean* is softmax(z), *filtered* the tempered and filtered distribution."""

    top_RK: Tensor
    """Most probable tokens, ties to the lower one."""
    p_RK: Tensor
    entropy_R: Tensor
    logz_R: Tensor
    """Log of the sum of exp(z): not finite where a row holds NaN, +inf, or no possible token."""
    token_RD: Tensor
    """Drawn tokens."""
    confidence_RD: Tensor
    """Clean probability of the drawn tokens."""
    proposed_R: Tensor
    """Filtered probability of the first drawn token."""
    filtered_top_RK: Tensor
    filtered_p_RK: Tensor
    filtered_entropy_R: Tensor
    given_R: Tensor
    """Clean probability of the given token, 0 for none."""
    drift_R: Tensor
    """KL(new || old), NaN where the row has no previous distribution."""
    displacement_R: Tensor
    """KL(old || new), NaN likewise."""


@dataclass(frozen=True, repr=False)
class Statistics(BatchValue):
    """Statistics of one distribution per slot; zero where no prediction was wanted."""

    top_BNK: Tensor
    p_BNK: Tensor
    entropy_BN: Tensor

    def largest(self, k: int) -> "Statistics":
        """The same statistics with the k largest probabilities only."""
        return replace(self, top_BNK=self.top_BNK[..., :k], p_BNK=self.p_BNK[..., :k])

    @property
    def margin_BN(self) -> Tensor:
        """Difference of the two largest probabilities."""
        return self.p_BNK[..., 0] - self.p_BNK[..., 1]


@dataclass(frozen=True, repr=False)
class Prediction(BatchValue):
    """Everything a policy may know about a forward pass, on the input's slots (the canvas first).

    `confidence_BN` is the *clean* probability of the sampled token (LLaDA scores that); `proposed_BN` is its
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
    """Clean probability of the token that the input asked about."""
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
        """The prediction without posterior, attention and hidden rows, which are too large for steps and files."""
        if self.attention_BNN is None and self.hidden_BNH is None and self.posterior is None:
            return self
        return replace(self, attention_BNN=None, hidden_BNH=None, posterior=None)
