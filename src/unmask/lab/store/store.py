"""Results on disk: shards that are there whole or not at all, and a manifest that says what they belong to.

    DIR/manifest.json            the study, its versions and code, data and checkpoints
    DIR/shards/NAME.KEY/         states, branches and readings (.parquet) and shard.json; KEY is a hash of what they
                                 depend on
    DIR/decodes/NAME.KEY/        decodes.parquet and unit.json: one model and task decoded end to end
    DIR/locks/                   who works on what; released by the system when a process dies
    DIR/damaged/                 what was found damaged when a run went on, and was measured again

A shard is written beside its place, synced and renamed: a process that is killed leaves at most a folder that the next
one removes. At an address the file that vouches for a shard is put last, and `lease` stands for `locks`
(`remote_writer.py`). Every file carries hashes, which are compared whenever it is read. docs/schema.md describes the
tables.
"""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from unmask.base.environment import code_fingerprint
from unmask.base.errors import OtherStudy, SchemaError, UnknownName
from unmask.base.files import rename_folder, sync_folder
from unmask.base.json_files import to_plain
from unmask.core import Trajectory
from unmask.lab.store.hashes import table_hash
from unmask.lab.store.lease import holder_of
from unmask.lab.store.manifest import (
    NAME,
    DamagedManifest,
    Manifest,
    begun,
    check_same,
    check_versions,
    planned,
    read_manifest,
    write_manifest,
)
from unmask.lab.store.pieces import (
    ABOUT,
    TABLES,
    DamagedPiece,
    Info,
    check_piece,
    check_utilities,
    free_place,
    in_order,
    read_info,
    read_table,
    write_piece,
)
from unmask.lab.store.places import Place, RemotePath, each, place_of
from unmask.lab.store.remote_writer import RemoteWriter, read_only
from unmask.lab.store.schemas import READINGS, SCHEMAS, loose, sort_keys
from unmask.lab.store.shards import Shard, Unit, cannot_write, finished_names, locked
from unmask.lab.store.utilities import Utilities, utilities_of


