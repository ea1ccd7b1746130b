"""The models of a study file: what is loaded, how, and whose update continues every branch."""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from unmask.base.errors import require
from unmask.base.json_files import to_plain
from unmask.base.options import check_keys, check_name, parse_text
from unmask.base.user_code import is_code_name
from unmask.methods import METHODS, describe_policy, make_own_policy, make_policy, register_reference

REFERENCES = ("llada", "dream")
LONGEST_NAME = 200
"""Characters of a name that tables and pages show."""


@dataclass(frozen=True)
class ModelSpec:
    """A model of the study."""

    name: str
    """What tables call it."""
    model: str
    """A name of `unmask models`, a hub id or a folder."""
    reference: str
    """Whose update continues every branch: llada, dream, or a policy that `around` has named."""
    options: Mapping[str, Any] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=dict)
    """Settings and code of a reference that is neither dream nor llada as it comes: its blocks are settings."""

    def load(self) -> Any:
        """The model, as `unmask.load` gives it. The catalog lies above the laboratory, because it names clusters."""
        return import_module("unmask.api.load").load(self.model, **self.options)


def parse_name(what: str, value: Any) -> str:
    """A name that files, tables and screens can hold."""
    name = parse_text(what, value)
    shown = name if len(name) <= LONGEST_NAME else f"{name[:40]}... ({len(name):,} characters)"
    allowed = f"a text of at most {LONGEST_NAME} characters, without control characters and halves of characters"
    ok = len(name) <= LONGEST_NAME and not any(unicodedata.category(c) in ("Cc", "Cs") for c in name)
    require(ok, what, shown, allowed, "give it another name")
    return name


def _reference(table: Mapping[str, Any], where: str, folder: Path, whole: bool) -> tuple[str, Mapping[str, Any]]:
    """The name of the reference; and what it is, where it is a method by name or code of the user's, which runs."""
    given, options = parse_text(f"reference of {where}", table["reference"]), table.get("settings", {})
    ok = isinstance(options, Mapping)
    require(ok, f"settings of {where}", options, "a table", "e.g. settings = {block_length=8}")
    if given in REFERENCES and not (options and given == "llada"):
        require(not options, f"settings of {where}", dict(options), f"none with {given}", "its candidates are fixed")
        return given, {}
    if is_code_name(given):
        policy = make_own_policy(given, options, folder)
    else:
        check_name("reference", given, [*REFERENCES, *METHODS, "path.py:Class"])
        policy = make_policy(given, **options)
    return register_reference(policy, whole=whole), to_plain(describe_policy(policy))


def parse_models(value: Any, folder: Path, *, whole: bool) -> tuple[ModelSpec, ...]:
    require(isinstance(value, list) and bool(value), "models", value, "one [[models]] or more", "add one")
    specs = []
    for at, table in enumerate(value):
        where = f"models[{at}]"
        check_keys(where, table, ("model", "reference"), ("name", "options", "settings"))
        reference, policy = _reference(table, where, folder, whole)
        options = table.get("options", {})
        require(
            isinstance(options, Mapping), f"options of {where}", options, "a table", "e.g. options = {dtype='bf16'}"
        )
        model = parse_text(f"model of {where}", table["model"])
        name = parse_name(f"name of {where}", table.get("name", model))
        specs.append(ModelSpec(name, model, reference, MappingProxyType(dict(options)), policy))
    names = [spec.name for spec in specs]
    require(len(set(names)) == len(names), "names of models", names, "no name twice", "tables go by these names")
    return tuple(replace(spec, options=dict(spec.options)) for spec in specs)


def check_blocks(models: tuple[ModelSpec, ...], horizons: Mapping[str, int], steps: Mapping[str, int]) -> None:
    """Refuse blocks that a task's answer or steps cannot be cut into, before anything runs."""
    for spec in models:
        block = spec.policy.get("block_length")
        if spec.policy.get("name") != "llada" or block is None:
            continue
        for task, horizon in horizons.items():
            fits = horizon % block == 0 and steps[task] % (horizon // block) == 0
            allowed = f"a divisor of the {horizon} tokens of {task} whose blocks divide its {steps[task]} steps"
            require(fits, f"block_length of {spec.name}", block, allowed, "take another, or other steps for the task")
