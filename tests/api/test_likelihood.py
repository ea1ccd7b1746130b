"""DUEL's exact likelihood and oracle against enumeration, LLaDA's bound against its expectation, and refusals."""

import json
import math
from dataclasses import dataclass, replace
from itertools import combinations, permutations, product
from typing import ClassVar

import numpy as np
import pytest
import torch

import unmask
from tests.helpers.cases import each_case
from tests.helpers.duel import SHEET, worked_model
from unmask.axes import score
from unmask.base.errors import ConfigError
from unmask.methods import LLaDA


@pytest.fixture(scope="module")
def model():
    return unmask.load("exact", n=4, vocab=3, dependence=2.0)


@pytest.fixture(scope="module")
def worked():
    """The sheet's denoiser: not the conditionals of any joint, so that orders matter."""
    return worked_model()


def texts_of(length, letters):
    return ["".join(text) for text in product(letters, repeat=length)]


@dataclass(frozen=True)
class LeftToRight(LLaDA):
    """LLaDA's counts, from the left."""

    name: ClassVar[str] = "left-to-right"

    def act(self, traj, look_ahead):
        action = super().act(traj, look_ahead)
        first_B1 = traj.state.rank_BL.masked_fill(~traj.state.masked_BL, 99).amin(-1, keepdim=True)
        return replace(action, region_BL=traj.state.rank_BL == first_B1, kappa_B=torch.ones_like(action.kappa_B))


CASES = {case["title"]: case for case in SHEET["cases"]}


@pytest.mark.parametrize("title", CASES)
def test_worked_examples_of_the_paper(worked, title):
    case = CASES[title]
    policy = LeftToRight() if case["policy"] == "left-to-right" else case["policy"]
    found = worked.log_likelihood(SHEET["text"], policy=policy, **case["settings"]).rows[0]
    assert found.log_likelihood == pytest.approx(case["log_likelihood"], abs=1e-4)
    assert [list(places) for places in found.order] == case["order"]
    assert found.log_probs == pytest.approx(case["log_probs"], abs=1e-4)


def test_probabilities_of_all_texts_sum_to_one(worked):
    for case in CASES.values():
        policy = LeftToRight() if case["policy"] == "left-to-right" else case["policy"]
        found = worked.log_likelihood(texts_of(3, "ab"), policy=policy, **case["settings"])
        assert math.fsum(math.exp(row.log_likelihood) for row in found.rows) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("policy", ["llada", "eb-sampler", "dos"])
def test_one_token_per_step_gives_the_joint(model, policy):
    settings = {"gamma": 0.0} if policy == "eb-sampler" else {}
    found = model.log_likelihood(texts_of(4, "abc"), policy=policy, **settings)
    joint = model.denoiser.joint
    for row in found.rows:
        assert row.log_likelihood == pytest.approx(math.log(joint.prob(row.tokens)), abs=1e-10)
        assert len(row.order) == 4


def test_parallel_steps_equal_enumeration(model):
    """The way is found again from the joint alone: two most probable marginals first, then the rest."""
    joint = model.denoiser.joint
    found = model.log_likelihood(texts_of(4, "abc"), policy="llada", tokens_per_step=2)
    for row in found.rows:
        known, total = {}, 0.0
        while len(known) < 4:
            p_nV = joint.marginals(known)
            free = sorted((i for i in range(4) if i not in known), key=lambda i: (-p_nV[i].max(), i))[:2]
            total += sum(math.log(p_nV[i][row.tokens[i]]) for i in free)
            known |= {i: row.tokens[i] for i in free}
        assert row.log_likelihood == pytest.approx(total, abs=1e-10)
    assert math.fsum(math.exp(row.log_likelihood) for row in found.rows) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("policy", "settings"),
    [("fast-dllm", {"threshold": 0.5}), ("klass", {}), ("dus", {}), ("dream", {}), ("margin", {})],
)
def test_other_methods_are_normalised(model, policy, settings):
    if policy == "margin":
        policy, settings = "composed", {"score": "margin", "cardinality": "above:0.3"}
    found = model.log_likelihood(texts_of(4, "abc"), policy=policy, **settings)
    assert math.fsum(math.exp(row.log_likelihood) for row in found.rows) == pytest.approx(1, abs=1e-12)


def test_prompt_is_given_and_not_scored(model):
    found = model.log_likelihood("ca", prompt="ab").rows[0]
    joint = model.denoiser.joint
    expected = math.log(joint.prob([0, 1, 2, 0])) - math.log(joint.prefix(2).prob([0, 1]))
    assert found.log_likelihood == pytest.approx(expected, abs=1e-10)
    assert len(found.tokens) == len(found.log_probs) == 2


