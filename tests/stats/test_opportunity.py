"""E1: its numbers are those of definitions in plain loops, its intervals those of explicitly resampled prompts."""

import re
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.helpers import opportunity_oracle as oracle
from tests.helpers.cross_fit_table import BY_HAND
from tests.helpers.paths import DOCS
from unmask.stats import (
    COVERAGES,
    Estimate,
    FixedAction,
    NotEnough,
    opportunity,
    pairwise_adaptation_gap,
    stage_numbers,
)
from unmask.stats.measures import RATIO_COLUMNS, measure_opportunity, prepare_opportunity_states
from unmask.stats.protocol import choose_fixed
from unmask.stats.resampling import draw_counts

NAN = np.nan
DOC = DOCS / "protocol.md"
thirds = st.integers(0, 3).map(lambda k: k / 3)
noisy = arrays(np.float64, (5, 3, 4), elements=st.one_of(thirds, st.just(NAN)))


def table(seed, prompts=12, states=4, actions=3, missing=0.05):
    """Noisy thirds with missing ones; prompts differ in ease, and in how many states they have."""
    rng = np.random.default_rng(seed)
    prompt_S = np.repeat(np.arange(prompts), rng.integers(1, states + 1, prompts))
    ease_S = rng.random(prompts)[prompt_S]
    chance_SA1 = np.clip(ease_S[:, None, None] + rng.normal(0, 0.2, (len(prompt_S), actions, 1)), 0, 1)
    q_SAR = rng.binomial(3, chance_SA1, (len(prompt_S), actions, 4)) / 3
    q_SAR[rng.random(q_SAR.shape) < missing] = NAN
    place_S = np.concatenate([np.arange(n) for n in np.unique(prompt_S, return_counts=True)[1]])
    return q_SAR, prompt_S, 1 - place_S / states


def fixed_action(actions, action=0, mean_A=None):
    """Whatever the others are worth on validation states, this one is better."""
    return FixedAction(action, np.zeros(actions) if mean_A is None else np.asarray(mean_A, float), 9, 0)


def states_of(q_SAR, prompt_S=None, masked_S=None, fixed=None, **how):
    q = np.asarray(q_SAR, float)
    prompt_S = np.arange(len(q)) if prompt_S is None else prompt_S
    masked_S = np.ones(len(q)) if masked_S is None else masked_S
    return prepare_opportunity_states(
        q, prompt_S, masked_S, fixed_action(q.shape[1]) if fixed is None else fixed, **how
    )


def measured(q_SAR, prompt_S=None, masked_S=None, fixed=None, *, seed=0, resamples=1, **how):
    states = states_of(q_SAR, prompt_S, masked_S, fixed, **how)
    return measure_opportunity({"": states}, seed=seed, resamples=resamples)


def repeat(q_SA):
    return np.repeat(np.asarray(q_SA, float)[:, :, None], 4, 2)


def same(one, two):
    def numbers(found):
        return np.array([(e.value, e.low, e.high, e.undefined) for e in found.estimates.values()])

    return one.estimates.keys() == two.estimates.keys() and np.allclose(
        numbers(one), numbers(two), atol=1e-9, equal_nan=True
    )


