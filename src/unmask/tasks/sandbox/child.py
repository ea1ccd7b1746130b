"""The interpreter that runs a completion: a process that checks, and a worker forked from it that runs the code.

The worker loads the completion and answers calls. The process that checks runs the tests, whose candidate sends its
arguments to the worker and gets values back, and decides. It reads the tests after the fork, so the worker's memory
never held them, and only it holds the socket for the outcome, a line of JSON:

    {"ready": true}                     the isolation stands and the clock starts
    {"status": ..., "detail": ...}      outcome of the completion
    {"trouble": ...}                    the evaluator's fault, never the completion's

Nothing of the library is imported here but `confine` and `values`, which need the standard library alone.
"""

import _thread
import builtins
import json
import os
import signal
import sys
import time
import types
from typing import Any, NoReturn

from . import confine, values

ANSWER_BYTES, FRAME_BYTES = 4 << 20, 256 << 20
"""Longest answer to one call, and longest frame of all."""
PATIENCE_S = 0.5
"""Seconds to wait for a worker to end after its pipe was closed."""
SWALLOWED = (StopIteration, StopAsyncIteration, AttributeError)
"""Exceptions that Python itself catches: `list(map(candidate, ...))` would just end, and `hasattr` return False.

They end the check at once, as does every exception that is no `Exception`: else a completion could pass by raising one.
"""
NOT_LOADED = "the completion does not load:"


class CheckEnded(BaseException):
    """Exception that ends the check once its outcome is known. Tests that catch `Exception` do not catch it."""


def main() -> None:
    """Read a job from the socket at standard input, check the completion, and send the outcome through the socket."""
    fd = os.dup(0)
    try:
        run_checker(fd)
    except BaseException as error:
        send_event(fd, trouble=f"sandbox: {describe_exception(error)}")


def send_event(fd: int, **event: object) -> None:
    """Send one event to the parent process, as a line of JSON."""
    os.write(fd, json.dumps(event).encode("ascii") + b"\n")


def run_checker(fd: int) -> None:
    """Fork a worker for the completion, run the tests against it, and send the outcome to the parent process."""
    is_linux = sys.platform == "linux"
    if is_linux:
        confine.die_with_parent()
    job = json.loads(read_frame(fd, FRAME_BYTES))
    null = os.open(os.devnull, os.O_RDWR)
    if is_linux:
        confine.lower_limits(job["memory_mb"])
    os.chdir(job["work"])
    if job["isolation"] == "landlock":
        confine.restrict_files(job["readable"], job["work"])
    # Forked before the tests are read from the socket: what this process never held, the worker cannot find in memory.
    calls_out, calls_in = os.pipe()
    answers_out, answers_in = os.pipe()
    worker = os.fork()
    if worker == 0:
        try:
            run_worker(job, calls_out, answers_in, null)
        finally:
            os._exit(70)
    os.close(calls_out)
    os.close(answers_in)
    # Tests may print. Standard input was the socket: only `fd` leads to it now.
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    tests = json.loads(read_frame(fd, FRAME_BYTES))
    hello = json.loads(read_frame(answers_out, ANSWER_BYTES) or b'{"trouble": "the worker died"}')
    if "trouble" in hello:
        send_event(fd, trouble=f"sandbox: {hello['trouble']}")
        return
    # Only now, because the filter refuses to fork, and lets signals pass to this worker alone.
    confine_process(job["isolation"], worker)
    send_event(fd, ready=True)
    candidate = Candidate(worker, calls_in, answers_out, job["cpu_s"])
    try:
        outcome = run_tests(tests, candidate)
    except BaseException as error:
        # Whatever went wrong from here on, the completion had a part in it.
        outcome = {"status": "error", "detail": f"the process that checks failed: {describe_exception(error)}"}
    send_event(fd, **outcome)
    if not candidate.is_reaped:
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)


def confine_process(isolation: str, *others: int) -> None:
    """Drop the privileges of this process and filter its system calls, for good. It may send signals to `others`."""
    if sys.platform == "linux":
        confine.drop_privileges()
        confine.die_with_parent()
        confine.hide_memory()
    if isolation != "off":
        confine.refuse_calls(*others)
        confine.check_isolation(landlock=isolation == "landlock")


# The process that checks


