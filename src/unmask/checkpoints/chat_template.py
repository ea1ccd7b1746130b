"""Chat templates of published checkpoints, rendered without running any code the checkpoint brings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unmask.base.errors import CheckpointError, ConfigError, UnmaskError
from unmask.checkpoints.config import read_json, read_text
from unmask.checkpoints.template_child import MEMORY
from unmask.checkpoints.template_process import SECONDS, render_apart
from unmask.checkpoints.tokenizer import special_tokens

MOST_RENDERED = 1_000_000
"""Characters a template may write beyond twice the messages' own: no conversation needs them, a runaway loop does."""


@dataclass(frozen=True)
class ChatTemplate:
    """How a checkpoint writes a conversation: a Jinja template of strangers, rendered in Jinja's sandbox.

    The sandbox keeps a template from files, modules and Python's internals. It runs in another process, which bounds
    its time and memory (`template_process`), and its output is capped.
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
            return cls._of(read_text(path), folder, path)
        for name in ("chat_template.json", "tokenizer_config.json"):
            path = folder / name
            source: Any = read_json(path).get("chat_template") if path.exists() else None
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
        values = {
            "messages": [dict(message) for message in messages],
            "tools": None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        kind, *about = render_apart(self.source, values | dict(self.tokens), most)
        if kind == "text":
            return str(about[0])
        raise self._error(kind, about, most)

    def _error(self, kind: str, about: Sequence[Any], most: int) -> UnmaskError:
        """What went wrong in the process that renders, in words."""
        if kind == "refused":
            return ConfigError(
                f"{self.origin} refuses the conversation: {about[0]}; allowed: what the template accepts; change the "
                "messages"
            )
        if kind == "security":
            return CheckpointError(
                f"{self.origin} reaches out of its sandbox ({about[0]}); allowed: templates that only write text; do "
                "not trust this checkpoint, or load with chat=False"
            )
        if kind == "fails":
            name, message, line = about
            place = "" if line is None else f" in line {line}"
            return CheckpointError(
                f"{self.origin} fails{place} ({name}: {message}); allowed: templates that render; download the file "
                "again, or load with chat=False"
            )
        if kind == "long":
            return CheckpointError(
                f"{self.origin} writes {about[0]} characters or more; allowed: {most} for this conversation; the "
                "template runs away, load with chat=False"
            )
        what = about[0] if kind == "stopped" else f"takes more than {MEMORY >> 20} MiB of memory"
        return CheckpointError(
            f"{self.origin} {what}; allowed: {SECONDS:g} s and {MEMORY >> 20} MiB, a thousand times what published "
            "templates take; do not trust this checkpoint, or load with chat=False"
        )
