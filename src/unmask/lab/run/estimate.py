"""What a study will take, before anything runs: branches, and whole runs of the arms that will be made of them."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch

from unmask.axes import POLICY, revises
from unmask.core import Needs, Policy, View
from unmask.lab.branch.states import spaced
from unmask.lab.choose import DRAWS, is_extension
from unmask.lab.run.jobs import Members, request_of
from unmask.lab.study import ModelSpec, Study
from unmask.policies.candidates import Sets, reference_of
from unmask.policies.revised import own_view
from unmask.request import Request, TextModel, begin
from unmask.tasks import Example

RUNS_ON = {"greedy": (0.8, 0.17), "drawn": (0.0, 0.8), "revised": (1.8, 0.0)}
"""Steps that a branch is run, as a rule, before it meets a known future: so many, and a share of those that are left.
Of `mini` in studies/mini.toml and studies/demo.toml; networks with random weights, whose branches seldom agree, run
three to four times as much."""
FILL = 0.8
"""Share of a forward's rows that are real, as a rule."""
ARMS_RUN = 2.5
"""Decodes of an evaluation prompt for each diagnostic, as a rule; at most `_MOST_ARMS`. Of `mini`, 4 in
studies/mini.toml and 1.5 in studies/demo.toml: on few prompts gates seldom open, and many arms are the same."""
EARLY = 0.9
"""Share of its steps that a whole run takes, as a rule: some candidates reveal more at once."""
_MOST_ARMS = 5 + DRAWS
"""Fixed, stage, always, selective, end-to-end fixed and the random gate, if no two are the same."""


class CostEstimate(NamedTuple):
    """What one model and task will take, about."""

    model: str
    task: str
    prompts: int
    states: int
    branches: int
    naive: int
    """Row-forwards without merging."""
    expected: int
    """The same with merging, by experience."""
    end_to_end: int
    """Row-forwards of the arms that are decoded from beginning to end, by experience; 0 where none are."""
    end_to_end_most: int
    """If no two arms were the same, and every gate opened."""
    slots: int
    """Canvas of the longest bucket."""
    memory: int
    """Bytes beside the weights."""
    seconds: float
    """Of both."""
    on_top: tuple[str, ...] = ()
    """Methods of the policy axis that look ahead, and searches: how often is known only when they do, and comes on top;
    of the reference, at every step of its own runs and of all branches."""


class Decodes(NamedTuple):
    """How often each prompt of a role is decoded from beginning to end."""

    validation: float
    evaluation: float

    def forwards(self, prompts: Mapping[str, int], steps: int) -> int:
        """Row-forwards of so many prompts by role, if every run takes all its steps."""
        return round(steps * sum(each * prompts.get(role, 0) for role, each in self._asdict().items()))


def decodes_of(study: Study, reference: str, *, most: bool = False) -> Decodes:
    """As a rule, or at most, before anything is chosen: candidates on validation prompts, arms on evaluation ones."""
    if not study.end_to_end:
        return Decodes(0, 0)
    sets = study.sets(reference)
    axes = study.diagnosed_axes
    joined = sum(not is_extension(reference, axis) for axis in axes) >= 2
    # The reference is a candidate of every axis and an arm of each, and decoded once.
    candidates = 1 + sum(len(sets[axis]) - 1 for axis in axes)
    arms = 1 + len(axes) * (_MOST_ARMS if most else ARMS_RUN) + 2 * joined
    return Decodes(candidates, arms) if most else Decodes(EARLY * candidates, EARLY * arms)


def estimate(study: Study, spec: ModelSpec, model: TextModel, tasks: Members) -> Iterator[CostEstimate]:
    """Counts from the plan, time from a measured forward of every bucket's shape."""
    sets = study.sets(spec.reference)
    each_state = study.rollouts * sum(len(named) for named in sets.values())
    usual, most = (decodes_of(study, spec.reference, most=most) for most in (False, True))
    clock = _Clock(model, study)
    for task, roles in tasks.items():
        steps = study.steps[task]
        by_role = {role: _requests(study, model, task, members) for role, members in roles.items()}
        requests = [request for of_role in by_role.values() for request in of_role]
        prompts = {role: len(of_role) for role, of_role in by_role.items()}
        at, n = spaced(steps, study.states), len(requests)
        left = [steps - step for step in at]
        expected, decoded = n * _expected(study, sets, left), usual.forwards(prompts, steps)
        slots = max((request.slots(study.engine.bucket) for request in requests), default=0)
        yield CostEstimate(
            model=spec.name,
            task=task,
            prompts=n,
            states=n * len(at),
            branches=n * len(at) * each_state,
            naive=n * sum(left) * each_state,
            expected=expected,
            end_to_end=decoded,
            end_to_end_most=most.forwards(prompts, steps),
            slots=slots,
            memory=_memory(study, model, task, slots),
            seconds=(expected + decoded) * clock.per_row(requests) / FILL,
            on_top=(*_looking_ahead(sets), *study.searches),
        )


