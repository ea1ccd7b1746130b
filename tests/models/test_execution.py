"""Devices, types and memory. The choice of an engine and what engines promise is in `tests/denoisers`."""

import pytest
import torch

from unmask.base.errors import ConfigError, NotEnoughMemory
from unmask.models import execution
from unmask.models.execution import DTYPES, check_memory, dtype_name, free_memory, resolve_device, resolve_dtype

CPU = torch.device("cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
def test_devices_without_a_gpu():
    assert resolve_device("auto") == resolve_device("cpu") == CPU
    for name in ("cuda", "cuda:0", "mps", "gpu", ""):
        with pytest.raises(ConfigError, match=rf"device is '{name}'; allowed: auto, cpu; this machine has no other"):
            resolve_device(name)


def test_types():
    assert resolve_dtype("auto", CPU) == torch.float32
    assert resolve_dtype("auto", torch.device("cuda:0")) == torch.bfloat16
    for name, dtype in DTYPES.items():
        assert resolve_dtype(name, CPU) == dtype
        assert dtype_name(dtype) == name
    with pytest.raises(ConfigError, match=r"dtype is 'int8'; allowed: auto, bf16, fp16, fp32; pick one"):
        resolve_dtype("int8", CPU)


@pytest.mark.parametrize(("free", "fits"), [(400, True), (None, True), (399, False)])
def test_weights_must_fit(free, fits, monkeypatch):
    monkeypatch.setattr(execution, "free_memory", lambda _: free)
    if fits:
        check_memory(100, torch.float32, CPU)
    else:
        with pytest.raises(NotEnoughMemory):
            check_memory(100, torch.float32, CPU)


def test_free_memory_of_this_machine(monkeypatch):
    assert free_memory(CPU) > 2**20

    def no_proc(*args, **options):
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", no_proc)
    assert free_memory(CPU) > 2**20
