"""Train heads: small networks that read the hidden states of one loaded model, which itself is not changed.

Two stages, as DEMASK's authors do it: hidden rows and targets are computed once and kept, then the head is fitted to
them. The model is passed in, so that one of 8 billion parameters is not loaded twice.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from unmask.api import LoadedModel
from unmask.base.errors import ConfigError, UnmaskError, require
from unmask.base.options import Options, check_name
from unmask.core import ModelInput, Needs, SamplingParams, State
from unmask.methods import HEADS, HeadCard, read_card, save_head
from unmask.methods.heads import CARD
from unmask.models import ExactDenoiser
from unmask.stats import auroc, spearman
from unmask.train.export import library_versions
from unmask.train.run_folder import LOCK, lock_folder
from unmask.train.sources import CONSTRUCTED, FILES, WRITTEN, Folders, generate_texts

LOSSES = {
    "demask": "binary cross-entropy of the predicted dependence against total variation after one drawn token",
    "ddpd": "binary cross-entropy against whether a token was replaced by a uniform one",
}
"""Loss of each kind of head, in the words of its card."""
LONGEST = 1024
"""Longest text, in tokens. Longer texts are left out."""


Amount = Annotated[int, Field(ge=1, le=10_000_000)]


class HeadOptions(Options):
    """Options of `train_head`: the kind of head, and the texts and steps to train it on."""

    kind: str
    examples: Amount = 2000
    """Texts to learn from."""
    held_out: Amount = 200
    """Other texts, that the head is evaluated on."""
    steps: Amount = 3000
    batch: Amount = 16
    """Texts per step, and canvases in one forward of the model."""
    rate: float = Field(1e-3, gt=0, lt=1, json_schema_extra={"hint": "0.001 suits both kinds"})
    size: Amount = 64
    probes: Amount = 4
    """Positions per text on which tokens are tried (demask)."""
    draws: Amount = 4
    """Tokens tried at each such position when a head is evaluated (demask)."""
    seed: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        check_name("kind of head", self.kind, HEADS)
        return self


def train_head(
    model: LoadedModel,
    options: HeadOptions,
    out: str | Path,
    *,
    folders: Folders | None = None,
    log: Callable[[str], None] = lambda line: None,
) -> HeadCard:
    """Train a DEMASK or DDPD head for a model, and write it to the folder `out/head`, complete or not at all.

    A finished head is left as it is. An interrupted run keeps nothing and begins again. One run at a time has `out`.
    """
    out, folders = Path(out), folders or Folders()
    if isinstance(model.denoiser, ExactDenoiser):
        raise ConfigError(
            f"{model.name} needs no head: its hidden rows hold marginals only, and dependence is computed; allowed: "
            "models with a network; leave the head out"
        )
    folder, was_interrupted, is_new = out / "head", (out / LOCK).exists(), not out.exists()
    with lock_folder(out, ("head",), log):
        if (folder / CARD).exists():
            card = read_card(folder)
            _check_same_head(card, options, model, folders, folder)
            log(f"{folder} is finished; nothing to do")
            return card
        if was_interrupted:
            log(f"a run in {out} did not finish, and kept nothing: this one starts from the beginning")
        try:
            return _fit_and_save(model, options, folder, folders, log)
        except UnmaskError:
            # A refused run leaves nothing behind. An interrupted one leaves its lock, by which the next run knows it.
            if is_new:
                (out / LOCK).unlink(missing_ok=True)
                out.rmdir()
            raise


def _check_same_head(card: HeadCard, options: HeadOptions, model: LoadedModel, folders: Folders, folder: Path) -> None:
    """Refuse a folder that holds a head of another model, other texts or other settings."""
    own = "the package's own"
    stored = {"model": card.fingerprint, "texts": card.data.get("folder", own), **card.settings}
    wanted = {"model": model.fingerprint, "texts": folders.texts or own, **options.model_dump()}
    differences = [
        f"{key} {stored.get(key)} there, {value} asked for" for key, value in wanted.items() if stored.get(key) != value
    ]
    if differences:
        raise ConfigError(
            f"{folder} holds another head, {card.kind} for {card.model} ({'; '.join(differences)}); allowed: the same "
            "command; use another --out"
        )


def _fit_and_save(
    model: LoadedModel, options: HeadOptions, folder: Path, folders: Folders, log: Callable[[str], None]
) -> HeadCard:
    """Compute hidden states and targets, fit the head to them, evaluate it on held-out texts, and save it."""
    texts = make_canvases(model, options.examples, options.seed, False, folders)
    held_out = make_canvases(model, options.held_out, options.seed, True, folders)
    log(f"{len(texts)} texts to learn from, {len(held_out)} to judge by")
    torch.manual_seed(options.seed)

    def compute_all(texts: Sequence[Canvas], stream: int, draws: int) -> list[HeadRows]:
        rng = np.random.default_rng([options.seed, stream])
        rows = compute_rows(model, options.kind, texts, rng, batch=options.batch, probes=options.probes, draws=draws)
        require(bool(rows), "texts with something to learn", 0, "1 or more", "take longer texts")
        return rows

    rows, held_out_rows = compute_all(texts, 0, 1), compute_all(held_out, 1, options.draws)
    hidden_WH = rows[0].hidden_WH
    width = hidden_WH.shape[-1]
    network = HEADS[options.kind](width, options.size).to(hidden_WH.device)

    network.train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=options.rate, weight_decay=0.1)
    rng = np.random.default_rng([options.seed, 2])
    for step in range(options.steps):
        for group in optimizer.param_groups:
            group["lr"] = options.rate * (1 + math.cos(math.pi * step / options.steps)) / 2
        chosen = rng.integers(len(rows), size=options.batch)
        logits, targets = predict_targets(network, options.kind, [rows[i] for i in chosen])
        # The mean over all pairs, not over texts, as the head is evaluated.
        loss = F.binary_cross_entropy_with_logits(logits, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % max(1, options.steps // 10) == 0:
            log(f"step {step + 1}/{options.steps}  loss {float(loss.detach()):.4f}")
    network.eval()

    quality = evaluate_head(network, options.kind, held_out_rows, rows)
    log("held-out: " + ", ".join(f"{name} {value:.4f}" for name, value in quality.items()))
    sources = ", ".join(sorted({canvas.source for canvas in texts}))
    data: dict[str, Any] = {"texts": len(texts), "held_out": len(held_out), "sources": sources}
    if folders.texts is not None:
        data["folder"] = folders.texts
    card = HeadCard(
        kind=options.kind,
        model=model.name,
        fingerprint=model.fingerprint,
        width=width,
        size=options.size,
        weights_sha256="",
        loss=LOSSES[options.kind],
        data=data,
        settings=options.model_dump(),
        quality=quality,
        versions=library_versions(),
    )
    return save_head(folder, network, card)


def predict_targets(network: nn.Module, kind: str, rows: Sequence["HeadRows"]) -> tuple[Tensor, Tensor]:
    """Compute the head's logits on some texts; return them and the targets at the same places, both flattened."""
    hidden_BWH = pad_sequence([row.hidden_WH for row in rows], batch_first=True)
    if kind == "ddpd":
        # Ones of the real positions, and zeros of the padding.
        known_BW = pad_sequence([torch.ones_like(row.p_W) for row in rows], batch_first=True) > 0
        logits_BW = network(hidden_BWH, pad_sequence([row.p_W for row in rows], batch_first=True))
        return logits_BW[known_BW], torch.cat([row.target for row in rows])
    most = max(len(row.probe) for row in rows)
    probe_BP = torch.stack([F.pad(row.probe, (0, most - len(row.probe))) for row in rows])
    targets = [F.pad(row.target, (0, most - len(row.probe)), value=math.nan) for row in rows]
    target_BWP = pad_sequence(targets, batch_first=True, padding_value=math.nan)
    logits_BWW = network.logits(hidden_BWH)  # type: ignore[operator]
    logits_BWP = logits_BWW.gather(2, probe_BP[:, None].expand(-1, logits_BWW.shape[1], -1))
    # NaN marks padding and each probe at itself: neither has a target.
    known_BWP = ~target_BWP.isnan()
    return logits_BWP[known_BWP], target_BWP[known_BWP]