def _looking_ahead(sets: Sets) -> tuple[str, ...]:
    """Methods of the policy axis that look ahead, as a sentence names them."""
    reference = reference_of(sets)
    every = {name: policy for name, policy in sets.get(POLICY, {}).items() if policy.looks_ahead}
    return tuple(f"{n} (the reference, at every step)" if p == reference else n for n, p in every.items())


def _requests(study: Study, model: TextModel, task: str, members: Sequence[Example]) -> list[Request]:
    """Those that fit into the model."""
    made = [request_of(model, study.task(task), study.steps[task], example) for example in members]
    return [request for request in made if model.length is None or len(request.canvas) <= model.length]


def _memory(study: Study, model: TextModel, task: str, slots: int) -> int:
    vocab, horizon = model.denoiser.vocabulary.size, study.task(task).horizon
    return 3 * 4 * max(study.engine.rows, study.engine.live) * horizon * vocab + study.engine.waiting * slots * 16


def _expected(study: Study, sets: Sets, left: Sequence[int]) -> int:
    """Row-forwards of one prompt with merging; the reference's own run and proposals of diagnostics included."""
    proposals = Counter(study.diagnosed_axes)
    greedy = study.temperature == 0 and not reference_of(sets).random
    forwards = float(max(left) + len(left))
    for axis, named in sets.items():
        once, share = RUNS_ON["revised" if revises(axis) else "greedy" if greedy else "drawn"]
        draw = [not greedy or revises(axis) or (axis == POLICY and policy.random) for policy in named.values()]
        # The reference is the first; proposals draw where candidates do.
        draw = draw[1:] + [not greedy or revises(axis)] * proposals[axis]
        runs = sum(study.rollouts if drawn else 1 for drawn in draw)
        forwards += runs * sum(min(n - 1, once + share * (n - 1)) for n in left)
        forwards += len(left) * _own_passes(study, axis, named)
    if not greedy:
        forwards += study.rollouts * sum(n - 1 for n in left)
    return round(forwards)


def _own_passes(study: Study, axis: str, named: Mapping[str, Policy]) -> int:
    """Passes at a state of methods that read more than its canvas: one each, or one a rollout where they draw."""
    if axis != POLICY:
        return 0
    own = [policy for policy in named.values() if own_view(policy)]
    return sum(study.rollouts if study.temperature > 0 or policy.random else 1 for policy in own)


class _Clock:
    """Times a forward of each shape once."""

    def __init__(self, model: TextModel, study: Study):
        self.model, self.study = model, study
        self.seconds: dict[int, float] = {}

    def per_row(self, requests: Sequence[Request]) -> float:
        """Seconds of a row's forward, on average over the prompts."""
        sizes = [request.slots(self.study.engine.bucket) for request in requests]
        for size, request in zip(sizes, requests, strict=True):
            if size not in self.seconds:
                self.seconds[size] = _timed(self.model, self.study, request, size)
        return sum(self.seconds[size] for size in sizes) / self.study.engine.rows / max(1, len(sizes))


def _timed(model: TextModel, study: Study, request: Request, slots: int) -> float:
    """Seconds of one forward of the study's shape, everything masked."""
    traj = begin(model.denoiser, [request] * study.engine.rows, study.seed, slots)
    view, needs = View.of(traj.state, Needs()), Needs()
    spent = []
    for _ in range(3):
        began = time.perf_counter()
        model.denoiser(view, needs)
        if model.denoiser.device.type == "cuda":
            torch.cuda.synchronize()
        spent.append(time.perf_counter() - began)
    return min(spent)
