"""The vocabulary of the constructed tasks, and the little grammar they need.

All of it was written for this package. The lists are wide on purpose: a small model that has learnt a narrow
template by heart answers perfectly, and then there is nothing left to decode.
"""

from collections.abc import Callable, Sequence

from unmask.errors import ConfigError, require
from unmask.tasks.constructed.draw import Draw
from unmask.tasks.words.deeds import ADJECTIVES, COMPOUNDS, GRADED, MANNERS, OPPOSITES, VERBS
from unmask.tasks.words.nouns import (
    ANIMALS,
    CLOTHES,
    COLOURS,
    EVENTS,
    FOODS,
    IDEAS,
    MATERIALS,
    PLANTS,
    SITES,
    THINGS,
    UNITS,
)
from unmask.tasks.words.people import FIRST, JOBS, MOODS, SURNAMES, TEAMS
from unmask.tasks.words.places import DAYS, MONTHS, TOWNS
from unmask.tasks.words.text import words

__all__ = [
    "ADJECTIVES",
    "ANIMALS",
    "CLOTHES",
    "COLOURS",
    "COMMON",
    "COMPOUNDS",
    "DAYS",
    "EVENTS",
    "FIRST",
    "FOODS",
    "GOODS",
    "GRADED",
    "IDEAS",
    "JOBS",
    "MANNERS",
    "MATERIALS",
    "MONTHS",
    "MOODS",
    "OPPOSITES",
    "PLANTS",
    "SITES",
    "SURNAMES",
    "TEAMS",
    "THINGS",
    "TOWNS",
    "UNITS",
    "VERBS",
]

_FORMS = (word for forms in (*VERBS, *OPPOSITES) for word in forms)
_JOINED = (first + second for first, second in COMPOUNDS)

GOODS = (*THINGS, *CLOTHES, *FOODS)
"""What a shop could sell by the piece."""

COMMON = tuple(
    sorted(
        {
            *(*ADJECTIVES, *ANIMALS, *CLOTHES, *COLOURS, *EVENTS, *FOODS, *GRADED, *IDEAS, *JOBS, *MANNERS),
            *(*MATERIALS, *PLANTS, *SITES, *THINGS, *UNITS, *_FORMS, *_JOINED),
        }
    )
)
"""Every lower-case word, once, in alphabetical order."""

_HEADS = words(
    """
    bal bel bor bran cal cor dal dor el fal fen fir gal gar hal har hol jor kal kel kor lan lor lum mal mar mel mor
    nal nor ol or pel per quen ral ran rol ros sal sel sil sol tal tam tar tel tor ul ur val ver vor wal wil yar yor
    zan zel
    """
)
_MIDDLES = words("a e i o u ba da de di do la le li lo ma me mi mo na ne ni ra ro ta te ti va ve vi")
_TAILS = words(
    """
    bek ben bis dan dell den dine dor dra fax fell ford gan gard gus kan ket kin lan lex lin lix lon mar mere mon
    nax net nor num pas pel pex por rax rel ren rin ris ron sen sett sin son tal tan ten tis ton tor tra trix vale
    van vane ver vik vin vor wen wick win wyn zar zen zin
    """
)

CODE_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"  # no I and no O, which look like digits


def invented(draw: Draw) -> str:
    """A lower-case word that means nothing but can be pronounced: one of more than a hundred thousand."""
    return draw.choice(_HEADS) + draw.choice(_MIDDLES) + draw.choice(_TAILS)


def brand(draw: Draw) -> str:
    """An invented name."""
    return invented(draw).capitalize()


def place_name(draw: Draw) -> str:
    """A town, as often a real one as not."""
    return draw.choice(TOWNS) if draw.chance(0.5) else brand(draw)


def code(draw: Draw, letters: int = 2, digits: int = 3) -> str:
    """An article number such as KT482."""
    head = "".join(draw.choice(CODE_LETTERS) for _ in range(letters))
    return head + str(draw.between(10 ** (digits - 1), 10**digits - 1))


def distinct(draw: Draw, source: Sequence[str] | Callable[[Draw], str], k: int) -> list[str]:
    """k words, chosen or made, that begin differently: nobody should have to look twice to tell them apart."""
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


_ODD_PLURALS = {
    "dormouse": "dormice",
    "goose": "geese",
    "mouse": "mice",
    "ox": "oxen",
    "wolf": "wolves",
    "half": "halves",
    "life": "lives",
    "hero": "heroes",
    "echo": "echoes",
    "mosquito": "mosquitoes",
    "potato": "potatoes",
    "tomato": "tomatoes",
}
_MAN_PLURALS = ("boatman", "cowman", "ferryman", "fireman", "fisherman", "foreman", "huntsman", "policeman", "postman")
_UNCHANGED = frozenset(
    words(
        """
        carp cod deer elk goldfish grouse haddock halibut herring jellyfish mackerel moose perch pike reindeer
        salmon sheep shrimp squid starfish sturgeon trout tuna
        """
    )
)
_UNSETTLED = frozenset(words("quail mongoose"))


