"""How much of a study is there: what is finished, what was not judged, what it took, and why numbers are missing."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from unmask.base.errors import SchemaError
from unmask.lab.choose import why_not_cross_fitted
from unmask.lab.store import FORMAT, Store
from unmask.lab.study import ROLES


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
    code: tuple[str, ...]
    """Fingerprints of the code that made its shards; more than one where the user accepted that."""

    @property
    def complete(self) -> bool:
        return self.planned is not None and self.shards >= self.planned


@dataclass(frozen=True)
class AxisCost:
    """Row-forwards of one axis. A run of every branch by itself takes those done and those saved together."""

    branches: int = 0
    done: int = 0
    rollouts: int = 0
    """Saved: rollouts for which nothing is drawn."""
    first: int = 0
    """Saved: the forward that all branches of a state share, and branches that do the same there."""
    futures: int = 0
    """Saved: walks that met a known state."""

    @property
    def naive(self) -> int:
        return self.done + self.rollouts + self.first + self.futures

    def __add__(self, other: "AxisCost") -> "AxisCost":
        return AxisCost(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True)
class BranchCost:
    """Row-forwards of branches by axis, of the reference's runs and of recomputed posteriors; passes of the model."""

    axes: Mapping[str, AxisCost]
    trajectory: int = 0
    recalled: int = 0
    calls: int = 0

    @property
    def total(self) -> AxisCost:
        return sum(self.axes.values(), AxisCost())


@dataclass(frozen=True)
class Cost:
    """What one model took."""

    model: str
    forwards: BranchCost
    seconds: float


_OF_MANIFEST = ("fingerprint", "study", "models", "tasks", "versions")
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


def checked_manifest(store: Store) -> dict[str, Any]:
    """The manifest; refused if it lacks what an analysis reads."""
    manifest = store.manifest
    lost = [key for key in _OF_MANIFEST if key not in manifest]
    lost += [f"study.{key}" for key in _OF_STUDY if key not in manifest.get("study", {})]
    if lost:
        raise SchemaError(
            f"the manifest of {str(store.folder)!r} has no {', '.join(lost)}; allowed: one of format {FORMAT!r}; "
            "restore it, or run the study again elsewhere"
        )
    return manifest


def extents_of(manifest: Mapping[str, Any], infos: Sequence[Mapping[str, Any]]) -> Iterator[Extent]:
    """Of every model, task and split whose data is there."""
    study = manifest["study"]
    for model in (spec["name"] for spec in study["models"]):
        noted = manifest["models"].get(model)
        planned = None if noted is None else Counter((s["task"], s["split"]) for s in noted["shards"].values())
        for task in study["tasks"]:
            if manifest["tasks"].get(task, {}).get("unavailable"):
                continue
            for role in ROLES:
                finished = [i for i in infos if _key(i) == (model, task, role)]
                yield Extent(
                    model=model,
                    task=task,
                    split=role,
                    shards=len(finished),
                    planned=None if planned is None else planned[task, role],
                    prompts=sum(len(info["prompts"]) for info in finished),
                    asked=study["splits"][role]["prompts"],
                    states=sum(info["states"] for info in finished),
                    code=tuple(sorted({info["code"] for info in finished})),
                )


def _key(info: Mapping[str, Any]) -> tuple[str, str, str]:
    shard = info["shard"]
    return shard["model"], shard["task"], shard["split"]


def check_extents(store: Store, manifest: Mapping[str, Any], extents: Sequence[Extent]) -> None:
    """Refuse a study that has nothing finished. Of one that was interrupted, the report says what is missing."""
    where = f"study {manifest['study']['name']!r} in {str(store.folder)!r}"
    todo = "carry it on with `unmask study run` and the same --out"
    if not any(extent.shards for extent in extents):
        raise SchemaError(f"{where} has 0 finished shards; allowed: some of validation and of evaluation; {todo}")


def absent(manifest: Mapping[str, Any], extents: Sequence[Extent], model: str, task: str, axis: str) -> str:
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
    return why_not_cross_fitted(study, axis)


def unfinished(extents: Sequence[Extent], model: str, task: str) -> str:
    """Which shards are not there yet, in words; empty if all are."""
    open_ones = [e for e in extents if (e.model, e.task) == (model, task) and not e.complete]
    return ", ".join(f"{e.shards} of {e.planned} {e.split} shards" for e in open_ones)


def unjudged_in(table: pa.Table) -> Iterator[Unjudged]:
    """Branches without a utility, counted by reason."""
    keys = ["model", "task", "split", "axis", "reason"]
    lost = table.filter(pc.is_null(table["utility"])).group_by(keys).aggregate([([], "count_all")])
    for row in sorted(lost.to_pylist(), key=lambda row: [str(row[key]) for key in keys]):
        branches = row.pop("count_all")
        yield Unjudged(**row, branches=branches)


def costs_of(infos: Sequence[Mapping[str, Any]]) -> Iterator[Cost]:
    """What each model took, from what its shards say of themselves."""
    for model in dict.fromkeys(_key(info)[0] for info in infos):
        of_model = [info for info in infos if _key(info)[0] == model]
        yield Cost(model, totals(of_model), sum(info["seconds"] for info in of_model))


def totals(infos: Sequence[Mapping[str, Any]]) -> BranchCost:
    """The costs of finished shards, added up."""
    axes: dict[str, AxisCost] = {}
    for info in infos:
        for axis, work in info["axes"].items():
            axes[axis] = axes.get(axis, AxisCost()) + AxisCost(**work)
    return BranchCost(
        axes, *(sum(info["forwards"][key] for info in infos) for key in ("trajectory", "recalled", "calls"))
    )
