"""One driver at a time writes to an object store: the one that holds the lease.

    ADDRESS/lease/000007.json     who, since when, heartbeats; "released" when the driver has ended

The lease with the largest number counts. A driver takes it by creating the next number with a conditional put, which
the server lets exactly one driver do, and only if the last one was released or is silent for too long. The last one is
never removed, only overwritten, so that numbers grow and a slow newcomer cannot create one that was taken before.
How long a lease was silent goes by the server's clock: the newcomer puts an object of its own and compares the times.
"""

import atexit
import getpass
import json
import os
import secrets
import socket
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from unmask.base.errors import StorageError
from unmask.lab.store.objects import Objects

HEARTBEAT_SECONDS, MISSED_HEARTBEATS = 10.0, 6
"""Seconds between heartbeats, and how many may be missed: then the holder is dead, for itself and for others."""
MAX_ROUNDS = 5
"""Attempts to take a lease while other drivers try the same."""


class StoreHeld(StorageError):
    """Another driver has the store."""


class LeaseLost(StorageError):
    """This driver had the store, and may not write any more."""


class Lease:
    """The right of one driver to write to an address, kept alive by a thread that sends heartbeats."""

    def __init__(self, objects: Objects, *, every: float = HEARTBEAT_SECONDS, missed: int = MISSED_HEARTBEATS):
        self.objects, self.lasts, self.every = objects, every * missed, every
        self.about = {"token": secrets.token_hex(8), "who": driver_name(), "since": _utc_now(), "lasts": self.lasts}
        self.name = ""
        self.lost_reason = ""
        self._beats, self._last_beat = 0, _clock_seconds()
        self._stop, self._pid = threading.Event(), os.getpid()
        self._thread = threading.Thread(target=self._keep_alive, name="unmask-lease", daemon=True)

    def take(self) -> "Lease":
        """Take the lease; refused with its holder's name while another driver is alive."""
        for _ in range(MAX_ROUNDS):
            older = _list_numbers(self.objects)
            if older and (silent := self._silent_seconds(older[-1])) is not None:
                self._raise_store_held(older[-1], silent)
            self.name = _file_name(older[-1] + 1 if older else 1)
            self._last_beat = _clock_seconds()
            # A put that the server accepted and whose answer was lost is refused when it is sent again.
            if not (self.objects.create(self.name, self._encode()) or self._is_ours()):
                continue
            try:
                if _list_numbers(self.objects)[-1] != _number_from_name(self.name):
                    # Others took and gave back leases since the first look, and removed the one of this number.
                    self.objects.remove(self.name)
                    continue
                self._check_conditional_puts()
            except BaseException:
                self._give_back()
                raise
            atexit.register(self.release)
            self._thread.start()
            for number in older:
                self.objects.remove(_file_name(number))
            return self
        raise StoreHeld(
            f"{self.objects.address!r} is being taken by other drivers; allowed: one at a time; run the command again"
        )

    def _check_conditional_puts(self) -> None:
        if self.objects.create(self.name, self._encode()):
            raise StorageError(
                f"{self.objects.address!r} replaces an object that a conditional put must not replace; allowed: a "
                "store that honours If-None-Match, as S3, Google Cloud Storage and MinIO do; choose another"
            )

    def release(self) -> None:
        """Release the lease. A second call does nothing, nor does one in a forked process."""
        atexit.unregister(self.release)
        if self._stop.is_set() or os.getpid() != self._pid:
            return
        self._stop.set()
        self._thread.join()
        if not self.lost_reason and not self._is_silent():
            self._give_back()

    def _give_back(self) -> None:
        # Overwritten, not removed: the next driver must find a number to go on from. Where nobody answers, it expires.
        with suppress(StorageError):
            self.objects.upload(self.name, self._encode(released=True))

    def check(self) -> None:
        """Raise unless this driver holds the lease now. Sends no request: its own clock says whether it was silent."""
        if not self.lost_reason and self._is_silent():
            self.lost_reason = f"no heartbeat came through for {self.lasts:g} s"
        if self.lost_reason:
            raise LeaseLost(
                f"the lease of {self.objects.address!r} is lost ({self.lost_reason}); what is finished stays and "
                "nothing more is written; run the same command to go on, when no other driver does"
            )

    def _encode(self, *, released: bool = False) -> bytes:
        return json.dumps({**self.about, "beats": self._beats, "released": released}).encode()

    def _is_ours(self) -> bool:
        with suppress(FileNotFoundError):
            return bool(_read_lease(self.objects, self.name)["token"] == self.about["token"])
        return False

    def _is_silent(self) -> bool:
        return _clock_seconds() - self._last_beat > self.lasts

    def _keep_alive(self) -> None:
        while not self._stop.wait(self.every) and not self.lost_reason:
            with suppress(StorageError):  # One heartbeat is missed.
                sent = _clock_seconds()
                if _list_numbers(self.objects)[-1:] != [_number_from_name(self.name)]:
                    self.lost_reason = "it was removed: another driver has come, or somebody has let one in"
                    return
                self._beats += 1
                self.objects.upload(self.name, self._encode())
                # Answered too late: another driver may have come meanwhile, and must be left alone.
                if not self._is_silent():
                    self._last_beat = sent

    def _silent_seconds(self, number: int) -> float | None:
        """Return for how long a lease was silent by the server's clock; None if it may be taken over."""
        name, clock = _file_name(number), f"lease/clock-{self.about['token']}"
        try:
            lease = _read_lease(self.objects, name)
            put = self.objects.modification_time(name)
        except FileNotFoundError:
            return None
        if lease["released"]:
            return None
        self.objects.upload(clock, b"")
        try:
            silent = self.objects.modification_time(clock) - put
        finally:
            self.objects.remove(clock)
        return silent if silent <= lease["lasts"] else None

    def _raise_store_held(self, number: int, silent: float) -> None:
        lease = _read_lease(self.objects, _file_name(number))
        raise StoreHeld(
            f"{self.objects.address!r} is held by {_describe_lease(lease, silent)}; allowed: one driver at a time; "
            f"wait until it has ended, or if it is dead, {max(1, round(lease['lasts'] - silent))} s from now, and run "
            "the same command"
        )


