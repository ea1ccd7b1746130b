"""CSV Missing Cells: a small table with one cell hidden, and the rest of the table to find it by.

Each kind of table has a reason why the hidden cell can only be one value: arithmetic across a row or down a column, a
step, a lookup of another row, a code made from other cells. The rule is spelled out unless the table shows it by
itself.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import NamedTuple

from unmask.tasks import scorers
from unmask.tasks import words as w
from unmask.tasks.draw import Draw, Json
from unmask.tasks.splits import constructed_task
from unmask.tasks.task import Example, Scorer


@dataclass(frozen=True)
class CsvTable:
    """A full table, the position of the cell to hide, and the rule by which its value can be found."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    hole: tuple[int, int]
    rule: str
    plain: bool = False
    """True if the rows show the rule so well that the prompt may leave it out."""


def _draw_row_count(draw: Draw, level: int) -> int:
    """Draw the number of rows of a table."""
    return draw.integer(*((3, 4), (4, 5), (5, 6), (6, 7))[level - 1])


_LABELS: tuple[tuple[str, Sequence[str]], ...] = (
    ("item", w.THINGS),
    ("food", w.FOODS),
    ("name", w.FIRST),
    ("animal", w.ANIMALS),
    ("plant", w.PLANTS),
    ("place", w.SITES),
    ("colour", w.COLOURS),
    ("team", w.TEAMS),
    ("surname", w.SURNAMES),
    ("material", w.MATERIALS),
    ("event", w.EVENTS),
    ("job", w.JOBS),
    ("goods", w.GOODS),
)

_MADE: tuple[tuple[str, Callable[[Draw], str]], ...] = (
    ("code", w.draw_item_code),
    ("town", w.draw_place_name),
    ("brand", w.invent_word),
)


def _draw_labels(draw: Draw, n: int) -> tuple[str, list[str]]:
    """Draw the header and n different cells of a first column, which names the rows."""
    if draw.chance(0.2):
        header, make = draw.choice(_MADE)
        return header, w.pick_distinct(draw, make, n)
    header, words = draw.choice(_LABELS)
    return header, w.pick_distinct(draw, words, n)


def _draw_label_column(draw: Draw, level: int) -> tuple[int, str, list[str]]:
    """Draw the number of rows of a table, and the header and cells of its first column."""
    n = _draw_row_count(draw, level)
    return n, *_draw_labels(draw, n)


def _hide_cell(
    draw: Draw, columns: Mapping[str, Sequence[object]], hide: str, rule: str, plain: bool = False, first: int = 0
) -> CsvTable:
    """Make a table of these columns, and hide a cell of column `hide` in a random row from `first` on."""
    header = tuple(columns)
    rows = tuple(tuple(str(cell) for cell in row) for row in zip(*columns.values(), strict=True))
    at = draw.integer(first, len(rows) - 1)
    return CsvTable(header, rows, (at, header.index(hide)), rule, plain)


# Tables whose hidden cell is a number that follows by arithmetic, across a row or down a column

_PRODUCTS: tuple[tuple[str, str, str], ...] = w.sentences("csv_cells", "products")


def _make_product_table(draw: Draw, level: int) -> CsvTable:
    """Make a table with a column that is the product of two others."""
    n, label, names = _draw_label_column(draw, level)
    x, y, z = draw.choice(_PRODUCTS)
    low, high = ((2, 9), (2, 9), (11, 30), (12, 60))[level - 1]
    a = [draw.integer(low, high) for _ in range(n)]
    low, high = ((2, 12), (11, 60), (11, 60), (12, 99))[level - 1]
    b = [draw.integer(low, high) for _ in range(n)]
    product = [i * j for i, j in zip(a, b, strict=True)]
    columns: dict[str, Sequence[object]] = {label: names, x: a, y: b, z: product}
    if level == 4 and draw.chance(0.5):
        extra = [draw.integer(2, 40) for _ in range(n)]
        total = [i + j for i, j in zip(product, extra, strict=True)]
        columns = {label: names, x: a, y: b, "extra": extra, z: total}
        return _hide_cell(draw, columns, z, f"{z} = {x} * {y} + extra")
    hide = draw.choice((x, y, z, z)) if level > 1 else z
    return _hide_cell(draw, columns, hide, f"{z} = {x} * {y}", plain=True)


_SUMS: tuple[tuple[str, str, str], ...] = w.sentences("csv_cells", "sums")
_THIRDS: tuple[str, ...] = w.sentences("csv_cells", "thirds")


