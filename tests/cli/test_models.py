"""`unmask models` as a user types it."""

import torch


def test_models(command):
    found = {model["name"]: model for model in command("models", "--json").json}
    assert set(found) >= {"exact", "llada", "llada-1.5", "dream", "masked-lm"}
    assert (found["exact"]["status"], found["exact"]["options"]["n"]) == ("ready", 8)
    assert "download" in found["llada-1.5"]["status"]
    assert found["dream"]["options"]["dtype"] == "auto"
    shown = command("models").out
    assert "dependence=1.5" in shown
    assert "GSAI-ML/LLaDA-8B-Instruct" in shown


def test_models_name_the_engine_in_use_and_why(command):
    found = {model["name"]: model for model in command("models", "--json").json}
    assert "engine" not in found["exact"]
    engine = found["mini"]["engine"]
    assert engine == found["llada"]["engine"]
    if torch.cuda.is_available():
        assert engine["engine"] in ("fused", "graph")
    else:
        assert engine == {"engine": "eager", "why": "cpu is not a CUDA device: no graphs and no kernels there"}
