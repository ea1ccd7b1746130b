"""`unmask bench`: what decoding costs on this machine, as ratios of one run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import typer

from unmask.base.errors import ConfigError, require
from unmask.base.files import format_path
from unmask.cli.options import LoadOptions, options_as_flags
from unmask.cli.progress import note
from unmask.lab.bench import (
    ALL_PARTS,
    PARTS,
    BenchPlan,
    Subject,
    bench_text,
    loaded_subject,
    random_subject,
    run_bench,
    save_bench,
)
from unmask.lab.bench_outside import read_checkouts
from unmask.models.execution import resolve_device
from unmask.report.console import say

FAILED = 1
"""The exit code where a part could not be measured."""


@dataclass(frozen=True, kw_only=True)
class BenchFlags:
    """What is measured."""

    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="A name of `unmask models`, a hub id or a folder. Default: mini."),
    ] = None
    shape: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="llada-8b or dream-7b: that network with random bf16 weights, no download."),
    ] = None
    batch: Annotated[str, typer.Option(metavar="N,N,...", help="Rows decoded together.")] = "1,8,32"
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...; auto is a GPU if there is one.")] = "auto"
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repeats and steps, no compiling engine.")] = False
    against: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATH",
            help="Somebody else's code beside ours, from a checkout of yours: authors=PATH (ML-GSAI/LLaDA) or "
            "fast-dllm=PATH (NVlabs/Fast-dLLM). Their files are run. Repeatable.",
        ),
    ] = None
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Where all numbers go.")] = None

    def plan(self, part: str) -> BenchPlan:
        """Read the plan; what is wrong with it is refused before a model is read."""
        sizes = [size.strip() for size in self.batch.split(",")]
        ok = all(size.isdecimal() and len(size) < 10 for size in sizes)
        require(ok, "--batch", self.batch, "numbers of 1 or more with commas between them", "e.g. 1,8,32")
        parts = PARTS if part == ALL_PARTS else (part,)
        batches = tuple(dict.fromkeys(int(size) for size in sizes))
        return BenchPlan(parts, batches, self.quick, read_checkouts(self.against or []))

    def subject(self, plan: BenchPlan) -> Subject:
        """Load the network, or make it up: a published shape in bfloat16, as published weights are."""
        device = resolve_device(self.device)
        if self.shape is not None:
            return random_subject(self.shape, device, torch.bfloat16, rows=max(plan.batches), quick=self.quick)
        name = self.model or "mini"
        loaded = LoadOptions(device=None if self.device == "auto" else str(device)).load(name)
        return loaded_subject(name, loaded.denoiser, quick=self.quick)


@options_as_flags
def bench(
    options: BenchFlags,
    part: Annotated[str, typer.Argument(help="forward, step, decode, caches, study, or all.")] = ALL_PARTS,
) -> None:
    """Measure what decoding costs here.

    Forward by engine, a step beside its forward, whole answers, block caches, the branch engine of studies: medians
    and their ratios, all of one run, measured in turns. Only ratios of one run are worth comparing. Exit code 1 where
    a part failed; the others' numbers are shown all the same.

    \b
    Examples:
      unmask bench                                          mini on this machine, a few minutes
      unmask bench step --batch 1 --quick
      unmask bench all --shape llada-8b --json bench.json   needs a GPU of 40 GB or more
      unmask bench decode --against authors=path/to/LLaDA
    """
    if options.model is not None and options.shape is not None:
        raise ConfigError("--model and --shape are both given; allowed: one of them; drop one")
    if options.json is not None and options.json.is_dir():
        raise ConfigError(f"--json {format_path(options.json)} is a folder; allowed: a file; name one inside it")
    if options.json is not None and not options.json.absolute().parent.is_dir():
        where = format_path(options.json.parent)
        raise ConfigError(f"--json {format_path(options.json)} is in no folder; allowed: one that exists; make {where}")
    plan = options.plan(part)
    result = run_bench(options.subject(plan), plan, lambda name, batch: note(f"{name}, B {batch}"))
    if options.json is not None:
        save_bench(result, options.json)
    say(bench_text(result))
    if result.failures:
        raise typer.Exit(FAILED)
