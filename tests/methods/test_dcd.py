"""DCD: end of text, a fixed number a step, and its contract."""

import pytest

from tests.methods.worked import VOCAB, confidences, peaked, revealed, run, table
from unmask.methods.check import check_policy
from unmask.methods.dcd import DCD
from unmask.methods.examples import ScriptedDenoiser

TABLE = table("dcd")


def test_end_of_text_closes_the_row():
    """Position 3 says end of text (token 5): 4 and 5 are closed, and position 1 ends the row."""

    def answer(tokens, slot, call):
        row = peaked(TABLE[min(call, 5)][slot])
        if slot == 3:
            row[5], row[1] = row[1], row[5]
        return row

    traj = run(ScriptedDenoiser(answer, VOCAB, (5,)), DCD(0.9, 2, 128), 6, eos_fill=True)
    assert revealed(traj) == [[0], [2], [3, 4, 5], [1]]
    assert traj.state.tokens_BL[0, 3:].tolist() == [5, 5, 5]


def test_a_fixed_number_per_step():
    traj = run(confidences([[0.5, 0.6, 0.7, 0.8]]), DCD(s_init=3, per_step=2), 4)
    assert revealed(traj) == [[1, 2], [0, 3]]


@pytest.mark.parametrize(
    "policy", [DCD(), DCD(0.5, 2, 3), DCD(-0.5, 3, score="entropy"), DCD(0.2, score="margin"), DCD(per_step=2)]
)
def test_contract(policy):
    check_policy(policy)
