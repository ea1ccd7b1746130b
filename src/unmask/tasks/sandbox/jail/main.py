"""The three processes of a run: supervisor, checker, worker. `main` is where the interpreter enters.

On the way in, the first frame of the job describes the run and the completion, the second the tests. The checker
reads the second only after it has forked the worker, whose memory therefore never held them. On the way out, only
the supervisor and the checker hold the pipe for events:

    {"ready": true}                          the walls stand and the clock starts
    {"verdict": .., "detail": ..}            of a check
    {"exit": .., "signal": .., "cpu_s": ..}  of a program, or of a worker that no longer answers
    {"trouble": ..}                          the evaluator's fault, never the completion's
"""

import atexit
import builtins
import contextlib
import json
import math
import os
import resource
import select
import signal
import sys
import time
import types
from collections.abc import Callable
from typing import Any, NoReturn

from . import folder, linux, values

ANSWER_BYTES = 4 << 20
"""The longest answer to one call."""
FRAME_BYTES = 256 << 20
FILES = 64
"""Files a process may have open."""
THREADS = 32
"""Threads that a single process may have."""
PATIENCE_S = 0.5
"""How long a worker whose pipe is closed has to end."""
SWEEP_S = 5.0
GONE = "the completion's process ended or closed its files"

Job = dict[str, Any]


def main(job_fd: int, event_fd: int, life_fd: int) -> None:
    """Be the supervisor. The run lasts at most as long as somebody holds the other end of `life_fd`."""
    try:
        job = json.loads(read_frame(job_fd, FRAME_BYTES))
        supervise(job, job_fd, event_fd, life_fd)
    except BaseException as error:
        emit(event_fd, trouble=f"sandbox: {describe(error)}")


# ---------------------------------------------------------------------------------------------- supervisor


def supervise(job: Job, job_fd: int, event_fd: int, life_fd: int) -> None:
    """Build the walls, start the checker inside, wait for the end, leave nothing behind."""
    reset_signals()
    # After the mounts have changed it could not be opened any more.
    null_fd = os.open(os.devnull, os.O_RDWR)
    if not job["counted"] and "seccomp" not in job["layers"]:
        raise OSError("nothing here limits the number of processes")
    if "uid" in job["layers"]:
        job["uid"] = linux.spare_user(os.getpid())
    if job["mode"] == "namespace":
        linux.enter_namespaces(as_root="uid" in job["layers"])
        linux.enter_root(job["visible"], job["work"], job["limits"]["file_mb"], job.get("uid", linux.INNER_USER))
    else:
        os.chdir(job["work"])
        if "uid" in job["layers"]:
            os.chown(job["work"], job["uid"], job["uid"])
    if sys.platform == "linux":
        linux.adopt_orphans()
        linux.hide_memory()
    wakeup = wake_on_child()
    child = fork(lambda: guarded_check(job, job_fd, event_fd, null_fd))
    os.close(job_fd)
    await_end(child, life_fd, wakeup)
    if job["mode"] == "weak":
        if not sweep():
            emit(event_fd, trouble="sandbox: some processes of the completion could not be ended")
        if orphaned(life_fd):
            os.chdir("/")
            folder.remove(job["work"])


def reset_signals() -> None:
    """Whoever started us may have ignored or blocked signals, and that is inherited.

    Python itself ignores two, to get an error from the call instead.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)


def wake_on_child() -> int:
    """A file that becomes readable when a child ends."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def await_end(child: int, life_fd: int, wakeup: int) -> None:
    """Wait for the checker; end it as soon as nobody waits for us any more."""
    while True:
        readable, _, _ = select.select([life_fd, wakeup], [], [])
        if life_fd in readable:
            end(child)
            return
        os.read(wakeup, 512)
        # In a pid namespace the checker is process 1: with it the kernel has ended all others.
        if os.waitpid(child, os.WNOHANG)[0]:
            return


def orphaned(life_fd: int) -> bool:
    """Whether those who started us died. Else they say goodbye first, and delete the folder themselves."""
    return bool(select.select([life_fd], [], [], 0)[0]) and not os.read(life_fd, 1)


def end(child: int) -> None:
    """Where orphans cannot be found later, the checker gets a moment to end the worker's process group."""
    with contextlib.suppress(ProcessLookupError):
        if sys.platform != "linux":
            os.kill(child, signal.SIGTERM)
            time.sleep(0.2)
        os.kill(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)


