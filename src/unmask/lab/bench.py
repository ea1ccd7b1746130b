"""What decoding costs on the machine at hand: ratios of one run, and the times that they are made of.

Works that are compared are measured in turns, so that whatever drifts while they run hits all of them alike. Only
ratios of one run are worth comparing.
"""

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from math import ceil
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from unmask.adapt import PAPER_DIAGNOSTICS, Adaptive, DetectorRule
from unmask.api import Request, start_trajectory
from unmask.axes import ReMDM
from unmask.base.environment import code_fingerprint, machine_name, versions
from unmask.base.errors import ConfigError, NotEnoughMemory, UnknownName, require
from unmask.base.files import write_text
from unmask.core import (
    Denoiser,
    DenoiserWrapper,
    ModelInput,
    ModelOutput,
    Needs,
    Noise,
    Policy,
    SamplingParams,
    State,
    Trajectory,
    Vocabulary,
    row_key,
)
from unmask.engine import decode
from unmask.lab.bench_outside import AUTHORS, FAST_DLLM, authors_loops, fast_dllm_loops, share_weights
from unmask.lab.branching import BatchSettings, BranchFrames, BranchPlan, branch
from unmask.methods import FastDLLM, LLaDA, candidates, fixed_action, reference_of
from unmask.models import BlockCache, Network, Transformer, TransformerSpec, default_readout_layers
from unmask.models.execution import ENGINES, choose_execution, dtype_name, free_memory, use_engine

FORMAT = "unmask-bench/2"
PARTS = ("forward", "step", "decode", "caches", "study")
ALL_PARTS = "all"

# What is measured


@dataclass(frozen=True)
class Shape:
    """A published network without its weights."""

    spec: TransformerSpec
    vocabulary: Vocabulary
    shift: int


SHAPES: Mapping[str, Shape] = {
    "llada-8b": Shape(
        TransformerSpec(
            vocab=126_464,
            width=4096,
            layers=32,
            heads=32,
            kv_heads=32,
            mlp=12_288,
            theta=5e5,
            eps=1e-5,
            qkv_bias=False,
            rope_float32=True,
        ),
        Vocabulary(126_464, 126_336, (126_081, 126_348)),
        shift=0,
    ),
    "dream-7b": Shape(
        TransformerSpec(
            vocab=152_064,
            width=3584,
            layers=28,
            heads=28,
            kv_heads=4,
            mlp=18_944,
            theta=1e6,
            eps=1e-6,
            qkv_bias=True,
            rope_float32=False,
        ),
        Vocabulary(152_064, 151_666, (151_643, 151_645)),
        shift=1,
    ),
}
"""Published networks by the name that `--shape` takes."""


@dataclass(frozen=True)
class CanvasShape:
    """Sizes of a canvas: positions of prompt and answer, steps and block length."""

    prompt: int
    answer: int
    steps: int
    block: int

    @property
    def slots(self) -> int:
        """Number of positions of a row."""
        return self.prompt + self.answer


LONG, SHORT = CanvasShape(128, 128, 64, 32), CanvasShape(32, 32, 16, 16)
LARGE = 10**9
"""Parameters from which a network gets the long canvas."""


@dataclass(frozen=True)
class Subject:
    """The network that is measured, as it runs by default, and the size of its canvases."""

    name: str
    network: Network
    canvas: CanvasShape
    random: bool
    """Whether its weights are random."""

    @property
    def device(self) -> torch.device:
        """Device of the network."""
        return self.network.device

    @property
    def spec(self) -> TransformerSpec:
        """Sizes of the network."""
        return self.network.model.spec

    def make_state(self, batch: int, *, steps: int | None = None, wanted: int | None = None) -> State:
        """Make a state of rows with a masked answer; with `wanted` only so many positions are masked."""
        blanks = self.canvas.answer if wanted is None else wanted
        return State.from_prompts(
            self.draw_prompts(batch, self.canvas.slots - blanks),
            new_tokens=blanks,
            steps=min(self.canvas.steps if steps is None else steps, blanks),
            mask_id=self.network.vocabulary.mask_id,
            device=self.device,
        )

    def draw_prompts(self, batch: int, length: int) -> list[list[int]]:
        """Draw prompts of random tokens; the first rows are the same for every batch."""
        draw = torch.Generator().manual_seed(0)
        most = min(200, self.network.vocabulary.mask_id)
        return [torch.randint(0, most, (length,), generator=draw).tolist() for _ in range(batch)]

    def prepare_decode(
        self,
        denoiser: Denoiser,
        policy: Policy,
        batch: int,
        *,
        steps: int | None = None,
        sampling: SamplingParams | None = None,
        on_step: Callable[[Trajectory], None] | None = None,
    ) -> Callable[[], Trajectory]:
        """Return a function that decodes every row to its end, without a record; the start is made beforehand."""
        start = self.make_state(batch, steps=steps)
        noise = Noise.of([row_key(0, row) for row in range(batch)], self.device)
        return partial(decode, denoiser, policy, start, noise=noise, sampling=sampling, record=False, on_step=on_step)

    def describe(self) -> dict[str, Any]:
        """Return name, sizes and canvas as the JSON has them."""
        spec = self.spec
        return {
            "name": self.name,
            "weights": "random" if self.random else "loaded",
            "parameters": spec.parameters,
            "layers": spec.layers,
            "width": spec.width,
            "vocabulary": spec.vocab,
            "dtype": dtype_name(self.network.model.dtype),
            **asdict(self.canvas),
        }


