"""E2 and E3, from a study's tables: do diagnostics pick useful actions, and do their signals say where to take them?

All choices are made on validation prompts and measured on evaluation prompts, by `stats`; here its tables are put
together. What has no numbers is named with its reason.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite

import numpy as np

from unmask.base.errors import SchemaError
from unmask.lab.analysis.cells import DiagnosedCell, DiagnosedMean
from unmask.lab.analysis.opportunity import OpportunityCell, OpportunityFindings
from unmask.lab.choose import (
    Missing,
    Row,
    StateKey,
    diagnostic_names,
    fixed_mixture,
    rows_by_state,
    settings_of,
    table_with,
)
from unmask.lab.store import Store
from unmask.lab.store.utilities import Utilities, parts, utilities_of
from unmask.lab.study import ROLES
from unmask.stats import (
    ARMS,
    ActionChoice,
    Calibration,
    Estimate,
    Experiment,
    ExperimentSettings,
    HeldOutTable,
    LeakageError,
    NotEnough,
    TransitionUtility,
    ValidationTable,
    select_actions,
    selective_utility,
)
from unmask.stats.detection import DRAWS
from unmask.stats.held_out import HeldOutStates, aurocs, macro, states_of
from unmask.stats.resample import few_positive
from unmask.stats.tables import PROPOSALS


@dataclass(frozen=True)
class SettingOutcome:
    """E2 and E3 with one kind of proposal."""

    choice: ActionChoice
    utility: TransitionUtility
    states: HeldOutStates = field(repr=False)
    auroc_among: Estimate
    """AUROC among the states that have a signal. Others rank last, so that the mere lack of one, which all diagnostics
    have at the first step, moves the AUROC of all states."""
    auroc_within: Estimate
    """The same, comparing only states that are as far into their runs: what the stage alone tells does not count."""

    @property
    def calibration(self) -> Calibration:
        return self.utility.calibration


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
        chosen = self.raw.calibration
        return chosen.candidates[chosen.fixed.action]


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
    lift: Mapping[str, Estimate]
    coverage: Estimate
    recovered: Estimate
    """Mean lift of the diagnostic over the mean oracle gap."""
    less_regret: Estimate
    """Mean stage-only regret less the diagnostic's."""
    plain: Mapping[str, Plain]
    """Of rankings, whose means over tasks have no interval."""
    unreliable: str


@dataclass(frozen=True)
class DetectionFindings:
    """Everything the report says about diagnostics."""

    cells: tuple[DetectionCell, ...]
    means: tuple[DetectionMean, ...]
    missing: tuple[Missing, ...]
    settings: ExperimentSettings

    def of(self, *, extension: bool) -> "DetectionFindings":
        """The revision extension alone, or all but it."""
        cells = tuple(cell for cell in self.cells if cell.extension == extension)
        means = tuple(mean for mean in self.means if mean.extension == extension)
        return DetectionFindings(cells, means, self.missing, self.settings)


def detect(store: Store, e1: OpportunityFindings, *, draws: int = DRAWS) -> DetectionFindings | None:
    """What a study's readings say; None where it has none. `e1` is what its branches say."""
    table = store.table("readings")
    if not len(table):
        return None
    study, keys = e1.manifest["study"], ("model", "task", "axis", "split")
    readings = {key: rows_by_state(key[2], part) for key, part in parts(table, (*keys, "diagnostic"))}
    branches = dict(parts(store.table("branches", ("step", "masked", "is_reference", "utility")), keys))
    references = {spec["name"]: str(spec["reference"]) for spec in study["models"]}
    names = diagnostic_names(study)
    axes = [axis for axis in study["axes"] if any(key[2] == axis for key in readings)]
    settings = ExperimentSettings(settings_of(study), study["seed"], draws=draws, resamples=e1.resamples)
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
            results.append(_cell(one, name, references[one.model], utilities, rows, settings))
    cells = tuple(result for result in results if isinstance(result, DetectionCell))
    missing = tuple(result for result in results if isinstance(result, Missing))
    return DetectionFindings(cells, tuple(_means(cells, missing, settings)), missing, settings)


