"""E4, from a study's decodes: is a decoder that adapts better than one that does not, end to end?

All choices (fixed action, gate, axis) are those of validation prompts; numbers are of evaluation prompts, each of which
counts only where the answers of all arms could be judged. What has no numbers is named with its reason.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import isfinite, nan
from typing import Any, NamedTuple

import numpy as np

from unmask.base.errors import SchemaError
from unmask.lab.analysis.cells import DiagnosedCell, DiagnosedMean
from unmask.lab.analysis.decoded import (
    ArmGrid,
    DecodedUnit,
    StoredChoice,
    evaluation_grids,
    gate_coverage,
    stored_choices,
    unit_infos,
)
from unmask.lab.analysis.detection import DetectionFindings
from unmask.lab.analysis.gates import GateCell, gate_cells
from unmask.lab.analysis.opportunity import OpportunityFindings
from unmask.lab.analysis.readings import ReadingMean, reading_means
from unmask.lab.analysis.searches import SearchCell, search_cells
from unmask.lab.choose import (
    CONTROLS,
    DECODED_ARMS,
    JOINT,
    JOINT_FIXED,
    Missing,
    choose_axis,
    is_extension,
)
from unmask.lab.gates import AXIS_BY
from unmask.lab.searches import SEARCH
from unmask.lab.store import Store
from unmask.stats import TIE, Array, Estimate, paired_estimates

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
_NO_PROMPT = "no evaluation prompt has a judged answer of every arm"


@dataclass(frozen=True)
class EndToEndCell(DiagnosedCell):
    """One model, task and diagnostic, end to end on evaluation prompts."""

    chosen: bool
    """The axis that validation chose for this model and task."""
    fixed_name: str
    """The candidate that is best on validation states."""
    end_to_end_name: str
    """The candidate that is best end to end on validation prompts."""
    never: str
    """Why the gate never opens; empty if it may."""
    utility: Mapping[str, Estimate]
    """By arm of `DECODED_ARMS` and `CONTROLS`."""
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
    diagnostics: tuple[str, ...] = ()
    """One for each axis; left out where they are called so."""


@dataclass(frozen=True, kw_only=True)
class EndToEndMean(DiagnosedMean):
    """Mean over tasks, each counting the same: of one diagnostic, or of the one chosen for each task (`CHOSEN`)."""

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


@dataclass(frozen=True)
class Headline:
    """E4 in one row: each task on one axis, under one way to choose it."""

    by: str
    """`lift` or `opportunity`, on validation prompts."""
    revision: bool
    """Whether the revision extension of a decoder that has none was among the axes."""
    usual: bool
    """The way of the study's tables."""
    axes: Mapping[str, str]
    """Diagnostic by task."""
    mean: EndToEndMean


@dataclass(frozen=True)
class EndToEndFindings:
    """Everything the report says about decoding end to end."""

    cells: tuple[EndToEndCell, ...]
    joints: tuple[JointCell, ...]
    means: tuple[EndToEndMean, ...]
    missing: tuple[Missing, ...]
    gates: tuple[GateCell, ...] = ()
    """Other readings of the gate, where a study has them."""
    headlines: tuple[Headline, ...] = ()
    readings: tuple[ReadingMean, ...] = ()
    """Both readings of the paper and changes of them, where a study holds more than ours."""
    searches: tuple[SearchCell, ...] = ()

    def of(self, *, extension: bool) -> "EndToEndFindings":
        """The revision extension alone, or all but it."""
        return EndToEndFindings(
            tuple(cell for cell in self.cells if cell.extension == extension),
            () if extension else self.joints,
            tuple(mean for mean in self.means if mean.extension == extension),
            self.missing,
            tuple(cell for cell in self.gates if cell.extension == extension),
            () if extension else self.headlines,
            () if extension else self.readings,
            () if extension else self.searches,
        )


class _Resampling(NamedTuple):
    """Of the bootstrap."""

    seed: int
    resamples: int


class _Measured(NamedTuple):
    """A cell and the utilities behind it by arm, which means over tasks need again."""

    cell: EndToEndCell
    utility: Mapping[str, Array]


