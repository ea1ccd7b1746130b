"""Validation prompts decoded from beginning to end, and judged: what a calibration knows of whole runs."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unmask.api import LoadedModel
from unmask.core import Policy
from unmask.lab.cluster.driver import on_cluster
from unmask.lab.cluster.where import Ray
from unmask.lab.store import Store
from unmask.lab.study import Study
from unmask.lab.study.jobs import load_examples
from unmask.lab.study.progress import DecodeProgress, ProgressTracker, StudyProgress
from unmask.lab.study.prompts import Known
from unmask.lab.study.site import Site, StudyOrder, ThisProcess
from unmask.lab.study_models import ModelSpec
from unmask.stats import Array
from unmask.tasks import DataDir

ROLE = "validation"


@dataclass(frozen=True)
class Cluster:
    """Workers that decode in place of this process."""

    where: Ray
    load: Callable[[ModelSpec], Any]
    """How each gets the model."""


class RunDecoder:
    """The validation prompts of a study of one model and task; each policy is decoded once."""

    def __init__(
        self,
        model: LoadedModel,
        study: Study,
        store: Store,
        *,
        data_dir: DataDir = None,
        jobs: int | None = None,
        on_progress: Callable[[StudyProgress], None] = lambda now: None,
        cluster: Cluster | None = None,
    ):
        """On a cluster its workers decode, and the model here only stands for theirs."""
        (spec,) = study.models
        tasks, _ = load_examples(study, data_dir)
        # As many canvases at a time as everywhere else: whoever asks for few has memory for few.
        small = replace(study, engine=replace(study.engine, live=study.engine.rows))
        self._tracker = ProgressTracker(study, tasks, store, time.monotonic(), on_progress)
        self._stack = ExitStack()
        order = StudyOrder(small, store, tasks, small.engine, jobs, self._tracker, str, lambda failure: None)
        site: Site = ThisProcess(order, lambda spec: model)
        if cluster is not None:
            site = self._stack.enter_context(on_cluster(cluster.where, order, cluster.load))
        planned = site.planned(spec).jobs
        requests = [request for job in planned for request in job.requests]
        self.prompts = tuple(request.id for request in requests)
        self.planned = 0
        """Policies that are expected, for those who wait."""
        self._name, self._each = f"{spec.name}/{study.tasks[0]}", sum(request.steps for request in requests)
        self._examples = [example for job in planned for example in job.members]
        self._site = site
        self._known: Known = {}
        self._decoder = site.decoder(spec, {ROLE: requests}, self._report)

    def __enter__(self) -> "RunDecoder":
        return self

    def __exit__(self, *details: object) -> None:
        """Workers are let go."""
        self._stack.close()

    def utilities(self, policy: Policy) -> Array:
        """Of every prompt, in the order of `prompts`; NaN where the answer could not be judged."""
        frame = self._site.score(self._decoder.decode(policy, ROLE), self._examples, self._known)
        return frame.set_index("prompt")["utility"].loc[list(self.prompts)].to_numpy(np.float64)

    def _report(self) -> None:
        decoded = self._decoder.policies
        total = max(self.planned, decoded + 1)
        now = DecodeProgress(self._name, self._decoder.forwards, self._each * (total - decoded), self._each * total)
        self._tracker.decoded(now)
