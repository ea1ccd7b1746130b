"""How probable a text is: exactly under a method, as a Monte-Carlo bound, or in the best order.

A method that chooses positions without chance and never takes a token back can reach a text in one way only, so the
probability of the text is a product of what the model predicts on that way (DUEL): no bound, no sampling. Evaluation
harnesses that ask for a log-likelihood get this quantity or the bound, and never one under the other's name.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from unmask.api.options import LikelihoodOptions
from unmask.api.request import (
    LoadedModel,
    Request,
    check_length,
    check_texts,
    is_conversation,
    start_trajectory,
    token_request,
)
from unmask.api.resolve import json_values, resolve_policy, resolve_sampling
from unmask.base.environment import versions
from unmask.base.errors import ConfigError, require
from unmask.core import (
    Action,
    Denoiser,
    Edit,
    LookAhead,
    ModelInput,
    Needs,
    Noise,
    Policy,
    SamplingParams,
    Search,
    State,
    TokenDraw,
    Trajectory,
    filter_logits_,
    row_key,
)
from unmask.engine import apply, decode
from unmask.methods import describe_policy
from unmask.models import GuidedDenoiser, Prompt
from unmask.stats import Estimate, estimate_ratio

EXACT, MONTE_CARLO, ORACLE = "exact", "monte-carlo", "oracle"
QUANTITIES = {
    EXACT: "exact log-likelihood of the text's tokens under the method as a sampler: positions as it chooses them at "
    "temperature 0, tokens drawn from the model there (DUEL)",
    MONTE_CARLO: "Monte-Carlo estimate of a lower bound on the log-likelihood, over random sets of masked tokens "
    "(LLaDA); no method decides anything",
    ORACLE: "log-likelihood of the text's tokens in their best order, one at a time inside blocks, which only who sees "
    "the text can choose (DUEL's oracle); an upper end, no likelihood of a method",
}
"""Description of the quantity that each estimator computes."""

SAMPLES, ORACLE_BLOCK = 128, 4
"""Default number of samples (from LLaDA), and of tokens in an oracle block (from DUEL)."""

LOG_P = "forced/log_p_BL"
"""Key of the note in which each step stores the log-probabilities of the tokens that it wrote."""

ROWS_AT_ONCE = 256
"""Most packed rows whose distributions are held in float64 at a time."""

_ALLOWED = (
    "allowed: a method that chooses positions without chance, keeps what it reveals and writes what the model says; "
    "choose another, or estimator='monte-carlo'"
)


@dataclass(frozen=True)
class TextLikelihood:
    """The log-likelihood of one text. Logarithms are natural."""

    text: str
    prompt: Any
    tokens: tuple[int, ...]
    log_likelihood: float
    standard_error: float | None
    """Standard error of a Monte-Carlo estimate, as if samples were independent; None for an exact number."""
    log_probs: tuple[float, ...]
    """Log-probability of each token at the step that revealed it; empty for a Monte-Carlo estimate."""
    order: tuple[tuple[int, ...], ...]
    """Indices of the tokens that each step revealed; empty for a Monte-Carlo estimate."""
    forwards: int

    @property
    def perplexity(self) -> float:
        """Perplexity of the text: exp(-log-likelihood / tokens)."""
        return _exp_or_inf(-self.log_likelihood / len(self.tokens))


@dataclass(frozen=True)
class Likelihoods:
    """The result of `Model.log_likelihood`: a row per text, and the name of the quantity."""

    quantity: str
    rows: tuple[TextLikelihood, ...]
    config: dict[str, Any]

    @property
    def log_likelihood(self) -> float:
        """The log-likelihood of the only text."""
        require(len(self.rows) == 1, "the number of texts", len(self.rows), "1", "use .rows, which has one for each")
        return self.rows[0].log_likelihood

    @property
    def tokens(self) -> int:
        """Number of tokens of all texts."""
        return sum(len(row.tokens) for row in self.rows)

    @property
    def perplexity(self) -> Estimate:
        """Perplexity of all texts together, with a confidence interval if there are two texts or more."""
        total = sum(row.log_likelihood for row in self.rows)
        value = _exp_or_inf(-total / self.tokens)
        if len(self.rows) < 2 or not math.isfinite(total):
            return Estimate(value, math.nan, math.nan, n=len(self.rows))
        sums, counts = [row.log_likelihood for row in self.rows], [len(row.tokens) for row in self.rows]
        mean = estimate_ratio(sums, counts, range(len(self.rows)), seed=self.config["seed"])
        return Estimate(value, _exp_or_inf(-mean.high), _exp_or_inf(-mean.low), n=len(self.rows))

    def to_json(self) -> str:
        """Return everything as JSON; a number that does not exist is null, an infinite one is a word."""
        perplexity = {name: None if value != value else value for name, value in asdict(self.perplexity).items()}
        document = {
            "quantity": self.quantity,
            "perplexity": perplexity,
            "tokens": self.tokens,
            "forwards": sum(row.forwards for row in self.rows),
            "rows": [{**asdict(row), "perplexity": row.perplexity} for row in self.rows],
            "config": self.config,
        }
        return json.dumps(json_values(document), indent=2, ensure_ascii=False)


def _exp_or_inf(value: float) -> float:
    """Compute exp(value); infinity where a float would overflow."""
    return math.inf if value > 700 else math.exp(value)


@dataclass(frozen=True)
class _EncodedText:
    """A text's tokens, with a request whose canvas has a blank for each of them."""

    text: str
    prompt: Any
    tokens: tuple[int, ...]
    request: Request

    def fill_canvas(self, state: State, row: int) -> Tensor:
        """Return the canvas of a row with its blanks filled by the text."""
        truth_L = state.tokens_BL[row].clone()
        truth_L[slice(*self.request.answer)] = torch.tensor(self.tokens, device=truth_L.device)
        return truth_L

    def make_result(
        self,
        log_likelihood: float,
        forwards: int,
        *,
        error: float | None = None,
        log_probs: Sequence[float] = (),
        order: Sequence[tuple[int, ...]] = (),
    ) -> TextLikelihood:
        """Make the `TextLikelihood` of this text from its log-likelihood and cost."""
        return TextLikelihood(
            self.text, self.prompt, self.tokens, log_likelihood, error, tuple(log_probs), tuple(order), forwards
        )


