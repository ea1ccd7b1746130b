"""Gates whose loss is bounded: bounds by bets, the sequence of tests, and how often it fails on made-up tasks."""

import math

import numpy as np
import pandas as pd
import pytest

from unmask.stats import CalibrationSettings, NotEnough, list_gate_thresholds
from unmask.stats.guarantee import (
    BETS,
    MARGIN,
    SequentialTest,
    betting_capital,
    draw_fitted_half,
    lower_bound,
    order_thresholds,
    p_value,
    sequential_test,
    smallest_margin,
    worst_case_differences,
)
from unmask.stats.protocol import ProposedAction, ValidationSet, fit_calibration

HOW = {"risk": 0.05, "margin": MARGIN}


def differences(rng, prompts, better_H, worse_H):
    """Gated less fixed: each threshold turns some wrong answers right and some right ones wrong, on its own."""
    u_PH = rng.random((prompts, len(better_H)))
    return np.where(u_PH < better_H, 1.0, np.where(u_PH > 1 - np.asarray(worse_H), -1.0, 0.0))


class TestSequentialTests:
    def test_never_where_nothing_gains_on_fitted_prompts(self):
        zero_PH = np.zeros((50, 3))
        test = sequential_test(zero_PH, np.ones((50, 3)), **HOW)
        assert test == SequentialTest(None, reason=test.reason)
        assert "no threshold gains anything" in test.reason

    def test_it_stops_at_the_first_that_fails(self):
        good_P, bad_P = np.tile([0.5, 0.5, 0.0, -0.1], 15), np.tile([0.2, -0.4], 30)
        fitted_PH = np.stack([good_P, good_P + 0.1, good_P + 0.05], 1)
        assert order_thresholds(fitted_PH, MARGIN).tolist() == [1, 2, 0]
        test = sequential_test(fitted_PH, np.stack([good_P, good_P, bad_P], 1), **HOW)
        assert (test.chosen, test.tested, test.passed) == (1, (1, 2), (1,))
        assert test.difference == pytest.approx(good_P.mean())
        assert -MARGIN < test.bound < test.difference
        # The last of the three would have passed, and was not asked.
        assert p_value((good_P + 1) / 2, (1 - MARGIN) / 2) <= 0.05
        none = sequential_test(fitted_PH, np.stack([good_P, bad_P, good_P], 1), **HOW)
        assert (none.chosen, none.tested, none.passed, none.bound) == (None, (1,), (), 0.0)
        assert "is not shown by 60 prompts" in none.reason

    def test_of_those_that_pass_the_one_that_gained_most(self):
        """The surest gain is tested first; a larger, less sure one is taken if it passes, too."""
        sure_P, large_P = np.full(40, 0.4), np.tile([1.0, 1.0, 1.0, -1.0], 10)
        both_PH = np.stack([large_P, sure_P], 1)
        assert order_thresholds(both_PH, MARGIN).tolist() == [1, 0]
        test = sequential_test(both_PH, both_PH, **HOW)
        assert (test.chosen, test.tested, test.passed) == (0, (1, 0), (1, 0))

    def test_tested_prompts_choose_no_order(self):
        rng = np.random.default_rng(0)
        fitted_PH = differences(rng, 50, [0.3, 0.3], [0.05, 0.05])
        one, other = (sequential_test(fitted_PH, x, **HOW) for x in (np.full((50, 2), 0.5), np.full((50, 2), -0.5)))
        assert one.tested[0] == other.tested[0]
        assert one.chosen is not None
        assert other.chosen is None

    def test_answers_that_nobody_could_judge_count_against_the_gate(self):
        gated_PH = [[np.nan, 1.0], [0.5, 0.25], [1.0, np.nan]]
        assert worst_case_differences(gated_PH, [0.5, np.nan, np.nan]).tolist() == [[-0.5, 0.5], [-0.5, -0.75], [0, -1]]

    def test_halves(self):
        half_P = draw_fitted_half(101, 3)
        assert (half_P.sum(), len(half_P)) == (50, 101)
        assert (half_P == draw_fitted_half(101, 3)).all()
        assert (half_P != draw_fitted_half(101, 4)).any()
        assert draw_fitted_half(1, 0).tolist() == [False]

    @pytest.mark.parametrize("changes", [{"risk": 0.0}, {"risk": 1.0}, {"margin": 0.0}, {"margin": np.nan}])
    def test_refused(self, changes):
        with pytest.raises(ValueError, match="both must be above 0"):
            sequential_test(np.ones((3, 1)), np.ones((3, 1)), **HOW | changes)


# Made-up tasks


