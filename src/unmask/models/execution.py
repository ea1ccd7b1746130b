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
"""One operation at a time; the same operations replayed as CUDA graphs; fused kernels, replayed."""
OLDEST_CAPABILITY = (8, 0)
"""Compute capability from which a GPU has bfloat16 and Triton supports it."""


def resolve_device(name: str) -> torch.device:
    """Return the device of a name; `auto` is the first GPU, or the CPU where there is none."""
    cuda = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda:0" if cuda else "cpu")
    allowed = ["auto", "cpu", *(["cuda", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))] if cuda else [])]
    require(name in allowed, "device", name, ", ".join(allowed), "this machine has no other")
    return torch.device("cuda:0" if name == "cuda" else name)


def resolve_dtype(name: str, device: torch.device) -> str:
    """Return the name of a dtype; `auto` is bf16 on a GPU, as the published weights are, and fp32 on a CPU."""
    require(name in ("auto", *DTYPES), "dtype", name, ", ".join(("auto", *DTYPES)), "pick one")
    if name == "auto":
        return "fp32" if device.type == "cpu" else "bf16"
    return name


def dtype_name(dtype: torch.dtype) -> str:
    """Return the short name of a dtype, such as bf16."""
    return next(name for name, known in DTYPES.items() if known == dtype)


@dataclass(frozen=True)
class ExecutionMode:
    """How the layers of a network run, and the reason for it."""

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
    """Say why a device cannot run the Triton kernels; return None if one small launch shows that it can."""
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
    """Return the engine that will run under a name. Warns once if a GPU has to do without fused kernels."""
    mode = choose_execution(name, device)
    if mode.engine != name and mode.engine == "graph":
        warn_once(f"the engine is graph, not fused: {mode.why.removeprefix('no fused kernels: ')}")
    return mode.engine


def use_engine(network: Network, engine: str, *, invariant: bool = False) -> Network:
    """Return the network run by another engine. Both share their layers, so the engine used last is in force.

    `invariant` fills small batches up, so that a row has the same bits alone and in a batch.
    """
    if invariant and network.device.type == "cuda":
        half = network.model.dtype in (torch.bfloat16, torch.float16)
        why = "kernels of fp32 products depend on the length of the canvas: load with dtype=bf16"
        require(half, "invariant", f"True with {network.model.dtype}", "bf16 or fp16 on a GPU", why)
    if engine == "fused":
        from unmask.models.triton_kernels import FusedOps

        network.model.use(FusedOps())
    else:
        network.model.use(PLAIN)
    network = replace(network, row_bounds=RowBounds(network.model) if invariant else None)
    if engine == "eager":
        return replace(network, forward=None, step_graphs=None)
    steps = GraphCache(network.device, limit=8, slots_multiple=BUCKET)
    return replace(network, forward=PassGraphs(network.model), step_graphs=steps)


class PassGraphs(GraphCache):
    """Graphs of a model's passes. Fused kernels that fail are replaced by plain operations, with a warning."""

    def __init__(self, model: Transformer, limit: int = 16, pool: GraphPool | None = None):
        super().__init__(model.device, limit, pool)
        self.model = model
        self.seat_memories: list[Any] = []
        """Memories of block caches with graphs that read them: the next decode uses one that is free."""

    def __call__(
        self, tokens_BN: Tensor, position_BN: Tensor, bias: Tensor, *, watch: Sequence[int] = ()
    ) -> LayersOutput:
        """Run the layers; from the second pass of a shape on by replaying a graph of them."""
        inputs = (tokens_BN, position_BN, bias)
        key = (*(value.shape for value in inputs), tuple(watch))
        work = partial(run_layers, self.model, watch=watch)
        return self.run(key, work, inputs, name=f"passes over {tuple(tokens_BN.shape)} slots")

    def run(self, key: Hashable, work: Callable[..., T], inputs: Sequence[Tensor] = (), *, name: str = "") -> T:
        """Run work as `GraphCache.run` does; where the kernels fail, run it on plain operations instead."""
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
            self.model.use(PLAIN)
            self.clear()
            return work(*inputs)


def compile_layers(model: Transformer) -> None:
    """Compile both halves of every layer for training; one compilation serves all layers and shapes."""
    # Compiled code keeps intermediate results in float32. Rounding them as the plain operations do keeps the numbers
    # as close to the plain path's as another order of sums allows.
    options: dict[str, Any] = {"emulate_precision_casts": True}
    for name in ("project", "finish"):
        compiled: Callable[..., Any] = torch.compile(getattr(Layer, name), dynamic=True, options=options)
        for layer in model.layers:
            setattr(layer, name, compiled.__get__(layer))


def free_memory(device: torch.device) -> int | None:
    """Return the free bytes of a device; None where the system does not say."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return available_memory()
