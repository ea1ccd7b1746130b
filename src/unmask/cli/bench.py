"""`unmask bench`: what decoding costs on this machine, as ratios of one run."""

from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from unmask.base.errors import ConfigError, require
from unmask.base.files import format_path
from unmask.cli.options import LoadOptions, complete_model
from unmask.cli.terminal import print_note, print_text
from unmask.lab.bench import (
    ALL_PARTS,
    PARTS,
    BenchPlan,
    bench_text,
    loaded_subject,
    random_subject,
    run_bench,
    save_bench,
)
from unmask.lab.bench_outside import read_checkouts
from unmask.models.execution import resolve_device

FAILED = 1
"""Exit code where a part could not be measured."""


def bench(
    part: Annotated[str, typer.Argument(help="forward, step, decode, caches, study, or all.")] = ALL_PARTS,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="A name of `unmask models`, a hub id or a folder. Default: mini.",
            autocompletion=complete_model,
        ),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="llada-8b or dream-7b: that network with random bf16 weights, no download."),
    ] = None,
    batch_size: Annotated[str, typer.Option(metavar="N,N,...", help="Rows decoded together.")] = "1,8,32",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...; auto is a GPU if there is one.")] = "auto",
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repeats and steps, no compiling engine.")] = False,
    against: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATH",
            help="Somebody else's code beside ours, from a checkout of yours: authors=PATH (ML-GSAI/LLaDA) or "
            "fast-dllm=PATH (NVlabs/Fast-dLLM). Their files are run. Repeatable.",
        ),
    ] = None,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Where all numbers go.")] = None,
) -> None:
    """Measure what decoding costs here.

    Forward by engine, a step beside its forward, whole answers, block caches, the branch engine of studies: medians
    and their ratios, all of one run, measured in turns. Only ratios of one run are worth comparing. Exit code 1 where
    a part failed; the others' numbers are shown all the same.

    \b
    Examples:
      unmask bench                                          mini on this machine, a few minutes
      unmask bench step --batch-size 1 --quick
      unmask bench all --shape llada-8b --json bench.json   needs a GPU of 40 GB or more
      unmask bench decode --against authors=path/to/LLaDA
    """
    if model is not None and shape is not None:
        raise ConfigError("--model and --shape are both given; allowed: one of them; drop one")
    if json is not None and json.is_dir():
        raise ConfigError(f"--json {format_path(json)} is a folder; allowed: a file; name one inside it")
    if json is not None and not json.absolute().parent.is_dir():
        where = format_path(json.parent)
        raise ConfigError(f"--json {format_path(json)} is in no folder; allowed: one that exists; make {where}")
    sizes = [size.strip() for size in batch_size.split(",")]
    ok = all(size.isdecimal() and len(size) < 10 for size in sizes)
    require(ok, "--batch-size", batch_size, "numbers of 1 or more with commas between them", "e.g. 1,8,32")
    batches = tuple(dict.fromkeys(int(size) for size in sizes))
    plan = BenchPlan(PARTS if part == ALL_PARTS else (part,), batches, quick, read_checkouts(against or []))
    place = resolve_device(device)
    if shape is not None:
        # Published weights are bfloat16.
        subject = random_subject(shape, place, torch.bfloat16, rows=max(batches), quick=quick)
    else:
        options: dict[str, Any] = {} if device == "auto" else {"device": str(place)}
        loaded = LoadOptions(**options).load(model or "mini")
        subject = loaded_subject(model or "mini", loaded.denoiser, quick=quick)
    result = run_bench(subject, plan, lambda name, batch: print_note(f"{name}, B {batch}"))
    if json is not None:
        save_bench(result, json)
    print_text(bench_text(result))
    if result.failures:
        raise typer.Exit(FAILED)
