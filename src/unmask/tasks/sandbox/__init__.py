"""Run the Python that a model wrote, and find out whether it passes its tests.

A completion is hostile until shown otherwise. It runs in an interpreter of its own behind the strongest walls this
machine offers, and every result names them (`mode`). What decides is never in reach of the completion: the tests run
in another process, which asks it for values. `docs/sandbox.md` says what each mode guarantees and what none does.

    verdict = check_completion(problem, completion)     # problem: prompt, test, entry_point
    verdict.status                                      # pass, fail, error, timeout or unavailable

`unavailable` is trouble of the evaluator, not of the completion, and must not be scored.
"""

import contextlib
import functools
import json
import marshal
import math
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any, Literal, TypeAlias

from unmask.errors import UnknownName, require
from unmask.tasks.sandbox.jail.folder import remove

Status: TypeAlias = Literal["pass", "fail", "error", "timeout", "unavailable"]

KINDS = ("namespace", "bubblewrap", "weak")
"""From the strongest walls to the weakest."""
SETUP_S = 60.0
"""Building the walls and starting an interpreter is not the completion's time; longer is trouble."""
GRACE_S = 10.0
"""How long the supervisor has to clear up."""
TICK_S = 0.1
"""How soon a cancelled run notices."""
GOODBYE = b"."
"""What the supervisor hears before its line is cut, unless this process died."""
WORK = "/sandbox"
"""Where the completion finds itself when it has a file system of its own."""
_JAIL = Path(__file__).with_name("jail")
# `-P -s -S` and an empty environment isolate like `-I`, which would not let the hash seed be fixed. It is fixed so
# that a completion that depends on the order of a set gets the same verdict every time.
_FLAGS = ("-P", "-s", "-S", "-B", "-X", "utf8")
_ENVIRONMENT = {"PYTHONHASHSEED": "0"}
# The jail's own code comes ready compiled as the first part of the job: half of the time to start otherwise.
_START = """
import marshal, os, sys

fds = [int(word) for word in sys.argv[1:]]

def read(size):
    data = b""
    while len(data) < size and (more := os.read(fds[0], size - len(data))):
        data += more
    return data

for name, code in marshal.loads(read(int.from_bytes(read(4), "big"))):
    module = sys.modules[name] = type(sys)(name)
    module.__package__, module.__path__ = "jail", []
    module.__spec__ = type(sys.__spec__)(name, None, is_package=name == "jail")
    exec(code, module.__dict__)
sys.modules["jail.main"].main(*fds)
"""


@dataclass(frozen=True)
class Limits:
    """What one run may use."""

    wall_s: float = 10.0
    """Seconds on the clock, from the moment the completion starts."""
    cpu_s: float = 5.0
    """Seconds of processor time per process, in whole seconds, rounded up."""
    memory_mb: int = 512
    """Address space per process."""
    processes: int = 1
    """Processes at a time; 1 means that the completion cannot fork."""
    file_mb: int = 16
    """Size of one file; of all files together where the folder is in memory (`namespace`)."""
    output_kb: int = 64
    """What is kept of standard output, and as much of standard error. The rest is read and dropped."""

    def __post_init__(self) -> None:
        for name in ("wall_s", "cpu_s"):
            value = getattr(self, name)
            require(
                isinstance(value, int | float) and 0 < value < math.inf,
                name,
                value,
                "a number of seconds above 0",
                "10 is plenty for HumanEval",
            )
        for name, least in (("memory_mb", 64), ("processes", 1), ("file_mb", 1), ("output_kb", 0)):
            value = getattr(self, name)
            require(
                isinstance(value, int) and not isinstance(value, bool) and least <= value < 1 << 20,
                name,
                value,
                f"a whole number from {least} to {(1 << 20) - 1}",
                f"the default is {Limits.__dataclass_fields__[name].default}",
            )


DEFAULT = Limits()


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
        walls = _walls(mode)
    except _Trouble as trouble:
        return ProgramResult("unavailable", None, "", "", str(trouble), "none", 0.0)
    run = _run({"kind": "program", "program": source}, {}, limits, walls)
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
    """The modes that work here, strongest first; the first one is what runs use."""
    found = []
    for kind in KINDS:
        with contextlib.suppress(_Trouble):
            found.append(_probe(kind).text)
    return found


# ---------------------------------------------------------------------------------------------- verdicts


