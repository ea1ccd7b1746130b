"""Triton twins of what runs between a layer's matrix products, and whether a device can run them.

Their oracle is `transformer.PlainOps`. Triton is imported on first use only: a machine without it decodes all the same.
"""

from functools import cache
from importlib import import_module
from types import ModuleType

import torch

from unmask.models.transformer import LayerOps

OLDEST = (8, 0)
"""The compute capability from which a GPU has bfloat16, and from which Triton supports it."""


@cache
def why_not(device: torch.device) -> str | None:
    """Why this device cannot run the kernels; None if it can, which one small launch has shown."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return f"{device} is not a CUDA device of this machine"
    capability = torch.cuda.get_device_capability(device)
    if capability < OLDEST:
        return f"{device} has compute capability {_dotted(capability)}, below {_dotted(OLDEST)}"
    try:
        ops = fused_ops()
        gate_12 = torch.ones(1, 2, device=device)
        ops.gate(gate_12, gate_12)
        torch.cuda.synchronize(device)
    except Exception as error:  # whatever an import, a compiler or a driver raises, the plain path is there
        return f"Triton does not work here ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''})"
    return None


def fused_ops() -> LayerOps:
    """The kernels, as a layer calls them; their module imports Triton, which may be missing."""
    ops: LayerOps = import_module("unmask.models.kernels.layers").FusedOps()
    return ops


def readout_kernel() -> ModuleType:
    """The kernel of the attention read-out; for a device that runs the others."""
    return import_module("unmask.models.kernels.readout")


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
