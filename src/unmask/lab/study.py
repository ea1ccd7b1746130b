"""Study files: what is measured, on what, and how. TOML, strict: every key is known and every value possible.

Choices that alter a conclusion have no default: models and their reference, tasks, axes, steps, splits, states,
rollouts, temperature, the seed, and the revision operator where an axis revises. Candidate sets are those of
`policies/candidates` unless named; the policy axis has no default set.
"""

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from unmask.axes import AXES, POLICY, STUDY_AXES, ReMDM
from unmask.core import Policy, Search
from unmask.diagnostics import DIAGNOSTICS
from unmask.errors import ConfigError, require
from unmask.lab.branch import EngineSettings, Plan
from unmask.lab.methods import described, method_set, methods_of
from unmask.lab.prompts import FRESH
from unmask.lab.searches import searches_of
from unmask.lab.store.schemas import by_axis
from unmask.options import (
    check_keys,
    check_name,
    parse_names,
    parse_number,
    parse_part,
    parse_text,
    parse_whole,
    read_toml,
)
from unmask.own_code import names_code
from unmask.policies import METHODS, make, settings
from unmask.policies.candidates import Sets, around, candidate, candidates, reference_of
from unmask.policies.own import own_policy
from unmask.request import steps_of
from unmask.tasks import CONTROLS, SPLITS, TASKS, Task
from unmask.tasks.own import own as own_task
from unmask.tasks.table import find

ROLES = ("validation", "evaluation")
"""Fixed actions, schedules and detectors are chosen on the first; the second is shown once."""
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
    """Settings and code of a reference that is neither llada nor dream."""


@dataclass(frozen=True)
class PromptRange:
    """Prompts of one role: a stretch of a split of every task."""

    split: str
    start: int
    prompts: int

    def overlaps(self, other: "PromptRange") -> bool:
        apart = self.start + self.prompts <= other.start or other.start + other.prompts <= self.start
        return self.split == other.split and not apart


@dataclass(frozen=True)
class Budget:
    """When to stop; a later run goes on."""

    minutes: float | None = None


