"""Worked examples: each method's rule computed by hand, and run on a denoiser that gives the same numbers.

A file `examples_data/NAME.json` holds cases of one method: settings, a canvas, the denoiser's answers, and the expected
outcome. The tests read the same files.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unmask.base.errors import ConfigError, UnknownName
from unmask.core import ModelInput, ModelOutput, Needs, Noise, SamplingParams, State, Vocabulary
from unmask.engine import decode
from unmask.methods.registry import METHODS, make_policy

HOME = Path(__file__).parent / "examples_data"
VOCAB = 64
"""Vocabulary size of examples that give only the confidence of each position."""


@dataclass(frozen=True)
class ScriptedDenoiser:
    """A denoiser that answers from a script: `logits(tokens, slot, call)` of each wanted slot, for the call-th pass."""

    logits: Callable[[list[int], int, int], Sequence[float]]
    vocab: int
    eos_ids: tuple[int, ...] = ()
    calls: list[ModelInput] = field(default_factory=list, compare=False)
    """Inputs of all passes so far."""
    attention: Sequence[Sequence[float]] | None = None
    """Attention from query to key, for methods that ask for it."""

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(self.vocab, self.vocab, self.eos_ids)

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        tokens = inputs.tokens_BN.tolist()
        rows = [self._slot_logits(inputs, tokens[b], b, slot) for b, slot in inputs.wanted_BN.nonzero().tolist()]
        self.calls.append(inputs)
        attention_BNN = None
        if needs.attention and self.attention is not None:
            attention_BNN = torch.tensor(self.attention, dtype=torch.float64).expand(len(tokens), -1, -1)
        logits_RV = torch.tensor(rows, dtype=torch.float64).reshape(-1, self.vocab)
        return ModelOutput(logits_RV, inputs.wanted_BN, attention_BNN=attention_BNN)

    def _slot_logits(self, inputs: ModelInput, tokens: list[int], b: int, slot: int) -> Sequence[float]:
        return self.logits(tokens, slot, len(self.calls))


class TableNoise:
    """Noise from a table: one number per canvas position, or per vocabulary entry, for each purpose."""

    def __init__(self, table: Mapping[str, Sequence[float]]):
        self.table = {purpose: torch.tensor(numbers, dtype=torch.float64) for purpose, numbers in table.items()}
        self.key_B = torch.zeros(1, dtype=torch.long)

    def uniform(self, step_B: Tensor, position_BN: Tensor, purpose: str) -> Tensor:
        return self.table[purpose][position_BN]

    def uniform_packed(self, step_R: Tensor, position_R: Tensor, row_R: Tensor, purpose: str) -> Tensor:
        return self.table[purpose][position_R]

    def uniform_vocab(self, step_R: Tensor, position_R: Tensor, row_R: Tensor, vocab: int, purpose: str) -> Tensor:
        return self.table[purpose].expand(len(position_R), vocab)


def peak_logits(p: float, vocab: int) -> list[float]:
    """Return log-probabilities with p on token 1, which is the largest however small p is, and the rest shared."""
    rest = math.log((1 - p) / (vocab - 1)) if p < 1 else -1e4
    return [math.log(p) if token == 1 else rest for token in range(vocab)]


def logs(p: Sequence[float]) -> list[float]:
    """Return log-probabilities; -10000 for 0."""
    return [math.log(x) if x > 0 else -1e4 for x in p]


def scripted_model(script: Mapping[str, Any]) -> ScriptedDenoiser:
    """Return the denoiser of a script. The last row of its table answers all later passes."""
    kind = script["kind"]
    if kind == "canvas":
        # Distributions, or probabilities of token 0, for some canvases; one answer for all others.
        otherwise = script["otherwise"]
        vocab = len(otherwise)
        by_canvas = {
            tuple(vocab if t is None else t for t in known["canvas"]): known["table"] for known in script["canvases"]
        }

        def answer(tokens: list[int], slot: int, call: int) -> list[float]:
            rows = by_canvas.get(tuple(tokens))
            row = otherwise if rows is None or rows[slot] is None else rows[slot]
            return logs(row if isinstance(row, list) else [row, *[(1 - row) / (vocab - 1)] * (vocab - 1)])

        return ScriptedDenoiser(answer, vocab)
    table = script["table"]
    if kind == "confidence":
        vocab, to_logits = VOCAB, lambda p: peak_logits(p, VOCAB)
    else:
        vocab, to_logits = len(table[0][0]), list if kind == "logits" else logs
    return ScriptedDenoiser(
        lambda _, slot, call: to_logits(table[min(call, len(table) - 1)][slot]),
        vocab,
        attention=script.get("attention"),
    )


@dataclass(frozen=True)
class WorkedCase:
    """One worked case: settings, the denoiser's answers, and the outcome computed by hand."""

    method: str
    title: str
    settings: Mapping[str, Any]
    script: Mapping[str, Any]
    expected: Mapping[str, Any]
    canvas: Sequence[int | None]
    """Tokens of the start; None for a mask."""
    steps: int | None = None
    """Planned number of steps; None for one per mask."""
    standing: Sequence[int | None] = ()
    """Canvas on which the case begins, where some positions were revealed before."""
    taken: int = 0
    """Number of steps taken before the case begins."""
    noise: Mapping[str, Sequence[float]] | None = None


