"""E3 with a learned detector beside the bins of one signal: the same states, proposals, controls and resampled prompts.

Only for studies that ask for it. All fitting is on validation prompts, by `stats.learned`; `stats.rivals` compares.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from unmask.base.errors import ConfigError, SchemaError
from unmask.lab.analysis.cells import DiagnosedCell, OfDiagnostic
from unmask.lab.analysis.detection import DetectionCell, DetectionFindings, tables_of
from unmask.lab.analysis.features import ReadStates, feature_names, feature_values, read_states
from unmask.lab.choose import Missing, Row, StateKey
from unmask.lab.store import Store
from unmask.lab.store.schemas import FIRST_STEP, SUMMARY
from unmask.lab.store.utilities import Utilities, parts, utilities_of
from unmask.lab.study import ROLES
from unmask.stats import AtCoverage, Estimate, ExperimentSettings, NotEnough
from unmask.stats.errors import MissingExtra
from unmask.stats.learned import Featured, LearnedGate, fit_learned
from unmask.stats.resample import few_positive
from unmask.stats.rivals import Key, RivalStates, compare_rivals, mean_rivals, rival_states
from unmask.stats.tables import check_apart

_UNREAD = ("reason", "answer", *FIRST_STEP)
"""Columns of readings that are long and say nothing here."""
EVERY = "all"
"""In the place of an axis: the mean over all diagnosed ones."""


@dataclass(frozen=True)
class LearnedCell(DiagnosedCell):
    """One model, task and diagnostic under both detectors, with the diagnostic's own actions."""

    numbers: Mapping[Key, Estimate]
    """By rival, or `difference` (learned less bins), and measure."""
    controls: Mapping[float, AtCoverage]
    """Of the bins, by coverage: random states, an oracle gate and C* are the same whoever ranks."""
    gate: LearnedGate = field(repr=False)
    bins_never: str
    """Why the bins' gate never opens; empty if it may."""
    states: RivalStates = field(repr=False)
    unreliable: str
    partial: str


@dataclass(frozen=True, kw_only=True)
class LearnedMean(OfDiagnostic):
    """One model and diagnostic, or all of them, over its tasks."""

    model: str
    axis: str
    reference: str
    diagnostic: str = ""
    tasks: tuple[str, ...]
    settings: int
    """Cells that it is over."""
    numbers: Mapping[Key, Estimate]
    unreliable: str
    partial: str


@dataclass(frozen=True)
class LearnedFindings:
    """What is to be said about the learned detector."""

    cells: tuple[LearnedCell, ...]
    means: tuple[LearnedMean, ...]
    """Of every diagnostic; then, under the axis `EVERY`, of all that the native decoder has."""
    missing: tuple[Missing, ...]
    settings: ExperimentSettings

    def of(self, *, extension: bool) -> "LearnedFindings":
        """The revision extension alone, or all but it."""
        cells = tuple(cell for cell in self.cells if cell.extension == extension)
        means = tuple(mean for mean in self.means if mean.extension == extension)
        return LearnedFindings(cells, means, self.missing, self.settings)


def learn(store: Store, detection: DetectionFindings) -> LearnedFindings | None:
    """None where the study does not ask for it."""
    study = store.manifest["study"]
    if not study.get("learned", False):
        return None
    table, keys = store.table("readings"), ("model", "task", "split")
    _check_summaries(table)
    readings = dict(parts(table.drop_columns(_UNREAD), keys))
    columns = ("step", "masked", "is_reference", "utility")
    branches = dict(parts(store.table("branches", columns), (*keys, "axis")))
    results: list[LearnedCell | Missing] = []
    for model, task in dict.fromkeys((cell.model, cell.task) for cell in detection.cells):
        # Rows of one model and task at a time: ingredients are long.
        read = {role: _read(readings[model, task, role]) for role in ROLES}
        for cell in detection.cells:
            if (cell.model, cell.task) == (model, task):
                utilities = {role: utilities_of(branches[model, task, role, cell.axis]) for role in ROLES}
                results.append(_cell(cell, utilities, read, study["steps"][task], detection.settings))
    cells = tuple(result for result in results if isinstance(result, LearnedCell))
    missing = tuple(result for result in results if isinstance(result, Missing))
    return LearnedFindings(cells, tuple(_means(cells, missing, detection.settings)), missing, detection.settings)


