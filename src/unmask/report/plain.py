"""Values as JSON has them."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

from unmask.stats import Estimate


def plain(value: Any) -> Any:
    """JSON has neither NaN nor infinity."""
    if isinstance(value, Estimate):
        ends = {end: plain(getattr(value, end)) for end in ("value", "low", "high")}
        return {**ends, "undefined": value.undefined}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value
