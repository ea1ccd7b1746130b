"""How the layers of a network run, and which way is the fast one here."""

from dataclasses import dataclass, replace

import torch

from unmask.base.errors import require, warn_once
from unmask.denoisers.graphs import Graphs, compile_layers, uncompile_layers
from unmask.denoisers.invariance import Floors
from unmask.denoisers.kernels import fused_ops, why_not
from unmask.denoisers.network import Network
from unmask.denoisers.recorder import CudaRecorder
from unmask.denoisers.transformer import PLAIN

ENGINES = ("eager", "graph", "fused", "compile")
"""One operation at a time; the same replayed as CUDA graphs; with fused kernels, replayed; compiled and replayed."""


@dataclass(frozen=True)
class EngineChoice:
    """An engine and the reason for it."""

    engine: str
    why: str


def choose_engine(name: str, device: torch.device) -> EngineChoice:
    """`auto` is `fused` on a GPU that can run it, `graph` on another, `eager` on a CPU."""
    allowed = ENGINES if device.type == "cuda" else ("eager",)
    known = name in ("auto", *allowed)
    require(known, "engine", name, f"auto, {', '.join(allowed)} on {device}", "graphs need a CUDA device")
    if name not in ("auto", "fused"):
        return EngineChoice(name, "asked for")
    if device.type != "cuda":
        return EngineChoice("eager", f"{device} is not a CUDA device: no graphs and no kernels there")
    lacking = why_not(device)
    if lacking is None:
        return EngineChoice("fused", "fused kernels run here" if name == "auto" else "asked for")
    return EngineChoice("graph", f"no fused kernels: {lacking}")


def resolve_engine(name: str, device: torch.device) -> str:
    """The engine in use; a GPU that has to do without fused kernels is told of once."""
    choice = choose_engine(name, device)
    if choice.engine != name and choice.engine == "graph":
        warn_once(f"the engine is graph, not fused: {choice.why.removeprefix('no fused kernels: ')}")
    return choice.engine


def use_engine(network: Network, engine: str, *, invariant: bool = False) -> Network:
    """The same network, run another way. It shares its layers, so that the last engine used is the one in force.

    `invariant` fills small batches up, so that a row has the same bits alone and in a batch.
    """
    if invariant and network.device.type == "cuda":
        half = network.model.dtype in (torch.bfloat16, torch.float16)
        why = "kernels of fp32 products depend on the length of the canvas: load with dtype=bf16"
        require(half, "invariant", f"True with {network.model.dtype}", "bf16 or fp16 on a GPU", why)
    uncompile_layers(network.model)
    network.model.use(fused_ops() if engine == "fused" else PLAIN)
    network = replace(network, floors=Floors(network.model) if invariant else None)
    if engine == "eager":
        return replace(network, forward=None, recorder=None)
    if engine == "compile":
        compile_layers(network.model)
    return replace(network, forward=Graphs(network.model), recorder=CudaRecorder(network.device))
