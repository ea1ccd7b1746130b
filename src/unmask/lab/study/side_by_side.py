"""Work that workers elsewhere share: many groups are under way at once, and this process books how each of them ends.

What counts as a failure, and what follows, is as in `queue`, whose claims these are.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Generic

from unmask.lab.study.attempts import POLL, Claims, Piece, raise_if_general

TICK = 0.2
"""Seconds between looks at the clock."""
MOST = 1024
"""Groups under way, however many workers there are."""

Errors = Sequence[BaseException | None]
"""How each piece of a group ended; None where it is stored."""


@dataclass
class SideBySide(Generic[Piece]):
    """Groups of pieces, so many at a time, each followed by a thread that mostly waits."""

    claims: Claims[Piece]
    groups: Callable[[Sequence[Piece]], Sequence[Sequence[Piece]]]
    do: Callable[[Sequence[Piece]], Errors]
    """Does a group and stores it; raises where it failed as a whole."""
    room: Callable[[], int]
    """Groups that may be under way now: what bounds memory."""
    stop: Callable[[], str]
    abandon: Callable[[], None]
    """Ends what is under way: whoever waits for a worker hears that it was stopped."""
    came: Callable[[], None] = lambda: None
    tick: Callable[[], None] = lambda: None
    running: "dict[Future[Errors], list[Piece]]" = field(default_factory=dict)
    todo: deque[list[Piece]] = field(default_factory=deque)
    """Ours, and not begun."""

    def work(self, pending: Sequence[Piece]) -> str:
        """Do every piece that no other process does, and wait for theirs. Returns why it stopped early."""
        threads = ThreadPoolExecutor(MOST, thread_name_prefix="shards")
        reason = ""
        try:
            while pending and not reason:
                waiting: list[Piece] = []
                reason = self._through(deque(map(list, self.groups(pending))), waiting, threads)
                again = self.claims.take_again()
                if waiting and not again:
                    # Another process has them; should it die, they are ours.
                    time.sleep(POLL)
                pending = [*again, *waiting]
        except BaseException:
            self.abandon()
            raise
        finally:
            threads.shutdown(wait=True, cancel_futures=True)
            self.claims.close()
        return reason

    def _through(self, groups: deque[list[Piece]], waiting: list[Piece], threads: ThreadPoolExecutor) -> str:
        reason = ""
        while groups or self.todo or self.running:
            reason = reason or self.stop()
            if reason:
                # What is under way is finished, as one process finishes its group.
                groups.clear()
                self._let_go()
            while (groups or self.todo) and len(self.running) < min(self.room(), MOST):
                self._begin(groups, waiting, threads)
            ended, _ = wait(self.running, TICK, FIRST_COMPLETED)
            for future in ended:
                self._handle_end(self.running.pop(future), future)
            self.tick()
        return reason

    def _begin(self, groups: deque[list[Piece]], waiting: list[Piece], threads: ThreadPoolExecutor) -> None:
        if self.todo:
            group = self.todo.popleft()
        else:
            ours, others = self.claims.claim(groups.popleft())
            for piece in others:
                if self.claims.store.is_finished(self.claims.place(piece)):
                    self.came()
                else:
                    waiting.append(piece)
            group = self.claims.to_do(ours)
        if group:
            self.running[threads.submit(self.do, group)] = group

    def _handle_end(self, group: list[Piece], future: "Future[Errors]") -> None:
        whole = future.exception()
        if whole is not None:
            raise_if_general(self.claims.store, whole)
            if len(group) > 1:
                # One by one, so that only those count that fail by themselves.
                self.todo.extend([piece] for piece in group)
                return
        errors: Errors = [whole] if whole is not None else future.result()
        for piece, error in zip(group, errors, strict=True):
            if error is None:
                self.claims.record_success(piece)
            else:
                raise_if_general(self.claims.store, error)
                self.claims.record_failure(piece, error)

    def _let_go(self) -> None:
        for group in self.todo:
            for piece in group:
                self.claims.release(piece)
        self.todo.clear()
