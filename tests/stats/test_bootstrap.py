"""The prompt-cluster bootstrap against explicit resampling and known answers."""

from dataclasses import replace

import numpy as np
import pytest

from tests.helpers.cases import each_case
from unmask.stats import (
    Estimate,
    against,
    macro_intervals,
    mean_interval,
    mean_intervals,
    paired_difference,
    paired_differences,
    ratio_intervals,
)
from unmask.stats.bootstrap import bootstrap, cluster_sums, macro_ratios, percentiles, prompt_counts

NAN = float("nan")


def test_counts_are_draws_with_replacement():
    (count_DP,) = prompt_counts([7, 3], [(0, 1), (0, 2)], 4000, 4000)
    assert count_DP.shape == (4000, 10)
    assert (count_DP[:, :7].sum(1) == 7).all()
    assert (count_DP[:, 7:].sum(1) == 3).all()
    # Multinomial: mean 1, variance 1 - 1/P, covariance -1/P within a stratum and 0 across.
    covariance = np.cov(count_DP.T)
    assert count_DP.mean(0) == pytest.approx(np.ones(10), abs=0.06)
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
    drawn_DM = np.random.default_rng(0).random((101, 4))
    drawn_DM[::3, 1] = np.nan
    drawn_DM[1:, 2] = np.nan
    np.testing.assert_allclose(percentiles(drawn_DM, 0.9), np.nanpercentile(drawn_DM, [5, 95], axis=0))
    drawn_DM[:, 3] = np.nan
    assert np.isnan(percentiles(drawn_DM, 0.9)[:, 3]).all()


def test_percentiles_keep_their_bits():
    """low + weight * (high - low) between neighbours; NumPy's own rule rounds differently in some last digits."""
    drawn_DM = np.random.default_rng(1).standard_normal((1000, 64))
    ordered_MD = np.sort(drawn_DM, 0).T.tolist()
    for level in (0.8, 0.95):
        found = percentiles(drawn_DM, level)
        for end, share in enumerate(((1 - level) / 2, (1 + level) / 2)):
            place = share * 999
            below = int(place)
            by_hand = [row[below] + (place - below) * (row[below + 1] - row[below]) for row in ordered_MD]
            assert found[end].tolist() == by_hand
    numpys = np.nanquantile(drawn_DM, [0.025, 0.975], axis=0)
    assert (numpys != percentiles(drawn_DM, 0.95)).any()


def test_the_seed_decides_and_the_level_widens():
    x, ones, prompt = np.random.default_rng(0).random(40), np.ones(40), np.arange(40)
    assert ratio_intervals(x, ones, prompt, seed=5) == ratio_intervals(x, ones, prompt, seed=5)
    assert ratio_intervals(x, ones, prompt, seed=5) != ratio_intervals(x, ones, prompt, seed=6)
    (narrow,), (wide,) = (ratio_intervals(x, ones, prompt, seed=5, level=level) for level in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.value < narrow.high < wide.high


def test_few_replicates_are_held_at_a_time(monkeypatch):
    sizes = []

    def statistic(weight_DP):
        sizes.append(len(weight_DP))
        return weight_DP[:, :1]

    monkeypatch.setattr("unmask.stats.bootstrap._CELLS", 1000)
    bootstrap(statistic, [10], seeds=[(0,)], resamples=100, width=250)
    assert sizes == [1] + [4] * 25


def test_cluster_sums():
    x_SM = np.array([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]])
    np.testing.assert_array_equal(cluster_sums(x_SM, np.array([2, 0, 2]), 4), [[2, 20], [0, 0], [5, 50], [0, 0]])


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


@each_case("case", PINNED)
def test_pinned(case):
    """Seeds and the percentile rule decide these numbers; whoever changes either, changes every comparison."""
    call, expected = PINNED[case]
    found = [(i.value, i.low, i.high, i.n) for i in call()]
    assert np.array(found) == pytest.approx(np.array(expected), rel=1e-14, abs=1e-15, nan_ok=True)


