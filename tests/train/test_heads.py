"""Training of heads: they learn what forwards say, are judged on other texts, and leave whole folders."""

import json

import numpy as np
import pytest
import torch

import unmask
from unmask.base.errors import ConfigError, UnknownName
from unmask.policies.heads import HEADS, load_head
from unmask.train import journal
from unmask.train.heads import HeadConfig, judge, predictions, train_head
from unmask.train.heads_data import canvases
from unmask.train.heads_rows import read_rows

SMALL = {"examples": 6, "held_out": 4, "steps": 3, "batch": 4, "size": 4, "probes": 2, "draws": 1}


@pytest.fixture(scope="module")
def mini():
    return unmask.load("mini", device="cpu")


@pytest.fixture(scope="module")
def trained(mini, tmp_path_factory):
    out = tmp_path_factory.mktemp("ddpd")
    said = []
    config = HeadConfig("ddpd", examples=18, held_out=9, steps=60, batch=6, size=8)
    return out, config, train_head(mini, config, out, say=said.append), said


def test_a_planner_learns_what_is_noise(trained):
    _, _, card, _ = trained
    assert card.quality["loss"] < 0.7 * card.quality["loss_of_the_mean"]
    assert card.quality["auroc"] > 0.9


def test_the_card_says_all(trained, mini):
    out, config, card, said = trained
    stored = json.loads((out / "head" / "head.json").read_text(encoding="utf-8"))["body"]
    assert stored["fingerprint"] == mini.fingerprint
    assert stored["settings"]["steps"] == config.steps
    assert stored["data"]["texts"] == 18
    assert "uniform" in stored["loss"]
    assert load_head(str(out / "head"), "ddpd").card == card
    assert said[0] == "18 texts to learn from, 9 to judge by"


def test_a_finished_head_is_left_as_it_is(trained, mini):
    out, config, card, _ = trained
    before = (out / "head" / "head.safetensors").stat().st_mtime_ns
    said = []
    assert train_head(mini, config, out, say=said.append) == card
    assert said == [f"{out / 'head'} is finished; nothing to do"]
    assert (out / "head" / "head.safetensors").stat().st_mtime_ns == before
    with pytest.raises(ConfigError, match=r"holds another head.*use another --out"):
        train_head(mini, HeadConfig("ddpd", **SMALL), out)


def test_one_run_at_a_time(mini, tmp_path):
    with journal.held(tmp_path, print), pytest.raises(ConfigError, match="in use by another run"):
        train_head(mini, HeadConfig("ddpd", **SMALL), tmp_path)
    assert not (tmp_path / "head").exists()


def test_dependence_is_learned_from_forwards(mini, tmp_path, monkeypatch):
    """Targets are total variations of the model itself, and a fit on them brings the loss down."""
    seen = []

    def spied(network, kind, rows):
        seen.extend(rows)
        return predictions(network, kind, rows)

    monkeypatch.setattr("unmask.train.heads.predictions", spied)
    card = train_head(mini, HeadConfig("demask", **SMALL), tmp_path)
    assert {"loss", "loss_of_the_mean", "mean_absolute_error", "rank_correlation"} <= set(card.quality)
    for rows in seen:
        known = rows.target[~rows.target.isnan()]
        assert ((known >= 0) & (known <= 1 + 1e-6)).all()
        assert rows.target[rows.probe, torch.arange(len(rows.probe))].isnan().all()
        assert rows.target.shape == (len(rows.hidden_WH), len(rows.probe))
    assert any(bool((rows.target.nan_to_num() > 0.01).any()) for rows in seen)


@pytest.mark.slow
def test_a_dependence_head_holds_on_texts_it_has_not_seen(mini, tmp_path):
    """The product of the rows themselves, a form that was tried, is worse there than the mean."""
    card = train_head(mini, HeadConfig("demask", examples=27, held_out=9, steps=40, batch=9, size=16), tmp_path)
    assert card.quality["loss"] < 0.95 * card.quality["loss_of_the_mean"]
    assert card.quality["rank_correlation"] > 0.5


@pytest.mark.parametrize("kind", ["demask", "ddpd"])
def test_shipped_heads_hold_on_texts_of_another_seed(mini, kind):
    """Judged anew, against what this machine's forwards say."""
    rows = [
        read_rows(
            mini,
            kind,
            canvases(mini, 6 if held_out else 2, 5, held_out),
            np.random.default_rng(1),
            batch=6,
            probes=2,
            draws=2,
        )
        for held_out in (False, True)
    ]
    quality = judge(load_head(f"{kind}-mini", kind).network, kind, rows[1], rows[0])
    assert quality["loss"] < 0.8 * quality["loss_of_the_mean"]
    assert quality.get("rank_correlation", quality.get("auroc")) > 0.6


def test_texts_together_are_what_each_is_alone(mini):
    """Padding changes nothing of what a head is asked, nor of what it should say."""
    texts = canvases(mini, 5, 0, False)
    for kind in ("demask", "ddpd"):
        rows = read_rows(mini, kind, texts, np.random.default_rng(0), batch=3, probes=2, draws=1)
        assert len({len(row.hidden_WH) for row in rows}) > 1
        network = HEADS[kind](rows[0].hidden_WH.shape[-1], 4).eval()
        says, wants = predictions(network, kind, rows)
        alone = [predictions(network, kind, [row]) for row in rows]
        torch.testing.assert_close(says, torch.cat([one[0] for one in alone]))
        assert torch.equal(wants, torch.cat([one[1] for one in alone]))


def test_the_same_seed_gives_the_same_bytes(mini, tmp_path):
    before = [parameter.clone() for parameter in mini.denoiser.model.parameters()]
    one, two = (train_head(mini, HeadConfig("ddpd", **SMALL), tmp_path / name) for name in ("one", "two"))
    assert one == two
    other = train_head(mini, HeadConfig("ddpd", **SMALL, seed=1), tmp_path / "other")
    assert other.weights_sha256 != one.weights_sha256
    # The model itself stays as it is.
    assert all(torch.equal(a, b) for a, b in zip(before, mini.denoiser.model.parameters(), strict=True))


def test_held_out_texts_are_others(mini):
    ours, held = (canvases(mini, 40, 0, held_out) for held_out in (False, True))
    assert not {canvas.tokens for canvas in ours} & {canvas.tokens for canvas in held}
    assert len({canvas.source for canvas in ours}) > 5
    assert all(0 < canvas.start < len(canvas.tokens) for canvas in ours)


def test_bad_input_is_refused(mini, tmp_path):
    with pytest.raises(UnknownName, match="unknown kind of head 'demas'; did you mean demask"):
        HeadConfig("demas")
    with pytest.raises(ConfigError, match="steps is 0; allowed: 1 or more"):
        HeadConfig("ddpd", steps=0)
    with pytest.raises(ConfigError, match="exact needs no head"):
        train_head(unmask.load("exact"), HeadConfig("demask"), tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is a file; allowed: a folder"):
        train_head(mini, HeadConfig("demask"), tmp_path / "file" / "inside")
