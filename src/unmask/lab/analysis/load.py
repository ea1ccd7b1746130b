"""The finished part of a study as values that statistics read, and the frame that all findings are written to.

Every other module of this package takes a `StudyFrames` and gives rows of `Findings.frame`. A setting without numbers
has a row `missing` with its reason, and is never counted as 0.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from unmask.axes import POLICY, STUDY_AXES
from unmask.base.display import Displayable, import_drawing
from unmask.base.errors import SchemaError
from unmask.lab.store import Failure, Store, Utilities, split_table, utilities_of
from unmask.lab.store.schemas import DIAGNOSTIC, FIRST_STEP
from unmask.lab.study import ROLES
from unmask.lab.study.validation import (
    StateKey,
    diagnostic_names,
    fixed_mixture,
    is_extension,
    join_readings,
    settings_of,
    why_not_cross_fitted,
)
from unmask.stats import RESAMPLES, CalibrationSettings, Estimate
from unmask.stats.protocol import HeldOutSet, ValidationSet, require_disjoint_prompts

MEAN = "mean over tasks"
"""Name in the column `task` for means over tasks."""
MISSING = "missing"
"""Measure of a row that says why a setting has no numbers."""
ALL_AXES = "all"
"""Name in the column `axis` for numbers of all axes together."""

Row = dict[str, Any]
Number = Estimate | float | str | None


# Findings


COLUMNS = ("experiment", "model", "task", "axis", "diagnostic", "proposal", "arm", "measure", "at")
NUMBERS = ("value", "low", "high", "undefined", "n", "note")


@dataclass(frozen=True)
class Findings(Displayable):
    """All numbers that were computed from a study: a row of `frame` for each.

    `experiment` is one of opportunity, methods, diagnostics, learned, arms, joint, gates, readings, headlines and
    searches. `task` may be "mean over tasks". `at` is what a measure is taken at: a coverage, a stage, a bin, a gate, a
    pair of candidates; or "". A difference has the arm "one - other". `low` and `high` are the 95 % interval, which
    `undefined` resamples lack; `n` counts prompts. What is a text, such as the name of the fixed action, is in `note`.
    """

    frame: pd.DataFrame = field(repr=False)
    study: "StudyFrames" = field(repr=False)
    resamples: int = RESAMPLES

    def select(self, experiment: str, **where: Any) -> pd.DataFrame:
        """Return the rows of one experiment that have these values in these columns."""
        chosen = self.frame["experiment"] == experiment
        for column, value in where.items():
            chosen &= self.frame[column] == value
        return self.frame[chosen]

    def estimate(self, experiment: str, measure: str, **where: Any) -> Estimate:
        """Return the one number with these values in these columns; `at` and `arm` are "" unless they are named."""
        rows = self.select(experiment, measure=measure, **({"arm": "", "at": ""} | where))
        if len(rows) != 1:
            raise KeyError(
                f"{len(rows)} rows are {experiment} {measure} {where}; name the columns that tell them apart"
            )
        row = rows.iloc[0]
        value, low, high, undefined = (float(row[end]) for end in ("value", "low", "high", "undefined"))
        return Estimate(value, low, high, int(np.nan_to_num(undefined)))

    def to_pandas(self, table: str = "opportunity") -> Any:
        """Return a table of the report, by the name of its file, as a `pandas.DataFrame`."""
        return import_drawing().make_frame(self, table)


def result_rows(where: Mapping[str, Any], numbers: Mapping[Any, Number]) -> Iterator[Row]:
    """Yield a row of findings for each number of one setting.

    A key is a measure, (measure, arm), (measure, at) or (measure, arm, at). A text as second part is an arm unless a
    third follows; anything else is what the measure is taken at.
    """
    for key, number in numbers.items():
        measure, *rest = (key,) if isinstance(key, str) else key
        arm = rest.pop(0) if rest and isinstance(rest[0], str) else ""
        row = {"arm": arm, "measure": measure, "at": rest[0] if rest else "", **where}
        if isinstance(number, Estimate):
            row |= {name: getattr(number, name) for name in ("value", "low", "high", "undefined", "n")}
        elif isinstance(number, str):
            row["note"] = number
        elif number is not None:
            row["value"] = float(number)
        yield row


def missing_row(experiment: str, model: str, task: str, axis: str, reason: str, diagnostic: str = "") -> Row:
    """Build the row of a setting without numbers, which gives the reason."""
    where = {"experiment": experiment, "model": model, "task": task, "axis": axis, "diagnostic": diagnostic}
    return {**where, "measure": MISSING, "note": reason}


def to_frame(rows: Iterable[Row]) -> pd.DataFrame:
    """Build the frame of findings from rows, in their order."""
    frame = pd.DataFrame(list(rows), columns=[*COLUMNS, *NUMBERS])
    # pandas would give columns without any value other types, and a frame of one study another schema than the next.
    texts, numbers = [*COLUMNS, "note"], [name for name in NUMBERS if name != "note"]
    frame[texts] = frame[texts].astype(object).where(frame[texts].notna(), "")
    frame[numbers] = frame[numbers].astype(float)
    return frame


# The finished part of a study


@dataclass(frozen=True)
class StudyFrames:
    """Tables of the finished part of a study, cut by model, task, axis and role."""

    manifest: Mapping[str, Any]
    utilities: Mapping[tuple[str, ...], Utilities] = field(repr=False)
    """Utilities of branches by model, task, axis and role."""
    readings: Mapping[tuple[str, ...], Mapping[str, Mapping[StateKey, Row]]] = field(repr=False)
    """Readings by model, task, axis and role, then by diagnostic and state."""
    decodes: pd.DataFrame = field(repr=False)
    """Whole runs of evaluation prompts."""
    units: Mapping[tuple[str, str], Mapping[str, Any]] = field(repr=False)
    """Description of the whole runs by model and task: calibrations, gates, searches."""
    decodes_folder: str
    extents: pd.DataFrame
    """Counts of finished and planned shards and prompts for each model, task and split with data."""
    costs: pd.DataFrame
    """Row-forwards by model and axis, and summed over the axes of each model."""
    method_costs: pd.DataFrame
    """Mean extra forwards and tokens of a step of each method of the policy axis."""
    unjudged: pd.DataFrame
    """Number of branches without a utility by reason."""
    branches: int
    decode_seconds: float
    failures: Sequence[Failure]
    """Shards that failed so often that the study goes on without them."""
    folder: str
    hashes: Mapping[str, str]

    @property
    def config(self) -> Mapping[str, Any]:
        """Configuration of the study, as its file has it."""
        config: Mapping[str, Any] = self.manifest["study"]
        return config

    @property
    def seed(self) -> int:
        """Seed of the study."""
        return int(self.config["seed"])

    @property
    def references(self) -> dict[str, str]:
        """Reference decoder of each model, in the order of the study."""
        return {spec["name"]: str(spec["reference"]) for spec in self.config["models"]}

    @property
    def settings(self) -> CalibrationSettings:
        """Options for the study's choices on validation prompts."""
        return settings_of(self.config)

    @property
    def diagnosed_axes(self) -> list[str]:
        """Axes that have readings of diagnostics."""
        return [axis for axis in self.config["axes"] if any(key[2] == axis for key in self.readings)]

    @property
    def diagnostics(self) -> dict[str, tuple[str, ...]]:
        """Names of the diagnostics of each axis."""
        return diagnostic_names(self.config)

    @property
    def complete(self) -> bool:
        """Whether every planned shard of branches is finished."""
        return bool((self.extents["shards"] >= self.extents["planned"].fillna(np.inf)).all())

    @property
    def unavailable(self) -> dict[str, str]:
        """Tasks without data, with the reason for each."""
        tasks = self.manifest["tasks"].items()
        return {task: str(about["unavailable"]) for task, about in tasks if about.get("unavailable")}

    def extends(self, model: str, axis: str) -> bool:
        """Return whether an axis adds to the model's own decoder what that never does, such as revision."""
        return is_extension(self.references[model], axis)

    @cached_property
    def unfinished_by_task(self) -> dict[tuple[str, str], str]:
        """Names of shards that are not finished, by model and task; empty texts where all are."""
        return unfinished_shards(self.extents)

    def why_absent(self, model: str, task: str, axis: str) -> str:
        """Return the reason why an axis of a task has no numbers; empty if it can have some."""
        if task in self.unavailable:
            return self.unavailable[task]
        extents = self.extents[(self.extents["model"] == model) & (self.extents["task"] == task)]
        for row in extents[extents["prompts"] == 0].itertuples():
            what = "fits into the model" if row.planned == 0 else "is finished yet"
            return f"no {row.split} prompt {what}"
        return why_not_cross_fitted(self.config, axis)

    def state_sets(self, model: str, task: str, axis: str, diagnostic: str) -> tuple[ValidationSet, HeldOutSet]:
        """Return validation and held-out states with the readings of one diagnostic."""
        tables = {role: self.utilities[model, task, axis, role] for role in ROLES}
        mixture = fixed_mixture(tables["validation"], self.references[model], axis)
        rows = {role: self.readings.get((model, task, axis, role), {}).get(diagnostic, {}) for role in ROLES}
        validation = join_readings(ValidationSet, tables["validation"], rows["validation"], "validation", mixture)
        held_out = join_readings(HeldOutSet, tables["evaluation"], rows["evaluation"], "evaluation", mixture)
        require_disjoint_prompts(validation, held_out)
        return validation, held_out


