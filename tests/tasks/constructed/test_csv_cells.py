"""CSV Missing Cells: the cell follows from the rest of the table."""

import csv
import re
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from fractions import Fraction
from itertools import permutations

from tests.helpers.constructed import clock, many, minutes
from unmask.tasks import words
from unmask.tasks.constructed import csv_cells


class Table:
    """The table in a prompt, by its header, with the place of the missing cell."""

    def __init__(self, prompt: str) -> None:
        lines = [line for line in prompt.splitlines() if "," in line and " " not in line and "<answer>" not in line]
        header, *self.rows = list(csv.reader(lines))
        self.header = header
        assert {len(row) for row in self.rows} == {len(header)}, prompt
        assert len(set(header)) == len(header)
        holes = [(r, c) for r, row in enumerate(self.rows) for c, cell in enumerate(row) if cell == "???"]
        assert len(holes) == 1, prompt
        self.row, self.column = holes[0]
        self.hidden = header[self.column]
        self.here = dict(zip(header, self.rows[self.row], strict=True))
        self.others = [dict(zip(header, row, strict=True)) for r, row in enumerate(self.rows) if r != self.row]

    def cells(self, name: str) -> list[str]:
        at = self.header.index(name)
        return [row[at] for row in self.rows]


def linear(expression: str, result: str, row: dict[str, str]) -> int:
    """The unknown of result = expression, which is linear in each column."""
    unknown = next(name for name, cell in row.items() if cell == "???")
    known = {name: int(cell) for name, cell in row.items() if re.fullmatch(r"-?\d+", cell)}
    if unknown == result:
        return eval(expression, {}, known)
    zero, one = (eval(expression, {}, known | {unknown: x}) for x in (0, 1))
    solved = Fraction(known[result] - zero, one - zero)
    assert solved.denominator == 1
    return int(solved)


def by_formula(t: Table, rule: str) -> str:
    match = re.fullmatch(r"(\w+) = ([\w +*-]+)", rule)
    assert match, rule
    for row in t.others:
        assert eval(match[2], {}, {k: int(v) for k, v in row.items() if v.isdigit()}) == int(row[match[1]])
    return str(linear(match[2], match[1], t.here))


def by_running(t: Table, rule: str) -> str:
    total = rule.split()[0]
    sign = {"in": 1, "out": -1} if "in" in t.header else {t.header[t.header.index(total) - 1]: 1}
    if len(sign) == 1:
        (step,) = (name for name in t.header if rule.endswith(f"adds up {name} from the first row on"))
        sign = {step: 1}
    balance = 0
    for row in t.rows[: t.row]:
        cells = dict(zip(t.header, row, strict=True))
        balance += sum(s * int(cells[name]) for name, s in sign.items())
        assert int(cells[total]) == balance
    known = sum(s * int(t.here[name]) for name, s in sign.items() if name != t.hidden)
    if t.hidden == total:
        return str(balance + known)
    return str((int(t.here[total]) - balance - known) * sign[t.hidden])


def by_step(t: Table, rule: str) -> str:
    cells = t.cells(t.hidden)
    if "multiplied" in rule:
        ratio = int(cells[1]) // int(cells[0])
        return str(int(cells[t.row - 1]) * ratio)
    if re.fullmatch(r"\d{4}-\d\d-\d\d", cells[0]):
        days = [date.fromisoformat(cell) for cell in cells[:2]]
        return (days[0] + t.row * (days[1] - days[0])).isoformat()
    if ":" in cells[0]:
        return clock(cells[0], t.row * (minutes(cells[1]) - minutes(cells[0])))
    head = re.match(r"\D*", cells[0])[0]  # type: ignore[index]
    a, b = (int(cell[len(head) :]) for cell in cells[:2])
    return head + str(a + t.row * (b - a)).zfill(len(cells[0]) - len(head) if head else 0)


def by_same(t: Table, rule: str) -> str:
    keys = re.findall(r"the same (\w+)", rule)[:-1]
    values = {row[t.hidden] for row in t.others if all(row[key] == t.here[key] for key in keys)}
    assert len(values) == 1, rule
    return values.pop()


