"""Published settings by task: which of a method's presets a model's family has."""

from collections.abc import Mapping
from typing import Any

from unmask.base.errors import ConfigError
from unmask.methods.card import Card

ANY = "*"
"""In place of a family, before a model is read: the preset exists for one family or another."""
FAMILIES = ("llada", "dream")


def family_of(reference: str, options: Mapping[str, Any]) -> str:
    """The family whose published settings a model takes: its own, or that of its reference."""
    own = str(options.get("family", "")).lower()
    return own if own in FAMILIES else reference


def preset_of(name: str, card: Card | None, preset: str, family: str | None) -> tuple[str, dict[str, Any]]:
    """Key and settings of a method's preset: by its whole key, or by its task and the family."""
    presets = {} if card is None else card.presets
    keys = [key for key in presets if key == preset or (key == f"{family}/{preset}" and family != ANY)]
    if not keys and family in (None, ANY):
        keys = [key for key in presets if key.partition("/")[2] == preset]
    if len(keys) == 1 or (keys and family == ANY):
        return keys[0], dict(presets[keys[0]])
    if keys:
        raise ConfigError(f"preset of {name} is {preset!r}; allowed: {', '.join(keys)}; say which of them")
    there = ", ".join(presets) or "none"
    on = "" if family in (None, ANY) else f" with a model of the family {family}"
    todo = "choose one of them, or leave it out" if presets else "leave it out"
    raise ConfigError(f"preset of {name} is {preset!r}{on}; allowed: {there}; {todo}")