def loaded_subject(name: str, denoiser: Denoiser, *, quick: bool = False) -> Subject:
    """Make the subject of a loaded model; refuse one without layers that could be timed."""
    if not isinstance(denoiser, Network):
        raise ConfigError(
            f"the model {name} has no layers to be timed ({type(denoiser).__name__}); allowed: one network, such as "
            "mini, llada or dream; choose another model"
        )
    return _make_subject(name, denoiser, quick, random=False)


def random_subject(
    name: str, device: torch.device, dtype: torch.dtype, *, rows: int = 1, quick: bool = False
) -> Subject:
    """Make the subject of a published shape with random weights; refuse one that does not fit with so many rows."""
    if name not in SHAPES:
        raise UnknownName("shape", name, SHAPES)
    shape = SHAPES[name]
    needed, free = needed_memory(shape.spec, rows, dtype), free_memory(device)
    if free is not None and needed > free:
        raise NotEnoughMemory(
            f"{name} needs {needed / 2**30:.1f} GiB in {dtype_name(dtype)} for its weights and {rows} rows; allowed: "
            f"{free / 2**30:.1f} GiB, what {device} has free; free some, use another device, or measure --model mini"
        )
    return _make_subject(name, random_network(shape, device, dtype), quick, random=True)


def _make_subject(name: str, network: Network, quick: bool, *, random: bool) -> Subject:
    """Make a subject with the canvas that fits the size of the network."""
    long = network.model.spec.parameters >= LARGE
    canvas = LONG if long else SHORT
    # A quick run takes fewer, larger steps: a step's cost does not depend on how many there are.
    canvas = replace(canvas, steps=8 if long else 4) if quick else canvas
    return Subject(name, network, canvas, random)


def needed_memory(spec: TransformerSpec, rows: int, dtype: torch.dtype) -> int:
    """Compute the bytes of the weights and of the largest activations: two MLP inputs, and logits in float32."""
    slots = rows * LONG.slots
    logits = 4 * rows * LONG.answer * spec.vocab * torch.float32.itemsize
    return (spec.parameters + slots * (2 * spec.mlp + 8 * spec.width)) * dtype.itemsize + logits


def random_network(shape: Shape, device: torch.device, dtype: torch.dtype) -> Network:
    """Make a network with normal weights and norms of ones, run by the default engine."""
    torch.manual_seed(0)
    model = Transformer.empty(shape.spec, device, dtype)
    with torch.no_grad():
        for name, values in model.named_parameters():
            torch.nn.init.ones_(values) if "norm" in name else torch.nn.init.normal_(values, std=0.02)
    network = Network(
        model.requires_grad_(False), shape.vocabulary, shape.shift, default_readout_layers(shape.spec.layers)
    )
    return use_engine(network, choose_execution("auto", device).engine)


# The clock

Work = Callable[[], object]


@dataclass(frozen=True)
class Times:
    """Median, shortest and longest seconds of one piece of work, over its repeats."""

    median: float
    low: float
    high: float
    repeats: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Times":
        """Summarise the seconds of all repeats."""
        return cls(statistics.median(seconds), min(seconds), max(seconds), len(seconds))

    def divide_by(self, count: float) -> "Times":
        """Return the times per item, for work that consists of `count` items."""
        return Times(self.median / count, self.low / count, self.high / count, self.repeats)


