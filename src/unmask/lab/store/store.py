"""Results on disk: shards that are there whole or not at all, and a manifest that says what they belong to.

    DIR/manifest.json            the study, its versions, data and checkpoints
    DIR/shards/NAME.KEY/         states, branches and readings (.parquet) and shard.json; KEY is a hash of what they
                                 depend on
    DIR/decodes/NAME.KEY/        decodes.parquet and unit.json: one model and task decoded end to end
    DIR/locks/                   who works on what; released by the system when a process dies

A shard is written beside its place, synced and renamed: a process that is killed leaves at most a folder that the next
one removes. docs/schema.md describes the tables.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unmask.atomic import atomic_write
from unmask.core import Trajectory
from unmask.errors import ContractError, OtherStudy, SchemaError, StorageError, UnknownName
from unmask.versions import versions

try:
    import fcntl
except ImportError:  # Windows: two processes may do the same work twice, but shards stay whole.
    fcntl = None  # type: ignore[assignment]

FORMAT = "unmask-study-2"
"""Of the manifest and the tables; another one is refused."""

_NAME = pa.dictionary(pa.int32(), pa.string())

_KEYS = [("model", _NAME), ("task", _NAME), ("split", _NAME), ("prompt", _NAME), ("state", pa.int32())]
STATES = pa.schema(
    [
        *_KEYS,
        ("step", pa.int32()),
        ("masked", pa.int32()),
        ("horizon", pa.int32()),
        ("taken", pa.int32()),
        ("tokens", pa.list_(pa.int32())),
        ("fixed", pa.list_(pa.bool_())),
        ("committed", pa.list_(pa.bool_())),
        ("trajectory", pa.binary()),
    ]
)
BRANCHES = pa.schema(
    [
        *_KEYS,
        ("step", pa.int32()),
        ("masked", pa.int32()),
        ("axis", _NAME),
        ("candidate", _NAME),
        ("is_reference", pa.bool_()),
        ("rollout", pa.int32()),
        ("utility", pa.float64()),
        ("reason", _NAME),
        ("answer", _NAME),
    ]
)
READINGS = pa.schema(
    [
        *_KEYS,
        ("axis", _NAME),
        ("signal", pa.float64()),
        ("abstained", pa.bool_()),
        ("snapped", _NAME),
        ("same", pa.list_(pa.string())),
        ("utility", pa.list_(pa.float64())),
        ("reason", pa.list_(pa.string())),
        ("ingredients", pa.string()),
    ]
)
DECODES = pa.schema(
    [
        ("model", _NAME),
        ("task", _NAME),
        ("axis", _NAME),
        ("arm", _NAME),
        ("draw", pa.int32()),
        ("split", _NAME),
        ("prompt", _NAME),
        ("utility", pa.float64()),
        ("reason", _NAME),
        ("answer", _NAME),
        ("evaluated", pa.int32()),
        ("deviated", pa.int32()),
        ("forwards", pa.int32()),
    ]
)
SCHEMAS = {"states": STATES, "branches": BRANCHES, "readings": READINGS, "decodes": DECODES}
_SORT = {
    "states": ["model", "task", "split", "prompt", "state"],
    "readings": ["model", "task", "split", "prompt", "state", "axis"],
    "branches": ["model", "task", "split", "prompt", "state", "axis", "candidate", "rollout"],
    "decodes": ["model", "task", "axis", "arm", "draw", "split", "prompt"],
}
_UNHASHED = ("trajectory",)
"""Packed values whose bytes depend on a compressor; what they hold is in the other columns."""


def fingerprint(value: Any) -> str:
    """A hash of plain values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Shard:
    """One block of prompts of a model, task and split."""

    model: str
    task: str
    split: str
    block: int
    depends: str
    """Fingerprint of everything its numbers depend on."""

    @property
    def name(self) -> str:
        return f"{_file_name(self.model)}.{self.task}.{self.split}.{self.block:04d}.{self.depends}"