def read_study(store: Store) -> StudyFrames:
    """Read the tables of a study's finished shards; refuse a study without any."""
    manifest, infos = store.manifest, list(store.infos().values())
    extents = read_extents(manifest, infos)
    if not extents["shards"].any():
        raise nothing_finished_error(store)
    keys = ("model", "task", "axis", "split")
    # Only the columns that statistics read: answers and first steps are most of a study's bytes.
    branches = store.read_arrow(
        "branches", ("step", "masked", "is_reference", "utility", "reason", "extra_forwards", "extra_tokens")
    )
    readings = store.read_arrow("readings")
    units = _read_run_descriptions(store)
    return StudyFrames(
        manifest=manifest,
        utilities={key: utilities_of(part) for key, part in split_table(branches, keys)},
        readings={
            key: {
                name: {(row["prompt"], row["state"]): row for row in leaf.to_pylist()}
                for (name,), leaf in split_table(part, ("diagnostic",))
            }
            for key, part in split_table(readings.drop_columns(["reason", "answer", *FIRST_STEP]), keys)
        },
        decodes=_read_runs(store) if units else pd.DataFrame(),
        units=units,
        decodes_folder=f"{store.folder}/decodes",
        extents=extents,
        costs=_sum_model_costs(infos),
        method_costs=_mean_method_costs(branches),
        unjudged=_count_unjudged(branches),
        branches=len(branches),
        decode_seconds=sum(float(info.get("seconds", 0)) for info in units.values()),
        failures=tuple(store.failures.set_aside()),
        folder=str(store.folder),
        hashes=store.content_hash(),
    )


