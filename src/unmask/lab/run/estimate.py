"""What a study will take, before anything runs: branches, and whole runs of the arms that will be made of them.

Branches, states and naive forwards follow from the study file alone. Buckets and memory need a tokenizer, times a
forward that was measured or a rate that is given; what is not known is None, never a guess.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch

from unmask.api import LoadedModel, TextSide, start_trajectory, token_request
from unmask.axes import CARDINALITY, COMMITMENT, POLICY, REGION, SCORE, revises
from unmask.core import ModelInput, Needs, Policy
from unmask.lab.branching import spaced
from unmask.lab.choose import DRAWS, is_extension
from unmask.lab.gates import FURTHER_DRAWS
from unmask.lab.run.jobs import Members
from unmask.lab.run.naive import NaiveCount, naive_forwards, prompts_asked, proposal_forwards
from unmask.lab.study import Study
from unmask.lab.study_models import ModelSpec
from unmask.methods import CandidateSets, has_own_input, reference_of

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


MERGED = {
    SCORE.name: (0.0336, 0.0367),
    REGION.name: (0.0221, 0.0245),
    CARDINALITY.name: (0.0573, 0.0644),
    COMMITMENT.name: (0.0416, 0.0600),
}
"""Share of the naive forwards that was left after merging, by axis: the least and the most of the two models of
results/mini/cost.csv, at temperature 0 with `MERGED_ROLLOUTS`. Larger models may agree less often."""
MERGED_ROLLOUTS = 4
MERGED_FROM = "results/mini"


class CostEstimate(NamedTuple):
    """What one model and task will take."""

    model: str
    task: str
    prompts: int
    states: int
    branches: int
    """Of candidates."""
    proposals: int
    """Branches of what diagnostics propose."""
    naive: int
    """Row-forwards of the candidates' branches without merging."""
    naive_exact: bool
    """False where a candidate's count depends on what the model says: then it is the most that it can be."""
    naive_proposals: int
    """The same of proposals, at most."""
    merged: tuple[int, int] | None
    """Row-forwards after merging, as in the run that `MERGED_FROM` names; None where that run has no such axis."""
    expected: int
    """After merging, by a rule of thumb that knows every kind of study."""
    end_to_end: int
    """Row-forwards of the arms that are decoded from beginning to end, by experience; 0 where none are."""
    end_to_end_most: int
    """If no two arms were the same, and every gate opened."""
    slots: int | None
    """Canvas of the longest bucket; None without a tokenizer."""
    memory: int | None
    """Bytes beside the weights."""
    seconds: float | None
    """Of both; None where no forward was measured and no rate was given."""
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
    axes = tuple(dict.fromkeys(study.diagnosed_axes))
    joined = sum(not is_extension(reference, axis) for axis in axes) >= 2
    # The reference is a candidate of every axis and an arm of each, and decoded once.
    candidates = 1 + sum(len(sets[axis]) - 1 for axis in axes)
    # Further gates, each with its random gate, as if they opened.
    each = (_MOST_ARMS if most else ARMS_RUN) + len(study.gates) * (1 + FURTHER_DRAWS)
    arms = 1 + len(study.diagnostics) * each + 2 * joined
    return Decodes(candidates, arms) if most else Decodes(EARLY * candidates, EARLY * arms)


def estimate(
    study: Study,
    spec: ModelSpec,
    tasks: Members | None = None,
    *,
    text: TextSide | None = None,
    timer: "ForwardTimer | None" = None,
    rate: float | None = None,
) -> Iterator[CostEstimate]:
    """One line for each task. `tasks` and `text` give prompts their lengths; without, as many count as the task has.

    Time is by a `timer` that measures, or at a `rate` of row-forwards a second.
    """
    sets = study.sets(spec.reference)
    usual, most = (decodes_of(study, spec.reference, most=most) for most in (False, True))
    for task in study.tasks:
        steps, horizon = study.steps[task], study.task(task).max_new_tokens
        sizes = bucket_sizes(study, text, task, tasks)
        prompts = prompts_asked(study, task) if sizes is None else {role: len(found) for role, found in sizes.items()}
        at, n = spaced(steps, study.states), sum(prompts.values())
        expected = n * _expected(study, sets, [steps - step for step in at])
        naive = naive_forwards(study, spec.reference, horizon, steps)
        decoded = usual.forwards(prompts, steps)
        slots = None if sizes is None else max((size for found in sizes.values() for size in found), default=0)
        yield CostEstimate(
            model=spec.name,
            task=task,
            prompts=n,
            states=n * len(at),
            branches=n * len(at) * study.rollouts * sum(len(named) for named in sets.values()),
            proposals=n * len(at) * study.rollouts * len(study.diagnostics),
            naive=n * sum(count.forwards for count in naive.values()),
            naive_exact=all(count.exact for count in naive.values()),
            naive_proposals=n * proposal_forwards(study, steps),
            merged=_merged(study, naive, n, steps),
            expected=expected,
            end_to_end=decoded,
            end_to_end_most=most.forwards(prompts, steps),
            slots=slots,
            memory=None if slots is None or text is None else _memory(study, text.vocab, horizon, slots),
            seconds=_seconds(expected + decoded, task, sizes, timer, rate),
            on_top=(*_looking_ahead(sets), *study.searches),
        )


