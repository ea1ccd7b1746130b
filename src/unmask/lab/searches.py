"""Searches of a study: methods that own their loop, decoded end to end beside the arms of E4, each with its control."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.base.errors import ConfigError, require
from unmask.base.json_files import to_plain
from unmask.core import Search, State
from unmask.methods import describe_policy, method_status, parse_policy

SEARCH = "search"
"""In place of an axis: what decodes of searches and of their controls are stored under."""


def searches_of(names: Sequence[str], folder: Path, end_to_end: bool) -> dict[str, Search]:
    """The searches that a study file names, as `--policy` would read them; own classes run."""
    ok = end_to_end or not names
    require(ok, "searches", list(names), "names with end_to_end = true", "switch it on, or leave them out")
    found: dict[str, Search] = {}
    for name in names:
        method = parse_policy(name, option="searches", folder=folder)
        if not isinstance(method, Search):
            raise ConfigError(
                f"searches: {name!r} decides step by step; allowed: methods that own their loop, such as lookum or "
                "soar; put it among the candidates of the policy axis"
            )
        if method.baseline is None:
            raise ConfigError(
                f"searches: {name!r} has no base method to be measured against; allowed: one with `base_method`; "
                "define it, or leave the search out"
            )
        found[name] = method
    return found


def check_budgets(searches: Mapping[str, Search], horizons: Mapping[str, int], steps: Mapping[str, int]) -> None:
    """Refuse a budget that is too small for some task's answer before anything runs: its decodes come last."""
    for name, search in searches.items():
        for task, horizon in horizons.items():
            blank = State.from_canvases([[0] * horizon], steps=steps[task], mask_id=0)
            try:
                search.check(blank)
            except ConfigError as error:
                raise ConfigError(
                    f"searches: {name!r} on {task} ({horizon} tokens, {steps[task]} steps): {error}"
                ) from error


def described(searches: Mapping[str, Search]) -> dict[str, Any]:
    """What their decodes depend on: settings, versions and code."""
    about = {
        name: {"settings": describe_policy(s), "version": method_status(s).get("version")}
        for name, s in searches.items()
    }
    plain: dict[str, Any] = to_plain(about)
    return plain
