"""E2 and E3, from a study's tables: do diagnostics pick useful actions, and do their signals say where to take them?

All choices are made on validation prompts and measured on evaluation prompts, by `stats`; here its tables are put
together. What has no numbers is named with its reason.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unmask.axes import AXES
from unmask.errors import SchemaError
from unmask.lab.analysis.opportunity import Missing, OpportunityFindings, one_draw, parts
from unmask.lab.analysis.opportunity import OpportunityCell as Opportunities
from unmask.lab.choose import Row, Table, mixture_of, table_of
from unmask.lab.store.store import Store, Utilities, utilities_of
from unmask.lab.study import ROLES
from unmask.stats import (
    ARMS,
    ActionChoice,
    Calibration,
    CalibrationSettings,
    Estimate,
    ExperimentSettings,
    HeldOutTable,
    LeakageError,
    TransitionUtility,
    ValidationTable,
    calibrate,
    choose_fixed,
    gap,
    select_actions,
    selective_utility,
)
from unmask.stats.bootstrap import bootstrap, cluster_sums, codes, mean_of_tasks, ratio, task_seeds
from unmask.stats.calibration import graded
from unmask.stats.crossfit import Array, Ints
from unmask.stats.detection import DRAWS
from unmask.stats.errors import NotEnough
from unmask.stats.ranking import auroc
from unmask.stats.resample import few_positive, resampled
from unmask.stats.selection import measured
from unmask.stats.tables import PROPOSALS


def is_extension(reference: str, axis: str) -> bool:
    """Dream's native decoder is monotone: revising is not a choice that it has, but an extension of it."""
    return axis in AXES and reference in AXES[axis].extends


class OfAxis:
    """What is said about one axis of a reference's decoder."""

    reference: str
    axis: str

    @property
    def extension(self) -> bool:
        return is_extension(self.reference, self.axis)


@dataclass(frozen=True)
class States:
    """Held-out states as columns: what each way to choose an action gains there."""

    prompt_S: np.ndarray
    place_S: Ints
    """Which of its prompt's states it is, in the order of the run."""
    fixed_S: Array
    """Q of the fixed action."""
    gain: Mapping[str, Array]
    """Of each of `ARMS` but the fixed one."""
    deviates_S: Array
    """1 where the gate is open."""
    bin_S: Ints
    """The detector's bin; -1 without a signal."""

    @property
    def g_S(self) -> Array:
        """Cross-fitted opportunity."""
        return self.gain["oracle"]


@dataclass(frozen=True)
class SettingOutcome:
    """E2 and E3 with one kind of proposal."""

    choice: ActionChoice
    utility: TransitionUtility
    states: States = field(repr=False)
    auroc_among: Estimate
    """AUROC among the states that have a signal. Others rank last, so that the mere lack of one, which all diagnostics
    have at the first step, moves the AUROC of all states."""
    auroc_within: Estimate
    """The same, comparing only states that are as far into their runs: what the stage alone tells does not count."""

    @property
    def calibration(self) -> Calibration:
        return self.utility.calibration


@dataclass(frozen=True)
class DetectionCell(OfAxis):
    """One model, task and axis with a diagnostic."""

    model: str
    task: str
    axis: str
    reference: str
    """Whose update continues every branch."""
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