CODES: dict[str, Callable[[dict[str, str]], str]] = {
    "initials = first letters of first and last": lambda r: r["first"][0] + r["last"][0],
    "code = first three letters of item, then no with three digits": lambda r: f"{r['item'][:3]}{int(r['no']):03}",
    "tag = first three letters of town in capitals, a hyphen, no": lambda r: f"{r['town'][:3].upper()}-{r['no']}",
    "label = colour, a hyphen, item": lambda r: f"{r['colour']}-{r['item']}",
    "login = first letter of first, then last, in lower case": lambda r: (r["first"][0] + r["last"]).lower(),
    "user = last, a dot, first letter of first, in lower case": lambda r: f"{r['last']}.{r['first'][0]}".lower(),
    "id = no with five digits, then the first letter of item in capitals": lambda r: (
        r["no"].zfill(5) + r["item"][0].upper()
    ),
    "nick = two letters of first, then three of last, lower case": lambda r: (r["first"][:2] + r["last"][:3]).lower(),
    "key = last letter of item, first letter of colour, number of letters in item": lambda r: (
        f"{r['item'][-1]}{r['colour'][0]}{len(r['item'])}"
    ),
    "stamp = no, then town spelled backwards in lower case": lambda r: r["no"] + r["town"][::-1].lower(),
    "reversed is the word spelled backwards": lambda r: r["word"][::-1],
    "letters is the number of letters of the word": lambda r: str(len(r["word"])),
    "plural is the plural of the word": lambda r: words.plural(r["word"]),
    "ends is the first and the last letter of the word": lambda r: r["word"][0] + r["word"][-1],
    "short is the word without a, e, i, o, u": lambda r: re.sub("[aeiou]", "", r["word"]),
    "moved is the word with its first letter put at the end": lambda r: r["word"][1:] + r["word"][0],
    "vowels counts the letters a, e, i, o, u of the word": lambda r: str(len(re.findall("[aeiou]", r["word"]))),
    "best is the highest of the tries": lambda r: str(max(tries(r))),
    "worst is the lowest of the tries": lambda r: str(min(tries(r))),
    "spread is the highest try minus the lowest": lambda r: str(max(tries(r)) - min(tries(r))),
    "ends is the highest try plus the lowest": lambda r: str(max(tries(r)) + min(tries(r))),
    "winner is the one with more points": lambda r: r["a" if int(r["pts_a"]) > int(r["pts_b"]) else "b"],
    "winner is the one with fewer points": lambda r: r["a" if int(r["pts_a"]) < int(r["pts_b"]) else "b"],
}


def tries(row: dict[str, str]) -> list[int]:
    return [int(cell) for name, cell in row.items() if name.startswith("try")]


def by_code(t: Table, rule: str) -> str:
    assert all(CODES[rule](row) == row[t.hidden] for row in t.others)
    return CODES[rule](t.here)


def by_rank(t: Table, rule: str) -> str:
    score = rule.split()[-1]
    values = sorted(map(int, t.cells(score)), reverse="highest" in rule)
    assert all(values.index(int(row[score])) + 1 == int(row["rank"]) for row in t.others)
    return str(values.index(int(t.here[score])) + 1)


def by_duration(t: Table, rule: str) -> str:
    end, start = re.fullmatch(r"(\w+) is (\w+) plus minutes", rule).groups()  # type: ignore[union-attr]
    for row in t.others:
        assert clock(row[start], int(row["minutes"])) == row[end]
    if t.hidden == "minutes":
        return str(minutes(t.here[end]) - minutes(t.here[start]))
    return (
        clock(t.here[start], int(t.here["minutes"])) if t.hidden == end else clock(t.here[end], -int(t.here["minutes"]))
    )


def by_column_total(t: Table, rule: str) -> str:
    *values, total = t.cells(t.hidden)
    assert t.rows[-1][0] == "total"
    if total == "???":
        return str(sum(map(int, values)))
    return str(int(total) - sum(int(v) for v in values if v != "???"))


def by_discount(t: Table, rule: str) -> str:
    assert all(int(r["price"]) * (100 - int(r["off"])) == 100 * int(r["pay"]) for r in t.others)
    left = 100 - int(t.here["off"])
    if t.hidden == "pay":
        return str(Fraction(int(t.here["price"]) * left, 100))
    return str(Fraction(int(t.here["pay"]) * 100, left))


def by_class(t: Table, rule: str) -> str:
    first, upper, second, lower, third = re.fullmatch(
        r"class is (\w+) from (\d+) marks, (\w+) from (\d+), else (\w+)", rule
    ).groups()  # type: ignore[union-attr]
    marks = int(t.here["marks"])
    return first if marks >= int(upper) else second if marks >= int(lower) else third


