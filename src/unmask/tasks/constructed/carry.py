"""Carry RTL: the carries of a three-digit addition, from the ones column to the left.

The sum itself is not asked for. Only four answers are possible (at least two carries are nonzero), so the variety is
in how the two numbers are told: in digits, in a story, in words, Roman numerals or digit by digit, or hidden among
other numbers that must be left alone.
"""

from collections.abc import Callable

from unmask.tasks import scorers
from unmask.tasks import words as w
from unmask.tasks.draw import Draw
from unmask.tasks.extract import write_spans
from unmask.tasks.splits import constructed_task
from unmask.tasks.task import Example, Scorer

PATTERNS = ((1, 1, 0), (1, 0, 1), (0, 1, 1), (1, 1, 1))
"""The carries out of ones, tens and hundreds: every case with at least two that are nonzero."""

_RULES: tuple[str, ...] = w.sentences("carry", "rules")
_WHAT: tuple[str, ...] = w.sentences("carry", "what")
_PLAIN: tuple[str, ...] = w.sentences("carry", "plain")
_STORIES: tuple[str, ...] = w.sentences("carry", "stories")
_DESCRIBED: tuple[str, ...] = w.sentences("carry", "described")
_AMONG: tuple[str, ...] = w.sentences("carry", "among")

_DIGIT_NAMES = w.word_list("zero one two three four five six seven eight nine")


def _list_digit_pairs(carry_in: int, carry_out: int, least: int) -> list[tuple[int, int]]:
    digits = range(least, 10)
    return [(a, b) for a in digits for b in digits if (a + b + carry_in >= 10) == bool(carry_out)]


_COLUMNS = {
    (carry_in, carry_out, least): _list_digit_pairs(carry_in, carry_out, least)
    for carry_in in (0, 1)
    for carry_out in (0, 1)
    for least in (0, 1)
}


def compute_carries(a: int, b: int) -> tuple[int, int, int]:
    """Compute the carries out of the ones, tens and hundreds column of a + b."""
    out = []
    carry = 0
    for _ in range(3):
        carry = int(a % 10 + b % 10 + carry >= 10)
        out.append(carry)
        a, b = a // 10, b // 10
    return out[0], out[1], out[2]


def _draw_addends(draw: Draw, pattern: tuple[int, int, int], close: float) -> tuple[int, int]:
    """Draw two three-digit numbers whose sum has the given carries.

    With probability `close` the digits of a column sum to nine or ten, so that its carry is hard to judge.
    """
    a = b = 0
    carry = 0
    for place, wanted in enumerate(pattern):
        # The hundreds digit is at least one: both numbers have three digits.
        pairs = _COLUMNS[carry, wanted, int(place == 2)]
        # Digits that sum to nine carry only if the column before them does; a sum of ten only just carries.
        tight = [pair for pair in pairs if sum(pair) in (9, 10)]
        x, y = draw.choice(tight if tight and draw.chance(close) else pairs)
        a, b = a + x * 10**place, b + y * 10**place
        carry = wanted
    return a, b


def _split_digits(n: int) -> list[int]:
    return [int(d) for d in str(n)]


def _write_in_words(draw: Draw, n: int) -> str:
    return w.number_in_words(n)


def _write_roman_numeral(draw: Draw, n: int) -> str:
    return w.roman_numeral(n) + draw.choice((" in Roman numerals", " (Roman)"))


def _write_backwards(draw: Draw, n: int) -> str:
    return f"{str(n)[::-1]} " + draw.choice(("read from right to left", "written backwards"))


def _write_named_places(draw: Draw, n: int) -> str:
    named = [f"{d} {unit}" for d, unit in zip(_split_digits(n), ("hundreds", "tens", "ones"), strict=True)]
    return " ".join(draw.permute(named))


def _write_digit_names(draw: Draw, n: int) -> str:
    return "-".join(_DIGIT_NAMES[d] for d in _split_digits(n))


def _write_digits_from_ones(draw: Draw, n: int) -> str:
    spelled = ", ".join(_DIGIT_NAMES[d] for d in reversed(_split_digits(n)))
    return f"{spelled} (from the ones to the hundreds)"


