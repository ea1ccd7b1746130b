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


@pytest.mark.parametrize("name", ["paper", "llada-8b", "dream"])
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


def test_a_tokenizer_that_is_here_gives_buckets(bare, command):
    """That of the small models is in the package."""
    rows = command("study", "plan", str(STUDIES / "demo.toml"), "--json").json["estimates"]
    assert all(row["width"] % 32 == 0 and row["seconds"] is None for row in rows)
