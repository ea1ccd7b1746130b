"""Prompts of a published checkpoint: text and conversations to tokens and back, by its tokenizer and chat template."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile
from operator import itemgetter
from pathlib import Path

from tokenizers import Tokenizer

from unmask.base.errors import CheckpointError, ConfigError, format_value, require
from unmask.checkpoints.chat_template import ChatTemplate
from unmask.checkpoints.tokenizer import read_tokenizer, tokenizer_file
from unmask.denoisers.codec import MASK_WORD, Prompt, cut_at_blanks

_ROLES = ("system", "user", "assistant")


@dataclass(frozen=True)
class TextCodec:
    """A checkpoint's tokenizer and chat template behind the codec's contract.

    A control token's text inside a prompt is read as that token, as the authors' programs do.
    """

    tokenizer: Tokenizer
    mask_id: int
    ends: tuple[int, ...] = ()
    """Tokens that end an answer."""
    template: ChatTemplate | None = None

    @classmethod
    def read(
        cls, folder: Path, *, mask_id: int, vocab: int, ends: Sequence[int | str], chat: bool | None = None
    ) -> "TextCodec":
        """The codec of a checkpoint folder whose embedding has `vocab` rows; `ends` are ids or texts of tokens.

        `chat` says whether prompts go through the chat template: None if there is one, True always, False never.
        """
        tokenizer, path = read_tokenizer(folder), tokenizer_file(folder)
        last, number = max(tokenizer.get_vocab(with_added_tokens=True).items(), key=itemgetter(1))
        if number >= vocab:
            raise CheckpointError(
                f"{path} has the token {last!r} with id {number}; allowed: ids below {vocab}, the rows of the "
                "embedding; tokenizer and weights belong to different models"
            )
        if mask_id not in tokenizer.get_added_tokens_decoder():
            ordinary = tokenizer.id_to_token(mask_id) if mask_id >= 0 else None
            what = "no token" if ordinary is None else f"the ordinary token {ordinary!r}"
            raise CheckpointError(
                f"{path} has {what} under the mask id {mask_id}; allowed: the id of an added token; tokenizer and "
                "config.json belong to different models"
            )
        resolved = tuple(dict.fromkeys(_end(end, tokenizer, path) for end in ends))
        template = None if chat is False else ChatTemplate.read(folder)
        if chat and template is None:
            raise ConfigError(
                f"chat is True, but {folder} has no chat template (a 'chat_template' in tokenizer_config.json, or a "
                "chat_template.jinja); allowed: None or False for this checkpoint; leave chat out"
            )
        return cls(tokenizer, mask_id, resolved, template)

    @property
    def mask(self) -> str:
        """The mask token's own text."""
        return str(self.tokenizer.id_to_token(self.mask_id))

    @property
    def eos_ids(self) -> tuple[int, ...]:
        return self.ends

    def encode(self, prompt: Prompt) -> list[int]:
        """With a chat template, a text is one user turn; without, only plain texts can be read."""
        if self.template is not None:
            messages = _conversation(prompt)
            for message in messages:
                self._refuse_blanks(message["content"])
            # The template writes every control token itself.
            return self._tokens(self.template.render(messages), "prompt")
        if not isinstance(prompt, str):
            raise ConfigError(
                f"prompt is {format_value(prompt, 80)}; allowed: one text, because there is no chat template in use; "
                "pass a string, or load a checkpoint that has a template without chat=False"
            )
        self._refuse_blanks(prompt)
        return self._tokens(prompt, "prompt", add_special_tokens=True)

    def canvas(self, text: str) -> list[int]:
        """Plain text, never through the template; a blank is one token, which for most words holds the space before."""
        tokens: list[int] = []
        for part in cut_at_blanks(text, self.mask):
            tokens += [self.mask_id] * part if isinstance(part, int) else self._tokens(part, "text")
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """Everything there is: control tokens by their text, and as <id> the spare rows of an embedding."""
        return self._text(tokens, skip_special_tokens=False)

    def answer(self, tokens: Sequence[int]) -> str:
        """Up to the first end, without control tokens; masks that are left stay visible."""
        return self._text(list(takewhile(lambda token: token not in self.ends, tokens)), skip_special_tokens=True)

    def text(self, tokens: Sequence[int]) -> str:
        return self.decode(tokens)

    @property
    def closing(self) -> tuple[int, ...]:
        return ()

    def _text(self, tokens: Sequence[int], skip_special_tokens: bool) -> str:
        shown: list[str] = []
        for sign, group in groupby(tokens, key=self._sign):
            run = list(group)
            # A character of several tokens needs them decoded together.
            plain = "" if sign else self.tokenizer.decode(run, skip_special_tokens=skip_special_tokens)
            shown.append(sign * len(run) or plain)
        return "".join(shown)

    def _sign(self, token: int) -> str:
        """How a token is shown that has no text, or must be seen; empty for all others."""
        if token == self.mask_id:
            return self.mask
        return "" if 0 <= token < 2**32 and self.tokenizer.id_to_token(token) is not None else f"<{token}>"

    def _tokens(self, text: str, what: str, add_special_tokens: bool = False) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(
                f"the {what} holds {text[error.start]!r} at character {error.start}, half of a character; allowed: "
                "text that UTF-8 can write; repair how it was read"
            ) from error
        tokens: list[int] = self.tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return tokens

    def _refuse_blanks(self, text: str) -> None:
        if any(isinstance(part, int) for part in cut_at_blanks(text, self.mask)):
            raise ConfigError(
                f"the prompt holds a blank: {_shortened(text)}; allowed: text without {MASK_WORD} and {self.mask!r}; "
                "use infill to fill blanks"
            )


def _end(end: int | str, tokenizer: Tokenizer, path: Path) -> int:
    number = tokenizer.token_to_id(end) if isinstance(end, str) else end
    if number is None or number < 0 or tokenizer.id_to_token(number) is None:
        raise CheckpointError(
            f"{path} has no token {end!r}, which should end an answer; allowed: a token's text or id; tokenizer and "
            "config.json belong to different models"
        )
    return int(number)


def _conversation(prompt: Prompt) -> list[dict[str, str]]:
    """Checked messages, the last from the user: a model that is to answer must be asked."""
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    allowed = 'a text, or messages such as {"role": "user", "content": "Hello"}'
    require(isinstance(prompt, Sequence) and len(prompt) > 0, "prompt", prompt, allowed, "write one message or more")
    for n, message in enumerate(prompt):
        ok = isinstance(message, Mapping) and set(message) == {"role", "content"}
        require(ok, f"message {n} of the prompt", message, "role and content", "write these two keys and no others")
        role, content = message["role"], message["content"]
        require(role in _ROLES, f"role of message {n}", role, ", ".join(_ROLES), "name who speaks")
        require(isinstance(content, str), f"content of message {n}", content, "a text", "pass a string")
    role = prompt[-1]["role"]
    require(role == "user", "role of the last message", role, "user", "end with what the model is to answer")
    return [{"role": message["role"], "content": message["content"]} for message in prompt]


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:60]} … {text[-19:]}")
