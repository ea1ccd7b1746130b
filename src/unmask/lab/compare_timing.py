"""Seconds of decoding, batch by batch: what a clock says, beside the answers, never among them.

Answers and all that is counted are the same in every run; seconds are not. So they have files of their own, and each
says in which run and on which machine it was measured.
"""

import hashlib
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar
from uuid import uuid4

import torch

T = TypeVar("T")


@dataclass(frozen=True)
class BatchTime:
    """How long one batch of one policy took to decode; judging is not in it."""

    seconds: float
    rows: int
    tokens: int
    """Answer positions of all rows, filler included."""
    cold: bool
    """The policy's first batch of the task in that run: what is compiled or recorded on first use is in it."""
    run: str
    """Which run of the program measured it."""
    machine: str
    """Device, threads and a hash of the machine's name."""
    answer_tokens: int | None = None
    """Tokens of all answers without filler; None where an earlier version measured."""


@dataclass(frozen=True)
class TimedBatch:
    """A measured batch and where it belongs; None where the file of its seconds is lost."""

    task: str
    policy: str
    batch: int
    """Its place among the task's batches."""
    time: BatchTime | None


class BatchClock:
    """Measures the batches of one run."""

    def __init__(self, device: torch.device, machine: str | None = None):
        """`machine` is another one that the device is on."""
        self.device, self.run, self.machine = device, uuid4().hex[:12], machine or machine_of(device)
        self._known: set[tuple[str, str]] = set()

    def first(self, task: str, policy: str) -> bool:
        """Whether nothing was decoded by the policy on this task before; it has been after this."""
        new = (task, policy) not in self._known
        self._known.add((task, policy))
        return new

    def measured(self, work: Callable[[], T]) -> tuple[T, float]:
        """What the work gives, and the seconds until the device was done with it."""
        self._wait()
        started = time.perf_counter()
        result = work()
        self._wait()
        return result, time.perf_counter() - started

    def time(self, seconds: float, rows: int, tokens: int, cold: bool, answer_tokens: int) -> BatchTime:
        return BatchTime(seconds, rows, tokens, cold, self.run, self.machine, answer_tokens)

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def stored_time(entry: Any) -> BatchTime | None:
    """What a file says; None where it says nothing sensible."""
    try:
        return BatchTime(**entry)
    except TypeError:
        return None


@cache
def machine_of(device: torch.device) -> str:
    """The device, the threads, and a hash in place of the machine's name, which is nobody's business."""
    kind = (
        torch.cuda.get_device_name(device) if device.type == "cuda" else f"{os.cpu_count()}-core {platform.machine()}"
    )
    name = hashlib.sha256(platform.node().encode()).hexdigest()[:6]
    return f"{kind}, {torch.get_num_threads()} threads, machine {name}"
