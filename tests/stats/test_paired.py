"""Bootstrap intervals against known answers and by simulation."""

import numpy as np
import pytest

from unmask.stats.paired import (
    Interval,
    against,
    macro_intervals,
    mean_interval,
    mean_intervals,
    paired_difference,
    paired_differences,
    replicates,
)

NAN = float("nan")


def thirds(seed, prompts, columns, lost=0.0):
    """Utilities in thirds, some of them missing."""
    rng = np.random.default_rng(seed)
    x_PA = rng.integers(0, 4, (prompts, columns)) / 3
    return np.where(rng.random(x_PA.shape) < lost, np.nan, x_PA)


PINNED = {
    "one column": (
        lambda: mean_intervals(thirds(0, 12, 1), seed=0),
        [(0.47222222222222227, 0.25, 0.6944444444444443, 12)],
    ),
    "three columns, some missing": (
        lambda: mean_intervals(thirds(1, 25, 3, 0.2), seed=5),
        [
            (0.47222222222222227, 0.3188241106719368, 0.6266666666666666, 24),
            (0.4509803921568627, 0.26666666666666666, 0.6666666666666666, 17),
            (0.5263157894736842, 0.37493872549019613, 0.6874999999999999, 19),
        ],
    ),
    "another level": (
        lambda: mean_intervals(thirds(2, 40, 2), seed=7, resamples=500, level=0.8),
        [(0.5666666666666667, 0.5, 0.6416666666666666, 40), (0.5083333333333333, 0.4333333333333333, 0.575, 40)],
    ),
    "differences": (
        lambda: paired_differences(thirds(3, 17, 3, 0.3), 1, seed=11),
        [
            (1.2335811384723961e-17, -0.37514880952380925, 0.35909090909090846, 9),
            (0.0, 0.0, 0.0, 13),
            (0.09523809523809523, -0.11111111111111112, 0.2666666666666667, 7),
        ],
    ),
    "three tasks": (
        lambda: macro_intervals([thirds(k, n, 2, 0.1) for k, n in ((4, 10), (5, 31), (6, 4))], seed=2),
        [
            (0.5851851851851851, 0.45483870967741935, 0.7213620071684587, 43),
            (0.5206349206349206, 0.4144971264367817, 0.6257253086419752, 42),
        ],
    ),
    "nine tasks": (
        lambda: macro_intervals([thirds(k, 6, 1) for k in range(9)], seed=3, resamples=100),
        [(0.5679012345679013, 0.4844135802469136, 0.6481481481481481, 54)],
    ),
    "one difference": (
        lambda: [paired_difference([0.5, 1.0, NAN, 0.25], [0.25, 0.0, 1.0, NAN], seed=1)],
        [(0.625, 0.25, 1.0, 2)],
    ),
    "one prompt": (lambda: [mean_interval([0.75], seed=9)], [(0.75, 0.75, 0.75, 1)]),
    "no prompt": (lambda: [mean_interval([], seed=9)], [(NAN, NAN, NAN, 0)]),
    "one resample": (
        lambda: mean_intervals(thirds(7, 5, 2), seed=4, resamples=1),
        [(0.6666666666666666, 0.3333333333333333, 0.3333333333333333, 5), (0.6, 0.4, 0.4, 5)],
    ),
    "mostly missing": (
        lambda: [mean_interval([NAN, 0.5, NAN, NAN, 1.0], seed=6, resamples=50)],
        [(0.75, 0.5, 1.0, 2)],
    ),
    "a column without values": (
        lambda: mean_intervals([[0.5, NAN], [1.0, NAN]], seed=8, resamples=20),
        [(0.75, 0.5, 1.0, 2), (NAN, NAN, NAN, 0)],
    ),
    "a task without values": (
        lambda: macro_intervals([[[0.5], [1.0]], [[NAN], [NAN]]], seed=8, resamples=20),
        [(NAN, NAN, NAN, 2)],
    ),
}


@pytest.mark.parametrize("case", PINNED)
def test_pinned(case):
    """Seeds and the percentile rule decide these numbers; whoever changes either, changes every comparison."""
    call, expected = PINNED[case]
    found = [(i.mean, i.low, i.high, i.n) for i in call()]
    assert np.array(found) == pytest.approx(np.array(expected), rel=1e-14, abs=1e-15, nan_ok=True)


class TestMean:
    def test_of_a_constant(self):
        assert mean_interval([0.25] * 7, seed=0) == Interval(0.25, 0.25, 0.25, 7)

    def test_of_one_prompt(self):
        assert mean_interval([0.5], seed=0) == Interval(0.5, 0.5, 0.5, 1)

    def test_of_nothing(self):
        found = mean_interval([], seed=0)
        assert found.n == 0
        assert np.isnan([found.mean, found.low, found.high]).all()

    def test_missing_values_are_left_out_and_not_zero(self):
        found = mean_interval([1.0, np.nan, 1.0, np.nan], seed=0)
        assert found == Interval(1.0, 1.0, 1.0, 2)

    def test_of_coin_flips_matches_the_binomial(self):
        """A resampled mean of x heads in n is Binomial(n, x / n) / n; its percentiles are known."""
        stats = pytest.importorskip("scipy.stats")
        x = np.repeat([1.0, 0.0], [30, 70])
        found = mean_interval(x, seed=3, resamples=20_000)
        assert found.mean == pytest.approx(0.3)
        low, high = stats.binom(100, 0.3).ppf([0.025, 0.975]) / 100
        assert found.low == pytest.approx(low, abs=0.011)
        assert found.high == pytest.approx(high, abs=0.011)

    def test_the_seed_decides(self):
        x = np.random.default_rng(0).random(40)
        assert mean_interval(x, seed=5) == mean_interval(x, seed=5)
        assert mean_interval(x, seed=5) != mean_interval(x, seed=6)

    def test_the_level_widens(self):
        x = np.random.default_rng(0).random(40)
        narrow, wide = (mean_interval(x, seed=0, level=level) for level in (0.5, 0.99))
        assert wide.low < narrow.low < narrow.mean < narrow.high < wide.high


