"""What is chosen on validation prompts, from a study's tables: fixed action, schedule, thresholds, gate, axis.

`run` decodes with it and `analysis` measures what it was worth, so both import it and neither the other. Choices are
by the name of a diagnostic, with its axis beside it.
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
from unmask.lab.gates import GATES
from unmask.lab.store import Store, Utilities, parts, utilities_of
from unmask.methods import ORDER, OWN, Composed, candidate, with_explicit_order
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

DECODED_ARMS = ("reference", "fixed", "stage", "always", "selective")
CONTROLS = ("end-to-end fixed", "random gate")
DRAWS = 4
"""Runs of the random gate, averaged for each prompt."""
JOINT = "joint"
"""Beyond the paper: all axes adapted together; it stands under an axis of its own name."""
JOINT_FIXED = "joint fixed"

Row = Mapping[str, Any]
"""Of the table `readings`."""
StateKey = tuple[str, int]
"""A prompt, and which of its states."""
States = TypeVar("States", ValidationSet, HeldOutSet)


@dataclass(frozen=True)
class Choice:
    """What validation prompts say about one model, task and diagnostic; nothing in it has seen another prompt."""

    axis: str
    calibration: Calibration
    opportunity: float
    """Cross-fitted Delta_adapt on validation states."""
    gates: Mapping[str, Calibration] = field(default_factory=dict)
    """Calibrations of further gates, by name."""

    @property
    def lift(self) -> float:
        """What the gate promises; one that never opens promises nothing."""
        return promised_lift(self.calibration)


def promised_lift(calibration: Calibration) -> float:
    """Out of fold; 0 of a gate that never opens."""
    return 0.0 if calibration.tau.value is None else calibration.tau.out_of_fold


@dataclass(frozen=True)
class Missing:
    """A model, task and axis of the study that has no numbers."""

    model: str
    task: str
    axis: str
    reason: str
    diagnostic: str = ""
    """Whose numbers they would be; empty where the axis has none for anybody."""


def is_extension(reference: str, axis: str) -> bool:
    """Dream's native decoder is monotone: revising is not a choice that it has, but an extension of it.

    Means of the chosen axes and the joint arm stand under names that are no axes, and are none.
    """
    return axis in AXES and reference in AXES[axis].extends


def why_not_cross_fitted(study: Mapping[str, Any], axis: str) -> str:
    """Why nothing can be cross-fitted on an axis; empty if it can."""
    # The revision operator draws, on the commitment axis, whatever the temperature.
    draws = revises(axis) or (axis == POLICY and any(method["draws"] for method in study["methods"].values()))
    if study["rollouts"] == 1 and (study["temperature"] > 0 or draws):
        return "1 rollout of something that draws cannot be cross-fitted; 2 or more are needed"
    return ""


def settings_of(study: Mapping[str, Any]) -> CalibrationSettings:
    """How a study chooses on its validation prompts, whoever asks: the steps of E3 and the decodes of E4."""
    # One rollout is all there can be: what draws has been left out.
    return CalibrationSettings(seed=study["seed"], deterministic=study["rollouts"] == 1)


# Whose readings they are


def diagnostic_names(study: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Names of the diagnostics of each axis, any number, for a manifest's study; without any listed, the axis' own."""
    listed = study.get("diagnostics", {})
    for name in listed:
        if name not in DIAGNOSTICS:
            raise UnknownName("diagnostic of the stored study", name, DIAGNOSTICS)
    of_axis = {axis: tuple(n for n in listed if DIAGNOSTICS[n].axis == axis) for axis in study["axes"]}
    return {axis: names or (axis,) for axis, names in of_axis.items()}


def rows_by_state(axis: str, part: pa.Table) -> dict[StateKey, Row]:
    """Readings of one diagnostic. Ingredients are long, and only those of mixtures are needed."""
    rows = (part if AXES[axis].mixes else part.drop_columns("ingredients")).to_pylist()
    return {(row["prompt"], row["state"]): row for row in rows}


# Choosing


def choices(store: Store, gates: Sequence[str] = ()) -> dict[tuple[str, str, str], Choice | Missing]:
    """By model, task and diagnostic: what decoders are made of, or why they cannot be. The calibrations of `detect`.

    `gates` are further ones to calibrate, names of `GATES`. Evaluation rows are dropped before anything else is done.
    """
    study, keys = store.manifest["study"], ("model", "task", "axis")
    references = {spec["name"]: str(spec["reference"]) for spec in study["models"]}
    of_cell: dict[tuple[str, ...], dict[str, dict[StateKey, Row]]] = {}
    for (*cell, name), part in parts(_validation(store.read_arrow("readings")), (*keys, "diagnostic")):
        of_cell.setdefault(tuple(cell), {})[name] = rows_by_state(cell[2], part)
    branches = _validation(store.read_arrow("branches", ("step", "masked", "is_reference", "utility")))
    chosen: dict[tuple[str, str, str], Choice | Missing] = {}
    for (model, task, axis), part in parts(branches, keys):
        for name, rows in of_cell.get((model, task, axis), {}).items():
            chosen[model, task, name] = _choice((model, task, axis), name, part, rows, references[model], study, gates)
    return chosen


