"""Tokenizer and chat template of a checkpoint, and the codec that they make.

A chat template is a program from the internet. It runs in Jinja's sandbox, which keeps it from files, modules and
Python's internals, but limits neither its time nor its memory.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from itertools import groupby, takewhile
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar

import jinja2
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from unmask.base.errors import CheckpointError, ConfigError, format_value, require
from unmask.models.checkpoints.config import read_json, read_text
from unmask.models.codec import MASK_WORD, Prompt, cut_at_blanks

ROLES = ("system", "user", "assistant")

# Tokenizers

QWEN2 = ("DreamTokenizer", "Qwen2Tokenizer", "Qwen2TokenizerFast")
QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TOKEN_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def read_tokenizer(folder: Path) -> Tokenizer:
    """Read the tokenizer of a checkpoint folder, from tokenizer.json or from Qwen2's vocab.json and merges.txt."""
    path, settings_path = folder / "tokenizer.json", folder / "tokenizer_config.json"
    settings = read_json(settings_path) if settings_path.exists() else {}
    expected_ids: list[tuple[str, int, Path]] = []
    if path.exists():
        expected_ids += [(entry["content"], entry["id"], path) for entry in read_json(path).get("added_tokens") or []]
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the package raises nothing narrower
            raise CheckpointError(
                f"{path} is no tokenizer ({error}); allowed: what the tokenizers package writes; download it again, or "
                "install a newer tokenizers"
            ) from error
        # Padding and the length of a text are decided by the decoder.
        tokenizer.no_truncation()
        tokenizer.no_padding()
    else:
        tokenizer = _build_qwen2_tokenizer(folder, settings.get("tokenizer_class"))
    try:
        listed = []
        entries = settings.get("added_tokens_decoder") or {}
        for number, entry in sorted(entries.items(), key=lambda item: int(item[0])):
            flags = {flag: entry[flag] for flag in TOKEN_FLAGS if flag in entry}
            listed.append(AddedToken(entry["content"], **{"normalized": not flags.get("special"), **flags}))
            expected_ids.append((entry["content"], int(number), settings_path))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{settings_path} lists added tokens that cannot be read ({type(error).__name__}: {error}); allowed: whole "
            "numbers, each with a token's text and flags; download the file again"
        ) from error
    tokenizer.add_tokens([token for token in listed if tokenizer.token_to_id(token.content) is None])
    # The package renumbers added tokens silently where their ids clash or leave holes.
    for text, number, source in expected_ids:
        got = tokenizer.token_to_id(text)
        if got != number:
            raise CheckpointError(
                f"{source} gives the added token {text!r} the id {number}, but its place in the sequence is {got}; "
                "allowed: ids that follow the vocabulary without a hole or a clash; download the tokenizer files again"
            )
    return tokenizer


def _build_qwen2_tokenizer(folder: Path, tokenizer_class: Any) -> Tokenizer:
    """Build the tokenizer of Dream, whose folder has a vocabulary and merges but no tokenizer.json."""
    settings = folder / "tokenizer_config.json"
    if not settings.exists():
        raise CheckpointError(
            f"{folder} has no whole tokenizer; allowed: a tokenizer.json, or vocab.json, merges.txt and "
            "tokenizer_config.json; download the missing files"
        )
    if tokenizer_class not in QWEN2:
        raise CheckpointError(
            f"'tokenizer_class' in {settings} is {tokenizer_class!r}, and there is no tokenizer.json; allowed: "
            f"{', '.join(QWEN2)}, or any class with a tokenizer.json; save the tokenizer as a fast one (transformers: "
            "save_pretrained)"
        )
    try:
        pairs = models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    except Exception as error:  # the package raises nothing narrower
        raise CheckpointError(
            f"vocab.json and merges.txt in {folder} cannot be read ({error}); allowed: a vocabulary, and merges whose "
            "parts and results are in it; download both files again"
        ) from error
    tokenizer = Tokenizer(pairs)
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(QWEN2_SPLIT), behavior="isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


# Chat templates


class TemplateRefusal(Exception):
    """Error that a template raises by `raise_exception`."""


