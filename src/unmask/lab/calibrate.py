"""From a model and a task to a gate: a study of validation prompts alone, and what they choose.

The study is one like any other, so a calibration that was cut short goes on where it stopped. It has no evaluation
prompts: what a gate is worth on prompts that it was not calibrated on is a question for `unmask study`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from unmask.adapt import DIAGNOSTICS, Arms, EndToEnd, Gate, Guarantee, Lift
from unmask.api import LoadedModel, steps_of
from unmask.axes import AXES, ReMDM
from unmask.base.errors import ConfigError, NotComplete, OtherStudy, UnknownName, require
from unmask.base.files import storable
from unmask.base.options import check_name
from unmask.core import Policy
from unmask.lab.branching import BatchSettings
from unmask.lab.choose import make_states, mixture_of, rows_by_state
from unmask.lab.guaranteed import Tolerance, fitted_prompts, guaranteed, tolerance_of
from unmask.lab.run.driver import run_study
from unmask.lab.run.progress import StudyProgress
from unmask.lab.store import OldFormat, Store
from unmask.lab.study import PromptRange, Study
from unmask.lab.study_models import ModelSpec
from unmask.lab.whole_runs import ROLE, Cluster, RunDecoder
from unmask.methods import candidates
from unmask.stats import (
    FEWEST,
    FIXED_BY,
    RESAMPLES,
    Array,
    Calibration,
    CalibrationSettings,
    NotEnough,
    estimate_ratio,
)
from unmask.stats.protocol import (
    ValidationSet,
    choose_fixed,
    choose_fixed_by_runs,
    estimate_gate_lift,
    estimate_tested_lift,
    fit_calibration,
)
from unmask.tasks import DataDir, Task, is_own

SHARD = 8
"""Prompts per shard: what a killed process loses."""
ROWS = {"cpu": 4}
MOST_ROWS = 64
"""Canvases of one forward, on a kind of device and elsewhere: merging leaves few branches to run at a time."""
OPERATOR = ReMDM("conf")
"""Re-opens what the commitment axis leaves revisable, as in the studies that come with the package."""


def calibrate(
    model: LoadedModel,
    task: Task,
    axis: str,
    *,
    work: str | Path,
    prompts: int = 100,
    states: int = 8,
    rollouts: int = 4,
    steps_share: float = 0.5,
    seed: int = 0,
    rows: int | None = None,
    fixed: str = "end-to-end",
    guarantee: float | None = None,
    margin: float | None = None,
    data_dir: DataDir = None,
    jobs: int | None = None,
    on_progress: Callable[[StudyProgress], None] = lambda now: None,
    cluster: Cluster | None = None,
) -> Gate:
    """A gate for one model, task and axis, from up to `prompts` validation prompts. `work` keeps what was measured.

    `steps_share` is the number of steps by the task's horizon, `rows` how many canvases a forward has (default:
    4 on a CPU, 64 elsewhere), `fixed` how the fixed action is chosen: by whole runs, or by one step as in the paper.
    With a `guarantee` of 0.05 the threshold is one that was shown, with that risk of error, not to be worse than the
    fixed action by more than `margin` (0.05), end to end. On a `cluster` the model only stands for that of the workers.
    """
    rows = ROWS.get(model.denoiser.device.type, MOST_ROWS) if rows is None else rows
    check_name("fixed", fixed, FIXED_BY)
    tolerance = tolerance_of(guarantee, margin, prompts)
    study = _study(model, task, axis, prompts, states, rollouts, steps_share, seed, rows)
    use: dict[str, Any] = {"data_dir": data_dir, "jobs": jobs, "on_progress": on_progress}
    store = _measured(model, study, work, cluster, **use)
    _check_room(store, model, task)
    settings = CalibrationSettings(seed=seed, deterministic=rollouts == 1, fixed=fixed)  # type: ignore[arg-type]
    with RunDecoder(model, study, store, cluster=cluster, **use) as runs:
        arms, lift, found = _chosen(model, study, store, runs, task, settings, tolerance)
        return Gate(
            model=model.name,
            fingerprint=model.fingerprint,
            task=task.name,
            arms=arms,
            steps_share=float(steps_share),
            lift=lift,
            end_to_end=end_to_end(arms, runs, seed=seed),
            guarantee=found,
        )


def _chosen(
    model: LoadedModel,
    study: Study,
    store: Store,
    runs: RunDecoder,
    task: Task,
    settings: CalibrationSettings,
    tolerance: Tolerance | None,
) -> tuple[Arms, Lift, Guarantee | None]:
    """What the measurements choose: the arms of the gate, what it gains, and what is guaranteed."""
    (axis,) = study.axes
    fitted_P = fitted_prompts(runs.prompts, tolerance, settings.seed)
    fitted = np.array(runs.prompts)[fitted_P]
    whole = _whole_runs(model, study, store, runs).loc[fitted_P] if settings.fixed == "end-to-end" else None
    states = _states(store, model, task, axis, fitted, whole)
    used = states if tolerance is None else states.select(fitted)
    arms = _arms(model, axis, fit_calibration(used, settings, whole))
    if tolerance is None:
        return arms, lift_of(used, arms.calibration, whole), None
    arms, found = guaranteed(arms, runs, fitted_P, tolerance)
    return arms, lift_tested(states.select(np.array(runs.prompts)[~fitted_P]), arms.calibration), found


def _arms(model: LoadedModel, axis: str, chosen: Calibration) -> Arms:
    diagnostic = DIAGNOSTICS[diagnostic_of(axis)]
    return Arms(axis, model.reference, chosen, diagnostic, OPERATOR if AXES[axis].revises else None)


def _measured(model: LoadedModel, study: Study, work: str | Path, cluster: Cluster | None, **use: Any) -> Store:
    """The study's folder, with all of its branches."""
    try:
        with Store.create(work, study.config) as store:
            if cluster is None:
                outcome = run_study(study, store, lambda spec: model, **use)
            else:
                outcome = run_study(study, store, cluster.load, cluster=cluster.where, **use)
    except (OtherStudy, OldFormat) as error:
        raise OtherStudy(f"{error} (work={str(work)!r}: name another, or remove that one)") from error
    if not outcome.complete:
        raise NotComplete(
            f"the calibration is not complete: {outcome.stopped}; allowed: all of its prompts; correct what failed and "
            f"remove {str(store.folder / 'failed')!r} to try again"
        )
    return store