def _check(
    problem: Mapping[str, Any], completion: str, limits: Limits, mode: str | None, cancel: threading.Event
) -> SandboxVerdict:
    used = "none"
    try:
        walls = _walls(mode)
        used = walls.text
        prompt, test, entry = (_text(problem, key) for key in ("prompt", "test", "entry_point"))
    except _Trouble as trouble:
        return SandboxVerdict("unavailable", str(trouble), used, 0.0)
    job = {"kind": "check", "program": prompt + completion, "entry_point": entry}
    run = _run(job, {"prompt": prompt, "test": test, "entry_point": entry}, limits, walls, cancel)
    status, detail = _judgement(run, limits, walls)
    return SandboxVerdict(status, detail, used, run.wall_s)


def _text(problem: Mapping[str, Any], key: str) -> str:
    value = problem.get(key)
    if not isinstance(value, str):
        raise _Trouble(f"the problem has no text under {key!r}")
    return value


def _judgement(run: "_SandboxRun", limits: Limits, walls: "_Walls") -> tuple[Status, str]:
    if run.trouble:
        return "unavailable", run.trouble
    if run.timed_out:
        return "timeout", f"no answer within {limits.wall_s:g} s"
    if "verdict" in run.events:
        return run.events["verdict"], run.events["detail"]
    if "lost" in run.events:
        status, how = _ending(run, limits)
        return ("timeout" if status == "timeout" else "error"), f"{how} before the checks were through"
    if walls.judge_in_reach:
        return "error", "the process that checks was ended; in this mode the completion can do that"
    return "unavailable", "sandbox: the process that checks ended without a verdict"


def _ending(run: "_SandboxRun", limits: Limits) -> tuple[Literal["exited", "killed", "timeout", "unavailable"], str]:
    if run.trouble:
        return "unavailable", run.trouble
    if run.timed_out:
        return "timeout", f"killed after {limits.wall_s:g} s"
    if "exit" not in run.events:
        return "killed", "the process that watched the program was ended"
    number, cpu_s = run.events["signal"], run.events["cpu_s"]
    if number == signal.SIGXCPU or (number == signal.SIGKILL and cpu_s >= limits.cpu_s):
        return "timeout", f"used up {limits.cpu_s:g} s of processor time"
    if number:
        return "killed", f"the completion's process was killed by signal {number}"
    return "exited", f"the completion's process exited with code {run.events['exit']}"


# ---------------------------------------------------------------------------------------------- walls


class _Trouble(Exception):
    """The evaluator's own; becomes `unavailable`."""


@dataclass(frozen=True)
class _Walls:
    """A mode and the layers it is made of."""

    kind: str
    layers: tuple[str, ...]

    @property
    def text(self) -> str:
        if self.kind != "weak":
            return self.kind if "seccomp" in self.layers else f"{self.kind} without seccomp"
        words = {"seccomp": "seccomp", "landlock": "landlock", "uid": "own user"}
        have = " + ".join(word for layer, word in words.items() if layer in self.layers)
        lack = ", ".join(f"no {word}" for layer, word in words.items() if layer not in self.layers)
        if sys.platform != "linux":
            lack += ", perhaps no limit on memory"
        return f"weak: {have or 'resource limits'} (no namespaces{', ' * bool(lack)}{lack})"

    @property
    def judge_in_reach(self) -> bool:
        """Whether a completion could kill the process that checks it."""
        return self.kind != "namespace" and "seccomp" not in self.layers


def _walls(mode: str | None) -> _Walls:
    """The walls to use: those of the given kind, else the strongest that work here."""
    if mode is not None and mode not in KINDS:
        raise UnknownName("sandbox mode", mode, KINDS)
    reasons = []
    for kind in KINDS if mode is None else (mode,):
        try:
            return _probe(kind)
        except _Trouble as trouble:
            reasons.append(f"{kind}: {trouble}")
    # Perhaps the disk was full for a moment: what found nothing is not remembered.
    _PROBES.clear()
    raise _Trouble(f"no sandbox works here ({'; '.join(reasons)})")


_PROBES: dict[str, _Walls | str] = {}
_PROBE_LOCK = threading.Lock()


def _probe(kind: str) -> _Walls:
    """The strongest walls of a kind that hold when tried; found out once per process."""
    with _PROBE_LOCK:
        found = _PROBES.get(kind) or _try_walls(kind)
        _PROBES[kind] = found
    if isinstance(found, str):
        raise _Trouble(found)
    return found


