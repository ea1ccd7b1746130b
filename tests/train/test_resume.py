"""A stored state is one that this run could have left, or it is refused with the reason."""

import copy
import math

import pytest
import torch

from unmask.train.config import Config
from unmask.train.journal import Point
from unmask.train.learner import Learner
from unmask.train.resume import check_state

POINT = {"step": 2, "loss": 1.0, "validation": None, "rate": 0.1, "gradient": 1.0, "tokens": 10, "seconds": 1.0}


@pytest.fixture(scope="module", params=["adamw", "muon"])
def learner(request, tables, pool):
    learner = Learner(Config.of(tables(**{"optimizer.kind": request.param})), pool, torch.device("cpu"))
    for step in range(2):
        learner.step(step)
    return learner


@pytest.fixture
def state(learner):
    return copy.deepcopy(
        {
            "step": 2,
            **learner.state(),
            "sum": torch.tensor(1.0),
            "count": 1,
            "seconds": 2.0,
            "points": [POINT],
            "scores": [(2, "carry-rtl", 0.5)],
            "validation": {"english": 1.0},
        }
    )


def check(state, learner, step=2, steps=6):
    check_state(state, step, steps, learner.model, learner.optimizers)


def test_what_a_run_leaves(state, learner):
    assert Point(**POINT).step == 2
    check(state, learner)


def first(table):
    return next(iter(table))


def nan(tensor):
    tensor.view(-1)[-1] = math.nan


DAMAGE = {
    "no table": (lambda s: [s], "no table"),
    "a key too few": (lambda s: {k: v for k, v in s.items() if k != "count"}, "its keys are"),
    "a key too many": (lambda s: s | {"rng": 1}, "its keys are"),
    "step 0": (lambda s: s | {"step": 0}, "its step is 0, not 1 to 5"),
    "the last step": (lambda s: s | {"step": 6}, "its step is 6, not 1 to 5"),
    "step True": (lambda s: s | {"step": True}, "its step is True"),
    "step 3": (lambda s: s | {"step": 3}, "its step is 3, its name says 2"),
    "count": (lambda s: s | {"count": -1}, "it counts -1 losses"),
    "seconds": (lambda s: s | {"seconds": math.inf}, "it took inf seconds"),
    "sum": (lambda s: s | {"sum": torch.tensor(math.nan)}, "the sum of losses has values that are no numbers"),
    "sums": (lambda s: s | {"sum": torch.zeros(2)}, r"the sum of losses has shape \[2\], not \[\]"),
    "points": (lambda s: s | {"points": [{"step": 1}]}, "lines of another kind"),
    "a loss": (lambda s: s | {"points": [POINT | {"loss": math.nan}]}, "a value that is no number"),
    "order": (lambda s: s | {"points": [POINT, POINT]}, "out of order"),
    "the future": (lambda s: s | {"points": [POINT | {"step": 3}]}, "out of order"),
    "scores": (lambda s: s | {"scores": [(1, "a")]}, "its scores"),
    "validation": (lambda s: s | {"validation": {"a": None}}, "its validation losses"),
    "a weight's name": (lambda s: s | {"model": {"x": 1}}, "the model has other names"),
    "no tensor": (lambda s: s | {"model": dict.fromkeys(s["model"], 1)}, "is no tensor"),
    "optimizers": (lambda s: s | {"optimizers": []}, "not the memory of"),
    "gaps": (lambda s: s | {"optimizers": [{} for _ in s["optimizers"]]}, "has gaps"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_what_no_run_leaves(kind, state, learner):
    change, message = DAMAGE[kind]
    with pytest.raises(ValueError, match=message):
        check(change(state), learner)


def test_weights_that_are_no_numbers(state, learner):
    nan(state["model"]["norm.weight"])
    with pytest.raises(ValueError, match=r"'norm\.weight' of the model has values that are no numbers"):
        check(state, learner)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.half(), "is stored as torch.float16, not torch.float32"),
        (lambda t: t.flatten()[:-1], r"has shape \[.*\], not \["),
    ],
)
def test_tensors_of_another_kind(change, message, state, learner):
    model, memory = state["model"], state["optimizers"][-1][0]
    model["embed.weight"] = change(model["embed.weight"])
    with pytest.raises(ValueError, match=rf"'embed\.weight' of the model {message}"):
        check(state, learner)
    model["embed.weight"] = learner.model.embed.weight
    memory["exp_avg"] = change(memory["exp_avg"])
    with pytest.raises(ValueError, match=rf"'exp_avg' of an optimizer's memory of parameter 0 {message}"):
        check(state, learner)


def test_the_memory_of_an_optimizer(state, learner):
    for memory in state["optimizers"]:
        kept = copy.deepcopy(memory[0])
        for name in kept:
            nan(memory[0][name])
            with pytest.raises(ValueError, match=r"has values that are no numbers|took nan steps"):
                check(state, learner)
            memory[0] = copy.deepcopy(kept)
        memory[0]["more"] = torch.zeros(1)
        with pytest.raises(ValueError, match="memory of parameter 0 has other names"):
            check(state, learner)
        memory[0] = copy.deepcopy(kept)
    check(state, learner)
    memory = state["optimizers"][-1][0]
    memory["step"] += 1
    with pytest.raises(ValueError, match=r"took .* steps, not 2"):
        check(state, learner)
    memory["step"] -= 1
    memory["exp_avg_sq"].view(-1)[0] = -1
    with pytest.raises(ValueError, match="a mean square of parameter 0 is below 0"):
        check(state, learner)