class TestDifference:
    def test_of_shifted_values_is_the_shift(self):
        """Pairing takes the spread between prompts away altogether."""
        b = np.random.default_rng(1).random(50)
        found = paired_difference(b + 0.125, b, seed=0)
        assert found.mean == pytest.approx(0.125)
        assert (found.low, found.high) == (pytest.approx(0.125), pytest.approx(0.125))
        assert found.positive

    def test_to_itself_is_zero(self):
        b = np.random.default_rng(1).random(50)
        found = paired_difference(b, b, seed=0)
        assert found == Interval(0.0, 0.0, 0.0, 50)
        assert not found.positive

    def test_only_prompts_that_have_both(self):
        found = paired_difference([1.0, np.nan, 1.0], [0.0, 0.0, np.nan], seed=0)
        assert found == Interval(1.0, 1.0, 1.0, 1)

    def test_columns_agree_with_one_at_a_time(self):
        x_PA = np.random.default_rng(2).random((30, 4))
        x_PA[3, 2] = np.nan
        whole = paired_differences(x_PA, 1, seed=7)
        for a, found in enumerate(whole):
            alone = paired_difference(x_PA[:, a], x_PA[:, 1], seed=7)
            assert found.n == alone.n
            assert (found.mean, found.low, found.high) == pytest.approx((alone.mean, alone.low, alone.high))
        assert whole[1] == Interval(0.0, 0.0, 0.0, 30)

    def test_against(self):
        assert against([[1.0, 3.0], [2.0, np.nan]], 0)[:, 1] == pytest.approx([2.0, np.nan], nan_ok=True)


class TestMacro:
    def test_tasks_count_the_same_whatever_their_size(self):
        (found,) = macro_intervals([np.ones((100, 1)), np.zeros((10, 1))], seed=0)
        assert found == Interval(0.5, 0.5, 0.5, 110)

    def test_one_task_is_its_mean(self):
        x_PA = np.random.default_rng(0).random((20, 2))
        assert macro_intervals([x_PA], seed=4) == mean_intervals(x_PA, seed=4)

    def test_narrower_than_one_task(self):
        tables = [np.random.default_rng(k).random((50, 1)) for k in range(8)]
        (one,), (all_,) = (macro_intervals(chosen, seed=0) for chosen in (tables[:1], tables))
        assert all_.high - all_.low < 0.6 * (one.high - one.low)

    def test_a_task_without_values_leaves_no_mean(self):
        (found,) = macro_intervals([np.ones((3, 1)), np.full((3, 1), np.nan)], seed=0)
        assert np.isnan(found.mean)
        assert found.n == 3


def test_replicates_do_not_depend_on_the_chunk(monkeypatch):
    x_PA = np.random.default_rng(0).random((11, 2))
    whole = replicates(x_PA, seed=1, resamples=50)
    monkeypatch.setattr("unmask.stats.paired._CELLS", 33)
    assert replicates(x_PA, seed=1, resamples=50) == pytest.approx(whole)


def test_coverage():
    """Over simulated studies, 95 % intervals of a paired difference hold the truth in 92 to 98 of 100."""
    rng, prompts, truth = np.random.default_rng(0), 100, 0.05
    hit = 0
    studies = 500
    for study in range(studies):
        # Thirds right, as part credit gives them, with prompts that are easy or hard for both policies.
        ease = rng.beta(2, 2, size=prompts)
        b = rng.binomial(3, ease) / 3
        a = rng.binomial(3, np.clip(ease, 0, 1)) / 3 + truth
        found = paired_difference(a, b, seed=study, resamples=1000)
        hit += found.low <= truth <= found.high
    assert 0.92 <= hit / studies <= 0.98


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: mean_interval([[1.0]], seed=0), "one number per prompt"),
        (lambda: mean_interval([np.inf], seed=0), "finite"),
        (lambda: paired_difference([1.0], [1.0, 2.0], seed=0), "same prompts"),
        (lambda: mean_intervals([1.0], seed=0), "prompts by columns"),
        (lambda: paired_differences([[1.0]], 1, seed=0), "columns 0..0"),
        (lambda: mean_interval([1.0], seed=0, resamples=0), "resamples is 0"),
        (lambda: mean_interval([1.0], seed=0, level=1.0), "level 1"),
        (lambda: macro_intervals([], seed=0), "one or more"),
        (lambda: macro_intervals([[[1.0]], [[1.0, 2.0]]], seed=0), "as many"),
    ],
)
def test_refusals(call, words):
    with pytest.raises(ValueError, match=words):
        call()
