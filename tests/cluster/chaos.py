"""One study while nodes and workers are killed and added at random moments: the tables must be those of one process."""

import json
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.nodes import ThreeNodes, until
from tests.helpers.fresh_python import environment
from tests.helpers.object_store import Bucket
from tests.helpers.scaled import llada
from tests.helpers.tiny_studies import SMALL

STUDY = """
name = "chaos"
seed = 3
tasks = ["mine"]
axes = ["score"]
states = 2
rollouts = 1
temperature = 0.0
diagnostics = ["score"]
end_to_end = true

[own.mine]
prompts = "mine.jsonl"
score = "scoring.py:score"
horizon = 12

[[models]]
name = "tiny"
model = "checkpoint"
reference = "llada"
options = { device = "cpu", dtype = "fp32" }

[splits]
validation = 8
evaluation = 6

[steps]
share = 0.5

[candidates]
score = ["confidence", "margin"]

[engine]
rows = 2
bucket = 256
prompts = 1
"""

SCORING = '''
import zlib

def score(text, example):
    """Without sense, but with variety: a network with random weights is never right."""
    return zlib.crc32(f"{text} {example['id']}".encode()) % 5 / 4
'''

KINDS = ("kill node", "add node", "kill worker")
SHARDS = 14
"""Of this study; it decodes end to end when they are there."""
PATIENCE = 300.0
"""Seconds that a run may take: far more than it does, for a machine may be busy."""


@dataclass(frozen=True)
class Event:
    """Something that happens while the study runs."""

    after: float
    """Shards that are stored by then, and a share of a second: the same moment on a fast and on a slow machine."""
    kind: str
    at: int


@dataclass(frozen=True)
class Trial:
    """How a run under such events ended."""

    seed: int
    equal: bool
    events: tuple[str, ...]
    seconds: float
    said: str


def events_of(seed: int) -> list[Event]:
    """The same for the same seed: a node goes and one comes in any case."""
    draw = random.Random(seed)
    kinds = ["kill node", "add node", *draw.choices(KINDS, k=draw.randint(1, 3))]
    # More than two dead workers might hit one shard three times, which would rightly set it aside.
    workers = [at for at, kind in enumerate(kinds) if kind == "kill worker"]
    kept = [kind for at, kind in enumerate(kinds) if at not in workers[2:]]
    # A node goes early: adding one takes seconds, in which a fast machine may be through with the study.
    early = draw.uniform(0, SHARDS / 3)
    moments = [early, *(draw.uniform(early, SHARDS) for _ in kept[1:])]
    happening = (Event(after, kind, draw.randrange(8)) for after, kind in zip(moments, kept, strict=True))
    return sorted(happening, key=lambda event: event.after)


def study_in(folder: Path) -> Path:
    """A study file, its task and its checkpoint."""
    llada(folder / "checkpoint", **SMALL)
    lines = [{"prompt": f"Say the word w{n}.", "target": f"w{n}", "id": f"p{n}"} for n in range(30)]
    (folder / "mine.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    (folder / "scoring.py").write_text(SCORING, encoding="utf-8")
    file = folder / "study.toml"
    file.write_text(STUDY.replace('"checkpoint"', f'"{folder / "checkpoint"}"'), encoding="utf-8")
    return file


def finished(out: Path) -> int:
    """Shards that are stored in a folder."""
    return len(list((out / "shards").glob("tiny*")))


def command(file: Path, out: Path | str, *options: str) -> list[str]:
    """`unmask study run` in a process of its own."""
    return [sys.executable, "-m", "unmask", "study", "run", str(file), "--out", str(out), "--quiet", *options]


def hashes_in(text: str) -> dict[str, str]:
    """What the command prints at the end."""
    return dict(line.split() for line in text.splitlines() if len(line.split()) == 2)


def alone(file: Path) -> dict[str, str]:
    """The hashes of one process."""
    line = command(file, file.parent / "alone")
    done = subprocess.run(line, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    return hashes_in(done.stdout)


def trial(nodes: ThreeNodes, file: Path, seed: int, expected: dict[str, str], bucket: Bucket | None = None) -> Trial:
    """Run it once under the events of a seed, into a folder or a bucket of an object store."""
    began, happened, plan = time.monotonic(), [], events_of(seed)
    out = file.parent / f"out-{seed}"
    place, env = (
        (str(out), environment()) if bucket is None else (bucket.address, environment(**bucket.server.environment))
    )
    with (
        (file.parent / f"said-{seed}").open("w+") as said,
        subprocess.Popen(command(file, place, *nodes.options), stdout=said, stderr=said, text=True, env=env) as driver,
    ):
        # Before its workers are there nothing can happen to it.
        until(lambda: nodes.workers() or driver.poll() is not None, PATIENCE)
        while driver.poll() is None and time.monotonic() - began < PATIENCE:
            stored = finished(out) if bucket is None else bucket.finished()
            if plan and stored >= int(plan[0].after):
                event = plan.pop(0)
                time.sleep(0.3 * (event.after % 1))
                do = {"kill node": nodes.kill, "add node": nodes.add, "kill worker": nodes.kill_worker}[event.kind]
                done = do(event.at)
                happened.append(f"{event.kind} after {stored} shards{'' if done else ' (none there)'}")
            time.sleep(0.05)
        if driver.poll() is None:
            driver.kill()
        driver.wait()
        said.seek(0)
        text = said.read()
    nodes.fill()
    ended = f"exit code {driver.returncode}: {text[-500:]}"
    return Trial(seed, hashes_in(text) == expected, tuple(happened), time.monotonic() - began, ended)
