"""What a learned detector reads of a state: every diagnostic's reading, how far the run is, how sure the prediction.

All of it is known before acting. Which numbers there are is settled by validation states; held-out states are then
looked up by the same names.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import pandas as pd

from unmask.lab.choose import Row, StateKey
from unmask.lab.store import Utilities
from unmask.lab.store.schemas import SUMMARY
from unmask.stats import Array

Terms = Mapping[str, float]
"""Numbers of one state by name."""
SILENT = "abstained"


@dataclass(frozen=True)
class ReadStates:
    """Readings of all diagnostics of one model, task and role, as numbers."""

    own: Mapping[str, Mapping[StateKey, Terms]]
    """By diagnostic: its signal, whether it abstained, and the terms that the signal was made of."""
    summary: Mapping[StateKey, Terms]
    """How sure the prediction was."""


def read_states(readings: Mapping[str, Mapping[StateKey, Row]]) -> ReadStates:
    """From stored rows by diagnostic."""
    own = {name: {key: reading_terms(row) for key, row in rows.items()} for name, rows in readings.items()}
    first: Mapping[StateKey, Row] = next(iter(readings.values()), {})
    summary = {key: {name: _known(row[name]) for name, _ in SUMMARY} for key, row in first.items()}
    return ReadStates(own, summary)


def reading_terms(row: Row) -> dict[str, float]:
    """Of one reading."""
    stored = json.loads(row["ingredients"])
    parts = {stem: value for name in sorted(stored) for stem, value in _spread(name, stored[name]).items()}
    return {"signal": _known(row["signal"]), SILENT: float(row["abstained"]), **parts}


def _spread(name: str, value: Any) -> dict[str, float]:
    """One ingredient as numbers that every state has: rules one by one, positions and counts as mean, least and most.

    The last letters of its name say what its axes are.
    """
    stem, _, axes = name.rpartition("_")
    if not isinstance(value, list):
        return {stem: _known(value)}
    if axes.endswith("J"):
        # Of a matrix of rules its diagonal: variances.
        rules = [x[at] for at, x in enumerate(value)] if axes.endswith("JJ") else value
        return {f"{stem} {at}": _known(x) for at, x in enumerate(rules)}
    known = [x for x in map(_known, value) if isfinite(x)] or [float("nan")]
    return {f"{stem} mean": float(np.mean(known)), f"{stem} least": min(known), f"{stem} most": max(known)}


def _known(value: Any) -> float:
    """NaN where there is none."""
    number = float("nan") if value is None else float(value)
    return number if isfinite(number) else float("nan")


def feature_names(validation: ReadStates, own: str) -> tuple[str, ...]:
    """Of everything but the signal of `own`, whose detector it is: that has a place of its own."""
    stage = ("masked share", "step share")
    parts = []
    for name, states in validation.own.items():
        terms = dict.fromkeys(term for one in states.values() for term in one)
        # Where it abstains, its detector says nothing at all.
        parts += [f"{name}: {term}" for term in terms if name != own or term not in ("signal", SILENT)]
    return (*stage, *(name for name, _ in SUMMARY), *parts)


def feature_frame(
    read: ReadStates, names: Sequence[str], utilities: Utilities, masked_S: Array, steps: int
) -> pd.DataFrame:
    """A row for each state of the utilities, in their order; NaN where a number is not known."""
    value_SN = np.full((len(masked_S), len(names)), np.nan)
    for s, key in enumerate(zip(utilities.prompt_S, utilities.state_S.tolist(), strict=True)):
        terms: dict[str, float] = {"masked share": masked_S[s], "step share": utilities.step_S[s] / steps}
        terms |= read.summary.get(key, {})
        for diagnostic, states in read.own.items():
            terms |= {f"{diagnostic}: {term}": value for term, value in states.get(key, {}).items()}
        value_SN[s] = [terms.get(name, float("nan")) for name in names]
    return pd.DataFrame(value_SN, columns=list(names))
