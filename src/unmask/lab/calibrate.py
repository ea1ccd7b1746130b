"""From a model and a task to a gate: candidates tried on validation prompts, what they choose, and whole runs with it.

The branches are those of a study without evaluation prompts, so a calibration that was cut short goes on with them
where it stopped; whole runs are decoded again. What a gate is worth on prompts that it was not calibrated on is a
question for `unmask study`.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from pydantic import Field, model_validator

from unmask.adapt import DIAGNOSTICS, Arms, EndToEnd, Gate, Guarantee, Lift
from unmask.api import LoadedModel, Model, Request, count_steps
from unmask.axes import AXES, ReMDM
from unmask.base.errors import ConfigError, NotComplete, OtherStudy, UnknownName, require
from unmask.base.files import replace_surrogates
from unmask.base.options import Options, check_known_name
from unmask.core import Policy, SamplingParams, Search
from unmask.lab.branching import BatchSettings
from unmask.lab.cluster import Executor, open_executor, run_in_order
from unmask.lab.store import OtherFormat, Store
from unmask.lab.study import PromptRange, StudyConfig, decode_prompts, group_by_width
from unmask.lab.study.config import ModelSpec
from unmask.lab.study.jobs import plan_jobs
from unmask.lab.study.progress import StudyProgress
from unmask.lab.study.prompts import load_examples, score_answers
from unmask.lab.study.protocol import run_study
from unmask.lab.study.validation import make_states, mixture_of, rows_by_state
from unmask.methods import candidates, register_reference
from unmask.stats import (
    FEWEST_PROMPTS,
    FIXED_BY,
    MARGIN,
    RESAMPLES,
    Array,
    Bools,
    Calibration,
    CalibrationSettings,
    NotEnough,
    Threshold,
    draw_fitted_half,
    estimate_ratio,
    list_gate_thresholds,
    sequential_test,
    smallest_margin,
    worst_case_differences,
)
from unmask.stats.protocol import (
    ValidationSet,
    choose_fixed,
    choose_fixed_by_runs,
    estimate_gate_lift,
    estimate_tested_lift,
    fit_calibration,
)
from unmask.tasks import Task, check_scorer, is_file_or_code, open_task

ROLE = "validation"
SHARD_PROMPTS = 8
"""Prompts per shard. A killed process loses the shard that it works on."""
CPU_ROWS, MAX_ROWS = 4, 64
"""Default batch sizes on a CPU and elsewhere. They are small, because merging leaves few branches at a time."""
OPERATOR = ReMDM("conf")
"""Remasking operator of the commitment axis, as in the studies that come with the package."""


class CalibrateOptions(Options):
    """Options of `calibrate`: task and axis of the gate, and the number of prompts, states and rollouts."""

    task: str | Task = Field(
        description="A name of `unmask tasks`, a file FILE.jsonl, or code, which runs: package.module:function or "
        "path.py:function."
    )
    axis: str = Field(description="What may change by state: score, region, cardinality or commitment.")
    scorer: str | None = Field(
        None,
        description="How answers to a task of your own are scored: exact, answer, contains, number, json, parts, "
        "blanks, or code, which runs: package.module:function, path.py:function.",
    )
    max_new_tokens: int | None = Field(None, ge=1, description="Tokens that an answer to a task of your own may take.")
    prompts: int = Field(100, ge=2, description="Up to so many validation prompts.")
    states: int = Field(8, ge=1, description="States of each prompt's trajectory.")
    rollouts: int = Field(4, ge=1, description="Continuations per state and candidate.")
    steps_share: float = Field(0.5, gt=0, le=1, description="Steps by the task's horizon, above 0 up to 1.")
    seed: int = Field(0, ge=0, description="Seed of all random numbers, the bootstrap's included.")
    batch_size: int | None = Field(
        None, ge=1, description="Canvases of one forward. Default: 4 on a CPU, 64 elsewhere."
    )
    fixed_by: str = Field(
        "end-to-end",
        description="How the fixed action is chosen on validation prompts: end-to-end (whole runs) or one-step (one "
        "transition, then the reference: the paper's).",
    )
    guarantee: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Choose the threshold so that, but for this probability over validation prompts, decoding with the "
        "gate is not worse than the fixed action by more than --margin; e.g. 0.05.",
    )
    margin: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Mean utility that a gate with a guarantee may lose at most. Default: 0.05.",
    )
    data_dir: Path | str | None = Field(None, description="Official data files. Default: $UNMASK_DATA, else the hub.")
    sandbox_workers: int | None = Field(
        None, ge=1, description="Programs run side by side (HumanEval). Default: all cores."
    )
    work_dir: Path | str | None = Field(
        None, description="Where measurements are kept, to go on from. Default: FILE.json.study."
    )

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        find_diagnostic(self.axis)
        check_known_name("fixed_by", self.fixed_by, FIXED_BY)
        ok = self.rollouts > 1 or not AXES[self.axis].revises
        allowed = f"2 or more on the {self.axis} axis"
        require(ok, "rollouts", self.rollouts, allowed, "re-masking draws, so that one says little")
        if self.guarantee is None:
            hint = "add --guarantee 0.05, or drop it"
            require(self.margin is None, "margin", self.margin, "none without a guarantee", hint)
        else:
            hint = "half are fitted on, half are tested on"
            require(self.prompts >= 4, "prompts", self.prompts, "4 or more with a guarantee", hint)
        return self


def calibrate(
    model: LoadedModel,
    *,
    policy: Policy | Search | None = None,
    cluster: Executor | None = None,
    on_progress: Callable[[StudyProgress], None] = lambda now: None,
    **options: Any,
) -> Gate:
    """Calibrate a gate for a task: a rule when to leave the fixed action, for `model.generate(..., gate=gate)`.

    `options` are those of `CalibrateOptions`: `task` and `axis`, and with their defaults prompts=100, states=8,
    rollouts=4, steps_share=0.5, seed=0, batch_size, fixed_by="end-to-end", guarantee, margin, data_dir,
    sandbox_workers, work_dir. A task of one's own needs a `scorer` and the tokens that an answer may take,
    `max_new_tokens`. `work_dir` is a folder that keeps the measurements, so that a call that was cut short can be
    repeated; without one they are thrown away.

    `policy` is what decodes in place of the model's own reference, and what candidates are made around; whoever uses
    the gate has to pass it again. On a `cluster` its workers run the model, and the one here has no network.
    """
    require(isinstance(model, Model), "model", model, "a loaded model", "e.g. unmask.load('mini')")
    chosen = CalibrateOptions(**options)
    if policy is not None:
        ok = isinstance(policy, Policy)
        require(ok, "policy", policy, "a policy object that decides step by step, or None", "e.g. policy=KLASS()")
        model = replace(model, reference=register_reference(policy))  # type: ignore[type-var]
    # Candidates around a reference that nobody has named are refused here.
    candidates(model.reference)
    task = chosen.task
    if isinstance(task, str):
        task = open_task(task, scorer=chosen.scorer, max_new_tokens=chosen.max_new_tokens)
        check_scorer(task)
    study = _make_study(model, task, chosen)
    progress = _CalibrationProgress(f"{study.models[0].name}/{task.name}", on_progress)
    with ExitStack() as stack:
        folder = chosen.work_dir or stack.enter_context(TemporaryDirectory(prefix="unmask-"))
        executor = stack.enter_context(open_executor(cluster, lambda spec: model))
        store = _measure_branches(model, study, folder, executor, chosen, progress.report_branches)
        runs = WholeRuns(model, study, executor, chosen, progress.report_runs)
        return _make_gate(model, task, chosen, study, store, runs)


class _CalibrationProgress:
    """Progress of a calibration: branches as the study counts them, then the share of whole runs that are decoded."""

    def __init__(self, name: str, on_progress: Callable[[StudyProgress], None]):
        self._name, self._on_progress = name, on_progress
        self._last: StudyProgress | None = None
        self._began = time.monotonic()

    def report_branches(self, now: StudyProgress) -> None:
        self._last, self._began = now, time.monotonic()
        self._on_progress(now)

    def report_runs(self, share: float) -> None:
        if self._last is not None:
            left = (time.monotonic() - self._began) / share * (1 - share)
            self._on_progress(self._last._replace(shard=self._name, decoded=share, left=left))


def _make_gate(
    model: LoadedModel, task: Task, options: CalibrateOptions, study: StudyConfig, store: Store, runs: "WholeRuns"
) -> Gate:
    """Fit the calibration on the measured branches, compare whole runs with it, and make the gate."""
    axis, prompt_P = options.axis, np.array(runs.prompts)
    # With a guarantee half of the prompts make all choices, and the others test them.
    fitted_P = np.ones(len(prompt_P), dtype=np.bool_)
    if options.guarantee is not None:
        fitted_P = draw_fitted_half(len(prompt_P), options.seed)
    whole = None
    if options.fixed_by == "end-to-end":
        # In the order of the states' candidates: a fixed action is a number in both.
        names = store.utilities(replace_surrogates(model.name), task.name, ROLE, axis).candidates
        policies = study.branch_plan(model.reference).candidates[axis]
        runs.planned = len(names) + 1
        whole = pd.DataFrame({name: runs.measure_utilities(policies[name]) for name in names}, index=list(runs.prompts))
        whole = whole.loc[fitted_P]
    states = _read_states(store, model, task, axis, prompt_P[fitted_P], whole)
    fitted = states if options.guarantee is None else states.select(prompt_P[fitted_P])
    settings = CalibrationSettings(
        seed=options.seed,
        deterministic=options.rollouts == 1,
        fixed=options.fixed_by,  # type: ignore[arg-type]
    )
    calibration = fit_calibration(fitted, settings, whole)
    operator = OPERATOR if AXES[axis].revises else None
    arms = Arms(axis, model.reference, calibration, DIAGNOSTICS[find_diagnostic(axis)], operator)
    guarantee = None
    if options.guarantee is None:
        lift = estimate_lift(fitted, calibration, whole)
    else:
        margin = MARGIN if options.margin is None else options.margin
        arms, guarantee = fit_with_guarantee(arms, runs, fitted_P, options.guarantee, margin)
        # Not of the fitted prompts: the bins were filled there.
        lift = estimate_lift(states.select(prompt_P[~fitted_P]), arms.calibration, tested=True)
    return Gate(
        model=model.name,
        fingerprint=model.fingerprint,
        task=task.name,
        arms=arms,
        steps_share=float(options.steps_share),
        lift=lift,
        end_to_end=compare_whole_runs(arms, runs, seed=options.seed),
        guarantee=guarantee,
    )


def find_diagnostic(axis: str) -> str:
    """Return the name of the diagnostic of an axis; of several the first, which is the paper's."""
    first: dict[str, str] = {}
    for name, diagnostic in DIAGNOSTICS.items():
        first.setdefault(diagnostic.axis, name)
    if axis not in first:
        raise UnknownName("axis", axis, first)
    return first[axis]


