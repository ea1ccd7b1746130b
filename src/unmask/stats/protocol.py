"""The appendix "State Sampling and Utility Evaluation" from top to bottom, for one model, task and axis.

States of validation prompts and of held-out prompts -> cross-fitted opportunity -> the fixed action -> gains over it
-> everything that validation chooses -> one frame of held-out states that all numbers are computed from.

`q_SAR[s, a, r]` is the utility of action a at state s in rollout r, in [0, 1], NaN where it is missing. Letters: S
states, A actions, R rollouts, F folds of rollouts.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unmask.base.errors import ConfigError
from unmask.stats.fitting import (
    Calibration,
    CalibrationSettings,
    FixedAction,
    ValidationGains,
    assign_prompt_folds,
    fit_action_threshold,
    fit_detector,
    fit_gate_threshold,
    fit_schedule,
    gate_gains,
)
from unmask.stats.ranking import TIE, zero_rounding
from unmask.stats.resampling import Array, Bools, Estimate, Ints, NotEnough, estimate_ratio, number_prompts

try:
    import pandas as pd
except ModuleNotFoundError as error:
    raise ConfigError(f"studies and calibrations need pandas ({error}); pip install 'unmask[lab]'") from error

PROPOSALS = ("raw", "snapped")
"""Kinds of proposals: the diagnostic's own action, and the candidate nearest to it."""
_COLUMNS = ("prompt_S", "place_S", "masked_S", "signal_S", "abstained_S")


# 1. States of validation prompts and of held-out prompts


class LeakageError(ValueError):
    """Error for held-out states passed where choices are made, or validation states where numbers are measured."""


@dataclass(frozen=True)
class ProposedAction:
    """Utility and next state of the diagnostic's own action at each state; NaN and False where it abstained."""

    q_SR: Array
    """Its utility in each rollout, in [0, 1]; NaN where none is known."""
    same_SA: Bools
    """Whether its next state is that of candidate a."""


@dataclass(frozen=True)
class StateSet:
    """Sampled states with their utilities and the readings of one diagnostic. Use `ValidationSet` or `HeldOutSet`."""

    prompt_S: NDArray[Any]
    """The prompt of each state; prompts are what was drawn at random."""
    place_S: Ints
    """Number of the state among its prompt's, in the order of the run."""
    masked_S: Array
    """Masked fraction of the answer, in [0, 1]."""
    q_SAR: Array
    signal_S: Array
    """d(z) of the diagnostic; NaN where it has none."""
    abstained_S: Bools
    """Whether the diagnostic proposed nothing; the fixed action is taken there."""
    proposals: Mapping[str, ProposedAction]
    """Outcomes of each kind of `PROPOSALS`."""
    candidates: tuple[str, ...]
    reference: int
    """Index of the candidate that is the reference."""

    def __post_init__(self) -> None:
        q = check_utilities(self.q_SAR)
        states, actions, rollouts = q.shape
        # Copied and read-only: states that are measured on must stay what was checked.
        columns = {name: np.array(getattr(self, name)) for name in _COLUMNS} | {"q_SAR": q.copy()}
        proposals = {
            name: ProposedAction(np.array(self.proposals[name].q_SR), np.array(self.proposals[name].same_SA))
            for name in PROPOSALS
        }
        wrong = [name for name, column in columns.items() if len(column) != states]
        wrong += ["candidates"] * (len(self.candidates) != actions or len(set(self.candidates)) != actions)
        wrong += ["reference"] * (not 0 <= self.reference < actions)
        for name, proposal in proposals.items():
            if (proposal.q_SR.shape, proposal.same_SA.shape) != ((states, rollouts), (states, actions)):
                wrong.append(f"proposals[{name!r}]")
        if wrong:
            raise ValueError(f"{', '.join(wrong)} do not fit q_SAR of shape {q.shape}; pass an entry for each state")
        for name, proposal in proposals.items():
            if np.isfinite(check_utilities(proposal.q_SR[:, None])[columns["abstained_S"]]).any():
                raise ValueError(f"proposals[{name!r}] has a utility where abstained_S is true; write NaN there")
        for array in (*columns.values(), *(x for one in proposals.values() for x in (one.q_SR, one.same_SA))):
            array.setflags(write=False)
        for name, value in {**columns, "proposals": proposals}.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.q_SAR)

    def select(self: "States", prompts: ArrayLike) -> "States":
        """Return the states that belong to the given prompts."""
        these_S = np.isin(self.prompt_S, np.asarray(prompts))
        columns: dict[str, Any] = {name: getattr(self, name)[these_S] for name in (*_COLUMNS, "q_SAR")}
        cut = {name: ProposedAction(p.q_SR[these_S], p.same_SA[these_S]) for name, p in self.proposals.items()}
        return replace(self, **columns, proposals=cut)


