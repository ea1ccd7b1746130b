"""What a run of the bench found: times, their ratios, and what could not be measured."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from unmask.lab.bench.clock import Times

FORMAT = "unmask-bench/1"


@dataclass(frozen=True)
class Line:
    """One thing that was timed."""

    part: str
    name: str
    batch: int
    per: str
    """What took the time: a forward, a step, an answer of every row."""
    times: Times
    more: Mapping[str, float] = field(default_factory=dict)
    """Numbers beside it, by what they are: tokens/s, peak GB, a share."""


@dataclass(frozen=True)
class Ratio:
    """One median over another of the same run."""

    part: str
    name: str
    batch: int
    value: float
    target: float | None = None
    """What is aimed at on the machine and shape of the targets; None elsewhere."""
    at_most: bool = True
    """Whether the target is a limit from above."""

    @classmethod
    def between(cls, name: str, over: Line, under: Line) -> "Ratio":
        """How many times as long the first takes as the second."""
        return cls(over.part, name, over.batch, over.times.median / under.times.median)

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        return self.value <= self.target if self.at_most else self.value >= self.target


@dataclass(frozen=True)
class BenchFailure:
    """A part that gave no numbers, and why."""

    part: str
    batch: int
    why: str


@dataclass(frozen=True)
class Found:
    """What one part found at one batch size."""

    lines: Sequence[Line] = ()
    ratios: Sequence[Ratio] = ()
    remarks: Sequence[str] = ()

    def __add__(self, other: "Found") -> "Found":
        return Found((*self.lines, *other.lines), (*self.ratios, *other.ratios), (*self.remarks, *other.remarks))


@dataclass(frozen=True)
class BenchResult:
    """All of a run."""

    machine: Mapping[str, Any]
    subject: Mapping[str, Any]
    settings: Mapping[str, Any]
    found: Found
    failures: tuple[BenchFailure, ...]
    seconds: float

    def document(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {
            "format": FORMAT,
            "machine": dict(self.machine),
            "model": dict(self.subject),
            "settings": dict(self.settings),
            "lines": [asdict(line) for line in self.found.lines],
            "ratios": [asdict(ratio) | {"met": ratio.met} for ratio in self.found.ratios],
            "remarks": list(dict.fromkeys(self.found.remarks)),
            "failures": [asdict(failure) for failure in self.failures],
            "seconds": self.seconds,
        }
