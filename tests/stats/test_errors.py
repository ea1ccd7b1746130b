"""A quantity that does not exist is told apart from a mistake of the caller."""

import numpy as np
import pytest

from tests.helpers.cases import each_case
from unmask.stats import (
    NotEnough,
    auroc,
    best_fixed,
    choose_fixed,
    cross_fit,
    frequency_margin,
    pairwise_gap,
    ratio_intervals,
    spearman,
)

NAN = float("nan")


@each_case(
    "call",
    [
        lambda: choose_fixed([[[NAN], [0.5]], [[0.5], [NAN]]], reference=0),
        lambda: choose_fixed([[[NAN, NAN]]]),
        lambda: choose_fixed(np.ones((0, 2, 4))),
        lambda: cross_fit(np.ones((2, 2, 1)), 0),
        lambda: ratio_intervals([], [], [], seed=0),
        lambda: auroc([], []),
        lambda: spearman([], []),
        lambda: best_fixed(np.ones((0, 3))),
        lambda: frequency_margin([]),
        lambda: pairwise_gap([]),
    ],
)
def test_nothing_to_compute_it_from(call):
    with pytest.raises(NotEnough):
        call()


@each_case(
    "call",
    [
        lambda: choose_fixed(np.ones((2, 2))),
        lambda: choose_fixed(np.ones((2, 0, 4))),
        lambda: choose_fixed(np.full((2, 2, 4), 2.0)),
        # A mistake is told first, even if there is also too little data.
        lambda: choose_fixed([[[NAN]]], reference=3),
        lambda: cross_fit(np.ones((2, 2, 4)), [0, 1, 0]),
        lambda: cross_fit(np.ones((2, 2, 4)), 0, folds=((0, 1), ())),
        lambda: ratio_intervals([1.0], [1.0], [[0]], seed=0),
        lambda: auroc([], [], np.ones((1, 2))),
        lambda: auroc([1, 2], [True]),
        lambda: best_fixed(np.ones(3)),
        lambda: frequency_margin(np.ones((2, 2))),
        lambda: pairwise_gap([NAN]),
    ],
)
def test_a_mistake_is_not_too_little_data(call):
    with pytest.raises(ValueError, match=r"must|pass|table has|lie in") as caught:
        call()
    assert not isinstance(caught.value, NotEnough)