# Branches: a study of validation prompts and nothing else


def _make_study(model: LoadedModel, task: Task, options: CalibrateOptions) -> StudyConfig:
    """Build the configuration of a study of validation prompts alone, which no study file can ask for."""
    rows = options.batch_size or (CPU_ROWS if model.denoiser.device.type == "cpu" else MAX_ROWS)
    return StudyConfig(
        name=f"calibrate {task.name}",
        seed=options.seed,
        models=(ModelSpec(replace_surrogates(model.name), model.name, model.reference),),
        tasks=(task.name,),
        axes=(options.axis,),
        splits={ROLE: PromptRange(ROLE, 0, options.prompts)},
        steps={task.name: count_steps(options.steps_share, task.max_new_tokens)},
        states=options.states,
        rollouts=options.rollouts,
        temperature=0.0,
        revision=OPERATOR,
        engine=BatchSettings(rows),
        shard=SHARD_PROMPTS,
        diagnostics=(find_diagnostic(options.axis),),
        own={task.name: task} if is_file_or_code(task.source) else {},
    )


def _measure_branches(
    model: LoadedModel,
    study: StudyConfig,
    folder: str | Path,
    executor: Executor,
    options: CalibrateOptions,
    on_progress: Callable[[StudyProgress], None],
) -> Store:
    """Run the study of validation prompts and return its store, which holds all branches."""
    try:
        with Store.create(folder, study.config) as store:
            outcome = run_study(
                study,
                store,
                cluster=executor,
                data_dir=options.data_dir,
                sandbox_workers=options.sandbox_workers,
                on_progress=on_progress,
            )
    except (OtherStudy, OtherFormat) as error:
        raise OtherStudy(f"{error} (work_dir={str(folder)!r}: name another, or remove that one)") from error
    if not outcome.complete:
        raise NotComplete(
            f"the calibration is not complete: {outcome.reason}; allowed: all of its prompts; correct what failed and "
            f"remove {f'{store.folder}/failed'!r} to try again"
        )
    if not store.names():
        (task,) = study.tasks
        raise ConfigError(
            f"no validation prompt of {task} leaves room for {study.task(task).max_new_tokens} tokens in "
            f"{model.max_length}, the limit of {model.name}; allowed: shorter ones; shorten them or the horizon"
        )
    return store


