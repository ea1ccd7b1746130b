"""The masked share of states."""

import numpy as np

from unmask.stats.masked import masked_share


def test_each_prompt_has_its_own_length():
    share_S = masked_share(["a", "b", "a", "b", "a"], [8, 4, 4, 1, 0])
    np.testing.assert_allclose(share_S, [1, 1, 0.5, 0.25, 0])


def test_an_answer_without_a_masked_position():
    np.testing.assert_allclose(masked_share(["a"], [0]), [0])
