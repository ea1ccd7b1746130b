"""Work that several processes share: each piece is claimed, done once, and waited for where another does it.

A piece that fails is tried again after the others, and set aside when it has failed too often; docs/study.md says what
counts. What is wrong with the study, the folder or the machine is no failure of a piece: it ends the run.
"""

import errno
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Generic, TypeVar

from unmask.base.errors import ConfigError, NotEnoughMemory, SchemaError, StorageError, UnmaskError, WorkerDied
from unmask.lab.cluster.faults import out_of_memory
from unmask.lab.store import Failure, Shard, Store, storage_error

Piece = TypeVar("Piece")

POLL = 0.5
"""Seconds between looks at shards that another process is working on."""
GRACE = 2.0
"""Seconds that a run which is stopped gives to shards that are computed, to be stored."""
OF_THE_STUDY = (ConfigError, SchemaError, StorageError, NotEnoughMemory)
"""Hold for every piece, or for the folder: nothing is counted."""
_OF_THE_MACHINE = {
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN
}  # fmt: skip
HOPELESS = 3
"""If so many pieces break a promise of ours, and none was ever done, it is the study that breaks it."""


def work_through(
    store: Store,
    pending: Sequence[Piece],
    place: Callable[[Piece], Shard],
    do: Callable[[Piece], None],
    stop: Callable[[], str],
    came: Callable[[], None] = lambda: None,
    lost: Callable[[Failure], None] = lambda failure: None,
) -> str:
    """Do every piece that no other process does, and wait for theirs. Those that are set aside are passed over.

    Returns why it stopped early, empty if it did not. `came` is called where another process has finished one, `lost`
    where one has failed.
    """

    def alone(pieces: Sequence[Piece]) -> list[Finish]:
        for piece in pieces:
            do(piece)
        return [_nothing] * len(pieces)

    return work_in_groups(store, pending, place, lambda left: [[piece] for piece in left], alone, stop, came, lost)


def work_in_groups(
    store: Store,
    pending: Sequence[Piece],
    place: Callable[[Piece], Shard],
    groups: Callable[[Sequence[Piece]], Sequence[Sequence[Piece]]],
    do: Callable[[Sequence[Piece]], Sequence["Finish"]],
    stop: Callable[[], str],
    came: Callable[[], None] = lambda: None,
    lost: Callable[[Failure], None] = lambda failure: None,
    done: Callable[[Piece], None] = lambda piece: None,
    on_wait: Callable[[str], None] = lambda text: None,
) -> str:
    """The same for pieces that are done together: `groups` says which, and `do` what is left to do for each of them.

    `on_wait` is told whom this process waits for.

    What is left is done by another thread while the next group is under way; `done` hears when it is. Where a group
    fails, its pieces are done one by one, so that only those count that fail by themselves.
    """
    with _Attempts(Claims(store, place, lost, done, len(pending)), do) as attempts:
        told = ""
        while pending:
            waiting: list[Piece] = []
            for group in groups(pending):
                if reason := stop():
                    attempts.finish()
                    return reason
                ours, others = attempts.claims.claim(group)
                for piece in others:
                    if store.is_finished(place(piece)):
                        came()
                    else:
                        waiting.append(piece)
                attempts.together(ours)
            again = attempts.finish()
            if waiting and not again:
                # Another process has them; should it die, they are ours.
                holders = sorted({store.holder(place(piece)) for piece in waiting} - {""})
                text = f"waiting for {len(waiting)} shards of {' and '.join(holders)}"
                if holders and text != told:
                    on_wait(told := text)
                time.sleep(POLL)
            pending = [*again, *waiting]
    return ""


Finish = Callable[[], None]
"""What is left to do for a piece: it may not need the device."""


def _nothing() -> None:
    """Leave a piece that is finished as it is."""


@dataclass
class Claims(Generic[Piece]):
    """Pieces that are ours while they are done, and how they ended."""

    store: Store
    place: Callable[[Piece], Shard]
    lost: Callable[[Failure], None]
    done: Callable[[Piece], None]
    pieces: int
    broken: set[str] = field(default_factory=set)
    """Names of those that have failed here."""
    again: list[Piece] = field(default_factory=list)
    """Failed, and not yet too often."""
    held: dict[str, ExitStack] = field(default_factory=dict)
    """By name: what this process holds."""

    def claim(self, pieces: Sequence[Piece]) -> tuple[list[Piece], list[Piece]]:
        """Take what nobody else has; returns the pieces that are ours from now on, and the others."""
        ours: list[Piece] = []
        others: list[Piece] = []
        for piece in pieces:
            with ExitStack() as stack:
                free = stack.enter_context(self.store.claim(self.place(piece)))
                if free:
                    self.held[self.place(piece).name] = stack.pop_all()
            (ours if free else others).append(piece)
        return ours, others

    def to_do(self, pieces: Sequence[Piece]) -> list[Piece]:
        """Keep the pieces that are not set aside, and let the others go."""
        todo: list[Piece] = []
        for piece in pieces:
            before = self.store.failures.of(self.place(piece))
            if before is not None and before.is_set_aside:
                self.release(piece)
            else:
                todo.append(piece)
        return todo

    def record_success(self, piece: Piece) -> None:
        failures, work = self.store.failures, self.place(piece)
        if failures.of(work) is not None:
            failures.forget(work)
        self.release(piece)
        self.done(piece)

    def record_failure(self, piece: Piece, error: BaseException) -> None:
        work = self.place(piece)
        failure = self.store.failures.add(work, error)
        self.broken.add(work.name)
        self.release(piece)
        self.lost(failure)
        hopeless = len(self.broken) >= min(HOPELESS, self.pieces) and not self.store.names()
        # Who kills workers breaks no promise of the study's.
        if isinstance(error, UnmaskError) and not isinstance(error, WorkerDied) and hopeless:
            raise error
        self.again += [] if failure.is_set_aside else [piece]

    def take_again(self) -> list[Piece]:
        """Hand out the pieces that are to be tried again."""
        again, self.again = self.again, []
        return again

    def release(self, piece: Piece) -> None:
        self.held.pop(self.place(piece).name).close()

    def close(self) -> None:
        for claim in self.held.values():
            claim.close()


