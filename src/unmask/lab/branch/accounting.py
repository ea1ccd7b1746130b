"""Who pays for shared work, and what a run without sharing would cost."""

from collections.abc import Sequence
from itertools import pairwise

from unmask.lab.branch.bucket import Bucket
from unmask.lab.branch.costs import AxisCost, BranchCost
from unmask.lab.branch.futures import Ticket
from unmask.lab.branch.pools import Ending, Future


class Ledger:
    """Books the row-forwards of one bucket: each on the axis of the branch that had it run, what is saved by reason.

    `reports` are those of the bucket's paths, one for each: paths of one block share theirs.
    """

    def __init__(self, bucket: Bucket, reports: Sequence[BranchCost], merge: bool):
        self.bucket, self.reports, self.merge = bucket, reports, merge
        self.forwards = 0
        """Done so far."""
        accounts = {id(report): [report.axes[one.axis] for one in bucket.alternatives] for report in reports}
        self._accounts = [accounts[id(reports[point.path])] for point in bucket.points]
        """By state and alternative."""
        after = [bucket.continuations[one.axis] for one in bucket.alternatives]
        self._settles = [one.settled is not None for one in after]
        """Alternatives after which rows may have nothing left to revise."""
        self._shared: dict[int, dict[tuple[int, int], set[int]]] = {}
        """Per state: the futures that branches before this one have, and which alternatives led to them."""

    def account(self, point: int, alternative: int) -> AxisCost:
        """Where a branch's row-forwards are booked."""
        return self._accounts[point][alternative]

    def pay(self, points: Sequence[int], alternative: int, forwards: Sequence[int]) -> None:
        """Forwards that branches of this alternative had run at some states."""
        self.forwards += sum(forwards)
        for point, spent in zip(points, forwards, strict=True):
            self._accounts[point][alternative].done += spent

    def pay_futures(self, futures: Sequence[Future], forwards: Sequence[int]) -> None:
        """Forwards of a step of some futures."""
        self.forwards += sum(forwards)
        for future, spent in zip(futures, forwards, strict=True):
            assert future.account is not None
            future.account.done += spent

    def recalled(self, points: Sequence[int]) -> None:
        """Forwards that brought previous posteriors back."""
        for point in points:
            self.reports[self.bucket.points[point].path].recalled += 1

    def close(self, number: int, ticket: Ticket, ending: Ending) -> None:
        """What a finished branch would have cost alone is what it paid and, by reason, what it saved.

        Branches are closed in the order of states, alternatives and rollouts.
        """
        cost, repeats = self._accounts[ticket.point][ticket.alternative], len(ticket.also)
        cost.branches += 1 + repeats
        if not self.merge:
            return
        cost.settled += (1 + repeats) * self._late(ticket, ending.steps)
        # Rollouts that draw nothing are saved whole.
        cost.rollouts += repeats * (ticket.cost.passes + 1 + ending.passes)
        saved = ending.passes - _paid_by(number, ticket.future)
        place = (id(ticket.future), ticket.at)
        at_state = self._shared.setdefault(ticket.point, {})
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
        if not self._settles[ticket.alternative]:
            return 0
        point = self.bucket.points[ticket.point]
        return max(0, point.request.steps - (point.sampled.step + 1 + steps))


def _paid_by(number: int, future: Future) -> int:
    """Forwards of a future, and of those it ran into, that the branch itself had run."""
    paid = 0
    while future.owner == number:
        paid += future.spent[-1]
        if future.next is None:
            break
        future = future.next
    return paid


def shared_out(calls: int, work: Sequence[int]) -> list[int]:
    """Passes that several blocks had together, as each one's share by its work: whole numbers that add up."""
    whole, before = max(1, sum(work)), 0
    ends = [0]
    for own in work:
        before += own
        ends.append(calls * before // whole)
    return [end - begin for begin, end in pairwise(ends)]
