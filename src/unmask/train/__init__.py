"""Training of small masked diffusion language models, and of the heads that some methods need."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unmask.train.config import TrainConfig as TrainConfig
    from unmask.train.heads import HeadOptions as HeadOptions
    from unmask.train.heads import train_head as train_head
    from unmask.train.trainer import TrainingProgress as TrainingProgress
    from unmask.train.trainer import train as train

_MODULES = {
    "HeadOptions": "heads",
    "TrainConfig": "config",
    "TrainingProgress": "trainer",
    "train": "trainer",
    "train_head": "heads",
}
__all__ = ["HeadOptions", "TrainConfig", "TrainingProgress", "train", "train_head"]


def __getattr__(name: str) -> Any:
    # Imported on first use, because the processes that make training texts import this package without torch.
    if name not in _MODULES:
        raise AttributeError(f"module 'unmask.train' has no attribute {name!r}; public names: {', '.join(__all__)}")
    return getattr(import_module(f"unmask.train.{_MODULES[name]}"), name)
