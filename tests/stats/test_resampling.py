"""The prompt-cluster bootstrap against explicit resampling and known answers."""

import numpy as np
import pytest

from tests.helpers.cases import each_case
from unmask.stats import Estimate, NotEnough, estimate_measures, estimate_ratio, mean_over_tasks
from unmask.stats.resampling import draw_counts, quantile_interval, weighted_mean

NAN = float("nan")


def less(x_PA, reference):
    """Every column less the reference's."""
    return x_PA - x_PA[:, [reference]]


def test_counts_are_draws_with_replacement():
    (count_DP,) = draw_counts([7, 3], [(0, 1), (0, 2)], 4000, 4000)
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
    whole = np.concatenate(list(draw_counts([5, 3], [(1,), (2,)], 20, 20)))
    parts = np.concatenate(list(draw_counts([5, 3], [(1,), (2,)], 20, 3)))
    np.testing.assert_array_equal(whole, parts)


def test_as_resampling_rows_one_by_one():
    rng = np.random.default_rng(0)
    prompt_S = np.array(["b", "a", "c", "b", "c", "c", "a"])
    top_S, bottom_S = rng.random(7), rng.integers(0, 2, 7).astype(float)
    found = estimate_ratio(top_S, bottom_S, prompt_S, seed=3, resamples=50)
    drawn = []
    for count_P in next(iter(draw_counts([3], [(3,)], 50, 50))):
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
    once = estimate_ratio(x_P, np.ones(40), np.arange(40), seed=0)
    copies = estimate_ratio(np.repeat(x_P, 8), np.ones(320), np.repeat(np.arange(40), 8), seed=0)
    wrong = estimate_ratio(np.repeat(x_P, 8), np.ones(320), np.arange(320), seed=0)
    assert (copies.value, copies.low, copies.high) == pytest.approx((once.value, once.low, once.high))
    assert wrong.high - wrong.low < 0.5 * (copies.high - copies.low)


def test_undefined_replicates_are_counted():
    """One prompt of three has a mass: (2/3)^3 of the replicates miss it."""
    found = estimate_ratio([0.5, 0.0, 0.0], [1.0, 0.0, 0.0], [0, 1, 2], seed=0, resamples=4000)
    assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)
    assert found.undefined / 4000 == pytest.approx(8 / 27, abs=0.03)
    never = estimate_ratio([0.0], [0.0], [0], seed=0, resamples=10)
    assert never.undefined == 10
    assert np.isnan([never.value, never.low, never.high]).all()


def test_intervals_as_numpy():
    drawn_DM = np.random.default_rng(0).random((101, 4))
    drawn_DM[::3, 1] = np.nan
    drawn_DM[1:, 2] = np.nan
    np.testing.assert_allclose(quantile_interval(drawn_DM, 0.9), np.nanpercentile(drawn_DM, [5, 95], axis=0))
    drawn_DM[:, 3] = np.nan
    assert np.isnan(quantile_interval(drawn_DM, 0.9)[:, 3]).all()


def test_intervals_keep_their_bits():
    """low + weight * (high - low) between neighbours; NumPy's own rule rounds differently in some last digits."""
    drawn_DM = np.random.default_rng(1).standard_normal((1000, 64))
    ordered_MD = np.sort(drawn_DM, 0).T.tolist()
    for level in (0.8, 0.95):
        found = quantile_interval(drawn_DM, level)
        for end, share in enumerate(((1 - level) / 2, (1 + level) / 2)):
            place = share * 999
            below = int(place)
            by_hand = [row[below] + (place - below) * (row[below + 1] - row[below]) for row in ordered_MD]
            assert found[end].tolist() == by_hand
    numpys = np.nanquantile(drawn_DM, [0.025, 0.975], axis=0)
    assert (numpys != quantile_interval(drawn_DM, 0.95)).any()


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: estimate_ratio([], [], [], seed=0), NotEnough, "no state"),
        (lambda: estimate_ratio([NAN], [1.0], [0], seed=0), ValueError, "leave missing ones out"),
        (lambda: estimate_ratio([1.0], [1.0], [0], seed=0, resamples=0), ValueError, "resamples is 0"),
    ],
)
def test_refusals(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


def test_measures_of_weights_are_those_of_resampled_prompts():
    """One bootstrap for any number of named measures: the states of a prompt weigh as much as it was drawn."""
    rng = np.random.default_rng(2)
    x_S, prompt_S = rng.random(30), np.repeat(list("cabde"), 6)
    found = estimate_measures(
        lambda weight_DS: {"mean": weighted_mean(weight_DS, x_S), "largest": (weight_DS * x_S).max(1)},
        prompt_S,
        seed=4,
        resamples=30,
    )
    drawn = []
    for count_P in next(iter(draw_counts([5], [(4, 0)], 30, 30))):
        weight_S = np.repeat(count_P[[2, 0, 1, 3, 4]], 6)
        drawn.append([(weight_S * x_S).sum() / weight_S.sum(), (weight_S * x_S).max()])
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0)
    assert [found[name].low for name in ("mean", "largest")] == pytest.approx(low)
    assert [found[name].high for name in ("mean", "largest")] == pytest.approx(high)
    assert found["mean"].value == pytest.approx(x_S.mean())


