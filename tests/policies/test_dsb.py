"""DSB and its worked example: a window of fixed width, and one that holds a fixed number of masks."""

import pytest

from tests.policies.worked import confidences, revealed, run
from unmask.errors import ConfigError
from unmask.policies.check import check_policy
from unmask.policies.dcd import DCD
from unmask.policies.dsb import DSB
from unmask.policies.fast_dllm import FastDLLM

TABLE = [
    [0.95, 0.40, 0.99, 0.97, 0.99, 0.99],
    [None, 0.50, 0.93, 0.96, 0.99, 0.99],
    [None, 0.55, None, 0.96, 0.91, 0.98],
    [None, 0.60, None, 0.97, 0.92, 0.95],
    [None, 0.70, None, 0.80, 0.93, 0.97],
    [None, 0.75, None, 0.80, 0.94, 0.97],
]


@pytest.mark.parametrize(
    ("width", "expected"), [(None, [[0], [2], [3], [4], [5], [1]]), (2, [[0], [2], [1], [3, 4], [5]])]
)
def test_worked_example(width, expected):
    assert revealed(run(confidences(TABLE), DSB(block_length=2, max_block=width), 6)) == expected


def test_greedy_keeps_as_many_masks_open():
    """DSB greedy is DCD without a longest window."""
    one, other = (
        revealed(run(confidences(TABLE), policy, 6))
        for policy in (DSB(block_length=2, max_block=None), DCD(0.9, 2, None))
    )
    assert one == other


@pytest.mark.parametrize("policy", [DSB(), DSB(FastDLLM(threshold=0.5), 2, 2), DSB(FastDLLM("factor"), 2, None)])
def test_contract(policy):
    check_policy(policy)


def test_bad_settings():
    with pytest.raises(ConfigError, match=r"max_block is 0; allowed: 1 to 1000000, or None"):
        DSB(max_block=0)