@dataclass(frozen=True)
class Unit:
    """One model and task, decoded end to end."""

    model: str
    task: str
    depends: str
    """Fingerprint of everything its numbers depend on."""

    @property
    def name(self) -> str:
        return f"{_file_name(self.model)}.{self.task}.{self.depends}"


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
        mine = {"format": FORMAT, "study": json.loads(json.dumps(study, default=str))}
        mine["fingerprint"] = fingerprint(mine["study"])
        if (store.folder / "manifest.json").exists():
            store._check(mine)
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
                    store._write_manifest({**mine, "versions": versions(), "tasks": {}, "models": {}})
        except OSError as error:
            raise _cannot_write(store.folder, error) from error
        store._check(mine)
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
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise SchemaError(f"{str(path)!r} cannot be read ({error}); allowed: a manifest; restore it") from error
        if not isinstance(found, dict):
            raise SchemaError(f"{str(path)!r} is no manifest; allowed: a JSON object; restore it")
        return found

    def note(self, part: str, name: str, value: Mapping[str, Any]) -> None:
        """Say what a model or a task is; the same name must never stand for two things."""
        plain = json.loads(json.dumps(value, default=str))
        with self._manifest_lock():
            manifest = self.manifest
            known = manifest[part].get(name)
            if known == plain:
                return
            if known is not None and not known.get("unavailable"):
                changed = sorted(k for k in {**known, **plain} if known.get(k) != plain.get(k))
                raise OtherStudy(
                    f"{part[:-1]} {name!r} is not what it was when {str(self.folder)!r} was begun: "
                    f"{', '.join(changed)} differ; allowed: the same model, device and data; choose another folder"
                )
            manifest[part][name] = plain
            self._write_manifest(manifest)

    def _check(self, mine: Mapping[str, Any]) -> None:
        found = self.manifest
        self._check_format(found)
        if found.get("fingerprint") != mine["fingerprint"]:
            theirs, ours = found.get("study", {}), mine["study"]
            changed = sorted(k for k in {**theirs, **ours} if theirs.get(k) != ours.get(k))
            raise OtherStudy(
                f"{str(self.folder)!r} holds the study {theirs.get('name')!r} with other settings "
                f"({', '.join(changed)} differ); allowed: the same study, which is then resumed; choose another folder"
            )
        old, new = found.get("versions", {}), versions()
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
        _write_synced(self.folder / "manifest.json", json.dumps(manifest, indent=2, sort_keys=True).encode() + b"\n")

    @contextmanager
    def _manifest_lock(self) -> Iterator[None]:
        with _locked(self.folder / "locks" / "manifest.lock", wait=True):
            yield

    # Shards

    def _home(self, work: Shard | Unit) -> Path:
        return self.decodes if isinstance(work, Unit) else self.shards

    def finished(self, work: Shard | Unit) -> bool:
        return (self._home(work) / work.name).is_dir()

    @contextmanager
    def claim(self, work: Shard | Unit) -> Iterator[bool]:
        """Whether this process may do the work: nobody else does, and it is not there yet."""
        with _locked(self.folder / "locks" / f"{work.name}.lock", wait=False) as mine:
            if mine:
                for litter in self._home(work).glob(f".{work.name}.*"):
                    shutil.rmtree(litter, ignore_errors=True)
            yield mine and not self.finished(work)

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
                    _sync(file)
            _write_synced(partial / about, json.dumps({"format": FORMAT, **info}, indent=2).encode() + b"\n")
            _sync_folder(partial)
            with suppress(FileExistsError):
                # Where another process was faster, its work is the same.
                _rename_folder(partial, home / work.name)
            _sync_folder(home)
        except OSError as error:
            raise _cannot_write(self.folder, error) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def names(self) -> list[str]:
        """Finished shards."""
        return _folders(self.shards)

    def decoded(self) -> list[str]:
        """Finished units: models and tasks that were decoded end to end."""
        return _folders(self.decodes)

    def infos(self) -> list[dict[str, Any]]:
        """What each finished shard says of itself."""
        return [json.loads((self.shards / name / "shard.json").read_text(encoding="utf-8")) for name in self.names()]

    def decode_infos(self) -> list[dict[str, Any]]:
        """What each finished unit says of itself."""
        found = []
        for name in self.decoded():
            path = self.decodes / name / "unit.json"
            try:
                info = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise SchemaError(
                    f"{str(path)!r} cannot be read ({error}); remove its folder and run the study"
                ) from error
            self._check_format(info)
            found.append(info)
        return found

    # Tables

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """`branches`, `states` or `readings` of all finished shards, or `decodes` of all finished units, sorted."""
        if name not in SCHEMAS:
            raise UnknownName("table", name, SCHEMAS)
        wanted = [f for f in SCHEMAS[name] if columns is None or f.name in {*columns, *_SORT[name]}]
        schema = pa.schema([pa.field(f.name, _plain(f.type)) for f in wanted])
        parts = [self._part(name, folder, schema) for folder in self._parts(name)]
        whole = pa.concat_tables(parts) if parts else schema.empty_table()
        return whole.take(pc.sort_indices(whole, sort_keys=[(key, "ascending") for key in _SORT[name]]))

    def _parts(self, name: str) -> list[Path]:
        """The folders that a table is spread over."""
        if name == "decodes":
            return [self.decodes / unit for unit in self.decoded()]
        return [self.shards / shard for shard in self.names()]

    def _part(self, name: str, folder: Path, schema: pa.Schema) -> pa.Table:
        path = folder / f"{name}.parquet"
        try:
            found = pq.read_table(path)
        except (OSError, pa.ArrowException) as error:
            raise SchemaError(f"{str(path)!r} cannot be read ({error}); remove the shard and run the study") from error
        missing = [f.name for f in schema if f.name not in found.column_names]
        if missing:
            raise SchemaError(f"{str(path)!r} has no {', '.join(missing)}; allowed: format {FORMAT!r}; see its version")
        return found.select(schema.names).cast(schema)

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
            found = table.filter(pc.equal(table[column], value))
            if not len(found):
                known = {str(v) for v in pc.unique(table[column]).to_pylist()}
                raise UnknownName(column, str(value), known)
            table = found
        return Trajectory.from_bytes(table["trajectory"][0].as_py())

    def utilities(self, model: str, task: str, split: str, axis: str) -> "Utilities":
        """U of one axis as an array, states by candidates by rollouts."""
        table = self.table("branches")
        for column, value in (("model", model), ("task", task), ("split", split), ("axis", axis)):
            known = {str(v) for v in pc.unique(table[column]).to_pylist()}
            table = table.filter(pc.equal(table[column], value))
            if not len(table):
                raise UnknownName(column, value, known)
        return utilities_of(table)


