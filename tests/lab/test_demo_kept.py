"""A comparison on disk is taken up only where the same code and settings made it."""

import pytest

from unmask.lab import demo
from unmask.lab.demo import Contender, DemoProblem, load_or_run_demo

PROBLEM = DemoProblem("dense", seed=1, n=4, vocab=2, prompt_length=1)
LLADA, RANDOM = Contender("one", "llada", 2), Contender("dice", "llada", 2, {"remasking": "random"})


@pytest.fixture
def asked(tmp_path):
    """Asks for the comparison; says what came, and what had to be computed for it."""

    def ask(contenders=(LLADA, RANDOM), seeds=3):
        computed = []
        came = load_or_run_demo(
            tmp_path / "kept.json",
            [PROBLEM],
            contenders,
            seeds=seeds,
            on_done=lambda problem, label: computed.append(label),
        )
        return came, computed

    return ask


def test_the_second_time_it_is_read(asked):
    made, computed = asked()
    assert computed == ["one", "dice"]
    assert asked() == (made, [])


def test_other_settings_are_another_comparison(asked):
    asked()
    assert asked(seeds=4)[1] == ["one", "dice"]
    assert asked(contenders=(LLADA,), seeds=4)[1] == ["one"]


def test_what_other_code_made_is_made_again(asked, monkeypatch):
    made, _ = asked()
    monkeypatch.setattr(demo, "code_fingerprint", lambda: "another")
    assert asked() == (made, ["one", "dice"])


@pytest.mark.parametrize("harm", [lambda b: b[: len(b) // 2], lambda b: b.replace(b"0.", b"1.", 1), lambda b: b"\xff"])
def test_what_is_damaged_is_made_again(asked, tmp_path, harm):
    made, _ = asked()
    path = tmp_path / "kept.json"
    whole = path.read_bytes()
    path.write_bytes(harm(whole))
    assert asked() == (made, ["one", "dice"])
    assert path.read_bytes() == whole
