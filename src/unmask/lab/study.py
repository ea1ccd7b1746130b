"""Study files: what is measured, on what, and how. TOML, strict: every key is known and every value possible.

Choices that alter a conclusion have no default: models and their reference, tasks, axes, steps, splits, states,
rollouts, temperature, the revision operator, the seed. Candidate sets are those of `policies/candidates` unless named.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from unmask.axes import AXES, ReMDM
from unmask.core import Policy
from unmask.diagnostics import DIAGNOSTICS
from unmask.errors import ConfigError, UnknownName, require
from unmask.lab.branch.engine import Engine, Plan
from unmask.lab.prompts import FRESH
from unmask.lab.store.schemas import by_axis
from unmask.options import check_types
from unmask.policies.candidates import Sets, candidate, candidates, reference_of
from unmask.tasks import CONTROLS, SPLITS, TASKS, Task
from unmask.tasks.own import own as own_task
from unmask.tasks.table import find

ROLES = ("validation", "evaluation")
"""Fixed actions, schedules and detectors are chosen on the first; the second is shown once."""
REFERENCES = ("llada", "dream")


@dataclass(frozen=True)
class ModelSpec:
    """A model of the study."""

    name: str
    """What tables call it."""
    model: str
    """A name of `unmask models`, a hub id or a folder."""
    reference: str
    """Whose update continues every branch: llada or dream."""
    options: Mapping[str, Any] = field(default_factory=dict)


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
    revision: ReMDM
    engine: Engine
    shard: int
    """Prompts per shard: what a killed process loses, and what bounds memory."""
    candidates: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names by axis, where they are not the default ones."""
    diagnostics: tuple[str, ...] = ()
    """Axes whose diagnostic is read at every state, and its proposal branched."""
    end_to_end: bool = False
    """Decode the arms of the diagnosed axes from beginning to end, once all branches are there."""
    budget: Budget = Budget()
    own: Mapping[str, Task] = field(default_factory=dict)
    """Tasks outside the suite, by name."""

    @classmethod
    def read(cls, path: str | Path) -> "Study":
        """A study file."""
        try:
            raw = Path(path).read_bytes()
        except OSError as error:
            raise ConfigError(f"study file {str(path)!r} cannot be read ({error.strerror}); check the path") from error
        try:
            return cls.parse(tomllib.loads(raw.decode("utf-8")), Path(path).parent)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"study file {str(path)!r} is not TOML ({error}); correct that line") from error

    @classmethod
    def parse(cls, raw: Mapping[str, Any], folder: Path = Path()) -> "Study":
        """A study from a file's content; `folder` is where its files are looked for."""
        _keys("the study", raw, _REQUIRED, _OPTIONAL)
        names = _names("tasks", raw["tasks"])
        own = _own(raw.get("own", {}), names, folder)
        tasks = {name: own[name] if name in own else _suite_task(name, own) for name in names}
        axes = _names("axes", raw["axes"])
        for axis in axes:
            if axis not in AXES:
                raise UnknownName("axis", axis, AXES)
        study = cls(
            name=_text("name", raw["name"]),
            seed=_whole("seed", raw["seed"], 0),
            models=_models(raw["models"]),
            tasks=names,
            axes=axes,
            splits=_splits(raw["splits"]),
            steps=_steps(raw["steps"], tasks),
            states=_whole("states", raw["states"], 1),
            rollouts=_whole("rollouts", raw["rollouts"], 1),
            temperature=_number("temperature", raw["temperature"], 0.0),
            revision=_part("revision", raw["revision"], ReMDM, required=("variant",)),
            engine=_engine(raw["engine"]),
            shard=_whole("engine.prompts", raw["engine"].get("prompts", 8), 1),
            candidates=_candidate_names(raw.get("candidates", {}), axes),
            diagnostics=_diagnosed(raw.get("diagnostics", []), axes),
            end_to_end=_end_to_end(raw.get("end_to_end", False), raw.get("diagnostics", [])),
            budget=_part("budget", raw.get("budget", {}), Budget),
            own=own,
        )
        # Refused where two are of one axis.
        by_axis({name: DIAGNOSTICS[name].axis for name in study.diagnostics})
        for spec in study.models:
            study.sets(spec.reference)
        return study

    @property
    def config(self) -> dict[str, Any]:
        """Everything that branches depend on, as plain values; not how the work is cut, nor the budget.

        `end_to_end` is not among them: it adds tables and changes none, so it may be switched on later.
        """
        whole = asdict(replace(self, splits={}, steps={}, candidates={}, own={}))
        for key in ("budget", "shard", "end_to_end"):
            del whole[key]
        whole["engine"] = {"rows": self.engine.rows, "bucket": self.engine.bucket}
        whole["splits"] = {role: asdict(part) for role, part in self.splits.items()}
        whole["steps"] = dict(self.steps)
        whole["candidates"] = {
            spec.reference: {axis: list(named) for axis, named in self.sets(spec.reference).items()}
            for spec in self.models
        }
        whole["diagnostics"] = {axis: vars(DIAGNOSTICS[axis]()) for axis in self.diagnostics}
        # A shard is a block of so many prompts: another number would cut other shards.
        whole["shard"] = self.shard
        del whole["own"]
        if self.own:
            whole["own"] = {
                name: {"score": task.utility, "horizon": task.horizon, "data": task.version}
                for name, task in self.own.items()
            }
        return whole

    def task(self, name: str) -> Task:
        """One of its tasks: of the suite, or its own."""
        return self.own[name] if name in self.own else find(name)

    def sets(self, reference: str) -> Sets:
        """The candidates of the study's axes around a reference."""
        default = candidates(reference)
        found: dict[str, dict[str, Policy]] = {}
        for axis in self.axes:
            names = self.candidates.get(axis)
            found[axis] = {
                name: candidate(reference, axis, name, self.revision)
                for name in (default[axis] if names is None else names)
            }
            first, own = next(iter(found[axis])), next(iter(default[axis]))
            require(first == own, f"the first candidate of {axis}", first, f"{own!r}, the reference", "put it first")
        return found

    def plan(self, reference: str) -> Plan:
        """What the engine is to do for a model with this reference."""
        return Plan(
            reference=reference_of(candidates(reference)),
            candidates=self.sets(reference),
            operator=self.revision,
            rollouts=self.rollouts,
            states=self.states,
            seed=self.seed,
            temperature=self.temperature,
            diagnostics={axis: DIAGNOSTICS[axis]() for axis in self.diagnostics},
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
    "revision",
    "engine",
)
_OPTIONAL = ("candidates", "diagnostics", "end_to_end", "budget", "own")


