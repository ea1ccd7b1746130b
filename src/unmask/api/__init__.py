"""The interface that a user calls. Names are looked up on first use, so that options are read without loading torch.

`load` is not among them, because its module has the same name: it is `unmask.load`, or `unmask.api.load.load`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unmask.api.likelihood import Likelihoods
    from unmask.api.load import MODELS, ExactOptions, check_model_name, find_saved_codec, find_text_info
    from unmask.api.model import Generation, Model
    from unmask.api.options import DecodeOptions, check_options
    from unmask.api.request import (
        STEPS_SHARE,
        LoadedModel,
        Request,
        TextInfo,
        check_texts,
        count_steps,
        get_text_info,
        infill_request,
        prompt_request,
        start_trajectory,
        token_request,
    )
    from unmask.api.resolve import SELECTIVE, json_values, policy_from_config

__all__ = [
    "MODELS",
    "SELECTIVE",
    "STEPS_SHARE",
    "DecodeOptions",
    "ExactOptions",
    "Generation",
    "Likelihoods",
    "LoadedModel",
    "Model",
    "Request",
    "TextInfo",
    "check_model_name",
    "check_options",
    "check_texts",
    "count_steps",
    "find_saved_codec",
    "find_text_info",
    "get_text_info",
    "infill_request",
    "json_values",
    "policy_from_config",
    "prompt_request",
    "start_trajectory",
    "token_request",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'unmask.api' has no attribute {name!r}; public names: {', '.join(__all__)}")
    # In this order, so that options are found before torch is loaded.
    for module in ("options", "request", "resolve", "likelihood", "model", "load"):
        found = import_module(f"unmask.api.{module}")
        if hasattr(found, name):
            return getattr(found, name)
