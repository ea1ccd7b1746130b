"""How values look in a table."""

from math import inf, isfinite, isnan

from unmask.report.sheet import Value
from unmask.stats import Estimate

NONE = "–"
"""In place of a number that does not exist."""


def number(value: Value) -> str:
    """Four digits, with the interval of an estimate."""
    return _spelled(value, "{:.4f}")


def point(value: Value) -> str:
    """Four digits without the interval, which CSV has: many intervals do not fit."""
    return number(value.value if isinstance(value, Estimate) else value)


def share(value: Value) -> str:
    """Per cent."""
    return _spelled(value, "{:.1%}").replace("%", " %")


def share_point(value: Value) -> str:
    """Per cent without the interval."""
    return share(value.value if isinstance(value, Estimate) else value)


def percent(value: Value) -> str:
    """Per cent with as many digits as it takes."""
    return f"{100 * float(value):g} %" if isinstance(value, float) else str(value)


def count(value: Value) -> str:
    return NONE if value is None else f"{value:,}"


def seconds(value: Value) -> str:
    return NONE if value is None else f"{value:,.1f}"


def edge(value: Value) -> str:
    """An end of a bin, which may have none."""
    return "–∞" if value == -inf else "∞" if value == inf else f"{value:.4g}"


def yes_no(value: Value) -> str:
    return "" if value is None else "yes" if value else "no"


def text_or_none(value: Value) -> str:
    return NONE if value is None or value == "" else str(value)


def counted(items: int, noun: str) -> str:
    """1 answer, 2 answers; 1 batch, 2 batches."""
    plural = "es" if noun.endswith("ch") else "s"
    return f"{items} {noun}{'' if items == 1 else plural}"


def _spelled(value: Value, spec: str) -> str:
    if isinstance(value, Estimate):
        ends = f" [{spec.format(value.low)}, {spec.format(value.high)}]" if isfinite(value.low) else ""
        return _spelled(value.value, spec) + ends
    if value is None or isinstance(value, str) or isnan(value):
        return NONE
    return spec.format(value)
