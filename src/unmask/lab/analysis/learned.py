"""E3 with a learned detector beside the bins of one signal: the same states, proposals, controls and resampled prompts.

Only for studies that ask for it. All that the detector reads of a state is known before acting: every diagnostic's
reading, how far the run is, how sure the prediction. Which numbers there are is settled by validation states.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite, nan
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from unmask.lab.analysis.load import ALL_AXES, MEAN, Row, StudyFrames, missing_row, result_rows
from unmask.lab.analysis.steps import DiagnosedSetting, Diagnostics, describe_partial_tasks, threshold_numbers
from unmask.lab.store.schemas import SUMMARY
from unmask.lab.study import ROLES
from unmask.lab.study.validation import StateKey
from unmask.stats import COVERAGES, NotEnough, estimate_measures
from unmask.stats.measures import compare_detectors, count_prompts, mean_detector_comparison, why_few_positive

ABSTAINED = "abstained"
CONTROLS = ("concentration", "random_captured", "random_lift", "oracle_lift")
"""Measures at a coverage that do not depend on the detector."""


# Numbers of a state that are known before acting


class StateFeatures(NamedTuple):
    """Inputs of the learned detector: numbers of each state of one model, task and role, known before acting."""

    names: Mapping[str, Sequence[str]]
    """Names of the terms of each diagnostic's readings, without its own name."""
    by_state: Mapping[StateKey, Mapping[str, float]]
    """Numbers by name; a term's begins with the name of its diagnostic."""


def state_features(readings: Mapping[str, Mapping[StateKey, Row]]) -> StateFeatures:
    """Collect the inputs of the learned detector for every state from the stored readings."""
    names: dict[str, Sequence[str]] = {}
    features: dict[StateKey, dict[str, float]] = {}
    for name, by_state in readings.items():
        of_diagnostic: dict[str, None] = {}
        for key, row in by_state.items():
            terms = reading_terms(row)
            of_diagnostic |= dict.fromkeys(terms)
            # The summary of the prediction is the same in the readings of all diagnostics.
            numbers = features.setdefault(key, {column: finite_or_nan(row[column]) for column, _ in SUMMARY})
            numbers |= {f"{name}: {term}": value for term, value in terms.items()}
        names[name] = tuple(of_diagnostic)
    return StateFeatures(names, features)


def reading_terms(row: Row) -> dict[str, float]:
    """Return the signal of one reading, whether it abstained, and the terms behind the signal."""
    terms = {"signal": finite_or_nan(row["signal"]), ABSTAINED: float(row["abstained"])}
    for name, value in sorted(json.loads(row["ingredients"]).items()):
        # The last letters of a name say what its axes are: rules (J) are taken one by one, of a matrix of rules its
        # diagonal, and positions and counts as their mean, least and most, so that every state has the same numbers.
        stem, _, axes = name.rpartition("_")
        if not isinstance(value, list):
            terms[stem] = finite_or_nan(value)
        elif axes.endswith("J"):
            rules = [x[at] for at, x in enumerate(value)] if axes.endswith("JJ") else value
            terms |= {f"{stem} {at}": finite_or_nan(x) for at, x in enumerate(rules)}
        else:
            known = [x for x in map(finite_or_nan, value) if isfinite(x)] or [nan]
            terms |= {f"{stem} mean": float(np.mean(known)), f"{stem} least": min(known), f"{stem} most": max(known)}
    return terms


def finite_or_nan(value: Any) -> float:
    """Convert to a float, with NaN in place of None and infinities."""
    number = nan if value is None else float(value)
    return number if isfinite(number) else nan


def feature_names(features: StateFeatures, own: str) -> list[str]:
    """List the inputs of the detector of diagnostic `own`, without the signal of `own` itself."""
    names = ["masked share", "step share", *(column for column, _ in SUMMARY)]
    for name, terms in features.names.items():
        # The own signal is an input already, and where the own diagnostic abstains nothing is predicted.
        names += [f"{name}: {term}" for term in terms if name != own or term not in ("signal", ABSTAINED)]
    return names


# Both detectors, setting by setting


def analyse_learned(study: StudyFrames, diagnostics: Diagnostics, resamples: int) -> list[Row]:
    """Compare the learned detector with the binned one on every diagnosed setting; no rows unless the study asks."""
    if not study.config.get("learned", False):
        return []
    rows: list[Row] = []
    missing: list[Row] = []
    frames: dict[tuple[str, str, str], pd.DataFrame] = {}
    features: dict[tuple[str, str], tuple[StateFeatures, ...]] = {}
    for one in diagnostics.settings:
        key = (one.model, one.task)
        if key not in features:
            features[key] = tuple(state_features(_readings_by_diagnostic(study, *key, role)) for role in ROLES)
        try:
            numbers, frames[one.model, one.task, one.diagnostic] = _compare_in_setting(
                study, one, features[key], resamples
            )
        except NotEnough as error:
            missing.append(missing_row("learned", one.model, one.task, one.axis, str(error), one.diagnostic))
            continue
        where = {"experiment": "learned", "model": one.model, "task": one.task, "axis": one.axis}
        rows += result_rows({**where, "diagnostic": one.diagnostic}, numbers)
    settings = [one for one in diagnostics.settings if (one.model, one.task, one.diagnostic) in frames]
    return [*rows, *_mean_rows(study, settings, frames, missing, resamples), *missing]


