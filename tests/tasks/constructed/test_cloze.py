"""Multi-Span Cloze: the blanks follow from the passage."""

import re
from collections import Counter
from collections.abc import Callable
from itertools import permutations

from tests.helpers.constructed import BELOW_100, LEVELS, NUMBER_WORDS, PAST, PER_LEVEL, clock, drafts, from_words, many
from unmask.tasks import Example, words
from unmask.tasks.constructed import cloze

SOLVED = dict[int, str]


def passage_of(draft: Example) -> str:
    return draft.prompt.rsplit("\n", 1)[0]


AHEAD = (
    "is taller than|is older than|was born before|runs faster than|beats|is richer than|has more money than"
    "|arrived before|came earlier than|scored more than|finished ahead of|lives above|lives on a higher floor than"
    "|sits to the left of|stands in front of|costs more than|weighs more than|is heavier than|is longer than"
    "|was sold before"
)
BEHIND = (
    "is shorter than|is younger than|runs slower than|is poorer than|arrived after|finished behind|lives below"
    "|sits to the right of|stands behind|costs less than|is cheaper than|is lighter than|is newer than|was sold after"
)
TOP = (
    "tallest|oldest|fastest|richest|first to arrive|best|one at the top|leftmost|first in the queue|most expensive"
    "|heaviest|longest|first to be sold"
)
BOTTOM = (
    "shortest|youngest|slowest|poorest|last to arrive|worst|one at the bottom|rightmost|last in the queue|cheapest"
    "|lightest|newest|last to be sold"
)
PLACES = ("first", "second", "third", "fourth", "fifth")


def ordering(text: str) -> SOLVED:
    pairs = re.findall(rf"(\w+) (?:{AHEAD}) (?:the )?(\w+)(?: in every race)?\.", text)
    pairs += [(b, a) for a, b in re.findall(rf"(\w+) (?:{BEHIND}) (?:the )?(\w+)\.", text)]
    if not pairs:
        return {}
    names = sorted({name for pair in pairs for name in pair})
    orders = [o for o in permutations(names) if all(o.index(a) < o.index(b) for a, b in pairs)]
    assert len(orders) == 1
    solved = {}
    for pattern, at in ((TOP, 0), (BOTTOM, -1)):
        for a, b in re.findall(rf"[Tt]he (?:{pattern}) is (?:the )?\[(\d)\]|\[(\d)\] is the (?:{pattern})\.", text):
            solved[int(a or b)] = orders[0][at]
    for index, place in re.findall(rf"Counting from the (?:{TOP}), (?:the )?\[(\d)\] is (\w+)\.", text):
        solved[int(index)] = orders[0][PLACES.index(place)]
    return solved


def temporal(text: str) -> SOLVED:
    event, time = r"the (\w+)", r"((?:\w+day)|[A-Z][a-z]+|\d{4}|\d\d:\d\d)"
    times: dict[str, str] = {}
    times |= dict(re.findall(rf"[Tt]he (\w+) was (?:on|in|at) {time}\.", text))
    times |= {e: t for t, e in re.findall(rf"(?:On|In|At) {time} there was {event}\.", text)}
    times |= dict(re.findall(rf"The (?:day|month|year|hour) of {event} was {time}\.", text))
    gap = r"(\d+) (day|month|year|minute)s? (before|after)"
    steps = re.findall(rf"The (\w+) (?:came exactly|was) {gap} {event}\.", text)
    steps += [(e2, *rest, e1) for *rest, e1, e2 in re.findall(rf"Exactly {gap} {event} came {event}\.", text)]
    for _ in steps:
        for later, amount, unit, side, earlier in steps:
            if earlier in times:
                times[later] = moved(times[earlier], int(amount) * (-1 if side == "before" else 1), unit)
    asked = re.findall(r"The (\w+) took place (?:on|in|at) \[(\d)\]\.", text)
    asked += [(e, i) for i, e in re.findall(r"(?:On|In|At) \[(\d)\] people met for the (\w+)\.", text)]
    asked += re.findall(r"The poster of the (\w+) says: \[(\d)\]\.", text)
    asked += re.findall(r"So the (\w+) was (?:on|in|at) \[(\d)\]\.", text)
    return {int(index): times[name] for name, index in asked}


def moved(time: str, by: int, unit: str) -> str:
    for cycle in (words.DAYS, words.MONTHS):
        if time in cycle:
            return cycle[(cycle.index(time) + by) % len(cycle)]
    return clock(time, by) if unit == "minute" else str(int(time) + by)


