"""Which token each wanted slot would take, decided before the policy acts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import torch
from torch import Tensor

from unmask.base.errors import DenoiserError, require
from unmask.core.prediction import Edit, ModelOutput, Posterior, Prediction, Statistics
from unmask.core.rng import Noise, entries
from unmask.core.view import ModelInput, Needs
from unmask.core.vocab_statistics import StatsRequest, TokenDraw
from unmask.core.vocab_statistics_choice import fast_vocab_stats

NAN = float("nan")


@dataclass(frozen=True)
class Vocabulary:
    """The token ids a proposal has to know about."""

    size: int
    mask_id: int
    eos_ids: tuple[int, ...] = ()
    """End of text first, then end of turn, as far as the model has them."""


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are proposed. Each option has an effect at temperature 0 and above, except as stated."""

    temperature: float = 0.0
    """0 takes the most probable token; above, tokens are drawn from softmax(z / temperature)."""
    top_p: float = 1.0
    """Nucleus filter: moves the filtered statistics always, the drawn token above temperature 0."""
    top_k: int = 0
    """Top-k filter, 0 for none; acts like `top_p`."""
    sampler: str = "inverse"
    """"inverse" (one uniform per position) or "gumbel" (one per vocabulary entry, float64, as LLaDA's loop)."""
    logits_eos_inf: bool = False
    """Never propose end of text (LLaDA's name)."""
    confidence_eos_eot_inf: bool = False
    """Proposals of end of text or end of turn get confidence 0 (LLaDA's name)."""
    eos_penalty: float = 0.0
    """Subtracted from the logits of end of text and end of turn."""
    bar_mask: bool = True
    """Never propose the mask token itself; its probability goes to the others."""

    def __post_init__(self) -> None:
        finite = 0 <= self.temperature < float("inf")
        require(finite, "temperature", self.temperature, ">= 0 and finite", "0 is greedy")
        require(self.eos_penalty > float("-inf"), "eos_penalty", self.eos_penalty, "above -inf", "0 is none")
        require(0 < self.top_p <= 1, "top_p", self.top_p, "above 0, at most 1", "1 keeps every token")
        require(self.top_k >= 0, "top_k", self.top_k, "0 or more", "0 keeps every token")
        require(
            self.sampler in ("inverse", "gumbel"),
            "sampler",
            self.sampler,
            "'inverse' or 'gumbel'",
            "gumbel is for parity with LLaDA's loop",
        )
        gumbel_filters = self.sampler == "gumbel" and (self.top_p < 1 or self.top_k > 0)
        require(
            not gumbel_filters,
            "sampler",
            "gumbel",
            "'inverse' with top_p or top_k",
            "LLaDA's loop has no filters",
        )

    @property
    def greedy(self) -> "SamplingParams":
        """The same options without the randomness: for looks at hypothetical canvases."""
        return replace(self, temperature=0.0, sampler="inverse")

    @lru_cache(maxsize=256)  # noqa: B019 - proposals are few and small
    def edit(self, vocabulary: Vocabulary) -> Edit:
        deltas: dict[int, float] = {}
        if self.bar_mask and vocabulary.mask_id < vocabulary.size:
            deltas[vocabulary.mask_id] = float("-inf")
        for token in vocabulary.eos_ids:
            deltas[token] = -self.eos_penalty
        if self.logits_eos_inf and vocabulary.eos_ids:
            deltas[vocabulary.eos_ids[0]] = float("-inf")
        kept = {token: delta for token, delta in deltas.items() if delta}
        return Edit(tuple(kept), tuple(kept.values()))


def sample(
    output: ModelOutput,
    inputs: ModelInput,
    sampling: SamplingParams,
    needs: Needs,
    vocabulary: Vocabulary,
    *,
    noise: Noise,
    step_B: Tensor,
    previous: Posterior | None = None,
) -> Prediction:
    """Run the pass over the vocabulary and spread its answers over the view's slots."""
    index_R = output.index_R
    _check(output, index_R, inputs, vocabulary)
    edit = sampling.edit(vocabulary)
    slots = inputs.tokens_BN.shape[1]
    row_R, position_R = index_R // slots, inputs.position_BN.flatten()[index_R]
    result = fast_vocab_stats(
        output.logits_RV,
        StatsRequest(
            top_k=max(needs.top_k, 2),
            edit=edit,
            draw=_draw(sampling, needs.draws, noise, (step_B[row_R], position_R, row_R), vocabulary.size),
            filtered=needs.filtered,
            untrusted=vocabulary.eos_ids if sampling.confidence_eos_eot_inf else (),
            given_R=None if inputs.given_BN is None else inputs.given_BN.flatten()[index_R],
            previous=previous if needs.divergence else None,
            previous_R=_previous_rows(previous, index_R, inputs) if needs.divergence else None,
        ),
    )
    spread = partial(_spread, index_R=index_R, shape=inputs.tokens_BN.shape, wanted_R=(wanted_R := output.wanted_R))
    numbers = [result.entropy_R, result.logz_R, result.proposed_R, result.filtered_entropy_R]
    numbers += [] if inputs.given_BN is None else [result.given_R]
    entropy_BN, logz_BN, proposed_BN, filtered_entropy_BN, *given = _spread_all(numbers, index_R, inputs, wanted_R)
    both = [result.drift_R, result.displacement_R] if needs.divergence else []
    drift_BN, displacement_BN = _spread_all(both, index_R, inputs, wanted_R, NAN) if both else (None, None)
    token_BND, confidence_BND = spread(result.token_RD), spread(result.confidence_RD)
    clean = filtered = Statistics(spread(result.top_RK), spread(result.p_RK), entropy_BN)
    if result.filtered_p_RK is not result.p_RK:
        filtered = Statistics(spread(result.filtered_top_RK), spread(result.filtered_p_RK), filtered_entropy_BN)
    keep = needs.posterior or needs.divergence
    return Prediction(
        wanted_BN=output.wanted_BN,
        token_BN=token_BND[..., 0],
        confidence_BN=confidence_BND[..., 0],
        proposed_BN=proposed_BN,
        clean=clean,
        filtered=filtered,
        logz_BN=logz_BN,
        vocab=output.logits_RV.shape[1],
        token_BND=token_BND,
        confidence_BND=confidence_BND,
        given_BN=given[0] if given else None,
        drift_BN=drift_BN,
        displacement_BN=displacement_BN,
        attention_BNN=output.attention_BNN,
        visible_BN=_visible(output.attention_BNN, inputs, vocabulary.mask_id),
        hidden_BNH=None if output.hidden_RH is None else spread(output.hidden_RH),
        posterior=Posterior(output.logits_RV, result.logz_R, output.slot_BN, edit) if keep else None,
    )


