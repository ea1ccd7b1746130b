"""Whether a device can run the kernels, in words."""

import sys

import pytest
import torch

from tests.helpers.gpu import gpu
from tests.helpers.paths import SRC
from unmask.models.execution import find_kernel_problem


@pytest.fixture(autouse=True)
def _asked_anew():
    find_kernel_problem.cache_clear()
    yield
    find_kernel_problem.cache_clear()


def pretend_gpu(monkeypatch, capability):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)


def test_a_cpu_has_none():
    assert find_kernel_problem(torch.device("cpu")) == "cpu is not a CUDA device of this machine"


def test_an_old_gpu_has_none(monkeypatch):
    pretend_gpu(monkeypatch, (7, 5))
    assert find_kernel_problem(torch.device("cuda:0")) == "cuda:0 has compute capability 7.5, below 8.0"


def test_no_triton_no_kernels(monkeypatch):
    pretend_gpu(monkeypatch, (9, 0))
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "unmask.models.triton_kernels", raising=False)
    reason = find_kernel_problem(torch.device("cuda:0"))
    assert reason is not None
    assert reason.startswith("Triton does not work here (ModuleNotFoundError: import of triton halted")


def test_a_driver_that_fails_is_a_reason(monkeypatch):
    """Here there is no GPU behind the pretence, so that the first launch fails."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    pretend_gpu(monkeypatch, (9, 0))
    reason = find_kernel_problem(torch.device("cuda:0"))
    assert reason is not None
    assert reason.startswith("Triton does not work here (")


def test_triton_is_not_loaded_before_it_is_used():
    """One module imports it, and none imports that one but by its name when it is wanted."""
    texts = {path.relative_to(SRC): path.read_text(encoding="utf-8") for path in SRC.rglob("*.py")}
    statements = {
        str(path): [line.strip() for line in text.splitlines() if line.strip().startswith(("import ", "from "))]
        for path, text in texts.items()
    }
    loading = [path for path, lines in statements.items() if any(line.split()[1] == "triton" for line in lines)]
    assert "unmask/models/triton_kernels.py" in loading
    assert not [path for path in loading if "kernel" not in path and "triton" not in path]


@gpu
def test_a_gpu_has_them():
    assert find_kernel_problem(torch.device("cuda:0")) is None
