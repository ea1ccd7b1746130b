"""Steps as CUDA graphs: inputs arrive as drawn, rehearsals leave no trace, and no step waits for the device."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from unmask.models import CudaGraph
from unmask.train.batches import draw_batch
from unmask.train.config import TrainConfig
from unmask.train.cuda_graph import BatchTensors, StepInputs
from unmask.train.trainer import StepResult, Trainer, make_optimizers

CPU = torch.device("cpu")


# Inputs


@pytest.fixture
def groups(config, data):
    return [rows.group for rows in Trainer(config, data, CPU).rows]


def test_inputs_arrive_as_drawn_in_buffers_that_never_move(groups):
    inputs = StepInputs(groups, CPU)
    addresses = [tensor.data_ptr() for batch in inputs.batches for tensor in batch]
    for step in range(3):
        drawn = [draw_batch(group, 3, step, 0.001) for group in groups]
        before = [batch.place_R.clone() for batch in inputs.batches]
        inputs.write(0.1 * step, drawn)
        # Nothing reaches the device before it is sent.
        assert all(torch.equal(a, batch.place_R) for a, batch in zip(before, inputs.batches, strict=True))
        inputs.send()
        assert inputs.rate.item() == np.float32(0.1 * step)
        for arrived, batch in zip(inputs.batches, drawn, strict=True):
            for found, expected in zip(arrived, BatchTensors.of(batch, CPU), strict=True):
                assert found.dtype == expected.dtype
                assert torch.equal(found, expected)
    assert addresses == [tensor.data_ptr() for batch in inputs.batches for tensor in batch]


def test_a_buffer_is_not_written_while_it_is_copied(groups):
    """Every write waits for the copy out of its own buffer, and for no other."""
    inputs = StepInputs(groups, CPU)
    events: list[tuple[str, int]] = []

    class Event:
        def __init__(self, number: int):
            self.number = number

        def record(self) -> None:
            events.append(("sent", self.number))

        def synchronize(self) -> None:
            events.append(("waited", self.number))

    inputs._copies = [Event(0), Event(1)]
    for step in range(4):
        inputs.write(float(step), [draw_batch(group, 3, step, 0.001) for group in groups])
        assert inputs._host_arrays[events[-1][1]][0] == step, "it waited for the buffer that it wrote"
        inputs.send()
    # One step may be written while the other is on its way.
    assert events == [(what, number) for number in (1, 0, 1, 0) for what in ("waited", "sent")]


# Recording


class PretendedRecording:
    """A recording without a GPU: rehearsals are real, and so is the recording, which on a GPU computes nothing."""

    def __init__(self, work: Callable[[], StepResult], device: torch.device, rehearsals: int):
        for _ in range(rehearsals + 1):
            work()
        self.work = work

    def __call__(self) -> StepResult:
        return self.work()


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, Mapping):
        return list(a) == list(b) and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_recorded_run_equals_a_plain_one_also_after_a_restart(tables, data, monkeypatch, kind):
    monkeypatch.setattr("unmask.train.trainer.build_graph", PretendedRecording)
    config = TrainConfig(**tables(**{"optimizer.kind": kind}))
    plain, recorded = Trainer(config, data, CPU), Trainer(config, data, CPU)
    recorded.records_step = True
    for step in range(5):
        if step == 3:
            state = recorded.state_dict()
            recorded = Trainer(config, data, CPU)
            recorded.load_state_dict(state)
            recorded.records_step = True
        first, second = plain.step(step), recorded.step(step)
        assert torch.equal(first.loss, second.loss)
        assert torch.equal(first.gradient, second.gradient)
    assert equal(plain.state_dict(), recorded.state_dict())
    # Gradients live inside the recording: outside nothing may hold on to them.
    assert all(p.grad is None for p in plain.model.parameters())


class RecordableOnly(TorchDispatchMode):
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


def trainer_as_on_a_gpu(config: TrainConfig, data: Any) -> Trainer:
    """A trainer with the optimizers of a GPU, which read the rate from a tensor."""
    trainer = Trainer(config, data, CPU)
    trainer.rate = trainer.inputs.rate
    trainer.optimizers = make_optimizers(trainer.model, config.optimizer, trainer.rate)
    return trainer


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("family", ["llada", "dream"])
def test_a_step_never_waits_for_the_device(tables, data, family, kind):
    config = TrainConfig(**tables(**{"optimizer.kind": kind, "model.family": family, "run.dtype": "bf16"}))
    trainer = trainer_as_on_a_gpu(config, data)
    # The first step creates the optimizer's state; it is never recorded.
    trainer.step(0)
    with RecordableOnly():
        trainer.update()
    with pytest.raises(AssertionError, match="_local_scalar_dense"), RecordableOnly():
        float(trainer.inputs.rate)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_rate_in_a_tensor_is_the_same_rate_also_after_a_restart(tables, data, kind):
    config = TrainConfig(**tables(**{"optimizer.kind": kind}))
    plain, other = Trainer(config, data, CPU), trainer_as_on_a_gpu(config, data)
    for step in range(4):
        plain.step(step)
        if step == 2:
            state = other.state_dict()
            other = trainer_as_on_a_gpu(config, data)
            other.load_state_dict(state)
        other.step(step)
        for a, b in zip(plain.model.parameters(), other.model.parameters(), strict=True):
            assert torch.allclose(a, b, rtol=1e-4, atol=1e-6)
    assert all(group["lr"] is other.inputs.rate for opt in other.optimizers for group in opt.param_groups)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("family", ["llada", "dream"])
def test_a_recorded_step_on_a_gpu_is_the_plain_one(tables, data, family, kind, compiled):
    """Up to noise; with validation in between, after a restart, and with the CPU's numbers."""
    keys = {"optimizer.kind": kind, "model.family": family, "run.compile": compiled}
    plain, recorded = (TrainConfig(**tables(**keys, **{"run.graph": graph})) for graph in (False, True))
    gpu = torch.device("cuda")
    trainers = {
        "cpu": Trainer(plain, data, CPU),
        "plain": Trainer(plain, data, gpu),
        "recorded": Trainer(recorded, data, gpu),
    }
    for step in range(6):
        if step == 4:
            state = trainers["recorded"].state_dict()
            trainers["recorded"] = Trainer(recorded, data, gpu)
            trainers["recorded"].load_state_dict(state)
        results = {name: trainer.step(step) for name, trainer in trainers.items()}
        losses = {name: result.loss.item() for name, result in results.items()}
        norms = {name: result.gradient.item() for name, result in results.items()}
        assert losses["recorded"] == pytest.approx(losses["plain"], rel=1e-3)
        assert norms["recorded"] == pytest.approx(norms["plain"], rel=1e-2)
        assert losses["recorded"] == pytest.approx(losses["cpu"], rel=1e-2)
        assert trainers["plain"].validate() == pytest.approx(trainers["recorded"].validate(), rel=1e-3)
    assert isinstance(trainers["recorded"]._run_update, CudaGraph)
    for a, b in zip(trainers["plain"].model.parameters(), trainers["recorded"].model.parameters(), strict=True):
        assert torch.allclose(a, b, atol=2e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_replays_in_a_row_read_their_own_inputs(tables, data):
    """Steps launched as fast as the host can have the losses of steps that are waited for."""
    config = TrainConfig(**tables(**{"run.graph": True, "optimizer.steps": 60, "optimizer.rate": 1e-4}))
    hasty, patient = Trainer(config, data, torch.device("cuda")), Trainer(config, data, torch.device("cuda"))
    expected = []
    for step in range(60):
        expected.append(patient.step(step).loss.item())
        torch.cuda.synchronize()
    losses = [hasty.step(step).loss.clone() for step in range(60)]
    assert torch.stack(losses).tolist() == pytest.approx(expected, rel=1e-3)
    assert len(set(expected)) == 60
