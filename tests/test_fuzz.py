"""Random arguments to everything a new user calls: a result, or an error of ours that says what to do."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

import unmask
from unmask.base.errors import UnmaskError, format_value
from unmask.methods import METHODS, LLaDA

NAN, INF = float("nan"), float("inf")
ODD = [
    *(None, True, False, 0, 1, 2, 3, 7, 8, -1, -(10**9), 10**9, 2**63, -(2**63) - 1, 10**400, 10**5000),
    *(0.0, -0.0, 0.5, 1.0, 1.5, -1.0, NAN, INF, -INF, 1e-300, 5e-324, 1e300),
    *(
        "",
        "a",
        "ab",
        "abcdabcd",
        "_",
        "a_b_",
        "[MASK]",
        "x",
        "\ufeff",
        "\ufeffa",
        "\ud800",
        "a\0",
        "é" * 50,
        "a" * 5000,
    ),
    *(b"", b"ab", bytearray(b"a"), memoryview(b"a")),
    *([], (), {}, set(), ["a"], ["a", ""], ["a", None], [["a"]], [[["a"]]], ("a", "b"), {"role": "user"}, [{}], {"a"}),
    *(
        [{"role": "user", "content": "a"}],
        [{"role": 3, "content": None}],
        range(3),
        object(),
        type,
        len,
        ...,
        NotImplemented,
    ),
    *(
        np.int64(2),
        np.float64(0.5),
        np.float32(0.5),
        np.bool_(True),
        np.str_("a"),
        np.array(2),
        np.array(["a"]),
        np.zeros(0),
    ),
    *(
        torch.tensor(2),
        torch.tensor([0.5]),
        Path("a"),
        Path("/nowhere/run.npz"),
        1 + 2j,
        LLaDA(),
        LLaDA,
        "llada",
        "selective",
    ),
]
"""Values of every kind that somebody might pass anywhere."""

OPTIONS = [
    *(
        "policy",
        "max_new_tokens",
        "gen_length",
        "steps",
        "temperature",
        "top_p",
        "top_k",
        "sampler",
        "cfg_scale",
        "seed",
    ),
    *(
        "samples",
        "eos_fill",
        "logits_eos_inf",
        "confidence_eos_eot_inf",
        "eos_penalty",
        "cache",
        "cache_refresh",
        "gate",
    ),
    *(
        "force_gate",
        "record",
        "block_length",
        "remasking",
        "threshold",
        "candidates",
        "kappa",
        "alpha",
        "region",
        "nonsense",
    ),
    *("operator.variant", "base", "settings", "name", "window"),
]


@pytest.fixture(scope="module")
def model():
    return unmask.load("exact", n=6, vocab=3, eos="c")


@pytest.fixture(scope="module")
def run(model):
    return model.generate(["a", "ab"], temperature=1.0, steps=3)


def chosen(dice, names, most):
    return {name: dice.choice(ODD) for name in dice.sample(names, dice.randrange(most + 1))}


def tried(call, *arguments, **keywords):
    """Whether it worked; anything but an error of ours with words in it is a failure of the test."""
    try:
        call(*arguments, **keywords)
    except Exception as error:
        ours = isinstance(error, UnmaskError) and 0 < len(str(error)) < 8_000
        if not ours:
            what = f"{type(error).__name__} of {call.__name__}{format_value(arguments)} {format_value(keywords)}"
            raise AssertionError(what) from error
        return False
    return True


def test_generate(model):
    dice = random.Random(1)
    worked = 0
    for number in range(300):
        prompt = dice.choice(ODD) if number % 2 else "a"
        keywords = chosen(dice, OPTIONS, 3)
        if number % 3 == 0:
            keywords["policy"] = dice.choice(list(METHODS))
        worked += tried(model.generate, prompt, **keywords)
    assert 5 < worked < 295


def test_infill(model):
    dice = random.Random(2)
    worked = sum(
        tried(model.infill, dice.choice(ODD) if number % 2 else "a__", **chosen(dice, OPTIONS, 2))
        for number in range(150)
    )
    assert 5 < worked < 145


def test_branch(model, run):
    dice = random.Random(3)
    worked = 0
    for number in range(200):
        source = dice.choice(ODD) if number % 4 == 0 else run if number % 2 else run.trajectory
        keywords = {"step": dice.choice(ODD) if number % 5 == 0 else dice.randrange(3), **chosen(dice, OPTIONS, 2)}
        if number % 3 == 0:
            keywords["row"] = dice.choice(ODD)
        if number % 7 == 0:
            keywords["action"] = dice.choice(ODD)
        worked += tried(model.branch, source, **keywords)
    assert 5 < worked < 195


def test_load():
    dice = random.Random(4)
    names = ["n", "vocab", "dependence", "structure", "seed", "eos", "path", "device", "dtype", "nonsense"]
    for number in range(200):
        name = "exact" if number % 2 else dice.choice(ODD)
        tried(unmask.load, name, **chosen(dice, names, 2))


def test_trajectories(run, tmp_path):
    dice = random.Random(5)
    for _ in range(100):
        tried(run.trajectory.resume, dice.choice(ODD), dice.choice(ODD))
        tried(run.trajectory.row, dice.choice(ODD))
        tried(unmask.Trajectory.load, dice.choice(ODD))
        tried(unmask.Trajectory.from_bytes, dice.choice(ODD))