@dataclass
class _Attempts(Generic[Piece]):
    """Tries at pieces that are ours, what is still being finished among them."""

    claims: Claims[Piece]
    do: Callable[[Sequence[Piece]], Sequence[Finish]]
    finishing: deque[tuple[Piece, "Future[None]"]] = field(default_factory=deque)
    thread: "_Finisher" = field(default_factory=lambda: _Finisher())

    def __enter__(self) -> "_Attempts[Piece]":
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> None:
        """Who stops the run gets what is computed stored, if it does not take long; after an error nothing is begun."""
        if kind is not None and issubclass(kind, Exception):
            for _, outcome in self.finishing:
                outcome.cancel()
        wait([outcome for _, outcome in self.finishing], GRACE)
        for _, outcome in self.finishing:
            outcome.cancel()
        self.thread.end()
        self.claims.close()

    def together(self, pieces: Sequence[Piece]) -> None:
        """Do pieces that are ours; what is set aside is let go."""
        todo = self.claims.to_do(pieces)
        if not todo:
            return
        try:
            finishes = self.do(todo)
        # Of a user's function, too, that ends the program.
        except (Exception, SystemExit) as error:
            raise_if_general(self.claims.store, error)
            if len(todo) == 1:
                return self.claims.record_failure(todo[0], error)
            for piece in todo:
                self.together([piece])
            return
        for piece, finish in zip(todo, finishes, strict=True):
            self._later(piece, finish)
        # No more than one group is being finished while the next is done: what it holds is large.
        self._collect(len(todo))

    def finish(self) -> list[Piece]:
        """Wait for what is being finished. Returns what is to be tried again."""
        self._collect(0)
        return self.claims.take_again()

    def _later(self, piece: Piece, finish: Finish) -> None:
        if finish is _nothing:
            return self.claims.record_success(piece)
        self.finishing.append((piece, self.thread.submit(finish)))

    def _collect(self, leave: int) -> None:
        """Hear how pieces were finished, in their order, until so few are left that are not."""
        while self.finishing and (len(self.finishing) > leave or self.finishing[0][1].done()):
            piece, outcome = self.finishing.popleft()
            try:
                outcome.result()
            except (Exception, SystemExit) as error:
                raise_if_general(self.claims.store, error)
                self.claims.record_failure(piece, error)
            else:
                self.claims.record_success(piece)


class _Finisher:
    """A thread that does one thing after the other. The program does not wait for it: a user's scorer may never end."""

    def __init__(self) -> None:
        self.todo: SimpleQueue[tuple[Finish, Future[None]] | None] = SimpleQueue()
        self.thread: threading.Thread | None = None

    def submit(self, finish: Finish) -> "Future[None]":
        """Do this after what was given before."""
        outcome: Future[None] = Future()
        self.todo.put((finish, outcome))
        if self.thread is None:
            self.thread = threading.Thread(target=self._work, name="finishing shards", daemon=True)
            self.thread.start()
        return outcome

    def end(self) -> None:
        """Nothing more will come."""
        self.todo.put(None)

    def _work(self) -> None:
        while (given := self.todo.get()) is not None:
            finish, outcome = given
            if not outcome.set_running_or_notify_cancel():
                continue
            try:
                outcome.set_result(finish())
            # For who waits for it, whatever it is.
            except BaseException as error:
                outcome.set_exception(error)


def raise_if_general(store: Store, error: BaseException) -> None:
    """Raise what does not belong to the piece at hand: the study's, the folder's or the machine's error."""
    if isinstance(error, OF_THE_STUDY):
        raise error
    if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
        raise storage_error(store.folder, error) from error
    if out_of_memory(error):
        raise NotEnoughMemory(
            f"memory ran out ({type(error).__name__}); what is finished stays; make room, or lower live, waiting or "
            "rows of [engine] (other rows are another study), and run the same command to go on"
        ) from error
