"""E4, from a study's decodes: is a decoder that adapts better than one that does not, end to end?

All choices (fixed action, gate, axis) are those of validation prompts; numbers are of evaluation prompts, each of which
counts only where the answers of all arms could be judged. What has no numbers is named with its reason.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unmask.errors import SchemaError
from unmask.lab.analysis.detection import DetectionFindings, OfAxis, is_extension
from unmask.lab.analysis.opportunity import Missing, OpportunityFindings, parts
from unmask.lab.store.store import Store
from unmask.stats import Calibration, DetectorFileError, Estimate
from unmask.stats.bootstrap import bootstrap, mean_of_tasks, task_seeds
from unmask.stats.crossfit import TIE, Array

ARMS = ("reference", "fixed", "stage", "always", "selective")
CONTROLS = ("end-to-end fixed", "random gate")
JOINT = "joint"
"""Beyond the paper: all axes adapted together; it stands under an axis of its own name."""
JOINT_FIXED = "joint fixed"
CHOSEN = "chosen"
"""In place of an axis: for each task the one that validation chose."""
GATED = ("always", "selective", "random gate")
DIFFERENCES = (
    ("selective", "fixed"),
    ("selective", "reference"),
    ("selective", "always"),
    ("selective", "end-to-end fixed"),
    ("selective", "random gate"),
    ("always", "fixed"),
    ("fixed", "reference"),
)
_JOINT_ARMS = ("reference", JOINT_FIXED, JOINT, "selective")
_JOINT_DIFFERENCES = ((JOINT, "reference"), (JOINT, JOINT_FIXED), (JOINT, "selective"))


@dataclass(frozen=True)
class EndToEndCell(OfAxis):
    """One model, task and axis, end to end on evaluation prompts."""

    model: str
    task: str
    axis: str
    reference: str
    """Whose decoder: llada or dream."""
    chosen: bool
    """The axis that validation chose for this model and task."""
    fixed_name: str
    """The candidate that is best on validation states."""
    end_to_end_name: str
    """The candidate that is best end to end on validation prompts."""
    never: str
    """Why the gate never opens; empty if it may."""
    utility: Mapping[str, Estimate]
    """By arm of `ARMS` and `CONTROLS`."""
    difference: Mapping[tuple[str, str], Estimate]
    """By pair of `DIFFERENCES`, paired over prompts."""
    coverage: Mapping[str, float]
    """Of `GATED`: deviations by steps that had a signal; NaN if none had, 0 for a gate that never opens."""
    wins: int
    """Prompts on which selective is better than fixed."""
    losses: int
    ties: int
    prompts: int
    unjudged: int
    """Prompts left out because some arm's answer could not be judged."""
    out_of_fold: float
    """What validation promised: the gate's lift per state on prompts that did not choose its threshold."""


@dataclass(frozen=True)
class JointCell:
    """All axes adapted together, beside the reference and the chosen axis's selective arm."""

    model: str
    task: str
    reference: str
    axes: tuple[str, ...]
    utility: Mapping[str, Estimate]
    """Of "reference", "joint fixed", "joint", and "selective" of the chosen axis."""
    difference: Mapping[tuple[str, str], Estimate]
    coverage: Mapping[str, float]
    """By axis."""
    prompts: int
    unjudged: int


@dataclass(frozen=True)
class EndToEndMean(OfAxis):
    """Mean over tasks, each counting the same: of one axis, or of the axis chosen for each task (`CHOSEN`)."""

    model: str
    reference: str
    axis: str
    tasks: tuple[str, ...]
    utility: Mapping[str, Estimate]
    difference: Mapping[tuple[str, str], Estimate]
    coverage: float
    """Mean of selective's over the tasks where it exists."""
    better: int
    """Tasks on which selective's mean is above fixed's."""
    worse: int
    same: int
    significant_up: int
    """Tasks whose interval of selective - fixed lies above 0."""
    significant_down: int
    partial: str
    """Which tasks are missing; empty if none is."""


