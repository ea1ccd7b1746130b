"""The policy axis of a study: published methods, and methods of the user's own, as candidates at every state.

The first candidate is the reference, by its name or as `reference`, which is that of each model. No diagnostic exists
for this axis: it has no signal, no gate and no part in a joint arm.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.axes import POLICY
from unmask.base.errors import ConfigError, require
from unmask.base.json_files import to_plain
from unmask.core import Policy
from unmask.methods import candidates, describe_policy, method_status, parse_policy, reference_of

REFERENCE = "reference"
"""The first candidate, whatever the reference of a model is."""
_WHERE = f"candidates.{POLICY}"


def methods_of(names: Sequence[str], folder: Path) -> dict[str, Policy]:
    """The methods that a study file names after the reference, as `--policy` would read them; own classes run."""
    ok = len(names) >= 2
    require(ok, _WHERE, list(names), "the reference, then one method or more", "name what is to be tried beside it")
    return {name: _method(name, folder) for name in names[1:]}


def _method(name: str, folder: Path) -> Policy:
    if name == REFERENCE:
        raise ConfigError(f"{_WHERE} has {name!r} in a later place; allowed: the first one; put it first")
    method = parse_policy(name, option=_WHERE, folder=folder)
    if not isinstance(method, Policy):
        raise ConfigError(
            f"{_WHERE}: {name!r} is a search, which owns its loop and takes no single transition; allowed: methods "
            "that decide step by step; compare it end to end with `unmask compare`"
        )
    if method.needs.planner:
        raise ConfigError(
            f"{_WHERE}: {name!r} asks a planner network, and a study has none; allowed: methods that need no second "
            "network; leave planner out"
        )
    return method


def method_set(names: Sequence[str], methods: Mapping[str, Policy], reference: str) -> dict[str, Policy]:
    """The candidates of the axis around a reference; refused where the first is not its name."""
    policy = reference_of(candidates(reference))
    own = reference if reference in ("llada", "dream") else policy.name
    allowed = f"{REFERENCE!r}, or {own!r}, the reference of the model"
    require(names[0] in (REFERENCE, own), f"the first candidate of {POLICY}", names[0], allowed, "put it first")
    return {names[0]: policy, **{name: methods[name] for name in names[1:]}}


def described(methods: Mapping[str, Policy]) -> dict[str, Any]:
    """What a study's tables depend on: settings, versions and code of its methods; and whether they draw.

    Not what is only said of a method, its label: other words would make another study of it.
    """
    about = {
        name: {
            "settings": describe_policy(method),
            "version": method_status(method).get("version"),
            "draws": method.random,
        }
        for name, method in methods.items()
    }
    plain: dict[str, Any] = to_plain(about)
    return plain
