"""What a family of checkpoints is: names, meaning of its configuration, and how its answers end."""

from collections.abc import Callable
from dataclasses import dataclass

from unmask.checkpoints.config import CheckpointConfig
from unmask.checkpoints.weights import Names
from unmask.denoisers.transformer import Spec


@dataclass(frozen=True)
class Family:
    """Everything that differs between families and is not a number in config.json."""

    name: str
    """Ours."""
    model_type: str
    """As config.json spells it."""
    names: Names
    spec: Callable[[CheckpointConfig], Spec]
    shift: int
    """How many slots before a position its logits are read: 0, or 1 for models trained from a causal one."""
    length: str
    """The key of the longest sequence."""
    usable: int | None
    """A shorter limit stated by the authors."""
    mask: str
    """The text of the mask token: an id that means another one would decode nonsense without a word."""
    ends: tuple[str, ...]
    """Tokens that end an answer, besides config.json's end of text."""
    policy: str
    """The method the authors decode with: this model's reference."""