class ValidationSet(StateSet):
    """Sampled states of validation prompts, the only ones that choices are made on."""


class HeldOutSet(StateSet):
    """Sampled states of held-out prompts, which are measured on and choose nothing."""


States = TypeVar("States", bound=StateSet)


def check_utilities(q_SAR: ArrayLike) -> Array:
    """Return utilities as floats; refuse an empty table and values outside [0, 1]."""
    q = np.asarray(q_SAR, dtype=np.float64)
    if q.ndim != 3 or 0 in q.shape:
        kind = NotEnough if q.ndim == 3 and 0 not in q.shape[1:] else ValueError
        raise kind(f"q_SAR has shape {q.shape}; it must be states by actions by rollouts, none of them 0")
    if ((q < -TIE) | (q > 1 + TIE)).any():
        raise ValueError(
            f"q_SAR has values from {np.nanmin(q)} to {np.nanmax(q)}; utilities lie in [0, 1]: scale yours, and write "
            "NaN where one is missing"
        )
    return q


def require_role(states: object, kind: type[StateSet]) -> None:
    """Refuse states of the wrong role: held-out where choices are made, or validation where numbers are measured."""
    if not isinstance(states, kind):
        raise LeakageError(
            f"the states are a {type(states).__name__}; allowed here: a {kind.__name__}, because states that choices "
            "were made on flatter; split by prompt"
        )


def require_disjoint_prompts(validation: StateSet, held_out: StateSet) -> None:
    """Refuse validation and held-out states that share a prompt or do not have the same candidates."""
    require_role(validation, ValidationSet)
    require_role(held_out, HeldOutSet)
    both = set(validation.prompt_S.tolist()) & set(held_out.prompt_S.tolist())
    if both:
        raise LeakageError(
            f"prompt {sorted(map(str, both))[0]!r} and {len(both) - 1} others are in both sets; a prompt may be in one "
            "of them: split by prompt"
        )
    if (validation.candidates, validation.reference) != (held_out.candidates, held_out.reference):
        raise ValueError(
            f"candidates are {validation.candidates} and {held_out.candidates}, references {validation.reference} and "
            f"{held_out.reference}; validation and held-out states must have the same, in one order"
        )


def masked_share(prompt_S: ArrayLike, masked_S: ArrayLike) -> Array:
    """Compute the masked fraction of each state's answer from its prompt and its number of masked positions.

    The first state of every prompt is taken before the first step, so its count is the length of the answer.
    """
    masked = np.asarray(masked_S)
    _, code_S = np.unique(np.asarray(prompt_S), return_inverse=True)
    most_P = np.zeros(code_S.max() + 1)
    np.maximum.at(most_P, code_S, masked)
    return np.asarray(masked / np.maximum(most_P[code_S], 1))


# 2. Cross-fitted opportunity