@dataclass(frozen=True)
class _Role:
    """Readings of one model, task and role: as stored, by diagnostic, and as numbers."""

    rows: Mapping[str, Mapping[StateKey, Row]]
    numbers: ReadStates


def _read(part: pa.Table) -> _Role:
    rows = {
        name: {(row["prompt"], row["state"]): row for row in leaf.to_pylist()}
        for (name,), leaf in parts(part, ("diagnostic",))
    }
    return _Role(rows, read_states(rows))


def _check_summaries(table: pa.Table) -> None:
    if lost := [name for name, _ in SUMMARY if name not in table.column_names]:
        raise SchemaError(
            f"the readings have no {', '.join(lost)}; allowed: what a run of a study with learned = true stores; run "
            "it into a new folder"
        )


def _cell(
    cell: DetectionCell,
    utilities: Mapping[str, Utilities],
    read: Mapping[str, _Role],
    steps: int,
    settings: ExperimentSettings,
) -> LearnedCell | Missing:
    rows = {role: one.rows[cell.diagnostic] for role, one in read.items()}
    validation, held_out = tables_of(cell.axis, cell.reference, utilities, rows)
    check_apart(validation, held_out)
    names, chosen = feature_names(read["validation"].numbers, cell.diagnostic), cell.raw.calibration
    value = {
        role: feature_values(read[role].numbers, names, utilities[role], table.masked_S, steps)
        for role, table in zip(ROLES, (validation, held_out), strict=True)
    }
    try:
        gate = fit_learned(Featured(validation, names, value["validation"]), chosen.fixed.action, chosen.settings)
    except MissingExtra as error:
        raise ConfigError(str(error)) from error
    except NotEnough as error:
        return Missing(cell.model, cell.task, cell.axis, str(error), cell.diagnostic)
    shown = Featured(held_out, names, value["evaluation"])
    states = rival_states(shown, chosen, gate, utilities["evaluation"].state_S, settings.ties)
    return LearnedCell(
        model=cell.model,
        task=cell.task,
        axis=cell.axis,
        reference=cell.reference,
        diagnostic=cell.diagnostic,
        numbers=compare_rivals(states, settings),
        controls=cell.raw.utility.detection.at,
        gate=gate,
        bins_never=chosen.tau.reason if chosen.tau.value is None else "",
        states=states,
        unreliable=cell.raw.utility.unreliable,
        partial=cell.partial,
    )


# Means over tasks


def _means(
    cells: Sequence[LearnedCell], missing: Sequence[Missing], settings: ExperimentSettings
) -> Iterator[LearnedMean]:
    for model in dict.fromkeys(c.model for c in cells):
        of_model = [c for c in cells if c.model == model]
        for name in dict.fromkeys(c.diagnostic for c in of_model):
            group = [c for c in of_model if c.diagnostic == name]
            lost = [m.task for m in missing if (m.model, m.diagnostic) == (model, name)]
            yield _mean(group, group[0].axis, name, lost, settings)
        if native := [c for c in of_model if not c.extension]:
            lost = sorted({m.task for m in missing if m.model == model})
            yield _mean(native, EVERY, EVERY, lost, settings)


def _mean(
    cells: Sequence[LearnedCell], axis: str, diagnostic: str, lost: Sequence[str], settings: ExperimentSettings
) -> LearnedMean:
    held: dict[str, list[RivalStates]] = {}
    for cell in cells:
        held.setdefault(cell.task, []).append(cell.states)
    part = list(dict.fromkeys(c.task for c in cells if c.partial))
    remarks = [f"without some of {', '.join(lost)}"] * bool(lost) + [f"part of {', '.join(part)}"] * bool(part)
    return LearnedMean(
        model=cells[0].model,
        axis=axis,
        reference=cells[0].reference,
        diagnostic=diagnostic,
        tasks=tuple(held),
        settings=len(cells),
        numbers=mean_rivals(held, settings),
        unreliable=_unreliable(cells),
        partial="; ".join(remarks),
    )


def _unreliable(cells: Sequence[LearnedCell]) -> str:
    """As of one setting, over the prompts of all tasks."""
    everyone = [f"{c.task}/{prompt}" for c in cells for prompt in c.states.prompt_S]
    return few_positive(np.array(everyone), np.concatenate([c.states.g_S for c in cells]))