def _read_states(
    store: Store, model: LoadedModel, task: Task, axis: str, fitted: Array, whole: pd.DataFrame | None
) -> ValidationSet:
    """Read the sampled states with their readings.

    The score signal compares with the fixed action of the `fitted` prompts.
    """
    utilities = store.utilities(replace_surrogates(model.name), task.name, ROLE, axis)
    readings = rows_by_state(axis, store.read_arrow("readings"))
    rows = [readings[key] for key in zip(utilities.prompt_S, utilities.state_S.tolist(), strict=True)]
    try:
        these_S = np.isin(np.array(utilities.prompt_S), fitted)
        one_step = choose_fixed(utilities.utility_SAR[these_S], reference=0)
        fixed = one_step if whole is None else choose_fixed_by_runs(whole, 0)
    except NotEnough as error:
        raise ConfigError(
            f"no validation state of {task.name} has a judged answer of every candidate: nothing can be chosen; "
            "allowed: answers that can be scored; see the reasons in the table `branches`"
        ) from error
    mixture = mixture_of(model.reference, utilities.candidates[fixed.action]) if AXES[axis].mixes else None
    return make_states(ValidationSet, utilities, rows, mixture)


# Whole runs


class WholeRuns:
    """Validation prompts decoded from beginning to end and scored; equal policies are decoded once."""

    def __init__(
        self,
        model: LoadedModel,
        study: StudyConfig,
        executor: Executor,
        options: CalibrateOptions,
        on_share: Callable[[float], None],
    ):
        """Prepare the prompts, which the executor's model decodes; on a cluster `model` has no network."""
        (spec,) = study.models
        tasks, _ = load_examples(study, options.data_dir)
        jobs = plan_jobs(study, spec, model, tasks)
        requests = [request for job in jobs for request in job.requests]
        examples = [example for job in jobs for example in job.examples]
        self.prompts = tuple(request.id for request in requests)
        self.planned = 0
        """Number of policies that will be decoded, for the progress."""
        self._executor, self._spec, self._on_share = executor, spec, on_share
        self._seed, self._rows = study.seed, study.engine.rows
        self._batches = [
            (slots, group[at : at + self._rows])
            for slots, group in group_by_width(requests, study.engine.bucket).items()
            for at in range(0, len(group), self._rows)
        ]
        self._score = partial(
            score_answers,
            examples=examples,
            requests=requests,
            codec=model.codec,
            workers=options.sandbox_workers,
            scoring=study.scoring,
            known={},
        )
        self._decoded: list[tuple[Policy, Array]] = []

    def measure_utilities(self, policy: Policy) -> Array:
        """Decode and score every prompt; return utilities in the order of `prompts`, NaN for unjudged ones."""
        # The fixed action is often the reference, and a shut gate the fixed action.
        known = next((utility_P for earlier, utility_P in self._decoded if earlier == policy), None)
        if known is not None:
            return known
        by_prompt: dict[str, float] = {}
        for at, rows in enumerate(self._decode(policy)):
            by_prompt |= dict(zip(rows["prompt"], self._score(rows)["utility"].tolist(), strict=True))
            done = len(self._decoded) + (at + 1) / len(self._batches)
            self._on_share(done / max(self.planned, len(self._decoded) + 1))
        utility_P = np.array([by_prompt[prompt] for prompt in self.prompts], dtype=np.float64)
        self._decoded.append((policy, utility_P))
        return utility_P

    def _decode(self, policy: Policy) -> Iterator[pd.DataFrame]:
        calls = [(policy, requests, self._seed, slots) for slots, requests in self._batches]
        return run_in_order(self._executor, decode_greedily, self._spec, calls)


