"""What heads learn from: dependence is that of the model's own forwards, and noise is what was replaced."""

import numpy as np
import pytest
import torch

import unmask
from unmask.core import Needs, State, View
from unmask.core.proposal import Proposal
from unmask.train import heads_rows
from unmask.train.heads_data import canvases
from unmask.train.heads_rows import read_rows


@pytest.fixture(scope="module")
def mini():
    return unmask.load("mini", device="cpu")


def said(model, tokens, start):
    """Probabilities of the canvas's masks, by one forward of its own."""
    mask_id = model.denoiser.vocabulary.mask_id
    given = [[at < start for at in range(len(tokens))]]
    state = State.from_canvases([list(map(int, tokens))], steps=1, mask_id=mask_id, given=given)
    logits = model.denoiser(View.of(state, Needs()), Needs()).logits_RV.float().clone()
    return Proposal().edit(model.denoiser.vocabulary).apply_(logits).softmax(-1)


def test_dependence_is_what_forwards_say(mini, monkeypatch):
    """Every number, from canvases that are built by hand, one at a time."""
    texts, kept, drawn = canvases(mini, 3, 0, False), [], []
    masked, draw = heads_rows._masked, heads_rows._drawn
    monkeypatch.setattr(heads_rows, "_masked", lambda *args: kept.append(masked(*args)) or kept[-1])
    monkeypatch.setattr(heads_rows, "_drawn", lambda *args: drawn.append(draw(*args)) or drawn[-1])
    with torch.inference_mode():
        rows = read_rows(mini, "demask", texts, np.random.default_rng(3), batch=3, probes=2, draws=2)
        tokens, hidden = kept[0]
        tries = iter(drawn[0])
        for b, text in enumerate(texts):
            before = said(mini, tokens[b], text.start)
            for number, mask in enumerate(rows[b].probe.tolist()):
                moved = torch.zeros(len(hidden[b]))
                for token in next(tries):
                    placed = tokens[b].copy()
                    placed[hidden[b][mask]] = token
                    others = [i for i in range(len(hidden[b])) if i != mask]
                    moved[others] += (said(mini, placed, text.start) - before[others]).abs().sum(-1) / 4
                moved[mask] = torch.nan
                torch.testing.assert_close(rows[b].target[:, number], moved, equal_nan=True, atol=1e-5, rtol=1e-4)


def test_tokens_are_drawn_as_often_as_they_are_probable():
    p_TV = torch.tensor([[0.5, 0.0, 0.5], [0.1, 0.9, 0.0]])
    drawn = torch.tensor(heads_rows._drawn(p_TV, np.random.default_rng(0), 4000))
    shares = torch.stack([(drawn == token).double().mean(-1) for token in range(3)], 1)
    assert (shares - p_TV).abs().max() < 0.03
    assert bool((shares[p_TV == 0] == 0).all())


def test_labels_say_which_tokens_were_replaced(mini):
    """A replaced token is one that the model would hardly write."""
    rows = read_rows(mini, "ddpd", canvases(mini, 8, 0, False), np.random.default_rng(0), batch=4, probes=1, draws=1)
    p_W, noisy_W = (torch.cat([getattr(row, name) for row in rows]) for name in ("p_W", "target"))
    assert set(noisy_W.tolist()) == {0.0, 1.0}
    assert p_W[noisy_W == 0].mean() > 3 * p_W[noisy_W == 1].mean()
