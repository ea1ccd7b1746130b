"""Where along a run states are sampled, and that each is stored as if it were alone."""

import torch

from unmask.adapt.diagnostics import DIAGNOSTICS
from unmask.api.request import Request
from unmask.axes import ReMDM
from unmask.core import SamplingParams
from unmask.lab.branching import BranchPlan, spaced_steps
from unmask.lab.branching.states import sample_states, states_frame
from unmask.lab.branching.stepper import Stepper
from unmask.methods import candidates, fixed_action
from unmask.models import ExactDenoiser, JointDistribution


def test_spaced_states():
    assert spaced_steps(16, 8) == [0, 2, 4, 6, 8, 10, 12, 14]
    assert spaced_steps(24, 8) == [0, 3, 6, 9, 12, 15, 18, 21]
    assert spaced_steps(5, 8) == [0, 1, 2, 3, 4]
    assert spaced_steps(1, 8) == [0]


def test_a_state_is_stored_as_if_it_were_alone():
    """Prompts that take 3, 5 and 5 steps, decoded two at a time: their states share batches."""
    model = ExactDenoiser(JointDistribution.random(8, 3, dependence=2.0, seed=0))
    starts = [
        Request(f"p{at}", (at, *(model.mask_id,) * 7), (True, *(False,) * 7), steps, (1, 8))
        for at, steps in enumerate((3, 5, 5))
    ]
    diagnostics = {"commitment": DIAGNOSTICS["commitment"]}
    plan = BranchPlan(fixed_action(), candidates(), ReMDM("conf"), 1, 3, seed=0, diagnostics=diagnostics)
    stepper = Stepper(model, SamplingParams(temperature=0.0), 2, 2)
    with torch.inference_mode():
        runs, batches = sample_states(stepper, plan, starts, 32)
    frame = states_frame(runs, batches).set_index(["prompt", "state"])
    assert list(frame.index) == [(f"p{run}", state) for run in range(3) for state in range(3)]
    assert frame["step"].tolist() == [0, 1, 2, 0, 1, 3, 0, 1, 3]
    assert max(len(batch.run_S) for batch in batches) > 2
    for traj, run_S, index_S in batches:
        for row, (run, index) in enumerate(zip(run_S, index_S, strict=True)):
            stored = frame.loc[(f"p{run}", index)]
            alone = traj.select(torch.tensor([row]))
            assert stored["trajectory"] == alone.rows_to_bytes([0])[0]
            assert stored["tokens"].tolist() == alone.state.tokens_BL[0, :8].tolist()
            assert (stored["step"], stored["masked"]) == (int(alone.state.step_B), int(alone.state.masked_BL.sum()))
            assert (stored["horizon"], stored["taken"]) == (starts[run].steps, runs[run].steps)
