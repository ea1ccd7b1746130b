"""Results of a study: shards that are there whole or not at all, and a manifest that says what they belong to.

    DIR/manifest.json      the study, its versions and code, data and checkpoints (`manifest.py`)
    DIR/shards/NAME.KEY/   branches of a group of prompts (`shard.py`)
    DIR/decodes/NAME.KEY/  one model and task decoded end to end
    DIR/failed/            counts of failures (`failures.py`)
    DIR/damaged/           what was found damaged when a run went on, and was measured again
    DIR/locks/, lease/     who works on what: file locks in a folder (`local.py`), one lease at an address (`remote.py`)

Every file carries hashes, which are compared whenever it is read. docs/formats.md describes the tables.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from unmask.base.environment import code_fingerprint
from unmask.base.errors import OtherStudy, SchemaError, UnknownName
from unmask.base.json_files import to_plain
from unmask.lab.store.failures import Failures
from unmask.lab.store.manifest import (
    MANIFEST,
    DamagedManifest,
    Manifest,
    check_same_study,
    check_versions,
    new_manifest,
    planned_shards,
    read_manifest,
    with_code_of_now,
    write_manifest,
)
from unmask.lab.store.remote import StoreFiles, open_files
from unmask.lab.store.schemas import SCHEMAS, fingerprint, plain_schema, sort_keys, sort_table, table_hash
from unmask.lab.store.shard import (
    KIND_OF_TABLE,
    LAYOUTS,
    DamagedShard,
    Info,
    Shard,
    ShardKind,
    encode_shard,
    read_info,
    read_table,
    verify_shard,
)
from unmask.lab.store.utilities import Utilities, utilities_of

if TYPE_CHECKING:
    import pandas as pd

OWN_NAMES = {MANIFEST, "shards", "decodes", "locks", "lease", "damaged", "failed"}
"""Names that a store may have in its folder."""


@dataclass(frozen=True)
class Damage:
    """A damaged or missing part of a store."""

    name: str
    reason: str
    redo: str
    """What the next run does about the damage."""


class Store:
    """A folder of results, to which any number of processes may write; or an address, to which one driver does."""

    def __init__(self, folder: str | Path | StoreFiles):
        self.files = open_files(folder)
        self.folder = self.files.address
        self.failures = Failures(self.files)
        self.damaged_names: list[str] = []
        """Names of what `create` found damaged and set aside; it is to be measured again."""
        self._infos: dict[str, tuple[Shard, Info]] = {}

    @classmethod
    def create(cls, folder: str | Path, config: Mapping[str, Any], *, accept_code: bool = False) -> "Store":
        """Begin a study in a new folder, or go on in the one that has its results; any other is left as it is.

        What is damaged there is set aside, to be measured again. `accept_code` goes on with results that other code of
        this version made, and lists it in the manifest. At an address the lease is taken, until `close`.
        """
        store = cls(folder)
        # Looked at before anything is made or taken: a folder that is refused must stay as it was.
        store._manifest_for(config, accept_code)
        store.files.begin()
        try:
            with store.files.manifest_lock():
                store._begin(config, accept_code)
            store._set_damaged_aside()
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def open(cls, folder: str | Path) -> "Store":
        """Open a folder or an address that has results, to read them."""
        store = cls(folder)
        store._check_has_study()
        read_manifest(store.files)
        return store

    def close(self) -> None:
        """Release the lease of an address, so that another driver may write; reading stays possible."""
        self.files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # The manifest

    @property
    def manifest(self) -> Manifest:
        """The manifest as it is now: other processes add models and tasks to it."""
        return read_manifest(self.files)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the study's configuration, which every shard carries."""
        return str(self.manifest["fingerprint"])

    def set_metadata(self, part: str, name: str, value: Mapping[str, Any]) -> None:
        """Note the description of a model or task in the manifest; refuse one that differs from an earlier run's."""
        given = to_plain(value)
        with self.files.manifest_lock():
            manifest = self.manifest
            noted = manifest[part].get(name)
            if noted == given:
                return
            if noted is not None and not noted.get("unavailable"):
                changed = sorted(key for key in {**noted, **given} if noted.get(key) != given.get(key))
                raise OtherStudy(
                    f"{part[:-1]} {name!r} is not what it was when {str(self.folder)!r} was begun: "
                    f"{', '.join(changed)} differ; allowed: the same model, device and data; choose another folder"
                )
            manifest[part][name] = given
            write_manifest(self.files, manifest)

    def finish(self) -> dict[str, str]:
        """Note in the manifest which shards a complete study has, and return the tables' content hashes.

        Without the note `check` could not tell a shard that was deleted from one that was never measured.
        """
        with self.files.manifest_lock():
            manifest = self.manifest
            finished = {kind: self.names(kind) for kind in LAYOUTS}
            if manifest.get("finished") != finished:
                write_manifest(self.files, {**manifest, "finished": finished})
        return self.content_hash()

    def _check_has_study(self) -> None:
        if MANIFEST not in self.files.names() and not any(self._finished_names(kind) for kind in LAYOUTS):
            raise SchemaError(
                f"no study in {str(self.folder)!r}; allowed: a folder of `unmask study run`; check the path"
            )

    def _begin(self, config: Mapping[str, Any], accept_code: bool) -> None:
        """Write the manifest if there is none, anew if it is damaged, and with the code of now if that is accepted."""
        manifest = self._manifest_for(config, accept_code)
        try:
            if read_manifest(self.files) == manifest:
                return
        except DamagedManifest:
            if self.files.set_aside(MANIFEST):
                self.damaged_names.append(MANIFEST)
        write_manifest(self.files, manifest)

    def _manifest_for(self, config: Mapping[str, Any], accept_code: bool) -> Manifest:
        """Return the manifest to go on with; refuse a folder with another study, version, code or format.

        Where there is no readable one it is made anew, if the folder is empty or its shards are of this study.
        """
        try:
            manifest = read_manifest(self.files)
            check_same_study(self.files, manifest, config)
        except DamagedManifest as damage:
            infos = []
            for kind in LAYOUTS:
                for name in self._finished_names(kind):
                    with suppress(DamagedShard):
                        infos.append(read_info(self.files, kind, name)[1])
            for info in infos:
                if info["study"] != fingerprint(to_plain(config)):
                    raise OtherStudy(f"{damage}; its shards are of another study than this one") from damage
                check_versions(self.files, info["versions"])
            if not infos and self._is_foreign():
                raise OtherStudy(
                    f"{str(self.folder)!r} is in use and has no study in it; allowed: a new or empty folder, or one of "
                    "this study; choose another"
                ) from damage
            manifest = new_manifest(config, infos)
        return with_code_of_now(self.files, manifest, accept_code=accept_code)

    def _is_foreign(self) -> bool:
        """Tell whether a folder without a readable manifest has files that no interrupted study leaves."""
        # Names before the locks: whatever another process makes in between comes after its locks.
        names = self.files.names()
        ours = OWN_NAMES if {"locks", "lease"} & set(self.files.names()) else set()
        return any(name not in ours and not name.startswith(f".{MANIFEST}") for name in names)

    # Shards

    @contextmanager
    def claim(self, shard: Shard) -> Iterator[bool]:
        """Claim a shard while the block lasts: True if nobody else has it and it is not there yet. Never waits."""
        with self.files.claim(shard.path) as is_free:
            yield is_free and not self.is_finished(shard)

    def claim_holder(self, shard: Shard) -> str:
        """Name the process that has claimed a shard; empty if none has."""
        return self.files.claim_holder(shard.path)

    def is_finished(self, shard: Shard) -> bool:
        """Tell whether a shard is there."""
        return self.files.is_finished(f"{shard.path}/{shard.layout.info_file}")

    def write(self, shard: Shard, tables: Mapping[str, pa.Table], info: Mapping[str, Any]) -> None:
        """Put a shard in its place, whole or not at all; a table that is left out is stored without rows."""
        made_by = {"study": self.fingerprint, "code": code_fingerprint()}
        self.files.add_shard(shard.path, encode_shard(shard, tables, {**to_plain(info), **made_by}))

    def names(self, kind: ShardKind = "branches") -> list[str]:
        """List the finished shards that the manifest plans. No shard is opened, so it may be called at any time."""
        there = self._finished_names(kind)
        if kind == "decodes" or not there:
            return there
        # Read after the folder: shards are planned before they are written.
        planned = planned_shards(self.manifest)
        return [name for name in there if name in planned]

    def infos(self, kind: ShardKind = "branches") -> dict[Shard, Info]:
        """Return the info of each finished shard. Every file is read once: a finished shard does not change."""
        names = self.names(kind)
        new = [name for name in names if name not in self._infos]
        self._infos.update(zip(new, self._read_infos(kind, new), strict=True))
        return dict(self._infos[name] for name in names)

    def _read_infos(self, kind: ShardKind, names: Collection[str]) -> list[tuple[Shard, Info]]:
        study = self.fingerprint if names else None
        return self.files.map(lambda name: read_info(self.files, kind, name, study), names)

    def _finished_names(self, kind: ShardKind) -> list[str]:
        return self.files.list_finished(LAYOUTS[kind].folder, LAYOUTS[kind].info_file)

    # Damage

    def check(self) -> list[Damage]:
        """Read every byte, value and name and list what is not as it was written, or is gone from a finished study.

        Works on `Store(folder)` too where `open` refuses the manifest. Nothing is changed.
        """
        self._check_has_study()
        damage: list[Damage] = []
        planned: dict[str, dict[str, Any]] | None = None
        finished: dict[str, list[str]] = {}
        try:
            manifest = self.manifest
            planned, finished = planned_shards(manifest), manifest.get("finished", {})
        except DamagedManifest as error:
            redo = f"`unmask study run FILE --out {self.folder}` writes it anew and keeps sound shards"
            damage.append(Damage(MANIFEST, error.reason, redo))
        for kind in LAYOUTS:
            names = [n for n in self._finished_names(kind) if kind == "decodes" or planned is None or n in planned]
            for name, reason in zip(names, self._damage_reasons(kind, names), strict=True):
                if reason:
                    damage.append(Damage(name, reason, _describe_redo(kind, (planned or {}).get(name))))
            for name in sorted(set(finished.get(kind, [])) - set(names)):
                reason = "it is not there any more, though the study was complete"
                damage.append(Damage(name, reason, _describe_redo(kind, (planned or {}).get(name))))
        return damage

    def _damage_reasons(self, kind: ShardKind, names: Collection[str]) -> list[str]:
        """Return for each shard how it is damaged; empty where it is sound."""
        study: str | None = None
        with suppress(DamagedManifest):
            study = self.fingerprint

        def damage_reason(name: str) -> str:
            try:
                verify_shard(self.files, kind, name, study)
            except DamagedShard as error:
                return error.reason
            return ""

        return self.files.map(damage_reason, names)

    def _set_damaged_aside(self) -> None:
        """Move every damaged shard out of the way; a run then measures it again."""
        for kind, layout in LAYOUTS.items():
            names = self._finished_names(kind)
            for name, damage in zip(names, self._damage_reasons(kind, names), strict=True):
                if damage:
                    path = f"{layout.folder}/{name}"
                    with self.files.claim(path) as is_free:
                        # Looked at again: another process may have measured it anew in between.
                        if is_free and self._damage_reasons(kind, [name])[0] and self.files.set_aside(path):
                            self.damaged_names.append(name)

    # Tables

    def read(
        self, table: str, columns: Sequence[str] | None = None, *, shards: Collection[Shard] | None = None
    ) -> "pd.DataFrame":
        """Read a table of all finished shards, or of some, as a frame sorted by its key, which `columns` include."""
        return self.read_arrow(table, columns, shards=shards).to_pandas()

    def read_arrow(
        self, table: str, columns: Sequence[str] | None = None, *, shards: Collection[Shard] | None = None
    ) -> pa.Table:
        """Read a table as `read` does, with Arrow's types: lists, and integers that may be missing."""
        if table not in SCHEMAS:
            raise UnknownName("table", table, SCHEMAS)
        kind = KIND_OF_TABLE[table]
        names = self.names(kind) if shards is None else [shard.name for shard in shards]
        # Info files are read anew: one kept from before would not fit bytes that another process has measured again.
        pairs = self._read_infos(kind, names)
        parts = self.files.map(lambda pair: read_table(self.files, pair[0], table, pair[1]), pairs)
        parts = parts or [plain_schema(table).empty_table()]
        there = parts[0].column_names
        wanted = [name for name in there if columns is None or name in {*columns, *sort_keys(table, there)}]
        return sort_table(table, pa.concat_tables([part.select(wanted) for part in parts]))

    def content_hash(self) -> dict[str, str]:
        """Hash the tables' sorted values: equal tables have equal hashes, however they came about.

        `decodes` is among them where anything was decoded end to end.
        """
        names = [name for name in SCHEMAS if name != "decodes" or self.names("decodes")]
        return {name: table_hash(self.read_arrow(name)) for name in names}

    def utilities(self, model: str, task: str, split: str, axis: str) -> Utilities:
        """Return the utilities of one axis as an array, states by candidates by rollouts."""
        table = self.read_arrow("branches")
        for column, value in (("model", model), ("task", task), ("split", split), ("axis", axis)):
            values = {str(v) for v in pc.unique(table[column]).to_pylist()}
            table = table.filter(pc.equal(table[column], value))
            if not len(table):
                raise UnknownName(column, value, values)
        return utilities_of(table)


def _describe_redo(kind: ShardKind, planned: Mapping[str, Any] | None) -> str:
    """Say what a run measures again."""
    if kind == "decodes":
        return "one model and task is decoded end to end again"
    if planned is None:
        return "its prompts are measured again"
    where = f"{planned['model']}, {planned['task']}, {planned['split']}, block {planned['block']}"
    return f"{planned['prompts']} prompts are measured again ({where})"
