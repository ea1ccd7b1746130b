"""E2 and E3, from a study's tables: do diagnostics pick useful actions, and do their signals say where to take them?

All choices are made on validation prompts and measured on evaluation prompts, by `stats`; here its tables are put
together. What has no numbers is named with its reason.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import NamedTuple

import numpy as np
import pandas as pd

from unmask.base.errors import SchemaError
from unmask.lab.analysis.cells import DiagnosedCell, DiagnosedMean
from unmask.lab.analysis.opportunity import OpportunityCell, OpportunityFindings
from unmask.lab.choose import (
    Missing,
    Row,
    StateKey,
    diagnostic_names,
    fixed_mixture,
    join_readings,
    rows_by_state,
    settings_of,
)
from unmask.lab.store import Store, Utilities, parts, utilities_of
from unmask.lab.study import ROLES
from unmask.stats import Calibration, CalibrationSettings, Estimate, NotEnough
from unmask.stats.measures import (
    ARMS,
    DRAWS,
    Key,
    Measures,
    count_prompts,
    few_positive,
    mean_detection,
    measure_detection,
    why_missing,
)
from unmask.stats.protocol import (
    PROPOSALS,
    HeldOutSet,
    LeakageError,
    ValidationSet,
    fit_calibration,
    held_out_frame,
    require_apart,
)


@dataclass(frozen=True)
class SettingOutcome:
    """E2 and E3 with one kind of proposal."""

    calibration: Calibration
    measures: Measures
    """What the held-out states say, by measure."""
    frame: pd.DataFrame = field(repr=False)
    """The held-out states."""

    @property
    def lower_regret(self) -> bool:
        """Whether the diagnostic's regret is below the stage-only schedule's."""
        return self.measures["less_regret"].value > 0

    @property
    def recovers(self) -> bool:
        """Whether the diagnostic recovers a positive share of the oracle's gap."""
        return self.measures["recovered"].value > 0

    @property
    def viable(self) -> bool:
        """The paper's screen. Exploratory: it sees held-out outcomes, so it describes settings and confirms nothing."""
        return self.lower_regret and self.recovers

    @property
    def reason(self) -> str:
        """Why AUROC, Spearman or capture do not exist; empty where they do."""
        return why_missing(self.frame)


@dataclass(frozen=True)
class DetectionCell(DiagnosedCell):
    """One model, task and diagnostic, step by step."""

    outcomes: Mapping[str, SettingOutcome]
    """By kind of proposal: the diagnostic's own action (`raw`), and the candidate nearest to it (`snapped`)."""
    prompts: int
    partial: str
    """Which of its shards are not there yet; empty if all are."""

    @property
    def raw(self) -> SettingOutcome:
        return self.outcomes["raw"]

    @property
    def fixed_name(self) -> str:
        return self.raw.calibration.fixed_name


@dataclass(frozen=True)
class Plain:
    """A mean over tasks without an interval."""

    value: float
    tasks: int
    """Those on which the number exists."""


@dataclass(frozen=True, kw_only=True)
class DetectionMean(DiagnosedMean):
    """One model, diagnostic and kind of proposal over its tasks."""

    proposal: str
    estimates: Mapping[Key, Estimate]
    """As `mean_detection` names them."""
    plain: Mapping[str, Plain]
    """Of rankings, whose means over tasks have no interval."""
    unreliable: str


@dataclass(frozen=True)
class DetectionFindings:
    """Everything the report says about diagnostics."""

    cells: tuple[DetectionCell, ...]
    means: tuple[DetectionMean, ...]
    missing: tuple[Missing, ...]

    def of(self, *, extension: bool) -> "DetectionFindings":
        """The revision extension alone, or all but it."""
        cells = tuple(cell for cell in self.cells if cell.extension == extension)
        means = tuple(mean for mean in self.means if mean.extension == extension)
        return DetectionFindings(cells, means, self.missing)


def detect(store: Store, e1: OpportunityFindings, *, draws: int = DRAWS) -> DetectionFindings | None:
    """What a study's readings say; None where it has none. `e1` is what its branches say."""
    table = store.read_arrow("readings")
    if not len(table):
        return None
    study, keys = e1.manifest["study"], ("model", "task", "axis", "split")
    readings = {key: rows_by_state(key[2], part) for key, part in parts(table, (*keys, "diagnostic"))}
    branches = dict(parts(store.read_arrow("branches", ("step", "masked", "is_reference", "utility")), keys))
    references = {spec["name"]: str(spec["reference"]) for spec in study["models"]}
    names = diagnostic_names(study)
    axes = [axis for axis in study["axes"] if any(key[2] == axis for key in readings)]
    how = _Sampling(settings_of(study), int(study["seed"]), e1.resamples, draws)
    results: list[DetectionCell | Missing] = [
        replace(lost, diagnostic=name) for lost in e1.missing if lost.axis in axes for name in names[lost.axis]
    ]
    for one in e1.cells:
        if one.axis not in axes:
            continue
        by_role = {role: (one.model, one.task, one.axis, role) for role in ROLES}
        utilities = {role: utilities_of(branches[key]) for role, key in by_role.items()}
        for name in names[one.axis]:
            rows = {role: readings.get((*key, name), {}) for role, key in by_role.items()}
            results.append(_cell(one, name, references[one.model], utilities, rows, how))
    cells = tuple(result for result in results if isinstance(result, DetectionCell))
    missing = tuple(result for result in results if isinstance(result, Missing))
    return DetectionFindings(cells, tuple(_means(cells, missing, how)), missing)


