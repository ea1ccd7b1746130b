"""What a method's class says of itself: where it comes from, its row of the taxonomy, and how far it can be trusted."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

VERIFIED = "verified"
"""Against the authors' code: the same tokens on the same network, apart from what `differs` says."""
RECONSTRUCTION = "reconstruction"
"""Parts are ours, or untested against the authors' files: from the paper or others' words. `differs` says which."""
OURS = "this library"
LABELS = (VERIFIED, RECONSTRUCTION, OURS)


@dataclass(frozen=True)
class Card:
    """One line of the paper's extended taxonomy, and what a reader of results has to know."""

    citation: str
    score: str
    cardinality: str
    region: str
    commitment: str
    planning: str = "none"
    learned: bool = False
    """Whether it needs a learned part beside the denoiser."""
    label: str = VERIFIED
    version: str = "1"
    """Raised where the same settings give other tokens than before."""
    differs: tuple[str, ...] = ()
    """Where it leaves the authors' code or the paper's row, and why."""
    made_for: str = ""
    """How its authors run it, where the defaults of a run are others: temperature, steps."""
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: MappingProxyType({}))
    """Published settings by model and task, as `llada/gsm8k`."""


TAXONOMY = tuple(f.name for f in fields(Card))[1:6]
"""The five axes of the paper's table, in its order."""
