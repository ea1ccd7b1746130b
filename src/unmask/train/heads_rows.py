"""What a model says of the texts that heads learn from: hidden rows, and beside them what a head should say.

Dependence is measured by forwards: a masked position is given a drawn token, and the others are looked at again.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unmask.base.errors import ConfigError
from unmask.core import Needs, State, View
from unmask.core.proposal import Proposal
from unmask.request import CalibratedModel
from unmask.train.heads_data import Canvas


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


def read_rows(
    model: CalibratedModel,
    kind: str,
    texts: Sequence[Canvas],
    rng: np.random.Generator,
    *,
    batch: int,
    probes: int,
    draws: int,
) -> list[HeadRows]:
    """What the model says of all texts, `batch` canvases in a pass."""
    found: list[HeadRows] = []
    with torch.inference_mode():
        for first in range(0, len(texts), batch):
            part = texts[first : first + batch]
            if kind == "demask":
                found += _dependence(model, part, rng, batch, probes, draws)
            else:
                found += _noise(model, part, rng)
    # Tensors made without gradients may not enter a graph as they are.
    return [HeadRows(*(tensor.clone() for tensor in vars(row).values())) for row in found]


def _dependence(
    model: CalibratedModel, part: Sequence[Canvas], rng: np.random.Generator, batch: int, probes: int, draws: int
) -> list[HeadRows]:
    """Mask some of each answer; give `probes` of the masks a drawn token each, and see how far the others move."""
    tokens, hidden = _masked(part, rng, model.denoiser.vocabulary.mask_id)
    before = _pass(model, _state(model, part, tokens))
    device, first = before.p_RV.device, np.cumsum([0, *map(len, hidden)])
    tried = [_Probe(b, w, at) for b, c in enumerate(hidden) for at, w in enumerate(rng.permutation(len(c))[:probes])]
    row_T = torch.tensor([first[probe.text] + probe.mask for probe in tried], device=device)
    drawn_TD = _drawn(before.p_RV[row_T], rng, draws)
    trials = [(probe, token) for probe, drawn in zip(tried, drawn_TD, strict=True) for token in drawn]
    target_RP = torch.zeros((int(first[-1]), probes), device=device)
    for start in range(0, len(trials), batch):
        some = trials[start : start + batch]
        texts = [probe.text for probe, _ in some]
        placed = [
            np.where(np.arange(len(tokens[x.text])) == hidden[x.text][x.mask], t, tokens[x.text]) for x, t in some
        ]
        after = _pass(model, _state(model, [part[b] for b in texts], placed))
        # The masks of these canvases are those of the first, without the one that got a token.
        old = [first[x.text] + np.delete(np.arange(len(hidden[x.text])), x.mask) for x, _ in some]
        column = [np.full(len(rows), x.number) for (x, _), rows in zip(some, old, strict=True)]
        old_U, column_U = (torch.from_numpy(np.concatenate(numbers)).to(device) for numbers in (old, column))
        moved_U = (after.p_RV - before.p_RV[old_U]).abs().sum(-1) / 2
        target_RP.index_put_((old_U, column_U), moved_U.float() / draws, accumulate=True)
    target_RP[row_T, torch.tensor([probe.number for probe in tried], device=device)] = math.nan
    masks = [[probe.mask for probe in tried if probe.text == b] for b in range(len(part))]
    return [
        HeadRows(h_WH, torch.zeros(len(h_WH), device=device), target_WP[:, : len(at)], torch.tensor(at, device=device))
        for h_WH, target_WP, at in zip(before.hidden, target_RP.split([*map(len, hidden)]), masks, strict=True)
    ]


class _Probe(NamedTuple):
    """A mask of a text that is given tokens: which of its masks, and which of its probes."""

    text: int
    mask: int
    number: int


def _masked(
    part: Sequence[Canvas], rng: np.random.Generator, mask_id: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Every text with two or more of its answer's positions masked, and which."""
    tokens, hidden = [], []
    for canvas in part:
        places = np.arange(canvas.start, len(canvas.tokens))
        chosen = np.sort(rng.permutation(places)[: rng.integers(2, len(places) + 1)])
        row = np.array(canvas.tokens)
        row[chosen] = mask_id
        tokens.append(row)
        hidden.append(chosen)
    return tokens, hidden


def _drawn(p_TV: Tensor, rng: np.random.Generator, draws: int) -> list[list[int]]:
    """So many tokens from every row."""
    total_TV = p_TV.double().cumsum(-1)
    uniform_TD = torch.from_numpy(rng.random((len(p_TV), draws))).to(p_TV.device)
    drawn_TD = torch.searchsorted(total_TV, uniform_TD * total_TV[:, -1:], right=True)
    tokens: list[list[int]] = drawn_TD.clamp(max=p_TV.shape[1] - 1).tolist()
    return tokens


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


def _noise(model: CalibratedModel, part: Sequence[Canvas], rng: np.random.Generator) -> list[HeadRows]:
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
        HeadRows(hidden_WH, p_W, torch.from_numpy(label_W).float().to(hidden_WH.device), none)
        for hidden_WH, p_W, label_W in zip(said.hidden, said.p_of_token, labels, strict=True)
        if len(label_W)
    ]


@dataclass(frozen=True)
class _Said:
    hidden: Sequence[Tensor]
    p_RV: Tensor
    p_of_token: Sequence[Tensor]


def _pass(model: CalibratedModel, state: State, revealed: bool = False) -> _Said:
    """One forward, at the masks of each text in turn, or at the answer tokens that stand."""
    wanted_BL = state.revealed_BL if revealed else state.masked_BL
    view = replace(View.of(state, Needs(revealed=revealed)), wanted_BN=wanted_BL)
    logits = model.denoiser(view, Needs(hidden=True))
    if logits.hidden_RH is None:
        raise ConfigError(f"{model.name} gives no hidden rows; allowed: models that do; choose another")
    z_RV = Proposal().edit(model.denoiser.vocabulary).apply_(logits.logits_RV.float().clone())
    p_RV, counts = z_RV.softmax(-1), wanted_BL.sum(-1).tolist()
    p_R = p_RV.gather(1, state.tokens_BL[wanted_BL][:, None]).squeeze(1) if revealed else p_RV[:, 0]
    return _Said(logits.hidden_RH.split(counts), p_RV, p_R.split(counts))
