"""Results on disk: shards that are there whole or not at all, and a manifest that says what they belong to.

    DIR/manifest.json            the study, its versions, data and checkpoints
    DIR/shards/NAME.KEY/         states, branches and readings (.parquet) and shard.json; KEY is a hash of what they
                                 depend on
    DIR/decodes/NAME.KEY/        decodes.parquet and unit.json: one model and task decoded end to end
    DIR/locks/                   who works on what; released by the system when a process dies

A shard is written beside its place, synced and renamed: a process that is killed leaves at most a folder that the next
one removes. docs/schema.md describes the tables.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unmask.atomic import rename_folder, sync, sync_folder
from unmask.core import Trajectory
from unmask.errors import ContractError, OtherStudy, SchemaError, UnknownName
from unmask.lab.store.hashes import fingerprint, table_hash
from unmask.lab.store.schemas import FORMAT, READINGS, SCHEMAS, SORT, plain_type
from unmask.lab.store.shards import (
    Shard,
    Unit,
    cannot_write,
    finished_names,
    locked,
    write_synced,
)
from unmask.lab.store.utilities import Utilities, utilities_of
from unmask.versions import versions


class Store:
    """A folder of results. Any number of processes may write to it."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.shards = self.folder / "shards"
        self.decodes = self.folder / "decodes"

    # The manifest

    @classmethod
    def create(cls, folder: str | Path, study: Mapping[str, Any]) -> "Store":
        """A new folder for the study, or the one that already has its results; any other is left as it is."""
        store = cls(folder)
        begun = {"format": FORMAT, "study": json.loads(json.dumps(study, default=str))}
        begun["fingerprint"] = fingerprint(begun["study"])
        if (store.folder / "manifest.json").exists():
            store._check(begun)
            return store
        if store.folder.exists() and (not store.folder.is_dir() or _foreign(store.folder)):
            raise OtherStudy(
                f"{str(folder)!r} is in use and has no study in it; allowed: a new or empty folder, or one of this "
                "study; choose another"
            )
        try:
            store.shards.mkdir(parents=True, exist_ok=True)
            (store.folder / "locks").mkdir(exist_ok=True)
            with store._manifest_lock():
                if not (store.folder / "manifest.json").exists():
                    store._write_manifest({**begun, "versions": versions(), "tasks": {}, "models": {}})
        except OSError as error:
            raise cannot_write(store.folder, error) from error
        store._check(begun)
        return store

    @classmethod
    def open(cls, folder: str | Path) -> "Store":
        """A folder that has results."""
        store = cls(folder)
        if not (store.folder / "manifest.json").is_file():
            raise SchemaError(f"no study in {str(folder)!r}; allowed: a folder of `unmask study run`; check the path")
        store._check_format(store.manifest)
        return store

    @property
    def manifest(self) -> dict[str, Any]:
        path = self.folder / "manifest.json"
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise SchemaError(f"{str(path)!r} cannot be read ({error}); allowed: a manifest; restore it") from error
        if not isinstance(manifest, dict):
            raise SchemaError(f"{str(path)!r} is no manifest; allowed: a JSON object; restore it")
        return manifest

    def note(self, part: str, name: str, value: Mapping[str, Any]) -> None:
        """Say what a model or a task is; the same name must never stand for two things."""
        plain = json.loads(json.dumps(value, default=str))
        with self._manifest_lock():
            manifest = self.manifest
            noted = manifest[part].get(name)
            if noted == plain:
                return
            if noted is not None and not noted.get("unavailable"):
                changed = sorted(k for k in {**noted, **plain} if noted.get(k) != plain.get(k))
                raise OtherStudy(
                    f"{part[:-1]} {name!r} is not what it was when {str(self.folder)!r} was begun: "
                    f"{', '.join(changed)} differ; allowed: the same model, device and data; choose another folder"
                )
            manifest[part][name] = plain
            self._write_manifest(manifest)

    def _check(self, begun: Mapping[str, Any]) -> None:
        manifest = self.manifest
        self._check_format(manifest)
        if manifest.get("fingerprint") != begun["fingerprint"]:
            theirs, ours = manifest.get("study", {}), begun["study"]
            changed = sorted(k for k in {**theirs, **ours} if theirs.get(k) != ours.get(k))
            raise OtherStudy(
                f"{str(self.folder)!r} holds the study {theirs.get('name')!r} with other settings "
                f"({', '.join(changed)} differ); allowed: the same study, which is then resumed; choose another folder"
            )
        old, new = manifest.get("versions", {}), versions()
        changed = [f"{k} {old.get(k)} then, {new[k]} now" for k in ("unmask", "torch") if old.get(k) != new[k]]
        if changed:
            raise OtherStudy(
                f"{str(self.folder)!r} was begun with other versions ({'; '.join(changed)}); allowed: the same "
                "ones, or numbers would mix; choose another folder"
            )

    def _check_format(self, manifest: Mapping[str, Any]) -> None:
        if manifest.get("format") != FORMAT:
            raise SchemaError(
                f"format of {str(self.folder)!r} is {manifest.get('format')!r}; allowed: {FORMAT!r}; read it with the "
                "version that wrote it, or run the study again elsewhere"
            )

    def _write_manifest(self, manifest: Mapping[str, Any]) -> None:
        write_synced(self.folder / "manifest.json", json.dumps(manifest, indent=2, sort_keys=True).encode() + b"\n")

    @contextmanager
    def _manifest_lock(self) -> Iterator[None]:
        with locked(self.folder / "locks" / "manifest.lock", wait=True):
            yield

    # Shards

    def _home(self, work: Shard | Unit) -> Path:
        return self.decodes if isinstance(work, Unit) else self.shards

    def finished(self, work: Shard | Unit) -> bool:
        return (self._home(work) / work.name).is_dir()

    @contextmanager
    def claim(self, work: Shard | Unit) -> Iterator[bool]:
        """Whether this process may do the work: nobody else does, and it is not there yet."""
        with locked(self.folder / "locks" / f"{work.name}.lock", wait=False) as free:
            if free:
                for litter in self._home(work).glob(f".{work.name}.*"):
                    shutil.rmtree(litter, ignore_errors=True)
            yield free and not self.finished(work)

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
        _check_utilities(branches)
        self._put(shard, {"states": states, "branches": branches, "readings": readings}, "shard.json", info)

    def write_decodes(self, unit: Unit, decodes: pa.Table, info: Mapping[str, Any]) -> None:
        """Put the decodes of one model and task in their place."""
        _check_utilities(decodes)
        self._put(unit, {"decodes": decodes}, "unit.json", info)

    def _put(self, work: Shard | Unit, tables: Mapping[str, pa.Table], about: str, info: Mapping[str, Any]) -> None:
        """Write beside the place, sync, rename: there whole or not at all."""
        home = self._home(work)
        partial = home / f".{work.name}.{os.getpid()}"
        try:
            home.mkdir(exist_ok=True)
            partial.mkdir()
            for name, table in tables.items():
                with (partial / f"{name}.parquet").open("wb") as file:
                    pq.write_table(table.cast(SCHEMAS[name]), file, compression="zstd")
                    sync(file)
            write_synced(partial / about, json.dumps({"format": FORMAT, **info}, indent=2).encode() + b"\n")
            sync_folder(partial)
            with suppress(FileExistsError):
                # Where another process was faster, its work is the same.
                rename_folder(partial, home / work.name)
            sync_folder(home)
        except OSError as error:
            raise cannot_write(self.folder, error) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def names(self) -> list[str]:
        """Finished shards."""
        return finished_names(self.shards)

    def decoded(self) -> list[str]:
        """Finished units: models and tasks that were decoded end to end."""
        return finished_names(self.decodes)

    def infos(self) -> list[dict[str, Any]]:
        """What each finished shard says of itself."""
        return [json.loads((self.shards / name / "shard.json").read_text(encoding="utf-8")) for name in self.names()]

    def decode_infos(self) -> list[dict[str, Any]]:
        """What each finished unit says of itself."""
        infos = []
        for name in self.decoded():
            path = self.decodes / name / "unit.json"
            try:
                info = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise SchemaError(
                    f"{str(path)!r} cannot be read ({error}); remove its folder and run the study"
                ) from error
            self._check_format(info)
            infos.append(info)
        return infos

    # Tables

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """`branches`, `states` or `readings` of all finished shards, or `decodes` of all finished units, sorted."""
        if name not in SCHEMAS:
            raise UnknownName("table", name, SCHEMAS)
        wanted = [f for f in SCHEMAS[name] if columns is None or f.name in {*columns, *SORT[name]}]
        schema = pa.schema([pa.field(f.name, plain_type(f.type)) for f in wanted])
        parts = [self._part(name, folder, schema) for folder in self._parts(name)]
        whole = pa.concat_tables(parts) if parts else schema.empty_table()
        return whole.take(pc.sort_indices(whole, sort_keys=[(key, "ascending") for key in SORT[name]]))

    def _parts(self, name: str) -> list[Path]:
        """The folders that a table is spread over."""
        if name == "decodes":
            return [self.decodes / unit for unit in self.decoded()]
        return [self.shards / shard for shard in self.names()]

    def _part(self, name: str, folder: Path, schema: pa.Schema) -> pa.Table:
        path = folder / f"{name}.parquet"
        try:
            table = pq.read_table(path)
        except (OSError, pa.ArrowException) as error:
            raise SchemaError(f"{str(path)!r} cannot be read ({error}); remove the shard and run the study") from error
        missing = [f.name for f in schema if f.name not in table.column_names]
        if missing:
            raise SchemaError(f"{str(path)!r} has no {', '.join(missing)}; allowed: format {FORMAT!r}; see its version")
        return table.select(schema.names).cast(schema)

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


def _check_utilities(table: pa.Table) -> None:
    utility = np.asarray(table["utility"].to_numpy(), float)
    judged = utility[~np.isnan(utility)]
    if len(judged) and (judged.min() < 0 or judged.max() > 1):
        bad = judged[(judged < 0) | (judged > 1)][0]
        raise ContractError(f"a utility is {bad}; allowed: 0 to 1, or none with a reason; correct the evaluator")


def _foreign(folder: Path) -> bool:
    """Whether a folder without a manifest has files in it; a start that was cut short leaves only our folders."""
    return any(p.name not in ("shards", "locks") and not p.name.startswith(".manifest") for p in folder.iterdir())
