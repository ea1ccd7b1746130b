"""A checkpoint's config.json: every key is used, checked, known to change nothing, or refused by name."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unmask.base.errors import CheckpointError, ConfigError
from unmask.base.json_files import refuse_duplicates
from unmask.checkpoints.generic_keys import GENERIC

_MOST = 2**31 - 1
"""No size and no id of a network is larger."""

MOST_JSON = 1 << 28
"""Bytes of a settings or tokenizer file; published ones have up to some ten million."""

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object in which no key is given twice, or an error that names the file."""
    try:
        document = json.loads(read_text(path, "a JSON object"), object_pairs_hook=refuse_duplicates)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}); allowed: a JSON object; the file is damaged, download it again"
        ) from error
    if not isinstance(document, dict):
        raise CheckpointError(f"{path} holds a {type(document).__name__}; allowed: a JSON object; download it again")
    return document


def read_text(path: Path, allowed: str = "a text file") -> str:
    """The text of a file of ordinary size, or an error that names it."""
    try:
        if not path.is_file():
            what = "is no ordinary file" if path.exists() else "does not exist"
            raise CheckpointError(
                f"{path} {what}; allowed: a checkpoint folder with a {path.name}; check the path, or download again"
            )
        size = path.stat().st_size
        if size > MOST_JSON:
            raise CheckpointError(
                f"{path} has {size:,} bytes; allowed: up to {MOST_JSON:,}; published files are smaller, download it "
                "again"
            )
        return path.read_text(encoding="utf-8")
    except PermissionError as error:
        raise CheckpointError(
            f"{path} cannot be read ({error.strerror}); allowed: files you may read; change its permissions"
        ) from error
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}); allowed: {allowed}; the file is damaged, download it again"
        ) from error


def weight_map(folder: Path) -> dict[str, str]:
    """Which file of the folder holds each tensor, by its index."""
    path = folder / INDEX
    names = read_json(path).get("weight_map")
    if not isinstance(names, dict) or not names or not all(map(_is_shard, names.values())):
        raise CheckpointError(
            f"{path} has no usable 'weight_map'; allowed: tensor names with safetensors files of this folder; download "
            "it again"
        )
    return names


def _is_shard(name: object) -> bool:
    return isinstance(name, str) and Path(name).name == name and name.endswith(".safetensors")


@dataclass(frozen=True)
class CheckpointConfig:
    """Hands out values and remembers which; `finish` refuses what nobody asked for and could change a forward pass."""

    path: Path
    values: Mapping[str, Any]
    _seen: set[str] = field(default_factory=set, repr=False)

    @classmethod
    def read(cls, folder: Path) -> "CheckpointConfig":
        path = folder / "config.json"
        return cls(path, read_json(path))

    @property
    def model_type(self) -> str:
        return str(self.values.get("model_type"))

    def whole(self, key: str, least: int = 1) -> int:
        value = self._take(key)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MOST:
            allowed = f"a whole number from {least} to {_MOST}"
            raise self._refused(key, allowed, "check that the file is the published one")
        return value

    def number(self, key: str) -> float:
        return self._number(key, self._take(key))

    def only(self, key: str, *allowed: object, default: object = None) -> None:
        """A key that must hold one of these values; without `default` it must be there."""
        value = self._take(key) if default is None or key in self.values else default
        if not any(value is a or (value == a and type(value) is type(a)) for a in allowed):
            names = " or ".join(json.dumps(a) for a in allowed)
            raise self._refused(key, names, "this network has no code for another value, and guessing would be wrong")

    def same(self, **values: object) -> None:
        """Keys that say once more, in other programs' words, what is known already; null says nothing."""
        for key, value in values.items():
            self._seen.add(key)
            stated = self.values.get(key)
            if stated is not None and not (stated == value and type(stated) is type(value)):
                raise self._refused(key, json.dumps(value), "the file contradicts itself; restore the published one")

    def theta(self) -> float:
        """The base of plain rotations; newer tools write it into `rope_parameters`. Scaled rotations are refused."""
        theta = None if "rope_theta" not in self.values else self.number("rope_theta")
        for key in ("rope_scaling", "rope_parameters"):
            self._seen.add(key)
            stated = self.values.get(key)
            if stated in (None, {}):
                continue
            plain = isinstance(stated, dict) and set(stated) <= {"rope_type", "type", "rope_theta"}
            if not plain or any(stated.get(name, "default") != "default" for name in ("rope_type", "type")):
                raise self._refused(
                    key, 'null or {"rope_type": "default"}', "this network has no code for scaled rotations"
                )
            inner = stated.get("rope_theta", theta)
            theta = self._number(key, inner) if theta is None else theta
            if inner != theta:
                raise self._refused(key, f"rope_theta {theta:g}, as beside it", "restore the published file")
        return self.number("rope_theta") if theta is None else theta

    def unused(self, *keys: str) -> None:
        """Keys that cannot change a forward pass: training, initialisation, hints for other programs."""
        self._seen.update(keys)

    def finish(self, accept: Collection[str] = ()) -> tuple[str, ...]:
        """Refuse what else is in the file, but for keys to `accept`, and those switched off, which are returned."""
        left = sorted(set(self.values) - self._seen - GENERIC)
        for key in accept:
            if key not in left:
                raise ConfigError(
                    f"accept names {key!r}; allowed: keys of {self.path} that this code does not know"
                    f"{' (' + ', '.join(left) + ')' if left else ', and it has none'}; leave it out"
                )
        off = [key for key in left if key not in accept and self.values[key] in (None, False, "", [], {})]
        # Zero equals false, but is a value.
        off = [key for key in off if type(self.values[key]) not in (int, float)]
        for key in sorted(set(left) - set(off) - set(accept)):
            raise self._refused(
                key,
                f"the keys of {self.model_type} checkpoints, and others that are null, false or empty",
                "its effect is not known here; if it changes no prediction, go on with --model-option "
                f"accept={key} (Python: accept=[{key!r}]), which stands in every result",
            )
        return tuple(off)

    def _number(self, key: str, value: object) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e30:
            raise self._refused(key, "a number above 0", "check that the file is the published one")
        return float(value)

    def _take(self, key: str) -> Any:
        self._seen.add(key)
        if key not in self.values:
            raise CheckpointError(
                f"{self.path} has no key {key!r}; allowed: every key of the published file; defaults are not guessed, "
                "restore the key"
            )
        return self.values[key]

    def _refused(self, key: str, allowed: str, todo: str) -> CheckpointError:
        text = json.dumps(self.values.get(key))
        shown = text if len(text) <= 200 else text[:200] + " ..."
        return CheckpointError(f"{key!r} in {self.path} is {shown}; allowed: {allowed}; {todo}")
