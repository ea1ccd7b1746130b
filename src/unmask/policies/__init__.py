"""Unmasking methods: one file each, and the table that names them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_type_hints

from unmask.core import Policy, Search
from unmask.errors import ConfigError, UnknownName
from unmask.options import check_types, fits
from unmask.own_code import code_hash, is_ours
from unmask.policies.core import CoRe
from unmask.policies.dream import Dream
from unmask.policies.fixed import Fixed
from unmask.policies.info_gain import InfoGain
from unmask.policies.llada import LLaDA
from unmask.policies.revised import Revised
from unmask.policies.wino import WINO

__all__ = [
    "METHODS",
    "WINO",
    "CoRe",
    "Dream",
    "Fixed",
    "InfoGain",
    "LLaDA",
    "Method",
    "Revised",
    "changed",
    "make",
    "settings",
]


@dataclass(frozen=True)
class Method:
    """A policy class and its row of the paper's taxonomy."""

    policy: type[Policy] | type[Search]
    source: str
    score: str
    cardinality: str
    region: str
    commitment: str
    planning: str = "none"


METHODS: dict[str, Method] = {
    "llada": Method(LLaDA, "Nie et al. 2025", "confidence", "scheduled", "full or block", "irreversible"),
    "dream": Method(Dream, "Ye et al. 2025", "entropy, margin, confidence", "scheduled", "full", "irreversible"),
    "fixed": Method(Fixed, "this library", "any mixture", "any", "any", "any"),
    "revised": Method(Revised, "Wang et al. 2025 (ReMDM operator)", "base", "base", "base", "re-maskable"),
    "wino": Method(
        WINO,
        "Hong et al. 2026",
        "draft and verify",
        "parallel draft",
        "active block",
        "re-maskable",
        "draft-verify",
    ),
    "core": Method(CoRe, "CoRe 2026", "confidence or margin", "scheduled", "block", "re-maskable", "context probe"),
    "info-gain": Method(
        InfoGain,
        "Yang et al. 2026",
        "certainty + gain",
        "candidate sets",
        "block",
        "irreversible",
        "look-ahead",
    ),
}


def make(name: str, **options: Any) -> Policy | Search:
    """A policy by name. Dotted options reach into parts: `operator.variant="cap"`, `base="llada"` of "revised"."""
    if name not in METHODS:
        raise UnknownName("policy", name, METHODS)
    return changed(METHODS[name].policy(), name, options)


def settings(policy: Policy | Search) -> dict[str, Any]:
    """The resolved settings of a policy, parts included; no fields where it is no dataclass.

    A policy that did not come with this package is there with its class and a hash of its code: no setting says what it
    does. `class` cannot be the name of a field.
    """
    return {"name": policy.name, **_class(policy), **(_fields(policy) if is_dataclass(policy) else {})}


def changed(part: Any, path: str, options: Mapping[str, Any]) -> Any:
    """A policy, or a part of one, with some settings changed; `path` is what messages call it."""
    known = {f.name: getattr(part, f.name) for f in fields(part) if f.init}
    changes: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    for key, value in options.items():
        head, _, rest = key.partition(".")
        if head not in known:
            raise UnknownName(f"setting of {path}", key, known)
        if rest:
            if not is_dataclass(known[head]):
                raise ConfigError(f"{path}.{head} has no parts; allowed: {head}=VALUE; drop {rest!r}")
            nested.setdefault(head, {})[rest] = value
        else:
            changes[head] = value
    hints = get_type_hints(type(part))
    for head, value in changes.items():
        if isinstance(value, str) and isinstance(known[head], Policy):
            changes[head] = make(value)  # a part that is a policy may be named
        elif value is None and not fits(None, hints[head]) and fits("none", hints[head]):
            changes[head] = "none"  # a command line cannot tell the word from the value
    for head, inner in nested.items():
        changes[head] = changed(changes.get(head, known[head]), f"{path}.{head}", inner)
    check_types(type(part), changes, path)
    return type(part)(**{**known, **changes})


def _fields(part: Any) -> dict[str, Any]:
    return {f.name: _shown(getattr(part, f.name)) for f in fields(part)}


def _shown(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_shown, value))
    if not is_dataclass(value) or isinstance(value, type):
        return value
    named = {"name": value.name, **_class(value)} if isinstance(value, Policy | Search) else {}
    return {**named, **_fields(value)}


def _class(policy: Policy | Search) -> dict[str, str]:
    kind = type(policy)
    return {} if is_ours(kind) else {"class": f"{kind.__qualname__}, code {code_hash(kind) or 'unknown'}"}
