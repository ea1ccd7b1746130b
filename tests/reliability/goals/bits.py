"""Single bits turned over in everything that is stored: noticed, redone or harmless, and never other numbers."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.reliability.case import Case, Goal
from tests.reliability.flips import flip
from tests.reliability.made import Made, Work, digest
from tests.reliability.process import Ended, unmask


def try_case(case: Case, folder: Path, made: Made) -> str | None:
    return KINDS[case.number % len(KINDS)](case, folder, made)


def _study(case: Case, folder: Path, made: Made) -> str | None:
    """`check` notices, `report` refuses or says the same, `run` redoes what is damaged."""
    work = made.copy("study", folder)
    before = report(folder, "before")
    path = case.rng.choice([p for p in sorted((folder / "study").rglob("*")) if p.is_file() and p.stat().st_size])
    what = flip(path, case.rng)
    found = [*_checked(path, folder), differs(report(folder, "after"), before), *_redone(path, work, folder, made)]
    return f"study, {what}: {'; '.join(filter(None, found))}" if any(found) else None


def _checked(path: Path, folder: Path) -> Iterator[str]:
    checked = unmask("study", "status", "--verify", "study", folder=folder)
    if checked.trouble or checked.code not in (0, 1):
        yield f"check: {checked.trouble or checked.last}"
    elif path.suffix == ".parquet" and not (checked.code == 1 and path.parent.name in checked.out + checked.err):
        yield "check does not name the shard"


def _redone(path: Path, work: Work, folder: Path, made: Made) -> Iterator[str]:
    ended = work.run(folder)
    if ended.trouble or (ended.code and path.suffix == ".parquet"):
        yield f"run: {ended.trouble or ended.last}"
    elif ended.code == 0 and work.outcome(folder, ended) != made.outcome("study"):
        yield "run ends with other tables"
    elif ended.code == 0 and unmask("study", "status", "--verify", "study", folder=folder).code:
        yield "run leaves the damage there"


def report(folder: Path, name: str) -> tuple[Ended, dict[str, str]]:
    """What a report says: hashes of all its files."""
    ended = unmask("study", "report", "study", "--out", name, folder=folder)
    return ended, {p.name: digest(p) for p in sorted((folder / name).rglob("*")) if p.is_file()}


def differs(after: tuple[Ended, dict[str, str]], before: tuple[Ended, dict[str, str]]) -> str:
    """What is wrong with a second report: only a clear refusal or the same files will do."""
    ended, files = after
    if ended.trouble:
        return f"report: {ended.trouble}"
    if ended.code:
        return "" if ended.last.startswith("error:") else f"report: exit code {ended.code} without an error"
    changed = [name for name in {**files, **before[1]} if files.get(name) != before[1].get(name)]
    return f"report: other numbers, silently, in {', '.join(sorted(changed)[:5])}" if changed else ""


def _gate(case: Case, folder: Path, made: Made) -> str | None:
    """A gate decodes as before, or not at all."""
    made.copy("gate", folder)
    command = ("generate", "--model", "exact", "ab", "--gate", "gate.json", "--max-new-tokens", 4, "--json")
    before = unmask(*command, folder=folder)
    what = flip(folder / "gate.json", case.rng)
    after = unmask(*command, folder=folder)
    if after.trouble:
        return f"generate --gate, {what}: {after.trouble}"
    if after.code == 0 and _decoded(after) != _decoded(before):
        return f"generate --gate, {what}: decodes, and not as before"
    return None


def _decoded(ended: Ended) -> str:
    """All but times."""
    return "\n".join(line for line in ended.out.splitlines() if "seconds" not in line)


def _again(name: str, case: Case, folder: Path, made: Made) -> str | None:
    """A folder that the same command finds its earlier work in: the same results, or refused."""
    work = made.copy(name, folder)
    if name == "training":
        # Then it goes on from its last checkpoint.
        for path in (folder / "trained" / "model").iterdir():
            path.unlink()
        (folder / "trained" / "model").rmdir()
    # The curve is for people, and is written anew from the checkpoint.
    there = [p for p in sorted((folder / work.out).rglob("*")) if p.is_file() and p.stat().st_size]
    what = flip(case.rng.choice(there), case.rng)
    ended = work.run(folder)
    if ended.trouble:
        return f"{name}, {what}: {ended.trouble}"
    if ended.code == 0 and work.outcome(folder, ended) != made.outcome(name):
        return f"{name}, {what}: other results, silently"
    return None


def _trajectory(case: Case, folder: Path, made: Made) -> str | None:
    """A saved run is read as it was, or refused."""
    import torch

    from unmask import Trajectory, UnmaskError, load

    torch.set_num_threads(1)
    path = folder / "run.npz"
    load("exact").generate("ab", max_new_tokens=4, seed=case.number).trajectory.save(path)
    before = Trajectory.load(path).to_bytes()
    what = flip(path, case.rng)
    try:
        after = Trajectory.load(path)
    except UnmaskError:
        return None
    except Exception as error:
        return f"Trajectory.load, {what}: {type(error).__name__}: {error}"
    return None if after.to_bytes() == before else f"Trajectory.load, {what}: another run, silently"


Kind = Callable[[Case, Path, Made], str | None]
KINDS: tuple[Kind, ...] = (
    _study,
    partial(_again, "training"),
    _study,
    _gate,
    _study,
    partial(_again, "comparison"),
    _trajectory,
)
GOAL = Goal(
    "bits",
    "single bits flipped in stored files",
    try_case,
    sample=14,
    needs=("study", "gate", "comparison", "training"),
)
