"""E3 with a learned detector beside the bins of one signal: the same states, proposals, controls and resampled prompts.

Only for studies that ask for it. All fitting is on validation prompts, by `stats.learned`; `stats.measures` compares.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from unmask.base.errors import SchemaError
from unmask.lab.analysis.cells import DiagnosedCell, OfDiagnostic
from unmask.lab.analysis.detection import DetectionCell, DetectionFindings, states_by_role
from unmask.lab.analysis.features import ReadStates, feature_frame, feature_names, read_states
from unmask.lab.choose import Missing, Row, StateKey
from unmask.lab.store import Store, Utilities, parts, utilities_of
from unmask.lab.store.schemas import FIRST_STEP, SUMMARY
from unmask.lab.study import ROLES
from unmask.stats import RESAMPLES, Estimate, NotEnough, estimate_measures
from unmask.stats.measures import Measures, compare_detectors, count_prompts, few_positive, mean_comparison
from unmask.stats.protocol import require_apart

if TYPE_CHECKING:
    from unmask.stats.learned import LearnedDetector

_UNREAD = ("reason", "answer", *FIRST_STEP)
"""Columns of readings that are long and say nothing here."""
ComparedKey = tuple[str, str, Any]
"""A detector, or `difference` (learned less bins); a measure; a coverage, or ""."""
EVERY = "all"
"""In the place of an axis: the mean over all diagnosed ones."""


@dataclass(frozen=True)
class LearnedCell(DiagnosedCell):
    """One model, task and diagnostic under both detectors, with the diagnostic's own actions."""

    numbers: Mapping[ComparedKey, Estimate]
    controls: Measures
    """Measures of the bins: random states, an oracle gate and C* are the same whoever ranks."""
    detector: "LearnedDetector" = field(repr=False)
    bins_never: str
    """Why the bins' gate never opens; empty if it may."""
    frame: pd.DataFrame = field(repr=False)
    """The held-out states, with what the learned detector says of them."""
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
    numbers: Mapping[ComparedKey, Estimate]
    unreliable: str
    partial: str


@dataclass(frozen=True)
class LearnedFindings:
    """What is to be said about the learned detector."""

    cells: tuple[LearnedCell, ...]
    means: tuple[LearnedMean, ...]
    """Of every diagnostic; then, under the axis `EVERY`, of all that the native decoder has."""
    missing: tuple[Missing, ...]

    def of(self, *, extension: bool) -> "LearnedFindings":
        """The revision extension alone, or all but it."""
        cells = tuple(cell for cell in self.cells if cell.extension == extension)
        means = tuple(mean for mean in self.means if mean.extension == extension)
        return LearnedFindings(cells, means, self.missing)