@dataclass(frozen=True)
class EndToEndFindings:
    """Everything the report says about decoding end to end."""

    cells: tuple[EndToEndCell, ...]
    joints: tuple[JointCell, ...]
    means: tuple[EndToEndMean, ...]
    missing: tuple[Missing, ...]

    def of(self, *, extension: bool) -> "EndToEndFindings":
        """The revision extension alone, or all but it."""
        return EndToEndFindings(
            tuple(cell for cell in self.cells if cell.extension == extension),
            () if extension else self.joints,
            tuple(mean for mean in self.means if mean.extension == extension),
            self.missing,
        )


def end_to_end(store: Store, e1: OpportunityFindings, e23: DetectionFindings) -> EndToEndFindings | None:
    """What a study's decodes say; None where it decoded nothing end to end."""
    units = _units(store)
    if not units:
        return None
    study = e1.manifest["study"]
    how = _Resampling(int(study["seed"]), e1.resamples)
    held = _evaluation(store)
    known = {(cell.model, cell.task, cell.axis): cell.raw.calibration for cell in e23.cells}
    reasons = {(lost.model, lost.task, lost.axis): lost.reason for lost in e23.missing}
    axes = [axis for axis in study["axes"] if any(key[2] == axis for key in (*known, *reasons))]
    found: list[_Measured | JointCell | Missing] = []
    for spec in study["models"]:
        for task in study["tasks"]:
            key = (spec["name"], task)
            unit = units.get(key)
            if unit is None:
                why = {axis: reasons.get((*key, axis), "not decoded end to end yet") for axis in axes}
                found += [Missing(*key, axis, reason) for axis, reason in why.items()]
                continue
            choices = _choices(store, unit, known)
            best = _chosen(spec["reference"], axes, choices)
            found += _cells(key, spec["reference"], axes, best, choices, unit, reasons, held, how)
            found += _joint(key, spec["reference"], best, unit, held, how)
    measured = [f for f in found if isinstance(f, _Measured)]
    missing = tuple(f for f in found if isinstance(f, Missing))
    return EndToEndFindings(
        cells=tuple(m.cell for m in measured),
        joints=tuple(f for f in found if isinstance(f, JointCell)),
        means=tuple(_means(measured, study["models"], study["tasks"], axes, how)),
        missing=missing,
    )


class _Resampling(NamedTuple):
    """Of the bootstrap."""

    seed: int
    resamples: int


class _Choice(NamedTuple):
    """What validation chose for one axis."""

    calibration: Calibration
    opportunity: float
    """Cross-fitted Delta_adapt on validation states."""
    end_to_end: str

    @property
    def lift(self) -> float:
        """What the gate promises; one that never opens promises nothing."""
        tau = self.calibration.tau
        return 0.0 if tau.value is None else tau.out_of_fold


class _ArmGrid(NamedTuple):
    """One model, task and axis: the decodes of every arm, prompt by prompt."""

    prompts: tuple[str, ...]
    utility: Mapping[str, Array]
    """Mean over draws; NaN where one could not be judged."""
    steps: Mapping[str, Array]
    """Of arms with a gate: evaluated and deviated steps of each prompt, (P, 2); NaN where it was not counted."""

    def judged(self, arms: Sequence[str]) -> np.ndarray:
        """Prompts on which all of these arms have a utility."""
        return np.asarray(np.isfinite(np.stack([self.utility[arm] for arm in arms])).all(0))


class _Measured(NamedTuple):
    """A cell and the columns behind it, which means over tasks need again."""

    cell: EndToEndCell
    columns_PK: Array


def choose_axis(choices: Mapping[str, tuple[float, float]]) -> str | None:
    """The axis with the largest lift promised on validation; of equal ones that with the largest opportunity there,
    then the first. `choices` are lift and opportunity by axis, in the order of the axes; None without any."""
    best: str | None = None
    for axis, (lift, opportunity) in choices.items():
        if best is None:
            best = axis
            continue
        ahead, more = lift - choices[best][0], _known(opportunity) - _known(choices[best][1])
        if ahead > TIE or (abs(ahead) <= TIE and more > TIE):
            best = axis
    return best