def sweep() -> bool:
    """Kill every descendant, also those that left their session; true if none is left."""
    stop = time.monotonic() + SWEEP_S
    while time.monotonic() < stop:
        for pid in descendants():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return True
        time.sleep(0.005)
    return False


def descendants() -> list[int]:
    """Processes below this one. Orphans are here too, because they were adopted."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else []:
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{int(name)}/stat", "rb") as file:
            # The name of the program, in parentheses, may contain anything.
            parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {os.getpid()})


def fork(body: Callable[[], object]) -> int:
    """A child that runs `body` and never returns into the code of its parent."""
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        body()
        os._exit(0)
    finally:
        os._exit(70)


# ---------------------------------------------------------------------------------------------- walls


def confine(job: Job, *, worker: bool) -> None:
    """Limits, then privileges, then files and system calls: each step takes away the means to undo the last."""
    layers, limits = job["layers"], job["limits"]
    lower(resource.RLIMIT_CORE, 0)
    lower(resource.RLIMIT_NOFILE, FILES)
    lower(resource.RLIMIT_FSIZE, limits["file_mb"] << 20)
    # Other systems have the limit but may not be able to set it; the mode says so.
    with contextlib.suppress(*[] if sys.platform == "linux" else [OSError, ValueError]):
        lower(resource.RLIMIT_AS, limits["memory_mb"] << 20)
    if worker:
        cpu_s = math.ceil(limits["cpu_s"])
        lower(resource.RLIMIT_CPU, cpu_s, cpu_s + 1)
        lower(resource.RLIMIT_NPROC, tasks(job))
    if sys.platform == "linux":
        if "landlock" in layers:
            # Needs the promise that no program run later can gain privileges; `drop_privileges` repeats it.
            linux.no_new_privileges()
            linux.restrict_files(job["visible"], ".", signals=worker)
        linux.drop_privileges(job.get("uid"))
        linux.die_with_parent()
        if not worker:
            linux.hide_memory()
        if "seccomp" in layers:
            single = limits["processes"] == 1 or not job["counted"]
            linux.refuse_calls(forks=single, file_attributes=job["mode"] == "weak")
    if "seccomp" not in layers and job["mode"] == "weak":
        # All that is left is to make it inconvenient.
        sys.modules["_socket"] = None  # type: ignore[assignment]


def lower(kind: int, soft: int, hard: int | None = None) -> None:
    """Set a limit; one that is already lower stays."""
    now = resource.getrlimit(kind)[1]
    hard = soft if hard is None else hard
    hard = hard if now == resource.RLIM_INFINITY else min(now, hard)
    resource.setrlimit(kind, (min(soft, hard), hard))


def tasks(job: Job) -> int:
    """Processes and threads that the user of the worker may have, ours included."""
    limits, layers = job["limits"], job["layers"]
    allowed: int = limits["processes"]
    if allowed == 1 and "seccomp" in layers:
        allowed = THREADS
    if "uid" in layers:
        return allowed + 1
    if job["mode"] != "weak":
        # Supervisor and checker, and the first process of bubblewrap.
        return allowed + (2 if job["mode"] == "namespace" else 3)
    # This process has been counted among them.
    return max(1, allowed - 1 + user_tasks())


def user_tasks() -> int:
    """Processes and threads that the user has now; 0 where one cannot tell, which forbids any more."""
    count = 0
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else []:
        with contextlib.suppress(OSError):
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == os.getuid():
                count += len(os.listdir(f"/proc/{name}/task"))
    return count


# ---------------------------------------------------------------------------------------------- checker


def guarded_check(job: Job, job_fd: int, event_fd: int, null_fd: int) -> None:
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
        emit(event_fd, **judge(tests, candidate))
    end_group(worker)


def end_group(worker: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(worker, signal.SIGKILL)


def ending(worker: int, options: int = 0) -> dict[str, object]:
    """How the worker ended; empty if it has not, and was not waited for."""
    pid, status, usage = os.wait4(worker, options)
    if not pid:
        return {}
    code = os.waitstatus_to_exitcode(status)
    return {"exit": max(code, 0), "signal": max(-code, 0), "cpu_s": usage.ru_utime + usage.ru_stime}


class Lost(BaseException):
    """The worker no longer answers. Not an `Exception`: tests that expect one must not swallow it."""


class Unsendable(BaseException):
    """The tests pass something that cannot cross the pipe."""


class Candidate:
    """The function under test, as the tests see it: each call is a question to the worker."""

    def __init__(self, worker: int, calls_in: int, answers_out: int):
        self.worker, self.calls_in, self.answers_out = worker, calls_in, answers_out
        self.answered = 0
        self.raised: BaseException | None = None
        self.lost = ""
        self.unsendable = ""

    def __call__(self, *args: object, **kwargs: object) -> Any:
        try:
            question = values.dumps([list(args), kwargs], strict=True)
        except values.BadValue as error:
            self.unsendable = f"the tests pass {error}, which the sandbox cannot hand to the completion"
            raise Unsendable from None
        return self.ask(question)

    def ask(self, question: bytes | None = None) -> Any:
        """Send a question, if there is one, and wait for an answer."""
        if self.lost:
            raise Lost
        try:
            if question is not None:
                send_frame(self.calls_in, question)
            data = read_frame(self.answers_out, ANSWER_BYTES)
            if not data:
                raise BrokenPipeError
            answer = values.loads(data)
            outcome, content = answer
            error = revive(*content) if outcome == "raise" else None
        except BrokenPipeError:
            self.lost = GONE
        except (values.BadValue, ValueError, TypeError, MemoryError) as wrong:
            self.lost = f"the completion's process sent an answer that is no answer: {wrong}"
        if self.lost:
            raise Lost
        self.answered += 1
        if error is not None:
            self.raised = error
            raise error
        return content


def revive(names: list[str], message: str) -> BaseException:
    """An exception like the one the completion raised: its nearest built-in class."""
    known = [getattr(builtins, name, None) for name in names]
    kind = next((k for k in known if isinstance(k, type) and issubclass(k, BaseException)), Exception)
    try:
        error = kind(message)
    except TypeError:
        error = Exception(message)
    # So that the detail can name a class of the completion's own.
    error.__notes__ = [f"{names[0]}: {message}"]
    return error


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
    candidate.answered = 0
    try:
        run_check(candidate)
    except BaseException as error:
        return failed(error, candidate, tests)
    return lost(candidate) if candidate.lost else {"verdict": "pass", "detail": "all checks passed"}


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
    if candidate.unsendable:
        return {"trouble": candidate.unsendable}
    if candidate.lost:
        return lost(candidate)
    if error is candidate.raised:
        return {"verdict": "error", "detail": f"the completion raised {describe(error)}"}
    if not candidate.answered:
        return {"trouble": f"the tests failed before they called the completion: {describe(error)}"}
    return {"verdict": "fail", "detail": f"{describe(error)}{place(error, tests['test'])}"}


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


def describe(error: BaseException) -> str:
    """The class of an exception and the beginning of its message, or the note of one that was revived."""
    notes = getattr(error, "__notes__", None)
    text = notes[0] if notes else f"{type(error).__name__}: {error}"
    return text.rstrip(": ")[:500]


# ---------------------------------------------------------------------------------------------- worker


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
    exec(compile(source, "<completion>", "exec"), module.__dict__)
    if not callable(module.__dict__.get(entry_point)):
        raise NameError(f"there is no function {entry_point!r} after the completion has run")


def attempt(action: Callable[..., object], *args: object) -> bytes:
    """The answer to one call: what it returned, or what it raised."""
    try:
        return values.dumps(["return", action(*args)], strict=False)
    except BaseException as error:
        return values.dumps(["raise", [[kind.__name__ for kind in type(error).__mro__], message(error)]], strict=False)


def message(error: BaseException) -> str:
    try:
        return str(error)[:400]
    except BaseException:
        return "(no message)"


# ---------------------------------------------------------------------------------------------- pipes


def emit(event_fd: int, **event: object) -> None:
    """One event as a line of JSON. Nobody may be listening any more."""
    with contextlib.suppress(OSError):
        os.write(event_fd, json.dumps(event).encode("ascii") + b"\n")


def send_frame(fd: int, data: bytes) -> None:
    """Length, then content."""
    rest = memoryview(len(data).to_bytes(4, "big") + data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def read_frame(fd: int, most: int) -> bytes:
    """The next frame; empty at the end of the stream."""
    header = read_exactly(fd, 4)
    size = int.from_bytes(header, "big")
    if size > most:
        raise values.BadValue(f"{size} bytes where {most} are allowed")
    return read_exactly(fd, size) if header else b""


def read_exactly(fd: int, size: int) -> bytes:
    parts: list[bytes] = []
    while size and (part := os.read(fd, min(size, 1 << 16))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts) if not size else b""
