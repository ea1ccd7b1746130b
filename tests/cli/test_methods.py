"""`unmask methods` as a user types it."""

from unmask.policies import METHODS


def test_methods(command):
    found = command("methods", "--json").json
    assert [method["name"] for method in found] == list(METHODS)
    by_name = {method["name"]: method for method in found}
    assert by_name["llada"]["settings"] == {"block_length": None, "remasking": "low_confidence"}
    assert by_name["wino"]["commitment"] == "re-maskable"
    shown = command("methods").out
    assert all(name in shown for name in METHODS)
    assert "window=[0.25,0.75]" in shown
