"""Prompts decoded from beginning to end: the one way for studies, comparisons, calibrations, verification and the demo.

A row's tokens follow from its request, the policy, the seed, the number of its draw and the width of the canvas, which
moves last bits. Who is decoded beside it changes nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pandas as pd
import torch
from torch import Tensor

from unmask.adapt import coverage
from unmask.api import LoadedModel, Request, start_trajectory
from unmask.core import AnswerCost, Policy, SamplingParams, Search, Trajectory, cost_columns
from unmask.engine import decode


def decode_prompts(
    model: LoadedModel,
    requests: Sequence[Request],
    policy: Policy | Search,
    *,
    seed: int,
    draws: int | Sequence[int] = 1,
    slots: int | None = None,
    batch_size: int | None = None,
    sampling: SamplingParams | None = None,
    count_coverage: bool = False,
    on_batch: Callable[[pd.DataFrame], None] = lambda batch: None,
) -> pd.DataFrame:
    """Decode every request `draws` times, each draw with random numbers of its own; a row per draw and request.

    Rows are ordered by draw, then as the requests are. A sequence of draws gives one number for each request instead:
    that is how part of a larger grid is decoded. The first draw has the random numbers of `Model.generate`.

    `slots` is the width of all canvases, by default that of the widest in a batch; `batch_size` rows are decoded
    together, by default all. `on_batch` gets the rows of every batch. `count_coverage` fills the column `coverage`,
    which needs a look at every step, and on a GPU steps that are looked at are not replayed as graphs.

    Columns: `prompt` (id of the request), `draw`, `answer` (tuple of tokens), `answer_tokens` (those before the first
    end of text), the costs of `AnswerCost`, and `coverage` (by diagnostic: steps with a signal, steps that left the
    fixed action; empty for policies without a gate).
    """
    if isinstance(draws, int):
        rows = [(request, draw) for draw in range(draws) for request in requests]
    else:
        rows = list(zip(requests, draws, strict=True))
    size = batch_size or max(1, len(rows))
    batches = []
    for at in range(0, len(rows), size):
        batch = _decode_batch(model, rows[at : at + size], policy, seed, slots, sampling, count_coverage)
        on_batch(batch)
        batches.append(batch)
    return pd.concat(batches, ignore_index=True) if batches else pd.DataFrame(columns=COLUMNS)


def group_by_width(requests: Sequence[Request], bucket: int) -> dict[int, list[Request]]:
    """Group requests by the width of the canvas they are decoded on: once, twice, four times the bucket.

    A row's width follows from its prompt, whoever is decoded beside it; and there are few widths, for a decode takes as
    long with ten rows as with a hundred.
    """
    groups: dict[int, list[Request]] = {}
    for request in requests:
        buckets = -(-len(request.canvas) // bucket)
        groups.setdefault(bucket << (buckets - 1).bit_length(), []).append(request)
    return dict(sorted(groups.items()))


COLUMNS = ("prompt", "draw", "answer", "answer_tokens", *AnswerCost._fields, "coverage")


def _decode_batch(
    model: LoadedModel,
    rows: Sequence[tuple[Request, int]],
    policy: Policy | Search,
    seed: int,
    slots: int | None,
    sampling: SamplingParams | None,
    count_coverage: bool,
) -> pd.DataFrame:
    denoiser = model.denoiser
    requests, draws = [request for request, _ in rows], [draw for _, draw in rows]
    start = start_trajectory(denoiser, requests, seed, slots, draws, policy.extra_steps)
    # Per diagnostic (2, B): steps with a signal, and steps that left the fixed action.
    counts: dict[str, Tensor] = {}

    def count(traj: Trajectory) -> None:
        # A step names its rows by their number in the batch, so it is counted beside all rows that began.
        for name, new in coverage(replace(start, steps=traj.steps[-1:])).items():
            counted_2B = torch.stack((new.evaluated_B, new.deviated_B))
            counts[name] = counts[name] + counted_2B if name in counts else counted_2B

    on_step = count if count_coverage and isinstance(policy, Policy) else None
    # Nothing here has gradients: without the mode a fifth of the time between forwards goes to keeping track of them.
    with torch.inference_mode():
        end = decode(denoiser, policy, start, sampling=sampling, record=False, on_step=on_step)
        # One copy to the host for all rows: each copy waits for the device.
        width = end.state.tokens_BL.shape[1]
        table = torch.cat((end.state.tokens_BL, torch.stack(cost_columns(end), 1)), 1).cpu().numpy()
        by_row = {name: counts_2B.T.tolist() for name, counts_2B in counts.items()}
    answers = [tuple(row[slice(*request.answer)].tolist()) for row, request in zip(table, requests, strict=True)]
    ends = denoiser.vocabulary.eos_ids
    frame = pd.DataFrame({"prompt": [request.id for request in requests], "draw": draws, "answer": answers})
    frame["answer_tokens"] = [
        next((at for at, token in enumerate(answer) if token in ends), len(answer)) for answer in answers
    ]
    frame[list(AnswerCost._fields)] = table[:, width:]
    frame["coverage"] = [{name: tuple(counted[row]) for name, counted in by_row.items()} for row in range(len(rows))]
    return frame