class Candidate:
    """Stand-in for the function under test: each call is sent to the worker, which runs the completion."""

    def __init__(self, worker: int, calls_in: int, answers_out: int, cpu_s: float):
        self.worker, self.calls_in, self.answers_out, self.cpu_s = worker, calls_in, answers_out, cpu_s
        self.called = self.is_reaped = False
        self.outcome: dict[str, object] = {}
        """Outcome that ended the check; nothing that the tests do afterwards changes it."""

    def __call__(self, *args: object, **kwargs: object) -> Any:
        try:
            question = values.dumps([list(args), kwargs], strict=True)
        except values.BadValue as error:
            # Before the first call the value is the tests' own; afterwards it may be made of what the completion said.
            wrong = f"the tests pass {error}, which the sandbox cannot hand to the completion"
            self.end_check(**({"status": "fail", "detail": wrong} if self.called else {"trouble": wrong}))
        self.called = True
        return self.ask_worker(question)

    def ask_worker(self, question: bytes | None = None) -> Any:
        """Send a call to the worker, if one is given; return its answer, or raise what the completion raised."""
        if self.outcome:
            raise CheckEnded
        try:
            if question is not None:
                send_frame(self.calls_in, question)
            data = read_frame(self.answers_out, ANSWER_BYTES)
            if not data:
                raise BrokenPipeError
            kind, content = values.loads(data)
            if kind == "return":
                return content
            built_in, name, args, words = content
            if kind != "raise" or not all(isinstance(text, str) for text in (built_in, name, words)):
                raise values.BadValue("neither returned nor raised")
            error = rebuild_exception(built_in, args, words)
        except BrokenPipeError:
            self.end_check(**self.describe_lost_worker())
        except Exception as wrong:
            detail = f"the completion's process sent an answer that is no answer: {describe_exception(wrong)}"
            self.end_check(status="error", detail=detail)
        error.raised_by_completion = f"{name}: {words}".rstrip(": ")[:500]  # type: ignore[attr-defined]
        if isinstance(error, SWALLOWED) or not isinstance(error, Exception):
            self.end_check(status="error", detail=self.describe_completion_error(error))
        raise error

    def describe_completion_error(self, error: BaseException) -> str:
        """Describe an exception that the completion raised; return an empty text for any other exception."""
        raised = getattr(error, "raised_by_completion", "")
        return raised and f"{'the completion raised' if self.called else NOT_LOADED} {raised}"

    def end_check(self, **outcome: object) -> NoReturn:
        """Set the outcome and end the check by raising `CheckEnded`."""
        self.outcome = outcome
        raise CheckEnded

    def describe_lost_worker(self) -> dict[str, object]:
        """Return the outcome for a worker that has ended, or has closed its pipe."""
        # The pipe closes a moment before the process can be waited for.
        stop = time.monotonic() + PATIENCE_S
        pid = 0
        while not pid and time.monotonic() < stop:
            pid, status, usage = os.wait4(self.worker, os.WNOHANG)
            time.sleep(0 if pid else 0.005)
        if not pid:
            return {"status": "error", "detail": "the completion's process ended or closed its files"}
        self.is_reaped = True
        code, used_s = os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
        if code == -signal.SIGXCPU or (code == -signal.SIGKILL and used_s >= self.cpu_s):
            how = f"used up {self.cpu_s:g} s of processor time"
            return {"status": "timeout", "detail": f"{how} before the checks were through"}
        how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
        return {"status": "error", "detail": f"the completion's process {how} before the checks were through"}


def rebuild_exception(built_in: str, args: Any, words: str) -> BaseException:
    """Make an exception of the built-in class nearest to the one that the completion raised."""
    kind = getattr(builtins, built_in)
    if not issubclass(kind, BaseException):
        raise values.BadValue("an exception of no class")
    try:
        error: BaseException = kind(*args)
    except Exception:
        # It takes other arguments than it keeps.
        error = Exception(words)
    return error


def run_tests(tests: dict[str, str], candidate: Candidate) -> dict[str, object]:
    """Run a problem's tests on the candidate, and return the outcome."""
    # Helpers come from the prompt, whatever the completion redefines, and call the candidate under its own name.
    names: dict[str, Any] = {"__name__": "checks"}
    try:
        try:
            prompt = compile(tests["prompt"], "<prompt>", "exec")
        except SyntaxError:
            # A signature without a docstring is not yet a function.
            prompt = compile(tests["prompt"] + "\n    pass\n", "<prompt>", "exec")
        exec(prompt, names)
        names[tests["entry_point"]] = candidate
        exec(compile(tests["test"], "<test>", "exec"), names)
        run_check = names["check"]
    except BaseException as error:
        return {"trouble": f"the problem itself is broken: {describe_exception(error)}"}
    try:
        candidate.ask_worker()  # The first answer says whether the completion loads.
        run_check(candidate)
    except BaseException as error:
        if candidate.outcome:
            return candidate.outcome
        if raised := candidate.describe_completion_error(error):
            return {"status": "error", "detail": raised}
        if not candidate.called:
            return {"trouble": f"the tests failed before they called the completion: {describe_exception(error)}"}
        return {"status": "fail", "detail": f"{describe_exception(error)}{describe_failing_line(error, tests['test'])}"}
    return candidate.outcome or {"status": "pass", "detail": "all checks passed"}