def _keys(where: str, table: Any, required: Sequence[str], optional: Sequence[str] = ()) -> None:
    require(isinstance(table, Mapping), where, table, f"a table of {', '.join((*required, *optional))}", "write it so")
    for key in table:
        if key not in (*required, *optional):
            raise UnknownName(f"key of {where}", key, (*required, *optional))
    for key in required:
        if key not in table:
            raise ConfigError(
                f"{where} has no {key!r}; allowed: every one of {', '.join(required)}, for none has a default; add it"
            )


def _text(name: str, value: Any) -> str:
    require(isinstance(value, str) and bool(value), name, value, "a text", "write it in quotes")
    return str(value)


def _whole(name: str, value: Any, least: int) -> int:
    ok = isinstance(value, int) and not isinstance(value, bool) and value >= least
    require(ok, name, value, f"a whole number, {least} or more", "change it")
    return int(value)


def _number(name: str, value: Any, least: float) -> float:
    ok = isinstance(value, int | float) and not isinstance(value, bool) and least <= value < float("inf")
    require(ok, name, value, f"a number, {least:g} or more", "change it")
    return float(value)


def _names(name: str, value: Any) -> tuple[str, ...]:
    ok = isinstance(value, list) and bool(value) and all(isinstance(v, str) for v in value)
    require(ok and len(set(value)) == len(value), name, value, "a list of names, none twice", "change the list")
    return tuple(value)


def _models(value: Any) -> tuple[ModelSpec, ...]:
    require(isinstance(value, list) and bool(value), "models", value, "one [[models]] or more", "add one")
    found = []
    for at, table in enumerate(value):
        where = f"models[{at}]"
        _keys(where, table, ("model", "reference"), ("name", "options"))
        if table["reference"] not in REFERENCES:
            raise UnknownName("reference", str(table["reference"]), REFERENCES)
        options = table.get("options", {})
        require(
            isinstance(options, Mapping), f"options of {where}", options, "a table", "e.g. options = {dtype='bf16'}"
        )
        model = _text(f"model of {where}", table["model"])
        name = _text(f"name of {where}", table.get("name", model))
        found.append(ModelSpec(name, model, table["reference"], MappingProxyType(dict(options))))
    names = [spec.name for spec in found]
    require(len(set(names)) == len(names), "names of models", names, "no name twice", "tables go by these names")
    return tuple(replace(spec, options=dict(spec.options)) for spec in found)


