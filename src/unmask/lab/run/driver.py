"""A study, carried out: prompts to jobs, jobs to branches, branches to shards. Resumes by itself."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow.compute as pc

from unmask.errors import ContractError
from unmask.lab.branch import PROPOSAL, BranchResult, EngineSettings, run_together
from unmask.lab.run.arms import decode_arms
from unmask.lab.run.jobs import Job, Members, about_task, in_groups, jobs_of, prompts_of, provenance
from unmask.lab.run.judging import Judge, JudgedAnswer
from unmask.lab.run.progress import ProgressTracker, StudyProgress, progress_of
from unmask.lab.run.queue import Finish, work_in_groups
from unmask.lab.run.tables import branches_table, readings_table, states_table
from unmask.lab.store import Store
from unmask.lab.store.failures import ATTEMPTS, Failure, Failures
from unmask.lab.study import Study
from unmask.lab.study_models import ModelSpec
from unmask.request import TextModel
from unmask.tasks.base import DataDir
from unmask.versions import versions

Load = Callable[[ModelSpec], TextModel]
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
    study: Study,
    store: Store,
    load: Load,
    *,
    data_dir: DataDir = None,
    jobs: int | None = None,
    naive: bool = False,
    retry_failed: bool = False,
    on_progress: Callable[[StudyProgress], None] = lambda now: None,
    on_failure: Callable[[Failure], None] = lambda failure: None,
) -> RunOutcome:
    """Do what is not done yet. Returns when every shard is there or set aside, or the budget is spent.

    `retry_failed` forgets what failed before. `on_failure` hears of every attempt that fails.
    """
    began = time.monotonic()
    stop, once, failures = _budget(study, began), _kept(load), Failures(store.folder)
    if retry_failed:
        failures.forget_all()
    tasks, unavailable = prompts_of(study, data_dir)
    for task, roles in tasks.items():
        store.note("tasks", task, about_task(study, task, roles))
    for task, reason in unavailable.items():
        store.note("tasks", task, {"unavailable": reason})
    tracker = ProgressTracker(study, tasks, store, began, on_progress)

    def lost(failure: Failure) -> None:
        tracker.lost(failure)
        on_failure(failure)

    branching = _Branching(study, store, tasks, replace(study.engine, merge=not naive), jobs, tracker, stop, lost)
    stopped = branching.of_models(once, failures)
    if not stopped:
        _check_scorers(study, store)
    if not stopped and study.end_to_end:
        stopped = decode_arms(study, store, once, tasks, jobs=jobs, stop=stop, tell=tracker.decoded, lost=lost)
    tracker.refresh()
    failed = tuple(failures.set_aside())
    stopped = stopped or in_words(failed)
    return RunOutcome(not stopped, stopped, {} if stopped else store.content_hash(), unavailable, failed)


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
    kept: dict[str, TextModel] = {}

    def once(spec: ModelSpec) -> TextModel:
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


@dataclass(frozen=True)
class _Branching:
    """The branches of a study, shard by shard."""

    study: Study
    store: Store
    tasks: Members
    engine: EngineSettings
    jobs: int | None
    tracker: ProgressTracker
    stop: Callable[[], str]
    lost: Callable[[Failure], None]

    def of_models(self, load: Load, failures: Failures) -> str:
        """The shards of all models. Returns why it stopped early, empty if it did not."""
        for spec in self.study.models:
            if _nothing_to_do(self.store, spec, failures):
                continue
            if reason := self.of_model(spec, load(spec)):
                return reason
        return ""

    def of_model(self, spec: ModelSpec, model: TextModel) -> str:
        """The shards of one model. Returns why it stopped early, empty if it did not."""
        work = jobs_of(self.study, spec, model, self.tasks)
        self.store.note("models", spec.name, provenance(spec, model, work))
        self.tracker.planned[spec.name] = len(work)
        self.tracker.start()
        plan = self.study.plan(spec.reference)

        def do(together: Sequence[Job]) -> list[Finish]:
            started = time.monotonic()
            heard = self.tracker.inside(spec.name, together[0].shard.name, len(together))
            blocks = run_together(model.denoiser, plan, [job.requests for job in together], self.engine, heard)
            seconds = _shares(time.monotonic() - started, blocks)
            pairs = list(zip(together, blocks, strict=True))
            self.tracker.computed({job.shard.name: progress_of(block) for job, block in pairs})
            return [
                partial(self._finish, model, spec.reference, job, block, spent)
                for (job, block), spent in zip(pairs, seconds, strict=True)
            ]

        pending = [job for job in work if not self.store.finished(job.shard)]
        return work_in_groups(
            *(self.store, pending, lambda job: job.shard, partial(in_groups, self.engine), do),
            *(self.stop, self.tracker.refresh, self.lost, lambda job: self.tracker.finished(job.shard.name)),
        )

    def _finish(self, model: TextModel, reference: str, job: Job, block: BranchResult, seconds: float) -> None:
        """Judge and write: by another thread, while the next forwards run."""
        started = time.monotonic()
        answers = [(branch.prompt, branch.answer) for branch in block.distinct]
        judged = Judge(model, job.members, self.jobs, self.study.scoring).judge(answers)
        self._write(job, reference, block, judged, lambda: seconds + time.monotonic() - started)

    def _write(
        self, job: Job, reference: str, block: BranchResult, judged: list[JudgedAnswer], seconds: Callable[[], float]
    ) -> None:
        """Candidates' branches and proposals go into tables of their own."""
        lines = list(zip(block.distinct, block.rollouts, judged, strict=True))
        candidates = [line for line in lines if line[0].candidate != PROPOSAL]
        proposals = [
            (branch._replace(rollout=rollout), verdict)
            for branch, rollouts, verdict in lines
            if branch.candidate == PROPOSAL
            for rollout in rollouts
        ]
        references = {axis: next(iter(named)) for axis, named in self.study.sets(reference).items()}
        branches, own, verdicts = zip(*candidates, strict=True)
        tables = (
            states_table(job.shard, block.paths),
            branches_table(job.shard, branches, own, verdicts, references),
            readings_table(job.shard, block.readings, proposals),
        )
        every = [verdict for _, own, verdict in candidates for _ in own]
        self.store.write(job.shard, *tables[:2], _info(job, block, every, seconds()), tables[2])