def _validation(table: pa.Table) -> pa.Table:
    return table.filter(pc.equal(table["split"], "validation"))


def _choice(
    key: tuple[str, str, str],
    name: str,
    branches: pa.Table,
    read: Mapping[StateKey, Row],
    reference: str,
    study: Mapping[str, Any],
    gates: Sequence[str] = (),
) -> Choice | Missing:
    axis, settings = key[2], settings_of(study)
    # E1 does not get past this either.
    if reason := why_not_cross_fitted(study, axis):
        return Missing(*key, reason, name)
    utilities = utilities_of(branches)
    try:
        states = join_readings(ValidationSet, utilities, read, "validation", fixed_mixture(utilities, reference, axis))
        chosen = fit_calibration(states, settings)
        further = {gate: fit_calibration(states, settings.with_changes(**GATES[gate])) for gate in gates}
        fit = cross_fit(states.q_SAR, chosen.fixed.action, reference=0, deterministic=settings.deterministic)
        return Choice(axis, chosen, fit.delta, further)
    except NotEnough as error:
        return Missing(*key, str(error), name)


def choose_axis(promised: Mapping[str, tuple[float, float]], by: str = "lift") -> str | None:
    """The axis with the largest lift promised on validation; of equal ones that with the largest opportunity there,
    then the first. `promised` are lift and opportunity by axis, in the order of the axes; None without any.

    By opportunity it is the other way round: the paper's rows suggest that. Where an axis has several diagnostics, each
    is one to choose, by its name."""
    if by == "opportunity":
        promised = {name: (_measured(opportunity), lift) for name, (lift, opportunity) in promised.items()}
    best: str | None = None
    for name, (lift, opportunity) in promised.items():
        if best is None:
            best = name
            continue
        ahead, more = lift - promised[best][0], _measured(opportunity) - _measured(promised[best][1])
        if ahead > TIE or (abs(ahead) <= TIE and more > TIE):
            best = name
    return best


def _measured(opportunity: float) -> float:
    """An opportunity that could not be measured settles no tie: utilities lie in [0, 1]."""
    return opportunity if isfinite(opportunity) else -2.0


def fixed_mixture(validation: Utilities, reference: str, axis: str) -> list[float] | None:
    """That of the fixed action, which the score signal compares with; other signals compare with nothing."""
    if not AXES[axis].mixes:
        return None
    fixed = choose_fixed(validation.utility_SAR, reference=0)
    return mixture_of(reference, validation.candidates[fixed.action])


def mixture_of(reference: str, name: str) -> list[float]:
    """The weights of a candidate of the score axis; of a reference of the user's own those that order its cuts."""
    if reference not in ("llada", "dream"):
        return weights(ORDER if name == OWN else name)
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
    """States beside their readings; each must have one."""
    keys = list(zip(utilities.prompt_S, utilities.state_S.tolist(), strict=True))
    silent = sum(key not in read for key in keys)
    if silent:
        raise NotEnough(f"{silent} of {len(keys)} {role} states have no reading")
    return make_states(kind, utilities, [read[key] for key in keys], mixture)


def make_states(
    kind: Callable[..., States], utilities: Utilities, rows: Sequence[Row], mixture: Sequence[float] | None = None
) -> States:
    """States with their readings, one row for each. `mixture` is the fixed one, on the score axis."""
    states, actions, rollouts = utilities.utility_SAR.shape
    place = {name: at for at, name in enumerate(utilities.candidates)}
    raw_SR, snapped_SR = np.full((2, states, rollouts), np.nan)
    same_SA, snapped_same_SA = np.zeros((2, states, actions), dtype=np.bool_)
    for s, row in enumerate(rows):
        if row["abstained"]:
            continue
        _check(row, place, rollouts)
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


def _check(row: Row, candidates: Mapping[str, int], rollouts: int) -> None:
    strange, given = {row["snapped"], *row["same"]} - set(candidates), len(row["utility"])
    if strange or given != rollouts:
        and_names = f", and names {', '.join(map(str, strange))}" if strange else ""
        raise SchemaError(
            f"the reading of {row['axis']} at state {row['state']} of {row['prompt']!r} has {given} utilities"
            f"{and_names}; allowed: {rollouts}, and candidates of the study; remove the shard and run the study"
        )


def stored_signal(rows: Sequence[Row]) -> Array:
    """d(z) as it was read; NaN where there is none."""
    return np.array([row["signal"] for row in rows], dtype=np.float64)


def score_signal(rows: Sequence[Row], mixture: Sequence[float]) -> Array:
    """d(z) against the fixed mixture; the stored one compares with the reference's, which may be another."""
    signal_S = np.full(len(rows), np.nan)
    ingredients = {s: json.loads(row["ingredients"]) for s, row in enumerate(rows) if not row["abstained"]}
    if ingredients:
        names = ("mu_BJ", "sigma_BJJ", "alpha_BJ")
        stored = {n: torch.tensor([one[n] for one in ingredients.values()], dtype=torch.float64) for n in names}
        fixed_BJ = torch.tensor(mixture, dtype=torch.float64).expand_as(stored["mu_BJ"])
        signal_S[list(ingredients)] = score.signal(stored, fixed_BJ).numpy()
    return signal_S
