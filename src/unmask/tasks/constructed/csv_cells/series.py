"""Tables whose rows follow one another: a step, turns, times, legs of a route, dates."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta

from unmask.tasks.constructed.csv_cells.sheet import CsvSheet, hide_cell, labelled, labels, row_count
from unmask.tasks.draw import Draw
from unmask.tasks.words import CODE_LETTERS, DAYS, FIRST, GOODS, MONTHS, clock, distinct, place_name


def step(draw: Draw, level: int) -> CsvSheet:
    """A column that moves by the same step from row to row."""
    n = max(4, row_count(draw, level))
    label, names = labels(draw, n)
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
    return hide_cell(draw, {label: names, header: cells}, header, rule, plain=True, first=2)


def duration(draw: Draw, level: int) -> CsvSheet:
    """A start, a number of minutes and an end."""
    n, label, names = labelled(draw, level)
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
    return hide_cell(draw, columns, hide, f"{y} is {x} plus minutes", plain=True)


def turns(draw: Draw, level: int) -> CsvSheet:
    """Names, days or words that come round in a fixed order."""
    n = max(5, row_count(draw, level) + 1)
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
    return hide_cell(draw, {round_: numbers, header: cells}, header, rule, plain=kind in ("days", "months"), first=k)


def legs(draw: Draw, level: int) -> CsvSheet:
    """A route: each leg starts where the one before ended."""
    n = row_count(draw, level)
    stops = distinct(draw, place_name, n + 1)
    kms = [draw.between(10, 400) for _ in range(n)]
    columns: dict[str, Sequence[object]] = {
        "leg": list(range(1, n + 1)),
        "from": stops[:-1],
        "to": stops[1:],
        "km": kms,
    }
    sheet = hide_cell(draw, columns, "from", "each leg starts where the one before ended", plain=level < 3, first=1)
    if draw.chance(0.5):
        sheet = replace(sheet, hole=(sheet.hole[0] - 1, 2))
    if level < 3:
        return sheet
    # Out of order, the leg numbers tell which came before.
    order = draw.shuffled(range(n))
    rows = tuple(sheet.rows[i] for i in order)
    return replace(sheet, rows=rows, hole=(order.index(sheet.hole[0]), sheet.hole[1]))


def stay(draw: Draw, level: int) -> CsvSheet:
    """Dates: arrival, nights, departure."""
    n = row_count(draw, level)
    names = distinct(draw, FIRST, n)
    year = draw.between(2001, 2039)
    span = 15 if level < 3 else 340
    arrive = [date(year, draw.between(1, 12) if level < 3 else 1, 1) + timedelta(draw.below(span)) for _ in range(n)]
    nights = [draw.between(1, 9 if level < 3 else 25) for _ in range(n)]
    leave = [a + timedelta(k) for a, k in zip(arrive, nights, strict=True)]
    columns: dict[str, Sequence[object]] = {"guest": names, "arrives": arrive, "nights": nights, "leaves": leave}
    hide = "leaves" if level < 3 else draw.choice(("arrives", "nights", "leaves"))
    return hide_cell(draw, columns, hide, "leaves is arrives plus nights", plain=True)
