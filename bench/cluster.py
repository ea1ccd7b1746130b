"""Whether the driver of a cluster keeps up: shards a second that it stores, beside what so many GPUs would finish.

    unmask study run FILE --out out/study                a real study: its shards are the ones that are sent
    python bench/cluster.py out/study                    64 actors, 640 shards; needs `ray`, 8 GB and a few minutes

Actors are processes of this machine without torch and without a model: each answers at once with the tables of a real
shard under another number. What follows is the driver of `study run --on ray`: its pool, its queue, its books, and
a store on this disk with sorted, hashed, synced and renamed shards. Only judging is left out, which runs on the cores
of other nodes. Driver and actors share the cores, which no cluster does: the real driver is faster.

`--rate` is row-forwards a second of one GPU (bench/branches.py measures it), `--per-shard` row-forwards of a shard; by
default those of the study that was given, as far as its shards say.
"""

import argparse
import io
import json
import logging
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import ray

from unmask.lab.cluster.identity import identity
from unmask.lab.cluster.pool import WorkerPool
from unmask.lab.cluster.where import Ray
from unmask.lab.run.blocks import FinishedShard
from unmask.lab.run.queue import Claims
from unmask.lab.run.side_by_side import SideBySide
from unmask.lab.store import Store
from unmask.lab.store.pieces import read_info, read_table
from unmask.lab.store.shards import Shard

TABLES = ("states", "branches", "readings")


@dataclass(frozen=True)
class RealShard:
    """A shard of a study, and its tables as they travel."""

    shard: Shard
    info: dict[str, Any]
    tables: dict[str, bytes]

    @property
    def size(self) -> int:
        return sum(map(len, self.tables.values()))

    @property
    def row_forwards(self) -> int:
        forwards = self.info["forwards"]
        return int(forwards["done"] + forwards["trajectory"] + forwards["recalled"])


@dataclass(frozen=True)
class MadeUpJob:
    """A shard that is none: a real one's tables under a number of its own."""

    shard: Shard
    of: int


@dataclass
class Spent:
    """Seconds of the driver's threads, by what they did."""

    waiting: list[float] = field(default_factory=list)
    storing: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def shards_of(folder: Path) -> list[RealShard]:
    found = []
    for place in sorted(path for path in (folder / "shards").iterdir() if not path.name.startswith(".")):
        info = read_info(place, Shard)
        tables = {name: as_bytes(read_table(place, name, info)) for name in TABLES}
        found.append(RealShard(Shard(**info["shard"]), info, tables))
    return found


def as_bytes(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def actor_class(about: dict[str, str]) -> type:
    """An actor with the methods of `WorkerActor`, defined here so that its process imports nothing of ours."""

    class MadeUpActor:
        def hello(self) -> tuple[dict[str, str], str]:
            return about, "one"

        def prepare(self, setup: Any) -> None:
            self.shards = setup.shards

        def look(self) -> None:
            return None

        def run(self, function: Any, arguments: Sequence[int]) -> tuple[Any, Any]:
            import sys

            assert "torch" not in sys.modules
            return SimpleNamespace(error=None, seconds=0.0), dict(self.shards[arguments[0]])

    return MadeUpActor


def stored(pool: WorkerPool, real: Sequence[RealShard], store: Store, spent: Spent, job: MadeUpJob) -> None:
    """Wait for a shard, and put it in its place."""
    began = time.perf_counter()
    content = pool.submit(len, job.of, what=job.shard.name).result()
    came = time.perf_counter()
    tables = {name: pa.ipc.open_stream(content[name]).read_all() for name in TABLES}
    info = {**real[job.of].info, "shard": vars(job.shard)}
    info = {key: value for key, value in info.items() if key not in ("study", "code", "tables")}
    FinishedShard(job.shard, tables["states"], tables["branches"], tables["readings"], info).store(store)
    with spent.lock:
        spent.waiting.append(came - began)
        spent.storing.append(time.perf_counter() - came)


def drive(pool: WorkerPool, real: Sequence[RealShard], store: Store, jobs: Sequence[MadeUpJob]) -> dict[str, float]:
    """All jobs, as a study's driver does them; numbers of what it took."""
    spent, finished = Spent(), []

    def do(group: Sequence[MadeUpJob]) -> list[None]:
        for job in group:
            stored(pool, real, store, spent, job)
        return [None] * len(group)

    wall, cpu = time.perf_counter(), time.process_time()
    reason = SideBySide(
        claims=Claims(store, lambda job: job.shard, print, finished.append, len(jobs)),
        groups=lambda left: [[job] for job in left],
        do=do,
        room=lambda: 2 * pool.size,
        stop=str,
        abandon=pool.close,
    ).work(jobs)
    assert not reason
    assert len(finished) == len(jobs) == len(store_names(store))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    size = sum(real[job.of].size for job in jobs)
    return {
        "shards": len(jobs),
        "seconds": wall,
        "shards/s": len(jobs) / wall,
        "MB/s": size / wall / 1e6,
        "driver's CPU seconds a shard": cpu / len(jobs),
        "ms to store a shard, median": 1000 * statistics.median(spent.storing),
        "ms until a shard came, median": 1000 * statistics.median(spent.waiting),
    }


def store_names(store: Store) -> list[str]:
    return [path.name for path in store.shards.iterdir() if not path.name.startswith(".")]


def ready(pool: WorkerPool, actors: int) -> None:
    """Wait until every actor has answered."""
    while len(pool.now().workers) < actors or sum(worker.ready for worker in list(pool._workers.values())) < actors:
        time.sleep(0.5)
        pool.submit(len, 0).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path, help="the folder of a finished study")
    parser.add_argument("--actors", type=int, default=64)
    parser.add_argument("--shards", type=int, default=640)
    parser.add_argument("--rate", type=float, default=321.0, help="row-forwards a second of one GPU")
    parser.add_argument("--per-shard", type=float, help="row-forwards of a shard")
    parser.add_argument("--json", type=Path, help="where the numbers go")
    args = parser.parse_args()
    real = shards_of(args.study)
    per_shard = args.per_shard or statistics.mean(shard.row_forwards for shard in real)
    jobs = [MadeUpJob(replace(real[at % len(real)].shard, block=at), at % len(real)) for at in range(args.shards)]
    setup: Any = SimpleNamespace(parcel=SimpleNamespace(files=()), shards=[shard.tables for shard in real])
    folder = Path(tempfile.mkdtemp(prefix="unmask-bench-"))
    cores = args.actors + 1
    ray.init(address="local", num_cpus=cores, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        store = Store.create(folder / "out", {"name": "bench"})
        about = identity()
        with WorkerPool(ray, Ray(workers=args.actors), setup, actor=actor_class(about)) as pool:
            ready(pool, args.actors)
            found = drive(pool, real, store, jobs)
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
    needed = args.actors * args.rate / per_shard
    found |= {
        "actors": args.actors,
        "MB of a shard": statistics.mean(shard.size for shard in real) / 1e6,
        "row-forwards of a shard": per_shard,
        "row-forwards/s of a GPU": args.rate,
        f"shards/s of {args.actors} GPUs": needed,
        "driver over GPUs": found["shards/s"] / needed,
        "shards/s of one free core": 1 / found["driver's CPU seconds a shard"],
        "GPUs that the driver keeps up with": found["shards/s"] * per_shard / args.rate,
    }
    for name, value in found.items():
        print(f"{name:40} {value:,.3f}" if isinstance(value, float) else f"{name:40} {value:,}")
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