@dataclass(frozen=True)
class CrossFit:
    """Cross-fitted opportunity of every state over its fixed action. Excluded states have NaN, and action -1."""

    g_S: Array
    """The cross-fitted estimate of `eq:crossfit_axis_opportunity`; below 0 where the folds disagree."""
    g_FS: Array
    """Opportunity of the action picked on fold f, graded on the other fold; `g_S` is the mean of both."""
    seen_FS: Array
    """Opportunity as fold f itself sees it, >= 0. It ranks states; as a gain it would flatter."""
    chosen_FS: Ints
    """Best action of each state by fold f."""
    naive_S: Array
    """Opportunity picked and graded on the same rollouts, for the audit; biased upwards."""
    noisy_S: Bools
    """Whether rollouts of some action differ."""
    used_S: Bools
    """Whether the fixed action has a utility in both folds; otherwise the state is excluded."""
    fixed_S: Ints
    q_FSA: Array
    """Mean utility in each fold; NaN for an action without one in either, which cannot be picked."""
    crossfitted: bool
    """Whether the folds are different rollouts; False where rollouts cannot differ."""

    @property
    def q_SA(self) -> Array:
        """Mean utility of each action at each state: the mean over both folds, so that gains of all actions add up."""
        return np.asarray(self.q_FSA.mean(0))

    @property
    def fixed_utility(self) -> float:
        """Mean utility of the fixed action over the states that are not excluded; NaN without one.

        Opportunity is a gain over this number, so both are taken over the same states and the same fold means.
        """
        known_S = _values_of_action(self.q_SA, self.fixed_S)[self.used_S]
        return float(known_S.mean()) if len(known_S) else float("nan")

    @property
    def delta(self) -> float:
        """Mean opportunity over the states that are not excluded; NaN without one."""
        # State by state, as sums of several columns are added; `sum` of one column adds in pairs.
        total, states = np.stack([np.where(self.used_S, self.g_S, 0.0), self.used_S], 1).sum(0)
        return float(total / states) if states else float("nan")


