"""Batches: functions of seed and step, sources in proportion, masks on answers alone, weights as the loss says."""

import numpy as np
import pytest

from unmask.train.batches import (
    Batch,
    _MaskNoise,
    draw_batch,
    fill_or_sample_places,
    group_rows_by_length,
    make_validation_batches,
)
from unmask.train.data import Rows

LEAST = 0.001


def rows_of(length: list[int], prompt: list[int], source: list[int]) -> Rows:
    return Rows(np.zeros(sum(length), np.int16), np.array(length), np.array(prompt), np.array(source))


def masked(batch: Batch) -> np.ndarray:
    """Places of the masked tokens, found by the fillers' lack of weight."""
    return batch.place_R[batch.weight_R > 0]


@pytest.fixture
def rows() -> Rows:
    generator = np.random.RandomState(0)
    prompt = generator.randint(3, 30, 300)
    answer = generator.randint(5, 34, 300)
    return rows_of(list(prompt + answer), list(prompt), list(generator.randint(0, 3, 300)))


def test_groups_share_out_rows_and_objective(rows):
    found = group_rows_by_length(rows, (32, 64), [1.0, 2.0, 5.0], 40)
    assert [g.length for g in found] == [32, 64]
    assert sorted(np.concatenate([g.chosen_E for g in found])) == list(range(300))
    assert np.isclose(sum(g.share for g in found), 1.0)
    assert sum(g.rows for g in found) == 40
    # A source's part of the objective is its weight, over all groups together.
    part = np.zeros(3)
    for group in found:
        for members, share in zip(group.members, group.share_T, strict=True):
            part[rows.source_E[group.chosen_E[members[0]]]] += share * group.share
    assert np.allclose(part, [1 / 8, 2 / 8, 5 / 8])


def test_draws_of_a_step_are_pinned(rows):
    """The numbers of one draw: a change here is a change of every model trained from a configuration."""
    (group, _) = group_rows_by_length(rows, (32, 64), [1.0, 2.0, 5.0], 40)
    batch = draw_batch(group, 0, 0, LEAST)
    assert batch.rows_B[:6].tolist() == [37, 37, 12, 31, 116, 87]
    assert batch.place_R[:6].tolist() == [23, 24, 25, 26, 27, 81]


def test_only_answers_are_masked_and_sources_come_in_proportion(rows):
    for group in group_rows_by_length(rows, (32, 64), [1.0, 2.0, 5.0], 400):
        batch = draw_batch(group, 0, 3, LEAST)
        assert np.array_equal(np.sort(masked(batch)), np.flatnonzero(batch.hidden_BN))
        row_R, column_R = np.divmod(masked(batch), group.length)
        picked_R = batch.rows_B[row_R]
        assert (column_R >= group.prompt_E[picked_R]).all()
        assert (column_R < (group.prompt_E + group.answer_E)[picked_R]).all()
        assert len(np.unique(batch.place_R)) == len(batch.place_R) == group.loss_count
        source_B = rows.source_E[group.chosen_E[batch.rows_B]]
        for source, share in zip(range(3), group.share_T, strict=True):
            assert abs((source_B == source).sum() - share * group.rows) <= 1


def test_ratios_are_stratified_and_weights_their_inverse(rows):
    (_, group) = group_rows_by_length(rows, (32, 64), [1.0, 2.0, 5.0], 200)
    batch = draw_batch(group, 0, 3, LEAST)
    row_R = masked(batch) // group.length
    weight_R = batch.weight_R[batch.weight_R > 0].astype(float)
    # weight = share / (rows * answer * ratio): undo it.
    ratio_R = group.share / (group.rows * group.answer_E[batch.rows_B[row_R]] * weight_R)
    ratio_B = {int(b): float(t) for b, t in zip(row_R, ratio_R, strict=True)}
    strata = sorted(int((t - LEAST) / (1 - LEAST) * group.rows + 1e-4) for t in ratio_B.values())
    assert len(set(strata)) == len(strata), "no two rows in one stratum"
    # About a ratio's share of the row is masked.
    high = [b for b, t in ratio_B.items() if t > 0.8]
    part = sum((row_R == b).sum() for b in high) / sum(group.answer_E[batch.rows_B[b]] for b in high)
    assert 0.83 < part < 0.97


def test_validation_reads_every_row_once_and_never_changes(rows):
    (group, _) = group_rows_by_length(rows, (32, 64), [1.0] * 3, 48)
    weight_E = 1.0 + rows.source_E[group.chosen_E]
    batches = make_validation_batches(group, 5, LEAST, weight_E)
    assert all(len(b.rows_B) == group.rows for b in batches)
    seen = np.concatenate([b.rows_B for b in batches])[: len(group.chosen_E)]
    assert sorted(seen) == list(range(len(group.chosen_E)))
    # Fillers of the last batch weigh nothing.
    spare = len(batches) * group.rows - len(group.chosen_E)
    last = batches[-1]
    filler_R = last.place_R // group.length >= group.rows - spare
    assert spare > 0
    assert (last.weight_R[filler_R] == 0).all()
    assert (last.weight_R[~filler_R & last.hidden_BN.flat[last.place_R]] > 0).all()
    again = make_validation_batches(group, 5, LEAST, weight_E)
    assert all(np.array_equal(a.place_R, b.place_R) for a, b in zip(batches, again, strict=True))


# Fixed shapes


def test_shapes_never_change_and_masked_tokens_hardly_ever_exceed_them(rows):
    for group in group_rows_by_length(rows, (32, 64), [1.0, 2.0, 5.0], 40):
        drawn = [draw_batch(group, 0, step, LEAST) for step in range(300)]
        assert (
            {batch.place_R.shape for batch in drawn}
            == {(group.loss_count,)}
            == {batch.weight_R.shape for batch in drawn}
        )
        assert max(batch.hidden_BN.sum() for batch in drawn) <= group.loss_count
        # And the room is not wasted: far less than the longest answers would take.
        assert group.loss_count < 0.75 * group.rows * group.answer_E.max()


def test_fillers_are_other_places_without_weight():
    place_R, weight_R = fill_or_sample_places(np.array([3, 5]), np.array([0.5, 2.0]), 6, 8, _MaskNoise("test", 0, 0, 8))
    assert place_R.tolist() == [3, 5, 1, 2, 4, 6]
    assert weight_R.tolist() == [0.5, 2.0, 0.0, 0.0, 0.0, 0.0]
    assert weight_R.dtype == np.float32


def test_too_many_masked_tokens_are_sampled_without_bias():
    """Over all subsets the expected weight of every place is its own; a draw is a function of its key."""
    place_R, weight_R = np.array([2, 3, 5, 7, 11]), np.array([0.5, 1.0, 2.0, 4.0, 8.0])
    total, draws = np.zeros(12), 10_000
    for step in range(draws):
        place, weight = fill_or_sample_places(place_R, weight_R, 3, 12, _MaskNoise("test", 0, step, 8))
        assert len(place) == len(np.unique(place)) == 3
        np.add.at(total, place, weight / draws)
    assert np.allclose(total[place_R], weight_R, rtol=0.03)
    again = fill_or_sample_places(place_R, weight_R, 3, 12, _MaskNoise("test", 0, step, 8))
    assert np.array_equal(again[0], place)
