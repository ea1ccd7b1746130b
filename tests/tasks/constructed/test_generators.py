"""The constructed tasks: the same for ever, varied, and answered by nothing but their prompts.

The second half of this file solves the prompts without looking at the generators: it reads the text a model would
see, works out the answer, and compares. What it cannot read fails the test.
"""

import csv
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from fractions import Fraction
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise, permutations

import pytest

from unmask.errors import ConfigError
from unmask.tasks import words
from unmask.tasks.base import Draft, Generator, canonical
from unmask.tasks.constructed import carry, cloze, constrained_json, csv_cells, html_tags, sparse, unique_list
from unmask.tasks.draw import Draw
from unmask.tasks.words import text

SUITE = (csv_cells, cloze, carry, sparse, constrained_json, unique_list, html_tags)
ALL = (*SUITE, sparse.CLUSTERED)
LEVELS = (1, 2, 3, 4)
PER_LEVEL = 1250

HORIZONS = {
    "csv-missing-cells": 16,
    "multi-span-cloze": 64,
    "carry-rtl": 32,
    "td07-sparse-mask": 48,
    "td07-clustered-mask": 48,
    "constrained-json-fill": 96,
    "unique-list-commit": 48,
    "html-close-tags": 48,
}
LONGEST = {
    "csv-missing-cells": 24,
    "multi-span-cloze": 100,
    "carry-rtl": 19,
    "td07-sparse-mask": 80,
    "td07-clustered-mask": 80,
    "constrained-json-fill": 180,
    "unique-list-commit": 80,
    "html-close-tags": 90,
}
GOLDEN = {
    "csv-missing-cells": "1958fa73656662c0a9b91937e6c4cef4a92280713cedf2cb0b9c5cb1f0997684",
    "multi-span-cloze": "d434d6c24ad1937d0906da1eb78d25b0aca744f8e765a832089abc321e1bb62c",
    "carry-rtl": "b38de915a12c53e0ed5b00817149f505f41b2380771be197ccaac704e8c17dc3",
    "td07-sparse-mask": "0fcd398be2ccfaa5cd376d24debde834bf3d5e6d8270dd52e4ab09b40caf1d2c",
    "constrained-json-fill": "38c362c7b63b047e37a62b7dd43c1c783e17a2d57d4c2e1ad9f1e785c890b32f",
    "unique-list-commit": "c7bc4d94dada2e21d2500e92905a31abfb243cde3d59ef361e047ddbb831ba26",
    "html-close-tags": "48b32fb52a7a414c81574fd3d9fc56dd80876bdc74d8a12b7ad62e8762b6b127",
    "td07-clustered-mask": "caa2485af589a7370626f190fd1046875ad0d5c13f148943934be4708f0262f3",
}

each = pytest.mark.parametrize("task", ALL, ids=lambda task: task.NAME)


@cache
def drafts(task: Generator, level: int) -> tuple[Draft, ...]:
    return tuple(task.generate(Draw(f"test/{level}/{i}".encode()), level) for i in range(PER_LEVEL))


def everything(task: Generator, per_level: int = PER_LEVEL) -> Iterator[Draft]:
    for level in LEVELS:
        yield from drafts(task, level)[:per_level]


def many(task: Generator) -> Iterator[Draft]:
    """Enough to meet every frame and kind several times at every level."""
    return everything(task, 500)


