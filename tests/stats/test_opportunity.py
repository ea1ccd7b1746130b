"""The summary of a table: its numbers are those of the single functions, its intervals those of explicit resampling."""

import re
import zlib
from dataclasses import astuple, fields

import numpy as np
import pytest

from tests.helpers.cases import each_case
from tests.helpers.paths import DOCS
from unmask.stats import (
    COVERAGES,
    Estimate,
    FixedAction,
    audit,
    bidirectional,
    choose_fixed_by_task,
    concentration,
    cross_fit,
    gap,
    pairwise_reversal,
    stages,
    summary,
)
from unmask.stats.bootstrap import prompt_counts
from unmask.stats.pairs import over

NAN = np.nan
DOC = DOCS / "opportunity.md"


def table(seed, prompts=12, states=4, actions=3, missing=0.05):
    """Noisy thirds with missing ones; prompts differ in ease, and in how many states they have."""
    rng = np.random.default_rng(seed)
    prompt_S = np.repeat(np.arange(prompts), rng.integers(1, states + 1, prompts))
    ease_S = rng.random(prompts)[prompt_S]
    q_SAR = (
        rng.binomial(
            3,
            np.clip(ease_S[:, None, None] + rng.normal(0, 0.2, (len(prompt_S), actions, 1)), 0, 1),
            (len(prompt_S), actions, 4),
        )
        / 3
    )
    q_SAR[rng.random(q_SAR.shape) < missing] = NAN
    stage_S = np.concatenate([np.arange(n) for n in np.unique(prompt_S, return_counts=True)[1]])
    return q_SAR, prompt_S, stage_S


def numbers(found):
    """Everything with an interval, as a flat list."""
    named = [getattr(found, f.name) for f in fields(found)]
    pairwise = (found.pairwise.value_AA, found.pairwise.low_AA, found.pairwise.high_AA, found.pairwise.undefined_AA)
    estimates = [x for x in named if isinstance(x, Estimate)] + list(found.concentration.values())
    return [*(v for e in estimates for v in astuple(e)), *np.ravel(pairwise)]


def same(one, two):
    return numbers(one) == pytest.approx(numbers(two), abs=1e-9, nan_ok=True)


@pytest.mark.parametrize("seed", range(5))
def test_numbers_are_those_of_the_single_functions(seed):
    q_SAR, prompt_S, _ = table(seed)
    mean_A = np.array([0.4, 0.2, 0.3])
    found = summary(q_SAR, prompt_S, fixed=FixedAction(0, mean_A, 9, 0), seed=0, resamples=20).overall
    fit = cross_fit(q_SAR, 0)
    for name, value in vars(gap(fit)).items():
        assert getattr(found, name).value == pytest.approx(value)
    assert {c: e.value for c, e in found.concentration.items()} == pytest.approx(concentration(fit), nan_ok=True)
    assert tuple(found.concentration) == COVERAGES
    assert found.bidirectional.value == pytest.approx(bidirectional(fit).mass)
    assert found.pair == bidirectional(fit).pair
    np.testing.assert_allclose(found.pairwise.value_AA, pairwise_reversal(fit, mean_A))
    assert found.audit == audit(fit)
    assert found.naive.value == pytest.approx(audit(fit).naive)
    assert found.optimism.value == pytest.approx(audit(fit).optimism)
    assert (found.states, found.excluded) == (fit.used_S.sum(), fit.excluded)
    assert found.prompts == len(np.unique(prompt_S[fit.used_S]))
    assert found.positive_prompts == len(np.unique(prompt_S[fit.g_S > 0]))
    assert found.bracket == (found.delta.low, found.naive.high)


