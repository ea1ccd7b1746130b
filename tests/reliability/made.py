"""Small pieces of work that come out the same every time, and what came of them when nothing went wrong.

Each is a command on a model that is quick: `exact`, or `mini` on two prompts. Cases start from copies of them.
"""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from tests.helpers.tiny_training import TINY
from tests.reliability.process import Ended, unmask

STUDY = """
name = "tortured"
seed = 0
tasks = ["mine"]
axes = ["region"]
states = 2
rollouts = 1
temperature = 0.0
diagnostics = ["region"]
end_to_end = true

[own.mine]
prompts = "mine.jsonl"
score = "contains"
horizon = 4

[[models]]
name = "exact"
model = "exact"
reference = "llada"
options = { n = 8 }

[splits]
validation = 4
evaluation = 4

[steps]
share = 0.5

[candidates]
region = ["full", "block:8"]

[revision]
variant = "conf"

[engine]
rows = 4
bucket = 32
prompts = 2
"""
PROMPTS = ["".join(letters) for letters in product("abcd", repeat=3)][:16]
LINES = "".join(
    json.dumps({"prompt": prompt, "target": prompt[0], "id": f"p{n}"}) + "\n" for n, prompt in enumerate(PROMPTS)
)
OWN = ("--task", "mine.jsonl", "--scorer", "contains", "--max-new-tokens", 4)
TWO = ("compare", "--model", "mini", "--task", "carry-rtl", "--split", "fresh", "--prompts", 2)
SIZE = ("--prompts", 4, "--states", 2, "--rollouts", 1)


@dataclass(frozen=True)
class Work:
    """A command, and how to see that two runs of it came to the same."""

    arguments: tuple[object, ...]
    files: Mapping[str, str]
    """What it reads, by name."""
    out: str
    """Its folder, or its file."""
    outcome: Callable[[Path, Ended], dict[str, str]]
    kept: tuple[str, ...] = ()
    """Patterns of what is finished once it is there, and must stay as it is."""

    def prepare(self, folder: Path) -> None:
        for name, text in self.files.items():
            (folder / name).write_text(text, encoding="utf-8")

    def run(self, folder: Path, **how: Any) -> Ended:
        return unmask(*self.arguments, folder=folder, **how)

    def finished(self, folder: Path) -> dict[str, str]:
        """Hashes of what must not change any more."""
        paths = (path for pattern in self.kept for path in folder.glob(pattern))
        return {str(p.relative_to(folder)): digest(p) for p in paths if ".part" not in str(p) and p.is_file()}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def files_of(*patterns: str) -> Callable[[Path, Ended], dict[str, str]]:
    """Hashes of the files that a command leaves."""

    def outcome(folder: Path, ended: Ended) -> dict[str, str]:
        paths = (path for pattern in patterns for path in sorted(folder.glob(pattern)) if path.is_file())
        return {str(path.relative_to(folder)): digest(path) for path in paths}

    return outcome


def printed_hashes(folder: Path, ended: Ended) -> dict[str, str]:
    """What `study run --quiet` says of the tables."""
    return dict(line.split(maxsplit=1) for line in ended.out.splitlines() if len(line.split()) == 2)


def _spelt(value: Any) -> str:
    """TOML takes characters as they are, and no halves of one as JSON's escapes are."""
    return json.dumps(value, ensure_ascii=False)


def toml(table: Mapping[str, Any]) -> str:
    """A table of tables as TOML; JSON's numbers, texts and lists are TOML's too."""
    plain = [f"{key} = {_spelt(value)}" for key, value in table.items() if not isinstance(value, Mapping)]
    for key, value in table.items():
        if isinstance(value, Mapping):
            deeper = {k: v for k, v in value.items() if isinstance(v, Mapping)}
            flat = {k: v for k, v in value.items() if k not in deeper}
            plain += [f"[{key}]", *(f"{k} = {_spelt(v)}" for k, v in flat.items())]
            plain += [line for k, v in deeper.items() for line in (f"[{key}.{k}]", toml(v))]
    return "\n".join(plain)


WORKS = {
    "study": Work(
        ("study", "run", "study.toml", "--out", "study", "--quiet"),
        {"study.toml": STUDY, "mine.jsonl": LINES},
        "study",
        printed_hashes,
        ("study/shards/[!.]*/*", "study/decodes/[!.]*/*"),
    ),
    "gate": Work(
        ("calibrate", "--model", "exact", *OWN, "--axis", "region", "--out", "gate.json", *SIZE, "--quiet"),
        {"mine.jsonl": LINES},
        "gate.json",
        files_of("gate.json"),
        ("gate.json.study/shards/[!.]*/*", "gate.json.study/decodes/[!.]*/*"),
    ),
    "comparison": Work(
        (*TWO, "--policy", "wino", "--resamples", 20, "--steps", 2, "--out", "compared", "--quiet"),
        {},
        "compared",
        files_of("compared/compare.csv", "compared/summary.md"),
    ),
    "training": Work(
        ("train", "--config", "train.toml", "--out", "trained", "--device", "cpu"),
        {"train.toml": toml(TINY)},
        "trained",
        files_of("trained/model/*"),
    ),
}


class Made:
    """Works as they end when nothing disturbs them, in a folder."""

    def __init__(self, folder: Path):
        self.folder = folder

    def build(self, names: Iterable[str]) -> None:
        """Do the works that are not there yet."""
        for name in dict.fromkeys(names):
            place, work = self.folder / name, WORKS[name]
            if place.exists():
                continue
            place.mkdir(parents=True)
            work.prepare(place)
            began = time.monotonic()
            ended = work.run(place)
            if ended.code or ended.trouble:
                raise SystemExit(f"{name} cannot be made, so nothing can be tried on it: {ended.trouble or ended.err}")
            told = {"seconds": time.monotonic() - began, "outcome": work.outcome(place, ended)}
            (self.folder / f"{name}.json").write_text(json.dumps(told), encoding="utf-8")

    def copy(self, name: str, folder: Path) -> Work:
        """A finished work, in a folder of one's own."""
        shutil.copytree(self.folder / name, folder, dirs_exist_ok=True)
        return WORKS[name]

    def seconds(self, name: str) -> float:
        return float(self._told(name)["seconds"])

    def outcome(self, name: str) -> dict[str, str]:
        return dict(self._told(name)["outcome"])

    def _told(self, name: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
        return told