def _spread(values_R: Tensor, index_R: Tensor, shape: torch.Size, wanted_R: Tensor | None) -> Tensor:
    """Packed rows on the view's slots, zero where unwanted; `wanted_R` where not all of them are wanted."""
    if wanted_R is not None:
        values_R = torch.where(wanted_R.view(-1, *[1] * (values_R.dim() - 1)), values_R, 0)
    out = values_R.new_zeros((shape.numel(), *values_R.shape[1:]))
    out[index_R] = values_R
    return out.view(*shape, *values_R.shape[1:])


def _spread_all(
    values: Sequence[Tensor], index_R: Tensor, inputs: ModelInput, wanted_R: Tensor | None, fill: float = 0.0
) -> Sequence[Tensor]:
    """Several numbers per packed row on the view's slots, each its own tensor, in one go."""
    out = values[0].new_full((len(values), inputs.tokens_BN.numel()), fill)
    stacked = torch.stack(list(values))
    out[:, index_R] = stacked if wanted_R is None else torch.where(wanted_R, stacked, fill)
    return out.view(len(values), *inputs.tokens_BN.shape).unbind(0)


def _visible(attention_BNN: Tensor | None, inputs: ModelInput, mask_id: int) -> Tensor | None:
    """How much each slot attends to tokens that stand, rather than to masks and padding."""
    if attention_BNN is None:
        return None
    visible_BN = inputs.valid_BN & (inputs.tokens_BN != mask_id)
    return (attention_BNN * visible_BN[:, None, :]).sum(-1)


def _draw(
    sampling: SamplingParams, draws: int, noise: Noise, at: tuple[Tensor, Tensor, Tensor], vocab: int
) -> TokenDraw:
    """The uniforms of each draw; `at` is (step, position, batch row) of the packed rows."""
    settings = (sampling.temperature, sampling.top_p, sampling.top_k)
    if sampling.temperature == 0:
        return TokenDraw(*settings)
    purposes = ["token", *(f"token/{d}" for d in range(1, draws))]
    if sampling.sampler == "gumbel" and type(noise).uniform_vocab is Noise.uniform_vocab:
        bits_RD = torch.stack([noise.bits(*at, p) for p in purposes], -1)

        def uniform_entries(row_C: Tensor) -> Tensor:
            return torch.stack([entries(bits_R, vocab) for bits_R in bits_RD[row_C].unbind(-1)], -1)

        return TokenDraw(*settings, uniform_vocab=uniform_entries, bits_RD=bits_RD)
    if sampling.sampler == "gumbel":

        def uniform_vocab(row_C: Tensor) -> Tensor:
            step_C, position_C, batch_row_C = (x_R[row_C] for x_R in at)
            return torch.stack([noise.uniform_vocab(step_C, position_C, batch_row_C, vocab, p) for p in purposes], -1)

        return TokenDraw(*settings, uniform_vocab=uniform_vocab)
    return TokenDraw(*settings, uniform_RD=torch.stack([noise.uniform_packed(*at, p) for p in purposes], -1))


def _previous_rows(previous: Posterior | None, index_R: Tensor, inputs: ModelInput) -> Tensor | None:
    """Where each wanted slot's posterior stood one step ago; extra slots beyond the old view had none."""
    if previous is None:
        return None
    slots = inputs.tokens_BN.shape[1]
    old_BN = torch.full(inputs.tokens_BN.shape, -1, device=index_R.device)
    shared = min(slots, previous.slot_BN.shape[1])
    old_BN[:, :shared] = previous.slot_BN[:, :shared]
    return old_BN.flatten()[index_R]


def _check(output: ModelOutput, index_R: Tensor, inputs: ModelInput, vocabulary: Vocabulary) -> None:
    columns = output.logits_RV.shape[-1]
    if columns != vocabulary.size:
        raise DenoiserError(
            f"the denoiser returned {columns} logit columns; allowed: {vocabulary.size}, its vocabulary size; "
            "check that model and tokenizer belong together"
        )
    if output.wanted_BN.shape != inputs.tokens_BN.shape:
        raise DenoiserError(
            f"the denoiser answered for slots of shape {tuple(output.wanted_BN.shape)}; allowed: "
            f"{tuple(inputs.tokens_BN.shape)}, the view's; return one row per wanted slot"
        )
    if len(output.logits_RV) != len(index_R):
        raise DenoiserError(
            f"the denoiser returned {len(output.logits_RV)} logit rows; allowed: {len(index_R)}, one per "
            "wanted slot; return the wanted slots only, packed in row-major order"
        )