def log_likelihood(
    model: LoadedModel,
    text: str | Sequence[str],
    prompt: Prompt | Sequence[Prompt] | None,
    options: LikelihoodOptions,
) -> Likelihoods:
    """Compute the log-likelihood of each text after its prompt, with the estimator that the options name."""
    sampling = resolve_sampling(model, options)
    policy = resolve_policy(model, options)[1] if options.estimator == EXACT else None
    texts = check_texts("text", text)
    prompts = _check_prompts(prompt, len(texts))
    encoded = [_encode_text(model, *pair, options.tokens_per_step) for pair in zip(texts, prompts, strict=True)]
    scale, batch = options.cfg_scale, options.batch_size
    denoiser = GuidedDenoiser(model.denoiser, scale) if scale else model.denoiser
    named: dict[str, Any]
    if policy is not None:
        named = {"policy": json_values(describe_policy(policy)), "tokens_per_step": options.tokens_per_step}
        rows = compute_exact_likelihoods(denoiser, policy, sampling, encoded, batch)
    elif options.estimator == MONTE_CARLO:
        named = {"samples": options.samples or SAMPLES}
        rows = [estimate_lower_bound(denoiser, sampling, one, named["samples"], options.seed, batch) for one in encoded]
    else:
        named = {"oracle_block": options.oracle_block or ORACLE_BLOCK}
        rows = [compute_oracle_likelihood(denoiser, sampling, one, named["oracle_block"], batch) for one in encoded]
    config = {
        "task": "score",
        "bound": options.estimator,  # stored name
        "model": {"name": model.name, **json_values(model.options)},
        "fingerprint": model.fingerprint,
        **named,
        "proposal": json_values(asdict(sampling)),  # stored name
        "cfg_scale": scale,
        "seed": options.seed,
        "versions": versions(),
    }
    return Likelihoods(QUANTITIES[options.estimator], tuple(rows), config)


def _check_prompts(prompt: Any, texts: int) -> list[Any]:
    """Return one prompt, or None, for each text; a single prompt is repeated."""
    if prompt is None:
        return [None] * texts
    if isinstance(prompt, str) or is_conversation(prompt):
        return check_texts("prompt", [prompt]) * texts
    prompts = [None if one is None else check_texts("prompt", [one])[0] for one in prompt]
    require(len(prompts) == texts, "the number of prompts", len(prompts), f"1 or {texts}", "give one for each text")
    return prompts


