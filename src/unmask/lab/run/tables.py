"""From what was run and judged to the tables of the store, column by column."""

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from unmask.axes import POLICY
from unmask.lab.branch import Branch, FirstStep, StoredReading
from unmask.lab.branch.states import ReferenceRun, Sampled, StateBatch
from unmask.lab.run.decode_cache import DecodeLine
from unmask.lab.run.judging import JudgedAnswer
from unmask.lab.store import Shard, plain_schema
from unmask.lab.store.schemas import DIAGNOSTIC, FIRST_STEP, SUMMARY


def branches_table(
    shard: Shard,
    branches: Sequence[Branch],
    rollouts: Sequence[Sequence[int]],
    judged: Sequence[JudgedAnswer],
    references: Mapping[str, str],
) -> pa.Table:
    """What every branch came to; each has a line for every rollout that it stands for.

    `references` are the reference's candidates by axis. What a method's own step took has columns of its own where
    whole methods are tried.
    """
    costs = {
        "extra_forwards": [b.extra_forwards for b in branches],
        "extra_tokens": [b.extra_tokens for b in branches],
    }
    costs = costs if POLICY in references else {}
    distinct = pa.table(
        {
            **_of_shard(shard, len(branches)),
            "prompt": [b.prompt for b in branches],
            "state": [b.state for b in branches],
            "step": [b.step for b in branches],
            "masked": [b.masked for b in branches],
            "axis": [b.axis for b in branches],
            "candidate": [b.candidate for b in branches],
            "is_reference": [references[b.axis] == b.candidate for b in branches],
            "rollout": [b.rollout for b in branches],
            "utility": [None if math.isnan(u) else u for _, u, _ in judged],
            "reason": [reason for _, _, reason in judged],
            "answer": [text for text, _, _ in judged],
            **_columns([b.first for b in branches]),
            **costs,
        },
        schema=plain_schema("branches", costs),
    )
    lines = np.repeat(np.arange(len(branches)), [len(own) for own in rollouts])
    whole, column = distinct.take(lines), distinct.schema.get_field_index("rollout")
    each = pa.array([rollout for own in rollouts for rollout in own], distinct.schema.field(column).type)
    return whole.set_column(column, distinct.schema.field(column), each)


def readings_table(
    shard: Shard, readings: Sequence[StoredReading], proposals: Sequence[tuple[Branch, JudgedAnswer]]
) -> pa.Table:
    """What diagnostics said, and what their proposals were worth; nothing where they abstained.

    How sure the prediction was has columns of its own where the plan asked for it.
    """
    of_reading: dict[tuple[str, int, str], list[tuple[Branch, JudgedAnswer]]] = {}
    for branch, verdict in sorted(proposals, key=lambda pair: pair[0].rollout):
        of_reading.setdefault((branch.prompt, branch.state, branch.diagnostic), []).append((branch, verdict))
    rows = [(r, [] if r.abstained else of_reading[r.prompt, r.state, r.diagnostic]) for r in readings]
    firsts = [_columns([branch.first for branch, _ in rollouts]) for _, rollouts in rows]
    summaries = [r.summary for r in readings if r.summary is not None]
    sure = {name: [getattr(one, name) for one in summaries] for name, _ in SUMMARY} if summaries else {}
    return pa.table(
        {
            **_of_shard(shard, len(rows)),
            "prompt": [r.prompt for r, _ in rows],
            "state": [r.state for r, _ in rows],
            "axis": [r.axis for r, _ in rows],
            "diagnostic": [r.diagnostic for r, _ in rows],
            "signal": [None if math.isnan(r.signal) else r.signal for r, _ in rows],
            "abstained": [r.abstained for r, _ in rows],
            "snapped": [None if r.abstained else r.snapped for r, _ in rows],
            "same": [[] if r.abstained else list(r.same) for r, _ in rows],
            "utility": [[None if math.isnan(v.utility) else v.utility for _, v in rollouts] for _, rollouts in rows],
            "reason": [[v.reason for _, v in rollouts] for _, rollouts in rows],
            "answer": [[v.text for _, v in rollouts] for _, rollouts in rows],
            **{name: [first[name] for first in firsts] for name in FIRST_STEP},
            "ingredients": [r.ingredients for r, _ in rows],
            **sure,
        },
        schema=plain_schema("readings", sure),
    )


