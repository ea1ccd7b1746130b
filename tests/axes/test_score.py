"""Scoring rules: their formulas, their range, mixtures, and who wins a tie."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unmask.axes import score
from unmask.core import (
    RULES,
    ModelInput,
    ModelOutput,
    Needs,
    Noise,
    Posterior,
    Prediction,
    SamplingParams,
    State,
    Statistics,
    Vocabulary,
    sample,
)
from unmask.core.vocab_statistics import StatsRequest, compute_vocab_stats_in_torch

MASK = 99


def state(rows=2, answer=3) -> State:
    return State.from_prompts([[1]] * rows, new_tokens=answer, steps=1, mask_id=MASK)


def predicted(logits_RV, *, start=None, attention_BNN=None, previous=None, temperature=0.0) -> Prediction:
    start = start or state()
    needs = Needs(divergence=previous is not None)
    inputs = ModelInput.of(start, needs)
    return sample(
        ModelOutput(logits_RV, inputs.wanted_BN, attention_BNN=attention_BNN),
        inputs,
        SamplingParams(temperature=temperature),
        needs,
        Vocabulary(logits_RV.shape[1], MASK),
        noise=Noise.of(list(range(start.batch))),
        step_B=start.step_B,
        previous=previous,
    )


def by_hand(**changed) -> Prediction:
    """One row, three slots, four tokens."""
    p_BNK = torch.tensor([[[0.5, 0.2], [0.9, 0.05], [0.25, 0.25]]])
    statistics = Statistics(torch.zeros(1, 3, 2, dtype=torch.long), p_BNK, torch.tensor([[1.0, 0.4, math.log(4)]]))
    zero = torch.zeros(1, 3)
    plain = Prediction(
        wanted_BN=torch.ones(1, 3, dtype=torch.bool),
        token_BN=zero.long(),
        confidence_BN=p_BNK[..., 0],
        proposed_BN=p_BNK[..., 0],
        clean=statistics,
        filtered=statistics,
        logz_BN=zero,
        vocab=4,
        token_BND=zero.long()[..., None],
        confidence_BND=p_BNK[..., :1],
    )
    return replace(plain, **changed)


def near(got, want):
    torch.testing.assert_close(got, torch.tensor([want], dtype=got.dtype), rtol=1e-6, atol=1e-6)


FORMULAS = {
    "confidence": ({}, [0.5, 0.9, 0.25]),
    "margin": ({}, [0.3, 0.85, 0.0]),
    "certainty": ({}, [1 - 1 / math.log(4), 1 - 0.4 / math.log(4), 0.0]),
    # Without a previous posterior stability is the confidence.
    "stability": ({"drift_BN": torch.tensor([[0.0, 0.7, float("nan")]])}, [1.0, math.exp(-0.7), 0.25]),
    # Rounding may bring a sum of attention above 1.
    "dependency": ({"visible_BN": torch.tensor([[0.0, 0.4, 1.0000001]])}, [0.0, 0.4, 1.0]),
}


@pytest.mark.parametrize("rule", RULES)
def test_rules_follow_their_formulas(rule):
    changed, expected = FORMULAS[rule]
    near(getattr(score, rule)(by_hand(**changed)), expected)


def test_confidence_is_of_the_proposed_token():
    """Sampled away from the mode, a position is scored by what it would take (LLaDA)."""
    logits_RV = torch.tensor([[3.0, 0.0, 0.0]]).expand(6, 3)
    seen = predicted(logits_RV, temperature=5.0)
    p_V = logits_RV[0].softmax(-1)
    drawn = seen.token_BN[seen.wanted_BN]
    assert len(drawn.unique()) > 1
    torch.testing.assert_close(score.confidence(seen)[seen.wanted_BN], p_V[drawn])
    torch.testing.assert_close(score.margin(seen)[seen.wanted_BN], (p_V[0] - p_V[1]).expand(6))


def test_stability_reads_the_new_posterior_first():
    new, old = (torch.tensor([p] * 6, dtype=torch.float64).log() for p in ([0.5, 0.5], [0.75, 0.25]))
    previous = Posterior(old, torch.zeros(6, dtype=torch.float64), ModelOutput(old, state().masked_BL).slot_BN)
    seen = predicted(new, previous=previous)
    # exp(-0.5 ln(4/3)), not exp(-(0.75 ln(3/2) - 0.25 ln 2)).
    torch.testing.assert_close(
        score.stability(seen)[seen.wanted_BN], torch.full((6,), math.sqrt(0.75), dtype=torch.float64)
    )


def test_rules_without_their_ingredient_are_nan():
    landscape = score.score_all_rules(by_hand(), 3)
    assert landscape.isnan().any(1).tolist() == [[False, False, False, True, True]]


@given(
    seed=st.integers(0, 10**6),
    vocab=st.integers(2, 60),
    scale=st.sampled_from([0.0, 1e-4, 1.0, 8.0, 60.0]),
    offset=st.sampled_from([0.0, 500.0]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
    temperature=st.sampled_from([0.0, 0.7]),
)
def test_every_rule_stays_in_the_unit_interval(seed, vocab, scale, offset, dtype, temperature):
    """Rounding included: uniform posteriors, nearly certain ones, posteriors that did not move."""
    generator = torch.Generator().manual_seed(seed)
    z_RV = (torch.randn(6, vocab, generator=generator) * scale + offset).to(dtype)
    old_RV = torch.where(torch.rand(6, 1, generator=generator) < 0.5, z_RV, z_RV.flip(0))
    start = state()
    made = compute_vocab_stats_in_torch(old_RV, StatsRequest())
    previous = Posterior(old_RV, made.logz_R, ModelOutput(old_RV, start.masked_BL).slot_BN)
    attention_BNN = torch.rand(2, 4, 4, generator=generator).softmax(-1)
    seen = predicted(z_RV, attention_BNN=attention_BNN, previous=previous, temperature=temperature)
    values = score.score_all_rules(seen, 4)[start.masked_BL]
    assert not values.isnan().any()
    assert (values >= 0).all()
    assert (values <= 1).all()


def test_a_rule_of_weight_zero_may_be_nan_and_one_with_weight_may_not_hide():
    score_BLJ = torch.tensor([[[0.25, float("nan"), 0.75, float("nan"), float("inf")]]], dtype=torch.float64)
    alpha_BJ = torch.tensor([[0.5, 0.0, 0.5, 0.0, 0.0]], dtype=torch.float64)
    assert score.mix(alpha_BJ, score_BLJ).tolist() == [[0.5]]
    assert score.mix(torch.full((1, 5), 0.2).double(), score_BLJ).isnan().all()


def test_weights():
    assert score.weights("margin") == [0, 1, 0, 0, 0]
    assert score.weights("uniform") == [0.2] * 5
    assert score.weights({"stability": 0.25, "confidence": 0.75}) == [0.75, 0, 0, 0.25, 0]
    assert score.weights((0, 0, 0, 0, 1)) == [0, 0, 0, 0, 1]
    for j, name in enumerate(RULES):
        assert score.weights(name).index(1.0) == j


def test_needs_ask_only_for_what_the_mixture_weighs():
    assert score.needs("confidence") == score.needs("margin") == score.needs("certainty") == Needs()
    assert score.needs("stability") == Needs(divergence=True)
    assert score.needs("dependency") == Needs(attention=True)
    assert score.needs("uniform") == Needs(divergence=True, attention=True)
    assert score.needs({"confidence": 1.0, "stability": 0.0}) == Needs()


def slow_best(scores, eligible, k):
    order = sorted((i for i, e in enumerate(eligible) if e), key=lambda i: (-scores[i], i))
    return [i in order[:k] for i in range(len(scores))]


@given(st.data())
def test_best_takes_the_highest_and_breaks_ties_to_the_left(data):
    """Few distinct values, so that most choices are ties."""
    length = data.draw(st.integers(1, 40))
    values = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=length, max_size=length)
    flags = st.lists(st.booleans(), min_size=length, max_size=length)
    scores = [data.draw(values) for _ in range(2)]
    eligible = [data.draw(flags) for _ in range(2)]
    k = [data.draw(st.integers(0, length)) for _ in range(2)]
    got = score.best(torch.tensor(scores).double(), torch.tensor(eligible), torch.tensor(k))
    assert got.tolist() == [slow_best(*row) for row in zip(scores, eligible, k, strict=True)]


def test_best_puts_nan_last_and_zero_before_it():
    nan = float("nan")
    scores = torch.tensor([[nan, 0.0, nan, 0.2]])
    every = torch.ones(1, 4, dtype=torch.bool)
    picked = [score.best(scores, every, torch.tensor([k])).nonzero()[:, 1].tolist() for k in range(5)]
    assert picked == [[], [3], [1, 3], [0, 1, 3], [0, 1, 2, 3]]


@pytest.mark.parametrize("rule", RULES)
def test_a_single_rule_alone_has_the_bits_of_the_mixture(rule):
    """Whatever the others hold, NaN and unwanted slots included."""
    holes = torch.tensor([[0.3, float("nan"), 0.7]])
    wanted_BN = torch.tensor([[True, True, False]])
    state = State.from_prompts([[0]] * 2, new_tokens=2, steps=2, mask_id=5)
    for seen in (by_hand(), by_hand(wanted_BN=wanted_BN, drift_BN=holes, visible_BN=holes, confidence_BN=holes)):
        for length in (2, 3):
            alpha_BJ = score.alpha_rows(rule, state)[:1]
            got = score.order(alpha_BJ, seen, length, rule)
            want = score.order(alpha_BJ, seen, length)
            assert torch.equal(got.view(torch.int64), want.view(torch.int64))
