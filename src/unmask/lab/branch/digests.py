"""What a row's future depends on, as a digest: rows of one prompt with equal digests have one future.

A memoryless continuation reads the canvas, what is committed, the step and, if anything is drawn, the row's random
numbers. One with memory reads its last step too, and there only rows that have just left a state have digests.

Digests are made where the rows are, all at once: four sums of their words, each times a random coefficient, modulo
2^64, of which the upper half is kept. Over the coefficients two different rows agree with probability 2^-128
(multilinear hashing is strongly universal: Lemire and Kaser 2014).
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from unmask.core import Trajectory
from unmask.lab.branch.pools import RowPool

SUMS = 4
"""Each gives 32 bits of a digest."""


class RowSummary(NamedTuple):
    """What the host knows of the rows of a batch after a step."""

    done: list[bool]
    canvas_BL: np.ndarray
    digests: list[bytes] | None
    """None where futures are not merged."""
    flags: Mapping[str, list[bool]]
    """What else was asked, by name."""


class Summary:
    """A summary on its way to the host, which has other things to do meanwhile."""

    def __init__(self, flags: Mapping[str, Tensor], canvas_BL: Tensor, digest_B4: Tensor | None, kind: bytes):
        self.names, self.kind, self.keyed = list(flags), kind, digest_B4 is not None
        parts = [torch.stack(list(flags.values()), 1).to(torch.int32), canvas_BL.to(torch.int32)]
        self.host, self.event = _sent(torch.cat(parts if digest_B4 is None else [*parts, digest_B4], 1))

    def get(self) -> RowSummary:
        """Wait until it is there."""
        if self.event is not None:
            self.event.synchronize()
        whole = self.host.numpy()
        first, last = len(self.names), whole.shape[1] - (SUMS if self.keyed else 0)
        flags = dict(zip(self.names, whole[:, :first].astype(bool).T.tolist(), strict=True))
        digests = None
        if self.keyed:
            content, size = whole[:, last:].tobytes(), 4 * SUMS
            digests = [self.kind + content[at : at + size] for at in range(0, len(content), size)]
        return RowSummary(flags.pop("done"), whole[:, first:last], digests, flags)


def _sent(whole: Tensor) -> tuple[Tensor, Any]:
    """A tensor of the host that will hold the same, and what tells when; None where it does already."""
    if whole.device.type != "cuda":
        return whole, None
    host = torch.empty(whole.shape, dtype=whole.dtype, pin_memory=True)
    host.copy_(whole, non_blocking=True)
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(whole.device))
    return host, event


def summarize(
    pool: RowPool,
    traj: Trajectory,
    *,
    merge: bool,
    draws: bool,
    points: Sequence[int] | None = None,
    flags: Mapping[str, Tensor] | None = None,
) -> Summary:
    """Which rows are done, their canvases, and their digests if futures are merged here; read in one go.

    `points` are the sampled states that the rows have just left, None for rows that are further on. `flags` are truth
    values of rows that somebody wants to know, too.
    """
    flags = {"done": pool.policy.done(traj), **(flags or {})}
    if not (merge and (pool.keep == 0 or points is not None)):
        return Summary(flags, traj.state.tokens_BL, None, b"")
    who = [step.policy for step in traj.steps]
    kind = repr((pool.kind, pool.settled is not None, sorted(traj.notes), who)).encode()
    return Summary(flags, traj.state.tokens_BL, digests(_parts(pool, traj, draws, points)), kind)


def _parts(pool: RowPool, traj: Trajectory, draws: bool, points: Sequence[int] | None) -> list[Tensor]:
    """All that a row's future depends on; the prompt is known to the caller."""
    state = traj.state
    parts = [state.tokens_BL, state.committed_BL, state.step_B]
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


def digests(parts: Sequence[Tensor]) -> Tensor:
    """Of each row of some tensors, as (B, 4) whole numbers of 32 bits."""
    words_BK = torch.cat([_words(part) for part in parts], 1)
    first_4, each_4K = _coefficients(words_BK.shape[1], words_BK.device)
    sum_B4 = (words_BK[:, None] * each_4K).sum(-1) + first_4
    # An arithmetic shift: the sign does not matter, all 32 bits do.
    return (sum_B4 >> 32).to(torch.int32)


def _words(part: Tensor) -> Tensor:
    """A row's bits as whole numbers from 0 to 2^32 - 1, in int64."""
    flat = part.reshape(len(part), -1)
    if flat.dtype == torch.bool:
        return flat.long()
    if flat.element_size() < 4:
        flat = flat.view(torch.uint8)
        return flat.long()
    return flat.contiguous().view(torch.int32).long() & 0xFFFFFFFF


@lru_cache(maxsize=64)
def _coefficients(words: int, device: torch.device) -> tuple[Tensor, Tensor]:
    draw = np.random.Generator(np.random.PCG64(0)).integers(-(2**63), 2**63, (SUMS, words + 1))
    both = torch.from_numpy(draw).to(device)
    return both[:, 0].contiguous(), both[:, 1:].contiguous()
