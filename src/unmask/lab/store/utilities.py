"""Arrays that the statistics read of a study: utilities as an array, states by candidates by rollouts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class Utilities:
    """Utilities of one model, task, split and axis."""

    prompt_S: tuple[str, ...]
    state_S: np.ndarray
    step_S: np.ndarray
    masked_S: np.ndarray
    candidates: tuple[str, ...]
    """The reference first, then by name."""
    utility_SAR: np.ndarray
    """NaN where the evaluator could not tell."""


def utilities_of(table: pa.Table) -> Utilities:
    """Arrange the stored branches of one model, task, split and axis as an array: state, candidate, rollout."""
    columns = {name: table[name].to_pylist() for name in ("prompt", "state", "candidate", "rollout", "is_reference")}
    names = sorted(set(zip((not r for r in columns["is_reference"]), columns["candidate"], strict=True)))
    order = {name: at for at, (_, name) in enumerate(names)}
    states = sorted(set(zip(columns["prompt"], columns["state"], strict=True)))
    place = {state: at for at, state in enumerate(states)}
    rollouts = max(columns["rollout"]) + 1
    utility_SAR = np.full((len(states), len(names), rollouts), np.nan)
    s = [place[key] for key in zip(columns["prompt"], columns["state"], strict=True)]
    a = [order[name] for name in columns["candidate"]]
    utility_SAR[s, a, columns["rollout"]] = table["utility"].to_numpy(zero_copy_only=False)
    step_S, masked_S = np.zeros(len(states), int), np.zeros(len(states), int)
    step_S[s], masked_S[s] = table["step"].to_numpy(), table["masked"].to_numpy()
    return Utilities(
        tuple(prompt for prompt, _ in states),
        np.array([state for _, state in states]),
        step_S,
        masked_S,
        tuple(name for _, name in names),
        utility_SAR,
    )


def split_table(table: pa.Table, columns: Sequence[str]) -> Iterator[tuple[tuple[str, ...], pa.Table]]:
    """Split a table by the values of some columns; yields the values and the part."""
    if not columns:
        yield (), table
        return
    for value in pc.unique(table[columns[0]]).to_pylist():
        part = table.filter(pc.equal(table[columns[0]], value))
        yield from (((value, *rest), leaf) for rest, leaf in split_table(part, columns[1:]))