def _known(opportunity: float) -> float:
    """An opportunity that could not be measured settles no tie: utilities lie in [0, 1]."""
    return opportunity if isfinite(opportunity) else -2.0


# What is stored


def _units(store: Store) -> dict[tuple[str, str], Mapping[str, Any]]:
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for info in store.decode_infos():
        key = (str(info["unit"]["model"]), str(info["unit"]["task"]))
        if key in found:
            raise SchemaError(
                f"{key[0]}, {key[1]} was decoded end to end twice, with keys {found[key]['unit']['depends']} and "
                f"{info['unit']['depends']}; allowed: once; remove the one of an older run from {str(store.decodes)!r}"
            )
        found[key] = info
    return found


def _choices(
    store: Store, unit: Mapping[str, Any], known: Mapping[tuple[str, str, str], Calibration]
) -> dict[str, _Choice]:
    """What the arms were made of; refused if the study's tables choose otherwise."""
    model, task = unit["unit"]["model"], unit["unit"]["task"]
    found = {}
    for axis, entry in unit["axes"].items():
        try:
            calibration = Calibration.from_json(entry["calibration"])
        except DetectorFileError as error:
            raise SchemaError(f"the calibration of {model}, {task}, {axis}: {error}") from error
        if not calibration.agrees(known.get((model, task, axis), calibration)):
            raise SchemaError(
                f"{model}, {task}, {axis} was decoded with another calibration than the study's tables give; allowed: "
                f"the same; remove its folder from {str(store.decodes)!r} and run the study"
            )
        opportunity = nan if entry["opportunity"] is None else float(entry["opportunity"])
        found[axis] = _Choice(calibration, opportunity, str(entry["end_to_end"]))
    return found


def _evaluation(store: Store) -> dict[tuple[str, ...], _ArmGrid]:
    table = store.table("decodes", ("utility", "evaluated", "deviated"))
    table = table.filter(pc.equal(table["split"], "evaluation"))
    return {key: _grid(part) for key, part in parts(table, ("model", "task", "axis"))}


def _grid(part: pa.Table) -> _ArmGrid:
    columns = {name: part[name].to_pylist() for name in ("arm", "draw", "prompt")}
    numbers = {
        name: np.array([nan if x is None else x for x in part[name].to_pylist()], dtype=np.float64)
        for name in ("utility", "evaluated", "deviated")
    }
    prompts = tuple(sorted(set(columns["prompt"])))
    arm_N, at_N = np.array(columns["arm"]), np.searchsorted(prompts, columns["prompt"])
    utility: dict[str, Array] = {}
    steps: dict[str, Array] = {}
    for arm in dict.fromkeys(columns["arm"]):
        mine_N = arm_N == arm
        draws = len({draw for draw, own in zip(columns["draw"], mine_N, strict=True) if own})
        # NaN goes through sums: a prompt has a mean where each of its draws was judged.
        sums = {name: _sums(x_N[mine_N], at_N[mine_N], len(prompts)) for name, x_N in numbers.items()}
        # A prompt that lacks a draw has none either.
        whole_P = np.bincount(at_N[mine_N], minlength=len(prompts)) == draws
        utility[arm] = np.where(whole_P, sums["utility"] / draws, nan)
        if np.isfinite(numbers["deviated"][mine_N]).any():
            steps[arm] = np.stack([sums["evaluated"], sums["deviated"]], 1)
    return _ArmGrid(prompts, utility, steps)


def _sums(x_N: Array, at_N: np.ndarray, prompts: int) -> Array:
    return np.asarray(np.bincount(at_N, x_N, prompts), dtype=np.float64)


# Cells