def learn(store: Store, detection: DetectionFindings, *, resamples: int = RESAMPLES) -> LearnedFindings | None:
    """None where the study does not ask for it."""
    study = store.manifest["study"]
    if not study.get("learned", False):
        return None
    table, keys = store.read_arrow("readings"), ("model", "task", "split")
    _check_summaries(table)
    readings = dict(parts(table.drop_columns(_UNREAD), keys))
    columns = ("step", "masked", "is_reference", "utility")
    branches = dict(parts(store.read_arrow("branches", columns), (*keys, "axis")))
    results: list[LearnedCell | Missing] = []
    draws = {"seed": int(study["seed"]), "resamples": resamples}
    for model, task in dict.fromkeys((cell.model, cell.task) for cell in detection.cells):
        # Rows of one model and task at a time: ingredients are long.
        read = {role: _read(readings[model, task, role]) for role in ROLES}
        for cell in detection.cells:
            if (cell.model, cell.task) == (model, task):
                utilities = {role: utilities_of(branches[model, task, role, cell.axis]) for role in ROLES}
                results.append(_cell(cell, utilities, read, study["steps"][task], draws))
    cells = tuple(result for result in results if isinstance(result, LearnedCell))
    missing = tuple(result for result in results if isinstance(result, Missing))
    return LearnedFindings(cells, tuple(_means(cells, missing, draws)), missing)


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
    draws: Mapping[str, int],
) -> LearnedCell | Missing:
    # Loading scikit-learn takes a second, which reports of other studies need not wait for.
    from unmask.stats.learned import fit_learned

    rows = {role: one.rows[cell.diagnostic] for role, one in read.items()}
    validation, held_out = states_by_role(cell.axis, cell.reference, utilities, rows)
    require_apart(validation, held_out)
    names, chosen = feature_names(read["validation"].numbers, cell.diagnostic), cell.raw.calibration
    features = {
        role: feature_frame(read[role].numbers, names, utilities[role], states.masked_S, steps)
        for role, states in zip(ROLES, (validation, held_out), strict=True)
    }
    try:
        detector = fit_learned(validation, features["validation"], chosen.fixed.action, chosen.settings)
    except NotEnough as error:
        return Missing(cell.model, cell.task, cell.axis, str(error), cell.diagnostic)
    frame = cell.raw.frame
    # The frame has the used states only; a state of a prompt is told by its place.
    predicted = pd.Series(
        detector.predict(held_out.signal_S, features["evaluation"]), index=[held_out.prompt_S, held_out.place_S]
    )
    learned_S = predicted.loc[pd.MultiIndex.from_frame(frame[["prompt", "place"]])].to_numpy()
    frame = frame.assign(learned=learned_S, learned_opens=detector.tau.active(learned_S) & frame["proposes"])
    return LearnedCell(
        model=cell.model,
        task=cell.task,
        axis=cell.axis,
        reference=cell.reference,
        diagnostic=cell.diagnostic,
        numbers=estimate_measures(lambda weight_DS: compare_detectors(frame, weight_DS), frame["prompt"], **draws),
        controls=cell.raw.measures,
        detector=detector,
        bins_never=chosen.tau.reason if chosen.tau.value is None else "",
        frame=frame,
        unreliable=cell.raw.measures.unreliable,
        partial=cell.partial,
    )


# Means over tasks


def _means(cells: Sequence[LearnedCell], missing: Sequence[Missing], draws: Mapping[str, int]) -> Iterator[LearnedMean]:
    for model in dict.fromkeys(c.model for c in cells):
        of_model = [c for c in cells if c.model == model]
        for name in dict.fromkeys(c.diagnostic for c in of_model):
            group = [c for c in of_model if c.diagnostic == name]
            lost = [m.task for m in missing if (m.model, m.diagnostic) == (model, name)]
            yield _mean(group, group[0].axis, name, lost, draws)
        if native := [c for c in of_model if not c.extension]:
            lost = sorted({m.task for m in missing if m.model == model})
            yield _mean(native, EVERY, EVERY, lost, draws)


def _mean(
    cells: Sequence[LearnedCell], axis: str, diagnostic: str, lost: Sequence[str], draws: Mapping[str, int]
) -> LearnedMean:
    frames: dict[str, list[pd.DataFrame]] = {}
    for cell in cells:
        frames.setdefault(cell.task, []).append(cell.frame)
    part = list(dict.fromkeys(c.task for c in cells if c.partial))
    remarks = [f"without some of {', '.join(lost)}"] * bool(lost) + [f"part of {', '.join(part)}"] * bool(part)
    return LearnedMean(
        model=cells[0].model,
        axis=axis,
        reference=cells[0].reference,
        diagnostic=diagnostic,
        tasks=tuple(frames),
        settings=len(cells),
        numbers=mean_comparison(frames, **draws),
        unreliable=_unreliable(cells),
        partial="; ".join(remarks),
    )


def _unreliable(cells: Sequence[LearnedCell]) -> str:
    """As of one setting, over the prompts of all tasks."""
    everyone = [f"{c.task}/{prompt}" for c in cells for prompt in c.frame["prompt"]]
    return few_positive(*count_prompts(everyone, np.concatenate([c.frame["oracle"] for c in cells])))
