"""One line per policy out of a row per policy and problem."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt

from unmask.lab.demo import DemoRow

_EQUAL = 1e-9
"""Expected utilities and forwards closer than this differ by rounding only."""


@dataclass(frozen=True)
class DemoSummary:
    """A policy's means over the problems, each counting the same."""

    label: str
    method: str
    utility: float
    stderr: float
    by_family: Mapping[str, float]
    """Mean utility in each family of problems."""
    forwards: float | None
    tokens_per_forward: float | None
    deterministic: bool
    seeds: int
    frontier: bool = False
    """No other one here has at least its utility for at most its forwards."""

    @property
    def baseline(self) -> bool:
        return not self.method

    @property
    def spent(self) -> float:
        """Forwards as a number, 0 for none."""
        return self.forwards or 0.0

    @property
    def computed(self) -> str:
        return "exactly" if self.deterministic else f"{self.seeds} seeds"

    @property
    def show_forwards(self) -> str:
        return "" if self.forwards is None else f"{self.forwards:.2f}"

    @property
    def show_speed(self) -> str:
        return "" if self.tokens_per_forward is None else f"{self.tokens_per_forward:.2f}"

    @property
    def cells(self) -> dict[str, str]:
        """Cells of the terminal's table beside the policy's name, by their heads."""
        return {
            "utility": f"{self.utility:.3f}",
            "s.e.": "" if self.deterministic else f"{self.stderr:.3f}",
            "forwards": self.show_forwards,
            "tokens/forward": self.show_speed,
            "computed": self.computed,
        }


def summarise(rows: Sequence[DemoRow]) -> list[DemoSummary]:
    """Best utility first, then fewest forwards."""
    by_label: dict[str, list[DemoRow]] = {}
    for row in rows:
        by_label.setdefault(row.label, []).append(row)
    means = [_mean(rows_of_label) for rows_of_label in by_label.values()]
    summaries = [replace(one, frontier=_undominated(one, means)) for one in means]
    return sorted(summaries, key=lambda s: (-round(s.utility, 9), s.spent, s.label))


def _mean(rows: Sequence[DemoRow]) -> DemoSummary:
    count = len(rows)
    families: dict[str, list[float]] = {}
    for row in rows:
        families.setdefault(row.family, []).append(row.utility)
    spent = [row.forwards for row in rows if row.forwards is not None]
    forwards = sum(spent) / count if spent else None
    return DemoSummary(
        label=rows[0].label,
        method=rows[0].method,
        utility=sum(row.utility for row in rows) / count,
        # Problems are not a sample: the only error is that of the seeds, independent from problem to problem.
        stderr=sqrt(sum(row.stderr**2 for row in rows)) / count,
        by_family={family: sum(values) / len(values) for family, values in families.items()},
        forwards=forwards,
        tokens_per_forward=None if forwards is None else sum(row.new_tokens for row in rows) / count / forwards,
        deterministic=all(row.deterministic for row in rows),
        seeds=max(row.seeds for row in rows),
    )


def _undominated(one: DemoSummary, others: Sequence[DemoSummary]) -> bool:
    if one.forwards is None:
        return False
    for other in others:
        if other.forwards is None:
            continue
        no_worse = other.utility >= one.utility - _EQUAL and other.forwards <= one.forwards + _EQUAL
        better = other.utility > one.utility + _EQUAL or other.forwards < one.forwards - _EQUAL
        if no_worse and better:
            return False
    return True
