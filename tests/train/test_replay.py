"""A step that is recorded: rehearsals leave no trace, and nothing in it asks the device for a number."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import unmask.train.learner
from unmask.core.graphs import Recording
from unmask.train.config import Config
from unmask.train.learner import Learner, Stepped, _optimizers

CPU = torch.device("cpu")


class Pretended:
    """A recording without a GPU: rehearsals are real, and so is the recording, which there computes nothing."""

    def __init__(self, work: Callable[[], Stepped], device: torch.device, rehearsals: int):
        assert rehearsals == 3
        for _ in range(rehearsals + 1):
            work()
        self.work = work

    def __call__(self) -> Stepped:
        return self.work()


@pytest.fixture
def recorded(monkeypatch) -> Callable[[Learner], Learner]:
    monkeypatch.setattr(unmask.train.learner, "record", Pretended)

    def prepare(learner: Learner) -> Learner:
        learner._to_record = True
        return learner

    return prepare


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_rehearsals_leave_no_trace(tables, pool, recorded, kind):
    config = Config.of(tables(**{"optimizer.kind": kind}))
    plain, other = Learner(config, pool, CPU), recorded(Learner(config, pool, CPU))
    for step in range(3):
        first, second = plain.step(step), other.step(step)
        assert torch.equal(first.loss, second.loss)
        assert torch.equal(first.gradient, second.gradient)
    assert equal(plain.state(), other.state())


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_resumed_run_records_its_own_state(tables, pool, recorded, kind):
    config = Config.of(tables(**{"optimizer.kind": kind}))
    whole, first = Learner(config, pool, CPU), Learner(config, pool, CPU)
    for step in range(4):
        whole.step(step)
    for step in range(2):
        first.step(step)
    resumed = Learner(config, pool, CPU)
    resumed.restore(first.state())
    recorded(resumed)
    for step in range(2, 4):
        resumed.step(step)
    assert equal(whole.state(), resumed.state())


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, Mapping):
        return list(a) == list(b) and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)


class Strict(TorchDispatchMode):
    """Refuses what cannot be recorded: numbers for the host, shapes that depend on numbers, random numbers."""

    REFUSED = (
        "_local_scalar_dense",
        "nonzero",
        "masked_select",
        "unique",
        "item",
        "equal",
        "bernoulli",
        "rand",
        "normal",
    )

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name().removeprefix("aten::").partition(".")[0]
        assert not name.startswith(self.REFUSED), f"{name} cannot be recorded"
        tensors = [x for x in args if isinstance(x, torch.Tensor)]
        indices = args[1] if name.startswith(("index", "_unsafe_index")) and isinstance(args[1], (list, tuple)) else ()
        assert not any(x is not None and x.dtype == torch.bool for x in indices), "a choice by truth values waits"
        assert all(x.device.type == "cpu" for x in tensors)
        return func(*args, **(kwargs or {}))


def on_a_gpu(learner: Learner) -> Learner:
    """With the optimizers that a GPU gets: a rate that is read where it lies."""
    learner._rate = learner._feed.rate
    learner.optimizers = _optimizers(learner.model, learner.config.optimizer, learner._rate)
    return learner


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("family", ["llada", "dream"])
def test_a_step_never_waits_for_the_device(tables, pool, family, kind):
    config = Config.of(tables(**{"optimizer.kind": kind, "model.family": family, "run.dtype": "bf16"}))
    learner = on_a_gpu(Learner(config, pool, CPU))
    # The first step makes the optimizer's state; it is never recorded.
    learner.step(0)
    with Strict():
        learner._eager()
    with pytest.raises(AssertionError, match="_local_scalar_dense"), Strict():
        float(learner._feed.rate)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_rate_in_a_tensor_is_the_same_rate(tables, pool, kind):
    """Also after a restart, whose copies must not come between."""
    config = Config.of(tables(**{"optimizer.kind": kind}))
    plain, other = Learner(config, pool, CPU), on_a_gpu(Learner(config, pool, CPU))
    for step in range(4):
        plain.step(step)
        if step == 2:
            state = other.state()
            other = on_a_gpu(Learner(config, pool, CPU))
            other.restore(state)
        other.step(step)
        for a, b in zip(plain.model.parameters(), other.model.parameters(), strict=True):
            assert torch.allclose(a, b, rtol=1e-4, atol=1e-6)
    groups = [group for optimizer in other.optimizers for group in optimizer.param_groups]
    assert all(group["lr"] is other._feed.rate for group in groups)


def test_gradients_are_gone_after_a_step(config, pool):
    """They live inside the recording; outside nobody may hold on to them."""
    learner = Learner(config, pool, CPU)
    learner.step(0)
    assert all(p.grad is None for p in learner.model.parameters())


def test_the_next_step_is_drawn_ahead_and_none_beyond_the_last(config, pool, monkeypatch):
    learner = Learner(config, pool, CPU)
    written: list[int] = []
    write = Learner._write
    monkeypatch.setattr(Learner, "_write", lambda self, step: (written.append(step), write(self, step))[1])
    for step in range(config.optimizer.steps):
        learner.step(step)
        assert written == list(range(min(step + 2, config.optimizer.steps)))
    # Out of order it is drawn again.
    learner.step(2)
    assert written[-2:] == [2, 3]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("family", ["llada", "dream"])
def test_a_recorded_step_on_a_gpu_is_the_plain_one(tables, pool, family, kind, compiled):
    """Up to noise; with validation in between, after a restart, and with the CPU's numbers."""
    keys = {"optimizer.kind": kind, "model.family": family, "run.compile": compiled}
    gpu = torch.device("cuda")
    learners = {
        "cpu": Learner(Config.of(tables(**keys)), pool, CPU),
        "plain": Learner(Config.of(tables(**keys)), pool, gpu),
        "recorded": Learner(Config.of(tables(**keys, **{"run.graph": True})), pool, gpu),
    }
    for step in range(6):
        if step == 4:
            resumed = Learner(learners["recorded"].config, pool, gpu)
            resumed.restore(learners["recorded"].state())
            learners["recorded"] = resumed
        found = {name: learner.step(step) for name, learner in learners.items()}
        losses = {name: stepped.loss.item() for name, stepped in found.items()}
        norms = {name: stepped.gradient.item() for name, stepped in found.items()}
        assert losses["recorded"] == pytest.approx(losses["plain"], rel=1e-3)
        assert norms["recorded"] == pytest.approx(norms["plain"], rel=1e-2)
        assert losses["recorded"] == pytest.approx(losses["cpu"], rel=1e-2)
        validated = [learners[name].validate() for name in ("plain", "recorded")]
        assert validated[0] == pytest.approx(validated[1], rel=1e-3)
    assert isinstance(learners["recorded"]._update, Recording)
    for a, b in zip(learners["plain"].model.parameters(), learners["recorded"].model.parameters(), strict=True):
        assert torch.allclose(a, b, atol=2e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_replays_in_a_row_read_their_own_inputs(tables, pool):
    """Steps launched as fast as the host can, nobody waiting in between: the losses are those of patient steps."""
    config = Config.of(tables(**{"run.graph": True, "optimizer.steps": 60, "optimizer.rate": 1e-4}))
    hasty, patient = Learner(config, pool, torch.device("cuda")), Learner(config, pool, torch.device("cuda"))
    expected = []
    for step in range(60):
        expected.append(patient.step(step).loss.item())
        torch.cuda.synchronize()
    losses = [hasty.step(step).loss.clone() for step in range(60)]
    assert torch.stack(losses).tolist() == pytest.approx(expected, rel=1e-3)
    assert len(set(expected)) == 60