def thirds(seed, prompts, columns, lost=0.0):
    """Utilities in thirds, some of them missing."""
    rng = np.random.default_rng(seed)
    x_PA = rng.integers(0, 4, (prompts, columns)) / 3
    return np.where(rng.random(x_PA.shape) < lost, np.nan, x_PA)


PINNED = {
    "one column": (
        lambda: mean_over_tasks([thirds(0, 12, 1)], seed=0),
        [(0.47222222222222227, 0.25, 0.6944444444444443, 12)],
    ),
    "three columns, some missing": (
        lambda: mean_over_tasks([thirds(1, 25, 3, 0.2)], seed=5),
        [
            (0.47222222222222227, 0.3188241106719368, 0.6266666666666666, 24),
            (0.4509803921568627, 0.26666666666666666, 0.6666666666666666, 17),
            (0.5263157894736842, 0.37493872549019613, 0.6874999999999999, 19),
        ],
    ),
    "differences": (
        lambda: mean_over_tasks([less(thirds(3, 17, 3, 0.3), 1)], seed=11),
        [
            (1.2335811384723961e-17, -0.37514880952380925, 0.35909090909090846, 9),
            (0.0, 0.0, 0.0, 13),
            (0.09523809523809523, -0.11111111111111112, 0.2666666666666667, 7),
        ],
    ),
    "three tasks": (
        lambda: mean_over_tasks([thirds(k, n, 2, 0.1) for k, n in ((4, 10), (5, 31), (6, 4))], seed=2),
        [
            (0.5851851851851851, 0.45483870967741935, 0.7213620071684587, 43),
            (0.5206349206349206, 0.4144971264367817, 0.6257253086419752, 42),
        ],
    ),
    "nine tasks": (
        lambda: mean_over_tasks([thirds(k, 6, 1) for k in range(9)], seed=3, resamples=100),
        [(0.5679012345679013, 0.4844135802469136, 0.6481481481481481, 54)],
    ),
    "one prompt": (lambda: mean_over_tasks([[[0.75]]], seed=9), [(0.75, 0.75, 0.75, 1)]),
    "no prompt": (lambda: mean_over_tasks([np.zeros((0, 1))], seed=9), [(NAN, NAN, NAN, 0)]),
    "one resample": (
        lambda: mean_over_tasks([thirds(7, 5, 2)], seed=4, resamples=1),
        [(0.6666666666666666, 0.3333333333333333, 0.3333333333333333, 5), (0.6, 0.4, 0.4, 5)],
    ),
    "mostly missing": (
        lambda: mean_over_tasks([[[NAN], [0.5], [NAN], [NAN], [1.0]]], seed=6, resamples=50),
        [(0.75, 0.5, 1.0, 2)],
    ),
    "a column without values": (
        lambda: mean_over_tasks([[[0.5, NAN], [1.0, NAN]]], seed=8, resamples=20),
        [(0.75, 0.5, 1.0, 2), (NAN, NAN, NAN, 0)],
    ),
    "a task without values": (
        lambda: mean_over_tasks([[[0.5], [1.0]], [[NAN], [NAN]]], seed=8, resamples=20),
        [(NAN, NAN, NAN, 2)],
    ),
}


@each_case("case", PINNED)
def test_pinned(case):
    """Seeds and the percentile rule decide these numbers; whoever changes either, changes every comparison."""
    call, expected = PINNED[case]
    found = [(i.value, i.low, i.high, i.n) for i in call()]
    assert np.array(found) == pytest.approx(np.array(expected), rel=1e-14, abs=1e-15, nan_ok=True)


class TestTasks:
    def test_tasks_count_the_same_whatever_their_size(self):
        (found,) = mean_over_tasks([np.ones((100, 1)), np.zeros((10, 1))], seed=0)
        assert found == Estimate(0.5, 0.5, 0.5, n=110)

    def test_columns_stay_paired(self):
        """The difference to a shifted column does not move: prompts are the same in every resample."""
        b_P = np.random.default_rng(1).random(50)
        found = mean_over_tasks([less(np.stack([b_P, b_P + 0.125], 1), 0)], seed=0)
        assert found[0] == Estimate(0.0, 0.0, 0.0, n=50)
        assert (found[1].value, found[1].low, found[1].high) == pytest.approx((0.125, 0.125, 0.125))
        assert found[1].positive


class TestRatiosOverTasks:
    def brute(self, tops, bottoms, reference, seed, resamples):
        """Draw by draw, prompt by prompt, with the counts that the intervals are made from."""
        sizes = [len(top) for top in tops]
        (count_DP,) = draw_counts(sizes, [(seed, task) for task in range(len(sizes))], resamples, resamples)
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
        found = mean_over_tasks(tops, bottoms, relative_to=reference, seed=9, resamples=60)
        drawn = self.brute(tops, bottoms, reference, 9, 60)
        for at, estimate in enumerate(found):
            known = drawn[np.isfinite(drawn[:, at]), at]
            expected = np.percentile(known, [2.5, 97.5])
            assert (estimate.low, estimate.high) == pytest.approx(tuple(expected))
        if reference is not None:
            assert (found[1].value, found[1].low, found[1].high) == pytest.approx((1.0, 1.0, 1.0))


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
        (found,) = mean_over_tasks([(a - b)[:, None]], seed=study, resamples=1000)
        hit += found.low <= truth <= found.high
    assert 0.92 <= hit / studies <= 0.98
