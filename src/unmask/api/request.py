"""From a prompt to a canvas, its number of steps and its random numbers.

Everything that decodes a prompt goes through here, so that the same prompt, seed and policy give the same answer in
`generate`, in a comparison and in a study.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from unmask.base.errors import ConfigError, require
from unmask.base.files import storable
from unmask.core import Denoiser, Noise, State, Trajectory, row_key
from unmask.models import Codec, Prompt

STEPS_SHARE = 0.5
"""Steps per blank where no number of steps is given: two tokens per step."""

_BYTE_ORDER_MARK = "\ufeff"
"""Some editors put it before a text."""


class LoadedModel(Protocol):
    """A denoiser that reads and writes text; `unmask.Model` is one."""

    @property
    def name(self) -> str: ...
    @property
    def denoiser(self) -> Denoiser: ...
    @property
    def codec(self) -> Codec: ...
    @property
    def options(self) -> Mapping[str, Any]: ...
    @property
    def max_length(self) -> int | None: ...
    @property
    def reference(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...


@dataclass(frozen=True)
class TextSide:
    """Tokenizer and sizes of a model, which are known before its weights are read."""

    codec: Codec
    vocab: int
    """Number of tokens that a position may hold."""
    max_length: int | None
    """Positions of the longest canvas."""

    def canvas(self, prompt: Prompt, max_new_tokens: int) -> int:
        """Count the positions of a prompt's canvas, as `prompt_request` makes it."""
        return len(self.codec.encode(prompt)) + max_new_tokens + len(self.codec.closing)

    def blank_canvas(self, text: str) -> int:
        """Count the positions of the canvas of a text with blanks, as `infill_request` makes it."""
        return len(self.codec.canvas(text))


def text_side(model: LoadedModel) -> TextSide:
    """Return codec, vocabulary size and longest canvas of a loaded model."""
    return TextSide(model.codec, model.denoiser.vocabulary.size, model.max_length)


