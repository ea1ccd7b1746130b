"""Words that mean nothing but can be pronounced, names and codes made of them, and words that begin differently."""

from collections.abc import Callable, Sequence

from unmask.base.errors import ConfigError
from unmask.tasks.draw import Draw
from unmask.tasks.words.places import TOWNS
from unmask.tasks.words.text import words

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
