"""Examples of the constructed tasks to look at, and what several of their solvers read."""

from collections.abc import Iterator

from unmask.tasks import Example, Task, words
from unmask.tasks.draw import Draw

LEVELS = (1, 2, 3, 4)
PER_LEVEL = 1250


_MADE: dict[tuple[Task, int], list[Example]] = {}


def drafts(task: Task, level: int, n: int = PER_LEVEL) -> list[Example]:
    """The first n drafts of a level; what has been made for one test is there for the next."""
    made = _MADE.setdefault((task, level), [])
    made += (task.generator(Draw(f"test/{level}/{i}".encode()), level) for i in range(len(made), n))
    return made[:n]


def everything(task: Task, per_level: int = PER_LEVEL) -> Iterator[Example]:
    """So many drafts of each level."""
    for level in LEVELS:
        yield from drafts(task, level, per_level)


def many(task: Task) -> Iterator[Example]:
    """Enough to meet every frame and kind several times at every level."""
    return everything(task, 500)


DIGIT = words.word_list("zero one two three four five six seven eight nine")
SMALL = words.word_list(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
TENS = words.word_list("_ _ twenty thirty forty fifty sixty seventy eighty ninety")
D = f"(?:{'|'.join(DIGIT)})"
BELOW_100 = f"(?:(?:{'|'.join(TENS[2:])})(?:-{D})?|{'|'.join(sorted(SMALL, key=len, reverse=True))})"
NUMBER_WORDS = f"{D} hundred(?: and {BELOW_100})?"


def from_words(text: str) -> int:
    total = 0
    for word in text.replace("-", " ").replace(" and ", " ").split():
        if word == "hundred":
            total *= 100
        else:
            total += SMALL.index(word) if word in SMALL else 10 * TENS.index(word)
    return total


def clock(text: str, minutes: int) -> str:
    at = int(text[:2]) * 60 + int(text[3:]) + minutes
    return f"{at // 60:02d}:{at % 60:02d}"


def minutes(text: str) -> int:
    return int(text[:2]) * 60 + int(text[3:])


PAST = {verb[0]: verb[1] for verb in words.VERBS}
