"""`unmask bench`: what decoding costs on this machine, as ratios of one run."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unmask.base.errors import ConfigError
from unmask.base.files import format_path
from unmask.cli.options import LoadOptions, options_as_flags
from unmask.cli.progress import note
from unmask.report.console import say

if TYPE_CHECKING:
    from unmask.lab.bench import BenchPlan, Subject

FAILED = 1
"""The exit code where a part could not be measured."""


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
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

    def subject(self, plan: "BenchPlan") -> "Subject":
        """The network, loaded or made up."""
        from unmask.lab.bench import asked, subject_of
        from unmask.models.execution import resolve_device

        if self.shape is not None:
            return asked.shape_subject(self.shape, self.device, plan)
        name, device = self.model or "mini", str(resolve_device(self.device))
        loaded = LoadOptions(device=None if self.device == "auto" else device).load(name)
        return subject_of(name, loaded.denoiser, quick=self.quick)


@options_as_flags
def bench(
    options: BenchOptions,
    part: Annotated[str, typer.Argument(help="forward, step, decode, caches, study, or all.")] = "all",
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
    from unmask.lab.bench import asked, run_bench

    if options.model is not None and options.shape is not None:
        raise ConfigError("--model and --shape are both given; allowed: one of them; drop one")
    if options.json is not None and options.json.is_dir():
        raise ConfigError(f"--json {format_path(options.json)} is a folder; allowed: a file; name one inside it")
    if options.json is not None and not options.json.absolute().parent.is_dir():
        where = format_path(options.json.parent)
        raise ConfigError(f"--json {format_path(options.json)} is in no folder; allowed: one that exists; make {where}")
    plan = asked.plan_of(part, options.batch, options.against or [], options.quick)
    result = run_bench(options.subject(plan), plan, lambda name, batch: note(f"{name}, B {batch}"))
    if options.json is not None:
        asked.save(result, options.json)
    say(asked.text(result))
    if result.failures:
        raise typer.Exit(FAILED)
