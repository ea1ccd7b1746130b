"""Study files: what is measured, on what, and how. TOML, strict: every key is known and every value possible.

Choices that alter a conclusion have no default: models and their reference, tasks, axes, steps, splits, states,
rollouts, temperature, the seed, and the revision operator where an axis revises. Candidate sets are those of
`policies/candidates` unless named; the policy axis has no default set.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from unmask.adapt import DIAGNOSTICS
from unmask.api import steps_of
from unmask.axes import AXES, CARDINALITY, POLICY, REGION, STUDY_AXES, ReMDM, without_floor
from unmask.base.errors import ConfigError, require
from unmask.base.options import (
    check_keys,
    check_name,
    parse_names,
    parse_number,
    parse_part,
    parse_text,
    parse_whole,
    read_toml,
)
from unmask.core import Policy, Search
from unmask.lab.branching import BatchSettings, BranchPlan
from unmask.lab.gates import AXIS_BY, parse_axis_by, parse_gates
from unmask.lab.methods import described, method_set, methods_of
from unmask.lab.searches import check_budgets, searches_of
from unmask.lab.store import fingerprint
from unmask.lab.study_models import REFERENCES, ModelSpec, check_blocks, parse_models, parse_name
from unmask.methods import (
    HOLDS,
    CandidateSets,
    candidate,
    candidates,
    holding_share,
    reference_of,
    register_reference,
)
from unmask.tasks import CONTROLS, SCORINGS, SPLITS, TASKS, Task, find_task, own_task

FRESH = "fresh"
"""A split without end: prompts of a constructed task that are in no split and that no training run draws."""
ROLES = ("validation", "evaluation")
"""Fixed actions, schedules and detectors are chosen on the first; the second is shown once."""


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
    """Other readings of the gate that are decoded beside it: names of `lab.gates.GATES`."""
    axis_by: str = AXIS_BY[0]
    """What the axis of E4's headline is chosen by."""
    learned: bool = False
    """Keep what a learned detector reads beside the diagnostics, and report it as a rival of the bins."""
    budget: Budget = Budget()
    own: Mapping[str, Task] = field(default_factory=dict)
    """Tasks outside the suite, by name."""
    methods: Mapping[str, Policy] = field(default_factory=dict)
    """Candidates of the policy axis after the reference, by name."""
    scoring: str = "ours"
    """One of `tasks.SCORINGS`: what is enlarged by parts that nobody asked for, or the paper's equation."""
    below_k_min: bool = False
    """Let candidates of cardinality reveal fewer than k_min: each stands under its name with ":below"."""
    region_holds: str = "count"
    """What candidates and proposals of the region axis keep of the reference: its count, or its share (kappa), so that
    a smaller region reveals fewer. Their names say so."""
    searches: Mapping[str, Search] = field(default_factory=dict)
    """Methods that own their loop, decoded end to end beside the arms, by name."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the study with references that only the process which read its file knows by name."""
        own = sorted({spec.reference for spec in self.models} - set(REFERENCES))
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return _unpickle_study, (values, [reference_of(candidates(name)) for name in own], fingerprint(self.config))

    @classmethod
    def read(cls, path: str | Path) -> "Study":
        """A study file."""
        return cls.parse(read_toml(path, "study file"), Path(path).parent)

    @classmethod
    def parse(cls, raw: Mapping[str, Any], folder: Path = Path()) -> "Study":
        """A study from a file's content; `folder` is where its files are looked for."""
        check_keys("the study", raw, _required_keys(raw), _OPTIONAL)
        names = parse_names("tasks", raw["tasks"])
        own = _own(raw.get("own", {}), names, folder)
        tasks = {name: own[name] if name in own else _suite_task(name, own) for name in names}
        axes = parse_names("axes", raw["axes"])
        for axis in axes:
            check_name("axis", axis, STUDY_AXES)
        named = _candidate_names(raw.get("candidates", {}), axes)
        holds = _region_holds(raw.get("region_holds", "count"), axes)
        study = cls(
            name=parse_name("name", raw["name"]),
            seed=parse_whole("seed", raw["seed"], 0),
            models=parse_models(raw["models"], folder, whole=axes == (POLICY,)),
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
            diagnostics=_parse_diagnostics(raw.get("diagnostics", []), axes, holds),
            end_to_end=_with_diagnostics("end_to_end", raw, _NAME_THEM),
            gates=parse_gates(raw.get("gates", []), bool(raw.get("end_to_end", False))),
            axis_by=parse_axis_by(raw.get("axis_by", AXIS_BY[0])),
            learned=_with_diagnostics("learned", raw, _READ_BY_LEARNED),
            budget=parse_part(Budget, raw.get("budget", {}), "budget", required=()),
            own=own,
            methods=methods_of(named[POLICY], folder) if POLICY in axes else {},
            scoring=_scoring(raw.get("scoring", "ours")),
            below_k_min=_flag("below_k_min", raw.get("below_k_min", False)),
            region_holds=holds,
            searches=_searches(raw, folder),
        )
        horizons = {name: task.max_new_tokens for name, task in tasks.items()}
        check_blocks(study.models, horizons, study.steps)
        check_budgets(study.searches, horizons, study.steps)
        for spec in study.models:
            draws = reference_of(study.sets(spec.reference)).random and POLICY in axes
            ok, allowed = study.rollouts > 1 or not draws, f"2 or more where the reference of {spec.name!r} draws"
            require(ok, "rollouts", study.rollouts, allowed, "one says little of what is drawn: raise it")
        return study

    @property
    def config(self) -> dict[str, Any]:
        """Everything that branches depend on, as plain values; not how the work is cut, nor the budget.

        `end_to_end`, `gates` and `searches` are not among them: they add tables and change none: they may come later.
        """
        whole = asdict(replace(self, splits={}, steps={}, candidates={}, own={}, methods={}, searches={}))
        # Studies that were made before there was a choice stay the same.
        usual = ["axis_by"] * (self.axis_by == AXIS_BY[0]) + ["learned"] * (not self.learned)
        # The names of candidates say whether they may fall below k_min, and what the region axis holds.
        for key in ("budget", "shard", "end_to_end", "gates", "searches", "below_k_min", "region_holds", *usual):
            del whole[key]
        whole["engine"] = {"rows": self.engine.rows, "bucket": self.engine.bucket}
        whole["splits"] = {role: asdict(part) for role, part in self.splits.items()}
        whole["steps"] = dict(self.steps)
        whole["candidates"] = {
            spec.reference: {axis: list(named) for axis, named in self.sets(spec.reference).items()}
            for spec in self.models
        }
        whole["diagnostics"] = {name: DIAGNOSTICS[name].settings for name in self.diagnostics}
        # A shard is a block of so many prompts: another number would cut other shards.
        whole["shard"] = self.shard
        del whole["own"], whole["methods"]
        if self.scoring == "ours":
            del whole["scoring"]
        if self.methods:
            whole["methods"] = described(self.methods)
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
        """Whether some diagnostic is not called as its axis, so that tables have to name it."""
        return self.diagnosed_axes != self.diagnostics

    def task(self, name: str) -> Task:
        """One of its tasks: of the suite, or its own."""
        return self.own[name] if name in self.own else find_task(name)

    def sets(self, reference: str) -> CandidateSets:
        """The candidates of the study's axes around a reference."""
        default = candidates(reference)
        chosen: dict[str, dict[str, Policy]] = {}
        for axis in self.axes:
            names = self.candidates.get(axis)
            if axis == POLICY:
                chosen[axis] = method_set(self.candidates[axis], self.methods, reference)
                continue
            names = tuple(default[axis]) if names is None else names
            if self.below_k_min and axis == CARDINALITY.name:
                names = tuple(dict.fromkeys(without_floor(name) for name in names))
            if self.region_holds == "share" and axis == REGION.name:
                names = tuple(dict.fromkeys([*names[:1], *map(holding_share, names[1:])]))
            chosen[axis] = {name: candidate(reference, axis, name, self.revision) for name in names}
            first, wanted = next(iter(chosen[axis])), next(iter(default[axis]))
            allowed = f"{wanted!r}, the reference"
            require(first == wanted, f"the first candidate of {axis}", first, allowed, "put it first")
        return chosen

    def plan(self, reference: str) -> BranchPlan:
        """The branch plan for a model with this reference."""
        return BranchPlan(
            reference=reference_of(candidates(reference)),
            candidates=self.sets(reference),
            # Where no axis revises, nobody asks for it.
            operator=self.revision or ReMDM(),
            rollouts=self.rollouts,
            states=self.states,
            seed=self.seed,
            temperature=self.temperature,
            diagnostics={name: DIAGNOSTICS[name] for name in self.diagnostics},
            summaries=self.learned,
        )


