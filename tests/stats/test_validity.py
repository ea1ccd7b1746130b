"""Simulated studies with a known truth: what cross-fitting corrects, and how often intervals hold the truth.

`PYTHONPATH=src python tests/stats/test_validity.py` prints the table of docs/protocol.md.
"""

from dataclasses import dataclass

import numpy as np
import pytest

from unmask.stats import FixedAction
from unmask.stats.measures import measure_opportunity, prepare_opportunity_states
from unmask.stats.protocol import choose_fixed, cross_fit
from unmask.stats.resampling import bootstrap, number_prompts, sum_by_cluster

PROMPTS, STATES, ACTIONS, ROLLOUTS = 100, 8, 6, 4
MARGINS = (0.1, 0.2, 0.3)
BATCH = 50
PROMPT_S = np.repeat(np.arange(PROMPTS), STATES)
MASKED_S = np.tile(1 - np.arange(STATES) / STATES, PROMPTS)
FIXED = FixedAction(0, np.full(ACTIONS, np.nan), 0, 0)
"""Whatever the others are worth on validation states, action 0 is better."""


@dataclass(frozen=True)
class World:
    """Where states come from. Action 0 is the fixed one.

    Prompts differ in ease and states within them too. With chance `rate` a state is positive: one other action,
    drawn anew, beats the fixed one by 0.1, 0.2 or 0.3. Otherwise the others lose 0, 0, 0.1, 0.1 and 0.2. Positive
    states come in clumps: the chance varies between prompts so that two states of one prompt correlate by 0.2.
    `noise` moves every utility up or down in every rollout, for each action on its own, and common noise of 0.05 for
    all of them together.
    """

    rate: float
    noise: float = 0.0
    loss: tuple[float, ...] = (0.0, 0.0, 0.1, 0.1, 0.2)

    @property
    def delta(self):
        """The true Delta_adapt."""
        return self.rate * np.mean(MARGINS)

    def draw(self, rng, studies):
        """q_SAR of so many studies, one after the other."""
        states = studies * PROMPTS * STATES

        def by_prompt(x_P):
            return np.repeat(x_P, STATES)

        ease_S = by_prompt(rng.uniform(0.43, 0.47, studies * PROMPTS)) + rng.uniform(-0.03, 0.03, states)
        q_SA = ease_S[:, None] - np.array([0.0, *self.loss])
        if self.rate:
            chance_S = by_prompt(rng.beta(4 * self.rate, 4 * (1 - self.rate), studies * PROMPTS))
            row = np.flatnonzero(rng.random(states) < chance_S)
            q_SA[row, rng.integers(1, ACTIONS, len(row))] = ease_S[row] + rng.choice(MARGINS, len(row))
        q_SAR = np.repeat(q_SA[:, :, None], ROLLOUTS, 2)
        if self.noise:
            q_SAR += 0.05 * rng.choice([-1.0, 1.0], (states, 1, ROLLOUTS))
            q_SAR += self.noise * rng.choice([-1.0, 1.0], q_SAR.shape)
        assert q_SAR.min() >= 0
        assert q_SAR.max() <= 1
        return q_SAR


@dataclass(frozen=True)
class Result:
    """What so many studies found, one entry each."""

    world: World
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    naive: np.ndarray
    naive_high: np.ndarray
    positive_prompts: np.ndarray

    def coverage(self, truth):
        return np.mean((self.low <= truth) & (truth <= self.high))

    @property
    def bracketed(self):
        return np.mean((self.low <= self.world.delta) & (self.world.delta <= self.naive_high))

    @property
    def marked(self):
        """Share of studies that a summary marks unreliable."""
        return np.mean(self.positive_prompts < 10)

    @property
    def error(self):
        """Standard error of the mean estimate."""
        return self.value.std() / np.sqrt(len(self.value))


