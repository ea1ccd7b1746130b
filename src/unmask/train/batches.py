"""Which rows a step reads and which of their tokens it masks: functions of (seed, step), drawn on the host."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from unmask.base.errors import require
from unmask.train.data import Ints, Rows

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

DEVIATIONS, ROUND = 3.0, 64
"""A batch reads the losses of the mean number of masked tokens and so many deviations more, rounded up to this."""


@dataclass(frozen=True)
class Group:
    """The rows of one length, and what part of every step they are."""

    length: int
    chosen_E: Ints
    """Its rows, as numbers in the pool."""
    prompt_E: Ints
    answer_E: Ints
    members: tuple[Ints, ...]
    """Rows of the group by source, as numbers in the group; empty ones are left out."""
    share_T: Floats
    """Each source's part of the group; sums to one."""
    share: float
    """The group's part of the objective."""
    rows: int
    """Rows per step."""

    @cached_property
    def pool_E(self) -> Ints:
        """The members of all sources, one after the other."""
        return np.concatenate(self.members)

    @cached_property
    def size_T(self) -> Ints:
        """Rows of each source."""
        return np.array([len(members) for members in self.members])

    @cached_property
    def room(self) -> int:
        """How many losses a batch reads: R. Hardly ever fewer than it has masked tokens; see `fit`.

        The deviation is that of independent rows and ratios; drawn in strata, their sum varies less.
        """
        mean = sum(s * self.answer_E[m].mean() for s, m in zip(self.share_T, self.members, strict=True))
        square = sum(s * (self.answer_E[m] ** 2).mean() for s, m in zip(self.share_T, self.members, strict=True))
        # A row has Binomial(n, t) masked tokens, t uniform.
        deviation = math.sqrt(self.rows * (square / 3 - mean**2 / 4 + mean / 6))
        enough = min(self.rows * mean / 2 + DEVIATIONS * deviation, self.rows * self.answer_E.max())
        # Fillers are never the first slot.
        return min(math.ceil(enough / ROUND) * ROUND, self.rows * self.length - 1)


@dataclass(frozen=True)
class Batch:
    """B rows of N slots with some of their answers' tokens masked, and the R places whose losses are read.

    Its shapes are the same in every step, whatever was drawn.
    """

    rows_B: Ints
    hidden_BN: Bools
    """Where the network sees a mask."""
    place_R: Ints
    """Places in the flattened batch, all different: masked tokens, then fillers."""
    weight_R: NDArray[np.float32]
    """What each place's loss counts in the objective; a filler's nothing."""


def groups(rows: Rows, lengths: Sequence[int], weights: Sequence[float], batch: int) -> list[Group]:
    """Sort rows by the length they are padded to, and share a step's rows out among the lengths.

    A source's weight is spread evenly over its rows, whatever their length; the parts of all groups sum to one.
    """
    weight_T = np.array(weights, dtype=np.float64) / sum(weights)
    count_T = np.bincount(rows.source_E, minlength=len(weights))
    for source, count in enumerate(count_T):
        require(count > 0, f"rows of source {source}", 0, "1 or more", "its examples are all too long")
    bucket_E = np.searchsorted(lengths, rows.length_E)
    groups_of_rows = []
    for bucket, length in enumerate(lengths):
        chosen_E = np.flatnonzero(bucket_E == bucket)
        if len(chosen_E) == 0:
            continue
        source_E = rows.source_E[chosen_E]
        part_T = weight_T * np.bincount(source_E, minlength=len(weights)) / count_T
        present = np.flatnonzero(part_T)
        groups_of_rows.append(
            Group(
                length,
                chosen_E,
                rows.prompt_E[chosen_E],
                rows.answer_E[chosen_E],
                tuple(np.flatnonzero(source_E == source) for source in present),
                part_T[present] / part_T.sum(),
                float(part_T.sum()),
                max(1, round(batch * part_T.sum())),
            )
        )
    return groups_of_rows


def draw(group: Group, seed: int, step: int, least_ratio: float) -> Batch:
    """The group's rows of one step: sources and mask ratios stratified over the batch, the rest independent."""
    noise = _MaskNoise("training", seed, step, group.length)
    n = group.rows
    # Sources in proportion: row i takes the source at a jittered i-th quantile.
    quantile_B = (np.arange(n) + noise.uniform(n)) / n
    edge_T = np.cumsum(group.share_T)
    source_B = np.minimum(np.searchsorted(edge_T, quantile_B, side="right"), len(edge_T) - 1)
    pick_B = (noise.uniform(n) * group.size_T[source_B]).astype(np.int64)
    start_T = np.cumsum(group.size_T) - group.size_T
    rows_B = group.pool_E[start_T[source_B] + pick_B]
    return mask(rows_B, group, noise, least_ratio, np.full(n, group.share / n))


