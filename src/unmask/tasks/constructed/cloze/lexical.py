"""Lexical: forms and spellings of words."""

from collections.abc import Callable

from unmask.tasks.constructed.cloze.clue import Clue
from unmask.tasks.draw import Draw
from unmask.tasks.words import (
    ANIMALS,
    COMMON,
    COMPOUNDS,
    GOODS,
    GRADED,
    JOBS,
    OPPOSITES,
    SITES,
    THINGS,
    VERBS,
    cardinal,
    distinct,
    graded,
    has_plain_plural,
    invented,
    ordinal,
    plural,
    sentence_case,
)


def _inflected(draw: Draw) -> tuple[str, str]:
    """A sentence with one blank that another pair of words explains, and the answer."""
    kind = draw.choice(("plural", "past", "er", "est", "ordinal", "compound", "opposite"))
    if kind == "compound":
        first, second = draw.choice(COMPOUNDS)
        joined = ("Put '{x}' in front of '{y}' to get the word '#0'.", "'{x}' and '{y}' in one word make '#0'.")
        return draw.choice(joined).format(x=first, y=second), first + second
    if kind == "opposite":
        given, wanted = draw.shuffled(draw.choice(OPPOSITES))
        return f"The opposite of '{given}' begins with '{wanted[:2]}' and has {len(wanted)} letters: '#0'.", wanted
    (x, formed), (y, answer) = _same_form(draw, kind)
    forms = (
        "As '{x}' is to '{f}', so '{y}' is to '#0'.",
        "If '{x}' becomes '{f}', then '{y}' becomes '#0'.",
        "'{x}' : '{f}' = '{y}' : '#0'.",
        "From '{x}' one forms '{f}', and from '{y}' in the same way '#0'.",
    )
    return draw.choice(forms).format(x=x, f=formed, y=y), answer


_NOUNS = tuple(filter(has_plain_plural, (*GOODS, *ANIMALS)))


def _same_form(draw: Draw, kind: str) -> list[tuple[str, str]]:
    """Two words, each with its form of one kind."""
    if kind == "plural":
        return [(noun, plural(noun)) for noun in distinct(draw, _NOUNS, 2)]
    if kind == "past":
        # Only verbs with one form for past and participle: "carry : carried" does not tell which of the two is meant.
        verbs = [verb for verb in VERBS if len(verb) == 2]
        return [(base, past) for base, past in draw.sample(verbs, 2)]
    if kind == "ordinal":
        return [(cardinal(n), ordinal(n)) for n in draw.sample(range(1, 100), 2)]
    return [(word, graded(word, kind)) for word in distinct(draw, GRADED, 2)]


def _spelled(draw: Draw, level: int) -> tuple[str, str]:
    """A sentence with one blank that is made of the letters of given words, and the answer."""
    most = (6, 7, 9, 11)[level - 1]
    word = _word(draw, 4, most)
    kind = draw.choice(("back", "cut", "tail", "joined", "initials", "first", "last"))
    if kind == "back":
        return draw.choice(
            ("Spelled backwards, '{w}' reads '#0'.", "Written from right to left, '{w}' becomes '#0'.")
        ).format(w=word), word[::-1]
    if kind == "cut":
        return f"Without its first letter, '{word}' is just '#0'.", word[1:]
    if kind == "tail":
        return f"'{word}' without its last two letters leaves '#0'.", word[:-2]
    if kind == "joined":
        other = _word(draw, 3, 6)
        return f"Swap the words '{word[:5]}' and '{other}', then join them: '#0'.", other + word[:5]
    if kind == "initials":
        club = [invented(draw), *(draw.choice((*SITES, *THINGS, *JOBS)) for _ in range(3)), "club"]
        name = " ".join(part.capitalize() for part in club)
        return f"The {name} is known by its five initials, '#0'.", "".join(part[0] for part in club).upper()
    words = distinct(draw, lambda draw: _word(draw, 3, most), (3, 3, 4, 5)[level - 1])
    answer = min(words) if kind == "first" else max(words)
    return f"Of {', '.join(words)}, the {kind} in alphabetical order is '#0'.", answer


def _word(draw: Draw, least: int, most: int) -> str:
    while True:
        word = draw.choice(COMMON) if draw.chance(0.8) else invented(draw)
        if least <= len(word) <= most:
            return word


_DERIVED: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("The word '#{i}' begins with the letter '#{j}'.", lambda w: w[0]),
    ("The last letter of '#{i}' is '#{j}'.", lambda w: w[-1]),
    ("'#{i}' has #{j} letters.", lambda w: str(len(w))),
    ("Read '#{i}' backwards and you get '#{j}'.", lambda w: w[::-1]),
    ("Take the first letter off '#{i}' and '#{j}' remains.", lambda w: w[1:]),
    ("The first three letters of '#{i}' are '#{j}'.", lambda w: w[:3]),
)


def derived(draw: Draw, of: str, i: int, j: int) -> tuple[str, str]:
    """A sentence that makes blank j from the word in blank i, and the answer."""
    text, rule = draw.choice([(text, rule) for text, rule in _DERIVED if rule(of) != of])
    return text.format(i=i, j=j), rule(of)


def make(draw: Draw, level: int, blanks: int) -> Clue:
    """A word that follows from the spelling or the form of others."""
    while True:
        text, value = _inflected(draw) if draw.chance(0.5) else _spelled(draw, level)
        if len(value) > 2 and "-" not in value:
            break
    if blanks == 1:
        return Clue("lexical", (), (sentence_case(text),), (value,))
    more, second = derived(draw, value, 0, 1)
    return Clue("lexical", (), (sentence_case(text), more), (value, second))