def intervals(x_SM, prompt_S, seed):
    """Means of many columns, all from the same resampled prompts."""
    code_S, prompts = number_prompts(prompt_S)
    sum_PM, states_P1 = (
        sum_by_cluster(x_SM, code_S, prompts),
        sum_by_cluster(np.ones((len(code_S), 1)), code_S, prompts),
    )
    found = bootstrap(
        lambda w: dict(enumerate(((w @ sum_PM) / (w @ states_P1)).T)), [prompts], [(seed,)], width=x_SM.shape[1]
    )
    return tuple(found.values())


def measured(q_SAR, seed):
    """E1's numbers of one study."""
    return measure_opportunity(
        {"": prepare_opportunity_states(q_SAR, prompts_of(q_SAR), masked_of(q_SAR), FIXED)}, seed=seed
    )


def prompts_of(q_SAR):
    return np.arange(len(q_SAR)) // STATES


def masked_of(q_SAR):
    return np.resize(MASKED_S, len(q_SAR))


def simulate(world, studies=500, seed=0):
    """Studies as columns: each batch has its own resampled prompts."""
    rng = np.random.default_rng(seed)
    parts = []
    for batch in range(studies // BATCH):
        fit = cross_fit(world.draw(rng, BATCH), 0, reference=0)
        g_SM, naive_SM = (x.reshape(BATCH, -1).T for x in (fit.g_S, fit.naive_S))
        found = intervals(g_SM, PROMPT_S, 1000 * seed + batch)
        naive = intervals(naive_SM, PROMPT_S, 1000 * seed + batch)
        positive_M = (g_SM.reshape(PROMPTS, STATES, BATCH) > 0).any(1).sum(0)
        parts += [
            (e.value, e.low, e.high, n.value, n.high, p) for e, n, p in zip(found, naive, positive_M, strict=True)
        ]
    return Result(world, *np.array(parts).T)


def other_coverage(world, studies, seed=0):
    """How often intervals of the other numbers hold what they are in 400 studies' worth of prompts."""
    rng = np.random.default_rng(seed)
    q_SAR = world.draw(rng, 400)
    states = prepare_opportunity_states(q_SAR, prompts_of(q_SAR), masked_of(q_SAR), FIXED)
    truth = measure_opportunity({"": states}, seed=0, resamples=1)
    keys = [(name, "") for name in ("frequency", "margin", "positive_rate", "bidirectional")]
    keys += [("concentration", 0.05), ("concentration", 0.2)]
    hit = dict.fromkeys(keys, 0)
    for study in range(studies):
        found = measured(world.draw(rng, 1), study)
        for key in keys:
            hit[key] += found[key].low - 1e-9 <= truth[key].value <= found[key].high + 1e-9
    return {key: n / studies for key, n in hit.items()}


class TestBias:
    def test_equal_actions_look_like_an_opportunity_to_the_naive_estimate_only(self):
        found = simulate(World(rate=0, noise=0.1, loss=(0.0,) * 5))
        assert found.naive.mean() > 0.05
        assert found.naive.min() > 0.04
        assert abs(found.value.mean()) < 3 * found.error
        assert found.error < 0.0003
        assert 0.92 <= found.coverage(0) <= 0.98

    def test_without_noise_both_are_right(self):
        found = simulate(World(rate=0.1))
        np.testing.assert_allclose(found.naive, found.value, atol=1e-12)
        assert found.value.mean() == pytest.approx(found.world.delta, abs=3 * found.error)

    def test_a_little_noise_misleads_the_naive_estimate_alone(self):
        found = simulate(World(rate=0.1, noise=0.05))
        assert found.naive.mean() > 1.8 * found.world.delta
        assert found.value.mean() == pytest.approx(found.world.delta, rel=0.05)

    def test_much_noise_leaves_the_truth_between_them(self):
        """Two rollouts then often pick the wrong action: what they can find is less than what is there."""
        found = simulate(World(rate=0.1, noise=0.15))
        assert found.value.mean() < 0.5 * found.world.delta
        assert found.naive.mean() > 3 * found.world.delta
        assert found.bracketed >= 0.95


class TestCoverage:
    @pytest.mark.parametrize("noise", [0.0, 0.05])
    @pytest.mark.parametrize("rate", [0.1, 0.2, 0.3])
    def test_where_one_state_in_ten_or_more_is_positive(self, rate, noise):
        """The promise: 500 studies of 100 prompts with 8 states."""
        found = simulate(World(rate, noise))
        assert len(found.value) == 500
        assert 0.92 <= found.coverage(found.world.delta) <= 0.98
        assert found.marked == 0

    def test_under_much_noise_of_what_two_rollouts_can_find(self):
        found = simulate(World(rate=0.1, noise=0.15))
        assert 0.92 <= found.coverage(found.value.mean()) <= 0.98

    @pytest.mark.parametrize(("rate", "most"), [(0.01, 0.92), (0.004, 0.8)])
    def test_sparse_opportunity_is_covered_too_rarely_and_marked(self, rate, most):
        found = simulate(World(rate))
        assert found.coverage(found.world.delta) < most
        # They err to one side: most intervals that miss lie below the truth.
        assert np.mean(found.high < found.world.delta) > 0.9 * (1 - found.coverage(found.world.delta))
        assert found.marked > 0.95

    def test_states_taken_for_independent_would_not_do(self):
        """The same numbers with states resampled one by one: intervals too short."""
        rng, world = np.random.default_rng(0), World(rate=0.2)
        g_SM = cross_fit(world.draw(rng, 200), 0).g_S.reshape(200, -1).T
        found = intervals(g_SM, np.arange(len(g_SM)), 0)
        assert np.mean([e.low <= world.delta <= e.high for e in found]) < 0.85


def test_the_other_numbers_are_covered():
    """Sixty studies: three standard errors below 95 of 100 is 86."""
    for name, share in other_coverage(World(rate=0.3, noise=0.05), studies=60).items():
        assert share >= 0.86, name


def test_where_nothing_reverses_no_mass_is_claimed():
    """Six equal actions and noise: with the best pair chosen again in every replicate, 0 is mostly left out."""
    rng, world = np.random.default_rng(0), World(rate=0, noise=0.1, loss=(0.0,) * 5)
    found = [measured(world.draw(rng, 1), k) for k in range(40)]
    assert np.mean([part["bidirectional"].low == 0 for part in found]) >= 0.9


def test_validation_finds_the_fixed_action():
    """With a fifth of the states positive no other action is better on average."""
    world = World(rate=0.2, noise=0.1, loss=(0.1, 0.1, 0.1, 0.1, 0.2))
    rng = np.random.default_rng(0)
    assert all(choose_fixed(world.draw(rng, 1)).action == 0 for _ in range(10))


def main(studies=4000):
    print("| positive states | noise | true Δ | naive | cross-fitted | covers Δ | covers its mean | bracket | marked |")
    print("|---|---|---|---|---|---|---|---|---|")
    for noise in (0.0, 0.05, 0.15):
        for rate in (0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.004, 0.0):
            if rate == 0 and noise == 0:
                continue
            found = simulate(World(rate, noise) if rate else World(0, noise, (0.0,) * 5), studies)
            print(
                f"| {100 * rate:g} % | {noise:g} | {found.world.delta:.4f} | {found.naive.mean():.4f} "
                f"| {found.value.mean():.4f} | {100 * found.coverage(found.world.delta):.1f} % "
                f"| {100 * found.coverage(found.value.mean()):.1f} % | {100 * found.bracketed:.1f} % "
                f"| {100 * found.marked:.0f} % |",
                flush=True,
            )

    print("\nOther numbers, 500 studies:")
    for world in (World(0.3), World(0.1), World(0.3, 0.05), World(0.1, 0.05), World(0.1, 0.15)):
        print(
            world.rate, world.noise, {k: f"{100 * x:.0f} %" for k, x in other_coverage(world, 500).items()}, flush=True
        )


if __name__ == "__main__":
    main()
