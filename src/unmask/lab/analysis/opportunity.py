"""E1, from a study's tables: how much choosing by state could gain, where that lies, and how concentrated it is.

The best fixed action of a model, task and axis is chosen on validation prompts; everything else is measured on
evaluation prompts. What is not there yet, or could not be judged, is named with its reason and never counted as 0.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from unmask.lab.analysis.completeness import (
    Cost,
    Extent,
    Unjudged,
    absent,
    check_extents,
    checked_manifest,
    costs_of,
    extents_of,
    unfinished,
    unjudged_in,
)
from unmask.lab.choose import Missing
from unmask.lab.store import Store, Utilities, parts, utilities_of
from unmask.lab.study import ROLES
from unmask.stats import RESAMPLES, FixedAction, NotEnough
from unmask.stats.measures import Opportunity, opportunity_measures, opportunity_states
from unmask.stats.protocol import choose_fixed, masked_share


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
    """Mean utility of the fixed action on the evaluation states that the opportunity is a mean of."""
    overall: Opportunity
    """On evaluation prompts."""
    stages: Mapping[int, Opportunity]
    """By stage of the answer, the most masked first."""
    partial: str
    """Which of its shards are not there yet; empty if all are."""

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
    overall: Opportunity
    stages: Mapping[int, Opportunity]


class Audit(NamedTuple):
    """What cross-fitting changed, over all cells."""

    states: int
    """State-axis comparisons."""
    noisy: int
    """Those where rollouts of some candidate differ."""
    naive: float
    crossfitted: float


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
        tasks = self.manifest["tasks"].items()
        return {task: about["unavailable"] for task, about in tasks if about.get("unavailable")}

    @property
    def audit(self) -> Audit:
        each = [cell.overall for cell in self.cells]
        states = sum(one.states for one in each)
        naive, crossfitted = (
            sum(one[name].value * one.states for one in each) / states if states else float("nan")
            for name in ("naive", "delta")
        )
        return Audit(states, sum(one.noisy for one in each), naive, crossfitted)

    def of(self, model: str) -> tuple[OpportunityCell, ...]:
        return tuple(cell for cell in self.cells if cell.model == model)


def measure(store: Store, *, resamples: int = RESAMPLES) -> OpportunityFindings:
    """All that a study's finished shards say about opportunity; refused where they say nothing."""
    manifest, infos = checked_manifest(store), list(store.infos().values())
    extents = tuple(extents_of(manifest, infos))
    check_extents(store, manifest, extents)
    table = store.read_arrow("branches", ("step", "masked", "is_reference", "utility", "reason"))
    results = list(_results(manifest, extents, table, resamples))
    study = manifest["study"]
    order = [(spec["name"], task) for spec in study["models"] for task in study["tasks"]]
    cells = [result for result in results if isinstance(result, OpportunityCell)]
    return OpportunityFindings(
        manifest=manifest,
        cells=tuple(sorted(cells, key=lambda cell: order.index((cell.model, cell.task)))),
        means=tuple(result for result in results if isinstance(result, OpportunityMean)),
        missing=tuple(result for result in results if isinstance(result, Missing)),
        unjudged=tuple(unjudged_in(table)),
        extents=extents,
        costs=tuple(costs_of(infos)),
        branches=len(table),
        hashes=store.content_hash(),
        resamples=resamples,
    )


def _results(
    manifest: Mapping[str, Any], extents: Sequence[Extent], table: pa.Table, resamples: int
) -> Iterator[OpportunityCell | OpportunityMean | Missing]:
    """Model by model and axis by axis."""
    by_key = dict(parts(table, ("model", "task", "axis", "split")))
    study = manifest["study"]
    for model in (spec["name"] for spec in study["models"]):
        for axis in study["axes"]:
            reasons = {task: absent(manifest, extents, model, task, axis) for task in study["tasks"]}
            yield from (Missing(model, task, axis, reason) for task, reason in reasons.items() if reason)
            tables = {
                task: tuple(utilities_of(by_key[model, task, axis, role]) for role in ROLES)
                for task, reason in reasons.items()
                if not reason
            }
            yield from _axis(model, axis, tables, study["seed"], resamples, extents)


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
    states = {
        task: opportunity_states(
            u.utility_SAR,
            u.prompt_S,
            masked_share(u.prompt_S, u.masked_S),
            fixed[task],
            reference=0,
            # One rollout is all there can be: `absent` has left out what draws.
            deterministic=u.utility_SAR.shape[2] == 1,
        )
        for task, u in shown.items()
    }

    def measured(tasks: Sequence[str]) -> tuple[Opportunity, dict[int, Opportunity]]:
        """All states of some tasks, and those of each stage."""
        chosen = {task: states[task] for task in tasks}
        there = np.unique(np.concatenate([one.stage_S for one in chosen.values()])).tolist()
        draws: dict[str, int] = {"seed": seed, "resamples": resamples}
        return (
            opportunity_measures(chosen, **draws),
            {stage: opportunity_measures(chosen, stage=stage, **draws) for stage in there},
        )

    judged = []
    for task, held_out in shown.items():
        if not states[task].fit.used_S.any():
            yield Missing(model, task, axis, "no evaluation state has a judged answer of the fixed action")
            continue
        judged.append(task)
        overall, stages = measured([task])
        yield OpportunityCell(
            model=model,
            task=task,
            axis=axis,
            candidates=held_out.candidates,
            fixed=fixed[task],
            base=states[task].fit.fixed_utility,
            overall=overall,
            stages=stages,
            partial=unfinished(extents, model, task),
        )
    if judged:
        # A task without a usable state weighs nothing in the mean.
        overall, stages = measured(list(shown))
        yield OpportunityMean(model, axis, shown[judged[0]].candidates, tuple(judged), overall, stages)
