"""Files that users and other programs write, mutated: read, or refused in a sentence; never a traceback."""

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.reliability.case import Case, Goal
from tests.reliability.flips import damaged
from tests.reliability.limits import bounded, lost_device, make_devices
from tests.reliability.made import LINES, OWN, STUDY, WORKS, Made
from tests.reliability.process import Ended, unmask

COMPARE = ("compare", "--model", "mini", "--task", "carry-rtl", "--split", "fresh", "--prompts", 1, "--steps", 1)


def try_case(case: Case, folder: Path, made: Made) -> str | None:
    return KINDS[case.number % len(KINDS)](case, folder, made)


def _judged(what: str, ended: Ended) -> str | None:
    if ended.trouble:
        return f"{what}: {ended.trouble}"
    if ended.code == 2 and not any(line.startswith("error:") for line in ended.err.splitlines()):
        return f"{what}: refused without an error: {ended.err[-300:]}"
    return None


def _mutate(path: Path, case: Case) -> str:
    kind, content = damaged(path.read_bytes(), case.rng)
    path.write_bytes(content)
    return f"{path.name}, {kind}"


def _study(case: Case, folder: Path, made: Made) -> str | None:
    WORKS["study"].prepare(folder)
    what = _mutate(folder / ("study.toml" if case.number % 2 else "mine.jsonl"), case)
    return _judged(f"study run, {what}", unmask(*WORKS["study"].arguments, folder=folder, first=bounded))


def _gate(case: Case, folder: Path, made: Made) -> str | None:
    made.copy("gate", folder)
    what = _mutate(folder / "gate.json", case)
    command = ("generate", "--model", "exact", "ab", "--max-new-tokens", 4, "--gate", "gate.json")
    return _judged(f"generate --gate, {what}", unmask(*command, folder=folder, first=bounded))


def _checkpoint(case: Case, folder: Path, made: Made) -> str | None:
    """A small model's folder; the weights are those that were trained here."""
    shutil.copytree(made.folder / "training" / "trained" / "model", folder / "model")
    # The template is written by whoever publishes a model.
    what = _mutate(case.rng.choice(sorted((folder / "model").iterdir())), case)
    command = ("generate", "--model", "./model", "1+1", "--max-new-tokens", 4, "--steps", 2)
    return _judged(f"a checkpoint's {what}", unmask(*command, folder=folder, first=bounded))


def _trajectory(case: Case, folder: Path, made: Made) -> str | None:
    import torch

    from unmask import Trajectory, UnmaskError, load

    torch.set_num_threads(1)
    path = folder / "run.npz"
    load("exact").generate("ab", max_new_tokens=4).trajectory.save(path)
    what = _mutate(path, case)
    bounded()
    try:
        Trajectory.load(path)
    except UnmaskError:
        pass
    except Exception as error:
        return f"Trajectory.load, {what}: {type(error).__name__}: {error}"
    return None


def _training(case: Case, folder: Path, made: Made) -> str | None:
    WORKS["training"].prepare(folder)
    what = _mutate(folder / "train.toml", case)
    ended = unmask(*WORKS["training"].arguments, "--steps", 1, folder=folder, first=bounded)
    return _judged(f"train, {what}", ended)


def _picks(case: Case, folder: Path, made: Made) -> str | None:
    made.copy("comparison", folder)
    what = _mutate(folder / "compared" / "summary.json", case)
    command = (*COMPARE, "--policies-from", "compared/summary.json", "--resamples", 5)
    return _judged(f"compare --policies-from, {what}", unmask(*command, folder=folder, first=bounded))


def _predictions(case: Case, folder: Path, made: Made) -> str | None:
    (folder / "answers.jsonl").write_text(LINES.replace("prompt", "text"), encoding="utf-8")
    what = _mutate(folder / "answers.jsonl", case)
    command = ("tasks", "score", "carry-rtl", "--predictions", "answers.jsonl", "--explain")
    return _judged(f"tasks score, {what}", unmask(*command, folder=folder, first=bounded))


def _strange(case: Case, folder: Path, made: Made) -> str | None:
    """Not a file at all: a folder, a pipe that nobody writes to, a device, a link to itself, a path too long."""
    rng = case.rng
    (folder / "mine.jsonl").write_text(LINES, encoding="utf-8")
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to("loop")
    make_devices(folder)
    place = rng.choice(
        ("folder", "loop", "full", "null", "n" * 300, "n/" * 3000 + "n", "no/such", "\0", "mine.jsonl/x")
    )
    commands = (
        ("study", "run", place, "--out", "out"),
        ("study", "run", "study.toml", "--out", place),
        ("study", "report", place),
        ("study", "status", place),
        ("generate", "--model", "exact", "ab", "--gate", place),
        ("generate", "--model", f"./{place}"),
        ("calibrate", "--model", "exact", *OWN, "--axis", "region", "--out", place, "--prompts", 2),
        ("tasks", "score", "carry-rtl", "--predictions", place),
        ("tasks", "show", "carry-rtl", "--out", place),
        ("train", "--config", place, "--out", "out"),
        (*COMPARE, "--policies-from", place),
        (*COMPARE, "--out", place),
    )
    command = rng.choice(commands)
    shown = " ".join(map(str, command))[:120]
    failure = _judged(shown, unmask(*command, folder=folder, first=bounded))
    if lost := lost_device(folder):
        return f"{shown}: {lost}"
    return failure


KINDS: tuple[Callable[[Case, Path, Made], str | None], ...] = (
    _study,
    _gate,
    _checkpoint,
    _strange,
    _predictions,
    _trajectory,
    _checkpoint,
    _training,
    _study,
    _strange,
    _picks,
)
GOAL = Goal("files", "mutated and strange files", try_case, sample=36, needs=("gate", "comparison", "training"))
