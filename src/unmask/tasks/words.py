"""Words and sentences of the constructed tasks (`*.toml`), the grammar that prompts need, and invented words."""

import tomllib
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

from unmask.base.errors import ConfigError, require
from unmask.tasks.draw import Draw


def _read_data(name: str) -> dict[str, Any]:
    return tomllib.loads(files("unmask.tasks").joinpath(name).read_text("utf-8"))


_VOCABULARY, _SENTENCES = _read_data("vocabulary.toml"), _read_data("sentences.toml")


def sentences(task: str, name: str) -> Any:
    """Return a list or table of sentence patterns from which the prompts of a constructed task are made."""
    return _lists_to_tuples(_SENTENCES[task][name])


def _lists_to_tuples(value: Any) -> Any:
    """Turn lists into tuples, because a list changed in place would change the prompts of later examples."""
    if isinstance(value, dict):
        return {key: _lists_to_tuples(inner) for key, inner in value.items()}
    return tuple(map(_lists_to_tuples, value)) if isinstance(value, list) else value


def word_list(text: str) -> tuple[str, ...]:
    """Split a text into its words."""
    return tuple(text.split())


def _read_words(name: str) -> tuple[str, ...]:
    return word_list(_VOCABULARY[name])


def _read_word_forms(name: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(word.split("/")) for word in _read_words(name))


THINGS = _read_words("things")
CLOTHES = _read_words("clothes")
FOODS = _read_words("foods")
GOODS = (*THINGS, *CLOTHES, *FOODS)
"""Things that a shop could sell by the piece."""
ANIMALS = _read_words("animals")
PLANTS = _read_words("plants")
MATERIALS = _read_words("materials")
COLOURS = _read_words("colours")
UNITS = _read_words("units")
IDEAS = _read_words("ideas")
EVENTS = _read_words("events")
SITES = _read_words("sites")
TOWNS = _read_words("towns")
DAYS = _read_words("days")
MONTHS = _read_words("months")
FIRST = _read_words("first")
"""First names of people."""
SURNAMES = _read_words("surnames")
JOBS = _read_words("jobs")
TEAMS = _read_words("teams")
MOODS = _read_words("moods")
ADJECTIVES = _read_words("adjectives")
GRADABLE = _read_words("gradable")
MANNERS = _read_words("manners")
VERBS = _read_word_forms("verbs")
OPPOSITES = _read_word_forms("opposites")
COMPOUNDS = _read_word_forms("compounds")
COMMON = tuple(
    sorted(
        {
            *(*ADJECTIVES, *ANIMALS, *CLOTHES, *COLOURS, *EVENTS, *FOODS, *GRADABLE, *IDEAS, *JOBS, *MANNERS),
            *(*MATERIALS, *PLANTS, *SITES, *THINGS, *UNITS),
            *(form for forms in (*VERBS, *OPPOSITES) for form in forms),
            *("".join(parts) for parts in COMPOUNDS),
        }
    )
)
"""Every lower-case word of the lists, once, in alphabetical order."""

CODE_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"  # no I and no O, which look like digits


# Grammar

_ODD_PLURALS: dict[str, str] = _VOCABULARY["odd_plurals"]
_UNCHANGED = frozenset(_read_words("unchanged"))
_UNSETTLED = frozenset(_read_words("unsettled"))
_MAN_NOUNS = frozenset(_read_words("man_nouns"))
_DOUBLED = frozenset(_read_words("doubled"))
_ONES = _read_words("ones")
_TENS = _read_words("tens")
_ODD_ORDINALS = {1: "first", 2: "second", 3: "third", 5: "fifth", 8: "eighth", 9: "ninth", 12: "twelfth"}
_ROMAN = dict(zip((1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1), _read_words("roman"), strict=True))


def plural(noun: str) -> str:
    """Return the plural of a noun of the vocabulary."""
    if noun in _ODD_PLURALS:
        return _ODD_PLURALS[noun]
    if noun in _UNCHANGED:
        return noun
    if noun in _MAN_NOUNS:
        return noun[:-3] + "men"
    if noun.endswith(("s", "x", "z", "ch", "sh")):
        return noun + "es"
    # A vowel before the y keeps it: days, but cities.
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def has_plain_plural(noun: str) -> bool:
    """Return whether a noun has one undisputed plural. Dictionaries disagree about -o, -f, -us and some animals."""
    if noun in _ODD_PLURALS or noun in ("deer", "sheep"):
        return True
    settled = noun not in _UNCHANGED and noun not in _UNSETTLED
    return settled and not noun.endswith(("o", "f", "fe", "us", "is", "z"))