class MadeUpTask:
    """Prompts with states, candidates and a signal, and what whole runs of them are worth.

    A run is right or wrong. The second candidate is right 5 % more often than the first. The gate is worth `gain` on
    average, for any threshold at which it is not shut, and differs from the fixed action on a share of the prompts.
    """

    def __init__(self, rng, gain, changed, prompts=100, states=4):
        self.rng, self.prompts = rng, prompts
        self.better, self.worse = (changed + gain) / 2, (changed - gain) / 2
        u_P, self.change_P = rng.random((2, prompts))
        self.right_PA = (u_P[:, None] < [0.5, 0.55, 0.3]).astype(float)
        signal_S = rng.normal(size=prompts * states)
        # At single states the proposal gains where the signal is high: one step says nothing about whole runs.
        gain_S = np.clip(0.3 * signal_S + 0.1 * rng.normal(size=len(signal_S)), -0.4, 0.4)
        q_SAR = np.repeat(np.stack([np.full(len(gain_S), 0.5), 0.5 + 0 * gain_S, 0.5 + gain_S], 1)[:, :, None], 2, 2)
        same_SA = np.zeros((len(gain_S), 3), bool)
        self.states = ValidationSet(
            prompt_S=np.repeat(np.arange(prompts), states),
            place_S=np.tile(np.arange(states), prompts),
            masked_S=np.tile(np.linspace(1, 0.25, states), prompts),
            q_SAR=q_SAR,
            signal_S=signal_S,
            abstained_S=np.zeros(len(gain_S), bool),
            proposals=dict.fromkeys(("raw", "snapped"), ProposedAction(q_SAR[:, 2], same_SA)),
            candidates=("full", "block:8", "block:16"),
            reference=0,
        )

    def gated(self, fixed_P):
        """Right answers of the gate: some of the wrong ones become right, some of the right ones wrong."""
        p_right = fixed_P.mean() or 1.0
        up_P = (fixed_P == 0) & (self.change_P < self.better / (1 - p_right))
        down_P = (fixed_P == 1) & (self.change_P < self.worse / p_right)
        return np.where(up_P, 1.0, np.where(down_P, 0.0, fixed_P))

    def opens(self, seed):
        """The whole chain: halves, fixed action, bins, levels, tests. Whether the gate opens."""
        fit_P = draw_fitted_half(self.prompts, seed)
        fitted = np.flatnonzero(fit_P)
        runs = pd.DataFrame(self.right_PA).loc[fitted]
        settings = CalibrationSettings(seed=seed, fixed="end-to-end")
        chosen = fit_calibration(self.states.select(fitted), settings, runs)
        fixed_P = self.right_PA[:, chosen.fixed.action]
        gated_PH = np.repeat(self.gated(fixed_P)[:, None], len(list_gate_thresholds(chosen.detector)), 1)
        gain_PH = worst_case_differences(gated_PH, fixed_P)
        return sequential_test(gain_PH[fit_P], gain_PH[~fit_P], **HOW).chosen is not None


def opened(tasks, gain_H, changed, prompts=100, seed=0):
    """How many of so many tasks open a gate; thresholds with gains of their own, drawn apart."""
    gain_H = np.asarray(gain_H)
    count = 0
    for task in range(tasks):
        rng = np.random.default_rng([seed, task])
        gain_PH = differences(rng, prompts, (changed + gain_H) / 2, (changed - gain_H) / 2)
        fit_P = draw_fitted_half(prompts, task)
        count += sequential_test(gain_PH[fit_P], gain_PH[~fit_P], **HOW).chosen is not None
    return count


@pytest.mark.parametrize("changed", [0.06, 0.1, 0.3])
def test_at_the_boundary_of_the_margin_few_gates_open(changed):
    """Ten thresholds, all of them worse by just the margin: whichever opens is a failure. 25 of 500 are allowed, and 36
    is what chance makes of that."""
    assert opened(500, np.full(10, -MARGIN), changed) <= 36


@pytest.mark.parametrize(("margin", "changed"), [(MARGIN, 0.06), (MARGIN, 0.3), (0.1, 0.1), (0.1, 0.3), (0.2, 0.2)])
def test_few_gates_open_even_where_the_fitted_half_praises_them(margin, changed):
    """As it would if luck had chosen the thresholds there: the tested half alone keeps the promise."""
    gain_PH = differences(np.random.default_rng(5), 50 * 500, *([(changed + s * margin) / 2] * 3 for s in (-1, 1)))
    how, praise_PH = HOW | {"margin": margin}, np.ones((50, 3))
    failures = sum(sequential_test(praise_PH, x, **how).chosen is not None for x in gain_PH.reshape(500, 50, 3))
    assert failures <= 36


def test_a_planted_gain_opens_at_least_half_of_the_gates():
    """docs/protocol.md names these: a gain of 0.15 where a quarter of the answers change, 100 prompts."""
    assert opened(200, [0.0, 0.15, 0.1], 0.25) >= 100