def _try_walls(kind: str) -> _Walls | str:
    """Walls that hold, or the reason why the first ones tried do not."""
    reason = ""
    for walls in _candidates(kind):
        run = _run({"kind": "program", "program": _PROBE_PROGRAM}, {}, DEFAULT, walls)
        if _holds(run, walls):
            return walls
        reason = reason or run.trouble or f"does not hold: {run.stdout}{run.stderr[-300:]}"
    return reason or ("bwrap is not installed" if kind == "bubblewrap" else f"not possible on {sys.platform}")


def _candidates(kind: str) -> list[_Walls]:
    """Walls of a kind worth trying, strongest first."""
    linux, root = sys.platform == "linux", os.name == "posix" and os.geteuid() == 0
    users: list[tuple[str, ...]] = [("uid",), ()] if root else [()]
    if kind == "namespace":
        return [_Walls(kind, (*calls, *user)) for calls in (("seccomp",), ()) for user in users if linux]
    if kind == "bubblewrap":
        return [_Walls(kind, calls) for calls in (("seccomp",), ()) if linux and shutil.which("bwrap")]
    layers = [("seccomp", "landlock"), ("seccomp",), ("landlock",), ()] if linux else [()]
    return [_Walls(kind, (*some, *user)) for some in layers for user in users if os.name == "posix"]


def _holds(run: "_SandboxRun", walls: _Walls) -> bool:
    """Whether the probe ran to its end and did nothing that the walls should have stopped."""
    excused = {"end"}
    if "seccomp" not in walls.layers:
        excused |= {"socket", "kill"}
    if walls.kind == "weak" and "landlock" not in walls.layers:
        excused |= {"read", "write"}
    done = run.stdout.split()
    return not run.trouble and run.events.get("exit") == 0 and done[-1:] == ["end"] and set(done) <= excused


# Prints what it could do and should not; an exception means that honest programs would not run either.
_PROBE_PROGRAM = """
import bisect, collections, copy, datetime, functools, hashlib, heapq, itertools, json, math, operator, os, random
import re, statistics, string, sys, typing, zlib

with open("file", "w") as file:
    file.write("x")
os.mkdir("folder")
if os.environ or sys.stdin.read():
    print("environment")

def attempt(name, action):
    try:
        action()
        print(name)
    except (OSError, ImportError):
        pass

def connect():
    import socket
    socket.socket()

def fork():
    if not os.fork():
        os._exit(0)

def outside():
    name = "../unmask-probe-" + os.urandom(8).hex()
    open(name, "w").close()
    os.remove(name)

attempt("socket", connect)
attempt("fork", fork)
attempt("read", lambda: open("/etc/passwd").close())
attempt("write", outside)
attempt("kill", lambda: os.kill(os.getppid(), 0) if os.getppid() > 1 else os.kill(-1, 0))
print("end")
"""


@functools.cache
def _visible() -> tuple[str, ...]:
    """What a program may read: the standard library and the shared libraries it needs."""
    libraries = ["/lib", "/lib64", "/lib32", "/usr/lib", "/usr/lib64", "/usr/lib32", "/usr/share/zoneinfo"]
    own = [f"{prefix}/{lib}" for prefix in (sys.base_prefix, sys.base_exec_prefix) for lib in ("lib", sys.platlibdir)]
    own.append(os.path.dirname(os.__file__))
    if sys.base_prefix.startswith("/nix/store"):
        own.append("/nix/store")
    paths = [*libraries, "/etc/ld.so.cache", *own]
    return tuple(path for path in dict.fromkeys(paths) if os.path.exists(path))


# ---------------------------------------------------------------------------------------------- one run


@dataclass
class _SandboxRun:
    """What is known about a run so far."""

    events: dict[str, Any] = field(default_factory=dict)
    stdout: str = ""
    stderr: str = ""
    wall_s: float = 0.0
    timed_out: bool = False
    trouble: str = ""


def _run(
    job: dict[str, Any],
    tests: dict[str, str],
    limits: Limits,
    walls: _Walls,
    cancel: threading.Event | None = None,
) -> _SandboxRun:
    """Start the jail, feed it, wait for it, clear up. Never raises for what goes wrong in there."""
    run = _SandboxRun()
    try:
        with _work_folder(walls) as work, _hidden(walls):
            job = {
                **job,
                "mode": walls.kind,
                "layers": walls.layers,
                "limits": asdict(limits),
                "visible": _visible(),
                "work": work,
                # The kernel does not count the processes of root, whatever the limit says.
                "counted": "uid" in walls.layers or os.geteuid() != 0,
            }
            frames = b"".join(len(data).to_bytes(4, "big") + data for data in (_code(), _json(job), _json(tests)))
            _Jail(run, frames, limits, walls, cancel or threading.Event()).run()
    except OSError as error:
        run.trouble = run.trouble or f"sandbox: {type(error).__name__}: {error}"
    return run