@dataclass(frozen=True)
class Request:
    """A prompt ready to be decoded."""

    id: str
    canvas: tuple[int, ...]
    given: tuple[bool, ...]
    steps: int
    """The planned number of steps, T."""
    answer: tuple[int, int]
    """Where on the canvas the answer begins and ends."""

    @property
    def blanks(self) -> int:
        """Number of positions to fill."""
        return self.given.count(False)

    @property
    def key(self) -> bytes:
        """The prompt's part in its row key: bytes of its first canvas, and of nothing beside it."""
        # Of 64 bits and little-endian on every machine, or the same seed would draw other numbers.
        return np.array(self.canvas, "<i8").tobytes()

    def padded_length(self, bucket: int) -> int:
        """Round the length of the canvas up to a multiple of `bucket`: a function of this prompt alone."""
        return -(-len(self.canvas) // bucket) * bucket


def prompt_request(model: LoadedModel, prompt: Prompt, max_new_tokens: int, steps: int, id: str = "") -> Request:
    """Make the request of a prompt: its tokens, then `max_new_tokens` blanks."""
    return token_request(model, model.codec.encode(prompt), max_new_tokens, steps, id)


def token_request(model: LoadedModel, prompt: Sequence[int], max_new_tokens: int, steps: int, id: str = "") -> Request:
    """Make the request of a prompt that is encoded already."""
    # Given, so that a method fills the blanks between prompt and end, and never moves the end.
    closing = model.codec.closing
    canvas = (*prompt, *(model.denoiser.vocabulary.mask_id,) * max_new_tokens, *closing)
    given = (*(True,) * len(prompt), *(False,) * max_new_tokens, *(True,) * len(closing))
    return Request(id, canvas, given, steps, (len(prompt), len(prompt) + max_new_tokens))


def infill_request(model: LoadedModel, text: str, steps: int | None = None, share: float = STEPS_SHARE) -> Request:
    """Make the request of a text with blanks, all of it the answer; without `steps` a share of the blanks."""
    canvas = tuple(model.codec.canvas(text))
    given = tuple(token != model.denoiser.vocabulary.mask_id for token in canvas)
    blanks = given.count(False)
    require(blanks > 0, "text", text, f"one {model.codec.mask!r} or [MASK] or more", "mark what is to be filled")
    return Request("", canvas, given, steps_of(share, blanks) if steps is None else steps, (0, len(canvas)))


def check_length(model: LoadedModel, name: str, needed: int) -> None:
    """Refuse a prompt or text that needs a longer canvas than the model has."""
    if model.max_length is not None and needed > model.max_length:
        raise ConfigError(
            f"the {name} needs a canvas of {needed} positions; allowed: at most {model.max_length} with {model.name}; "
            f"shorten the {name}" + (", or load a longer canvas (n=...)" if model.name == "exact" else "")
        )


def steps_of(share: float, blanks: int) -> int:
    """Return the number of steps for a share of the blanks, rounded up.

    A product such as 0.07 * 100 may lie a rounding error above its whole number, hence the tolerance.
    """
    return max(math.ceil(share * blanks - 1e-9), 1)


def start_trajectory(
    denoiser: Denoiser,
    requests: Sequence[Request],
    seed: int,
    slots: int | None = None,
    streams: Sequence[int] = (),
    extra_steps: bool = False,
) -> Trajectory:
    """Make the trajectory of requests before their first step, on canvases of `slots` positions.

    `streams` tell repeated prompts apart. `extra_steps` is the policy's: without it more steps than answer positions
    are refused.
    """
    device = denoiser.device
    state = State.from_canvases(
        [request.canvas for request in requests],
        steps=[request.steps for request in requests],
        mask_id=denoiser.vocabulary.mask_id,
        given=[request.given for request in requests],
        device=device,
        extra_steps=extra_steps,
    )
    keys = [row_key(seed, request.key, s) for request, s in zip(requests, streams or [0] * len(requests), strict=True)]
    return Trajectory.start(state if slots is None else state.pad_to(slots), Noise.of(keys, device))


# Prompts and texts as they enter


def is_conversation(value: object) -> bool:
    """Whether a value is a list of messages, which is one prompt, and not a list of prompts."""
    return isinstance(value, list | tuple) and len(value) > 0 and all(isinstance(turn, Mapping) for turn in value)


def check_texts(name: str, given: Any) -> list[Any]:
    """Check one text or several, called `name` in messages, and return a list. A "prompt" may be a conversation."""
    if name == "prompt" and is_conversation(given):
        return [_clean_prompt(given)]
    # Bytes are a sequence too: each would be taken for a text of its own.
    in_bytes = isinstance(given, bytes | bytearray | memoryview)
    require(not in_bytes, name, given, "a text, or a list of texts", f"decode the bytes: {name}.decode('utf-8')")
    require(isinstance(given, Sequence), name, given, "a text, or a list of texts", f"pass the {name} as a string")
    texts = [given] if isinstance(given, str) else list(given)
    require(bool(texts), name, texts, "one text or more", f"pass a {name}")
    for at, text in enumerate(texts):
        ok = isinstance(text, str) or (name == "prompt" and is_conversation(text))
        allowed = "a text, or a list of texts" + (" or conversations" if name == "prompt" else "")
        require(ok, name, text, allowed, f"pass the {name} as a string")
        texts[at] = _clean_prompt(text)
        # Only now: a text of a byte order mark alone is empty.
        require(len(texts[at]) > 0, name, texts[at], "one character or more", f"write a {name}")
    return texts


def _clean_prompt(prompt: Any) -> Any:
    """Return a prompt whose text every file can hold, without a byte order mark."""
    if isinstance(prompt, str):
        return storable(prompt).removeprefix(_BYTE_ORDER_MARK)
    if isinstance(prompt, Mapping):
        return {key: _clean_prompt(value) for key, value in prompt.items()}
    return [_clean_prompt(turn) for turn in prompt] if is_conversation(prompt) else prompt