def nothing_finished_error(store: Store) -> SchemaError:
    """Build the error for a study of which no shard is finished."""
    return SchemaError(
        f"study {store.manifest['study']['name']!r} in {str(store.folder)!r} has 0 finished shards; allowed: some of "
        "validation and of evaluation; carry it on with `unmask study run` and the same --out"
    )


def read_extents(manifest: Mapping[str, Any], infos: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Count finished and planned shards and prompts of every model, task and split with data."""
    study, rows = manifest["study"], []
    finished: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for info in infos:
        finished.setdefault(tuple(info["shard"][name] for name in ("model", "task", "split")), []).append(info)
    available = [task for task in study["tasks"] if not manifest["tasks"].get(task, {}).get("unavailable")]
    for model, task, role in product((spec["name"] for spec in study["models"]), available, ROLES):
        own = finished.get((model, task, role), [])
        # Before the model is first loaded it is not known how prompts are cut.
        plan = manifest["models"].get(model)
        shards = () if plan is None else plan["shards"].values()
        rows.append(
            {
                "model": model,
                "task": task,
                "split": role,
                "shards": len(own),
                "planned": np.nan if plan is None else sum((s["task"], s["split"]) == (task, role) for s in shards),
                "prompts": sum(len(info["prompts"]) for info in own),
                "asked": study["splits"][role]["prompts"],
                "states": sum(info["states"] for info in own),
                # More than one where the user accepted that code had changed.
                "code": " ".join(sorted({info["code"] for info in own})),
            }
        )
    columns = ["model", "task", "split", "shards", "planned", "prompts", "asked", "states", "code"]
    return pd.DataFrame(rows, columns=columns).astype({"planned": float})


def unfinished_shards(extents: pd.DataFrame) -> dict[tuple[str, str], str]:
    """Name the shards that are not finished, by model and task; empty texts where all are."""
    remarks: dict[tuple[str, str], list[str]] = {}
    for row in extents.itertuples():
        of_task = remarks.setdefault((row.model, row.task), [])
        # NaN: before the model was first loaded it is not known how many there will be.
        if not row.shards >= row.planned:
            planned = None if np.isnan(row.planned) else int(row.planned)
            of_task.append(f"{row.shards} of {planned} {row.split} shards")
    return {key: ", ".join(texts) for key, texts in remarks.items()}


def sum_costs(infos: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Sum row-forwards by axis: done, saved by reason, and `naive`, the sum of both."""
    work = pd.DataFrame([{"axis": axis, **counts} for info in infos for axis, counts in info["axes"].items()])
    if work.empty:
        return pd.DataFrame(columns=["branches", "done", "rollouts", "first", "futures", "naive"], dtype=int)
    by_axis = work.groupby("axis", sort=False).sum()
    return by_axis.assign(naive=by_axis.drop(columns="branches").sum(axis=1))


def _sum_model_costs(infos: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Sum row-forwards by model and axis. Work that no axis owns is counted in the row of all axes alone."""
    rows = []
    for model in dict.fromkeys(info["shard"]["model"] for info in infos):
        own = [info for info in infos if info["shard"]["model"] == model]
        by_axis = sum_costs(own)
        rows += [{"model": model, "axis": a, **by_axis.loc[a]} for a in STUDY_AXES if a in by_axis.index]
        whole = {name: sum(info["forwards"][name] for info in own) for name in ("trajectory", "recalled", "calls")}
        seconds = sum(info["seconds"] for info in own)
        rows.append({"model": model, "axis": ALL_AXES, **by_axis.sum(), **whole, "seconds": seconds})
    return pd.DataFrame(rows)


def _mean_method_costs(branches: pa.Table) -> pd.DataFrame:
    """Average the extra forwards and tokens of a step by model, task and method of the policy axis."""
    columns = ["extra_forwards", "extra_tokens"]
    if not set(columns) <= set(branches.column_names):
        return pd.DataFrame(columns=["model", "task", "candidate", "branches", *columns])
    own = branches.filter(pc.equal(branches["axis"], POLICY)).select(["model", "task", "candidate", *columns])
    groups = own.to_pandas().groupby(["model", "task", "candidate"], sort=False, observed=True)
    return groups[columns].mean().assign(branches=groups.size()).reset_index()


def _count_unjudged(branches: pa.Table) -> pd.DataFrame:
    """Count the branches without a utility by model, task, split, axis and reason."""
    keys = ["model", "task", "split", "axis", "reason"]
    lost = branches.filter(pc.is_null(branches["utility"])).select(keys).to_pandas().astype(str)
    return lost.groupby(keys, dropna=False).size().rename("branches").reset_index()


def _read_run_descriptions(store: Store) -> dict[tuple[str, str], Mapping[str, Any]]:
    """Read the descriptions of whole runs by model and task; refuse two for the same model and task."""
    units: dict[tuple[str, str], Mapping[str, Any]] = {}
    for shard, info in store.infos("decodes").items():
        if (shard.model, shard.task) in units:
            raise SchemaError(
                f"{shard.model}, {shard.task} was decoded end to end twice; allowed: once; remove the folder of an "
                f"older run, {shard.name!r} or another of the same, from {f'{store.folder}/decodes'!r}"
            )
        units[shard.model, shard.task] = info
    return units


def _read_runs(store: Store) -> pd.DataFrame:
    """Read whole runs of evaluation prompts: utility, and evaluated and deviated steps."""
    runs = store.read_arrow("decodes", ("utility", "evaluated", "deviated")).to_pandas()
    runs = runs[runs["split"] == "evaluation"]
    if DIAGNOSTIC[0] not in runs:
        # Where every diagnostic is called as its axis, the table has no names of its own for them.
        runs = runs.assign(**{DIAGNOSTIC[0]: runs["axis"]})
    texts = ["model", "task", "diagnostic", "arm", "prompt"]
    return runs[[*texts, "draw", "utility", "evaluated", "deviated"]].astype(dict.fromkeys(texts, str))
