"""What every kind of clue returns."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Clue:
    """Facts, sentences with blanks (written #0, #1, ...) that follow from them, and what belongs in the blanks."""

    link: str
    said: tuple[str, ...]
    asked: tuple[str, ...]
    values: tuple[str, ...]
