"""What intervals allow to say."""

from dataclasses import replace
from math import nan

import pytest

from tests.helpers import made_findings
from unmask.report.verdicts import EndToEndVerdict, cell_verdict, mean_verdict, paired_verdict
from unmask.stats import Estimate


@pytest.mark.parametrize(
    ("low", "high", "differ", "said"),
    [
        (0.01, 0.1, 10, EndToEndVerdict.BETTER),
        (0.01, 0.1, 9, EndToEndVerdict.HINT_BETTER),
        (-0.1, -0.01, 10, EndToEndVerdict.WORSE),
        (-0.1, -0.01, 9, EndToEndVerdict.HINT_WORSE),
        (-0.01, 0.1, 40, EndToEndVerdict.NOTHING),
        (0.0, 0.1, 40, EndToEndVerdict.NOTHING),
        (-0.1, 0.0, 40, EndToEndVerdict.NOTHING),
    ],
)
def test_what_an_interval_allows(low, high, differ, said):
    assert paired_verdict(Estimate((low + high) / 2, low, high), differ) is said


def test_never_and_not_known():
    assert paired_verdict(Estimate(0.0, 0.0, 0.0), 0, "no bin") is EndToEndVerdict.NEVER
    assert paired_verdict(Estimate(nan, nan, nan), 0) is EndToEndVerdict.UNKNOWN


def test_of_cells():
    assert [cell_verdict(c) for c in made_findings.decoded().cells if c.chosen] == [
        EndToEndVerdict.BETTER,
        EndToEndVerdict.NOTHING,
        EndToEndVerdict.HINT_WORSE,
        EndToEndVerdict.NEVER,
    ]


def test_a_mean_counts_the_prompts_of_its_own_cells():
    decoded, up = made_findings.decoded(), Estimate(0.1, 0.05, 0.2)
    few = replace(decoded.means[0], tasks=("same", "mute"), difference={("selective", "fixed"): up})
    assert mean_verdict(decoded, few) is EndToEndVerdict.HINT_BETTER
    assert mean_verdict(decoded, replace(few, tasks=("find", "same"))) is EndToEndVerdict.BETTER
    assert mean_verdict(decoded, replace(few, tasks=("mute",))) is EndToEndVerdict.NEVER
