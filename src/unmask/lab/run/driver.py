"""A study, carried out: prompts to jobs, jobs to branches, branches to shards. Resumes by itself."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path

import pyarrow.compute as pc

from unmask.api import LoadedModel, Request
from unmask.base.errors import ContractError
from unmask.lab.branching import BranchFrames, branch
from unmask.lab.cluster.driver import on_cluster
from unmask.lab.cluster.where import Ray
from unmask.lab.run.arms import decode_arms
from unmask.lab.run.blocks import computed_shard, finished_shard, shares
from unmask.lab.run.decode_cache import DecodeCache
from unmask.lab.run.jobs import Job, about_task, in_groups, prompts_of
from unmask.lab.run.judging import Judge
from unmask.lab.run.progress import ProgressTracker, StudyProgress, progress_of
from unmask.lab.run.queue import Finish, Piece, work_in_groups, work_through
from unmask.lab.run.site import PlannedWork, Site, StudyOrder, planned_work
from unmask.lab.store import ATTEMPTS, Failure, Failures, Shard, Store
from unmask.lab.study import Study
from unmask.lab.study_models import ModelSpec
from unmask.tasks import DataDir, Example

Load = Callable[[ModelSpec], LoadedModel]
"""Loads a model of the study."""


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended."""

    complete: bool
    stopped: str
    """Why it is not complete; empty if it is."""
    hashes: Mapping[str, str]
    unavailable: Mapping[str, str] = field(default_factory=dict)
    """Tasks that nothing was measured on, and why."""
    failed: tuple[Failure, ...] = ()
    """What was set aside."""


def run_study(
    study: Study | str | Path,
    store: Store | str | Path | None = None,
    load: Load = ModelSpec.load,
    *,
    data_dir: DataDir = None,
    jobs: int | None = None,
    naive: bool = False,
    retry_failed: bool = False,
    cluster: Ray | None = None,
    on_progress: Callable[[StudyProgress], None] = lambda now: None,
    on_failure: Callable[[Failure], None] = lambda failure: None,
    on_wait: Callable[[str], None] = lambda text: None,
) -> RunOutcome:
    """Do what is not done yet. Returns when every shard is there or set aside, or the budget is spent.

    `study` may be the path of a study file. `store` is one that the caller closes, or a folder or address; by default
    `out/` and the study's name. `where` is a cluster whose workers do it; this process then plans, books and stores.
    `retry_failed` forgets what failed before. `on_failure` hears of every attempt that fails,
    `on_wait` for whose shards this process waits.
    """
    began = time.monotonic()
    study = study if isinstance(study, Study) else Study.read(Path(study))
    with ExitStack() as stack:
        if not isinstance(store, Store):
            store = stack.enter_context(Store.create(f"out/{study.name}" if store is None else store, study.config))
        failures = store.failures
        if retry_failed:
            failures.forget_all()
        tasks, unavailable = prompts_of(study, data_dir)
        for task, roles in tasks.items():
            store.set_metadata("tasks", task, about_task(study, task, roles))
        for task, reason in unavailable.items():
            store.set_metadata("tasks", task, {"unavailable": reason})
        tracker = ProgressTracker(study, tasks, store, began, on_progress)

        def lost(failure: Failure) -> None:
            tracker.lost(failure)
            on_failure(failure)

        engine = replace(study.engine, merge=not naive)
        order = StudyOrder(study, store, tasks, engine, jobs, tracker, _budget(study, began), lost, on_wait)
        with _site(cluster, order, load) as site:
            stopped = _branches(order, site, failures)
            if not stopped:
                _check_scorers(study, store)
            if not stopped and study.end_to_end:
                stopped = decode_arms(study, store, site, tell=tracker.decoded)
        tracker.refresh()
        failed = tuple(failures.set_aside())
        stopped = stopped or in_words(failed)
        return RunOutcome(not stopped, stopped, {} if stopped else store.finish(), unavailable, failed)


def _site(cluster: Ray | None, order: StudyOrder, load: Load) -> AbstractContextManager[Site]:
    return nullcontext(ThisProcess(order, _kept(load))) if cluster is None else on_cluster(cluster, order, load)


def in_words(failed: Sequence[Failure]) -> str:
    """What was set aside; empty if nothing was."""
    if not failed:
        return ""
    many = "1 shard was" if len(failed) == 1 else f"{len(failed)} shards were"
    return f"{many} set aside after {ATTEMPTS} attempts (the first: {failed[0].name}: {failed[0].error})"


