"""Device and dtype of a network, and how its layers run, decided before any weight is read."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from unmask.base.environment import available_memory
from unmask.base.errors import require, warn_once
from unmask.models.cuda_graphs import GraphCache, GraphPool, first_error_line
from unmask.models.invariance import RowBounds
from unmask.models.network import BUCKET, LayersOutput, Network, run_layers
from unmask.models.transformer import PLAIN, Layer, Transformer

T = TypeVar("T")

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
ENGINES = ("eager", "graph", "fused")
"""Ways to run the layers: one operation at a time, replayed as CUDA graphs, or fused kernels in graphs."""
OLDEST_CAPABILITY = (8, 0)
"""Least compute capability of a GPU that has bfloat16 and that Triton supports."""


def resolve_device(name: str) -> torch.device:
    """Return the device with this name; `auto` is the first GPU, or the CPU if there is none."""
    cuda = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda:0" if cuda else "cpu")
    allowed = ["auto", "cpu", *(["cuda", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))] if cuda else [])]
    require(name in allowed, "device", name, ", ".join(allowed), "this machine has no other")
    return torch.device("cuda:0" if name == "cuda" else name)


def resolve_dtype(name: str, device: torch.device) -> str:
    """Return the name of the dtype to use; `auto` is bf16 on a GPU and fp32 on a CPU."""
    require(name in ("auto", *DTYPES), "dtype", name, ", ".join(("auto", *DTYPES)), "pick one")
    if name == "auto":
        return "fp32" if device.type == "cpu" else "bf16"
    return name


def dtype_name(dtype: torch.dtype) -> str:
    """Return the short name of a dtype, such as bf16."""
    return next(name for name, known in DTYPES.items() if known == dtype)


@dataclass(frozen=True)
class ExecutionMode:
    """The engine that runs the layers of a network, and the reason for its choice."""

    engine: str
    why: str


def choose_execution(name: str, device: torch.device) -> ExecutionMode:
    """Choose how layers run: `auto` is `fused` on a GPU that can run it, `graph` on another, `eager` on a CPU."""
    allowed = ENGINES if device.type == "cuda" else ("eager",)
    known = name in ("auto", *allowed)
    require(known, "engine", name, f"auto, {', '.join(allowed)} on {device}", "graphs need a CUDA device")
    if name not in ("auto", "fused"):
        return ExecutionMode(name, "asked for")
    if device.type != "cuda":
        return ExecutionMode("eager", f"{device} is not a CUDA device: no graphs and no kernels there")
    problem = find_kernel_problem(device)
    if problem is None:
        return ExecutionMode("fused", "fused kernels run here" if name == "auto" else "asked for")
    return ExecutionMode("graph", f"no fused kernels: {problem}")


@cache
def find_kernel_problem(device: torch.device) -> str | None:
    """Return why a device cannot run the Triton kernels; None if a small test launch works."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return f"{device} is not a CUDA device of this machine"
    capability = torch.cuda.get_device_capability(device)
    if capability < OLDEST_CAPABILITY:
        have, need = (".".join(map(str, version)) for version in (capability, OLDEST_CAPABILITY))
        return f"{device} has compute capability {have}, below {need}"
    try:
        from unmask.models.triton_kernels import FusedOps

        # Importing is not enough: only a launch shows that compiler and driver work.
        gate_12 = torch.ones(1, 2, device=device)
        FusedOps().gate(gate_12, gate_12)
        torch.cuda.synchronize(device)
    except Exception as error:  # whatever an import, a compiler or a driver raises, the plain path is there
        return f"Triton does not work here ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''})"
    return None


def resolve_engine(name: str, device: torch.device) -> str:
    """Return the engine to use for a name; warn once if a GPU cannot run fused kernels."""
    mode = choose_execution(name, device)
    if mode.engine != name and mode.engine == "graph":
        warn_once(f"the engine is graph, not fused: {mode.why.removeprefix('no fused kernels: ')}")
    return mode.engine


def use_engine(network: Network, engine: str, *, invariant: bool = False) -> Network:
    """Return the network with another engine. Both share their layers, so the engine set last is in force.

    `invariant` fills up small batches with copies, so that a row has the same bits alone and in a batch.
    """
    if invariant and network.device.type == "cuda":
        half = network.model.dtype in (torch.bfloat16, torch.float16)
        why = "kernels of fp32 products depend on the length of the canvas: load with dtype=bf16"
        require(half, "invariant", f"True with {network.model.dtype}", "bf16 or fp16 on a GPU", why)
    if engine == "fused":
        from unmask.models.triton_kernels import FusedOps

        network.model.use_ops(FusedOps())
    else:
        network.model.use_ops(PLAIN)
    network = replace(network, row_bounds=RowBounds(network.model) if invariant else None)
    if engine == "eager":
        return replace(network, forward=None, step_graphs=None)
    steps = GraphCache(network.device, limit=8, slots_multiple=BUCKET)
    return replace(network, forward=PassGraphs(network.model), step_graphs=steps)


class PassGraphs(GraphCache):
    """CUDA graphs of a model's passes; falls back to plain operations, with a warning, if fused kernels fail."""

    def __init__(self, model: Transformer, limit: int = 16, pool: GraphPool | None = None):
        super().__init__(model.device, limit, pool)
        self.model = model
        self.seat_memories: list[Any] = []
        """Memories of block caches that have recorded graphs; the next decode reuses a free one."""

    def __call__(
        self, tokens_BN: Tensor, position_BN: Tensor, bias: Tensor, *, watch: Sequence[int] = ()
    ) -> LayersOutput:
        """Run the layers; from the second pass of a shape on, record and replay a graph."""
        inputs = (tokens_BN, position_BN, bias)
        key = (*(value.shape for value in inputs), tuple(watch))
        work = partial(run_layers, self.model, watch=watch)
        return self.run(key, work, inputs, name=f"passes over {tuple(tokens_BN.shape)} slots")

    def run(self, key: Hashable, work: Callable[..., T], inputs: Sequence[Tensor] = (), *, name: str = "") -> T:
        """Run work, from a CUDA graph if its key was used before; switch to plain operations if fused kernels fail."""
        try:
            # Graphs of kernels that were given up, here or by another cache of this model, are never replayed again.
            return super().run((type(self.model.ops), key), work, inputs, name=name)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            # A kernel that does not compile fails in the first, plain pass of a shape, so nothing is half recorded.
            if self.model.ops is PLAIN:
                raise
            warn_once(f"the engine is graph, not fused: the kernels do not run ({first_error_line(error)})")
            self.model.use_ops(PLAIN)
            self.clear()
            return work(*inputs)


def compile_layers(model: Transformer) -> None:
    """Compile every layer for training with `torch.compile`; all layers share one compilation."""
    # Compiled code keeps intermediate results in float32. Rounding them as the plain operations do keeps the numbers
    # as close to the plain path's as another order of sums allows.
    options: dict[str, Any] = {"emulate_precision_casts": True}
    for name in ("project", "finish"):
        compiled: Callable[..., Any] = torch.compile(getattr(Layer, name), dynamic=True, options=options)
        for layer in model.layers:
            setattr(layer, name, compiled.__get__(layer))


def free_memory(device: torch.device) -> int | None:
    """Return the free bytes of a device; None if the system does not tell."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return available_memory()