def _cell(
    one: OpportunityCell,
    name: str,
    reference: str,
    utilities: Mapping[str, Utilities],
    read: Mapping[str, Mapping[StateKey, Row]],
    settings: ExperimentSettings,
) -> DetectionCell | Missing:
    try:
        validation, held_out = tables_of(one.axis, reference, utilities, read)
        experiment = Experiment(validation, held_out, settings)
        choices, arms = select_actions(experiment), selective_utility(experiment)
    except LeakageError as error:
        raise SchemaError(
            f"{one.model}, {one.task}, {one.axis}: {error}; allowed: splits without a common prompt; run it again"
        ) from error
    except NotEnough as error:
        return Missing(one.model, one.task, one.axis, str(error), name)
    outcomes = {}
    for proposal in PROPOSALS:
        choice, utility = getattr(choices, proposal), getattr(arms, proposal)
        states = states_of(held_out, utility.calibration, utilities["evaluation"].state_S)
        among, within = aurocs(states, utility.calibration, settings)
        outcomes[proposal] = SettingOutcome(choice, utility, states, among, within)
    prompts = len(set(utilities["evaluation"].prompt_S))
    return DetectionCell(one.model, one.task, one.axis, reference, outcomes, prompts, one.partial, diagnostic=name)


def tables_of(
    axis: str, reference: str, utilities: Mapping[str, Utilities], read: Mapping[str, Mapping[StateKey, Row]]
) -> tuple[ValidationTable, HeldOutTable]:
    """The states of both roles with the readings of one diagnostic; its signal compares with the fixed action."""
    mixture = fixed_mixture(utilities["validation"], reference, axis)
    return (
        table_with(ValidationTable, utilities["validation"], read["validation"], "validation", mixture),
        table_with(HeldOutTable, utilities["evaluation"], read["evaluation"], "evaluation", mixture),
    )


# Means over tasks


RANKINGS: Mapping[str, Callable[[TransitionUtility], Estimate]] = {
    "auroc": lambda u: u.detection.auroc,
    "spearman": lambda u: u.detection.spearman,
    "captured_10": lambda u: u.detection.at[0.1].captured,
    "efficiency_10": lambda u: u.detection.at[0.1].efficiency,
    "lift_10": lambda u: u.detection.at[0.1].lift,
    "theta_lift_10": lambda u: u.detection.at[0.1].theta_lift,
}


def _means(
    cells: Sequence[DetectionCell], missing: Sequence[Missing], settings: ExperimentSettings
) -> Iterator[DetectionMean]:
    for model, name in dict.fromkeys((c.model, c.diagnostic) for c in cells):
        group = [c for c in cells if (c.model, c.diagnostic) == (model, name)]
        lost = [m.task for m in missing if (m.model, m.diagnostic) == (model, name)]
        part = [c.task for c in group if c.partial]
        remarks = [f"without {', '.join(lost)}"] * bool(lost) + [f"part of {', '.join(part)}"] * bool(part)
        for proposal in PROPOSALS:
            yield _mean(group, proposal, "; ".join(remarks), settings)


def _mean(cells: Sequence[DetectionCell], proposal: str, partial: str, settings: ExperimentSettings) -> DetectionMean:
    held = {c.task: c.outcomes[proposal].states for c in cells}
    estimates = macro(held, settings)
    everyone_S = np.concatenate([[f"{task}/{prompt}" for prompt in s.prompt_S] for task, s in held.items()])
    return DetectionMean(
        model=cells[0].model,
        axis=cells[0].axis,
        reference=cells[0].reference,
        diagnostic=cells[0].diagnostic,
        proposal=proposal,
        tasks=tuple(held),
        utility={arm: estimates["utility", arm] for arm in ARMS},
        lift={arm: estimates["lift", arm] for arm in ARMS[1:]},
        coverage=estimates["gate", "coverage"],
        recovered=estimates["choice", "recovered"],
        less_regret=estimates["choice", "less_regret"],
        plain={
            name: _plain([read(c.outcomes[proposal].utility).value for c in cells]) for name, read in RANKINGS.items()
        },
        unreliable=few_positive(everyone_S, np.concatenate([s.g_S for s in held.values()])),
        partial=partial,
    )


def _plain(values: Sequence[float]) -> Plain:
    defined = [x for x in values if isfinite(x)]
    return Plain(float(np.mean(defined)) if defined else float("nan"), len(defined))
