"""The text of stored tokens: a model's tokenizer as far as it is on this machine, without the model's weights."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unmask.denoisers import Codec
    from unmask.lab.store import Store


def codec_of(name: str, options: Mapping[str, Any]) -> "Codec | None":
    """As `catalog.codec_of` has it, which is loaded when it is asked."""
    from unmask import catalog

    return catalog.codec_of(name, options)


def codecs_of(store: "Store") -> "dict[str, Codec]":
    """Of a study's models, by name; those whose tokenizer is not here are left out."""
    specs = store.manifest["study"]["models"]
    found = {spec["name"]: codec_of(spec["model"], spec.get("options", {})) for spec in specs}
    return {name: codec for name, codec in found.items() if codec is not None}
