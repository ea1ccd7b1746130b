"""Attacks on the sandbox, and what each mode promises against them.

    for mode in modes():                 # names of the modes that work here; `missing()` says why others do not
        for attack in ATTACKS:
            outcome = run(attack, mode)  # held, open (the mode does not promise to hold), escaped (it did promise)

An attack is a program that is after something outside (`program`), or a completion whose answers are wrong and that
tries not to count as failed (`completion`). That the programs could do what they try is shown by running them without
any walls: `run_bare`.

    python -m tests.attacks.sandbox      # runs all in every mode of this machine; writes the table of docs/sandbox.md
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from tests.attacks import completions, programs
from tests.attacks.bystanders import SECRET, bystanders
from tests.helpers.paths import DOCS
from unmask.tasks.sandbox import Limits
from unmask.tasks.sandbox.checks import check_behind, run_behind
from unmask.tasks.sandbox.limits import DEFAULT
from unmask.tasks.sandbox.probe import PROBE_PROGRAM, holds
from unmask.tasks.sandbox.run import run_jail
from unmask.tasks.sandbox.walls import Walls

LIMITS = Limits(wall_s=20, cpu_s=2, memory_mb=256, file_mb=4, output_kb=16)
BRIEF = replace(LIMITS, wall_s=4, cpu_s=1)
"""For completions: those that wait to be stopped are many."""
PROBLEM = {
    "prompt": "def double(x):\n",
    "entry_point": "double",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(-1) == -2\n",
}


@dataclass(frozen=True)
class Attack:
    """One attempt."""

    name: str
    goal: str
    """One of `PROMISES`."""
    source: str
    """A program after `programs.PREAMBLE`, or what follows `def double(x):`."""
    kind: Literal["program", "completion"] = "program"
    test: str = PROBLEM["test"]
    """What a completion is asked."""
    bare: bool = True
    """Whether the program succeeds without walls, and does nothing to others there than to the bystanders."""


@dataclass(frozen=True)
class Outcome:
    """What came of an attack in a mode."""

    result: Literal["held", "open", "escaped"]
    detail: str


_SEPARATE = ("namespace", "bubblewrap")
PROMISES = {
    "verdict": lambda walls: True,
    "limits": lambda walls: True,
    "signals": lambda walls: walls.kind in _SEPARATE or "seccomp" in walls.layers,
    "processes": lambda walls: walls.kind in _SEPARATE or "seccomp" in walls.layers,
    "network": lambda walls: walls.kind in _SEPARATE or "seccomp" in walls.layers,
    "kernel": lambda walls: "seccomp" in walls.layers,
    "files": lambda walls: walls.kind in _SEPARATE or {"seccomp", "landlock"} <= set(walls.layers),
    "secrets": lambda walls: walls.kind in _SEPARATE or "landlock" in walls.layers,
    "names": lambda walls: walls.kind in _SEPARATE,
}
"""What attacks are after, and whether walls promise to keep it from them."""

MODES: dict[str, tuple[Walls, ...]] = {
    "namespace": (Walls("namespace", ("seccomp", "uid")), Walls("namespace", ("seccomp",))),
    "namespace without seccomp": (Walls("namespace", ("uid",)), Walls("namespace", ())),
    "bubblewrap": (Walls("bubblewrap", ("seccomp",)),),
    "weak: seccomp + landlock": (Walls("weak", ("seccomp", "landlock")),),
    "weak: seccomp": (Walls("weak", ("seccomp",)),),
    "weak: landlock": (Walls("weak", ("landlock",)),),
    "weak: resource limits": (Walls("weak", ()),),
}
"""By name, the walls that are tried; an own user is left out of the weak ones, where it would only help."""

ATTACKS: tuple[Attack, ...] = (
    *(Attack(name, goal, source, bare=bare) for goal, name, source, bare in programs.all_programs()),
    *(Attack(name, "verdict", source, "completion", bare=False) for name, source in completions.COMPLETIONS.items()),
    *(
        Attack(name, "verdict", source, "completion", test, bare=False)
        for name, (source, test) in completions.ASKED.items()
    ),
)


@cache
def _probe(mode: str) -> tuple[Walls | None, str]:
    reason = ""
    for walls in MODES[mode]:
        tried = run_jail({"kind": "program", "program": PROBE_PROGRAM}, {}, DEFAULT, walls)
        if holds(tried, walls):
            return walls, ""
        reason = reason or tried.trouble or f"does not hold: {tried.stdout.split()}"
    return None, reason


def modes() -> list[str]:
    """The modes that work here, for this user, strongest first."""
    return [mode for mode in MODES if _probe(mode)[0]]


def missing() -> dict[str, str]:
    """The others, and why."""
    return {mode: _probe(mode)[1] for mode in MODES if not _probe(mode)[0]}


def run(attack: Attack, mode: str) -> Outcome:
    """Try an attack in a mode of `modes()`."""
    walls = _probe(mode)[0]
    assert walls, f"{mode} is not possible here: {missing()[mode]}"
    if attack.kind == "completion":
        verdict = check_behind(walls, {**PROBLEM, "test": attack.test}, attack.source, BRIEF)
        harm = "" if verdict.status in ("fail", "error", "timeout") else verdict.status
        detail = f"{verdict.status}: {verdict.detail}"
    else:
        with bystanders() as others:
            result = run_behind(walls, programs.program(attack.source, others.places()), LIMITS)
            harm = "; ".join([*_told(result.stdout), *filter(None, [others.harm()])])
        harm = harm or (result.detail if result.status == "unavailable" else "")
        detail = harm or f"{result.detail} {result.stderr[-300:]}".strip()
    if not harm:
        return Outcome("held", detail)
    return Outcome("escaped" if PROMISES[attack.goal](walls) else "open", detail)


def run_bare(attack: Attack) -> str:
    """What a program does to the bystanders without any walls, in words; empty if it is no attack at all."""
    with bystanders() as others, tempfile.TemporaryDirectory() as folder:
        source = programs.program(attack.source, others.places())
        done = subprocess.run(
            [sys.executable, "-S", "-c", source], cwd=folder, capture_output=True, text=True, timeout=60, check=False
        )
        return "; ".join([*_told(done.stdout), *filter(None, [others.harm()])])


def _told(stdout: str) -> Iterator[str]:
    yield from (line for line in stdout.split("\n") if line.startswith("escaped"))
    if SECRET in stdout:
        yield "escaped: read a secret"


BEGIN, END = "<!-- attacks: begin -->", "<!-- attacks: end -->"
WORDS = {
    "verdict": "wrong completions that try not to count as failed",
    "limits": "own limits raised",
    "signals": "signals to others",
    "processes": "other processes steered, read or started",
    "network": "network and services",
    "kernel": "parts of the kernel that no function of a few lines needs",
    "files": "files of others changed",
    "secrets": "files and processes of others read",
    "names": "whether a file of others is there, its size and date",
}


def table(outcomes: Mapping[tuple[str, str], Outcome], lacking: Mapping[str, str]) -> str:
    """One row per goal: how many attacks were held in each mode, and which were not."""
    rows = ["| attacks | " + " | ".join(f"`{mode}`" for mode in MODES) + " |", "|---" * (len(MODES) + 1) + "|"]
    for goal in PROMISES:
        names = [attack.name for attack in ATTACKS if attack.goal == goal]
        cells = ["not run" if mode in lacking else _cell(names, mode, outcomes) for mode in MODES]
        rows.append(f"| {WORDS[goal]} ({len(names)}) | " + " | ".join(cells) + " |")
    lists = [f"* {WORDS[goal]}: {listed(goal)}." for goal in PROMISES]
    open_ones = [f"* `{mode}`, open: {names}." for mode in MODES if (names := _named(mode, "open", outcomes))]
    user = "root" if os.geteuid() == 0 else "a user without privileges"
    place = f"On Linux {'.'.join(os.uname().release.split('.')[:2])}, as {user}. Modes not run are not possible there."
    return "\n".join([place, "", *rows, "", "What is open:", "", *open_ones, "", "What was tried:", "", *lists])


def _cell(names: Iterable[str], mode: str, outcomes: Mapping[tuple[str, str], Outcome]) -> str:
    results = [outcomes[mode, name].result for name in names]
    counted = {result: results.count(result) for result in ("held", "open", "escaped") if result in results}
    return ", ".join(result if count == len(results) else f"{count} {result}" for result, count in counted.items())


def _named(mode: str, result: str, outcomes: Mapping[tuple[str, str], Outcome]) -> str:
    return ", ".join(attack.name for attack in ATTACKS if _result(outcomes, mode, attack.name) == result)


def _result(outcomes: Mapping[tuple[str, str], Outcome], mode: str, name: str) -> str:
    return outcomes[mode, name].result if (mode, name) in outcomes else "not run"


def listed(goal: str) -> str:
    """The names of the attacks on a goal."""
    return "; ".join(attack.name for attack in ATTACKS if attack.goal == goal)


def write_table() -> bool:
    """Run everything and write the table into the documentation; whether nothing escaped."""
    outcomes = {(mode, attack.name): run(attack, mode) for mode in modes() for attack in ATTACKS}
    page = DOCS / "sandbox.md"
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    page.write_text(f"{before}{BEGIN}\n{table(outcomes, missing())}\n{END}{after}", encoding="utf-8")
    escaped = {key: outcome for key, outcome in outcomes.items() if outcome.result == "escaped"}
    for (mode, name), outcome in escaped.items():
        print(f"{mode}: {name}: {outcome.detail}")
    return not escaped


if __name__ == "__main__":
    sys.exit(not write_table())
