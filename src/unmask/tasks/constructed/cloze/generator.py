"""Multi-Span Cloze: two or three blanks that hang together, and a passage that settles them.

A passage is made of clues. A clue says some facts, in sentences that may stand in any order, and asks for one or two
words that follow from them: who or what something is (entity), a result (arithmetic), a place in a row (ordering), a
day or an hour (temporal), or a form of a word (lexical). A blank that is repeated is the same word again.
"""

import re
from collections.abc import Callable, Sequence

from unmask.tasks import scorers
from unmask.tasks.constructed.cloze import arithmetic, entity, lexical, ordering, temporal
from unmask.tasks.constructed.cloze.clue import Clue
from unmask.tasks.constructed.common import check_level, indexed
from unmask.tasks.draw import Draw
from unmask.tasks.splits import constructed
from unmask.tasks.task import Example, Scorer
from unmask.tasks.words import FIRST, closing, place_name

LINKS: dict[str, Callable[[Draw, int, int], Clue]] = {
    "entity": entity.make,
    "arithmetic": arithmetic.make,
    "ordering": ordering.make,
    "temporal": temporal.make,
    "lexical": lexical.make,
}

_PLANS: tuple[tuple[tuple[int, ...], ...], ...] = (
    # How many blanks each clue has, per level; 0 stands for a blank derived from the first one.
    ((2,),),
    ((2,), (1, 1), (2, 0)),
    ((2, 1), (1, 1), (2, 1)),
    ((2, 1), (1, 1, 1), (1, 1, 0)),
)

_FRAMES = (
    "Fill in the blanks.\n{passage}",
    "{passage}\nWhich words belong in the numbered gaps?",
    "Complete the text. A number that appears twice stands for the same word.\n{passage}",
    "Text with gaps: {passage}",
    "Some words are replaced by numbers in brackets: {passage}\nFind them.",
    "{passage}\nReplace each bracket by one word or by a number in digits.",
    "Read carefully and supply what is missing.\n{passage}",
    "{name} erased some words:\n{passage}\nPut them back.",
    "Cloze: {passage}\nEqual brackets hold equal words.",
    "What is hidden behind the brackets?\n{passage}",
    "A notice from {town}, with gaps: {passage}",
    "Work out the missing words. {passage}",
    "{passage}\nEach gap has exactly one solution. Give it.",
    "Puzzle. {passage}\nSolve for the brackets.",
)


def _index(passage: str) -> tuple[str, list[int]]:
    """Number the blanks by their first appearance; returns the text and the old number of each new one."""
    order: list[int] = []
    for mark in re.findall(r"#(\d)", passage):
        if int(mark) not in order:
            order.append(int(mark))
    return re.sub(r"#(\d)", lambda mark: f"[{order.index(int(mark[1])) + 1}]", passage), order


def _shifted(text: str, by: int) -> str:
    return re.sub(r"#(\d)", lambda mark: f"#{int(mark[1]) + by}", text)


def _clues(draw: Draw, level: int) -> tuple[list[Clue], list[str]]:
    plan = draw.choice(_PLANS[level - 1])
    real = [blanks for blanks in plan if blanks]
    links = draw.sample(list(LINKS), len(real))
    hard = level if len(real) == 1 else max(1, level - 1)
    clues: list[Clue] = []
    count = 0
    for link, blanks in zip(links, real, strict=True):
        clue = LINKS[link](draw, hard, blanks)
        clues.append(Clue(link, clue.said, tuple(_shifted(text, count) for text in clue.asked), clue.values))
        count += blanks
    values = [value for clue in clues for value in clue.values]
    words = [i for i, value in enumerate(values) if value.isalpha()]
    if 0 in plan and words:
        at = draw.choice(words)
        text, value = lexical.derived(draw, values[at], at, count)
        clues.append(Clue("lexical", (), (text,), (value,)))
        values.append(value)
    return clues, values


_LENGTHS = (270, 260, 480, 540)


def _passage(draw: Draw, clues: Sequence[Clue], level: int) -> str:
    said = draw.shuffled([text for clue in clues for text in clue.said])
    asked = [text for clue in clues for text in clue.asked]
    # From level 2 on the question may come before what settles it.
    early = level > 1 and bool(said) and draw.chance(0.3)
    return " ".join([*asked, *said] if early else [*said, *asked])


def generate(draw: Draw, level: int) -> Example:
    """One example of the given level."""
    check_level(level)
    while True:
        clues, values = _clues(draw, level)
        raw = _passage(draw, clues, level)
        if len(raw) <= _LENGTHS[level - 1] and "" not in values:
            break
    passage, order = _index(raw)
    at = draw.below(len(_FRAMES))
    task = _FRAMES[at].format(passage=passage, name=draw.choice(FIRST), town=place_name(draw))
    parts = tuple(values[i] for i in order)
    form = "; ".join(f"[{i}]=..." for i in range(1, len(parts) + 1))
    what = draw.choice(("the words as {form}", "the answers as {form}", "{form}", "only {form}")).format(form=form)
    prompt = f"{task}\n{closing(draw, what)}"
    return Example(prompt, indexed(parts), parts, {"frame": str(at), "links": [clue.link for clue in clues]}, level)


SCORER = Scorer("partial", scorers.score_spans)
TASK = constructed(
    "multi-span-cloze", "Multi-Span Cloze", SCORER, generate, max_new_tokens=64, output="indexed spans", version="1"
)
