"""The numbers of the paper's tables as data, each with the line of the paper's source that it was typed from."""

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

SOURCE = Path(__file__).parent / "paper.json"
MACRO = "macro"
"""In place of a task: the mean over the ten tasks."""


class PaperNumber(NamedTuple):
    """One number of one table."""

    model: str
    """As `unmask models` lists it."""
    task: str
    axis: str
    """Or "chosen": for each task the one that validation chose."""
    quantity: str
    """`positive_rate`, `captured_10`, `selective`, ...; shares are of 1."""
    value: float
    line: int


def paper_numbers() -> tuple[PaperNumber, ...]:
    """In the order of the paper."""
    return tuple(PaperNumber(*row) for row in _content()["rows"])


def paper_model(name_or_hub_id: str) -> str | None:
    """The paper's model that was loaded under this name or hub id; None where it is none of them."""
    models = _content()["models"]
    return next((name for name, hub_id in models.items() if name_or_hub_id in (name, hub_id)), None)


@cache
def _content() -> dict[str, Any]:
    return dict(json.loads(SOURCE.read_text(encoding="utf-8")))