def _looking_ahead(sets: CandidateSets) -> tuple[str, ...]:
    """Methods of the policy axis that look ahead, as a sentence names them."""
    reference = reference_of(sets)
    every = {name: policy for name, policy in sets.get(POLICY, {}).items() if policy.looks_ahead}
    return tuple(f"{n} (the reference, at every step)" if p == reference else n for n, p in every.items())


def _expected(study: Study, sets: CandidateSets, left: Sequence[int]) -> int:
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
    own = [policy for policy in named.values() if has_own_input(policy)]
    return sum(study.rollouts if study.temperature > 0 or policy.random else 1 for policy in own)


def bucket_sizes(study: Study, text: TextSide | None, task: str, tasks: Members | None) -> dict[str, list[int]] | None:
    """The buckets of the prompts that fit into the model, by role; None without a tokenizer or the task's data."""
    if tasks is None or text is None or task not in tasks:
        return None
    bucket, horizon, roles = study.engine.bucket, study.task(task).max_new_tokens, tasks[task]
    canvases = {
        role: [
            text.blank_canvas(example.prompt) if example.has_blanks else text.canvas(example.prompt, horizon)
            for example in members
        ]
        for role, members in roles.items()
    }
    return {
        role: [-(-size // bucket) * bucket for size in found if text.max_length is None or size <= text.max_length]
        for role, found in canvases.items()
    }


def _merged(study: Study, naive: Mapping[str, NaiveCount], prompts: int, steps: int) -> tuple[int, int] | None:
    """What merging left in an earlier run, of these forwards; the reference's own runs come on top."""
    if study.temperature > 0 or not set(naive) <= set(MERGED):
        return None
    proposals = Counter(study.diagnosed_axes)
    each_proposal = proposal_forwards(study, steps) / max(1, len(study.diagnostics))
    low, high = float(steps), float(steps)
    for axis, count in naive.items():
        # Where nothing is drawn, one rollout stands for all of them.
        rollouts = 1.0 if revises(axis) else MERGED_ROLLOUTS / study.rollouts
        forwards = rollouts * (count.forwards + proposals[axis] * each_proposal)
        low, high = low + MERGED[axis][0] * forwards, high + MERGED[axis][1] * forwards
    return round(prompts * low), round(prompts * high)


def _seconds(
    forwards: int,
    task: str,
    sizes: Mapping[str, Sequence[int]] | None,
    timer: "ForwardTimer | None",
    rate: float | None,
) -> float | None:
    if rate is not None:
        return forwards / rate
    if timer is None or sizes is None:
        return None
    return forwards * timer.per_row(task, [size for found in sizes.values() for size in found]) / FILL


class ForwardTimer:
    """Times a forward of each shape once."""

    def __init__(self, model: LoadedModel, study: Study):
        self.model, self.study = model, study
        self.seconds: dict[tuple[str, int], float] = {}

    def per_row(self, task: str, sizes: Sequence[int]) -> float:
        """Seconds of a row's forward, on average over the canvases."""
        for size in dict.fromkeys(sizes):
            if (task, size) not in self.seconds:
                self.seconds[task, size] = _timed(self.model, self.study, task, size)
        return sum(self.seconds[task, size] for size in sizes) / self.study.engine.rows / max(1, len(sizes))


def _timed(model: LoadedModel, study: Study, task: str, slots: int) -> float:
    """Seconds of one forward of the study's shape, the whole answer masked."""
    # A text with few blanks may be shorter than the longest answer to others.
    horizon = min(study.task(task).max_new_tokens, slots - len(model.codec.closing))
    prompt = [0] * (slots - horizon - len(model.codec.closing))
    request = token_request(model, prompt, horizon, min(study.steps[task], horizon))
    traj = start_trajectory(model.denoiser, [request] * study.engine.rows, study.seed, slots)
    inputs, needs = ModelInput.of(traj.state, Needs()), Needs()
    spent = []
    for _ in range(3):
        began = time.perf_counter()
        model.denoiser(inputs, needs)
        if model.denoiser.device.type == "cuda":
            torch.cuda.synchronize()
        spent.append(time.perf_counter() - began)
    return min(spent)


def _memory(study: Study, vocab: int, horizon: int, slots: int) -> int:
    return 3 * 4 * max(study.engine.rows, study.engine.live) * horizon * vocab + study.engine.waiting * slots * 16
