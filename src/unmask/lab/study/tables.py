"""From frames to the tables of the store, column by column."""

from collections.abc import Mapping

import pandas as pd
import pyarrow as pa

from unmask.axes import POLICY
from unmask.lab.branching import PROPOSAL, BranchFrames
from unmask.lab.store import Shard, plain_schema
from unmask.lab.store.schemas import DIAGNOSTIC, FIRST_STEP, OWN_COST, SUMMARY


def shard_tables(shard: Shard, frames: BranchFrames, references: Mapping[str, str]) -> dict[str, pa.Table]:
    """Make the tables of a shard from frames whose branches have `text`, `utility` and `reason`.

    `references` are the reference's candidates by axis. Candidates' branches and proposals go into tables of their own.
    """
    of_shard = {"model": shard.model, "task": shard.task, "split": shard.split}
    own = frames.branches["candidate"] == PROPOSAL
    branches = frames.branches[~own].assign(
        is_reference=lambda frame: frame["axis"].map(references) == frame["candidate"],
        answer=lambda frame: frame["text"],
    )
    readings = _with_proposals(frames.readings, frames.branches[own])
    # What a method's own step took has columns where whole methods are tried, and the prediction's summary where a
    # learned detector is to read it.
    optional = {"branches": [name for name, _ in OWN_COST] if POLICY in references else [], "readings": [*readings]}
    return {
        name: _to_arrow(frame.assign(**of_shard), plain_schema(name, optional.get(name, ())))
        for name, frame in (("states", frames.states), ("branches", branches), ("readings", readings))
    }


def _with_proposals(readings: pd.DataFrame, proposals: pd.DataFrame) -> pd.DataFrame:
    """Join readings with the rollouts of their proposals, as lists; empty where a diagnostic abstained."""
    keys, lists = ["prompt", "state", "diagnostic"], ["utility", "reason", "answer", *FIRST_STEP]
    proposals = proposals.sort_values("rollout", kind="stable")
    # As objects: among numbers pandas would turn None into NaN, and a list in a table keeps what it holds.
    utility = proposals["utility"].astype(object).where(proposals["utility"].notna(), None)
    proposals = proposals.assign(utility=utility, answer=proposals["text"])
    rollouts = {key: [part[name].tolist() for name in lists] for key, part in proposals.groupby(keys, sort=False)}
    abstained = readings["abstained"].tolist()
    of_reading = zip(*(readings[key] for key in keys), abstained, strict=True)
    rows = [[[]] * len(lists) if silent else rollouts[tuple(key)] for *key, silent in of_reading]
    said = {
        "snapped": [None if silent else name for silent, name in zip(abstained, readings["snapped"], strict=True)],
        "same": [() if silent else names for silent, names in zip(abstained, readings["same"], strict=True)],
    }
    return readings.assign(**said, **{name: [row[at] for row in rows] for at, name in enumerate(lists)})


def _to_arrow(frame: pd.DataFrame, schema: pa.Schema) -> pa.Table:
    """Convert a frame to Arrow. NaN becomes a missing value, except in summaries of a prediction."""
    numbers = {name for name, _ in SUMMARY}
    columns = (
        pa.array(frame[name].tolist(), schema.field(name).type, from_pandas=name not in numbers)
        for name in schema.names
    )
    return pa.table(list(columns), schema)


def decodes_table(unit: Shard, frame: pd.DataFrame, *, named: bool = False) -> pa.Table:
    """Make the table of all answers of all arms; `named` adds the column of diagnostics."""
    schema = plain_schema("decodes", [DIAGNOSTIC[0]] if named else [])
    return _to_arrow(frame.assign(model=unit.model, task=unit.task, answer=frame["text"]), schema)
