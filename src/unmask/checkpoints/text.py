"""Tokenizers and chat templates of published checkpoints, read without running any code the checkpoint brings."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from itertools import groupby, takewhile
from operator import itemgetter
from pathlib import Path
from typing import Any

import jinja2
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError
from jinja2.utils import Namespace
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from unmask.checkpoints.config import read_json
from unmask.denoisers.codec import MASK_WORD, Prompt, cut_at_blanks
from unmask.errors import CheckpointError, ConfigError, require

_QWEN2 = ("DreamTokenizer", "Qwen2Tokenizer", "Qwen2TokenizerFast")
_QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_ROLES = ("system", "user", "assistant")

MOST_RENDERED = 1_000_000
"""Characters a template may write beyond twice the messages' own: no conversation needs them, a runaway loop does."""


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a checkpoint folder: its tokenizer.json, or Qwen2's kind from vocab.json and merges.txt.

    Every token has the id its file gives it. The `tokenizers` package alone would renumber added tokens silently
    where their ids clash or leave holes.
    """
    whole = folder / "tokenizer.json"
    if whole.exists():
        return _from_one_file(whole)
    settings = folder / "tokenizer_config.json"
    if not settings.exists() and not (folder / "vocab.json").exists():
        raise CheckpointError(
            f"{folder} has no tokenizer; allowed: a tokenizer.json, or vocab.json, merges.txt and "
            "tokenizer_config.json; download the missing files"
        )
    name = read_json(settings).get("tokenizer_class")
    if name not in _QWEN2:
        raise CheckpointError(
            f"'tokenizer_class' in {settings} is {name!r}, and there is no tokenizer.json; allowed: "
            f"{', '.join(_QWEN2)}, or any class with a tokenizer.json; save the tokenizer as a fast one (transformers: "
            "save_pretrained)"
        )
    return _from_byte_pairs(folder)


def _from_one_file(path: Path) -> Tokenizer:
    document = read_json(path)
    try:
        tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the package raises nothing narrower
        raise CheckpointError(
            f"{path} is no tokenizer ({error}); allowed: what the tokenizers package writes; download it again, or "
            "install a newer tokenizers"
        ) from error
    # How long a text may be is decided elsewhere, and loudly.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    _check_ids(tokenizer, [(entry["content"], entry["id"]) for entry in document.get("added_tokens") or []], path)
    settings = path.with_name("tokenizer_config.json")
    if settings.exists() and "added_tokens_decoder" in read_json(settings):
        _add_tokens(tokenizer, path.parent)
    ids = tokenizer.get_vocab(with_added_tokens=True)
    if len(set(ids.values())) < len(ids):
        number = next(number for text, number in ids.items() if tokenizer.id_to_token(number) != text)
        texts = sorted(text for text, other in ids.items() if other == number)
        raise CheckpointError(
            f"{path} gives the id {number} to {' and '.join(map(repr, texts))}; allowed: an id for each token; "
            "download the file again"
        )
    return tokenizer


def _from_byte_pairs(folder: Path) -> Tokenizer:
    """Qwen2's byte-level BPE, which Dream shares."""
    vocabulary, merges = _read_vocabulary(folder / "vocab.json"), _read_merges(folder / "merges.txt")
    try:
        tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    except Exception as error:  # the package raises nothing narrower
        raise CheckpointError(
            f"{folder / 'merges.txt'} does not fit vocab.json ({error}); allowed: merges whose parts and results "
            "are in the vocabulary; download both files again"
        ) from error
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_QWEN2_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    _add_tokens(tokenizer, folder)
    return tokenizer


