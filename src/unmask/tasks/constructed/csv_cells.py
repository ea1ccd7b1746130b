"""CSV Missing Cells: a small table with one cell hidden, and the rest of the table to find it by.

Each kind of table below has a reason why the hidden cell can only be one value: arithmetic across a row or down a
column, a step, a lookup of another row, a code made from other cells. The rule is spelled out unless the table shows
it by itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta

from unmask.errors import require
from unmask.tasks.base import Draft, Json
from unmask.tasks.draw import Draw
from unmask.tasks.words import (
    ANIMALS,
    CODE_LETTERS,
    COLOURS,
    COMMON,
    DAYS,
    EVENTS,
    FIRST,
    FOODS,
    GOODS,
    JOBS,
    MATERIALS,
    MONTHS,
    PLANTS,
    SITES,
    SURNAMES,
    TEAMS,
    THINGS,
    brand,
    clock,
    closing,
    code,
    distinct,
    has_plain_plural,
    invented,
    place_name,
    plural,
)

NAME = "csv-missing-cells"
TITLE = "CSV Missing Cells"
HORIZON = 16
VERSION = "1"
LEVELS = (1, 2, 3, 4)

HOLE = "???"
LIMIT = 20
"""Characters of the answer."""
DIGITS = 8
"""Digits of the answer: a tokeniser may spend one token on each."""


@dataclass(frozen=True)
class CsvSheet:
    """A full table, which cell to hide, and why it can be found."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    hole: tuple[int, int]
    rule: str
    plain: bool = False
    """Whether the rows show the rule so well that it may be left unsaid."""


def _count(draw: Draw, level: int) -> int:
    return draw.between(*((3, 4), (4, 5), (5, 6), (6, 7))[level - 1])


_LABELS: tuple[tuple[str, Sequence[str]], ...] = (
    ("item", THINGS),
    ("food", FOODS),
    ("name", FIRST),
    ("animal", ANIMALS),
    ("plant", PLANTS),
    ("place", SITES),
    ("colour", COLOURS),
    ("team", TEAMS),
    ("surname", SURNAMES),
    ("material", MATERIALS),
    ("event", EVENTS),
    ("job", JOBS),
    ("goods", GOODS),
)
_MADE: tuple[tuple[str, Callable[[Draw], str]], ...] = (("code", code), ("town", place_name), ("brand", invented))


def _labels(draw: Draw, n: int) -> tuple[str, list[str]]:
    """A first column that tells the rows apart: its header and n different cells."""
    if draw.chance(0.2):
        header, make = draw.choice(_MADE)
        return header, distinct(draw, make, n)
    header, words = draw.choice(_LABELS)
    return header, distinct(draw, words, n)


