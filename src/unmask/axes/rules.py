"""Parsing of rules in text form, such as "block:32", with one table of rules per axis."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from unmask.base.errors import UnknownName, require


@dataclass(frozen=True)
class RuleNumber:
    """A number in the text of a rule, such as the 32 of "block:32"."""

    name: str
    """Key of the number in descriptions of a rule."""
    spelling: str
    """Placeholder for the number in messages."""
    allowed: str
    example: float
    low: float = 0.0
    high: float = 1.0
    whole: bool = False

    def read(self, text: str) -> float | None:
        """Parse the number; None if the text is not a number or out of range."""
        try:
            value = float(text) if re.fullmatch(r"[\w.+-]+", text, re.ASCII) and "_" not in text else math.nan
        except ValueError:
            return None
        if not self.low <= value <= self.high or (self.whole and not value.is_integer()):
            return None
        return int(value) if self.whole else value


@dataclass(frozen=True)
class Rule:
    """Rule of an axis that users write as text: the function to call, and the numbers that the text has."""

    function: Callable[..., Any]
    numbers: tuple[RuleNumber, ...] = ()
    required: int | None = None
    """How many of the numbers are required; None for all of them."""


def parse_rule(
    text: str, table: Mapping[str, Rule], axis: str, setting: str, given: str | None = None
) -> tuple[str, list[float]]:
    """Split "name:number:number" and check it against the table; return name and numbers.

    `axis` and `setting` are names for messages, which quote `given` if the text is only a part of it.
    """
    name, colon, rest = text.partition(":")
    if name not in table:
        raise UnknownName(axis, name, table)
    numbers, required = table[name].numbers, table[name].required
    required = len(numbers) if required is None else required
    written = rest.split(":") if colon else []
    values = [number.read(part) for number, part in zip(numbers, written, strict=False)]
    if numbers:
        forms = [
            ":".join((name, *(number.spelling for number in numbers[:count])))
            for count in range(required, len(numbers) + 1)
        ]
        allowed = f"{' or '.join(map(repr, forms))}, {numbers[0].allowed}"
        hint = f"e.g. '{name}:{numbers[0].example:g}'"
    else:
        allowed, hint = f"'{name}'", "this rule takes no number"
    complete = required <= len(written) <= len(numbers) and None not in values
    require(complete, setting, given or text, allowed, hint)
    return name, [value for value in values if value is not None]