def evaluate_head(
    network: nn.Module, kind: str, held_out: Sequence["HeadRows"], learned: Sequence["HeadRows"]
) -> dict[str, float]:
    """Measure the head on held-out texts, beside a baseline that always predicts the mean training target."""
    # NaN stands where a probe meets itself: there is nothing to predict.
    mean = float(torch.cat([row.target.flatten() for row in learned]).double().nanmean())
    with torch.no_grad():
        pairs = [predict_targets(network, kind, [row]) for row in held_out]
    logits, targets = (torch.cat(parts).double().cpu() for parts in zip(*pairs, strict=True))
    answers = logits.sigmoid()
    # Kept away from 0 and 1, where the cross entropy of a single wrong target would be infinite.
    constant = torch.full_like(answers, min(max(mean, 1e-6), 1 - 1e-6))
    quality = {
        "loss": float(F.binary_cross_entropy(answers, targets)),
        "loss_of_the_mean": float(F.binary_cross_entropy(constant, targets)),
        "mean_absolute_error": float((answers - targets).abs().mean()),
        "mean_absolute_error_of_the_mean": float((constant - targets).abs().mean()),
        "explained_variance": 1 - float((answers - targets).square().mean() / (constant - targets).square().mean()),
    }
    if kind == "demask":
        return quality | {"rank_correlation": float(spearman(answers.numpy(), targets.numpy())[0])}
    return quality | {"auroc": float(auroc(answers.numpy(), targets.numpy() > 0.5)[0])}


