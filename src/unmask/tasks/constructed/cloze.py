"""Multi-Span Cloze: two or three blanks that hang together, and a passage that settles them.

A passage is made of clues. A clue states some facts, in sentences that may stand in any order, and asks for one or two
words that follow from them: who or what something is (entity), a result (arithmetic), a place in a row (ordering), a
day or an hour (temporal), or a form of a word (lexical). A blank that is repeated is the same word again.

The order of draws and of every list below is part of each prompt, and so of the version.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from unmask.tasks import scorers
from unmask.tasks import words as w
from unmask.tasks.draw import Draw
from unmask.tasks.extract import write_spans
from unmask.tasks.splits import constructed_task
from unmask.tasks.task import Example, Scorer


@dataclass(frozen=True)
class Clue:
    """Facts, sentences with blanks (#0, #1, ...) that follow from these facts, and the answers for the blanks."""

    kind: str
    facts: tuple[str, ...]
    questions: tuple[str, ...]
    answers: tuple[str, ...]


# Entity identity: who owns what, works where, and is what

_FACTS: dict[str, tuple[str, ...]] = w.sentences("cloze", "facts")
_REFERENCES: dict[str, tuple[str, ...]] = w.sentences("cloze", "references")
_PREDICATES: dict[str, tuple[str, ...]] = w.sentences("cloze", "predicates")
_AGAIN: dict[str, tuple[str, ...]] = w.sentences("cloze", "again")
_STATEMENTS: tuple[str, ...] = w.sentences("cloze", "statements")
_PAIRED: tuple[str, ...] = w.sentences("cloze", "paired")


def _make_entity_clue(draw: Draw, level: int, blanks: int) -> Clue:
    """Make a clue about people: one of them is described by one fact, and another fact about this person is asked."""
    k = (2, 2, 3, 3)[level - 1]
    belongings = draw.choice((w.THINGS, w.THINGS, w.ANIMALS))
    people = [
        {"name": name, "job": job, "item": item, "site": site}
        for name, job, item, site in zip(
            w.pick_distinct(draw, w.FIRST, k),
            w.pick_distinct(draw, w.JOBS, k),
            w.pick_distinct(draw, belongings, k),
            w.pick_distinct(draw, w.SITES, k),
            strict=True,
        )
    ]
    # Two attributes besides the name. From level 3 on the job comes between the name and the rest.
    attributes = draw.sample(("item", "site"), 2) if level < 3 else ["job", draw.choice(("item", "site"))]
    if level == 2 and draw.chance(0.5):
        attributes[1] = "job"
    facts = []
    for person in people:
        for attribute in attributes:
            subject = person["name"] if level < 3 or attribute == "job" else f"the {person['job']}"
            fact = draw.choice(_FACTS[attribute]).format(s=subject, v=person[attribute])
            facts.append(w.sentence_case(fact))
    cue, *wanted = draw.permute(["name", *attributes])
    if level > 2 and cue == "job":  # The middle of the chain would be given away.
        cue, wanted[0] = wanted[0], cue
    wanted = wanted[:blanks]
    if level > 2 and blanks == 1:
        wanted = ["name" if cue != "name" else attributes[1]]
    person = draw.choice(people)
    reference = draw.choice(_REFERENCES[cue]).format(v=person[cue])
    predicates = [draw.choice(_PREDICATES[a]).format(b=f"#{i}") for i, a in enumerate(wanted)]
    if blanks == 1:
        statement = draw.choice(_STATEMENTS).format(ref=reference, p=predicates[0])
    else:
        statement = draw.choice(_PAIRED).format(ref=reference, p=predicates[0], q=predicates[1])
    questions = [w.sentence_case(statement)]
    if draw.chance(0.7):
        i = draw.index(blanks)
        questions.append(draw.choice(_AGAIN[wanted[i]]).format(b=f"#{i}"))
    return Clue("entity", tuple(facts), tuple(questions), tuple(person[a] for a in wanted))


# Arithmetic: stories in two steps

_STORIES: tuple[tuple[str, str, str, str], ...] = w.sentences("cloze", "stories")

_NUMBERS = (((2, 9), (2, 9)), ((3, 12), (3, 19)), ((6, 19), (11, 40)), ((11, 29), (12, 60)))


def _draw_operands(draw: Draw, level: int, operations: str) -> tuple[int, int, int]:
    """Draw three numbers for two operations, so that results are neither negative nor longer than four digits."""
    (low, high), (low2, high2) = _NUMBERS[level - 1]
    wide = (30, 80, 400, 900)[level - 1]
    first, second = operations[0], operations[1]
    if first == "*":
        a, b = draw.integer(low2, high2), draw.integer(low, high)
        result = a * b
    else:
        b = draw.integer(2, wide // 2)
        a = draw.integer(2, wide) if first == "+" else b + draw.integer(3, wide)
        result = a + b if first == "+" else a - b
    if second == "*":
        c = draw.integer(2, min(9, max(2, 9999 // result)))
    elif second == "+":
        c = draw.integer(2, wide)
    else:
        c = draw.integer(2, result - 1)
    return a, b, c


def _apply_operation(operation: str, x: int, y: int) -> int:
    return {"+": x + y, "-": x - y, "*": x * y}[operation]


def _make_arithmetic_clue(draw: Draw, level: int, blanks: int) -> Clue:
    """Make a clue that tells a story with numbers, and asks for results of one or two calculations."""
    operations, fact, first, second = draw.choice(_STORIES)
    a, b, c = _draw_operands(draw, level, operations)
    while "years old" in fact and (a > 80 or c > 15):
        a, b, c = _draw_operands(draw, 2, operations)
    in_words = level > 2 and draw.chance(0.4)
    thing, food, site = draw.choice(w.GOODS), draw.choice(w.FOODS), draw.choice(w.SITES)
    box, names = draw.choice(w.UNITS), w.pick_distinct(draw, w.FIRST, 2)
    towns = w.pick_distinct(draw, w.draw_place_name, 3)
    props = {
        "a": w.number_in_words(a) if in_words else a,
        "b": w.number_in_words(b) if in_words else b,
        "c": w.number_in_words(c) if in_words else c,
        "name": names[0],
        "other": names[1],
        "site": site,
        "a_site": w.with_article(site),
        "a_thing": w.with_article(thing),
        "things": w.plural(thing),
        "foods": w.plural(food),
        "animals": w.plural(draw.choice(w.ANIMALS)),
        "box": box,
        "boxes": w.plural(box),
        "team": draw.choice(w.TEAMS),
        "town": towns[0],
        "town2": towns[1],
        "town3": towns[2],
    }
    result = _apply_operation(operations[0], a, b)
    questions = [first, second][:blanks]
    values = [result, _apply_operation(operations[1], result, c)][:blanks]
    return Clue(
        "arithmetic",
        (w.sentence_case(fact.format(**props)),),
        tuple(w.sentence_case(text.format(**props)) for text in questions),
        tuple(str(value) for value in values),
    )


# Ordering: a row of comparisons


@dataclass(frozen=True)
class Scale:
    """Phrases that compare two members of a row, such as "is taller than", and names for the two ends of the row."""

    ahead: tuple[str, ...]
    behind: tuple[str, ...]
    top: str
    bottom: str
    things: bool = False
    """True if things are compared, not people."""


_SCALES = tuple(Scale(**row) for row in w.sentences("cloze", "scales"))


def _name_position(scale: Scale, at: int, n: int) -> str:
    """Write the words for a position in a row: the name of an end, or the position counted from the top."""
    if at == 0:
        return scale.top
    if at == n - 1:
        return scale.bottom
    return f"counting from the {scale.top}, # is {w.ordinal_in_words(at + 1)}"


def _make_ordering_clue(draw: Draw, level: int, blanks: int) -> Clue:
    """Make a clue that compares neighbours in a row, and asks who is at which position."""
    scale = draw.choice(_SCALES)
    n = (3, 4, 4, 5)[level - 1]
    row = w.pick_distinct(draw, w.THINGS if scale.things else w.FIRST, n)
    shown = [f"the {item}" for item in row] if scale.things else row
    facts = []
    for x, y in pairwise(shown):
        if draw.chance(0.5):
            facts.append(draw.choice(scale.ahead).format(x=x, y=y))
        else:
            facts.append(draw.choice(scale.behind).format(x=y, y=x))
    places = [0, n - 1] if level == 1 else list(range(n))
    wanted = draw.sample(places, blanks)
    the = "the " if scale.things else ""
    statements = []
    for i, at in enumerate(wanted):
        place = _name_position(scale, at, n)
        if "#" in place:
            statements.append(place.replace("#", f"{the}#{i}") + ".")
        else:
            forms = (
                f"the {place} is {the}#{i}.",
                f"{the}#{i} is the {place}.",
                f"of them all, {the}#{i} is the {place}.",
            )
            statements.append(draw.choice(forms))
    if draw.chance(0.6):
        i = draw.index(blanks)
        more = (f"Everybody looked at {the}#{i}.", f"No one forgets {the}#{i}.", f"A photo shows {the}#{i}.")
        statements.append(draw.choice(more))
    return Clue(
        "ordering",
        tuple(w.sentence_case(fact) for fact in draw.permute(facts)),
        tuple(w.sentence_case(statement) for statement in statements),
        tuple(row[at] for at in wanted),
    )


# Temporal: days, months, years and hours

_BEGINNINGS: tuple[str, ...] = w.sentences("cloze", "beginnings")
_GAPS: tuple[str, ...] = w.sentences("cloze", "gaps")
_DATES: tuple[str, ...] = w.sentences("cloze", "dates")

_STARTS = {"day": (0, 6), "month": (0, 11), "year": (1550, 1720), "hour": (500, 900)}
_ON = {"day": "on", "month": "in", "year": "in", "hour": "at"}


def _make_temporal_clue(draw: Draw, level: int, blanks: int) -> Clue:
    """Make a clue about events and the time between them, and ask when they were."""
    kind = draw.choice(list(_STARTS))
    events = w.pick_distinct(draw, w.EVENTS, 3)
    gaps = [_draw_time_between(draw, kind, level) for _ in range(blanks)]
    # From level 2 on a step may go back in time.
    backs = [level > 1 and draw.chance(0.4) for _ in range(blanks)]
    start = draw.integer(*_STARTS[kind])
    times = [start - start % 5 if kind == "hour" and level < 4 else start]
    for gap, back in zip(gaps, backs, strict=True):
        times.append(times[-1] + (-gap if back else gap))
    dates = [_write_time(kind, time) for time in times]
    words = {"on": _ON[kind], "On": _ON[kind].capitalize(), "unit": kind}
    facts = [draw.choice(_BEGINNINGS).format(e=events[0], t=dates[0], **words)]
    questions = []
    for i in range(blanks):
        amount, word = _write_time_between(kind, gaps[i]), "before" if backs[i] else "after"
        facts.append(draw.choice(_GAPS).format(next=events[i + 1], amount=amount, word=word, e=events[i]))
        questions.append(draw.choice(_DATES).format(e=events[i + 1], i=i, **words))
    if draw.chance(0.6):
        i = draw.index(blanks)
        questions.append(draw.choice((f"Remember #{i}!", f"It was #{i}, no other time.", f"Note down #{i}.")))
    return Clue("temporal", tuple(facts), tuple(questions), tuple(dates[1:]))


def _draw_time_between(draw: Draw, kind: str, level: int) -> int:
    if kind == "day":
        return draw.integer(1, (3, 5, 9, 16)[level - 1])
    if kind == "month":
        return draw.integer(1, (3, 6, 9, 11)[level - 1])
    if kind == "year":
        return draw.integer(2, (20, 60, 120, 150)[level - 1])
    return draw.integer(2, (9, 18, 30, 60)[level - 1]) * (5 if level < 4 else 3)


def _write_time(kind: str, at: int) -> str:
    if kind == "day":
        return w.DAYS[at % 7]
    if kind == "month":
        return w.MONTHS[at % 12]
    return str(at) if kind == "year" else w.clock_time(at)


def _write_time_between(kind: str, gap: int) -> str:
    unit = "minute" if kind == "hour" else kind
    return f"{gap} {unit}" + ("s" if gap > 1 else "")


# Lexical: forms and spellings of words


def _ask_for_form(draw: Draw) -> tuple[str, str]:
    """Ask for a form of a word by showing the same form of another word; return the sentence and the answer."""
    kind = draw.choice(("plural", "past", "er", "est", "ordinal", "compound", "opposite"))
    if kind == "compound":
        first, second = draw.choice(w.COMPOUNDS)
        joined = ("Put '{x}' in front of '{y}' to get the word '#0'.", "'{x}' and '{y}' in one word make '#0'.")
        return draw.choice(joined).format(x=first, y=second), first + second
    if kind == "opposite":
        given, wanted = draw.permute(draw.choice(w.OPPOSITES))
        return f"The opposite of '{given}' begins with '{wanted[:2]}' and has {len(wanted)} letters: '#0'.", wanted
    (x, formed), (y, answer) = _draw_same_form(draw, kind)
    forms = (
        "As '{x}' is to '{f}', so '{y}' is to '#0'.",
        "If '{x}' becomes '{f}', then '{y}' becomes '#0'.",
        "'{x}' : '{f}' = '{y}' : '#0'.",
        "From '{x}' one forms '{f}', and from '{y}' in the same way '#0'.",
    )
    return draw.choice(forms).format(x=x, f=formed, y=y), answer


_NOUNS = tuple(filter(w.has_plain_plural, (*w.GOODS, *w.ANIMALS)))


def _draw_same_form(draw: Draw, kind: str) -> list[tuple[str, str]]:
    """Draw two words, each with its plural, past tense or other form of the given kind."""
    if kind == "plural":
        return [(noun, w.plural(noun)) for noun in w.pick_distinct(draw, _NOUNS, 2)]
    if kind == "past":
        # Only verbs with one form for past and participle: "carry : carried" does not tell which of the two is meant.
        verbs = [verb for verb in w.VERBS if len(verb) == 2]
        return [(base, past) for base, past in draw.sample(verbs, 2)]
    if kind == "ordinal":
        return [(w.number_in_words(n), w.ordinal_in_words(n)) for n in draw.sample(range(1, 100), 2)]
    return [(word, w.compare_adjective(word, kind)) for word in w.pick_distinct(draw, w.GRADABLE, 2)]


def _ask_for_spelling(draw: Draw, level: int) -> tuple[str, str]:
    """Ask for a word made of the letters of given words; return the sentence and the answer."""
    most = (6, 7, 9, 11)[level - 1]
    word = _draw_word(draw, 4, most)
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
        other = _draw_word(draw, 3, 6)
        return f"Swap the words '{word[:5]}' and '{other}', then join them: '#0'.", other + word[:5]
    if kind == "initials":
        club = [w.invent_word(draw), *(draw.choice((*w.SITES, *w.THINGS, *w.JOBS)) for _ in range(3)), "club"]
        name = " ".join(part.capitalize() for part in club)
        return f"The {name} is known by its five initials, '#0'.", "".join(part[0] for part in club).upper()
    words = w.pick_distinct(draw, lambda draw: _draw_word(draw, 3, most), (3, 3, 4, 5)[level - 1])
    answer = min(words) if kind == "first" else max(words)
    return f"Of {', '.join(words)}, the {kind} in alphabetical order is '#0'.", answer


def _draw_word(draw: Draw, least: int, most: int) -> str:
    while True:
        word = draw.choice(w.COMMON) if draw.chance(0.8) else w.invent_word(draw)
        if least <= len(word) <= most:
            return word


_DERIVED: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("The word '#{i}' begins with the letter '#{j}'.", lambda word: word[0]),
    ("The last letter of '#{i}' is '#{j}'.", lambda word: word[-1]),
    ("'#{i}' has #{j} letters.", lambda word: str(len(word))),
    ("Read '#{i}' backwards and you get '#{j}'.", lambda word: word[::-1]),
    ("Take the first letter off '#{i}' and '#{j}' remains.", lambda word: word[1:]),
    ("The first three letters of '#{i}' are '#{j}'.", lambda word: word[:3]),
)


def _ask_for_derived_word(draw: Draw, word: str, i: int, j: int) -> tuple[str, str]:
    """Ask in blank j for a word made of the letters of the word in blank i; return the sentence and the answer."""
    text, rule = draw.choice([(text, rule) for text, rule in _DERIVED if rule(word) != word])
    return text.format(i=i, j=j), rule(word)


def _make_lexical_clue(draw: Draw, level: int, blanks: int) -> Clue:
    """Make a clue that asks for a word by its spelling or its grammatical form."""
    while True:
        text, value = _ask_for_form(draw) if draw.chance(0.5) else _ask_for_spelling(draw, level)
        if len(value) > 2 and "-" not in value:
            break
    if blanks == 1:
        return Clue("lexical", (), (w.sentence_case(text),), (value,))
    more, second = _ask_for_derived_word(draw, value, 0, 1)
    return Clue("lexical", (), (w.sentence_case(text), more), (value, second))


# The passage

CLUES: dict[str, Callable[[Draw, int, int], Clue]] = {
    "entity": _make_entity_clue,
    "arithmetic": _make_arithmetic_clue,
    "ordering": _make_ordering_clue,
    "temporal": _make_temporal_clue,
    "lexical": _make_lexical_clue,
}

_PLANS: tuple[tuple[tuple[int, ...], ...], ...] = (
    # How many blanks each clue has, per level; 0 stands for a blank derived from the first one.
    ((2,),),
    ((2,), (1, 1), (2, 0)),
    ((2, 1), (1, 1), (2, 1)),
    ((2, 1), (1, 1, 1), (1, 1, 0)),
)

_FRAMES: tuple[str, ...] = w.sentences("cloze", "frames")


def _number_blanks(passage: str) -> tuple[str, list[int]]:
    """Number the blanks of a passage from the first on; return the text, and the old number of each blank."""
    order: list[int] = []
    for mark in re.findall(r"#(\d)", passage):
        if int(mark) not in order:
            order.append(int(mark))
    return re.sub(r"#(\d)", lambda mark: f"[{order.index(int(mark[1])) + 1}]", passage), order


def _renumber_blanks(text: str, by: int) -> str:
    return re.sub(r"#(\d)", lambda mark: f"#{int(mark[1]) + by}", text)


def _draw_clues(draw: Draw, level: int) -> tuple[list[Clue], list[str]]:
    plan = draw.choice(_PLANS[level - 1])
    real = [blanks for blanks in plan if blanks]
    kinds = draw.sample(list(CLUES), len(real))
    # Two clues together are harder than one, so each of them is a level easier.
    hard = level if len(real) == 1 else max(1, level - 1)
    clues: list[Clue] = []
    count = 0
    for kind, blanks in zip(kinds, real, strict=True):
        clue = CLUES[kind](draw, hard, blanks)
        questions = tuple(_renumber_blanks(text, count) for text in clue.questions)
        clues.append(Clue(kind, clue.facts, questions, clue.answers))
        count += blanks
    values = [value for clue in clues for value in clue.answers]
    # Only words have letters to derive something from; numbers and times do not.
    named = [i for i, value in enumerate(values) if value.isalpha()]
    if 0 in plan and named:
        at = draw.choice(named)
        text, value = _ask_for_derived_word(draw, values[at], at, count)
        clues.append(Clue("lexical", (), (text,), (value,)))
        values.append(value)
    return clues, values


_LENGTHS = (270, 260, 480, 540)


def _write_passage(draw: Draw, clues: Sequence[Clue], level: int) -> str:
    facts = draw.permute([text for clue in clues for text in clue.facts])
    questions = [text for clue in clues for text in clue.questions]
    # From level 2 on the question may come before what settles it.
    early = level > 1 and bool(facts) and draw.chance(0.3)
    return " ".join([*questions, *facts] if early else [*facts, *questions])


def generate(draw: Draw, level: int) -> Example:
    """Make one example of the given level: a passage with blanks, and the words in them."""
    while True:
        clues, values = _draw_clues(draw, level)
        raw = _write_passage(draw, clues, level)
        # An empty value comes of a word that was too short for what was asked of it.
        if len(raw) <= _LENGTHS[level - 1] and "" not in values:
            break
    passage, order = _number_blanks(raw)
    at = draw.index(len(_FRAMES))
    task = _FRAMES[at].format(passage=passage, name=draw.choice(w.FIRST), town=w.draw_place_name(draw))
    parts = tuple(values[i] for i in order)
    form = "; ".join(f"[{i}]=..." for i in range(1, len(parts) + 1))
    what = draw.choice(("the words as {form}", "the answers as {form}", "{form}", "only {form}")).format(form=form)
    prompt = f"{task}\n{w.draw_answer_line(draw, what)}"
    return Example(prompt, write_spans(parts), parts, {"frame": str(at), "links": [clue.kind for clue in clues]}, level)


TASK = constructed_task(
    "multi-span-cloze",
    "Multi-Span Cloze",
    Scorer("partial", scorers.score_spans),
    generate,
    max_new_tokens=64,
    output="indexed spans",
    version="1",
)
