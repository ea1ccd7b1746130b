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
from unmask.lab.choose import Missing, settings_of
from unmask.lab.store import Store, Utilities, parts, utilities_of
from unmask.lab.study import ROLES
from unmask.stats import (
    Array,
    CalibrationSettings,
    Estimate,
    NotEnough,
    estimate_measures,
    fit_schedule,
    weighted_mean,
    zero_rounding,
)
from unmask.stats.measures import count_prompts, few_positive
from unmask.stats.protocol import choose_fixed, cross_fit, masked_share, mean_over_rollouts

ARMS = ("reference", "fixed", "stage", "oracle")
DIFFERENCES = (("fixed", "reference"), ("stage", "fixed"), ("oracle", "fixed"))


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
    table = store.read_arrow(
        "branches", ("step", "masked", "is_reference", "utility", "extra_forwards", "extra_tokens")
    )
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
    try:
        columns, prompt_S, stage_names = _columns(seen, shown, settings)
    except NotEnough as error:
        return Missing(one.model, one.task, POLICY, str(error))

    def numbers(weight_DS: Array) -> dict[Any, Array]:
        mean = {arm: weighted_mean(weight_DS, columns[arm]) for arm in ARMS}
        return {**mean, **{(a, b): mean[a] - mean[b] for a, b in DIFFERENCES}}

    estimates = estimate_measures(numbers, prompt_S, seed=study["seed"], resamples=resamples)
    return MethodsCell(
        model=one.model,
        task=one.task,
        fixed_name=one.fixed_name,
        stage_names=stage_names,
        utility={arm: estimates[arm] for arm in ARMS},
        difference={pair: estimates[pair] for pair in DIFFERENCES},
        prompts=len(set(prompt_S.tolist())),
        states=len(prompt_S),
        unreliable=few_positive(*count_prompts(prompt_S, columns["oracle"] - columns["fixed"])),
        partial=one.partial,
    )


def _columns(
    validation: Utilities, held_out: Utilities, settings: CalibrationSettings
) -> tuple[dict[str, Array], np.ndarray, tuple[str, ...]]:
    """Q of every arm at the held-out states that have all of them, the states' prompts, and the schedule by name."""
    fixed = choose_fixed(validation.utility_SAR, reference=0).action
    mean_SA = mean_over_rollouts(validation.utility_SAR)
    masked_S = masked_share(validation.prompt_S, validation.masked_S)
    schedule = fit_schedule(mean_SA, masked_S, fixed, reference=0, count=settings.stages)
    fit = cross_fit(held_out.utility_SAR, fixed, reference=0, deterministic=settings.deterministic)
    base_S = fit.q_SA[:, fixed]
    stage_S = schedule.actions(masked_share(held_out.prompt_S, held_out.masked_S))
    gains = {
        "reference": zero_rounding(fit.q_SA[:, 0] - base_S),
        "fixed": np.zeros_like(base_S),
        "stage": zero_rounding(fit.q_SA[np.arange(len(base_S)), stage_S] - base_S),
        "oracle": fit.g_S,
    }
    used_S = np.isfinite(np.stack(list(gains.values()))).all(0)
    if not used_S.any():
        raise NotEnough("no evaluation state has utilities of the reference, the fixed method and the stage's")
    columns = {arm: (base_S + gain_S)[used_S] for arm, gain_S in gains.items()}
    return columns, np.array(held_out.prompt_S)[used_S], tuple(validation.candidates[a] for a in schedule.action_K)


def _costs(table: pa.Table) -> Iterator[MethodCost]:
    for (model, task, method), part in parts(table, ("model", "task", "candidate")):
        yield MethodCost(model, task, method, len(part), *_means_of(part, ("extra_forwards", "extra_tokens")))


def _means_of(part: pa.Table, columns: Sequence[str]) -> list[float]:
    return [float(pc.mean(part[name]).as_py()) for name in columns]
