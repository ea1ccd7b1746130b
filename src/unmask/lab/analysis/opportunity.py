"""E1, from a study's tables: how much choosing by state could gain, where that lies, and how concentrated it is.

The best fixed action of a model, task and axis is chosen on validation prompts; everything else is measured on
evaluation prompts. What is not there yet, or could not be judged, is named with its reason and never counted as 0.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unmask.axes import AXES
from unmask.errors import SchemaError
from unmask.lab.branch import BranchCost
from unmask.lab.run.driver import totals
from unmask.lab.store.store import FORMAT, Store, Utilities, utilities_of
from unmask.lab.study import ROLES
from unmask.stats import Audit, FixedAction, Opportunity, OpportunitySummary, choose_fixed, stages, summary
from unmask.stats.bootstrap import RESAMPLES
from unmask.stats.crossfit import mean_of
from unmask.stats.errors import NotEnough


@dataclass(frozen=True)
class OpportunityCell:
    """One model, task and axis."""

    model: str
    task: str
    axis: str
    candidates: tuple[str, ...]
    """The reference first."""
    fixed: FixedAction
    """Chosen on validation prompts."""
    base: float
    """Mean utility of the fixed action on evaluation states: what the opportunity comes on top of."""
    found: OpportunitySummary
    """On evaluation prompts, with its stages."""
    partial: str
    """Which of its shards are not there yet; empty if all are."""

    @property
    def overall(self) -> Opportunity:
        return self.found.overall

    @property
    def fixed_name(self) -> str:
        return self.candidates[self.fixed.action]

    def names(self, pair: tuple[int, int] | None) -> tuple[str, str] | None:
        """Two actions by name."""
        return None if pair is None else (self.candidates[pair[0]], self.candidates[pair[1]])


@dataclass(frozen=True)
class OpportunityMean:
    """One model and axis over its tasks, each of which counts the same."""

    model: str
    axis: str
    candidates: tuple[str, ...]
    tasks: tuple[str, ...]
    found: OpportunitySummary

    @property
    def overall(self) -> Opportunity:
        return self.found.overall


@dataclass(frozen=True)
class Missing:
    """A model, task and axis of the study that has no numbers."""

    model: str
    task: str
    axis: str
    reason: str


@dataclass(frozen=True)
class Unjudged:
    """Branches without a utility."""

    model: str
    task: str
    split: str
    axis: str
    reason: str
    branches: int


@dataclass(frozen=True)
class Extent:
    """How much of one model, task and split is there."""

    model: str
    task: str
    split: str
    shards: int
    planned: int | None
    """None before the model was first loaded: only then is it known how prompts are cut."""
    prompts: int
    asked: int
    """By the study file; a task may have fewer, and a model no room for some."""
    states: int

    @property
    def complete(self) -> bool:
        return self.planned is not None and self.shards >= self.planned


@dataclass(frozen=True)
class Cost:
    """What one model took."""

    model: str
    forwards: BranchCost
    seconds: float


@dataclass(frozen=True)
class OpportunityFindings:
    """Everything the report says."""

    manifest: Mapping[str, Any]
    cells: tuple[OpportunityCell, ...]
    means: tuple[OpportunityMean, ...]
    missing: tuple[Missing, ...]
    unjudged: tuple[Unjudged, ...]
    extents: tuple[Extent, ...]
    costs: tuple[Cost, ...]
    branches: int
    hashes: Mapping[str, str] = field(default_factory=dict)
    resamples: int = RESAMPLES

    @property
    def name(self) -> str:
        return str(self.manifest["study"]["name"])

    @property
    def complete(self) -> bool:
        return all(extent.complete for extent in self.extents)

    @property
    def models(self) -> tuple[str, ...]:
        """Those with numbers, in the order of the study."""
        return tuple(dict.fromkeys(cell.model for cell in self.cells))

    @property
    def unavailable(self) -> dict[str, str]:
        """Tasks without data, and why."""
        known = self.manifest["tasks"].items()
        return {task: about["unavailable"] for task, about in known if about.get("unavailable")}

    @property
    def audit(self) -> Audit:
        """Over all cells: state-axis comparisons, and how many of them cross-fitting changed."""
        each = [cell.overall.audit for cell in self.cells]
        states = sum(a.states for a in each)
        return Audit(
            states,
            sum(a.same for a in each),
            sum(a.noisy for a in each),
            sum(a.naive * a.states for a in each) / states if states else float("nan"),
            sum(a.crossfitted * a.states for a in each) / states if states else float("nan"),
        )

    def of(self, model: str) -> tuple[OpportunityCell, ...]:
        return tuple(cell for cell in self.cells if cell.model == model)


def measure(store: Store, *, resamples: int = RESAMPLES) -> OpportunityFindings:
    """All that a study's finished shards say about opportunity; refused where they say nothing."""
    manifest, infos = _manifest(store), _infos(store)
    extents = tuple(_extents(manifest, infos))
    _check_extents(store, manifest, extents)
    table = store.table("branches", ("step", "masked", "is_reference", "utility", "reason"))
    by_key = dict(parts(table, ("model", "task", "axis", "split")))
    study = manifest["study"]
    found: list[OpportunityCell | OpportunityMean | Missing] = []
    for model in (spec["name"] for spec in study["models"]):
        for axis in study["axes"]:
            reasons = {task: _absent(manifest, extents, model, task, axis) for task in study["tasks"]}
            found += [Missing(model, task, axis, reason) for task, reason in reasons.items() if reason]
            tables = {
                task: tuple(utilities_of(by_key[model, task, axis, role]) for role in ROLES)
                for task, reason in reasons.items()
                if not reason
            }
            found += _axis(model, axis, tables, study["seed"], resamples, extents)
    order = [(spec["name"], task) for spec in study["models"] for task in study["tasks"]]
    return OpportunityFindings(
        manifest=manifest,
        cells=tuple(
            sorted((f for f in found if isinstance(f, OpportunityCell)), key=lambda c: order.index((c.model, c.task)))
        ),
        means=tuple(f for f in found if isinstance(f, OpportunityMean)),
        missing=tuple(f for f in found if isinstance(f, Missing)),
        unjudged=tuple(_unjudged(table)),
        extents=extents,
        costs=tuple(_costs(infos)),
        branches=len(table),
        hashes=store.content_hash(),
        resamples=resamples,
    )


