"""Unmasking methods: one file each, and the table that names them."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints

from unmask.base.errors import ConfigError, UnknownName
from unmask.base.options import check_types, fits
from unmask.base.user_code import code_hash, is_shipped
from unmask.core import Policy, Search
from unmask.methods.best_of import BestOf
from unmask.methods.card import LABELS, OURS, RECONSTRUCTION, TAXONOMY, VERIFIED, Card
from unmask.methods.composed import Composed, compose
from unmask.methods.core import CoRe
from unmask.methods.dcd import DCD
from unmask.methods.ddpd import DDPD
from unmask.methods.demask import DEMASK
from unmask.methods.dos import DOS
from unmask.methods.dream import Dream
from unmask.methods.dsb import DSB
from unmask.methods.dus import DUS
from unmask.methods.eb_sampler import EBSampler
from unmask.methods.fast_dllm import FastDLLM, FastDLLMDream
from unmask.methods.fixed import Fixed
from unmask.methods.info_gain import InfoGain
from unmask.methods.klass import KLASS
from unmask.methods.llada import LLaDA
from unmask.methods.lookum import LookUM
from unmask.methods.medal import MEDAL
from unmask.methods.order_token_search import OrderTokenSearch
from unmask.methods.p2 import P2
from unmask.methods.remdm import ReMDMLLaDA, ReMDMSampler
from unmask.methods.revised import Revised
from unmask.methods.soar import SOAR
from unmask.methods.swordsman import Swordsman
from unmask.methods.vsb import VSB
from unmask.methods.wino import WINO

__all__ = [
    "DCD",
    "DDPD",
    "DEMASK",
    "DOS",
    "DSB",
    "DUS",
    "KLASS",
    "LABELS",
    "MEDAL",
    "METHODS",
    "OURS",
    "P2",
    "RECONSTRUCTION",
    "SOAR",
    "TAXONOMY",
    "VERIFIED",
    "VSB",
    "WINO",
    "BestOf",
    "Card",
    "CoRe",
    "Composed",
    "Dream",
    "EBSampler",
    "FastDLLM",
    "FastDLLMDream",
    "Fixed",
    "InfoGain",
    "LLaDA",
    "LookUM",
    "OrderTokenSearch",
    "ReMDMLLaDA",
    "ReMDMSampler",
    "Revised",
    "Swordsman",
    "compose",
    "describe_policy",
    "make_policy",
    "method_status",
    "with_settings",
]


METHODS: dict[str, type[Policy] | type[Search]] = {
    method.name: method
    for method in (
        LLaDA,
        FastDLLM,
        FastDLLMDream,
        KLASS,
        EBSampler,
        DOS,
        DUS,
        DSB,
        Swordsman,
        DCD,
        VSB,
        ReMDMSampler,
        ReMDMLLaDA,
        WINO,
        CoRe,
        InfoGain,
        LookUM,
        SOAR,
        OrderTokenSearch,
        MEDAL,
        DEMASK,
        DDPD,
        P2,
        Dream,
        BestOf,
        Revised,
        Fixed,
        Composed,
    )
}
"""By name, in the order of the paper's table; then what it does not list, and what is this library's own."""


def make_policy(name: str, **options: Any) -> Policy | Search:
    """A policy by name. Dotted options reach into parts: `operator.variant="cap"`, `base="llada"` of "revised"."""
    if name not in METHODS:
        raise UnknownName("policy", name, METHODS)
    return with_settings(METHODS[name](), name, options)


def describe_policy(policy: Policy | Search) -> dict[str, Any]:
    """The resolved settings of a policy, parts included; no fields where it is no dataclass.

    A policy that did not come with this package is there with its class and a hash of its code: no setting says what it
    does. `class` cannot be the name of a field.
    """
    return {"name": policy.name, **_class(policy), **(_fields(policy) if is_dataclass(policy) else {})}


def method_status(policy: Policy | Search) -> dict[str, str]:
    """How far a method can be trusted, and its version, for the results that it makes."""
    if policy.card is None:
        return {"label": "own"}
    made_for = {"made_for": policy.card.made_for} if policy.card.made_for else {}
    return {"label": policy.card.label, "version": policy.card.version, **made_for}


def with_settings(part: Any, path: str, options: Mapping[str, Any]) -> Any:
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
            changes[head] = make_policy(value)  # a part that is a policy may be named
        elif value is None and not fits(None, hints[head]) and fits("none", hints[head]):
            changes[head] = "none"  # a command line cannot tell the word from the value
    for head, inner in nested.items():
        changes[head] = with_settings(changes.get(head, known[head]), f"{path}.{head}", inner)
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
    return {} if is_shipped(kind) else {"class": f"{kind.__qualname__}, code {code_hash(kind) or 'unknown'}"}
