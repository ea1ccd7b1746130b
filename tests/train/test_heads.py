"""Training of heads: targets are those of the model's own forwards, judging uses other texts, folders are whole."""

import numpy as np
import pytest
import torch

import unmask
from unmask.base.errors import ConfigError, UnknownName
from unmask.core import ModelInput, Needs, SamplingParams, State
from unmask.methods import HEADS
from unmask.methods.heads import load_head
from unmask.train import HeadOptions, heads, train_head
from unmask.train.heads import compute_rows, evaluate_head, make_canvases, predict_targets

SMALL = {"examples": 6, "held_out": 4, "steps": 3, "batch": 4, "size": 4, "probes": 2, "draws": 1}


@pytest.fixture(scope="module")
def mini():
    return unmask.load("mini", device="cpu")


@pytest.fixture(scope="module")
def trained(mini, tmp_path_factory):
    out = tmp_path_factory.mktemp("ddpd")
    lines = []
    options = HeadOptions(kind="ddpd", examples=18, held_out=9, steps=60, batch=6, size=8)
    return out, options, train_head(mini, options, out, log=lines.append), lines


def test_a_planner_learns_what_is_noise(trained):
    _, _, card, _ = trained
    assert card.quality["loss"] < 0.7 * card.quality["loss_of_the_mean"]
    assert card.quality["auroc"] > 0.9


def test_a_finished_head_is_left_as_it_is(trained, mini):
    out, options, card, _ = trained
    before = (out / "head" / "head.safetensors").stat().st_mtime_ns
    lines = []
    assert train_head(mini, options, out, log=lines.append) == card
    assert lines == [f"{out / 'head'} is finished; nothing to do"]
    assert (out / "head" / "head.safetensors").stat().st_mtime_ns == before
    with pytest.raises(ConfigError, match=r"holds another head.*use another --out"):
        train_head(mini, HeadOptions(kind="ddpd", **SMALL), out)


@pytest.mark.parametrize("kind", ["demask", "ddpd"])
def test_shipped_heads_hold_on_texts_of_another_seed(mini, kind):
    """Judged anew, against what this machine's forwards say."""
    rows = [
        compute_rows(
            mini,
            kind,
            make_canvases(mini, 6 if held_out else 2, 5, held_out),
            np.random.default_rng(1),
            batch=6,
            probes=2,
            draws=2,
        )
        for held_out in (False, True)
    ]
    quality = evaluate_head(load_head(f"{kind}-mini", kind).network, kind, rows[1], rows[0])
    assert quality["loss"] < 0.8 * quality["loss_of_the_mean"]
    assert quality.get("rank_correlation", quality.get("auroc")) > 0.6


def test_texts_together_are_what_each_is_alone(mini):
    """Padding changes nothing of what a head is asked, nor of what it should say."""
    texts = make_canvases(mini, 5, 0, False)
    for kind in ("demask", "ddpd"):
        rows = compute_rows(mini, kind, texts, np.random.default_rng(0), batch=3, probes=2, draws=1)
        assert len({len(row.hidden_WH) for row in rows}) > 1
        network = HEADS[kind](rows[0].hidden_WH.shape[-1], 4).eval()
        says, wants = predict_targets(network, kind, rows)
        alone = [predict_targets(network, kind, [row]) for row in rows]
        torch.testing.assert_close(says, torch.cat([one[0] for one in alone]))
        assert torch.equal(wants, torch.cat([one[1] for one in alone]))


def test_bad_input_is_refused(mini, tmp_path):
    with pytest.raises(UnknownName, match="unknown kind of head 'demas'; did you mean demask"):
        HeadOptions(kind="demas")
    with pytest.raises(ConfigError, match="steps is 0; allowed: 1 to"):
        HeadOptions(kind="ddpd", steps=0)
    with pytest.raises(ConfigError, match="exact needs no head"):
        train_head(unmask.load("exact"), HeadOptions(kind="demask"), tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot be used .*; allowed: a folder"):
        train_head(mini, HeadOptions(kind="demask"), tmp_path / "file" / "inside")


# What heads learn from


def mask_probabilities(model, tokens, start):
    """Probabilities of the canvas's masks, by one forward of its own."""
    mask_id = model.denoiser.vocabulary.mask_id
    given = [[at < start for at in range(len(tokens))]]
    state = State.from_canvases([list(map(int, tokens))], steps=1, mask_id=mask_id, given=given)
    logits = model.denoiser(ModelInput.of(state, Needs()), Needs()).logits_RV.float().clone()
    return SamplingParams().edit(model.denoiser.vocabulary).apply_(logits).softmax(-1)


def test_dependence_is_what_forwards_say(mini, monkeypatch):
    """Every number, from canvases that are built by hand, one at a time."""
    texts, kept, drawn = make_canvases(mini, 3, 0, False), [], []
    masked, draw = heads._mask_answers, heads._draw_tokens
    monkeypatch.setattr(heads, "_mask_answers", lambda *args: kept.append(masked(*args)) or kept[-1])
    monkeypatch.setattr(heads, "_draw_tokens", lambda *args: drawn.append(draw(*args)) or drawn[-1])
    with torch.inference_mode():
        rows = compute_rows(mini, "demask", texts, np.random.default_rng(3), batch=3, probes=2, draws=2)
        tokens, hidden = kept[0]
        tries = iter(drawn[0])
        for b, text in enumerate(texts):
            before = mask_probabilities(mini, tokens[b], text.start)
            for number, mask in enumerate(rows[b].probe.tolist()):
                moved = torch.zeros(len(hidden[b]))
                for token in next(tries):
                    placed = tokens[b].copy()
                    placed[hidden[b][mask]] = token
                    others = [i for i in range(len(hidden[b])) if i != mask]
                    moved[others] += (mask_probabilities(mini, placed, text.start) - before[others]).abs().sum(-1) / 4
                moved[mask] = torch.nan
                torch.testing.assert_close(rows[b].target[:, number], moved, equal_nan=True, atol=1e-5, rtol=1e-4)
