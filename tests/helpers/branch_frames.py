"""Results of branching as plain values that tests compare."""

import pandas as pd

from unmask.core import Trajectory
from unmask.lab.branching import SAVINGS, BranchFrames


def branches_of(frames: BranchFrames) -> list:
    """Every branch as a named tuple, in order."""
    return list(frames.branches.drop(columns="request").itertuples(index=False, name="Branch"))


def readings_of(frames: BranchFrames) -> list[str]:
    """Every reading as text, which is equal where both signals are NaN."""
    return [repr(tuple(row)) for row in frames.readings.drop(columns="request").itertuples(index=False)]


def states_of(frames: BranchFrames) -> dict[tuple[str, int], Trajectory]:
    """The sampled states by prompt and number, as they are stored."""
    rows = frames.states[["prompt", "state", "trajectory"]].itertuples(index=False)
    return {(prompt, state): Trajectory.from_bytes(content) for prompt, state, content in rows}


def work_by_axis(frames: BranchFrames) -> pd.DataFrame:
    """Row-forwards by axis, those that were saved, and `naive`: what a run of every branch by itself takes."""
    work = frames.costs.groupby("axis")[["branches", "done", *SAVINGS]].sum()
    saved = work[list(SAVINGS)].sum(axis=1)
    return work.assign(saved=saved, naive=work["done"] + saved)