_HIDDEN = {"runs": 0, "before": 1}
_HIDDEN_LOCK = threading.Lock()


@contextlib.contextmanager
def _hidden(walls: _Walls) -> Iterator[None]:
    """Where a completion is the same user as we are and sees /proc, this process must not let itself be steered."""
    if sys.platform != "linux" or walls.kind != "weak" or {"landlock", "uid"} & set(walls.layers):
        yield
        return
    from unmask.tasks.sandbox.jail import linux

    with _HIDDEN_LOCK:
        if not _HIDDEN["runs"]:
            _HIDDEN["before"] = linux.hide_memory()
        _HIDDEN["runs"] += 1
    try:
        yield
    finally:
        with _HIDDEN_LOCK:
            _HIDDEN["runs"] -= 1
            if not _HIDDEN["runs"] and _HIDDEN["before"] == 1:
                linux.show_memory()


@functools.cache
def _code() -> bytes:
    """The modules of the jail, in the order in which they need each other."""
    modules = []
    for name in ("__init__", "linux", "values", "folder", "main"):
        path = _JAIL / f"{name}.py"
        code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True, optimize=0)
        modules.append(("jail" if name == "__init__" else f"jail.{name}", code))
    return marshal.dumps(modules)


def _json(value: object) -> bytes:
    return json.dumps(value).encode("ascii")


@contextlib.contextmanager
def _work_folder(walls: _Walls) -> Iterator[str]:
    """A folder on disk, where the mode does not have its own in memory."""
    if walls.kind != "weak":
        yield WORK
        return
    folder = tempfile.mkdtemp(prefix="unmask-")
    try:
        yield folder
    finally:
        remove(folder)


