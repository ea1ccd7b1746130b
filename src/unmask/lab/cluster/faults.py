"""What went wrong on a cluster, in three kinds: a node went, a process died, or code raised."""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

LONGEST = 300


class FaultKind(Enum):
    """Whose fault it is decides what follows."""

    NODE = "node"
    """Nobody's: the work is begun again elsewhere, as often as it takes."""
    PROCESS = "process"
    """Perhaps the work's: memory, or a crash."""
    ERROR = "error"
    """The code's."""


@dataclass(frozen=True)
class Fault:
    """A fault, and Ray's words for it on one line."""

    kind: FaultKind
    text: str


def fault_of(ray: Any, error: BaseException) -> Fault:
    """Of an exception that `ray.get` raised."""
    return Fault(_kind(ray.exceptions, error), in_short(error))


def _kind(exceptions: Any, error: BaseException) -> FaultKind:
    if isinstance(error, exceptions.OutOfMemoryError | exceptions.WorkerCrashedError):
        return FaultKind.PROCESS
    if isinstance(error, exceptions.ActorUnavailableError | exceptions.NodeDiedError | exceptions.ObjectLostError):
        return FaultKind.NODE
    if isinstance(error, exceptions.RayActorError):
        if _raised_at_start(error):
            return FaultKind.ERROR
        return FaultKind.PROCESS if "worker process has died" in str(error) else FaultKind.NODE
    return FaultKind.ERROR


def _raised_at_start(error: BaseException) -> bool:
    """Whether the code that makes an actor raised, as where the package is missing."""
    return "creation task" in str(error) or bool(getattr(error, "actor_init_failed", False))


def in_short(error: BaseException) -> str:
    """The end of a remote traceback, or why an actor is dead, or the first line of what Ray says."""
    lines = [line.strip() for line in _COLOURS.sub("", str(error)).splitlines() if line.strip()]
    dead = next((line for line in lines if line.startswith("The actor is dead because")), "")
    traced = any(line.startswith("File ") for line in lines)
    told = dead or (lines[-1] if traced or _raised_at_start(error) else " ".join(lines[:1]))
    return (told or type(error).__name__)[:LONGEST]


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def out_of_memory(error: BaseException) -> bool:
    """While computing; PyTorch says so in a class of its own on a GPU, and in words on a CPU."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
    )
