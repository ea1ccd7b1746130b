"""Prompts of a run: stretches of splits, and fresh ones."""

from itertools import islice

import pytest

from unmask.base.errors import ConfigError
from unmask.lab.prompts import FRESH, FRESH_FROM, FRESH_PROMPTS, prompts_from
from unmask.tasks import find_task

TASK = find_task("carry-rtl")


def test_a_stretch_of_a_split():
    whole = TASK.examples("validation")
    assert prompts_from(TASK, "validation") == whole
    assert prompts_from(TASK, "validation", start=3, prompts=2) == whole[3:5]
    assert prompts_from(TASK, "validation", start=3) == whole[3:]
    assert prompts_from(TASK, "validation", start=len(whole), prompts=2) == ()


def test_fresh_ones_are_a_stretch_of_the_training_stream():
    assert prompts_from(TASK, FRESH, start=2, prompts=3) == tuple(islice(TASK.training(FRESH_FROM + 2), 3))
    assert len(prompts_from(TASK, FRESH)) == FRESH_PROMPTS


def test_official_tasks_have_no_fresh_ones():
    with pytest.raises(ConfigError, match="gsm8k has no fresh prompts; allowed: constructed tasks"):
        prompts_from(find_task("gsm8k"), FRESH, prompts=1)