GREEDY = SamplingParams(temperature=0.0)


def decode_greedily(
    model: LoadedModel, policy: Policy, requests: Sequence[Request], seed: int, slots: int
) -> pd.DataFrame:
    """Decode prompts at temperature 0, with the model of the process that runs this."""
    return decode_prompts(model, requests, policy, seed=seed, slots=slots, sampling=GREEDY)


def compare_whole_runs(arms: Arms, runs: WholeRuns, *, seed: int) -> EndToEnd | None:
    """Decode all prompts with the reference, the fixed action and the gate, and compare their mean utilities.

    What is best for a single step, after which the reference goes on, need not be at every step: whole runs show it.
    """
    # A gate that never opens is the fixed action: nothing is decoded for it.
    never = arms.calibration.tau.value is None
    policies = (arms.reference, arms.fixed, arms.fixed if never else arms.selective)
    runs.planned = max(runs.planned, len(policies))
    return summarise_runs(np.stack([runs.measure_utilities(policy) for policy in policies], 1), runs.prompts, seed=seed)


def summarise_runs(utility_PA: ArrayLike, prompt_P: Sequence[str], *, seed: int) -> EndToEnd | None:
    """Average utilities (columns: reference, fixed, selective) over prompts whose answers were all judged.

    None where there is no such prompt.
    """
    utility = np.asarray(utility_PA, dtype=np.float64)
    judged_P = np.isfinite(utility).all(1)
    if not judged_P.any():
        return None
    reference, fixed, selective = utility[judged_P].mean(0).tolist()
    gain_P = utility[judged_P, 2] - utility[judged_P, 0]
    gain = estimate_ratio(gain_P, np.ones_like(gain_P), np.asarray(prompt_P)[judged_P], seed=seed)
    return EndToEnd(
        reference=reference,
        fixed=fixed,
        selective=selective,
        low=gain.low,
        high=gain.high,
        prompts=len(gain_P),
        differ=int((gain_P != 0).sum()),
    )


