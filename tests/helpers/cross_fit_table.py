"""Utilities whose cross-fitted opportunity is worked out by hand in tests/stats/test_crossfit.py."""

import numpy as np

NAN = np.nan
# Five states, three actions, four rollouts; action 0 is the fixed one. Cross-fitted g is 0.5, -0.25, 0 and 0.375, and
# the fourth state is excluded.
BY_HAND = np.array(
    [
        # Both alternatives are better, and the folds disagree on which is best.
        [[0, 0, 0, 0], [1, 1, 1, 0], [0.5, 0.5, 1, 1]],
        # Action 1 looks good in the first fold and is bad in the second; action 2 only ties there.
        [[0.5, 0.5, 0.5, 0.5], [1, 0.5, 0, 0], [0, 0, 0.5, 0.5]],
        # All equal.
        [[0.5, 0.5, 0.5, 0.5], [0.5, 0.5, 0.5, 0.5], [0.25, 0.75, 0.75, 0.25]],
        # The fixed action has no utility in the second fold.
        [[1, 1, NAN, NAN], [0.2, 0.2, 0.2, 0.2], [0.4, 0.4, 0.4, 0.4]],
        # Action 1 is best and cannot be picked: the second fold could not grade it.
        [[0, 0, 0, 0], [1, 1, NAN, NAN], [NAN, 0.5, 0.25, 0.25]],
    ]
)
