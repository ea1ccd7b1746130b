"""Every lower-case word of the lists together."""

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
from unmask.tasks.words.people import JOBS

_FORMS = (word for forms in (*VERBS, *OPPOSITES) for word in forms)
_JOINED = (first + second for first, second in COMPOUNDS)

COMMON = tuple(
    sorted(
        {
            *(*ADJECTIVES, *ANIMALS, *CLOTHES, *COLOURS, *EVENTS, *FOODS, *GRADED, *IDEAS, *JOBS, *MANNERS),
            *(*MATERIALS, *PLANTS, *SITES, *THINGS, *UNITS, *_FORMS, *_JOINED),
        }
    )
)
"""Every lower-case word, once, in alphabetical order."""