def fixed(group: Group, seed: int, least_ratio: float, weights: Mapping[int, float]) -> list[Batch]:
    """Every row of a group once, with masks that never change: what validation reads.

    All batches have the training batches' shape, so that compiled code fits; rows that fill up the last one count
    nothing. `weights` gives what a row of each source counts, by the source's place in `members`.
    """
    size, n = len(group.chosen_E), group.rows
    # Spread over the batches like the ratios, which rise with the place in the batch.
    order = np.argsort(_MaskNoise("order", seed, 0, group.length).uniform(size), kind="stable")
    weight_E = np.zeros(size)
    for source, members in enumerate(group.members):
        weight_E[members] = weights[source]
    batches = []
    for start in range(0, size, n):
        rows_B = np.resize(order[start : start + n], n)
        counts_B = np.where(np.arange(n) < min(n, size - start), weight_E[rows_B], 0.0)
        batches.append(mask(rows_B, group, _MaskNoise("validation", seed, start, group.length), least_ratio, counts_B))
    return batches


def mask(rows_B: Ints, group: Group, noise: "_MaskNoise", least_ratio: float, counts_B: Floats) -> Batch:
    """Mask each answer token of row b with probability t_b and weigh it by counts_b / (t_b n_b).

    The mask ratios t are uniform on (least_ratio, 1), one in each of B equal strata, in random order.
    """
    n = len(rows_B)
    stratum_B = np.argsort(noise.uniform(n), kind="stable")
    ratio_B = least_ratio + (1 - least_ratio) * (stratum_B + noise.uniform(n)) / n
    answer_B, prompt_B = group.answer_E[rows_B], group.prompt_E[rows_B]
    width = int(answer_B.max())
    masked_BW = noise.uniform(n * width).reshape(n, width) < ratio_B[:, None]
    row_R, column_R = np.nonzero(masked_BW & (np.arange(width) < answer_B[:, None]))
    place_R = row_R * group.length + prompt_B[row_R] + column_R
    hidden_BN = np.zeros((n, group.length), dtype=np.bool_)
    hidden_BN.reshape(-1)[place_R] = True
    weight_B = counts_B / (ratio_B * answer_B)
    return Batch(rows_B, hidden_BN, *fit(place_R, weight_B[row_R], group.room, n * group.length, noise))


def fit(
    place_R: Ints, weight_R: Floats, room: int, slots: int, noise: "_MaskNoise"
) -> tuple[Ints, NDArray[np.float32]]:
    """Exactly `room` places and weights with the same expected sum of losses.

    Too few are filled up by places of weight 0. Of too many, all still masked, a random subset is read, each for
    room / R of them: the expectation over subsets is the whole sum, so the objective has no bias.
    """
    count = len(place_R)
    if count > room:
        chosen_R = np.sort(np.argsort(noise.uniform(count), kind="stable")[:room])
        return place_R[chosen_R], (weight_R[chosen_R] * (count / room)).astype(np.float32)
    # Different places, as the others are: gradients of many copies of one would be added one after the other. Not
    # place 0, which with a shift has nothing before it.
    free = np.ones(slots, dtype=np.bool_)
    free[0] = False
    free[place_R] = False
    fillers = np.flatnonzero(free)[: room - count]
    weight = np.zeros(room, dtype=np.float32)
    weight[:count] = weight_R
    return np.concatenate([place_R, fillers]), weight


class _MaskNoise:
    """Uniform numbers that are a function of their key: Philox words, whose bits NumPy never changes."""

    def __init__(self, purpose: str, seed: int, step: int, length: int):
        raw = hashlib.blake2b(f"{purpose}/{seed}/{step}/{length}".encode(), digest_size=16).digest()
        self._words = np.random.Philox(key=int.from_bytes(raw, "little"))

    def uniform(self, n: int) -> Floats:
        """n numbers in [0, 1)."""
        return (self._words.random_raw(n) >> np.uint64(11)).astype(np.float64) * 2.0**-53
