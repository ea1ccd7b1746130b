"""The little grammar that prompts need: plurals, articles, numbers in words, the last line of a prompt."""

from collections.abc import Sequence

from unmask.base.errors import require
from unmask.tasks.draw import Draw
from unmask.tasks.words.text import words

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
