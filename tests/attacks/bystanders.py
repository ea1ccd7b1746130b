"""What an attack on the world outside could reach: a process, files and services of the same user, and their state."""

import contextlib
import ctypes
import os
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
SECRET = "swordfish-4711"
# Tells of every signal that can be caught; the others end it, which can be seen too.
_SLEEPER = """
import os, signal, time
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, lambda number, frame: os.write(1, f"signal {number} ".encode()))
os.write(1, b"ready ")
stop = time.monotonic() + 120
while time.monotonic() < stop:
    time.sleep(1)
"""


@dataclass(frozen=True)
class Bystanders:
    """A process, a folder with a file and services in it, and ports; all within reach of the user who runs this."""

    sleeper: "subprocess.Popen[bytes]"
    folder: Path
    sockets: dict[str, socket.socket]
    queue: int
    before: dict[str, object]

    def places(self) -> dict[str, object]:
        """What an attack is told: where everything is."""
        return {
            "VICTIM": self.sleeper.pid,
            "QUEUE": self.queue,
            "FOLDER": str(self.folder),
            "FILE": str(self.folder / "file"),
            "FIFO": str(self.folder / "fifo"),
            "DATAGRAMS": str(self.folder / "datagrams"),
            "STREAM": str(self.folder / "stream"),
            "ABSTRACT": self.sockets["abstract"].getsockname(),
            "TCP": self.sockets["tcp"].getsockname(),
            "UDP": self.sockets["udp"].getsockname(),
        }

    def harm(self) -> str:
        """What has changed since the beginning, in words; empty if nothing has."""
        heard = self._heard()
        now = _state(self.sleeper, self.folder, self.queue)
        changed = [f"{name}: {was} -> {now.get(name)}" for name, was in self.before.items() if now.get(name) != was]
        return "; ".join([*heard, *changed])

    def _heard(self) -> list[str]:
        said = _said(self.sleeper)
        heard = [f"the process got {said.strip()}"] if said else []
        for name, service in self.sockets.items():
            with contextlib.suppress(BlockingIOError):
                if service.type == socket.SOCK_STREAM:
                    service.accept()[0].close()
                else:
                    service.recv(1 << 12)
                heard.append(f"{name} was reached")
        return heard


@contextlib.contextmanager
def bystanders() -> Iterator[Bystanders]:
    """Set them up, and leave nothing of them."""
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="bystanders-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o777)
        (folder / "file").write_text(SECRET)
        (folder / "file").chmod(0o666)
        os.mkfifo(folder / "fifo", 0o666)
        sockets = {name: stack.enter_context(service) for name, service in _services(folder).items()}
        sleeper = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _SLEEPER],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={"SECRET": SECRET},
            start_new_session=True,
        )
        stack.callback(_finish, sleeper)
        assert os.read(sleeper.stdout.fileno(), 16) == b"ready "
        queue = _LIBC.msgget(0, 0o600)
        stack.callback(_LIBC.msgctl, queue, 0, None)
        yield Bystanders(sleeper, folder, sockets, queue, _state(sleeper, folder, queue))


def _services(folder: Path) -> dict[str, socket.socket]:
    made = {
        "datagrams": (socket.AF_UNIX, socket.SOCK_DGRAM, str(folder / "datagrams")),
        "stream": (socket.AF_UNIX, socket.SOCK_STREAM, str(folder / "stream")),
        "abstract": (socket.AF_UNIX, socket.SOCK_DGRAM, b"\0" + folder.name.encode()),
        "tcp": (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
        "udp": (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
    }
    services = {}
    for name, (family, kind, address) in made.items():
        services[name] = service = socket.socket(family, kind)
        service.bind(address)
        service.setblocking(False)
        if kind == socket.SOCK_STREAM:
            service.listen()
    for name in ("datagrams", "stream"):
        (folder / name).chmod(0o777)
    return services


def _state(sleeper: "subprocess.Popen[bytes]", folder: Path, queue: int) -> dict[str, object]:
    """What can be seen of the process and of the files; of a process that is gone, only that."""
    ended = sleeper.poll()
    message = ctypes.create_string_buffer(64)
    # No message and no queue are different errors.
    ctypes.set_errno(0)
    _LIBC.msgrcv(queue, message, 48, 0, 0o4000)
    state: dict[str, object] = {"the process ended with": ended, "the queue": ctypes.get_errno()}
    state["its settings"] = _settings(sleeper.pid) if ended is None else ()
    with contextlib.suppress(OSError):
        state["files"] = sorted(os.listdir(folder))
        status = (folder / "file").lstat()
        state["the file"] = (status.st_mode, status.st_uid, status.st_mtime_ns, status.st_ctime_ns)
        # Only if it still is a file: a pipe in its place would wait for a writer.
        state["what it says"] = (folder / "file").read_text() if stat.S_ISREG(status.st_mode) else None
        state["its attributes"] = os.listxattr(folder / "file")
    return state


def _settings(pid: int) -> tuple[object, ...]:
    place = Path(f"/proc/{pid}")
    limits, adjusted = ((place / name).read_text() for name in ("limits", "oom_score_adj"))
    return os.getpriority(os.PRIO_PROCESS, pid), os.sched_getaffinity(pid), os.sched_getscheduler(pid), limits, adjusted


def _said(sleeper: "subprocess.Popen[bytes]") -> str:
    """The signals it got. The last one is ours: once it is told, all that were sent before have been."""
    last = f"signal {int(signal.SIGRTMAX)} "
    with contextlib.suppress(ProcessLookupError):
        sleeper.send_signal(signal.SIGRTMAX)
    said = ""
    while last not in said and select.select([sleeper.stdout], [], [], 10)[0]:
        data = os.read(sleeper.stdout.fileno(), 1 << 12).decode()
        if not data:
            break
        said += data
    return said.replace(last, "")


def _finish(sleeper: "subprocess.Popen[bytes]") -> None:
    sleeper.kill()
    sleeper.wait()
    sleeper.stdout.close()