def _write_expanded(draw: Draw, n: int) -> str:
    h, t, o = _split_digits(n)
    return f"{100 * h}+{10 * t}+{o}"


STYLES: tuple[Callable[[Draw, int], str], ...] = (
    _write_in_words,
    _write_roman_numeral,
    _write_backwards,
    _write_named_places,
    _write_digit_names,
    _write_digits_from_ones,
    _write_expanded,
)


def _draw_template_values(draw: Draw) -> dict[str, str]:
    names = w.pick_distinct(draw, w.FIRST, 2)
    site = draw.choice(w.SITES)
    thing = draw.choice(w.GOODS)
    return {
        "name": names[0],
        "other": names[1],
        "site": w.sentence_case(site),
        "site_": site,
        "a_thing": w.with_article(thing),
        "things": w.plural(thing),
        "animals": w.plural(draw.choice(w.ANIMALS)),
        "plants": w.plural(draw.choice(w.PLANTS)),
        "town": w.draw_place_name(draw),
        "town2": w.draw_place_name(draw),
        "team": draw.choice(w.TEAMS),
        "day": draw.choice(w.DAYS),
        "month": draw.choice(w.MONTHS),
    }


def _draw_labels(draw: Draw, k: int) -> list[str]:
    """Draw k different labels for the entries of a list, all of one kind."""
    kind = draw.index(5)
    if kind == 0:
        return draw.sample(w.DAYS, k)
    if kind == 1:
        return draw.sample(w.MONTHS, k)
    if kind == 2:
        return w.pick_distinct(draw, w.FIRST, k)
    if kind == 3:
        return [w.plural(thing) for thing in w.pick_distinct(draw, w.GOODS, k)]
    return w.pick_distinct(draw, w.draw_place_name, k)


def _write_list(draw: Draw, a: int, b: int, frame: str, props: dict[str, str]) -> str:
    k = draw.integer(4, 6)
    labels = _draw_labels(draw, k)
    at_a, at_b = sorted(draw.sample(range(k), 2))
    numbers = [draw.integer(100, 999) for _ in range(k)]
    numbers[at_a], numbers[at_b] = a, b
    style = draw.choice((_write_digits, _write_in_words, _write_digit_names, _write_digits))
    written = [style(draw, n) for n in numbers]
    rows = [f"{label}: {n}" for label, n in zip(labels, written, strict=True)]
    x, y = draw.permute([labels[at_a], labels[at_b]])
    return frame.format(rows="\n".join(rows), rows_="; ".join(rows), x=x, y=y, **props)


def _write_digits(draw: Draw, n: int) -> str:
    return str(n)


def generate(draw: Draw, level: int) -> Example:
    """Make one example of the given level: two numbers, and the carries of their sum."""
    pattern = draw.choice(PATTERNS)
    a, b = _draw_addends(draw, pattern, close=(0.2, 0.3, 0.5, 0.6)[level - 1])
    frames = (_PLAIN, _STORIES, _DESCRIBED, _AMONG)[level - 1]
    at = draw.index(len(frames))
    props = _draw_template_values(draw)
    if level == 4:
        task = _write_list(draw, a, b, frames[at], props)
    elif level == 3:
        first, second = draw.choice(STYLES), draw.choice(STYLES)
        task = frames[at].format(a=first(draw, a), b=second(draw, b), **props)
    else:
        styles = (_write_digits, _write_in_words) if level == 2 else (_write_digits,)
        first, second = draw.choice(styles), draw.choice(styles)
        task = w.sentence_case(frames[at].format(a=first(draw, a), b=second(draw, b), **props))
    prompt = f"{task}\n{draw.choice(_RULES)}\n{w.draw_answer_line(draw, draw.choice(_WHAT))}"
    parts = tuple(str(carry) for carry in pattern)
    return Example(prompt, write_spans(parts), parts, {"frame": f"{level}.{at}", "addends": [a, b]}, level)


TASK = constructed_task(
    "carry-rtl",
    "Carry RTL",
    Scorer("partial", scorers.score_spans),
    generate,
    max_new_tokens=32,
    output="three carry bits",
    version="1",
)
