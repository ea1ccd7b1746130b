"""The best order of a text against every order tried by hand."""

import math
from itertools import permutations

import pytest

import unmask
from tests.helpers.cases import each_case
from tests.helpers.duel import SHEET, worked_model


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


def test_worked_example():
    """The sheet's six orders: the first is the best."""
    found = worked_model().log_likelihood(SHEET["text"], estimator="oracle").rows[0]
    assert found.log_likelihood == pytest.approx(max(SHEET["orders"].values()), abs=1e-4)
    assert found.order == ((0,), (1,), (2,))
    assert (found.forwards, found.standard_error) == (7, None)


@each_case("text", ["aab", "abb", "bba", "aaa"])
@each_case("block", [1, 2, 3])
def test_equal_to_trying_every_order(text, block):
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


def test_where_predictions_are_true_conditionals_every_order_is_the_best():
    model = unmask.load("exact", n=4, vocab=3, dependence=2.0)
    found = model.log_likelihood(["abca", "ccba"], estimator="oracle")
    for row in found.rows:
        assert row.log_likelihood == pytest.approx(model.denoiser.joint.log_prob(row.tokens), abs=1e-10)
    assert "only who sees the text" in found.quantity
    assert found.config["oracle_block"] == 4


def test_on_a_network_no_other_order_is_better():
    mini = unmask.load("mini-dream", device="cpu")
    ask = {"prompt": "2+2=", "text": "it is 4"}
    best = mini.log_likelihood(ask["text"], prompt=ask["prompt"], estimator="oracle", oracle_block=12).rows[0]
    usual = mini.log_likelihood(ask["text"], prompt=ask["prompt"], policy="llada").rows[0]
    assert len(best.tokens) <= 12
    assert best.log_likelihood >= usual.log_likelihood - 1e-4
