"""How sure a prediction is of a state, beside what the model's logits say of every masked position."""

from dataclasses import replace
from math import isnan

import pytest
import torch

from unmask.api.request import Request, start_trajectory
from unmask.core import ModelInput, Needs, SamplingParams
from unmask.lab.branching.readings import SUMMARY as COLUMNS
from unmask.lab.branching.readings import state_summaries
from unmask.lab.branching.stepper import Stepper
from unmask.models import ExactDenoiser, JointDistribution

N = 6
MODEL = ExactDenoiser(JointDistribution.random(N, 3, dependence=2.0, seed=1))


def request(*tokens):
    canvas = tokens + (MODEL.mask_id,) * (N - len(tokens))
    fixed = (True,) * len(tokens) + (False,) * (N - len(tokens))
    return Request("".join(map(str, tokens)), canvas, fixed, 1, (len(tokens), N))


def seen(requests, slots=N):
    stepper = Stepper(MODEL, SamplingParams(temperature=0.0), 4, 4)
    traj = start_trajectory(MODEL, requests, 0, slots)
    inputs = ModelInput.of(traj.state, Needs())
    return stepper.add_prediction(traj, stepper.forward(inputs, Needs()), inputs, Needs())


def by_hand(one):
    """From the posterior of each masked position."""
    traj = start_trajectory(MODEL, [one], 0, N)
    p_RV = MODEL(ModelInput.of(traj.state, Needs()), Needs()).logits_RV.double()[:, :3].softmax(-1)
    assert len(p_RV) == one.canvas.count(MODEL.mask_id)
    top_R2 = p_RV.topk(2).values
    parts = (-(p_RV * p_RV.log()).sum(-1), top_R2[:, 0] - top_R2[:, 1])
    return [x for part in parts for x in (part.mean(), part.std(correction=0), part.min(), part.max())]


def test_of_the_masked_positions():
    requests = [request(0, 1), request(2, 0, 1), request(1, 1, 1, 1, 1)]
    summaries = state_summaries(seen(requests))
    for one, summary in zip(requests, summaries, strict=True):
        assert list(summary) == pytest.approx([float(x) for x in by_hand(one)], abs=1e-5)
    assert summaries[2][COLUMNS.index("entropy_spread")] == 0
    assert len({tuple(summary) for summary in summaries}) == 3


def test_neither_company_nor_padding_changes_a_bit():
    one, other = request(0, 1), request(2, 0, 1)
    alone, beside = state_summaries(seen([one])), state_summaries(seen([other, one], slots=32))
    assert alone[0].tolist() == beside[1].tolist()


def test_nothing_masked():
    traj = seen([request(0, 1)])
    full = replace(traj.state, tokens_BL=torch.zeros_like(traj.state.tokens_BL))
    (summary,) = state_summaries(replace(traj, state=full))
    assert all(map(isnan, summary))