@dataclass(frozen=True)
class DetectionMean(OfAxis):
    """One model, axis and kind of proposal over its tasks, each of which counts the same."""

    model: str
    axis: str
    reference: str
    proposal: str
    tasks: tuple[str, ...]
    utility: Mapping[str, Estimate]
    lift: Mapping[str, Estimate]
    coverage: Estimate
    recovered: Estimate
    """Mean lift of the diagnostic over the mean oracle gap."""
    less_regret: Estimate
    """Mean stage-only regret less the diagnostic's."""
    plain: Mapping[str, Plain]
    """Of rankings, whose means over tasks have no interval."""
    unreliable: str
    partial: str


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
    readings = store.table("readings")
    if not len(readings):
        return None
    study, keys = e1.manifest["study"], ("model", "task", "axis", "split")
    read = {key: _by_state(key[2], part) for key, part in parts(readings, keys)}
    branches = dict(parts(store.table("branches", ("step", "masked", "is_reference", "utility")), keys))
    references = {spec["name"]: str(spec["reference"]) for spec in study["models"]}
    axes = [axis for axis in study["axes"] if any(key[2] == axis for key in read)]
    settings = ExperimentSettings(settings_of(study), study["seed"], draws=draws, resamples=e1.resamples)
    found: list[DetectionCell | Missing] = [m for m in e1.missing if m.axis in axes]
    for one in e1.cells:
        if one.axis in axes:
            by_role = {role: (one.model, one.task, one.axis, role) for role in ROLES}
            utilities = {role: utilities_of(branches[key]) for role, key in by_role.items()}
            rows = {role: read.get(key, {}) for role, key in by_role.items()}
            found.append(_cell(one, references[one.model], utilities, rows, settings))
    cells = tuple(f for f in found if isinstance(f, DetectionCell))
    missing = tuple(f for f in found if isinstance(f, Missing))
    return DetectionFindings(cells, tuple(_means(cells, missing, settings)), missing, settings)


def settings_of(study: Mapping[str, Any]) -> CalibrationSettings:
    """How a study chooses on its validation prompts, whoever asks: the steps of E3 and the decodes of E4."""
    # One rollout is all there can be: what draws has been left out.
    return CalibrationSettings(seed=study["seed"], deterministic=study["rollouts"] == 1)


@dataclass(frozen=True)
class Choice:
    """What validation prompts say about one model, task and axis; nothing in it has seen another prompt."""

    calibration: Calibration
    opportunity: float
    """Cross-fitted Delta_adapt on validation states."""


def choices(store: Store) -> dict[tuple[str, str, str], Choice | Missing]:
    """By model, task and axis: what decoders are made of, or why they cannot be. The calibrations of `detect`.

    Evaluation rows are dropped before anything else is done.
    """
    study, keys = store.manifest["study"], ("model", "task", "axis")
    settings = settings_of(study)
    references = {spec["name"]: str(spec["reference"]) for spec in study["models"]}
    read = {key: _by_state(key[2], part) for key, part in parts(_validation(store.table("readings")), keys)}
    branches = _validation(store.table("branches", ("step", "masked", "is_reference", "utility")))
    found: dict[tuple[str, str, str], Choice | Missing] = {}
    for (model, task, axis), part in parts(branches, keys):
        if (model, task, axis) in read:
            rows = read[model, task, axis]
            found[model, task, axis] = _choice((model, task, axis), part, rows, references[model], study, settings)
    return found


def _validation(table: pa.Table) -> pa.Table:
    return table.filter(pc.equal(table["split"], "validation"))


def _choice(
    key: tuple[str, str, str],
    branches: pa.Table,
    read: Mapping[tuple[str, int], Row],
    reference: str,
    study: Mapping[str, Any],
    settings: CalibrationSettings,
) -> Choice | Missing:
    # E1 does not get past this either.
    if reason := one_draw(study, key[2]):
        return Missing(*key, reason)
    utilities = utilities_of(branches)
    try:
        table = _table(ValidationTable, utilities, read, "validation", _mixture(utilities, reference, key[2]))
        found = calibrate(table, settings)
        return Choice(found, gap(graded(table, found.fixed.action, settings).fit).delta)
    except NotEnough as error:
        return Missing(*key, str(error))


def _mixture(validation: Utilities, reference: str, axis: str) -> list[float] | None:
    """That of the fixed action, which the score signal compares with; other signals compare with nothing."""
    if not AXES[axis].mixes:
        return None
    fixed = choose_fixed(validation.utility_SAR, reference=0)
    return mixture_of(reference, validation.candidates[fixed.action])


