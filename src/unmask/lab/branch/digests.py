"""What a row's future depends on, as a digest: rows of one prompt with equal digests have one future.

A memoryless continuation reads the canvas, what is committed, the step and, if anything is drawn, the row's random
numbers. One with memory reads its last step too, and there only rows that have just left a state have digests.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unmask.core import Trajectory
from unmask.lab.branch.pools import RowPool


class RowSummary(NamedTuple):
    """What the host knows of the rows of a batch after a step."""

    done: list[bool]
    canvas_BL: np.ndarray
    digests: list[bytes] | None
    """None where futures are not merged."""
    flags: Mapping[str, list[bool]]
    """What else was asked, by name."""


def summarize(
    pool: RowPool,
    traj: Trajectory,
    *,
    merge: bool,
    draws: bool,
    points: Sequence[int] | None = None,
    flags: Mapping[str, Tensor] | None = None,
) -> RowSummary:
    """Which rows are done, their canvases, and their digests if futures are merged here; read in one go.

    `points` are the sampled states that the rows have just left, None for rows that are further on. `flags` are truth
    values of rows that somebody wants to know, too.
    """
    keyed = merge and (pool.keep == 0 or points is not None)
    parts = _parts(pool, traj, draws, points) if keyed else []
    flags = {"done": pool.policy.done(traj), **(flags or {})}
    tokens_BL = traj.state.tokens_BL.to(torch.int32)
    asked, canvas, *rest = _on_host([torch.stack(list(flags.values()), 1), tokens_BL, *parts])
    answers = dict(zip(flags, asked.view(bool).T.tolist(), strict=True))
    digests = _digests(pool, traj, [canvas, *rest]) if keyed else None
    return RowSummary(answers.pop("done"), canvas.view(np.int32), digests, answers)


def _parts(pool: RowPool, traj: Trajectory, draws: bool, points: Sequence[int] | None) -> list[Tensor]:
    """All that a row's future depends on beside its tokens; the prompt is known to the caller."""
    state = traj.state
    parts = [state.committed_BL, state.step_B]
    if draws:
        parts.append(traj.noise.key_B)
    if pool.keep:
        assert points is not None
        last = traj.steps[-1]
        parts += [last.revealed_BL, last.remasked_BL, last.confidence_BL]
        parts += [note for _, note in sorted(last.action.notes.items())]
        # The rest of the past is that of the state the row came from.
        parts.append(torch.tensor(points, device=state.tokens_BL.device))
    return parts


def _digests(pool: RowPool, traj: Trajectory, parts: Sequence[np.ndarray]) -> list[bytes]:
    who = [step.policy for step in traj.steps]
    kind = hashlib.blake2b(
        repr((pool.kind, pool.settled is not None, sorted(traj.notes), who)).encode(), digest_size=16
    )
    whole = np.concatenate(parts, axis=1)
    size, content = whole.shape[1], memoryview(whole).cast("B") if whole.size else memoryview(b"")
    digests = []
    for at in range(0, len(whole) * size, size):
        own = kind.copy()
        own.update(content[at : at + size])
        digests.append(own.digest())
    return digests


def _on_host(parts: Sequence[Tensor]) -> list[np.ndarray]:
    """Tensors of one batch as bytes, row by row, by a single transfer: each one would wait for the device."""
    flat = [part.reshape(len(part), -1).contiguous().view(torch.uint8) for part in parts]
    whole = torch.cat(flat, 1).cpu().numpy()
    ends = np.cumsum([x.shape[1] for x in flat])
    return [np.ascontiguousarray(x) for x in np.split(whole, ends[:-1], axis=1)]
