"""Work that several processes share: each piece is claimed, done once, and waited for where another does it.

A piece that fails is tried again after the others, and set aside when it has failed too often; docs/study.md says what
counts. What is wrong with the study, the folder or the machine is no failure of a piece: it ends the run.
"""

import errno
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch

from unmask.errors import ConfigError, NotEnoughMemory, SchemaError, StorageError, UnmaskError
from unmask.lab.store import Store
from unmask.lab.store.failures import Failure, Failures
from unmask.lab.store.shards import Shard, Unit, cannot_write

Piece = TypeVar("Piece")

POLL = 0.5
"""Seconds between looks at shards that another process is working on."""
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
    place: Callable[[Piece], Shard | Unit],
    do: Callable[[Piece], None],
    stop: Callable[[], str],
    came: Callable[[], None] = lambda: None,
    lost: Callable[[Failure], None] = lambda failure: None,
) -> str:
    """Do every piece that no other process does, and wait for theirs. Those that are set aside are passed over.

    Returns why it stopped early, empty if it did not. `came` is called where another process has finished one, `lost`
    where one has failed.
    """
    attempts = _Attempts(store, place, do, lost, len(pending))
    while pending:
        waiting, again = [], []
        for piece in pending:
            if reason := stop():
                return reason
            with store.claim(place(piece)) as ours:
                if ours:
                    again += [] if attempts.settled(piece) else [piece]
                elif not store.finished(place(piece)):
                    waiting.append(piece)
                else:
                    came()
        if waiting and not again:
            # Another process has them; should it die, they are ours.
            time.sleep(POLL)
        pending = [*again, *waiting]
    return ""


@dataclass
class _Attempts(Generic[Piece]):
    """One try at a piece that is ours."""

    store: Store
    place: Callable[[Piece], Shard | Unit]
    do: Callable[[Piece], None]
    lost: Callable[[Failure], None]
    pieces: int
    failed: set[str] = field(default_factory=set)

    def settled(self, piece: Piece) -> bool:
        """Do it. Whether that is all that is to be done about it: it is there, or set aside."""
        work, failures = self.place(piece), Failures(self.store.folder)
        before = failures.of(work)
        if before is not None and before.set_aside:
            return True
        try:
            self.do(piece)
        # Of a user's function, too, that ends the program.
        except (Exception, SystemExit) as error:
            raise_if_general(self.store, error)
            failure = failures.add(work, error)
            self.failed.add(work.name)
            self.lost(failure)
            hopeless = len(self.failed) >= min(HOPELESS, self.pieces) and not self.store.names()
            if isinstance(error, UnmaskError) and hopeless:
                raise
            return failure.set_aside
        if before is not None:
            failures.forget(work)
        return True


def raise_if_general(store: Store, error: BaseException) -> None:
    """Raise what does not belong to the piece at hand: the study's, the folder's or the machine's error."""
    if isinstance(error, OF_THE_STUDY):
        raise error
    if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
        raise cannot_write(store.folder, error) from error
    if _out_of_memory(error):
        raise NotEnoughMemory(
            f"memory ran out ({type(error).__name__}); what is finished stays; make room, or lower live, waiting or "
            "rows of [engine] (other rows are another study), and run the same command to go on"
        ) from error


def _out_of_memory(error: BaseException) -> bool:
    """PyTorch says so in a class of its own on a GPU, and in words on a CPU."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
    )