def _read_vocabulary(path: Path) -> dict[str, int]:
    vocabulary = read_json(path)
    token_of: dict[int, str] = {}
    for token, number in vocabulary.items():
        if not isinstance(number, int) or isinstance(number, bool):
            raise CheckpointError(
                f"the id of {token!r} in {path} is {number!r}; allowed: whole numbers; download the file again"
            )
        if number in token_of:
            raise CheckpointError(
                f"{path} gives the id {number} to {token_of[number]!r} and {token!r}; allowed: an id for each token; "
                "download the file again"
            )
        token_of[number] = token
    for number in range(len(vocabulary)):
        if number not in token_of:
            raise CheckpointError(
                f"{path} has {len(vocabulary)} tokens but none with id {number}; allowed: the ids from 0 up without a "
                "hole; download the file again"
            )
    # A byte without a token would vanish from every text without a word.
    for letter in sorted(pre_tokenizers.ByteLevel.alphabet()):
        if letter not in vocabulary:
            raise CheckpointError(
                f"{path} has no token {letter!r}, which stands for a byte; allowed: vocabularies with all 256 bytes; "
                "download the file again"
            )
    return vocabulary


def _read_merges(path: Path) -> list[tuple[str, str]]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}); allowed: a text file with a merge on each line; download it again"
        ) from error
    merges: list[tuple[str, str]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or (number == 1 and line.startswith("#version:")):
            continue
        parts = line.split()
        if len(parts) != 2:
            raise CheckpointError(
                f"line {number} of {path} is {line!r}; allowed: two parts to merge; download the file again"
            )
        merges.append((parts[0], parts[1]))
    return merges


def _add_tokens(tokenizer: Tokenizer, folder: Path) -> None:
    """Add the tokens that tokenizer_config.json (or, in older folders, added_tokens.json) lists, under their ids."""
    path, legacy = folder / "tokenizer_config.json", folder / "added_tokens.json"
    entries = read_json(path).get("added_tokens_decoder")
    if isinstance(entries, dict):
        pairs = list(entries.items())
    elif entries is not None:
        raise CheckpointError(
            f"'added_tokens_decoder' in {path} is a {type(entries).__name__}; allowed: ids with their tokens; download "
            "the file again"
        )
    else:
        path, special = legacy, _special_texts(folder)
        known = read_json(path) if path.exists() else {}
        pairs = [(number, {"content": text, "special": text in special}) for text, number in known.items()]
    listed = sorted((_added_token(number, entry, path) for number, entry in pairs), key=itemgetter(0))
    tokenizer.add_tokens([token for _, token in listed if tokenizer.token_to_id(token.content) is None])
    _check_ids(tokenizer, [(token.content, number) for number, token in listed], path)


def _added_token(number: Any, entry: Any, path: Path) -> tuple[int, AddedToken]:
    try:
        flags = {flag: entry[flag] for flag in _FLAGS if flag in entry}
        return int(number), AddedToken(entry["content"], **{"normalized": not flags.get("special"), **flags})
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path} lists the added token {number!r}: {entry!r}; allowed: a whole number with the token's text and "
            "flags; download the file again"
        ) from error


def _check_ids(tokenizer: Tokenizer, added: Iterable[tuple[str, int]], path: Path) -> None:
    for text, number in added:
        got = tokenizer.token_to_id(text)
        if got != number:
            raise CheckpointError(
                f"{path} gives the added token {text!r} the id {number}, but its place in the sequence is {got}; "
                "allowed: ids that follow the vocabulary without a hole or a clash; download the tokenizer files again"
            )


def _special_tokens(folder: Path) -> dict[str, str]:
    """The named tokens that a template may write: bos_token, eos_token and so on."""
    found: dict[str, str] = {}
    # The second file is the one transformers goes by.
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        path = folder / name
        for key, value in (read_json(path) if path.exists() else {}).items():
            text = value.get("content") if isinstance(value, dict) else value
            if key.endswith("_token") and isinstance(text, str):
                found[key] = text
    return found


def _special_texts(folder: Path) -> list[str]:
    more = read_json(folder / "tokenizer_config.json").get("additional_special_tokens")
    return [*_special_tokens(folder).values(), *(more if isinstance(more, list) else [])]


