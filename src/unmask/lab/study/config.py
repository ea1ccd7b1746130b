"""Study files: what is measured, on what, and how.

A file is TOML. Every key is known and every value possible, or the file is refused (`StudyFile`). Choices that alter a
conclusion have no default: models and their reference, tasks, axes, steps, splits, states, rollouts, temperature, the
seed, and the revision operator where an axis revises. `StudyConfig` is a file with its names looked up: tasks, policies
and diagnostics; its `config` is what tables depend on, and is hashed.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator, model_validator

from unmask.adapt import DIAGNOSTICS
from unmask.api import count_steps
from unmask.axes import AXES, CARDINALITY, POLICY, REGION, STUDY_AXES, ReMDM, allow_below_k_min
from unmask.base.errors import ConfigError, require
from unmask.base.json_files import to_plain
from unmask.base.options import Options, check_known_name, parse_dataclass, read_toml
from unmask.base.user_code import is_code_name
from unmask.core import Policy, Search, State
from unmask.lab.branching import BatchSettings, BranchPlan
from unmask.lab.store import fingerprint
from unmask.lab.study.validation import AXIS_BY, GATE_VARIANTS
from unmask.methods import (
    HOLDS_CHOICES,
    METHODS,
    CandidateSets,
    candidate,
    candidates,
    describe_policy,
    make_own_policy,
    make_policy,
    method_status,
    name_with_share,
    parse_policy,
    reference_of,
    register_reference,
)
from unmask.tasks import CONTROLS, SCORINGS, SPLITS, TASKS, Task, find_task, own_task

FRESH = "fresh"
"""Endless split of a constructed task: prompts that are in no other split and that no training run draws."""
ROLES = ("validation", "evaluation")
"""Roles of prompts: all choices are made on validation prompts and measured on evaluation prompts."""
REFERENCES = ("llada", "dream")
REFERENCE = "reference"
"""Name of the first candidate of the policy axis, which stands for each model's own reference."""
LONGEST_NAME = 200
"""Longest name, in characters, that tables and pages can show."""


# The file


def _names_field(*default: tuple[str, ...]) -> Any:
    wording: dict[str, Any] = {"allowed": "a list of names, none twice", "hint": "put the names in brackets"}
    return Field(*default, json_schema_extra=wording)


def _whole_number_field(least: int, *default: Any) -> Any:
    wording: dict[str, Any] = {"allowed": f"a whole number, {least} or more", "hint": "change it"}
    return Field(*default, ge=least, json_schema_extra=wording)


class RangeTable(Options):
    """A stretch of a split: a role's prompts, in `[splits]`."""

    split: str | None = Field(None, alias="from")
    start: int = _whole_number_field(0, 0)
    prompts: int = _whole_number_field(1)


class SplitsTable(Options):
    """The table `[splits]`: the prompts of each role; a plain number means so many prompts."""

    validation: RangeTable
    evaluation: RangeTable

    @field_validator("validation", "evaluation", mode="before")
    @classmethod
    def _number_to_range(cls, value: Any) -> Any:
        return {"prompts": value} if isinstance(value, int) and not isinstance(value, bool) else value


class StepsTable(Options):
    """The table `[steps]`: T as a share of each task's tokens, or a number for single tasks."""

    share: float = Field(gt=0, le=1)
    tasks: Mapping[str, Any] = {}


class EngineTable(Options):
    """The table `[engine]`: how much is computed at once."""

    rows: int = _whole_number_field(1)
    live: int | None = _whole_number_field(1, None)
    bucket: int | None = _whole_number_field(1, None)
    waiting: int | None = _whole_number_field(1, None)
    prompts: int = _whole_number_field(1, 8)


class ModelTable(Options):
    """One of the tables `[[models]]`."""

    model: str
    reference: str
    name: str | None = None
    options: Mapping[str, Any] = {}
    settings: Mapping[str, Any] = {}


class OwnTable(Options):
    """A table `[own.NAME]`: a task outside the suite."""

    prompts: str
    score: str | None = None
    horizon: int | None = _whole_number_field(1, None)


class Budget(Options):
    """The table `[budget]`: how long one run may take; a later run goes on where it stopped."""

    minutes: float | None = None
    """Minutes of one run."""


