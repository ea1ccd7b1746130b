"""Training: one run per folder, checkpoints that are what they say, files that follow the umask."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.torture.case import Case, Failure, Goal
from tests.torture.flips import flip
from tests.torture.made import WORKS, Made
from tests.torture.process import unmask

WORK = WORKS["training"]
MASKS = (0o022, 0o027, 0o077, 0o002)


def try_case(case: Case, folder: Path, made: Made) -> Failure | None:
    return KINDS[case.number % len(KINDS)](case, folder, made)


def _two(case: Case, folder: Path, made: Made) -> Failure | None:
    """A second training in a folder where one is at work: refused, and the first ends as if alone."""
    made.copy("training", folder)
    _unfinished(folder)
    # The first holds its folder, stopped in the middle, while the second starts.
    first = _Paused(folder, at=case.rng.choice((1, 2)))
    second = WORK.run(folder)
    ended = first.go_on()
    if second.trouble or second.code != 2:
        return Failure(f"a second training beside the first: exit code {second.code}, {second.trouble or second.last}")
    if ended or WORK.outcome(folder, second) != made.outcome("training"):
        return Failure(f"the first training ended with {ended}, or with other weights")
    return None


def _unfinished(folder: Path) -> None:
    """As if it had been killed before the export: it goes on from its last checkpoint."""
    model = folder / "trained" / "model"
    for path in model.iterdir():
        path.unlink()
    model.rmdir()


class _Paused:
    """A training that waits in the middle of its steps until it is told to go on."""

    def __init__(self, folder: Path, at: int):
        from unmask.train.trainer import Trainer

        told, self._tell = os.pipe()
        reached, reach = os.pipe()
        step, count = Trainer.step, [0]

        def waiting(trainer: Any, *arguments: Any, **named: Any) -> Any:
            count[0] += 1
            if count[0] == at:
                os.write(reach, b"x")
                os.read(told, 1)
            return step(trainer, *arguments, **named)

        def first() -> None:
            Trainer.step = waiting  # type: ignore[method-assign]

        self._pid = os.fork()
        if not self._pid:
            os._exit(unmask(*WORK.arguments, folder=folder, first=first).code)
        os.close(reach)
        os.read(reached, 1)

    def go_on(self) -> int:
        os.write(self._tell, b"x")
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


def _flipped(case: Case, folder: Path, made: Made) -> Failure | None:
    """A bit of the newest checkpoint: noticed, or the same weights in the end."""
    made.copy("training", folder)
    _unfinished(folder)
    newest = sorted((folder / "trained" / "checkpoints").glob("step-*"))[-1]
    newest = case.rng.choice(sorted(p for p in newest.rglob("*") if p.is_file())) if newest.is_dir() else newest
    what = flip(newest, case.rng)
    ended = WORK.run(folder)
    if ended.trouble:
        return Failure(f"{what}: {ended.trouble}")
    if ended.code == 0 and WORK.outcome(folder, ended) != made.outcome("training"):
        return Failure(f"{what}: other weights, silently")
    return None


def _modes(case: Case, folder: Path, made: Made) -> Failure | None:
    """Files and folders get the permissions that the umask leaves, from every command that writes."""
    mask = MASKS[case.number // len(KINDS) % len(MASKS)]
    work = WORKS[list(WORKS)[::-1][case.number // len(KINDS) % len(WORKS)]]
    work.prepare(folder)
    there = set(folder.rglob("*"))
    ended = work.run(folder, first=lambda: os.umask(mask))
    if ended.trouble or ended.code:
        return Failure(f"umask {mask:o}: {ended.trouble or ended.last}")
    wrong = list(_wrong(set(folder.rglob("*")) - there, mask))
    return Failure(f"umask {mask:o}: {', '.join(wrong[:6])}") if wrong else None


def _wrong(paths: set[Path], mask: int) -> Iterator[str]:
    for path in sorted(paths):
        mode, want = path.stat().st_mode & 0o777, (0o777 if path.is_dir() else 0o666) & ~mask
        # A lock is nobody's to read.
        if mode != want and path.suffix != ".lock":
            yield f"{path.name} has mode {mode:o} and not {want:o}"


KINDS: tuple[Callable[[Case, Path, Made], Failure | None], ...] = (_two, _flipped, _modes)
GOAL = Goal("training", "one run per folder, true checkpoints", try_case, sample=8, needs=("training",))
