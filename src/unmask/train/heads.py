"""Training of heads: small networks on the hidden rows of one loaded model, which itself stays as it is.

Two stages, as DEMASK's authors do it: what the model says is computed once and kept, then the head is fitted to it. The
model is handed in, so that one in memory (8 billion parameters on a user's GPU) is not loaded twice.
"""

import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from unmask.base.errors import ConfigError, UnknownName, UnmaskError, require
from unmask.base.files import find_leftovers
from unmask.denoisers import Exact
from unmask.policies.heads import HEADS, HeadCard, save_head
from unmask.policies.heads.store import CARD, read_card
from unmask.request import CalibratedModel
from unmask.stats.ranking import auroc, spearman
from unmask.train import journal
from unmask.train.export import versions
from unmask.train.heads_data import Canvas, canvases
from unmask.train.heads_rows import HeadRows, read_rows
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
    rate: float = 1e-3
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
        require(0 < self.rate < 1, "rate", self.rate, "above 0, below 1", "0.001 suits both kinds")
        require(self.seed >= 0, "seed", self.seed, "0 or more", "choose another")


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
    folder, before, new = out / "head", (out / journal.LOCK).exists(), not out.exists()
    with journal.held(out, say):
        if (folder / CARD).exists():
            return _finished(read_card(folder), config, model, folders, folder, say)
        _clear(folder)
        if before:
            say(f"a run in {out} did not finish, and kept nothing: this one starts from the beginning")
        try:
            return _trained(model, config, folder, folders, say)
        except UnmaskError:
            # What is refused leaves nothing; what was interrupted leaves its lock, and the next run says so.
            if new:
                (out / journal.LOCK).unlink(missing_ok=True)
                out.rmdir()
            raise


def _trained(
    model: CalibratedModel,
    config: HeadConfig,
    folder: Path,
    folders: Folders | None,
    say: Callable[[str], None],
) -> HeadCard:
    texts = canvases(model, config.examples, config.seed, False, folders)
    judged = canvases(model, config.held_out, config.seed, True, folders)
    say(f"{len(texts)} texts to learn from, {len(judged)} to judge by")
    torch.manual_seed(config.seed)
    rows = _rows(model, config, texts, 0, draws=1)
    held = _rows(model, config, judged, 1, draws=config.draws)
    width = rows[0].hidden_WH.shape[-1]
    network = HEADS[config.kind](width, config.size).to(rows[0].hidden_WH.device)
    _fit(network.train(), config, rows, say)
    network.eval()
    quality = judge(network, config.kind, held, rows)
    say("held-out: " + ", ".join(f"{name} {value:.4f}" for name, value in quality.items()))
    data = {"texts": len(texts), "held_out": len(judged), "sources": ", ".join(sorted({c.source for c in texts}))}
    card = HeadCard(
        config.kind, model.name, model.fingerprint, width, config.size, "", LOSSES[config.kind],
        data | _origin(folders), asdict(config), quality, versions(),
    )  # fmt: skip
    return save_head(folder, network, card)


def _origin(folders: Folders | None) -> dict[str, str]:
    """Where the texts came from, if not from the package."""
    return {} if folders is None or folders.texts is None else {"folder": folders.texts}


def _clear(folder: Path) -> None:
    """Throw away what a kill left of a folder half written."""
    for path in find_leftovers(folder):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _finished(
    card: HeadCard,
    config: HeadConfig,
    model: CalibratedModel,
    folders: Folders | None,
    folder: Path,
    say: Callable[[str], None],
) -> HeadCard:
    """The head that is there, if it is the one asked for."""
    usual = "the package's own"
    theirs: dict[str, Any] = {"model": card.fingerprint, "texts": card.data.get("folder", usual), **card.settings}
    ours: dict[str, Any] = {
        "model": model.fingerprint,
        "texts": _origin(folders).get("folder", usual),
        **asdict(config),
    }
    differ = [f"{key} {theirs.get(key)} there, {ours[key]} asked for" for key in ours if theirs.get(key) != ours[key]]
    if differ:
        raise ConfigError(
            f"{folder} holds another head, {card.kind} for {card.model} ({'; '.join(differ)}); allowed: the same "
            "command; use another --out"
        )
    say(f"{folder} is finished; nothing to do")
    return card


