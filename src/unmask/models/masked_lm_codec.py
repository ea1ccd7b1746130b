"""The codec of `masked-lm`: a tokenizer of `transformers`, and how it frames a text."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from unmask.base.errors import CheckpointError, ConfigError
from unmask.models.codec import MASK_WORD, Prompt, cut_at_blanks


@dataclass(frozen=True)
class MaskedLMCodec:
    """Text through a transformers tokenizer.

    A canvas is framed as the tokenizer frames a text, e.g. [CLS] ... [SEP]. A prompt gets only the opening, since
    the answer follows; `closing` goes behind it, because these models seldom write a closing token themselves.
    """

    tokenizer: Any
    """Any `PreTrainedTokenizerBase` with a mask token."""

    def __post_init__(self) -> None:
        if self.tokenizer.mask_token_id is None:
            raise CheckpointError(
                "the tokenizer has no mask token; allowed: the tokenizer of a masked language model; set its "
                "mask_token, or choose another checkpoint"
            )

    @property
    def mask(self) -> str:
        mask: str = self.tokenizer.mask_token
        return mask

    @property
    def mask_id(self) -> int:
        return int(self.tokenizer.mask_token_id)

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """What closes a text: [SEP], </s> or <eos>."""
        names = self.tokenizer.special_tokens_map
        closing = names.get("sep_token", names.get("eos_token"))
        return () if closing is None else (int(self.tokenizer.convert_tokens_to_ids(str(closing))),)

    @cached_property
    def frame(self) -> tuple[list[int], list[int]]:
        """What the tokenizer puts before and after a text, seen on a text of one mask."""
        tokens = self._tokens(self.mask, framed=True)
        at = tokens.index(self.mask_id)
        return tokens[:at], tokens[at + 1 :]

    def encode(self, prompt: Prompt) -> list[int]:
        if not isinstance(prompt, str):
            raise ConfigError(
                f"prompt is {prompt!r}, a conversation; allowed: one text; a masked language model has no chat format, "
                "pass a string"
            )
        tokens = self._tokens(prompt)
        if self.mask_id in tokens:
            raise ConfigError(
                f"prompt {prompt!r} holds a blank; allowed: text without {self.mask} or {MASK_WORD}; use infill to "
                "fill blanks"
            )
        return [*self.frame[0], *tokens]

    def canvas(self, text: str) -> list[int]:
        opening, closing = self.frame
        return [*opening, *self._tokens(text), *closing]

    def decode(self, tokens: Sequence[int]) -> str:
        return self._text(tokens, skip=False)

    def answer(self, tokens: Sequence[int]) -> str:
        """The text up to the first closing token, without special tokens."""
        ends = [at for at, token in enumerate(tokens) if token in self.eos_ids]
        return self._text(tokens[: ends[0]] if ends else tokens, skip=True)

    def text(self, tokens: Sequence[int]) -> str:
        return self._text(tokens, skip=True)

    @property
    def closing(self) -> tuple[int, ...]:
        return tuple(self.frame[1])

    def _tokens(self, text: str, framed: bool = False) -> list[int]:
        # One text, not part by part: whether a space before a word or a blank counts is the tokenizer's to say.
        parts = cut_at_blanks(text, self.mask)
        plain = "".join(part if isinstance(part, str) else self.mask * part for part in parts)
        tokens: list[int] = self.tokenizer(plain, add_special_tokens=framed, verbose=False)["input_ids"]
        if not framed and self.tokenizer.unk_token_id in tokens:
            raise ConfigError(
                f"the text holds {self._unknown(plain)!r}, for which the model has no token; allowed: text of its "
                "vocabulary; write it otherwise, or load a model that knows it"
            )
        return tokens

    def _unknown(self, text: str) -> str:
        """The first piece that is no token; tokenizers in plain Python do not say where it stands."""
        if not self.tokenizer.is_fast:
            return text
        encoded = self.tokenizer(text, add_special_tokens=False, verbose=False, return_offsets_mapping=True)
        start, end = encoded["offset_mapping"][encoded["input_ids"].index(self.tokenizer.unk_token_id)]
        return text[start:end]

    def _text(self, tokens: Sequence[int], skip: bool) -> str:
        text: str = self.tokenizer.decode(list(tokens), skip_special_tokens=skip, clean_up_tokenization_spaces=False)
        return text