class TestMean:
    def test_of_a_constant(self):
        assert mean_interval([0.25] * 7, seed=0) == Estimate(0.25, 0.25, 0.25, n=7)

    def test_of_one_prompt(self):
        assert mean_interval([0.5], seed=0) == Estimate(0.5, 0.5, 0.5, n=1)

    def test_of_nothing(self):
        found = mean_interval([], seed=0)
        assert found.n == 0
        assert np.isnan([found.value, found.low, found.high]).all()

    def test_missing_values_are_left_out_and_not_zero(self):
        found = mean_interval([1.0, np.nan, 1.0, np.nan], seed=0)
        assert replace(found, undefined=0) == Estimate(1.0, 1.0, 1.0, n=2)
        # One replicate in 2^4 draws no value.
        assert found.undefined / 2000 == pytest.approx(1 / 16, abs=0.02)

    def test_of_coin_flips_matches_the_binomial(self):
        """A resampled mean of x heads in n is Binomial(n, x / n) / n; its percentiles are known."""
        stats = pytest.importorskip("scipy.stats")
        x = np.repeat([1.0, 0.0], [30, 70])
        found = mean_interval(x, seed=3, resamples=20_000)
        assert found.value == pytest.approx(0.3)
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
        assert wide.low < narrow.low < narrow.value < narrow.high < wide.high


class TestDifference:
    def test_of_shifted_values_is_the_shift(self):
        """Pairing takes the spread between prompts away altogether."""
        b = np.random.default_rng(1).random(50)
        found = paired_difference(b + 0.125, b, seed=0)
        assert found.value == pytest.approx(0.125)
        assert (found.low, found.high) == (pytest.approx(0.125), pytest.approx(0.125))
        assert found.positive

    def test_to_itself_is_zero(self):
        b = np.random.default_rng(1).random(50)
        found = paired_difference(b, b, seed=0)
        assert found == Estimate(0.0, 0.0, 0.0, n=50)
        assert not found.positive

    def test_only_prompts_that_have_both(self):
        found = paired_difference([1.0, np.nan, 1.0], [0.0, 0.0, np.nan], seed=0)
        assert replace(found, undefined=0) == Estimate(1.0, 1.0, 1.0, n=1)

    def test_columns_agree_with_one_at_a_time(self):
        x_PA = np.random.default_rng(2).random((30, 4))
        x_PA[3, 2] = np.nan
        whole = paired_differences(x_PA, 1, seed=7)
        for a, found in enumerate(whole):
            alone = paired_difference(x_PA[:, a], x_PA[:, 1], seed=7)
            assert found.n == alone.n
            assert (found.value, found.low, found.high) == pytest.approx((alone.value, alone.low, alone.high))
        assert whole[1] == Estimate(0.0, 0.0, 0.0, n=30)

    def test_against(self):
        assert against([[1.0, 3.0], [2.0, np.nan]], 0)[:, 1] == pytest.approx([2.0, np.nan], nan_ok=True)


class TestMacro:
    def test_tasks_count_the_same_whatever_their_size(self):
        (found,) = macro_intervals([np.ones((100, 1)), np.zeros((10, 1))], seed=0)
        assert found == Estimate(0.5, 0.5, 0.5, n=110)

    def test_one_task_is_its_mean(self):
        x_PA = np.random.default_rng(0).random((20, 2))
        assert macro_intervals([x_PA], seed=4) == mean_intervals(x_PA, seed=4)

    def test_narrower_than_one_task(self):
        tables = [np.random.default_rng(k).random((50, 1)) for k in range(8)]
        (one,), (all_,) = (macro_intervals(chosen, seed=0) for chosen in (tables[:1], tables))
        assert all_.high - all_.low < 0.6 * (one.high - one.low)

    def test_a_task_without_values_leaves_no_mean(self):
        (found,) = macro_intervals([np.ones((3, 1)), np.full((3, 1), np.nan)], seed=0)
        assert np.isnan(found.value)
        assert found.n == 3


