"""What a machine with a GPU checks before a change of GPU code goes in: `make gpu-check OLD=folder`.

    python tests/gpu/check.py values OLD [--only tests bits golden] [--out FOLDER]
    python tests/gpu/check.py times OLD [--out FOLDER]

OLD is a folder with another version of the package in `src/unmask`. `values` runs the tests marked `gpu`, compares the
bits of every kernel with the old tree's (kernel_bits.py), and compares decodes, options and gates with the old tree's
or with stored values. `times` runs `bench` of LLaDA-8B's shape, old and new in alternating turns. The exit status is 1
where a test fails, a value differs, or a line is slower than noise explains. Logs and results go to FOLDER.

A machine without a network needs the folder `.gpu`, which tests/gpu/pack fills: an old tree, wheels that the machine
lacks, and values of version 0.7.0. Wheels are installed into a folder of their own, for this run alone.
"""

import argparse
import gzip
import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKED = ROOT / ".gpu"
PARTS = ("tests", "bits", "golden")
SECTIONS = ("decode_mini", "decode_mini_dream", "options", "gates")
"""Sections of the golden dump that run on the default device."""
NOISE = 1.06
"""Two runs of the same code were up to 6 per cent apart on an H200."""
TURNS = 2
PROCESSES = 4


# Processes.


def environment(tree: Path, out: Path) -> dict[str, str]:
    """Of a process that imports `unmask` from this tree, with the packed wheels and a command `unmask`."""
    path = [str(tree / "src"), str(ROOT), *([str(out / "site")] if (out / "site").is_dir() else [])]
    inherited = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*path, *inherited]),
        "PATH": os.pathsep.join([str(out / "bin"), os.environ.get("PATH", "")]),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HUB_OFFLINE": "1",
    }