def _table(
    kind: Callable[..., Table],
    utilities: Utilities,
    read: Mapping[tuple[str, int], Row],
    role: str,
    mixture: Sequence[float] | None,
) -> Table:
    """States beside their readings; each must have one."""
    keys = list(zip(utilities.prompt_S, utilities.state_S.tolist(), strict=True))
    silent = sum(key not in read for key in keys)
    if silent:
        raise NotEnough(f"{silent} of {len(keys)} {role} states have no reading")
    return table_of(kind, utilities, [read[key] for key in keys], mixture)


def _by_state(axis: str, part: pa.Table) -> dict[tuple[str, int], Row]:
    """Ingredients are long, and only those of the score axis are needed."""
    rows = (part if AXES[axis].mixes else part.drop_columns("ingredients")).to_pylist()
    return {(row["prompt"], row["state"]): row for row in rows}


def _cell(
    one: Opportunities,
    reference: str,
    utilities: Mapping[str, Utilities],
    read: Mapping[str, Mapping[tuple[str, int], Row]],
    settings: ExperimentSettings,
) -> DetectionCell | Missing:
    try:
        mixture = _mixture(utilities["validation"], reference, one.axis)
        validation = _table(ValidationTable, utilities["validation"], read["validation"], "validation", mixture)
        held_out = _table(HeldOutTable, utilities["evaluation"], read["evaluation"], "evaluation", mixture)
        choices = select_actions(validation, held_out, settings)
        arms = selective_utility(validation, held_out, settings)
    except LeakageError as error:
        raise SchemaError(
            f"{one.model}, {one.task}, {one.axis}: {error}; allowed: splits without a common prompt; run it again"
        ) from error
    except NotEnough as error:
        return Missing(one.model, one.task, one.axis, str(error))
    outcomes = {}
    for proposal in PROPOSALS:
        choice, utility = getattr(choices, proposal), getattr(arms, proposal)
        states = states_of(held_out, utility.calibration, utilities["evaluation"].state_S)
        among, within = aurocs(states, utility.calibration, settings)
        outcomes[proposal] = SettingOutcome(choice, utility, states, among, within)
    prompts = len(set(utilities["evaluation"].prompt_S))
    return DetectionCell(one.model, one.task, one.axis, reference, outcomes, prompts, one.partial)


def states_of(held_out: HeldOutTable, chosen: Calibration, place_S: Ints) -> States:
    """The columns that `selective_utility` averages: it has no means over tasks, and no bins of held-out states."""
    held = graded(held_out, chosen.fixed.action, chosen.settings)
    stage_S, used_S = measured(held, chosen)
    proposed_S, signal_S = ~held_out.abstained_S, held_out.signal_S
    opens_S = chosen.tau.active(chosen.detector.predict(signal_S)) & proposed_S
    gain = {
        "stage": stage_S,
        "always": held.gain_S,
        "diagnostic": np.where(chosen.theta.active(signal_S) & proposed_S, held.gain_S, 0.0),
        "selective": np.where(opens_S, held.gain_S, 0.0),
        "oracle": held.fit.g_S,
    }
    return States(
        prompt_S=held_out.prompt_S[used_S],
        place_S=place_S[used_S],
        fixed_S=held.fixed_utility_S[used_S],
        gain={arm: x_S[used_S] for arm, x_S in gain.items()},
        deviates_S=opens_S[used_S].astype(np.float64),
        bin_S=chosen.detector.bin_of(signal_S)[used_S],
    )


def aurocs(states: States, chosen: Calibration, settings: ExperimentSettings) -> tuple[Estimate, Estimate]:
    """How the detector ranks the held-out states that have a signal: all of them, and those of equal place."""
    seen_S = states.bin_S >= 0
    if not seen_S.any():
        unknown = Estimate(float("nan"), float("nan"), float("nan"), settings.resamples)
        return unknown, unknown
    predicted_S, positive_S = chosen.detector.g_B[states.bin_S[seen_S]], (states.g_S > 0)[seen_S].astype(np.float64)
    place_S = states.place_S[seen_S]
    found = resampled(
        lambda weight_RS: {
            "among": auroc(predicted_S, positive_S, weight_RS),
            "within": auroc(predicted_S, positive_S, weight_RS, place_S),
        },
        states.prompt_S[seen_S],
        seed=settings.seed,
        resamples=settings.resamples,
        level=settings.level,
    )
    return found["among"], found["within"]


