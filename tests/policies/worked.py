"""Worked examples of the methods: networks that say what a table says, and what each step then revealed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from tests.policies.conftest import Scripted
from unmask.core import (
    ALL,
    NO_LOOK_AHEAD,
    Logits,
    Needs,
    Noise,
    Policy,
    Proposal,
    State,
    Trajectory,
    View,
    Vocabulary,
    propose,
)
from unmask.decode import advance, decode, record_of
from unmask.transition import apply

VOCAB = 64


def peaked(p: float, vocab: int = VOCAB) -> list[float]:
    """Log-probabilities with p on token 1 and the rest shared: the largest however small p is."""
    rest = math.log((1 - p) / (vocab - 1)) if p < 1 else -1e4
    return [math.log(p) if token == 1 else rest for token in range(vocab)]


def logs(p: Sequence[float]) -> list[float]:
    return [math.log(x) if x > 0 else -1e4 for x in p]


def confidences(table: Sequence[Sequence[float | None]]) -> Scripted:
    """The table's row of each forward pass, the last one for all after; None where nobody should ask."""

    def answer(tokens: list[int], slot: int, call: int) -> list[float]:
        p = table[min(call, len(table) - 1)][slot]
        assert p is not None, (slot, call)
        return peaked(p)

    return Scripted(answer, VOCAB)


def distributions(table: Sequence[Sequence[Sequence[float]]]) -> Scripted:
    """Whole distributions by forward pass and position."""
    vocab = len(table[0][0])
    return Scripted(lambda tokens, slot, call: logs(table[min(call, len(table) - 1)][slot]), vocab)


def run(denoiser: Scripted, policy: Policy, n: int, steps: int | None = None, **options: Any) -> Trajectory:
    """From n masks to the end."""
    state = State.from_canvases(
        [[denoiser.vocab] * n], steps=steps or n, mask_id=denoiser.vocab, own_clock=policy.own_clock
    )
    return decode(denoiser, policy, state, noise=Noise.of([0]), **options)


def revealed(traj: Trajectory) -> list[list[int]]:
    """What each step revealed."""
    return [step.revealed_BL[0].nonzero().flatten().tolist() for step in traj.steps]


def first(denoiser: Scripted, policy: Policy, n: int, steps: int | None = None) -> list[int]:
    """What the first step reveals."""
    return revealed(run(denoiser, policy, n, steps))[0]


def follow(policy: Policy, calls: Sequence[Mapping[int, tuple[float, float]]], n: int) -> Trajectory:
    """Steps whose predictions are told: confidence and entropy by position, whether or not a distribution has both."""
    state = State.from_canvases([[VOCAB] * n], steps=n, mask_id=VOCAB)
    traj = Trajectory.start(state, Noise.of([0]))
    for told in calls:
        view = View.of(traj.state, Needs())
        flat = propose(
            Logits(torch.zeros(int(view.wanted_BN.sum()), VOCAB), view.wanted_BN),
            view,
            Proposal(),
            policy.needs,
            Vocabulary(VOCAB, VOCAB),
            noise=traj.noise,
            step_B=traj.state.step_B,
        )
        p_BN, entropy_BN = torch.zeros(1, n), torch.zeros(1, n, dtype=torch.float64)
        for at, (p, entropy) in told.items():
            p_BN[0, at], entropy_BN[0, at] = p, entropy
        clean = replace(flat.clean, p_BNK=torch.stack((p_BN, 1 - p_BN), -1), entropy_BN=entropy_BN)
        traj = replace(traj, prediction=replace(flat, confidence_BN=p_BN, clean=clean))
        action = policy.act(traj, NO_LOOK_AHEAD)
        change = apply(traj.state, traj.seen, action).checked()
        step = record_of(traj, policy.name, action, change, traj.forwards_B, traj.processed_B)
        traj = advance(traj, step, change.state, ALL)
    return traj
