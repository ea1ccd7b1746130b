"""Whole answers, ours and from outside."""

import torch

from tests.helpers.tiny_bench import Counted, subject
from unmask.lab.bench import Effort
from unmask.lab.bench.answers import DUAL, OURS, PREFIX, SURE, SURE_DUAL, UNCACHED, measure_caches, measure_decode
from unmask.lab.bench.outside import OutsideLoop


def loop(label, counted, forwards):
    """Somebody's loop that takes so many forwards and answers with ones."""

    def generate(model, prompt, steps, gen_length):
        counted.forwards += forwards
        return torch.cat((prompt, torch.ones(len(prompt), gen_length, dtype=torch.long)), 1), forwards

    return OutsideLoop(label, generate, None, {"gen_length": 8})


def test_tokens_per_second_and_the_loop_beside_ours():
    counted = Counted(subject())
    found = measure_decode(counted.subject, 2, Effort(0, 1), counted.clock, {"theirs": loop("theirs", counted, 12)})
    lines = {line.name: line for line in found.lines}
    assert lines[OURS].more == {"tokens/s": 2 * 8 / 4, "ms/step": 1000.0}
    assert lines["theirs"].times.median == 12
    (ratio,) = found.ratios
    assert (ratio.name, ratio.value) == ("theirs over ours", 3.0)
    assert "B 2: 0.0% of the tokens" in found.remarks[0]


def test_caches_against_the_exact_network_and_loops_for_one_row_only():
    counted = Counted(subject())
    theirs = {"dual": loop("Theirs", counted, 40)}
    one = measure_caches(counted.subject, 1, Effort(0, 1), counted.clock, theirs)
    assert [line.name for line in one.lines] == [UNCACHED, PREFIX, DUAL, SURE, SURE_DUAL, "Theirs, dual"]
    ratios = {ratio.name: ratio.value for ratio in one.ratios}
    # Two blocks of two steps: a complete pass each, then 4 of the 32 slots, or 8 and 4.
    assert ratios["uncached over dual"] == 4 / (2 + 8 / 32)
    assert ratios["uncached over prefix"] == 4 / (2 + 12 / 32)
    assert ratios["Theirs, dual over ours"] == 40 / (2 + 8 / 32)
    two = measure_caches(counted.subject, 2, Effort(0, 1), counted.clock, theirs)
    assert not [line for line in two.lines if "Theirs" in line.name]
