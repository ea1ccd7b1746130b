"""Rows that run and rows that wait, and the futures that they run."""

from collections import deque
from typing import NamedTuple

import numpy as np
import torch

from unmask.base.errors import ContractError
from unmask.core import Trajectory, concat
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


def follow(future: Future, at: int) -> Ending:
    """The final canvas of a future, and what it takes from its `at`-th step on."""
    if future.whole is None:
        _follow_whole(future)
    whole: Ending | None = future.whole
    assert whole is not None
    return Ending(whole.canvas_L, whole.steps - at, whole.passes - future.spent[at])


def _follow_whole(future: Future) -> None:
    """What a future and those it runs into come to from their beginnings, noted in each."""
    chain = [future]
    while chain[-1].whole is None and (after := chain[-1].next) is not None:
        chain.append(after)
    for one in reversed(chain):
        if one.whole is not None:
            continue
        if one.next is not None:
            rest = follow(one.next, one.at)
            one.whole = Ending(rest.canvas_L, one.length + rest.steps, one.spent[-1] + rest.passes)
        elif one.end is not None:
            one.whole = Ending(one.end, one.length, one.spent[-1])
        else:
            raise ContractError("a branch has no end; allowed: futures that finish; this is a bug of the engine")


class RunningRows(NamedTuple):
    """Rows of one structure, the futures that they run, and whose they are."""

    traj: Trajectory
    futures: list[Future]
    prompts: list[int]
    """Index of each row's prompt in the bucket."""

    def split(self, n: int) -> tuple["RunningRows", "RunningRows"]:
        """The first n rows, and the others."""
        at_U = torch.arange(len(self.futures), device=self.traj.rows_B.device)
        first = RunningRows(self.traj.select(at_U[:n]), self.futures[:n], self.prompts[:n])
        return first, RunningRows(self.traj.select(at_U[n:]), self.futures[n:], self.prompts[n:])

    def after(self, traj: Trajectory, stay: list[int]) -> "RunningRows":
        """Those that stay, one step later."""
        if len(stay) == len(self.futures):
            return self._replace(traj=traj)
        futures, prompts = [self.futures[row] for row in stay], [self.prompts[row] for row in stay]
        return RunningRows(selected(traj, stay), futures, prompts)


class RowPool:
    """Rows that wait for a step of one continuation policy, all of one structure, so that they can share a batch."""

    def __init__(self, kind: int, after: Continuation):
        self.kind = kind
        """The number of the policy among continuations."""
        self.policy, self.settled = after.policy, after.settled
        self.keep = after.policy.past_steps
        self.size = 0
        self._waiting: deque[RunningRows] = deque()

    def add(self, rows: RunningRows) -> None:
        """At the end of the queue."""
        self._waiting.append(rows)
        self.size += len(rows.futures)

    def put_back(self, rows: RunningRows) -> None:
        """Rows that have taken a step and go on are the next."""
        self._waiting.appendleft(rows)
        self.size += len(rows.futures)

    def take(self, most: int, full: int = 1) -> RunningRows:
        """The next batch: who has waited longest; a multiple of `full` where there are so many."""
        most = min(most, self.size)
        most -= most % full if most >= full else 0
        parts: list[RunningRows] = []
        while self._waiting and most:
            rows = self._waiting.popleft()
            if len(rows.futures) > most:
                rows, others = rows.split(most)
                self._waiting.appendleft(others)
            parts.append(rows)
            most -= len(rows.futures)
            self.size -= len(rows.futures)
        if len(parts) == 1:
            return parts[0]
        futures = [future for part in parts for future in part.futures]
        prompts = [prompt for part in parts for prompt in part.prompts]
        return RunningRows(concat([part.traj for part in parts]), futures, prompts)


def selected(traj: Trajectory, rows: list[int]) -> Trajectory:
    """Some rows of a batch in their order; the batch itself where these are all."""
    if len(rows) == len(traj.rows_B):
        return traj
    return traj.select(torch.tensor(rows, dtype=torch.long, device=traj.rows_B.device))