@dataclass(frozen=True)
class Stopwatch:
    """Clock that waits for the device to finish before it reads the time."""

    now: Callable[[], float] = time.perf_counter
    wait: Callable[[], None] = lambda: None

    @classmethod
    def of(cls, device: torch.device) -> "Stopwatch":
        """Make the stopwatch of a device."""
        return cls(wait=lambda: torch.cuda.synchronize(device)) if device.type == "cuda" else cls()

    def time_work(self, work: Work) -> float:
        """Return the seconds that one piece of work takes."""
        self.wait()
        began = self.now()
        work()
        self.wait()
        return self.now() - began


@dataclass(frozen=True)
class Effort:
    """Number of untimed and of timed repeats of a piece of work."""

    warm_up: int = 3
    repeats: int = 15


def time_in_turns(works: Mapping[str, Work], clock: Stopwatch, effort: Effort) -> dict[str, Times]:
    """Time every piece of work once per round, in alternating order, so that none always follows the same one."""
    for _ in range(effort.warm_up):
        for work in works.values():
            work()
    spent: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(effort.repeats):
        for name in list(works)[:: 1 if turn % 2 == 0 else -1]:
            spent[name].append(clock.time_work(works[name]))
    return {name: Times.of(seconds) for name, seconds in spent.items()}


# Results


@dataclass(frozen=True)
class TimedLine:
    """Result of timing one piece of work."""

    part: str
    name: str
    batch: int
    per: str
    """What took the time: a forward, a step, an answer of every row."""
    times: Times
    more: Mapping[str, float] = field(default_factory=dict)
    """Numbers beside it, by what they are: tokens/s, peak GB, a share."""


@dataclass(frozen=True)
class TimeRatio:
    """Ratio of two median times of the same run."""

    part: str
    name: str
    batch: int
    value: float


@dataclass(frozen=True)
class BenchFailure:
    """A part of the bench that failed, and the reason."""

    part: str
    batch: int
    why: str


@dataclass(frozen=True)
class BenchPlan:
    """Parts and batch sizes to measure, and how thoroughly."""

    parts: tuple[str, ...] = PARTS
    batches: tuple[int, ...] = (1, 8, 32)
    quick: bool = False
    against: Mapping[str, Path] = field(default_factory=dict)
    """Checkouts of others' code, by name; `bench_outside.read_checkouts` has looked at them."""

    def __post_init__(self) -> None:
        for part in self.parts:
            if part not in PARTS:
                raise UnknownName("part of the bench", part, (*PARTS, ALL_PARTS))
        require(bool(self.batches), "--batch-size", self.batches, "one size or more", "e.g. 1,8,32")
        for batch in self.batches:
            require(1 <= batch <= 4096, "--batch-size", batch, "1 to 4096 rows", "e.g. 1,8,32")

    @property
    def forward_effort(self) -> Effort:
        """Number of repeats of single forwards."""
        return Effort(3, 5) if self.quick else Effort(3, 15)

    @property
    def answer_effort(self) -> Effort:
        """Repeats of whole answers. The first of a shape is plain, the second may be recorded, smaller ones later."""
        return Effort(4, 3) if self.quick else Effort(4, 5)


PRODUCTS, PRODUCTS_SHARE = "large products", "share of the large products' rate"
INVARIANT = "invariant"
FORWARDS, FIXED, FOUR = "forwards of llada", "fixed", "selective, four diagnostics"
UNCACHED, PREFIX, DUAL = "uncached", "prefix", "dual"
SURE, SURE_DUAL = "uncached, threshold", "dual, threshold"
NETWORK_ALONE, BRANCH_ENGINE = "network alone", "branch engine"
BRANCH_SHARE = "branch engine's share of the network's rate"
OutsideLoops = Mapping[str, Callable[[torch.Tensor, int], torch.Tensor]]
"""Loops of others' code by label: canvases from prompts and a number of steps."""