def _whole_runs(model: LoadedModel, study: Study, store: Store, runs: RunDecoder) -> pd.DataFrame:
    """Utility of every candidate at every step of every prompt, prompts by candidates."""
    (axis,) = study.axes
    names = store.utilities(storable(model.name), study.tasks[0], ROLE, axis).candidates
    policies = study.plan(model.reference).candidates[axis]
    runs.planned = len(names) + 1
    return pd.DataFrame({name: runs.utilities(policies[name]) for name in names}, index=list(runs.prompts))


def check_axis(axis: str) -> None:
    """Refuse an axis that has no diagnostic."""
    diagnosed = list(dict.fromkeys(one.axis for one in DIAGNOSTICS.values()))
    if axis not in diagnosed:
        raise UnknownName("axis", axis, diagnosed)


def diagnostic_of(axis: str) -> str:
    """The diagnostic that a gate of the axis is made of: of several the first, which is the paper's."""
    check_axis(axis)
    return next(name for name, one in DIAGNOSTICS.items() if one.axis == axis)


def lift_of(states: ValidationSet, chosen: Calibration, whole: pd.DataFrame | None = None) -> Lift:
    """What the gate is expected to gain per state, and in words how that is known."""
    if chosen.tau.value is None:
        return _no_lift(chosen)
    gain = estimate_gate_lift(states, chosen, whole)
    folds = min(chosen.settings.prompt_folds, chosen.prompts)
    how = (
        f"per state, one step deviating, on {chosen.prompts} validation prompts, out of fold ({folds} folds: each with "
        f"the gate that the others choose); 95 % interval from {RESAMPLES} resamples of the prompts. A gate opens only "
        "where this is above 0, so it flatters a little; no held-out prompt was looked at"
    )
    return Lift(value=gain.value, low=gain.low, high=gain.high, how=how)


def lift_tested(states: ValidationSet, chosen: Calibration) -> Lift:
    """The same for a gate with a guarantee, on the prompts that it was tested on."""
    if chosen.tau.value is None:
        return _no_lift(chosen)
    gain = estimate_tested_lift(states, chosen)
    how = (
        f"per state, one step deviating, on the {len(np.unique(states.prompt_S))} validation prompts that it was "
        f"tested on; 95 % interval from {RESAMPLES} resamples of the prompts. Bins and fixed action are of "
        f"{chosen.prompts} others; no held-out prompt was looked at"
    )
    return Lift(value=gain.value, low=gain.low, high=gain.high, how=how)


def _no_lift(chosen: Calibration) -> Lift:
    why = f"the gate never opens and decodes as the fixed action ({chosen.tau.reason})"
    return Lift(value=0.0, low=0.0, high=0.0, how=why)


def end_to_end(arms: Arms, runs: RunDecoder, *, seed: int) -> EndToEnd | None:
    """All prompts decoded from beginning to end, with the reference, the fixed action and the gate.

    What is best for a single step, after which the reference goes on, need not be at every step: whole runs show it.
    """
    policies = _policies(arms)
    runs.planned = max(runs.planned, len(policies))
    utility_PA = np.stack([runs.utilities(policy) for policy in policies], 1)
    return compared(utility_PA, runs.prompts, seed=seed)


def compared(utility_PA: ArrayLike, prompt_P: Sequence[str], *, seed: int) -> EndToEnd | None:
    """Means over the prompts whose answers were all judged (columns: reference, fixed, selective); None without one."""
    utility = np.asarray(utility_PA, dtype=np.float64)
    judged_P = np.isfinite(utility).all(1)
    if not judged_P.any():
        return None
    reference, fixed, selective = utility[judged_P].mean(0).tolist()
    gain_P = utility[judged_P, 2] - utility[judged_P, 0]
    gain = estimate_ratio(gain_P, np.ones_like(gain_P), np.asarray(prompt_P)[judged_P], seed=seed)
    differ = int((gain_P != 0).sum())
    return EndToEnd(
        reference=reference,
        fixed=fixed,
        selective=selective,
        low=gain.low,
        high=gain.high,
        prompts=len(gain_P),
        differ=differ,
    )