# The texts, and what the model computes on them.


@dataclass(frozen=True)
class Canvas:
    """Tokens of one training text: the prompt, then the answer with end-of-text tokens after it."""

    source: str
    tokens: tuple[int, ...]
    start: int
    """Position where the answer begins."""


def make_canvases(
    model: LoadedModel, count: int, seed: int, held_out: bool, folders: Folders | None = None
) -> list[Canvas]:
    """Tokenise `count` texts, taken from all sources in turn, or from the folder of texts alone if one is given."""
    folders = folders or Folders()
    sources = (FILES,) if folders.texts is not None else (*CONSTRUCTED, *WRITTEN)
    # Rounded up; the surplus is cut off at the end.
    share = -(-count // len(sources))
    ends, longest = model.denoiser.vocabulary.eos_ids, min(LONGEST, model.max_length or LONGEST)
    canvases = []
    for source in sources:
        for text in generate_texts(source, seed, held_out, 0, share, folders):
            prompt = [] if text.prompt is None else model.codec.encode(text.prompt)
            answer: Sequence[int] = model.codec.canvas(text.answer)
            if text.room is not None and ends:
                answer = [*answer, *[ends[0]] * max(1, text.room - len(answer))]
            if len(answer) >= 2 and len(prompt) + len(answer) <= longest:
                canvases.append(Canvas(source, (*prompt, *answer), len(prompt)))
    if not canvases:
        raise ConfigError(
            "no text is left to learn from: all are empty or longer than the model's canvas; allowed: one or more; "
            "take shorter ones"
        )
    # One text of each source in turn, so that any first part of the list has all sources.
    return [canvas for at in range(share) for canvas in canvases[at::share]][:count]


@dataclass(frozen=True)
class HeadRows:
    """Inputs of a head at W positions of one text, and the targets to predict there."""

    hidden_WH: Tensor
    p_W: Tensor
    """Probability of the token that stands at each position (ddpd)."""
    target: Tensor
    """demask: (W, probes), how far each probe moved each position, NaN at itself. ddpd: (W,), 1 for noise."""
    probe: Tensor
    """Index of each probe among the W positions (demask)."""


def compute_rows(
    model: LoadedModel,
    kind: str,
    texts: Sequence[Canvas],
    rng: np.random.Generator,
    *,
    batch: int,
    probes: int,
    draws: int,
) -> list[HeadRows]:
    """Compute the head's inputs and targets on all texts, with `batch` canvases in each forward of the model."""
    rows: list[HeadRows] = []
    with torch.inference_mode():
        for first in range(0, len(texts), batch):
            part = texts[first : first + batch]
            if kind == "demask":
                rows += _compute_dependence_rows(model, part, rng, batch, probes, draws)
            else:
                rows += _compute_noise_rows(model, part, rng)
    # Copied, because tensors made in inference mode may not enter a graph of gradients.
    return [HeadRows(*(tensor.clone() for tensor in vars(row).values())) for row in rows]


class _TriedPosition(NamedTuple):
    """Masked position of a text on which tokens are tried."""

    text: int
    mask: int
    """Index of the tried position among the text's masks."""
    number: int
    """Index among the text's probes."""


def _compute_dependence_rows(
    model: LoadedModel, part: Sequence[Canvas], rng: np.random.Generator, batch: int, probes: int, draws: int
) -> list[HeadRows]:
    """Compute rows for DEMASK: how far a token put on one masked position moves the predictions at the others."""
    tokens, masks = _mask_answers(part, rng, model.denoiser.vocabulary.mask_id)
    before = _forward_texts(model, _make_state(model, part, tokens))
    device = before.p_RV.device
    # Rows of all masks lie one after the other: those of text b begin at first[b].
    first = np.cumsum([0, *map(len, masks)])
    tried = [
        _TriedPosition(b, w, n) for b, m in enumerate(masks) for n, w in enumerate(rng.permutation(len(m))[:probes])
    ]
    row_T = torch.tensor([first[probe.text] + probe.mask for probe in tried], device=device)
    drawn_TD = _draw_tokens(before.p_RV[row_T], rng, draws)
    trials = [(probe, token) for probe, drawn in zip(tried, drawn_TD, strict=True) for token in drawn]
    target_RP = torch.zeros((int(first[-1]), probes), device=device)
    for start in range(0, len(trials), batch):
        some = trials[start : start + batch]
        canvases, rows, columns = [], [], []
        for probe, token in some:
            canvas = tokens[probe.text].copy()
            canvas[masks[probe.text][probe.mask]] = token
            canvases.append(canvas)
            # The masks of this canvas are those of its text, without the one that got a token.
            rows.append(first[probe.text] + np.delete(np.arange(len(masks[probe.text])), probe.mask))
            columns.append(np.full(len(rows[-1]), probe.number))
        after = _forward_texts(model, _make_state(model, [part[probe.text] for probe, _ in some], canvases))
        row_U, column_U = (torch.from_numpy(np.concatenate(numbers)).to(device) for numbers in (rows, columns))
        # Total variation: half the L1 distance of the two distributions at each remaining mask.
        moved_U = (after.p_RV - before.p_RV[row_U]).abs().sum(-1) / 2
        target_RP.index_put_((row_U, column_U), moved_U.float() / draws, accumulate=True)
    target_RP[row_T, torch.tensor([probe.number for probe in tried], device=device)] = math.nan
    found = []
    for b, (hidden_WH, target_WP) in enumerate(zip(before.hidden, target_RP.split([*map(len, masks)]), strict=True)):
        probe_P = torch.tensor([probe.mask for probe in tried if probe.text == b], device=device)
        no_p_W = torch.zeros(len(hidden_WH), device=device)
        found.append(HeadRows(hidden_WH, no_p_W, target_WP[:, : len(probe_P)], probe_P))
    return found


def _mask_answers(
    part: Sequence[Canvas], rng: np.random.Generator, mask_id: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Mask two or more positions of each answer; return the tokens and the masked positions of each text."""
    tokens, masks = [], []
    for canvas in part:
        positions = np.arange(canvas.start, len(canvas.tokens))
        # At least two masks: a single one has no other to depend on.
        masked = np.sort(rng.permutation(positions)[: rng.integers(2, len(positions) + 1)])
        row = np.array(canvas.tokens)
        row[masked] = mask_id
        tokens.append(row)
        masks.append(masked)
    return tokens, masks


def _draw_tokens(p_TV: Tensor, rng: np.random.Generator, draws: int) -> list[list[int]]:
    """Draw `draws` tokens from each row of probabilities."""
    total_TV = p_TV.double().cumsum(-1)
    uniform_TD = torch.from_numpy(rng.random((len(p_TV), draws))).to(p_TV.device)
    # The sum of float64 probabilities is not exactly one, so that uniform numbers are scaled to it.
    drawn_TD = torch.searchsorted(total_TV, uniform_TD * total_TV[:, -1:], right=True)
    tokens: list[list[int]] = drawn_TD.clamp(max=p_TV.shape[1] - 1).tolist()
    return tokens


def _compute_noise_rows(model: LoadedModel, part: Sequence[Canvas], rng: np.random.Generator) -> list[HeadRows]:
    """Compute rows for DDPD: answers with some tokens replaced by random ones, which the head has to find."""
    vocabulary = model.denoiser.vocabulary
    legal = np.array([t for t in range(vocabulary.size) if t != vocabulary.mask_id])
    tokens, labels = [], []
    for canvas in part:
        row = np.array(canvas.tokens)
        in_answer = np.arange(len(row)) >= canvas.start
        noisy = in_answer & (rng.random(len(row)) < rng.random())
        row[noisy] = rng.choice(legal, int(noisy.sum()))
        masked = in_answer & (rng.random(len(row)) < rng.random()) & (rng.random() < 0.5)
        row[masked] = vocabulary.mask_id
        tokens.append(row)
        # A masked position holds no token that could be judged.
        labels.append(noisy[in_answer & ~masked])
    output = _forward_texts(model, _make_state(model, part, tokens), revealed=True)
    no_probe = torch.zeros(0, dtype=torch.long)
    return [
        HeadRows(hidden_WH, p_W, torch.from_numpy(label_W).float().to(hidden_WH.device), no_probe)
        for hidden_WH, p_W, label_W in zip(output.hidden, output.p_of_token, labels, strict=True)
        if len(label_W)
    ]


def _make_state(model: LoadedModel, part: Sequence[Canvas], tokens: Sequence[np.ndarray]) -> State:
    """Make a state of several texts: prompts are given, answer positions are revealed or masked."""
    # Not by `State.from_canvases`, which refuses a row without a mask: nothing would be decoded there.
    device = model.denoiser.device
    tokens_BL = pad_sequence([torch.from_numpy(row) for row in tokens], batch_first=True).to(device)
    start_B, length_B = torch.tensor([(c.start, len(c.tokens)) for c in part], device=device).unbind(1)
    column_L = torch.arange(tokens_BL.shape[1], device=device)
    fixed_BL = (column_L < start_B[:, None]) | (column_L >= length_B[:, None])
    steps_B = torch.zeros_like(length_B)
    mask_id = model.denoiser.vocabulary.mask_id
    return State(tokens_BL, fixed_BL, fixed_BL.clone(), length_B, steps_B, steps_B + 1, mask_id)


class _TextOutputs(NamedTuple):
    """Hidden states and probabilities that a forward gave at the wanted positions."""

    hidden: Sequence[Tensor]
    p_RV: Tensor
    p_of_token: Sequence[Tensor]


def _forward_texts(model: LoadedModel, state: State, revealed: bool = False) -> _TextOutputs:
    """Run the model; return hidden states and probabilities at each text's masks, or at its revealed answer tokens."""
    wanted_BL = state.revealed_BL if revealed else state.masked_BL
    inputs = replace(ModelInput.of(state, Needs(revealed=revealed)), wanted_BN=wanted_BL)
    output = model.denoiser(inputs, Needs(hidden=True))
    if output.hidden_RH is None:
        raise ConfigError(f"{model.name} gives no hidden rows; allowed: models that do; choose another")
    # Cloned, because the edit works in place.
    z_RV = SamplingParams().edit(model.denoiser.vocabulary).apply_(output.logits_RV.float().clone())
    p_RV, counts = z_RV.softmax(-1), wanted_BL.sum(-1).tolist()
    p_R = p_RV.gather(1, state.tokens_BL[wanted_BL][:, None]).squeeze(1) if revealed else p_RV[:, 0]
    return _TextOutputs(output.hidden_RH.split(counts), p_RV, p_R.split(counts))