# The gate's gain per step, and a guarantee for whole runs


def estimate_lift(
    states: ValidationSet, calibration: Calibration, whole: pd.DataFrame | None = None, *, tested: bool = False
) -> Lift:
    """Estimate the mean gain of the gate per state, with a text on how it was measured.

    `states` are those that it was calibrated on, where the gain is measured out of fold, or with `tested` those of
    other validation prompts, which tested the thresholds of a guarantee.
    """
    if calibration.tau.value is None:
        why = f"the gate never opens and decodes as the fixed action ({calibration.tau.reason})"
        return Lift(value=0.0, low=0.0, high=0.0, how=why)
    drawn = f"95 % interval from {RESAMPLES} resamples of the prompts"
    if tested:
        gain = estimate_tested_lift(states, calibration)
        how = (
            f"per state, one step deviating, on the {len(np.unique(states.prompt_S))} validation prompts that it was "
            f"tested on; {drawn}. Bins and fixed action are of {calibration.prompts} others; no held-out prompt was "
            "looked at"
        )
    else:
        gain = estimate_gate_lift(states, calibration, whole)
        folds = min(calibration.settings.prompt_folds, calibration.prompts)
        how = (
            f"per state, one step deviating, on {calibration.prompts} validation prompts, out of fold ({folds} folds: "
            f"each with the gate that the others choose); {drawn}. A gate opens only where this is above 0, so it "
            "flatters a little; no held-out prompt was looked at"
        )
    return Lift(value=gain.value, low=gain.low, high=gain.high, how=how)


