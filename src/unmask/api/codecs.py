"""The text of stored tokens: a model's tokenizer as far as it is on this machine, without the model's weights."""

from collections.abc import Mapping
from typing import Any

from unmask.api.load import text_side_of
from unmask.base.errors import UnmaskError
from unmask.models import Codec


def codec_of(name: str, options: Mapping[str, Any]) -> Codec | None:
    """Of a model by its name and the options it was loaded with, which may come from any file; None if it is not here.

    Without the chat template: nothing is asked, and a file should not choose code to run.
    """
    try:
        side = text_side_of(name, dict(options) if name == "exact" else {**options, "chat": False})
    except (UnmaskError, OSError, TypeError, ValueError):
        return None
    return None if side is None else side.codec


def codec_of_run(config: Mapping[str, Any] | None) -> Codec | None:
    """Of the model that the configuration of a run names; None if it names none, or that one's is not here."""
    made_by = (config or {}).get("model")
    if not isinstance(made_by, Mapping) or not isinstance(made_by.get("name"), str):
        return None
    return codec_of(made_by["name"], {key: value for key, value in made_by.items() if key != "name"})
