"""Ordering: a row of comparisons."""

from dataclasses import dataclass
from itertools import pairwise

from unmask.tasks.constructed.cloze.clue import Clue
from unmask.tasks.draw import Draw
from unmask.tasks.words import FIRST, THINGS, distinct, ordinal, sentence_case


@dataclass(frozen=True)
class Scale:
    """How to say that one is ahead of another, and who is at the ends."""

    ahead: tuple[str, ...]
    behind: tuple[str, ...]
    top: str
    bottom: str
    things: bool = False


_SCALES = (
    Scale(("{x} is taller than {y}.",), ("{x} is shorter than {y}.",), "tallest", "shortest"),
    Scale(("{x} is older than {y}.", "{x} was born before {y}."), ("{x} is younger than {y}.",), "oldest", "youngest"),
    Scale(
        ("{x} runs faster than {y}.", "{x} beats {y} in every race."),
        ("{x} runs slower than {y}.",),
        "fastest",
        "slowest",
    ),
    Scale(
        ("{x} is richer than {y}.", "{x} has more money than {y}."), ("{x} is poorer than {y}.",), "richest", "poorest"
    ),
    Scale(
        ("{x} arrived before {y}.", "{x} came earlier than {y}."),
        ("{x} arrived after {y}.",),
        "first to arrive",
        "last to arrive",
    ),
    Scale(("{x} scored more than {y}.", "{x} finished ahead of {y}."), ("{x} finished behind {y}.",), "best", "worst"),
    Scale(
        ("{x} lives above {y}.", "{x} lives on a higher floor than {y}."),
        ("{x} lives below {y}.",),
        "one at the top",
        "one at the bottom",
    ),
    Scale(("{x} sits to the left of {y}.",), ("{x} sits to the right of {y}.",), "leftmost", "rightmost"),
    Scale(("{x} stands in front of {y}.",), ("{x} stands behind {y}.",), "first in the queue", "last in the queue"),
    Scale(
        ("{x} costs more than {y}.",),
        ("{x} costs less than {y}.", "{x} is cheaper than {y}."),
        "most expensive",
        "cheapest",
        True,
    ),
    Scale(
        ("{x} weighs more than {y}.", "{x} is heavier than {y}."),
        ("{x} is lighter than {y}.",),
        "heaviest",
        "lightest",
        True,
    ),
    Scale(("{x} is longer than {y}.",), ("{x} is shorter than {y}.",), "longest", "shortest", True),
    Scale(("{x} is older than {y}.",), ("{x} is newer than {y}.",), "oldest", "newest", True),
    Scale(("{x} was sold before {y}.",), ("{x} was sold after {y}.",), "first to be sold", "last to be sold", True),
)


def _place(scale: Scale, at: int, n: int) -> str:
    """What the one at this place in the row is called."""
    if at == 0:
        return scale.top
    if at == n - 1:
        return scale.bottom
    return f"counting from the {scale.top}, # is {ordinal(at + 1)}"


def make(draw: Draw, level: int, blanks: int) -> Clue:
    """Comparisons side by side, and who has which place."""
    scale = draw.choice(_SCALES)
    n = (3, 4, 4, 5)[level - 1]
    row = distinct(draw, THINGS if scale.things else FIRST, n)
    shown = [f"the {item}" for item in row] if scale.things else row
    said = []
    for x, y in pairwise(shown):
        if draw.chance(0.5):
            said.append(draw.choice(scale.ahead).format(x=x, y=y))
        else:
            said.append(draw.choice(scale.behind).format(x=y, y=x))
    places = [0, n - 1] if level == 1 else list(range(n))
    wanted = draw.sample(places, blanks)
    the = "the " if scale.things else ""
    statements = []
    for i, at in enumerate(wanted):
        place = _place(scale, at, n)
        if "#" in place:
            statements.append(place.replace("#", f"{the}#{i}") + ".")
        else:
            forms = (
                f"the {place} is {the}#{i}.",
                f"{the}#{i} is the {place}.",
                f"of them all, {the}#{i} is the {place}.",
            )
            statements.append(draw.choice(forms))
    if draw.chance(0.6):
        i = draw.below(blanks)
        more = (f"Everybody looked at {the}#{i}.", f"No one forgets {the}#{i}.", f"A photo shows {the}#{i}.")
        statements.append(draw.choice(more))
    return Clue(
        "ordering",
        tuple(sentence_case(fact) for fact in draw.shuffled(said)),
        tuple(sentence_case(statement) for statement in statements),
        tuple(row[at] for at in wanted),
    )
