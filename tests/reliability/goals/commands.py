"""Command lines at random, over every command and option: done, or refused in a sentence with exit code 2."""

import random
import re
from functools import cache
from pathlib import Path
from typing import Any

from tests.reliability.case import Case, Goal
from tests.reliability.hostile import NUMBERS, TEXTS, WORDS
from tests.reliability.limits import bounded, lost_device, make_devices
from tests.reliability.made import WORKS, Made
from tests.reliability.process import listed, unmask

ENOUGH = 6.0
"""Seconds after which a command that works gets Ctrl-C; it must end then."""
NOT_TRIED = ("debug", "help", "version")
"""The first shows tracebacks on purpose, the others end everything."""
SMALL = {"--prompts": "2", "--rollouts": "1", "--states": "1", "--max-new-tokens": "4", "--resamples": "5", "-n": "2"}
"""What keeps a command that works from working for long."""


@cache
def commands() -> dict[tuple[str, ...], list[Any]]:
    """Every command with its parameters, from the command line itself."""
    import typer

    from unmask.cli.app import app

    found: dict[tuple[str, ...], list[Any]] = {}

    def walk(command: Any, path: tuple[str, ...]) -> None:
        found[path] = [p for p in command.params if p.name not in NOT_TRIED]
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, (*path, name))

    walk(typer.main.get_command(app), ())
    return found


def try_case(case: Case, folder: Path, made: Made) -> str | None:
    for name in ("study", "gate"):
        made.copy(name, folder)
    WORKS["training"].prepare(folder)
    (folder / "setup.cfg").write_text("[metadata]\nname = x\n", encoding="utf-8")
    (folder / "setup.py").write_text("open('ran-setup', 'w')\n", encoding="utf-8")
    make_devices(folder)
    arguments = _line(case.rng)
    ended = unmask(*arguments, folder=folder, first=bounded, interrupt_after=ENOUGH)
    what = f"unmask {listed(arguments)[:400]}"
    if (folder / "ran-setup").exists() and not any(a.startswith("setup") and a != "setup.cfg" for a in arguments):
        return f"{what}: runs code that nobody named"
    if ended.trouble and not (ended.interrupted and ended.code == 130):
        return f"{what}: {ended.trouble}"
    if lost := lost_device(folder):
        return f"{what}: {lost}"
    return None


def _line(rng: random.Random) -> list[str]:
    """A command with some of its options, most of them required or wrong."""
    path = rng.choice(list(commands()))
    line, given = list(path), set()
    for parameter in commands()[path]:
        if not (parameter.required and rng.random() < 0.9) and rng.random() > 0.25:
            continue
        name = rng.choice(parameter.opts) if parameter.param_type_name == "option" else ""
        given.add(name)
        if getattr(parameter, "is_flag", False):
            line.append(name)
        else:
            line += [part for part in (name, _value(parameter, rng)) if part or not name]
    line += [part for p in commands()[path] for o in p.opts if o in SMALL and o not in given for part in (o, SMALL[o])]
    if rng.random() < 0.1:
        line.insert(rng.randrange(len(line) + 1), rng.choice((*WORDS, "--no-such", "-x")))
    # What the system could not pass on: texts with a zero inside, and long ones.
    return [part.replace("\0", "")[:20_000] for part in line]


def _value(parameter: Any, rng: random.Random) -> str:
    """Something for an option: of its kind, or of no kind."""
    if rng.random() < 0.2:
        return rng.choice(TEXTS)
    # Which attribute tells the type depends on the version of typer; in words they agree.
    kind = str(getattr(parameter, "type_descriptor", getattr(parameter, "type", "")))
    if re.search(r"\b(int|float|INT|FLOAT)\b", kind) and rng.random() < 0.9:
        return rng.choice(NUMBERS)
    likely = {
        "model": ("exact", "exact", "mini"),
        "axis": ("region",),
        "score": ("contains",),
        "task": ("carry-rtl", "mine.jsonl"),
    }
    named = {
        "file": "study.toml",
        "folder": "study",
        "config": "train.toml",
        "predictions": "mine.jsonl",
        "gate": "gate.json",
    }
    if parameter.name in likely and rng.random() < 0.6:
        return rng.choice(likely[parameter.name])
    if parameter.name in named and rng.random() < 0.6:
        return named[parameter.name]
    return rng.choice(WORDS)


GOAL = Goal("commands", "command lines at random", try_case, sample=60, needs=("study", "gate"))