class StudyFile(Options):
    """The keys of a study file."""

    name: str
    seed: int = _whole_number_field(0)
    models: tuple[ModelTable, ...] = Field(
        min_length=1, json_schema_extra={"allowed": "one [[models]] or more", "hint": "add one"}
    )
    tasks: tuple[str, ...] = _names_field()
    axes: tuple[str, ...] = _names_field()
    splits: SplitsTable
    steps: StepsTable
    states: int = _whole_number_field(1)
    rollouts: int = _whole_number_field(1)
    temperature: float = Field(ge=0, json_schema_extra={"allowed": "a number, 0 or more", "hint": "0 is greedy"})
    engine: EngineTable
    revision: Mapping[str, Any] | None = None
    candidates: Mapping[str, tuple[str, ...]] = Field(
        {}, json_schema_extra={"allowed": "a table of axis = [names]", "hint": "e.g. score = ['confidence']"}
    )
    diagnostics: tuple[str, ...] = _names_field(())
    end_to_end: bool = False
    searches: tuple[str, ...] = _names_field(())
    budget: Budget = Budget()
    own: Mapping[str, OwnTable] = {}
    scoring: str = "ours"
    below_k_min: bool = False
    region_holds: str = "count"
    gates: tuple[str, ...] = _names_field(())
    axis_by: str = AXIS_BY[0]
    learned: bool = False

    @field_validator("candidates", mode="before")
    @classmethod
    def _lists_to_tuples(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {axis: tuple(names) if isinstance(names, list) else names for axis, names in value.items()}

    @model_validator(mode="after")
    def _check(self) -> "StudyFile":
        names = {key: getattr(self, key) for key in ("tasks", "axes", "diagnostics", "searches", "gates")}
        names |= {f"candidates.{axis}": named for axis, named in self.candidates.items()}
        for key, given in names.items():
            ok = len(set(given)) == len(given) and (bool(given) or key in ("diagnostics", "searches", "gates"))
            require(ok, key, list(given), "a list of names, none twice", "name one")
        for key, known in (("axis", STUDY_AXES), ("axis of candidates", self.axes), ("name in gates", GATE_VARIANTS)):
            of_key = {"axis": self.axes, "axis of candidates": self.candidates, "name in gates": self.gates}[key]
            for name in of_key:
                check_known_name(key, name, known)
        check_known_name("axis_by", self.axis_by, AXIS_BY)
        divides = "paper divides by the parts that were asked for"
        require(self.scoring in SCORINGS, "scoring", self.scoring, " or ".join(SCORINGS), divides)
        how_many = "count: where changes, and how many does not"
        require(
            self.region_holds in HOLDS_CHOICES, "region_holds", self.region_holds, " or ".join(HOLDS_CHOICES), how_many
        )
        ok = self.region_holds == "count" or REGION.name in self.axes
        hint = "add 'region' to axes, or drop it"
        require(ok, "region_holds", self.region_holds, "share with the region axis", hint)
        # Switches that mean something only beside others.
        for switch, on, why in (
            ("end_to_end", self.end_to_end, "the arms are made of their readings; compare whole methods instead"),
            ("learned", self.learned, "a learned detector reads what they read"),
        ):
            require(not on or bool(self.diagnostics), switch, on, "true with diagnostics", f"name diagnostics: {why}")
        for key, given in (("gates", self.gates), ("searches", self.searches)):
            hint = "they are arms of whole runs: switch it on, or leave them out"
            require(self.end_to_end or not given, key, list(given), "names with end_to_end = true", hint)
        if self.revision is None and any(axis.name in self.axes and axis.revises for axis in AXES.values()):
            raise ConfigError("the study has no 'revision'; allowed: an operator, because an axis revises; add it")
        if POLICY in self.axes and POLICY not in self.candidates:
            raise ConfigError(
                f"the axis {POLICY!r} has no candidates; allowed: the reference, then methods as --policy has them, "
                'for there is no default; e.g. [candidates] policy = ["reference", "klass", "wino:block_length=8"]'
            )
        return self


# The study


@dataclass(frozen=True)
class ModelSpec:
    """A model of the study."""

    name: str
    """Its name in tables."""
    model: str
    """A name of `unmask models`, a hub id or a folder."""
    reference: str
    """The policy that continues every branch: llada, dream, or a name of `register_reference`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Load options."""
    policy: Mapping[str, Any] = field(default_factory=dict)
    """Settings and code of a reference that is neither dream nor llada with its default settings."""

    def load(self) -> Any:
        """Load the model with `unmask.load`."""
        # The catalog of models names clusters, which are of the laboratory: imported when it is used.
        return import_module("unmask.api.load").load(self.model, **self.options)


@dataclass(frozen=True)
class PromptRange:
    """Prompts of one role: a stretch of a split of every task."""

    split: str
    start: int
    prompts: int

    def overlaps(self, other: "PromptRange") -> bool:
        """Tell whether two ranges have a prompt in common."""
        apart = self.start + self.prompts <= other.start or other.start + other.prompts <= self.start
        return self.split == other.split and not apart


@dataclass(frozen=True)
class StudyConfig:
    """A study: the content of a study file, with names looked up."""

    name: str
    seed: int
    models: tuple[ModelSpec, ...]
    tasks: tuple[str, ...]
    axes: tuple[str, ...]
    splits: Mapping[str, PromptRange]
    """By role."""
    steps: Mapping[str, int]
    """T of every task."""
    states: int
    """Sampled states of each prompt."""
    rollouts: int
    """Continuations of each action at a state."""
    temperature: float
    revision: ReMDM | None
    """The remasking operator; None where no axis revises."""
    engine: BatchSettings
    shard: int
    """Prompts per shard: what a killed process loses, and what bounds memory."""
    candidates: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names by axis, where they are not the default ones."""
    diagnostics: tuple[str, ...] = ()
    """Names of those that are read at every state, and whose proposals are branched."""
    end_to_end: bool = False
    """Decode the arms of the diagnosed axes from beginning to end, once all branches are there."""
    gates: tuple[str, ...] = ()
    """Further gates to decode: names of `GATE_VARIANTS`."""
    axis_by: str = AXIS_BY[0]
    """How the axis of E4's headline is chosen."""
    learned: bool = False
    """Keep the inputs of a learned detector, and report it as a rival of the bins."""
    budget: Budget = Budget()
    own: Mapping[str, Task] = field(default_factory=dict)
    """Tasks outside the suite, by name."""
    methods: Mapping[str, Policy] = field(default_factory=dict)
    """Candidates of the policy axis after the reference, by name."""
    scoring: str = "ours"
    """One of `tasks.SCORINGS`: "paper" is the paper's equation; "ours" also charges for parts nobody asked for."""
    below_k_min: bool = False
    """Let candidates of cardinality reveal fewer than k_min: each stands under its name with ":below"."""
    region_holds: str = "count"
    """Quantity that the region axis keeps of the reference: its count of positions, or its share (kappa), so that a
    smaller region reveals fewer. Names of candidates and proposals say so."""
    searches: Mapping[str, Search] = field(default_factory=dict)
    """Methods that own their loop, decoded end to end beside the arms, by name."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the study with references that only the process which read its file knows by name."""
        own = sorted({spec.reference for spec in self.models} - set(REFERENCES))
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return _unpickle_study, (values, [reference_of(candidates(name)) for name in own], fingerprint(self.config))

    @classmethod
    def read(cls, path: str | Path) -> "StudyConfig":
        """Read a study file."""
        return cls.parse(read_toml(path, "study file"), Path(path).parent, where=f"study file {Path(path).name!r}")

    @classmethod
    def parse(cls, raw: Mapping[str, Any], folder: Path = Path(), *, where: str = "the study file") -> "StudyConfig":
        """Check the content of a study file, and load the files and classes that it names from `folder`.

        `where` is what messages call the file.
        """
        given = StudyFile.from_table(raw, where)
        own = _load_own_tasks(given, folder)
        for name in given.tasks:
            if name not in own:
                check_known_name("task", name, [*TASKS, *CONTROLS, *own])
        tasks = {name: own[name] if name in own else find_task(name) for name in given.tasks}
        named = {
            axis: tuple(check_text(f"candidates.{axis}", name) for name in names)
            for axis, names in given.candidates.items()
        }
        settings = given.engine.model_dump(exclude={"prompts"}, exclude_none=True)
        revision = given.revision
        study = cls(
            name=check_text("name", given.name),
            seed=given.seed,
            models=_load_models(given, folder),
            tasks=given.tasks,
            axes=given.axes,
            splits=_resolve_prompt_ranges(given.splits),
            steps=_resolve_steps(given.steps, tasks),
            states=given.states,
            rollouts=given.rollouts,
            temperature=given.temperature,
            revision=None
            if revision is None
            else parse_dataclass(ReMDM, dict(revision), "revision", required=("variant",)),
            engine=BatchSettings(**settings),
            shard=given.engine.prompts,
            candidates=named,
            diagnostics=_check_diagnostics(given),
            end_to_end=given.end_to_end,
            gates=given.gates,
            axis_by=given.axis_by,
            learned=given.learned,
            budget=given.budget,
            own=own,
            methods=load_methods(named[POLICY], folder) if POLICY in given.axes else {},
            scoring=given.scoring,
            below_k_min=given.below_k_min,
            region_holds=given.region_holds,
            searches={name: load_search(check_text("searches", name), folder) for name in given.searches},
        )
        _check_lengths(study, {name: task.max_new_tokens for name, task in tasks.items()})
        for spec in study.models:
            draws = reference_of(study.candidate_sets(spec.reference)).random and POLICY in study.axes
            ok, allowed = study.rollouts > 1 or not draws, f"2 or more where the reference of {spec.name!r} draws"
            require(ok, "rollouts", study.rollouts, allowed, "one says little of what is drawn: raise it")
        return study

    @property
    def config(self) -> dict[str, Any]:
        """Everything that branches depend on, as plain values; not how the work is cut, nor the budget.

        It is hashed: a key that was added later is left out at its default, so that stored studies stay the same.
        `end_to_end`, `gates` and `searches` add tables and change none, so they are not in it.
        """
        whole = asdict(replace(self, splits={}, steps={}, candidates={}, own={}, methods={}, searches={}))
        usual = ["axis_by"] * (self.axis_by == AXIS_BY[0]) + ["learned"] * (not self.learned)
        # The names of candidates say whether they may fall below k_min, and what the region axis holds.
        for key in ("budget", "shard", "end_to_end", "gates", "searches", "below_k_min", "region_holds", *usual):
            del whole[key]
        whole["engine"] = {"rows": self.engine.rows, "bucket": self.engine.bucket}
        whole["splits"] = {role: asdict(part) for role, part in self.splits.items()}
        whole["steps"] = dict(self.steps)
        whole["candidates"] = {
            spec.reference: {axis: list(named) for axis, named in self.candidate_sets(spec.reference).items()}
            for spec in self.models
        }
        whole["diagnostics"] = {name: DIAGNOSTICS[name].settings for name in self.diagnostics}
        # A shard is a block of so many prompts: another number would cut other shards.
        whole["shard"] = self.shard
        del whole["own"], whole["methods"]
        if self.scoring == "ours":
            del whole["scoring"]
        if self.methods:
            # Not the label: other words for a method would make another study of it.
            whole["methods"] = describe_methods(self.methods, draws=True)
        if self.own:
            whole["own"] = {
                name: {"score": task.scorer.name, "horizon": task.max_new_tokens, "data": task.version}
                for name, task in self.own.items()
            }
        return whole

    @property
    def diagnosed_axes(self) -> tuple[str, ...]:
        """The axis of each diagnostic."""
        return tuple(DIAGNOSTICS[name].axis for name in self.diagnostics)

    @property
    def has_renamed_diagnostics(self) -> bool:
        """True if some diagnostic is not called as its axis, so that tables have to name it."""
        return self.diagnosed_axes != self.diagnostics

    def task(self, name: str) -> Task:
        """Return a task of the study by name, from the suite or from its own tasks."""
        return self.own[name] if name in self.own else find_task(name)

    def candidate_sets(self, reference: str) -> CandidateSets:
        """Return the candidates of the study's axes around a reference."""
        default = candidates(reference)
        chosen: dict[str, dict[str, Policy]] = {}
        for axis in self.axes:
            if axis == POLICY:
                chosen[axis] = policy_axis_candidates(self.candidates[axis], self.methods, reference)
                continue
            names = self.candidates.get(axis, tuple(default[axis]))
            if self.below_k_min and axis == CARDINALITY.name:
                names = tuple(dict.fromkeys(allow_below_k_min(name) for name in names))
            if self.region_holds == "share" and axis == REGION.name:
                names = tuple(dict.fromkeys([*names[:1], *map(name_with_share, names[1:])]))
            chosen[axis] = {name: candidate(reference, axis, name, self.revision) for name in names}
            first, wanted = next(iter(chosen[axis])), next(iter(default[axis]))
            allowed = f"{wanted!r}, the reference"
            require(first == wanted, f"the first candidate of {axis}", first, allowed, "put it first")
        return chosen

    def branch_plan(self, reference: str) -> BranchPlan:
        """Return the branch plan for a model with this reference."""
        return BranchPlan(
            reference=reference_of(candidates(reference)),
            candidates=self.candidate_sets(reference),
            # Without an axis that revises the operator is never used.
            operator=self.revision or ReMDM(),
            rollouts=self.rollouts,
            states=self.states,
            seed=self.seed,
            temperature=self.temperature,
            diagnostics={name: DIAGNOSTICS[name] for name in self.diagnostics},
            summaries=self.learned,
        )


def _unpickle_study(values: dict[str, Any], references: Sequence[Policy], expected: str) -> StudyConfig:
    """Restore a pickled study in a worker; refuse it if its configuration hashes otherwise there."""
    for policy in references:
        # The process that read the file has checked whether a whole method may be the reference.
        register_reference(policy, whole=True)
    study = StudyConfig(**values)
    found = fingerprint(study.config)
    if found != expected:
        raise ConfigError(
            f"the study is {found} on a worker and {expected} in the driver: its own code or data is not the same "
            "there; allowed: equal files; put what the code reads beside it on every node, or into the code"
        )
    return study


# From names to tasks, models, methods and searches


def check_text(what: str, name: str) -> str:
    """Refuse a name that files, tables or screens cannot hold; return it otherwise."""
    shown = name if len(name) <= LONGEST_NAME else f"{name[:40]}... ({len(name):,} characters)"
    allowed = f"a text of at most {LONGEST_NAME} characters, without control characters and halves of characters"
    fits = 0 < len(name) <= LONGEST_NAME and not any(unicodedata.category(c) in ("Cc", "Cs") for c in name)
    require(fits, what, shown, allowed, "give it another name")
    return name


def _load_models(given: StudyFile, folder: Path) -> tuple[ModelSpec, ...]:
    specs = []
    for at, table in enumerate(given.models):
        reference, policy = _load_reference(table, f"models[{at}]", folder, whole=given.axes == (POLICY,))
        name = check_text(f"name of models[{at}]", table.model if table.name is None else table.name)
        specs.append(ModelSpec(name, table.model, reference, dict(table.options), policy))
    names = [spec.name for spec in specs]
    require(len(set(names)) == len(names), "names of models", names, "no name twice", "tables go by these names")
    return tuple(specs)


def _load_reference(table: ModelTable, where: str, folder: Path, *, whole: bool) -> tuple[str, Mapping[str, Any]]:
    """Return the name of a model's reference; and its settings, unless it is llada or dream by default."""
    given, settings = table.reference, dict(table.settings)
    if given in REFERENCES and not (settings and given == "llada"):
        require(not settings, f"settings of {where}", settings, f"none with {given}", "its candidates are fixed")
        return given, {}
    if is_code_name(given):
        policy = make_own_policy(given, settings, folder)
    else:
        check_known_name("reference", given, [*REFERENCES, *METHODS, "path.py:Class"])
        policy = make_policy(given, **settings)
    return register_reference(policy, whole=whole), to_plain(describe_policy(policy))


def _load_own_tasks(given: StudyFile, folder: Path) -> Mapping[str, Task]:
    own = {}
    for name, table in given.own.items():
        where = f"own.{check_text('name of an own task', name)}"
        if name not in given.tasks:
            raise ConfigError(
                f"{where} is not among the tasks of the study; allowed: {', '.join(given.tasks)}; add or drop it"
            )
        own[name] = own_task(name, table.prompts, scorer=table.score, max_new_tokens=table.horizon, folder=folder)
    return own


def _resolve_prompt_ranges(splits: SplitsTable) -> Mapping[str, PromptRange]:
    parts = {}
    for role in ROLES:
        table: RangeTable = getattr(splits, role)
        check_known_name("split", table.split or role, (*SPLITS, FRESH))
        parts[role] = PromptRange(table.split or role, table.start, table.prompts)
    require(
        not parts["validation"].overlaps(parts["evaluation"]),
        "splits",
        {role: asdict(part) for role, part in parts.items()},
        "prompts that are in one of them only",
        "what is chosen on a prompt must not be shown on it",
    )
    least = parts["validation"].prompts
    require(least >= 2, "prompts of validation", least, "2 or more", "a fixed action cannot be chosen on fewer")
    return parts


def _resolve_steps(table: StepsTable, tasks: Mapping[str, Task]) -> Mapping[str, int]:
    """Return T of each task: a share of its tokens, rounded up, or a number of its own."""
    for name in table.tasks:
        check_known_name("task of steps.tasks", name, tasks)
    steps_by_task = {}
    for name, task in tasks.items():
        horizon = task.max_new_tokens
        steps = table.tasks.get(name, count_steps(table.share, horizon))
        whole = isinstance(steps, int) and not isinstance(steps, bool)
        hint = "lower it" if whole and steps > horizon else "give 1 or more"
        allowed = f"a whole number, 1 to {horizon}, its horizon"
        require(whole and 1 <= steps <= horizon, f"steps of {name}", steps, allowed, hint)
        steps_by_task[name] = steps
    return steps_by_task


def _check_diagnostics(given: StudyFile) -> tuple[str, ...]:
    names = given.diagnostics
    for name in names:
        if name == POLICY:
            raise ConfigError(
                f"diagnostics has {name!r}, but no diagnostic exists for the policy axis; allowed: "
                f"{', '.join(DIAGNOSTICS)}; drop it: the axis has opportunity, fixed and stage arms without one"
            )
        check_known_name("name in diagnostics", name, DIAGNOSTICS)
        axis, known = DIAGNOSTICS[name].axis, ", ".join(given.axes)
        hint = f"add {axis!r} to axes, or drop the diagnostic"
        allowed = f"one of the study's axes: {known}"
        require(axis in given.axes, f"the axis of {name!r} in diagnostics", axis, allowed, hint)
    if given.region_holds == "share":
        names = tuple(name_with_share(name) if DIAGNOSTICS[name].axis == REGION.name else name for name in names)
    return tuple(dict.fromkeys(names))


def load_methods(names: Sequence[str], folder: Path) -> dict[str, Policy]:
    """Load the candidates of the policy axis after the reference, as `--policy` reads them."""
    where = f"candidates.{POLICY}"
    hint = "name what is to be tried beside it"
    require(len(names) >= 2, where, list(names), "the reference, then one method or more", hint)
    methods = {}
    for name in names[1:]:
        if name == REFERENCE:
            raise ConfigError(f"{where} has {name!r} in a later place; allowed: the first one; put it first")
        method = parse_policy(name, option=where, folder=folder)
        if not isinstance(method, Policy):
            raise ConfigError(
                f"{where}: {name!r} is a search, which owns its loop and takes no single transition; allowed: methods "
                "that decide step by step; compare it end to end with `unmask compare`"
            )
        if method.needs.planner:
            raise ConfigError(
                f"{where}: {name!r} asks a planner network, and a study has none; allowed: methods that need no second "
                "network; leave planner out"
            )
        methods[name] = method
    return methods


def policy_axis_candidates(names: Sequence[str], methods: Mapping[str, Policy], reference: str) -> dict[str, Policy]:
    """Return the candidates of the policy axis, whose first name must be that of the model's reference."""
    policy = reference_of(candidates(reference))
    own = reference if reference in REFERENCES else policy.name
    allowed = f"{REFERENCE!r}, or {own!r}, the reference of the model"
    require(names[0] in (REFERENCE, own), f"the first candidate of {POLICY}", names[0], allowed, "put it first")
    return {names[0]: policy, **{name: methods[name] for name in names[1:]}}


def load_search(name: str, folder: Path) -> Search:
    """Load a method that owns its loop, as `--policy` reads it."""
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
    return method


def describe_methods(methods: Mapping[str, Policy | Search], *, draws: bool = False) -> dict[str, Any]:
    """Describe what results of methods depend on: settings, versions and code; and whether policies draw."""
    about: dict[str, dict[str, Any]] = {}
    for name, method in methods.items():
        about[name] = {"settings": describe_policy(method), "version": method_status(method).get("version")}
        if draws and isinstance(method, Policy):
            about[name]["draws"] = method.random
    plain: dict[str, Any] = to_plain(about)
    return plain


def _check_lengths(study: StudyConfig, horizons: Mapping[str, int]) -> None:
    """Refuse blocks and budgets that do not fit some task's answer, before anything runs."""
    for spec in study.models:
        block = spec.policy.get("block_length")
        if spec.policy.get("name") != "llada" or block is None:
            continue
        for task, horizon in horizons.items():
            fits = horizon % block == 0 and study.steps[task] % (horizon // block) == 0
            allowed = f"a divisor of the {horizon} tokens of {task} whose blocks divide its {study.steps[task]} steps"
            require(fits, f"block_length of {spec.name}", block, allowed, "take another, or other steps for the task")
    for name, search in study.searches.items():
        for task, horizon in horizons.items():
            blank = State.from_canvases([[0] * horizon], steps=study.steps[task], mask_id=0)
            try:
                search.check(blank)
            except ConfigError as error:
                raise ConfigError(
                    f"searches: {name!r} on {task} ({horizon} tokens, {study.steps[task]} steps): {error}"
                ) from error
