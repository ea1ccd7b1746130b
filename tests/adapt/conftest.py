"""What the tests of the arms share: calibrations by hand, a diagnostic that says what it is told, small problems."""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

from tests.helpers.calibrations import made
from unmask.adapt import Arms
from unmask.adapt.diagnostics import DIAGNOSTICS, Diagnostic, Reading
from unmask.axes import ReMDM
from unmask.core import Needs, Noise, State, row_key
from unmask.engine import decode
from unmask.methods import candidates
from unmask.methods.check import Problem
from unmask.models import ExactDenoiser, JointDistribution

NAN, INF = float("nan"), float("inf")


@dataclass(frozen=True)
class Told(Diagnostic):
    """Says the signal of its list at each step, and proposes to reveal everything."""

    name: ClassVar[str] = "cardinality"
    needs = Needs()
    axis: ClassVar[str] = "cardinality"
    signals: tuple[float, ...]

    def read(self, traj, action):
        table = torch.tensor([*self.signals, NAN], dtype=torch.float64)
        signal_B = table[traj.state.step_B.clamp(max=len(self.signals))]
        return Reading(signal_B, signal_B.isnan(), replace(action, kappa_B=torch.ones_like(action.kappa_B)))


def calibrated(axis, kind="llada", **choices):
    """A calibration of the default candidates of an axis."""
    return made(list(candidates(kind)[axis]), **choices)


def arms_of(axis, kind="llada", **choices):
    operator = ReMDM("conf") if axis == "commitment" else None
    return Arms(axis, kind, calibrated(axis, kind, **choices), DIAGNOSTICS[axis], operator)


def small(seed=0, steps=(3, 2, 4)):
    """Three short rows: enough for every promise, and quick."""
    denoiser = ExactDenoiser(JointDistribution.random(7, 3, dependence=2.0, seed=seed))
    m = denoiser.mask_id
    canvases = [[0, m, m, m, m, m], [1, m, m, 2, m], [2, m, m, m, m, m, m]]
    state = State.from_canvases(canvases, steps=list(steps), mask_id=m)
    return Problem(denoiser, state, Noise.of([row_key(seed, bytes(c)) for c in canvases]))


def run(policy, problem=None, **options):
    problem = problem or small()
    return decode(problem.denoiser, policy, problem.state, noise=problem.noise, **options)


def record(traj):
    """Everything a run did, to the bit."""
    return [
        (
            step.rows_B.tolist(),
            step.revealed_BL.tolist(),
            step.remasked_BL.tolist(),
            step.confidence_BL.numpy().tobytes(),
            step.state.committed_BL.tolist(),
        )
        for step in traj.steps
    ], traj.state.tokens_BL.tolist()


@pytest.fixture(scope="session")
def kit():
    """The helpers of this file; test files cannot import each other."""
    return SimpleNamespace(
        Told=Told, made=made, calibrated=calibrated, arms_of=arms_of, small=small, run=run, record=record
    )
