"""DSB: a window that holds a fixed number of masks is DCD's."""

import pytest

from tests.methods.worked import confidences, revealed, run, table
from unmask.methods import FastDLLM
from unmask.methods.check import check_policy
from unmask.methods.dcd import DCD
from unmask.methods.dsb import DSB

TABLE = table("dsb")


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
