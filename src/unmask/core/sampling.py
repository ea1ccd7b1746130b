"""Sampling: the token that each wanted slot would take, and the statistics that policies decide by."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from unmask.base.errors import DenoiserError, require
from unmask.core.model_io import ModelInput, ModelOutput, Needs, Vocabulary
from unmask.core.noise import Noise
from unmask.core.prediction import Edit, Posterior, Prediction, Statistics, StatsRequest, TokenDraw
from unmask.core.vocab_statistics import compute_vocab_stats


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are sampled. Options act at every temperature unless they say otherwise."""

    temperature: float = 0.0
    """0 takes the most probable token; above 0, tokens are drawn from softmax(z / temperature)."""
    top_p: float = 1.0
    """Nucleus filter. It always acts on the filtered statistics, and above temperature 0 on the drawn token."""
    top_k: int = 0
    """Top-k filter; 0 for none. It acts on the same values as `top_p`."""
    sampler: str = "inverse"
    """"inverse" (one uniform per position), or "gumbel" (one per vocabulary entry, in float64, as in LLaDA's loop)."""
    logits_eos_inf: bool = False
    """Never sample end of text (the option has LLaDA's name)."""
    confidence_eos_eot_inf: bool = False
    """Give a sampled end of text or end of turn confidence 0 (the option has LLaDA's name)."""
    eos_penalty: float = 0.0
    """Number to subtract from the logits of end of text and end of turn."""
    bar_mask: bool = True
    """Never sample the mask token; its probability goes to the other tokens."""

    def __post_init__(self) -> None:
        finite = 0 <= self.temperature < float("inf")
        require(finite, "temperature", self.temperature, ">= 0 and finite", "0 is greedy")
        require(self.eos_penalty > float("-inf"), "eos_penalty", self.eos_penalty, "above -inf", "0 is none")
        require(0 < self.top_p <= 1, "top_p", self.top_p, "above 0, at most 1", "1 keeps every token")
        require(self.top_k >= 0, "top_k", self.top_k, "0 or more", "0 keeps every token")
        samplers = ("inverse", "gumbel")
        hint = "gumbel is for parity with LLaDA's loop"
        require(self.sampler in samplers, "sampler", self.sampler, "'inverse' or 'gumbel'", hint)
        gumbel_filters = self.sampler == "gumbel" and (self.top_p < 1 or self.top_k > 0)
        hint = "LLaDA's loop has no filters"
        require(not gumbel_filters, "sampler", "gumbel", "'inverse' with top_p or top_k", hint)

    @property
    def greedy(self) -> "SamplingParams":
        """The options at temperature 0, for hypothetical canvases."""
        return replace(self, temperature=0.0, sampler="inverse")

    def make_logit_edit(self, vocabulary: Vocabulary) -> Edit:
        """Return the changes of logits that these options make in a vocabulary."""
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
    """Sample a token for every wanted slot, and compute the statistics that `needs` ask for.

    `previous` is the posterior of the previous step, for divergences.
    """
    slots = output.slots
    index_R = slots.index_R
    _check_output(output, index_R, inputs, vocabulary)
    edit = sampling.make_logit_edit(vocabulary)
    row_R, position_R = index_R // inputs.tokens_BN.shape[1], inputs.position_BN.flatten()[index_R]
    previous_R = None
    if needs.divergence and previous is not None:
        # The previous input may have had fewer or more slots behind the canvas.
        old_BN = torch.full(inputs.tokens_BN.shape, -1, device=index_R.device)
        shared = min(old_BN.shape[1], previous.slot_BN.shape[1])
        old_BN[:, :shared] = previous.slot_BN[:, :shared]
        previous_R = old_BN.flatten()[index_R]
    request = StatsRequest(
        top_k=max(needs.top_k, 2),
        edit=edit,
        draw=_make_token_draw(sampling, needs.draws, noise, step_B[row_R], position_R, row_R, vocabulary.size),
        filtered=needs.filtered,
        untrusted=vocabulary.eos_ids if sampling.confidence_eos_eot_inf else (),
        given_R=None if inputs.given_BN is None else inputs.given_BN.flatten()[index_R],
        previous=previous if needs.divergence else None,
        previous_R=previous_R,
    )
    stats = compute_vocab_stats(output.logits_RV, request)

    shape = inputs.tokens_BN.shape
    # With a fixed number of packed rows some of them belong to no wanted slot.
    wanted_R = output.wanted_BN.flatten()[index_R] if slots.is_packed else None

    def spread_to_slots(values_R: Tensor) -> Tensor:
        """Put values of packed rows on the input's slots, zero at unwanted slots."""
        if wanted_R is not None:
            values_R = torch.where(wanted_R.view(-1, *[1] * (values_R.dim() - 1)), values_R, 0)
        out = values_R.new_zeros((shape.numel(), *values_R.shape[1:]))
        # Rows that are left over all name slot 0, and write the value that slot 0 has anyway.
        out[index_R] = values_R
        return out.view(*shape, *values_R.shape[1:])

    def spread_all_to_slots(values: Sequence[Tensor], fill: float) -> Sequence[Tensor]:
        """Put several numbers per packed row on the slots with one kernel, because on a GPU every launch takes time."""
        out = values[0].new_full((len(values), shape.numel()), fill)
        stacked = torch.stack(list(values))
        out[:, index_R] = stacked if wanted_R is None else torch.where(wanted_R, stacked, fill)
        return out.view(len(values), *shape).unbind(0)

    numbers = [stats.entropy_R, stats.logz_R, stats.proposed_R, stats.filtered_entropy_R]
    numbers += [] if inputs.given_BN is None else [stats.given_R]
    entropy_BN, logz_BN, proposed_BN, filtered_entropy_BN, *given = spread_all_to_slots(numbers, 0.0)
    drift_BN = displacement_BN = None
    if needs.divergence:
        drift_BN, displacement_BN = spread_all_to_slots([stats.drift_R, stats.displacement_R], float("nan"))
    token_BND, confidence_BND = spread_to_slots(stats.token_RD), spread_to_slots(stats.confidence_RD)
    clean = filtered = Statistics(spread_to_slots(stats.top_RK), spread_to_slots(stats.p_RK), entropy_BN)
    if request.has_filtered:
        filtered = Statistics(
            spread_to_slots(stats.filtered_top_RK), spread_to_slots(stats.filtered_p_RK), filtered_entropy_BN
        )
    visible_BN = None
    if output.attention_BNN is not None:
        is_token_BN = inputs.valid_BN & (inputs.tokens_BN != vocabulary.mask_id)
        visible_BN = (output.attention_BNN * is_token_BN[:, None, :]).sum(-1)
    # Divergences of the next step need the posterior of this one.
    keep_posterior = needs.posterior or needs.divergence
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
        visible_BN=visible_BN,
        hidden_BNH=None if output.hidden_RH is None else spread_to_slots(output.hidden_RH),
        posterior=Posterior(output.logits_RV, stats.logz_R, output.slot_BN, edit) if keep_posterior else None,
    )


