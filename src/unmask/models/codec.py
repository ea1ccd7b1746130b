"""The contract between text and tokens, and the codec of `exact`."""

import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from unmask.base.errors import ConfigError, require

MASK_WORD = "[MASK]"
"""Spelling of a blank that every model accepts, besides its own mask token; "[MASK*5]" is five blanks."""

MOST_BLANKS = 100_000
"""Most blanks that one [MASK*N] may stand for; a larger number is a typing error."""

Prompt = str | Sequence[Mapping[str, str]]
"""A text, or a conversation: messages such as {"role": "user", "content": "Hello"}."""


def cut_at_blanks(text: str, mask: str) -> list[str | int]:
    """Cut a text at its blanks; return the texts in between, and a number for each run of blanks."""
    parts: list[str | int] = []
    end = 0
    for blank in re.finditer(rf"\[MASK(?:\*([0-9]+))?\]|{re.escape(mask)}", text):
        count = blank[1] or "1"
        # The number of digits first, because `int` takes long for a million of them.
        few = len(count) <= 6 and 1 <= int(count) <= MOST_BLANKS
        require(few, "the number of blanks", blank[0][:20], f"[MASK*1] to [MASK*{MOST_BLANKS}]", "change the number")
        parts += [text[end : blank.start()], int(count)]
        end = blank.end()
    return [part for part in [*parts, text[end:]] if part != ""]


class Codec(Protocol):
    """Converter between a user's text and a model's tokens."""

    @property
    def mask(self) -> str:
        """Text that stands for a masked position."""
        ...

    def encode(self, prompt: Prompt) -> list[int]:
        """Return the tokens of a prompt; refuse a prompt with blanks."""
        ...

    def canvas(self, text: str) -> list[int]:
        """Return the tokens of a text with blanks: a mask token for each blank."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of all tokens, with `mask` for each masked position."""
        ...

    def answer(self, tokens: Sequence[int]) -> str:
        """Return the text of an answer up to its first end token, without control tokens."""
        ...

    def text(self, tokens: Sequence[int]) -> str:
        """Return the full text of an infilled canvas: given and filled-in parts."""
        ...

    @property
    def closing(self) -> tuple[int, ...]:
        """Tokens that are put behind every answer, such as [SEP]."""
        ...


@dataclass(frozen=True)
class LetterCodec:
    """Codec that spells token 0 as "a", token 1 as "b" and so on, and the mask, the token after the last, as "_"."""

    vocab: int
    mask: str = "_"
    closing: ClassVar[tuple[int, ...]] = ()

    def __post_init__(self) -> None:
        most = len(string.ascii_letters)
        require(2 <= self.vocab <= most, "vocab", self.vocab, f"2 to {most}, a letter for each token", "lower it")

    @property
    def alphabet(self) -> str:
        """The letter of each token."""
        return string.ascii_letters[: self.vocab]

    def encode(self, prompt: Prompt) -> list[int]:
        if not isinstance(prompt, str):
            raise ConfigError(
                f"prompt is {prompt!r}, a conversation; allowed: one text of the letters {self.alphabet!r}; this model "
                "has no chat format, pass a string"
            )
        if any(isinstance(part, int) for part in cut_at_blanks(prompt, self.mask)):
            raise ConfigError(
                f"prompt {prompt!r} holds a blank; allowed: the letters {self.alphabet!r}; use infill to fill blanks"
            )
        return self.canvas(prompt)

    def canvas(self, text: str) -> list[int]:
        tokens: list[int] = []
        for part in cut_at_blanks(text, self.mask):
            for letter in "" if isinstance(part, int) else part:
                if letter not in self.alphabet:
                    raise ConfigError(
                        f"{text!r} holds the character {letter!r}; allowed: the letters {self.alphabet!r}, one per "
                        "token; write the text with these, or load the model with a larger vocab"
                    )
            tokens += [self.vocab] * part if isinstance(part, int) else map(self.alphabet.index, part)
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join((self.alphabet + self.mask)[token] for token in tokens)

    def answer(self, tokens: Sequence[int]) -> str:
        return self.decode(tokens)

    def text(self, tokens: Sequence[int]) -> str:
        return self.decode(tokens)
