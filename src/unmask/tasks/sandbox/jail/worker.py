"""The worker: runs the completion, and answers calls to it."""

import atexit
import contextlib
import json
import os
import resource
import sys
import types
from collections.abc import Callable
from typing import NoReturn

from . import exceptions, values
from .confine import confine
from .pipes import ANSWER_BYTES, FRAME_BYTES, Job, describe, read_frame, send_frame


def work(job: Job, calls_out: int, answers_in: int, null_fd: int) -> None:
    """Shut this process in, then run the completion and answer calls to it."""
    try:
        os.setsid()
        calls_out, answers_in = keep_only(calls_out, answers_in, null_fd)
        confine(job, worker=True)
        os.environ.clear()
        sys.argv = [""]
    except BaseException as error:
        send_frame(answers_in, json.dumps({"trouble": describe(error)}).encode())
        return
    send_frame(answers_in, b"{}")
    read_frame(calls_out, ANSWER_BYTES)
    if job["kind"] == "program":
        os.close(calls_out)
        os.close(answers_in)
        run_as_program(job["program"])
    answer_calls(job["program"], job["entry_point"], calls_out, answers_in)


def keep_only(calls_out: int, answers_in: int, null_fd: int) -> tuple[int, int]:
    """Close every file but the output streams and our two pipes, which become 3 and 4; input is empty."""
    os.dup2(null_fd, 0)
    moved = [os.dup(calls_out), os.dup(answers_in)]
    while min(moved) < 5:
        moved = [os.dup(fd) for fd in moved]
    os.dup2(moved[0], 3)
    os.dup2(moved[1], 4)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    os.closerange(5, most if most > 0 else 1 << 16)
    return 3, 4


def run_as_program(source: str) -> NoReturn:
    """Like `python file.py`, to the exit code."""
    code = 0
    sys.modules["__main__"] = module = types.ModuleType("__main__")
    try:
        exec(compile(source, "<program>", "exec"), module.__dict__)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    with contextlib.suppress(BaseException):
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code & 0xFF)


def answer_calls(source: str, entry_point: str, calls_out: int, answers_in: int) -> None:
    """Load the completion, then answer one call after the other. The first answer says whether it loads."""
    module = types.ModuleType("completion")
    sys.modules["completion"] = module
    send_frame(answers_in, attempt(lambda: load(source, entry_point, module)))
    while question := read_frame(calls_out, FRAME_BYTES):
        args, kwargs = values.loads(question)
        send_frame(answers_in, attempt(lambda a, k: getattr(module, entry_point)(*a, **k), args, kwargs))
    sys.stdout.flush()


def load(source: str, entry_point: str, module: types.ModuleType) -> None:
    """Run the completion, which must leave the function it was asked for."""
    exec(compile(source, "<completion>", "exec"), module.__dict__)
    if not callable(module.__dict__.get(entry_point)):
        raise NameError(f"there is no function {entry_point!r} after the completion has run")


def attempt(action: Callable[..., object], *args: object) -> bytes:
    """The answer to one call: what it returned, or what it raised."""
    try:
        return values.dumps(["return", action(*args)], strict=False)
    except BaseException as error:
        return raised(error)


def raised(error: BaseException) -> bytes:
    """The answer of a call that raised: with its arguments if they can cross, else with its message alone."""
    with contextlib.suppress(BaseException):
        answer = values.dumps(["raise", error], strict=False)
        if len(answer) <= ANSWER_BYTES:
            return answer
    return values.dumps(["raise", exceptions.brief(error)], strict=False)
