"""Choices on validation prompts, from a study's tables: fixed action, schedule, detector, gates and axis.

`fit_calibrations` goes from branches and readings of validation prompts to one calibration for each model, task and
diagnostic. The arms decode with it, and `unmask.lab.analysis` measures what it is worth on held-out prompts.

The arm `selective` is the gate `lift`: tau by what the proposal gains out of fold, opportunity over the fixed action
that a prompt's other folds choose. Each further gate is an arm of its own, with a random gate of its own coverage.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from unmask.adapt import DIAGNOSTICS
from unmask.adapt.diagnostics import score
from unmask.axes import AXES, POLICY, SCORE, revises, weights
from unmask.base.errors import SchemaError, UnknownName
from unmask.lab.store import Store, Utilities, split_table, utilities_of
from unmask.methods import DEFAULT_ORDER, OWN_NAME, Composed, candidate, with_explicit_order
from unmask.stats import TIE, Array, Calibration, CalibrationSettings, NotEnough
from unmask.stats.protocol import (
    HeldOutSet,
    ProposedAction,
    ValidationSet,
    choose_fixed,
    cross_fit,
    fit_calibration,
    masked_share,
)

LIFT = "lift"
"""Name of the usual gate, whose arms are called `selective` and `random gate`."""
GATE_VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "mean": {"rule": "mean"},
    "lift-together": {"fixed_out_of_fold": False},
    "mean-together": {"rule": "mean", "fixed_out_of_fold": False},
    "snapped": {"proposal": "snapped"},
}
"""Changes to the settings of a calibration. `mean`: bins above the mean validation opportunity open; `together`:
opportunity over the fixed action that all prompts choose, as the paper's equations have it; `snapped`: the candidate
nearest to the proposal is taken in its place."""
AXIS_BY = ("lift", "opportunity")
"""Ways to choose the axis of E4's headline on validation prompts."""
DECODED_ARMS = ("reference", "fixed", "stage", "always", "selective")
CONTROLS = ("end-to-end fixed", "random gate")
DRAWS = 4
"""Runs of the random gate, averaged for each prompt."""
FURTHER_DRAWS = 1
"""Runs of a further gate's random gate; the usual one has more, because it is the control of every table."""
SEARCH = "search"
"""Stored name, in place of an axis, of decodes of searches and of their controls."""
JOINT = "joint"
"""Stored name, in place of an axis, of the arm that adapts all axes together; it is not in the paper."""
JOINT_FIXED = "joint fixed"

Row = Mapping[str, Any]
"""A row of the table `readings`."""
StateKey = tuple[str, int]
"""A prompt, and which of its states."""
States = TypeVar("States", ValidationSet, HeldOutSet)


def selective_arm(gate: str) -> str:
    """Return the stored name of a gate's arm."""
    return "selective" if gate == LIFT else f"selective {gate}"


def random_arm(gate: str) -> str:
    """Return the stored name of the random gate that is a gate's control."""
    return "random gate" if gate == LIFT else f"random gate {gate}"


@dataclass(frozen=True)
class AxisCalibration:
    """The calibration of one model, task and diagnostic. No other prompts than those of validation were used."""

    axis: str
    calibration: Calibration
    opportunity: float
    """Cross-fitted Delta_adapt on validation states."""
    gates: Mapping[str, Calibration] = field(default_factory=dict)
    """Calibrations of further gates, by name."""

    @property
    def lift(self) -> float:
        """Mean gain per state that the gate is expected to have."""
        return expected_lift(self.calibration)


def expected_lift(calibration: Calibration) -> float:
    """Return the out-of-fold gain of a calibration's gate; 0 for a gate that never opens."""
    return 0.0 if calibration.tau.value is None else calibration.tau.out_of_fold


@dataclass(frozen=True)
class MissingResult:
    """A model, task and axis of the study that has no numbers, and why."""

    model: str
    task: str
    axis: str
    reason: str
    diagnostic: str = ""
    """The diagnostic without numbers; empty where the whole axis has none."""


def is_extension(reference: str, axis: str) -> bool:
    """Tell whether an axis adds something to a reference's decoder: Dream's never revises, so commitment does.

    Names that are stored in place of an axis, such as `joint`, are no extensions.
    """
    return axis in AXES and reference in AXES[axis].extends


def why_not_cross_fitted(study: Mapping[str, Any], axis: str) -> str:
    """Return why nothing can be cross-fitted on an axis; an empty text if it can."""
    # The revision operator draws, on the commitment axis, whatever the temperature.
    draws = revises(axis) or (axis == POLICY and any(method["draws"] for method in study["methods"].values()))
    if study["rollouts"] == 1 and (study["temperature"] > 0 or draws):
        return "1 rollout of something that draws cannot be cross-fitted; 2 or more are needed"
    return ""


