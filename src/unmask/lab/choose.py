"""A diagnostic's readings beside the utilities of their states: the tables that the statistics of E2 and E3 take."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from unmask.axes import SCORE
from unmask.axes.score import weights
from unmask.diagnostics import score
from unmask.errors import SchemaError
from unmask.lab.analysis.opportunity import masked_share
from unmask.lab.store.store import Utilities
from unmask.policies.candidates import Instead, candidate, written_out
from unmask.policies.fixed import Fixed
from unmask.stats import HeldOutTable, ProposedAction, ValidationTable
from unmask.stats.crossfit import Array

Row = Mapping[str, Any]
"""Of the table `readings`."""
Table = TypeVar("Table", ValidationTable, HeldOutTable)


def table_of(
    kind: Callable[..., Table], utilities: Utilities, rows: Sequence[Row], mixture: Sequence[float] | None = None
) -> Table:
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
        # Candidates are compared with the proposal, not with each other: what is known of others goes through it.
        snapped_same_SA[s] = same_SA[s] if same_SA[s, near] else np.arange(actions) == near
    return kind(
        prompt_S=np.array(utilities.prompt_S),
        masked_S=masked_share(utilities),
        q_SAR=utilities.utility_SAR,
        signal_S=stored_signal(rows) if mixture is None else score_signal(rows, mixture),
        abstained_S=np.array([row["abstained"] for row in rows], dtype=np.bool_),
        raw=ProposedAction(raw_SR, same_SA),
        snapped=ProposedAction(snapped_SR, snapped_same_SA),
        candidates=utilities.candidates,
        reference=0,
    )


def _check(row: Row, known: Mapping[str, int], rollouts: int) -> None:
    strange, given = {row["snapped"], *row["same"]} - set(known), len(row["utility"])
    if strange or given != rollouts:
        told = f", and names {', '.join(map(str, strange))}" if strange else ""
        raise SchemaError(
            f"the reading of {row['axis']} at state {row['state']} of {row['prompt']!r} has {given} utilities{told}; "
            f"allowed: {rollouts}, and candidates of the study; remove the shard and run the study"
        )


def stored_signal(rows: Sequence[Row]) -> Array:
    """d(z) as it was read; NaN where there is none."""
    return np.array([row["signal"] for row in rows], dtype=np.float64)


def score_signal(rows: Sequence[Row], mixture: Sequence[float]) -> Array:
    """d(z) against the fixed mixture; the stored one compares with the reference's, which may be another."""
    signal_S = np.full(len(rows), np.nan)
    told = {s: json.loads(row["ingredients"]) for s, row in enumerate(rows) if not row["abstained"]}
    if told:
        names = ("mu_BJ", "sigma_BJJ", "alpha_BJ")
        stored = {name: torch.tensor([found[name] for found in told.values()], dtype=torch.float64) for name in names}
        fixed_BJ = torch.tensor(mixture, dtype=torch.float64).expand_as(stored["mu_BJ"])
        signal_S[list(told)] = score.signal(stored, fixed_BJ).numpy()
    return signal_S


def mixture_of(reference: str, name: str) -> list[float]:
    """The weights of a candidate of the score axis."""
    policy = written_out(candidate(reference, SCORE.name, name))
    assert isinstance(policy, Fixed | Instead)
    assert policy.alpha is not None
    return weights(policy.alpha)
