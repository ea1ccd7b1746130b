"""Text to tokens and back, one codec per model."""

import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from unmask.errors import ConfigError, require

MASK_WORD = "[MASK]"
"""How any text may spell a blank, whatever the model's own sign for it."""


class Codec(Protocol):
    """What a model needs beside its denoiser to work on text."""

    @property
    def mask(self) -> str:
        """How a masked position is shown."""
        ...

    def encode(self, prompt: str) -> list[int]:
        """A prompt's tokens; it holds no blanks."""
        ...

    def canvas(self, text: str) -> list[int]:
        """The tokens of a text with blanks."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some tokens, masks shown as `mask`."""
        ...


@dataclass(frozen=True)
class LetterCodec:
    """One letter per token, "a" for 0; the mask, one past the last token, is "_"."""

    vocab: int
    mask: str = "_"

    def __post_init__(self) -> None:
        most = len(string.ascii_letters)
        require(2 <= self.vocab <= most, "vocab", self.vocab, f"2 to {most}, a letter for each token", "lower it")

    @property
    def alphabet(self) -> str:
        return string.ascii_letters[: self.vocab]

    def encode(self, prompt: str) -> list[int]:
        if self.mask in prompt or MASK_WORD in prompt:
            raise ConfigError(
                f"prompt {prompt!r} holds a blank; allowed: the letters {self.alphabet!r}; use infill to fill blanks"
            )
        return [self._token(letter, prompt) for letter in prompt]

    def canvas(self, text: str) -> list[int]:
        plain = text.replace(MASK_WORD, self.mask)
        return [self.vocab if letter == self.mask else self._token(letter, text) for letter in plain]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join((self.alphabet + self.mask)[token] for token in tokens)

    def _token(self, letter: str, text: str) -> int:
        token = self.alphabet.find(letter)
        if token < 0:
            raise ConfigError(
                f"{text!r} holds the character {letter!r}; allowed: the letters {self.alphabet!r}, one per token; "
                "write the text with these, or load the model with a larger vocab"
            )
        return token
