"""The prompt-cluster bootstrap against explicit resampling and known answers."""

import numpy as np
import pytest

from unmask.stats import Estimate, ratio_intervals
from unmask.stats.bootstrap import bootstrap, cluster_sums, percentiles, prompt_counts


def test_counts_are_draws_with_replacement():
    (count_RP,) = prompt_counts([7, 3], [(0, 1), (0, 2)], 4000, 4000)
    assert count_RP.shape == (4000, 10)
    assert (count_RP[:, :7].sum(1) == 7).all()
    assert (count_RP[:, 7:].sum(1) == 3).all()
    # Multinomial: mean 1, variance 1 - 1/P, covariance -1/P within a stratum and 0 across.
    covariance = np.cov(count_RP.T)
    assert count_RP.mean(0) == pytest.approx(np.ones(10), abs=0.06)
    assert np.diag(covariance)[:7] == pytest.approx(np.full(7, 6 / 7), abs=0.08)
    assert covariance[7, 8] == pytest.approx(-1 / 3, abs=0.06)
    assert covariance[0, 8] == pytest.approx(0, abs=0.06)


def test_counts_do_not_depend_on_the_split():
    whole = np.concatenate(list(prompt_counts([5, 3], [(1,), (2,)], 20, 20)))
    parts = np.concatenate(list(prompt_counts([5, 3], [(1,), (2,)], 20, 3)))
    np.testing.assert_array_equal(whole, parts)


def test_as_resampling_rows_one_by_one():
    rng = np.random.default_rng(0)
    prompt_S = np.array(["b", "a", "c", "b", "c", "c", "a"])
    top_S, bottom_S = rng.random(7), rng.integers(0, 2, 7).astype(float)
    (found,) = ratio_intervals(top_S, bottom_S, prompt_S, seed=3, resamples=50)
    drawn = []
    for count_P in next(iter(prompt_counts([3], [(3,)], 50, 50))):
        rows = np.concatenate(
            [np.flatnonzero(prompt_S == p) for p, n in zip("abc", count_P, strict=True) for _ in range(int(n))]
        )
        drawn.append(top_S[rows].sum() / bottom_S[rows].sum() if bottom_S[rows].sum() else np.nan)
    assert found.value == pytest.approx(top_S.sum() / bottom_S.sum())
    assert found.undefined == np.isnan(drawn).sum()
    assert (found.low, found.high) == pytest.approx(tuple(np.nanpercentile(drawn, [2.5, 97.5])))


def test_states_of_a_prompt_move_together():
    """Eight copies of each prompt's value say nothing new: the interval is that of one copy."""
    x_P = np.random.default_rng(1).random(40)
    (once,) = ratio_intervals(x_P, np.ones(40), np.arange(40), seed=0)
    (copies,) = ratio_intervals(np.repeat(x_P, 8), np.ones(320), np.repeat(np.arange(40), 8), seed=0)
    (wrong,) = ratio_intervals(np.repeat(x_P, 8), np.ones(320), np.arange(320), seed=0)
    assert (copies.value, copies.low, copies.high) == pytest.approx((once.value, once.low, once.high))
    assert wrong.high - wrong.low < 0.5 * (copies.high - copies.low)


def test_coin_flips_match_the_binomial():
    stats = pytest.importorskip("scipy.stats")
    (found,) = ratio_intervals(np.repeat([1.0, 0.0], [30, 70]), np.ones(100), np.arange(100), seed=3, resamples=20_000)
    low, high = stats.binom(100, 0.3).ppf([0.025, 0.975]) / 100
    assert (found.value, found.low, found.high) == pytest.approx((0.3, low, high), abs=0.011)


def test_undefined_replicates_are_counted():
    """One prompt of three has a mass: (2/3)^3 of the replicates miss it."""
    (found,) = ratio_intervals([0.5, 0.0, 0.0], [1.0, 0.0, 0.0], [0, 1, 2], seed=0, resamples=4000)
    assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)
    assert found.undefined / 4000 == pytest.approx(8 / 27, abs=0.03)
    (never,) = ratio_intervals([0.0], [0.0], [0], seed=0, resamples=10)
    assert never.undefined == 10
    assert np.isnan([never.value, never.low, never.high]).all()


def test_percentiles_as_numpy():
    drawn_RK = np.random.default_rng(0).random((101, 4))
    drawn_RK[::3, 1] = np.nan
    drawn_RK[1:, 2] = np.nan
    np.testing.assert_allclose(percentiles(drawn_RK, 0.9), np.nanpercentile(drawn_RK, [5, 95], axis=0))
    drawn_RK[:, 3] = np.nan
    assert np.isnan(percentiles(drawn_RK, 0.9)[:, 3]).all()


def test_the_seed_decides_and_the_level_widens():
    x, ones, prompt = np.random.default_rng(0).random(40), np.ones(40), np.arange(40)
    assert ratio_intervals(x, ones, prompt, seed=5) == ratio_intervals(x, ones, prompt, seed=5)
    assert ratio_intervals(x, ones, prompt, seed=5) != ratio_intervals(x, ones, prompt, seed=6)
    (narrow,), (wide,) = (ratio_intervals(x, ones, prompt, seed=5, level=level) for level in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.value < narrow.high < wide.high


def test_few_replicates_are_held_at_a_time(monkeypatch):
    sizes = []

    def statistic(weight_RP):
        sizes.append(len(weight_RP))
        return weight_RP[:, :1]

    monkeypatch.setattr("unmask.stats.bootstrap._CELLS", 1000)
    bootstrap(statistic, [10], seeds=[(0,)], resamples=100, width=250)
    assert sizes == [1] + [4] * 25


def test_cluster_sums():
    x_SK = np.array([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]])
    np.testing.assert_array_equal(cluster_sums(x_SK, np.array([2, 0, 2]), 4), [[2, 20], [0, 0], [5, 50], [0, 0]])


def test_positive():
    assert Estimate(0.2, 0.1, 0.3).positive
    assert not Estimate(0.2, 0.0, 0.3).positive


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ratio_intervals([1.0], [1.0, 1.0], [0], seed=0), "one row for each state"),
        (lambda: ratio_intervals([1.0], [1.0], [0, 1], seed=0), "one row for each state"),
        (lambda: ratio_intervals([np.nan], [1.0], [0], seed=0), "leave missing out"),
        (lambda: ratio_intervals([], [], [], seed=0), "one or more"),
        (lambda: ratio_intervals([1.0], [1.0], [0], seed=0, resamples=0), "resamples is 0"),
        (lambda: ratio_intervals([1.0], [1.0], [0], seed=0, level=1.0), "level 1"),
    ],
)
def test_refusals(call, words):
    with pytest.raises(ValueError, match=words):
        call()