# Means over tasks


RANKINGS: Mapping[str, Callable[[TransitionUtility], Estimate]] = {
    "auroc": lambda u: u.detection.auroc,
    "spearman": lambda u: u.detection.spearman,
    "captured_10": lambda u: u.detection.at[0.1].captured,
    "efficiency_10": lambda u: u.detection.at[0.1].efficiency,
    "lift_10": lambda u: u.detection.at[0.1].lift,
}


def _means(
    cells: Sequence[DetectionCell], missing: Sequence[Missing], settings: ExperimentSettings
) -> Iterator[DetectionMean]:
    for model, axis in dict.fromkeys((c.model, c.axis) for c in cells):
        mine = [c for c in cells if (c.model, c.axis) == (model, axis)]
        lost = [m.task for m in missing if (m.model, m.axis) == (model, axis)]
        part = [c.task for c in mine if c.partial]
        told = [f"without {', '.join(lost)}"] * bool(lost) + [f"part of {', '.join(part)}"] * bool(part)
        for proposal in PROPOSALS:
            yield _mean(mine, proposal, "; ".join(told), settings)


def _mean(cells: Sequence[DetectionCell], proposal: str, partial: str, settings: ExperimentSettings) -> DetectionMean:
    held = {c.task: c.outcomes[proposal].states for c in cells}
    found = macro(held, settings)
    everyone_S = np.concatenate([[f"{task}/{prompt}" for prompt in s.prompt_S] for task, s in held.items()])
    return DetectionMean(
        model=cells[0].model,
        axis=cells[0].axis,
        reference=cells[0].reference,
        proposal=proposal,
        tasks=tuple(held),
        utility={arm: found["utility", arm] for arm in ARMS},
        lift={arm: found["lift", arm] for arm in ARMS[1:]},
        coverage=found["gate", "coverage"],
        recovered=found["choice", "recovered"],
        less_regret=found["choice", "less_regret"],
        plain={
            name: _plain([read(c.outcomes[proposal].utility).value for c in cells]) for name, read in RANKINGS.items()
        },
        unreliable=few_positive(everyone_S, np.concatenate([s.g_S for s in held.values()])),
        partial=partial,
    )


def _plain(values: Sequence[float]) -> Plain:
    known = [x for x in values if isfinite(x)]
    return Plain(float(np.mean(known)) if known else float("nan"), len(known))


def macro(held: Mapping[str, States], settings: ExperimentSettings) -> dict[tuple[str, str], Estimate]:
    """Means of task means; prompts are drawn within each task, and calibrations stay."""
    sums_T = []
    for states in held.values():
        code_S, prompts = codes(states.prompt_S)
        columns = [np.ones(len(code_S)), states.fixed_S, *(states.gain[arm] for arm in ARMS[1:]), states.deviates_S]
        sums_T.append(cluster_sums(np.stack(columns, 1), code_S, prompts))
    names: list[tuple[str, str]] = []

    def numbers(count_RP: Array) -> Array:
        mean_RK = mean_of_tasks(sums_T, count_RP)
        lift = {arm: mean_RK[:, 2 + at] for at, arm in enumerate(ARMS[1:])}
        base_R = mean_RK[:, 1]
        found = {("utility", "fixed"): base_R} | {("utility", arm): base_R + x_R for arm, x_R in lift.items()}
        found |= {("lift", arm): x_R for arm, x_R in lift.items()} | {("gate", "coverage"): mean_RK[:, -1]}
        found["choice", "recovered"] = ratio(lift["diagnostic"], lift["oracle"])
        found["choice", "less_regret"] = lift["diagnostic"] - lift["stage"]
        names[:] = found
        return np.stack(list(found.values()), 1)

    estimates = bootstrap(
        numbers,
        [len(sums_PK) for sums_PK in sums_T],
        seeds=task_seeds(settings.seed, held),
        resamples=settings.resamples,
        level=settings.level,
    )
    return dict(zip(names, estimates, strict=True))
