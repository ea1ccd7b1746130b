"""From a prompt to a canvas, its steps and its random numbers: one place for `generate`, `compare` and studies.

Whoever decodes a prompt goes through here, so that the same prompt, seed and policy give the same answer everywhere.
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
"""Steps / blanks when nobody says: two tokens per step."""


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
    """What of a model turns prompts into canvases, and says how large they may be: known without its weights."""

    codec: Codec
    vocab: int
    """Tokens that a position may hold."""
    max_length: int | None
    """Positions of the longest canvas."""

    def canvas(self, prompt: Prompt, horizon: int) -> int:
        """Positions of a prompt's canvas, as `generation` makes it."""
        return len(self.codec.encode(prompt)) + horizon + len(self.codec.closing)


def text_side(model: LoadedModel) -> TextSide:
    """Of a model that is loaded."""
    return TextSide(model.codec, model.denoiser.vocabulary.size, model.max_length)


@dataclass(frozen=True)
class Request:
    """One prompt, ready to be decoded."""

    id: str
    canvas: tuple[int, ...]
    given: tuple[bool, ...]
    steps: int
    """T, the planned number of steps."""
    answer: tuple[int, int]
    """Where on the canvas the answer begins and ends."""

    @property
    def blanks(self) -> int:
        """Positions to fill."""
        return self.given.count(False)

    @property
    def key(self) -> bytes:
        """What random numbers know of the prompt: its first canvas, and nothing of its company."""
        return np.array(self.canvas, "<i8").tobytes()

    def padded_length(self, bucket: int) -> int:
        """The canvas rounded up to its bucket: a function of this prompt alone."""
        return -(-len(self.canvas) // bucket) * bucket


def prompt_request(model: LoadedModel, prompt: Prompt, max_new_tokens: int, steps: int, id: str = "") -> Request:
    """A prompt followed by `horizon` blanks."""
    return token_request(model, model.codec.encode(prompt), max_new_tokens, steps, id)


def token_request(model: LoadedModel, prompt: Sequence[int], max_new_tokens: int, steps: int, id: str = "") -> Request:
    """The same for a prompt that is encoded already."""
    closing = model.codec.closing
    canvas = (*prompt, *(model.denoiser.vocabulary.mask_id,) * max_new_tokens, *closing)
    given = (*(True,) * len(prompt), *(False,) * max_new_tokens, *(True,) * len(closing))
    return Request(id, canvas, given, steps, (len(prompt), len(prompt) + max_new_tokens))


def infill_request(model: LoadedModel, text: str, steps: int | None = None, share: float = STEPS_SHARE) -> Request:
    """A text with blanks, all of it the answer; `steps` steps, or a share of the blanks."""
    canvas = tuple(model.codec.canvas(text))
    given = tuple(token != model.denoiser.vocabulary.mask_id for token in canvas)
    blanks = given.count(False)
    require(blanks > 0, "text", text, f"one {model.codec.mask!r} or [MASK] or more", "mark what is to be filled")
    check_length(model, "text", len(canvas))
    return Request("", canvas, given, steps_of(share, blanks) if steps is None else steps, (0, len(canvas)))


def check_length(model: LoadedModel, name: str, needed: int) -> None:
    """Refuse a prompt or text that needs a longer canvas than the model has."""
    if model.max_length is not None and needed > model.max_length:
        raise ConfigError(
            f"the {name} needs a canvas of {needed} positions; allowed: at most {model.max_length} with {model.name}; "
            f"shorten the {name}" + (", or load a longer canvas (n=...)" if model.name == "exact" else "")
        )


def steps_of(share: float, blanks: int) -> int:
    """T as a share of the blanks, rounded up; the one rounding of the package.

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
    """The prompts before their first step, on canvases of `slots`; `streams` tell repeated prompts apart.

    `extra_steps` is the policy's: without it more steps than answer positions are refused.
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


_BOM = "\ufeff"
"""What some editors put before a text; no part of it."""


def entered(prompt: Any) -> Any:
    """A prompt from outside: storable, and without a byte order mark."""
    if isinstance(prompt, str):
        return storable(prompt).removeprefix(_BOM)
    if isinstance(prompt, Mapping):
        return {key: entered(value) for key, value in prompt.items()}
    return [entered(turn) for turn in prompt] if is_conversation(prompt) else prompt


def entered_texts(name: str, given: Any) -> list[Any]:
    """One text or several as a list; a prompt may be a conversation."""
    in_bytes = isinstance(given, bytes | bytearray | memoryview)
    require(not in_bytes, name, given, "a text, or a list of texts", f"decode the bytes: {name}.decode('utf-8')")
    require(isinstance(given, Sequence), name, given, "a text, or a list of texts", f"pass the {name} as a string")
    texts = [given] if isinstance(given, str) else list(given)
    require(bool(texts), name, texts, "one text or more", f"pass a {name}")
    for text in texts:
        ok = isinstance(text, str) or (name == "prompt" and is_conversation(text))
        allowed = "a text, or a list of texts" + (" or conversations" if name == "prompt" else "")
        require(ok, name, text, allowed, f"pass the {name} as a string")
    texts = [entered(text) for text in texts]
    for text in texts:
        require(len(text) > 0, name, text, "one character or more", f"write a {name}")
    return texts


def is_conversation(value: object) -> bool:
    """A list of messages, as opposed to a list of prompts."""
    return isinstance(value, list | tuple) and len(value) > 0 and all(isinstance(turn, Mapping) for turn in value)
