"""E1 to E3 and the policy axis: what one step could gain, whether a signal says where, and what acting on it gains.

Everything is chosen on validation prompts and measured on evaluation prompts: the fixed action, then for each
diagnostic its bins and thresholds, then the numbers of states that chose nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from unmask.axes import POLICY
from unmask.base.errors import SchemaError
from unmask.lab.analysis.load import MEAN, MISSING, Row, StudyFrames, missing_row, result_rows
from unmask.lab.store import Utilities
from unmask.lab.study import ROLES
from unmask.stats import (
    Array,
    Calibration,
    FixedAction,
    NotEnough,
    Threshold,
    estimate_measures,
    fit_schedule,
    weighted_mean,
    zero_rounding,
)
from unmask.stats.measures import (
    Measures,
    Opportunity,
    OpportunityStates,
    count_prompts,
    mean_detection,
    measure_detection,
    measure_opportunity,
    prepare_opportunity_states,
    why_few_positive,
    why_ranking_missing,
)
from unmask.stats.protocol import (
    PROPOSALS,
    LeakageError,
    choose_fixed,
    cross_fit,
    fit_calibration,
    held_out_frame,
    masked_share,
    mean_over_rollouts,
)

RANKINGS = {
    "auroc": ("auroc", ""),
    "spearman": ("spearman", ""),
    "captured_10": ("captured", 0.1),
    "efficiency_10": ("efficiency", 0.1),
    "lift_10": ("ranked_lift", 0.1),
    "theta_lift_10": ("theta_lift", 0.1),
}
"""Measures of ranking (E3) whose means over tasks have no interval: name of the mean, key of the measure."""
METHOD_ARMS = ("reference", "fixed", "stage", "oracle")
METHOD_PAIRS = (("fixed", "reference"), ("stage", "fixed"), ("oracle", "fixed"))
ARMS_ALONG_RUN = ("fixed", "always", "selective", "oracle")
"""Arms whose utility is shown for each state along the run."""


def pair_name(one: str, other: str) -> str:
    """Build the name of the difference of two arms."""
    return f"{one} - {other}"


def describe_partial_tasks(without: Sequence[str], part: Sequence[str], some: str = "") -> str:
    """Describe which tasks a mean over tasks lacks or has only a part of; empty if it is complete."""
    remarks = [f"without {some}{', '.join(without)}"] * bool(without) + [f"part of {', '.join(part)}"] * bool(part)
    return "; ".join(remarks)


# E1


def analyse_opportunity(study: StudyFrames, resamples: int) -> list[Row]:
    """Compute the opportunity (E1) of every model, task and axis, and of the mean over tasks."""
    settings: list[tuple[tuple[str, str], list[Row]]] = []
    means: list[Row] = []
    missing: list[Row] = []
    for model in study.references:
        for axis in study.config["axes"]:
            fixed: dict[str, FixedAction] = {}
            states: dict[str, OpportunityStates] = {}
            reasons: dict[str, str] = {}
            for task in study.config["tasks"]:
                if reason := study.why_absent(model, task, axis):
                    missing.append(missing_row("opportunity", model, task, axis, reason))
                    continue
                validation, held_out = (study.utilities[model, task, axis, role] for role in ROLES)
                try:
                    fixed[task] = choose_fixed(validation.utility_SAR, reference=0)
                except NotEnough:
                    reasons[task] = (
                        "no validation state has a judged answer of every candidate, so no fixed action can be chosen"
                    )
                    continue
                # Chosen on validation states alone; from here on these are looked at no more.
                states[task] = _opportunity_states(held_out, fixed[task])
            for task in states:
                if not states[task].fit.used_S.any():
                    reasons[task] = "no evaluation state has a judged answer of the fixed action"
            missing += [missing_row("opportunity", model, task, axis, reason) for task, reason in reasons.items()]
            measured = [task for task in states if task not in reasons]
            for task in measured:
                rows = _opportunity_setting_rows(study, (model, task, axis), fixed[task], states[task], resamples)
                settings.append(((model, task), list(rows)))
            if measured:
                lost = [row["task"] for row in missing if (row["model"], row["axis"]) == (model, axis)]
                part = [task for task in measured if study.unfinished_by_task[model, task]]
                where = {"experiment": "opportunity", "model": model, "task": MEAN, "axis": axis}
                # A task without a usable state weighs nothing in the mean.
                _, numbers = _opportunity_by_stage(states, study.seed, resamples)
                means += result_rows(
                    where, {**numbers, "tasks": len(measured), "partial": describe_partial_tasks(lost, part)}
                )
    order = [(model, task) for model in study.references for task in study.config["tasks"]]
    settings.sort(key=lambda entry: order.index(entry[0]))
    return [*(row for _, rows in settings for row in rows), *means, *missing]


def _opportunity_states(held_out: Utilities, fixed: FixedAction) -> OpportunityStates:
    """Prepare the held-out states of a task for `measure_opportunity`."""
    return prepare_opportunity_states(
        held_out.utility_SAR,
        held_out.prompt_S,
        masked_share(held_out.prompt_S, held_out.masked_S),
        fixed,
        reference=0,
        # One rollout is all there can be: what draws has been left out.
        deterministic=held_out.utility_SAR.shape[2] == 1,
    )


def _opportunity_setting_rows(
    study: StudyFrames, key: tuple[str, str, str], fixed: FixedAction, states: OpportunityStates, resamples: int
) -> Iterator[Row]:
    """Yield rows with the opportunity of one model, task and axis, and with the choices of validation."""
    model, task, axis = key
    held_out = study.utilities[model, task, axis, "evaluation"]
    names = held_out.candidates
    where = {"experiment": "opportunity", "model": model, "task": task, "axis": axis}
    numbers: dict[str, Any] = {
        "fixed": names[fixed.action],
        "is_reference": fixed.action == 0,
        "fixed_utility": states.fit.fixed_utility,
        "validation_states": fixed.states,
        "partial": study.unfinished_by_task[model, task],
    }
    overall, measured = _opportunity_by_stage({task: states}, study.seed, resamples)
    yield from result_rows(where, {**numbers, **measured})
    pairs = [pair for name, pair in overall.estimates if name == "pairwise"]
    for a, b in sorted(pairs, key=lambda pair: (pair[1], pair[0])):
        yield from result_rows({**where, "at": f"{names[a]} ⇄ {names[b]}"}, {"pairwise": overall["pairwise", (a, b)]})
    for name, pair in (("pair", overall.pair), ("pairwise_pair", overall.largest_pair)):
        yield from result_rows(where, {} if pair is None else {name: f"{names[pair[0]]} ⇄ {names[pair[1]]}"})
    if overall.largest_pair is not None:
        yield from result_rows(where, {"largest_pairwise": overall["pairwise", overall.largest_pair]})
    if overall.noisy:
        # Only where rollouts differ is there anything to bracket.
        low, high = overall.delta_bounds
        yield from result_rows(where, {"bracket_low": low, "bracket_high": high})


def _opportunity_by_stage(
    states: Mapping[str, OpportunityStates], seed: int, resamples: int
) -> tuple[Opportunity, dict[Any, Any]]:
    """Estimate the opportunity of some tasks, each counting the same, over all states and over each stage."""
    overall = measure_opportunity(states, seed=seed, resamples=resamples)
    numbers: dict[Any, Any] = {key: x for key, x in overall.estimates.items() if key[0] != "pairwise"}
    numbers |= _count_opportunity(overall)
    for stage in np.unique(np.concatenate([one.stage_S for one in states.values()])).tolist():
        part = measure_opportunity(states, stage=stage, seed=seed, resamples=resamples)
        numbers |= {(name, stage): part[name] for name in ("delta", "positive_rate", "margin")}
        numbers |= {(name, stage): value for name, value in _count_opportunity(part).items()}
    return overall, numbers


def _count_opportunity(measures: Opportunity) -> dict[str, Any]:
    """Collect the counts behind measures of opportunity, and the reason why intervals are unreliable."""
    counts = ("states", "excluded", "prompts", "positive_prompts", "same", "noisy", "crossfitted")
    return {name: getattr(measures, name) for name in counts} | {"unreliable": measures.why_unreliable}


# E2 and E3


class DiagnosedSetting(NamedTuple):
    """Calibration, frame and measures of one model, task and diagnostic, for E4 and the learned detector."""

    model: str
    task: str
    axis: str
    diagnostic: str
    calibration: Calibration
    frame: pd.DataFrame
    measures: Measures
    partial: str


class Diagnostics(NamedTuple):
    """Rows of findings about diagnostics (E2, E3), and the settings behind them."""

    rows: list[Row]
    settings: list[DiagnosedSetting]


def analyse_diagnostics(study: StudyFrames, opportunity: Sequence[Row], resamples: int, draws: int) -> Diagnostics:
    """Measure every diagnostic (E2, E3) on the axes whose opportunity could be measured."""
    rows: list[Row] = []
    settings: list[DiagnosedSetting] = []
    missing = [
        {**row, "experiment": "diagnostics", "diagnostic": name}
        for row in opportunity
        if row["measure"] == MISSING and row["axis"] in study.diagnosed_axes
        for name in study.diagnostics[row["axis"]]
    ]
    frames: dict[tuple[str, str, str, str], dict[str, pd.DataFrame]] = {}
    plain: dict[tuple[str, str, str, str], list[Measures]] = {}
    keys = [(row["model"], row["task"], row["axis"]) for row in opportunity if row["measure"] == "fixed"]
    for model, task, axis in (key for key in keys if key[2] in study.diagnosed_axes):
        for name in study.diagnostics[axis]:
            try:
                outcomes = _diagnose_setting(study, (model, task, axis), name, resamples, draws)
            except NotEnough as error:
                missing.append(missing_row("diagnostics", model, task, axis, str(error), name))
                continue
            partial = study.unfinished_by_task[model, task]
            where = {"experiment": "diagnostics", "model": model, "task": task, "axis": axis, "diagnostic": name}
            for proposal, (calibration, frame, measures) in outcomes.items():
                facts = {**_setting_numbers(calibration, frame, measures), "partial": partial}
                facts["prompts"] = len(set(study.utilities[model, task, axis, "evaluation"].prompt_S))
                rows += result_rows({**where, "proposal": proposal}, facts)
                frames.setdefault((model, axis, name, proposal), {})[task] = frame
                plain.setdefault((model, axis, name, proposal), []).append(measures)
            settings.append(DiagnosedSetting(model, task, axis, name, *outcomes["raw"], partial))
    for (model, axis, name, proposal), by_task in frames.items():
        lost = [row["task"] for row in missing if (row["model"], row["diagnostic"]) == (model, name)]
        part = [task for task in by_task if study.unfinished_by_task[model, task]]
        where = {"experiment": "diagnostics", "model": model, "task": MEAN, "axis": axis, "diagnostic": name}
        numbers: dict[Any, Any] = dict(mean_detection(by_task, seed=study.seed, resamples=resamples))
        for ranking, key in RANKINGS.items():
            values = [m[key].value for m in plain[model, axis, name, proposal] if isfinite(m[key].value)]
            numbers[ranking] = float(np.mean(values)) if values else None
            numbers[f"{ranking}_tasks"] = len(values)
        prompts = np.concatenate([[f"{task}/{prompt}" for prompt in one["prompt"]] for task, one in by_task.items()])
        gains = np.concatenate([one["oracle"] for one in by_task.values()])
        numbers |= {"tasks": len(by_task), "partial": describe_partial_tasks(lost, part)}
        numbers["unreliable"] = why_few_positive(*count_prompts(prompts, gains))
        rows += result_rows({**where, "proposal": proposal}, numbers)
    return Diagnostics([*rows, *missing], settings)


def _diagnose_setting(
    study: StudyFrames, key: tuple[str, str, str], name: str, resamples: int, draws: int
) -> dict[str, tuple[Calibration, pd.DataFrame, Measures]]:
    """Calibrate one diagnostic on validation states and measure it on held-out ones, for each kind of proposal."""
    try:
        validation, held_out = study.state_sets(*key, name)
    except LeakageError as error:
        raise SchemaError(
            f"{', '.join(key)}: {error}; allowed: splits without a common prompt; run it again"
        ) from error
    outcomes = {}
    for proposal in PROPOSALS:
        calibration = fit_calibration(validation, study.settings.with_changes(proposal=proposal))
        frame = held_out_frame(held_out, calibration)
        excluded = len(held_out) - len(frame)
        measures = measure_detection(frame, excluded=excluded, seed=study.seed, resamples=resamples, draws=draws)
        outcomes[proposal] = (calibration, frame, measures)
    return outcomes


def _setting_numbers(calibration: Calibration, frame: pd.DataFrame, measures: Measures) -> dict[Any, Any]:
    """Collect the numbers of one setting and proposal: choices, measures, bins, and utility along the run."""
    less_regret, recovered = measures["less_regret"].value > 0, measures["recovered"].value > 0
    numbers: dict[Any, Any] = {
        **measures.estimates,
        "fixed": calibration.fixed_name,
        "validation_prompts": calibration.prompts,
        "states": measures.states,
        "excluded": measures.excluded,
        "positive_prompts": measures.positive_prompts,
        "unreliable": measures.why_unreliable,
        "lower_regret": less_regret,
        "recovers": recovered,
        # The paper's screen sees held-out outcomes, so it describes settings and confirms nothing.
        "viable": less_regret and recovered,
        "reason": why_ranking_missing(frame),
        "tau_out_of_fold": calibration.tau.out_of_fold,
        "tau_error": calibration.tau.error,
        **threshold_numbers("theta", calibration.theta),
        **threshold_numbers("tau", calibration.tau),
    }
    detector, opens_B = calibration.detector, calibration.tau.is_reached(calibration.detector.g_B)
    # Signals beyond all that validation saw belong to the end bins.
    edges = list(pairwise([-np.inf, *detector.start_E.tolist(), np.inf]))
    bin_S, oracle_S = frame["bin"].to_numpy(), frame["oracle"].to_numpy()
    for b, (low, high) in enumerate(edges):
        inside = oracle_S[bin_S == b]
        numbers |= {
            ("bin_from", b): low,
            ("bin_to", b): high,
            ("bin_states", b): int(detector.states_B[b]),
            ("bin_positive", b): int(detector.positive_B[b]),
            ("bin_predicted", b): float(detector.g_B[b]),
            ("bin_opens", b): bool(opens_B[b]),
            ("bin_held_out_states", b): len(inside),
            ("bin_held_out", b): float(np.mean(inside)) if len(inside) else None,
        }
    place_S = frame["place"].to_numpy()
    for arm in ARMS_ALONG_RUN:
        utility_S = frame["fixed"].to_numpy() + (0.0 if arm == "fixed" else frame[arm].to_numpy())
        numbers |= {("along", arm, int(k)): float(utility_S[place_S == k].mean()) for k in np.unique(place_S)}
    return numbers


def threshold_numbers(name: str, threshold: Threshold) -> dict[str, Any]:
    """Return a threshold's value (None: never; -inf: wherever there is a signal) and the reason why it never opens."""
    return {name: threshold.value, f"{name}_reason": threshold.reason, f"{name}_never": threshold.value is None}