@pytest.mark.parametrize("seed", range(3))
def test_intervals_are_those_of_resampled_prompts(seed):
    """Every replicate is a table with whole prompts repeated; the fixed action and the pair are kept."""
    q_SAR, prompt_S, _ = table(seed, prompts=6)
    found = summary(q_SAR, prompt_S, fixed=0, seed=7, resamples=40).overall
    pair = bidirectional(cross_fit(q_SAR, 0)).pair
    drawn = []
    for count_P in next(iter(prompt_counts([6], [(7, zlib.crc32(b""))], 40, 40))):
        rows = np.concatenate([np.flatnonzero(prompt_S == p) for p in range(6) for _ in range(int(count_P[p]))])
        fit = cross_fit(q_SAR[rows], 0)
        mass = max(0.0, min(over(fit)[pair], over(fit)[pair[::-1]]))
        drawn.append([*astuple(gap(fit)), audit(fit).naive, audit(fit).optimism, mass, *concentration(fit).values()])
    low, high = np.nanpercentile(drawn, [2.5, 97.5], axis=0)
    names = [*vars(gap(fit)), "naive", "optimism", "bidirectional"]
    estimates = [getattr(found, name) for name in names] + list(found.concentration.values())
    np.testing.assert_allclose([e.low for e in estimates], low, atol=1e-9)
    np.testing.assert_allclose([e.high for e in estimates], high, atol=1e-9)
    assert [e.undefined for e in estimates] == np.isnan(drawn).sum(0).tolist()


PARTS = {name: table(seed, prompts=5 + seed) for seed, name in enumerate(["x", "y", "z"])}


class TestTasks:
    q_SAR = np.concatenate([q for q, _, _ in PARTS.values()])
    prompt_S = np.concatenate([p for _, p, _ in PARTS.values()])
    stage_S = np.concatenate([s for _, _, s in PARTS.values()])
    task_S = np.repeat(list(PARTS), [len(q) for q, _, _ in PARTS.values()])
    fixed = choose_fixed_by_task(q_SAR, task_S, reference=0)
    found = summary(q_SAR, prompt_S, fixed=fixed, seed=3, task_S=task_S, stage_S=stage_S, resamples=30)

    def test_a_task_does_not_depend_on_the_others(self):
        for name, (q_SAR, prompt_S, stage_S) in PARTS.items():
            alone = summary(
                q_SAR,
                prompt_S,
                fixed=self.fixed,
                seed=3,
                task_S=np.full(len(q_SAR), name),
                stage_S=stage_S,
                resamples=30,
            )
            assert same(self.found.tasks[name].overall, alone.tasks[name].overall)
            assert same(self.found.tasks[name].overall, alone.overall)
            assert self.found.tasks[name].stages.keys() == alone.stages.keys()
            for k, part in alone.stages.items():
                assert same(self.found.tasks[name].stages[k], part)

    def test_overall_each_counts_the_same(self):
        each = [self.found.tasks[name].overall for name in PARTS]
        for name in ("delta", "positive", "negative", "frequency", "positive_rate", "naive"):
            mean = np.mean([getattr(part, name).value for part in each])
            assert getattr(self.found.overall, name).value == pytest.approx(mean)
        overall = self.found.overall
        assert overall.delta.value == pytest.approx(overall.frequency.value * overall.margin.value)
        assert overall.states == sum(part.states for part in each)
        assert overall.prompts == sum(part.prompts for part in each)
        assert overall.concentration[1.0].value == 1
        assert overall.delta.high - overall.delta.low < max(part.delta.high - part.delta.low for part in each)

    def test_a_stage_is_its_states(self):
        for k, part in self.found.tasks["y"].stages.items():
            keep = (self.task_S == "y") & (self.stage_S == k)
            fit = cross_fit(self.q_SAR[keep], self.fixed["y"].action)
            assert part.delta.value == pytest.approx(gap(fit).delta, nan_ok=True)
            assert part.bidirectional.value == pytest.approx(bidirectional(fit).mass, nan_ok=True)
            assert part.states == fit.used_S.sum()
        whole = self.found.tasks["y"]
        assert sum(part.states for part in whole.stages.values()) == whole.overall.states
        total = sum(p.delta.value * p.states for p in whole.stages.values() if p.states)
        assert total / whole.overall.states == pytest.approx(whole.overall.delta.value)

    def test_one_task_overall_is_that_task(self):
        keep = self.task_S == "z"
        one = summary(
            self.q_SAR[keep], self.prompt_S[keep], fixed=self.fixed, seed=3, task_S=self.task_S[keep], resamples=30
        )
        assert same(one.overall, one.tasks["z"].overall)

    def test_each_task_has_its_own_better_action(self):
        """Two tasks, opposite orders: each reversal is counted against its own task's better action."""
        q_SA = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 0.5], [0.0, 1.0], [0.0, 1.0], [0.25, 0.0]])
        found = summary(
            np.repeat(q_SA[:, :, None], 2, 2),
            np.arange(6),
            fixed={"x": 0, "y": 1},
            seed=0,
            task_S=["x"] * 3 + ["y"] * 3,
            resamples=5,
        )
        assert found.tasks["x"].overall.pairwise.value_AA[0, 1] == pytest.approx(0.5 / 3)
        assert found.tasks["y"].overall.pairwise.value_AA[0, 1] == pytest.approx(0.25 / 3)
        assert found.overall.pairwise.value_AA[0, 1] == pytest.approx(0.75 / 6)
        assert found.overall.delta.value == pytest.approx(0.75 / 6)
        assert found.overall.pairwise.largest == (0, 1)
        # Both directions count overall: action 0 wins 2.25 and action 1 wins 2.5 of six states.
        assert found.overall.bidirectional.value == pytest.approx(2.25 / 6)