def _encode_text(model: LoadedModel, text: str, prompt: Any, tokens_per_step: int) -> _EncodedText:
    """Encode a text behind its prompt; refuse an empty or too long text, and a text with blanks."""
    codec, frame = model.codec, model.codec.canvas("")
    opening, canvas = frame[: len(frame) - len(codec.closing)], codec.canvas(text)
    tokens = tuple(canvas[len(opening) : len(canvas) - len(codec.closing)])
    blank = model.denoiser.vocabulary.mask_id in tokens
    require(not blank, "text", text, "a text without blanks", "write out what is to be scored")
    require(bool(tokens), "text", text, "one token or more", "write a text")
    before = opening if prompt is None else codec.encode(prompt)
    check_length(model, "text", len(before) + len(tokens) + len(codec.closing))
    request = token_request(model, before, len(tokens), -(-len(tokens) // tokens_per_step))
    return _EncodedText(text, json_values(prompt), tokens, request)


def compute_token_log_probs(logits_RV: Tensor, token_R: Tensor, edit: Edit, sampling: SamplingParams) -> Tensor:
    """Compute the log-probability of one token per row of logits, after temperature and filters.

    -inf for a token that a filter cuts off. In float64, because hundreds of these numbers are added up.
    """
    draw = TokenDraw(sampling.temperature, sampling.top_p, sampling.top_k)
    out = []
    # In pieces: 126,464 probabilities of float64 are a megabyte a row.
    for z_CV, token_C in zip(logits_RV.split(ROWS_AT_ONCE), token_R.split(ROWS_AT_ONCE), strict=True):
        z_CV = filter_logits_(edit.apply_(z_CV.double().clone()) / sampling.temperature, draw)
        out.append(z_CV.log_softmax(-1).gather(1, token_C[:, None]).squeeze(1))
    return torch.cat(out) if out else logits_RV.new_zeros(0, dtype=torch.float64)


# Exact, under a method


@dataclass(frozen=True)
class TeacherForcing(Policy):
    """Policy that reveals the tokens of a given text at the positions that another method chooses.

    The method never sees what stands behind a mask; where it reads what was revealed, it reads the text. Every step
    notes the log-probabilities of the tokens that it wrote, under `LOG_P`.
    """

    name: ClassVar[str] = "teacher-forcing"
    method: Policy
    truth_BL: Tensor
    """Canvases of all rows, filled with their texts."""
    sampling: SamplingParams
    """Sampling parameters under which the text's tokens are scored; decoding itself is greedy."""

    @property
    def needs(self) -> Needs:
        return self.method.needs | Needs(posterior=True)

    @property
    def past_steps(self) -> int:
        return self.method.past_steps

    @property
    def looks_ahead(self) -> bool:
        return self.method.looks_ahead

    @property
    def extra_steps(self) -> bool:
        return self.method.extra_steps

    def check(self, state: State) -> None:
        self.method.check(state)

    def model_input(self, traj: Trajectory) -> ModelInput:
        return self.method.model_input(traj)

    def done(self, traj: Trajectory) -> Tensor:
        return self.method.done(traj) | ~traj.state.masked_BL.any(-1)

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        # The method sees the model's own predictions, so it chooses the positions that it would choose when decoding.
        action = self.method.act(traj, look_ahead)
        # Applied to a copy first, to learn which positions the action reveals.
        change = apply(traj.state, traj.current_prediction, action)
        revealed_BL, posterior = change.revealed_BL, traj.current_prediction.posterior
        if bool(change.remasked_BL.any()):
            raise _likelihood_error(self.method, "it re-masks")
        if action.tokens_BL is not None and bool(((action.tokens_BL >= 0) & revealed_BL).any()):
            raise _likelihood_error(self.method, "it writes tokens of its own")
        assert posterior is not None, "it is asked for in `needs`"
        truth_BL = self.truth_BL[traj.rows_B]
        rows_R = posterior.slot_BN[:, : truth_BL.shape[1]][revealed_BL]
        log_p_BL = torch.zeros(truth_BL.shape, dtype=torch.float64, device=truth_BL.device)
        # A position is revealed once, so its probability is written once; all others stay 0.
        log_p_BL[revealed_BL] = compute_token_log_probs(
            posterior.logits_RV[rows_R], truth_BL[revealed_BL], posterior.edit, self.sampling
        )
        tokens_BL = torch.where(revealed_BL, truth_BL, -1)
        return replace(action, tokens_BL=tokens_BL, notes={**action.notes, LOG_P: log_p_BL})


def _likelihood_error(policy: Policy | Search, why: str) -> ConfigError:
    """Make the error for a method under which a text has no exact likelihood."""
    return ConfigError(f"{policy.name} gives a text no exact likelihood: {why}; {_ALLOWED}")


def compute_exact_likelihoods(
    denoiser: Denoiser, policy: Policy | Search, sampling: SamplingParams, texts: Sequence[_EncodedText], batch: int
) -> list[TextLikelihood]:
    """Compute exact log-likelihoods under a method, from the probability of each token as the method reveals it."""
    if isinstance(policy, Search):
        raise _likelihood_error(policy, "it searches: it owns its loop")
    if policy.random:
        raise _likelihood_error(policy, "it chooses positions at random")
    if policy.remasks:
        raise _likelihood_error(policy, "it re-masks")
    rows: list[TextLikelihood] = []
    # In the order of the texts: the rows of a pass do not see each other, so cutting changes no number.
    for first in range(0, len(texts), batch):
        part = texts[first : first + batch]
        start = start_trajectory(denoiser, [one.request for one in part], seed=0, extra_steps=policy.extra_steps)
        truth_BL = torch.stack([one.fill_canvas(start.state, row) for row, one in enumerate(part)])
        log_p_BL = torch.zeros(truth_BL.shape, dtype=torch.float64, device=truth_BL.device)
        step_BL = torch.full_like(truth_BL, -1)

        def add_step(traj: Trajectory, log_p_BL: Tensor = log_p_BL, step_BL: Tensor = step_BL) -> None:
            step, rows_B = traj.steps[-1], traj.rows_B
            log_p_BL[rows_B] += step.action.notes[LOG_P]
            step_BL[rows_B] = torch.where(step.revealed_BL, step.state.step_B[:, None], step_BL[rows_B])

        forced = TeacherForcing(policy, truth_BL, sampling)
        end = decode(denoiser, forced, start, sampling=sampling.greedy, record=False, on_step=add_step)
        left = bool(end.state.masked_BL.any())
        require(not left, "masks that it leaves", f"some, with {policy.name}", "none", "choose a method that fills all")
        for row, one in enumerate(part):
            span = slice(*one.request.answer)
            log_p, steps = log_p_BL[row, span].tolist(), step_BL[row, span].tolist()
            order = [tuple(at for at, s in enumerate(steps) if s == t) for t in sorted(set(steps))]
            rows.append(one.make_result(math.fsum(log_p), int(end.forwards_B[row]), log_probs=log_p, order=order))
    return rows


# LLaDA's bound


def estimate_lower_bound(
    denoiser: Denoiser, sampling: SamplingParams, text: _EncodedText, samples: int, seed: int, batch: int
) -> TextLikelihood:
    """Estimate LLaDA's lower bound on a text's log-likelihood, from randomly masked copies of the text."""
    start = start_trajectory(denoiser, [text.request], seed=0)
    truth_L, edit = text.fill_canvas(start.state, 0), sampling.edit(denoiser.vocabulary)
    hidden_UL, count_U = draw_masked_sets(text.request, samples, seed, truth_L.device)
    values: list[Tensor] = []
    for hidden_PL, count_P in zip(hidden_UL.split(batch), count_U.split(batch), strict=True):
        state = start.state.select(torch.zeros_like(count_P))
        state = replace(state, tokens_BL=torch.where(hidden_PL, state.mask_id, truth_L))
        output = denoiser(ModelInput.of(state, Needs()), Needs())
        log_p_R = compute_token_log_probs(output.logits_RV, truth_L.expand_as(hidden_PL)[hidden_PL], edit, sampling)
        sums_P = torch.zeros(len(count_P), dtype=torch.float64, device=log_p_R.device)
        sums_P = sums_P.index_add(0, hidden_PL.nonzero()[:, 0], log_p_R)
        values.append(sums_P * len(text.tokens) / count_P)
    # The strata make samples slightly dependent; the error is computed as of independent ones.
    value_U = torch.cat(values).cpu().numpy()
    error = float(value_U.std(ddof=1) / math.sqrt(samples)) if samples > 1 else None
    return text.make_result(float(value_U.mean()), samples * output.forwards, error=error)


def draw_masked_sets(request: Request, samples: int, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Draw the positions of the answer that each sample masks; return them with their number.

    The numbers of masks go round 1..n in equal strides from one random start, as in LLaDA's evaluation: each is
    uniform by itself, together they vary less.
    """
    (first, last), n = request.answer, request.answer[1] - request.answer[0]
    noise = Noise.of([row_key(seed, request.key, sample) for sample in range(samples)], device)
    position_UL = torch.arange(len(request.canvas), device=device).expand(samples, -1)
    step_U = torch.zeros(samples, dtype=torch.long, device=device)
    shift = int(noise.uniform(step_U, position_UL, "bound/start")[0, 0] * n)
    stride_U = torch.from_numpy(np.arange(samples) * n // samples).to(device)
    count_U = 1 + (shift + stride_U) % n
    # The positions with the least random numbers are masked: all sets of that size are equally probable.
    order_UL = noise.uniform(step_U, position_UL, "bound/set")
    inside_UL = (position_UL >= first) & (position_UL < last)
    rank_UL = torch.where(inside_UL, order_UL, 2.0).argsort(-1).argsort(-1)
    return inside_UL & (rank_UL < count_U[:, None]), count_U


# DUEL's oracle


def compute_oracle_likelihood(
    denoiser: Denoiser, sampling: SamplingParams, text: _EncodedText, block: int, batch: int
) -> TextLikelihood:
    """Compute the log-likelihood of a text in its best order, one token at a time inside blocks.

    Found by dynamic programming over the subsets of each block: best(S + l) = max over l of best(S) + log p(x_l | S).
    Predictions under a subset do not depend on the order that led to it, so 2^b - 1 forwards replace b! orders.
    """
    state = start_trajectory(denoiser, [text.request], seed=0).state
    truth_L, edit = text.fill_canvas(state, 0), sampling.edit(denoiser.vocabulary)
    place_L = torch.arange(len(truth_L), device=truth_L.device)
    first, last = text.request.answer
    log_probs, order, forwards = [0.0] * (last - first), [], 0
    for start in range(first, last, block):
        inside = slice(start, min(start + block, last))
        size = inside.stop - inside.start
        bit_B = torch.arange(size, device=truth_L.device)
        log_p_SB: list[list[float]] = []
        for subset_U in torch.arange(2**size - 1, device=truth_L.device).split(batch):
            # Everything before the block is revealed, everything behind it masked, and inside it the subset's bits.
            known_UB = (subset_U[:, None] >> bit_B) & 1 == 1
            tokens_L = torch.where(state.masked_BL[0] & (place_L >= start), state.mask_id, truth_L)
            tokens_UL = tokens_L.repeat(len(subset_U), 1)
            tokens_UL[:, inside] = torch.where(known_UB, truth_L[inside], state.mask_id)
            rows = replace(state.select(torch.zeros_like(subset_U)), tokens_BL=tokens_UL)
            wanted_UL = rows.masked_BL & (place_L >= inside.start) & (place_L < inside.stop)
            output = denoiser(replace(ModelInput.of(rows, Needs()), wanted_BN=wanted_UL), Needs())
            log_p_UB = torch.zeros(known_UB.shape, dtype=torch.float64, device=truth_L.device)
            token_R = truth_L.expand_as(wanted_UL)[wanted_UL]
            log_p_UB[~known_UB] = compute_token_log_probs(output.logits_RV, token_R, edit, sampling)
            log_p_SB += log_p_UB.tolist()
            forwards += output.forwards * len(subset_U)
        subset = 0
        for at in _find_best_order(log_p_SB, size):
            log_probs[start - first + at] = log_p_SB[subset][at]
            order.append((start - first + at,))
            subset |= 1 << at
    return text.make_result(math.fsum(log_probs), forwards, log_probs=log_probs, order=order)


def _find_best_order(log_p_SB: Sequence[Sequence[float]], size: int) -> list[int]:
    """Return the order of a block's positions with the largest sum of log-probabilities.

    `log_p_SB` has a row for each subset of revealed places, numbered by its bits.
    """
    best, last_place = {0: 0.0}, {0: -1}
    for subset in range(2**size - 1):  # every part of a subset has a smaller number
        for at in range(size):
            if not subset >> at & 1:
                larger, value = subset | 1 << at, best[subset] + log_p_SB[subset][at]
                if larger not in best or value > best[larger]:
                    best[larger], last_place[larger] = value, at
    # Back from the whole block, by the place that was revealed last.
    way, subset = [], 2**size - 1
    while subset:
        way.append(last_place[subset])
        subset ^= 1 << last_place[subset]
    return way[::-1]
