"""The vocabulary of the constructed tasks, and the little grammar they need.

All of it was written for this package. The lists are wide on purpose: a small model that has learnt a narrow
template by heart answers perfectly, and then there is nothing left to decode.
"""

from unmask.tasks.words.common import COMMON
from unmask.tasks.words.deeds import ADJECTIVES, COMPOUNDS, GRADED, MANNERS, OPPOSITES, VERBS
from unmask.tasks.words.grammar import (
    article,
    cardinal,
    clock,
    closing,
    graded,
    has_plain_plural,
    listed,
    ordinal,
    plural,
    roman,
    sentence_case,
    with_article,
)
from unmask.tasks.words.made_up import CODE_LETTERS, brand, code, distinct, invented, place_name
from unmask.tasks.words.nouns import (
    ANIMALS,
    CLOTHES,
    COLOURS,
    EVENTS,
    FOODS,
    GOODS,
    IDEAS,
    MATERIALS,
    PLANTS,
    SITES,
    THINGS,
    UNITS,
)
from unmask.tasks.words.people import FIRST, JOBS, MOODS, SURNAMES, TEAMS
from unmask.tasks.words.places import DAYS, MONTHS, TOWNS

__all__ = [
    "ADJECTIVES",
    "ANIMALS",
    "CLOTHES",
    "CODE_LETTERS",
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
    "article",
    "brand",
    "cardinal",
    "clock",
    "closing",
    "code",
    "distinct",
    "graded",
    "has_plain_plural",
    "invented",
    "listed",
    "ordinal",
    "place_name",
    "plural",
    "roman",
    "sentence_case",
    "with_article",
]
