"""What the branches cost in row-forwards, who pays for shared work, and what a run without sharing would cost."""

from dataclasses import dataclass, field, fields

from unmask.lab.branch.bucket import Bucket
from unmask.lab.branch.futures import Ending, Ticket
from unmask.lab.branch.pools import Future


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
    """Forward passes, each of `rows` rows, dummies included."""

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


class Ledger:
    """Books the row-forwards of one bucket: each on the axis of the branch that had it run, what is saved by reason."""

    def __init__(self, bucket: Bucket, report: BranchCost, merge: bool):
        self.bucket, self.report, self.merge = bucket, report, merge
        self.forwards = 0
        """Done so far."""
        self._shared: dict[int, dict[tuple[int, int], set[int]]] = {}
        """Per state: the futures that branches before this one have, and which alternatives led to them."""

    def pay(self, alternative: int, forwards: int) -> None:
        """Forwards that a branch of this alternative had run."""
        self.forwards += forwards
        self._cost(alternative).done += forwards

    def close(self, number: int, ticket: Ticket, ending: Ending) -> None:
        """What a finished branch would have cost alone is what it paid and, by reason, what it saved.

        Branches are closed in the order of states, alternatives and rollouts.
        """
        cost = self._cost(ticket.alternative)
        cost.branches += 1
        if not self.merge:
            return
        saved = ending.passes - _paid_by(number, ticket.future)
        place = (id(ticket.future), ticket.at)
        at_state = self._shared.setdefault(ticket.point, {})
        cost.settled += self._late(ticket, ending.steps)
        # What a method looks at is looked at once where nothing is drawn, and where two axes name the method.
        again = 0 if ticket.ran else ticket.cost.passes
        cost.rollouts += again if ticket.rollout else 0
        cost.first += 0 if ticket.rollout else again
        if ticket.alternative in at_state.get(place, ()):
            cost.rollouts += 1 + saved
        elif place in at_state:
            cost.first += 1 + saved
        else:
            # The first branch of a state pays for the forward that all of them share.
            cost.first += bool(at_state)
            cost.futures += saved
        at_state.setdefault(place, set()).add(ticket.alternative)

    def _late(self, ticket: Ticket, steps: int) -> int:
        """Steps that the operator would go on for after the row is settled and full."""
        if self.bucket.continuations[self.bucket.alternatives[ticket.alternative].axis].settled is None:
            return 0
        point = self.bucket.points[ticket.point]
        return max(0, point.request.steps - (point.sampled.step + 1 + steps))

    def _cost(self, alternative: int) -> AxisCost:
        return self.report.axes[self.bucket.alternatives[alternative].axis]


def _paid_by(number: int, future: Future) -> int:
    """Forwards of a future, and of those it ran into, that the branch itself had run."""
    paid = 0
    while future.owner == number:
        paid += future.spent[-1]
        if future.next is None:
            break
        future = future.next
    return paid
