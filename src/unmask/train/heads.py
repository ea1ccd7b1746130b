"""Training of heads: small networks on the hidden rows of one loaded model, which itself stays as it is.

Two stages, as DEMASK's authors do it: what the model says is computed once and kept, then the head is fitted to it. The
model is handed in, so that one in memory (8 billion parameters on a user's GPU) is not loaded twice.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unmask.core import Needs, State, View
from unmask.core.proposal import Proposal
from unmask.denoisers import Exact
from unmask.errors import ConfigError, UnknownName, require
from unmask.policies.heads import HEADS, HeadCard, save_head
from unmask.policies.heads.store import CARD, read_card
from unmask.request import CalibratedModel
from unmask.stats.ranking import auroc, spearman
from unmask.train import journal
from unmask.train.export import versions
from unmask.train.heads_data import Canvas, canvases
from unmask.train.sources import Folders

LOSSES = {
    "demask": "binary cross-entropy of the predicted dependence against total variation after one drawn token",
    "ddpd": "binary cross-entropy against whether a token was replaced by a uniform one",
}


@dataclass(frozen=True)
class HeadConfig:
    """What is trained, on how much, and for how long."""

    kind: str
    examples: int = 2000
    """Texts to learn from."""
    held_out: int = 200
    """Texts to judge by, of which nothing was learned."""
    steps: int = 3000
    batch: int = 16
    """Texts per step, and canvases that go through the model together."""
    rate: float = 2e-3
    size: int = 64
    probes: int = 4
    """Positions of a text that are given a token (demask)."""
    draws: int = 4
    """Tokens tried at each of them when a head is judged (demask)."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in HEADS:
            raise UnknownName("kind of head", self.kind, HEADS)
        for name in ("examples", "held_out", "steps", "batch", "size", "probes", "draws"):
            require(1 <= getattr(self, name) <= 10_000_000, name, getattr(self, name), "1 or more", "choose another")
        require(0 < self.rate < 1, "rate", self.rate, "above 0, below 1", "0.002 suits both kinds")
        require(self.seed >= 0, "seed", self.seed, "0 or more", "choose another")


@dataclass(frozen=True)
class HeadRows:
    """What the model said of one text: features of its positions, and what the head should say."""

    hidden_WH: Tensor
    p_W: Tensor
    """Of the token that stands (ddpd)."""
    target: Tensor
    """demask: (W, probes), how far each probe moved each position, NaN at itself; ddpd: (W,), 1 for noise."""
    probe: Tensor
    """demask: which of the W each probe is."""


def train_head(
    model: CalibratedModel,
    config: HeadConfig,
    out: str | Path,
    *,
    folders: Folders | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> HeadCard:
    """Train a head for the model and write its folder, whole or not at all; a finished one is left as it is.

    An interrupted run begins again: it keeps nothing half done. One run at a time has the folder.
    """
    out = Path(out)
    if isinstance(model.denoiser, Exact):
        raise ConfigError(
            f"{model.name} needs no head: its hidden rows hold marginals only, and dependence is computed; allowed: "
            "models with a network; leave the head out"
        )
    journal.check_place(out)
    journal.check_writable(out)
    folder = out / "head"
    with journal.held(out, say):
        if (folder / CARD).exists():
            return _finished(read_card(folder), config, model, folder, say)
        texts = canvases(model, config.examples, config.seed, False, folders)
        judged = canvases(model, config.held_out, config.seed, True, folders)
        say(f"{len(texts)} texts to learn from, {len(judged)} to judge by")
        torch.manual_seed(config.seed)
        rows = _read(model, config, texts, np.random.default_rng([config.seed, 0]), draws=1)
        held = _read(model, config, judged, np.random.default_rng([config.seed, 1]), draws=config.draws)
        width = rows[0].hidden_WH.shape[-1]
        network = HEADS[config.kind](width, config.size).to(rows[0].hidden_WH.device)
        _fit(network, config, rows, say)
        quality = judge(network, config.kind, held, rows)
        say("held-out: " + ", ".join(f"{name} {value:.4f}" for name, value in quality.items()))
        data = {"texts": len(texts), "held_out": len(judged), "sources": ", ".join(sorted({c.source for c in texts}))}
        card = HeadCard(
            config.kind, model.name, model.fingerprint, width, config.size, "", LOSSES[config.kind], data,
            asdict(config), quality, versions(),
        )  # fmt: skip
        return save_head(folder, network, card)


def _finished(
    card: HeadCard, config: HeadConfig, model: CalibratedModel, folder: Path, say: Callable[[str], None]
) -> HeadCard:
    """The head that is there, if it is the one asked for."""
    if card.fingerprint != model.fingerprint or dict(card.settings) != asdict(config):
        raise ConfigError(
            f"{folder} holds another head ({card.kind} for {card.model}, {dict(card.settings)}); allowed: the same "
            "command; use another --out"
        )
    say(f"{folder} is finished; nothing to do")
    return card


def _read(
    model: CalibratedModel, config: HeadConfig, texts: Sequence[Canvas], rng: np.random.Generator, draws: int
) -> list[HeadRows]:
    """What the model says of all texts, `batch` at a time."""
    read = _dependence if config.kind == "demask" else _noise
    parts = [texts[first : first + config.batch] for first in range(0, len(texts), config.batch)]
    with torch.inference_mode():
        found = [row for part in parts for row in read(model, config, part, rng, draws)]
    # Tensors made without gradients may not enter a graph as they are.
    return [HeadRows(*(tensor.clone() for tensor in vars(row).values())) for row in found]


def _state(model: CalibratedModel, part: Sequence[Canvas], tokens: Sequence[np.ndarray]) -> State:
    """Canvases of which every answer position counts as revealed or masked."""
    given = [[True] * c.start + [False] * (len(c.tokens) - c.start) for c in part]
    mask_id, device = model.denoiser.vocabulary.mask_id, model.denoiser.device
    rows = [list(map(int, row)) for row in tokens]
    # A row without a mask is no decoding problem, but it can be read: one is put in, and taken out again.
    held = [row if mask_id in row else [*row[:-1], mask_id] for row in rows]
    state = State.from_canvases(held, steps=1, mask_id=mask_id, given=given, device=device)
    width = state.tokens_BL.shape[1]
    whole = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=device)
    return State(whole, state.fixed_BL, state.committed_BL, state.length_B, state.step_B, state.horizon_B, mask_id)


