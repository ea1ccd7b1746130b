"""Training of small masked diffusion language models. Names are looked up on first use: workers need no torch."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unmask.train.config import Config as Config
    from unmask.train.loop import Result as Result
    from unmask.train.loop import TrainingProgress as TrainingProgress
    from unmask.train.loop import train as train

_HOME = {"Config": "config", "TrainingProgress": "loop", "Result": "loop", "train": "loop"}
__all__ = ["Config", "Result", "TrainingProgress", "train"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'unmask.train' has no attribute {name!r}; public names: {', '.join(__all__)}")
    return getattr(import_module(f"unmask.train.{_HOME[name]}"), name)