class Store:
    """A folder of results, to which any number of processes may write; or an address, to which one driver does."""

    def __init__(self, folder: str | Place):
        self.folder = place_of(folder)
        self.set_aside: list[str] = []
        """Names of what was damaged when the store was created anew, and is to be measured again."""
        self._writer: RemoteWriter | None = None
        """Of an address, for its driver and workers."""

    @property
    def shards(self) -> Place:
        return self.folder / "shards"

    @property
    def decodes(self) -> Place:
        return self.folder / "decodes"

    @property
    def damaged(self) -> Place:
        return self.folder / "damaged"

    # The manifest

    @classmethod
    def create(cls, folder: str | Place, study: Mapping[str, Any], *, accept_code: bool = False) -> "Store":
        """A new folder for the study, or the one that already has its results; any other is left as it is.

        What is damaged there is set aside, to be measured again. `accept_code` goes on with results that other code of
        this version made, and lists it in the manifest. At an address the lease is taken, until `close`.
        """
        store, ours = cls(folder), begun(study)
        check_same(store.folder, store._found(ours), ours, accept_code=accept_code)
        with ExitStack() as undo:
            undo.callback(store.close)
            try:
                store._own()
                with store._manifest_lock():
                    store._begin(ours, accept_code)
                store._set_damaged_aside()
            except OSError as error:
                raise cannot_write(store.folder, error) from error
            undo.pop_all()
        return store

    def _own(self) -> None:
        """Make the folder ours, or the address."""
        if isinstance(self.folder, RemotePath):
            self._writes_by(RemoteWriter.driver(self.folder))
            return
        # Locks first: they tell another process, which may look at any moment, that the folder is a store's.
        (self.folder / "locks").mkdir(parents=True, exist_ok=True)
        self.shards.mkdir(exist_ok=True)

    @classmethod
    def join(cls, folder: str | Place, token: str | None) -> "Store":
        """The store of a driver elsewhere, to write shards to. `token` is its `Store.token`: None for a folder."""
        store = cls(folder)
        if isinstance(store.folder, RemotePath):
            if token is None:
                raise read_only(store.folder)
            store._writes_by(RemoteWriter.worker(store.folder, token))
        return store

    def _writes_by(self, writer: RemoteWriter) -> None:
        self._writer, self.folder = writer, writer.home

    @property
    def token(self) -> str | None:
        """What workers need to write for this driver; None for a folder, which anybody may write to."""
        return None if self._writer is None else self._writer.token

    @property
    def held(self) -> str | None:
        """Who writes to an address, in words; None where nobody does, and for a folder, whose locks say nothing."""
        holder = holder_of(self.folder) if isinstance(self.folder, RemotePath) else None
        if holder is None:
            return None
        return f"held by {holder}" if holder.silent <= holder.lasts else f"left behind by {holder}"

    def close(self) -> None:
        """Let another driver have the address. It can be read on."""
        if self._writer is not None:
            self._writer.release()
            self.folder, self._writer = self._writer.plain, None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _begin(self, ours: Manifest, accept_code: bool) -> None:
        """Write the manifest if there is none, anew if it is damaged, and with the code of now if that is accepted."""
        for litter in self.folder.glob(f".{NAME}.*"):
            # Of a process that died: whoever writes now holds the lock.
            litter.unlink(missing_ok=True)
        manifest = self._found(ours)
        accepted = check_same(self.folder, manifest, ours, accept_code=accept_code)
        if self._manifest_is_sound() and not accepted:
            return
        if not self._manifest_is_sound() and (self.folder / NAME).exists():
            self._set_aside(self.folder / NAME)
        write_manifest(self.folder, {**manifest, "code": manifest["code"] + (ours["code"] if accepted else [])})

    def _manifest_is_sound(self) -> bool:
        try:
            read_manifest(self.folder)
        except DamagedManifest:
            return False
        return True

    def _found(self, ours: Manifest) -> Manifest:
        """The manifest that is there; without a readable one ours, if the folder is empty or has shards of this study.

        Then it lists the code that the shards were made with.
        """
        try:
            return read_manifest(self.folder)
        except DamagedManifest as error:
            infos = self._sound_infos()
            for info in infos:
                if info["study"] != ours["fingerprint"]:
                    raise OtherStudy(f"{error}; its shards are of another study than this one") from error
                check_versions(self.folder, info["versions"])
            if not infos and self.folder.exists() and (not self.folder.is_dir() or _foreign(self.folder)):
                raise OtherStudy(
                    f"{str(self.folder)!r} is in use and has no study in it; allowed: a new or empty folder, or one of "
                    "this study; choose another"
                ) from error
        now = ours["code"][0]
        made_by = dict.fromkeys(info["code"] for info in infos) or {now["fingerprint"]: None}
        known = {now["fingerprint"]: now}
        return {**ours, "code": [known.get(code, {"fingerprint": code, "parts": {}}) for code in made_by]}

    def _sound_infos(self) -> list[Info]:
        """Of the shards and units that can be read, whatever the manifest says."""
        infos = []
        for home, kind in ((self.shards, Shard), (self.decodes, Unit)):
            for name in finished_names(home):
                with suppress(DamagedPiece):
                    infos.append(read_info(home / name, kind))
        return infos

    @classmethod
    def open(cls, folder: str | Place) -> "Store":
        """A folder or an address that has results."""
        store = cls(folder)
        if not (store.folder / NAME).is_file() and not finished_names(store.shards):
            raise SchemaError(
                f"no study in {str(store.folder)!r}; allowed: a folder of `unmask study run`; check the path"
            )
        read_manifest(store.folder)
        return store

    @property
    def manifest(self) -> Manifest:
        return read_manifest(self.folder)

    def note(self, part: str, name: str, value: Mapping[str, Any]) -> None:
        """Say what a model or a task is; the same name must never stand for two things."""
        given = to_plain(value)
        with self._manifest_lock():
            manifest = self.manifest
            noted = manifest[part].get(name)
            if noted == given:
                return
            if noted is not None and not noted.get("unavailable"):
                changed = sorted(k for k in {**noted, **given} if noted.get(k) != given.get(k))
                raise OtherStudy(
                    f"{part[:-1]} {name!r} is not what it was when {str(self.folder)!r} was begun: "
                    f"{', '.join(changed)} differ; allowed: the same model, device and data; choose another folder"
                )
            manifest[part][name] = given
            write_manifest(self.folder, manifest)

    @contextmanager
    def _manifest_lock(self) -> Iterator[None]:
        if isinstance(self.folder, RemotePath):
            with self._driver().manifest_lock:
                yield
            return
        with locked(self.folder / "locks" / "manifest.lock", wait=True):
            yield

    def _driver(self) -> RemoteWriter:
        if self._writer is None:
            raise read_only(self.folder)
        return self._writer

    # Shards

    def _home(self, work: Shard | Unit) -> Place:
        return self.decodes if isinstance(work, Unit) else self.shards

    def finished(self, work: Shard | Unit) -> bool:
        folder = self._home(work) / work.name
        return (folder / ABOUT[type(work)]).is_file() if isinstance(folder, RemotePath) else folder.is_dir()

    def learn(self, work: Shard | Unit) -> None:
        """A worker of this driver has written it (`join`)."""
        folder = self._home(work) / work.name
        if isinstance(folder, RemotePath):
            self._driver().learn(folder, type(work))

    @contextmanager
    def claim(self, work: Shard | Unit) -> Iterator[bool]:
        """Whether this process may do the work: nobody else does, and it is not there yet."""
        with self._claimed(work.name) as free:
            if free:
                for litter in self._home(work).glob(f".{work.name}.*"):
                    shutil.rmtree(str(litter), ignore_errors=True)
            yield free and not self.finished(work)

    @contextmanager
    def _claimed(self, name: str) -> Iterator[bool]:
        if isinstance(self.folder, RemotePath):
            with self._driver().claimed(name) as free:
                yield free
            return
        with locked(self.folder / "locks" / f"{name}.lock", wait=False) as free:
            yield free

    def write(
        self,
        shard: Shard,
        states: pa.Table,
        branches: pa.Table,
        info: Mapping[str, Any],
        readings: pa.Table | None = None,
    ) -> None:
        """Put a finished shard in its place; without diagnostics there are no readings."""
        readings = READINGS.empty_table() if readings is None else readings
        check_utilities(branches)
        self._put(shard, {"states": states, "branches": branches, "readings": readings}, info)

    def write_decodes(self, unit: Unit, decodes: pa.Table, info: Mapping[str, Any]) -> None:
        """Put the decodes of one model and task in their place."""
        check_utilities(decodes)
        self._put(unit, {"decodes": decodes}, info)

    def _put(self, work: Shard | Unit, tables: Mapping[str, pa.Table], info: Mapping[str, Any]) -> None:
        """Write beside the place, sync, rename: there whole or not at all."""
        home = self._home(work)
        made_by = {"study": self.manifest["fingerprint"], "code": code_fingerprint()}
        if isinstance(home, RemotePath):
            self._driver().put(home / work.name, type(work), tables, {**to_plain(info), **made_by})
            return
        beside = home / f".{work.name}.{os.getpid()}"
        try:
            home.mkdir(exist_ok=True)
            beside.mkdir()
            write_piece(beside, type(work), tables, {**to_plain(info), **made_by})
            sync_folder(beside)
            with suppress(FileExistsError):
                # Where another process was faster, its work is the same.
                rename_folder(beside, home / work.name)
            sync_folder(home)
        except OSError as error:
            raise cannot_write(self.folder, error) from error
        finally:
            shutil.rmtree(beside, ignore_errors=True)

    def names(self) -> list[str]:
        """Finished shards of the plan; none before a model was first loaded."""
        there = finished_names(self.shards)
        if not there and not (self.folder / NAME).exists():
            return []
        # Read after the folder: shards are planned before they are written.
        wanted = planned(self.manifest)
        return [name for name in there if name in wanted]

    def decoded(self) -> list[str]:
        """Finished units: models and tasks that were decoded end to end."""
        return finished_names(self.decodes)

    def infos(self) -> list[Info]:
        """What each finished shard says of itself."""
        return [info for _, info in self._pieces(Shard)]

    def decode_infos(self) -> list[Info]:
        """What each finished unit says of itself."""
        return [info for _, info in self._pieces(Unit)]

    def _pieces(self, kind: type[Shard | Unit]) -> list[tuple[Place, Info]]:
        """The folder of each finished shard or unit, and what it says of itself."""
        if kind is Shard:
            folders = [self.shards / name for name in self.names()]
        else:
            folders = [self.decodes / name for name in self.decoded()]
        study = self.manifest["fingerprint"] if folders else None
        # A driver reads each once: only it writes.
        known = {} if self._writer is None else self._writer.infos
        new = [folder for folder in folders if folder.name not in known]
        known.update(
            zip((f.name for f in new), each(self.folder, lambda f: read_info(f, kind, study), new), strict=True)
        )
        return [(folder, known[folder.name]) for folder in folders]

    # What is damaged

    def _set_damaged_aside(self) -> None:
        """Move every damaged shard and unit out of the way; a run then measures it again."""
        for home, kind in ((self.shards, Shard), (self.decodes, Unit)):
            names = finished_names(home)
            looked_at = each(self.folder, partial(self._is_damaged, kind), [home / name for name in names])
            for name, is_damaged in zip(names, looked_at, strict=True):
                if is_damaged:
                    with self._claimed(name) as free:
                        # Looked at again: another process may have measured it anew in between.
                        if free and self._is_damaged(kind, home / name):
                            self._set_aside(home / name)

    def _is_damaged(self, kind: type[Shard | Unit], folder: Place) -> bool:
        try:
            check_piece(folder, kind, self.manifest["fingerprint"])
        except DamagedPiece:
            return folder.exists()
        return False

    def _set_aside(self, path: Place) -> None:
        if isinstance(path, RemotePath):
            self._driver().set_aside(path, self.damaged)
            self.set_aside.append(path.name)
            return
        self.damaged.mkdir(exist_ok=True)
        # Where another process was faster, it is gone already.
        with suppress(FileNotFoundError):
            rename_folder(path, Path(str(free_place(self.damaged, path.name))))
            self.set_aside.append(path.name)
        sync_folder(path.parent)

    # Tables

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """`branches`, `states` or `readings` of all finished shards, or `decodes` of all finished units, sorted."""
        if name not in SCHEMAS:
            raise UnknownName("table", name, SCHEMAS)
        pieces = self._pieces(Unit if name in TABLES[Unit] else Shard)
        read = each(self.folder, lambda piece: read_table(piece[0], name, piece[1]), pieces)
        parts = read or [loose(name).empty_table()]
        there = parts[0].column_names
        wanted = [key for key in there if columns is None or key in {*columns, *sort_keys(name, there)}]
        return in_order(name, pa.concat_tables([part.select(wanted) for part in parts]))

    def content_hash(self) -> dict[str, str]:
        """Hashes of the tables' sorted values: equal tables have equal hashes, however they came about.

        `decodes` are among them where there are any.
        """
        there = [name for name in SCHEMAS if name != "decodes" or self.decoded()]
        return {name: table_hash(self.table(name)) for name in there}

    def state(self, model: str, task: str, prompt: str, state: int) -> Trajectory:
        """One stored state: where the row stood and what the past says."""
        table = self.table("states")
        wanted = {"model": model, "task": task, "prompt": prompt, "state": state}
        for column, value in wanted.items():
            rows = table.filter(pc.equal(table[column], value))
            if not len(rows):
                values = {str(v) for v in pc.unique(table[column]).to_pylist()}
                raise UnknownName(column, str(value), values)
            table = rows
        return Trajectory.from_bytes(table["trajectory"][0].as_py())

    def utilities(self, model: str, task: str, split: str, axis: str) -> Utilities:
        """U of one axis as an array, states by candidates by rollouts."""
        table = self.table("branches")
        for column, value in (("model", model), ("task", task), ("split", split), ("axis", axis)):
            values = {str(v) for v in pc.unique(table[column]).to_pylist()}
            table = table.filter(pc.equal(table[column], value))
            if not len(table):
                raise UnknownName(column, value, values)
        return utilities_of(table)


def _foreign(folder: Place) -> bool:
    """Whether a folder without a readable manifest has other files in it than a start leaves that was cut short."""
    # The names before the locks: what another process makes in between comes after its locks.
    names = [p.name for p in folder.iterdir()]
    ours = _FOLDERS if (folder / ("lease" if isinstance(folder, RemotePath) else "locks")).is_dir() else ()
    return any(name not in (*ours, *([NAME] if ours else [])) and not name.startswith(".manifest") for name in names)


_FOLDERS = ("shards", "decodes", "locks", "lease", "damaged", "failed")