def _axis(
    model: str,
    axis: str,
    tables: Mapping[str, tuple[Utilities, ...]],
    seed: int,
    resamples: int,
    extents: Sequence[Extent],
) -> Iterator[OpportunityCell | OpportunityMean | Missing]:
    """One model and axis: its tasks, each with a validation and an evaluation table, and their mean."""
    fixed: dict[str, FixedAction] = {}
    for task, (validation, _) in tables.items():
        try:
            fixed[task] = choose_fixed(validation.utility_SAR, reference=0)
        except NotEnough:
            why = "no validation state has a judged answer of every candidate, so no fixed action can be chosen"
            yield Missing(model, task, axis, why)
    if not fixed:
        return
    shown = {task: tables[task][1] for task in fixed}
    found = summary(
        np.concatenate([u.utility_SAR for u in shown.values()]),
        np.concatenate([u.prompt_S for u in shown.values()]),
        fixed=fixed,
        seed=seed,
        task_S=np.concatenate([np.full(len(u.prompt_S), task) for task, u in shown.items()]),
        stage_S=np.concatenate([stages(masked_share(u)) for u in shown.values()]),
        reference=0,
        # One rollout is all there can be: `_absent` has left out what draws.
        deterministic=all(u.utility_SAR.shape[2] == 1 for u in shown.values()),
        resamples=resamples,
    )
    judged = [task for task in shown if found.tasks[task].overall.states]
    for task, held_out in shown.items():
        if task not in judged:
            yield Missing(model, task, axis, "no evaluation state has a judged answer of the fixed action")
            continue
        yield OpportunityCell(
            model=model,
            task=task,
            axis=axis,
            candidates=held_out.candidates,
            fixed=fixed[task],
            base=float(np.nanmean(mean_of(held_out.utility_SAR)[:, fixed[task].action])),
            found=found.tasks[task],
            partial=_partial(extents, model, task),
        )
    if judged:
        # A task without a usable state weighs nothing in the mean.
        yield OpportunityMean(model, axis, shown[judged[0]].candidates, tuple(judged), found)


def masked_share(utilities: Utilities) -> np.ndarray:
    """m_t by the length of the answer: state 0 of every prompt is taken before the first step."""
    _, prompt_S = np.unique(np.array(utilities.prompt_S), return_inverse=True)
    most_P = np.zeros(prompt_S.max() + 1)
    np.maximum.at(most_P, prompt_S, utilities.masked_S)
    return np.asarray(utilities.masked_S / np.maximum(most_P[prompt_S], 1))


# What is there


_WANTED = ("fingerprint", "study", "models", "tasks", "versions")
_OF_STUDY = (
    "name",
    "seed",
    "models",
    "tasks",
    "axes",
    "candidates",
    "splits",
    "states",
    "steps",
    "rollouts",
    "temperature",
)


def _manifest(store: Store) -> dict[str, Any]:
    manifest = store.manifest
    lost = [key for key in _WANTED if key not in manifest]
    lost += [f"study.{key}" for key in _OF_STUDY if key not in manifest.get("study", {})]
    if lost:
        raise SchemaError(
            f"the manifest of {str(store.folder)!r} has no {', '.join(lost)}; allowed: one of format {FORMAT!r}; "
            "restore it, or run the study again elsewhere"
        )
    return manifest