def end_to_end(store: Store, e1: OpportunityFindings, e23: DetectionFindings) -> EndToEndFindings | None:
    """What a study's decodes say; None where it decoded nothing end to end."""
    infos = unit_infos(store)
    if not infos:
        return None
    study = e1.manifest["study"]
    how = _Resampling(int(study["seed"]), e1.resamples)
    grids = evaluation_grids(store)
    calibrations = {cell.key: cell.raw.calibration for cell in e23.cells}
    reasons = {(lost.model, lost.task, lost.diagnostic): lost.reason for lost in e23.missing}
    axis_of = {cell.diagnostic: cell.axis for cell in e23.cells}
    axis_of |= {lost.diagnostic: lost.axis for lost in e23.missing}
    axis_of = dict(sorted(axis_of.items(), key=lambda pair: study["axes"].index(pair[1])))
    results: list[_Measured | JointCell | Missing] = []
    units: list[DecodedUnit] = []
    by = str(study.get("axis_by", AXIS_BY[0]))
    searches: list[SearchCell] = []
    for spec in study["models"]:
        for task in study["tasks"]:
            key = (spec["name"], task)
            if key not in infos:
                results += _not_decoded(key, axis_of, reasons)
                continue
            chosen = stored_choices(store, infos[key], calibrations)
            best = _best(spec["reference"], axis_of, chosen, by)
            about, held = infos[key], grids.get(key, {})
            unit = DecodedUnit(*key, spec["reference"], chosen, best, held, about["missing"], about["joint"])
            results += [*_cells(unit, axis_of, reasons, how), *_joint(unit, how)]
            units.append(unit)
            searches += search_cells(*key, about.get("searches", {}), held.get(SEARCH), **how._asdict())
    measured = [result for result in results if isinstance(result, _Measured)]
    return EndToEndFindings(
        cells=tuple(one.cell for one in measured),
        joints=tuple(result for result in results if isinstance(result, JointCell)),
        means=tuple(_means(measured, study["models"], study["tasks"], axis_of, how)),
        missing=tuple(result for result in results if isinstance(result, Missing)),
        gates=tuple(cell for unit in units for cell in gate_cells(unit, **how._asdict())),
        headlines=tuple(_headlines(measured, units, axis_of, study["tasks"], by, how)),
        readings=tuple(reading_means(units, **how._asdict())) if _several(units) else (),
        searches=tuple(searches),
    )


def _several(units: Sequence[DecodedUnit]) -> bool:
    """Whether there is more to read than one diagnostic of each axis behind one gate."""
    choices = [one for unit in units for one in unit.chosen.values()]
    axes = [len({one.axis for one in unit.chosen.values()}) < len(unit.chosen) for unit in units]
    return any(axes) or any(one.gates for one in choices)


def _not_decoded(
    key: tuple[str, str], axis_of: Mapping[str, str], reasons: Mapping[tuple[str, str, str], str]
) -> Iterator[Missing]:
    for name, axis in axis_of.items():
        yield Missing(*key, axis, reasons.get((*key, name), "not decoded end to end yet"), name)


def _best(
    reference: str,
    axis_of: Mapping[str, str],
    chosen: Mapping[str, StoredChoice],
    by: str,
    revision: bool = False,
) -> str | None:
    """Of the axes that the reference's decoder has, and with `revision` of its extension, too."""
    names = [n for n in axis_of if n in chosen and (revision or not is_extension(reference, axis_of[n]))]
    return choose_axis({name: (chosen[name].lift, chosen[name].opportunity) for name in names}, by)


def _headlines(
    measured: Sequence[_Measured],
    units: Sequence[DecodedUnit],
    axis_of: Mapping[str, str],
    tasks: Sequence[str],
    usual: str,
    how: _Resampling,
) -> Iterator[Headline]:
    """Every way to choose the axis, for every model; with the revision extension where that is one."""
    at = {one.cell.key: one for one in measured}
    for model in dict.fromkeys(unit.model for unit in units):
        of_model = [unit for unit in units if unit.model == model]
        extends = any(is_extension(u.reference, axis_of[name]) for u in of_model for name in u.chosen)
        for by, revision in product(AXIS_BY, (False, True) if extends else (False,)):
            best = {u.task: _best(u.reference, axis_of, u.chosen, by, revision) for u in of_model}
            axes = {task: name for task, name in best.items() if name is not None and (model, task, name) in at}
            if axes:
                group = [at[model, task, name] for task, name in axes.items()]
                mean = _mean(CHOSEN, CHOSEN, group, tasks, how)
                yield Headline(by, revision, by == usual and not revision, axes, mean)


# Cells


def _cells(
    unit: DecodedUnit,
    axis_of: Mapping[str, str],
    reasons: Mapping[tuple[str, str, str], str],
    how: _Resampling,
) -> Iterator[_Measured | Missing]:
    key = (unit.model, unit.task)
    for name, axis in axis_of.items():
        grid = unit.grids.get(name)
        if name not in unit.chosen or grid is None:
            why = unit.missing.get(name) or reasons.get((*key, name), "no evaluation prompt was decoded")
            yield Missing(*key, axis, why, name)
            continue
        lost = [arm for arm in (*DECODED_ARMS, *CONTROLS) if arm not in grid.utility]
        if lost:
            raise SchemaError(
                f"decodes of {', '.join((*key, name))} have no arm {', '.join(lost)}; allowed: all of them; remove the "
                "folder of their unit and run the study"
            )
        used_P = grid.judged((*DECODED_ARMS, *CONTROLS))
        if not used_P.any():
            yield Missing(*key, axis, _NO_PROMPT, name)
            continue
        yield _cell(unit, name, grid, used_P, how)


