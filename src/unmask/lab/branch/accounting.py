"""Who pays for shared work, and what a run without sharing would cost."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from unmask.lab.branch.bucket import Bucket
from unmask.lab.branch.costs import AxisCost, BranchCost
from unmask.lab.branch.futures import Ticket
from unmask.lab.branch.pools import Future, follow


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

    def close(self, tickets: Sequence[Ticket], order: np.ndarray) -> None:
        """What each finished branch would have cost alone is what it paid and, by reason, what it saved.

        Branches are closed in the order of states, alternatives and rollouts: `order` are their numbers.
        """
        closed = _Closed.of(self.bucket, tickets, order)
        repeats, ones = closed.repeats, np.ones_like(closed.repeats)
        booked = {"branches": ones + repeats}
        if self.merge:
            saved = 1 + closed.passes - closed.paid
            again, later = np.where(closed.ran, 0, closed.own), closed.rollout > 0
            new, known = closed.new_future, closed.known_alternative
            booked |= {
                "settled": (1 + repeats) * closed.late,
                # Rollouts that draw nothing are saved whole. What a method looks at is looked at once where nothing is
                # drawn, and where two axes name the method.
                "rollouts": repeats * (closed.own + 1 + closed.passes) + again * later + saved * (~new & known),
                # The first branch of a state pays for the forward that all of them share.
                "first": again * ~later + saved * (~new & ~known) + (new & ~closed.first_of_state),
                "futures": (saved - 1) * new,
            }
        self._book(closed, booked)

    def _book(self, closed: "_Closed", booked: Mapping[str, np.ndarray]) -> None:
        """Numbers of branches to the reports that their prompts belong to, axis by axis."""
        reports = list({id(report): report for report in self.reports}.values())
        place = {id(report): at for at, report in enumerate(reports)}
        axes = list(self.bucket.continuations)
        axis_A = np.array([axes.index(one.axis) for one in self.bucket.alternatives])
        report_P = np.array([place[id(self.reports[point.path])] for point in self.bucket.points])
        account_S = report_P[closed.point] * len(axes) + axis_A[closed.alternative]
        for name, number_S in booked.items():
            sums = np.zeros(len(reports) * len(axes), np.int64)
            np.add.at(sums, account_S, number_S)
            for at, total in enumerate(sums.tolist()):
                cost = reports[at // len(axes)].axes[axes[at % len(axes)]]
                setattr(cost, name, getattr(cost, name) + total)


class _Closed(NamedTuple):
    """Finished branches in their order, column by column."""

    point: np.ndarray
    alternative: np.ndarray
    rollout: np.ndarray
    repeats: np.ndarray
    """Further rollouts that the branch stands for."""
    own: np.ndarray
    """Row-forwards of its own step beside the shared one, and whether they were run for it."""
    ran: np.ndarray
    passes: np.ndarray
    """Row-forwards of its future, and how many of them it had run itself."""
    paid: np.ndarray
    late: np.ndarray
    """Steps that the operator would go on for after the row is settled and full."""
    first_of_state: np.ndarray
    new_future: np.ndarray
    """No branch of the state before it has the same future."""
    known_alternative: np.ndarray
    """One of the same alternative has."""

    @classmethod
    def of(cls, bucket: Bucket, tickets: Sequence[Ticket], order: np.ndarray) -> "_Closed":
        rows = []
        for number in order.tolist():
            point_at, tried, rollout_at, future_of, joined, _, cost, was_run, also = tickets[number]
            _, steps_left, passes_left = follow(future_of, joined)
            had_run = _paid_by(number, future_of) if future_of.owner == number else 0
            what = (point_at, tried, rollout_at, len(also), cost.passes, was_run)
            rows.append((*what, joined, id(future_of), steps_left, passes_left, had_run))
        table = np.array(rows, np.int64).reshape(-1, 11)
        point, alternative, rollout, repeats, own, ran, at, future, steps, passes, paid = table.T
        settles_A = [bucket.continuations[one.axis].settled is not None for one in bucket.alternatives]
        end_P = [point.request.steps - point.sampled.step - 1 for point in bucket.points]
        late = np.maximum(0, np.array(end_P)[point] - steps) * np.array(settles_A)[alternative]
        new, unseen = _first_of(point, future, at), _first_of(point, future, at, alternative)
        flags = (_first_of(point), new, ~unseen)
        return cls(point, alternative, rollout, repeats, own, ran.astype(bool), passes, paid, late, *flags)


def _first_of(*keys: np.ndarray) -> np.ndarray:
    """Which rows are the first with their keys."""
    order = np.lexsort(keys[::-1])
    same = np.ones(len(order), bool)
    same[:1] = False
    for key in keys:
        same[1:] &= key[order][1:] == key[order][:-1]
    first = np.empty(len(order), bool)
    # A stable sort: of equal ones the first comes first.
    first[order] = ~same
    return first


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
