"""Frames of sentences with slots, and the words that fill them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from unmask.tasks.draw import Draw
from unmask.tasks.words import (
    ADJECTIVES,
    ANIMALS,
    COLOURS,
    DAYS,
    EVENTS,
    FIRST,
    FOODS,
    JOBS,
    MANNERS,
    MATERIALS,
    MONTHS,
    MOODS,
    SITES,
    SURNAMES,
    THINGS,
    TOWNS,
    VERBS,
    cardinal,
    has_plain_plural,
    place_name,
    plural,
)

BLANKS = 3

FRAMES = (
    # | ends a piece of the sentence that may be shown on its own.
    "{name}|{past}|{num} {adj} {nouns}|at the {site}|on {day}.",
    "on {day}|the {mood} {job}|{past}|{num} {nouns}|near the {site}|in {town}.",
    "in {month}|{name} {surname}|{manner} {past}|the {colour} {thing}|near {town}.",
    "the {job}|from {town}|{manner} {past}|{num} {material} {nouns}|for {name}.",
    "{num} {adj} {animals}|slept|behind the {site}|until {name} came|on {day}.",
    "last {day}|{name} {surname}|{manner} {past}|the {material} {thing}|beside the {site}.",
    "the {mood} {job}|{manner} {past}|the {thing}|while {name} watched|from the {site}.",
    "near {town}|{name}|{past}|{num} {colour} {nouns}|before {month}.",
    "{name} {surname}|{past}|the {colour} {thing}|during the {event}|in {town}.",
    "after the {event},|the {mood} {job}|{past}|the {colour} {thing}|behind the {site}.",
    "{manner}|the {job}|{past}|{num} {adj} {nouns}|in {town}|last {month}.",
    "when {name} reached {town},|{num} {colour} {animals}|were waiting|by the {site}.",
    "the {material} {thing}|that {name} {surname} {past}|in {month}|now stands|by the {site}.",
    "{town}|sent|{num} {adj} {nouns}|to the {site}|because {name} had asked|on {day}.",
    "beside the {site},|{name}|and the {mood} {job}|{past}|{num} {nouns}|in {month}.",
    "only {name} {surname}|knew|why the {mood} {job}|{past}|the {material} {thing}|in {month}.",
    "{num} {material} {nouns}|lay|in the {site}|until {name} moved|to {town}.",
    "the letter|from {town}|says|that {name}|{manner} {past}|{num} {nouns}|last {day}.",
    "at the {event}|the {job}|{name} {surname}|{past}|{num} {foods}|on {day}.",
    "for the {site}|in {town},|the {mood} {job}|{past}|{num} {colour} {nouns}|by {month}.",
    "{name} {surname}|{manner} {past}|the {adj} {thing}|before leaving|for {town}|in {month}.",
    "last {month},|{num} {adj} {animals}|followed|{name}|all the way|to the {site}.",
    "while {name} slept,|the {mood} {job}|{manner} {past}|the {thing}|from {town}.",
    "in the {site},|{num} {colour} {animals}|{manner}|watched|{name}|on {day}.",
    "before the {event},|{name} {surname}|{manner} {past}|{num} {foods}|for the {job}.",
    "nobody|in {town}|noticed|that {num} {adj} {nouns}|had vanished|from the {site}|by {day}.",
    "by {month}|{name}|had {manner} painted|{num} {colour} {animals}|on the wall|of the {site}.",
    "the {site}|in {town}|bought|{num} {adj} {nouns}|from {name} {surname}|on {day}.",
    "yesterday|the {mood} {job}|{past}|{num} {material} {nouns}|until {name} rang|from {town}.",
    "each {day}|the {event}|began|when {name} {surname} {past}|the {colour} {thing}|in the {site}.",
    "under the {site}|{num} {adj} {animals}|{manner}|hid|from {name}|in {month}.",
    "without {name},|the {mood} {job}|{manner} {past}|{num} {foods}|at the {event}.",
)

LABELS = {
    "name": ("who", "person", "first name"),
    "surname": ("surname", "family name"),
    "job": ("job", "trade"),
    "mood": ("character", "temper"),
    "past": ("action", "deed"),
    "num": ("number", "how many"),
    "adj": ("quality", "condition"),
    "colour": ("colour", "shade"),
    "material": ("material", "made of"),
    "nouns": ("things", "goods"),
    "foods": ("food", "dish"),
    "animals": ("animals", "species"),
    "thing": ("object", "thing"),
    "site": ("place", "site"),
    "town": ("town", "city"),
    "day": ("day", "weekday"),
    "month": ("month",),
    "manner": ("how", "manner"),
    "event": ("event", "occasion"),
}

# A list of words settles a blank only if no other blank could take the same kind of word.
_CLASSES = {
    **dict.fromkeys(("name", "surname", "town"), "proper name"),
    **dict.fromkeys(("mood", "adj", "colour", "material"), "adjective"),
    **dict.fromkeys(("nouns", "foods", "animals", "thing", "site", "job", "event"), "noun"),
}


def word_class(slot: str) -> str:
    """The kind of word that a slot takes."""
    return _CLASSES.get(slot, slot)


WORDS = {
    "proper name": {*FIRST, *SURNAMES, *TOWNS},
    "adjective": {*MOODS, *ADJECTIVES, *COLOURS, *MATERIALS},
    "noun": {*THINGS, *FOODS, *ANIMALS, *SITES, *JOBS, *EVENTS},
    "past": {verb[1] for verb in VERBS},
    "manner": {*MANNERS},
    "month": {*MONTHS},
}

# Words that may have to be put into the plural by the reader.
_COUNTED = {
    "nouns": tuple(filter(has_plain_plural, THINGS)),
    "foods": tuple(filter(has_plain_plural, FOODS)),
    "animals": tuple(filter(has_plain_plural, ANIMALS)),
}

_SINGLE = (*range(2, 21), *range(30, 100, 10))


@dataclass(frozen=True)
class Word:
    """One word of the sentence."""

    text: str
    slot: str
    """What it is an instance of; empty for the fixed words of the frame."""
    piece: int
    """Which piece of the frame it belongs to."""
    mark: str
    """The punctuation after it."""


_LISTS: dict[str, Sequence[str]] = {
    "name": FIRST,
    "surname": SURNAMES,
    "job": JOBS,
    "mood": MOODS,
    "adj": ADJECTIVES,
    "colour": COLOURS,
    "material": MATERIALS,
    "thing": THINGS,
    "site": SITES,
    "day": DAYS,
    "month": MONTHS,
    "manner": MANNERS,
    "event": EVENTS,
}


def fill(draw: Draw, slots: Sequence[str]) -> dict[str, str]:
    """A word for each slot, and under `base ...` the base forms of those that are inflected."""
    values: dict[str, str] = {}
    for slot in slots:
        if slot in _LISTS:
            values[slot] = draw.choice(_LISTS[slot])
        elif slot == "town":
            values[slot] = place_name(draw)
        elif slot == "num":
            number = draw.choice(_SINGLE)
            values[slot], values["base num"] = cardinal(number), str(number)
        elif slot == "past":
            values["base past"], values[slot], *_ = draw.choice(VERBS)
        else:
            noun = draw.choice(_COUNTED[slot])
            values[slot], values[f"base {slot}"] = plural(noun), noun
    return values


_TOKEN = re.compile(r"(\{(\w+)\}|[\w-]+)([,.]?)")


def _parsed(frame: str) -> tuple[Word, ...]:
    """The words of a frame; those of its slots are still empty."""
    words = []
    for piece, text in enumerate(frame.split("|")):
        for token in text.split():
            match = _TOKEN.fullmatch(token)
            assert match, f"frame has an odd token {token!r}"
            words.append(Word("" if match[2] else match[1], match[2] or "", piece, match[3]))
    return tuple(words)


PARSED = tuple(map(_parsed, FRAMES))


def slots_of(words: Sequence[Word]) -> list[str]:
    """What the words are instances of, in their order; fixed words are left out."""
    return [word.slot for word in words if word.slot]
