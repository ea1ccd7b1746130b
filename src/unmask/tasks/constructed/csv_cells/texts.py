"""Tables whose hidden cell is a word: looked up in another row, made from other cells, or chosen by a number."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from unmask.tasks.constructed.csv_cells.sheet import CsvSheet, hide_cell, row_count
from unmask.tasks.draw import Draw
from unmask.tasks.words import (
    ANIMALS,
    CODE_LETTERS,
    COLOURS,
    COMMON,
    DAYS,
    FIRST,
    FOODS,
    GOODS,
    JOBS,
    MATERIALS,
    PLANTS,
    SURNAMES,
    TEAMS,
    THINGS,
    brand,
    code,
    distinct,
    has_plain_plural,
    invented,
    place_name,
    plural,
)

_LOOKUPS = (
    ("sku", "code", "product", GOODS),
    ("dept", "idea", "head", SURNAMES),
    ("plate", "code", "owner", FIRST),
    ("team", "team", "coach", SURNAMES),
    ("course", "idea", "teacher", SURNAMES),
    ("room", "room", "warden", FIRST),
    ("town", "town", "mayor", SURNAMES),
    ("ship", "made", "captain", SURNAMES),
    ("shelf", "room", "content", GOODS),
    ("brand", "made", "product", GOODS),
    ("stall", "room", "offer", FOODS),
    ("player", "first", "team", TEAMS),
    ("pet", "made", "kind", ANIMALS),
    ("worker", "first", "job", JOBS),
    ("bed", "room", "crop", PLANTS),
    ("part", "code", "material", MATERIALS),
    ("firm", "made", "town", ()),
    ("model", "code", "name", ()),
)


def _keys(draw: Draw, kind: str, k: int, alike: bool) -> list[str]:
    """Keys of a lookup. Alike means that two of them differ in one character only."""
    if kind == "idea":
        return distinct(
            draw, ["art", "music", "law", "sales", "sport", "design", "cloth", "toys", "travel", "audit"], k
        )
    if kind == "team":
        return distinct(draw, TEAMS, k)
    if kind == "first":
        return distinct(draw, FIRST, k)
    if kind == "town":
        return distinct(draw, place_name, k)
    if kind == "made":
        return distinct(draw, brand, k)
    if kind == "room":
        return [f"{letter}{draw.between(1, 30)}" for letter in draw.sample(CODE_LETTERS, k)]
    if not alike:
        return distinct(draw, code, k)
    base = code(draw)
    return [base[:-1] + digit for digit in draw.sample("0123456789", k)]


def lookup(draw: Draw, level: int) -> CsvSheet:
    """The same key always comes with the same value; the hidden value stands in another row."""
    key, kind, value, words = draw.choice(_LOOKUPS)
    k = (2, 3, 3, 4)[level - 1]
    keys = _keys(draw, kind, k, alike=level > 2)
    if words:
        values = distinct(draw, words, k)
    else:
        values = distinct(draw, brand, k)
    n = max(k + 1, row_count(draw, level))
    picks = draw.shuffled([*range(k), *(draw.below(k) for _ in range(n - k))])
    twice = [row for row in range(n) if picks.count(picks[row]) > 1]
    at = draw.choice(twice)
    number = draw.choice(("qty", "year", "week", "no", "hours", "weight"))
    # All different, so that no row seems to share anything but its key.
    numbers = draw.sample(range(1950, 2040) if number == "year" else range(2, 100), n)
    rows = tuple((str(numbers[i]), keys[picks[i]], values[picks[i]]) for i in range(n))
    rule = f"rows with the same {key} have the same {value}"
    order = draw.shuffled((0, 1, 2))
    header = (number, key, value)
    return CsvSheet(
        tuple(header[i] for i in order),
        tuple(tuple(row[i] for i in order) for row in rows),
        (at, order.index(2)),
        rule,
        plain=True,
    )


def pairwise(draw: Draw, level: int) -> CsvSheet:
    """A price that depends on two columns together; the same pair stands in another row."""
    (x, xs), (y, ys) = draw.sample(
        (
            ("colour", COLOURS),
            ("item", THINGS),
            ("material", MATERIALS),
            ("food", FOODS),
            ("size", ("small", "medium", "large", "huge")),
            ("day", DAYS),
        ),
        2,
    )
    a, b = draw.sample(xs, 2), draw.sample(ys, 2)
    pairs = [(i, j) for i in a for j in b]
    if draw.chance(0.5):
        made = draw.choice(("brand", "seller", "stamp"))
        values = [str(v) for v in distinct(draw, invented, 4)]
    else:
        made = draw.choice(("price", "weight", "stock", "fee"))
        values = [str(v) for v in draw.sample(range(11, 100 if level < 4 else 1000), 4)]
    at = draw.below(4)
    more = [draw.below(4) for _ in range(level - 2)]
    picks = draw.shuffled([0, 1, 2, 3, at, *more])
    places = [i for i, pick in enumerate(picks) if pick == at]
    rows = tuple((*pairs[pick], values[pick]) for pick in picks)
    rule = f"rows with the same {x} and the same {y} have the same {made}"
    return CsvSheet((x, y, made), rows, (draw.choice(places), 2), rule)


_SHORT_SURNAMES = [name for name in SURNAMES if len(name) < 9]
_SHORT_GOODS = [goods for goods in GOODS if len(goods) < 10]
_SHORT_COLOURS = [colour for colour in COLOURS if len(colour) < 7]


class _CodeParts(NamedTuple):
    """What a code can be made of."""

    first: str
    last: str
    town: str
    item: str
    colour: str
    no: int


# First level, the columns shown, the header of the code, how it is made, and the rule in words.
_CODES: tuple[tuple[int, tuple[str, str], str, Callable[[_CodeParts], str], str], ...] = (
    (1, ("first", "last"), "initials", lambda r: r.first[0] + r.last[0], "initials = first letters of first and last"),
    (1, ("item", "no"), "code", lambda r: f"{r.item[:3]}{r.no:03d}",
     "code = first three letters of item, then no with three digits"),
    (1, ("town", "no"), "tag", lambda r: f"{r.town[:3].upper()}-{r.no}",
     "tag = first three letters of town in capitals, a hyphen, no"),
    (1, ("colour", "item"), "label", lambda r: f"{r.colour}-{r.item}", "label = colour, a hyphen, item"),
    (2, ("first", "last"), "login", lambda r: f"{r.first[0]}{r.last}".lower(),
     "login = first letter of first, then last, in lower case"),
    (2, ("first", "last"), "user", lambda r: f"{r.last}.{r.first[0]}".lower(),
     "user = last, a dot, first letter of first, in lower case"),
    (2, ("item", "no"), "id", lambda r: f"{r.no:05d}{r.item[0].upper()}",
     "id = no with five digits, then the first letter of item in capitals"),
    (3, ("first", "last"), "nick", lambda r: f"{r.first[:2]}{r.last[:3]}".lower(),
     "nick = two letters of first, then three of last, lower case"),
    (3, ("colour", "item"), "key", lambda r: f"{r.item[-1]}{r.colour[0]}{len(r.item)}",
     "key = last letter of item, first letter of colour, number of letters in item"),
    (3, ("town", "no"), "stamp", lambda r: f"{r.no}{r.town[::-1].lower()}",
     "stamp = no, then town spelled backwards in lower case"),
)  # fmt: skip


def coded(draw: Draw, level: int) -> CsvSheet:
    """A code made of other cells of its row."""
    n = row_count(draw, level)
    firsts, lasts = distinct(draw, FIRST, n), distinct(draw, _SHORT_SURNAMES, n)
    towns = distinct(draw, place_name, n)
    items = distinct(draw, _SHORT_GOODS, n)
    colours = [draw.choice(_SHORT_COLOURS) for _ in range(n)]
    numbers = draw.sample(range(1, 99 if level < 3 else 999), n)
    rows = [_CodeParts(*cells) for cells in zip(firsts, lasts, towns, items, colours, numbers, strict=True)]
    _, shown, header, make, rule = draw.choice([entry for entry in _CODES if entry[0] <= level])
    columns: dict[str, Sequence[object]] = {name: [getattr(row, name) for row in rows] for name in shown}
    return hide_cell(draw, {**columns, header: [make(row) for row in rows]}, header, rule)


_NOUNS = tuple(filter(has_plain_plural, (*GOODS, *ANIMALS)))


def _word(draw: Draw, most: int) -> str:
    while not 3 <= len(word := draw.choice(COMMON)) <= most:
        pass
    return word


# First level, header, how the cell is made from the word, and the rule in words.
_SPELLINGS: tuple[tuple[int, str, Callable[[str], str], str], ...] = (
    (1, "reversed", lambda w: w[::-1], "reversed is the word spelled backwards"),
    (1, "letters", lambda w: str(len(w)), "letters is the number of letters of the word"),
    (1, "plural", plural, "plural is the plural of the word"),
    (1, "ends", lambda w: w[0] + w[-1], "ends is the first and the last letter of the word"),
    (2, "short", lambda w: "".join(c for c in w if c not in "aeiou"), "short is the word without a, e, i, o, u"),
    (2, "moved", lambda w: w[1:] + w[0], "moved is the word with its first letter put at the end"),
    (2, "vowels", lambda w: str(sum(c in "aeiou" for c in w)), "vowels counts the letters a, e, i, o, u of the word"),
)


def spelling(draw: Draw, level: int) -> CsvSheet:
    """A second word or number made from the letters of the first."""
    n = row_count(draw, level)
    most = (6, 8, 10, 12)[level - 1]
    words = distinct(draw, lambda draw: _word(draw, most), n)
    nouns = distinct(draw, _NOUNS, n)
    _, header, make, rule = draw.choice([entry for entry in _SPELLINGS if entry[0] <= level])
    base = nouns if header == "plural" else words
    columns = {"word": base, header: [make(word) for word in base]}
    return hide_cell(draw, columns, header, rule, plain=header == "plural")


_CLASSES: tuple[Sequence[str], ...] = (
    ("gold", "silver", "bronze"),
    ("A", "B", "C"),
    ("high", "middle", "low"),
    ("pass", "retry", "fail"),
    ("first", "second", "third"),
)


def graded(draw: Draw, level: int) -> CsvSheet:
    """Classes that begin at so many marks."""
    n = row_count(draw, level)
    names = distinct(draw, FIRST, n)
    marks = draw.sample(range(20, 100), n)
    words = draw.choice(_CLASSES) if draw.chance(0.6) else distinct(draw, invented, 3)
    upper, lower = draw.between(65, 85), draw.between(35, 60)
    grades = [words[0] if m >= upper else words[1] if m >= lower else words[2] for m in marks]
    rule = f"class is {words[0]} from {upper} marks, {words[1]} from {lower}, else {words[2]}"
    return hide_cell(draw, {"name": names, "marks": marks, "class": grades}, "class", rule)


def mirror(draw: Draw, level: int) -> CsvSheet:
    """Distances both ways, or results seen from both sides."""
    k = (2, 2, 3, 3)[level - 1]
    places = distinct(draw, place_name, 2 * k)
    pairs = [(places[2 * i], places[2 * i + 1]) for i in range(k)]
    kms = draw.sample(range(11, (90, 400, 900, 5000)[level - 1]), k)
    both = [(a, b, str(km)) for (a, b), km in zip(pairs, kms, strict=True)]
    rows = draw.shuffled(both + [(b, a, km) for a, b, km in both])
    hide = 2 if level < 3 else draw.choice((2, 2, 1))
    rule = "every road is listed in both directions with the same km"
    return CsvSheet(("from", "to", "km"), tuple(rows), (draw.below(len(rows)), hide), rule)


def duel(draw: Draw, level: int) -> CsvSheet:
    """Which of two named sides has more."""
    n = min(5, row_count(draw, level))
    kind = draw.choice((FIRST, TEAMS, SURNAMES))
    sides = distinct(draw, kind, 2 * n)
    a, b = sides[:n], sides[n:]
    x, y = [draw.between(0, 99) for _ in range(n)], [draw.between(0, 99) for _ in range(n)]
    y = [j + 1 if i == j else j for i, j in zip(x, y, strict=True)]
    less = level > 2 and draw.chance(0.5)
    better = [p if (i < j) == less else q for p, q, i, j in zip(a, b, x, y, strict=True)]
    rule = f"winner is the one with {'fewer' if less else 'more'} points"
    return hide_cell(draw, {"a": a, "pts_a": x, "b": b, "pts_b": y, "winner": better}, "winner", rule)