def _unpickle_study(values: dict[str, Any], references: Sequence[Policy], expected: str) -> Study:
    """Make a study anew in a worker; refuse one that is another study there."""
    for policy in references:
        # The process that read the file has checked whether a whole method may be the reference.
        register_reference(policy, whole=True)
    study = Study(**values)
    found = fingerprint(study.config)
    if found != expected:
        raise ConfigError(
            f"the study is {found} on a worker and {expected} in the driver: its own code or data is not the same "
            "there; allowed: equal files; put what the code reads beside it on every node, or into the code"
        )
    return study


_CHOICES = ("splits", "steps", "states", "rollouts", "temperature")
_REQUIRED = ("name", "seed", "models", "tasks", "axes", *_CHOICES, "engine")
_READINGS = ("scoring", "below_k_min", "region_holds", "gates", "axis_by", "learned")
_OPTIONAL = ("revision", "candidates", "diagnostics", "end_to_end", "searches", "budget", "own", *_READINGS)


def _required_keys(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """The revision operator has no default where an axis revises, and no meaning elsewhere."""
    axes = raw.get("axes", []) if isinstance(raw, Mapping) else []
    revises = isinstance(axes, list) and any(axis.name in axes and axis.revises for axis in AXES.values())
    return (*_REQUIRED, "revision") if revises else _REQUIRED


def _revision(raw: Mapping[str, Any]) -> ReMDM | None:
    return parse_part(ReMDM, raw["revision"], "revision", required=("variant",)) if "revision" in raw else None


def _own(value: Any, tasks: Sequence[str], folder: Path) -> Mapping[str, Task]:
    require(isinstance(value, Mapping), "own", value, "tables of own tasks", "e.g. [own.mine]")
    own = {}
    for name, given in value.items():
        where = f"own.{parse_name('name of an own task', name)}"
        check_keys(where, given, ("prompts",), ("score", "horizon"))
        if name not in tasks:
            raise ConfigError(
                f"{where} is not among the tasks of the study; allowed: {', '.join(tasks)}; add or drop it"
            )
        score, horizon = given.get("score"), given.get("horizon")
        own[name] = own_task(
            name,
            parse_text(f"prompts of {where}", given["prompts"]),
            scorer=None if score is None else parse_text(f"score of {where}", score),
            max_new_tokens=parse_whole(f"horizon of {where}", horizon, 1) if horizon is not None else None,
            folder=folder,
        )
    return own


def _suite_task(name: str, own: Mapping[str, Task]) -> Task:
    check_name("task", name, [*TASKS, *CONTROLS, *own])
    return find_task(name)


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
        horizon = task.max_new_tokens
        steps = own.get(name, steps_of(share, horizon))
        whole = isinstance(steps, int) and not isinstance(steps, bool)
        todo = "lower it" if whole and steps > horizon else "give 1 or more"
        ok = whole and 1 <= steps <= horizon
        require(ok, f"steps of {name}", steps, f"a whole number, 1 to {horizon}, its horizon", todo)
        steps_by_task[name] = steps
    return steps_by_task


def _engine(value: Any) -> BatchSettings:
    check_keys("engine", value, ("rows",), ("live", "bucket", "waiting", "prompts"))
    given: dict[str, Any] = {key: parse_whole(f"engine.{key}", value[key], 1) for key in value if key != "prompts"}
    return BatchSettings(**given)


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
        axis: tuple(parse_name(f"candidates.{axis}", name) for name in parse_names(f"candidates.{axis}", names))
        for axis, names in value.items()
    }