def _own(value: Any, tasks: Sequence[str], folder: Path) -> Mapping[str, Task]:
    require(isinstance(value, Mapping), "own", value, "tables of own tasks", "e.g. [own.mine]")
    found = {}
    for name, given in value.items():
        where = f"own.{name}"
        _keys(where, given, ("prompts", "horizon"), ("score",))
        if name not in tasks:
            raise ConfigError(
                f"{where} is not among the tasks of the study; allowed: {', '.join(tasks)}; add or drop it"
            )
        score = given.get("score")
        found[name] = own_task(
            name,
            _text(f"prompts of {where}", given["prompts"]),
            score=None if score is None else _text(f"score of {where}", score),
            horizon=_whole(f"horizon of {where}", given["horizon"], 1),
            folder=folder,
        )
    return found


def _suite_task(name: str, own: Mapping[str, Task]) -> Task:
    if name not in (*TASKS, *CONTROLS):
        raise UnknownName("task", name, [*TASKS, *CONTROLS, *own])
    return find(name)


def _splits(value: Any) -> Mapping[str, PromptRange]:
    _keys("splits", value, ROLES)
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
    _keys(where, value, ("prompts",), ("from", "start"))
    split = value.get("from", role)
    if split not in (*SPLITS, FRESH):
        raise UnknownName("split", str(split), (*SPLITS, FRESH))
    start = _whole(f"start of {where}", value.get("start", 0), 0)
    return PromptRange(split, start, _whole(f"prompts of {where}", value["prompts"], 1))


def _steps(value: Any, tasks: Mapping[str, Task]) -> Mapping[str, int]:
    """T of each task: a share of its horizon, rounded up, or a number of its own."""
    _keys("steps", value, ("share",), ("tasks",))
    share = _number("steps.share", value["share"], 0.0)
    require(0 < share <= 1, "steps.share", share, "above 0, at most 1", "0.5 is two tokens per step")
    own = value.get("tasks", {})
    require(isinstance(own, Mapping), "steps.tasks", own, "a table of task = steps", "e.g. carry-rtl = 16")
    for task in own:
        if task not in tasks:
            raise UnknownName("task of steps.tasks", task, tasks)
    found = {}
    for task, known in tasks.items():
        horizon = known.horizon
        steps = _whole(f"steps of {task}", own.get(task, -int(-horizon * share // 1)), 1)
        require(steps <= horizon, f"steps of {task}", steps, f"1 to {horizon}, its horizon", "lower it")
        found[task] = steps
    return found


def _engine(value: Any) -> Engine:
    _keys("engine", value, ("rows",), ("live", "bucket", "waiting", "prompts"))
    given: dict[str, Any] = {key: _whole(f"engine.{key}", value[key], 1) for key in value if key != "prompts"}
    return Engine(**given)


def _candidate_names(value: Any, axes: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    require(isinstance(value, Mapping), "candidates", value, "a table of axis = [names]", "e.g. score = ['confidence']")
    for axis in value:
        if axis not in axes:
            raise UnknownName("axis of candidates", axis, axes)
    return {axis: _names(f"candidates.{axis}", names) for axis, names in value.items()}


def _diagnosed(value: Any, axes: Sequence[str]) -> tuple[str, ...]:
    if value == []:
        return ()
    found = _names("diagnostics", value)
    known = [name for axis in axes for name, kind in DIAGNOSTICS.items() if kind.axis == axis]
    for name in found:
        if name not in known:
            raise UnknownName("axis of diagnostics", name, known)
    return found


def _end_to_end(value: Any, diagnostics: Any) -> bool:
    require(isinstance(value, bool), "end_to_end", value, "true or false", "write it without quotes")
    ok = not value or bool(diagnostics)
    require(ok, "end_to_end", value, "true with diagnostics", "name diagnostics: the arms are made of their readings")
    return bool(value)


def _part(where: str, value: Any, owner: Any, required: Sequence[str] = ()) -> Any:
    known = tuple(f.name for f in fields(owner))
    _keys(where, value, required, tuple(name for name in known if name not in required))
    check_types(owner, value, where)
    return owner(**value)
