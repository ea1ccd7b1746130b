"""One forward by every engine, beside as many operations in large matrix products."""

from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from math import ceil
from typing import Any

import torch

from unmask.core import ModelInput, Needs
from unmask.lab.bench.clock import Effort, Stopwatch, Work, interleaved
from unmask.lab.bench.lines import Found, Line, Ratio
from unmask.lab.bench.subject import Subject, twin
from unmask.models import Network
from unmask.models.execution import ENGINES, choose_execution, use_engine

PART = "forward"
PRODUCTS = "large products"
SHARE = "share of the large products' rate"
INVARIANT = "invariant"
MEMORY = "GB in all, with the weights"


def engines(device: torch.device) -> list[str]:
    """Engines that run on a device."""
    if device.type != "cuda":
        return ["eager"]
    return [name for name in ENGINES if choose_execution(name, device).engine == name]


def measure(subject: Subject, batch: int, effort: Effort, clock: Stopwatch) -> Found:
    """Every engine in turns, and the same work as large products."""
    inputs = ModelInput.of(subject.state(batch, wanted=subject.canvas.block), Needs())
    networks = _networks(subject)
    products = LargeProducts.like(subject, flops(subject, batch))
    works: dict[str, Work] = {name: partial(network, inputs, Needs()) for name, network in networks.items()}
    peaks = {name: _peak(work, subject.device) for name, work in works.items()}
    times = interleaved({**works, PRODUCTS: products}, clock, effort)
    lines = {name: Line(PART, name, batch, "forward", times[name], peaks[name]) for name in networks}
    default = choose_execution("auto", subject.device).engine
    rate = products.flops / times[PRODUCTS].median
    reached = flops(subject, batch) / lines[default].times.median
    lines[default] = replace(lines[default], more={**peaks[default], "TFLOP/s": reached / 1e12})
    product = Line(PART, PRODUCTS, batch, "product", times[PRODUCTS].per(products.count), {"TFLOP/s": rate / 1e12})
    return Found((*lines.values(), product), (*_ratios(lines, default), Ratio(PART, SHARE, batch, reached / rate)))


def measure_memory(subject: Subject, rows: int, slots: int, effort: Effort, clock: Stopwatch) -> Found:
    """Passes over many long rows, and on a GPU what they take together with the weights."""
    long = replace(subject, canvas=replace(subject.canvas, prompt=slots - subject.canvas.answer))
    inputs = ModelInput.of(long.state(rows, wanted=subject.canvas.block), Needs())
    name = f"{rows} rows of {slots} slots"
    peak = _Peak(subject.device)
    times = interleaved({name: partial(subject.network, inputs, Needs())}, clock, effort)[name]
    more = peak.found("peak GB")
    ratios = [Ratio(PART, MEMORY, rows, used) for used in more.values()]
    return Found((Line(PART, name, rows, "forward", times, more),), ratios)


def _networks(subject: Subject) -> dict[str, Network]:
    def made(engine: str, **options: Any) -> Network:
        return use_engine(replace(subject.network, model=twin(subject.network.model)), engine, **options)

    networks = {name: made(name) for name in engines(subject.device)}
    if INVARIANT in signature(use_engine).parameters:
        networks[INVARIANT] = made(choose_execution("auto", subject.device).engine, **{INVARIANT: True})
    return networks


def _ratios(lines: dict[str, Line], default: str) -> list[Ratio]:
    ratios = [
        Ratio.between(f"eager over {name}", lines["eager"], line)
        for name, line in lines.items()
        if name not in ("eager", INVARIANT)
    ]
    if INVARIANT in lines:
        ratios.append(Ratio.between(f"{INVARIANT} over {default}", lines[INVARIANT], lines[default]))
    return ratios


@dataclass(frozen=True)
class LargeProducts:
    """As many products of one large matrix as do the work of a forward, so that both run equally long."""

    square: torch.Tensor
    count: int

    @classmethod
    def like(cls, subject: Subject, work: float) -> "LargeProducts":
        size = 8192 if subject.device.type == "cuda" else 512
        square = torch.randn(size, size, device=subject.device).to(subject.network.model.dtype)
        return cls(square, ceil(work / _product_flops(square)))

    def __call__(self) -> None:
        for _ in range(self.count):
            torch.matmul(self.square, self.square)

    @property
    def flops(self) -> float:
        return self.count * _product_flops(self.square)


def _product_flops(square: torch.Tensor) -> float:
    return 2.0 * len(square) ** 3


def flops(subject: Subject, batch: int) -> float:
    """Of the layers' products and attention over all slots, and of the head over the wanted ones."""
    spec, slots = subject.spec, subject.canvas.slots
    layer = sum(spec.qkv) * spec.width + spec.width**2 + 3 * spec.mlp * spec.width
    attention = 2 * slots * spec.width
    return 2.0 * batch * (slots * spec.layers * (layer + attention) + subject.canvas.block * spec.vocab * spec.width)


def _peak(work: Work, device: torch.device) -> dict[str, float]:
    """Memory that the first passes take beyond what is held already: what is recorded is recorded there."""
    peak = _Peak(device)
    for _ in range(3 if peak.there else 0):
        work()
    return peak.found("peak GB beyond what is held", peak.held)


class _Peak:
    """The most memory that a GPU holds from now on; nothing on a CPU."""

    def __init__(self, device: torch.device):
        self.device, self.there = device, device.type == "cuda"
        self.held = 0
        if self.there:
            torch.cuda.synchronize(device)
            self.held = torch.cuda.memory_allocated(device)
            torch.cuda.reset_peak_memory_stats(device)

    def found(self, name: str, less: int = 0) -> dict[str, float]:
        if not self.there:
            return {}
        torch.cuda.synchronize(self.device)
        return {name: (torch.cuda.max_memory_allocated(self.device) - less) / 1e9}