def _readings_by_diagnostic(study: StudyFrames, model: str, task: str, role: str) -> dict[str, Mapping[StateKey, Row]]:
    """Collect the readings of a model and task by diagnostic, over all axes, in the order of the table."""
    tables = [rows for key, rows in study.readings.items() if (key[0], key[1], key[3]) == (model, task, role)]
    return {name: by_state for rows in tables for name, by_state in rows.items()}


def _compare_in_setting(
    study: StudyFrames, one: DiagnosedSetting, features: Sequence[StateFeatures], resamples: int
) -> tuple[dict[Any, Any], pd.DataFrame]:
    """Fit the learned detector of one setting on validation states, and compare both detectors on held-out ones."""
    # Loading scikit-learn takes a second, which reports of other studies need not wait for.
    from unmask.stats.learned import fit_learned

    validation, held_out = study.state_sets(one.model, one.task, one.axis, one.diagnostic)
    names = feature_names(features[0], one.diagnostic)
    inputs = []
    for role, states, known in zip(ROLES, (validation, held_out), features, strict=True):
        table, steps = study.utilities[one.model, one.task, one.axis, role], study.config["steps"][one.task]
        keys = zip(table.prompt_S, table.state_S.tolist(), strict=True)
        rows = [
            {**known.by_state.get(key, {}), "masked share": masked, "step share": step / steps}
            for key, masked, step in zip(keys, states.masked_S, table.step_S, strict=True)
        ]
        inputs.append(pd.DataFrame(rows).reindex(columns=names))
    detector = fit_learned(validation, inputs[0], one.calibration.fixed.action, one.calibration.settings)
    # The frame has the used states only; a state of a prompt is found by its place.
    predicted = pd.Series(detector.predict(held_out.signal_S, inputs[1]), index=[held_out.prompt_S, held_out.place_S])
    learned_S = predicted.loc[pd.MultiIndex.from_frame(one.frame[["prompt", "place"]])].to_numpy()
    frame = one.frame.assign(
        learned=learned_S, learned_opens=detector.tau.is_reached(learned_S) & one.frame["proposes"]
    )
    estimates = estimate_measures(
        lambda weight_DS: compare_detectors(frame, weight_DS), frame["prompt"], seed=study.seed, resamples=resamples
    )
    never = one.calibration.tau
    numbers: dict[Any, Any] = {
        **_move_arm_second(estimates),
        **{(name, c): one.measures[name, c] for name in CONTROLS for c in COVERAGES},
        **{("weight", at): weight for at, (_, weight) in enumerate(detector.sorted_weights(), 1)},
        **{("weight_column", at): column for at, (column, _) in enumerate(detector.sorted_weights(), 1)},
        **threshold_numbers("tau", detector.tau),
        "tau_out_of_fold": detector.tau.out_of_fold,
        "penalty": detector.penalty,
        "validation_states": detector.states,
        "validation_prompts": detector.prompts,
        "bins_never": never.reason if never.value is None else "",
        "positive_prompts": one.measures.positive_prompts,
        "unreliable": one.measures.why_unreliable,
        "partial": one.partial,
        "settings": 1,
    }
    return numbers, frame


def _move_arm_second(estimates: Mapping[tuple[str, str, Any], Any]) -> dict[Any, Any]:
    """Reorder keys from (arm, measure, at) to (measure, arm, at); arms are the detectors and their difference."""
    return {(measure, detector, at): estimate for (detector, measure, at), estimate in estimates.items()}


def _mean_rows(
    study: StudyFrames,
    settings: Sequence[DiagnosedSetting],
    frames: Mapping[tuple[str, str, str], pd.DataFrame],
    missing: Sequence[Row],
    resamples: int,
) -> Iterator[Row]:
    """Yield means over tasks for every diagnostic, then for all axes of the model's own decoder together."""
    for model in dict.fromkeys(one.model for one in settings):
        own = [one for one in settings if one.model == model]
        groups = {(one.axis, one.diagnostic): [x for x in own if x.diagnostic == one.diagnostic] for one in own}
        groups |= {(ALL_AXES, ALL_AXES): [one for one in own if not study.extends(model, one.axis)]}
        for (axis, name), group in groups.items():
            if not group:
                continue
            by_task: dict[str, list[pd.DataFrame]] = {}
            for one in group:
                by_task.setdefault(one.task, []).append(frames[model, one.task, one.diagnostic])
            lost = [row["task"] for row in missing if row["model"] == model and row["diagnostic"] == name]
            if axis == ALL_AXES:
                lost = sorted({row["task"] for row in missing if row["model"] == model})
            part = list(dict.fromkeys(one.task for one in group if one.partial))
            prompts = np.concatenate([[f"{one.task}/{prompt}" for prompt in one.frame["prompt"]] for one in group])
            positive, count = count_prompts(prompts, np.concatenate([one.frame["oracle"] for one in group]))
            numbers = {
                **_move_arm_second(mean_detector_comparison(by_task, seed=study.seed, resamples=resamples)),
                "tasks": len(by_task),
                "settings": len(group),
                "positive_prompts": positive,
                "unreliable": why_few_positive(positive, count),
                "partial": describe_partial_tasks(lost, part, some="some of "),
            }
            where = {"experiment": "learned", "model": model, "task": MEAN, "axis": axis, "diagnostic": name}
            yield from result_rows(where, numbers)