STORIES = {
    # What follows a number in the story tells what to do with it: first step, then second.
    r"has {n} \w+ with {n} \w+ in each": "*",
    r"keeps {n} shelves of {n} ": "*",
    r"found {n} \w+ and \w+ found {n}": "+",
    r"holds {n} \w+ and {n} \w+\.": "+",
    r"Of {n} \w+ at the \w+, {n} ran away": "-",
    r"coat of {n} coins is {n} coins cheaper": "-",
    r"scored {n} points in the first half and {n} in the second": "+",
    r"had {n} coins and spent {n} on": "-",
    r"train of {n} wagons has {n} seats": "*",
    r"{n} guests came by bus to the \w+ and {n} on foot": "+",
    r"reads {n} pages a day for {n} days": "*",
    r"is {n} years old; \w+ is {n} years younger": "-",
    r"ticket costs {n} coins and the programme {n}\.": "+",
    r"it is {n} km, and from there to \w+ {n} km": "+",
    r"wall has {n} rows of {n} bricks": "*",
    r"has {n} rooms, {n} of them closed": "-",
}
FIRST_STEP = (
    r"That makes \[(\d)\]|It keeps \[(\d)\]|Together they have \[(\d)\]|So one \w+ holds \[(\d)\]|That left \[(\d)\]"
    r"|Today one coat costs \[(\d)\]|Their total was \[(\d)\]|Then \[(\d)\] coins were left|It has \[(\d)\] seats"
    r"|There were \[(\d)\]|That is \[(\d)\] pages|So \w+ is \[(\d)\]\.|Both together cost \[(\d)\]"
    r"|The way over \w+ is \[(\d)\]|The mason needs \[(\d)\]|So \[(\d)\] rooms are open"
)
SECOND_STEP = {
    r"When {n} of the \[\d\] \w+ are sold, \[(\d)\] remain": "-",
    r"If {n} more join those \[\d\], there will be \[(\d)\]": "+",
    r"They give {n} of the \[\d\] away and keep \[(\d)\]": "-",
    r"With {n} such \w+ of \[\d\] there are \[(\d)\]": "*",
    r"With {n} newcomers added to the \[\d\], there are now \[(\d)\]": "+",
    r"At \[\d\] coins each, {n} coats cost \[(\d)\]": "*",
    r"The rivals had {n} points more than \[\d\], which is \[(\d)\]": "+",
    r"After paying {n} of the \[\d\] coins for lunch, \w+ had \[(\d)\]": "-",
    r"With {n} of the \[\d\] seats taken, \[(\d)\] are free": "-",
    r"{n} of the \[\d\] guests left early, so \[(\d)\] stayed": "-",
    r"With {n} pages more than those \[\d\], the book would have \[(\d)\]": "+",
    r"In {n} years \w+, now \[\d\], will be \[(\d)\]": "+",
    r"For {n} people who each pay \[\d\], that is \[(\d)\]": "*",
    r"With a detour of {n} km on top of \[\d\], it is \[(\d)\]": "+",
    r"Since {n} of the \[\d\] are there already, \[(\d)\] must": "-",
    r"When {n} of the \[\d\] are booked, \[(\d)\] are still free": "-",
}
N = rf"(\d+|{NUMBER_WORDS}|{BELOW_100})"


def number(text: str) -> int:
    return int(text) if text.isdigit() else from_words(text.lower())


def calculate(sign: str, x: int, y: int) -> int:
    return {"+": x + y, "-": x - y, "*": x * y}[sign]


def sums(text: str) -> SOLVED:
    for story, sign in STORIES.items():
        if match := re.search(story.replace("{n}", N), text, re.IGNORECASE):
            first = calculate(sign, number(match[1]), number(match[2]))
            asked = re.search(FIRST_STEP, text)
            assert asked, text
            solved = {int(asked[asked.lastindex]): str(first)}  # type: ignore[index]
            for step, then in SECOND_STEP.items():
                if more := re.search(step.replace("{n}", N), text, re.IGNORECASE):
                    solved[int(more[2])] = str(calculate(then, first, number(more[1])))
            return solved
    return {}


