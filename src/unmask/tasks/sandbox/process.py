"""The interpreter of one run, the pipes to it, and the code that is sent into it."""

import contextlib
import functools
import json
import marshal
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any

from unmask.tasks.sandbox.limits import Limits
from unmask.tasks.sandbox.walls import Walls, bubblewrap

SETUP_S = 60.0
"""Building the walls and starting an interpreter is not the completion's time; longer is trouble."""
GRACE_S = 10.0
"""How long the supervisor has to clear up."""
TICK_S = 0.1
"""How soon a cancelled run notices."""
GOODBYE = b"."
"""What the supervisor hears before its line is cut, unless this process died."""
JAIL_MODULES = (
    "__init__", "linux", "library", "exceptions", "values", "folder", "pipes", "processes", "confine", "worker",
    "candidate", "checker", "main",
)  # fmt: skip
"""The modules of the jail, in the order in which they need each other."""
_JAIL = Path(__file__).with_name("jail")
# `-P -s -S` and an empty environment isolate like `-I`, which would not let the hash seed be fixed. It is fixed so
# that a completion that depends on the order of a set gets the same verdict every time.
_FLAGS = ("-P", "-s", "-S", "-B", "-X", "utf8")
# One arena: glibc would reserve 64 MB of the limited address space for each more, and how many depends on contention.
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "MALLOC_ARENA_MAX": "1"}


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


@dataclass
class SandboxRun:
    """What is known about a run so far."""

    events: dict[str, Any] = field(default_factory=dict)
    stdout: str = ""
    stderr: str = ""
    wall_s: float = 0.0
    timed_out: bool = False
    trouble: str = ""


class JailProcess:
    """The interpreter of one run and the pipes to it."""

    def __init__(self, run: SandboxRun, frames: bytes, limits: Limits, walls: Walls, cancel: threading.Event):
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
        if self.result.events.keys() & {"verdict", "exit", "lost", "broken", "trouble"} or ended:
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


def _command(walls: Walls, limits: Limits, fds: Sequence[int]) -> list[str]:
    """How to start the jail: the interpreter that runs us, without anything that was installed for it."""
    python = os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)
    command = [python, *_FLAGS, "-c", _START, *map(str, fds)]
    return command if walls.kind != "bubblewrap" else [*bubblewrap(python, limits), *command]


@functools.cache
def jail_code() -> bytes:
    """The modules of the jail, compiled."""
    modules = []
    for name in JAIL_MODULES:
        path = _JAIL / f"{name}.py"
        code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True, optimize=0)
        modules.append(("jail" if name == "__init__" else f"jail.{name}", code))
    return marshal.dumps(modules)
