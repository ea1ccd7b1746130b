"""The branch engine's rate, by a clock that counts forwards."""

import pytest

from tests.helpers.tiny_bench import Counted, subject
from unmask.lab.bench import Effort
from unmask.lab.bench.studies import ENGINE, STEADY, measure, requests_of


def test_the_share_is_of_full_forwards_and_dummies_are_a_loss():
    counted = Counted(subject())
    found = measure(counted.subject, 4, Effort(0, 1), counted.clock, quick=True)
    lines = {line.name: line for line in found.lines}
    assert lines[STEADY].more["row-forwards/s"] == 4
    # By a clock that stands still between forwards, all that is lost are dummies.
    (share,) = found.ratios
    assert share.value == pytest.approx(lines[ENGINE].more["rows filled"])
    assert 0 < share.value < 1


def test_requests_have_blanks_at_their_end():
    request = requests_of(subject())[0]
    assert (request.blanks, request.steps, request.answer) == (4, 2, (12, 16))
    assert set(request.canvas[12:]) == {63}
