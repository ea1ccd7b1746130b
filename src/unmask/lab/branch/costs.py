"""What branches cost in row-forwards, axis by axis, and what was saved."""

from dataclasses import dataclass, field, fields


@dataclass
class AxisCost:
    """Row-forwards of one axis. What a naive run needs is what was done plus what was saved, by reason."""

    branches: int = 0
    done: int = 0
    rollouts: int = 0
    """Rollouts that draw nothing: one stands for all."""
    first: int = 0
    """The forward that all branches of a state share, and futures of candidates that do the same there."""
    futures: int = 0
    """Futures that ran into one known already: another branch's, or the reference's own."""
    settled: int = 0
    """Steps of the revision operator, one row-forward each, after there is nothing left to revise."""

    @property
    def saved(self) -> int:
        return self.rollouts + self.first + self.futures + self.settled

    @property
    def naive(self) -> int:
        return self.done + self.saved

    def __add__(self, other: "AxisCost") -> "AxisCost":
        return AxisCost(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass
class BranchCost:
    """What it cost."""

    axes: dict[str, AxisCost] = field(default_factory=dict)
    trajectory: int = 0
    """Row-forwards of the reference trajectories, looks ahead included; the same in every engine."""
    recalled: int = 0
    """Row-forwards that brought previous posteriors back."""
    calls: int = 0
    """Forward passes, each of `rows` rows, dummies included; of those that several blocks share, its share."""

    @property
    def total(self) -> AxisCost:
        return sum(self.axes.values(), AxisCost())

    def __add__(self, other: "BranchCost") -> "BranchCost":
        axes = {
            axis: self.axes.get(axis, AxisCost()) + other.axes.get(axis, AxisCost())
            for axis in {**self.axes, **other.axes}
        }
        return BranchCost(
            axes, self.trajectory + other.trajectory, self.recalled + other.recalled, self.calls + other.calls
        )