# The policy axis


def analyse_methods(study: StudyFrames, opportunity: Sequence[Row], resamples: int) -> list[Row]:
    """Compute the one-step worth of the fixed method, and of one method for each stage, on the policy axis."""
    rows: list[Row] = []
    for key in [
        (row["model"], row["task"]) for row in opportunity if (row["measure"], row["axis"]) == ("fixed", POLICY)
    ]:
        model, task = key
        where = {"experiment": "methods", "model": model, "task": task, "axis": POLICY}
        try:
            rows += result_rows(where, _method_numbers(study, model, task, resamples))
        except NotEnough as error:
            rows.append(missing_row("methods", model, task, POLICY, str(error)))
    return rows


def _method_numbers(study: StudyFrames, model: str, task: str, resamples: int) -> dict[Any, Any]:
    """Compute utilities and differences of the arms of one model and task on the policy axis."""
    validation, held_out = (study.utilities[model, task, POLICY, role] for role in ROLES)
    fixed = choose_fixed(validation.utility_SAR, reference=0).action
    schedule = fit_schedule(
        mean_over_rollouts(validation.utility_SAR),
        masked_share(validation.prompt_S, validation.masked_S),
        fixed,
        reference=0,
        count=study.settings.stages,
    )
    fit = cross_fit(held_out.utility_SAR, fixed, reference=0, deterministic=study.settings.deterministic)
    base_S = fit.q_SA[:, fixed]
    stage_S = schedule.actions(masked_share(held_out.prompt_S, held_out.masked_S))
    gains = {
        "reference": zero_rounding(fit.q_SA[:, 0] - base_S),
        "fixed": np.zeros_like(base_S),
        "stage": zero_rounding(fit.q_SA[np.arange(len(base_S)), stage_S] - base_S),
        "oracle": fit.g_S,
    }
    # The same states for all arms, as in `held_out_frame`.
    used_S = np.isfinite(np.stack(list(gains.values()))).all(0)
    if not used_S.any():
        raise NotEnough("no evaluation state has utilities of the reference, the fixed method and the stage's")
    utility = {arm: (base_S + gain_S)[used_S] for arm, gain_S in gains.items()}
    prompt_S = np.array(held_out.prompt_S)[used_S]

    def measures(weight_DS: Array) -> dict[Any, Array]:
        mean = {arm: weighted_mean(weight_DS, utility[arm]) for arm in METHOD_ARMS}
        named = {("utility", arm): x_D for arm, x_D in mean.items()}
        return named | {("difference", pair_name(a, b)): mean[a] - mean[b] for a, b in METHOD_PAIRS}

    numbers: dict[Any, Any] = dict(estimate_measures(measures, prompt_S, seed=study.seed, resamples=resamples))
    numbers |= {("stage_method", k): validation.candidates[action] for k, action in enumerate(schedule.action_K)}
    unreliable = why_few_positive(*count_prompts(prompt_S, utility["oracle"] - utility["fixed"]))
    counts = {"prompts": len(set(prompt_S.tolist())), "states": len(prompt_S)}
    facts = {
        "fixed": validation.candidates[fixed],
        "unreliable": unreliable,
        "partial": study.unfinished_by_task[model, task],
    }
    return {**numbers, **counts, **facts}