class TestDefinitions:
    @pytest.mark.parametrize("seed", range(5))
    def test_numbers_are_those_of_plain_loops(self, seed):
        q_SAR, prompt_S, _ = table(seed)
        mean_A = np.array([0.4, 0.2, 0.3])
        found = measured(q_SAR, prompt_S, fixed=fixed_action(3, mean_A=mean_A))
        for name, value in oracle.ratios(q_SAR, 0).items():
            assert found[name].value == pytest.approx(value), name
        shares = oracle.concentration(q_SAR, 0)
        assert {c: found["concentration", c].value for c in COVERAGES} == pytest.approx(shares)
        mass, pair = oracle.bidirectional(q_SAR)
        assert (found["bidirectional"].value, found.pair) == (pytest.approx(mass), pair)
        for a, b in ((0, 1), (0, 2), (1, 2)):
            better, worse = (a, b) if mean_A[a] >= mean_A[b] else (b, a)
            assert found["pairwise", (a, b)].value == pytest.approx(oracle.wins(q_SAR, worse, better))
        rows = oracle.states_of(q_SAR, 0)
        assert (found.states, found.excluded) == (len(rows), len(q_SAR) - len(rows))
        assert found.delta_bounds == (found["delta"].low, found["naive"].high)

    @pytest.mark.parametrize("seed", range(3))
    def test_intervals_are_those_of_resampled_prompts(self, seed):
        """Every resample is a table with whole prompts repeated; the fixed action and the pair are kept."""
        q_SAR, prompt_S, _ = table(seed, prompts=6)
        found = measured(q_SAR, prompt_S, seed=7, resamples=40)
        _, pair = oracle.bidirectional(q_SAR)
        drawn = []
        for count_P in next(iter(draw_counts([6], [(7, zlib.crc32(b""))], 40, 40))):
            rows = np.concatenate([np.flatnonzero(prompt_S == p) for p in range(6) for _ in range(int(count_P[p]))])
            q = q_SAR[rows]
            mass = max(0.0, min(oracle.wins(q, *pair), oracle.wins(q, *pair[::-1])))
            drawn.append([*oracle.ratios(q, 0).values(), mass, *oracle.concentration(q, 0).values()])
        low, high = np.nanpercentile(drawn, [2.5, 97.5], axis=0)
        keys = [
            *((name, "") for name in RATIO_COLUMNS),
            ("bidirectional", ""),
            *(("concentration", c) for c in COVERAGES),
        ]
        np.testing.assert_allclose([found[key].low for key in keys], low, atol=1e-9)
        np.testing.assert_allclose([found[key].high for key in keys], high, atol=1e-9)
        assert [found[key].undefined for key in keys] == np.isnan(drawn).sum(0).tolist()

    @given(noisy)
    def test_decompositions(self, q_SAR):
        found = measured(q_SAR)
        delta = found["delta"].value
        if np.isnan(delta):
            return
        assert delta == pytest.approx(found["positive"].value + found["negative"].value, abs=1e-12)
        assert found["negative"].value <= 0 <= found["positive"].value
        if found["frequency"].value > 0:
            assert delta == pytest.approx(found["frequency"].value * found["margin"].value, abs=1e-12)
        else:
            assert np.isnan(found["margin"].value)
            assert delta == 0

    @given(arrays(np.float64, (6, 3), elements=thirds))
    def test_without_noise_each_pair_obeys_the_theorem(self, q_SA):
        """`eq:pairwise_adaptation_gap`, both forms; and B is the largest of them."""
        mean_A = q_SA.mean(0)
        best = int((mean_A >= mean_A.max() - 1e-9).argmax())
        found = measured(repeat(q_SA), fixed=fixed_action(3, best, mean_A))
        gaps = {(a, b): pairwise_adaptation_gap(q_SA[:, a] - q_SA[:, b]) for a, b in ((0, 1), (0, 2), (1, 2))}
        for pair, gap in gaps.items():
            assert found["pairwise", pair].value == pytest.approx(gap, abs=1e-9)
        assert found["bidirectional"].value == pytest.approx(max(gaps.values()), abs=1e-9)
        assert found["delta"].value == pytest.approx(opportunity(q_SA, best).mean(), abs=1e-9)