class GenerationTag(Extension):
    """Jinja tag {% generation %}, which marks an answer for training and is ignored here."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@lru_cache(maxsize=8)
def _compile_template(source: str) -> jinja2.Template:
    """Compile a template in Jinja's sandbox, with the functions and filters that transformers offers."""

    def refuse(message: object) -> None:
        raise TemplateRefusal(str(message))

    def to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        # Jinja's own filter would escape HTML.
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    sandbox = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, "jinja2.ext.loopcontrols"]
    )
    sandbox.filters["tojson"] = to_json
    sandbox.globals["raise_exception"] = refuse
    sandbox.globals["strftime_now"] = lambda format: datetime.now().strftime(format)
    return sandbox.from_string(source)


@dataclass(frozen=True)
class ChatTemplate:
    """The Jinja template by which a checkpoint writes a conversation."""

    source: str
    tokens: Mapping[str, str] = field(default_factory=dict)
    """Texts of special tokens, by names such as bos_token."""
    origin: str = "the chat template"
    """Name of the file that held the template, for error messages."""

    @classmethod
    def read(cls, folder: Path) -> "ChatTemplate | None":
        """Read the chat template of a folder, or return None; a template file wins over tokenizer_config.json."""
        source: Any = None
        for name in ("chat_template.jinja", "chat_template.json", "tokenizer_config.json"):
            path = folder / name
            if source is None and path.exists():
                source = read_text(path) if path.suffix == ".jinja" else read_json(path).get("chat_template")
                origin = path
        if source is None:
            return None
        if isinstance(source, list):
            named = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
            source = named.get("default")
        if not isinstance(source, str):
            raise CheckpointError(
                f"'chat_template' in {origin} is no template; allowed: a text, or a list of named templates with one "
                "called default; download the file again, or load with chat=False"
            )
        texts: dict[str, str] = {}
        # The second file wins, as in transformers.
        for name in ("special_tokens_map.json", "tokenizer_config.json"):
            path = folder / name
            for key, value in (read_json(path) if path.exists() else {}).items():
                text = value.get("content") if isinstance(value, dict) else value
                if key.endswith("_token") and isinstance(text, str):
                    texts[key] = text
        return cls(source, texts, f"the chat template in {origin}")

    def render(self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True) -> str:
        """Return a conversation as the text that the model was trained on, by default up to the start of its answer."""
        values = {
            "messages": [dict(message) for message in messages],
            "tools": None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return _compile_template(self.source).render(values | dict(self.tokens))
        except TemplateRefusal as error:
            raise ConfigError(
                f"{self.origin} refuses the conversation: {error}; allowed: what the template accepts; change the "
                "messages"
            ) from error
        except SecurityError as error:
            raise CheckpointError(
                f"{self.origin} reaches out of its sandbox ({error}); allowed: templates that only write text; do not "
                "trust this checkpoint, or load with chat=False"
            ) from error
        except Exception as error:  # a template can fail like any program
            line = f" in line {error.lineno}" if isinstance(error, jinja2.TemplateSyntaxError) else ""
            raise CheckpointError(
                f"{self.origin} fails{line} ({type(error).__name__}: {str(error)[:500]}); allowed: templates that "
                "render; download the file again, or load with chat=False"
            ) from error


@dataclass(frozen=True)
class TextCodec:
    """Codec of a LLaDA or Dream checkpoint: its tokenizer and its chat template.

    The text of a control token inside a prompt is read as that token, as in the authors' programs.
    """

    tokenizer: Tokenizer
    mask_id: int
    mask: str
    """Text of the mask token."""
    eos_ids: tuple[int, ...]
    """Tokens that end an answer."""
    template: ChatTemplate | None = None
    closing: ClassVar[tuple[int, ...]] = ()

    @classmethod
    def read(
        cls, folder: Path, *, mask_id: int, vocab: int, ends: Sequence[int | str], chat: bool | None = None
    ) -> "TextCodec":
        """Read the codec of a folder whose embedding has `vocab` rows; `ends` are ids or texts of tokens.

        `chat` says whether prompts go through the chat template: None if there is one, True always, False never.
        """
        tokenizer = read_tokenizer(folder)
        path = folder / ("tokenizer.json" if (folder / "tokenizer.json").exists() else "tokenizer_config.json")
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
        end_ids: dict[int, None] = {}
        for end in ends:
            end_id = tokenizer.token_to_id(end) if isinstance(end, str) else end
            if end_id is None or end_id < 0 or tokenizer.id_to_token(end_id) is None:
                raise CheckpointError(
                    f"{path} has no token {end!r}, which should end an answer; allowed: a token's text or id; "
                    "tokenizer and config.json belong to different models"
                )
            end_ids[int(end_id)] = None
        template = None if chat is False else ChatTemplate.read(folder)
        if chat and template is None:
            raise ConfigError(
                f"chat is True, but {folder} has no chat template (a 'chat_template' in tokenizer_config.json, or a "
                "chat_template.jinja); allowed: None or False for this checkpoint; leave chat out"
            )
        return cls(tokenizer, mask_id, str(tokenizer.id_to_token(mask_id)), tuple(end_ids), template)

    def encode(self, prompt: Prompt) -> list[int]:
        """Return the tokens of a prompt: a text (with a chat template, one user turn) or a conversation."""
        if self.template is None and not isinstance(prompt, str):
            raise ConfigError(
                f"prompt is {format_value(prompt, 80)}; allowed: one text, because there is no chat template in use; "
                "pass a string, or load a checkpoint that has a template without chat=False"
            )
        messages = _check_conversation(prompt)
        for message in messages:
            content = message["content"]
            if any(isinstance(part, int) for part in cut_at_blanks(content, self.mask)):
                raise ConfigError(
                    f"the prompt holds a blank: {format_value(content, 80)}; allowed: text without {MASK_WORD} and "
                    f"{self.mask!r}; use infill to fill blanks"
                )
        if self.template is None:
            return self._tokenize(messages[0]["content"], "prompt", add_special_tokens=True)
        # The template writes every control token itself.
        return self._tokenize(self.template.render(messages), "prompt")

    def canvas(self, text: str) -> list[int]:
        """Return the tokens of a text with blanks, without the chat template."""
        tokens: list[int] = []
        for part in cut_at_blanks(text, self.mask):
            tokens += [self.mask_id] * part if isinstance(part, int) else self._tokenize(part, "text")
        return tokens

    def answer(self, tokens: Sequence[int]) -> str:
        """Return the text of an answer up to its first end token, without control tokens; masks stay visible."""
        return self.decode([*takewhile(lambda token: token not in self.eos_ids, tokens)], skip_special_tokens=True)

    def text(self, tokens: Sequence[int]) -> str:
        return self.decode(tokens)

    def decode(self, tokens: Sequence[int], skip_special_tokens: bool = False) -> str:
        """Return the text of all tokens, by default with control tokens; an id without a token is spelled <id>."""
        # Masks, and tokens without a text, are spelled by signs of ours.
        known = {token for token in tokens if 0 <= token < 2**32 and self.tokenizer.id_to_token(token) is not None}
        signs = {token: f"<{token}>" for token in tokens if token not in known} | {self.mask_id: self.mask}
        pieces: list[str] = []
        for sign, group in groupby(tokens, key=lambda token: signs.get(token, "")):
            run = list(group)
            # Decoded in runs, because a character may consist of several tokens.
            plain = "" if sign else self.tokenizer.decode(run, skip_special_tokens=skip_special_tokens)
            pieces.append(sign * len(run) or plain)
        return "".join(pieces)

    def _tokenize(self, text: str, what: str, add_special_tokens: bool = False) -> list[int]:
        """Tokenize a text; refuse one that UTF-8 cannot write, which the tokenizer would change silently."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(
                f"the {what} holds {text[error.start]!r} at character {error.start}, half of a character; allowed: "
                "text that UTF-8 can write; repair how it was read"
            ) from error
        tokens: list[int] = self.tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return tokens


def _check_conversation(prompt: Prompt) -> list[dict[str, str]]:
    """Return a prompt as a list of messages; refuse malformed ones and a last message that is not the user's."""
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    allowed = 'a text, or messages such as {"role": "user", "content": "Hello"}'
    require(isinstance(prompt, Sequence) and len(prompt) > 0, "prompt", prompt, allowed, "write one message or more")
    for n, message in enumerate(prompt):
        ok = isinstance(message, Mapping) and set(message) == {"role", "content"}
        require(ok, f"message {n} of the prompt", message, "role and content", "write these two keys and no others")
        role, content = message["role"], message["content"]
        require(role in ROLES, f"role of message {n}", role, ", ".join(ROLES), "name who speaks")
        require(isinstance(content, str), f"content of message {n}", content, "a text", "pass a string")
    role = prompt[-1]["role"]
    require(role == "user", "role of the last message", role, "user", "end with what the model is to answer")
    return [{"role": message["role"], "content": message["content"]} for message in prompt]
