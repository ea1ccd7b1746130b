"""The constructed tasks: the same for ever, varied, and clear about what they ask.

The files in `constructed` solve the prompts of one task each without looking at its generator: they read the text a
model would see, work out the answer, and compare. What they cannot read fails the test.
"""

import json
import re
from collections import Counter

import pytest

from tests.helpers.cases import each_case
from tests.helpers.constructed import everything, many
from unmask.tasks import Task
from unmask.tasks.constructed import carry, cloze, constrained_json, csv_cells, html_tags, sparse, unique_list
from unmask.tasks.draw import canonical_json

SUITE = tuple(module.TASK for module in (csv_cells, cloze, carry, sparse, constrained_json, unique_list, html_tags))
ALL = (*SUITE, sparse.CLUSTERED)
LONGEST = {
    "csv-missing-cells": 24,
    "multi-span-cloze": 100,
    "carry-rtl": 19,
    "td07-sparse-mask": 80,
    "td07-clustered-mask": 80,
    "constrained-json-fill": 180,
    "unique-list-commit": 80,
    "html-close-tags": 90,
}
each = each_case("task", ALL, ids=lambda task: task.name)


def tokens(text: str) -> int:
    """A cautious guess at a small vocabulary: three letters, one digit or two marks to a token."""
    runs = re.findall(r"[A-Za-z]+|[0-9]|[^A-Za-z0-9\s]+", text)
    return sum(-(-len(run) // (3 if run[0].isalpha() else 2)) for run in runs)


@each
def test_drafts_are_plain_text_of_bounded_length(task: Task) -> None:
    for draft in many(task):
        assert draft.prompt.isascii()
        assert draft.prompt == draft.prompt.strip()
        assert not re.search(r"[ \t]\n|\n\n|\{\w*\}|\.\.(?!\.)(?<!\.\.\.)|, ,|\bNone\b", draft.prompt), draft.prompt
        assert len(draft.prompt) <= (420 if draft.level < 3 else 700)
        assert draft.target.isascii()
        assert draft.target == draft.target.strip()
        assert 0 < len(draft.target) <= LONGEST[task.name]
        # Room is left for the answer tags.
        assert tokens(draft.target) <= task.max_new_tokens - 5, draft.target
        assert json.loads(canonical_json(draft.constraints)) == draft.constraints


@each
def test_prompts_end_by_asking_for_the_answer_tags(task: Task) -> None:
    asks = Counter()
    for draft in many(task):
        last = draft.prompt.splitlines()[-1]
        assert "<answer>" in last
        assert last.count("</answer>") == 1
        assert draft.prompt.count("<answer>") == 1
        asks[last.split()[0]] += 1
    assert len(asks) >= 8


@pytest.mark.slow
@pytest.mark.parametrize("task", ALL, ids=lambda task: task.name)
def test_prompts_and_answers_are_varied(task: Task) -> None:
    all_drafts = list(everything(task))
    assert len({draft.prompt for draft in all_drafts}) >= 0.995 * len(all_drafts)
    targets = {draft.target for draft in all_drafts}
    least = {"carry-rtl": 4, "csv-missing-cells": 2500}.get(task.name, 4500)
    assert len(targets) >= least


@pytest.mark.parametrize("task", [cloze.TASK, carry.TASK, sparse.TASK, sparse.CLUSTERED], ids=lambda task: task.name)
def test_indexed_targets_spell_their_parts(task: Task) -> None:
    for draft in many(task):
        assert draft.target == "; ".join(f"[{i}]={part}" for i, part in enumerate(draft.parts, 1))
        assert all(part and not set(part) & set("[];=\n") for part in draft.parts)
