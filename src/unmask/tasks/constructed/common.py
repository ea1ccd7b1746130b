"""What the constructed tasks share: the check of a level, and the spelling of numbered answers."""

from collections.abc import Sequence

from unmask.base.errors import require
from unmask.tasks.task import LEVELS


def check_level(level: int) -> None:
    """Refuse a level other than the four."""
    require(level in LEVELS, "level", level, "1 to 4", "choose one of them")


def indexed(parts: Sequence[str]) -> str:
    """Spell the answers to numbered blanks: `[1]=gate; [2]=courier`."""
    return "; ".join(f"[{i}]={part}" for i, part in enumerate(parts, start=1))
