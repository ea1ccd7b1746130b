"""The checker: runs the tests on the worker's answers, and decides."""

import json
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import Any

from . import linux
from .candidate import GONE, Candidate, Lost
from .confine import confine
from .pipes import ANSWER_BYTES, FRAME_BYTES, Job, describe, emit, read_frame, send_frame
from .processes import end_group, ending, fork, wake_on_child
from .worker import work

PATIENCE_S = 0.5
"""How long a worker whose pipe is closed has to end."""


def guarded_check(job: Job, job_fd: int, event_fd: int, null_fd: int) -> None:
    """`check`, whose own failures are trouble of the evaluator."""
    try:
        check(job, job_fd, event_fd, null_fd)
    except BaseException as error:
        emit(event_fd, trouble=f"sandbox: {describe(error)}")


def check(job: Job, job_fd: int, event_fd: int, null_fd: int) -> None:
    """Fork the worker, shut both in, then let it start and judge what it answers."""
    if sys.platform == "linux":
        linux.die_with_parent()
    calls_out, calls_in = os.pipe()
    answers_out, answers_in = os.pipe()
    worker = fork(lambda: work(job, calls_out, answers_in, null_fd))
    os.close(calls_out)
    os.close(answers_in)
    for stream in (0, 1, 2):
        os.dup2(null_fd, stream)
    signal.signal(signal.SIGTERM, lambda *_: end_group(worker))
    tests = json.loads(read_frame(job_fd, FRAME_BYTES))
    hello = json.loads(read_frame(answers_out, ANSWER_BYTES) or b'{"trouble": "the worker died"}')
    if "trouble" in hello:
        emit(event_fd, trouble=f"sandbox: {hello['trouble']}")
        return
    confine(job, worker=False)
    emit(event_fd, ready=True)
    send_frame(calls_in, b"go")
    if job["kind"] == "program":
        emit(event_fd, **ending(worker))
    else:
        candidate = Candidate(worker, calls_in, answers_out)
        try:
            outcome = judge(tests, candidate)
        except BaseException as error:
            # Whatever went wrong from here on, the completion had a part in it.
            outcome = {"verdict": "error", "detail": f"the process that checks failed: {describe(error)}"}
        emit(event_fd, **outcome)
    end_group(worker)


def judge(tests: dict[str, str], candidate: Candidate) -> dict[str, object]:
    """Run the tests on the candidate, and say what came of it."""
    try:
        run_check = prepare(tests, candidate)
    except BaseException as error:
        return {"trouble": f"the problem itself is broken: {describe(error)}"}
    try:
        candidate.ask()
    except Lost:
        return lost(candidate)
    except BaseException as error:
        return {"verdict": "error", "detail": f"the completion does not load: {describe(error)}"}
    candidate.raised.clear()
    try:
        run_check(candidate)
    except BaseException as error:
        return failed(error, candidate, tests)
    if candidate.lost:
        return lost(candidate)
    if candidate.unsendable:
        return unsendable(candidate)
    if kept := candidate.swallowed():
        return {"verdict": "error", "detail": f"the completion raised {describe(kept)}, which no test expects"}
    return {"verdict": "pass", "detail": "all checks passed"}


def prepare(tests: dict[str, str], candidate: Candidate) -> Callable[[Candidate], object]:
    """Define what the tests need: helpers from the prompt, the entry point under its own name, and `check`."""
    names: dict[str, Any] = {"__name__": "checks"}
    try:
        prompt = compile(tests["prompt"], "<prompt>", "exec")
    except SyntaxError:
        # A signature without a docstring is not yet a function.
        prompt = compile(tests["prompt"] + "\n    pass\n", "<prompt>", "exec")
    exec(prompt, names)
    names[tests["entry_point"]] = candidate
    exec(compile(tests["test"], "<test>", "exec"), names)
    return names["check"]


def failed(error: BaseException, candidate: Candidate, tests: dict[str, str]) -> dict[str, object]:
    """Whose fault it is that the tests did not finish."""
    if candidate.lost:
        return lost(candidate)
    if candidate.unsendable:
        return unsendable(candidate)
    if any(error is raised for raised in candidate.raised):
        return {"verdict": "error", "detail": f"the completion raised {describe(error)}"}
    if not candidate.called:
        return {"trouble": f"the tests failed before they called the completion: {describe(error)}"}
    return {"verdict": "fail", "detail": f"{describe(error)}{place(error, tests['test'])}"}


def unsendable(candidate: Candidate) -> dict[str, object]:
    """Before the first call the value is the tests' own; afterwards it may be made of what the completion returned."""
    return (
        {"verdict": "fail", "detail": candidate.unsendable} if candidate.called else {"trouble": candidate.unsendable}
    )


def lost(candidate: Candidate) -> dict[str, object]:
    """What happened to a worker that does not answer: it may be dead, or alive with its pipe closed."""
    if candidate.lost == GONE:
        wakeup = wake_on_child()
        how = ending(candidate.worker, os.WNOHANG)
        if not how:
            select.select([wakeup], [], [], PATIENCE_S)
            how = ending(candidate.worker, os.WNOHANG)
        if how:
            return {"lost": candidate.lost, **how}
    return {"verdict": "error", "detail": candidate.lost}


def place(error: BaseException, source: str) -> str:
    """The line of the tests at which an exception came up."""
    line, step = 0, error.__traceback__
    while step:
        if step.tb_frame.f_code.co_filename == "<test>":
            line = step.tb_lineno
        step = step.tb_next
    text = source.split("\n")[line - 1].strip()
    return f" (line {line} of the tests: {text[:200]})" if line else ""
