"""Heads on disk: what is written comes back, and what was changed is refused."""

import json
import shutil
from dataclasses import replace

import pytest
import torch

from unmask.base.errors import ConfigError, SchemaError
from unmask.base.json_files import to_hashed_json
from unmask.methods import DEMASK, HeadCard, LLaDA, heads, save_head, shipped_heads, with_head
from unmask.methods.heads import DependenceHead, PlannerHead, load_head

QUALITY = {"loss": 0.5, "loss_of_the_mean": 0.4}
CARD = HeadCard("demask", "mini", "abc", 6, 3, "", "a loss", {"texts": 2}, {"seed": 0}, QUALITY, {"torch": "2"})


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    save_head(tmp_path / "head", DependenceHead(6, 3), CARD)
    return tmp_path / "head"


def test_what_is_written_comes_back(folder):
    head = load_head(str(folder), "demask")
    assert replace(head.card, weights_sha256="") == CARD
    torch.manual_seed(0)
    hidden = torch.arange(24.0).square().reshape(1, 4, 6)
    assert torch.equal(head.network(hidden), DependenceHead(6, 3).eval()(hidden).detach())
    assert not any(parameter.requires_grad for parameter in head.network.parameters())
    page = (folder / "README.md").read_text(encoding="utf-8")
    assert "demask head for mini" in page
    assert head.card.weights_sha256 in page
    assert "Verdict: NOT better than always saying the mean" in page


def test_the_same_weights_are_the_same_bytes(folder, tmp_path):
    torch.manual_seed(0)
    save_head(tmp_path / "again", DependenceHead(6, 3), CARD)
    for name in ("head.json", "head.safetensors", "README.md"):
        assert (folder / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_a_flipped_bit_is_noticed(folder):
    stored = bytearray((folder / "head.safetensors").read_bytes())
    stored[-1] ^= 1
    (folder / "head.safetensors").write_bytes(stored)
    with pytest.raises(
        SchemaError, match="does not have the hash of its card; allowed: what `unmask train head` wrote"
    ):
        load_head(str(folder), "demask")


def test_an_edited_card_is_noticed(folder):
    card = json.loads((folder / "head.json").read_text(encoding="utf-8"))
    card["body"]["quality"]["loss"] = 0.1
    (folder / "head.json").write_text(json.dumps(card), encoding="utf-8")
    with pytest.raises(SchemaError, match="was edited"):
        load_head(str(folder), "demask")


def test_weights_of_another_shape_are_refused(folder):
    card = load_head(str(folder), "demask").card
    body = vars(replace(card, size=4))
    (folder / "head.json").write_text(to_hashed_json(heads.FORMAT, body), encoding="utf-8")
    with pytest.raises(SchemaError, match="the weights are not those of a demask head"):
        load_head(str(folder), "demask")


def test_missing_files(folder, tmp_path):
    (folder / "head.safetensors").unlink()
    with pytest.raises(SchemaError, match="cannot be read"):
        load_head(str(folder), "demask")
    with pytest.raises(ConfigError, match=r"cannot be read .*allowed: a folder that `unmask train head` wrote"):
        load_head(str(tmp_path / "nothing"), "demask")


def test_a_shipped_head_is_found_by_its_model(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(heads, "SHIPPED", tmp_path / "shipped")
    assert shipped_heads("demask") == {}
    with pytest.raises(ConfigError, match="needs a head trained for mini, and none comes with the package"):
        with_head(DEMASK(), "mini", "abc", False)
    shutil.copytree(folder, tmp_path / "shipped" / "demask-mini")
    assert shipped_heads("demask") == {"abc": "demask-mini"}
    assert shipped_heads("ddpd") == {}
    assert with_head(DEMASK(), "mini", "abc", False) == DEMASK(head="demask-mini")
    assert load_head("demask-mini", "demask").card.model == "mini"
    with pytest.raises(ConfigError, match="needs a head trained for other"):
        with_head(DEMASK(), "other", "xyz", False)


@pytest.mark.parametrize("model", ["mini", "mini-dream"])
@pytest.mark.parametrize("kind", ["demask", "ddpd"])
def test_shipped_heads_are_whole_and_say_what_they_are_worth(kind, model):
    card = load_head(f"{kind}-{model}", kind).card
    assert shipped_heads(kind)[card.fingerprint] == f"{kind}-{model}"
    assert (card.model, card.data["texts"], card.data["held_out"]) == (model, 8000, 500)
    assert card.quality["loss"] < 0.5 * card.quality["loss_of_the_mean"]
    assert card.quality["explained_variance"] > 0.5
    page = (heads.SHIPPED / f"{kind}-{model}" / "README.md").read_text(encoding="utf-8")
    assert page == heads.describe_card(card)
    assert "Verdict: better than always saying the mean" in page


def test_shipped_heads_are_small():
    assert sum(path.stat().st_size for path in heads.SHIPPED.rglob("*")) < 1_000_000


def test_other_policies_are_left_alone():
    assert with_head(LLaDA(), "mini", "abc", False) == LLaDA()
    assert with_head(DEMASK(), "exact", "abc", True).head == "measured"


def test_a_planner_reads_probabilities_of_0():
    assert torch.isfinite(PlannerHead(3, 2)(torch.ones(1, 2, 3), torch.tensor([[0.0, 1.0]]))).all()


def test_nothing_depends_on_itself():
    depends = DependenceHead(3, 2)(torch.randn(2, 4, 3))
    assert depends.shape == (2, 4, 4)
    assert not depends.diagonal(dim1=1, dim2=2).any()
    assert ((depends >= 0) & (depends <= 1)).all()


def test_the_folder_of_a_training_is_taken_for_the_head_in_it(tmp_path):
    save_head(tmp_path / "made" / "head", DependenceHead(6, 3), CARD)
    assert load_head(str(tmp_path / "made"), "demask").card == load_head(str(tmp_path / "made" / "head"), "demask").card
