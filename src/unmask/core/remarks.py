"""What a user is told once and then no more: which way of running was given up, and why."""

import inspect
import warnings
from functools import cache


@cache
def say_once(remark: str) -> None:
    """A warning at the line of whoever called the package."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and _ours(str(frame.f_globals.get("__name__", ""))):
        frame, level = frame.f_back, level + 1
    warnings.warn(remark, stacklevel=level + 1)


def _ours(module: str) -> bool:
    return module.partition(".")[0] in ("unmask", "torch")
