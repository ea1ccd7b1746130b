"""Steps beside their forwards, by a clock that counts forwards."""

import pytest
import torch

from tests.helpers.tiny_bench import Counted, subject
from unmask.lab.bench import Effort
from unmask.lab.bench.steps import FIXED, FORWARDS, FOUR, LLADA, SAMPLED, decoding, measure, policies


def test_a_step_is_one_forward_of_its_own_run():
    counted = Counted(subject())
    found = measure(counted.subject, 2, Effort(0, 2), counted.clock, quick=False)
    medians = {line.name: line.times.median for line in found.lines}
    assert medians[FORWARDS] == medians[LLADA] == medians[FIXED] == medians[FOUR] == 1
    assert {ratio.value for ratio in found.ratios} == {1.0}
    assert {line.per for line in found.lines if line.name != FORWARDS} == {"step"}
    assert len(found.ratios) == 4
    quick = measure(counted.subject, 2, Effort(0, 1), counted.clock, quick=True)
    assert {line.name for line in found.lines} - {line.name for line in quick.lines} == {SAMPLED}


def test_gates_that_never_open_read_and_change_nothing():
    one = subject()
    _, fixed, joint = policies(one)
    assert len(joint.diagnostics) == 4
    assert joint.needs.attention
    ends = [decoding(one, one.network, policy, 2)().state.tokens_BL for policy in (fixed, joint)]
    assert torch.equal(*ends)


@pytest.mark.parametrize("steps", [2, 4])
def test_the_number_of_steps_can_be_another(steps):
    counted = Counted(subject())
    decoding(counted.subject, counted.subject.network, policies(counted.subject)[0], 1, steps=steps)()
    assert counted.forwards == steps