class _Sampling(NamedTuple):
    """How choices are made, and how numbers get their intervals."""

    settings: CalibrationSettings
    seed: int
    resamples: int
    draws: int


def _cell(
    one: OpportunityCell,
    name: str,
    reference: str,
    utilities: Mapping[str, Utilities],
    read: Mapping[str, Mapping[StateKey, Row]],
    how: _Sampling,
) -> DetectionCell | Missing:
    outcomes = {}
    try:
        validation, held_out = states_by_role(one.axis, reference, utilities, read)
        require_apart(validation, held_out)
        for proposal in PROPOSALS:
            chosen = fit_calibration(validation, how.settings.with_changes(proposal=proposal))
            frame = held_out_frame(held_out, chosen)
            measures = measure_detection(
                frame,
                excluded=len(held_out) - len(frame),
                seed=how.seed,
                resamples=how.resamples,
                draws=how.draws,
            )
            outcomes[proposal] = SettingOutcome(chosen, measures, frame)
    except LeakageError as error:
        raise SchemaError(
            f"{one.model}, {one.task}, {one.axis}: {error}; allowed: splits without a common prompt; run it again"
        ) from error
    except NotEnough as error:
        return Missing(one.model, one.task, one.axis, str(error), name)
    prompts = len(set(utilities["evaluation"].prompt_S))
    return DetectionCell(one.model, one.task, one.axis, reference, outcomes, prompts, one.partial, diagnostic=name)


def states_by_role(
    axis: str, reference: str, utilities: Mapping[str, Utilities], read: Mapping[str, Mapping[StateKey, Row]]
) -> tuple[ValidationSet, HeldOutSet]:
    """The states of both roles with the readings of one diagnostic; its signal compares with the fixed action."""
    mixture = fixed_mixture(utilities["validation"], reference, axis)
    return (
        join_readings(ValidationSet, utilities["validation"], read["validation"], "validation", mixture),
        join_readings(HeldOutSet, utilities["evaluation"], read["evaluation"], "evaluation", mixture),
    )


# Means over tasks


RANKINGS: Mapping[str, Key] = {
    "auroc": ("auroc", ""),
    "spearman": ("spearman", ""),
    "captured_10": ("captured", 0.1),
    "efficiency_10": ("efficiency", 0.1),
    "lift_10": ("ranked_lift", 0.1),
    "theta_lift_10": ("theta_lift", 0.1),
}
"""Measures whose means over tasks have no interval, by the name of their columns."""


def _means(cells: Sequence[DetectionCell], missing: Sequence[Missing], how: _Sampling) -> Iterator[DetectionMean]:
    for model, name in dict.fromkeys((c.model, c.diagnostic) for c in cells):
        group = [c for c in cells if (c.model, c.diagnostic) == (model, name)]
        lost = [m.task for m in missing if (m.model, m.diagnostic) == (model, name)]
        part = [c.task for c in group if c.partial]
        remarks = [f"without {', '.join(lost)}"] * bool(lost) + [f"part of {', '.join(part)}"] * bool(part)
        for proposal in PROPOSALS:
            yield _mean(group, proposal, "; ".join(remarks), how)


def _mean(cells: Sequence[DetectionCell], proposal: str, partial: str, how: _Sampling) -> DetectionMean:
    outcomes = {c.task: c.outcomes[proposal] for c in cells}
    frames = {task: outcome.frame for task, outcome in outcomes.items()}
    estimates = mean_detection(frames, seed=how.seed, resamples=how.resamples)
    everyone_S = np.concatenate([[f"{task}/{prompt}" for prompt in frame["prompt"]] for task, frame in frames.items()])
    g_S = np.concatenate([frame["oracle"] for frame in frames.values()])
    return DetectionMean(
        model=cells[0].model,
        axis=cells[0].axis,
        reference=cells[0].reference,
        diagnostic=cells[0].diagnostic,
        proposal=proposal,
        tasks=tuple(outcomes),
        utility={arm: estimates["utility", arm] for arm in ARMS},
        estimates=estimates,
        plain={
            name: _plain([outcome.measures[key].value for outcome in outcomes.values()])
            for name, key in RANKINGS.items()
        },
        unreliable=few_positive(*count_prompts(everyone_S, g_S)),
        partial=partial,
    )


def _plain(values: Sequence[float]) -> Plain:
    defined = [x for x in values if isfinite(x)]
    return Plain(float(np.mean(defined)) if defined else float("nan"), len(defined))