FACTS = {
    "item": r"{s} owns the {v}\.|the {v} belongs to {s}\.|the owner of the {v} is {s}\."
    r"|the {v} is the property of {s}\.|it is {s} who owns the {v}\.",
    "site": r"{s} works at the {v}\.|the {v} is where {s} works\.|{s} is on duty at the {v}\."
    r"|whoever comes to the {v} meets {s}, who works there\.|the one on duty at the {v} is {s}\.",
    "job": r"{s} is the {v}\.|the {v} is called {s}\.|the name of the {v} is {s}\.|everyone knows {s}, the {v}\."
    r"|they hired {s} as the {v}\.",
}
ASKED = {
    "item": r"owns the \[(\d)\]|is the owner of the \[(\d)\]|has the \[(\d)\]",
    "site": r"works at the \[(\d)\]|is on duty at the \[(\d)\]",
    "job": r"is the \[(\d)\]|has the job of \[(\d)\]|is hired as the \[(\d)\]",
    "name": r"is called \[(\d)\]|goes by the name of \[(\d)\]|has the name \[(\d)\]",
}
CUES = {
    "item": r"(?:owner of the|the one who owns the|whoever owns the) (\w+) ",
    "site": r"(?:the one who works at the|whoever works at the|the one on duty at the) (\w+) ",
    "job": r"\b[Tt]he (\w+) ",
    "name": r"\b([A-Z][a-z]+) ",
}
OTHER_CLUES = (
    rf"{TOP}|{BOTTOM}|Counting|took place|people met|poster of the \w+ says|^So the \w+ was|begins with|last letter of"
)


def entities(text: str) -> SOLVED:
    known: list[dict[str, str]] = []
    links: list[tuple[str, str, str]] = []
    for attribute, forms in FACTS.items():
        for form in forms.split("|"):
            subject = r"(?P<s>[A-Z][a-z]+|the [a-z]+)" if attribute != "job" else "(?P<s>[A-Z][a-z]+)"
            pattern = form.replace("{s}", subject).replace("{v}", "(?P<v>[a-z]+)")
            for match in re.finditer(rf"(?:^|(?<=[.!?:\]'] )|(?<=\n)){pattern}", text, re.MULTILINE | re.IGNORECASE):
                who = match["s"]
                if who[0].islower() or who.startswith("The "):
                    links.append((who.lower().removeprefix("the "), attribute, match["v"]))
                elif match["v"] not in ("tallest", "best") and not re.search(rf"\b(?:{TOP}|{BOTTOM})\b", match["v"]):
                    person = next((p for p in known if p["name"] == who), None)
                    if person is None:
                        known.append(person := {"name": who})
                    person[attribute] = match["v"]
    for job, attribute, value in links:
        for person in known:
            if person.get("job") == job:
                person[attribute] = value
    solved: SOLVED = {}
    for sentence in re.split(r"(?<=[.!]) |\n", text):
        blanks = {int(m[m.lastindex]): a for a, p in ASKED.items() for m in re.finditer(p, sentence)}  # type: ignore[index]
        if not blanks or re.search(OTHER_CLUES, sentence):
            continue
        for attribute, pattern in CUES.items():
            people_ = [
                p for p in known for cue in re.findall(pattern, sentence, re.IGNORECASE) if p.get(attribute) == cue
            ]
            if people_:
                assert len({p["name"] for p in people_}) == 1, sentence
                solved |= {index: people_[0][wanted] for index, wanted in blanks.items()}
                break
    return solved


def lexical(text: str) -> SOLVED:
    solved: SOLVED = {}
    quoted, blank = r"'(\w+)'", r"'\[(\d)\]'"
    direct: tuple[tuple[str, Callable[..., str]], ...] = (
        (rf"Spelled backwards, {quoted} reads {blank}", lambda w: w[::-1]),
        (rf"Written from right to left, {quoted} becomes {blank}", lambda w: w[::-1]),
        (rf"Without its first letter, {quoted} is just {blank}", lambda w: w[1:]),
        (rf"{quoted} without its last two letters leaves {blank}", lambda w: w[:-2]),
        (rf"Swap the words {quoted} and {quoted}, then join them: {blank}", lambda a, b: b + a),
        (rf"The ((?:[A-Z][a-z]+ ?){{5}}) is known by its five initials, {blank}", lambda w: re.sub("[a-z ]", "", w)),
        (rf"Of ([\w, ]+), the first in alphabetical order is {blank}", lambda w: min(w.split(", "))),
        (rf"Of ([\w, ]+), the last in alphabetical order is {blank}", lambda w: max(w.split(", "))),
        (rf"Put {quoted} in front of {quoted} to get the word {blank}", lambda a, b: a + b),
        (rf"{quoted} and {quoted} in one word make {blank}", lambda a, b: a + b),
        (rf"The opposite of {quoted} begins with {quoted} and has (\d+) letters: {blank}", opposite),
        (rf"As '([\w-]+)' is to '([\w-]+)', so '([\w-]+)' is to {blank}", analogy),
        (rf"If '([\w-]+)' becomes '([\w-]+)', then '([\w-]+)' becomes {blank}", analogy),
        (rf"'([\w-]+)' : '([\w-]+)' = '([\w-]+)' : {blank}", analogy),
        (rf"From '([\w-]+)' one forms '([\w-]+)', and from '([\w-]+)' in the same way {blank}", analogy),
    )
    for pattern, work_out in direct:
        for *given, index in re.findall(pattern, text, re.IGNORECASE):
            solved[int(index)] = work_out(*given)
    return solved


