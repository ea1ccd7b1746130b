"""A few runs of a study's model to look at: one prompt of each task, decoded by methods that answer it differently."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Any

import numpy as np
import pandas as pd

from unmask.api import LoadedModel, Request, start_trajectory
from unmask.core import Policy, Trajectory
from unmask.engine import decode
from unmask.lab.study import Study
from unmask.lab.study.jobs import Members
from unmask.lab.study.prompts import ScoredAnswer, example_request, score_answers
from unmask.methods import make_policy
from unmask.tasks import Example

TRIED = 8
"""Evaluation prompts of a task that are decoded; the one on which the methods differ most is shown."""


@dataclass(frozen=True)
class ShownMethod:
    """A method whose runs are shown, with a line on what to look for."""

    label: str
    method: str
    look_for: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def policy(self) -> Policy:
        policy = make_policy(self.method, **self.settings)
        assert isinstance(policy, Policy)
        return policy


SHOWN: tuple[ShownMethod, ...] = (
    ShownMethod("LLaDA", "llada", "as many tokens at every step, the surest first"),
    ShownMethod("Fast-dLLM", "fast-dllm", "every token that it is sure of: few or many in a step"),
    ShownMethod("WINO", "wino", "reveals many and takes back those that look wrong later", {"block_length": 16}),
)


@dataclass(frozen=True)
class DemoRun:
    """One prompt decoded by one method."""

    task: str
    example: Example
    shown: ShownMethod
    trajectory: Trajectory
    """Of one row, with its steps."""
    judged: ScoredAnswer

    @property
    def forwards(self) -> int:
        return int(self.trajectory.forwards_B[0])

    @property
    def utility(self) -> float | None:
        """None where the answer could not be judged."""
        return None if isnan(self.judged.utility) else self.judged.utility


def demo_runs(
    model: LoadedModel,
    study: Study,
    tasks: Members,
    methods: Sequence[ShownMethod] = SHOWN,
    tried: int = TRIED,
    on_done: Callable[[DemoRun], None] = lambda run: None,
) -> tuple[DemoRun, ...]:
    """All methods on one prompt of each task: the first of those on which the first two differ most."""
    runs = []
    for task, roles in tasks.items():
        for run in _runs_of_task(model, study, task, roles["evaluation"][:tried], methods):
            on_done(run)
            runs.append(run)
    return tuple(runs)


def _runs_of_task(
    model: LoadedModel, study: Study, task: str, members: Sequence[Example], methods: Sequence[ShownMethod]
) -> Iterator[DemoRun]:
    requests = [example_request(model, study.task(task), study.steps[task], example) for example in members]

    def score(run: Trajectory, of: Sequence[Request]) -> list[ScoredAnswer]:
        rows = zip(of, run.state.tokens_BL.tolist(), strict=True)
        answers = [(request.id, tuple(tokens[slice(*request.answer)])) for request, tokens in rows]
        frame = pd.DataFrame(answers, columns=["prompt", "answer"])
        scored = score_answers(frame, members, of, model.codec, scoring=study.scoring)
        return [ScoredAnswer(row.text, row.utility, row.reason) for row in scored.itertuples()]

    tried = [_decoded(model, method, requests, study.seed) for method in methods[:2]]
    utility_MP = np.array([[one.utility for one in score(run, requests)] for run in tried])
    at = int(np.nan_to_num(utility_MP.max(0) - utility_MP.min(0)).argmax())
    for number, method in enumerate(methods):
        # One prompt is enough of the others: a row does not depend on its company.
        run = tried[number].row(at) if number < len(tried) else _decoded(model, method, [requests[at]], study.seed)
        yield DemoRun(task, members[at], method, run, score(run, [requests[at]])[0])


def _decoded(model: LoadedModel, method: ShownMethod, requests: Sequence[Request], seed: int) -> Trajectory:
    policy = method.policy()
    return decode(
        model.denoiser, policy, start_trajectory(model.denoiser, requests, seed, extra_steps=policy.extra_steps)
    )