@dataclass(frozen=True)
class Study:
    """A study file, checked."""

    name: str
    seed: int
    models: tuple[ModelSpec, ...]
    tasks: tuple[str, ...]
    axes: tuple[str, ...]
    splits: Mapping[str, PromptRange]
    steps: Mapping[str, int]
    """T of every task."""
    states: int
    rollouts: int
    temperature: float
    revision: ReMDM | None
    """None where no axis revises."""
    engine: EngineSettings
    shard: int
    """Prompts per shard: what a killed process loses, and what bounds memory."""
    candidates: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names by axis, where they are not the default ones."""
    diagnostics: tuple[str, ...] = ()
    """Names of those that are read at every state, and whose proposals are branched."""
    end_to_end: bool = False
    """Decode the arms of the diagnosed axes from beginning to end, once all branches are there."""
    budget: Budget = Budget()
    own: Mapping[str, Task] = field(default_factory=dict)
    """Tasks outside the suite, by name."""
    methods: Mapping[str, Policy] = field(default_factory=dict)
    """Candidates of the policy axis after the reference, by name."""
    searches: Mapping[str, Search] = field(default_factory=dict)
    """Methods that own their loop, decoded end to end beside the arms, by name."""

    @classmethod
    def read(cls, path: str | Path) -> "Study":
        """A study file."""
        return cls.parse(read_toml(path, "study file"), Path(path).parent)

    @classmethod
    def parse(cls, raw: Mapping[str, Any], folder: Path = Path()) -> "Study":
        """A study from a file's content; `folder` is where its files are looked for."""
        check_keys("the study", raw, _required(raw), _OPTIONAL)
        names = parse_names("tasks", raw["tasks"])
        own = _own(raw.get("own", {}), names, folder)
        tasks = {name: own[name] if name in own else _suite_task(name, own) for name in names}
        axes = parse_names("axes", raw["axes"])
        for axis in axes:
            check_name("axis", axis, STUDY_AXES)
        named = _candidate_names(raw.get("candidates", {}), axes)
        study = cls(
            name=_name("name", raw["name"]),
            seed=parse_whole("seed", raw["seed"], 0),
            models=_models(raw["models"], folder, whole=axes == (POLICY,)),
            tasks=names,
            axes=axes,
            splits=_splits(raw["splits"]),
            steps=_steps(raw["steps"], tasks),
            states=parse_whole("states", raw["states"], 1),
            rollouts=parse_whole("rollouts", raw["rollouts"], 1),
            temperature=parse_number("temperature", raw["temperature"], 0.0),
            revision=_revision(raw),
            engine=_engine(raw["engine"]),
            shard=parse_whole("engine.prompts", raw["engine"].get("prompts", 8), 1),
            candidates=named,
            diagnostics=_diagnosed(raw.get("diagnostics", []), axes),
            end_to_end=_end_to_end(raw.get("end_to_end", False), raw.get("diagnostics", [])),
            budget=parse_part(Budget, raw.get("budget", {}), "budget", required=()),
            own=own,
            methods=methods_of(named[POLICY], folder) if POLICY in axes else {},
            searches=_searches(raw, folder),
        )
        # Refused where two are of one axis.
        by_axis({name: DIAGNOSTICS[name].axis for name in study.diagnostics})
        for spec in study.models:
            draws = reference_of(study.sets(spec.reference)).random and POLICY in axes
            ok, allowed = study.rollouts > 1 or not draws, f"2 or more where the reference of {spec.name!r} draws"
            require(ok, "rollouts", study.rollouts, allowed, "one says little of what is drawn: raise it")
        return study

    @property
    def config(self) -> dict[str, Any]:
        """Everything that branches depend on, as plain values; not how the work is cut, nor the budget.

        `end_to_end` and `searches` are not among them: they add tables and change none, so they may come later.
        """
        whole = asdict(replace(self, splits={}, steps={}, candidates={}, own={}, methods={}, searches={}))
        for key in ("budget", "shard", "end_to_end", "searches"):
            del whole[key]
        whole["engine"] = {"rows": self.engine.rows, "bucket": self.engine.bucket}
        whole["splits"] = {role: asdict(part) for role, part in self.splits.items()}
        whole["steps"] = dict(self.steps)
        whole["candidates"] = {
            spec.reference: {axis: list(named) for axis, named in self.sets(spec.reference).items()}
            for spec in self.models
        }
        whole["diagnostics"] = {name: vars(DIAGNOSTICS[name]()) for name in self.diagnostics}
        # A shard is a block of so many prompts: another number would cut other shards.
        whole["shard"] = self.shard
        del whole["own"], whole["methods"]
        if self.methods:
            whole["methods"] = described(self.methods)
        if self.own:
            whole["own"] = {
                name: {"score": task.utility, "horizon": task.horizon, "data": task.version}
                for name, task in self.own.items()
            }
        return whole

    @property
    def diagnosed_axes(self) -> tuple[str, ...]:
        """The axis of each diagnostic."""
        return tuple(DIAGNOSTICS[name].axis for name in self.diagnostics)

    def task(self, name: str) -> Task:
        """One of its tasks: of the suite, or its own."""
        return self.own[name] if name in self.own else find(name)

    def sets(self, reference: str) -> Sets:
        """The candidates of the study's axes around a reference."""
        default = candidates(reference)
        chosen: dict[str, dict[str, Policy]] = {}
        for axis in self.axes:
            names = self.candidates.get(axis)
            if axis == POLICY:
                chosen[axis] = method_set(self.candidates[axis], self.methods, reference)
                continue
            chosen[axis] = {
                name: candidate(reference, axis, name, self.revision)
                for name in (default[axis] if names is None else names)
            }
            first, wanted = next(iter(chosen[axis])), next(iter(default[axis]))
            allowed = f"{wanted!r}, the reference"
            require(first == wanted, f"the first candidate of {axis}", first, allowed, "put it first")
        return chosen

    def plan(self, reference: str) -> Plan:
        """What the engine is to do for a model with this reference."""
        return Plan(
            reference=reference_of(candidates(reference)),
            candidates=self.sets(reference),
            # Where no axis revises, nobody asks for it.
            operator=self.revision or ReMDM(),
            rollouts=self.rollouts,
            states=self.states,
            seed=self.seed,
            temperature=self.temperature,
            diagnostics={name: DIAGNOSTICS[name]() for name in self.diagnostics},
        )


