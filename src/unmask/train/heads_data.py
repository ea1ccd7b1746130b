"""The texts that heads are trained on and judged by: the training streams of the package's own sources, or files."""

from collections.abc import Sequence
from dataclasses import dataclass

from unmask.base.errors import ConfigError
from unmask.request import CalibratedModel
from unmask.train.sources import CONSTRUCTED, FILES, WRITTEN, Folders, generate

LONGEST = 1024
"""Tokens of a canvas; longer ones are left out."""


@dataclass(frozen=True)
class Canvas:
    """A text on its canvas: what is asked, then the answer with its filler."""

    source: str
    tokens: tuple[int, ...]
    start: int
    """Where the answer begins."""


def canvases(
    model: CalibratedModel, count: int, seed: int, held_out: bool, folders: Folders | None = None
) -> list[Canvas]:
    """So many texts, the sources in turn; a folder of texts, where one is given, is the only source."""
    folders = folders or Folders()
    sources = (FILES,) if folders.texts is not None else (*CONSTRUCTED, *WRITTEN)
    share = -(-count // len(sources))
    found = [
        canvas
        for source in sources
        for text in generate(source, seed, held_out, 0, share, folders)
        if (canvas := _canvas(model, source, text.prompt, text.answer, text.room)) is not None
    ]
    if not found:
        raise ConfigError(
            "no text is left to learn from: all are empty or longer than the model's canvas; allowed: one or more; "
            "take shorter ones"
        )
    return [canvas for at in range(share) for canvas in found[at::share]][:count]


def _canvas(model: CalibratedModel, source: str, prompt: str | None, answer: str, room: int | None) -> Canvas | None:
    before = [] if prompt is None else model.codec.encode(prompt)
    tokens: Sequence[int] = model.codec.canvas(answer)
    ends = model.denoiser.vocabulary.eos_ids
    if room is not None and ends:
        tokens = [*tokens, *[ends[0]] * max(1, room - len(tokens))]
    whole = (*before, *tokens)
    if len(tokens) < 2 or len(whole) > min(LONGEST, model.length or LONGEST):
        return None
    return Canvas(source, whole, len(before))