def settings_of(study: Mapping[str, Any]) -> CalibrationSettings:
    """Return the settings of a study's calibrations: the same for E3 and E4."""
    # One rollout is all there can be: what draws has been left out.
    return CalibrationSettings(seed=study["seed"], deterministic=study["rollouts"] == 1)


# Diagnostics and their readings


def diagnostic_names(study: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the names of the diagnostics of each axis of a stored study; without any, the name of the axis."""
    listed = study.get("diagnostics", {})
    for name in listed:
        if name not in DIAGNOSTICS:
            raise UnknownName("diagnostic of the stored study", name, DIAGNOSTICS)
    of_axis = {axis: tuple(n for n in listed if DIAGNOSTICS[n].axis == axis) for axis in study["axes"]}
    return {axis: names or (axis,) for axis, names in of_axis.items()}


def rows_by_state(axis: str, part: pa.Table) -> dict[StateKey, Row]:
    """Index the readings of one diagnostic by state. Ingredients are long, and only those of mixtures are needed."""
    rows = (part if AXES[axis].mixes else part.drop_columns("ingredients")).to_pylist()
    return {(row["prompt"], row["state"]): row for row in rows}


# Fitting


def fit_calibrations(
    store: Store, gates: Sequence[str] = ()
) -> dict[tuple[str, str, str], AxisCalibration | MissingResult]:
    """Fit the calibrations of all models, tasks and diagnostics on validation prompts, or say why one cannot be.

    `gates` are names of `GATE_VARIANTS` to fit as well. Evaluation rows are dropped before anything else is done.
    """
    study, keys = store.manifest["study"], ("model", "task", "axis")
    references = {spec["name"]: str(spec["reference"]) for spec in study["models"]}
    of_cell: dict[tuple[str, ...], dict[str, dict[StateKey, Row]]] = {}
    for (*cell, name), part in split_table(
        _select_validation_rows(store.read_arrow("readings")), (*keys, "diagnostic")
    ):
        of_cell.setdefault(tuple(cell), {})[name] = rows_by_state(cell[2], part)
    branches = _select_validation_rows(store.read_arrow("branches", ("step", "masked", "is_reference", "utility")))
    chosen: dict[tuple[str, str, str], AxisCalibration | MissingResult] = {}
    for (model, task, axis), part in split_table(branches, keys):
        for name, rows in of_cell.get((model, task, axis), {}).items():
            chosen[model, task, name] = _fit_calibration(
                (model, task, axis), name, part, rows, references[model], study, gates
            )
    return chosen


def _select_validation_rows(table: pa.Table) -> pa.Table:
    return table.filter(pc.equal(table["split"], "validation"))


def _fit_calibration(
    key: tuple[str, str, str],
    name: str,
    branches: pa.Table,
    read: Mapping[StateKey, Row],
    reference: str,
    study: Mapping[str, Any],
    gates: Sequence[str] = (),
) -> AxisCalibration | MissingResult:
    axis, settings = key[2], settings_of(study)
    # E1 does not get past this either.
    if reason := why_not_cross_fitted(study, axis):
        return MissingResult(*key, reason, name)
    utilities = utilities_of(branches)
    try:
        states = join_readings(ValidationSet, utilities, read, "validation", fixed_mixture(utilities, reference, axis))
        chosen = fit_calibration(states, settings)
        further = {gate: fit_calibration(states, settings.with_changes(**GATE_VARIANTS[gate])) for gate in gates}
        fit = cross_fit(states.q_SAR, chosen.fixed.action, reference=0, deterministic=settings.deterministic)
        return AxisCalibration(axis, chosen, fit.delta, further)
    except NotEnough as error:
        return MissingResult(*key, str(error), name)


def choose_axis(expected: Mapping[str, tuple[float, float]], by: str = "lift") -> str | None:
    """Choose the axis with the largest expected lift on validation prompts; None without any.

    `expected` are lift and opportunity by axis, or by diagnostic where an axis has several. Of equal lifts the largest
    opportunity wins, then the first name. With `by="opportunity"` it is the other way round, as the paper's rows
    suggest."""
    if by == "opportunity":
        expected = {name: (finite_opportunity(opportunity), lift) for name, (lift, opportunity) in expected.items()}
    best: str | None = None
    for name, (lift, opportunity) in expected.items():
        if best is None:
            best = name
            continue
        ahead, more = lift - expected[best][0], finite_opportunity(opportunity) - finite_opportunity(expected[best][1])
        if ahead > TIE or (abs(ahead) <= TIE and more > TIE):
            best = name
    return best


def finite_opportunity(opportunity: float) -> float:
    """Return an opportunity, or -2, which is below all others, where it could not be measured."""
    # Utilities lie in [0, 1], so a difference of two is never below -1.
    return opportunity if isfinite(opportunity) else -2.0


def fixed_mixture(validation: Utilities, reference: str, axis: str) -> list[float] | None:
    """Return the mixture of the fixed action, which the score signal is measured against; None on other axes."""
    if not AXES[axis].mixes:
        return None
    fixed = choose_fixed(validation.utility_SAR, reference=0)
    return mixture_of(reference, validation.candidates[fixed.action])


def mixture_of(reference: str, name: str) -> list[float]:
    """Return the weights of a candidate of the score axis; for a user's own reference those that order its cuts."""
    if reference not in ("llada", "dream"):
        return weights(DEFAULT_ORDER if name == OWN_NAME else name)
    policy = with_explicit_order(candidate(reference, SCORE.name, name))
    assert isinstance(policy, Composed)
    assert policy.score is not None
    return weights(policy.score)


# States for the statistics


def join_readings(
    kind: Callable[..., States],
    utilities: Utilities,
    read: Mapping[StateKey, Row],
    role: str,
    mixture: Sequence[float] | None,
) -> States:
    """Make a validation or held-out set of utilities and readings by state; every state must have a reading."""
    keys = list(zip(utilities.prompt_S, utilities.state_S.tolist(), strict=True))
    silent = sum(key not in read for key in keys)
    if silent:
        raise NotEnough(f"{silent} of {len(keys)} {role} states have no reading")
    return make_states(kind, utilities, [read[key] for key in keys], mixture)


def make_states(
    kind: Callable[..., States], utilities: Utilities, rows: Sequence[Row], mixture: Sequence[float] | None = None
) -> States:
    """Make a validation or held-out set of states and a reading for each. `mixture` is that of the fixed action."""
    states, actions, rollouts = utilities.utility_SAR.shape
    place = {name: at for at, name in enumerate(utilities.candidates)}
    raw_SR, snapped_SR = np.full((2, states, rollouts), np.nan)
    same_SA, snapped_same_SA = np.zeros((2, states, actions), dtype=np.bool_)
    for s, row in enumerate(rows):
        if row["abstained"]:
            continue
        _check_reading(row, place, rollouts)
        raw_SR[s] = np.array(row["utility"], dtype=np.float64)
        same_SA[s, [place[name] for name in row["same"]]] = True
        near = place[row["snapped"]]
        snapped_SR[s] = utilities.utility_SAR[s, near]
        # Stored is which candidates equal the proposal: if the snapped one is among them, it equals the same ones.
        snapped_same_SA[s] = same_SA[s] if same_SA[s, near] else np.arange(actions) == near
    return kind(
        prompt_S=np.array(utilities.prompt_S),
        place_S=utilities.state_S,
        masked_S=masked_share(utilities.prompt_S, utilities.masked_S),
        q_SAR=utilities.utility_SAR,
        signal_S=stored_signal(rows) if mixture is None else score_signal(rows, mixture),
        abstained_S=np.array([row["abstained"] for row in rows], dtype=np.bool_),
        proposals={"raw": ProposedAction(raw_SR, same_SA), "snapped": ProposedAction(snapped_SR, snapped_same_SA)},
        candidates=utilities.candidates,
        reference=0,
    )


def _check_reading(row: Row, candidates: Mapping[str, int], rollouts: int) -> None:
    strange, given = {row["snapped"], *row["same"]} - set(candidates), len(row["utility"])
    if strange or given != rollouts:
        and_names = f", and names {', '.join(map(str, strange))}" if strange else ""
        raise SchemaError(
            f"the reading of {row['axis']} at state {row['state']} of {row['prompt']!r} has {given} utilities"
            f"{and_names}; allowed: {rollouts}, and candidates of the study; remove the shard and run the study"
        )


def stored_signal(rows: Sequence[Row]) -> Array:
    """Return the signals as they were read; NaN where a diagnostic abstained."""
    return np.array([row["signal"] for row in rows], dtype=np.float64)


def score_signal(rows: Sequence[Row], mixture: Sequence[float]) -> Array:
    """Return the score signals against the fixed mixture; stored signals are against the reference's."""
    signal_S = np.full(len(rows), np.nan)
    ingredients = {s: json.loads(row["ingredients"]) for s, row in enumerate(rows) if not row["abstained"]}
    if ingredients:
        names = ("mu_BJ", "sigma_BJJ", "alpha_BJ")
        stored = {n: torch.tensor([one[n] for one in ingredients.values()], dtype=torch.float64) for n in names}
        fixed_BJ = torch.tensor(mixture, dtype=torch.float64).expand_as(stored["mu_BJ"])
        signal_S[list(ingredients)] = score.signal(stored, fixed_BJ).numpy()
    return signal_S
