"""Validation prompts decoded from beginning to end, and judged: what a calibration knows of whole runs."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from unmask.core import Policy
from unmask.lab.run.decode_cache import DecodeCache
from unmask.lab.run.jobs import jobs_of, prompts_of
from unmask.lab.run.judging import Judge
from unmask.lab.run.progress import DecodeProgress, ProgressTracker, StudyProgress
from unmask.lab.store import Store
from unmask.lab.study import Study
from unmask.request import TextModel
from unmask.stats.crossfit import Array
from unmask.tasks.base import DataDir

ROLE = "validation"


class RunDecoder:
    """The validation prompts of a study of one model and task; each policy is decoded once."""

    def __init__(
        self,
        model: TextModel,
        study: Study,
        store: Store,
        *,
        data_dir: DataDir = None,
        jobs: int | None = None,
        on_progress: Callable[[StudyProgress], None] = lambda now: None,
    ):
        (spec,) = study.models
        tasks, _ = prompts_of(study, data_dir)
        planned = jobs_of(study, spec, model, tasks)
        requests = [request for job in planned for request in job.requests]
        self.prompts = tuple(request.id for request in requests)
        self.planned = 0
        """Policies that are expected, for those who wait."""
        self._name, self._each = f"{spec.name}/{study.tasks[0]}", sum(request.steps for request in requests)
        self._tracker = ProgressTracker(study, tasks, store, time.monotonic(), on_progress)
        # As many canvases at a time as everywhere else: whoever asks for few has memory for few.
        small = replace(study, engine=replace(study.engine, live=study.engine.rows))
        self._cache = DecodeCache(model, small, {ROLE: requests}, self._heard)
        self._judge = Judge(model, [example for job in planned for example in job.members], jobs)

    def utilities(self, policy: Policy) -> Array:
        """Of every prompt, in the order of `prompts`; NaN where the answer could not be judged."""
        rows = self._cache.decode(policy, ROLE)
        judged = self._judge.judge([(row.prompt, row.answer) for row in rows])
        by_prompt: Mapping[str, float] = {
            row.prompt: verdict.utility for row, verdict in zip(rows, judged, strict=True)
        }
        return np.array([by_prompt[prompt] for prompt in self.prompts], dtype=np.float64)

    def _heard(self, decoded: int) -> None:
        total = max(self.planned, decoded + 1)
        now = DecodeProgress(self._name, self._cache.forwards, self._each * (total - decoded), self._each * total)
        self._tracker.decoded(now)
