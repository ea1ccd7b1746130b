"""Where a study runs: what the protocol asks of this process, or of workers elsewhere."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import pandas as pd

from unmask.api import LoadedModel, Request
from unmask.core import Policy, Search
from unmask.lab.branching import BatchSettings
from unmask.lab.store import Failure, Shard, Store
from unmask.lab.study.arms import PromptDecoder, PromptGroup, decode_group
from unmask.lab.study.attempts import Finish, Piece, work_in_groups, work_through
from unmask.lab.study.config import Study
from unmask.lab.study.jobs import Job, Members, group_jobs, plan_jobs, provenance
from unmask.lab.study.progress import ProgressTracker, progress_of
from unmask.lab.study.prompts import Known, score_answers
from unmask.lab.study.shards import BranchedShard, branch_group, score_shard
from unmask.lab.study_models import ModelSpec
from unmask.tasks import Example

Load = Callable[[ModelSpec], LoadedModel]
"""Loads a model of the study."""


class PlannedWork(NamedTuple):
    """The shards of a model, and what the manifest keeps of it."""

    jobs: list[Job]
    provenance: dict[str, Any]


def planned_work(study: Study, spec: ModelSpec, model: LoadedModel, tasks: Members) -> PlannedWork:
    """Where the model is."""
    work = plan_jobs(study, spec, model, tasks)
    return PlannedWork(work, provenance(spec, model, work))


@dataclass(frozen=True)
class StudyOrder:
    """What is to be done, for whoever does it."""

    study: Study
    store: Store
    tasks: Members
    engine: BatchSettings
    jobs: int | None
    """Programs that are run side by side to judge answers."""
    tracker: ProgressTracker
    stop: Callable[[], str]
    """Says why to stop, empty for no reason."""
    lost: Callable[[Failure], None]
    """Hears of every attempt that fails."""
    on_wait: Callable[[str], None] = lambda text: None
    """Is told for whose shards this process waits."""


class Site(Protocol):
    """A place that has models, or can get them."""

    def plan_work(self, spec: ModelSpec) -> PlannedWork:
        """The work of a model: its tokenizer and device decide."""
        ...

    def branch(self, spec: ModelSpec, pending: Sequence[Job]) -> str:
        """Branch, score and store shards. Returns why it stopped early, empty if it did not."""
        ...

    def decoder(
        self, spec: ModelSpec, requests: Mapping[str, Sequence[Request]], on_batch: Callable[[], None]
    ) -> PromptDecoder:
        """Decodes the prompts of one task, given by role."""
        ...

    def score(self, frame: pd.DataFrame, examples: Sequence[Example], known: Known | None = None) -> pd.DataFrame:
        """Add utility and reason to a frame with texts of answers; `known` keeps scores from call to call."""
        ...

    def each(self, pending: Sequence[Piece], place: Callable[[Piece], Shard], do: Callable[[Piece], None]) -> str:
        """Do every piece. Returns why it stopped early, empty if it did not."""
        ...


@dataclass(frozen=True)
class ThisProcess:
    """A study where its model is."""

    order: StudyOrder
    load: Load
    loaded: dict[str, LoadedModel] = field(default_factory=dict)
    """The model that was used last, by name."""

    def model(self, spec: ModelSpec) -> LoadedModel:
        """The model, loaded again only if another one was in between."""
        if spec.name not in self.loaded:
            self.loaded.clear()
            self.loaded[spec.name] = self.load(spec)
        return self.loaded[spec.name]

    def plan_work(self, spec: ModelSpec) -> PlannedWork:
        return planned_work(self.order.study, spec, self.model(spec), self.order.tasks)

    def branch(self, spec: ModelSpec, pending: Sequence[Job]) -> str:
        """Group by group: branches are scored and stored by another thread while the next forwards run."""
        order, model, tracker = self.order, self.model(spec), self.order.tracker

        def do(together: Sequence[Job]) -> list[Finish]:
            heard = tracker.inside(spec.name, together[0].shard.name, len(together))
            branched = branch_group(model, order.study, spec, order.engine, together, heard)
            tracker.add_computed({one.job.shard.name: progress_of(one.frames) for one in branched})
            return [partial(finish, one) for one in branched]

        def finish(branched: BranchedShard) -> None:
            scored = score_shard(branched, model.codec, workers=order.jobs, scoring=order.study.scoring)
            scored.store(order.store)

        return work_in_groups(
            order.store,
            pending,
            lambda job: job.shard,
            partial(group_jobs, order.engine),
            do,
            order.stop,
            tracker.refresh,
            order.lost,
            lambda job: tracker.add_finished(job.shard.name),
            order.on_wait,
        )

    def decoder(
        self, spec: ModelSpec, requests: Mapping[str, Sequence[Request]], on_batch: Callable[[], None]
    ) -> PromptDecoder:
        study, model = self.order.study, self.model(spec)

        def submit(policy: Policy | Search, group: PromptGroup) -> "Future[pd.DataFrame]":
            future: Future[pd.DataFrame] = Future()
            future.set_result(decode_group(model, study.seed, study.temperature, policy, group))
            return future

        return PromptDecoder(requests, study.engine, submit, on_batch=on_batch)

    def score(self, frame: pd.DataFrame, examples: Sequence[Example], known: Known | None = None) -> pd.DataFrame:
        return score_answers(frame, examples, workers=self.order.jobs, scoring=self.order.study.scoring, known=known)

    def each(self, pending: Sequence[Piece], place: Callable[[Piece], Shard], do: Callable[[Piece], None]) -> str:
        return work_through(self.order.store, pending, place, do, self.order.stop, lost=self.order.lost)