def test_means_do_not_depend_on_the_chunk(monkeypatch):
    x_PA = np.random.default_rng(0).random((11, 2))
    whole = mean_intervals(x_PA, seed=1, resamples=50)
    monkeypatch.setattr("unmask.stats.bootstrap._CELLS", 33)
    for part, one in zip(mean_intervals(x_PA, seed=1, resamples=50), whole, strict=True):
        assert (part.value, part.low, part.high) == pytest.approx((one.value, one.low, one.high))


def test_coverage_of_a_paired_difference():
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


@each_case(
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
def test_refusals_of_means(call, words):
    with pytest.raises(ValueError, match=words):
        call()


class TestMacroRatios:
    def brute(self, tops, bottoms, reference, seed, resamples):
        """Draw by draw, prompt by prompt, with the counts that the intervals are made from."""
        sizes = [len(top) for top in tops]
        (count_DP,) = prompt_counts(sizes, [(seed, task) for task in range(len(sizes))], resamples, resamples)
        values = []
        for count_P in count_DP:
            row = []
            for column in range(tops[0].shape[1]):
                parts, start = {"own": [], "reference": []}, 0
                for top, bottom in zip(tops, bottoms, strict=True):
                    sums = {"own": [0.0, 0.0], "reference": [0.0, 0.0]}
                    for prompt, count in enumerate(count_P[start : start + len(top)]):
                        known = np.isfinite(top[prompt, column] + bottom[prompt, column])
                        if reference is not None:
                            known &= np.isfinite(top[prompt, reference] + bottom[prompt, reference])
                        for who, at in (("own", column), ("reference", reference)):
                            if known and at is not None:
                                sums[who][0] += count * top[prompt, at]
                                sums[who][1] += count * bottom[prompt, at]
                    for who, (above, below) in sums.items():
                        parts[who].append(above / below if below else np.nan)
                    start += len(top)
                own = np.mean(parts["own"])
                row.append(own if reference is None else own / np.mean(parts["reference"]))
            values.append(row)
        return np.array(values)

    @pytest.mark.parametrize("reference", [None, 1])
    def test_are_those_of_every_draw_by_hand(self, reference):
        draw = np.random.default_rng(2)
        tops = [draw.random((7, 3)) + 1, draw.random((4, 3)) + 1]
        bottoms = [draw.random((7, 3)) + 1, draw.random((4, 3)) + 1]
        tops[0][2, 0] = np.nan
        bottoms[1][1, 1] = np.nan
        found = macro_ratios(tops, bottoms, reference=reference, seed=9, resamples=60)
        drawn = self.brute(tops, bottoms, reference, 9, 60)
        for at, estimate in enumerate(found):
            known = drawn[np.isfinite(drawn[:, at]), at]
            expected = np.percentile(known, [2.5, 97.5])
            assert (estimate.low, estimate.high) == pytest.approx(tuple(expected))
        if reference is not None:
            assert (found[1].value, found[1].low, found[1].high) == pytest.approx((1.0, 1.0, 1.0))

    def test_without_a_denominator_they_are_means(self):
        x_PA = np.random.default_rng(1).random((9, 2))
        assert macro_ratios([x_PA], None, seed=3) == mean_intervals(x_PA, seed=3)

    def test_a_ratio_of_means_is_no_mean_of_ratios(self):
        found = macro_ratios([[[1.0, 1.0], [3.0, 9.0]]], None, reference=0, seed=0, resamples=10)
        assert found[1].value == pytest.approx(10 / 4)

    def test_refusals(self):
        with pytest.raises(ValueError, match="reference is 2"):
            macro_ratios([[[1.0, 2.0]]], None, reference=2, seed=0)
        with pytest.raises(ValueError, match="as many in each"):
            macro_ratios([[[1.0, 2.0]]], [[[1.0]]], seed=0)
