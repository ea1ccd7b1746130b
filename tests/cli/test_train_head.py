"""`unmask train head` as a user types it, and the group it shares with `unmask train`."""

from unmask.policies.heads import store

FEW = ("--examples", "6", "--held-out", "4", "--steps", "2", "--batch", "2", "--size", "4", "--device", "cpu")


def test_a_head_is_trained_and_used(command, tmp_path):
    ended = command("train", "head", "--kind", "ddpd", "--model", "mini", "--out", "made", *FEW)
    assert ended.code == 0, ended.err
    assert "held-out: loss" in ended.out
    assert (tmp_path / "made" / "head" / "head.json").is_file()
    asked = ("generate", "2+2", "--max-new-tokens", "4", "--steps", "3", "--json", "--policy", "ddpd")
    document = command(*asked, "--set", "head=made/head").json
    assert document["forwards"] == 6
    assert document["config"]["policy"]["head"] == "made/head"


def test_without_a_head_the_command_is_told(command, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "SHIPPED", tmp_path)
    ended = command("generate", "a", "-m", "mini-dream", "--policy", "demask")
    assert ended.code == 2
    assert "unmask train head --kind demask --model mini-dream --out FOLDER" in ended.err


def test_an_unknown_kind(command):
    ended = command("train", "head", "--kind", "soar", "--out", "made")
    assert ended.code == 2
    assert "unknown kind of head 'soar'" in ended.err


def test_training_a_model_still_asks_for_its_configuration(command):
    ended = command("train")
    assert ended.code == 2
    assert "--config and --out missing" in ended.err
    assert "--out missing" in command("train", "--config", "x.toml").err
    assert "x.toml" in command("train", "--config", "x.toml", "--out", "made").err
