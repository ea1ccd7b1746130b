"""What a study will take, before anything runs."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from unmask.axes import AXES
from unmask.core import Needs, View
from unmask.lab.branch.states import spaced
from unmask.lab.run.jobs import Members, request_of
from unmask.lab.study import ModelSpec, Study
from unmask.request import Request, TextModel, begin

RUN_SHARE = {"greedy": 0.16, "drawn": 0.8, "revised": 0.11}
"""Share of a candidate's continuation that is run, as a rule, before it meets a known future. Of `mini` on Carry RTL
and TD07; networks with random weights, whose branches seldom agree, run three to four times as much."""
FILL = 0.8
"""Share of a forward's rows that are real, as a rule."""


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
    slots: int
    """Canvas of the longest bucket."""
    memory: int
    """Bytes beside the weights."""
    seconds: float


def estimate(study: Study, spec: ModelSpec, model: TextModel, tasks: Members) -> Iterator[CostEstimate]:
    """Counts from the plan, time from a measured forward of every bucket's shape."""
    sets = study.sets(spec.reference)
    measured: dict[int, float] = {}
    for task, roles in tasks.items():
        steps = study.steps[task]
        requests = [request_of(model, study.task(task), steps, e) for members in roles.values() for e in members]
        requests = [s for s in requests if model.length is None or len(s.canvas) <= model.length]
        at = spaced(steps, study.states)
        left = [steps - step for step in at]
        naive = sum(left) * study.rollouts * sum(len(named) for named in sets.values())
        expected = _expected(study, sets, left)
        per_row = 0.0
        slots = 0
        for request in requests:
            slots = max(slots, size := request.slots(study.engine.bucket))
            if size not in measured:
                measured[size] = _timed(model, study, request, size)
            per_row += measured[size] / study.engine.rows / len(requests)
        n = len(requests)
        vocab, horizon = model.denoiser.vocabulary.size, study.task(task).horizon
        memory = 3 * 4 * max(study.engine.rows, study.engine.live) * horizon * vocab + study.engine.waiting * slots * 16
        yield CostEstimate(
            model=spec.name,
            task=task,
            prompts=n,
            states=n * len(at),
            branches=n * len(at) * study.rollouts * sum(len(named) for named in sets.values()),
            naive=n * naive,
            expected=n * expected,
            slots=slots,
            memory=memory,
            seconds=n * expected * per_row / FILL,
        )


def _expected(study: Study, sets: Mapping[str, Mapping[str, Any]], left: Sequence[int]) -> int:
    """Row-forwards of one prompt with merging; the reference's own run included."""
    greedy = study.temperature == 0
    share = RUN_SHARE["greedy" if greedy else "drawn"]
    others = sum(len(named) - 1 for axis, named in sets.items() if not AXES[axis].revises)
    free = sum(len(named) - 1 for axis, named in sets.items() if AXES[axis].revises)
    runs = (
        others * share * (1 if greedy else study.rollouts)
        + free * RUN_SHARE["revised"] * study.rollouts
        + (not greedy) * study.rollouts
    )
    return max(left) + len(left) + round(sum(runs * (n - 1) for n in left))


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
