"""What was asked for on a command line, checked before anything is built; and a way to ask without one."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from unmask.base.errors import UnmaskError, require
from unmask.base.files import write_text
from unmask.lab.bench.lines import BenchResult
from unmask.lab.bench.outside import checkouts
from unmask.lab.bench.run import BenchPlan, chosen_parts, run_bench
from unmask.lab.bench.subject import Subject, random_subject
from unmask.lab.bench.table import text
from unmask.models.execution import resolve_device

REFUSED, FAILED = 2, 1


def plan_of(part: str, batch: str, against: Sequence[str], quick: bool) -> BenchPlan:
    """Texts as a plan."""
    return BenchPlan(chosen_parts(part), _sizes(batch), quick, checkouts(against))


def shape_subject(shape: str, device: str, plan: BenchPlan) -> Subject:
    """A published shape in bfloat16, as published weights are."""
    rows = max(plan.batches)
    return random_subject(shape, resolve_device(device), torch.bfloat16, rows=rows, quick=plan.quick)


def save(result: BenchResult, path: Path) -> None:
    write_text(path, json.dumps(result.document(), indent=1) + "\n")


def _sizes(batch: str) -> tuple[int, ...]:
    """`1,8,32` as numbers."""
    parts = [part.strip() for part in batch.split(",")]
    ok = all(part.isdecimal() and len(part) < 10 for part in parts)
    require(ok, "--batch", batch, "numbers of 1 or more with commas between them", "e.g. 1,8,32")
    return tuple(dict.fromkeys(int(part) for part in parts))


def main(arguments: Sequence[str] | None = None, run: Callable[[Subject, BenchPlan], BenchResult] = run_bench) -> int:
    """Published shapes where torch is there and little else, as on many GPU hosts: the options of `unmask bench`."""
    parser = argparse.ArgumentParser(prog="python -m unmask.lab.bench.asked", description=main.__doc__)
    parser.add_argument("part", nargs="?", default="all")
    for name, default in (("--shape", "llada-8b"), ("--batch", "1,8,32"), ("--device", "auto")):
        parser.add_argument(name, default=default)
    parser.add_argument("--against", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args(arguments)
    try:
        plan = plan_of(given.part, given.batch, given.against, given.quick)
        result = run(shape_subject(given.shape, given.device, plan), plan)
    except UnmaskError as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    print(text(result))
    if given.json is not None:
        save(result, given.json)
    return FAILED if result.failures else 0


if __name__ == "__main__":
    sys.exit(main())