def run(command: list[Any], tree: Path, out: Path, log: str, limit: int, cwd: Path = ROOT) -> int:
    """The exit status of a command whose output goes to a log; 124 where it took longer than the limit."""
    with open(out / log, "w", encoding="utf-8") as file:
        try:
            done = subprocess.run(
                [str(part) for part in command],
                cwd=cwd,
                env=environment(tree, out),
                stdout=file,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            file.write(f"\nstopped after {limit} s\n")
            return 124
    return done.returncode


def show_end(path: Path, lines: int, words: tuple[str, ...] = ()) -> None:
    """Print the last lines of a log, or the last of those that hold one of the words."""
    kept = path.read_text(encoding="utf-8", errors="replace").splitlines()
    kept = [line for line in kept if any(word in line for word in words)] if words else kept
    print("\n".join(kept[-lines:]), flush=True)


def prepare(old: Path, out: Path) -> None:
    """Install the packed wheels, write a command `unmask`, and link the weights that an old tree was packed without."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "bin").mkdir(exist_ok=True)
    command = out / "bin" / "unmask"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m unmask "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    wheels = sorted((PACKED / "wheels").glob("*.whl"))
    if wheels and not (out / "site").is_dir():
        install = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", out / "site"]
        done = subprocess.run([*map(str, install), *map(str, wheels)], check=False, capture_output=True, text=True)
        if done.returncode:
            print(f"packed wheels are not used: {done.stderr.strip()[-300:]}", flush=True)
    shipped = {path.parent.name: path for path in (ROOT / "src" / "unmask").rglob("model.safetensors")}
    for config in (old / "src" / "unmask").rglob("config.json"):
        weights = config.with_name("model.safetensors")
        if config.parent.name in shipped and not weights.exists():
            weights.symlink_to(shipped[config.parent.name])


def has_gpu(tree: Path, out: Path) -> bool:
    """Whether torch sees a CUDA device; without one all tests would be skipped."""
    code = "import torch; raise SystemExit(not torch.cuda.is_available())"
    return run([sys.executable, "-c", code], tree, out, "device.log", 120) == 0


# Values.


def check_tests(old: Path, out: Path) -> int:
    """The tests marked `gpu`."""
    marked = re.compile(r"^\s*@gpu|mark\.gpu|import .*\bgpu\b", re.MULTILINE)
    files = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if marked.search(path.read_text("utf-8"))]
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", "-o"]
    command += ["addopts=--import-mode=importlib --strict-markers", "-n", PROCESSES, *files]
    status = run(command, ROOT, out, "tests.log", 420)
    show_end(out / "tests.log", 25, ("FAILED", "ERROR", " passed", " failed", " error", "stopped"))
    return status


def check_bits(old: Path, out: Path) -> int:
    """The bits of every kernel."""
    status = run([sys.executable, "-m", "tests.gpu.kernel_bits", old, ROOT], ROOT, out, "bits.log", 480)
    show_end(out / "bits.log", 120)
    return status


def check_golden(old: Path, out: Path) -> int:
    """Decodes, options and gates: each tree dumped by its own tests/golden.py, or the new one against stored values."""
    if all((tree / "tests" / "golden.py").exists() for tree in (old, ROOT)):
        sides = {"old": old, "new": ROOT}
        for side in sides:
            (out / f"golden-{side}").mkdir(exist_ok=True)

        def dump(job: tuple[str, str]) -> int:
            side, name = job
            command = [
                sys.executable,
                sides[side] / "tests" / "golden.py",
                "--in-process",
                out / f"golden-{side}",
                name,
            ]
            return run(command, sides[side], out, f"golden-{side}-{name}.log", 420)

        jobs = [(side, name) for name in SECTIONS for side in sides]
        with ThreadPoolExecutor(len(jobs)) as pool:
            statuses = list(pool.map(dump, jobs))
        for (side, name), status in zip(jobs, statuses, strict=True):
            if status:
                print(f"golden values of {name} in the {side} tree: exit {status}")
                show_end(out / f"golden-{side}-{name}.log", 8)
        return int(any(statuses) or compare_golden(out / "golden-old", out / "golden-new") > 0)
    script, stored = PACKED / "golden.py", PACKED / "gpu-baseline-0.7.0"
    if not script.exists() or not stored.is_dir():
        print(f"golden values: {old} has no tests/golden.py, and {PACKED} holds no stored values: run tests/gpu/pack")
        return 1
    dumped = run([sys.executable, script, "dump", out / "golden", *SECTIONS, "--jobs", 4], ROOT, out, "golden.log", 420)
    status = run([sys.executable, script, "diff", stored, out / "golden"], ROOT, out, "golden-diff.log", 60)
    show_end(out / "golden.log", 8)
    show_end(out / "golden-diff.log", 40)
    return dumped or status


def compare_golden(old: Path, new: Path) -> int:
    """Print the keys whose values differ; how many they are. Sentences are not compared."""
    different = 0
    for name in SECTIONS:
        values = []
        for folder in (old, new):
            with gzip.open(folder / f"{name}.json.gz", "rt", encoding="utf-8") as file:
                values.append(json.load(file)["values"])
        keys = [key for key in sorted(values[0].keys() | values[1].keys()) if not key.startswith("words/")]
        wrong = [key for key in keys if values[0].get(key) != values[1].get(key)]
        print(f"{name:20} {len(keys) - len(wrong)} of {len(keys)} values equal")
        for key in wrong[:20]:
            print(f"different  {key}")
        different += len(wrong) + (not keys)
    return different


CHECKS: dict[str, Callable[[Path, Path], int]] = {"tests": check_tests, "bits": check_bits, "golden": check_golden}


def check_values(old: Path, out: Path, only: list[str]) -> int:
    statuses = {}
    for name in only:
        begun = time.time()
        statuses[name] = CHECKS[name](old, out)
        print(f"{name}: exit {statuses[name]} after {time.time() - begun:.0f} s", flush=True)
    return int(any(statuses.values()))


# Times.


def bench_command(tree: Path) -> list[str]:
    """How a tree measures a published shape: version 0.7.0 and its next have a module for machines with little else."""
    plain = (tree / "src" / "unmask" / "lab" / "bench" / "asked.py").exists()
    return [sys.executable, "-m", *(["unmask.lab.bench.asked"] if plain else ["unmask", "bench"])]


def medians(path: Path) -> dict[tuple[str, int, str], float]:
    """The median time of every line of a bench file."""
    lines = json.loads(path.read_text(encoding="utf-8"))["lines"]
    return {(line["part"], line["batch"], line["name"]): line["times"]["median"] for line in lines}


def check_times(old: Path, out: Path, shape: str, limit: int) -> int:
    """Measure both trees in turns, and compare."""
    failed = 0
    for turn in range(1, TURNS + 1):
        for side, tree in (("old", old), ("new", ROOT)):
            file = out / f"{side}{turn}.json"
            file.unlink(missing_ok=True)
            # Version 0.7 calls this flag --batch.
            flag = "--batch-size" if (tree / "src/unmask/cli/listings.py").exists() else "--batch"
            command = [*bench_command(tree), "all", "--shape", shape, flag, "1,8", "--quick", "--json", file]
            begun = time.time()
            status = run(command, tree, out, f"{side}{turn}.log", limit, cwd=out)
            print(f"{side} {turn}: exit {status} after {time.time() - begun:.0f} s", flush=True)
            if status:
                failed = 1
                show_end(out / f"{side}{turn}.log", 5)
    files = {side: [out / f"{side}{turn}.json" for turn in range(1, TURNS + 1)] for side in ("old", "new")}
    if not all(path.exists() for paths in files.values() for path in paths):
        return 1
    return failed or compare_times({side: [medians(path) for path in paths] for side, paths in files.items()})


def compare_times(sides: dict[str, list[dict[tuple[str, int, str], float]]]) -> int:
    """Print new over old for every line; 1 where one is slower than noise and than the old tree beside itself."""
    print("new over old (geometric mean of the turns), and the old tree beside itself")
    failed = 0
    for part, batch, name in dict.fromkeys(key for turns in sides.values() for turn in turns for key in turn):
        key = (part, batch, name)
        if not all(key in turn for turns in sides.values() for turn in turns):
            failed = 1
            print(f"{part:8} {batch:3} {name:32} is missing in one of the turns")
            continue
        old, new = ([turn[key] for turn in sides[side]] for side in ("old", "new"))
        ratio = math.exp(math.fsum(map(math.log, new)) / len(new) - math.fsum(map(math.log, old)) / len(old))
        spread = max(old) / min(old)
        slower = ratio > max(NOISE, spread)
        failed |= slower
        print(f"{part:8} {batch:3} {name:32} {ratio:6.3f}   {spread:6.3f}{'   SLOWER' if slower else ''}")
    return int(failed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["values", "times"])
    parser.add_argument("old", type=Path, help="a folder with the old version in src/unmask")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="some of the values")
    parser.add_argument("--out", type=Path, default=Path("/tmp/unmask-gpu"), help="logs and results")
    parser.add_argument("--shape", default="llada-8b", help="the shape whose times are taken")
    given = parser.parse_args()
    old, out = given.old.resolve(), given.out.resolve()
    if not (old / "src" / "unmask").is_dir():
        parser.error(f"{given.old} has no src/unmask: name a checkout of the old version, or run tests/gpu/pack")
    prepare(old, out)
    if not has_gpu(ROOT, out):
        print("torch sees no CUDA device here: run this on a machine with a GPU")
        return 1
    if given.part == "times":
        return check_times(old, out, given.shape, limit=140)
    return check_values(old, out, given.only)


if __name__ == "__main__":
    sys.exit(main())