def cross_fit(
    q_SAR: ArrayLike, fixed: ArrayLike, *, reference: int | None = None, deterministic: bool = False
) -> CrossFit:
    """Estimate the opportunity of every state over `fixed`, an action (or one per state) that was chosen elsewhere.

    The best of several noisy means looks better than it is, even if all actions are equal. So the first and the second
    half of the rollouts are two folds: each picks an action, the other grades it, and the two grades are averaged. Ties
    go to the fixed action, then to the reference, then to the first.

    One rollout cannot be cross-fitted and is refused. If utilities have no noise, it is the truth: with
    `deterministic=True` every number is the plain one. Rollouts that differ are refused there.
    """
    q = check_utilities(q_SAR)
    states, actions, rollouts = q.shape
    known = np.isfinite(q)
    high_SA, low_SA = np.where(known, q, -np.inf).max(2), np.where(known, q, np.inf).min(2)
    # Without any known rollout the difference is -inf, which is no difference.
    differ_SA = high_SA - low_SA > TIE
    if deterministic and differ_SA.any():
        raise ValueError("rollouts of some action differ; with deterministic=True they must be equal: leave it out")
    if rollouts == 1 and not deterministic:
        raise NotEnough(
            "q_SAR has 1 rollout; cross-fitting needs 2 or more: add rollouts, or pass deterministic=True if another "
            "rollout could not differ"
        )
    fixed_S = np.broadcast_to(np.asarray(fixed, dtype=np.int64), (states,))
    if not ((fixed_S >= 0) & (fixed_S < actions)).all():
        raise ValueError(f"fixed is {fixed!r}; the table has actions 0..{actions - 1}")
    # Halves, not every other rollout: rollouts are numbered, and stored studies were graded so.
    folds = [q, q] if deterministic else [q[:, :, : rollouts // 2], q[:, :, rollouts // 2 :]]
    q_FSA = np.stack([mean_over_rollouts(fold) for fold in folds])
    # An action without a utility in one fold could be picked by the other and not be graded.
    q_FSA = np.where(np.isfinite(q_FSA).all(0), q_FSA, np.nan)
    used_S = np.isfinite(_values_of_action(q_FSA[0], fixed_S))
    chosen_FS = np.stack([_choose_best_actions(q_SA, fixed_S, reference) for q_SA in q_FSA])
    # Means of equal rollouts can differ in the last bit, and a gain of 1e-17 would count as positive.
    gain_FSA = zero_rounding(q_FSA - np.stack([_values_of_action(q_SA, fixed_S) for q_SA in q_FSA])[:, :, None])
    g_FS = np.stack([_values_of_action(gain_FSA[1 - f], chosen_FS[f]) for f in (0, 1)])
    mean_SA = np.where(np.isfinite(q_FSA[0]), mean_over_rollouts(q), np.nan)
    best_S, fixed_mean_S = np.where(np.isfinite(mean_SA), mean_SA, -np.inf).max(1), _values_of_action(mean_SA, fixed_S)
    return CrossFit(
        g_S=zero_rounding(g_FS.mean(0)),
        g_FS=g_FS,
        seen_FS=np.stack([_values_of_action(gain_FSA[f], chosen_FS[f]) for f in (0, 1)]),
        # Excluded states have a pick, too, because NaN is set to -inf for it; nothing may read that.
        chosen_FS=np.where(used_S, chosen_FS, -1),
        naive_S=zero_rounding(np.where(np.isfinite(fixed_mean_S), best_S, 0.0) - fixed_mean_S),
        noisy_S=differ_SA.any(1),
        used_S=used_S,
        fixed_S=fixed_S,
        q_FSA=q_FSA,
        crossfitted=not deterministic,
    )


def mean_over_rollouts(q_SAR: Array) -> Array:
    """Average over the rollouts that have a utility; NaN where none has."""
    known_SA = np.isfinite(q_SAR).sum(2)
    total_SA = np.where(np.isfinite(q_SAR), q_SAR, 0.0).sum(2)
    return np.divide(total_SA, known_SA, out=np.full(total_SA.shape, np.nan), where=known_SA > 0)


def _choose_best_actions(q_SA: Array, fixed_S: Ints, reference: int | None) -> Ints:
    """Choose the best action of each state; ties go to its fixed action, then to the reference, then to the first."""
    q = np.where(np.isfinite(q_SA), q_SA, -np.inf)
    tied_SA = q >= q.max(1, keepdims=True) - TIE
    chosen_S = tied_SA.argmax(1)
    if reference is not None:
        chosen_S = np.where(tied_SA[:, reference], reference, chosen_S)
    return np.where(_values_of_action(tied_SA, fixed_S), fixed_S, chosen_S)


def _values_of_action(x_SA: NDArray[Any], action_S: Ints) -> NDArray[Any]:
    """Return for each state the value in the column of its action."""
    return x_SA[np.arange(len(x_SA)), action_S]


# 3. The fixed action


def choose_fixed(q_SAR: ArrayLike, *, reference: int | None = None) -> FixedAction:
    """Choose the action with the best mean utility over validation states and all rollouts. `eq:adaptation_gap`

    Actions are compared on the same states: those where each of them has a utility. An action that has none anywhere
    is left out first. Ties go to the reference, then to the first.
    """
    mean_SA = mean_over_rollouts(check_utilities(q_SAR))
    known_A = np.asarray(np.isfinite(mean_SA).any(0))
    complete_S = np.isfinite(mean_SA[:, known_A]).all(1)
    if not known_A.any() or not complete_S.any():
        raise NotEnough(
            f"q_SAR has no state where all of its {int(known_A.sum())} actions with a utility have one; they must "
            "share one or more: leave out the action that is missing most"
        )
    mean_A = np.where(known_A, mean_SA[complete_S].mean(0), np.nan)
    # Utilities are 0 or more, so that -1 never ties.
    tied_A = np.nan_to_num(mean_A, nan=-1.0) >= np.nanmax(mean_A) - TIE
    action = reference if reference is not None and tied_A[reference] else int(tied_A.argmax())
    return FixedAction(action, mean_A, int(complete_S.sum()), int((~complete_S).sum()))


def choose_fixed_by_runs(whole_runs: pd.DataFrame, reference: int) -> FixedAction:
    """Choose as the fixed action the candidate whose whole runs have the best mean utility.

    `whole_runs` has a row per prompt and a column per candidate. Only prompts with a run of every candidate count, and
    means and counts are of prompts, not of states.
    """
    return choose_fixed(whole_runs.to_numpy(dtype=np.float64)[:, :, None], reference=reference)


# 4. Gains over the fixed action


def gains_over_fixed(
    states: StateSet, fixed: ArrayLike, proposal: str, *, deterministic: bool
) -> tuple[CrossFit, Array]:
    """Compute the opportunity over the fixed action, and the gain of the proposal over it in each fold, (F, S).

    The gain is 0 where the diagnostic abstains and NaN where a utility is missing.
    """
    fit = cross_fit(states.q_SAR, fixed, reference=states.reference, deterministic=deterministic)
    q_SR = states.proposals[proposal].q_SR
    # As a table of one action, so that a proposal is graded on the same folds as every candidate.
    proposed_FS = cross_fit(q_SR[:, None], 0, deterministic=deterministic).q_FSA[:, :, 0]
    fixed_FS = np.stack([_values_of_action(q_SA, fit.fixed_S) for q_SA in fit.q_FSA])
    return fit, zero_rounding(np.where(states.abstained_S, 0.0, proposed_FS - fixed_FS))


def gains_out_of_fold(
    states: ValidationSet, fixed: int, settings: CalibrationSettings, whole_runs: pd.DataFrame | None = None
) -> ValidationGains:
    """Compute the gain of each validation state over a fixed action chosen without its prompt.

    Prompts are cut into folds, and a state is compared with the action that is best on the other folds, so that it does
    not help to choose its own baseline. `fixed` is used where the other folds have no usable state, and everywhere
    where the settings say so.
    """
    require_role(states, ValidationSet)
    prompt_S, prompts = number_prompts(states.prompt_S)
    fold_S = assign_prompt_folds(prompts, settings.prompt_folds, settings.seed)[prompt_S]
    fixed_S = np.full(len(fold_S), fixed)
    for fold in range(int(fold_S.max()) + 1) if settings.fixed_out_of_fold else ():
        others_S = fold_S != fold
        with suppress(NotEnough):  # No state of the others has every utility.
            if whole_runs is None:
                chosen = choose_fixed(states.q_SAR[others_S], reference=states.reference)
            else:
                of_others = whole_runs[whole_runs.index.isin(states.prompt_S[others_S])]
                chosen = choose_fixed_by_runs(of_others, states.reference)
            fixed_S[~others_S] = chosen.action
    fit, gain_FS = gains_over_fixed(states, fixed_S, settings.proposal, deterministic=settings.deterministic)
    return ValidationGains(prompt_S, fold_S, states.signal_S, fit.g_S, zero_rounding(gain_FS.mean(0)))


# 5. Everything that validation chooses


def fit_calibration(
    states: ValidationSet, settings: CalibrationSettings, whole_runs: pd.DataFrame | None = None
) -> Calibration:
    """Choose the fixed action, the schedule, the bins and the thresholds on validation states.

    `whole_runs` has the utilities of whole runs, prompts by candidates, where they choose the fixed action.
    """
    require_role(states, ValidationSet)
    if (whole_runs is not None) != (settings.fixed == "end-to-end"):
        raise ValueError(f"fixed is {settings.fixed!r}; pass whole runs with 'end-to-end' and none with 'one-step'")
    fixed = (
        choose_fixed(states.q_SAR, reference=states.reference)
        if whole_runs is None
        else choose_fixed_by_runs(whole_runs, states.reference)
    )
    gains = gains_out_of_fold(states, fixed.action, settings, whole_runs)
    mean_SA = mean_over_rollouts(states.q_SAR)
    return Calibration(
        candidates=states.candidates,
        reference=states.reference,
        fixed=fixed,
        schedule=fit_schedule(mean_SA, states.masked_S, fixed.action, states.reference, settings.stages),
        detector=fit_detector(gains.signal_S, gains.g_S, settings.bins),
        theta=fit_action_threshold(gains, settings.bins, settings.caution),
        tau=fit_gate_threshold(gains, settings.bins, settings.caution, settings.rule),
        prompts=len(np.unique(states.prompt_S)),
        settings=settings,
    )


def estimate_gate_lift(
    states: ValidationSet, calibration: Calibration, whole_runs: pd.DataFrame | None = None
) -> Estimate:
    """Estimate the mean gain per state of the gate over the fixed action, on the states that it was calibrated on.

    It is measured out of fold, with an interval over prompts. A gate that never opens gains nothing.
    """
    require_role(states, ValidationSet)
    if calibration.tau.value is None:
        return Estimate(0.0, 0.0, 0.0)
    settings = calibration.settings
    gains = gains_out_of_fold(states, calibration.fixed.action, settings, whole_runs)
    gain_S = gate_gains(gains, settings.bins, settings.rule)
    return estimate_ratio(gain_S, np.ones(len(gain_S)), gains.prompt_S[gains.used_S], seed=settings.seed)


def estimate_tested_lift(states: ValidationSet, calibration: Calibration) -> Estimate:
    """Estimate the gain of a gate per state on validation prompts that its calibration has not seen."""
    require_role(states, ValidationSet)
    settings = calibration.settings
    fit, gain_FS = gains_over_fixed(
        states, calibration.fixed.action, settings.proposal, deterministic=settings.deterministic
    )
    open_S = calibration.tau.is_reached(calibration.detector.predict(states.signal_S)) & ~states.abstained_S
    used_S = fit.used_S & np.isfinite(gain_FS[0])
    gain_S = np.where(open_S, zero_rounding(gain_FS.mean(0)), 0.0)[used_S]
    return estimate_ratio(gain_S, np.ones(len(gain_S)), states.prompt_S[used_S], seed=settings.seed)


# 6. Held-out states, for all numbers of E2 and E3


def held_out_frame(states: HeldOutSet, calibration: Calibration) -> pd.DataFrame:
    """Build a table with a row per held-out state: the numbers known before acting, and the gain of each arm.

    Before acting: `prompt`, `place` among the prompt's states, `bin` of the detector (-1 without a signal),
    `predicted` opportunity (NaN ranks last), `proposes`, `acts` (the signal reaches theta), `opens` (the prediction
    reaches tau). Utility: `fixed`, that of the fixed action. Gains over it, the mean of both folds: `stage`, `always`
    (the proposal wherever there is one), `diagnostic` (where it acts), `selective` (where the gate opens), `oracle`
    (cross-fitted opportunity). By fold f: `oracle_f`, `seen_f` (opportunity as that fold itself saw it) and `always_f`.
    The proposal's next state is that of the fixed action, the oracle's, any candidate: `same_fixed`, `same_oracle`
    (both folds averaged), `same_any`.
    """
    require_role(states, HeldOutSet)
    settings, fixed, row = calibration.settings, calibration.fixed.action, np.arange(len(states))
    fit, gain_FS = gains_over_fixed(states, fixed, settings.proposal, deterministic=settings.deterministic)
    q_SA, proposes_S = fit.q_SA, ~states.abstained_S
    stage_S = zero_rounding(_values_of_action(q_SA, calibration.schedule.actions(states.masked_S)) - q_SA[:, fixed])
    always_S, predicted_S = zero_rounding(gain_FS.mean(0)), calibration.detector.predict(states.signal_S)
    acts_S = calibration.theta.is_reached(states.signal_S) & proposes_S
    opens_S = calibration.tau.is_reached(predicted_S) & proposes_S
    same_SA = states.proposals[settings.proposal].same_SA
    columns = {
        "prompt": states.prompt_S,
        "place": states.place_S,
        "bin": calibration.detector.find_bin(states.signal_S),
        "predicted": predicted_S,
        "proposes": proposes_S,
        "acts": acts_S,
        "opens": opens_S,
        "fixed": q_SA[:, fixed],
        "stage": stage_S,
        "always": always_S,
        "diagnostic": np.where(acts_S, always_S, 0.0),
        "selective": np.where(opens_S, always_S, 0.0),
        "oracle": fit.g_S,
        "same_fixed": same_SA[:, fixed] & proposes_S,
        "same_oracle": np.mean([same_SA[row, chosen_S] for chosen_S in fit.chosen_FS], 0) * proposes_S,
        "same_any": same_SA.any(1) & proposes_S,
    }
    for f in (0, 1):
        columns |= {f"oracle_{f}": fit.g_FS[f], f"seen_{f}": fit.seen_FS[f], f"always_{f}": gain_FS[f]}
    # One set of states for all arms: otherwise their differences would be between states, too.
    used_S = fit.used_S & np.isfinite(gain_FS[0]) & np.isfinite(stage_S)
    if not used_S.any():
        raise NotEnough(
            "no held-out state has utilities of the fixed action, the scheduled action and the proposal in both folds; "
            "one or more are needed: add rollouts, or leave this setting out"
        )
    return pd.DataFrame(columns)[used_S].reset_index(drop=True)
