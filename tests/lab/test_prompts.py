"""Prompts of a run: stretches of splits, and fresh ones."""

from itertools import islice

import pytest

from unmask.base.errors import ConfigError
from unmask.lab.study.prompts import FRESH, FRESH_FROM, FRESH_PROMPTS, select_examples
from unmask.tasks import find_task

TASK = find_task("carry-rtl")


def test_a_stretch_of_a_split():
    whole = TASK.examples("validation")
    assert select_examples(TASK, "validation") == whole
    assert select_examples(TASK, "validation", start=3, prompts=2) == whole[3:5]
    assert select_examples(TASK, "validation", start=3) == whole[3:]
    assert select_examples(TASK, "validation", start=len(whole), prompts=2) == ()


def test_fresh_ones_are_a_stretch_of_the_training_stream():
    assert select_examples(TASK, FRESH, start=2, prompts=3) == tuple(islice(TASK.training(FRESH_FROM + 2), 3))
    assert len(select_examples(TASK, FRESH)) == FRESH_PROMPTS


def test_official_tasks_have_no_fresh_ones():
    with pytest.raises(ConfigError, match="gsm8k has no fresh prompts; allowed: constructed tasks"):
        select_examples(find_task("gsm8k"), FRESH, prompts=1)
