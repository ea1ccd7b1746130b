"""VSB-style: the choice of a length on the sheet's numbers, what blind predictions may read, and costs."""

import math

import pytest
import torch

from tests.methods.worked import logs, revealed, run
from unmask.core import ModelOutput, Posterior
from unmask.methods.check import check_policy
from unmask.methods.examples import ScriptedDenoiser, load_cases
from unmask.methods.vsb import VSB, _jensen_shannon, longest_within

SCRIPT = load_cases("vsb")[0].script["reach"]
AWARE, BLIND = SCRIPT["5"], {length: SCRIPT[str(length)] for length in range(1, 5)}
JS = {1: [0.08929], 2: [0.00274, 0.04141], 3: [0.00077, 0.00061, 0.00097], 4: [0.00077, 0.00016, 0.00051, 0.06729]}


def posterior(rows):
    logits = torch.tensor([logs(row) for row in rows], dtype=torch.float64)
    return Posterior(logits, torch.logsumexp(logits, -1), torch.arange(len(rows))[None])


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_divergences_of_the_sheet(length):
    divergence = _jensen_shannon(posterior(AWARE[:length]), posterior(BLIND[length]))
    assert divergence[0].tolist() == pytest.approx(JS[length], abs=1e-5)
    same = _jensen_shannon(posterior(AWARE), posterior(AWARE))
    assert same[0].tolist() == pytest.approx([0.0] * 4, abs=1e-12)
    apart = _jensen_shannon(posterior([[1.0, 0.0]]), posterior([[0.0, 1.0]]))
    assert float(apart) == pytest.approx(math.log(2))


def test_choice_of_the_sheet():
    mean = torch.tensor([[sum(JS[b]) / b for b in range(1, 5)]])
    most = torch.tensor([[max(JS[b]) for b in range(1, 5)]])
    assert int(longest_within(mean, 0.01)) + 1 == 3
    assert int(longest_within(mean, 0.02)) + 1 == 4
    assert int(longest_within(most, 0.02)) + 1 == 3
    assert int(longest_within(mean, 0.0005)) + 1 == 3
    only_four = torch.where(torch.arange(1, 5) < 4, float("inf"), mean)
    assert int(longest_within(only_four, 0.01)) + 1 == 4


class _Reader(ScriptedDenoiser):
    """What a slot says depends on the last canvas token it may read: the future matters to every position."""

    def __call__(self, view, needs):
        view_rows = []
        tokens = view.tokens_BN.tolist()
        for b, slot in view.wanted_BN.nonzero().tolist():
            length = len(tokens[b]) if view.attend_BNN is None else view.attend_BNN.shape[1]
            reads = [
                at
                for at in range(length)
                if (view.attend_BNN is None or bool(view.attend_BNN[b, slot, at])) and tokens[b][at] != self.vocab
            ]
            view_rows.append(self.logits(tokens[b], slot, max(reads, default=-1)))
        self.calls.append(view)
        return ModelOutput(torch.tensor(view_rows, dtype=torch.float64).reshape(-1, self.vocab), view.wanted_BN)


def test_a_future_that_does_not_matter_makes_the_longest_blocks():
    traj = run(ScriptedDenoiser(lambda tokens, slot, call: logs([0.95, 0.05]), 2), VSB(window=3, least=1), 6)
    assert revealed(traj) == [[0, 1, 2], [3, 4, 5]]


def test_a_future_that_matters_shortens_them():
    """A position's prediction turns on whether position 3 or later can be read: only then a block ends there."""

    def answer(tokens, slot, last):
        return logs([0.95, 0.05]) if last < 3 else logs([0.05, 0.95])

    traj = run(_Reader(answer, 2), VSB(window=4, least=1, threshold=0.0), 6)
    # Blind to what comes after, lengths 1 to 3 disagree with the aware prediction; length 4 does not.
    assert revealed(traj)[0] == [0, 1, 2, 3]


def test_what_is_asked_for_is_counted():
    """One forward of the step, one aware, and one for each length from `least` on, for every block."""
    traj = run(ScriptedDenoiser(lambda tokens, slot, call: logs([0.95, 0.05]), 2), VSB(window=3, least=2), 6)
    assert [int(step.forwards_B) for step in traj.steps] == [1 + 1 + 2, 1 + 1 + 2]


@pytest.mark.slow
@pytest.mark.parametrize("policy", [VSB(window=3, least=1), VSB(window=4, least=2, delta=0.0, aggregate="max")])
def test_contract(policy):
    check_policy(policy)
