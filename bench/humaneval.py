"""HumanEval in the sandbox: all 164 canonical solutions, each in an interpreter of its own.

    python bench/humaneval.py [--data-dir FOLDER] [--workers 2] [--mode namespace] [--json]

`FOLDER` holds `HumanEval.jsonl.gz`; without it, `shared/data/humaneval` beside the checkout is tried. The target is
under 60 s on two cores. Completions per second is what scoring a model's answers takes, if none of them hangs.
"""

import argparse
import gzip
import json
import os
import statistics
import sys
import time
from collections import Counter
from pathlib import Path

from unmask.tasks.sandbox import SandboxVerdict, available_modes, check_many

DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "data" / "humaneval"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=DEFAULT)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--mode", help="namespace, bubblewrap or weak; the strongest that works, unless given")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    path = arguments.data_dir / "HumanEval.jsonl.gz"
    if not path.exists():
        print(f"skipped: there is no {path.name} in {arguments.data_dir}; say where it is with --data-dir")
        return 0
    with gzip.open(path, "rt", encoding="utf-8") as file:
        problems = [json.loads(line) for line in file]
    modes = available_modes()
    begun = time.perf_counter()
    verdicts = check_many(
        [(problem, problem["canonical_solution"]) for problem in problems],
        arguments.workers,
        None if arguments.json else progress(len(problems)),
        mode=arguments.mode,
    )
    report(verdicts, time.perf_counter() - begun, modes, arguments)
    return int(any(verdict.status != "pass" for verdict in verdicts))


def progress(total: int):
    done = Counter[str]()

    def show(index: int, verdict: SandboxVerdict) -> None:
        done[verdict.status] += 1
        if sys.stderr.isatty():
            print(f"\r{done.total()}/{total}", end="" if done.total() < total else "\n", file=sys.stderr, flush=True)

    return show


def report(verdicts: list[SandboxVerdict], wall_s: float, modes: list[str], arguments: argparse.Namespace) -> None:
    inside = sorted(verdict.wall_s for verdict in verdicts)
    result = {
        "problems": len(verdicts),
        "verdicts": dict(Counter(verdict.status for verdict in verdicts)),
        "mode": sorted({verdict.mode for verdict in verdicts}),
        "modes_available": modes,
        "workers": arguments.workers,
        "cores": os.cpu_count(),
        "wall_s": round(wall_s, 2),
        "per_second": round(len(verdicts) / wall_s, 1),
        "inside_median_s": round(statistics.median(inside), 4),
        "inside_slowest_s": round(inside[-1], 4),
    }
    if arguments.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:17} {value}")


if __name__ == "__main__":
    sys.exit(main())
