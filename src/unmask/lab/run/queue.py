"""Work that several processes share: each piece is claimed, done once, and waited for where another does it."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from unmask.lab.store import Store
from unmask.lab.store.shards import Shard, Unit

Piece = TypeVar("Piece")

POLL = 0.5
"""Seconds between looks at shards that another process is working on."""


def work_through(
    store: Store,
    pending: Sequence[Piece],
    place: Callable[[Piece], Shard | Unit],
    do: Callable[[Piece], None],
    stop: Callable[[], str],
    came: Callable[[], None] = lambda: None,
) -> str:
    """Do every piece that no other process does, and wait for theirs.

    Returns why it stopped early, empty if it did not. `came` is called where another process has finished one.
    """
    while pending:
        waiting = []
        for piece in pending:
            if reason := stop():
                return reason
            with store.claim(place(piece)) as ours:
                if ours:
                    do(piece)
                elif not store.finished(place(piece)):
                    waiting.append(piece)
                else:
                    came()
        if waiting:
            # Another process has them; should it die, they are ours.
            time.sleep(POLL)
        pending = waiting
    return ""