class _Jail:
    """The interpreter of one run and the pipes to it."""

    def __init__(self, run: _SandboxRun, frames: bytes, limits: Limits, walls: _Walls, cancel: threading.Event):
        self.result, self.limits, self.walls, self.cancel = run, limits, walls, cancel
        self.unsent = memoryview(frames)
        self.streams: dict[str, FileIO] = {}
        self.texts = {"events": bytearray(), "stdout": bytearray(), "stderr": bytearray()}
        self.ready_at: float | None = None
        self.decided = False

    def run(self) -> None:
        """From start to end. Whatever is raised on the way, nothing goes on running."""
        with contextlib.ExitStack() as stack:
            # Sockets, because a pipe of ours can be opened by any process of the same user, through /proc.
            job_out, job_in = _files(stack, *_socket_pair())
            events_out, events_in = _files(stack, *_socket_pair())
            life_out, life_in = _files(stack, *_socket_pair())
            out_out, out_in = _files(stack, *os.pipe())
            err_out, err_in = _files(stack, *os.pipe())
            inside = [job_out, events_in, life_out]
            process = subprocess.Popen(
                _command(self.walls, self.limits, [file.fileno() for file in inside]),
                stdin=subprocess.DEVNULL,
                stdout=out_in,
                stderr=err_in,
                env=_ENVIRONMENT,
                cwd="/",
                pass_fds=[file.fileno() for file in inside],
                start_new_session=True,
            )
            self.streams = {"events": events_out, "stdout": out_out, "stderr": err_out}
            # The stack runs backwards, so this comes before the files are closed.
            stack.callback(self._end, process, job_in, life_in)
            for file in (*inside, out_in, err_in):
                file.close()
            self._attend(job_in)

    def _attend(self, job_in: FileIO) -> None:
        """Feed the jail and read from it until there is a decision or time is up."""
        begun = time.monotonic()
        with selectors.DefaultSelector() as selector:
            for file in (job_in, *self.streams.values()):
                os.set_blocking(file.fileno(), False)
            selector.register(job_in, selectors.EVENT_WRITE, "job")
            for name, file in self.streams.items():
                selector.register(file, selectors.EVENT_READ, name)
            while not self.decided:
                left = self._time_left(begun)
                if left <= 0 or self.cancel.is_set():
                    self._give_up()
                    return
                for key, _ in selector.select(min(TICK_S, left)):
                    if self._feed(job_in) if key.data == "job" else self._read(key.data) == b"":
                        selector.unregister(key.fileobj)

    def _time_left(self, begun: float) -> float:
        if self.ready_at is None:
            return begun + SETUP_S - time.monotonic()
        return self.ready_at + self.limits.wall_s - time.monotonic()

    def _give_up(self) -> None:
        if self.cancel.is_set():
            self.result.trouble = "cancelled"
        elif self.ready_at is None:
            self.result.trouble = f"sandbox: not ready after {SETUP_S:g} s"
        else:
            self.result.timed_out = True
            self.result.wall_s = time.monotonic() - self.ready_at

    def _feed(self, job_in: FileIO) -> bool:
        """Send a part of the job; true when there is no more to send."""
        try:
            self.unsent = self.unsent[job_in.write(self.unsent) or 0 :]
        except ConnectionError:
            return True
        return not self.unsent

    def _read(self, name: str) -> bytes | None:
        """Take in what one stream has; b"" at its end. What exceeds the limit is dropped, not left in the pipe."""
        data = self.streams[name].read(1 << 16)
        if data is not None:
            room = len(data) if name == "events" else (self.limits.output_kb << 10) - len(self.texts[name])
            self.texts[name] += data[: max(0, room)]
            if name == "events":
                self._note_events(ended=not data)
        return data

    def _note_events(self, ended: bool) -> None:
        now = time.monotonic()
        *lines, rest = self.texts["events"].split(b"\n")
        self.texts["events"] = rest
        for line in lines:
            event = json.loads(line)
            if "ready" in event:
                self.ready_at = now
            self.result.events |= event
        if self.result.events.keys() & {"verdict", "exit", "lost", "trouble"} or ended:
            self.decided = True
            self.result.wall_s = self.result.wall_s or now - (self.ready_at or now)

    def _end(self, process: "subprocess.Popen[bytes]", job_in: FileIO, life_in: FileIO) -> None:
        """Let go of the jail: the supervisor then ends everything. Take in what is left in the pipes."""
        with contextlib.suppress(ConnectionError, BlockingIOError):
            life_in.write(GOODBYE)
        for file in (job_in, life_in):
            file.close()
        result = self.result
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            result.trouble = result.trouble or f"sandbox: not cleared up after {GRACE_S:g} s"
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for name in self.streams:
            # Bounded, because in a weak mode somebody may still be writing.
            for _ in range(64):
                if not self._read(name):
                    break
        result.stdout, result.stderr = (self.texts[name].decode("utf-8", "replace") for name in ("stdout", "stderr"))
        result.trouble = result.trouble or result.events.get("trouble", "")
        if self.ready_at is None and not result.trouble:
            said = result.stderr.strip()[-500:] or f"exit code {process.returncode}"
            result.trouble = f"sandbox: the interpreter did not start: {said}"


def _socket_pair() -> tuple[int, int]:
    left, right = socket.socketpair()
    return left.detach(), right.detach()


def _files(stack: contextlib.ExitStack, reader: int, writer: int) -> tuple[FileIO, FileIO]:
    """Both ends as files, which can be closed twice without closing somebody else's."""
    return stack.enter_context(FileIO(reader, "r")), stack.enter_context(FileIO(writer, "w"))


def _command(walls: _Walls, limits: Limits, fds: Sequence[int]) -> list[str]:
    """How to start the jail: the interpreter that runs us, without anything that was installed for it."""
    python = os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)
    command = [python, *_FLAGS, "-c", _START, *map(str, fds)]
    return command if walls.kind != "bubblewrap" else [*_bubblewrap(python, limits), *command]


def _bubblewrap(python: str, limits: Limits) -> list[str]:
    """Bubblewrap with the same new root that `jail.linux.enter_root` builds."""
    command = [shutil.which("bwrap") or "bwrap", "--unshare-all", "--unshare-user", "--die-with-parent"]
    command += ["--uid", "1000", "--gid", "1000", "--cap-drop", "ALL"]
    for path in dict.fromkeys((*_visible(), python)):
        command += ["--ro-bind", path, path]
    for name in ("null", "zero", "full", "random", "urandom"):
        command += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    return [*command, "--size", str(limits.file_mb << 20), "--tmpfs", WORK, "--remount-ro", "/", "--chdir", WORK]
