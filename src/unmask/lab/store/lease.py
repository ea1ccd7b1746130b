"""One driver at a time writes to a store that is not on this machine: who holds its lease.

    ADDRESS/lease/TOKEN.json     who, since when, the count of heartbeats; gone when the driver has ended

`pyarrow.fs` puts no object on a condition, so nobody overwrites anybody: each driver puts an object of its own and then
lists them all. Who sees another one that is alive withdraws. Of two drivers the one whose object came later must see
the earlier one, so at most one stays, on any store whose lists show what was put before (S3, Google Cloud Storage and
MinIO promise it). How old an object is goes by the server's own clock: the newcomer compares it with its own object.
"""

import atexit
import getpass
import json
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from unmask.base.errors import StorageError
from unmask.lab.store.places import RemotePath

EVERY, MISSED = 10.0, 6
"""Seconds between heartbeats, and how many may be missed: then the holder is dead, for itself and for others."""
HOME = "lease"
_TRIES = 4


class StoreHeld(StorageError):
    """Another driver has the store."""


class LeaseLost(StorageError):
    """This driver had the store, and may not write any more."""


class Holder(NamedTuple):
    """What a lease says."""

    who: str
    since: str
    every: float
    missed: int
    holds: bool
    """It has been let in; otherwise it has just come."""
    silent: float
    """Seconds since it was last heard of, by the server's clock."""

    @property
    def lasts(self) -> float:
        return self.every * self.missed

    def __str__(self) -> str:
        return f"{self.who}, since {self.since}, last heard of {self.silent:.0f} s ago"


class Lease:
    """Held from `take` to `release`; a thread sends heartbeats meanwhile."""

    def __init__(self, home: RemotePath, *, every: float = EVERY, missed: int = MISSED):
        self.home, self.every, self.missed = home, every, missed
        self.token = secrets.token_hex(8)
        self.lost = ""
        """Why it is not ours any more."""
        self._path = home / HOME / f"{self.token}.json"
        self._about = {"who": _who(), "since": _now(), "every": every, "missed": missed}
        self._beats, self._heard = 0, _clock()
        self._stop, self._pid = threading.Event(), os.getpid()
        self._thread = threading.Thread(target=self._beat_on, name="unmask-lease", daemon=True)

    def take(self) -> "Lease":
        """Refused while another driver is alive, with who it is."""
        with ExitStack() as undo:
            undo.callback(self._withdraw)
            for more in reversed(range(_TRIES)):
                other = self._rival()
                if other is None:
                    break
                self._withdraw()
                if other.holds or not more:
                    raise self._refusal(other)
                # A newcomer, too, that has seen this one: both withdraw, and come again at different moments.
                time.sleep(random.uniform(0.1, 0.5))
            self._put(holds=True)
            undo.pop_all()
        atexit.register(self.release)
        self._thread.start()
        return self

    def release(self) -> None:
        """Let another driver in; twice does nothing."""
        atexit.unregister(self.release)
        if self._stop.is_set() or os.getpid() != self._pid:
            return
        self._stop.set()
        self._thread.join()
        self._withdraw()

    def _withdraw(self) -> None:
        # Where nobody answers, it expires.
        with suppress(StorageError):
            self._path.unlink()

    def check(self) -> None:
        """Raise unless the lease is ours now. Asks nobody: whoever was not heard of for too long knows it by itself."""
        if not self.lost and self._silent():
            self.lost = f"no heartbeat came through for {self.every * self.missed:g} s"
        if self.lost:
            raise lost(self.home, self.lost)

    def _put(self, *, holds: bool) -> None:
        sent = _clock()
        self._beats += 1
        self._path.write_bytes(json.dumps({**self._about, "holds": holds, "beats": self._beats}).encode())
        # Answered too late: another driver may have come meanwhile.
        if not holds or not self._silent():
            self._heard = sent

    def _silent(self) -> bool:
        return _clock() - self._heard > self.every * self.missed

    def _beat_on(self) -> None:
        while not self._stop.wait(self.every) and not self.lost:
            try:
                if not self._path.is_file():
                    self.lost = "it was removed: another driver has come, or somebody has let one"
                    return
                self._put(holds=True)
            except StorageError:
                continue  # One heartbeat is missed.
            if self._silent():
                # Put too late: it must not stand in the way of who came meanwhile.
                self._withdraw()
                return

    def _rival(self) -> Holder | None:
        """Come, and look: another driver that is alive; what dead ones left is removed."""
        self._put(holds=False)
        put = self.home.objects.list((self.home / HOME).key)
        if self._path.key not in put:
            raise StorageError(
                f"{str(self._path)!r} was put and is not listed; allowed: a store whose lists show what was put "
                "before; choose another"
            )
        for key in sorted(put.keys() - {self._path.key}):
            path = RemotePath(self.home.objects, key)
            try:
                other = _holder(path.read_bytes(), silent=put[self._path.key] - put[key])
            except FileNotFoundError:
                continue
            if other.silent <= other.lasts:
                return other
            path.unlink()
        return None

    def _refusal(self, other: Holder) -> StoreHeld:
        left = max(1, round(other.lasts - other.silent))
        return StoreHeld(
            f"{str(self.home)!r} is held by {other}; allowed: one driver at a time; wait until it has ended, or if it "
            f"is dead, {left} s from now, and run the same command"
        )


def holder_of(home: RemotePath) -> Holder | None:
    """Who was last heard of, by this machine's clock: for readers, which put nothing to compare with."""
    put = home.objects.list((home / HOME).key)
    for key in sorted(put, key=lambda key: -put[key]):
        with suppress(FileNotFoundError):
            content = RemotePath(home.objects, key).read_bytes()
            return _holder(content, silent=max(0.0, time.time() - put[key]))
    return None


def guard_of(home: RemotePath, token: str) -> Callable[[], None]:
    """For those that write on behalf of the driver: raises when its lease is gone. Asks the server each time."""
    path = home / HOME / f"{token}.json"

    def check() -> None:
        if not path.is_file():
            raise lost(home, "the driver's lease is not there any more")

    return check


def lost(home: RemotePath, why: str) -> LeaseLost:
    """The error to raise."""
    return LeaseLost(
        f"the lease of {str(home)!r} is lost ({why}); what is finished stays and nothing more is written; run the same "
        "command to go on, when no other driver does"
    )


def _holder(content: bytes, silent: float) -> Holder:
    """What a lease says; one that says nothing lasts as long as ours."""
    try:
        told: dict[str, Any] = json.loads(content)
        every, missed, holds = float(told["every"]), int(told["missed"]), bool(told["holds"])
        return Holder(str(told["who"]), str(told["since"]), every, missed, holds, silent)
    except (ValueError, KeyError, TypeError):
        return Holder("an unknown driver", "an unknown time", EVERY, MISSED, True, silent)


def _who() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        user = "somebody"
    return f"{user}, process {os.getpid()} on {socket.gethostname()}"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _clock() -> float:
    """Seconds that pass while a machine sleeps, too, where it can tell."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
