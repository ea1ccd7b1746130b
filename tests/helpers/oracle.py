"""A model that knows every answer of some tasks to the letter, and is right where it sees enough."""

from dataclasses import dataclass, field

import torch

from unmask.core import ModelInput, ModelOutput, Needs, Vocabulary
from unmask.tasks import find_task

EOS, MASK = 256, 257
CARRY = "carry-rtl"


class Bytes:
    """A byte per token."""

    mask = "_"
    closing = ()

    def encode(self, prompt):
        return list(prompt.encode())

    def canvas(self, text):
        raise NotImplementedError

    def decode(self, tokens):
        return bytes(token for token in tokens if token < EOS).decode(errors="replace")

    def answer(self, tokens):
        return self.decode(tokens[: tokens.index(EOS)] if EOS in tokens else tokens)


@dataclass(frozen=True)
class Oracle:
    """Knows every answer of some tasks, but is right about a position only if it sees the one before."""

    names: tuple[str, ...]
    split: str = "development"
    device = torch.device("cpu")
    vocabulary = Vocabulary(258, MASK, (EOS,))
    shapes: list[int] = field(default_factory=list)
    """Rows of every forward."""

    def __post_init__(self):
        known = {bytes(e.prompt.encode()): e for name in self.names for e in find_task(name).examples(self.split)}
        object.__setattr__(self, "known", known)

    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        logits_BNV = torch.zeros(*inputs.tokens_BN.shape, 258, dtype=torch.float64)
        self.shapes.append(len(inputs.tokens_BN))
        for b, tokens in enumerate(inputs.tokens_BN.tolist()):
            start = int(inputs.fixed_BN[b].sum())
            end = int(inputs.valid_BN[b].sum())
            example = self.known[bytes(tokens[:start])]
            answer = gold(example)[: end - start]
            for i in range(start, end):
                sees = i == start or tokens[i - 1] != MASK
                token = answer[i - start] if sees else ord("?")
                logits_BNV[b, i, token] = 8 + (i * 7919 % 13) / 10
        return ModelOutput(logits_BNV[inputs.wanted_BN], inputs.wanted_BN)


@dataclass(frozen=True)
class Speaker:
    denoiser: Oracle
    codec: Bytes = Bytes()
    name: str = "oracle"
    max_length: int | None = None
    options: dict = field(default_factory=lambda: {"fingerprint": "f00d"})


def gold(example):
    return [*example.target.encode(), *[EOS] * 300]


def oracle(*names, **options):
    return Speaker(Oracle(names or (CARRY,)), **options)