@dataclass(frozen=True)
class WorkedResult:
    """The outcome of a worked case, under the names that its `expected` uses."""

    case: WorkedCase
    found: Mapping[str, Any]
    """The outcome, as far as the case expects something."""
    steps: tuple[Mapping[str, Any], ...]
    """For each step the revealed tokens by position, and the remasked positions."""

    @property
    def as_expected(self) -> bool:
        """Whether the outcome is the expected one."""
        return all(is_close(self.found[name], value) for name, value in self.case.expected.items())


def example_names() -> list[str]:
    """Return the methods that have a worked example."""
    return sorted(path.stem for path in HOME.glob("*.json"))


def example_source(method: str) -> str:
    """Return where an example's numbers come from."""
    remark = _read_example(method).get("remark", "")
    return f"the rule of {METHODS[method].citation}, by hand" + (f"; {remark}" if remark else "")


@cache
def load_cases(method: str) -> tuple[WorkedCase, ...]:
    """Return the worked cases of a method."""
    if method not in METHODS:
        raise UnknownName("method with a worked example", method, example_names())
    if method not in example_names():
        raise ConfigError(f"{method} has no worked example; allowed: {', '.join(example_names())}; take one of them")
    return tuple(WorkedCase(method, **case) for case in _read_example(method)["cases"])


def _read_example(method: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((HOME / f"{method}.json").read_text(encoding="utf-8"))
    return document


def run_case(case: WorkedCase) -> WorkedResult:
    """Decode a case's canvas with the method, on the denoiser of the case's script."""
    policy, model = make_policy(case.method, **case.settings), scripted_model(case.script)
    canvas = [model.vocab if token is None else token for token in case.canvas]
    steps = case.steps or canvas.count(model.vocab)
    state = State.from_canvases([canvas], steps=steps, mask_id=model.vocab, extra_steps=policy.extra_steps)
    if case.standing:
        tokens = [model.vocab if token is None else token for token in case.standing]
        state = replace(state, tokens_BL=torch.tensor([tokens]), step_B=torch.tensor([case.taken]))
    noise: Any = Noise.of([0]) if case.noise is None else TableNoise(case.noise)
    traj = decode(model, policy, state, noise=noise, sampling=SamplingParams())

    canvases = [canvas_L.tolist() for canvas_L in traj.canvases()][1:]
    found: dict[str, list[Any]] = {
        "revealed": [step.revealed_BL[0].nonzero().flatten().tolist() for step in traj.steps],
        "remasked": [step.remasked_BL[0].nonzero().flatten().tolist() for step in traj.steps],
        "masks_left": [canvas.count(model.vocab) for canvas in canvases],
        "canvas": [None if token == model.vocab else token for token in canvases[0]],
    }
    for note in ("value", "dropped"):  # notes of a search
        if note in traj.notes:
            found[note] = [step.action.notes[note].tolist()[0] for step in traj.steps]
    steps_taken = tuple(
        {"revealed": {at: after[at] for at in revealed}, "remasked": remasked}
        for revealed, remasked, after in zip(found["revealed"], found["remasked"], canvases, strict=True)
    )
    return WorkedResult(case, {name: found[name][: len(value)] for name, value in case.expected.items()}, steps_taken)


def is_close(found: Any, expected: Any) -> bool:
    """Return whether an outcome equals the expected one; numbers of a case are rounded, so 1e-4 off is close."""
    if isinstance(expected, float):
        return abs(found - expected) <= 1e-4
    if isinstance(expected, list) and isinstance(found, list):
        return len(found) == len(expected) and all(map(is_close, found, expected))
    return bool(found == expected)
