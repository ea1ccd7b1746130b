"""`unmask study plan`: what it says on a machine that has nothing but the study file."""

import pytest

from tests.helpers.paths import STUDIES
from unmask.api import load as catalog


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """No cache, no network, no GPU; whoever loads weights is told so."""

    def load(*given, **options):
        raise AssertionError("weights are loaded")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "none"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(catalog, "load", load)
    monkeypatch.setattr("unmask.models.checkpoints.load.load_weights", load)


@pytest.mark.parametrize("name", ["paper", "llada-8b", "llada-1.5", "dream"])
def test_without_a_device_weights_or_a_tokenizer(name, bare, command):
    told = command("study", "plan", str(STUDIES / f"{name}.toml"), "--json").json
    rows = told["estimates"]
    assert len(rows) == 10 * (3 if name == "paper" else 1)
    for row in rows:
        assert row["proposals"] == 4 * 4 * row["states"]
        assert row["forwards"] > row["branches"]
        assert row["whole_runs"] > 0
        assert (row["width"], row["seconds"]) == (None, None)
    assert sum(row["states"] for row in rows) == 14_592 * len(rows) // 10


def test_the_screen(bare, command):
    ran = command("study", "plan", str(STUDIES / "dream.toml"), "--rate", "200")
    assert ran.code == 0
    total = next(line for line in ran.out.splitlines() if line.startswith("all"))
    assert " h " in f"{total} "
    assert "at most" in ran.out
    assert "--measure or --rate" in ran.out


def test_a_tokenizer_that_is_here_gives_buckets(bare, command):
    """That of the small models is in the package."""
    rows = command("study", "plan", str(STUDIES / "demo.toml"), "--json").json["estimates"]
    assert all(row["width"] % 32 == 0 and row["seconds"] is None for row in rows)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('model = "mini"', 'model = "minni"'), "unknown model 'minni'; did you mean mini"),
        (('dtype = "fp32"', 'dtyp = "fp32"'), "unknown option of mini 'dtyp'"),
        (('dtype = "fp32"', 'invariant = "maybe"'), "invariant of mini is 'maybe'"),
    ],
)
def test_models_and_their_options_are_checked(bare, command, tmp_path, change, said):
    """By the plan, and by the run before it makes a folder."""
    text = (STUDIES / "demo.toml").read_text(encoding="utf-8")
    assert change[0] in text
    (tmp_path / "wrong.toml").write_text(text.replace(*change, 1), encoding="utf-8")
    for more in (("plan", "wrong.toml"), ("run", "wrong.toml", "--out", "made")):
        ended = command("study", *more)
        assert (ended.code, said in ended.err) == (2, True), ended.err
    assert "true or false" in ended.err or "invariant" not in said
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("rate", ["0", "-3", "nan", "inf"])
def test_rates_that_are_none(rate, command):
    ran = command("study", "plan", str(STUDIES / "demo.toml"), "--rate", rate)
    assert (ran.code, "allowed: row-forwards a second, above 0" in ran.err) == (2, True)


def test_measured_and_given_is_refused(command):
    ran = command("study", "plan", str(STUDIES / "demo.toml"), "--rate", "9", "--measure")
    assert (ran.code, "nothing beside --measure" in ran.err) == (2, True)
