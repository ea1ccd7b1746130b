"""Where along a trajectory states are sampled, and states that stay together in batches."""

import torch

from unmask.adapt.diagnostics import DIAGNOSTICS
from unmask.api.request import Request
from unmask.axes import ReMDM
from unmask.lab.branch import EngineSettings, Plan, run, spaced
from unmask.lab.branch.states import joined
from unmask.methods import candidates, fixed_action
from unmask.models import ExactDenoiser, JointDistribution


def test_spaced_states():
    assert spaced(16, 8) == [0, 2, 4, 6, 8, 10, 12, 14]
    assert spaced(24, 8) == [0, 3, 6, 9, 12, 15, 18, 21]
    assert spaced(5, 8) == [0, 1, 2, 3, 4]
    assert spaced(1, 8) == [0]


def sampled(*names):
    """States of three prompts that take 3, 5 and 5 steps, with the past that some diagnostics read."""
    model = ExactDenoiser(JointDistribution.random(8, 3, dependence=2.0, seed=0))
    starts = [
        Request(f"p{at}", (at, *(model.mask_id,) * 7), (True, *(False,) * 7), steps, (1, 8))
        for at, steps in enumerate((3, 5, 5))
    ]
    diagnostics = {name: DIAGNOSTICS[name] for name in names}
    plan = Plan(fixed_action(), candidates(), ReMDM("conf"), rollouts=1, states=3, seed=0, diagnostics=diagnostics)
    block = run(model, plan, starts, EngineSettings(rows=4))
    return [one for path in block.paths for one in path.sampled]


def test_a_state_of_a_batch_is_stored_as_if_it_were_alone():
    states = sampled("commitment")
    assert len({id(one.batch) for one in states}) < len(states)
    for one in states:
        (stored,) = one.batch.traj.rows_to_bytes([one.row])
        assert stored == one.traj.to_bytes()
        assert one.step == int(one.traj.state.step_B[0])
        assert one.masked == int(one.traj.state.masked_BL.sum())


def test_states_of_several_batches_are_joined_in_the_order_given():
    states = [one for one in reversed(sampled()) if len(one.traj.steps) == 1]
    assert len({id(one.batch) for one in states}) > 1
    whole = joined([states[0], *states[2:], states[1]], torch.device("cpu"))
    order = [states[0], *states[2:], states[1]]
    assert [row.tolist() for row in whole.state.tokens_BL] == [one.traj.state.tokens_BL[0].tolist() for one in order]
    assert whole.noise.key_B.tolist() == [int(one.traj.noise.key_B) for one in order]
