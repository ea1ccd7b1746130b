"""How probable a text is: DUEL's exact likelihood under a method, and LLaDA's Monte-Carlo bound beside it.

A method that chooses positions deterministically and never takes a token back can reach a text in one way only, so the
probability of the text is a product of what the model said on that way (DUEL): no bound, no sampling. Evaluation
harnesses that ask for a log-likelihood get this quantity, or the bound, and never one under the other's name.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unmask.api.options import DecodeOptions, check_whole
from unmask.api.oracle import best_order, check_oracle_block
from unmask.api.request import (
    LoadedModel,
    Request,
    check_length,
    entered_texts,
    is_conversation,
    start_trajectory,
    token_request,
)
from unmask.api.resolve import plain, resolve
from unmask.base.environment import versions
from unmask.base.errors import ConfigError, UnknownName, require
from unmask.core import (
    Action,
    Denoiser,
    Edit,
    ForbiddenNoise,
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
from unmask.engine import LookCache, StepSettings, Transition, append_step, decide, predict, raise_faults
from unmask.methods import describe_policy, method_info
from unmask.models import GuidedDenoiser, Prompt
from unmask.stats.bootstrap import Estimate, ratio_intervals

EXACT, MONTE_CARLO, ORACLE = "exact", "monte-carlo", "oracle"
QUANTITIES = {
    EXACT: "exact log-likelihood of the text's tokens under the method as a sampler: positions as it chooses them at "
    "temperature 0, tokens drawn from the model there (DUEL)",
    MONTE_CARLO: "Monte-Carlo estimate of a lower bound on the log-likelihood, over random sets of masked tokens "
    "(LLaDA); no method decides anything",
    ORACLE: "log-likelihood of the text's tokens in their best order, one at a time inside blocks, which only who sees "
    "the text can choose (DUEL's oracle); an upper end, no likelihood of a method",
}
"""Which quantity is computed, by the name of its bound."""
_ROWS = 256
"""Packed rows whose distributions are held at a time."""
ONE_WAY = (
    "allowed: a method that chooses positions without chance, keeps what it reveals and writes what the model says"
)


@dataclass(frozen=True)
class TextLikelihood:
    """One text. Logarithms are natural."""

    text: str
    prompt: Any
    tokens: tuple[int, ...]
    log_likelihood: float
    standard_error: float | None
    """Of a Monte-Carlo estimate, as of independent samples; None for an exact number."""
    log_probs: tuple[float, ...]
    """Of every token, where it was revealed; none under a bound."""
    order: tuple[tuple[int, ...], ...]
    """Places of the text revealed in each step; none under a bound."""
    forwards: int

    @property
    def perplexity(self) -> float:
        """exp(-log-likelihood / tokens)."""
        return _exp(-self.log_likelihood / len(self.tokens))


@dataclass(frozen=True)
class Likelihoods:
    """What `Model.log_likelihood` returns: a row per text, and the name of the quantity."""

    quantity: str
    rows: tuple[TextLikelihood, ...]
    config: dict[str, Any]

    @property
    def log_likelihood(self) -> float:
        """Of the only text."""
        require(len(self.rows) == 1, "the number of texts", len(self.rows), "1", "use .rows, which has one for each")
        return self.rows[0].log_likelihood

    @property
    def tokens(self) -> int:
        return sum(len(row.tokens) for row in self.rows)

    @property
    def perplexity(self) -> Estimate:
        """exp(-sum of log-likelihoods / number of tokens), with an interval over resampled texts (two or more)."""
        total = sum(row.log_likelihood for row in self.rows)
        value = _exp(-total / self.tokens)
        if len(self.rows) < 2 or not math.isfinite(total):
            return Estimate(value, math.nan, math.nan, n=len(self.rows))
        tops, counts = [row.log_likelihood for row in self.rows], [len(row.tokens) for row in self.rows]
        (mean,) = ratio_intervals(tops, counts, range(len(self.rows)), seed=self.config["seed"])
        return Estimate(value, _exp(-mean.high), _exp(-mean.low), n=len(self.rows))

    def to_json(self) -> str:
        """All of it; a number that does not exist is null, one that is infinite is a word."""
        perplexity = {name: None if value != value else value for name, value in asdict(self.perplexity).items()}
        document = {
            "quantity": self.quantity,
            "perplexity": perplexity,
            "tokens": self.tokens,
            "forwards": sum(row.forwards for row in self.rows),
            "rows": [{**asdict(row), "perplexity": row.perplexity} for row in self.rows],
            "config": self.config,
        }
        return json.dumps(plain(document), indent=2, ensure_ascii=False)


def log_likelihood(
    model: LoadedModel,
    text: str | Sequence[str],
    prompt: Prompt | Sequence[Prompt] | None = None,
    *,
    estimator: str = EXACT,
    samples: int = 128,
    seed: int = 0,
    batch_size: int = 16,
    tokens_per_step: int = 1,
    temperature: float = 1.0,
    oracle_block: int = 4,
    **options: Any,
) -> Likelihoods:
    """The log-likelihood of each text after its prompt (one for all, or one each; none: the text alone).

    estimator="exact": under `policy` (default: the model's reference) with any of its settings, `tokens_per_step`
    tokens in a step of its schedule; refused where the method draws positions, re-masks or writes tokens of its own.
    estimator="monte-carlo": LLaDA's bound from `samples` masked copies and a `seed`. estimator="oracle": the best
    order inside blocks of `oracle_block` tokens, 2^oracle_block - 1 forwards each. Tokens are drawn at `temperature`,
    with top_p, top_k, cfg_scale and the end-of-text options of `generate`; a token that a filter cuts off makes -inf.
    `batch_size` canvases go through the model together; no row's result depends on the others.
    """
    if estimator not in QUANTITIES:
        raise UnknownName("estimator", str(estimator), QUANTITIES)
    for name, value in (("samples", samples), ("batch_size", batch_size), ("tokens_per_step", tokens_per_step)):
        check_whole(name, value)
        require(1 <= value <= 100_000, name, value, "1 to 100000", "choose another")
    check_oracle_block(oracle_block)
    require(0 < temperature < math.inf, "temperature", temperature, "above 0, finite", "1 is the model itself")
    resolved = resolve(model, _options(estimator, options | {"seed": seed, "temperature": temperature}))
    texts = entered_texts("text", text)
    prompts = _prompts(prompt, len(texts))
    asked = [_asked(model, *pair, tokens_per_step) for pair in zip(texts, prompts, strict=True)]
    scale = resolved.options.cfg_scale
    denoiser = GuidedDenoiser(model.denoiser, scale) if scale else model.denoiser
    if estimator == EXACT:
        rows = _exact(denoiser, resolved.policy, resolved.sampling, asked, batch_size)
    elif estimator == ORACLE:
        rows = [_in_best_order(denoiser, resolved.sampling, one, oracle_block, batch_size) for one in asked]
    else:
        rows = [_estimated(denoiser, resolved.sampling, one, samples, seed, batch_size) for one in asked]
    named = {
        EXACT: {"policy": plain(describe_policy(resolved.policy)), "tokens_per_step": tokens_per_step},
        MONTE_CARLO: {"samples": samples},
        ORACLE: {"oracle_block": oracle_block},
    }
    config = {
        "task": "score",
        "bound": estimator,  # stored name
        "model": {"name": model.name, **plain(model.options)},
        "fingerprint": model.fingerprint,
        **named[estimator],
        "proposal": plain(asdict(resolved.sampling)),
        "cfg_scale": scale,
        "seed": seed,
        "versions": versions(),
    }
    return Likelihoods(QUANTITIES[estimator], tuple(rows), config)


@dataclass(frozen=True)
class _Asked:
    """A text on its canvas."""

    text: str
    prompt: Any
    tokens: tuple[int, ...]
    request: Request

    @property
    def start(self) -> int:
        return self.request.answer[0]

    def truth(self, state: State, row: int) -> Tensor:
        """The whole canvas with the text in it."""
        truth_L = state.tokens_BL[row].clone()
        truth_L[self.start : self.request.answer[1]] = torch.tensor(self.tokens, device=truth_L.device)
        return truth_L


_OF_DECODING = ("preset", "top_p", "top_k", "cfg_scale", "logits_eos_inf", "eos_penalty", "seed", "temperature")


def _options(estimator: str, options: dict[str, Any]) -> DecodeOptions:
    """Those of `generate` that say what is scored; everything else is a setting of the method."""
    named = {name: options[name] for name in ("policy", *_OF_DECODING) if options.get(name) is not None}
    others = {name: value for name, value in options.items() if name not in ("policy", *_OF_DECODING)}
    if estimator != EXACT and (others or {"policy", "preset"} & set(named)):
        given = sorted({*others, *({"policy", "preset"} & set(named))})
        raise ConfigError(f"{', '.join(given)} given; allowed: no method under estimator={estimator!r}; leave them out")
    return DecodeOptions(**named, settings=others)


def _prompts(prompt: Any, texts: int) -> list[Any]:
    if prompt is None:
        return [None] * texts
    if isinstance(prompt, str) or is_conversation(prompt):
        return entered_texts("prompt", [prompt]) * texts
    prompts = [None if one is None else entered_texts("prompt", [one])[0] for one in prompt]
    require(len(prompts) == texts, "the number of prompts", len(prompts), f"1 or {texts}", "give one for each text")
    return prompts


def _asked(model: LoadedModel, text: str, prompt: Any, tokens_per_step: int) -> _Asked:
    codec, frame = model.codec, model.codec.canvas("")
    opening, whole = frame[: len(frame) - len(codec.closing)], codec.canvas(text)
    tokens = tuple(whole[len(opening) : len(whole) - len(codec.closing)])
    blank = model.denoiser.vocabulary.mask_id in tokens
    require(not blank, "text", text, "a text without blanks", "write out what is to be scored")
    require(bool(tokens), "text", text, "one token or more", "write a text")
    before = opening if prompt is None else codec.encode(prompt)
    check_length(model, "text", len(before) + len(tokens) + len(codec.closing))
    request = token_request(model, before, len(tokens), -(-len(tokens) // tokens_per_step))
    return _Asked(text, plain(prompt), tokens, request)


def check_scorable(policy: Policy | Search) -> None:
    """Refuse a method under which a text has no single way, and say why."""
    info = method_info(policy)
    whys = {
        "it searches: it owns its loop": isinstance(policy, Search),
        "it chooses positions at random": policy.random,
        "it re-masks": info is not None and info.commitment == "re-maskable",
    }
    for why, so in whys.items():
        if so:
            raise ConfigError(
                f"{policy.name} gives a text no exact likelihood: {why}; {ONE_WAY}; choose another, or "
                "estimator='monte-carlo'"
            )


def _check_step(policy: Policy, action: Action, change: Transition) -> None:
    """The same of what it does, for methods whose settings decide it and for those of one's own."""
    moved = bool(change.remasked_BL.any())
    own = action.tokens_BL is not None and bool(((action.tokens_BL >= 0) & change.revealed_BL).any())
    if moved or own:
        why = "it re-masks" if moved else "it writes tokens of its own"
        raise ConfigError(f"{policy.name} gives a text no exact likelihood: {why}; {ONE_WAY}; choose another")


@dataclass(frozen=True)
class TeacherForcing:
    """What rows said of a text that was written on them, place by place."""

    log_p_BL: Tensor
    step_BL: Tensor
    """When each place was revealed, -1 for never."""
    forwards_B: Tensor


def force_text(
    denoiser: Denoiser, policy: Policy | Search, sampling: SamplingParams, start: Trajectory, truth_BL: Tensor
) -> TeacherForcing:
    """The method's own way to a text: it chooses positions, and the text's tokens are written there.

    It never sees what stands behind a mask. Where it reads what was revealed, it reads the text.
    """
    check_scorable(policy)
    assert isinstance(policy, Policy)
    policy.check(start.state)
    settings = StepSettings(denoiser, sampling.greedy)
    look_ahead = LookCache(settings) if policy.looks_ahead else None
    needs = policy.needs | Needs(posterior=True)
    traj = replace(start, noise=ForbiddenNoise(start.noise.key_B), sampling=sampling.greedy)
    log_p_BL = torch.zeros(truth_BL.shape, dtype=torch.float64, device=truth_BL.device)
    step_BL, forwards_B = torch.full_like(truth_BL, -1), torch.zeros_like(start.forwards_B)
    while True:
        open_B = traj.state.masked_BL.any(-1)
        left = bool((policy.done(traj) & open_B).any())
        require(not left, "masks that it leaves", f"some, with {policy.name}", "none", "choose a method that fills all")
        traj = traj.select(open_B.nonzero().flatten())
        if traj.state.batch == 0:
            return TeacherForcing(log_p_BL, step_BL, forwards_B)
        rows_B = traj.rows_B
        traj, cost = predict(settings, traj, policy.model_input(traj), needs, look_ahead)
        if look_ahead is not None:
            look_ahead.begin(rows_B)
        action, change = decide(settings, policy, traj, look_ahead)
        if look_ahead is not None:
            cost += look_ahead.cost
        raise_faults(change.fault_B, traj.state.step_B, rows_B)
        _check_step(policy, action, change)
        said_BL = _of_truth(traj, truth_BL[rows_B], change.revealed_BL, sampling)
        log_p_BL[rows_B] += said_BL
        step_BL[rows_B] = torch.where(change.revealed_BL, traj.state.step_B[:, None], step_BL[rows_B])
        change = replace(change, confidence_BL=torch.where(change.revealed_BL, said_BL.exp(), 0.0))
        tokens_BL = torch.where(change.revealed_BL, truth_BL[rows_B], change.state.tokens_BL)
        after = change.state.after(tokens_BL, change.state.committed_BL, change.state.step_B)
        change = replace(change, state=after)
        traj = append_step(traj, policy.name, action, change, cost, keep=policy.past_steps or 1)
        forwards_B[rows_B] = traj.forwards_B


def _of_truth(traj: Trajectory, truth_BL: Tensor, revealed_BL: Tensor, sampling: SamplingParams) -> Tensor:
    """log p of the text's tokens where they were revealed, 0 elsewhere."""
    posterior = traj.current_prediction.posterior
    assert posterior is not None
    rows_R = posterior.slot_BN[:, : truth_BL.shape[1]][revealed_BL]
    out_BL = torch.zeros(truth_BL.shape, dtype=torch.float64, device=truth_BL.device)
    out_BL[revealed_BL] = token_log_probs(posterior.logits_RV[rows_R], truth_BL[revealed_BL], posterior.edit, sampling)
    return out_BL


def token_log_probs(logits_RV: Tensor, token_R: Tensor, edit: Edit, sampling: SamplingParams) -> Tensor:
    """log p of a token in each row, as the proposal draws: edited, tempered, filtered. -inf for what is cut off."""
    draw = TokenDraw(sampling.temperature, sampling.top_p, sampling.top_k)
    out = []
    for z_CV, token_C in zip(logits_RV.split(_ROWS), token_R.split(_ROWS), strict=True):
        z_CV = filter_logits_(edit.apply_(z_CV.double().clone()) / sampling.temperature, draw)
        out.append(z_CV.log_softmax(-1).gather(1, token_C[:, None]).squeeze(1))
    return torch.cat(out) if out else logits_RV.new_zeros(0, dtype=torch.float64)


def _exact(
    denoiser: Denoiser, policy: Policy | Search, sampling: SamplingParams, asked: Sequence[_Asked], batch: int
) -> list[TextLikelihood]:
    rows: list[TextLikelihood] = []
    check_scorable(policy)
    for first in range(0, len(asked), batch):
        part = asked[first : first + batch]
        start = start_trajectory(denoiser, [one.request for one in part], seed=0, extra_steps=policy.extra_steps)
        truth_BL = torch.stack([one.truth(start.state, row) for row, one in enumerate(part)])
        found = force_text(denoiser, policy, sampling, start, truth_BL)
        for row, one in enumerate(part):
            span = slice(*one.request.answer)
            log_p, steps = found.log_p_BL[row, span].tolist(), found.step_BL[row, span].tolist()
            order = tuple(tuple(at for at, s in enumerate(steps) if s == t) for t in sorted(set(steps)))
            total, forwards = math.fsum(log_p), int(found.forwards_B[row])
            rows.append(TextLikelihood(one.text, one.prompt, one.tokens, total, None, tuple(log_p), order, forwards))
    return rows


def _in_best_order(
    denoiser: Denoiser, sampling: SamplingParams, asked: _Asked, block: int, batch: int
) -> TextLikelihood:
    start = start_trajectory(denoiser, [asked.request], seed=0)
    truth_L, edit = asked.truth(start.state, 0), sampling.edit(denoiser.vocabulary)
    found = best_order(
        denoiser,
        start.state,
        truth_L,
        asked.request.answer,
        lambda logits_RV, token_R: token_log_probs(logits_RV, token_R, edit, sampling),
        block,
        batch,
    )
    order = tuple((at,) for at in found.order)
    total = math.fsum(found.log_p)
    return TextLikelihood(asked.text, asked.prompt, asked.tokens, total, None, found.log_p, order, found.forwards)


def _estimated(
    denoiser: Denoiser, sampling: SamplingParams, asked: _Asked, samples: int, seed: int, batch: int
) -> TextLikelihood:
    """LLaDA's estimate: n / l times the sum of log p over l tokens masked at random, l stratified over 1..n."""
    start = start_trajectory(denoiser, [asked.request], seed=0)
    truth_L, edit = asked.truth(start.state, 0), sampling.edit(denoiser.vocabulary)
    hidden_UL, count_U = masked_sets(asked.request, samples, seed, truth_L.device)
    values: list[Tensor] = []
    for hidden_PL, count_P in zip(hidden_UL.split(batch), count_U.split(batch), strict=True):
        state = start.state.select(torch.zeros_like(count_P))
        state = replace(state, tokens_BL=torch.where(hidden_PL, state.mask_id, truth_L))
        output = denoiser(ModelInput.of(state, Needs()), Needs())
        said_R = token_log_probs(output.logits_RV, truth_L.expand_as(hidden_PL)[hidden_PL], edit, sampling)
        sums_P = torch.zeros(len(count_P), dtype=torch.float64, device=said_R.device)
        sums_P = sums_P.index_add(0, hidden_PL.nonzero()[:, 0], said_R)
        values.append(sums_P * len(asked.tokens) / count_P)
    value_U = torch.cat(values).cpu().numpy()
    error = float(value_U.std(ddof=1) / math.sqrt(samples)) if samples > 1 else None
    forwards = samples * output.forwards
    return TextLikelihood(asked.text, asked.prompt, asked.tokens, float(value_U.mean()), error, (), (), forwards)


def masked_sets(request: Request, samples: int, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Which places of the answer each sample masks, and how many.

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
    order_UL = noise.uniform(step_U, position_UL, "bound/set")
    inside_UL = (position_UL >= first) & (position_UL < last)
    rank_UL = torch.where(inside_UL, order_UL, 2.0).argsort(-1).argsort(-1)
    return inside_UL & (rank_UL < count_U[:, None]), count_U


def _exp(value: float) -> float:
    return math.inf if value > 700 else math.exp(value)
