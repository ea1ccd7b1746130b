"""The kinds of walls, the layers they are made of, and what a program sees behind them."""

import functools
import os
import shutil
import sys
from dataclasses import dataclass

from unmask.tasks.sandbox.limits import Limits

KINDS = ("namespace", "bubblewrap", "weak")
"""From the strongest walls to the weakest."""
WORK = "/sandbox"
"""Where the completion finds itself when it has a file system of its own."""


class SandboxTrouble(Exception):
    """The evaluator's own; becomes `unavailable`."""


@dataclass(frozen=True)
class Walls:
    """A mode and the layers it is made of."""

    kind: str
    layers: tuple[str, ...]

    @property
    def text(self) -> str:
        """For the report: the mode, and for a weak one what it has and lacks."""
        if self.kind != "weak":
            return self.kind if "seccomp" in self.layers else f"{self.kind} without seccomp"
        words = {"seccomp": "seccomp", "landlock": "landlock", "uid": "own user"}
        have = " + ".join(word for layer, word in words.items() if layer in self.layers)
        lack = ", ".join(f"no {word}" for layer, word in words.items() if layer not in self.layers)
        if sys.platform != "linux":
            lack += ", perhaps no limit on memory"
        return f"weak: {have or 'resource limits'} (no namespaces{', ' * bool(lack)}{lack})"

    @property
    def by_name_only(self) -> bool:
        """Whether a completion could send signals to every process of the user: such walls are used if asked for."""
        return self.kind == "weak" and "seccomp" not in self.layers

    @property
    def judge_in_reach(self) -> bool:
        """Whether a completion could kill the process that checks it."""
        return self.kind != "namespace" and "seccomp" not in self.layers


def candidates(kind: str) -> list[Walls]:
    """Walls of a kind worth trying, strongest first."""
    linux, root = sys.platform == "linux", os.name == "posix" and os.geteuid() == 0
    users: list[tuple[str, ...]] = [("uid",), ()] if root else [()]
    if kind == "namespace":
        return [Walls(kind, (*calls, *user)) for calls in (("seccomp",), ()) for user in users if linux]
    if kind == "bubblewrap":
        return [Walls(kind, calls) for calls in (("seccomp",), ()) if linux and shutil.which("bwrap")]
    layers = [("seccomp", "landlock"), ("seccomp",), ("landlock",), ()] if linux else [()]
    return [Walls(kind, (*some, *user)) for some in layers for user in users if os.name == "posix"]


@functools.cache
def visible() -> tuple[str, ...]:
    """What a program may read: the standard library and the shared libraries it needs."""
    libraries = ["/lib", "/lib64", "/lib32", "/usr/lib", "/usr/lib64", "/usr/lib32", "/usr/share/zoneinfo"]
    python = [
        f"{prefix}/{lib}" for prefix in (sys.base_prefix, sys.base_exec_prefix) for lib in ("lib", sys.platlibdir)
    ]
    python.append(os.path.dirname(os.__file__))
    if sys.base_prefix.startswith("/nix/store"):
        python.append("/nix/store")
    paths = [*libraries, "/etc/ld.so.cache", *python]
    return tuple(path for path in dict.fromkeys(paths) if os.path.exists(path))


def bubblewrap(python: str, limits: Limits) -> list[str]:
    """Bubblewrap with the same new root that `jail.linux.enter_root` builds."""
    command = [shutil.which("bwrap") or "bwrap", "--unshare-all", "--unshare-user", "--die-with-parent"]
    command += ["--uid", "1000", "--gid", "1000", "--cap-drop", "ALL"]
    for path in dict.fromkeys((*visible(), python)):
        command += ["--ro-bind", path, path]
    for name in ("null", "zero", "full", "random", "urandom"):
        command += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    return [*command, "--size", str(limits.file_mb << 20), "--tmpfs", WORK, "--remount-ro", "/", "--chdir", WORK]
