"""The prediction p_t: statistics of a forward pass at every slot, and the whole posterior if a policy needs it.

`StatsRequest` and `VocabStats` are input and output of the pass over the vocabulary, for packed rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from unmask.core.batch import BatchValue


@dataclass(frozen=True)
class Edit:
    """Numbers to add to the logits of a few tokens, such as -inf for the mask token, before any use of the logits."""

    ids: tuple[int, ...] = ()
    deltas: tuple[float, ...] = ()

    def edit_logits_(self, scratch_RV: Tensor) -> Tensor:
        """Add the numbers in place; call it only on a copy of the logits."""
        # One column at a time: a list of ids would be copied to the device, which breaks CUDA graphs.
        for token, delta in zip(self.ids, self.deltas, strict=True):
            scratch_RV[:, token] += delta
        return scratch_RV


@dataclass(frozen=True, repr=False)
class Posterior(BatchValue):
    """Distributions p_t over the vocabulary at wanted slots, stored as logits and log-normalisers.

    Selecting rows copies no logits: all selections share the packed rows, and `slot_BN` has the row of each slot.
    """

    logits_RV: Tensor
    logz_R: Tensor
    slot_BN: Tensor
    edit: Edit = Edit()

    def log_prob(self, rows_C: Tensor) -> Tensor:
        """Return log-probabilities of packed rows, in float32 or more; -1e4 if barred, so that 0 * log 0 is 0."""
        # Indexing copies, so the edit does not change the stored logits.
        z_CV = self.edit.edit_logits_(self.logits_RV[rows_C].to(self.logz_R.dtype))
        return z_CV.sub_(self.logz_R[rows_C, None]).clamp_(min=-1e4)

    def to_dense(self) -> Tensor:
        """Return all probabilities as (B, N, V), zero at unwanted slots; for small vocabularies and tests."""
        known_BN = self.slot_BN >= 0
        log_p = self.log_prob(self.slot_BN[known_BN])
        out = log_p.new_zeros(*self.slot_BN.shape, log_p.shape[-1])
        out[known_BN] = log_p.exp()
        return out

    def select(self, rows_U: Tensor) -> "Posterior":
        return replace(self, slot_BN=self.slot_BN[rows_U])

    def join(self, others: "Sequence[Posterior]") -> "Posterior":
        """Join the rows of several posteriors; logits that some of them share are stored only once."""
        start: dict[int, int] = {}
        parts: list[Posterior] = []
        slots, size = [], 0
        for part in (self, *others):
            # Compared by identity: rows of one batch share its logits, which would be stored once for each row.
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
    """Settings and random numbers of token draws. Temperature 0 takes the most probable token, ties to the lower."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    uniform_RD: Tensor | None = None
    """One uniform for each row and draw, for draws by inverse CDF."""
    uniform_vocab: Callable[[Tensor], Tensor] | None = None
    """Function from indices of packed rows to one uniform per row, token and draw (C, V, D), for Gumbel draws as in
    LLaDA's loop. The returned tensor is overwritten."""
    bits_RD: Tensor | None = None
    """Counters (`Noise.bits`) from which the kernels compute the uniforms of `uniform_vocab` without a table of the
    vocabulary's size; None for other sources of noise."""

    @property
    def has_filters(self) -> bool:
        return self.top_p < 1.0 or self.top_k > 0


@dataclass(frozen=True)
class StatsRequest:
    """Statistics that one pass over the vocabulary computes for each packed row."""

    top_k: int = 2
    """Number of most probable tokens to return."""
    edit: Edit = Edit()
    draw: TokenDraw = TokenDraw()
    filtered: bool = False
    """Whether to compute filtered statistics; otherwise those fields equal the clean ones."""
    untrusted: tuple[int, ...] = ()
    """Tokens whose confidence is 0 when drawn; the confidence of other tokens is normalised without them."""
    given_R: Tensor | None = None
    """Token of each row whose probability to return; -1 for none."""
    previous: Posterior | None = None
    """Distributions of the previous step, for divergences."""
    previous_R: Tensor | None = None
    """Packed row of `previous` for each row; -1 for none."""

    @property
    def has_filtered(self) -> bool:
        """Whether filtered statistics are wanted and differ from the clean ones."""
        return self.filtered and (self.draw.temperature > 0 or self.draw.has_filters)


class VocabStats(NamedTuple):
    """Statistics of packed rows. *Clean* means softmax(z); *filtered* means after temperature and filters."""

    top_RK: Tensor
    """Most probable tokens, ties to the lower one."""
    p_RK: Tensor
    entropy_R: Tensor
    logz_R: Tensor
    """Log of the sum of exp(z); not finite if a row has NaN, +inf or no possible token."""
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
    """KL(new || old); NaN for a row without a previous distribution."""
    displacement_R: Tensor
    """KL(old || new); NaN for a row without a previous distribution."""


@dataclass(frozen=True, repr=False)
class Statistics(BatchValue):
    """Most probable tokens and entropy of the distribution at each slot; zero at slots that were not predicted."""

    top_BNK: Tensor
    p_BNK: Tensor
    entropy_BN: Tensor

    def keep_top(self, k: int) -> "Statistics":
        """Keep only the k most probable tokens."""
        return replace(self, top_BNK=self.top_BNK[..., :k], p_BNK=self.p_BNK[..., :k])

    @property
    def margin_BN(self) -> Tensor:
        """Difference of the two largest probabilities."""
        return self.p_BNK[..., 0] - self.p_BNK[..., 1]


@dataclass(frozen=True, repr=False)
class Prediction(BatchValue):
    """Everything a policy may know about a forward pass, on the slots of its input (the canvas first).

    `confidence_BN` is the probability of the sampled token before temperature and filters, as in LLaDA's scores;
    `proposed_BN` is its probability under the distribution that it was drawn from, as in Dream's scores. Both are equal
    at temperature 0 without filters, and whenever `Needs.filtered` is False.
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
    """All sampled tokens of each slot; the first is `token_BN`."""
    confidence_BND: Tensor
    given_BN: Tensor | None = None
    """Probability of the token in `ModelInput.given_BN`."""
    drift_BN: Tensor | None = None
    """KL(p_t || p_{t-1}), new posterior first; NaN without a previous posterior."""
    displacement_BN: Tensor | None = None
    """KL(p_{t-1} || p_t), old posterior first; NaN without a previous posterior."""
    attention_BNN: Tensor | None = None
    visible_BN: Tensor | None = None
    """Attention mass of each slot on visible tokens; None unless `Needs.attention`."""
    hidden_BNH: Tensor | None = None
    posterior: Posterior | None = None

    def drop_large_parts(self) -> "Prediction":
        """Return the prediction without posterior, attention and hidden states, which are too large for every step."""
        if self.attention_BNN is None and self.hidden_BNH is None and self.posterior is None:
            return self
        return replace(self, attention_BNN=None, hidden_BNH=None, posterior=None)