def _make_total_table(draw: Draw, level: int) -> CsvTable:
    """Make a table with a column that is the sum of two or three others."""
    n, label, names = _draw_label_column(draw, level)
    x, y, z = draw.choice(_SUMS)
    parts = [x, y] if level == 1 else [x, y, draw.choice(_THIRDS)]
    top = (40, 99, 300, 900)[level - 1]
    columns: dict[str, Sequence[object]] = {part: [draw.integer(1, top) for _ in range(n)] for part in parts}
    sums = [sum(int(str(cell)) for cell in row) for row in zip(*columns.values(), strict=True)]
    hide = draw.choice([*parts, z, z]) if level > 1 else z
    return _hide_cell(draw, {label: names, **columns, z: sums}, hide, f"{z} = {' + '.join(parts)}", plain=True)


_DIFFERENCES: tuple[tuple[str, str, str], ...] = w.sentences("csv_cells", "differences")


def _make_difference_table(draw: Draw, level: int) -> CsvTable:
    """Make a table with a column that is the difference of two others."""
    n, label, names = _draw_label_column(draw, level)
    x, y, z = draw.choice(_DIFFERENCES)
    top = (30, 99, 900, 5000)[level - 1]
    b = [draw.integer(1, top // 2) for _ in range(n)]
    c = [draw.integer(1, top // 2) for _ in range(n)]
    a = [i + j for i, j in zip(b, c, strict=True)]
    hide = z if level == 1 else draw.choice((x, y, z))
    return _hide_cell(draw, {label: names, x: a, y: b, z: c}, hide, f"{z} = {x} - {y}", plain=True)


_RUNNING: tuple[tuple[str, str], ...] = w.sentences("csv_cells", "running")


def _make_running_table(draw: Draw, level: int) -> CsvTable:
    """Make a table with a column of running totals of another column."""
    n = _draw_row_count(draw, level)
    step, total = draw.choice(_RUNNING)
    top = (20, 60, 300, 900)[level - 1]
    steps = [draw.integer(1, top) for _ in range(n)]
    sums = [sum(steps[: i + 1]) for i in range(n)]
    start = draw.index(7)
    days = [w.DAYS[(start + i) % 7][:3] for i in range(n)]
    columns: dict[str, Sequence[object]] = {"day": days, step: steps, total: sums}
    rule = f"{total} adds up {step} from the first row on"
    if level == 4:
        out = [draw.integer(1, max(1, so_far // n)) for so_far in sums]
        left = [sums[i] - sum(out[: i + 1]) for i in range(n)]
        columns = {"day": days, "in": steps, "out": out, total: left}
        rule = f"{total} = {total} of the row above (0 at the start) + in - out"
        return _hide_cell(draw, columns, draw.choice(("in", "out", total)), rule)
    return _hide_cell(draw, columns, total if level == 1 else draw.choice((step, total)), rule, plain=level < 3)


_UNITS: tuple[tuple[str, str, int], ...] = w.sentences("csv_cells", "units")


def _make_units_table(draw: Draw, level: int) -> CsvTable:
    """Make a table with the same amounts in two units."""
    n, label, names = _draw_label_column(draw, level)
    big, small, factor = draw.choice(_UNITS)
    top = (9, 30, 90, 400)[level - 1]
    values = [draw.integer(2, top if factor < 500 else min(top, 90)) for _ in range(n)]
    columns: dict[str, Sequence[object]] = {label: names, big: values, small: [v * factor for v in values]}
    hide = small if level < 3 else draw.choice((big, small))
    return _hide_cell(draw, columns, hide, f"{small} = {big} * {factor}", plain=level > 1)


def _make_column_total_table(draw: Draw, level: int) -> CsvTable:
    """Make a table whose last row adds up a column."""
    n = _draw_row_count(draw, level)
    label, names = _draw_labels(draw, n - 1)
    header = draw.choice(("qty", "votes", "km", "cost", "guests", "weight", "pages", "stock"))
    values = [draw.integer(2, (30, 90, 300, 900)[level - 1]) for _ in range(n - 1)]
    rows = (*((name, str(v)) for name, v in zip(names, values, strict=True)), ("total", str(sum(values))))
    at = n - 1 if level == 1 else draw.choice((n - 1, draw.index(n - 1)))
    return CsvTable((label, header), rows, (at, 1), f"the last row adds up the {header} column", plain=True)


def _make_points_table(draw: Draw, level: int) -> CsvTable:
    """Make a table of points for games won and drawn."""
    n = _draw_row_count(draw, level)
    teams = w.pick_distinct(draw, w.TEAMS, n)
    won, drawn = [draw.integer(0, 15) for _ in range(n)], [draw.integer(0, 9) for _ in range(n)]
    per_win = 3 if level < 3 else draw.integer(2, 9)
    per_draw = 1 if level < 4 else draw.integer(2, 4)
    points = [per_win * i + per_draw * j for i, j in zip(won, drawn, strict=True)]
    rule = f"points = {per_win} * won + {'' if per_draw == 1 else f'{per_draw} * '}drawn"
    return _hide_cell(draw, {"team": teams, "won": won, "drawn": drawn, "points": points}, "points", rule)


def _make_discount_table(draw: Draw, level: int) -> CsvTable:
    """Make a table of prices, discounts in percent, and the sums to pay."""
    n, label, names = _draw_label_column(draw, level)
    offs = [draw.choice((10, 20, 50) if level < 3 else (5, 10, 15, 20, 25, 30, 40, 60)) for _ in range(n)]
    # With multiples of 20 every discount, a multiple of 5 percent, leaves a whole price.
    prices = [draw.integer(1, 9 if level < 3 else 45) * 20 for _ in range(n)]
    pays = [p * (100 - o) // 100 for p, o in zip(prices, offs, strict=True)]
    hide = "pay" if level < 4 else draw.choice(("pay", "price"))
    rule = "pay is price minus off percent of it"
    return _hide_cell(draw, {label: names, "price": prices, "off": offs, "pay": pays}, hide, rule)


def _make_rank_table(draw: Draw, level: int) -> CsvTable:
    """Make a table of scores, and of each row's rank by its score."""
    n, label, names = _draw_label_column(draw, level)
    score = draw.choice(("score", "height", "speed", "age", "price", "weight", "mark", "depth", "income", "area"))
    values = draw.sample(range(10, (60, 99, 400, 999)[level - 1]), n)
    low = level > 2 and draw.chance(0.5)
    order = sorted(values, reverse=not low)
    ranks = [order.index(v) + 1 for v in values]
    rule = f"rank 1 goes to the {'lowest' if low else 'highest'} {score}"
    return _hide_cell(draw, {label: names, score: values, "rank": ranks}, "rank", rule)


# First level, header, how the cell is made from the tries, and the rule in words.
_EXTREMES: tuple[tuple[int, str, Callable[[Sequence[int]], int], str], ...] = (
    (1, "best", max, "best is the highest of the tries"),
    (1, "worst", min, "worst is the lowest of the tries"),
    (3, "spread", lambda tries: max(tries) - min(tries), "spread is the highest try minus the lowest"),
    (3, "ends", lambda tries: max(tries) + min(tries), "ends is the highest try plus the lowest"),
)


def _make_extreme_table(draw: Draw, level: int) -> CsvTable:
    """Make a table with the best, the worst or the spread of several tries."""
    n, label, names = _draw_label_column(draw, level)
    tries = ["try1", "try2", "try3", "try4"][: (2, 3, 3, 4)[level - 1]]
    columns = {t: [draw.integer(10, (50, 99, 400, 999)[level - 1]) for _ in range(n)] for t in tries}
    _, header, make, rule = draw.choice([entry for entry in _EXTREMES if entry[0] <= level])
    cells = [make(row) for row in zip(*columns.values(), strict=True)]
    return _hide_cell(draw, {label: names, **columns, header: cells}, header, rule)


# Tables whose rows follow one another: a step, turns, times, legs of a route, dates


def _make_step_table(draw: Draw, level: int) -> CsvTable:
    """Make a table with a column that changes by the same step from row to row."""
    n = max(4, _draw_row_count(draw, level))
    label, names = _draw_labels(draw, n)
    kind = draw.choice((("no",), ("no", "tag", "time"), ("tag", "time", "date"), ("date", "time", "power"))[level - 1])
    if kind == "no":
        start, by = draw.integer(1, 900), draw.integer(2, 40 if level > 1 else 12)
        header = draw.choice(("no", "page", "seat", "locker", "km", "house", "lot"))
        cells = [str(start + by * i) for i in range(n)]
        rule = f"{header} rises by the same amount from row to row"
    elif kind == "tag":
        head, start, by = (
            draw.choice(w.CODE_LETTERS) + draw.choice(w.CODE_LETTERS),
            draw.integer(10, 600),
            draw.integer(2, 49),
        )
        header = draw.choice(("tag", "ref", "label", "shelf"))
        cells = [f"{head}-{start + by * i:04d}" for i in range(n)]
        rule = f"the number in {header} rises by the same amount from row to row"
    elif kind == "time":
        start, by = draw.integer(60, 140) * 5, draw.integer(2, 25) * 5 if level < 4 else draw.integer(11, 110)
        header = draw.choice(("time", "start", "leaves", "opens"))
        cells = [w.clock_time(start + by * i) for i in range(n)]
        rule = f"{header} moves on by the same number of minutes from row to row"
    elif kind == "date":
        day = date(draw.integer(1990, 2039), 1, 1) + timedelta(draw.index(365))
        by = draw.integer(2, 9) if level < 4 else draw.integer(7, 30)
        back = level == 4 and draw.chance(0.5)
        header = draw.choice(("date", "due", "visit", "shift"))
        cells = [(day + timedelta(-by * i if back else by * i)).isoformat() for i in range(n)]
        rule = f"{header} moves {'back' if back else 'on'} by the same number of days from row to row"
    else:
        n = min(n, 6)
        start, by = draw.integer(2, 19), draw.integer(2, 4)
        header = draw.choice(("cells", "grains", "shares", "copies"))
        cells = [str(start * by**i) for i in range(n)]
        rule = f"{header} is multiplied by the same number from row to row"
        names = names[:n]
    # Two cells in a row must stay, or the step could not be told without counting rows.
    return _hide_cell(draw, {label: names, header: cells}, header, rule, plain=True, first=2)


def _make_duration_table(draw: Draw, level: int) -> CsvTable:
    """Make a table of starting times, minutes and ending times."""
    n, label, names = _draw_label_column(draw, level)
    grain = (10, 5, 5, 1)[level - 1]
    begins = [draw.integer(360 // grain, 1080 // grain) * grain for _ in range(n)]
    lengths = [draw.integer(10, (50, 90, 180, 300)[level - 1]) // grain * grain for _ in range(n)]
    x, y = draw.choice((("start", "end"), ("opens", "closes"), ("leaves", "arrives"), ("from", "until")))
    columns: dict[str, Sequence[object]] = {
        label: names,
        x: [w.clock_time(b) for b in begins],
        "minutes": lengths,
        y: [w.clock_time(b + m) for b, m in zip(begins, lengths, strict=True)],
    }
    hide = y if level == 1 else draw.choice((x, y, "minutes"))
    return _hide_cell(draw, columns, hide, f"{y} is {x} plus minutes", plain=True)


def _make_turns_table(draw: Draw, level: int) -> CsvTable:
    """Make a table of names, days or words that take turns in a fixed order."""
    n = max(5, _draw_row_count(draw, level) + 1)
    kind = draw.choice(("people", "days", "months", "goods"))
    k = 2 if level == 1 else 3
    start, by = draw.index(84), draw.integer(1, 1 if level < 3 else 3)
    if kind in ("days", "months"):
        cycle: Sequence[str] = w.DAYS if kind == "days" else w.MONTHS
        cells = [cycle[(start + by * i) % len(cycle)] for i in range(n)]
        header = kind.removesuffix("s")
        rule = f"from row to row {header} moves on by {by}"
    else:
        cycle = w.pick_distinct(draw, w.FIRST if kind == "people" else w.GOODS, k)
        cells = [cycle[i % k] for i in range(n)]
        header = "cook" if kind == "people" else "prize"
        rule = f"{k} {'people' if kind == 'people' else 'prizes'} take turns in a fixed order"
    round_ = draw.choice(("round", "week", "no", "turn"))
    first = draw.integer(1, 80)
    numbers = [first + i for i in range(n)]
    return _hide_cell(draw, {round_: numbers, header: cells}, header, rule, plain=kind in ("days", "months"), first=k)


def _make_legs_table(draw: Draw, level: int) -> CsvTable:
    """Make a table of the legs of a route, where each leg starts where the one before ended."""
    n = _draw_row_count(draw, level)
    stops = w.pick_distinct(draw, w.draw_place_name, n + 1)
    kms = [draw.integer(10, 400) for _ in range(n)]
    columns: dict[str, Sequence[object]] = {
        "leg": list(range(1, n + 1)),
        "from": stops[:-1],
        "to": stops[1:],
        "km": kms,
    }
    sheet = _hide_cell(draw, columns, "from", "each leg starts where the one before ended", plain=level < 3, first=1)
    # Or hide the end of the leg before, which is the same town.
    if draw.chance(0.5):
        sheet = replace(sheet, hole=(sheet.hole[0] - 1, 2))
    if level < 3:
        return sheet
    # Out of order, the leg numbers tell which came before.
    order = draw.permute(range(n))
    rows = tuple(sheet.rows[i] for i in order)
    return replace(sheet, rows=rows, hole=(order.index(sheet.hole[0]), sheet.hole[1]))


def _make_stay_table(draw: Draw, level: int) -> CsvTable:
    """Make a table of arrivals, nights and departures."""
    n = _draw_row_count(draw, level)
    names = w.pick_distinct(draw, w.FIRST, n)
    year = draw.integer(2001, 2039)
    span = 15 if level < 3 else 340
    arrive = [date(year, draw.integer(1, 12) if level < 3 else 1, 1) + timedelta(draw.index(span)) for _ in range(n)]
    nights = [draw.integer(1, 9 if level < 3 else 25) for _ in range(n)]
    leave = [a + timedelta(k) for a, k in zip(arrive, nights, strict=True)]
    columns: dict[str, Sequence[object]] = {"guest": names, "arrives": arrive, "nights": nights, "leaves": leave}
    hide = "leaves" if level < 3 else draw.choice(("arrives", "nights", "leaves"))
    return _hide_cell(draw, columns, hide, "leaves is arrives plus nights", plain=True)


# Tables whose hidden cell is a word: looked up in another row, made from other cells, or chosen by a number

_LOOKUPS = (
    ("sku", "code", "product", w.GOODS),
    ("dept", "idea", "head", w.SURNAMES),
    ("plate", "code", "owner", w.FIRST),
    ("team", "team", "coach", w.SURNAMES),
    ("course", "idea", "teacher", w.SURNAMES),
    ("room", "room", "warden", w.FIRST),
    ("town", "town", "mayor", w.SURNAMES),
    ("ship", "made", "captain", w.SURNAMES),
    ("shelf", "room", "content", w.GOODS),
    ("brand", "made", "product", w.GOODS),
    ("stall", "room", "offer", w.FOODS),
    ("player", "first", "team", w.TEAMS),
    ("pet", "made", "kind", w.ANIMALS),
    ("worker", "first", "job", w.JOBS),
    ("bed", "room", "crop", w.PLANTS),
    ("part", "code", "material", w.MATERIALS),
    ("firm", "made", "town", ()),
    ("model", "code", "name", ()),
)


def _draw_keys(draw: Draw, kind: str, k: int, alike: bool) -> list[str]:
    """Draw k different keys of one kind for a lookup table. If `alike`, article numbers differ in one digit only."""
    if kind == "idea":
        return w.pick_distinct(
            draw, ["art", "music", "law", "sales", "sport", "design", "cloth", "toys", "travel", "audit"], k
        )
    if kind == "team":
        return w.pick_distinct(draw, w.TEAMS, k)
    if kind == "first":
        return w.pick_distinct(draw, w.FIRST, k)
    if kind == "town":
        return w.pick_distinct(draw, w.draw_place_name, k)
    if kind == "made":
        return w.pick_distinct(draw, w.invent_name, k)
    if kind == "room":
        return [f"{letter}{draw.integer(1, 30)}" for letter in draw.sample(w.CODE_LETTERS, k)]
    if not alike:
        return w.pick_distinct(draw, w.draw_item_code, k)
    base = w.draw_item_code(draw)
    return [base[:-1] + digit for digit in draw.sample("0123456789", k)]


def _make_lookup_table(draw: Draw, level: int) -> CsvTable:
    """Make a table of keys and values; the hidden value also stands in another row with the same key."""
    key, kind, value, words = draw.choice(_LOOKUPS)
    k = (2, 3, 3, 4)[level - 1]
    keys = _draw_keys(draw, kind, k, alike=level > 2)
    if words:
        values = w.pick_distinct(draw, words, k)
    else:
        values = w.pick_distinct(draw, w.invent_name, k)
    n = max(k + 1, _draw_row_count(draw, level))
    picks = draw.permute([*range(k), *(draw.index(k) for _ in range(n - k))])
    twice = [row for row in range(n) if picks.count(picks[row]) > 1]
    at = draw.choice(twice)
    number = draw.choice(("qty", "year", "week", "no", "hours", "weight"))
    # All different, so that no row seems to share anything but its key.
    numbers = draw.sample(range(1950, 2040) if number == "year" else range(2, 100), n)
    rows = tuple((str(numbers[i]), keys[picks[i]], values[picks[i]]) for i in range(n))
    rule = f"rows with the same {key} have the same {value}"
    order = draw.permute((0, 1, 2))
    header = (number, key, value)
    return CsvTable(
        tuple(header[i] for i in order),
        tuple(tuple(row[i] for i in order) for row in rows),
        (at, order.index(2)),
        rule,
        plain=True,
    )


def _make_pairwise_table(draw: Draw, level: int) -> CsvTable:
    """Make a table of pairs and their values; the hidden value also stands in another row with the same pair."""
    (x, xs), (y, ys) = draw.sample(
        (
            ("colour", w.COLOURS),
            ("item", w.THINGS),
            ("material", w.MATERIALS),
            ("food", w.FOODS),
            ("size", ("small", "medium", "large", "huge")),
            ("day", w.DAYS),
        ),
        2,
    )
    a, b = draw.sample(xs, 2), draw.sample(ys, 2)
    pairs = [(i, j) for i in a for j in b]
    if draw.chance(0.5):
        made = draw.choice(("brand", "seller", "stamp"))
        values = [str(v) for v in w.pick_distinct(draw, w.invent_word, 4)]
    else:
        made = draw.choice(("price", "weight", "stock", "fee"))
        values = [str(v) for v in draw.sample(range(11, 100 if level < 4 else 1000), 4)]
    at = draw.index(4)
    more = [draw.index(4) for _ in range(level - 2)]
    picks = draw.permute([0, 1, 2, 3, at, *more])
    places = [i for i, pick in enumerate(picks) if pick == at]
    rows = tuple((*pairs[pick], values[pick]) for pick in picks)
    rule = f"rows with the same {x} and the same {y} have the same {made}"
    return CsvTable((x, y, made), rows, (draw.choice(places), 2), rule)


_SHORT_SURNAMES = [name for name in w.SURNAMES if len(name) < 9]
_SHORT_GOODS = [goods for goods in w.GOODS if len(goods) < 10]
_SHORT_COLOURS = [colour for colour in w.COLOURS if len(colour) < 7]


class _CodeParts(NamedTuple):
    """Cells of a row from which a code can be made."""

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


def _make_code_table(draw: Draw, level: int) -> CsvTable:
    """Make a table with a column of codes, each made from other cells of its row."""
    n = _draw_row_count(draw, level)
    firsts, lasts = w.pick_distinct(draw, w.FIRST, n), w.pick_distinct(draw, _SHORT_SURNAMES, n)
    towns = w.pick_distinct(draw, w.draw_place_name, n)
    items = w.pick_distinct(draw, _SHORT_GOODS, n)
    colours = [draw.choice(_SHORT_COLOURS) for _ in range(n)]
    numbers = draw.sample(range(1, 99 if level < 3 else 999), n)
    rows = [_CodeParts(*cells) for cells in zip(firsts, lasts, towns, items, colours, numbers, strict=True)]
    _, shown, header, make, rule = draw.choice([entry for entry in _CODES if entry[0] <= level])
    columns: dict[str, Sequence[object]] = {name: [getattr(row, name) for row in rows] for name in shown}
    return _hide_cell(draw, {**columns, header: [make(row) for row in rows]}, header, rule)


_NOUNS = tuple(filter(w.has_plain_plural, (*w.GOODS, *w.ANIMALS)))


def _draw_word(draw: Draw, most: int) -> str:
    while not 3 <= len(word := draw.choice(w.COMMON)) <= most:
        pass
    return word


# First level, header, how the cell is made from the word, and the rule in words.
_SPELLINGS: tuple[tuple[int, str, Callable[[str], str], str], ...] = (
    (1, "reversed", lambda word: word[::-1], "reversed is the word spelled backwards"),
    (1, "letters", lambda word: str(len(word)), "letters is the number of letters of the word"),
    (1, "plural", w.plural, "plural is the plural of the word"),
    (1, "ends", lambda word: word[0] + word[-1], "ends is the first and the last letter of the word"),
    (2, "short", lambda word: "".join(c for c in word if c not in "aeiou"), "short is the word without a, e, i, o, u"),
    (2, "moved", lambda word: word[1:] + word[0], "moved is the word with its first letter put at the end"),
    (
        2,
        "vowels",
        lambda word: str(sum(c in "aeiou" for c in word)),
        "vowels counts the letters a, e, i, o, u of the word",
    ),
)


def _make_spelling_table(draw: Draw, level: int) -> CsvTable:
    """Make a table of words, and of a word or number made from the letters of each."""
    n = _draw_row_count(draw, level)
    most = (6, 8, 10, 12)[level - 1]
    words = w.pick_distinct(draw, lambda draw: _draw_word(draw, most), n)
    nouns = w.pick_distinct(draw, _NOUNS, n)
    _, header, make, rule = draw.choice([entry for entry in _SPELLINGS if entry[0] <= level])
    base = nouns if header == "plural" else words
    columns = {"word": base, header: [make(word) for word in base]}
    return _hide_cell(draw, columns, header, rule, plain=header == "plural")


_CLASSES: tuple[Sequence[str], ...] = (
    ("gold", "silver", "bronze"),
    ("A", "B", "C"),
    ("high", "middle", "low"),
    ("pass", "retry", "fail"),
    ("first", "second", "third"),
)


def _make_classes_table(draw: Draw, level: int) -> CsvTable:
    """Make a table of marks, and of the grade that each mark earns by its limits."""
    n = _draw_row_count(draw, level)
    names = w.pick_distinct(draw, w.FIRST, n)
    marks = draw.sample(range(20, 100), n)
    words = draw.choice(_CLASSES) if draw.chance(0.6) else w.pick_distinct(draw, w.invent_word, 3)
    upper, lower = draw.integer(65, 85), draw.integer(35, 60)
    grades = [words[0] if m >= upper else words[1] if m >= lower else words[2] for m in marks]
    rule = f"class is {words[0]} from {upper} marks, {words[1]} from {lower}, else {words[2]}"
    return _hide_cell(draw, {"name": names, "marks": marks, "class": grades}, "class", rule)


def _make_mirror_table(draw: Draw, level: int) -> CsvTable:
    """Make a table of roads that lists every road in both directions."""
    k = (2, 2, 3, 3)[level - 1]
    places = w.pick_distinct(draw, w.draw_place_name, 2 * k)
    pairs = [(places[2 * i], places[2 * i + 1]) for i in range(k)]
    kms = draw.sample(range(11, (90, 400, 900, 5000)[level - 1]), k)
    both = [(a, b, str(km)) for (a, b), km in zip(pairs, kms, strict=True)]
    rows = draw.permute(both + [(b, a, km) for a, b, km in both])
    hide = 2 if level < 3 else draw.choice((2, 2, 1))
    rule = "every road is listed in both directions with the same km"
    return CsvTable(("from", "to", "km"), tuple(rows), (draw.index(len(rows)), hide), rule)


def _make_duel_table(draw: Draw, level: int) -> CsvTable:
    """Make a table of games between two sides, and of the winner by points."""
    n = min(5, _draw_row_count(draw, level))
    kind = draw.choice((w.FIRST, w.TEAMS, w.SURNAMES))
    sides = w.pick_distinct(draw, kind, 2 * n)
    a, b = sides[:n], sides[n:]
    x, y = [draw.integer(0, 99) for _ in range(n)], [draw.integer(0, 99) for _ in range(n)]
    # A tie would have no winner.
    y = [j + 1 if i == j else j for i, j in zip(x, y, strict=True)]
    less = level > 2 and draw.chance(0.5)
    better = [p if (i < j) == less else q for p, q, i, j in zip(a, b, x, y, strict=True)]
    rule = f"winner is the one with {'fewer' if less else 'more'} points"
    return _hide_cell(draw, {"a": a, "pts_a": x, "b": b, "pts_b": y, "winner": better}, "winner", rule)


# From a table to an example

HOLE = "???"
LIMIT = 20
"""Longest answer, in characters."""
DIGITS = 8
"""Largest number of digits in an answer: a tokenizer may spend one token on each."""

KINDS: dict[str, tuple[int, Callable[[Draw, int], CsvTable]]] = {
    "product": (1, _make_product_table),
    "total": (1, _make_total_table),
    "difference": (1, _make_difference_table),
    "running": (1, _make_running_table),
    "step": (1, _make_step_table),
    "lookup": (1, _make_lookup_table),
    "pairwise": (3, _make_pairwise_table),
    "convert": (1, _make_units_table),
    "coded": (1, _make_code_table),
    "spelling": (1, _make_spelling_table),
    "rank": (1, _make_rank_table),
    "extreme": (1, _make_extreme_table),
    "duration": (1, _make_duration_table),
    "column-total": (1, _make_column_total_table),
    "points": (2, _make_points_table),
    "discount": (2, _make_discount_table),
    "graded": (2, _make_classes_table),
    "mirror": (1, _make_mirror_table),
    "turns": (1, _make_turns_table),
    "duel": (2, _make_duel_table),
    "legs": (1, _make_legs_table),
    "stay": (2, _make_stay_table),
}
"""Kinds of tables: the lowest level at which each appears, and its function."""
WORDY = ("lookup", "coded", "spelling", "legs", "pairwise")

_FRAMES: tuple[str, ...] = w.sentences("csv_cells", "frames")
_RULES: tuple[str, ...] = w.sentences("csv_cells", "rules")
_WHAT: tuple[str, ...] = w.sentences("csv_cells", "what")

_LENGTHS = (200, 230, 330, 390)


def _add_column(draw: Draw, sheet: CsvTable) -> CsvTable:
    """Add a column of words that do not help to find the hidden cell."""
    header, words = draw.choice(
        (("shade", w.COLOURS), ("made_of", w.MATERIALS), ("clerk", w.FIRST), ("store", w.SITES))
    )
    # Two columns of one name could not be told apart.
    if header in sheet.header:
        return sheet
    at = draw.integer(0, len(sheet.header))
    cells = [draw.choice(words) for _ in sheet.rows]
    rows = tuple((*row[:at], cell, *row[at:]) for row, cell in zip(sheet.rows, cells, strict=True))
    row, column = sheet.hole
    return replace(
        sheet, header=(*sheet.header[:at], header, *sheet.header[at:]), rows=rows, hole=(row, column + (at <= column))
    )


def _write_csv(sheet: CsvTable) -> str:
    rows = [list(row) for row in sheet.rows]
    row, column = sheet.hole
    rows[row][column] = HOLE
    return "\n".join(",".join(cells) for cells in [list(sheet.header), *rows])


def _fits_limits(sheet: CsvTable, level: int) -> bool:
    answer = sheet.rows[sheet.hole[0]][sheet.hole[1]]
    digits = sum(char.isdigit() for char in answer)
    return len(answer) <= LIMIT and digits <= DIGITS and len(_write_csv(sheet)) <= _LENGTHS[level - 1] and answer != ""


def generate(draw: Draw, level: int) -> Example:
    """Make one example of the given level: a table with one cell hidden, and the value of the cell."""
    # Tables whose answer is a word come up twice as often: numbers repeat sooner.
    kind = draw.choice(
        [name for name, (first, _) in KINDS.items() if first <= level for _ in range(1 + (name in WORDY))]
    )
    sheet = KINDS[kind][1](draw, level)
    # Drawn anew and not cut: a shortened table could lose the row that the answer follows from.
    while not _fits_limits(sheet, level):
        sheet = KINDS[kind][1](draw, level)
    if level > 2 and kind != "column-total" and draw.chance(0.35):
        sheet = _add_column(draw, sheet)
    at = draw.index(len(_FRAMES))
    stated = not (sheet.plain and draw.chance((0.2, 0.35, 0.5, 0.5)[level - 1]))
    rule = draw.choice(_RULES).format(rule=sheet.rule) if stated else ""
    task = _FRAMES[at].format(table=_write_csv(sheet), rule=rule, name=draw.choice(w.FIRST), site=draw.choice(w.SITES))
    prompt = f"{task}\n{w.draw_answer_line(draw, draw.choice(_WHAT))}".replace("\n\n", "\n").strip()
    answer = sheet.rows[sheet.hole[0]][sheet.hole[1]]
    constraints: dict[str, Json] = {"kind": kind, "frame": str(at), "rule": sheet.rule, "stated": stated}
    return Example(prompt, answer, (answer,), constraints, level)


TASK = constructed_task(
    "csv-missing-cells",
    "CSV Missing Cells",
    Scorer("binary", scorers.score_cell),
    generate,
    max_new_tokens=16,
    output="one cell",
    version="1",
)
