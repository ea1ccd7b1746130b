"""Where along a trajectory states are sampled."""

from unmask.lab.branch import spaced


def test_spaced_states():
    assert spaced(16, 8) == [0, 2, 4, 6, 8, 10, 12, 14]
    assert spaced(24, 8) == [0, 3, 6, 9, 12, 15, 18, 21]
    assert spaced(5, 8) == [0, 1, 2, 3, 4]
    assert spaced(1, 8) == [0]