def _dependence(
    model: CalibratedModel, config: HeadConfig, part: Sequence[Canvas], rng: np.random.Generator, draws: int
) -> list[HeadRows]:
    """Mask some of each answer; give `probes` of the masks a drawn token each, and see how far the others move."""
    mask_id = model.denoiser.vocabulary.mask_id
    tokens, hidden = [], []
    for canvas in part:
        places = np.arange(canvas.start, len(canvas.tokens))
        chosen = np.sort(rng.permutation(places)[: rng.integers(min(2, len(places)), len(places) + 1)])
        row = np.array(canvas.tokens)
        row[chosen] = mask_id
        tokens.append(row)
        hidden.append(chosen)
    before = _pass(model, _state(model, part, tokens))
    found: list[HeadRows] = []
    for b, chosen in enumerate(hidden):
        p_WV, probes = before.p_WV[b], rng.permutation(len(chosen))[: config.probes]
        drawn = [(w, int(t)) for w in probes for t in _drawn(p_WV[w], rng, draws)]
        placed = [np.where(np.arange(len(tokens[b])) == chosen[w], t, tokens[b]) for w, t in drawn]
        # The masks of these canvases are those of the first but one, which is put back.
        after = _pass(model, _state(model, [part[b]] * len(placed), placed))
        target_WP = torch.full((len(chosen), len(probes)), 0.0, device=p_WV.device)
        for at, (w, _) in enumerate(drawn):
            others = [i for i in range(len(chosen)) if i != w]
            moved = (after.p_WV[at] - p_WV[others]).abs().sum(-1) / 2
            target_WP[others, at // draws] += moved.float() / draws
        target_WP[probes, torch.arange(len(probes))] = math.nan
        probe = torch.from_numpy(probes.copy()).to(p_WV.device)
        found.append(HeadRows(before.hidden[b], torch.zeros(len(chosen), device=p_WV.device), target_WP, probe))
    return found


def _drawn(p_V: Tensor, rng: np.random.Generator, draws: int) -> np.ndarray:
    total = p_V.double().cumsum(0).cpu().numpy()
    return np.minimum(np.searchsorted(total, rng.random(draws) * total[-1], side="right"), len(total) - 1)


def _noise(
    model: CalibratedModel, config: HeadConfig, part: Sequence[Canvas], rng: np.random.Generator, draws: int
) -> list[HeadRows]:
    """Replace a random share of each answer by uniform tokens, and on half of the texts mask a share of it, too."""
    vocabulary = model.denoiser.vocabulary
    legal = np.array([t for t in range(vocabulary.size) if t != vocabulary.mask_id])
    tokens, labels = [], []
    for canvas in part:
        row = np.array(canvas.tokens)
        places = np.arange(len(row)) >= canvas.start
        noisy = places & (rng.random(len(row)) < rng.random())
        row[noisy] = rng.choice(legal, int(noisy.sum()))
        masked = places & (rng.random(len(row)) < rng.random()) & (rng.random() < 0.5)
        row[masked] = vocabulary.mask_id
        tokens.append(row)
        labels.append(noisy[places & ~masked])
    said = _pass(model, _state(model, part, tokens), revealed=True)
    none = torch.zeros(0, dtype=torch.long)
    return [
        HeadRows(
            said.hidden[b], said.p_of_token[b], torch.from_numpy(labels[b]).float().to(said.hidden[b].device), none
        )
        for b in range(len(part))
        if len(labels[b])
    ]


@dataclass(frozen=True)
class _Said:
    hidden: list[Tensor]
    p_WV: list[Tensor]
    p_of_token: list[Tensor]


def _pass(model: CalibratedModel, state: State, revealed: bool = False) -> _Said:
    """One forward: rows by text, at its masks, or at the answer tokens that stand."""
    wanted_BL = state.revealed_BL if revealed else state.masked_BL
    view = View.of(state, Needs(revealed=revealed))
    view = View(view.tokens_BN, view.position_BN, view.valid_BN, view.fixed_BN, wanted_BL)
    logits = model.denoiser(view, Needs(hidden=True))
    z_RV = Proposal().edit(model.denoiser.vocabulary).apply_(logits.logits_RV.float().clone())
    p_RV, counts = z_RV.softmax(-1), wanted_BL.sum(-1).tolist()
    if logits.hidden_RH is None:
        raise ConfigError(f"{model.name} gives no hidden rows; allowed: models that do; choose another")
    p_R = p_RV.gather(1, state.tokens_BL[wanted_BL][:, None]).squeeze(1) if revealed else p_RV[:, 0]
    parts = (logits.hidden_RH.split(counts), p_RV.split(counts), p_R.split(counts))
    return _Said(*(list(part) for part in parts))


def predictions(network: nn.Module, kind: str, rows: HeadRows) -> tuple[Tensor, Tensor]:
    """The head's logits and what they should be, one beside the other."""
    if kind == "ddpd":
        return network(rows.hidden_WH, rows.p_W), rows.target
    logits_WP = network.logits(rows.hidden_WH[None])[0][:, rows.probe]  # type: ignore[operator]
    known_WP = ~rows.target.isnan()
    return logits_WP[known_WP], rows.target[known_WP]


def _fit(network: nn.Module, config: HeadConfig, rows: Sequence[HeadRows], say: Callable[[str], None]) -> None:
    """Adam with a cosine, a few texts a step."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=config.rate, weight_decay=0.01)
    rng = np.random.default_rng([config.seed, 2])
    usable = [row for row in rows if len(row.hidden_WH) > 1 or config.kind == "ddpd"]
    require(bool(usable), "texts with two masks or more", 0, "1 or more", "take longer texts")
    for step in range(config.steps):
        for group in optimizer.param_groups:
            group["lr"] = config.rate * (1 + math.cos(math.pi * step / config.steps)) / 2
        chosen = rng.integers(len(usable), size=config.batch)
        pairs = [predictions(network, config.kind, usable[i]) for i in chosen]
        # All pairs count the same, as they do when the head is judged.
        says, wants = (torch.cat(parts) for parts in zip(*pairs, strict=True))
        loss = nn.functional.binary_cross_entropy_with_logits(says, wants)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % max(1, config.steps // 10) == 0:
            say(f"step {step + 1}/{config.steps}  loss {float(loss.detach()):.4f}")


def judge(network: nn.Module, kind: str, held: Sequence[HeadRows], learned: Sequence[HeadRows]) -> dict[str, float]:
    """The head on texts of which nothing was learned, beside what always says the mean of the others."""
    with torch.no_grad():
        pairs = [predictions(network, kind, rows) for rows in held if len(rows.hidden_WH) > 1 or kind == "ddpd"]
        mean = float(torch.cat([predictions(network, kind, rows)[1] for rows in learned]).double().mean())
    says, wants = (torch.cat(parts).double().cpu() for parts in zip(*pairs, strict=True))
    said = says.sigmoid()
    floor = torch.full_like(said, min(max(mean, 1e-6), 1 - 1e-6))
    entropy = nn.functional.binary_cross_entropy
    quality: dict[str, Any] = {
        "loss": float(entropy(said, wants)),
        "loss_of_the_mean": float(entropy(floor, wants)),
        "mean_absolute_error": float((said - wants).abs().mean()),
        "mean_absolute_error_of_the_mean": float((floor - wants).abs().mean()),
    }
    if kind == "demask":
        return quality | {"rank_correlation": float(spearman(said.numpy(), wants.numpy())[0])}
    return quality | {"auroc": float(auroc(said.numpy(), wants.numpy() > 0.5)[0])}
