"""Values against the names of their fields: `tokens_BL` has two axes, and B is one number in all of a value.

For what was read from a file, which may hold anything.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints

import torch
from torch import Tensor

from unmask.base.errors import SchemaError
from unmask.base.options import fits

FLOATS = {
    *("alpha", "kappa", "p", "entropy", "confidence", "proposed", "logz", "given", "drift", "displacement"),
    *("attention", "visible", "hidden"),
}
WHOLE = {
    *("tokens", "length", "step", "horizon", "rows", "key", "token", "top"),
    *("forwards", "processed", "planner_forwards", "remasks"),
}
"""Fields of floats and of whole numbers, without their axes; all others are truth values."""

_FLOATS = (torch.float32, torch.float64)

LEAST = {"tokens": -1, "token": 0, "top": 0, "length": 1, "step": 0, "horizon": 1, "forwards": 0, "processed": 0}


def check_value(value: Any, name: str, sizes: dict[str, int]) -> None:
    """A dataclass of ours and all in it; `sizes` are the axes that are known, and become those that are found."""
    hints = get_type_hints(type(value))
    for field in fields(value):
        part, hint = getattr(value, field.name), hints[field.name]
        where = f"{name}.{field.name}"
        if isinstance(part, Tensor):
            _must(hint in (Tensor, Tensor | None), where, "is an array")
            _check_tensor(part, where, field.name, sizes)
        elif part is None:
            _must(hint == Tensor | None or type(None) in getattr(hint, "__args__", ()), where, "is missing")
        elif is_dataclass(part):
            _must(type(part) in (hint, *getattr(hint, "__args__", ())), where, f"is a {type(part).__name__}")
            check_value(part, where, sizes)
        elif hint in (int, float, bool, str, str | None):
            _must(fits(part, hint), where, f"is {part!s:.50}")
        else:
            _must(isinstance(part, tuple | Mapping), where, f"is {part!s:.50}")


def _check_tensor(tensor: Tensor, where: str, name: str, sizes: dict[str, int]) -> None:
    stem, _, letters = name.rpartition("_")
    kinds = _FLOATS if stem in FLOATS else (torch.int64,) if stem in WHOLE else (torch.bool,)
    _must(tensor.dtype in kinds, where, f"holds {tensor.dtype}")
    _must(tensor.ndim == len(letters), where, f"has {tensor.ndim} axes")
    for letter, size in zip(letters, tensor.shape, strict=True):
        _must(sizes.setdefault(letter, size) == size, where, f"has {size} of {letter}, not {sizes[letter]}")
    least = LEAST.get(stem)
    if least is not None and tensor.numel():
        _must(int(tensor.min()) >= least, where, f"holds {int(tensor.min())}, below {least}")


def _must(ok: bool, where: str, what: str) -> None:
    if not ok:
        raise SchemaError(f"{where} {what}")