def test_the_fixed_action_is_the_better_one_even_where_this_table_says_otherwise():
    """Action 1 wins 1 and 1 here and loses 0.5; validation chose action 0, so 2 / 3 is to be gained, not 0.5 / 3."""
    q_SAR = np.repeat(np.array([[0.0, 1.0], [0.0, 1.0], [0.5, 0.0]])[:, :, None], 2, 2)
    found = summary(q_SAR, [0, 1, 2], fixed=0, seed=0, resamples=5).overall
    assert found.pairwise.value_AA[0, 1] == found.delta.value == pytest.approx(2 / 3)
    assert found.bidirectional.value == pytest.approx(0.5 / 3)


class TestReliability:
    def q(self, positive):
        q_SAR = np.zeros((40, 2, 4))
        q_SAR[:positive, 1] = 0.5
        return q_SAR

    def test_nine_prompts_are_too_few(self):
        found = summary(self.q(9), np.arange(40), fixed=0, seed=0, resamples=50).overall
        assert found.positive_prompts == 9
        assert found.unreliable == "9 of 40 prompts have a positive opportunity; intervals need 10 or more"

    def test_ten_are_enough(self):
        assert summary(self.q(10), np.arange(40), fixed=0, seed=0, resamples=50).overall.unreliable == ""

    def test_ten_states_of_five_prompts_are_not(self):
        found = summary(self.q(10), np.repeat(np.arange(20), 2), fixed=0, seed=0, resamples=50).overall
        assert found.positive_prompts == 5
        assert found.unreliable

    def test_no_opportunity_has_no_margin_and_no_share(self):
        found = summary(self.q(0), np.arange(40), fixed=0, seed=0, resamples=50).overall
        assert found.delta == Estimate(0, 0, 0)
        assert found.margin.undefined == found.concentration[0.1].undefined == 50
        assert np.isnan(found.margin.value)
        assert found.pair is None
        assert found.pairwise.largest is None

    def test_a_rare_opportunity_is_missing_from_some_replicates(self):
        """One prompt of forty: (39/40)^40 of the replicates miss it."""
        found = summary(self.q(1), np.arange(40), fixed=0, seed=0, resamples=2000).overall
        assert found.margin.value == found.margin.low == 0.5
        assert found.margin.undefined / 2000 == pytest.approx((39 / 40) ** 40, abs=0.03)
        assert found.delta.undefined == 0


class TestMissing:
    def test_states_without_the_fixed_action_are_counted_and_not_zero(self):
        q_SAR = np.zeros((4, 2, 4))
        q_SAR[:, 1] = 0.5
        q_SAR[0, 0, 2:] = NAN
        found = summary(q_SAR, [0, 0, 1, 1], fixed=0, seed=0, resamples=20).overall
        assert (found.states, found.excluded) == (3, 1)
        assert found.delta == Estimate(0.5, 0.5, 0.5)

    def test_a_task_without_any_utility(self):
        q_SAR = np.zeros((4, 2, 4))
        q_SAR[:, 1] = 0.5
        q_SAR[2:] = NAN
        found = summary(q_SAR, [0, 1, 0, 1], fixed=0, seed=0, task_S=["x", "x", "y", "y"], resamples=20)
        assert found.tasks["y"].overall.states == 0
        assert np.isnan(found.tasks["y"].overall.delta.value)
        assert np.isnan(found.tasks["y"].overall.bidirectional.value)
        assert found.tasks["y"].overall.unreliable.startswith("0 of 0 prompts")
        assert found.overall.delta.value == 0.5

    def test_one_action(self):
        found = summary(np.full((3, 1, 4), 0.5), [0, 1, 2], fixed=0, seed=0, resamples=20).overall
        assert found.delta == Estimate(0, 0, 0)
        assert found.bidirectional == Estimate(0, 0, 0)
        assert found.pair is None