def test_rows_ignore_their_neighbours(model):
    texts, prompts = ["ab", "cabc", "b", "aa"], ["c", None, "ab", "a"]
    together = model.log_likelihood(texts, prompt=prompts, policy="fast-dllm", threshold=0.5)
    by_two = model.log_likelihood(texts, prompt=prompts, policy="fast-dllm", threshold=0.5, batch_size=2)
    for row, also, text, prompt in zip(together.rows, by_two.rows, texts, prompts, strict=True):
        alone = model.log_likelihood(
            text, prompt=None if prompt is None else [prompt], policy="fast-dllm", threshold=0.5
        )
        assert row == also == alone.rows[0]


def test_temperature_and_filters_change_what_is_drawn(model):
    cold = model.log_likelihood(texts_of(2, "abc"), temperature=0.5)
    assert math.fsum(math.exp(row.log_likelihood) for row in cold.rows) == pytest.approx(1, abs=1e-12)
    cut = model.log_likelihood(texts_of(2, "abc"), top_k=1)
    assert sorted(row.log_likelihood for row in cut.rows)[-1] == pytest.approx(0)
    assert [row.log_likelihood for row in cut.rows].count(-math.inf) == 8
    assert cut.perplexity.value == math.inf
    assert json.loads(cut.to_json())["perplexity"]["low"] is None


def test_perplexity_of_several_texts_has_an_interval(model):
    found = model.log_likelihood(["abca", "bb", "cab"])
    total, tokens = sum(row.log_likelihood for row in found.rows), 9
    assert found.perplexity.value == pytest.approx(math.exp(-total / tokens))
    assert found.perplexity.low < found.perplexity.value < found.perplexity.high
    assert math.isnan(model.log_likelihood("abca").perplexity.low)
    assert "exact log-likelihood" in found.quantity
    assert "lower bound" in model.log_likelihood("ab", estimator="monte-carlo", samples=2).quantity


def expectation(worked, tokens):
    """The bound of the worked denoiser, by enumeration: all numbers of masks, all sets."""
    n, total = len(tokens), 0.0
    for count in range(1, n + 1):
        sets = list(combinations(range(n), count))
        for hidden in sets:
            canvas = [2 if i in hidden else t for i, t in enumerate(tokens)]
            for i in hidden:
                z = worked.denoiser.logits(canvas, i, 0)
                total += (z[tokens[i]] - np.logaddexp(*z)) / count * n / (n * len(sets))
    return total


def test_bound_is_unbiased(worked):
    """Many estimates of two samples each: their mean is the enumerated expectation, which is no likelihood."""
    tokens = (1, 0, 1)
    exact = expectation(worked, tokens)
    orders = [sum(SHEET["orders"].values()) / 6]
    assert exact == pytest.approx(orders[0], abs=1e-4)
    estimates = [
        worked.log_likelihood("bab", estimator="monte-carlo", samples=2, seed=s).log_likelihood for s in range(600)
    ]
    error = np.std(estimates) / math.sqrt(len(estimates))
    assert 0 < error < 0.05
    assert abs(np.mean(estimates) - exact) < 3 * error
    assert exact < math.log(np.mean([math.exp(SHEET["orders"]["".join(map(str, o))]) for o in permutations(range(3))]))


def test_bound_is_tight_on_true_conditionals(model):
    found = model.log_likelihood("abca", estimator="monte-carlo", samples=4000, batch_size=500).rows[0]
    assert found.standard_error < 0.1
    assert abs(found.log_likelihood - math.log(model.denoiser.joint.prob([0, 1, 2, 0]))) < 4 * found.standard_error
    assert found.log_probs == found.order == ()
    again = model.log_likelihood("abca", estimator="monte-carlo", samples=4000, batch_size=123).rows[0]
    assert again == found
    assert (
        model.log_likelihood("abca", estimator="monte-carlo", samples=4000, seed=1).rows[0].log_likelihood
        != found.log_likelihood
    )


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ("remdm", "it chooses positions at random"),
        ("wino", "it re-masks"),
        ("p2", "it re-masks"),
        ("core", "it re-masks"),
        ("info-gain:tau_pos=0", "it writes tokens of its own"),
        ("llada:remasking=random", "it chooses positions at random"),
        ("composed:commitment=remdm-conf", "it chooses positions at random"),
    ],
)
def test_random_and_remasking_methods_are_refused(model, policy, why):
    name, _, setting = policy.partition(":")
    key, _, value = setting.partition("=")
    settings = {key: {"0": 0.0}.get(value, value)} if key else {}
    settings |= {"block_length": 2} if name == "wino" else {}
    with pytest.raises(ConfigError, match=f"{name} gives a text no exact likelihood: {why}; allowed: a method that"):
        model.log_likelihood("abca", policy=name, **settings)


@pytest.mark.parametrize(
    ("policy", "settings"), [("core", {"revise_every": 0}), ("p2", {"eta": 0.0}), ("wino", {"tau1": 1.0, "tau2": 0.0})]
)
def test_methods_whose_settings_never_remask_are_scored(model, policy, settings):
    settings |= {"block_length": 4} if policy == "wino" else {}
    found = model.log_likelihood("abca", policy=policy, **settings).rows[0]
    assert found.log_likelihood == pytest.approx(model.log_likelihood("abca", policy="llada").rows[0].log_likelihood)