def _budget(study: Study, began: float) -> Callable[[], str]:
    """Says why to stop, once the minutes of the study are over."""
    minutes = study.budget.minutes

    def spent() -> str:
        over = minutes is not None and time.monotonic() - began > 60 * minutes
        return f"the budget of {minutes:g} minutes is spent" if over else ""

    return spent


def _kept(load: Load) -> Load:
    """Loads a model again only if another one was in between."""
    kept: dict[str, LoadedModel] = {}

    def once(spec: ModelSpec) -> LoadedModel:
        if spec.name not in kept:
            kept.clear()
            kept[spec.name] = load(spec)
        return kept[spec.name]

    return once


def _nothing_to_do(store: Store, spec: ModelSpec, failures: Failures) -> bool:
    """Whether a model need not be loaded: all its shards are there, or set aside."""
    noted = store.manifest["models"].get(spec.name)
    settled = {*store.names(), *(failure.name for failure in failures.set_aside())}
    return noted is not None and set(noted["shards"]) <= settled


def _branches(order: StudyOrder, site: Site, failures: Failures) -> str:
    """The shards of all models. Returns why it stopped early, empty if it did not."""
    store, tracker = order.store, order.tracker
    for spec in order.study.models:
        if _nothing_to_do(store, spec, failures):
            continue
        work = site.planned(spec)
        store.set_metadata("models", spec.name, work.provenance)
        tracker.planned[spec.name] = len(work.jobs)
        tracker.start()
        if reason := site.branch(spec, [job for job in work.jobs if not store.is_finished(job.shard)]):
            return reason
    return ""


@dataclass(frozen=True)
class ThisProcess:
    """A study where its model is."""

    order: StudyOrder
    load: Load

    def planned(self, spec: ModelSpec) -> PlannedWork:
        return planned_work(self.order.study, spec, self.load(spec), self.order.tasks)

    def branch(self, spec: ModelSpec, pending: Sequence[Job]) -> str:
        """Shard by shard: what is computed is judged and stored by another thread, while the next forwards run."""
        order, model = self.order, self.load(spec)
        plan, tracker = order.study.plan(spec.reference), order.tracker

        def do(together: Sequence[Job]) -> list[Finish]:
            started = time.monotonic()
            heard = tracker.inside(spec.name, together[0].shard.name, len(together))
            requests = [request for job in together for request in job.requests]
            frames = branch(model.denoiser, plan, requests, order.engine, heard)
            shards = frames.split([len(job.requests) for job in together])
            seconds = shares(time.monotonic() - started, shards)
            pairs = list(zip(together, shards, strict=True))
            tracker.computed({job.shard.name: progress_of(own) for job, own in pairs})
            return [
                partial(self._finish, model, spec.reference, job, own, spent)
                for (job, own), spent in zip(pairs, seconds, strict=True)
            ]

        return work_in_groups(
            *(order.store, pending, lambda job: job.shard, partial(in_groups, order.engine), do),
            *(order.stop, tracker.refresh, order.lost, lambda job: tracker.finished(job.shard.name), order.on_wait),
        )

    def _finish(self, model: LoadedModel, reference: str, job: Job, frames: BranchFrames, seconds: float) -> None:
        started, order = time.monotonic(), self.order
        computed = computed_shard(order.study, reference, job, frames, seconds)
        judge = Judge(model, job.members, order.jobs, order.study.scoring, requests=job.requests)
        judged = judge.judge(computed.answers)
        finished_shard(computed, judged, lambda: time.monotonic() - started).store(order.store)

    def whole_runs(
        self,
        spec: ModelSpec,
        requests: Mapping[str, Sequence[Request]],
        members: Sequence[Example],
        heard: Callable[[int], None],
    ) -> tuple[DecodeCache, Judge]:
        model, study = self.load(spec), self.order.study
        judge = Judge(model, members, self.order.jobs, study.scoring, requests=chain(*requests.values()))
        return DecodeCache(model, study, requests, heard), judge

    def each(self, pending: Sequence[Piece], place: Callable[[Piece], Shard], do: Callable[[Piece], None]) -> str:
        return work_through(self.order.store, pending, place, do, self.order.stop, lost=self.order.lost)


def _check_scorers(study: Study, store: Store) -> None:
    """Stop where a scoring function of the user's has raised for every answer: that is no measurement."""
    for task in study.own:
        infos = [info for shard, info in store.infos().items() if shard.task == task]
        if infos and not any(info["judged"] for info in infos):
            table = store.read_arrow("branches", ("task", "reason"))
            reason = table.filter(pc.equal(table["task"], task))["reason"][0].as_py()
            raise ContractError(
                f"no answer to {task} could be scored ({reason}); allowed: a function that raises for some answers at "
                "most; correct it and begin in another folder"
            )
