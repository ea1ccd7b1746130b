"""Chat templates of published checkpoints, rendered without running any code the checkpoint brings."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError
from jinja2.utils import Namespace

from unmask.checkpoints.config import read_json
from unmask.checkpoints.tokenizer import special_tokens
from unmask.errors import CheckpointError, ConfigError

MOST_RENDERED = 1_000_000
"""Characters a template may write beyond twice the messages' own: no conversation needs them, a runaway loop does."""


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
        return cls(source, special_tokens(folder), f"the chat template in {path}")

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


class _GenerationTag(Extension):
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
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, "jinja2.ext.loopcontrols"]
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
