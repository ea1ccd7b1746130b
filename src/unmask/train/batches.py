"""Draw the rows that a training step reads, and the tokens of them that it masks.

Both are functions of (seed, step), drawn on the host. The order in which numbers are drawn is part of every recipe:
another order trains another model.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from unmask.base.errors import require
from unmask.train.data import Ints, Rows

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

DEVIATIONS, ROUND = 3.0, 64
"""A batch reads as many losses as the mean number of masked tokens plus so many deviations, rounded up to ROUND."""


@dataclass(frozen=True)
class RowGroup:
    """Training rows that are padded to the same length, and their share of every step."""

    length: int
    chosen_E: Ints
    """Numbers of the group's rows among all rows."""
    prompt_E: Ints
    answer_E: Ints
    members: tuple[Ints, ...]
    """Row numbers of each source within the group. Sources without rows are left out."""
    share_T: Floats
    """Each source's share of the group. The shares sum to one."""
    share: float
    """The group's share of the objective."""
    rows: int
    """Rows per step."""

    @cached_property
    def members_E(self) -> Ints:
        """Row numbers of all sources within the group, one source after the other."""
        return np.concatenate(self.members)

    @cached_property
    def size_T(self) -> Ints:
        """Number of each source's rows."""
        return np.array([len(members) for members in self.members])

    @cached_property
    def loss_count(self) -> int:
        """Number R of positions per batch at which the loss is computed, hardly ever below the number of masked tokens.

        It lies some standard deviations of the number of masked tokens above its mean. The deviation is that of
        independent rows and mask ratios; those of a batch are stratified, which varies less.
        `fill_or_sample_places` brings every batch to this number.
        """
        mean = sum(s * self.answer_E[m].mean() for s, m in zip(self.share_T, self.members, strict=True))
        square = sum(s * (self.answer_E[m] ** 2).mean() for s, m in zip(self.share_T, self.members, strict=True))
        # A row has Binomial(n, t) masked tokens, t uniform.
        deviation = math.sqrt(self.rows * (square / 3 - mean**2 / 4 + mean / 6))
        enough = min(self.rows * mean / 2 + DEVIATIONS * deviation, self.rows * self.answer_E.max())
        # Every step has this many losses, so that compiled code and recorded graphs fit: hence a number that hardly any
        # step exceeds. One less than all slots, because a filler is never the first one.
        return min(math.ceil(enough / ROUND) * ROUND, self.rows * self.length - 1)


@dataclass(frozen=True)
class Batch:
    """B rows of N slots with some of their answers' tokens masked, and the R places whose losses are read.

    Shapes are the same in every step, so that compiled code and a recorded CUDA graph fit whatever was drawn.
    """

    rows_B: Ints
    hidden_BN: Bools
    """Slots where the network sees a mask."""
    place_R: Ints
    """Places in the flattened batch, all different: masked tokens first, then fillers."""
    weight_R: NDArray[np.float32]
    """Weight of each place's loss in the objective; 0 for a filler."""


def group_rows_by_length(rows: Rows, lengths: Sequence[int], weights: Sequence[float], batch: int) -> list[RowGroup]:
    """Group rows by the length that they are padded to, and assign each group its number of rows per step.

    A source's weight is spread evenly over its rows, whatever their length. The parts of all groups sum to one.
    """
    weight_T = np.array(weights, dtype=np.float64) / sum(weights)
    count_T = np.bincount(rows.source_E, minlength=len(weights))
    for source, count in enumerate(count_T):
        require(count > 0, f"rows of source {source}", 0, "1 or more", "its examples are all too long")
    # A row of exactly one of the lengths belongs to that length.
    bucket_E = np.searchsorted(lengths, rows.length_E)
    groups = []
    for bucket, length in enumerate(lengths):
        chosen_E = np.flatnonzero(bucket_E == bucket)
        if len(chosen_E) == 0:
            continue
        source_E = rows.source_E[chosen_E]
        part_T = weight_T * np.bincount(source_E, minlength=len(weights)) / count_T
        present = np.flatnonzero(part_T)
        groups.append(
            RowGroup(
                length,
                chosen_E,
                rows.prompt_E[chosen_E],
                rows.answer_E[chosen_E],
                tuple(np.flatnonzero(source_E == source) for source in present),
                part_T[present] / part_T.sum(),
                float(part_T.sum()),
                # At least one row, or this length would have no part in a step.
                max(1, round(batch * part_T.sum())),
            )
        )
    return groups