def fit_with_guarantee(
    arms: Arms, runs: WholeRuns, fitted_P: Bools, risk: float, margin: float
) -> tuple[Arms, Guarantee]:
    """Choose the threshold by tests on whole runs; return the arms with it, or with a gate that stays shut.

    `risk` is the probability, over validation prompts, that decoding with the gate is worse than the fixed action by
    more than `margin`. Thresholds are ordered on the fitted prompts and tested on the others.
    """
    thresholds = [Threshold(level) for level in list_gate_thresholds(arms.calibration.detector)]
    tried = [replace(arms, calibration=replace(arms.calibration, tau=tau)) for tau in thresholds]
    runs.planned += len(tried)
    fixed_P = runs.measure_utilities(arms.fixed)
    gated_PH = np.stack([runs.measure_utilities(one.selective) for one in tried], 1)
    # Without this an evaluator that fails on bad answers alone would make a gate look harmless.
    gain_PH = worst_case_differences(gated_PH, fixed_P)
    test = sequential_test(gain_PH[fitted_P], gain_PH[~fitted_P], risk=risk, margin=margin)
    tested = int((~fitted_P).sum())
    guarantee = Guarantee(
        risk=risk,
        margin=margin,
        fitted=int(fitted_P.sum()),
        tested=tested,
        thresholds=len(test.tested),
        difference=test.difference,
        bound=test.bound,
    )
    if test.chosen is not None:
        return tried[test.chosen], guarantee
    reason = test.reason
    if test.tested and (least := smallest_margin(tested, risk)) > margin:
        reason += f" (without a gain, {tested} can show a margin of {least:.3f} at best)"
    shut = replace(arms.calibration, tau=Threshold(None, reason=reason))
    return replace(arms, calibration=shut), guarantee


# In words


def describe_gate(gate: Gate) -> str:
    """Describe in a few sentences the expected gain of a gate: per step, and on whole runs."""
    calibration, lift, runs = gate.arms.calibration, gate.lift, gate.end_to_end
    if calibration.tau.value is None:
        # Something to gain that the signal does not tell of is another finding than nothing to gain.
        better, states = int(calibration.detector.positive_B.sum()), int(calibration.detector.states_B.sum())
        head = "No usable signal" if better else "No opportunity found"
        step = f"{head}: the gate never opens ({calibration.tau.reason}). It decodes as the fixed action, "
        step += f"{calibration.fixed_name}, at every step."
        if better:
            step += f" Another action was better at {better} of {states} states with a signal."
    else:
        step = f"Expected lift over the fixed action, {calibration.fixed_name}: {lift.value:+.4f} per state "
        step += f"[{lift.low:+.4f}, {lift.high:+.4f}], out of fold on validation prompts. "
        if lift.low > 0:
            step += "A check on held-out prompts is `unmask study`."
        else:
            step += "The interval reaches 0, so this may be nothing; more prompts, or `unmask study`, can tell."
    if runs is None:
        return (
            f"{step} Decoded end to end, no prompt has answers with the reference, the fixed action and this gate that "
            "could all be judged: what whole runs are worth is not known."
        )
    scores = (
        f"{step} Decoded end to end, the same prompts score {runs.reference:.3f} with the reference, {runs.fixed:.3f} "
        f"with the fixed action at every step and {runs.selective:.3f} with this gate"
    )
    if runs.differ == 0:
        return f"{scores}: no prompt is worth more or less than with the reference ({runs.prompts} prompts)."
    interval = f"[{runs.low:+.3f}, {runs.high:+.3f}]"
    # An interval over few prompts that differ is too short to rely on.
    few = runs.differ < FEWEST_PROMPTS
    hint = f"but only {runs.differ} of {runs.prompts} prompts differ, so this is a hint"
    if runs.worse:
        advice = f"{hint}: do not use it before more prompts say otherwise" if few else "so do not use it"
        return f"{scores}: worse than the reference ({interval}), {advice}."
    if runs.better:
        flatters = "These are the prompts it was calibrated on, which flatters; `unmask study` looks at others."
        return f"{scores}: better than the reference ({interval}){f', {hint}' if few else ''}. {flatters}"
    return (
        f"{scores}: no clear difference to the reference ({interval}; {runs.differ} of {runs.prompts} prompts differ)."
    )