def plural(noun: str) -> str:
    """The plural of a noun of our lists."""
    if noun in _ODD_PLURALS:
        return _ODD_PLURALS[noun]
    if noun in _UNCHANGED:
        return noun
    if noun in _MAN_PLURALS:
        return noun[:-3] + "men"
    if noun.endswith(("s", "x", "z", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def has_plain_plural(noun: str) -> bool:
    """Whether everyone would write the same plural: dictionaries disagree about -o, -f, -us and some animals."""
    if noun in _ODD_PLURALS or noun in ("deer", "sheep"):
        return True
    settled = noun not in _UNCHANGED and noun not in _UNSETTLED
    return settled and not noun.endswith(("o", "f", "fe", "us", "is", "z"))


_DOUBLED = frozenset(words("sad flat thin wet"))


def graded(adjective: str, ending: str) -> str:
    """The comparative (`er`) or superlative (`est`) of a word in GRADED."""
    if adjective in _DOUBLED:
        return adjective + adjective[-1] + ending
    if adjective.endswith("y"):
        return adjective[:-1] + "i" + ending
    return adjective.removesuffix("e") + ending


def article(phrase: str) -> str:
    """`a` or `an`, by sound."""
    word = phrase.lower()
    if word.startswith(("hour", "honest", "heir", "honour")):
        return "an"
    if word.startswith(("uni", "use", "utopia", "ukulele", "euro", "one", "eunice", "eugene", "ewe", "usual")):
        return "an" if word.startswith(("unin", "unim")) else "a"
    return "an" if word[0] in "aeiou" else "a"


def with_article(phrase: str) -> str:
    """`a lamp`, `an oven`."""
    return f"{article(phrase)} {phrase}"


_ONES = words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
)
_TENS = words("zero ten twenty thirty forty fifty sixty seventy eighty ninety")


def cardinal(n: int) -> str:
    """A number below ten thousand in words: 'five hundred and eighty-nine'."""
    require(0 <= n < 10_000, "number", n, "0 to 9999", "write larger numbers in digits")
    if n < 20:
        return _ONES[n]
    if n < 100:
        return _TENS[n // 10] + (f"-{_ONES[n % 10]}" if n % 10 else "")
    if n < 1000:
        return f"{_ONES[n // 100]} hundred" + (f" and {cardinal(n % 100)}" if n % 100 else "")
    rest = n % 1000
    joint = " and " if 0 < rest < 100 else " "
    return f"{_ONES[n // 1000]} thousand" + (f"{joint}{cardinal(rest)}" if rest else "")


_ORDINALS = {1: "first", 2: "second", 3: "third", 5: "fifth", 8: "eighth", 9: "ninth", 12: "twelfth"}


def ordinal(n: int) -> str:
    """`first`, `second`, ..., up to ninety-ninth."""
    require(0 < n < 100, "ordinal", n, "1 to 99", "write larger ones in digits")
    if n > 20 and n % 10:
        return f"{_TENS[n // 10]}-{ordinal(n % 10)}"
    if n >= 20:
        return _TENS[n // 10][:-1] + "ieth"
    return _ORDINALS.get(n, _ONES[n] + "th")


_ROMAN = (
    (1000, "M"),
    (900, "CM"),
    (500, "D"),
    (400, "CD"),
    (100, "C"),
    (90, "XC"),
    (50, "L"),
    (40, "XL"),
    (10, "X"),
    (9, "IX"),
    (5, "V"),
    (4, "IV"),
    (1, "I"),
)


def roman(n: int) -> str:
    """Roman numerals."""
    written = ""
    for value, letters in _ROMAN:
        written += letters * (n // value)
        n %= value
    return written


def listed(items: Sequence[str], joint: str = "and") -> str:
    """`a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {joint} {items[-1]}"


def sentence_case(text: str) -> str:
    """The same text with a capital first letter."""
    return text[:1].upper() + text[1:]


def clock(minutes: int) -> str:
    """Minutes after midnight as HH:MM."""
    return f"{minutes // 60 % 24:02d}:{minutes % 60:02d}"


_CLOSINGS = (
    "Give {what} inside <answer>...</answer>.",
    "Put {what} inside <answer>...</answer>.",
    "Write {what} between <answer> and </answer>.",
    "Return {what} within <answer>...</answer>.",
    "Reply with {what} in <answer>...</answer>.",
    "Finish with {what} in the form <answer>...</answer>.",
    "Final answer: {what}, inside <answer>...</answer>.",
    "End with {what}, wrapped as <answer>...</answer>.",
    "Answer with {what} inside <answer>...</answer>.",
    "State {what} between the tags <answer> and </answer>.",
)


def closing(draw: Draw, what: str) -> str:
    """The last line of every prompt: where the final answer goes."""
    return draw.choice(_CLOSINGS).format(what=what)
