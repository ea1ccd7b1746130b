"""Carry RTL: the carries follow from the two numbers of the prompt."""

import re
from collections import Counter
from collections.abc import Callable

from tests.helpers.constructed import DIGIT, LEVELS, NUMBER_WORDS, D, drafts, from_words, many
from unmask.tasks import Example
from unmask.tasks.constructed import carry

_ROMAN = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}


def from_roman(text: str) -> int:
    values = [_ROMAN[letter] for letter in text]
    return sum(-v if v < max(values[i:]) else v for i, v in enumerate(values))


def from_places(text: str) -> int:
    return sum(int(n) * {"hundreds": 100, "tens": 10, "ones": 1}[unit] for n, unit in re.findall(r"(\d) (\w+)", text))


NUMBERS: dict[str, Callable[[str], int]] = {
    r"\d{3} (?:read from right to left|written backwards)": lambda t: int(t[:3][::-1]),
    r"[MDCLXVI]+ (?:in Roman numerals|\(Roman\))": lambda t: from_roman(t.split()[0]),
    r"\d (?:hundreds|tens|ones)(?: \d (?:hundreds|tens|ones)){2}": from_places,
    rf"{D}(?:, {D}){{2}} \(from the ones to the hundreds\)": lambda t: sum(
        DIGIT.index(d) * 10**i for i, d in enumerate(t.split(" (")[0].split(", "))
    ),
    r"\d00\+\d0?\+\d": lambda t: sum(map(int, t.split("+"))),
    rf"\b{NUMBER_WORDS}\b": from_words,
    rf"\b{D}(?:-{D}){{2}}\b": lambda t: int("".join(str(DIGIT.index(d)) for d in t.split("-"))),
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


def addends(draft: Example) -> list[int]:
    story = draft.prompt[: draft.prompt.index(next(line for line in draft.prompt.splitlines() if "[1]" in line))]
    if draft.level < 4:
        return numbers(story)
    entries = re.findall(r"\b([A-Za-z]+): (?=([a-z0-9][a-z0-9 -]*))", story)
    entries = [(label, numbers(text)) for label, text in entries if numbers(text)]
    asked = [values[0] for label, values in entries if len(re.findall(rf"\b{label}\b", story)) == 2]
    assert all(len(values) == 1 for _, values in entries)
    assert 4 <= len(entries) <= 6
    return asked


def test_carries_follow_from_the_prompt() -> None:
    for draft in many(carry.TASK):
        a, b = addends(draft)
        assert {len(str(a)), len(str(b))} == {3}
        expected = tuple(str(int(a % 10**k + b % 10**k >= 10**k)) for k in (1, 2, 3))
        assert draft.parts == expected, draft.prompt
        assert sorted(draft.constraints["addends"]) == sorted((a, b))


def test_at_least_two_carries_and_all_four_patterns_as_often() -> None:
    for level in LEVELS:
        counts = Counter(draft.parts for draft in drafts(carry.TASK, level))
        assert all(parts.count("1") >= 2 for parts in counts)
        assert len(counts) == 4
        assert max(counts.values()) < 1.3 * min(counts.values())


def test_columns_that_depend_on_the_column_before_are_common() -> None:
    """A carry that arrives at a nine is what makes the task go from right to left."""
    pairs = [draft.constraints["addends"] for draft in drafts(carry.TASK, 4)]
    ripple = [sum(n // 10 % 10 for n in pair) == 9 for pair in pairs]
    assert sum(ripple) > 0.2 * len(ripple)