def derived(text: str, solved: SOLVED) -> SOLVED:
    forms: tuple[tuple[str, Callable[[str], str]], ...] = (
        (r"The word '\[(\d)\]' begins with the letter '\[(\d)\]'", lambda w: w[0]),
        (r"The last letter of '\[(\d)\]' is '\[(\d)\]'", lambda w: w[-1]),
        (r"'\[(\d)\]' has \[(\d)\] letters", lambda w: str(len(w))),
        (r"Read '\[(\d)\]' backwards and you get '\[(\d)\]'", lambda w: w[::-1]),
        (r"Take the first letter off '\[(\d)\]' and '\[(\d)\]' remains", lambda w: w[1:]),
        (r"The first three letters of '\[(\d)\]' are '\[(\d)\]'", lambda w: w[:3]),
    )
    steps = [(int(i), int(j), rule) for pattern, rule in forms for i, j in re.findall(pattern, text)]
    for _ in steps:  # one may build on another
        solved = solved | {j: rule(solved[i]) for i, j, rule in steps if i in solved}
    return solved


def opposite(word: str, start: str, length: str) -> str:
    pairs = [pair for pair in words.OPPOSITES if word in pair]
    fitting = {w for pair in pairs for w in pair if w != word and w.startswith(start) and len(w) == int(length)}
    assert len(fitting) == 1, word
    return fitting.pop()


FORMS = (
    {noun: words.plural(noun) for noun in (*words.GOODS, *words.ANIMALS)},
    PAST,
    {word: words.compare_adjective(word, "er") for word in words.GRADABLE},
    {word: words.compare_adjective(word, "est") for word in words.GRADABLE},
    {words.number_in_words(n): words.ordinal_in_words(n) for n in range(1, 100)},
)


def analogy(x: str, formed: str, y: str) -> str:
    """The form of y that stands to it as `formed` to x. All ways to explain the first pair must agree on it."""
    answers = {forms[y] for forms in FORMS if forms.get(x) == formed and y in forms}
    assert len(answers) == 1, (x, formed, y)
    return answers.pop()


def test_the_blanks_follow_from_the_passage() -> None:
    solvers = {"ordering": ordering, "temporal": temporal, "arithmetic": sums, "entity": entities, "lexical": lexical}
    for draft in many(cloze.TASK):
        text = passage_of(draft)
        solved: SOLVED = {}
        for link in dict.fromkeys(draft.constraints["links"]):
            part = solvers[link](text)
            assert not set(part) & set(solved), draft.prompt
            solved |= part
        solved = derived(text, solved)
        assert tuple(solved.get(i) for i in range(1, len(draft.parts) + 1)) == draft.parts, draft.prompt


def test_blanks_are_two_or_three_apart_and_often_repeated() -> None:
    repeated = Counter()
    for draft in many(cloze.TASK):
        text = passage_of(draft)
        marks = [int(mark) for mark in re.findall(r"\[(\d)\]", text)]
        assert len(draft.parts) in (2, 3)
        assert set(marks) == set(range(1, len(draft.parts) + 1))
        firsts = list(dict.fromkeys(marks))
        assert firsts == sorted(firsts)
        assert not re.search(r"\]\W*\[", re.sub(r"[.!'] *'?\[", "; stop [", text)), draft.prompt
        repeated[draft.level] += len(marks) > len(set(marks))
    assert all(200 < repeated[level] < 500 for level in LEVELS)


def test_every_kind_of_link_is_common_at_every_level() -> None:
    for level in LEVELS:
        counts = Counter(link for draft in drafts(cloze.TASK, level) for link in draft.constraints["links"])
        assert set(counts) == set(cloze.CLUES)
        assert min(counts.values()) > 0.1 * PER_LEVEL
