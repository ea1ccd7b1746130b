"""Attacks on the sandbox, and what each isolation promises against them.

    for attack in ATTACKS:
        outcome = run(attack, "landlock")  # held, open (no promise to hold), escaped (there is one)

An attack is a program that is after something outside, which runs while a completion loads, or a completion whose
answers are wrong and that tries not to count as failed. That the programs could do what they try is shown by running
them without any isolation: `run_bare`.

    python -m tests.attacks.sandbox      # runs all in every isolation there is; writes the table of docs/tasks.md
"""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from tests.attacks import completions, programs
from tests.attacks.bystanders import SECRET, bystanders
from tests.helpers.paths import DOCS
from unmask.tasks import sandbox
from unmask.tasks.sandbox import Limits, SandboxResult, Unavailable, choose_isolation

LIMITS = Limits(wall_s=4, cpu_s=1, memory_mb=256)
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
    """One of `GOALS`."""
    source: str
    """A program after `programs.PREAMBLE`, or what follows `def double(x):`."""
    test: str = PROBLEM["test"]
    """Tests of a completion."""
    bare: bool = True
    """Whether the program succeeds without isolation, and does nothing to others there than to the bystanders."""


@dataclass(frozen=True)
class Outcome:
    """What came of an attack."""

    result: Literal["held", "open", "escaped"]
    detail: str


GOALS = {
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
OPEN = {"landlock": ("names",), "bubblewrap": ()}
"""Goals that an isolation does not promise to keep from a completion."""
ATTACKS = (
    *(Attack(name, goal, source, bare=bare) for goal, name, source, bare in programs.all_programs()),
    *(Attack(name, "verdict", source, bare=False) for name, source in completions.COMPLETIONS.items()),
    *(Attack(name, "verdict", source, test, bare=False) for name, (source, test) in completions.ASKED.items()),
)


def isolations() -> list[str]:
    """Names of what works here."""
    try:
        chosen = choose_isolation()
    except Unavailable:
        return []
    return [chosen, "bubblewrap"] if chosen == "landlock" and shutil.which("bwrap") else [chosen]


def run(attack: Attack, isolation: str) -> Outcome:
    """Try an attack."""
    if attack.goal == "verdict":
        result, _ = checked(attack.source, isolation, test=attack.test)
        harm = "" if result.status in ("fail", "error", "timeout") else result.status
    else:
        with bystanders() as others:
            result, said = checked(escaping(attack, others.places()), isolation)
            harm = "; ".join([*_told(said), *filter(None, [others.harm()])])
        harm = harm or (result.detail if result.status == "unavailable" else "")
    if not harm:
        return Outcome("held", f"{result.status}: {result.detail}")
    return Outcome("open" if attack.goal in OPEN[isolation] else "escaped", harm)


def escaping(attack: Attack, places: Mapping[str, object]) -> str:
    """A completion that runs a program while it loads."""
    unbuffered = "import sys\nsys.stdout.reconfigure(line_buffering=True)\n"
    return completions.WRONG + unbuffered + programs.program(attack.source, places)


def checked(
    completion: str, isolation: str, limits: Limits = LIMITS, test: str = PROBLEM["test"]
) -> tuple[SandboxResult, str]:
    """Result of a completion, and what it printed."""
    with tempfile.TemporaryFile() as said:
        reader, writer = os.pipe()
        drain = threading.Thread(target=lambda: _drain(reader, said))
        drain.start()
        try:
            result = sandbox.run_isolated(
                {**PROBLEM, "test": test}, completion, limits, isolation, threading.Event(), writer
            )
        finally:
            os.close(writer)
            drain.join()
        said.seek(0)
        return result, said.read().decode("utf-8", "replace")


def _drain(reader: int, said) -> None:
    while data := os.read(reader, 1 << 16):
        if said.tell() < 1 << 16:
            said.write(data)
    os.close(reader)


def run_bare(attack: Attack) -> str:
    """What a program does to the bystanders without isolation, in words; empty if it is no attack at all."""
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


def write_table() -> bool:
    """Run everything and write the table into the documentation; whether nothing escaped."""
    outcomes = {(name, attack.name): run(attack, name) for name in isolations() for attack in ATTACKS}
    rows = ["| Attacks | Number | " + " | ".join(f"`{name}`" for name in OPEN) + " |", "|---|---|---|---|"]
    for goal, words in GOALS.items():
        names = [attack.name for attack in ATTACKS if attack.goal == goal]
        cells = [words, str(len(names))]
        for isolation in OPEN:
            results = [outcomes[isolation, name].result for name in names if (isolation, name) in outcomes]
            cells.append(", ".join(dict.fromkeys(results)) or "not run")
        rows.append(f"| {' | '.join(cells)} |")
    user = "root" if os.geteuid() == 0 else "a user without privileges"
    place = f"Run on Linux {'.'.join(os.uname().release.split('.')[:2])}, as {user}; *open* is what is not promised."
    page = DOCS / "tasks.md"
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    table = "\n".join([place, "", *rows])
    page.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.split(END)[1]}", encoding="utf-8")
    escaped = {key: outcome for key, outcome in outcomes.items() if outcome.result == "escaped"}
    for (isolation, name), outcome in escaped.items():
        print(f"{isolation}: {name}: {outcome.detail}")
    return not escaped


if __name__ == "__main__":
    sys.exit(not write_table())
