"""How many forwards every branch of a study would take for itself, counted before anything runs.

A branch ends when nothing is masked. How many positions a step reveals follows, for the references and for candidates
that go by the steps, from the numbers of masks and of steps alone: no model is asked.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from unmask.axes import CARDINALITY, POLICY, Cardinality, dream_keep, reveal_count
from unmask.core import Policy
from unmask.lab.branching import spaced
from unmask.lab.study import ROLES, Study
from unmask.lab.study_models import REFERENCES

Count = Callable[[int, int], int]
"""Positions that a step reveals, of the masks that there are and the step's index."""


class NaiveCount(NamedTuple):
    """Row-forwards of one prompt, if every branch ran for itself."""

    forwards: int
    exact: bool
    """Whether it is the number itself, and not the most that it can be."""


def naive_forwards(study: Study, reference: str, horizon: int, steps: int) -> Mapping[str, NaiveCount]:
    """By axis: all candidates at all states of a prompt, each as often as there are rollouts."""
    sets = study.sets(reference)
    return {axis: _axis(study, reference, axis, named, horizon, steps) for axis, named in sets.items()}


def proposal_forwards(study: Study, steps: int) -> int:
    """Of the proposals of all diagnostics, at most: one that reveals much is done early."""
    each = study.rollouts * len(study.diagnostics)
    return each * sum(steps - step for step in spaced(steps, study.states))


def prompts_asked(study: Study, task: str) -> dict[str, int]:
    """Prompts by role: as many as the file asks for, or as the task has; known without its data."""
    there = study.task(task).counts
    asked = {}
    for role in ROLES:
        part = study.splits[role]
        # Fresh prompts have no end.
        most = max(0, there[part.split] - part.start) if part.split in there else part.prompts
        asked[role] = min(part.prompts, most)
    return asked


def _axis(study: Study, reference: str, axis: str, named: Mapping[str, Policy], horizon: int, steps: int) -> NaiveCount:
    at = spaced(steps, study.states)
    if axis != CARDINALITY.name or reference not in REFERENCES:
        exact = axis not in (POLICY, CARDINALITY.name) and reference in REFERENCES
        return NaiveCount(study.rollouts * len(named) * sum(steps - step for step in at), exact)
    count, masks = _counting(reference, steps), _path(reference, horizon, steps)
    rules = [None if name == next(iter(named)) else Cardinality.parse(name) for name in named]
    runs = [_branch(count, rule, masks[step], step, steps) for rule in rules for step in at]
    exact = all(rule is None or rule.by_steps or rule.rule == "all" for rule in rules)
    return NaiveCount(study.rollouts * sum(runs), exact)


def _branch(count: Count, rule: Cardinality | None, masks: int, step: int, steps: int) -> int:
    """Forwards from a state to the end: the candidate's step, then the reference."""
    if rule is not None and not (rule.by_steps or rule.rule == "all"):
        return steps - step
    masks -= count(masks, step) if rule is None else _first(rule, masks, steps - step)
    taken = 1
    while masks > 0:
        masks -= count(masks, step + taken)
        taken += 1
    return taken


def _first(rule: Cardinality, masks: int, left: int) -> int:
    """What a candidate's own step reveals; `quota` is what LLaDA's split gives at the state of an even run."""
    least = -(-masks // left)
    if left == 1 or rule.rule in ("schedule", "quota"):
        return least
    if rule.rule == "count":
        bare = min(int(rule.number), masks)
    else:
        share = 1.0 if rule.rule == "all" else rule.number
        bare = int(reveal_count(torch.tensor([share]), torch.tensor([masks])))
    return bare if rule.below else max(bare, least)


@lru_cache(maxsize=256)
def _counting(reference: str, steps: int) -> Count:
    if reference == "llada":
        return lambda masks, step: -(-masks // max(steps - step, 1))
    kept = dream_keep(torch.full((steps,), steps), torch.arange(steps)).numpy()

    def native(masks: int, step: int) -> int:
        return masks if step >= steps - 1 else int(np.float32(masks) * (np.float32(1) - kept[step]))

    return native


def _path(reference: str, horizon: int, steps: int) -> list[int]:
    """Masks before each step of the reference's own run."""
    count, masks, path = _counting(reference, steps), horizon, []
    for step in range(steps):
        path.append(masks)
        masks -= count(masks, step)
    return path