def by_mirror(t: Table, rule: str) -> str:
    for row in t.others:
        if t.hidden == "km" and (row["from"], row["to"]) == (t.here["to"], t.here["from"]):
            return row["km"]
        if t.hidden == "to" and (row["to"], row["km"]) == (t.here["from"], t.here["km"]):
            return row["from"]
    raise AssertionError(t.rows)


def by_turn(t: Table, rule: str) -> str:
    cells = t.cells(t.hidden)
    if period := re.match(r"(\d) (?:people|prizes) take turns", rule):
        return cells[t.row - int(period[1])]
    cycle = list(words.DAYS if t.hidden == "day" else words.MONTHS)
    by = int(rule.split()[-1])
    assert cells[1] == cycle[(cycle.index(cells[0]) + by) % len(cycle)]
    return cycle[(cycle.index(cells[t.row - 1]) + by) % len(cycle)]


def by_legs(t: Table, rule: str) -> str:
    leg = int(t.here["leg"])
    other = leg - 1 if t.hidden == "from" else leg + 1
    (row,) = (row for row in t.others if int(row["leg"]) == other)
    return row["to" if t.hidden == "from" else "from"]


def by_stay(t: Table, rule: str) -> str:
    if t.hidden == "nights":
        return str((date.fromisoformat(t.here["leaves"]) - date.fromisoformat(t.here["arrives"])).days)
    nights = timedelta(int(t.here["nights"]))
    if t.hidden == "leaves":
        return (date.fromisoformat(t.here["arrives"]) + nights).isoformat()
    return (date.fromisoformat(t.here["leaves"]) - nights).isoformat()


TABLES: dict[str, Callable[[Table, str], str]] = {
    **dict.fromkeys(("product", "total", "difference", "convert", "points"), by_formula),
    **dict.fromkeys(("lookup", "pairwise"), by_same),
    **dict.fromkeys(("coded", "spelling", "extreme", "duel"), by_code),
    "running": by_running,
    "step": by_step,
    "rank": by_rank,
    "duration": by_duration,
    "column-total": by_column_total,
    "discount": by_discount,
    "graded": by_class,
    "mirror": by_mirror,
    "turns": by_turn,
    "legs": by_legs,
    "stay": by_stay,
}


def test_the_cell_follows_from_the_table() -> None:
    assert set(TABLES) == set(csv_cells.KINDS)
    for draft in many(csv_cells.TASK):
        table = Table(draft.prompt)
        assert 3 <= len(table.rows) <= 8
        rule = str(draft.constraints["rule"])
        assert (rule in draft.prompt) == draft.constraints["stated"]
        assert draft.target == TABLES[str(draft.constraints["kind"])](table, rule), draft.prompt
        assert draft.parts == (draft.target,)


def test_unstated_rules_leave_no_second_reading() -> None:
    """Every simple relation between columns that all other rows obey must give the same cell."""
    unstated = [draft for draft in many(csv_cells.TASK) if not draft.constraints["stated"]]
    assert len(unstated) > 300
    for draft in unstated:
        table = Table(draft.prompt)
        readings = set(arithmetic(table)) | set(dependencies(table))
        assert readings <= {draft.target}, (readings, draft.prompt)


def arithmetic(t: Table) -> Iterator[str]:
    """The hidden cell by every x op y = z over three columns that holds in all other rows."""
    whole = [name for name in t.header if all(row[name].isdigit() for row in t.others)]
    for x, y, z in permutations(whole, 3):
        if t.hidden not in (x, y, z) or len(t.others) < 2:
            continue
        for sign in "+*":
            if all(eval(f"{r[x]}{sign}{r[y]}") == int(r[z]) for r in t.others):
                yield str(linear(f"{x} {sign} {y}", z, {k: t.here[k] for k in (x, y, z)}))


def dependencies(t: Table) -> Iterator[str]:
    """The hidden cell by every column whose repeated values always come with the same value of the hidden column."""
    for key in t.header:
        pairs = {(row[key], row[t.hidden]) for row in t.others}
        if key == t.hidden or len(pairs) > len({key for key, _ in pairs}):
            continue
        # A key that repeats elsewhere and agrees; once is chance.
        repeated = len(t.others) > len(pairs)
        yield from (value for known, value in pairs if known == t.here[key] and repeated and not value.isdigit())