def compare_adjective(adjective: str, ending: str) -> str:
    """Return the comparative (`er`) or superlative (`est`) of a word in GRADABLE."""
    if adjective in _DOUBLED:
        # One short vowel before one consonant: bigger, hottest.
        return adjective + adjective[-1] + ending
    if adjective.endswith("y"):
        return adjective[:-1] + "i" + ending
    return adjective.removesuffix("e") + ending


def article(phrase: str) -> str:
    """Return the indefinite article of a phrase, `a` or `an`."""
    word = phrase.lower()
    if word.startswith(("hour", "honest", "heir", "honour")):
        return "an"
    if word.startswith(("uni", "use", "utopia", "ukulele", "euro", "one", "eunice", "eugene", "ewe", "usual")):
        return "an" if word.startswith(("unin", "unim")) else "a"
    return "an" if word[0] in "aeiou" else "a"


def with_article(phrase: str) -> str:
    """Put the indefinite article before a phrase: `a lamp`, `an oven`."""
    return f"{article(phrase)} {phrase}"


def number_in_words(n: int) -> str:
    """Write a number below ten thousand in words: 'five hundred and eighty-nine'."""
    require(0 <= n < 10_000, "number", n, "0 to 9999", "write larger numbers in digits")
    if n < 20:
        return _ONES[n]
    if n < 100:
        return _TENS[n // 10] + (f"-{_ONES[n % 10]}" if n % 10 else "")
    if n < 1000:
        return f"{_ONES[n // 100]} hundred" + (f" and {number_in_words(n % 100)}" if n % 100 else "")
    rest = n % 1000
    # British usage: two thousand and five, two thousand five hundred.
    joint = " and " if 0 < rest < 100 else " "
    return f"{_ONES[n // 1000]} thousand" + (f"{joint}{number_in_words(rest)}" if rest else "")


def ordinal_in_words(n: int) -> str:
    """Write an ordinal in words: `first`, `second`, ..., up to ninety-ninth."""
    require(0 < n < 100, "ordinal", n, "1 to 99", "write larger ones in digits")
    if n > 20 and n % 10:
        return f"{_TENS[n // 10]}-{ordinal_in_words(n % 10)}"
    if n >= 20:
        return _TENS[n // 10][:-1] + "ieth"
    return _ODD_ORDINALS.get(n, _ONES[n] + "th")


def roman_numeral(n: int) -> str:
    """Write a number in Roman numerals."""
    written = ""
    for value, letters in _ROMAN.items():
        written += letters * (n // value)
        n %= value
    return written


def join_words(items: Sequence[str], joint: str = "and") -> str:
    """Join words as prose does: `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {joint} {items[-1]}"


def sentence_case(text: str) -> str:
    """Give a text a capital first letter."""
    return text[:1].upper() + text[1:]


def clock_time(minutes: int) -> str:
    """Write minutes after midnight as HH:MM."""
    return f"{minutes // 60 % 24:02d}:{minutes % 60:02d}"


def draw_answer_line(draw: Draw, answer: str) -> str:
    """Draw the last line of a prompt, which asks for `answer` between the answer tags."""
    return draw.choice(_VOCABULARY["answer_lines"]).format(what=answer)


# Invented words

_HEADS, _MIDDLES, _TAILS = _read_words("heads"), _read_words("middles"), _read_words("tails")


def invent_word(draw: Draw) -> str:
    """Make up a lower-case word that means nothing but can be pronounced."""
    return draw.choice(_HEADS) + draw.choice(_MIDDLES) + draw.choice(_TAILS)


def invent_name(draw: Draw) -> str:
    """Make up a capitalised name that does not exist."""
    return invent_word(draw).capitalize()


def draw_place_name(draw: Draw) -> str:
    """Draw the name of a town, real or invented with equal chance."""
    return draw.choice(TOWNS) if draw.chance(0.5) else invent_name(draw)


def draw_item_code(draw: Draw, letters: int = 2, digits: int = 3) -> str:
    """Draw an article number such as KT482."""
    head = "".join(draw.choice(CODE_LETTERS) for _ in range(letters))
    return head + str(draw.integer(10 ** (digits - 1), 10**digits - 1))


def pick_distinct(draw: Draw, source: Sequence[str] | Callable[[Draw], str], k: int) -> list[str]:
    """Draw k words from a list or a function, no two with the same first three letters."""
    chosen: list[str] = []
    starts: set[str] = set()
    for _ in range(1000):
        if len(chosen) == k:
            return chosen
        word = source(draw) if callable(source) else draw.choice(source)
        if (start := word[:3].lower()) not in starts:
            starts.add(start)
            chosen.append(word)
    raise ConfigError(f"cannot find {k} words that begin differently; allowed: fewer words or a larger source")
