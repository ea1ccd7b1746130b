"""Seconds of several pieces of work, measured in turns: whatever drifts while they run hits all of them alike."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

Work = Callable[[], object]


@dataclass(frozen=True)
class Times:
    """Seconds of one piece of work, over its repeats."""

    median: float
    low: float
    """The shortest."""
    high: float
    """The longest."""
    repeats: int

    @classmethod
    def of(cls, seconds: list[float]) -> "Times":
        return cls(statistics.median(seconds), min(seconds), max(seconds), len(seconds))

    def per(self, count: float) -> "Times":
        """Of one out of so many that the work consists of."""
        return Times(self.median / count, self.low / count, self.high / count, self.repeats)

    def and_later(self, other: "Times") -> "Times":
        """Measured twice with something else between: half way between the medians."""
        middle, count = (self.median + other.median) / 2, self.repeats + other.repeats
        return Times(middle, min(self.low, other.low), max(self.high, other.high), count)


@dataclass(frozen=True)
class Stopwatch:
    """Reads the time once the device has done what it was told to do."""

    now: Callable[[], float] = time.perf_counter
    wait: Callable[[], None] = lambda: None

    @classmethod
    def of(cls, device: torch.device) -> "Stopwatch":
        return cls(wait=lambda: torch.cuda.synchronize(device)) if device.type == "cuda" else cls()

    def seconds(self, work: Work) -> float:
        self.wait()
        began = self.now()
        work()
        self.wait()
        return self.now() - began


@dataclass(frozen=True)
class Effort:
    """How often: untimed first, then timed."""

    warm_up: int = 3
    repeats: int = 15


def interleaved(works: Mapping[str, Work], clock: Stopwatch, effort: Effort) -> dict[str, Times]:
    """Every piece once a round, in turns forwards and backwards, so that nobody always follows the same one."""
    for _ in range(effort.warm_up):
        for work in works.values():
            work()
    spent: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(effort.repeats):
        for name in list(works)[:: 1 if turn % 2 == 0 else -1]:
            spent[name].append(clock.seconds(works[name]))
    return {name: Times.of(seconds) for name, seconds in spent.items()}
