"""The policy axis, from a study's tables: what one method, and one for each stage, is worth, and what methods take.

Both are chosen on validation prompts and measured step by step on evaluation prompts, as E3 does for other axes. There
is no diagnostic here, so there is nothing to select by: no signal, no gate, no joint arm.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unmask.axes import POLICY
from unmask.lab.analysis.opportunity import OpportunityCell, OpportunityFindings
from unmask.lab.choose import Missing, Row, settings_of, table_of
from unmask.lab.store import Store
from unmask.lab.store.utilities import parts, utilities_of
from unmask.lab.study import ROLES
from unmask.stats import (
    CalibrationSettings,
    Estimate,
    HeldOutTable,
    NotEnough,
    ValidationTable,
    choose_fixed,
    fit_schedule,
)
from unmask.stats.calibration import graded
from unmask.stats.crossfit import Array
from unmask.stats.resample import few_positive, means, resampled

ARMS = ("reference", "fixed", "stage", "oracle")
DIFFERENCES = (("fixed", "reference"), ("stage", "fixed"), ("oracle", "fixed"))
_SILENT: Row = {"abstained": True, "signal": None}
"""A reading of nobody."""


@dataclass(frozen=True)
class MethodsCell:
    """One model and task: what choosing a method is worth in one transition."""

    model: str
    task: str
    fixed_name: str
    """The method that is best on validation states."""
    stage_names: tuple[str, ...]
    """That of each stage, the stage of the most masked answers first."""
    utility: Mapping[str, Estimate]
    """By arm of `ARMS`; the oracle's is cross-fitted."""
    difference: Mapping[tuple[str, str], Estimate]
    """By pair of `DIFFERENCES`, paired over prompts."""
    prompts: int
    states: int
    unreliable: str
    partial: str


@dataclass(frozen=True)
class MethodCost:
    """What the own step of one method took beside one pass over the canvas, on average over its branches."""

    model: str
    task: str
    method: str
    branches: int
    extra_forwards: float
    extra_tokens: float


@dataclass(frozen=True)
class MethodsFindings:
    """Everything the report says about whole methods as candidates."""

    cells: tuple[MethodsCell, ...]
    costs: tuple[MethodCost, ...]
    missing: tuple[Missing, ...]


def methods(store: Store, e1: OpportunityFindings) -> MethodsFindings | None:
    """What a study's branches say of the policy axis; None where it has none. `e1` is what they say of opportunity."""
    study = e1.manifest["study"]
    if POLICY not in study["axes"]:
        return None
    table = store.table("branches", ("step", "masked", "is_reference", "utility", "extra_forwards", "extra_tokens"))
    table = table.filter(pc.equal(table["axis"], POLICY))
    by_key = dict(parts(table, ("model", "task", "split")))
    results = [_cell(one, by_key, study, e1.resamples) for one in e1.cells if one.axis == POLICY]
    return MethodsFindings(
        cells=tuple(result for result in results if isinstance(result, MethodsCell)),
        costs=tuple(_costs(table)),
        missing=tuple(result for result in results if isinstance(result, Missing)),
    )


def _cell(
    one: OpportunityCell, by_key: Mapping[tuple[str, ...], pa.Table], study: Mapping[str, Any], resamples: int
) -> MethodsCell | Missing:
    settings = settings_of(study)
    seen, shown = (utilities_of(by_key[one.model, one.task, role]) for role in ROLES)
    validation = table_of(ValidationTable, seen, [_SILENT] * len(seen.prompt_S))
    held_out = table_of(HeldOutTable, shown, [_SILENT] * len(shown.prompt_S))
    try:
        columns, prompt_S, stage_names = _columns(validation, held_out, settings)
    except NotEnough as error:
        return Missing(one.model, one.task, POLICY, str(error))

    def numbers(weight_DS: Array) -> dict[Any, Array]:
        mean = {arm: means(weight_DS, columns[arm]) for arm in ARMS}
        return {**mean, **{(a, b): mean[a] - mean[b] for a, b in DIFFERENCES}}

    estimates = resampled(numbers, prompt_S, seed=study["seed"], resamples=resamples)
    return MethodsCell(
        model=one.model,
        task=one.task,
        fixed_name=one.fixed_name,
        stage_names=stage_names,
        utility={arm: estimates[arm] for arm in ARMS},
        difference={pair: estimates[pair] for pair in DIFFERENCES},
        prompts=len(set(prompt_S.tolist())),
        states=len(prompt_S),
        unreliable=few_positive(prompt_S, columns["oracle"] - columns["fixed"]),
        partial=one.partial,
    )


def _columns(
    validation: ValidationTable, held_out: HeldOutTable, settings: CalibrationSettings
) -> tuple[dict[str, Array], np.ndarray, tuple[str, ...]]:
    """Q of every arm at the held-out states that have all of them, the states' prompts, and the schedule by name."""
    fixed = choose_fixed(validation.q_SAR, reference=validation.reference).action
    schedule = fit_schedule(graded(validation, fixed, settings), settings.stages)
    held = graded(held_out, fixed, settings)
    stage_S = held.action_gain(schedule.actions(held_out.masked_S))
    reference_S = held.action_gain(np.full(len(held_out), held_out.reference))
    used_S = held.used_S & np.isfinite(stage_S) & np.isfinite(reference_S)
    if not used_S.any():
        raise NotEnough("no evaluation state has utilities of the reference, the fixed method and the stage's")
    base_S = held.fixed_utility_S
    gains = {"reference": reference_S, "fixed": np.zeros_like(base_S), "stage": stage_S, "oracle": held.fit.g_S}
    columns = {arm: (base_S + gain_S)[used_S] for arm, gain_S in gains.items()}
    return columns, held_out.prompt_S[used_S], tuple(validation.candidates[a] for a in schedule.action_K)


def _costs(table: pa.Table) -> Iterator[MethodCost]:
    for (model, task, method), part in parts(table, ("model", "task", "candidate")):
        yield MethodCost(model, task, method, len(part), *_means_of(part, ("extra_forwards", "extra_tokens")))


def _means_of(part: pa.Table, columns: Sequence[str]) -> list[float]:
    return [float(pc.mean(part[name]).as_py()) for name in columns]
