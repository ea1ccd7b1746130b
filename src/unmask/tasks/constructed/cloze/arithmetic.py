"""Arithmetic: stories in two steps."""

from unmask.tasks.constructed.cloze.clue import Clue
from unmask.tasks.draw import Draw
from unmask.tasks.words import (
    ANIMALS,
    FIRST,
    FOODS,
    GOODS,
    SITES,
    TEAMS,
    UNITS,
    cardinal,
    distinct,
    place_name,
    plural,
    sentence_case,
    with_article,
)

_STORIES: tuple[tuple[str, str, str, str], ...] = (
    # operations, fact, first question, second question
    ("*-", "{name} has {b} {boxes} with {a} {things} in each.", "That makes #0 {things}.",
     "When {c} of the #0 {things} are sold, #1 remain."),
    ("*+", "{a_site} keeps {b} shelves of {a} {things} each.", "It keeps #0 {things} in all.",
     "If {c} more join those #0, there will be #1."),
    ("+-", "{name} found {a} {things} and {other} found {b}.", "Together they have #0 {things}.",
     "They give {c} of the #0 away and keep #1."),
    ("+*", "Each {box} holds {a} {things} and {b} {foods}.", "So one {box} holds #0 objects.",
     "With {c} such {boxes} of #0 there are #1 objects."),
    ("-+", "Of {a} {animals} at the {site}, {b} ran away.", "That left #0 {animals}.",
     "With {c} newcomers added to the #0, there are now #1."),
    ("-*", "A coat of {a} coins is {b} coins cheaper today.", "Today one coat costs #0 coins.",
     "At #0 coins each, {c} coats cost #1 coins."),
    ("++", "The {team} scored {a} points in the first half and {b} in the second.", "Their total was #0 points.",
     "The rivals had {c} points more than #0, which is #1."),
    ("--", "{name} had {a} coins and spent {b} on {a_thing}.", "Then #0 coins were left.",
     "After paying {c} of the #0 coins for lunch, {name} had #1."),
    ("*-", "A train of {b} wagons has {a} seats in every wagon.", "It has #0 seats.",
     "With {c} of the #0 seats taken, #1 are free."),
    ("+-", "{a} guests came by bus to the {site} and {b} on foot.", "There were #0 guests.",
     "{c} of the #0 guests left early, so #1 stayed."),
    ("*+", "{name} reads {a} pages a day for {b} days.", "That is #0 pages.",
     "With {c} pages more than those #0, the book would have #1."),
    ("-+", "{name} is {a} years old; {other} is {b} years younger.", "So {other} is #0.",
     "In {c} years {other}, now #0, will be #1."),
    ("+*", "A ticket costs {a} coins and the programme {b}.", "Both together cost #0 coins.",
     "For {c} people who each pay #0, that is #1 coins."),
    ("++", "From {town} to {town2} it is {a} km, and from there to {town3} {b} km.", "The way over {town2} is #0 km.",
     "With a detour of {c} km on top of #0, it is #1 km."),
    ("*-", "A wall has {b} rows of {a} bricks.", "The mason needs #0 bricks.",
     "Since {c} of the #0 are there already, #1 must be bought."),
    ("--", "The {site} has {a} rooms, {b} of them closed.", "So #0 rooms are open.",
     "When {c} of the #0 are booked, #1 are still free."),
)  # fmt: skip

_NUMBERS = (((2, 9), (2, 9)), ((3, 12), (3, 19)), ((6, 19), (11, 40)), ((11, 29), (12, 60)))


def _operands(draw: Draw, level: int, operations: str) -> tuple[int, int, int]:
    """Three numbers for two operations: nothing becomes negative, nothing grows beyond four digits."""
    (low, high), (low2, high2) = _NUMBERS[level - 1]
    wide = (30, 80, 400, 900)[level - 1]
    first, second = operations[0], operations[1]
    if first == "*":
        a, b = draw.between(low2, high2), draw.between(low, high)
        result = a * b
    else:
        b = draw.between(2, wide // 2)
        a = draw.between(2, wide) if first == "+" else b + draw.between(3, wide)
        result = a + b if first == "+" else a - b
    if second == "*":
        c = draw.between(2, min(9, max(2, 9999 // result)))
    elif second == "+":
        c = draw.between(2, wide)
    else:
        c = draw.between(2, result - 1)
    return a, b, c


def _apply(operation: str, x: int, y: int) -> int:
    return {"+": x + y, "-": x - y, "*": x * y}[operation]


def make(draw: Draw, level: int, blanks: int) -> Clue:
    """A story with numbers, and what its steps come to."""
    operations, fact, first, second = draw.choice(_STORIES)
    a, b, c = _operands(draw, level, operations)
    while "years old" in fact and (a > 80 or c > 15):
        a, b, c = _operands(draw, 2, operations)
    in_words = level > 2 and draw.chance(0.4)
    thing, food, site = draw.choice(GOODS), draw.choice(FOODS), draw.choice(SITES)
    box, names = draw.choice(UNITS), distinct(draw, FIRST, 2)
    towns = distinct(draw, place_name, 3)
    props = {
        "a": cardinal(a) if in_words else a,
        "b": cardinal(b) if in_words else b,
        "c": cardinal(c) if in_words else c,
        "name": names[0],
        "other": names[1],
        "site": site,
        "a_site": with_article(site),
        "a_thing": with_article(thing),
        "things": plural(thing),
        "foods": plural(food),
        "animals": plural(draw.choice(ANIMALS)),
        "box": box,
        "boxes": plural(box),
        "team": draw.choice(TEAMS),
        "town": towns[0],
        "town2": towns[1],
        "town3": towns[2],
    }
    result = _apply(operations[0], a, b)
    asked = [first, second][:blanks]
    values = [result, _apply(operations[1], result, c)][:blanks]
    return Clue(
        "arithmetic",
        (sentence_case(fact.format(**props)),),
        tuple(sentence_case(text.format(**props)) for text in asked),
        tuple(str(value) for value in values),
    )
