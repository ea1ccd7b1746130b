"""`unmask models` as a user types it."""


def test_models(command):
    found = {model["name"]: model for model in command("models", "--json").json}
    assert set(found) >= {"exact", "llada", "llada-1.5", "dream", "masked-lm"}
    assert (found["exact"]["status"], found["exact"]["options"]["n"]) == ("ready", 8)
    assert "download" in found["llada-1.5"]["status"]
    assert found["dream"]["options"]["dtype"] == "auto"
    shown = command("models").out
    assert "dependence=1.5" in shown
    assert "GSAI-ML/LLaDA-8B-Instruct" in shown