def draw_batch(group: RowGroup, seed: int, step: int, least_ratio: float) -> Batch:
    """Draw a group's batch of one step: rows and masks, with sources and mask ratios stratified over the batch."""
    noise = _MaskNoise("training", seed, step, group.length)
    n = group.rows
    # Sources in proportion: row i takes the source at a jittered i-th quantile.
    quantile_B = (np.arange(n) + noise.uniform(n)) / n
    edge_T = np.cumsum(group.share_T)
    # The last edge may lie a rounding below one, and a quantile above it.
    source_B = np.minimum(np.searchsorted(edge_T, quantile_B, side="right"), len(edge_T) - 1)
    pick_B = (noise.uniform(n) * group.size_T[source_B]).astype(np.int64)
    start_T = np.cumsum(group.size_T) - group.size_T
    rows_B = group.members_E[start_T[source_B] + pick_B]
    return mask_batch(rows_B, group, noise, least_ratio, np.full(n, group.share / n))


def make_validation_batches(group: RowGroup, seed: int, least_ratio: float, weight_E: Floats) -> list[Batch]:
    """Make validation batches that hold every row of a group once, with masks that never change.

    All have the training batches' shape, so that compiled code fits. Rows that fill up the last batch have
    weight 0. `weight_E` are the weights of the rows.
    """
    size, n = len(group.chosen_E), group.rows
    # Spread over the batches like the ratios, which rise with the place in the batch.
    order = np.argsort(_MaskNoise("order", seed, 0, group.length).uniform(size), kind="stable")
    batches = []
    for start in range(0, size, n):
        rows_B = np.resize(order[start : start + n], n)
        counts_B = np.where(np.arange(n) < min(n, size - start), weight_E[rows_B], 0.0)
        noise = _MaskNoise("validation", seed, start, group.length)
        batches.append(mask_batch(rows_B, group, noise, least_ratio, counts_B))
    return batches


def mask_batch(rows_B: Ints, group: RowGroup, noise: "_MaskNoise", least_ratio: float, counts_B: Floats) -> Batch:
    """Mask each answer token of row b with probability t_b and weigh it by counts_b / (t_b n_b).

    The mask ratios t are uniform on (least_ratio, 1), one in each of B equal strata, in random order. n_b is the
    number of answer tokens of row b.
    """
    n = len(rows_B)
    # A stable sort gives equal numbers the same order on every machine.
    stratum_B = np.argsort(noise.uniform(n), kind="stable")
    ratio_B = least_ratio + (1 - least_ratio) * (stratum_B + noise.uniform(n)) / n
    answer_B, prompt_B = group.answer_E[rows_B], group.prompt_E[rows_B]
    # One table of numbers for all rows: how many are drawn depends on the rows alone, never on what was masked.
    width = int(answer_B.max())
    masked_BW = noise.uniform(n * width).reshape(n, width) < ratio_B[:, None]
    row_R, column_R = np.nonzero(masked_BW & (np.arange(width) < answer_B[:, None]))
    place_R = row_R * group.length + prompt_B[row_R] + column_R
    hidden_BN = np.zeros((n, group.length), dtype=np.bool_)
    hidden_BN.reshape(-1)[place_R] = True
    weight_B = counts_B / (ratio_B * answer_B)
    return Batch(
        rows_B, hidden_BN, *fill_or_sample_places(place_R, weight_B[row_R], group.loss_count, n * group.length, noise)
    )


def fill_or_sample_places(
    place_R: Ints, weight_R: Floats, loss_count: int, slots: int, noise: "_MaskNoise"
) -> tuple[Ints, NDArray[np.float32]]:
    """Fill up or sample the masked places to exactly `loss_count` without changing the expected sum of losses.

    Missing places are filled up with places of weight 0. Of too many places a random subset is read, with weights
    raised by R / loss_count: the expectation over subsets is the whole sum, so the objective has no bias. All of them
    stay masked.
    """
    count = len(place_R)
    if count > loss_count:
        chosen_R = np.sort(np.argsort(noise.uniform(count), kind="stable")[:loss_count])
        return place_R[chosen_R], (weight_R[chosen_R] * (count / loss_count)).astype(np.float32)
    # Fillers are different places, because gradients of many copies of one place would be added one after the other.
    # Place 0 is none of them: with a shift there is no slot before it to read.
    free = np.ones(slots, dtype=np.bool_)
    free[0] = False
    free[place_R] = False
    fillers = np.flatnonzero(free)[: loss_count - count]
    weight = np.zeros(loss_count, dtype=np.float32)
    weight[:count] = weight_R
    return np.concatenate([place_R, fillers]), weight


class _MaskNoise:
    """Stream of uniform random numbers that depends only on its key (purpose, seed, step, length)."""

    def __init__(self, purpose: str, seed: int, step: int, length: int):
        raw = hashlib.blake2b(f"{purpose}/{seed}/{step}/{length}".encode(), digest_size=16).digest()
        self._words = np.random.Philox(key=int.from_bytes(raw, "little"))

    def uniform(self, n: int) -> Floats:
        """Draw the next n numbers in [0, 1)."""
        # The upper 53 bits, as NumPy makes doubles; its own generators may change how they do it, raw words never.
        return (self._words.random_raw(n) >> np.uint64(11)).astype(np.float64) * 2.0**-53
