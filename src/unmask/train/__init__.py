"""Training of small masked diffusion language models, and of the heads that some methods need."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unmask.train.config import TrainConfig
    from unmask.train.heads import HeadOptions, train_head
    from unmask.train.run_folder import list_checkpoints
    from unmask.train.sources import CONSTRUCTED, Folders
    from unmask.train.trainer import TrainingProgress, train

_MODULE_OF = {"TrainConfig": "config", "HeadOptions": "heads", "train_head": "heads", "list_checkpoints": "run_folder"}
_MODULE_OF |= {"CONSTRUCTED": "sources", "Folders": "sources", "TrainingProgress": "trainer", "train": "trainer"}

__all__ = [
    "CONSTRUCTED",
    "Folders",
    "HeadOptions",
    "TrainConfig",
    "TrainingProgress",
    "list_checkpoints",
    "train",
    "train_head",
]


def __getattr__(name: str) -> Any:
    # Imported on first use, because the processes that make training texts import this package without torch.
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'unmask.train' has no attribute {name!r}; public names: {', '.join(__all__)}")
    return getattr(import_module(f"unmask.train.{_MODULE_OF[name]}"), name)