@dataclass
class Bench:
    """One run of the bench: parts add their lines, ratios and remarks."""

    subject: Subject
    plan: BenchPlan
    clock: Stopwatch
    authors: OutsideLoops = field(default_factory=dict)
    fast_dllm: OutsideLoops = field(default_factory=dict)
    """By the name of our cache that does the same."""
    lines: list[TimedLine] = field(default_factory=list)
    ratios: list[TimeRatio] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    failures: list[BenchFailure] = field(default_factory=list)
    seconds: float = 0.0

    def add_ratio(self, name: str, over: TimedLine, under: TimedLine) -> None:
        """Add the ratio of the median times of two lines."""
        self.ratios.append(TimeRatio(over.part, name, over.batch, over.times.median / under.times.median))

    # One forward by every engine, beside as many operations in large matrix products

    def measure_forward(self, batch: int) -> None:
        """Time a forward with every engine that runs here, and as many operations in large matrix products."""
        subject = self.subject
        inputs = ModelInput.of(subject.make_state(batch, wanted=subject.canvas.block), Needs())
        default = choose_execution("auto", subject.device).engine
        on_gpu = subject.device.type == "cuda"
        names = [n for n in ENGINES if choose_execution(n, subject.device).engine == n] if on_gpu else ["eager"]

        def network(engine: str, **options: Any) -> Network:
            return use_engine(replace(subject.network, model=share_weights(subject.network.model)), engine, **options)

        networks = {name: network(name) for name in names}
        networks[INVARIANT] = network(default, invariant=True)
        works: dict[str, Work] = {name: partial(one, inputs, Needs()) for name, one in networks.items()}
        peaks = {name: _measure_peak_increase(work, subject.device) for name, work in works.items()}
        # So many products of one large matrix that both run equally long.
        size = 8192 if on_gpu else 512
        square = torch.randn(size, size, device=subject.device).to(subject.network.model.dtype)
        operations, each = forward_operations(subject, batch), 2.0 * size**3
        count = ceil(operations / each)
        works[PRODUCTS] = lambda: [torch.matmul(square, square) for _ in range(count)]
        times = time_in_turns(works, self.clock, self.plan.forward_effort)
        lines = {name: TimedLine("forward", name, batch, "forward", times[name], peaks[name]) for name in networks}
        rate, reached = count * each / times[PRODUCTS].median, operations / times[default].median
        lines[default] = replace(lines[default], more={**peaks[default], "TFLOP/s": reached / 1e12})
        product_times = times[PRODUCTS].divide_by(count)
        product = TimedLine("forward", PRODUCTS, batch, "product", product_times, {"TFLOP/s": rate / 1e12})
        self.lines += [*lines.values(), product]
        for name, line in lines.items():
            if name not in ("eager", INVARIANT):
                self.add_ratio(f"eager over {name}", lines["eager"], line)
        self.add_ratio(f"{INVARIANT} over {default}", lines[INVARIANT], lines[default])
        self.ratios.append(TimeRatio("forward", PRODUCTS_SHARE, batch, reached / rate))

    # A step of the decode loop beside its own forwards, and what the diagnostics add to it

    def measure_step(self, batch: int) -> None:
        """Time a step of whole decodes, beside the bare forwards that LLaDA's decode asks for."""
        subject, network = self.subject, self.subject.network
        llada, fixed, four = step_policies(subject)
        asked = RecordedCalls(network)
        # Watched at every step, so that each forward is asked for by itself: that is the plain loop.
        subject.prepare_decode(asked, llada, batch, on_step=lambda traj: None)()
        sampled = SamplingParams(temperature=0.7)
        works: dict[str, Work] = {
            FORWARDS: asked.repeat_calls,
            "llada": subject.prepare_decode(network, llada, batch),
            "llada, watched": subject.prepare_decode(network, llada, batch, on_step=lambda traj: None),
            "llada, sampled": subject.prepare_decode(network, llada, batch, sampling=sampled),
            FIXED: subject.prepare_decode(network, fixed, batch),
            FOUR: subject.prepare_decode(network, four, batch),
        }
        if self.plan.quick:
            del works["llada, sampled"]
        times = time_in_turns(works, self.clock, self.plan.answer_effort)
        steps = len(asked.calls)
        lines = {
            name: TimedLine("step", name, batch, "forward" if name == FORWARDS else "step", spent.divide_by(steps))
            for name, spent in times.items()
        }
        self.lines += lines.values()
        for name in ("llada", "llada, sampled", "llada, watched"):
            if name in lines:
                self.add_ratio(f"a step of {name} over its forward", lines[name], lines[FORWARDS])
        self.add_ratio(f"{FOUR} over fixed", lines[FOUR], lines[FIXED])

    # Whole answers, exact and with block caches, beside others' loops

    def measure_decode(self, batch: int) -> None:
        """Time LLaDA's decoder, beside a loop from outside with the same prompts and weights."""
        subject, canvas = self.subject, self.subject.canvas
        prompt = torch.tensor(subject.draw_prompts(batch, canvas.prompt), device=subject.device)
        ours = subject.prepare_decode(subject.network, LLaDA(canvas.block), batch)
        works: dict[str, Work] = {"llada": ours}
        works |= {name: partial(loop, prompt, canvas.steps) for name, loop in self.authors.items()}
        times = time_in_turns(works, self.clock, self.plan.answer_effort)
        lines = {name: self._answer_line("decode", name, batch, spent, canvas.steps) for name, spent in times.items()}
        self.lines += lines.values()
        tokens_BL = ours().state.tokens_BL
        for name, loop in self.authors.items():
            self.add_ratio(f"{name} over ours", lines[name], lines["llada"])
            share = float((loop(prompt, canvas.steps) == tokens_BL)[:, canvas.prompt :].float().mean())
            self.remarks.append(f"{name}, B {batch}: {share:.1%} of the tokens are ours, too")

    def measure_caches(self, batch: int) -> None:
        """Time our block caches with LLaDA's rule and with a threshold, beside others' loops, which decode one row."""
        subject, network = self.subject, self.subject.network
        block, steps = subject.canvas.block, subject.canvas.answer // 2
        llada, sure = LLaDA(block), FastDLLM(block_length=block)
        decoders: dict[str, tuple[Denoiser, Policy]] = {
            UNCACHED: (network, llada),
            PREFIX: (BlockCache(network, "prefix", block), llada),
            DUAL: (BlockCache(network, "dual", block), llada),
            SURE: (network, sure),
            SURE_DUAL: (BlockCache(network, "dual", block), sure),
        }
        works: dict[str, Work] = {
            name: subject.prepare_decode(denoiser, policy, batch, steps=steps)
            for name, (denoiser, policy) in decoders.items()
        }
        theirs = {name: f"Fast-dLLM on their modelling, {name}" for name in self.fast_dllm} if batch == 1 else {}
        prompt = torch.tensor(subject.draw_prompts(1, subject.canvas.prompt), device=subject.device)
        works |= {label: partial(self.fast_dllm[name], prompt, steps) for name, label in theirs.items()}
        times = time_in_turns(works, self.clock, self.plan.answer_effort)
        lines = {name: self._answer_line("caches", name, batch, spent) for name, spent in times.items()}
        self.lines += lines.values()
        for cached, plain in ((PREFIX, UNCACHED), (DUAL, UNCACHED), (SURE_DUAL, SURE)):
            self.add_ratio(f"{plain} over {cached}", lines[plain], lines[cached])
        for name, label in theirs.items():
            self.add_ratio(f"{label} over ours", lines[label], lines[name])

    def _answer_line(self, part: str, name: str, batch: int, spent: Times, steps: int | None = None) -> TimedLine:
        more = {"tokens/s": batch * self.subject.canvas.answer / spent.median}
        if steps is not None:
            more["ms/step"] = 1e3 * spent.median / steps
        return TimedLine(part, name, batch, "answer", spent, more)

    # The branch engine of studies: rows a second beside the network's bare rate at the same batch

    def measure_study(self, rows: int) -> None:
        """Time a small study, with the network alone timed before and after it, so that drift favours neither."""
        subject, network = self.subject, self.subject.network
        # Trajectories come first, one row of a prompt each: fewer prompts than rows would measure dummies.
        prompts = rows + rows // 2 if subject.device.type == "cuda" else 2
        requests, settings = study_requests(subject, prompts), BatchSettings(rows)
        many = [requests[at % len(requests)] for at in range(rows)]
        slots = requests[0].padded_length(settings.bucket)
        inputs = ModelInput.of(start_trajectory(network, many, 0, slots).state, Needs())
        alone: dict[str, Work] = {NETWORK_ALONE: lambda: network(inputs, Needs())}
        # Untimed, once: what is compiled or recorded on first use.
        branch(network, study_plan(quick=True), requests[:1], settings)
        before = time_in_turns(alone, self.clock, self.plan.forward_effort)[NETWORK_ALONE]
        results: list[BranchFrames] = []
        plan = study_plan(self.plan.quick)
        seconds = self.clock.time_work(lambda: results.append(branch(network, plan, requests, settings)))
        after = time_in_turns(alone, self.clock, self.plan.forward_effort)[NETWORK_ALONE]
        repeats, low, high = before.repeats + after.repeats, min(before.low, after.low), max(before.high, after.high)
        steady = Times((before.median + after.median) / 2, low, high, repeats)
        # Rows of work: dummies that fill a forward up are none.
        done = int(results[0].costs["done"].sum())
        rate, bare = done / seconds, rows / steady.median
        more = {"row-forwards/s": rate, "rows filled": done / (results[0].calls * rows)}
        self.lines.append(TimedLine("study", NETWORK_ALONE, rows, "forward", steady, {"row-forwards/s": bare}))
        self.lines.append(
            TimedLine("study", BRANCH_ENGINE, rows, "row-forward", Times.of([seconds]).divide_by(done), more)
        )
        self.ratios.append(TimeRatio("study", BRANCH_SHARE, rows, rate / bare))

    def to_json_types(self) -> dict[str, Any]:
        """Convert the run to JSON types."""
        plan = self.plan
        return {
            "format": FORMAT,
            "machine": describe_machine(self.subject.device),
            "model": self.subject.describe(),
            "settings": {"batches": list(plan.batches), "parts": list(plan.parts), "quick": plan.quick},
            "lines": [asdict(line) for line in self.lines],
            "ratios": [asdict(ratio) for ratio in self.ratios],
            "remarks": list(dict.fromkeys(self.remarks)),
            "failures": [asdict(failure) for failure in self.failures],
            "seconds": self.seconds,
        }