def _region_holds(value: Any, axes: Sequence[str]) -> str:
    known = isinstance(value, str) and value in HOLDS
    require(known, "region_holds", value, " or ".join(HOLDS), "count: where changes, and how many does not")
    ok = value == "count" or REGION.name in axes
    require(ok, "region_holds", value, "share with the region axis", "add 'region' to axes, or drop it")
    return str(value)


def _parse_diagnostics(value: Any, axes: Sequence[str], holds: str) -> tuple[str, ...]:
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
    if holds == "share":
        names = tuple(holding_share(name) if DIAGNOSTICS[name].axis == REGION.name else name for name in names)
    return tuple(dict.fromkeys(names))


_NAME_THEM = (
    "name diagnostics: the arms are made of their readings; whole methods are decoded end to end by `unmask compare`"
)


_READ_BY_LEARNED = "name diagnostics: a learned detector reads what they read"


def _searches(raw: Mapping[str, Any], folder: Path) -> Mapping[str, Search]:
    names = parse_names("searches", raw["searches"]) if "searches" in raw else ()
    return searches_of([parse_name("searches", name) for name in names], folder, raw.get("end_to_end") is True)


def _with_diagnostics(name: str, raw: Mapping[str, Any], why: str) -> bool:
    """A switch that means something only where diagnostics are read."""
    value = _flag(name, raw.get(name, False))
    require(not value or bool(raw.get("diagnostics", [])), name, value, "true with diagnostics", why)
    return value


def _scoring(value: Any) -> str:
    require(
        value in SCORINGS, "scoring", value, " or ".join(SCORINGS), "paper divides by the parts that were asked for"
    )
    return str(value)


def _flag(name: str, value: Any) -> bool:
    require(isinstance(value, bool), name, value, "true or false", "write it without quotes")
    return bool(value)