def tokens(text: str) -> int:
    """A cautious guess at a small vocabulary: three letters, one digit or two marks to a token."""
    runs = re.findall(r"[A-Za-z]+|[0-9]|[^A-Za-z0-9\s]+", text)
    return sum(-(-len(run) // (3 if run[0].isalpha() else 2)) for run in runs)


# What holds for all of them


@each
def test_the_first_fifty_drafts_never_change(task: Generator) -> None:
    """If this fails, the prompts have moved: raise VERSION, because published results name it."""
    sha = hashlib.sha256()
    for i in range(50):
        draft = task.generate(Draw(f"golden/{i}".encode()), LEVELS[i % 4])
        fields = [draft.prompt, draft.target, list(draft.parts), draft.constraints, draft.level]
        sha.update(canonical(fields).encode())
    assert sha.hexdigest() == GOLDEN[task.NAME]


@each
def test_names_and_horizons_are_the_papers(task: Generator) -> None:
    assert HORIZONS[task.NAME] == task.HORIZON
    assert task.VERSION == "1"
    assert task.LEVELS == LEVELS
    assert task.TITLE


@each
def test_drafts_are_plain_text_of_bounded_length(task: Generator) -> None:
    for draft in many(task):
        assert draft.prompt.isascii()
        assert draft.prompt == draft.prompt.strip()
        assert not re.search(r"[ \t]\n|\n\n|\{\w*\}|\.\.(?!\.)(?<!\.\.\.)|, ,|\bNone\b", draft.prompt), draft.prompt
        assert len(draft.prompt) <= (420 if draft.level < 3 else 700)
        assert draft.target.isascii()
        assert draft.target == draft.target.strip()
        assert 0 < len(draft.target) <= LONGEST[task.NAME]
        # Room is left for the answer tags.
        assert tokens(draft.target) <= task.HORIZON - 5, draft.target
        assert json.loads(canonical(draft.constraints)) == draft.constraints


@each
def test_prompts_end_by_asking_for_the_answer_tags(task: Generator) -> None:
    asks = Counter()
    for draft in many(task):
        last = draft.prompt.splitlines()[-1]
        assert "<answer>" in last
        assert last.count("</answer>") == 1
        assert draft.prompt.count("<answer>") == 1
        asks[last.split()[0]] += 1
    assert len(asks) >= 8


@each
def test_articles_agree(task: Generator) -> None:
    for draft in many(task):
        for given, word in re.findall(r"\b([Aa]n?) ([a-z]{3,})", draft.prompt):
            assert given.lower() == words.article(word), draft.prompt


@each
def test_prompts_and_answers_are_varied(task: Generator) -> None:
    found = list(everything(task))
    assert len({draft.prompt for draft in found}) >= 0.995 * len(found)
    targets = {draft.target for draft in found}
    least = {"carry-rtl": 4, "csv-missing-cells": 2500}.get(task.NAME, 4500)
    assert len(targets) >= least


def test_answers_draw_on_thousands_of_words() -> None:
    seen: dict[str, set[str]] = {}
    for task in SUITE:
        seen[task.NAME] = {w for draft in everything(task) for w in re.findall("[A-Za-z]+", draft.target)}
    for name, least in {
        "csv-missing-cells": 1500,
        "multi-span-cloze": 3000,
        "td07-sparse-mask": 3000,
        "constrained-json-fill": 3500,
        "unique-list-commit": 4000,
        "html-close-tags": 1000,
    }.items():
        assert len(seen[name]) >= least, name
    assert len(set().union(*seen.values())) > 10_000


@each
def test_no_frame_or_kind_is_rare(task: Generator) -> None:
    for field in ("frame", "kind", "family"):
        counts = Counter(draft.constraints[field] for draft in everything(task) if field in draft.constraints)
        if counts:
            assert len(counts) >= (7 if field == "kind" else 12)
            assert min(counts.values()) > 0.25 * sum(counts.values()) / len(counts), counts


@each
def test_levels_get_harder_by_size(task: Generator) -> None:
    mean = [sum(len(draft.prompt) for draft in drafts(task, level)) / PER_LEVEL for level in LEVELS]
    assert mean[3] > 1.15 * mean[0]
    assert all(draft.level == level for level in LEVELS for draft in drafts(task, level)[:5])


@each
@pytest.mark.parametrize("level", [0, 5, -1])
def test_other_levels_are_refused(task: Generator, level: int) -> None:
    with pytest.raises(ConfigError, match="level"):
        task.generate(Draw(b""), level)


@pytest.mark.parametrize("task", [cloze, carry, sparse, sparse.CLUSTERED], ids=lambda task: task.NAME)
def test_indexed_targets_spell_their_parts(task: Generator) -> None:
    for draft in many(task):
        assert draft.target == "; ".join(f"[{i}]={part}" for i, part in enumerate(draft.parts, 1))
        assert all(part and not set(part) & set("[];=\n") for part in draft.parts)


# Carry RTL

_DIGIT = text.words("zero one two three four five six seven eight nine")
_SMALL = text.words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = text.words("_ _ twenty thirty forty fifty sixty seventy eighty ninety")
_ROMAN = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
_D = f"(?:{'|'.join(_DIGIT)})"
_BELOW_100 = f"(?:(?:{'|'.join(_TENS[2:])})(?:-{_D})?|{'|'.join(sorted(_SMALL, key=len, reverse=True))})"
_WORDS = f"{_D} hundred(?: and {_BELOW_100})?"


def from_words(text: str) -> int:
    total = 0
    for word in text.replace("-", " ").replace(" and ", " ").split():
        if word == "hundred":
            total *= 100
        else:
            total += _SMALL.index(word) if word in _SMALL else 10 * _TENS.index(word)
    return total


def from_roman(text: str) -> int:
    values = [_ROMAN[letter] for letter in text]
    return sum(-v if v < max(values[i:]) else v for i, v in enumerate(values))


def from_places(text: str) -> int:
    return sum(int(n) * {"hundreds": 100, "tens": 10, "ones": 1}[unit] for n, unit in re.findall(r"(\d) (\w+)", text))


NUMBERS: dict[str, Callable[[str], int]] = {
    r"\d{3} (?:read from right to left|written backwards)": lambda t: int(t[:3][::-1]),
    r"[MDCLXVI]+ (?:in Roman numerals|\(Roman\))": lambda t: from_roman(t.split()[0]),
    r"\d (?:hundreds|tens|ones)(?: \d (?:hundreds|tens|ones)){2}": from_places,
    rf"{_D}(?:, {_D}){{2}} \(from the ones to the hundreds\)": lambda t: sum(
        _DIGIT.index(d) * 10**i for i, d in enumerate(t.split(" (")[0].split(", "))
    ),
    r"\d00\+\d0?\+\d": lambda t: sum(map(int, t.split("+"))),
    rf"\b{_WORDS}\b": from_words,
    rf"\b{_D}(?:-{_D}){{2}}\b": lambda t: int("".join(str(_DIGIT.index(d)) for d in t.split("-"))),
    r"\b\d{3}\b": int,
}
NUMBER = re.compile("|".join(f"(?P<n{i}>{pattern})" for i, pattern in enumerate(NUMBERS)), re.IGNORECASE)


def numbers(text: str) -> list[int]:
    readers = list(NUMBERS.values())
    return [
        readers[int(m.lastgroup[1:])](m[0].lower() if m[0][0].islower() else _plain(m[0]))
        for m in NUMBER.finditer(text)
    ]  # type: ignore[index]


def _plain(text: str) -> str:
    """Lower case unless it is a Roman numeral; a sentence may begin with a number."""
    return text if "oman" in text else text.lower()


def addends(draft: Draft) -> list[int]:
    story = draft.prompt[: draft.prompt.index(next(line for line in draft.prompt.splitlines() if "[1]" in line))]
    if draft.level < 4:
        return numbers(story)
    entries = re.findall(r"\b([A-Za-z]+): (?=([a-z0-9][a-z0-9 -]*))", story)
    entries = [(label, numbers(text)) for label, text in entries if numbers(text)]
    asked = [found[0] for label, found in entries if len(re.findall(rf"\b{label}\b", story)) == 2]
    assert all(len(found) == 1 for _, found in entries)
    assert 4 <= len(entries) <= 6
    return asked


def test_carries_follow_from_the_prompt() -> None:
    for draft in many(carry):
        a, b = addends(draft)
        assert {len(str(a)), len(str(b))} == {3}
        expected = tuple(str(int(a % 10**k + b % 10**k >= 10**k)) for k in (1, 2, 3))
        assert draft.parts == expected, draft.prompt
        assert sorted(draft.constraints["addends"]) == sorted((a, b))


def test_at_least_two_carries_and_all_four_patterns_as_often() -> None:
    for level in LEVELS:
        counts = Counter(draft.parts for draft in drafts(carry, level))
        assert all(parts.count("1") >= 2 for parts in counts)
        assert len(counts) == 4
        assert max(counts.values()) < 1.3 * min(counts.values())


def test_columns_that_depend_on_the_column_before_are_common() -> None:
    """A carry that arrives at a nine is what makes the task go from right to left."""
    pairs = [draft.constraints["addends"] for draft in drafts(carry, 4)]
    ripple = [sum(n // 10 % 10 for n in pair) == 9 for pair in pairs]
    assert sum(ripple) > 0.2 * len(ripple)


# Unique List Commit


def pool_of(prompt: str) -> list[str]:
    word = "[a-z]+"
    for joint in (",", ", ", " / ", r"\|", "; ", "', '"):
        found = re.search(rf"(?<![a-z,])(?:{word}{joint}){{11}}{word}", prompt)
        if found:
            return re.findall(word, found[0])
    found = re.search(rf"(?:^|: |\n)((?:{word}[ \n]){{11}}{word})(?=\n)", prompt)
    assert found, prompt
    return found[1].split()


def test_the_list_follows_from_the_pool_in_the_prompt() -> None:
    for draft in many(unique_list):
        pool = pool_of(draft.prompt)
        assert len(pool) == len(set(pool)) == 12
        assert pool == draft.constraints["pool"]
        assert draft.parts == tuple(sorted(pool)[:8])
        assert draft.target == ",".join(draft.parts)
        assert re.search("dictionary|a to z|alphabetical", draft.prompt, re.IGNORECASE)
        prefixed = any(a != b and b.startswith(a) for a in pool for b in pool)
        assert ("any longer word that begins with it" in draft.prompt) == prefixed


def test_later_letters_decide_at_higher_levels() -> None:
    def shared(draft: Draft) -> float:
        neighbours = pairwise(sorted(draft.constraints["pool"]))
        return sum(sum(b.startswith(a[:n]) for n in range(1, len(a) + 1)) for a, b in neighbours) / 11

    mean = [sum(map(shared, drafts(unique_list, level))) / PER_LEVEL for level in LEVELS]
    assert mean[0] == 0
    assert mean[0] < mean[1] < mean[2] < mean[3]
    assert mean[3] > 2


# HTML Close Tags

PHRASING = set(
    text.words(
        "a abbr b button cite code data del dfn em i ins kbd label mark q s samp small span strong sub sup time u var"
    )
)
VOID = {"br", "img", "input", "wbr", "hr", "meta", "link"}


class Stack(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.closed = 0
        self.tricks: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in VOID:
            self.tricks.add("void")
        else:
            self.open.append(tag)
        self.tricks |= {"attribute"} if attrs else set()
        self.tricks |= {"quoted tag" for _, value in attrs if value and ("<" in value or ">" in value)}

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.closed += 1

    def handle_comment(self, data: str) -> None:
        self.tricks.add("comment")


def parsed(draft: Draft) -> Stack:
    stack = Stack()
    stack.feed(draft.prompt.rsplit("\n", 1)[0])
    stack.close()
    return stack


def test_closing_tags_follow_from_the_prompt() -> None:
    for draft in many(html_tags):
        stack = parsed(draft)
        assert draft.parts == tuple(f"</{name}>" for name in reversed(stack.open)), draft.prompt
        assert draft.target == "".join(draft.parts)


def test_html_levels_differ_in_depth_and_in_tricks() -> None:
    for level, (low, high) in zip(LEVELS, ((2, 4), (4, 6), (5, 7), (6, 8)), strict=True):
        stacks = [parsed(draft) for draft in drafts(html_tags, level)]
        assert {len(stack.open) for stack in stacks} <= set(range(low, high + 1))
        tricks = set().union(*(stack.tricks for stack in stacks))
        assert ("attribute" in tricks) == (level > 1)
        assert ("void" in tricks) == (level > 2)
        assert ("comment" in tricks) == ("quoted tag" in tricks) == (level > 3)
        assert any(stack.closed for stack in stacks) == (level > 2)
        assert any("-" in name for stack in stacks for name in stack.open)


def test_elements_that_may_not_nest_do_not() -> None:
    for draft in many(html_tags):
        names = parsed(draft).open
        counts = Counter(names)
        assert all(counts[name] <= 1 for name in ("a", "form", "button", "p"))
        for at, name in enumerate(names):
            if name in ("p", "h1", "h2", "h3", "h4", "h5", "h6", "pre"):
                assert all("-" in inner or inner in PHRASING for inner in names[at + 1 :])


# Constrained JSON Fill


def clock(text: str, minutes: int) -> str:
    at = int(text[:2]) * 60 + int(text[3:]) + minutes
    return f"{at // 60:02d}:{at % 60:02d}"


def people(given: dict) -> dict[str, int]:
    return {key: value for key, value in given.items() if key[0].isupper()}


def ranked(given: dict) -> list[str]:
    return sorted(people(given), key=lambda name: -people(given)[name])


def scaled(v: dict, m: re.Match) -> dict:
    return {key: v[key] * v["guests"] // v["serves"] for key in re.findall("flour|sugar|eggs", m[0])}


RULES: tuple[tuple[str, Callable[[dict, re.Match], dict]], ...] = (
    (r"(end|next) = (\w+) \+ (\w+)(?: minutes)?, as HH:MM", lambda v, m: {m[1]: clock(v[m[2]], v[m[3]])}),
    (
        r'room = "small" for up to (\d+) people, else "large"',
        lambda v, m: {"room": "small" if v["people"] <= int(m[1]) else "large"},
    ),
    (r'by = "van" up to (\d+) kg, else "truck"', lambda v, m: {"by": "van" if v["kg"] <= int(m[1]) else "truck"}),
    (r"(\w+) = true if (\w+) (>=|>|<) (\w+), else false", lambda v, m: {m[1]: compare(v, m[2], m[3], m[4])}),
    (r"square = true if length equals width, else false", lambda v, m: {"square": v["length"] == v["width"]}),
    (
        r"half = true if the winner has more than half of total, else false",
        lambda v, m: {"half": 2 * max(people(v).values()) > v["total"]},
    ),
    (r"(\w+) = true from (\d+) (\w+) on, else false", lambda v, m: {m[1]: v[m[3]] >= int(m[2])}),
    (r"post becomes 0 if net >= (\d+)", lambda v, m: {"post": 0 if v["net"] >= int(m[1]) else v["post"]}),
    (r"(?:flour|flour and sugar|flour, sugar and eggs) (?:is|are) multiplied by guests / serves", scaled),
    (r"grams = new flour \+ new sugar", lambda v, m: {"grams": v["flour"] + v["sugar"]}),
    (
        r"last = year in which the last monthly rate is paid .*",
        lambda v, m: {"last": v["year"] + (v["months"] - 1) // 12},
    ),
    (r"order = least - left, but never below 0", lambda v, m: {"order": max(0, v["least"] - v["left"])}),
    (
        r"missing = goal - saved, or 0 if reached",
        lambda v, m: {"missing": 0 if v["reached"] else v["goal"] - v["saved"]},
    ),
    (r"extra = hours above (\d+), or 0", lambda v, m: {"extra": max(0, v["hours"] - int(m[1]))}),
    (r"sum = all marks added", lambda v, m: {"sum": sum(v["marks"])}),
    (r"best = highest mark", lambda v, m: {"best": max(v["marks"])}),
    (r"worst = lowest mark", lambda v, m: {"worst": min(v["marks"])}),
    (
        r"max and min are the highest and the lowest of temps",
        lambda v, m: {"max": max(v["temps"]), "min": min(v["temps"])},
    ),
    (r"last = the last of temps", lambda v, m: {"last": v["temps"][-1]}),
    (r"winner = name with most votes", lambda v, m: {"winner": ranked(v)[0]}),
    (r"second = name with the second most votes", lambda v, m: {"second": ranked(v)[1]}),
    (r"total = all votes added", lambda v, m: {"total": sum(people(v).values())}),
    (
        r"lead = votes of the winner minus votes of the second",
        lambda v, m: {"lead": people(v)[ranked(v)[0]] - people(v)[ranked(v)[1]]},
    ),
    (r"name = first, a space, last", lambda v, m: {"name": f"{v['first']} {v['last']}"}),
    (
        r"login = first letter of first, then last, in lower case(, then no)?",
        lambda v, m: {"login": (v["first"][0] + v["last"]).lower() + (str(v["no"]) if m[1] else "")},
    ),
    (r"initials = the two first letters, no dots", lambda v, m: {"initials": v["first"][0] + v["last"][0]}),
    (r"mail = last in lower case, @, host, \.org", lambda v, m: {"mail": f"{v['last'].lower()}@{v['host']}.org"}),
    (r"oldest = name of the oldest person", lambda v, m: {"oldest": ranked(v)[0]}),
    (r"crew = list of the people in alphabetical order", lambda v, m: {"crew": sorted(people(v))}),
    (r"gap = highest age minus lowest age", lambda v, m: {"gap": max(people(v).values()) - min(people(v).values())}),
    (r"buyer = name with the highest bid", lambda v, m: {"buyer": ranked(v)[0]}),
    (r"price = that bid", lambda v, m: {"price": max(people(v).values())}),
    (r"bids = number of bids", lambda v, m: {"bids": len(people(v))}),
    (r"(\w+) = ([\w +*()-]+?)(?: \(may be negative\))?", lambda v, m: {m[1]: eval(m[2], {}, v)}),
)


def compare(v: dict, left: str, sign: str, right: str) -> bool:
    a, b = v[left], int(right) if right.isdigit() else v[right]
    return {">=": a >= b, ">": a > b, "<": a < b}[sign]


def fields(draft: Draft) -> dict:
    """The given fields as the prompt shows them; where it tells them in prose, at least all values must occur."""
    given = draft.constraints["given"]
    found = re.search(r'(?<!as )\{".*\}', draft.prompt)
    if found:
        return json.loads(found[0])
    pairs = re.findall(r"(?:^|[;,:\n]|from) ?(\w+)(?:=| = |: )(\[[^\]]*\]|[^;,\n]+?)(?=[;,\n])", draft.prompt + "\n")
    shown = {key: json.loads(v) if re.fullmatch(r"-?\d+|\[.*\]", v) else v for key, v in pairs if key in given}
    if shown == given:
        return shown
    for value in given.values():
        for item in value if isinstance(value, list) else [value]:
            assert re.search(rf"(?<!\w){re.escape(str(item))}(?!\w)", draft.prompt), (value, draft.prompt)
    return dict(given)


def test_the_record_follows_from_the_prompt() -> None:
    shown = 0
    for draft in many(constrained_json):
        values = fields(draft)
        assert values == draft.constraints["given"]
        shown += draft.prompt.count("=") > len(draft.constraints["rules"])
        for rule in draft.constraints["rules"]:
            assert rule in draft.prompt
            for pattern, work_out in RULES:
                if match := re.fullmatch(pattern, rule):
                    values |= work_out(values, match)
                    break
            else:
                pytest.fail(f"no way to work out {rule!r}")
        gold = json.loads(draft.target)
        assert ", ".join(gold) in re.sub(r", in this order| as JSON| in one JSON object", "", draft.prompt)
        assert gold == {key: values[key] for key in gold}, draft.prompt
        assert gold == draft.constraints["object"]
        assert " " not in re.sub(r'"[^"]*"', "", draft.target)
        assert draft.parts == tuple(f"{k}={json.dumps(v, separators=(',', ':'))}" for k, v in gold.items())
    assert shown > 500


def test_conditions_come_out_both_ways() -> None:
    seen: dict[str, set[bool]] = {}
    for draft in many(constrained_json):
        for key, value in draft.constraints["object"].items():
            if isinstance(value, bool):
                seen.setdefault(f"{draft.constraints['family']}.{key}", set()).add(value)
    assert len(seen) >= 10
    assert all(len(values) == 2 for values in seen.values()), seen


# CSV Missing Cells


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


def minutes(text: str) -> int:
    return int(text[:2]) * 60 + int(text[3:])


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
    for draft in many(csv_cells):
        table = Table(draft.prompt)
        assert 3 <= len(table.rows) <= 8
        rule = str(draft.constraints["rule"])
        assert (rule in draft.prompt) == draft.constraints["stated"]
        assert draft.target == TABLES[str(draft.constraints["kind"])](table, rule), draft.prompt
        assert draft.parts == (draft.target,)


def test_unstated_rules_leave_no_second_reading() -> None:
    """Every simple relation between columns that all other rows obey must give the same cell."""
    unstated = [draft for draft in many(csv_cells) if not draft.constraints["stated"]]
    assert len(unstated) > 300
    for draft in unstated:
        table = Table(draft.prompt)
        found = set(arithmetic(table)) | set(dependencies(table))
        assert found <= {draft.target}, (found, draft.prompt)


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


# TD07


def sentence_of(draft: Draft) -> str:
    """The sentence with its blanks, found by putting the answers in."""
    whole = str(draft.constraints["sentence"])
    pattern = []
    for at, word in enumerate(whole.split()):
        if at in draft.constraints["positions"]:
            index = draft.constraints["positions"].index(at) + 1
            word = f"[{index}]" + ("," if word.endswith(",") else "." if word.endswith(".") else "")
        pattern.append(word)
    text = " ".join(pattern)
    assert text in draft.prompt, (text, draft.prompt)
    return text


def evidence_of(draft: Draft) -> str:
    return draft.prompt.rsplit("\n", 1)[0].replace(sentence_of(draft), "\n")


def visible(draft: Draft) -> set[str]:
    return {word.strip(",.").lower() for word in sentence_of(draft).split() if "[" not in word}


def record_of(evidence: str) -> list[str]:
    """The values of the fields, whatever sign and separator the record uses."""
    labels = "|".join(sorted({label for group in sparse._LABELS.values() for label in group}, key=len, reverse=True))
    return re.findall(rf"(?:^|[\n;,|:] ?)(?:{labels})(?:: | = | - )([\w-]+)(?=[;,|\n]| \||$)", evidence)


def hidden_by(kind: str, draft: Draft) -> set[str] | None:
    """The words that the evidence has and the sentence has not."""
    evidence, seen = evidence_of(draft), visible(draft)
    if kind == "questions":
        values = re.findall(r"\? ([\w-]+)\.", evidence)
    elif kind == "bank":
        values = re.search(r"(?:sentence|list|each|bank): ([\w, ]+)", evidence)[1].split(", ")  # type: ignore[index]
    elif kind == "rows":
        lines = [line.split(": ")[-1] for line in evidence.splitlines()]
        rows = [re.split(r" \| |, | / ", line) for line in lines if len(re.split(r" \| |, | / ", line)) > 4][1:]
        assert len(rows) == (3 if draft.level == 3 else 4), draft.prompt
        fitting = [row for row in rows if len([w for w in row if w.lower() not in seen]) == 3]
        assert len(fitting) == 1, draft.prompt
        values = fitting[0]
    else:
        values = record_of(evidence)
        for old, new in corrections(evidence):
            assert values.count(old) == 1
            values[values.index(old)] = new
        if kind == "base":
            values = [in_context(value) for value in values]
    return {value.lower() for value in values if value.lower() not in seen}


def corrections(evidence: str) -> list[tuple[str, str]]:
    line = next((line for line in evidence.splitlines() if line.startswith("Corrections: ")), "")
    found = re.findall(r"not (\w+) but (\w+)", line) + re.findall(r"read (?P<new>\w+) for (?P<old>\w+)", line)
    if " for " in line:
        found = [(old, new) for new, old in found]
    return found + [(old, new) for new, old in re.findall(r"(\w+) instead of (\w+)", line)]


PAST = {verb[0]: verb[1] for verb in words.VERBS}
COUNTED = {noun: words.plural(noun) for noun in (*words.THINGS, *words.FOODS, *words.ANIMALS)}


def in_context(value: str) -> str:
    """All forms of a base form; a set joined by a bar, since a word may be both verb and noun."""
    if value.isdigit():
        return words.cardinal(int(value))
    return "|".join(sorted({value, PAST.get(value, value), COUNTED.get(value, value)}))


@pytest.mark.parametrize("task", [sparse, sparse.CLUSTERED], ids=lambda task: task.NAME)
def test_the_missing_words_are_the_ones_the_evidence_adds(task: Generator) -> None:
    counts = Counter()
    for draft in many(task):
        kind = str(draft.constraints["kind"])
        counts[kind] += 1
        answers = {part.lower() for part in draft.parts}
        assert len(answers) == 3
        assert draft.prompt.count("[1]") >= 2  # in the sentence and in the form of the answer
        if kind == "pieces":
            assert pieces_make(draft), draft.prompt
            continue
        found = hidden_by(kind, draft)
        if kind == "base":
            options = [set(value.split("|")) for value in found]
            assert all(any(answer in option for option in options) for answer in answers), draft.prompt
        elif draft.level == 2 and kind in ("record", "questions"):
            assert answers < found, draft.prompt
            assert len(found) <= 5
        else:
            assert answers == found, draft.prompt
    assert len(counts) == 7


def pieces_make(draft: Draft) -> bool:
    """The pieces in the evidence are exactly the words of the sentence with the answers put in."""
    evidence = next(line for line in evidence_of(draft).splitlines() if re.search("order: |mixed: ", line))
    pieces = re.split(r" / | \| |; ", re.split("order: |mixed: ", evidence)[1].strip())
    whole = [word.strip(",.").lower() for word in str(draft.constraints["sentence"]).split()]
    return sorted(" ".join(pieces).lower().split()) == sorted(whole)


@pytest.mark.parametrize("task", [sparse, sparse.CLUSTERED], ids=lambda task: task.NAME)
def test_the_pieces_fit_in_one_way_only(task: Generator) -> None:
    """Whatever the order of the pieces, the visible words allow one set of answers."""
    tried = 0
    cut_up = [draft for level in (2, 3) for draft in drafts(task, level)[:250] if draft.constraints["kind"] == "pieces"]
    for draft in cut_up:
        evidence = next(line for line in evidence_of(draft).splitlines() if re.search("order: |mixed: ", line))
        pieces = re.split(r" / | \| |; ", re.split("order: |mixed: ", evidence)[1].strip())
        gaps = [word.strip(",.").lower() for word in sentence_of(draft).split()]
        fills = set()
        for order in permutations([piece.lower().split() for piece in pieces]):
            made = [word for piece in order for word in piece]
            if all(gap == word or "[" in gap for gap, word in zip(gaps, made, strict=True)):
                fills.add(tuple(word for gap, word in zip(gaps, made, strict=True) if "[" in gap))
        assert fills == {tuple(part.lower() for part in draft.parts)}, draft.prompt
        tried += 1
    assert tried > 60


def test_sparse_blanks_are_far_apart_and_clustered_ones_adjacent() -> None:
    for far, near in zip(many(sparse), many(sparse.CLUSTERED), strict=True):
        first, middle, last = far.constraints["positions"]
        length = len(str(far.constraints["sentence"]).split())
        assert 3 * first < length <= 3 * middle + length
        assert middle - first > 2
        assert last - middle > 2
        assert 3 * last >= 2 * length
        start = near.constraints["positions"][0]
        assert near.constraints["positions"] == [start, start + 1, start + 2]
        # "Liam gladly sold" could be "gladly Liam sold": such neighbours are never hidden together.
        if near.constraints["kind"] != "pieces" and set(near.parts) & set(words.MANNERS):
            people_and_looks = {*words.FIRST, *words.ADJECTIVES, *words.COLOURS, *words.MOODS} - {*PAST.values()}
            assert not set(near.parts) & people_and_looks


def test_the_control_has_the_same_sentences_evidence_and_number_of_blanks() -> None:
    for far, near in zip(many(sparse), many(sparse.CLUSTERED), strict=True):
        assert far.constraints["sentence"] == near.constraints["sentence"]
        assert far.prompt.replace(sentence_of(far), "") == near.prompt.replace(sentence_of(near), "")
        assert len(far.parts) == len(near.parts) == 3


# Multi-Span Cloze

SOLVED = dict[int, str]


def passage_of(draft: Draft) -> str:
    return draft.prompt.rsplit("\n", 1)[0]


AHEAD = (
    "is taller than|is older than|was born before|runs faster than|beats|is richer than|has more money than"
    "|arrived before|came earlier than|scored more than|finished ahead of|lives above|lives on a higher floor than"
    "|sits to the left of|stands in front of|costs more than|weighs more than|is heavier than|is longer than"
    "|was sold before"
)
BEHIND = (
    "is shorter than|is younger than|runs slower than|is poorer than|arrived after|finished behind|lives below"
    "|sits to the right of|stands behind|costs less than|is cheaper than|is lighter than|is newer than|was sold after"
)
TOP = (
    "tallest|oldest|fastest|richest|first to arrive|best|one at the top|leftmost|first in the queue|most expensive"
    "|heaviest|longest|first to be sold"
)
BOTTOM = (
    "shortest|youngest|slowest|poorest|last to arrive|worst|one at the bottom|rightmost|last in the queue|cheapest"
    "|lightest|newest|last to be sold"
)
PLACES = ("first", "second", "third", "fourth", "fifth")


def ordering(text: str) -> SOLVED:
    pairs = re.findall(rf"(\w+) (?:{AHEAD}) (?:the )?(\w+)(?: in every race)?\.", text)
    pairs += [(b, a) for a, b in re.findall(rf"(\w+) (?:{BEHIND}) (?:the )?(\w+)\.", text)]
    if not pairs:
        return {}
    names = sorted({name for pair in pairs for name in pair})
    orders = [o for o in permutations(names) if all(o.index(a) < o.index(b) for a, b in pairs)]
    assert len(orders) == 1
    found = {}
    for pattern, at in ((TOP, 0), (BOTTOM, -1)):
        for a, b in re.findall(rf"[Tt]he (?:{pattern}) is (?:the )?\[(\d)\]|\[(\d)\] is the (?:{pattern})\.", text):
            found[int(a or b)] = orders[0][at]
    for index, place in re.findall(rf"Counting from the (?:{TOP}), (?:the )?\[(\d)\] is (\w+)\.", text):
        found[int(index)] = orders[0][PLACES.index(place)]
    return found


def temporal(text: str) -> SOLVED:
    event, time = r"the (\w+)", r"((?:\w+day)|[A-Z][a-z]+|\d{4}|\d\d:\d\d)"
    times: dict[str, str] = {}
    times |= dict(re.findall(rf"[Tt]he (\w+) was (?:on|in|at) {time}\.", text))
    times |= {e: t for t, e in re.findall(rf"(?:On|In|At) {time} there was {event}\.", text)}
    times |= dict(re.findall(rf"The (?:day|month|year|hour) of {event} was {time}\.", text))
    gap = r"(\d+) (day|month|year|minute)s? (before|after)"
    steps = re.findall(rf"The (\w+) (?:came exactly|was) {gap} {event}\.", text)
    steps += [(e2, *rest, e1) for *rest, e1, e2 in re.findall(rf"Exactly {gap} {event} came {event}\.", text)]
    for _ in steps:
        for later, amount, unit, side, earlier in steps:
            if earlier in times:
                times[later] = moved(times[earlier], int(amount) * (-1 if side == "before" else 1), unit)
    asked = re.findall(r"The (\w+) took place (?:on|in|at) \[(\d)\]\.", text)
    asked += [(e, i) for i, e in re.findall(r"(?:On|In|At) \[(\d)\] people met for the (\w+)\.", text)]
    asked += re.findall(r"The poster of the (\w+) says: \[(\d)\]\.", text)
    asked += re.findall(r"So the (\w+) was (?:on|in|at) \[(\d)\]\.", text)
    return {int(index): times[name] for name, index in asked}


def moved(time: str, by: int, unit: str) -> str:
    for cycle in (words.DAYS, words.MONTHS):
        if time in cycle:
            return cycle[(cycle.index(time) + by) % len(cycle)]
    return clock(time, by) if unit == "minute" else str(int(time) + by)


STORIES = {
    # What follows a number in the story tells what to do with it: first step, then second.
    r"has {n} \w+ with {n} \w+ in each": "*",
    r"keeps {n} shelves of {n} ": "*",
    r"found {n} \w+ and \w+ found {n}": "+",
    r"holds {n} \w+ and {n} \w+\.": "+",
    r"Of {n} \w+ at the \w+, {n} ran away": "-",
    r"coat of {n} coins is {n} coins cheaper": "-",
    r"scored {n} points in the first half and {n} in the second": "+",
    r"had {n} coins and spent {n} on": "-",
    r"train of {n} wagons has {n} seats": "*",
    r"{n} guests came by bus to the \w+ and {n} on foot": "+",
    r"reads {n} pages a day for {n} days": "*",
    r"is {n} years old; \w+ is {n} years younger": "-",
    r"ticket costs {n} coins and the programme {n}\.": "+",
    r"it is {n} km, and from there to \w+ {n} km": "+",
    r"wall has {n} rows of {n} bricks": "*",
    r"has {n} rooms, {n} of them closed": "-",
}
FIRST_STEP = (
    r"That makes \[(\d)\]|It keeps \[(\d)\]|Together they have \[(\d)\]|So one \w+ holds \[(\d)\]|That left \[(\d)\]"
    r"|Today one coat costs \[(\d)\]|Their total was \[(\d)\]|Then \[(\d)\] coins were left|It has \[(\d)\] seats"
    r"|There were \[(\d)\]|That is \[(\d)\] pages|So \w+ is \[(\d)\]\.|Both together cost \[(\d)\]"
    r"|The way over \w+ is \[(\d)\]|The mason needs \[(\d)\]|So \[(\d)\] rooms are open"
)
SECOND_STEP = {
    r"When {n} of the \[\d\] \w+ are sold, \[(\d)\] remain": "-",
    r"If {n} more join those \[\d\], there will be \[(\d)\]": "+",
    r"They give {n} of the \[\d\] away and keep \[(\d)\]": "-",
    r"With {n} such \w+ of \[\d\] there are \[(\d)\]": "*",
    r"With {n} newcomers added to the \[\d\], there are now \[(\d)\]": "+",
    r"At \[\d\] coins each, {n} coats cost \[(\d)\]": "*",
    r"The rivals had {n} points more than \[\d\], which is \[(\d)\]": "+",
    r"After paying {n} of the \[\d\] coins for lunch, \w+ had \[(\d)\]": "-",
    r"With {n} of the \[\d\] seats taken, \[(\d)\] are free": "-",
    r"{n} of the \[\d\] guests left early, so \[(\d)\] stayed": "-",
    r"With {n} pages more than those \[\d\], the book would have \[(\d)\]": "+",
    r"In {n} years \w+, now \[\d\], will be \[(\d)\]": "+",
    r"For {n} people who each pay \[\d\], that is \[(\d)\]": "*",
    r"With a detour of {n} km on top of \[\d\], it is \[(\d)\]": "+",
    r"Since {n} of the \[\d\] are there already, \[(\d)\] must": "-",
    r"When {n} of the \[\d\] are booked, \[(\d)\] are still free": "-",
}
N = rf"(\d+|{_WORDS}|{_BELOW_100})"


def number(text: str) -> int:
    return int(text) if text.isdigit() else from_words(text.lower())


def calculate(sign: str, x: int, y: int) -> int:
    return {"+": x + y, "-": x - y, "*": x * y}[sign]


def sums(text: str) -> SOLVED:
    for story, sign in STORIES.items():
        if told := re.search(story.replace("{n}", N), text, re.IGNORECASE):
            first = calculate(sign, number(told[1]), number(told[2]))
            asked = re.search(FIRST_STEP, text)
            assert asked, text
            found = {int(asked[asked.lastindex]): str(first)}  # type: ignore[index]
            for step, then in SECOND_STEP.items():
                if more := re.search(step.replace("{n}", N), text, re.IGNORECASE):
                    found[int(more[2])] = str(calculate(then, first, number(more[1])))
            return found
    return {}


FACTS = {
    "item": r"{s} owns the {v}\.|the {v} belongs to {s}\.|the owner of the {v} is {s}\."
    r"|the {v} is the property of {s}\.|it is {s} who owns the {v}\.",
    "site": r"{s} works at the {v}\.|the {v} is where {s} works\.|{s} is on duty at the {v}\."
    r"|whoever comes to the {v} meets {s}, who works there\.|the one on duty at the {v} is {s}\.",
    "job": r"{s} is the {v}\.|the {v} is called {s}\.|the name of the {v} is {s}\.|everyone knows {s}, the {v}\."
    r"|they hired {s} as the {v}\.",
}
ASKED = {
    "item": r"owns the \[(\d)\]|is the owner of the \[(\d)\]|has the \[(\d)\]",
    "site": r"works at the \[(\d)\]|is on duty at the \[(\d)\]",
    "job": r"is the \[(\d)\]|has the job of \[(\d)\]|is hired as the \[(\d)\]",
    "name": r"is called \[(\d)\]|goes by the name of \[(\d)\]|has the name \[(\d)\]",
}
CUES = {
    "item": r"(?:owner of the|the one who owns the|whoever owns the) (\w+) ",
    "site": r"(?:the one who works at the|whoever works at the|the one on duty at the) (\w+) ",
    "job": r"\b[Tt]he (\w+) ",
    "name": r"\b([A-Z][a-z]+) ",
}
OTHER_CLUES = (
    rf"{TOP}|{BOTTOM}|Counting|took place|people met|poster of the \w+ says|^So the \w+ was|begins with|last letter of"
)


def entities(text: str) -> SOLVED:
    known: list[dict[str, str]] = []
    links: list[tuple[str, str, str]] = []
    for attribute, forms in FACTS.items():
        for form in forms.split("|"):
            subject = r"(?P<s>[A-Z][a-z]+|the [a-z]+)" if attribute != "job" else "(?P<s>[A-Z][a-z]+)"
            pattern = form.replace("{s}", subject).replace("{v}", "(?P<v>[a-z]+)")
            for match in re.finditer(rf"(?:^|(?<=[.!?:\]'] )|(?<=\n)){pattern}", text, re.MULTILINE | re.IGNORECASE):
                who = match["s"]
                if who[0].islower() or who.startswith("The "):
                    links.append((who.lower().removeprefix("the "), attribute, match["v"]))
                elif match["v"] not in ("tallest", "best") and not re.search(rf"\b(?:{TOP}|{BOTTOM})\b", match["v"]):
                    person = next((p for p in known if p["name"] == who), None)
                    if person is None:
                        known.append(person := {"name": who})
                    person[attribute] = match["v"]
    for job, attribute, value in links:
        for person in known:
            if person.get("job") == job:
                person[attribute] = value
    found: SOLVED = {}
    for sentence in re.split(r"(?<=[.!]) |\n", text):
        blanks = {int(m[m.lastindex]): a for a, p in ASKED.items() for m in re.finditer(p, sentence)}  # type: ignore[index]
        if not blanks or re.search(OTHER_CLUES, sentence):
            continue
        for attribute, pattern in CUES.items():
            people_ = [
                p for p in known for cue in re.findall(pattern, sentence, re.IGNORECASE) if p.get(attribute) == cue
            ]
            if people_:
                assert len({p["name"] for p in people_}) == 1, sentence
                found |= {index: people_[0][wanted] for index, wanted in blanks.items()}
                break
    return found


def lexical(text: str) -> SOLVED:
    found: SOLVED = {}
    quoted, blank = r"'(\w+)'", r"'\[(\d)\]'"
    direct: tuple[tuple[str, Callable[..., str]], ...] = (
        (rf"Spelled backwards, {quoted} reads {blank}", lambda w: w[::-1]),
        (rf"Written from right to left, {quoted} becomes {blank}", lambda w: w[::-1]),
        (rf"Without its first letter, {quoted} is just {blank}", lambda w: w[1:]),
        (rf"{quoted} without its last two letters leaves {blank}", lambda w: w[:-2]),
        (rf"Swap the words {quoted} and {quoted}, then join them: {blank}", lambda a, b: b + a),
        (rf"The ((?:[A-Z][a-z]+ ?){{5}}) is known by its five initials, {blank}", lambda w: re.sub("[a-z ]", "", w)),
        (rf"Of ([\w, ]+), the first in alphabetical order is {blank}", lambda w: min(w.split(", "))),
        (rf"Of ([\w, ]+), the last in alphabetical order is {blank}", lambda w: max(w.split(", "))),
        (rf"Put {quoted} in front of {quoted} to get the word {blank}", lambda a, b: a + b),
        (rf"{quoted} and {quoted} in one word make {blank}", lambda a, b: a + b),
        (rf"The opposite of {quoted} begins with {quoted} and has (\d+) letters: {blank}", opposite),
        (rf"As '([\w-]+)' is to '([\w-]+)', so '([\w-]+)' is to {blank}", analogy),
        (rf"If '([\w-]+)' becomes '([\w-]+)', then '([\w-]+)' becomes {blank}", analogy),
        (rf"'([\w-]+)' : '([\w-]+)' = '([\w-]+)' : {blank}", analogy),
        (rf"From '([\w-]+)' one forms '([\w-]+)', and from '([\w-]+)' in the same way {blank}", analogy),
    )
    for pattern, work_out in direct:
        for *given, index in re.findall(pattern, text, re.IGNORECASE):
            found[int(index)] = work_out(*given)
    return found


def derived(text: str, found: SOLVED) -> SOLVED:
    forms: tuple[tuple[str, Callable[[str], str]], ...] = (
        (r"The word '\[(\d)\]' begins with the letter '\[(\d)\]'", lambda w: w[0]),
        (r"The last letter of '\[(\d)\]' is '\[(\d)\]'", lambda w: w[-1]),
        (r"'\[(\d)\]' has \[(\d)\] letters", lambda w: str(len(w))),
        (r"Read '\[(\d)\]' backwards and you get '\[(\d)\]'", lambda w: w[::-1]),
        (r"Take the first letter off '\[(\d)\]' and '\[(\d)\]' remains", lambda w: w[1:]),
        (r"The first three letters of '\[(\d)\]' are '\[(\d)\]'", lambda w: w[:3]),
    )
    steps = [(int(i), int(j), rule) for pattern, rule in forms for i, j in re.findall(pattern, text)]
    for _ in steps:  # one may build on another
        found = found | {j: rule(found[i]) for i, j, rule in steps if i in found}
    return found


def opposite(word: str, start: str, length: str) -> str:
    pairs = [pair for pair in words.OPPOSITES if word in pair]
    fitting = {w for pair in pairs for w in pair if w != word and w.startswith(start) and len(w) == int(length)}
    assert len(fitting) == 1, word
    return fitting.pop()


def analogy(x: str, formed: str, y: str) -> str:
    """The form of y that stands to it as `formed` to x. All ways to explain the first pair must agree on it."""
    tables = [
        {noun: words.plural(noun) for noun in (*words.GOODS, *words.ANIMALS)},
        PAST,
        {w: words.graded(w, "er") for w in words.GRADED},
        {w: words.graded(w, "est") for w in words.GRADED},
        {words.cardinal(n): words.ordinal(n) for n in range(1, 100)},
    ]
    answers = {table[y] for table in tables if table.get(x) == formed and y in table}
    assert len(answers) == 1, (x, formed, y)
    return answers.pop()


def test_the_blanks_follow_from_the_passage() -> None:
    solvers = {"ordering": ordering, "temporal": temporal, "arithmetic": sums, "entity": entities, "lexical": lexical}
    for draft in many(cloze):
        text = passage_of(draft)
        found: SOLVED = {}
        for link in dict.fromkeys(draft.constraints["links"]):
            part = solvers[link](text)
            assert not set(part) & set(found), draft.prompt
            found |= part
        found = derived(text, found)
        assert tuple(found.get(i) for i in range(1, len(draft.parts) + 1)) == draft.parts, draft.prompt


def test_blanks_are_two_or_three_apart_and_often_repeated() -> None:
    repeated = Counter()
    for draft in many(cloze):
        text = passage_of(draft)
        marks = [int(mark) for mark in re.findall(r"\[(\d)\]", text)]
        assert len(draft.parts) in (2, 3)
        assert set(marks) == set(range(1, len(draft.parts) + 1))
        firsts = list(dict.fromkeys(marks))
        assert firsts == sorted(firsts)
        assert not re.search(r"\]\W*\[", re.sub(r"[.!'] *'?\[", "; stop [", text)), draft.prompt
        repeated[draft.level] += len(marks) > len(set(marks))
    assert all(200 < repeated[level] < 500 for level in LEVELS)


def test_every_kind_of_link_is_common_at_every_level() -> None:
    for level in LEVELS:
        counts = Counter(link for draft in drafts(cloze, level) for link in draft.constraints["links"])
        assert set(counts) == set(cloze.LINKS)
        assert min(counts.values()) > 0.1 * PER_LEVEL