@dataclass(frozen=True)
class TakesBack(LLaDA):
    """A method of one's own that re-masks on its second step and does not say so."""

    name: ClassVar[str] = "takes-back"

    def act(self, traj, look_ahead):
        action = super().act(traj, look_ahead)
        state = traj.state
        remask_BL = state.revisable_BL & (state.step_B == 1)[:, None]
        return replace(
            action,
            alpha_BJ=score.alpha_rows("confidence", state),
            commit_BL=state.masked_BL & False,
            remask_BL=remask_BL,
        )


def test_own_method_that_remasks_is_refused(model):
    with pytest.raises(ConfigError, match="takes-back gives a text no exact likelihood: it re-masks"):
        model.log_likelihood("abca", policy=TakesBack())


@dataclass(frozen=True)
class StopsEarly(LLaDA):
    """Leaves a mask."""

    name: ClassVar[str] = "stops-early"

    def done(self, traj):
        return traj.state.step_B >= 3


def test_method_that_leaves_masks_is_refused(model):
    with pytest.raises(ConfigError, match="masks that it leaves is 'some, with stops-early'; allowed: none"):
        model.log_likelihood("abca", policy=StopsEarly())


@each_case(
    ("options", "complaint"),
    [
        ({"prompt": ["a", "b"]}, "the number of prompts is 2; allowed: 1 or 1"),
        ({"eos_fil": True}, "unknown setting of llada 'eos_fil'"),
        ({"top_p": 0.0}, "top_p is 0.0; allowed: above 0"),
        ({"eos_penalty": 1.0}, "eos_penalty is 1.0, but exact as loaded has no end-of-text token"),
    ],
)
def test_impossible_options_are_refused(model, options, complaint):
    with pytest.raises(ConfigError, match=complaint):
        model.log_likelihood("ab", **options)


@pytest.mark.parametrize("text", ["a_b", "", "ab[MASK]"])
def test_impossible_texts_are_refused(model, text):
    with pytest.raises(ConfigError, match="text"):
        model.log_likelihood(text)


# The best order of a text, against every order tried by hand


def in_order(tokens, order, says):
    """log p of a text revealed in an order; `says(known, at)` is the model's p of token 1."""
    known, total = {}, 0.0
    for at in order:
        one = says(known, at)
        total += math.log(one if tokens[at] == 1 else 1 - one)
        known[at] = tokens[at]
    return total


def sheet_says(known, at):
    z = SHEET["b"][at] + sum(SHEET["W"][at][j] * (1 if t == 1 else -1) for j, t in known.items())
    return 1 / (1 + math.exp(-z))


def test_best_order_of_the_worked_example(worked):
    """The sheet's six orders: the first is the best."""
    found = worked.log_likelihood(SHEET["text"], estimator="oracle").rows[0]
    assert found.log_likelihood == pytest.approx(max(SHEET["orders"].values()), abs=1e-4)
    assert found.order == ((0,), (1,), (2,))
    assert (found.forwards, found.standard_error) == (7, None)


@each_case("text", ["aab", "abb", "bba", "aaa"])
@each_case("block", [1, 2, 3])
def test_best_order_equals_trying_every_order(text, block):
    tokens = ["ab".index(letter) for letter in text]
    blocks = [range(first, min(first + block, 3)) for first in range(0, 3, block)]
    ways = [[]]
    for inside in blocks:
        ways = [[*way, *more] for way in ways for more in permutations(inside)]
    best = max(in_order(tokens, way, sheet_says) for way in ways)
    for batch in (1, 16):
        found = worked_model().log_likelihood(text, estimator="oracle", oracle_block=block, batch_size=batch).rows[0]
        assert found.log_likelihood == pytest.approx(best, abs=1e-9)
        assert in_order(tokens, [at for (at,) in found.order], sheet_says) == pytest.approx(best, abs=1e-9)
        assert found.forwards == sum(2 ** len(inside) - 1 for inside in blocks)


def test_every_order_is_best_on_true_conditionals(model):
    found = model.log_likelihood(["abca", "ccba"], estimator="oracle")
    for row in found.rows:
        assert row.log_likelihood == pytest.approx(math.log(model.denoiser.joint.prob(row.tokens)), abs=1e-10)
    assert "only who sees the text" in found.quantity
    assert found.config["oracle_block"] == 4


def test_no_other_order_is_better_on_a_network():
    mini = unmask.load("mini-dream", device="cpu")
    ask = {"prompt": "2+2=", "text": "it is 4"}
    best = mini.log_likelihood(ask["text"], prompt=ask["prompt"], estimator="oracle", oracle_block=12).rows[0]
    usual = mini.log_likelihood(ask["text"], prompt=ask["prompt"], policy="llada").rows[0]
    assert len(best.tokens) <= 12
    assert best.log_likelihood >= usual.log_likelihood - 1e-4
