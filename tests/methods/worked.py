"""Denoisers that answer from the tables of the worked examples, and short runs on them."""

from collections.abc import Sequence
from typing import Any

import torch

from unmask.core import Noise, Policy, State, Trajectory
from unmask.engine import decode
from unmask.methods.examples import VOCAB, ScriptedDenoiser, load_cases, logs, peak_logits


def script(method: str, case: int = 0) -> Any:
    """The script of a worked case of the method."""
    return load_cases(method)[case].script


def table(method: str, case: int = 0) -> Any:
    """The denoiser's answers in a worked case of the method."""
    return script(method, case)["table"]


def confidences(table: Sequence[Sequence[float | None]]) -> ScriptedDenoiser:
    """The table's row of each forward pass, the last one for all after; None where nobody should ask."""

    def answer(tokens: list[int], slot: int, call: int) -> list[float]:
        p = table[min(call, len(table) - 1)][slot]
        assert p is not None, (slot, call)
        return peak_logits(p, VOCAB)

    return ScriptedDenoiser(answer, VOCAB)


def distributions(table: Sequence[Sequence[Sequence[float]]]) -> ScriptedDenoiser:
    """Whole distributions by forward pass and position."""
    return ScriptedDenoiser(
        lambda tokens, slot, call: logs(table[min(call, len(table) - 1)][slot]), vocab=len(table[0][0])
    )


def run(denoiser: ScriptedDenoiser, policy: Policy, n: int, steps: int | None = None, **options: Any) -> Trajectory:
    """Decode n masks to the end."""
    state = State.from_canvases(
        [[denoiser.vocab] * n], steps=steps or n, mask_id=denoiser.vocab, extra_steps=policy.extra_steps
    )
    return decode(denoiser, policy, state, noise=Noise.of([0]), **options)


def positions(mask_BL: torch.Tensor) -> list[int]:
    return mask_BL[0].nonzero().flatten().tolist()


def revealed(traj: Trajectory) -> list[list[int]]:
    """Positions that each step revealed."""
    return [positions(step.revealed_BL) for step in traj.steps]


def first(denoiser: ScriptedDenoiser, policy: Policy, n: int, steps: int | None = None) -> list[int]:
    """Positions that the first step reveals."""
    return revealed(run(denoiser, policy, n, steps))[0]
