"""The parts of the bench in their order, each at every batch size; one that fails does not stop the others."""

import os
import platform
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from unmask.base.environment import code_fingerprint, machine_name, versions
from unmask.base.errors import UnknownName, require
from unmask.lab.bench import answers, forward, steps, studies
from unmask.lab.bench.clock import Effort, Stopwatch
from unmask.lab.bench.lines import BenchFailure, BenchResult, Found, Ratio
from unmask.lab.bench.outside import AUTHORS, FAST_DLLM, OutsideLoop, authors_loops, fast_dllm_loops
from unmask.lab.bench.subject import LONG, Subject
from unmask.models.execution import choose_execution

PARTS = ("forward", "step", "decode", "caches", "study")
ALL_PARTS = "all"

LARGEST = (64, 512)
"""Rows and slots whose memory is looked at on a GPU."""

TARGETS: Mapping[tuple[str, int], tuple[float, bool]] = {
    **{(forward.SHARE, batch): (0.85, False) for batch in (8, 32)},
    (forward.MEMORY, 64): (60.0, True),
    (f"{steps.FOUR} over fixed", 1): (1.15, True),
    (f"{steps.FOUR} over fixed", 32): (1.03, True),
    ("authors' loop on their modelling over ours", 1): (3.3, False),
    ("authors' loop on their modelling over ours", 8): (1.45, False),
    ("authors' loop on their modelling over ours", 32): (1.4, False),
    ("Fast-dLLM on their modelling, dual, threshold over ours", 1): (4.0, False),
    (studies.SHARE, 32): (0.85, False),
}
"""Of LLaDA-8B's shape on one H200: the ratio's name and batch, the number, and whether it is an upper limit."""


@dataclass(frozen=True)
class BenchPlan:
    """What is measured, and how thoroughly."""

    parts: tuple[str, ...] = PARTS
    batches: tuple[int, ...] = (1, 8, 32)
    quick: bool = False
    against: Mapping[str, Path] = field(default_factory=dict)
    """Checkouts of others' code, by name; `outside.checkouts` has looked at them."""

    def __post_init__(self) -> None:
        require(bool(self.batches), "--batch", self.batches, "one size or more", "e.g. 1,8,32")
        for batch in self.batches:
            require(1 <= batch <= 4096, "--batch", batch, "1 to 4096 rows", "e.g. 1,8,32")

    @property
    def forwards(self) -> Effort:
        return Effort(3, 5) if self.quick else Effort(3, 15)

    @property
    def answers(self) -> Effort:
        # The first run of a shape is plain, the second may be recorded, its smaller batches a run later.
        return Effort(4, 3) if self.quick else Effort(4, 5)


def chosen_parts(name: str) -> tuple[str, ...]:
    """One part, or all."""
    if name not in (ALL_PARTS, *PARTS):
        raise UnknownName("part of the bench", name, (*PARTS, ALL_PARTS))
    return PARTS if name == ALL_PARTS else (name,)


def run_bench(
    subject: Subject,
    plan: BenchPlan,
    on_part: Callable[[str, int], None] = lambda part, batch: None,
    clock: Stopwatch | None = None,
) -> BenchResult:
    """Measure everything that the plan asks for."""
    clock = clock or Stopwatch.of(subject.device)
    began = clock.now()
    found, failures = Found(), []
    with torch.inference_mode():
        loops = _loops(subject, plan)
        for part, batch, measure in _tasks(subject, plan, clock, loops):
            on_part(part, batch)
            try:
                found += measure()
            except Exception as error:  # out of memory at one size says nothing about the others
                first = next(iter(str(error).splitlines()), "")
                failures.append(BenchFailure(part, batch, f"{type(error).__name__}: {first}"))
    if subject.name == "llada-8b" and subject.device.type == "cuda":
        found = replace(found, ratios=tuple(_aimed(ratio) for ratio in found.ratios))
    settings = {"batches": list(plan.batches), "parts": list(plan.parts), "quick": plan.quick}
    return BenchResult(
        machine(subject.device), subject.described(), settings, found, tuple(failures), clock.now() - began
    )


def _tasks(
    subject: Subject, plan: BenchPlan, clock: Stopwatch, loops: Mapping[str, Mapping[str, OutsideLoop]]
) -> list[tuple[str, int, Callable[[], Found]]]:
    """Part by part; what is slow and needs no second size is measured at one in a quick run."""
    quick = plan.quick
    by_part: dict[str, Callable[[int], Found]] = {
        "forward": lambda b: forward.measure(subject, b, plan.forwards, clock),
        "step": lambda b: steps.measure(subject, b, plan.answers, clock, quick),
        "decode": lambda b: answers.measure_decode(subject, b, plan.answers, clock, loops[AUTHORS]),
        "caches": lambda b: answers.measure_caches(subject, b, plan.answers, clock, loops[FAST_DLLM]),
        "study": lambda b: studies.measure(subject, b, plan.forwards, clock, quick),
    }
    sizes = dict.fromkeys(PARTS, plan.batches) | {"study": (max(plan.batches),)}
    sizes |= {"caches": plan.batches[:1]} if quick else {}
    tasks: list[tuple[str, int, Callable[[], Found]]] = [
        (part, batch, partial(by_part[part], batch)) for part in plan.parts for batch in sizes[part]
    ]
    if "forward" in plan.parts and subject.device.type == "cuda" and subject.canvas.slots == LONG.slots:
        many = partial(forward.measure_memory, subject, *LARGEST, Effort(3, 3), clock)
        tasks.append(("forward", LARGEST[0], many))
    return tasks


def _loops(subject: Subject, plan: BenchPlan) -> dict[str, dict[str, OutsideLoop]]:
    loaders = {AUTHORS: authors_loops, FAST_DLLM: fast_dllm_loops}
    return {name: load(subject, plan.against[name]) if name in plan.against else {} for name, load in loaders.items()}


def _aimed(ratio: Ratio) -> Ratio:
    target, at_most = TARGETS.get((ratio.name, ratio.batch), (None, True))
    return replace(ratio, target=target, at_most=at_most)


def machine(device: torch.device) -> dict[str, Any]:
    """What the numbers depend on besides the network."""
    choice = choose_execution("auto", device)
    memory = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None
    return {
        "device": machine_name(device),
        "gpu_memory": memory,
        "cores": os.cpu_count(),
        "system": platform.system(),
        "engine": choice.engine,
        "why": choice.why,
        **versions(),
        "triton": _version("triton"),
        "cuda": torch.version.cuda,
        "commit": commit(Path(__file__).parent),
        "code": code_fingerprint(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def commit(folder: Path) -> str | None:
    """The commit that the source stands at, with a plus where files differ from it; None outside a checkout."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        # An installed package may lie inside somebody else's repository.
        if not git("ls-files", "--", "run.py"):
            return None
        return git("rev-parse", "HEAD")[:12] + (
            "+" if git("status", "--porcelain", "--", str(folder.parents[2])) else ""
        )
    except (OSError, subprocess.SubprocessError):
        return None