def _cells(
    key: tuple[str, str],
    reference: str,
    axes: Sequence[str],
    best: str | None,
    choices: Mapping[str, _Choice],
    unit: Mapping[str, Any],
    reasons: Mapping[tuple[str, str, str], str],
    held: Mapping[tuple[str, ...], _ArmGrid],
    how: _Resampling,
) -> Iterator[_Measured | Missing]:
    for axis in axes:
        grid = held.get((*key, axis))
        if axis not in choices or grid is None:
            told = unit["missing"].get(axis) or reasons.get((*key, axis), "no evaluation prompt was decoded")
            yield Missing(*key, axis, told)
            continue
        lost = [arm for arm in (*ARMS, *CONTROLS) if arm not in grid.utility]
        if lost:
            raise SchemaError(
                f"decodes of {', '.join((*key, axis))} have no arm {', '.join(lost)}; allowed: all of them; remove the "
                "folder of their unit and run the study"
            )
        used_P = grid.judged((*ARMS, *CONTROLS))
        if not used_P.any():
            yield Missing(*key, axis, "no evaluation prompt has a judged answer of every arm")
            continue
        yield _cell(key, axis, reference, axis == best, choices[axis], grid, used_P, how)


def _chosen(reference: str, axes: Sequence[str], choices: Mapping[str, _Choice]) -> str | None:
    """Of the axes that the reference's decoder has."""
    own = [axis for axis in axes if axis in choices and not is_extension(reference, axis)]
    return choose_axis({axis: (choices[axis].lift, choices[axis].opportunity) for axis in own})


def _cell(
    key: tuple[str, str],
    axis: str,
    reference: str,
    chosen: bool,
    choice: _Choice,
    grid: _ArmGrid,
    used_P: np.ndarray,
    how: _Resampling,
) -> _Measured:
    columns_PK = _columns(grid.utility, used_P, (*ARMS, *CONTROLS), DIFFERENCES)
    utility, difference = _estimates({key[1]: columns_PK}, (*ARMS, *CONTROLS), DIFFERENCES, how)
    gain_P = (grid.utility["selective"] - grid.utility["fixed"])[used_P]
    found = choice.calibration
    cell = EndToEndCell(
        model=key[0],
        task=key[1],
        axis=axis,
        reference=reference,
        chosen=chosen,
        fixed_name=found.candidates[found.fixed.action],
        end_to_end_name=choice.end_to_end,
        never=found.tau.reason if found.tau.value is None else "",
        utility=utility,
        difference=difference,
        coverage={arm: _coverage(grid.steps[arm][used_P]) for arm in GATED},
        wins=int((gain_P > TIE).sum()),
        losses=int((gain_P < -TIE).sum()),
        ties=int((np.abs(gain_P) <= TIE).sum()),
        prompts=int(used_P.sum()),
        unjudged=int((~used_P).sum()),
        out_of_fold=found.tau.out_of_fold,
    )
    return _Measured(cell, columns_PK)


def _coverage(steps_P2: Array) -> float:
    """Deviations by evaluated steps. Where those were not counted the gate never opened."""
    evaluated, deviated = steps_P2.sum(0)
    if not isfinite(evaluated):
        return 0.0 if deviated == 0 else nan
    return float(deviated / evaluated) if evaluated else nan


