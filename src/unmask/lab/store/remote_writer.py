"""Who writes to a store that is not on this machine: the driver, which holds its lease, and who knows its token."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from unmask.base.errors import StorageError
from unmask.lab.store.lease import Lease, guard_of
from unmask.lab.store.pieces import ABOUT, TABLES, Info, free_place, write_piece
from unmask.lab.store.places import Place, RemotePath
from unmask.lab.store.remote import Guarded, Owned, hasty
from unmask.lab.store.shards import SHARD, UNIT, Shard, Unit


class RemoteWriter:
    """Puts shards and units by their names, the file that vouches for them last: they are finished where it is there.

    There is no rename. A driver that is killed leaves tables without that file, which are put again.
    """

    def __init__(self, plain: RemotePath, home: RemotePath, token: str, release: Callable[[], None]):
        self.plain, self.home, self.token, self.release = plain, home, token, release
        self.manifest_lock = threading.Lock()
        self.infos: dict[str, Info] = {}
        """By name, what finished work says of itself: read once."""
        self._claims: set[str] = set()

    @classmethod
    def driver(cls, folder: RemotePath) -> "RemoteWriter":
        """Takes the lease; refused while another driver has it."""
        lease = Lease(RemotePath(hasty(folder.objects), folder.key)).take()
        try:
            owned = Owned(folder.objects, lease.check, folder.key)
        except BaseException:
            lease.release()
            raise
        return cls(folder, RemotePath(owned, folder.key), lease.token, lease.release)

    @classmethod
    def worker(cls, folder: RemotePath, token: str) -> "RemoteWriter":
        """Writes as long as the driver of this token has its lease, and takes none."""
        asked = RemotePath(hasty(folder.objects), folder.key)
        home = RemotePath(Guarded(folder.objects, guard_of(asked, token)), folder.key)
        return cls(folder, home, token, lambda: None)

    @contextmanager
    def claimed(self, name: str) -> Iterator[bool]:
        """Whether nobody in this process works on it: no other process may."""
        free = name not in self._claims
        self._claims.add(name)
        try:
            yield free
        finally:
            if free:
                self._claims.discard(name)

    def put(
        self, folder: Place, kind: type[Shard | Unit], tables: Mapping[str, pa.Table], info: Mapping[str, Any]
    ) -> None:
        """Nothing where it is there already: what is finished is never written again."""
        if not (folder / ABOUT[kind]).is_file():
            write_piece(folder, kind, tables, info)

    def learn(self, folder: RemotePath, kind: type[Shard | Unit]) -> None:
        """A worker has put it."""
        self.infos.pop(folder.name, None)
        if isinstance(self.home.objects, Owned):
            for name in (*(f"{table}.parquet" for table in TABLES[kind]), ABOUT[kind]):
                self.home.objects.learn((folder / name).key)

    def set_aside(self, path: RemotePath, damaged: Place) -> None:
        """Copy a file or what is below a folder, then remove it; what vouches for it goes first."""
        self.infos.pop(path.name, None)
        target = free_place(damaged, path.name)
        if path.is_file():
            target.write_bytes(path.read_bytes())
            path.unlink()
            return
        names = sorted(path.below(), key=lambda name: name not in (SHARD, UNIT))
        for name in names:
            (target / name).write_bytes((path / name).read_bytes())
        for name in names:
            (path / name).unlink()


def read_only(folder: Place) -> StorageError:
    """The error of who writes without being the driver."""
    return StorageError(
        f"{str(folder)!r} was opened to be read; allowed: one driver writes; use Store.create, which takes its lease"
    )