def run_bench(
    subject: Subject,
    plan: BenchPlan,
    on_part: Callable[[str, int], None] = lambda part, batch: None,
    clock: Stopwatch | None = None,
) -> Bench:
    """Measure everything that the plan asks for; a part that fails does not stop the others."""
    bench = Bench(subject, plan, clock or Stopwatch.of(subject.device))
    began = bench.clock.now()
    by_part = {
        "forward": bench.measure_forward,
        "step": bench.measure_step,
        "decode": bench.measure_decode,
        "caches": bench.measure_caches,
        "study": bench.measure_study,
    }
    # What is slow and needs no second size is measured at one.
    sizes = dict.fromkeys(PARTS, plan.batches) | {"study": (max(plan.batches),)}
    sizes |= {"caches": plan.batches[:1]} if plan.quick else {}
    tasks: list[tuple[str, int, Work]] = [
        (part, batch, partial(by_part[part], batch)) for part in plan.parts for batch in sizes[part]
    ]
    with torch.inference_mode():
        sizes_of_answer = {"answer": subject.canvas.answer, "block": subject.canvas.block}
        if AUTHORS in plan.against:
            bench.authors = authors_loops(subject.name, subject.network, plan.against[AUTHORS], **sizes_of_answer)
        if FAST_DLLM in plan.against:
            bench.fast_dllm = fast_dllm_loops(subject.name, subject.network, plan.against[FAST_DLLM], **sizes_of_answer)
        for part, batch, measure in tasks:
            on_part(part, batch)
            try:
                measure()
            except Exception as error:  # out of memory at one size says nothing about the others
                first = next(iter(str(error).splitlines()), "")
                bench.failures.append(BenchFailure(part, batch, f"{type(error).__name__}: {first}"))
    bench.seconds = bench.clock.now() - began
    return bench