def _infos(store: Store) -> list[dict[str, Any]]:
    try:
        infos = store.infos()
    except (OSError, ValueError) as error:
        raise SchemaError(
            f"a shard.json of {str(store.folder)!r} cannot be read ({error}); remove that shard and run the study"
        ) from error
    for name, info in zip(store.names(), infos, strict=True):
        if info.get("format") != FORMAT:
            raise SchemaError(
                f"format of shard {name!r} is {info.get('format')!r}; allowed: {FORMAT!r}; read it with the version "
                "that wrote it, or remove the shard and run the study"
            )
    return infos


def _extents(manifest: Mapping[str, Any], infos: Sequence[Mapping[str, Any]]) -> Iterator[Extent]:
    study = manifest["study"]
    for model in (spec["name"] for spec in study["models"]):
        known = manifest["models"].get(model)
        planned = None if known is None else Counter(tuple(name.rsplit(".", 4)[1:3]) for name in known["shards"])
        for task in study["tasks"]:
            if manifest["tasks"].get(task, {}).get("unavailable"):
                continue
            for role in ROLES:
                mine = [i for i in infos if _key(i) == (model, task, role)]
                yield Extent(
                    model=model,
                    task=task,
                    split=role,
                    shards=len(mine),
                    planned=None if planned is None else planned[task, role],
                    prompts=sum(len(info["prompts"]) for info in mine),
                    asked=study["splits"][role]["prompts"],
                    states=sum(info["states"] for info in mine),
                )


def _key(info: Mapping[str, Any]) -> tuple[str, str, str]:
    shard = info["shard"]
    return shard["model"], shard["task"], shard["split"]


def _check_extents(store: Store, manifest: Mapping[str, Any], extents: Sequence[Extent]) -> None:
    where = f"study {manifest['study']['name']!r} in {str(store.folder)!r}"
    todo = "carry it on with `unmask study run` and the same --out"
    if not any(extent.shards for extent in extents):
        raise SchemaError(f"{where} has 0 finished shards; allowed: some of validation and of evaluation; {todo}")
    for role in ROLES:
        if not any(extent.prompts for extent in extents if extent.split == role):
            raise SchemaError(
                f"{where} has finished 0 {role} prompts; allowed: 1 or more, because fixed actions are chosen on "
                f"validation and shown on evaluation; {todo}"
            )


def _absent(manifest: Mapping[str, Any], extents: Sequence[Extent], model: str, task: str, axis: str) -> str:
    """Why there can be no numbers; empty if there can."""
    unavailable = manifest["tasks"].get(task, {}).get("unavailable")
    if unavailable:
        return str(unavailable)
    study = manifest["study"]
    for extent in extents:
        if (extent.model, extent.task) != (model, task) or extent.prompts:
            continue
        if extent.planned == 0:
            return f"no {extent.split} prompt fits into the model"
        return f"no {extent.split} prompt is finished yet"
    return one_draw(study, axis)


def one_draw(study: Mapping[str, Any], axis: str) -> str:
    """Why nothing can be cross-fitted on an axis; empty if it can."""
    # The revision operator draws, on the commitment axis, whatever the temperature.
    if study["rollouts"] == 1 and (study["temperature"] > 0 or AXES[axis].revises):
        return "1 rollout of something that draws cannot be cross-fitted; 2 or more are needed"
    return ""


def _partial(extents: Sequence[Extent], model: str, task: str) -> str:
    mine = [e for e in extents if (e.model, e.task) == (model, task) and not e.complete]
    return ", ".join(f"{e.shards} of {e.planned} {e.split} shards" for e in mine)


def parts(table: pa.Table, columns: Sequence[str]) -> Iterator[tuple[tuple[str, ...], pa.Table]]:
    """The table cut by the values of some columns."""
    if not columns:
        yield (), table
        return
    for value in pc.unique(table[columns[0]]).to_pylist():
        part = table.filter(pc.equal(table[columns[0]], value))
        yield from (((value, *rest), leaf) for rest, leaf in parts(part, columns[1:]))


def _unjudged(table: pa.Table) -> Iterator[Unjudged]:
    keys = ["model", "task", "split", "axis", "reason"]
    lost = table.filter(pc.is_null(table["utility"])).group_by(keys).aggregate([([], "count_all")])
    for row in sorted(lost.to_pylist(), key=lambda row: [str(row[key]) for key in keys]):
        branches = row.pop("count_all")
        yield Unjudged(**row, branches=branches)


def _costs(infos: Sequence[Mapping[str, Any]]) -> Iterator[Cost]:
    for model in dict.fromkeys(_key(info)[0] for info in infos):
        mine = [info for info in infos if _key(info)[0] == model]
        yield Cost(model, totals(mine), sum(info["seconds"] for info in mine))
