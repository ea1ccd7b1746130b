"""Rows that run and rows that wait, and the futures that they run."""

from collections import deque
from typing import NamedTuple

import numpy as np
import torch

from unmask.core import Trajectory
from unmask.core.rows import concat
from unmask.lab.branch.costs import AxisCost
from unmask.lab.branch.plan import Continuation


class Ending(NamedTuple):
    """What a future comes to from some step on."""

    canvas_L: np.ndarray
    steps: int
    passes: int
    """Row-forwards of these steps."""


class Future:
    """A stretch of steps that one branch ran: its end, or the other future it turned out to be."""

    __slots__ = ("account", "at", "end", "next", "owner", "spent", "whole")

    def __init__(self, owner: int, account: AxisCost | None = None):
        self.owner = owner
        """The branch that pays, by the number of its ticket; -1 for the reference's own run."""
        self.account = account
        """Where its row-forwards are booked; None for the reference's own run."""
        self.spent = [0]
        """Row-forwards after so many steps: one each, unless who runs it looks ahead."""
        self.end: np.ndarray | None = None
        self.next: Future | None = None
        self.at = 0
        """Where in `next` it joins."""
        self.whole: Ending | None = None
        """What it comes to from its first step on, once somebody has followed it to its end."""

    @property
    def length(self) -> int:
        """Steps run so far."""
        return len(self.spent) - 1

    def add_step(self, passes: int) -> None:
        """One more step, which took so many row-forwards."""
        self.spent.append(self.spent[-1] + passes)


class WaitingRows(NamedTuple):
    """Rows that came to a pool together."""

    traj: Trajectory
    futures: list[Future]
    prompts: list[int]
    """Index of each row's prompt in the bucket."""

    def split(self, n: int) -> tuple["WaitingRows", "WaitingRows"]:
        """The first n rows, and the others."""
        at_U = torch.arange(len(self.futures), device=self.traj.rows_B.device)
        first = WaitingRows(self.traj.select(at_U[:n]), self.futures[:n], self.prompts[:n])
        return first, WaitingRows(self.traj.select(at_U[n:]), self.futures[n:], self.prompts[n:])


class RowPool:
    """Live and waiting rows of one continuation policy, all of one structure, so that they can share a batch."""

    def __init__(self, kind: int, after: Continuation):
        self.kind = kind
        """The number of the policy among continuations."""
        self.policy, self.settled = after.policy, after.settled
        self.keep = after.policy.memory
        self.live: Trajectory | None = None
        self.futures: list[Future] = []
        """Of the live rows, as are their prompts."""
        self.prompts: list[int] = []
        self.waiting: deque[WaitingRows] = deque()

    @property
    def size(self) -> int:
        return len(self.futures) + sum(len(rows.futures) for rows in self.waiting)

    def add(self, traj: Trajectory, futures: list[Future], prompts: list[int]) -> None:
        self.waiting.append(WaitingRows(traj, futures, prompts))

    def fill(self, most: int, rows: int = 1) -> Trajectory:
        """The next batch: who is running, and who was waiting longest; a multiple of `rows` where there are so many."""
        most = min(most, self.size)
        most -= most % rows if most >= rows else 0
        if len(self.futures) > most:
            self._put_back(most)
        parts = [] if self.live is None or not self.futures else [self.live]
        while self.waiting and len(self.futures) < most:
            rows = self.waiting.popleft()
            room = most - len(self.futures)
            if len(rows.futures) > room:
                rows, others = rows.split(room)
                self.waiting.appendleft(others)
            parts.append(rows.traj)
            self.futures, self.prompts = self.futures + rows.futures, self.prompts + rows.prompts
        return parts[0] if len(parts) == 1 else concat(parts)

    def _put_back(self, most: int) -> None:
        """Rows that were running and have to wait are the next to go on."""
        assert self.live is not None
        running, others = WaitingRows(self.live, self.futures, self.prompts).split(most)
        self.live, self.futures, self.prompts = running
        self.waiting.appendleft(others)

    def retire(self, traj: Trajectory, stay: list[int]) -> None:
        """Keep the rows that go on."""
        self.live = selected(traj, stay)
        self.futures = [self.futures[row] for row in stay]
        self.prompts = [self.prompts[row] for row in stay]


def selected(traj: Trajectory, rows: list[int]) -> Trajectory:
    """Some rows of a batch in their order; the batch itself where these are all."""
    if len(rows) == len(traj.rows_B):
        return traj
    return traj.select(torch.tensor(rows, dtype=torch.long, device=traj.rows_B.device))