def test_one_rollout_is_marked_as_not_cross_fitted():
    q_SAR = np.zeros((4, 2, 1))
    q_SAR[:2, 1] = 1
    found = summary(q_SAR, range(4), fixed=0, seed=0, deterministic=True, resamples=20).overall
    assert not found.crossfitted
    assert found.delta.value == 0.5
    with pytest.raises(ValueError, match="1 rollout"):
        summary(q_SAR, range(4), fixed=0, seed=0)


def test_the_seed_and_nothing_else_decides():
    q_SAR, prompt_S, stage_S = table(0)
    one, two, other = (summary(q_SAR, prompt_S, fixed=0, seed=s, stage_S=stage_S, resamples=50) for s in (1, 1, 2))
    assert same(one.overall, two.overall)
    assert not same(one.overall, other.overall)
    order = np.random.default_rng(0).permutation(len(q_SAR))
    moved = summary(q_SAR[order], prompt_S[order], fixed=0, seed=1, stage_S=stage_S[order], resamples=50)
    assert same(one.overall, moved.overall)
    renamed = summary(q_SAR, [f"prompt-{p:02}" for p in prompt_S], fixed=0, seed=1, resamples=50)
    assert same(one.overall, renamed.overall)


def test_memory_does_not_change_a_number(monkeypatch):
    q_SAR, prompt_S, stage_S = table(1)
    whole = summary(q_SAR, prompt_S, fixed=0, seed=1, stage_S=stage_S, resamples=50)
    monkeypatch.setattr("unmask.stats.bootstrap._CELLS", 100)
    assert same(summary(q_SAR, prompt_S, fixed=0, seed=1, stage_S=stage_S, resamples=50).overall, whole.overall)


def test_the_example_in_the_documentation_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", DOC.read_text(encoding="utf-8"), re.S)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(DOC), "exec"), names)
    assert len(blocks) == 1
    shown = re.findall(r"```text\n(.*?)```", DOC.read_text(encoding="utf-8"), re.S)[0]
    assert capsys.readouterr().out == shown


Q = np.zeros((2, 2, 4))


@each_case(
    ("call", "words"),
    [
        (lambda: summary(Q, [0], fixed=0, seed=0), r"prompt_S has shape \(1,\); it must have one entry for each of 2"),
        (lambda: summary(Q, [0, 1], fixed=0, seed=0, task_S=["x"]), "task_S has shape"),
        (lambda: summary(Q, [0, 1], fixed=0, seed=0, stage_S=[0, 1, 2]), "stage_S has shape"),
        (lambda: summary(Q, [0, 1], fixed=0, seed=0, stage_S=[0.5, 1.0]), "stages are whole numbers"),
        (lambda: summary(Q, [0, 1], fixed=2, seed=0), "fixed is 2"),
        (lambda: summary(Q, [0, 1], fixed={"x": 0}, seed=0, task_S=["x", "y"]), r"task 'y', only for \['x'\]"),
        (lambda: summary(Q, [0, 1], fixed=FixedAction(0, np.zeros(3), 1, 0), seed=0), "chosen among 3"),
        (lambda: summary(Q, [0, 1], fixed=0, seed=0, coverages=[10]), "at most 1"),
        (lambda: summary(Q, [0, 1], fixed=0, seed=0, resamples=0), "resamples is 0"),
        (lambda: summary(Q + 2, [0, 1], fixed=0, seed=0), "utilities lie in"),
        (lambda: summary(Q, [0, 1], fixed=0, seed=0, folds=((0, 1), (1,))), "one of them only"),
    ],
)
def test_refusals(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_stages_come_from_masked_fractions():
    q_SAR, prompt_S, _ = table(2)
    masked_S = np.linspace(1, 0, len(q_SAR))
    found = summary(q_SAR, prompt_S, fixed=0, seed=0, stage_S=stages(masked_S), resamples=5)
    assert list(found.stages) == [0, 1, 2, 3]
