"""Unique List Commit: the first eight of twelve words in alphabetical order.

One early slip, a word used twice or placed too soon, spoils the places after it. The pools get harder by the letters
that must be compared: the first letter decides at level 1, the fourth or later at level 4.
"""

from collections.abc import Callable, Sequence

from unmask.tasks import scorers
from unmask.tasks import words as w
from unmask.tasks.draw import Draw
from unmask.tasks.splits import constructed_task
from unmask.tasks.task import Example, Scorer

POOL_SIZE = 12
ANSWER_SIZE = 8
LIMIT = 72
"""Longest answer, in characters, so that it fits the tokens of the task in a small vocabulary."""
LONGEST_WORD = 9

_TOPICS: dict[str, Sequence[str]] = {
    "adjectives": w.ADJECTIVES,
    "animals": w.ANIMALS,
    "clothes": w.CLOTHES,
    "colours": w.COLOURS,
    "events": w.EVENTS,
    "first names": w.FIRST,
    "foods": w.FOODS,
    "nouns": w.IDEAS,
    "jobs": w.JOBS,
    "materials": w.MATERIALS,
    "plants": w.PLANTS,
    "places": w.SITES,
    "surnames": w.SURNAMES,
    "things": w.THINGS,
    "towns": w.TOWNS,
}


def _select_short_words(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted({word.lower() for word in words if 3 <= len(word) <= LONGEST_WORD}))


_TOPIC_WORDS = {topic: _select_short_words(words) for topic, words in _TOPICS.items()}
_ALL = _select_short_words((*w.COMMON, *w.FIRST, *w.SURNAMES, *w.TOWNS))


def _group_by_letters(words: Sequence[str], letters: int, least: int) -> tuple[tuple[str, ...], ...]:
    """Group words by their first letters, and drop groups smaller than `least`."""
    groups: dict[str, list[str]] = {}
    for word in words:
        groups.setdefault(word[:letters], []).append(word)
    return tuple(tuple(group) for _, group in sorted(groups.items()) if len(group) >= least)


_BY_LETTER = _group_by_letters(_ALL, 1, 20)
_BY_THREE = _group_by_letters(_ALL, 3, 3)

_FRAMES: tuple[str, ...] = w.sentences("unique_list", "frames")

_HINT = "A word comes before any longer word that begins with it."

_WHAT: tuple[str, ...] = w.sentences("unique_list", "what")


def _write_quoted_list(words: Sequence[str]) -> str:
    return "[" + ", ".join(f"'{word}'" for word in words) + "]"


def _write_grid(words: Sequence[str]) -> str:
    return "\n" + "\n".join(" ".join(words[at : at + 4]) for at in range(0, len(words), 4))


_JOINTS = (",", ", ", " ", " / ", "|", "; ")
_STYLES: tuple[Callable[[Sequence[str]], str], ...] = (
    *(joint.join for joint in _JOINTS),
    _write_quoted_list,
    _write_grid,
)


def _draw_words_by_first_letter(draw: Draw) -> tuple[list[str], str]:
    """Draw words on one topic, each with another first letter."""
    topic = draw.choice(list(_TOPIC_WORDS))
    groups = _group_by_letters(_TOPIC_WORDS[topic], 1, 1)
    return [draw.choice(group) for group in draw.sample(groups, POOL_SIZE)], topic


def _draw_any_words(draw: Draw) -> tuple[list[str], str]:
    """Draw words at random, from one topic or from all of them."""
    if draw.chance(0.5):
        return draw.sample(_ALL, POOL_SIZE), "words"
    topic = draw.choice(list(_TOPIC_WORDS))
    return draw.sample(_TOPIC_WORDS[topic], POOL_SIZE), topic


def _draw_words_with_three_initials(draw: Draw) -> tuple[list[str], str]:
    """Draw words that begin with three different letters only; some may be invented."""
    pool: list[str] = []
    for group in draw.sample(_BY_LETTER, 3):
        pool += draw.sample(group, 4)
    if draw.chance(0.3):
        pool[:4] = [w.invent_word(draw)[:LONGEST_WORD] for _ in range(4)]
    return pool, "words"


def _draw_look_alike_words(draw: Draw) -> tuple[list[str], str]:
    """Draw words that look alike: several share their first three letters or more."""
    if draw.chance(0.25):
        # Words without a meaning: one beginning, many endings.
        start = w.invent_word(draw)[:4]
        return [start + w.invent_word(draw)[-5:] for _ in range(6)] + [
            w.invent_word(draw)[:LONGEST_WORD] for _ in range(6)
        ], "words"
    pool: list[str] = []
    for group in draw.sample(_BY_THREE, 4):
        pool += draw.sample(group, 3)
    return pool, "words"


_POOLS = (_draw_words_by_first_letter, _draw_any_words, _draw_words_with_three_initials, _draw_look_alike_words)


def _has_word_within_word(words: Sequence[str]) -> bool:
    return any(a != b and b.startswith(a) for a in words for b in words)


def generate(draw: Draw, level: int) -> Example:
    """Make one example of the given level: a pool of words, and the first eight of them in alphabetical order."""
    while True:
        pool, topic = _POOLS[level - 1](draw)
        pool = draw.permute(pool)
        parts = tuple(sorted(pool)[:ANSWER_SIZE])
        target = ",".join(parts)
        # Invented words may coincide by chance, and such a pool is drawn again.
        if len(set(pool)) == POOL_SIZE and len(target) <= LIMIT:
            break
    at = draw.index(len(_FRAMES))
    shown = draw.choice(_STYLES)(pool)
    # A grid begins with a line break, which would leave a space or an empty line before it.
    task = (
        _FRAMES[at]
        .format(pool=shown, topic=topic, name=draw.choice(w.FIRST))
        .replace(": \n", ":\n")
        .replace("\n\n", "\n")
        .strip()
    )
    hint = [_HINT] if _has_word_within_word(pool) else []
    prompt = "\n".join([task, *hint, w.draw_answer_line(draw, draw.choice(_WHAT))])
    return Example(prompt, target, parts, {"frame": str(at), "pool": pool}, level)


TASK = constructed_task(
    "unique-list-commit",
    "Unique List Commit",
    Scorer("partial", scorers.score_items),
    generate,
    max_new_tokens=48,
    output="ordered list",
    version="2",
    prompts_version="1",
)