def failures_of(tasks, gain, changed, seed):
    return sum(MadeUpTask(np.random.default_rng([seed, task]), gain, changed).opens(task) for task in range(tasks))


def test_five_hundred_tasks_at_the_boundary_through_the_whole_chain():
    assert failures_of(500, -MARGIN, 0.15, 7) <= 36


@pytest.mark.slow
@pytest.mark.parametrize("changed", [0.06, 0.3, 0.5])
def test_more_tasks_at_the_boundary_through_the_whole_chain(changed):
    assert failures_of(2000, -MARGIN, changed, 9) <= 125


@pytest.mark.slow
def test_planted_gains_through_the_whole_chain():
    assert failures_of(500, 0.15, 0.25, 8) >= 250


# Bounds for means, by bets


DISTRIBUTIONS = {
    "coin": lambda rng, size: (rng.random(size) < 0.3).astype(float),
    "rare": lambda rng, size: (rng.random(size) < 0.03).astype(float),
    "differences": lambda rng, size: rng.choice([0.0, 0.5, 1.0], p=[0.1, 0.85, 0.05], size=size),
    "uniform": lambda rng, size: rng.random(size),
}
MEANS = {"coin": 0.3, "rare": 0.03, "differences": 0.475, "uniform": 0.5}


def by_definition(x, null):
    """One number and one bet after the other."""
    grown = []
    for n in range(1, len(x) + 1):
        total = 0.0
        for bet in range(1, BETS + 1):
            money = 1.0
            for one in x[:n]:
                money *= 1 + bet / BETS / null * (one - null)
            total += money / BETS
        grown.append(total)
    return grown


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_capital_is_what_the_bets_give(kind):
    x = DISTRIBUTIONS[kind](np.random.default_rng(1), 25)
    for null in (0.05, 0.4, 0.95, 1.0):
        assert betting_capital(x, null) == pytest.approx(by_definition(x, null), rel=1e-9, abs=1e-300)
        assert p_value(x, null) == pytest.approx(min(1, 1 / max(by_definition(x, null))))


def test_the_bound_is_the_last_mean_that_is_rejected():
    x = DISTRIBUTIONS["uniform"](np.random.default_rng(2), 20)
    rejected = [m for m in np.arange(1, 100) / 100 if max(by_definition(x, m)) >= 20]
    assert rejected[-1] <= lower_bound(x, 0.05) < rejected[-1] + 0.01


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_coverage(kind):
    """A bound at level 0.1 is wrong in a tenth of all samples at most; at whatever moment one looks."""
    rng = np.random.default_rng(3)
    x_RN = DISTRIBUTIONS[kind](rng, (600, 50))
    wrong = sum(p_value(x_N, MEANS[kind]) <= 0.1 for x_N in x_RN)
    # 60 are allowed; the binomial's standard deviation is 7.3.
    assert wrong <= 78
    assert sum(lower_bound(x_N, 0.1) > MEANS[kind] for x_N in x_RN[:60]) <= 12


def test_monotone():
    rng = np.random.default_rng(5)
    x = rng.random(30)
    assert (np.diff([betting_capital(x, m).max() for m in np.linspace(0.01, 1, 60)]) <= 0).all()
    assert lower_bound(x, 0.01) < lower_bound(x, 0.05) < lower_bound(x, 0.5)
    assert lower_bound(x, 0.05) < lower_bound(np.minimum(x + 0.1, 1), 0.05)
    assert lower_bound(x, 0.05) < x.mean()
    # One more number never takes back what was shown before.
    bounds = [lower_bound(x[:n], 0.05) for n in range(1, 31)]
    assert bounds == sorted(bounds)


def test_the_smallest_margin_of_a_gate_that_changes_nothing():
    assert smallest_margin(50, 0.05) == pytest.approx(1 - 2 * lower_bound(np.full(50, 0.5), 0.05))
    assert 0.06 < smallest_margin(50, 0.05) < 0.1
    assert smallest_margin(200, 0.05) < smallest_margin(100, 0.05) < 0.05
    assert smallest_margin(0, 0.05) == math.inf


@pytest.mark.parametrize("x", [[1.1], [-0.1], [math.nan], [0.5, math.inf]])
def test_numbers_out_of_range_are_refused(x):
    with pytest.raises(ValueError, match="must be from 0 to 1"):
        betting_capital(x, 0.5)


def test_settings_out_of_range_are_refused():
    with pytest.raises(NotEnough, match="there are no numbers"):
        lower_bound([], 0.05)
    with pytest.raises(ValueError, match="null is 0"):
        betting_capital([0.5], 0)
    with pytest.raises(ValueError, match="risk is 1"):
        lower_bound([0.5], 1)