def _cell(unit: DecodedUnit, name: str, grid: ArmGrid, used_P: np.ndarray, how: _Resampling) -> _Measured:
    used = grid.select(used_P, {arm: arm for arm in (*DECODED_ARMS, *CONTROLS)})
    utility, difference = paired_estimates({unit.task: used}, tuple(used), DIFFERENCES, **how._asdict())
    gain_P = used["selective"] - used["fixed"]
    calibration = unit.chosen[name].calibration
    cell = EndToEndCell(
        model=unit.model,
        task=unit.task,
        axis=unit.chosen[name].axis,
        reference=unit.reference,
        diagnostic=name,
        chosen=name == unit.best,
        fixed_name=calibration.candidates[calibration.fixed.action],
        end_to_end_name=unit.chosen[name].end_to_end,
        never=calibration.tau.reason if calibration.tau.value is None else "",
        utility=utility,
        difference=difference,
        coverage={arm: gate_coverage(grid.steps[arm][used_P]) for arm in GATED},
        wins=int((gain_P > TIE).sum()),
        losses=int((gain_P < -TIE).sum()),
        ties=int((np.abs(gain_P) <= TIE).sum()),
        prompts=int(used_P.sum()),
        unjudged=int((~used_P).sum()),
        out_of_fold=calibration.tau.out_of_fold,
    )
    return _Measured(cell, used)


def _joint(unit: DecodedUnit, how: _Resampling) -> Iterator[JointCell | Missing]:
    grid, about = unit.grids.get(JOINT), unit.joint
    if grid is None or about is None or unit.best is None:
        return
    beside = unit.grids[unit.best]
    selective = dict(zip(beside.prompts, beside.utility["selective"].tolist(), strict=True))
    selective_P = np.array([selective.get(prompt, nan) for prompt in grid.prompts])
    whole = replace(grid, utility={**grid.utility, "selective": selective_P})
    used_P = whole.judged(_JOINT_ARMS)
    if not used_P.any():
        yield Missing(unit.model, unit.task, JOINT, _NO_PROMPT)
        return
    by_arm = whole.select(used_P, {arm: arm for arm in _JOINT_ARMS})
    utility, difference = paired_estimates({unit.task: by_arm}, _JOINT_ARMS, _JOINT_DIFFERENCES, **how._asdict())
    used = [prompt for prompt, is_used in zip(grid.prompts, used_P, strict=True) if is_used]
    gates = {
        axis: np.array([[nan if n is None else n for n in counts[prompt]] for prompt in used], dtype=np.float64)
        for axis, counts in about["gates"].items()
    }
    yield JointCell(
        model=unit.model,
        task=unit.task,
        reference=unit.reference,
        axes=tuple(about["axes"]),
        diagnostics=tuple(about.get("diagnostics", ())),
        utility=utility,
        difference=difference,
        coverage={axis: gate_coverage(gates[axis]) for axis in about["axes"]},
        prompts=int(used_P.sum()),
        unjudged=int((~used_P).sum()),
    )


# Means over tasks


def _means(
    measured: Sequence[_Measured],
    models: Sequence[Mapping[str, Any]],
    tasks: Sequence[str],
    axis_of: Mapping[str, str],
    how: _Resampling,
) -> Iterator[EndToEndMean]:
    for spec in models:
        of_model = [one for one in measured if one.cell.model == spec["name"]]
        if chosen := [one for one in of_model if one.cell.chosen]:
            yield _mean(CHOSEN, CHOSEN, chosen, tasks, how)
        for name, axis in axis_of.items():
            if group := [one for one in of_model if one.cell.diagnostic == name]:
                yield _mean(axis, name, group, tasks, how)


def _mean(axis: str, name: str, group: Sequence[_Measured], tasks: Sequence[str], how: _Resampling) -> EndToEndMean:
    cells = [one.cell for one in group]
    by_task = {one.cell.task: one.utility for one in group}
    utility, difference = paired_estimates(by_task, (*DECODED_ARMS, *CONTROLS), DIFFERENCES, **how._asdict())
    gains = [cell.difference["selective", "fixed"] for cell in cells]
    shares = [share for cell in cells if isfinite(share := cell.coverage["selective"])]
    lost = [task for task in tasks if task not in {cell.task for cell in cells}]
    return EndToEndMean(
        model=cells[0].model,
        reference=cells[0].reference,
        axis=axis,
        diagnostic=name,
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