def _table(header: Sequence[str], columns: Sequence[Sequence[object]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(str(cell) for cell in row) for row in zip(*columns, strict=True))


def _sheet(
    draw: Draw, columns: dict[str, Sequence[object]], hide: str, rule: str, plain: bool = False, first: int = 0
) -> CsvSheet:
    """A sheet with a hole in column `hide`, in any row from `first` on."""
    header = tuple(columns)
    rows = _table(header, list(columns.values()))
    at = draw.between(first, len(rows) - 1)
    return CsvSheet(header, rows, (at, header.index(hide)), rule, plain)


_PRODUCTS = (
    ("qty", "price", "total"),
    ("boxes", "per_box", "pieces"),
    ("nights", "rate", "cost"),
    ("hours", "wage", "pay"),
    ("rows", "seats", "places"),
    ("width", "height", "area"),
    ("teams", "players", "people"),
    ("packs", "size", "units"),
    ("days", "km_a_day", "km"),
    ("litres", "per_litre", "sum"),
    ("shelves", "books_each", "books"),
    ("trips", "load", "moved"),
    ("weeks", "weekly", "saved"),
    ("tables", "guests", "chairs"),
    ("pages", "words", "length"),
    ("carts", "crates", "crates_all"),
)


def _product(draw: Draw, level: int) -> CsvSheet:
    n = _count(draw, level)
    label, names = _labels(draw, n)
    x, y, z = draw.choice(_PRODUCTS)
    low, high = ((2, 9), (2, 9), (11, 30), (12, 60))[level - 1]
    a = [draw.between(low, high) for _ in range(n)]
    low, high = ((2, 12), (11, 60), (11, 60), (12, 99))[level - 1]
    b = [draw.between(low, high) for _ in range(n)]
    product = [i * j for i, j in zip(a, b, strict=True)]
    columns: dict[str, Sequence[object]] = {label: names, x: a, y: b, z: product}
    if level == 4 and draw.chance(0.5):
        extra = [draw.between(2, 40) for _ in range(n)]
        total = [i + j for i, j in zip(product, extra, strict=True)]
        columns = {label: names, x: a, y: b, "extra": extra, z: total}
        return _sheet(draw, columns, z, f"{z} = {x} * {y} + extra")
    hide = draw.choice((x, y, z, z)) if level > 1 else z
    return _sheet(draw, columns, hide, f"{z} = {x} * {y}", plain=True)


_SUMS = (
    ("left", "right", "both"),
    ("adults", "children", "visitors"),
    ("net", "tax", "gross"),
    ("red", "blue", "marbles"),
    ("won", "lost", "played"),
    ("morning", "evening", "day"),
    ("home", "away", "points"),
    ("old", "new", "now"),
    ("cats", "dogs", "pets"),
    ("base", "bonus", "paid"),
    ("first_half", "second_half", "final"),
    ("in_stock", "ordered", "soon"),
)
_THIRDS = ("other", "late", "extra", "spare", "gift", "third", "rest", "more")


def _total(draw: Draw, level: int) -> CsvSheet:
    n = _count(draw, level)
    label, names = _labels(draw, n)
    x, y, z = draw.choice(_SUMS)
    parts = [x, y] if level == 1 else [x, y, draw.choice(_THIRDS)]
    top = (40, 99, 300, 900)[level - 1]
    columns: dict[str, Sequence[object]] = {part: [draw.between(1, top) for _ in range(n)] for part in parts}
    sums = [sum(int(str(cell)) for cell in row) for row in zip(*columns.values(), strict=True)]
    hide = draw.choice([*parts, z, z]) if level > 1 else z
    return _sheet(draw, {label: names, **columns, z: sums}, hide, f"{z} = {' + '.join(parts)}", plain=True)


_DIFFERENCES = (
    ("opening", "sold", "closing"),
    ("income", "costs", "profit"),
    ("gross", "tare", "net"),
    ("seats", "booked", "free"),
    ("planned", "done", "open"),
    ("bought", "used", "left"),
    ("price", "discount", "to_pay"),
    ("goals_for", "goals_against", "diff"),
    ("invited", "absent", "present"),
    ("budget", "spent", "rest"),
    ("full", "drunk", "remaining"),
)


def _difference(draw: Draw, level: int) -> CsvSheet:
    n = _count(draw, level)
    label, names = _labels(draw, n)
    x, y, z = draw.choice(_DIFFERENCES)
    top = (30, 99, 900, 5000)[level - 1]
    b = [draw.between(1, top // 2) for _ in range(n)]
    c = [draw.between(1, top // 2) for _ in range(n)]
    a = [i + j for i, j in zip(b, c, strict=True)]
    hide = z if level == 1 else draw.choice((x, y, z))
    return _sheet(draw, {label: names, x: a, y: b, z: c}, hide, f"{z} = {x} - {y}", plain=True)


_RUNNING = (
    ("paid", "balance"),
    ("rain", "rain_so_far"),
    ("sold", "sold_in_all"),
    ("points", "score"),
    ("km", "km_in_all"),
    ("visitors", "visitors_so_far"),
    ("pages", "read"),
    ("caught", "catch"),
    ("saved", "savings"),
)


def _running(draw: Draw, level: int) -> CsvSheet:
    n = _count(draw, level)
    step, total = draw.choice(_RUNNING)
    top = (20, 60, 300, 900)[level - 1]
    steps = [draw.between(1, top) for _ in range(n)]
    sums = [sum(steps[: i + 1]) for i in range(n)]
    start = draw.below(7)
    days = [DAYS[(start + i) % 7][:3] for i in range(n)]
    columns: dict[str, Sequence[object]] = {"day": days, step: steps, total: sums}
    rule = f"{total} adds up {step} from the first row on"
    if level == 4:
        out = [draw.between(1, max(1, so_far // n)) for so_far in sums]
        left = [sums[i] - sum(out[: i + 1]) for i in range(n)]
        columns = {"day": days, "in": steps, "out": out, total: left}
        rule = f"{total} = {total} of the row above (0 at the start) + in - out"
        return _sheet(draw, columns, draw.choice(("in", "out", total)), rule)
    return _sheet(draw, columns, total if level == 1 else draw.choice((step, total)), rule, plain=level < 3)


def _step(draw: Draw, level: int) -> CsvSheet:
    """A column that moves by the same step from row to row."""
    n = max(4, _count(draw, level))
    label, names = _labels(draw, n)
    kind = draw.choice((("no",), ("no", "tag", "time"), ("tag", "time", "date"), ("date", "time", "power"))[level - 1])
    if kind == "no":
        start, by = draw.between(1, 900), draw.between(2, 40 if level > 1 else 12)
        header = draw.choice(("no", "page", "seat", "locker", "km", "house", "lot"))
        cells = [str(start + by * i) for i in range(n)]
        rule = f"{header} rises by the same amount from row to row"
    elif kind == "tag":
        head, start, by = (
            draw.choice(CODE_LETTERS) + draw.choice(CODE_LETTERS),
            draw.between(10, 600),
            draw.between(2, 49),
        )
        header = draw.choice(("tag", "ref", "label", "shelf"))
        cells = [f"{head}-{start + by * i:04d}" for i in range(n)]
        rule = f"the number in {header} rises by the same amount from row to row"
    elif kind == "time":
        start, by = draw.between(60, 140) * 5, draw.between(2, 25) * 5 if level < 4 else draw.between(11, 110)
        header = draw.choice(("time", "start", "leaves", "opens"))
        cells = [clock(start + by * i) for i in range(n)]
        rule = f"{header} moves on by the same number of minutes from row to row"
    elif kind == "date":
        day = date(draw.between(1990, 2039), 1, 1) + timedelta(draw.below(365))
        by = draw.between(2, 9) if level < 4 else draw.between(7, 30)
        back = level == 4 and draw.chance(0.5)
        header = draw.choice(("date", "due", "visit", "shift"))
        cells = [(day + timedelta(-by * i if back else by * i)).isoformat() for i in range(n)]
        rule = f"{header} moves {'back' if back else 'on'} by the same number of days from row to row"
    else:
        n = min(n, 6)
        start, by = draw.between(2, 19), draw.between(2, 4)
        header = draw.choice(("cells", "grains", "shares", "copies"))
        cells = [str(start * by**i) for i in range(n)]
        rule = f"{header} is multiplied by the same number from row to row"
        names = names[:n]
    # Two cells in a row must stay, or the step could not be told without counting rows.
    return _sheet(draw, {label: names, header: cells}, header, rule, plain=True, first=2)


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


def _lookup(draw: Draw, level: int) -> CsvSheet:
    """The same key always comes with the same value; the hidden value stands in another row."""
    key, kind, value, words = draw.choice(_LOOKUPS)
    k = (2, 3, 3, 4)[level - 1]
    keys = _keys(draw, kind, k, alike=level > 2)
    if words:
        values = distinct(draw, words, k)
    else:
        values = distinct(draw, brand, k)
    n = max(k + 1, _count(draw, level))
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


def _pairwise(draw: Draw, level: int) -> CsvSheet:
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


_UNITS = (
    ("min", "sec", 60),
    ("hours", "minutes", 60),
    ("weeks", "days", 7),
    ("days", "hours", 24),
    ("m", "cm", 100),
    ("cm", "mm", 10),
    ("feet", "inches", 12),
    ("yards", "feet", 3),
    ("years", "months", 12),
    ("dozens", "pieces", 12),
    ("kg", "g", 1000),
    ("km", "m", 1000),
    ("euros", "cents", 100),
    ("decades", "years", 10),
    ("gallons", "quarts", 4),
    ("pounds", "ounces", 16),
    ("stone", "pounds", 14),
    ("scores", "units", 20),
    ("reams", "sheets", 500),
)


def _convert(draw: Draw, level: int) -> CsvSheet:
    n = _count(draw, level)
    label, names = _labels(draw, n)
    big, small, factor = draw.choice(_UNITS)
    top = (9, 30, 90, 400)[level - 1]
    values = [draw.between(2, top if factor < 500 else min(top, 90)) for _ in range(n)]
    columns: dict[str, Sequence[object]] = {label: names, big: values, small: [v * factor for v in values]}
    hide = small if level < 3 else draw.choice((big, small))
    return _sheet(draw, columns, hide, f"{small} = {big} * {factor}", plain=level > 1)


_SHORT_SURNAMES = [name for name in SURNAMES if len(name) < 9]
_SHORT_GOODS = [goods for goods in GOODS if len(goods) < 10]
_SHORT_COLOURS = [colour for colour in COLOURS if len(colour) < 7]


def _coded(draw: Draw, level: int) -> CsvSheet:
    """A code made of other cells of its row."""
    n = _count(draw, level)
    firsts, lasts = distinct(draw, FIRST, n), distinct(draw, _SHORT_SURNAMES, n)
    towns = distinct(draw, place_name, n)
    items = distinct(draw, _SHORT_GOODS, n)
    colours = [draw.choice(_SHORT_COLOURS) for _ in range(n)]
    numbers = draw.sample(range(1, 99 if level < 3 else 999), n)
    rows = list(zip(firsts, lasts, towns, items, colours, numbers, strict=True))
    names: dict[str, Sequence[object]] = {"first": firsts, "last": lasts}
    town_no: dict[str, Sequence[object]] = {"town": towns, "no": numbers}
    item_no: dict[str, Sequence[object]] = {"item": items, "no": numbers}
    both: dict[str, Sequence[object]] = {"colour": colours, "item": items}
    kinds: list[tuple[dict[str, Sequence[object]], str, list[str], str]] = [
        (names, "initials", [f"{f[0]}{s[0]}" for f, s, *_ in rows], "initials = first letters of first and last"),
        (
            item_no,
            "code",
            [f"{i[:3]}{k:03d}" for *_, i, _, k in rows],
            "code = first three letters of item, then no with three digits",
        ),
        (
            town_no,
            "tag",
            [f"{t[:3].upper()}-{k}" for _, _, t, _, _, k in rows],
            "tag = first three letters of town in capitals, a hyphen, no",
        ),
        (both, "label", [f"{c}-{i}" for *_, i, c, _ in rows], "label = colour, a hyphen, item"),
    ]
    if level > 1:
        kinds += [
            (
                names,
                "login",
                [f"{f[0]}{s}".lower() for f, s, *_ in rows],
                "login = first letter of first, then last, in lower case",
            ),
            (
                names,
                "user",
                [f"{s}.{f[0]}".lower() for f, s, *_ in rows],
                "user = last, a dot, first letter of first, in lower case",
            ),
            (
                item_no,
                "id",
                [f"{k:05d}{i[0].upper()}" for *_, i, _, k in rows],
                "id = no with five digits, then the first letter of item in capitals",
            ),
        ]
    if level > 2:
        kinds += [
            (
                names,
                "nick",
                [f"{f[:2]}{s[:3]}".lower() for f, s, *_ in rows],
                "nick = two letters of first, then three of last, lower case",
            ),
            (
                both,
                "key",
                [f"{i[-1]}{c[0]}{len(i)}" for *_, i, c, _ in rows],
                "key = last letter of item, first letter of colour, number of letters in item",
            ),
            (
                town_no,
                "stamp",
                [f"{k}{t[::-1].lower()}" for _, _, t, _, _, k in rows],
                "stamp = no, then town spelled backwards in lower case",
            ),
        ]
    columns, header, cells, rule = draw.choice(kinds)
    return _sheet(draw, {**columns, header: cells}, header, rule)


_NOUNS = tuple(filter(has_plain_plural, (*GOODS, *ANIMALS)))


def _word(draw: Draw, most: int) -> str:
    while not 3 <= len(word := draw.choice(COMMON)) <= most:
        pass
    return word


def _spelling(draw: Draw, level: int) -> CsvSheet:
    """A second word or number made from the letters of the first."""
    n = _count(draw, level)
    most = (6, 8, 10, 12)[level - 1]
    words = distinct(draw, lambda draw: _word(draw, most), n)
    nouns = distinct(draw, _NOUNS, n)
    kinds = [
        (words, "reversed", [w[::-1] for w in words], "reversed is the word spelled backwards"),
        (words, "letters", [str(len(w)) for w in words], "letters is the number of letters of the word"),
        (nouns, "plural", [plural(w) for w in nouns], "plural is the plural of the word"),
        (words, "ends", [w[0] + w[-1] for w in words], "ends is the first and the last letter of the word"),
    ]
    if level > 1:
        kinds += [
            (
                words,
                "short",
                ["".join(c for c in w if c not in "aeiou") for w in words],
                "short is the word without a, e, i, o, u",
            ),
            (words, "moved", [w[1:] + w[0] for w in words], "moved is the word with its first letter put at the end"),
            (
                words,
                "vowels",
                [str(sum(c in "aeiou" for c in w)) for w in words],
                "vowels counts the letters a, e, i, o, u of the word",
            ),
        ]
    base, header, cells, rule = draw.choice(kinds)
    return _sheet(draw, {"word": base, header: cells}, header, rule, plain=header == "plural")


def _rank(draw: Draw, level: int) -> CsvSheet:
    n = _count(draw, level)
    label, names = _labels(draw, n)
    score = draw.choice(("score", "height", "speed", "age", "price", "weight", "mark", "depth", "income", "area"))
    values = draw.sample(range(10, (60, 99, 400, 999)[level - 1]), n)
    low = level > 2 and draw.chance(0.5)
    order = sorted(values, reverse=not low)
    ranks = [order.index(v) + 1 for v in values]
    rule = f"rank 1 goes to the {'lowest' if low else 'highest'} {score}"
    return _sheet(draw, {label: names, score: values, "rank": ranks}, "rank", rule)


def _extreme(draw: Draw, level: int) -> CsvSheet:
    n = _count(draw, level)
    label, names = _labels(draw, n)
    tries = ["try1", "try2", "try3", "try4"][: (2, 3, 3, 4)[level - 1]]
    columns = {t: [draw.between(10, (50, 99, 400, 999)[level - 1]) for _ in range(n)] for t in tries}
    rows = list(zip(*columns.values(), strict=True))
    kinds = [
        ("best", [max(r) for r in rows], "best is the highest of the tries"),
        ("worst", [min(r) for r in rows], "worst is the lowest of the tries"),
    ]
    if level > 2:
        kinds += [
            ("spread", [max(r) - min(r) for r in rows], "spread is the highest try minus the lowest"),
            ("ends", [max(r) + min(r) for r in rows], "ends is the highest try plus the lowest"),
        ]
    header, cells, rule = draw.choice(kinds)
    return _sheet(draw, {label: names, **columns, header: cells}, header, rule)


def _duration(draw: Draw, level: int) -> CsvSheet:
    n = _count(draw, level)
    label, names = _labels(draw, n)
    grain = (10, 5, 5, 1)[level - 1]
    begins = [draw.between(360 // grain, 1080 // grain) * grain for _ in range(n)]
    lengths = [draw.between(10, (50, 90, 180, 300)[level - 1]) // grain * grain for _ in range(n)]
    x, y = draw.choice((("start", "end"), ("opens", "closes"), ("leaves", "arrives"), ("from", "until")))
    columns: dict[str, Sequence[object]] = {
        label: names,
        x: [clock(b) for b in begins],
        "minutes": lengths,
        y: [clock(b + m) for b, m in zip(begins, lengths, strict=True)],
    }
    hide = y if level == 1 else draw.choice((x, y, "minutes"))
    return _sheet(draw, columns, hide, f"{y} is {x} plus minutes", plain=True)


def _column_total(draw: Draw, level: int) -> CsvSheet:
    n = _count(draw, level)
    label, names = _labels(draw, n - 1)
    header = draw.choice(("qty", "votes", "km", "cost", "guests", "weight", "pages", "stock"))
    values = [draw.between(2, (30, 90, 300, 900)[level - 1]) for _ in range(n - 1)]
    rows = (*((name, str(v)) for name, v in zip(names, values, strict=True)), ("total", str(sum(values))))
    at = n - 1 if level == 1 else draw.choice((n - 1, draw.below(n - 1)))
    return CsvSheet((label, header), rows, (at, 1), f"the last row adds up the {header} column", plain=True)


def _points(draw: Draw, level: int) -> CsvSheet:
    n = _count(draw, level)
    teams = distinct(draw, TEAMS, n)
    won, drawn = [draw.between(0, 15) for _ in range(n)], [draw.between(0, 9) for _ in range(n)]
    w = 3 if level < 3 else draw.between(2, 9)
    d = 1 if level < 4 else draw.between(2, 4)
    points = [w * i + d * j for i, j in zip(won, drawn, strict=True)]
    rule = f"points = {w} * won + {'' if d == 1 else f'{d} * '}drawn"
    return _sheet(draw, {"team": teams, "won": won, "drawn": drawn, "points": points}, "points", rule)


def _discount(draw: Draw, level: int) -> CsvSheet:
    n = _count(draw, level)
    label, names = _labels(draw, n)
    offs = [draw.choice((10, 20, 50) if level < 3 else (5, 10, 15, 20, 25, 30, 40, 60)) for _ in range(n)]
    prices = [draw.between(1, 9 if level < 3 else 45) * 20 for _ in range(n)]
    pays = [p * (100 - o) // 100 for p, o in zip(prices, offs, strict=True)]
    hide = "pay" if level < 4 else draw.choice(("pay", "price"))
    rule = "pay is price minus off percent of it"
    return _sheet(draw, {label: names, "price": prices, "off": offs, "pay": pays}, hide, rule)


_CLASSES: tuple[Sequence[str], ...] = (
    ("gold", "silver", "bronze"),
    ("A", "B", "C"),
    ("high", "middle", "low"),
    ("pass", "retry", "fail"),
    ("first", "second", "third"),
)


def _graded(draw: Draw, level: int) -> CsvSheet:
    n = _count(draw, level)
    names = distinct(draw, FIRST, n)
    marks = draw.sample(range(20, 100), n)
    words = draw.choice(_CLASSES) if draw.chance(0.6) else distinct(draw, invented, 3)
    upper, lower = draw.between(65, 85), draw.between(35, 60)
    grades = [words[0] if m >= upper else words[1] if m >= lower else words[2] for m in marks]
    rule = f"class is {words[0]} from {upper} marks, {words[1]} from {lower}, else {words[2]}"
    return _sheet(draw, {"name": names, "marks": marks, "class": grades}, "class", rule)


def _mirror(draw: Draw, level: int) -> CsvSheet:
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


def _turns(draw: Draw, level: int) -> CsvSheet:
    """Names, days or words that come round in a fixed order."""
    n = max(5, _count(draw, level) + 1)
    kind = draw.choice(("people", "days", "months", "goods"))
    k = 2 if level == 1 else 3
    start, by = draw.below(84), draw.between(1, 1 if level < 3 else 3)
    if kind in ("days", "months"):
        cycle: Sequence[str] = DAYS if kind == "days" else MONTHS
        cells = [cycle[(start + by * i) % len(cycle)] for i in range(n)]
        header = kind.removesuffix("s")
        rule = f"from row to row {header} moves on by {by}"
    else:
        cycle = distinct(draw, FIRST if kind == "people" else GOODS, k)
        cells = [cycle[i % k] for i in range(n)]
        header = "cook" if kind == "people" else "prize"
        rule = f"{k} {'people' if kind == 'people' else 'prizes'} take turns in a fixed order"
    round_ = draw.choice(("round", "week", "no", "turn"))
    first = draw.between(1, 80)
    numbers = [first + i for i in range(n)]
    return _sheet(draw, {round_: numbers, header: cells}, header, rule, plain=kind in ("days", "months"), first=k)


def _duel(draw: Draw, level: int) -> CsvSheet:
    """Which of two named sides has more."""
    n = min(5, _count(draw, level))
    kind = draw.choice((FIRST, TEAMS, SURNAMES))
    sides = distinct(draw, kind, 2 * n)
    a, b = sides[:n], sides[n:]
    x, y = [draw.between(0, 99) for _ in range(n)], [draw.between(0, 99) for _ in range(n)]
    y = [j + 1 if i == j else j for i, j in zip(x, y, strict=True)]
    less = level > 2 and draw.chance(0.5)
    better = [p if (i < j) == less else q for p, q, i, j in zip(a, b, x, y, strict=True)]
    rule = f"winner is the one with {'fewer' if less else 'more'} points"
    return _sheet(draw, {"a": a, "pts_a": x, "b": b, "pts_b": y, "winner": better}, "winner", rule)


def _legs(draw: Draw, level: int) -> CsvSheet:
    """A route: each leg starts where the one before ended."""
    n = _count(draw, level)
    stops = distinct(draw, place_name, n + 1)
    kms = [draw.between(10, 400) for _ in range(n)]
    columns: dict[str, Sequence[object]] = {
        "leg": list(range(1, n + 1)),
        "from": stops[:-1],
        "to": stops[1:],
        "km": kms,
    }
    sheet = _sheet(draw, columns, "from", "each leg starts where the one before ended", plain=level < 3, first=1)
    if draw.chance(0.5):
        sheet = replace(sheet, hole=(sheet.hole[0] - 1, 2))
    if level < 3:
        return sheet
    # Out of order, the leg numbers tell which came before.
    order = draw.shuffled(range(n))
    rows = tuple(sheet.rows[i] for i in order)
    return replace(sheet, rows=rows, hole=(order.index(sheet.hole[0]), sheet.hole[1]))


def _stay(draw: Draw, level: int) -> CsvSheet:
    """Dates: arrival, nights, departure."""
    n = _count(draw, level)
    names = distinct(draw, FIRST, n)
    year = draw.between(2001, 2039)
    span = 15 if level < 3 else 340
    arrive = [date(year, draw.between(1, 12) if level < 3 else 1, 1) + timedelta(draw.below(span)) for _ in range(n)]
    nights = [draw.between(1, 9 if level < 3 else 25) for _ in range(n)]
    leave = [a + timedelta(k) for a, k in zip(arrive, nights, strict=True)]
    columns: dict[str, Sequence[object]] = {"guest": names, "arrives": arrive, "nights": nights, "leaves": leave}
    hide = "leaves" if level < 3 else draw.choice(("arrives", "nights", "leaves"))
    return _sheet(draw, columns, hide, "leaves is arrives plus nights", plain=True)


KINDS: dict[str, tuple[int, Callable[[Draw, int], CsvSheet]]] = {
    "product": (1, _product),
    "total": (1, _total),
    "difference": (1, _difference),
    "running": (1, _running),
    "step": (1, _step),
    "lookup": (1, _lookup),
    "pairwise": (3, _pairwise),
    "convert": (1, _convert),
    "coded": (1, _coded),
    "spelling": (1, _spelling),
    "rank": (1, _rank),
    "extreme": (1, _extreme),
    "duration": (1, _duration),
    "column-total": (1, _column_total),
    "points": (2, _points),
    "discount": (2, _discount),
    "graded": (2, _graded),
    "mirror": (1, _mirror),
    "turns": (1, _turns),
    "duel": (2, _duel),
    "legs": (1, _legs),
    "stay": (2, _stay),
}
"""Each kind with the first level it appears at."""
WORDY = ("lookup", "coded", "spelling", "legs", "pairwise")

_FRAMES = (
    "{table}\n{rule}\nWhich value belongs where the question marks are?",
    "One cell of this table is hidden by ???.\n{table}\n{rule}\nFind it.",
    "Fill in the missing cell ???.\n{table}\n{rule}",
    "CSV with one gap:\n{table}\n{rule}\nWhich cell is ???",
    "A cell was lost when the file was saved.\n{table}\n{rule}\nRestore the ??? cell.",
    "{rule}\n{table}\nReplace ??? by the right value.",
    "{name} spilled ink on one cell.\n{table}\n{rule}\nWhat did the cell ??? say?",
    "Table from the {site}:\n{table}\n{rule}\nComplete it: ??? =",
    "Read the table and work out the cell marked ???.\n{table}\n{rule}",
    "The cell ??? can be found from the others.\n{rule}\n{table}",
    "{table}\n{rule}\nCompute or look up the unknown cell.",
    "data.csv\n{table}\n{rule}\nOnly one cell is unknown (???).",
    "Repair this file.\n{table}\n{rule}",
    "{name} exported this table with one cell missing:\n{table}\n{rule}\nSupply it.",
    "Unknown: ???\n{table}\n{rule}",
    "Check the rows, then give the value of ???.\n{rule}\n{table}",
)

_RULES = (
    "Rule: {rule}.",
    "Note: {rule}.",
    "It holds that {rule}.",
    "In this table, {rule}.",
    "({rule})",
    "Here {rule}.",
)

_WHAT = (
    "only the missing value",
    "just the hidden cell",
    "the missing cell",
    "the value of ???",
    "the value alone (not its row)",
)

_LENGTHS = (200, 230, 330, 390)


def _padded(draw: Draw, sheet: CsvSheet) -> CsvSheet:
    """The sheet with a column more, of words that have nothing to do with the hidden cell."""
    header, words = draw.choice((("shade", COLOURS), ("made_of", MATERIALS), ("clerk", FIRST), ("store", SITES)))
    if header in sheet.header:
        return sheet
    at = draw.between(0, len(sheet.header))
    cells = [draw.choice(words) for _ in sheet.rows]
    rows = tuple((*row[:at], cell, *row[at:]) for row, cell in zip(sheet.rows, cells, strict=True))
    row, column = sheet.hole
    return replace(
        sheet,
        header=(*sheet.header[:at], header, *sheet.header[at:]),
        rows=rows,
        hole=(row, column + (at <= column)),
    )


def _written(sheet: CsvSheet) -> str:
    rows = [list(row) for row in sheet.rows]
    row, column = sheet.hole
    rows[row][column] = HOLE
    return "\n".join(",".join(cells) for cells in [list(sheet.header), *rows])


def _fits(sheet: CsvSheet, level: int) -> bool:
    answer = sheet.rows[sheet.hole[0]][sheet.hole[1]]
    digits = sum(char.isdigit() for char in answer)
    return len(answer) <= LIMIT and digits <= DIGITS and len(_written(sheet)) <= _LENGTHS[level - 1] and answer != ""


def generate(draw: Draw, level: int) -> Draft:
    """One example of the given level."""
    require(level in LEVELS, "level", level, "1 to 4", "choose one of them")
    # Tables whose answer is a word come up twice as often: numbers repeat sooner.
    kind = draw.choice(
        [name for name, (first, _) in KINDS.items() if first <= level for _ in range(1 + (name in WORDY))]
    )
    sheet = KINDS[kind][1](draw, level)
    while not _fits(sheet, level):
        sheet = KINDS[kind][1](draw, level)
    if level > 2 and kind != "column-total" and draw.chance(0.35):
        sheet = _padded(draw, sheet)
    at = draw.below(len(_FRAMES))
    said = not (sheet.plain and draw.chance((0.2, 0.35, 0.5, 0.5)[level - 1]))
    rule = draw.choice(_RULES).format(rule=sheet.rule) if said else ""
    task = _FRAMES[at].format(table=_written(sheet), rule=rule, name=draw.choice(FIRST), site=draw.choice(SITES))
    prompt = f"{task}\n{closing(draw, draw.choice(_WHAT))}".replace("\n\n", "\n").strip()
    answer = sheet.rows[sheet.hole[0]][sheet.hole[1]]
    constraints: dict[str, Json] = {"kind": kind, "frame": str(at), "rule": sheet.rule, "stated": said}
    return Draft(prompt, answer, (answer,), constraints, level)