@dataclass(frozen=True)
class ChatTemplate:
    """How a checkpoint writes a conversation: a Jinja template of strangers, rendered in Jinja's sandbox.

    The sandbox keeps a template from files, modules and Python's internals, and its output is capped. It bounds
    neither time nor memory: a template that loops or hoards without writing anything can still hang the process.
    """

    source: str
    tokens: Mapping[str, str] = field(default_factory=dict)
    """What the template may call bos_token, eos_token, …"""
    origin: str = "the chat template"
    """Where it comes from, for messages."""

    @classmethod
    def read(cls, folder: Path) -> "ChatTemplate | None":
        """The template of a checkpoint folder, or None if it has none; a file of its own goes before a key."""
        path = folder / "chat_template.jinja"
        if path.exists():
            try:
                source: Any = path.read_text(encoding="utf-8")
            except (OSError, ValueError) as error:
                raise CheckpointError(
                    f"{path} cannot be read ({error}); allowed: a text file; download it again"
                ) from error
            return cls._of(source, folder, path)
        for name in ("chat_template.json", "tokenizer_config.json"):
            path = folder / name
            source = read_json(path).get("chat_template") if path.exists() else None
            if source is not None:
                return cls._of(source, folder, path)
        return None

    @classmethod
    def _of(cls, source: Any, folder: Path, path: Path) -> "ChatTemplate":
        if isinstance(source, list):
            named = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
            source = named.get("default")
        if not isinstance(source, str):
            raise CheckpointError(
                f"'chat_template' in {path} is no template; allowed: a text, or a list of named templates with one "
                "called default; download the file again, or load with chat=False"
            )
        return cls(source, _special_tokens(folder), f"the chat template in {path}")

    def render(self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True) -> str:
        """The conversation as the model was trained to read it; by default up to where the answer starts."""
        most = MOST_RENDERED + 2 * sum(len(str(message.get("content"))) for message in messages)
        written = ""
        try:
            for piece in _compiled(self.source).generate(
                # Copies, because a template may not meet anything but plain data.
                messages=[dict(message) for message in messages],
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **self.tokens,
            ):
                written += piece
                if len(written) > most:
                    break
        except _Refused as error:
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
            place = f" in line {error.lineno}" if isinstance(error, jinja2.TemplateSyntaxError) else ""
            raise CheckpointError(
                f"{self.origin} fails{place} ({type(error).__name__}: {error}); allowed: templates that render; "
                "download the file again, or load with chat=False"
            ) from error
        if len(written) > most:
            raise CheckpointError(
                f"{self.origin} writes {len(written)} characters or more; allowed: {most} for this conversation; the "
                "template runs away, load with chat=False"
            )
        return written


class _Refused(Exception):
    """A template called raise_exception."""


class _Generation(Extension):
    """{% generation %} marks an answer for training; here it only shows what it encloses."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _PlainNamespace(Namespace):
    """A namespace without underscored names, which could pass for Python's internals."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        given = dict(*args[1:], **kwargs)
        for name in given:
            _refuse_underscore(name)
        Namespace.__init__(args[0], given)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_underscore(name)
        super().__setitem__(name, value)


def _refuse_underscore(name: object) -> None:
    if str(name).startswith("_"):
        raise SecurityError(f"namespace attribute {name!r}")


@lru_cache(maxsize=8)
def _compiled(source: str) -> jinja2.Template:
    """The template with all that transformers gives to published ones."""
    sandbox = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    sandbox.filters["tojson"] = _to_json
    sandbox.globals |= {
        "raise_exception": _raise,
        "strftime_now": lambda format: datetime.now().strftime(format),
        "dict": lambda *args, **kwargs: dict(*args, **kwargs),
        "namespace": _PlainNamespace,
    }
    return sandbox.from_string(source)


def _raise(message: object) -> None:
    raise _Refused(str(message))


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Jinja's own filter would escape HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


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
        tokenizer, path = read_tokenizer(folder), _file(folder)
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
                f"prompt is a {type(prompt).__name__}; allowed: one text, because there is no chat template in use; "
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


def _file(folder: Path) -> Path:
    """The file that a tokenizer's tokens come from, for messages."""
    whole = folder / "tokenizer.json"
    return whole if whole.exists() else folder / "tokenizer_config.json"


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