def _make_token_draw(
    sampling: SamplingParams, draws: int, noise: Noise, step_R: Tensor, position_R: Tensor, row_R: Tensor, vocab: int
) -> TokenDraw:
    """Collect the random numbers of all draws; step, position and batch row are those of each packed row."""
    settings = (sampling.temperature, sampling.top_p, sampling.top_k)
    if sampling.temperature == 0:
        return TokenDraw(*settings)
    # The first draw has no number in its name, so that a run's tokens do not depend on the number of draws.
    purposes = ["token", *(f"token/{draw}" for draw in range(1, draws))]
    if sampling.sampler == "inverse":
        uniforms = [noise.uniform_packed(step_R, position_R, row_R, purpose) for purpose in purposes]
        return TokenDraw(*settings, uniform_RD=torch.stack(uniforms, -1))
    bits_RD = None
    # The kernels compute uniforms from counters. That is wrong for noise that makes its uniforms in another way.
    if type(noise).uniform_vocab is Noise.uniform_vocab:
        bits_RD = torch.stack([noise.bits(step_R, position_R, row_R, purpose) for purpose in purposes], -1)

    def uniform_vocab(row_C: Tensor) -> Tensor:
        counters = (step_R[row_C], position_R[row_C], row_R[row_C])
        return torch.stack([noise.uniform_vocab(*counters, vocab, purpose) for purpose in purposes], -1)

    return TokenDraw(*settings, uniform_vocab=uniform_vocab, bits_RD=bits_RD)


def _check_output(output: ModelOutput, index_R: Tensor, inputs: ModelInput, vocabulary: Vocabulary) -> None:
    """Refuse an output whose vocabulary, slots or number of rows do not fit the input."""
    columns = output.logits_RV.shape[-1]
    if columns != vocabulary.size:
        raise DenoiserError(
            f"the denoiser returned {columns} logit columns; allowed: {vocabulary.size}, its vocabulary size; "
            "check that model and tokenizer belong together"
        )
    if output.wanted_BN.shape != inputs.tokens_BN.shape:
        raise DenoiserError(
            f"the denoiser answered for slots of shape {tuple(output.wanted_BN.shape)}; allowed: "
            f"{tuple(inputs.tokens_BN.shape)}, the input's; return one row per wanted slot"
        )
    if len(output.logits_RV) != len(index_R):
        raise DenoiserError(
            f"the denoiser returned {len(output.logits_RV)} logit rows; allowed: {len(index_R)}, one per "
            "wanted slot; return the wanted slots only, packed in row-major order"
        )
