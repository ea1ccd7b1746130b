"""TD07 Sparse Mask: three words missing from one sentence, far apart, and what is needed to find them.

The control task takes the same sentence with the same evidence and the same number of blanks, but the blanks are next
to each other. Both come from one source, so a pair that is drawn from the same key differs in nothing else.

The evidence settles every word that is hidden: a record of the facts, questions and answers, the pieces of the
sentence out of order, a list of its words, several records of which the sentence matches one, a record in base forms,
or a record with corrections.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from unmask.errors import require
from unmask.tasks.base import Draft, Json
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
    closing,
    has_plain_plural,
    place_name,
    plural,
    sentence_case,
)

NAME = "td07-sparse-mask"
TITLE = "TD07 Sparse Mask"
HORIZON = 48
VERSION = "1"
LEVELS = (1, 2, 3, 4)

BLANKS = 3

_FRAMES = (
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

_LABELS = {
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


def _class(slot: str) -> str:
    return _CLASSES.get(slot, slot)


_WORDS = {
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


@dataclass(frozen=True)
class SparseSource:
    """A sentence, its evidence, and both ways to mask it."""

    words: tuple[Word, ...]
    evidence: str
    kind: str
    frame: int
    sparse: tuple[int, ...]
    clustered: tuple[int, ...]


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


def _fill(draw: Draw, slots: Sequence[str]) -> dict[str, str]:
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


_PARSED = tuple(map(_parsed, _FRAMES))


def _slots(words: Sequence[Word]) -> list[str]:
    return [word.slot for word in words if word.slot]


# Where the blanks go


def _sparse(draw: Draw, n: int, open_: Sequence[int]) -> tuple[int, ...] | None:
    """One blank each near the beginning, the middle and the end, at least two words between them."""
    parts = [[at for at in open_ if k * n <= 3 * at < (k + 1) * n] for k in range(BLANKS)]
    if not all(parts):
        return None
    first, middle, last = (draw.choice(part) for part in parts)
    return (first, middle, last) if middle - first > 2 and last - middle > 2 else None


def _clustered(draw: Draw, words: Sequence[Word], open_: Sequence[int]) -> tuple[int, ...] | None:
    """Three blanks in a row whose order is settled."""
    starts = [at for at in open_ if at + 1 in open_ and at + 2 in open_ and _ordered(words[at : at + BLANKS])]
    if not starts:
        return None
    at = draw.choice(starts)
    return at, at + 1, at + 2


def _ordered(window: Sequence[Word]) -> bool:
    """Whether words side by side can only stand in this order: 'Liam gladly' might as well be 'gladly Liam'."""
    kinds = {word.slot if word.slot == "name" else _class(word.slot) for word in window}
    return "manner" not in kinds or not kinds & {"adjective", "name"}


# The evidence


def _record(draw: Draw, slots: Sequence[str], values: dict[str, str]) -> str:
    joint = draw.choice(("; ", ", ", " | ", "\n"))
    sign = draw.choice((": ", " = ", " - "))
    return joint.join(f"{draw.choice(_LABELS[slot])}{sign}{values[slot]}" for slot in draw.shuffled(slots))


def _questions(draw: Draw, slots: Sequence[str], values: dict[str, str]) -> str:
    return " ".join(
        f"{sentence_case(_LABELS[slot][0])}? {sentence_case(values[slot])}." for slot in draw.shuffled(slots)
    )


def _bank(draw: Draw, slots: Sequence[str], values: dict[str, str]) -> str:
    words = sorted((values[slot] for slot in slots), key=str.lower)
    intro = draw.choice(("Words of the sentence: ", "Word list: ", "These words occur once each: ", "Word bank: "))
    return intro + ", ".join(words)


def _pieces(draw: Draw, words: Sequence[Word]) -> str:
    pieces: dict[int, list[str]] = {}
    for word in words:
        pieces.setdefault(word.piece, []).append(word.text)
    joint = draw.choice((" / ", " | ", "; "))
    intro = draw.choice(("Pieces in no order: ", "The sentence in pieces, out of order: ", "Cut up and mixed: "))
    return intro + joint.join(" ".join(piece) for piece in draw.shuffled(list(pieces.values())))


def _rows(draw: Draw, slots: Sequence[str], values: dict[str, str], others: Sequence[dict[str, str]]) -> str:
    order = draw.shuffled(slots)
    rows = draw.shuffled([values, *others])
    joint = draw.choice((" | ", ", ", " / "))
    lines = [joint.join(_LABELS[slot][0] for slot in order), *(joint.join(row[slot] for slot in order) for row in rows)]
    return "\n".join(lines)


_BASE_RULES = (
    "The note has base forms; use the past tense, numbers in words, and plurals after numbers.",
    "In the sentence, deeds are in the past tense, numbers are written in words, and their nouns are plural.",
    "Turn verbs into the past tense, digits into words, and counted nouns into the plural.",
)


def _base(draw: Draw, slots: Sequence[str], values: dict[str, str]) -> str:
    shown = {slot: values.get(f"base {slot}", values[slot]) for slot in slots}
    return f"{_record(draw, slots, shown)}\n{draw.choice(_BASE_RULES)}"


def _corrected(
    draw: Draw, slots: Sequence[str], values: dict[str, str], wrong: dict[str, str], changed: Sequence[str]
) -> str:
    """A record of which some fields are put right afterwards."""
    shown = {slot: wrong[slot] if slot in changed else values[slot] for slot in slots}
    record = _record(draw, slots, shown)
    form = draw.choice(("not {old} but {new}", "{new} instead of {old}", "read {new} for {old}"))
    fixes = [form.format(old=wrong[slot], new=values[slot]) for slot in changed]
    return f"{record}\nCorrections: {'; '.join(fixes)}."


_KINDS = (
    ("record", "questions", "bank"),
    ("record", "bank", "pieces", "questions"),
    ("rows", "base", "pieces", "corrected"),
    ("rows", "base", "corrected"),
)


def _settled(kind: str, words: Sequence[Word], mask: Sequence[int], rows: Sequence[dict[str, str]]) -> bool:
    """Whether the evidence leaves no choice for these blanks, and is needed for them."""
    hidden = [words[at] for at in mask]
    if len({word.text for word in hidden}) < BLANKS:
        return False
    if kind == "bank":
        classes = [_class(word.slot) for word in hidden]
        strays = [word.text in _WORDS.get(name, ()) for word in hidden for name in classes if name != _class(word.slot)]
        return len(set(classes)) == len(classes) and not any(strays)
    if kind == "pieces":
        return len(_fillings(words, mask)) == 1 and any(word.slot for word in hidden)
    if kind == "base":
        return any(word.slot in _INFLECTED for word in hidden)
    seen = {word.slot: word.text for at, word in enumerate(words) if word.slot and at not in mask}
    return not any(all(row[slot] == text for slot, text in seen.items()) for row in rows)


_INFLECTED = ("past", "num", "nouns", "foods", "animals")


def _fillings(words: Sequence[Word], mask: Sequence[int]) -> set[tuple[str, ...]]:
    """Every sentence that the pieces make in some order without contradicting a visible word."""
    pieces: dict[int, tuple[str, ...]] = {}
    for word in words:
        pieces[word.piece] = (*pieces.get(word.piece, ()), word.text)
    seen = [None if at in mask else word.text for at, word in enumerate(words)]
    found = set()

    def place(left: tuple[int, ...], made: tuple[str, ...]) -> None:
        if not left:
            found.add(made)
        for piece in left:
            text = pieces[piece]
            if all(shown in (None, own) for shown, own in zip(seen[len(made) :], text, strict=False)):
                place(tuple(other for other in left if other != piece), (*made, *text))

    place(tuple(pieces), ())
    return found


def _others(draw: Draw, slots: Sequence[str], values: dict[str, str], level: int) -> list[dict[str, str]]:
    """More records of the same kind. At level 4 each shares some fields with the true one."""
    others = []
    for _ in range(2 if level == 3 else 3):
        other = _fill(draw, slots)
        if level == 4:
            other |= {slot: values[slot] for slot in draw.sample(slots, 2)}
        others.append(other)
    return others


def _beside(draw: Draw, slots: Sequence[str], hidden: Sequence[str]) -> list[str]:
    """Up to two slots that the sentence does not have, of a kind that fits none of its blanks."""
    taken = {_class(slot) for slot in hidden}
    unused = [slot for slot in _LABELS if slot not in slots and _class(slot) not in taken]
    return draw.sample(unused, min(2, len(unused)))


def _to_correct(draw: Draw, slots: Sequence[str], sparse: Sequence[str], clustered: Sequence[str], k: int) -> list[str]:
    """k slots, among them a hidden one in either mask."""
    changed = list(dict.fromkeys((draw.choice(sparse), draw.choice(clustered))))
    rest = [slot for slot in slots if slot not in changed]
    return changed + draw.sample(rest, k - len(changed))


_LENGTHS = (220, 220, 320, 380)


def source(draw: Draw, level: int) -> SparseSource:
    """A sentence with evidence that settles both its sparse and its clustered blanks."""
    kind = draw.choice(_KINDS[level - 1])
    while True:
        frame = draw.below(len(_FRAMES))
        # Many tries with one frame before the next, or frames that seldom succeed would hardly appear.
        for _ in range(60):
            found = _attempt(draw, level, kind, frame)
            if found and len(found.evidence) <= _LENGTHS[level - 1]:
                return found


def _attempt(draw: Draw, level: int, kind: str, frame: int) -> SparseSource | None:
    blank = _PARSED[frame]
    slots = _slots(blank)
    # Pieces show every word; the other kinds show only those that vary.
    open_ = [at for at, word in enumerate(blank) if word.slot or kind == "pieces"]
    sparse, clustered = _sparse(draw, len(blank), open_), _clustered(draw, blank, open_)
    if sparse is None or clustered is None:
        return None
    values, wrong = _fill(draw, slots), _fill(draw, slots)
    if len({row[slot].lower() for row in (values, wrong) for slot in slots}) < 2 * len(slots):
        return None
    words = tuple(replace(word, text=values[word.slot]) if word.slot else word for word in blank)
    rows = _others(draw, slots, values, level) if kind == "rows" else []
    if not all(_settled(kind, words, mask, rows) for mask in (sparse, clustered)):
        return None
    far, near = ([words[at].slot for at in mask] for mask in (sparse, clustered))
    if kind == "pieces":
        evidence = _pieces(draw, words)
    elif kind == "bank":
        evidence = _bank(draw, slots, values)
    elif kind == "rows":
        evidence = _rows(draw, slots, values, rows)
    elif kind == "base":
        evidence = _base(draw, slots, values)
    elif kind == "corrected":
        evidence = _corrected(draw, slots, values, wrong, _to_correct(draw, slots, far, near, level - 1))
    else:
        more = _beside(draw, slots, [*far, *near]) if level > 1 else []
        shown, values = [*slots, *more], values | _fill(draw, more)
        evidence = _record(draw, shown, values) if kind == "record" else _questions(draw, shown, values)
    return SparseSource(words, evidence, kind, frame, sparse, clustered)


_ASKS = (
    "{evidence}\nFill in the sentence: {sentence}",
    "Note: {evidence}\nSentence: {sentence}\nWhich words are missing?",
    "{sentence}\nThe missing words follow from this:\n{evidence}",
    "Three words are hidden. {sentence}\nHelp: {evidence}",
    "Complete the sentence with one word per gap.\n{sentence}\n{evidence}",
    "From the notes\n{evidence}\nsomeone wrote: {sentence}\nRestore the gaps.",
    "Gaps: {sentence}\nFacts: {evidence}",
    "{evidence}\nA sentence made from this, with three gaps: {sentence}",
    "Reconstruct the sentence. {sentence}\nSource: {evidence}",
    "Fill gaps [1], [2] and [3] using the information given.\n{evidence}\n{sentence}",
    "Masked: {sentence}\nEvidence: {evidence}",
    "Read the facts first.\n{evidence}\nThen complete: {sentence}",
)

_WHAT = (
    "the words as [1]=...; [2]=...; [3]=...",
    "[1]=...; [2]=...; [3]=...",
    "only [1]=...; [2]=...; [3]=...",
    "the three words as [1]=...; [2]=...; [3]=...",
)


def masked(words: Sequence[Word], mask: Sequence[int]) -> str:
    """The sentence with numbered blanks."""
    index = {at: f"[{i}]" for i, at in enumerate(mask, start=1)}
    return sentence_case(" ".join(index.get(at, word.text) + word.mark for at, word in enumerate(words)))


def _draft(draw: Draw, level: int, clustered: bool) -> Draft:
    require(level in LEVELS, "level", level, "1 to 4", "choose one of them")
    found = source(draw, level)
    at = draw.below(len(_ASKS))
    mask = found.clustered if clustered else found.sparse
    task = _ASKS[at].format(evidence=found.evidence, sentence=masked(found.words, mask))
    parts = tuple(found.words[i].text for i in mask)
    prompt = f"{task}\n{closing(draw, draw.choice(_WHAT))}"
    target = "; ".join(f"[{i}]={part}" for i, part in enumerate(parts, start=1))
    sentence = masked(found.words, ())
    constraints: dict[str, Json] = {
        "kind": found.kind,
        "frame": str(found.frame),
        "sentence": sentence,
        "positions": list(mask),
    }
    return Draft(prompt, target, parts, constraints, level)


def generate(draw: Draw, level: int) -> Draft:
    """One example of the given level."""
    return _draft(draw, level, clustered=False)


class Clustered:
    """The control: the sentences and evidence of TD07 with the three blanks side by side. Not in the suite."""

    NAME = "td07-clustered-mask"
    TITLE = "TD07 Clustered Mask"
    HORIZON = HORIZON
    VERSION = VERSION
    LEVELS = LEVELS
    SAME_DRAWS_AS = "td07-sparse-mask"
    """Drawn from the keys of this task, example i has the sentence of its example i."""

    def generate(self, draw: Draw, level: int) -> Draft:
        """One example of the given level."""
        return _draft(draw, level, clustered=True)


CLUSTERED = Clustered()