class TestByHand:
    def test_cross_fitted(self):
        found = measured(BY_HAND)
        assert found["delta"].value == pytest.approx(0.625 / 4)
        assert found["positive"].value == pytest.approx(0.875 / 4)
        assert found["negative"].value == pytest.approx(-0.25 / 4)
        assert found["positive_rate"].value == pytest.approx(2 / 4)
        # Of eight picks five are reversals: two in state 0, one in state 1, two in state 4.
        assert found["frequency"].value == pytest.approx(5 / 8)
        assert found["margin"].value == pytest.approx(0.25)
        assert found["naive"].value == pytest.approx((0.75 + 1 / 3) / 4)
        assert (found.states, found.excluded, found.same, found.noisy) == (4, 1, 1, 4)

    def test_pairs(self):
        """Action 0 wins 1 and 0.5, action 1 wins 0.8, over four states."""
        q_SAR = repeat([[1.0, 0.0], [1.0, 0.5], [0.0, 0.8], [0.6, 0.6]])
        found = measured(q_SAR)
        assert (found["bidirectional"].value, found.pair) == (pytest.approx(0.2), (0, 1))
        assert found["pairwise", (0, 1)].value == pytest.approx(0.2)
        assert found.largest_pair == (0, 1)
        # If validation had preferred action 1, choosing by state would gain what action 0 wins.
        assert measured(q_SAR, fixed=fixed_action(2, 1))["pairwise", (0, 1)].value == pytest.approx(0.375)

    def test_sign_from_one_fold_and_size_from_the_other(self):
        """D = Q_0 - Q_1 is +1, +0.5 in the first state and +0.25, -0.5 in the second."""
        q_SAR = np.array([[[1, 1, 0.5, 0.5], [0, 0, 0, 0]], [[0.5, 0.5, 0, 0], [0.25, 0.25, 0.5, 0.5]]])
        found = measured(q_SAR)
        # Action 1 wins (0 - 0.125) / 2 a state: a fold says where, and the other pays less than nothing.
        assert found["pairwise", (0, 1)].value == pytest.approx(-0.0625)
        assert (found["bidirectional"].value, found.pair, found.largest_pair) == (0.0, None, None)

    def test_the_fixed_action_is_the_better_one_even_where_these_states_say_otherwise(self):
        """Action 1 wins 1 and 1 here and loses 0.5; validation chose action 0, so 2 / 3 is to be gained."""
        found = measured(repeat([[0.0, 1.0], [0.0, 1.0], [0.5, 0.0]]))
        assert found["pairwise", (0, 1)].value == found["delta"].value == pytest.approx(2 / 3)
        assert found["bidirectional"].value == pytest.approx(0.5 / 3)


PARTS = {name: table(seed, prompts=5 + seed) for seed, name in enumerate(["y", "z", "x"])}
FIXED = {name: choose_fixed(q_SAR, reference=0) for name, (q_SAR, _, _) in PARTS.items()}
STATES = {name: states_of(*part, FIXED[name]) for name, part in PARTS.items()}


class TestTasks:
    def test_each_counts_the_same(self):
        found = measure_opportunity(STATES, seed=3, resamples=30)
        each = [measure_opportunity({name: one}, seed=3, resamples=30) for name, one in STATES.items()]
        for name in ("delta", "positive", "negative", "frequency", "positive_rate", "naive"):
            assert found[name].value == pytest.approx(np.mean([part[name].value for part in each]))
        assert found["delta"].value == pytest.approx(found["frequency"].value * found["margin"].value)
        assert found.states == sum(part.states for part in each)
        assert found.prompts == sum(part.prompts for part in each)
        assert found["concentration", 1.0].value == 1

        def width(part):
            return part["delta"].high - part["delta"].low

        assert width(found) < max(map(width, each))

    def test_a_stage_is_its_states(self):
        q_SAR, _, masked_S = PARTS["y"]
        parts = [measure_opportunity({"y": STATES["y"]}, stage=k, seed=3, resamples=5) for k in range(4)]
        for k, part in enumerate(parts):
            keep = stage_numbers(masked_S) == k
            wanted = oracle.ratios(q_SAR[keep], FIXED["y"].action)
            assert part["delta"].value == pytest.approx(wanted["delta"], nan_ok=True)
            assert part.states == len(oracle.states_of(q_SAR[keep], FIXED["y"].action))
        whole = measure_opportunity({"y": STATES["y"]}, seed=3, resamples=5)
        assert sum(part.states for part in parts) == whole.states

    def test_each_task_has_its_own_better_action(self):
        """Two tasks, opposite orders: each reversal is counted against its own task's better action."""
        q_SA = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 0.5], [0.0, 1.0], [0.0, 1.0], [0.25, 0.0]])
        both = {
            "x": states_of(repeat(q_SA[:3]), fixed=fixed_action(2, 0)),
            "y": states_of(repeat(q_SA[3:]), fixed=fixed_action(2, 1)),
        }
        found = measure_opportunity(both, seed=0, resamples=5)
        assert found["pairwise", (0, 1)].value == found["delta"].value == pytest.approx(0.75 / 6)
        # Both directions count overall: action 0 wins 2.25 and action 1 wins 2.5 of six states.
        assert found["bidirectional"].value == pytest.approx(2.25 / 6)

    def test_a_task_without_any_utility_weighs_nothing(self):
        q_SAR = np.zeros((2, 2, 4))
        q_SAR[:, 1] = 0.5
        empty, full = states_of(np.full((2, 2, 4), NAN)), states_of(q_SAR)
        alone = measure_opportunity({"y": empty}, seed=0, resamples=20)
        assert alone.states == 0
        assert np.isnan([alone["delta"].value, alone["bidirectional"].value]).all()
        assert alone.why_unreliable.startswith("0 of 0 prompts")
        assert measure_opportunity({"x": full, "y": empty}, seed=0, resamples=20)["delta"].value == 0.5


