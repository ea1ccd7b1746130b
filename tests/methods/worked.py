"""Worked examples of the methods: networks that say what a table says, and what each step then revealed."""

from collections.abc import Sequence
from typing import Any

from unmask.core import Noise, Policy, State, Trajectory
from unmask.engine import decode
from unmask.methods.examples import VOCAB, ScriptedDenoiser, load_cases, logs, peak_logits, run_statistics

__all__ = [
    "VOCAB",
    "confidences",
    "distributions",
    "first",
    "logs",
    "peaked",
    "revealed",
    "run",
    "run_statistics",
    "table",
]


def peaked(p: float, vocab: int = VOCAB) -> list[float]:
    return peak_logits(p, vocab)


def table(method: str, case: int = 0) -> Any:
    """What the model says in a method's worked example."""
    return load_cases(method)[case].script["table"]


def confidences(table: Sequence[Sequence[float | None]]) -> ScriptedDenoiser:
    """The table's row of each forward pass, the last one for all after; None where nobody should ask."""

    def answer(tokens: list[int], slot: int, call: int) -> list[float]:
        p = table[min(call, len(table) - 1)][slot]
        assert p is not None, (slot, call)
        return peaked(p)

    return ScriptedDenoiser(answer, VOCAB)


def distributions(table: Sequence[Sequence[Sequence[float]]]) -> ScriptedDenoiser:
    """Whole distributions by forward pass and position."""
    vocab = len(table[0][0])
    return ScriptedDenoiser(lambda tokens, slot, call: logs(table[min(call, len(table) - 1)][slot]), vocab)


def run(denoiser: ScriptedDenoiser, policy: Policy, n: int, steps: int | None = None, **options: Any) -> Trajectory:
    """From n masks to the end."""
    state = State.from_canvases(
        [[denoiser.vocab] * n], steps=steps or n, mask_id=denoiser.vocab, extra_steps=policy.extra_steps
    )
    return decode(denoiser, policy, state, noise=Noise.of([0]), **options)


def revealed(traj: Trajectory) -> list[list[int]]:
    """What each step revealed."""
    return [step.revealed_BL[0].nonzero().flatten().tolist() for step in traj.steps]


def first(denoiser: ScriptedDenoiser, policy: Policy, n: int, steps: int | None = None) -> list[int]:
    """What the first step reveals."""
    return revealed(run(denoiser, policy, n, steps))[0]