def states_table(shard: Shard, paths: Sequence[ReferenceRun]) -> pa.Table:
    """The states that branches began at, and the past that diagnostics read."""
    rows = [(path, sampled) for path in paths for sampled in path.sampled]
    stored = _stored([sampled for _, sampled in rows])
    lengths = [len(path.request.canvas) for path, _ in rows]
    cut = list(zip(stored, lengths, strict=True))
    return pa.table(
        {
            **_of_shard(shard, len(rows)),
            "prompt": [sampled.prompt for _, sampled in rows],
            "state": [sampled.index for _, sampled in rows],
            "step": [sampled.step for _, sampled in rows],
            "masked": [sampled.masked for _, sampled in rows],
            "horizon": [path.request.steps for path, _ in rows],
            "taken": [path.steps for path, _ in rows],
            "tokens": [one.tokens_L[:n] for one, n in cut],
            "fixed": [one.fixed_L[:n] for one, n in cut],
            "committed": [one.committed_L[:n] for one, n in cut],
            "trajectory": [one.trajectory for one in stored],
        },
        schema=plain_schema("states"),
    )


class _StoredState(NamedTuple):
    """A state as a table has it."""

    tokens_L: np.ndarray
    fixed_L: np.ndarray
    committed_L: np.ndarray
    trajectory: bytes


def _stored(states: Sequence[Sampled]) -> list[_StoredState]:
    """Batch by batch, in the order given."""
    places: dict[StateBatch, list[int]] = {}
    for place, one in enumerate(states):
        places.setdefault(one.batch, []).append(place)
    stored: dict[int, _StoredState] = {}
    for batch, own in places.items():
        state, rows = batch.traj.state, [states[place].row for place in own]
        columns = (part.numpy() for part in (state.tokens_BL, state.fixed_BL, state.committed_BL))
        cut = [part_BL[rows] for part_BL in columns]
        stored |= dict(zip(own, map(_StoredState, *cut, _packed(batch, rows)), strict=True))
    return [stored[place] for place in range(len(states))]


def _packed(batch: StateBatch, rows: Sequence[int]) -> list[bytes]:
    """The states of some rows, each with its past; by several threads, since compressors let others run."""
    size = max(16, -(-len(rows) // PACKERS))
    parts = [rows[at : at + size] for at in range(0, len(rows), size)]
    if len(parts) == 1:
        return batch.traj.rows_to_bytes(rows)
    with ThreadPoolExecutor(PACKERS) as threads:
        return [packed for part in threads.map(batch.traj.rows_to_bytes, parts) for packed in part]


PACKERS = 4
"""Threads that pack states."""


def decodes_table(
    unit: Shard, lines: Sequence[DecodeLine], judged: Sequence[JudgedAnswer], *, named: bool = False
) -> pa.Table:
    """What every arm answered; `named` with the diagnostics, where they are not called as their axes."""
    n = len(lines)
    whose = {DIAGNOSTIC[0]: [line.diagnostic for line in lines]} if named else {}
    return pa.table(
        {
            "model": [unit.model] * n,
            "task": [unit.task] * n,
            "axis": [line.axis for line in lines],
            "arm": [line.arm for line in lines],
            "draw": [line.row.draw for line in lines],
            "split": [line.split for line in lines],
            "prompt": [line.row.prompt for line in lines],
            "utility": [None if math.isnan(utility) else utility for _, utility, _ in judged],
            "reason": [reason for _, _, reason in judged],
            "answer": [text for text, _, _ in judged],
            "evaluated": [line.evaluated for line in lines],
            "deviated": [line.deviated for line in lines],
            "forwards": [line.row.forwards for line in lines],
            **whose,
        },
        schema=plain_schema("decodes", whose),
    )


def _columns(firsts: Sequence[FirstStep]) -> dict[str, list[Sequence[int]]]:
    """What branches' own actions did, column by column."""
    return {name: [first[at] for first in firsts] for at, name in enumerate(FIRST_STEP)}


def _of_shard(shard: Shard, rows: int) -> dict[str, list[str]]:
    """The columns that are the same in all rows."""
    return {"model": [shard.model] * rows, "task": [shard.task] * rows, "split": [shard.split] * rows}
