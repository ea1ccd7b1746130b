"""Temporal: days, months, years and hours."""

from unmask.tasks.constructed.cloze.clue import Clue
from unmask.tasks.draw import Draw
from unmask.tasks.words import DAYS, EVENTS, MONTHS, clock, distinct

_BEGINNINGS = ("The {e} was {on} {t}.", "{On} {t} there was the {e}.", "The {unit} of the {e} was {t}.")

_GAPS = (
    "The {next} came exactly {amount} {word} the {e}.",
    "Exactly {amount} {word} the {e} came the {next}.",
    "The {next} was {amount} {word} the {e}.",
)

_DATES = (
    "The {e} took place {on} #{i}.",
    "{On} #{i} people met for the {e}.",
    "The poster of the {e} says: #{i}.",
    "So the {e} was {on} #{i}.",
)

_STARTS = {"day": (0, 6), "month": (0, 11), "year": (1550, 1720), "hour": (500, 900)}
_ON = {"day": "on", "month": "in", "year": "in", "hour": "at"}


def make(draw: Draw, level: int, blanks: int) -> Clue:
    """Events one after the other, and when they were."""
    kind = draw.choice(list(_STARTS))
    events = distinct(draw, EVENTS, 3)
    gaps = [_gap(draw, kind, level) for _ in range(blanks)]
    # From level 2 on a step may go back in time.
    backs = [level > 1 and draw.chance(0.4) for _ in range(blanks)]
    start = draw.between(*_STARTS[kind])
    times = [start - start % 5 if kind == "hour" and level < 4 else start]
    for gap, back in zip(gaps, backs, strict=True):
        times.append(times[-1] + (-gap if back else gap))
    dates = [_time(kind, time) for time in times]
    words = {"on": _ON[kind], "On": _ON[kind].capitalize(), "unit": kind}
    said = [draw.choice(_BEGINNINGS).format(e=events[0], t=dates[0], **words)]
    asked = []
    for i in range(blanks):
        amount, word = _amount(kind, gaps[i]), "before" if backs[i] else "after"
        said.append(draw.choice(_GAPS).format(next=events[i + 1], amount=amount, word=word, e=events[i]))
        asked.append(draw.choice(_DATES).format(e=events[i + 1], i=i, **words))
    if draw.chance(0.6):
        i = draw.below(blanks)
        asked.append(draw.choice((f"Remember #{i}!", f"It was #{i}, no other time.", f"Note down #{i}.")))
    return Clue("temporal", tuple(said), tuple(asked), tuple(dates[1:]))


def _gap(draw: Draw, kind: str, level: int) -> int:
    if kind == "day":
        return draw.between(1, (3, 5, 9, 16)[level - 1])
    if kind == "month":
        return draw.between(1, (3, 6, 9, 11)[level - 1])
    if kind == "year":
        return draw.between(2, (20, 60, 120, 150)[level - 1])
    return draw.between(2, (9, 18, 30, 60)[level - 1]) * (5 if level < 4 else 3)


def _time(kind: str, at: int) -> str:
    if kind == "day":
        return DAYS[at % 7]
    if kind == "month":
        return MONTHS[at % 12]
    return str(at) if kind == "year" else clock(at)


def _amount(kind: str, gap: int) -> str:
    unit = "minute" if kind == "hour" else kind
    return f"{gap} {unit}" + ("s" if gap > 1 else "")
