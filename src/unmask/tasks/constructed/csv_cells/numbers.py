"""Tables whose hidden cell is a number that follows by arithmetic, across a row or down a column."""

from collections.abc import Callable, Sequence

from unmask.tasks.constructed.csv_cells.sheet import CsvSheet, hide_cell, labelled, labels, row_count
from unmask.tasks.draw import Draw
from unmask.tasks.words import DAYS, TEAMS, distinct

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


def product(draw: Draw, level: int) -> CsvSheet:
    """One column is the product of two others."""
    n, label, names = labelled(draw, level)
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
        return hide_cell(draw, columns, z, f"{z} = {x} * {y} + extra")
    hide = draw.choice((x, y, z, z)) if level > 1 else z
    return hide_cell(draw, columns, hide, f"{z} = {x} * {y}", plain=True)


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


def total(draw: Draw, level: int) -> CsvSheet:
    """One column is the sum of two or three others."""
    n, label, names = labelled(draw, level)
    x, y, z = draw.choice(_SUMS)
    parts = [x, y] if level == 1 else [x, y, draw.choice(_THIRDS)]
    top = (40, 99, 300, 900)[level - 1]
    columns: dict[str, Sequence[object]] = {part: [draw.between(1, top) for _ in range(n)] for part in parts}
    sums = [sum(int(str(cell)) for cell in row) for row in zip(*columns.values(), strict=True)]
    hide = draw.choice([*parts, z, z]) if level > 1 else z
    return hide_cell(draw, {label: names, **columns, z: sums}, hide, f"{z} = {' + '.join(parts)}", plain=True)


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


def difference(draw: Draw, level: int) -> CsvSheet:
    """One column is the difference of two others."""
    n, label, names = labelled(draw, level)
    x, y, z = draw.choice(_DIFFERENCES)
    top = (30, 99, 900, 5000)[level - 1]
    b = [draw.between(1, top // 2) for _ in range(n)]
    c = [draw.between(1, top // 2) for _ in range(n)]
    a = [i + j for i, j in zip(b, c, strict=True)]
    hide = z if level == 1 else draw.choice((x, y, z))
    return hide_cell(draw, {label: names, x: a, y: b, z: c}, hide, f"{z} = {x} - {y}", plain=True)


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


def running(draw: Draw, level: int) -> CsvSheet:
    """A column that adds up another one, row by row."""
    n = row_count(draw, level)
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
        return hide_cell(draw, columns, draw.choice(("in", "out", total)), rule)
    return hide_cell(draw, columns, total if level == 1 else draw.choice((step, total)), rule, plain=level < 3)


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


def convert(draw: Draw, level: int) -> CsvSheet:
    """The same amounts in two units."""
    n, label, names = labelled(draw, level)
    big, small, factor = draw.choice(_UNITS)
    top = (9, 30, 90, 400)[level - 1]
    values = [draw.between(2, top if factor < 500 else min(top, 90)) for _ in range(n)]
    columns: dict[str, Sequence[object]] = {label: names, big: values, small: [v * factor for v in values]}
    hide = small if level < 3 else draw.choice((big, small))
    return hide_cell(draw, columns, hide, f"{small} = {big} * {factor}", plain=level > 1)


def column_total(draw: Draw, level: int) -> CsvSheet:
    """A last row that adds up a column."""
    n = row_count(draw, level)
    label, names = labels(draw, n - 1)
    header = draw.choice(("qty", "votes", "km", "cost", "guests", "weight", "pages", "stock"))
    values = [draw.between(2, (30, 90, 300, 900)[level - 1]) for _ in range(n - 1)]
    rows = (*((name, str(v)) for name, v in zip(names, values, strict=True)), ("total", str(sum(values))))
    at = n - 1 if level == 1 else draw.choice((n - 1, draw.below(n - 1)))
    return CsvSheet((label, header), rows, (at, 1), f"the last row adds up the {header} column", plain=True)


def points(draw: Draw, level: int) -> CsvSheet:
    """Points for games won and drawn."""
    n = row_count(draw, level)
    teams = distinct(draw, TEAMS, n)
    won, drawn = [draw.between(0, 15) for _ in range(n)], [draw.between(0, 9) for _ in range(n)]
    w = 3 if level < 3 else draw.between(2, 9)
    d = 1 if level < 4 else draw.between(2, 4)
    points = [w * i + d * j for i, j in zip(won, drawn, strict=True)]
    rule = f"points = {w} * won + {'' if d == 1 else f'{d} * '}drawn"
    return hide_cell(draw, {"team": teams, "won": won, "drawn": drawn, "points": points}, "points", rule)


def discount(draw: Draw, level: int) -> CsvSheet:
    """A price, a discount in percent, and what is left to pay."""
    n, label, names = labelled(draw, level)
    offs = [draw.choice((10, 20, 50) if level < 3 else (5, 10, 15, 20, 25, 30, 40, 60)) for _ in range(n)]
    prices = [draw.between(1, 9 if level < 3 else 45) * 20 for _ in range(n)]
    pays = [p * (100 - o) // 100 for p, o in zip(prices, offs, strict=True)]
    hide = "pay" if level < 4 else draw.choice(("pay", "price"))
    rule = "pay is price minus off percent of it"
    return hide_cell(draw, {label: names, "price": prices, "off": offs, "pay": pays}, hide, rule)


def rank(draw: Draw, level: int) -> CsvSheet:
    """Places by a score."""
    n, label, names = labelled(draw, level)
    score = draw.choice(("score", "height", "speed", "age", "price", "weight", "mark", "depth", "income", "area"))
    values = draw.sample(range(10, (60, 99, 400, 999)[level - 1]), n)
    low = level > 2 and draw.chance(0.5)
    order = sorted(values, reverse=not low)
    ranks = [order.index(v) + 1 for v in values]
    rule = f"rank 1 goes to the {'lowest' if low else 'highest'} {score}"
    return hide_cell(draw, {label: names, score: values, "rank": ranks}, "rank", rule)


# First level, header, how the cell is made from the tries, and the rule in words.
_EXTREMES: tuple[tuple[int, str, Callable[[Sequence[int]], int], str], ...] = (
    (1, "best", max, "best is the highest of the tries"),
    (1, "worst", min, "worst is the lowest of the tries"),
    (3, "spread", lambda tries: max(tries) - min(tries), "spread is the highest try minus the lowest"),
    (3, "ends", lambda tries: max(tries) + min(tries), "ends is the highest try plus the lowest"),
)


def extreme(draw: Draw, level: int) -> CsvSheet:
    """The best, the worst or the spread of several tries."""
    n, label, names = labelled(draw, level)
    tries = ["try1", "try2", "try3", "try4"][: (2, 3, 3, 4)[level - 1]]
    columns = {t: [draw.between(10, (50, 99, 400, 999)[level - 1]) for _ in range(n)] for t in tries}
    _, header, make, rule = draw.choice([entry for entry in _EXTREMES if entry[0] <= level])
    cells = [make(row) for row in zip(*columns.values(), strict=True)]
    return hide_cell(draw, {label: names, **columns, header: cells}, header, rule)