def _shares(seconds: float, blocks: Sequence[BranchResult]) -> list[float]:
    """What each of several blocks took, by its share of the passes."""
    calls = [block.report.calls for block in blocks]
    return [seconds * own / max(1, sum(calls)) for own in calls]


def _info(job: Job, block: BranchResult, judged: list[JudgedAnswer], seconds: float) -> dict[str, Any]:
    """What a shard says of itself."""
    utilities = [verdict.utility for verdict in judged if not math.isnan(verdict.utility)]
    report, total = block.report, block.report.total
    return {
        "shard": asdict(job.shard),
        "prompts": [request.id for request in job.requests],
        "states": sum(len(path.sampled) for path in block.paths),
        "branches": len(judged),
        "judged": len(utilities),
        "utility": math.fsum(utilities),
        "forwards": {"naive": total.naive, "done": total.done, "trajectory": report.trajectory}
        | {"recalled": report.recalled, "calls": report.calls},
        "axes": {axis: asdict(work) for axis, work in report.axes.items()},
        "seconds": seconds,
        "versions": versions(),
    }


def _check_scorers(study: Study, store: Store) -> None:
    """Stop where a scoring function of the user's has raised for every answer: that is no measurement."""
    for task in study.own:
        infos = [info for info in store.infos() if info["shard"]["task"] == task]
        if infos and not any(info["judged"] for info in infos):
            table = store.table("branches", ("task", "reason"))
            reason = table.filter(pc.equal(table["task"], task))["reason"][0].as_py()
            raise ContractError(
                f"no answer to {task} could be scored ({reason}); allowed: a function that raises for some answers at "
                "most; correct it and begin in another folder"
            )