def _joint(
    key: tuple[str, str],
    reference: str,
    best: str | None,
    unit: Mapping[str, Any],
    held: Mapping[tuple[str, ...], _ArmGrid],
    how: _Resampling,
) -> Iterator[JointCell | Missing]:
    grid, about = held.get((*key, JOINT)), unit["joint"]
    if grid is None or about is None or best is None:
        return
    axes = tuple(about["axes"])
    beside = dict(zip(held[*key, best].prompts, held[*key, best].utility["selective"].tolist(), strict=True))
    selective_P = np.array([beside.get(prompt, nan) for prompt in grid.prompts])
    whole = grid._replace(utility={**grid.utility, "selective": selective_P})
    used_P = whole.judged(_JOINT_ARMS)
    if not used_P.any():
        yield Missing(*key, JOINT, "no evaluation prompt has a judged answer of every arm")
        return
    columns_PK = _columns(whole.utility, used_P, _JOINT_ARMS, _JOINT_DIFFERENCES)
    utility, difference = _estimates({key[1]: columns_PK}, _JOINT_ARMS, _JOINT_DIFFERENCES, how)
    used = [prompt for prompt, own in zip(grid.prompts, used_P, strict=True) if own]
    gates = {
        axis: np.array([[nan if n is None else n for n in counts[prompt]] for prompt in used], dtype=np.float64)
        for axis, counts in about["gates"].items()
    }
    yield JointCell(
        model=key[0],
        task=key[1],
        reference=reference,
        axes=axes,
        utility=utility,
        difference=difference,
        coverage={axis: _coverage(gates[axis]) for axis in axes},
        prompts=int(used_P.sum()),
        unjudged=int((~used_P).sum()),
    )


# Means over tasks


def _means(
    measured: Sequence[_Measured],
    models: Sequence[Mapping[str, Any]],
    tasks: Sequence[str],
    axes: Sequence[str],
    how: _Resampling,
) -> Iterator[EndToEndMean]:
    for spec in models:
        mine = [m for m in measured if m.cell.model == spec["name"]]
        groups = {CHOSEN: [m for m in mine if m.cell.chosen]}
        groups |= {axis: [m for m in mine if m.cell.axis == axis] for axis in axes}
        for axis, group in groups.items():
            if group:
                yield _mean(axis, group, tasks, how)


def _mean(axis: str, group: Sequence[_Measured], tasks: Sequence[str], how: _Resampling) -> EndToEndMean:
    cells = [m.cell for m in group]
    utility, difference = _estimates({m.cell.task: m.columns_PK for m in group}, (*ARMS, *CONTROLS), DIFFERENCES, how)
    gains = [cell.difference["selective", "fixed"] for cell in cells]
    shares = [share for cell in cells if isfinite(share := cell.coverage["selective"])]
    lost = [task for task in tasks if task not in {cell.task for cell in cells}]
    return EndToEndMean(
        model=cells[0].model,
        reference=cells[0].reference,
        axis=axis,
        tasks=tuple(cell.task for cell in cells),
        utility=utility,
        difference=difference,
        coverage=float(np.mean(shares)) if shares else nan,
        better=sum(gain.value > TIE for gain in gains),
        worse=sum(gain.value < -TIE for gain in gains),
        same=sum(abs(gain.value) <= TIE for gain in gains),
        significant_up=sum(gain.low > 0 for gain in gains),
        significant_down=sum(gain.high < 0 for gain in gains),
        partial=f"without {', '.join(lost)}" if lost else "",
    )


def _columns(
    utility: Mapping[str, Array], used_P: np.ndarray, arms: Sequence[str], pairs: Sequence[tuple[str, str]]
) -> Array:
    """Utilities of the arms, then differences, prompt by prompt: prompts are drawn whole, so pairs stay pairs."""
    columns = [utility[arm] for arm in arms] + [utility[one] - utility[other] for one, other in pairs]
    return np.stack(columns, 1)[used_P]


def _estimates(
    tables: Mapping[str, Array], arms: Sequence[str], pairs: Sequence[tuple[str, str]], how: _Resampling
) -> tuple[dict[str, Estimate], dict[tuple[str, str], Estimate]]:
    """Means of task means of every column; prompts are drawn within each task."""
    sums_T = [np.pad(x_PK, ((0, 0), (1, 0)), constant_values=1.0) for x_PK in tables.values()]
    found = bootstrap(
        lambda count_RP: mean_of_tasks(sums_T, count_RP)[:, 1:],
        [len(sums_PK) for sums_PK in sums_T],
        seeds=task_seeds(how.seed, tables),
        resamples=how.resamples,
        width=next(iter(tables.values())).shape[1],
    )
    return dict(zip(arms, found, strict=False)), dict(zip(pairs, found[len(arms) :], strict=True))
