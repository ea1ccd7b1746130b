"""What diagnostics say at the states that are branched, and which candidates their proposals come close to."""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from unmask.adapt import Reading, nearest_candidate, read_together
from unmask.core import Action, State, Trajectory
from unmask.engine import Transition, hide_noise
from unmask.lab.branch.bucket import Bucket
from unmask.lab.branch.stepper import Stepper
from unmask.lab.branch.summaries import StateSummary, summarised

Taken = tuple[Action, Transition]
"""The action that a policy takes at some states, and what comes of it."""


class StoredReading(NamedTuple):
    """What a diagnostic said at a state."""

    prompt: str
    state: int
    axis: str
    diagnostic: str
    """Its name; there may be several of one axis."""
    signal: float
    """NaN where it abstained."""
    abstained: bool
    snapped: str
    """The candidate nearest to the proposal."""
    same: tuple[str, ...]
    """Candidates that lead to the same next state."""
    ingredients: str
    """What the signal was made of, as JSON."""
    summary: StateSummary | None = None
    """Of the prediction at the state, where the plan asks for it; every diagnostic there has the same."""


def diagnose(
    bucket: Bucket, stepper: Stepper, points: Sequence[int], seen: Trajectory, taken: Sequence[Taken]
) -> list[StoredReading]:
    """What every diagnostic says at some states, beside what every alternative does there (`taken`, in their order)."""
    proposals = bucket.plan.proposals
    summaries = summarised(seen) if proposals and bucket.plan.summaries else [None] * len(points)
    stored = []
    for name, reading in read_together(proposals, hide_noise(seen, *proposals.values())).items():
        axis = proposals[name].diagnostic.axis
        pairs = zip(bucket.alternatives, taken, strict=True)
        candidates = {one.candidate: step for one, step in pairs if one.axis == axis and not one.diagnostic}
        proposed = (reading.action, stepper.change(seen, reading.action))
        snapped, same = _compared(axis, seen.state, proposed, candidates)
        signals, abstained, ingredients = reading.signal_B.tolist(), reading.abstains_B.tolist(), _ingredients(reading)
        stored += [
            StoredReading(
                prompt=bucket.points[at].request.id,
                state=bucket.points[at].sampled.index,
                axis=axis,
                diagnostic=name,
                signal=signals[row],
                abstained=abstained[row],
                snapped=snapped[row],
                same=same[row],
                ingredients=ingredients[row],
                summary=summaries[row],
            )
            for row, at in enumerate(points)
        ]
    return stored


def _compared(
    axis: str, state: State, proposed: Taken, candidates: Mapping[str, Taken]
) -> tuple[list[str], list[tuple[str, ...]]]:
    """Row by row: the candidate nearest to the proposal, and all that lead to the same next state."""
    names, (action, change) = list(candidates), proposed
    others = [other for other, _ in candidates.values()]
    nearest_B = nearest_candidate(axis, state, action, change.revealed_BL, others)
    same_AB = torch.stack([_same(change.state, other.state) for _, other in candidates.values()])
    same = [tuple(name for name, equal in zip(names, row, strict=True) if equal) for row in same_AB.T.tolist()]
    return [names[at] for at in nearest_B.tolist()], same


def _ingredients(reading: Reading) -> list[str]:
    """What each row's signal was made of, as JSON."""
    parts = {name: value.tolist() for name, value in sorted(reading.ingredients.items())}
    rows = range(len(reading.signal_B))
    return [json.dumps({name: values[row] for name, values in parts.items()}) for row in rows]


def _same(one: State, other: State) -> Tensor:
    """Rows whose next states are equal."""
    canvas_B = (one.tokens_BL == other.tokens_BL).all(-1)
    return canvas_B & (one.committed_BL == other.committed_BL).all(-1)