@dataclass(frozen=True)
class Utilities:
    """What the statistics read."""

    prompt_S: tuple[str, ...]
    state_S: np.ndarray
    step_S: np.ndarray
    masked_S: np.ndarray
    candidates: tuple[str, ...]
    """The reference first, then by name."""
    utility_SAR: np.ndarray
    """NaN where the evaluator could not tell."""


def utilities_of(table: pa.Table) -> Utilities:
    columns = {name: table[name].to_pylist() for name in ("prompt", "state", "candidate", "rollout", "is_reference")}
    names = sorted(set(zip((not r for r in columns["is_reference"]), columns["candidate"], strict=True)))
    order = {name: at for at, (_, name) in enumerate(names)}
    states = sorted(set(zip(columns["prompt"], columns["state"], strict=True)))
    place = {state: at for at, state in enumerate(states)}
    rollouts = max(columns["rollout"]) + 1
    utility_SAR = np.full((len(states), len(names), rollouts), np.nan)
    s = [place[key] for key in zip(columns["prompt"], columns["state"], strict=True)]
    a = [order[name] for name in columns["candidate"]]
    utility_SAR[s, a, columns["rollout"]] = table["utility"].to_numpy(zero_copy_only=False)
    step_S, masked_S = np.zeros(len(states), int), np.zeros(len(states), int)
    step_S[s], masked_S[s] = table["step"].to_numpy(), table["masked"].to_numpy()
    return Utilities(
        tuple(prompt for prompt, _ in states),
        np.array([state for _, state in states]),
        step_S,
        masked_S,
        tuple(name for _, name in names),
        utility_SAR,
    )


def table_hash(table: pa.Table) -> str:
    """Over names, types and values, column by column; the rows must be sorted."""
    digest = hashlib.sha256(str(len(table)).encode())
    for name in sorted(set(table.column_names) - set(_UNHASHED)):
        column = table[name].combine_chunks()
        digest.update(f"{name}:{column.type}".encode())
        _feed(digest, column)
    return digest.hexdigest()


def _feed(digest: Any, column: Any) -> None:
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    digest.update(np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False)).tobytes())
    if pa.types.is_list(column.type):
        digest.update(np.asarray(pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)).tobytes())
        _feed(digest, pc.list_flatten(column))
    elif pa.types.is_string(column.type):
        texts = [(text or "").encode() for text in column.to_pylist()]
        digest.update(np.array([len(text) for text in texts], "<i8").tobytes())
        digest.update(b"".join(texts))
    else:
        zero: Any = False if pa.types.is_boolean(column.type) else 0
        digest.update(np.asarray(column.fill_null(zero).to_numpy(zero_copy_only=False)).tobytes())


def _file_name(model: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "-", model).strip("-.")[-40:]


def _folders(home: Path) -> list[str]:
    """Names of finished work."""
    if not home.is_dir():
        return []
    return sorted(p.name for p in home.iterdir() if p.is_dir() and not p.name.startswith("."))


def _check_utilities(table: pa.Table) -> None:
    utility = np.asarray(table["utility"].to_numpy(), float)
    known = utility[~np.isnan(utility)]
    if len(known) and (known.min() < 0 or known.max() > 1):
        bad = known[(known < 0) | (known > 1)][0]
        raise ContractError(f"a utility is {bad}; allowed: 0 to 1, or none with a reason; correct the evaluator")


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _foreign(folder: Path) -> bool:
    """Whether a folder without a manifest has files in it; a start that was cut short leaves only our folders."""
    return any(p.name not in ("shards", "locks") and not p.name.startswith(".manifest") for p in folder.iterdir())


@contextmanager
def _locked(path: Path, wait: bool) -> Iterator[bool]:
    """Hold a lock file; the system lets go of it when the process ends, however it does."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise _cannot_write(path.parent, error) from error
    try:
        mine = True
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                mine = False
        yield mine
    finally:
        os.close(handle)


def _write_synced(target: Path, content: bytes) -> None:
    try:
        with atomic_write(target) as partial, partial.open("wb") as file:
            file.write(content)
            _sync(file)
        _sync_folder(target.parent)
    except OSError as error:
        raise _cannot_write(target.parent, error) from error


def _sync(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _rename_folder(partial: Path, target: Path) -> None:
    try:
        os.rename(partial, target)
    except OSError as error:
        if target.is_dir():
            raise FileExistsError(str(target)) from error
        raise


def _cannot_write(folder: Path, error: OSError) -> StorageError:
    return StorageError(
        f"{str(folder)!r} cannot be written to ({error.strerror or error}); what is finished stays; make room or "
        "choose another folder, and run the study again to go on"
    )
