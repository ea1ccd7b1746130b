"""Readings of all diagnostics at the states that are branched, and the candidates nearest to their proposals."""

import json
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch

from unmask.adapt import nearest_candidate, read_policy_diagnostics
from unmask.core import State, Trajectory
from unmask.engine import apply, hide_noise, raise_faults
from unmask.lab.branching.plan import BranchPlan
from unmask.lab.branching.stepper import CandidateStep

SUMMARY = tuple(f"{what}_{how}" for what in ("entropy", "margin") for how in ("mean", "spread", "least", "most"))
"""Columns that say how sure the prediction is of a state: entropy in nats of its masked positions, and the lead of the
most probable token over the second. NaN where nothing is masked."""
COLUMNS = ("row", "axis", "diagnostic", "signal", "abstained", "snapped", "same", "ingredients")


def read_diagnostics(plan: BranchPlan, seen: Trajectory, steps: Sequence[CandidateStep]) -> pd.DataFrame:
    """Read all diagnostics: a frame row for each diagnostic and row of `seen`, with signal and nearest candidate.

    `steps` are those of the plan's alternatives, in their order. `snapped` is the candidate nearest to the proposal,
    `same` are all that lead to the same next state, `ingredients` the signal's parts as JSON.
    """
    frames = []
    for name, reading in read_policy_diagnostics(plan.proposals, hide_noise(seen, *plan.proposals.values())).items():
        axis = plan.proposals[name].diagnostic.axis
        change = apply(seen.state, seen.current_prediction, reading.action)
        raise_faults(change.fault_B, seen.state.step_B, seen.rows_B)
        pairs = zip(plan.alternatives, steps, strict=True)
        candidates = {one.candidate: step for one, step in pairs if one.axis == axis and not one.diagnostic}
        names = np.array(list(candidates), object)
        actions = [step.action for step in candidates.values()]
        nearest_B = nearest_candidate(axis, seen.state, reading.action, change.revealed_BL, actions)
        same_AB = torch.stack([_same_next_state(change.state, step.change.state) for step in candidates.values()])
        columns = {
            "row": range(seen.state.batch),
            "axis": axis,
            "diagnostic": name,
            "signal": reading.signal_B.tolist(),
            "abstained": reading.abstains_B.tolist(),
            "snapped": names[nearest_B.cpu().numpy()],
            "same": [tuple(names[equal_A]) for equal_A in same_AB.T.cpu().numpy()],
            "ingredients": _ingredients_json(reading.ingredients, seen.state.batch),
        }
        frames.append(pd.DataFrame(columns))
    frame = pd.concat(frames, ignore_index=True)
    if not plan.summaries:
        return frame
    return frame.join(pd.DataFrame(state_summaries(seen), columns=list(SUMMARY)), on="row")


def _same_next_state(one: State, other: State) -> torch.Tensor:
    """Return a mask of the rows whose next states are equal."""
    canvas_B = (one.tokens_BL == other.tokens_BL).all(-1)
    return canvas_B & (one.committed_BL == other.committed_BL).all(-1)


def _ingredients_json(ingredients: Mapping[str, torch.Tensor], rows: int) -> list[str]:
    parts = {name: value.tolist() for name, value in sorted(ingredients.items())}
    return [json.dumps({name: values[row] for name, values in parts.items()}) for row in range(rows)]


def state_summaries(traj: Trajectory) -> np.ndarray:
    """Summarise how sure the prediction is at each state, in the columns of `SUMMARY`.

    Only masked positions are summed, and on the host, so that neither padding nor company can change a bit.
    """
    length, clean = traj.state.tokens_BL.shape[1], traj.current_prediction.clean
    masked_BL = traj.state.masked_BL & traj.current_prediction.wanted_BN[:, :length]
    parts = (masked_BL, clean.entropy_BN[:, :length], clean.margin_BN[:, :length])
    masked_BL, *values = torch.stack([part.double() for part in parts]).cpu().numpy()
    summaries = np.full((len(masked_BL), len(SUMMARY)), np.nan)
    for row, open_L in enumerate(masked_BL > 0):
        if open_L.any():
            of_row = [value_BL[row, open_L] for value_BL in values]
            summaries[row] = [number for x in of_row for number in (x.mean(), x.std(), x.min(), x.max())]
    return summaries
