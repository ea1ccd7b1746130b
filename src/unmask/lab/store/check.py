"""A store, verified: every byte, value and name against what was written, and what a run would measure again."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from unmask.base.errors import SchemaError
from unmask.lab.store.manifest import NAME, DamagedManifest, Manifest, planned, read_manifest
from unmask.lab.store.pieces import DamagedPiece, Info, check_piece
from unmask.lab.store.places import Place, each, place_of
from unmask.lab.store.shards import Shard, Unit, finished_names


@dataclass(frozen=True)
class Damage:
    """Something that is not what was written."""

    name: str
    reason: str
    redo: str
    """What a run does about it."""


@dataclass(frozen=True)
class StoreCheck:
    """What a store's files are worth."""

    folder: str
    shards: int
    """Finished and sound, as are units."""
    units: int
    planned: int | None
    """Shards; None where the manifest cannot be read."""
    damaged: tuple[Damage, ...]
    unplanned: tuple[str, ...]
    """Shards that the manifest does not know: never read."""
    code: dict[str, list[str]]
    """Names of sound shards and units by the fingerprint of the code that made them."""

    @property
    def sound(self) -> bool:
        return not self.damaged


def check_store(folder: str | Place) -> StoreCheck:
    """Read everything in a folder of results; refused only where it holds none."""
    home = place_of(folder)
    names = {kind: finished_names(home / part) for kind, part in _HOMES.items()}
    if not (home / NAME).is_file() and not any(names.values()):
        raise SchemaError(f"no study in {str(home)!r}; allowed: a folder of `unmask study run`; check the path")
    damaged: list[Damage] = []
    manifest: Manifest | None = None
    try:
        manifest = read_manifest(home)
    except DamagedManifest as error:
        redo = f"`unmask study run FILE --out {home}` writes it anew and keeps sound shards"
        damaged.append(Damage(NAME, error.why, redo))
    wanted = None if manifest is None else planned(manifest)
    unplanned = [name for name in names[Shard] if wanted is not None and name not in wanted]
    sound: dict[type, list[Info]] = {kind: [] for kind in _HOMES}
    study = None if manifest is None else manifest["fingerprint"]
    for kind, part in _HOMES.items():
        known = [name for name in names[kind] if name not in unplanned]
        for name, found in zip(known, each(home, partial(_looked_at, home / part, kind, study), known), strict=True):
            if isinstance(found, DamagedPiece):
                damaged.append(Damage(name, found.why, _redo(name, kind, wanted or {})))
            else:
                sound[kind].append(found)
    return StoreCheck(
        folder=str(home),
        shards=len(sound[Shard]),
        units=len(sound[Unit]),
        planned=None if wanted is None else len(wanted),
        damaged=tuple(damaged),
        unplanned=tuple(unplanned),
        code=_by_code(sound[Shard] + sound[Unit]),
    )


def _looked_at(home: Place, kind: type[Shard | Unit], study: str | None, name: str) -> Info | DamagedPiece:
    try:
        return check_piece(home / name, kind, study)
    except DamagedPiece as error:
        return error


_HOMES: dict[type[Shard | Unit], str] = {Shard: "shards", Unit: "decodes"}


def _redo(name: str, kind: type[Shard | Unit], wanted: dict[str, dict[str, Any]]) -> str:
    """What is measured again, in words."""
    if kind is Unit:
        return "one model and task is decoded end to end again"
    if name not in wanted:
        return "its prompts are measured again"
    about = wanted[name]
    where = f"{about['model']}, {about['task']}, {about['split']}, block {about['block']}"
    return f"{about['prompts']} prompts are measured again ({where})"


def _by_code(infos: list[Info]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for info in infos:
        piece = Shard(**info["shard"]) if "shard" in info else Unit(**info["unit"])
        names.setdefault(info["code"], []).append(piece.name)
    return names


def lines_of(check: StoreCheck) -> Iterator[str]:
    """For a screen."""
    of = "" if check.planned is None else f" of {check.planned} planned"
    yield f"{check.folder}: {'sound' if check.sound else 'damaged'}"
    yield f"  {check.shards}{of} shards and {check.units} decoded units are there and sound"
    for damage in check.damaged:
        yield f"  damaged: {damage.name}: {damage.reason}; {damage.redo}"
    for name in check.unplanned:
        yield f"  not read: {name} is no shard that the manifest plans"
    if len(check.code) > 1:
        for code, names in check.code.items():
            yield f"  made with code {code}: {len(names)} shards and units"
    if check.damaged:
        yield f"`unmask study run FILE --out {check.folder}` sets what is damaged aside and measures it again"
