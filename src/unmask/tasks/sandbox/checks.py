"""Programs run and completions checked: what came of them, in a word and a detail."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from unmask.base.errors import require
from unmask.base.files import storable
from unmask.tasks.sandbox.limits import DEFAULT, Limits
from unmask.tasks.sandbox.probe import find_walls, probe
from unmask.tasks.sandbox.process import SandboxRun
from unmask.tasks.sandbox.run import run_jail
from unmask.tasks.sandbox.walls import KINDS, SandboxTrouble, Walls

Status: TypeAlias = Literal["pass", "fail", "error", "timeout", "unavailable"]


@dataclass(frozen=True)
class SandboxVerdict:
    """What came of one completion."""

    status: Status
    """`fail`: a test said no. `error`: the completion broke. `unavailable`: the evaluator did; do not score it."""
    detail: str
    mode: str
    """The walls, for the report: `namespace`, `bubblewrap` or `weak: ...`."""
    wall_s: float
    """Seconds from the start of the completion to the decision."""


@dataclass(frozen=True)
class ProgramResult:
    """What came of one program."""

    status: Literal["exited", "killed", "timeout", "unavailable"]
    exit_code: int | None
    """Only if it exited."""
    stdout: str
    stderr: str
    detail: str
    mode: str
    wall_s: float


def run_program(source: str, limits: Limits = DEFAULT, *, mode: str | None = None) -> ProgramResult:
    """Run a program in the sandbox and return what it printed and how it ended."""
    try:
        walls = find_walls(mode)
    except SandboxTrouble as trouble:
        return ProgramResult("unavailable", None, "", "", str(trouble), "none", 0.0)
    return run_behind(walls, source, limits)


def run_behind(walls: Walls, source: str, limits: Limits = DEFAULT) -> ProgramResult:
    """`run_program` behind given walls, whether or not they were found to hold."""
    run = run_jail({"kind": "program", "program": source}, {}, limits, walls)
    status, detail = _ending(run, limits)
    return ProgramResult(
        status,
        run.events.get("exit") if status == "exited" else None,
        run.stdout,
        run.stderr,
        detail,
        walls.text,
        run.wall_s,
    )


def check_completion(
    problem: Mapping[str, Any],
    completion: str,
    limits: Limits = DEFAULT,
    *,
    mode: str | None = None,
) -> SandboxVerdict:
    """Whether `prompt + completion` passes `test`, which defines `check(candidate)`."""
    _require_problem(problem, completion)
    return _check(problem, completion, limits, mode, threading.Event())


def check_many(
    items: Iterable[tuple[Mapping[str, Any], str]],
    workers: int = 2,
    on_done: Callable[[int, SandboxVerdict], None] | None = None,
    limits: Limits = DEFAULT,
    *,
    mode: str | None = None,
) -> list[SandboxVerdict]:
    """Check pairs of problem and completion, several at a time; the verdicts come in the order of the pairs.

    `on_done(index, verdict)` is called in this thread as each one ends. If anything is raised meanwhile, a
    `KeyboardInterrupt` for instance, all that still runs is killed before it goes on.
    """
    require(isinstance(workers, int) and workers >= 1, "workers", workers, "1 or more", "try the number of cores")
    pairs = list(items)
    for problem, completion in pairs:
        _require_problem(problem, completion)
    cancel = threading.Event()
    verdicts: dict[int, SandboxVerdict] = {}
    with ThreadPoolExecutor(workers) as pool:
        try:
            futures = {
                pool.submit(_check, problem, completion, limits, mode, cancel): index
                for index, (problem, completion) in enumerate(pairs)
            }
            for future in as_completed(futures):
                index = futures[future]
                verdicts[index] = future.result()
                if on_done:
                    on_done(index, verdicts[index])
        except BaseException:
            cancel.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return [verdicts[index] for index in range(len(pairs))]


def available_modes() -> list[str]:
    """The modes that work here, strongest first; the first is what runs use, unless it must be asked for by name."""
    modes = []
    for kind in KINDS:
        with contextlib.suppress(SandboxTrouble):
            modes.append(probe(kind).text)
    return modes


def _require_problem(problem: object, completion: object) -> None:
    """Of the caller, before anything runs; what a row of a data set lacks is for the verdict to say."""
    row = isinstance(problem, Mapping)
    require(row, "problem", problem, "a mapping of prompt, test and entry_point", "pass a problem of HumanEval")
    require(isinstance(completion, str), "completion", completion, "a text", "pass what completes the prompt")


def _check(
    problem: Mapping[str, Any], completion: str, limits: Limits, mode: str | None, cancel: threading.Event
) -> SandboxVerdict:
    try:
        walls = find_walls(mode)
    except SandboxTrouble as trouble:
        return SandboxVerdict("unavailable", str(trouble), "none", 0.0)
    return check_behind(walls, problem, completion, limits, cancel)


def check_behind(
    walls: Walls,
    problem: Mapping[str, Any],
    completion: str,
    limits: Limits = DEFAULT,
    cancel: threading.Event | None = None,
) -> SandboxVerdict:
    """`check_completion` behind given walls, whether or not they were found to hold."""
    try:
        prompt, test, entry = (_text(problem, key) for key in ("prompt", "test", "entry_point"))
    except SandboxTrouble as trouble:
        return SandboxVerdict("unavailable", str(trouble), walls.text, 0.0)
    job = {"kind": "check", "program": prompt + completion, "entry_point": entry}
    run = run_jail(job, {"prompt": prompt, "test": test, "entry_point": entry}, limits, walls, cancel)
    status, detail = _judgement(run, limits, walls)
    return SandboxVerdict(status, storable(detail), walls.text, run.wall_s)


def _text(problem: Mapping[str, Any], key: str) -> str:
    value = problem.get(key)
    if not isinstance(value, str):
        raise SandboxTrouble(f"the problem has no text under {key!r}")
    return value


def _judgement(run: SandboxRun, limits: Limits, walls: Walls) -> tuple[Status, str]:
    """What came of a check. Trouble after the decision, in clearing up, does not undo it."""
    if "verdict" in run.events:
        return run.events["verdict"], run.events["detail"]
    if run.timed_out:
        return "timeout", f"no answer within {limits.wall_s:g} s"
    if "lost" in run.events:
        status, how = _ending(run, limits)
        return ("timeout" if status == "timeout" else "error"), f"{how} before the checks were through"
    if "ready" in run.events and "broken" in run.events:
        return "error", run.events["broken"]
    if "ready" in run.events and walls.judge_in_reach and not run.trouble:
        return "error", "the process that checks was ended; in this mode the completion can do that"
    return "unavailable", run.trouble or "sandbox: the process that checks ended without a verdict"


def _ending(run: SandboxRun, limits: Limits) -> tuple[Literal["exited", "killed", "timeout", "unavailable"], str]:
    if run.timed_out:
        return "timeout", f"killed after {limits.wall_s:g} s"
    if "exit" not in run.events:
        if run.trouble:
            return "unavailable", run.trouble
        return "killed", "the process that watched the program was ended"
    number, cpu_s = run.events["signal"], run.events["cpu_s"]
    if number == signal.SIGXCPU or (number == signal.SIGKILL and cpu_s >= limits.cpu_s):
        return "timeout", f"used up {limits.cpu_s:g} s of processor time"
    if number:
        return "killed", f"the completion's process was killed by signal {number}"
    return "exited", f"the completion's process exited with code {run.events['exit']}"
