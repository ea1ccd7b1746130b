"""TD07 Sparse Mask: three words missing from one sentence, far apart, and what is needed to find them.

The control task takes the same sentence with the same evidence and the same number of blanks, but the blanks are next
to each other. Both come from one source, so a pair that is drawn from the same key differs in nothing else.

The evidence settles every word that is hidden: a record of the facts, questions and answers, the pieces of the
sentence out of order, a list of its words, several records of which the sentence matches one, a record in base forms,
or a record with corrections. The order of draws and of every list below is part of each prompt, and so of the version.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from unmask.tasks import scorers
from unmask.tasks import words as w
from unmask.tasks.draw import Draw, Json
from unmask.tasks.extract import write_spans
from unmask.tasks.splits import constructed_task
from unmask.tasks.task import Example, Scorer

# Frames of sentences with slots, and the words that fill them

BLANKS = 3

FRAMES: tuple[str, ...] = w.sentences("sparse", "frames")

LABELS: dict[str, tuple[str, ...]] = w.sentences("sparse", "labels")

# A list of words settles a blank only if no other blank could take the same kind of word.
_CLASSES = {
    **dict.fromkeys(("name", "surname", "town"), "proper name"),
    **dict.fromkeys(("mood", "adj", "colour", "material"), "adjective"),
    **dict.fromkeys(("nouns", "foods", "animals", "thing", "site", "job", "event"), "noun"),
}


def _word_class(slot: str) -> str:
    """Return the kind of word that fills a slot: a noun, an adjective, a proper name, ..."""
    return _CLASSES.get(slot, slot)


WORDS = {
    "proper name": {*w.FIRST, *w.SURNAMES, *w.TOWNS},
    "adjective": {*w.MOODS, *w.ADJECTIVES, *w.COLOURS, *w.MATERIALS},
    "noun": {*w.THINGS, *w.FOODS, *w.ANIMALS, *w.SITES, *w.JOBS, *w.EVENTS},
    "past": {verb[1] for verb in w.VERBS},
    "manner": {*w.MANNERS},
    "month": {*w.MONTHS},
}

# Words that may have to be put into the plural by the reader.
_COUNTED = {
    "nouns": tuple(filter(w.has_plain_plural, w.THINGS)),
    "foods": tuple(filter(w.has_plain_plural, w.FOODS)),
    "animals": tuple(filter(w.has_plain_plural, w.ANIMALS)),
}

_SINGLE = (*range(2, 21), *range(30, 100, 10))


@dataclass(frozen=True)
class Word:
    """One word of a sentence, and the slot that it fills."""

    text: str
    slot: str
    """Slot of the frame that it fills; empty for the fixed words of the frame."""
    piece: int
    """Number of the piece of the frame that it belongs to."""
    mark: str
    """The punctuation after it."""


_LISTS: dict[str, Sequence[str]] = {
    "name": w.FIRST,
    "surname": w.SURNAMES,
    "job": w.JOBS,
    "mood": w.MOODS,
    "adj": w.ADJECTIVES,
    "colour": w.COLOURS,
    "material": w.MATERIALS,
    "thing": w.THINGS,
    "site": w.SITES,
    "day": w.DAYS,
    "month": w.MONTHS,
    "manner": w.MANNERS,
    "event": w.EVENTS,
}


def _fill_slots(draw: Draw, slots: Sequence[str]) -> dict[str, str]:
    """Draw a word for each slot. Inflected words are also returned in their base form, under `base SLOT`."""
    values: dict[str, str] = {}
    for slot in slots:
        if slot in _LISTS:
            values[slot] = draw.choice(_LISTS[slot])
        elif slot == "town":
            values[slot] = w.draw_place_name(draw)
        elif slot == "num":
            number = draw.choice(_SINGLE)
            values[slot], values["base num"] = w.number_in_words(number), str(number)
        elif slot == "past":
            values["base past"], values[slot], *_ = draw.choice(w.VERBS)
        else:
            noun = draw.choice(_COUNTED[slot])
            values[slot], values[f"base {slot}"] = w.plural(noun), noun
    return values


_TOKEN = re.compile(r"(\{(\w+)\}|[\w-]+)([,.]?)")


def _parse_frame(frame: str) -> tuple[Word, ...]:
    """Parse a sentence pattern into words. Words of its slots are still empty."""
    words = []
    for piece, text in enumerate(frame.split("|")):
        for token in text.split():
            match = _TOKEN.fullmatch(token)
            assert match, f"frame has an odd token {token!r}"
            words.append(Word("" if match[2] else match[1], match[2] or "", piece, match[3]))
    return tuple(words)


PARSED_FRAMES = tuple(map(_parse_frame, FRAMES))


def _list_slots(words: Sequence[Word]) -> list[str]:
    """List the slots of a sentence in their order."""
    return [word.slot for word in words if word.slot]


# Evidence that settles the hidden words of a sentence, in seven forms


def _write_record(draw: Draw, slots: Sequence[str], values: dict[str, str]) -> str:
    """Write the words of a sentence as fields and values, in random order."""
    joint = draw.choice(("; ", ", ", " | ", "\n"))
    sign = draw.choice((": ", " = ", " - "))
    return joint.join(f"{draw.choice(LABELS[slot])}{sign}{values[slot]}" for slot in draw.permute(slots))


def _write_questions(draw: Draw, slots: Sequence[str], values: dict[str, str]) -> str:
    """Write the words of a sentence as questions and answers, in random order."""
    return " ".join(
        f"{w.sentence_case(LABELS[slot][0])}? {w.sentence_case(values[slot])}." for slot in draw.permute(slots)
    )


def _write_word_bank(draw: Draw, slots: Sequence[str], values: dict[str, str]) -> str:
    """List the words of the sentence in alphabetical order."""
    words = sorted((values[slot] for slot in slots), key=str.lower)
    intro = draw.choice(("Words of the sentence: ", "Word list: ", "These words occur once each: ", "Word bank: "))
    return intro + ", ".join(words)


def _write_pieces(draw: Draw, words: Sequence[Word]) -> str:
    """Write the sentence in pieces, out of order."""
    by_piece: dict[int, list[str]] = {}
    for word in words:
        by_piece.setdefault(word.piece, []).append(word.text)
    joint = draw.choice((" / ", " | ", "; "))
    intro = draw.choice(("Pieces in no order: ", "The sentence in pieces, out of order: ", "Cut up and mixed: "))
    return intro + joint.join(" ".join(piece) for piece in draw.permute(list(by_piece.values())))


def _write_rows(draw: Draw, slots: Sequence[str], values: dict[str, str], others: Sequence[dict[str, str]]) -> str:
    """Write several records as the rows of a table. The sentence matches one of them."""
    order = draw.permute(slots)
    records = draw.permute([values, *others])
    joint = draw.choice((" | ", ", ", " / "))
    header = joint.join(LABELS[slot][0] for slot in order)
    return "\n".join([header, *(joint.join(row[slot] for slot in order) for row in records)])


_BASE_RULES: tuple[str, ...] = w.sentences("sparse", "base_rules")


def _write_base_forms(draw: Draw, slots: Sequence[str], values: dict[str, str]) -> str:
    """Write the words of a sentence in their base forms, and the rule by which to inflect them."""
    shown = {slot: values.get(f"base {slot}", values[slot]) for slot in slots}
    return f"{_write_record(draw, slots, shown)}\n{draw.choice(_BASE_RULES)}"


def _write_corrections(
    draw: Draw, slots: Sequence[str], values: dict[str, str], wrong: dict[str, str], changed: Sequence[str]
) -> str:
    """Write a record with wrong values in some fields, and then their corrections."""
    shown = {slot: wrong[slot] if slot in changed else values[slot] for slot in slots}
    facts = _write_record(draw, slots, shown)
    form = draw.choice(("not {old} but {new}", "{new} instead of {old}", "read {new} for {old}"))
    fixes = [form.format(old=wrong[slot], new=values[slot]) for slot in changed]
    return f"{facts}\nCorrections: {'; '.join(fixes)}."


_INFLECTED = ("past", "num", "nouns", "foods", "animals")


def _evidence_settles(kind: str, words: Sequence[Word], mask: Sequence[int], rows: Sequence[dict[str, str]]) -> bool:
    """Return whether the evidence is needed to fill these blanks, and leaves exactly one way to do so."""
    hidden = [words[at] for at in mask]
    # Two equal hidden words could be swapped without anybody noticing.
    if len({word.text for word in hidden}) < BLANKS:
        return False
    if kind == "bank":
        classes = [_word_class(word.slot) for word in hidden]
        strays = [
            word.text in WORDS.get(name, ()) for word in hidden for name in classes if name != _word_class(word.slot)
        ]
        return len(set(classes)) == len(classes) and not any(strays)
    if kind == "pieces":
        return len(_find_fillings(words, mask)) == 1 and any(word.slot for word in hidden)
    if kind == "base":
        return any(word.slot in _INFLECTED for word in hidden)
    # No other record may fit the visible words, or the rows would not decide.
    seen = {word.slot: word.text for at, word in enumerate(words) if word.slot and at not in mask}
    return not any(all(row[slot] == text for slot, text in seen.items()) for row in rows)


def _find_fillings(words: Sequence[Word], mask: Sequence[int]) -> set[tuple[str, ...]]:
    """Collect all sentences that the pieces can form, in any order, and that agree with the visible words."""
    by_piece: dict[int, tuple[str, ...]] = {}
    for word in words:
        by_piece[word.piece] = (*by_piece.get(word.piece, ()), word.text)
    seen = [None if at in mask else word.text for at, word in enumerate(words)]
    sentences = set()

    # An order of the pieces is dropped at its first contradiction, because there are too many orders to write them all.
    def extend_sentence(left: tuple[int, ...], made: tuple[str, ...]) -> None:
        if not left:
            sentences.add(made)
        for piece in left:
            text = by_piece[piece]
            if all(shown in (None, word) for shown, word in zip(seen[len(made) :], text, strict=False)):
                extend_sentence(tuple(other for other in left if other != piece), (*made, *text))

    extend_sentence(tuple(by_piece), ())
    return sentences


def _draw_other_records(draw: Draw, slots: Sequence[str], values: dict[str, str], level: int) -> list[dict[str, str]]:
    """Draw more records with the same fields. At level 4 each shares two values with the true one."""
    records = []
    for _ in range(2 if level == 3 else 3):
        other = _fill_slots(draw, slots)
        if level == 4:
            other |= {slot: values[slot] for slot in draw.sample(slots, 2)}
        records.append(other)
    return records


def _draw_unused_slots(draw: Draw, slots: Sequence[str], hidden: Sequence[str]) -> list[str]:
    """Draw up to two slots that the sentence does not have, for words that fit none of its blanks."""
    taken = {_word_class(slot) for slot in hidden}
    unused = [slot for slot in LABELS if slot not in slots and _word_class(slot) not in taken]
    return draw.sample(unused, min(2, len(unused)))


def _draw_wrong_slots(
    draw: Draw, slots: Sequence[str], sparse: Sequence[str], clustered: Sequence[str], k: int
) -> list[str]:
    """Draw k slots to show wrongly and then correct. Each of the two masks hides at least one of them."""
    changed = list(dict.fromkeys((draw.choice(sparse), draw.choice(clustered))))
    rest = [slot for slot in slots if slot not in changed]
    return changed + draw.sample(rest, k - len(changed))


# From a sentence and two masks to an example


@dataclass(frozen=True)
class MaskedSentence:
    """A sentence, the evidence for its words, and its two masks: blanks far apart, and side by side."""

    words: tuple[Word, ...]
    evidence: str
    kind: str
    frame: int
    sparse: tuple[int, ...]
    clustered: tuple[int, ...]


def _draw_sparse_mask(draw: Draw, n: int, open_: Sequence[int]) -> tuple[int, ...] | None:
    """Draw three blanks, near the beginning, the middle and the end, with at least two words between them."""
    parts = [[at for at in open_ if k * n <= 3 * at < (k + 1) * n] for k in range(BLANKS)]
    if not all(parts):
        return None
    first, middle, last = (draw.choice(part) for part in parts)
    return (first, middle, last) if middle - first > 2 and last - middle > 2 else None


def _draw_clustered_mask(draw: Draw, words: Sequence[Word], open_: Sequence[int]) -> tuple[int, ...] | None:
    """Draw three neighbouring words to hide that could not stand in another order."""
    starts = [at for at in open_ if at + 1 in open_ and at + 2 in open_ and _has_fixed_order(words[at : at + BLANKS])]
    if not starts:
        return None
    at = draw.choice(starts)
    return at, at + 1, at + 2


def _has_fixed_order(window: Sequence[Word]) -> bool:
    """Return whether neighbouring words can stand in this order only, unlike 'Liam gladly' and 'gladly Liam'."""
    kinds = {word.slot if word.slot == "name" else _word_class(word.slot) for word in window}
    return "manner" not in kinds or not kinds & {"adjective", "name"}


_KINDS = (
    ("record", "questions", "bank"),
    ("record", "bank", "pieces", "questions"),
    ("rows", "base", "pieces", "corrected"),
    ("rows", "base", "corrected"),
)

_LENGTHS = (220, 220, 320, 380)


def _draw_masked_sentence(draw: Draw, level: int) -> MaskedSentence:
    """Draw a sentence with evidence that determines the words of both its masks."""
    kind = draw.choice(_KINDS[level - 1])
    while True:
        frame = draw.index(len(PARSED_FRAMES))
        # Many tries with one frame before the next, or frames that seldom succeed would hardly appear.
        for _ in range(60):
            attempt = _try_masked_sentence(draw, level, kind, frame)
            if attempt and len(attempt.evidence) <= _LENGTHS[level - 1]:
                return attempt


def _try_masked_sentence(draw: Draw, level: int, kind: str, frame: int) -> MaskedSentence | None:
    blank = PARSED_FRAMES[frame]
    slots = _list_slots(blank)
    # Pieces show every word; the other kinds show only those that vary.
    open_ = [at for at, word in enumerate(blank) if word.slot or kind == "pieces"]
    sparse, clustered = _draw_sparse_mask(draw, len(blank), open_), _draw_clustered_mask(draw, blank, open_)
    if sparse is None or clustered is None:
        return None
    values, wrong = _fill_slots(draw, slots), _fill_slots(draw, slots)
    # All words differ, also from those that are shown wrong: each clue then points to one place.
    if len({row[slot].lower() for row in (values, wrong) for slot in slots}) < 2 * len(slots):
        return None
    words = tuple(replace(word, text=values[word.slot]) if word.slot else word for word in blank)
    rows = _draw_other_records(draw, slots, values, level) if kind == "rows" else []
    if not all(_evidence_settles(kind, words, mask, rows) for mask in (sparse, clustered)):
        return None
    far, near = ([words[at].slot for at in mask] for mask in (sparse, clustered))
    if kind == "pieces":
        text = _write_pieces(draw, words)
    elif kind == "bank":
        text = _write_word_bank(draw, slots, values)
    elif kind == "rows":
        text = _write_rows(draw, slots, values, rows)
    elif kind == "base":
        text = _write_base_forms(draw, slots, values)
    elif kind == "corrected":
        changed = _draw_wrong_slots(draw, slots, far, near, level - 1)
        text = _write_corrections(draw, slots, values, wrong, changed)
    else:
        more = _draw_unused_slots(draw, slots, [*far, *near]) if level > 1 else []
        shown, values = [*slots, *more], values | _fill_slots(draw, more)
        written = _write_record if kind == "record" else _write_questions
        text = written(draw, shown, values)
    return MaskedSentence(words, text, kind, frame, sparse, clustered)


_ASKS: tuple[str, ...] = w.sentences("sparse", "asks")
_WHAT: tuple[str, ...] = w.sentences("sparse", "what")


def _mask_words(words: Sequence[Word], mask: Sequence[int]) -> str:
    """Write the sentence with numbered blanks."""
    index = {at: f"[{i}]" for i, at in enumerate(mask, start=1)}
    return w.sentence_case(" ".join(index.get(at, word.text) + word.mark for at, word in enumerate(words)))


def _make_example(draw: Draw, level: int, clustered: bool) -> Example:
    drawn = _draw_masked_sentence(draw, level)
    at = draw.index(len(_ASKS))
    mask = drawn.clustered if clustered else drawn.sparse
    task = _ASKS[at].format(evidence=drawn.evidence, sentence=_mask_words(drawn.words, mask))
    parts = tuple(drawn.words[i].text for i in mask)
    prompt = f"{task}\n{w.draw_answer_line(draw, draw.choice(_WHAT))}"
    constraints: dict[str, Json] = {
        "kind": drawn.kind,
        "frame": str(drawn.frame),
        "sentence": _mask_words(drawn.words, ()),
        "positions": list(mask),
    }
    return Example(prompt, write_spans(parts), parts, constraints, level)


def generate(draw: Draw, level: int) -> Example:
    """Make one example of the given level: a sentence with three blanks far apart."""
    return _make_example(draw, level, clustered=False)


def generate_clustered(draw: Draw, level: int) -> Example:
    """Make one example of the given level: a sentence with three blanks side by side."""
    return _make_example(draw, level, clustered=True)


TASK = constructed_task(
    "td07-sparse-mask",
    "TD07 Sparse Mask",
    Scorer("partial", scorers.score_spans),
    generate,
    max_new_tokens=48,
    output="three spans",
    version="1",
)
CLUSTERED = constructed_task(
    "td07-clustered-mask",
    "TD07 Clustered Mask",
    TASK.scorer,
    generate_clustered,
    max_new_tokens=TASK.max_new_tokens,
    output=TASK.output,
    version=TASK.version,
    paired_with=TASK.name,
)
"""The control, not in the suite. Drawn from the keys of the task: example i has the same sentence and evidence."""
