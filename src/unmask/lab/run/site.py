"""Where a study runs: what the protocol asks of this process, or of workers elsewhere."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from unmask.api import LoadedModel, Request
from unmask.lab.branching import BatchSettings
from unmask.lab.run.decode_cache import DecodeCache
from unmask.lab.run.jobs import Job, Members, jobs_of, provenance
from unmask.lab.run.judging import Judge
from unmask.lab.run.progress import ProgressTracker
from unmask.lab.run.queue import Piece
from unmask.lab.store import Failure, Shard, Store
from unmask.lab.study import Study
from unmask.lab.study_models import ModelSpec
from unmask.tasks import Example


class PlannedWork(NamedTuple):
    """The shards of a model, and what the manifest keeps of it."""

    jobs: list[Job]
    provenance: dict[str, Any]


def planned_work(study: Study, spec: ModelSpec, model: LoadedModel, tasks: Members) -> PlannedWork:
    """Where the model is."""
    work = jobs_of(study, spec, model, tasks)
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

    def planned(self, spec: ModelSpec) -> PlannedWork:
        """The work of a model: its tokenizer and device decide."""
        ...

    def branch(self, spec: ModelSpec, pending: Sequence[Job]) -> str:
        """Compute, judge and store shards. Returns why it stopped early, empty if it did not."""
        ...

    def whole_runs(
        self,
        spec: ModelSpec,
        requests: Mapping[str, Sequence[Request]],
        members: Sequence[Example],
        heard: Callable[[int], None],
    ) -> tuple[DecodeCache, Judge]:
        """Decodes the prompts of a unit from beginning to end, and judges the answers."""
        ...

    def each(self, pending: Sequence[Piece], place: Callable[[Piece], Shard], do: Callable[[Piece], None]) -> str:
        """Do every piece. Returns why it stopped early, empty if it did not."""
        ...