def describe_holder(objects: Objects) -> str:
    """Name the driver that was last heard of, by this machine's clock, for readers; empty if none has the lease."""
    numbers = _list_numbers(objects)
    try:
        lease = _read_lease(objects, _file_name(numbers[-1]))
        silent = max(0.0, time.time() - objects.modification_time(_file_name(numbers[-1])))
    except (IndexError, FileNotFoundError):
        return ""
    if lease["released"]:
        return ""
    return f"{'held' if silent <= lease['lasts'] else 'left behind'} by {_describe_lease(lease, silent)}"


def driver_name() -> str:
    """Name this process as the holder of a lease."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        user = "somebody"
    return f"{user}, process {os.getpid()} on {socket.gethostname()}"


def _describe_lease(lease: dict[str, Any], silent: float) -> str:
    return f"{lease['who']}, since {lease['since']}, last heard of {silent:.0f} s ago"


def _read_lease(objects: Objects, name: str) -> dict[str, Any]:
    """Read a lease file; an unreadable one counts as held by an unknown driver for the usual time."""
    try:
        lease = json.loads(objects.get(name))
        who, since, lasts = str(lease["who"]), str(lease["since"]), float(lease["lasts"])
        return {"token": lease["token"], "who": who, "since": since, "lasts": lasts, "released": lease["released"]}
    except (ValueError, KeyError, TypeError):
        who, since = "an unknown driver", "an unknown time"
        return {
            "token": "",
            "who": who,
            "since": since,
            "lasts": HEARTBEAT_SECONDS * MISSED_HEARTBEATS,
            "released": False,
        }


def _file_name(number: int) -> str:
    return f"lease/{number:06d}.json"


def _number_from_name(name: str) -> int:
    return int(name.removeprefix("lease/").removesuffix(".json"))


def _list_numbers(objects: Objects) -> list[int]:
    """List the numbers of all leases that are there, the one that counts last."""
    return sorted(
        _number_from_name(name) for name in objects.below("lease") if name[6:-5].isdigit() and name.endswith(".json")
    )


def _utc_now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _clock_seconds() -> float:
    """Return seconds of a clock that goes on while the machine sleeps, where there is one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