def describe_failing_line(error: BaseException, source: str) -> str:
    """Describe the line of the tests at which an exception was raised."""
    # The last line of the tests on the way: below it are helpers and this module.
    line, step = 0, error.__traceback__
    while step:
        if step.tb_frame.f_code.co_filename == "<test>":
            line = step.tb_lineno
        step = step.tb_next
    text = source.split("\n")[line - 1].strip()
    return f" (line {line} of the tests: {text[:200]})" if line else ""


# The worker


def run_worker(job: dict[str, Any], calls_out: int, answers_in: int, null: int) -> None:
    """Confine this process, load the completion, and answer one call after the other."""
    try:
        # Every file is closed but the two pipes, which become 3 and 4; output goes where it went before. The pipes'
        # own numbers are higher: what was opened first took the lower ones.
        os.dup2(null, 0)
        os.dup2(1, 2)
        calls_out, answers_in = os.dup2(calls_out, 3), os.dup2(answers_in, 4)
        os.closerange(5, confine.OPEN_FILES)
        if sys.platform == "linux":
            confine.lower_worker_limits(job["cpu_s"])
            _thread.stack_size(confine.STACK_BYTES)
        confine_process(job["isolation"])
        # Also of the variables that this interpreter was started with.
        os.environ.clear()
        sys.argv = [""]
    except BaseException as error:
        send_frame(answers_in, json.dumps({"trouble": describe_exception(error)}).encode())
        return
    send_frame(answers_in, b"{}")
    sys.modules["completion"] = module = types.ModuleType("completion")
    entry_point = job["entry_point"]

    def load_completion() -> None:
        exec(compile(job["program"], "<completion>", "exec"), module.__dict__)
        if not callable(module.__dict__.get(entry_point)):
            raise NameError(f"there is no function {entry_point!r} after the completion has run")

    send_frame(answers_in, answer_call(load_completion))
    while question := read_frame(calls_out, FRAME_BYTES):
        args, kwargs = values.loads(question)
        send_frame(answers_in, answer_call(lambda a, k: getattr(module, entry_point)(*a, **k), args, kwargs))


def answer_call(action: Any, *arguments: object) -> bytes:
    """Call a function, and encode the value that it returned or the exception that it raised."""
    try:
        return values.dumps(["return", action(*arguments)], strict=False)
    except BaseException as error:
        # The nearest built-in class of an exception of the completion's own; there always is one.
        kinds = [kind.__name__ for kind in type(error).__mro__ if getattr(builtins, kind.__name__, None) is kind]
        name, words = type(error).__name__, exception_message(error)
        try:
            answer = values.dumps(["raise", [kinds[0], name, list(error.args), words]], strict=False)
            if len(answer) <= ANSWER_BYTES:
                return answer
        except BaseException:
            pass
        return values.dumps(["raise", [kinds[0], name[:100], [words[:400]], words[:400]]], strict=False)


# Frames, and errors in words


def send_frame(fd: int, data: bytes) -> None:
    """Write a frame: the length of the data in four bytes, then the data."""
    rest = memoryview(len(data).to_bytes(4, "big") + data)
    # A pipe takes what fits: one write may take a part of the frame only.
    while rest:
        rest = rest[os.write(fd, rest) :]


def read_frame(fd: int, most: int) -> bytes:
    """Read the data of the next frame; return nothing at the end of the stream."""
    # Unbuffered: a reader that reads ahead would hold the tests before the worker is forked.
    size = int.from_bytes(read_exactly(fd, 4), "big")
    if size > most:
        raise values.BadValue(f"{size} bytes where {most} are allowed")
    return read_exactly(fd, size)


def read_exactly(fd: int, size: int) -> bytes:
    """Read exactly `size` bytes; return no bytes if the stream ends before."""
    parts: list[bytes] = []
    while size and (part := os.read(fd, min(size, 1 << 16))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts) if not size else b""


def exception_message(error: BaseException) -> str:
    """Return the beginning of an exception's message. A class of the completion's own may fail to give one."""
    try:
        return str(error)[:10_000]
    except BaseException:
        return "(no message)"


def describe_exception(error: BaseException) -> str:
    """Return the class of an exception and the beginning of its message."""
    return f"{type(error).__name__}: {exception_message(error)}".rstrip(": ")[:500]