def _policies(arms: Arms) -> tuple[Policy, Policy, Policy]:
    """Reference, fixed and selective. A gate that never opens is the fixed action: nothing is decoded for it."""
    never = arms.calibration.tau.value is None
    return arms.reference, arms.fixed, arms.fixed if never else arms.selective


def verdict(gate: Gate) -> str:
    """What to expect of it, in a few sentences: of one step, and of whole runs."""
    return f"{_step_verdict(gate)} {_run_verdict(gate.end_to_end)}"


def _run_verdict(runs: EndToEnd | None) -> str:
    if runs is None:
        return (
            "Decoded end to end, no prompt has answers with the reference, the fixed action and this gate that could "
            "all be judged: what whole runs are worth is not known."
        )
    scores = (
        f"Decoded end to end, the same prompts score {runs.reference:.3f} with the reference, {runs.fixed:.3f} with "
        f"the fixed action at every step and {runs.selective:.3f} with this gate"
    )
    if runs.differ == 0:
        return f"{scores}: no prompt is worth more or less than with the reference ({runs.prompts} prompts)."
    interval = f"[{runs.low:+.3f}, {runs.high:+.3f}]"
    # An interval over few prompts that differ is too short to rely on.
    few = runs.differ < FEWEST
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


def _step_verdict(gate: Gate) -> str:
    chosen, lift = gate.arms.calibration, gate.lift
    tau, detector, fixed = chosen.tau, chosen.detector, chosen.candidates[chosen.fixed.action]
    if tau.value is None:
        # Something to gain that nobody sees coming is another finding than nothing to gain.
        better, states = int(detector.positive_B.sum()), int(detector.states_B.sum())
        head = "No usable signal" if better else "No opportunity found"
        shut = f"{head}: the gate never opens ({tau.reason}). It decodes as the fixed action, {fixed}, at every step."
        return f"{shut} Another action was better at {better} of {states} states with a signal." if better else shut
    expected = (
        f"Expected lift over the fixed action, {fixed}: {lift.value:+.4f} per state "
        f"[{lift.low:+.4f}, {lift.high:+.4f}], out of fold on validation prompts."
    )
    if lift.low > 0:
        return f"{expected} A check on held-out prompts is `unmask study`."
    return f"{expected} The interval reaches 0, so this may be nothing; more prompts, or `unmask study`, can tell."


def _study(
    model: LoadedModel,
    task: Task,
    axis: str,
    prompts: int,
    states: int,
    rollouts: int,
    steps_share: float,
    seed: int,
    rows: int,
) -> Study:
    """A study of validation prompts and nothing else; study files have to name evaluation prompts."""
    check_axis(axis)
    # Refused where nobody has named it.
    candidates(model.reference)
    for name, value, least in (("prompts", prompts, 2), ("states", states, 1), ("rollouts", rollouts, 1)):
        require(value >= least, name, value, f"{least} or more", "ask for more")
    ok = rollouts > 1 or not AXES[axis].revises
    require(ok, "rollouts", rollouts, f"2 or more on the {axis} axis", "re-masking draws, so that one says little")
    require(0 < steps_share <= 1, "steps_share", steps_share, "above 0, at most 1", "0.5 is two tokens per step")
    require(seed >= 0, "seed", seed, "0 or more", "choose another")
    return Study(
        name=f"calibrate {task.name}",
        seed=seed,
        models=(ModelSpec(storable(model.name), model.name, model.reference),),
        tasks=(task.name,),
        axes=(axis,),
        splits={ROLE: PromptRange(ROLE, 0, prompts)},
        steps={task.name: steps_of(steps_share, task.max_new_tokens)},
        states=states,
        rollouts=rollouts,
        temperature=0.0,
        revision=OPERATOR,
        engine=BatchSettings(rows),
        shard=SHARD,
        diagnostics=(diagnostic_of(axis),),
        own={task.name: task} if is_own(task.source) else {},
    )


def _states(
    store: Store, model: LoadedModel, task: Task, axis: str, fitted: Array, whole: pd.DataFrame | None
) -> ValidationSet:
    """States and readings of the only setting that the study has; signals are beside what `fitted` prompts choose."""
    utilities = store.utilities(storable(model.name), task.name, ROLE, axis)
    read = rows_by_state(axis, store.table("readings"))
    rows = [read[key] for key in zip(utilities.prompt_S, utilities.state_S.tolist(), strict=True)]
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


def _check_room(store: Store, model: LoadedModel, task: Task) -> None:
    if not store.names():
        raise ConfigError(
            f"no validation prompt of {task.name} leaves room for {task.max_new_tokens} tokens in "
            f"{model.max_length}, the limit "
            f"of {model.name}; allowed: shorter ones; shorten them or the horizon"
        )
