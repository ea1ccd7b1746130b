"""The contract between text and tokens, and the codec of `exact`."""

import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from unmask.base.errors import ConfigError, require

MASK_WORD = "[MASK]"
"""How any text may spell a blank, besides the model's own mask token; "[MASK*5]" is five in a row."""

MOST_BLANKS = 100_000
"""Most blanks that one [MASK*N] may stand for; a larger number is a typing error."""

Prompt = str | Sequence[Mapping[str, str]]
"""A text, or a conversation: messages such as {"role": "user", "content": "Hello"}."""


def cut_at_blanks(text: str, mask: str) -> list[str | int]:
    """Cut a text at its blanks; return the texts between them, and each run of blanks as its number."""
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
    """Turns the text of users into tokens of a model, and back."""

    @property
    def mask(self) -> str:
        """Text of a masked position."""
        ...

    def encode(self, prompt: Prompt) -> list[int]:
        """Return the tokens of a prompt, which may hold no blanks."""
        ...

    def canvas(self, text: str) -> list[int]:
        """Return the tokens of a text with blanks."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of all tokens, with `mask` for masked ones."""
        ...

    def answer(self, tokens: Sequence[int]) -> str:
        """Return the text of an answer: up to its first end token, without control tokens."""
        ...

    def text(self, tokens: Sequence[int]) -> str:
        """Return the whole of an infilled text, both given and filled in."""
        ...

    @property
    def closing(self) -> tuple[int, ...]:
        """Tokens that follow every answer."""
        ...


@dataclass(frozen=True)
class LetterCodec:
    """Codec with one letter per token, "a" for 0. The mask is "_", and its token is one past the last letter."""

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
