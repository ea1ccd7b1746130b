"""The vocabulary and its grammar."""

import pytest

from tests.helpers.cases import each_case
from unmask.base.errors import ConfigError
from unmask.tasks import words
from unmask.tasks.draw import Draw


def test_word_lists_are_wide_clean_and_without_repeats() -> None:
    lists = {name: getattr(words, name) for name in vars(words) if name.isupper() and not name.startswith("_")}
    for name, listed in lists.items():
        flat = [word for entry in listed for word in ((entry,) if isinstance(entry, str) else entry)]
        assert all(word.isalpha() and word.isascii() and len(word) <= 16 for word in flat), name
        assert len(set(listed)) == len(listed), name
    assert len(words.COMMON) > 3000
    assert list(words.COMMON) == sorted(set(words.COMMON))
    assert len(words.FIRST) > 400
    assert len(words.SURNAMES) > 400
    assert len({words.invent_word(Draw(b"%d" % i)) for i in range(2000)}) > 1900


@each_case(
    ("one", "many"),
    [
        ("fox", "foxes"),
        ("berry", "berries"),
        ("donkey", "donkeys"),
        ("mouse", "mice"),
        ("wolf", "wolves"),
        ("sheep", "sheep"),
        ("torch", "torches"),
        ("potato", "potatoes"),
        ("postman", "postmen"),
    ],
)
def test_plurals(one: str, many: str) -> None:
    assert words.plural(one) == many


def test_forms_of_adjectives_and_articles() -> None:
    assert [words.compare_adjective(w, "er") for w in ("wise", "happy", "thin", "low")] == [
        "wiser",
        "happier",
        "thinner",
        "lower",
    ]
    assert words.compare_adjective("simple", "est") == "simplest"
    assert [words.article(w) for w in ("oven", "uniform", "unhappy", "heirloom", "ukulele", "hat")] == [
        *("an", "a", "an", "an", "a", "a")
    ]


def test_numbers_in_words_and_roman_numerals() -> None:
    assert words.cardinal(0) == "zero"
    assert words.cardinal(589) == "five hundred and eighty-nine"
    assert words.cardinal(7003) == "seven thousand and three"
    assert words.cardinal(9999) == "nine thousand nine hundred and ninety-nine"
    assert len({words.cardinal(n) for n in range(10_000)}) == 10_000
    assert [words.ordinal(n) for n in (1, 4, 12, 20, 43, 90)] == [
        *("first", "fourth", "twelfth", "twentieth", "forty-third", "ninetieth")
    ]
    assert [words.roman(n) for n in (4, 589, 944, 1999)] == ["IV", "DLXXXIX", "CMXLIV", "MCMXCIX"]
    assert len({words.roman(n) for n in range(1, 1000)}) == 999


def test_words_that_begin_alike_are_not_mixed() -> None:
    for i in range(50):
        chosen = words.pick_distinct(Draw(b"%d" % i), words.FIRST, 10)
        assert len({name[:3] for name in chosen}) == 10
    with pytest.raises(ConfigError, match="begin differently"):
        words.pick_distinct(Draw(b""), ["cart", "carton"], 2)
