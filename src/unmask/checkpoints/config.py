"""A checkpoint's config.json, read strictly: every key is used, checked, or refused by name."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unmask.errors import CheckpointError

# Written by the tools that saved a checkpoint; they change no number.
_BOOKKEEPING = frozenset({"_name_or_path", "architectures", "auto_map", "transformers_version", "model_type"})

_MOST = 2**31 - 1
"""No size and no id of a network is larger."""


INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, or an error that names the file."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path} does not exist; allowed: a checkpoint folder with a {path.name}; check the path, or download again"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}); allowed: a JSON object; the file is damaged, download it again"
        ) from error
    if not isinstance(document, dict):
        raise CheckpointError(f"{path} holds a {type(document).__name__}; allowed: a JSON object; download it again")
    return document


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
    """Hands out values and remembers which; `finish` refuses what nobody asked for."""

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
        value = self._take(key)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e30:
            raise self._refused(key, "a number above 0", "check that the file is the published one")
        return float(value)

    def only(self, key: str, *allowed: object, default: object = None) -> None:
        """A key that must hold one of these values; without `default` it must be there."""
        value = self._take(key) if default is None or key in self.values else default
        if not any(value is a or (value == a and type(value) is type(a)) for a in allowed):
            names = " or ".join(json.dumps(a) for a in allowed)
            raise self._refused(key, names, "this network has no code for another value, and guessing would be wrong")

    def unused(self, *keys: str) -> None:
        """Keys that cannot change a forward pass: training, initialisation, hints for other programs."""
        self._seen.update(keys)

    def finish(self) -> None:
        left = sorted(set(self.values) - self._seen - _BOOKKEEPING)
        if left:
            raise self._refused(left[0], f"the keys of {self.model_type} checkpoints", "its effect is not known here")

    def _take(self, key: str) -> Any:
        self._seen.add(key)
        if key not in self.values:
            raise CheckpointError(
                f"{self.path} has no key {key!r}; allowed: every key of the published file; defaults are not guessed, "
                "restore the key"
            )
        return self.values[key]

    def _refused(self, key: str, allowed: str, todo: str) -> CheckpointError:
        return CheckpointError(
            f"{key!r} in {self.path} is {json.dumps(self.values.get(key))}; allowed: {allowed}; {todo}"
        )