class TestReliability:
    def q(self, positive):
        q_SAR = np.zeros((40, 2, 4))
        q_SAR[:positive, 1] = 0.5
        return q_SAR

    def test_nine_prompts_are_too_few_and_ten_are_enough(self):
        found = measured(self.q(9), resamples=50)
        assert found.positive_prompts == 9
        assert found.why_unreliable == "9 of 40 prompts have a positive opportunity; intervals need 10 or more"
        assert measured(self.q(10), resamples=50).why_unreliable == ""
        # Ten states of five prompts are not.
        assert measured(self.q(10), np.repeat(np.arange(20), 2), resamples=50).positive_prompts == 5

    def test_no_opportunity_has_no_margin_and_no_share(self):
        found = measured(self.q(0), resamples=50)
        assert found["delta"] == Estimate(0, 0, 0)
        assert found["margin"].undefined == found["concentration", 0.1].undefined == 50
        assert np.isnan(found["margin"].value)
        assert found.pair is found.largest_pair is None

    def test_states_without_the_fixed_action_are_counted_and_not_zero(self):
        q_SAR = np.zeros((4, 2, 4))
        q_SAR[:, 1] = 0.5
        q_SAR[0, 0, 2:] = NAN
        found = measured(q_SAR, [0, 0, 1, 1], resamples=20)
        assert (found.states, found.excluded) == (3, 1)
        assert found["delta"] == Estimate(0.5, 0.5, 0.5)


def test_one_rollout_is_marked_as_not_cross_fitted():
    q_SAR = np.zeros((4, 2, 1))
    q_SAR[:2, 1] = 1
    found = measured(q_SAR, deterministic=True)
    assert not found.crossfitted
    assert found["delta"].value == 0.5
    with pytest.raises(NotEnough, match="1 rollout"):
        measured(q_SAR)


def test_the_seed_and_nothing_else_decides(monkeypatch):
    q_SAR, prompt_S, masked_S = table(0)
    one, two, other = (measured(q_SAR, prompt_S, seed=s, resamples=50) for s in (1, 1, 2))
    assert same(one, two)
    assert not same(one, other)
    order = np.random.default_rng(0).permutation(len(q_SAR))
    assert same(one, measured(q_SAR[order], prompt_S[order], seed=1, resamples=50))
    assert same(one, measured(q_SAR, [f"prompt-{p:02}" for p in prompt_S], seed=1, resamples=50))
    monkeypatch.setattr("unmask.stats.resampling.MAX_ENTRIES", 100)
    assert same(one, measured(q_SAR, prompt_S, masked_S, seed=1, resamples=50))


def test_the_example_in_the_documentation_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", DOC.read_text(encoding="utf-8"), re.S)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(DOC), "exec"), names)
    assert len(blocks) == 1
    shown = re.findall(r"```text\n(.*?)```", DOC.read_text(encoding="utf-8"), re.S)[0]
    assert capsys.readouterr().out == shown


def test_the_tests_that_the_documentation_names_are_there():
    """Every equation names the test that a wrong sign would fail."""
    named = set(re.findall(r"`(test_\w+)`", DOC.read_text(encoding="utf-8")))
    written = {
        name
        for path in DOCS.parent.glob("tests/**/test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 20
    assert named <= written
