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
"""Default number of steps per blank: two tokens in a step."""

_BYTE_ORDER_MARK = "\ufeff"
"""Character that some editors put before a text; it is removed from prompts."""


class LoadedModel(Protocol):
    """Interface of a loaded model, which `unmask.Model` implements."""

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
class TextInfo:
    """Tokenizer and sizes of a model, known before its weights are read."""

    codec: Codec
    vocab: int
    """Number of tokens that a position may hold."""
    max_length: int | None
    """Positions of the longest canvas."""

    def count_prompt_canvas(self, prompt: Prompt, max_new_tokens: int) -> int:
        """Count the positions of the canvas of a prompt with `max_new_tokens` blanks."""
        return len(self.codec.encode(prompt)) + max_new_tokens + len(self.codec.closing)

    def count_infill_canvas(self, text: str) -> int:
        """Count the positions of the canvas of a text with blanks."""
        return len(self.codec.canvas(text))


def get_text_info(model: LoadedModel) -> TextInfo:
    """Return codec, vocabulary size and longest canvas of a loaded model."""
    return TextInfo(model.codec, model.denoiser.vocabulary.size, model.max_length)


@dataclass(frozen=True)
class Request:
    """A prompt ready to be decoded: its canvas, given flags and number of steps."""

    id: str
    canvas: tuple[int, ...]
    given: tuple[bool, ...]
    steps: int
    """The planned number of steps, T."""
    answer: tuple[int, int]
    """Start and end of the answer on the canvas."""

    @property
    def blanks(self) -> int:
        """Number of positions to fill."""
        return self.given.count(False)

    @property
    def key(self) -> bytes:
        """Bytes of the canvas before the first step, from which the row's random numbers are derived."""
        # Of 64 bits and little-endian on every machine, or the same seed would draw other numbers.
        return np.array(self.canvas, "<i8").tobytes()

    def padded_length(self, bucket: int) -> int:
        """Return the length of the canvas, rounded up to a multiple of `bucket`."""
        return -(-len(self.canvas) // bucket) * bucket


def prompt_request(model: LoadedModel, prompt: Prompt, max_new_tokens: int, steps: int, id: str = "") -> Request:
    """Make the request of a prompt: its tokens, followed by `max_new_tokens` blanks."""
    return token_request(model, model.codec.encode(prompt), max_new_tokens, steps, id)


def token_request(model: LoadedModel, prompt: Sequence[int], max_new_tokens: int, steps: int, id: str = "") -> Request:
    """Make the request of a prompt that is given as tokens."""
    # Given, so that a method fills the blanks between prompt and end, and never moves the end.
    closing = model.codec.closing
    canvas = (*prompt, *(model.denoiser.vocabulary.mask_id,) * max_new_tokens, *closing)
    given = (*(True,) * len(prompt), *(False,) * max_new_tokens, *(True,) * len(closing))
    return Request(id, canvas, given, steps, (len(prompt), len(prompt) + max_new_tokens))


def infill_request(model: LoadedModel, text: str, steps: int | None = None, share: float = STEPS_SHARE) -> Request:
    """Make the request of a text with blanks; without `steps`, their number is `share` times the blanks."""
    canvas = tuple(model.codec.canvas(text))
    given = tuple(token != model.denoiser.vocabulary.mask_id for token in canvas)
    blanks = given.count(False)
    require(blanks > 0, "text", text, f"one {model.codec.mask!r} or [MASK] or more", "mark what is to be filled")
    return Request("", canvas, given, count_steps(share, blanks) if steps is None else steps, (0, len(canvas)))


def check_length(model: LoadedModel, name: str, needed: int) -> None:
    """Refuse a prompt or text that needs a longer canvas than the model allows."""
    if model.max_length is not None and needed > model.max_length:
        raise ConfigError(
            f"the {name} needs a canvas of {needed} positions; allowed: at most {model.max_length} with {model.name}; "
            f"shorten the {name}" + (", or load a longer canvas (n=...)" if model.name == "exact" else "")
        )


def count_steps(share: float, blanks: int) -> int:
    """Return the number of steps: `share` times the number of blanks, rounded up.

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
    """Make the starting trajectory of some requests, on canvases padded to `slots` positions.

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
    """Tell whether a value is one conversation: a list of messages, not a list of prompts."""
    return isinstance(value, list | tuple) and len(value) > 0 and all(isinstance(turn, Mapping) for turn in value)


def check_texts(name: str, given: Any) -> list[Any]:
    """Return one text or several as a list; refuse values that are no text, and call them `name` in the error."""
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
    """Return a prompt without a byte order mark, and with lone surrogates replaced, so that every file can hold it."""
    if isinstance(prompt, str):
        return storable(prompt).removeprefix(_BYTE_ORDER_MARK)
    if isinstance(prompt, Mapping):
        return {key: _clean_prompt(value) for key, value in prompt.items()}
    return [_clean_prompt(turn) for turn in prompt] if is_conversation(prompt) else prompt