def save_bench(bench: Bench, path: Path) -> None:
    """Write all numbers as JSON."""
    write_text(path, json.dumps(bench.to_json_types(), indent=1) + "\n")


# What the parts are made of


def forward_operations(subject: Subject, batch: int) -> float:
    """Count the operations of a forward: products and attention over all slots, the head over the wanted ones."""
    spec, slots = subject.spec, subject.canvas.slots
    layer = sum(spec.qkv) * spec.width + spec.width**2 + 3 * spec.mlp * spec.width
    attention = 2 * slots * spec.width
    return 2.0 * batch * (slots * spec.layers * (layer + attention) + subject.canvas.block * spec.vocab * spec.width)


def _measure_peak_increase(work: Work, device: torch.device) -> dict[str, float]:
    """Measure how far the first passes raise GPU memory; graphs are recorded in these passes."""
    if device.type != "cuda":
        return {}
    torch.cuda.synchronize(device)
    held = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    for _ in range(3):
        work()
    torch.cuda.synchronize(device)
    return {"peak GB beyond what is held": (torch.cuda.max_memory_allocated(device) - held) / 1e9}


@dataclass
class RecordedCalls(DenoiserWrapper):
    """Denoiser that records its calls, so that the forwards can be repeated without the work between them."""

    denoiser: Denoiser
    calls: list[tuple[ModelInput, Needs]] = field(default_factory=list)

    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        self.calls.append((inputs, needs))
        return self.denoiser(inputs, needs)

    def repeat_calls(self) -> None:
        """Repeat the recorded forwards."""
        for inputs, needs in self.calls:
            self.denoiser(inputs, needs)


