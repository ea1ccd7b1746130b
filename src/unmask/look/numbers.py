"""A codec for who has no tokenizer: tokens are shown by their numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

from unmask.base.errors import ConfigError
from unmask.models import Prompt


@dataclass(frozen=True)
class TokenNumbers:
    """Writes tokens as <17>, the mask as [MASK]; reads nothing."""

    mask_id: int
    mask: str = "[MASK]"

    def encode(self, prompt: Prompt) -> list[int]:
        raise ConfigError("a prompt cannot be read without a tokenizer; allowed: numbers to text; load the model")

    def canvas(self, text: str) -> list[int]:
        raise ConfigError("a text cannot be read without a tokenizer; allowed: numbers to text; load the model")

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(self.mask if token == self.mask_id else f"<{token}>" for token in tokens)

    def answer(self, tokens: Sequence[int]) -> str:
        return self.decode(tokens)

    def text(self, tokens: Sequence[int]) -> str:
        return self.decode(tokens)

    @property
    def closing(self) -> tuple[int, ...]:
        return ()