def _rows(
    model: CalibratedModel, config: HeadConfig, texts: Sequence[Canvas], stream: int, draws: int
) -> list[HeadRows]:
    """What the model says of the texts; of dependence only those with two masks say something."""
    rng = np.random.default_rng([config.seed, stream])
    rows = read_rows(model, config.kind, texts, rng, batch=config.batch, probes=config.probes, draws=draws)
    require(bool(rows), "texts with something to learn", 0, "1 or more", "take longer texts")
    return rows


def predictions(network: nn.Module, kind: str, rows: Sequence[HeadRows]) -> tuple[Tensor, Tensor]:
    """The head's logits of some texts and what they should be, one beside the other."""
    hidden_BWH = pad_sequence([row.hidden_WH for row in rows], batch_first=True)
    if kind == "ddpd":
        known_BW = pad_sequence([torch.ones_like(row.p_W) for row in rows], batch_first=True) > 0
        logits_BW = network(hidden_BWH, pad_sequence([row.p_W for row in rows], batch_first=True))
        return logits_BW[known_BW], torch.cat([row.target for row in rows])
    most = max(len(row.probe) for row in rows)
    probe_BP = torch.stack([F.pad(row.probe, (0, most - len(row.probe))) for row in rows])
    targets = [F.pad(row.target, (0, most - len(row.probe)), value=math.nan) for row in rows]
    target_BWP = pad_sequence(targets, batch_first=True, padding_value=math.nan)
    logits_BWW = network.logits(hidden_BWH)  # type: ignore[operator]
    logits_BWP = logits_BWW.gather(2, probe_BP[:, None].expand(-1, logits_BWW.shape[1], -1))
    known_BWP = ~target_BWP.isnan()
    return logits_BWP[known_BWP], target_BWP[known_BWP]


def _fit(network: nn.Module, config: HeadConfig, rows: Sequence[HeadRows], say: Callable[[str], None]) -> None:
    """Adam with a cosine, a few texts a step."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=config.rate, weight_decay=0.1)
    rng = np.random.default_rng([config.seed, 2])
    for step in range(config.steps):
        for group in optimizer.param_groups:
            group["lr"] = config.rate * (1 + math.cos(math.pi * step / config.steps)) / 2
        # All pairs count the same, as they do when the head is judged.
        chosen = rng.integers(len(rows), size=config.batch)
        says, wants = predictions(network, config.kind, [rows[i] for i in chosen])
        loss = F.binary_cross_entropy_with_logits(says, wants)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % max(1, config.steps // 10) == 0:
            say(f"step {step + 1}/{config.steps}  loss {float(loss.detach()):.4f}")


def judge(network: nn.Module, kind: str, held: Sequence[HeadRows], learned: Sequence[HeadRows]) -> dict[str, float]:
    """The head on texts of which nothing was learned, beside what always says the mean of the others."""
    mean = float(torch.cat([row.target.flatten() for row in learned]).double().nanmean())
    with torch.no_grad():
        pairs = [predictions(network, kind, [row]) for row in held]
    says, wants = (torch.cat(parts).double().cpu() for parts in zip(*pairs, strict=True))
    said = says.sigmoid()
    floor = torch.full_like(said, min(max(mean, 1e-6), 1 - 1e-6))
    entropy = F.binary_cross_entropy
    quality: dict[str, Any] = {
        "loss": float(entropy(said, wants)),
        "loss_of_the_mean": float(entropy(floor, wants)),
        "mean_absolute_error": float((said - wants).abs().mean()),
        "mean_absolute_error_of_the_mean": float((floor - wants).abs().mean()),
        "explained_variance": 1 - float((said - wants).square().mean() / (floor - wants).square().mean()),
    }
    if kind == "demask":
        return quality | {"rank_correlation": float(spearman(said.numpy(), wants.numpy())[0])}
    return quality | {"auroc": float(auroc(said.numpy(), wants.numpy() > 0.5)[0])}
