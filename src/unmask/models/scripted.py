"""A denoiser that says what a script says, and noise from a table: worked examples run on them, and tests do."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from unmask.core import ModelInput, ModelOutput, Needs, Vocabulary

Script = Callable[[list[int], int, int], Sequence[float]]
"""Logits of a slot from the view's tokens, the slot and the number of the forward pass."""


@dataclass(frozen=True)
class ScriptedDenoiser:
    """Answers from a script: `logits(tokens, slot, call)` of each wanted slot, for the call-th forward pass."""

    logits: Script
    vocab: int
    eos_ids: tuple[int, ...] = ()
    calls: list[ModelInput] = field(default_factory=list, compare=False)
    attention: Sequence[Sequence[float]] | None = None
    """From query to key, where it is asked for."""

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(self.vocab, self.vocab, self.eos_ids)

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        tokens = inputs.tokens_BN.tolist()
        rows = [self.logits(tokens[b], slot, len(self.calls)) for b, slot in inputs.wanted_BN.nonzero().tolist()]
        self.calls.append(inputs)
        logits_RV = torch.tensor(rows, dtype=torch.float64).reshape(-1, self.vocab)
        attention_BNN = None
        if needs.attention and self.attention is not None:
            attention_BNN = torch.tensor(self.attention, dtype=torch.float64).expand(len(tokens), -1, -1)
        return ModelOutput(logits_RV, inputs.wanted_BN, attention_BNN=attention_BNN)


def peaked(p: float, vocab: int) -> list[float]:
    """Log-probabilities with p on token 1 and the rest shared: the largest however small p is."""
    rest = math.log((1 - p) / (vocab - 1)) if p < 1 else -1e4
    return [math.log(p) if token == 1 else rest for token in range(vocab)]


def logs(p: Sequence[float]) -> list[float]:
    """Log-probabilities; -10000 for 0."""
    return [math.log(x) if x > 0 else -1e4 for x in p]


class TableNoise:
    """Noise from a table: one number per canvas position, or per vocabulary entry, by purpose."""

    def __init__(self, table: Mapping[str, Sequence[float]]):
        self.table = {purpose: torch.tensor(numbers, dtype=torch.float64) for purpose, numbers in table.items()}
        self.key_B = torch.zeros(1, dtype=torch.long)

    def uniform(self, step_B: Tensor, position_BN: Tensor, purpose: str) -> Tensor:
        return self.table[purpose][position_BN]

    def uniform_packed(self, step_R: Tensor, position_R: Tensor, row_R: Tensor, purpose: str) -> Tensor:
        return self.table[purpose][position_R]

    def uniform_vocab(self, step_R: Tensor, position_R: Tensor, row_R: Tensor, vocab: int, purpose: str) -> Tensor:
        return self.table[purpose].expand(len(position_R), vocab)