def step_policies(subject: Subject) -> tuple[Policy, Policy, Policy]:
    """Return LLaDA's policy, the fixed action, and the four diagnostics around it behind gates that never open."""
    shut = DetectorRule((), (0.0,), None)
    fixed = fixed_action()
    return LLaDA(subject.canvas.block), fixed, Adaptive(fixed, [(one, shut) for one in PAPER_DIAGNOSTICS])


def study_plan(quick: bool) -> BranchPlan:
    """Make a plan of all axes and diagnostics around LLaDA's decoder."""
    sets = candidates("llada")
    return BranchPlan(
        reference=reference_of(sets),
        candidates=sets,
        operator=ReMDM("conf"),
        rollouts=1,
        states=2 if quick else 4,
        seed=0,
        diagnostics={one.name: one for one in PAPER_DIAGNOSTICS},
    )


def study_requests(subject: Subject, prompts: int = 2) -> list[Request]:
    """Make prompts of random tokens with a short answer."""
    answer = subject.canvas.block
    length = subject.canvas.slots - answer
    mask_id = subject.network.vocabulary.mask_id
    return [
        Request(
            f"p{at}",
            (*prompt, *(mask_id,) * answer),
            (*(True,) * length, *(False,) * answer),
            answer // 2,
            (length, length + answer),
        )
        for at, prompt in enumerate(subject.draw_prompts(prompts, length))
    ]


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Describe the machine and the versions that the numbers depend on."""
    choice = choose_execution("auto", device)
    memory = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None
    try:
        triton = version("triton")
    except PackageNotFoundError:
        triton = None
    return {
        "device": machine_name(device),
        "gpu_memory": memory,
        "cores": os.cpu_count(),
        "system": platform.system(),
        "engine": choice.engine,
        "why": choice.why,
        **versions(),
        "triton": triton,
        "cuda": torch.version.cuda,
        "code": code_fingerprint(),
    }


# As text


def bench_text(bench: Bench) -> str:
    """Format a run as text: machine and subject, ratios, times and failures."""
    model, machine = bench.subject.describe(), describe_machine(bench.subject.device)
    head = [
        f"{model['name']}: {model['weights']} weights, {model['parameters'] / 1e6:,.1f} M parameters, {model['dtype']}",
        f"prompt {model['prompt']}, answer {model['answer']} in {model['steps']} steps, blocks of {model['block']}",
        f"{machine['device']}; engine {machine['engine']}; {bench.seconds:.0f} s in all",
        f"unmask {machine['unmask']}, torch {machine['torch']}, triton {machine['triton'] or 'none'}",
    ]
    ratios = [
        {"part": one.part, "B": one.batch, "ratio of this run": one.name, "value": f"{one.value:.2f}"}
        for one in bench.ratios
    ]
    times = [
        {
            "part": line.part,
            "B": line.batch,
            "what": line.name,
            "median ms": f"{1e3 * line.times.median:.3f}",
            "spread": f"{1e3 * line.times.low:.3f} to {1e3 * line.times.high:.3f}",
            "of one": line.per,
            "beside it": ", ".join(f"{n} {f'{x:,.0f}' if x >= 100 else f'{x:.3g}'}" for n, x in line.more.items()),
        }
        for line in bench.lines
    ]
    parts = ["\n".join(head)]
    parts += [pd.DataFrame(rows).to_string(index=False) for rows in (ratios, times) if rows]
    parts += ["\n".join(dict.fromkeys(bench.remarks))]
    parts += ["\n".join(f"failed: {one.part} at B {one.batch}: {one.why}" for one in bench.failures)]
    return "\n\n".join(part for part in parts if part)
