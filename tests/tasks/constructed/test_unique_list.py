"""Unique List Commit: the list follows from the pool of the prompt."""

import re
from itertools import pairwise

from tests.helpers.constructed import LEVELS, PER_LEVEL, drafts, many
from unmask.tasks import Example
from unmask.tasks.constructed import unique_list


def pool_of(prompt: str) -> list[str]:
    word = "[a-z]+"
    for joint in (",", ", ", " / ", r"\|", "; ", "', '"):
        row = re.search(rf"(?<![a-z,])(?:{word}{joint}){{11}}{word}", prompt)
        if row:
            return re.findall(word, row[0])
    row = re.search(rf"(?:^|: |\n)((?:{word}[ \n]){{11}}{word})(?=\n)", prompt)
    assert row, prompt
    return row[1].split()


def test_the_list_follows_from_the_pool_in_the_prompt() -> None:
    for draft in many(unique_list.TASK):
        pool = pool_of(draft.prompt)
        assert len(pool) == len(set(pool)) == 12
        assert pool == draft.constraints["pool"]
        assert draft.parts == tuple(sorted(pool)[:8])
        assert draft.target == ",".join(draft.parts)
        assert re.search("dictionary|a to z|alphabetical", draft.prompt, re.IGNORECASE)
        prefixed = any(a != b and b.startswith(a) for a in pool for b in pool)
        assert ("any longer word that begins with it" in draft.prompt) == prefixed


def test_later_letters_decide_at_higher_levels() -> None:
    def shared(draft: Example) -> float:
        neighbours = pairwise(sorted(draft.constraints["pool"]))
        return sum(sum(b.startswith(a[:n]) for n in range(1, len(a) + 1)) for a, b in neighbours) / 11

    mean = [sum(map(shared, drafts(unique_list.TASK, level))) / PER_LEVEL for level in LEVELS]
    assert mean[0] == 0
    assert mean[0] < mean[1] < mean[2] < mean[3]
    assert mean[3] > 2