_REQUIRED = (
    "name",
    "seed",
    "models",
    "tasks",
    "axes",
    "splits",
    "steps",
    "states",
    "rollouts",
    "temperature",
    "engine",
)
_OPTIONAL = ("revision", "candidates", "diagnostics", "end_to_end", "searches", "budget", "own")


def _required(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """The revision operator has no default where an axis revises, and no meaning elsewhere."""
    axes = raw.get("axes", []) if isinstance(raw, Mapping) else []
    revises = isinstance(axes, list) and any(axis.name in axes and axis.revises for axis in AXES.values())
    return (*_REQUIRED, "revision") if revises else _REQUIRED


def _revision(raw: Mapping[str, Any]) -> ReMDM | None:
    return parse_part(ReMDM, raw["revision"], "revision", required=("variant",)) if "revision" in raw else None


def _name(what: str, value: Any) -> str:
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
    if given in REFERENCES:
        require(not options, f"settings of {where}", dict(options), f"none with {given}", "its candidates are fixed")
        return given, {}
    if names_code(given):
        policy = own_policy(given, options, folder)
    else:
        check_name("reference", given, [*REFERENCES, *METHODS, "path.py:Class"])
        policy = make(given, **options)
    return around(policy, whole=whole), json.loads(json.dumps(settings(policy), default=str))


def _models(value: Any, folder: Path, *, whole: bool) -> tuple[ModelSpec, ...]:
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
        name = _name(f"name of {where}", table.get("name", model))
        specs.append(ModelSpec(name, model, reference, MappingProxyType(dict(options)), policy))
    names = [spec.name for spec in specs]
    require(len(set(names)) == len(names), "names of models", names, "no name twice", "tables go by these names")
    return tuple(replace(spec, options=dict(spec.options)) for spec in specs)


def _own(value: Any, tasks: Sequence[str], folder: Path) -> Mapping[str, Task]:
    require(isinstance(value, Mapping), "own", value, "tables of own tasks", "e.g. [own.mine]")
    own = {}
    for name, given in value.items():
        where = f"own.{_name('name of an own task', name)}"
        check_keys(where, given, ("prompts", "horizon"), ("score",))
        if name not in tasks:
            raise ConfigError(
                f"{where} is not among the tasks of the study; allowed: {', '.join(tasks)}; add or drop it"
            )
        score = given.get("score")
        own[name] = own_task(
            name,
            parse_text(f"prompts of {where}", given["prompts"]),
            score=None if score is None else parse_text(f"score of {where}", score),
            horizon=parse_whole(f"horizon of {where}", given["horizon"], 1),
            folder=folder,
        )
    return own


def _suite_task(name: str, own: Mapping[str, Task]) -> Task:
    check_name("task", name, [*TASKS, *CONTROLS, *own])
    return find(name)


def _splits(value: Any) -> Mapping[str, PromptRange]:
    check_keys("splits", value, ROLES)
    parts = {role: _stretch(role, value[role]) for role in ROLES}
    overlap = parts["validation"].overlaps(parts["evaluation"])
    require(
        not overlap,
        "splits",
        {role: asdict(part) for role, part in parts.items()},
        "prompts that are in one of them only",
        "what is chosen on a prompt must not be shown on it",
    )
    least = parts["validation"].prompts
    require(least >= 2, "prompts of validation", least, "2 or more", "a fixed action cannot be chosen on fewer")
    return parts


def _stretch(role: str, value: Any) -> PromptRange:
    if isinstance(value, int) and not isinstance(value, bool):
        value = {"prompts": value}
    where = f"splits.{role}"
    check_keys(where, value, ("prompts",), ("from", "start"))
    split = value.get("from", role)
    check_name("split", split, (*SPLITS, FRESH))
    start = parse_whole(f"start of {where}", value.get("start", 0), 0)
    return PromptRange(split, start, parse_whole(f"prompts of {where}", value["prompts"], 1))


def _steps(value: Any, tasks: Mapping[str, Task]) -> Mapping[str, int]:
    """T of each task: a share of its horizon, rounded up, or a number of its own."""
    check_keys("steps", value, ("share",), ("tasks",))
    share = parse_number("steps.share", value["share"], 0.0)
    require(0 < share <= 1, "steps.share", share, "above 0, at most 1", "0.5 is two tokens per step")
    own = value.get("tasks", {})
    require(isinstance(own, Mapping), "steps.tasks", own, "a table of task = steps", "e.g. carry-rtl = 16")
    for name in own:
        check_name("task of steps.tasks", name, tasks)
    steps_by_task = {}
    for name, task in tasks.items():
        horizon = task.horizon
        steps = own.get(name, steps_of(share, horizon))
        whole = isinstance(steps, int) and not isinstance(steps, bool)
        todo = "lower it" if whole and steps > horizon else "give 1 or more"
        ok = whole and 1 <= steps <= horizon
        require(ok, f"steps of {name}", steps, f"a whole number, 1 to {horizon}, its horizon", todo)
        steps_by_task[name] = steps
    return steps_by_task


def _engine(value: Any) -> EngineSettings:
    check_keys("engine", value, ("rows",), ("live", "bucket", "waiting", "prompts"))
    given: dict[str, Any] = {key: parse_whole(f"engine.{key}", value[key], 1) for key in value if key != "prompts"}
    return EngineSettings(**given)


def _candidate_names(value: Any, axes: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    require(isinstance(value, Mapping), "candidates", value, "a table of axis = [names]", "e.g. score = ['confidence']")
    for axis in value:
        check_name("axis of candidates", axis, axes)
    if POLICY in axes and POLICY not in value:
        raise ConfigError(
            f"the axis {POLICY!r} has no candidates; allowed: the reference, then methods as --policy has them, for "
            'there is no default set; e.g. [candidates] policy = ["reference", "klass", "wino:block_length=8"]'
        )
    return {
        axis: tuple(_name(f"candidates.{axis}", name) for name in parse_names(f"candidates.{axis}", names))
        for axis, names in value.items()
    }


def _diagnosed(value: Any, axes: Sequence[str]) -> tuple[str, ...]:
    if value == []:
        return ()
    names = parse_names("diagnostics", value)
    for name in names:
        if name == POLICY:
            raise ConfigError(
                f"diagnostics has {name!r}, but no diagnostic exists for the policy axis; allowed: "
                f"{', '.join(DIAGNOSTICS)}; drop it: the axis has opportunity, fixed and stage arms without one"
            )
        check_name("name in diagnostics", name, DIAGNOSTICS)
        axis, known = DIAGNOSTICS[name].axis, ", ".join(axes)
        todo = f"add {axis!r} to axes, or drop the diagnostic"
        require(axis in axes, f"the axis of {name!r} in diagnostics", axis, f"one of the study's axes: {known}", todo)
    return names


_NAME_THEM = (
    "name diagnostics: the arms are made of their readings; whole methods are decoded end to end by `unmask compare`"
)


def _searches(raw: Mapping[str, Any], folder: Path) -> Mapping[str, Search]:
    names = parse_names("searches", raw["searches"]) if "searches" in raw else ()
    return searches_of([_name("searches", name) for name in names], folder, raw.get("end_to_end") is True)


def _end_to_end(value: Any, diagnostics: Any) -> bool:
    require(isinstance(value, bool), "end_to_end", value, "true or false", "write it without quotes")
    ok = not value or bool(diagnostics)
    require(ok, "end_to_end", value, "true with diagnostics", _NAME_THEM)
    return bool(value)
