"""A study, in the order of the paper's appendix "State Sampling and Utility Evaluation".

    prompts      disjoint ranges of prompts for validation and for evaluation        `load_examples`
    states       the reference decodes every prompt; spaced states are kept          `sample_states`
    branches     every candidate and every proposal is tried at every state, and     `branch`
                 the reference continues each to its end, rollout by rollout
    utilities    the answer of every branch is scored                                `score_answers`
    choices      validation prompts choose the fixed action, the stages, the         `fit_calibrations`
                 detector, its thresholds and the gate
    whole runs   the chosen arms decode evaluation prompts from beginning to end;    `decode_arms`
                 a random gate with the coverage of the selective arm is one of them

Four things that a reader of the paper looks for:

    fixed action             `choose_fixed`: the best mean utility over validation states; and for whole runs the best
                             candidate on whole validation prompts, the end-to-end fixed action
    detector                 `fit_detector`, called by `stats.protocol.fit_calibration`: validation states alone
    random gate's coverage   `arms._decode_gate_and_control`: share of its steps with a signal at which the selective
                             arm, decoded on the same evaluation prompts, left the fixed action
    a rollout's seed         `branching.random_stream`: the study's seed, the prompt, the step and the rollout's
                             number, never the candidate; so candidates of a state share random numbers

`run_study` goes through these steps. What is finished stays in the store, shard by shard, so a run that was stopped
goes on where it was. This process and a cluster differ in the executor alone. `unmask.lab.analysis` computes the
held-out numbers from the tables that a study leaves.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow.compute as pc

from unmask.api import LoadedModel
from unmask.base.environment import versions
from unmask.base.errors import ContractError, OtherStudy, warn_once
from unmask.core import Policy, Search
from unmask.lab.branching import (
    PROPOSAL,
    RECOMPUTED,
    REFERENCE_RUN,
    SAVINGS,
    BatchSettings,
    BranchFrames,
    BranchProgress,
    branch,
)
from unmask.lab.cluster import Executor, Ray, Shared, open_executor
from unmask.lab.store import ATTEMPTS, Failure, Shard, Store, fingerprint
from unmask.lab.study.arms import PromptDecoder, PromptGroup, decode_arms, decode_group
from unmask.lab.study.config import ROLES, ModelSpec, StudyConfig, describe_methods
from unmask.lab.study.jobs import (
    Examples,
    Job,
    JobEvents,
    Outcomes,
    ShardContent,
    Work,
    describe_model,
    group_jobs,
    plan_jobs,
    run_jobs,
)
from unmask.lab.study.progress import ProgressTracker, StudyProgress
from unmask.lab.study.prompts import add_texts, load_examples, score_answers, score_texts
from unmask.lab.study.tables import decodes_table, shard_tables
from unmask.lab.study.validation import DRAWS, FURTHER_DRAWS, AxisCalibration, MissingResult, fit_calibrations
from unmask.tasks import DataDir, Example


@dataclass(frozen=True)
class StudyOutcome:
    """How a run of a study ended."""

    complete: bool
    reason: str
    """Why it is not complete; empty if it is."""
    hashes: Mapping[str, str]
    """Content hashes by table, of a complete study."""
    unavailable: Mapping[str, str] = field(default_factory=dict)
    """Tasks whose data is missing, and why; nothing was measured on them."""
    failures: tuple[Failure, ...] = ()
    """Shards that were set aside."""


@dataclass
class StudyRun:
    """What all steps of a run have in common."""

    study: StudyConfig
    store: Store
    executor: Executor
    examples: Examples
    settings: BatchSettings
    sandbox_workers: int | None
    tracker: ProgressTracker
    stop: Callable[[], str]
    events: JobEvents
    _shared: "Shared[tuple[StudyConfig, Examples]] | None" = None
    _planned: tuple[str, "PlannedModel"] | None = None

    @property
    def shared_study(self) -> "Shared[tuple[StudyConfig, Examples]]":
        """The study and its examples, as calls on any worker read them."""
        if self._shared is None:
            self._shared = self.executor.share((self.study, self.examples))
        return self._shared

    def plan(self, spec: ModelSpec) -> "PlannedModel":
        """Plan the shards of a model where the model is, because its tokenizer decides; and note them in the store."""
        if self._planned is None or self._planned[0] != spec.name:
            self._planned = spec.name, self.executor.submit(plan_model, spec, self.shared_study, spec).result()
        # Refused if the store has another checkpoint or kind of device.
        self.store.set_metadata("models", spec.name, self._planned[1].provenance)
        return self._planned[1]


def run_study(
    study: StudyConfig | str | Path,
    store: Store | str | Path | None = None,
    load: Callable[[ModelSpec], LoadedModel] = ModelSpec.load,
    *,
    cluster: Ray | Executor | None = None,
    data_dir: DataDir = None,
    sandbox_workers: int | None = None,
    naive: bool = False,
    retry_failed: bool = False,
    on_progress: Callable[[StudyProgress], None] = lambda now: None,
    on_failure: Callable[[Failure], None] = lambda failure: None,
    on_wait: Callable[[str], None] = lambda text: None,
) -> StudyOutcome:
    """Do what is not done yet. Returns when every shard is there or set aside, or the budget is spent.

    `study` may be the path of a study file. `store` is one that the caller closes, or a folder or address; by default
    `out/` and the study's name. On a `cluster` workers load models with `load` and compute, while this process plans
    and stores. `sandbox_workers` programs run side by side to score code. `naive` runs every branch by itself.
    `retry_failed` forgets what failed before. `on_failure` gets every attempt that fails, `on_wait` for whose shards
    this process waits.
    """
    began = time.monotonic()
    study = study if isinstance(study, StudyConfig) else StudyConfig.read(Path(study))
    with ExitStack() as stack:
        if not isinstance(store, Store):
            store = stack.enter_context(Store.create(f"out/{study.name}" if store is None else store, study.config))
        if retry_failed:
            store.failures.forget_all()

        # Prompts of disjoint roles. Every data file is read before the first forward.
        examples, unavailable = load_examples(study, data_dir)
        for task, roles in examples.items():
            store.set_metadata("tasks", task, task_metadata(study, task, roles))
        for task, reason in unavailable.items():
            warn_once(f"the study leaves {task} out: {reason}")
            store.set_metadata("tasks", task, {"unavailable": reason})

        tracker = ProgressTracker(study, examples, store, began, on_progress)
        executor = stack.enter_context(open_executor(cluster, load))

        def on_failed_attempt(failure: Failure) -> None:
            tracker.count_failure(failure)
            on_failure(failure)

        events = JobEvents(
            on_stored=tracker.count_stored,
            on_found=tracker.count_found,
            on_failure=on_failed_attempt,
            on_wait=on_wait,
            **({} if executor.is_local else {"on_tick": tracker.report_running}),
        )
        stop = partial(_budget_spent, study, began)
        settings = replace(study.engine, merge=not naive)
        if not executor.is_local:
            # Many shards are scored side by side there.
            sandbox_workers = sandbox_workers or 1
        run = StudyRun(study, store, executor, examples, settings, sandbox_workers, tracker, stop, events)

        # States, branches and utilities of all prompts; then choices on validation prompts and whole runs with them.
        stopped = branch_all_prompts(run)
        if not stopped:
            check_scorers(study, store)
        if not stopped and study.end_to_end:
            stopped = decode_all_arms(run)

        tracker.count_found()
        failed = tuple(store.failures.set_aside())
        reason = stopped or _why_incomplete(failed, unavailable)
        return StudyOutcome(not reason, reason, {} if reason else store.finish(), unavailable, failed)


def task_metadata(study: StudyConfig, task: str, roles: Mapping[str, Sequence[Example]]) -> dict[str, Any]:
    """Describe a task for the manifest: versions and hashes of its prompts."""
    remasks = 0.0
    if study.revision is not None:
        remasks = study.revision.expected_remasks(study.task(task).max_new_tokens, study.steps[task])
    data = fingerprint({role: [[e.id, e.prompt, e.target] for e in members] for role, members in roles.items()})
    return {"version": study.task(task).version, "data": data, "expected_remasks": round(remasks, 3)}


def _budget_spent(study: StudyConfig, began: float) -> str:
    """Return why to stop once the minutes of the study are over; an empty text before that."""
    minutes = study.budget.minutes
    over = minutes is not None and time.monotonic() - began > 60 * minutes
    return f"the budget of {minutes:g} minutes is spent" if over else ""


def _why_incomplete(failed: Sequence[Failure], unavailable: Mapping[str, str]) -> str:
    reasons = []
    if failed:
        many = "1 shard was" if len(failed) == 1 else f"{len(failed)} shards were"
        reasons.append(f"{many} set aside after {ATTEMPTS} attempts (the first: {failed[0].name}: {failed[0].error})")
    reasons += [f"{task} was left out: {reason}" for task, reason in unavailable.items()]
    return "; ".join(reasons)


# States, branches and utilities


def branch_all_prompts(run: StudyRun) -> str:
    """Branch and score the prompts of all models. Returns why it stopped early, empty if it did not."""
    store = run.store
    for spec in run.study.models:
        noted = store.manifest["models"].get(spec.name)
        done = {*store.names(), *(failure.name for failure in store.failures.set_aside())}
        if noted is not None and set(noted["shards"]) <= done:
            # All its shards are there or set aside: the model need not be loaded.
            continue
        planned = run.plan(spec)
        run.tracker.start_branching(spec.name, len(planned.jobs))

        def start(jobs: Sequence[Job], spec: ModelSpec = spec, planned: PlannedModel = planned) -> "Future[Outcomes]":
            # A callback cannot travel: a cluster reports shards when they are stored.
            report = (run.tracker.watch_group(jobs),) if run.executor.is_local else ()
            arguments = (run.shared_study, spec, planned.provenance, run.settings, jobs, *report)
            score = partial(score_branches, workers=run.sandbox_workers, scoring=run.study.scoring)
            return run.executor.submit(branch_prompts, spec, *arguments, then=score)

        group = partial(group_jobs, run.settings, workers=run.executor.workers)
        pending = [job for job in planned.jobs if not store.is_finished(job.shard)]
        if reason := run_jobs(run.executor, pending, store, Work(start, group), run.stop, run.events):
            return reason
    return ""


class PlannedModel(NamedTuple):
    """The shards of a model, and its entry in the manifest."""

    jobs: list[Job]
    provenance: dict[str, Any]


def plan_model(model: LoadedModel, shared: "Shared[tuple[StudyConfig, Examples]]", spec: ModelSpec) -> PlannedModel:
    """Plan the shards of a model."""
    study, examples = shared.open()
    jobs = plan_jobs(study, spec, model, examples)
    return PlannedModel(jobs, describe_model(spec, model, jobs))


class BranchedShard(NamedTuple):
    """The branches of a shard with the texts of their answers, before these are scored."""

    job: Job
    frames: BranchFrames
    references: Mapping[str, str]
    """The reference's candidate by axis."""
    seconds: float
    versions: Mapping[str, str]


def branch_prompts(
    model: LoadedModel,
    shared: "Shared[tuple[StudyConfig, Examples]]",
    spec: ModelSpec,
    expected: Mapping[str, object],
    settings: BatchSettings,
    jobs: Sequence[Job],
    on_progress: Callable[[BranchProgress], None] = lambda now: None,
) -> list[BranchedShard]:
    """Branch the prompts of several shards together, so that forwards are full; each has what it would have alone."""
    study, _ = shared.open()
    found = describe_model(spec, model, [])
    if differ := sorted(key for key in found if key != "shards" and found[key] != expected[key]):
        values = "; ".join(f"{key} {found[key]!r} here, {expected[key]!r} before" for key in differ)
        raise OtherStudy(
            f"the workers' models are not the same ({values[:300]}); allowed: one checkpoint and one kind of device; "
            "give the study nodes of one kind"
        )
    began = time.monotonic()
    requests = [request for job in jobs for request in job.requests]
    frames = branch(model.denoiser, study.branch_plan(spec.reference), requests, settings, on_progress)
    references = {axis: next(iter(named)) for axis, named in study.candidate_sets(spec.reference).items()}
    # Each shard took its share of the passes.
    per_call = (time.monotonic() - began) / max(1, frames.calls)
    shards = []
    for job, own in zip(jobs, frames.split([len(job.requests) for job in jobs]), strict=True):
        own = own._replace(branches=add_texts(own.branches, job.requests, model.codec))
        shards.append(BranchedShard(job, own, references, per_call * own.calls, versions()))
    return shards


def score_branches(shards: Sequence[BranchedShard], workers: int | None, scoring: str) -> Outcomes:
    """Give every branch the utility of its answer and make the tables; an error belongs to the shard that raised it."""
    outcomes: list[ShardContent | BaseException] = []
    for shard in shards:
        try:
            outcomes.append(_score_shard(shard, workers, scoring))
        # SystemExit too, by which a user's scorer may end the program; and what stops the run must not lose the others.
        except BaseException as error:
            outcomes.append(error)
    return outcomes


def _score_shard(branched: BranchedShard, workers: int | None, scoring: str) -> ShardContent:
    began, job, frames = time.monotonic(), branched.job, branched.frames
    branches = score_answers(frames.branches, job.examples, workers=workers, scoring=scoring)
    tables = shard_tables(job.shard, frames._replace(branches=branches), branched.references)
    utilities = branches.loc[branches["candidate"] != PROPOSAL, "utility"]
    # Row-forwards by axis; those of the reference's own run and those that were computed again stand beside them.
    costs = frames.costs.groupby("axis", sort=False)[["branches", "done", *SAVINGS]].sum()
    beside = costs.loc[[REFERENCE_RUN, RECOMPUTED], "done"].tolist()
    axes = costs.drop([REFERENCE_RUN, RECOMPUTED])
    done, saved = int(axes["done"].sum()), int(axes[list(SAVINGS)].to_numpy().sum())
    forwards = {"naive": done + saved, "done": done, "trajectory": beside[0], "recalled": beside[1]}
    info = {
        "prompts": [request.id for request in job.requests],
        "states": len(frames.states),
        "branches": len(utilities),
        "judged": int(utilities.count()),
        "utility": math.fsum(utilities.dropna()),
        "forwards": {**forwards, "calls": frames.calls},
        "axes": axes.to_dict("index"),
        "seconds": branched.seconds + time.monotonic() - began,
        "versions": dict(branched.versions),
    }
    return ShardContent(tables, info)


def check_scorers(study: StudyConfig, store: Store) -> None:
    """Stop where a user's scoring function has raised for every answer: that is no measurement."""
    for task in study.own:
        infos = [info for shard, info in store.infos().items() if shard.task == task]
        if infos and not any(info["judged"] for info in infos):
            table = store.read_arrow("branches", ("task", "reason"))
            reason = table.filter(pc.equal(table["task"], task))["reason"][0].as_py()
            raise ContractError(
                f"no answer to {task} could be scored ({reason}); allowed: a function that raises for some answers at "
                "most; correct it and begin in another folder"
            )


# Choices and whole runs


@dataclass(frozen=True)
class DecodeJob:
    """The whole runs of one model and task, and the choices that they are made of."""

    shard: Shard
    chosen: Mapping[str, AxisCalibration]
    """By diagnostic."""
    missing: Mapping[str, MissingResult]
    """Diagnostics that nothing can be chosen for, with the reason."""


def decode_all_arms(run: StudyRun) -> str:
    """Choose on validation prompts, and decode the chosen arms. Returns why it stopped early, empty if it did not.

    All branches of a model and task must be there, for they choose what is decoded: where a shard was set aside nothing
    is decoded, or a later run that completes it would choose something else.
    """
    study, store = run.study, run.store
    calibrations = fit_calibrations(store, study.gates)
    incomplete = {(failure.model, failure.task) for failure in store.failures.set_aside()}
    jobs = {spec.name: plan_decodes(store, spec, calibrations, study.searches) for spec in study.models}
    # Whole runs that are there, or that cannot be made, are not ahead any more.
    ahead = {(job.shard.model, job.shard.task) for of_model in jobs.values() for job in of_model}
    finished = {(s.model, s.task) for s in store.infos("decodes")}
    for key in [*run.tracker.whole_runs]:
        if key not in ahead or key in finished | incomplete:
            run.tracker.finish_decoding(*key)
    for spec in study.models:
        pending = [
            job
            for job in jobs[spec.name]
            if not store.is_finished(job.shard) and (spec.name, job.shard.task) not in incomplete
        ]
        if not pending:
            continue
        planned = run.plan(spec)

        def start(
            decodes: Sequence[DecodeJob], spec: ModelSpec = spec, planned: PlannedModel = planned
        ) -> "Future[Outcomes]":
            return run.executor.run_in_driver(decode_and_score, run, spec, planned.jobs, decodes[0])

        if reason := run_jobs(run.executor, pending, store, Work(start), run.stop, run.events):
            return reason
    return ""


def plan_decodes(
    store: Store,
    spec: ModelSpec,
    chosen: Mapping[tuple[str, str, str], AxisCalibration | MissingResult],
    searches: Mapping[str, Search],
) -> list[DecodeJob]:
    """Plan the whole runs of a model without loading it; refuse a store that has others in their place.

    The key of their shard is a hash of the names of the shards of branches, which stand for study, model, task and
    prompts, and of everything that was chosen.
    """
    shards = store.manifest["models"][spec.name]["shards"]
    there = {(shard.model, shard.task): shard for shard in store.infos("decodes")}
    jobs = []
    for task in dict.fromkeys(task for model, task, _ in chosen if model == spec.name):
        of_task = {name: one for (model, other, name), one in chosen.items() if (model, other) == (spec.name, task)}
        usable = {name: one for name, one in of_task.items() if isinstance(one, AxisCalibration)}
        missing = {name: one for name, one in of_task.items() if isinstance(one, MissingResult)}
        calibrations = {name: one.calibration.to_json() for name, one in usable.items()}
        reasons = {name: one.reason for name, one in missing.items()}
        names = sorted(name for name, about in shards.items() if about["task"] == task)
        further = {name: {g: c.to_json() for g, c in one.gates.items()} for name, one in usable.items() if one.gates}
        made_of = [names, calibrations, reasons, DRAWS, *([further, FURTHER_DRAWS] if further else [])]
        made_of += [describe_methods(searches)] if searches else []
        shard = Shard(kind="decodes", model=spec.name, task=task, depends=fingerprint(made_of))
        if there.get((spec.name, task), shard) != shard:
            raise OtherStudy(
                f"{spec.name}, {task} was decoded end to end with other calibrations or searches than the study gives "
                f"now; allowed: the same ones; remove {there[spec.name, task].name!r} from "
                f"{f'{store.folder}/decodes'!r} to decode it again"
            )
        jobs.append(DecodeJob(shard, usable, missing))
    return jobs


def decode_and_score(run: StudyRun, spec: ModelSpec, planned: Sequence[Job], job: DecodeJob) -> Outcomes:
    """Decode and score the arms of one model and task."""
    began, study, executor, task = time.monotonic(), run.study, run.executor, job.shard.task
    of_task = [one for one in planned if one.shard.task == task]
    requests = {role: [r for one in of_task if one.shard.split == role for r in one.requests] for role in ROLES}
    examples = [example for one in of_task for example in one.examples]

    def submit(policy: Policy | Search, group: PromptGroup) -> "Future[pd.DataFrame]":
        return executor.submit(decode_group, spec, study.seed, study.temperature, policy, group)

    def score_on_cluster(pairs: Any, workers: int | None, scoring: str) -> Sequence[tuple[float, str]]:
        scored: Sequence[tuple[float, str]]
        scored = executor.submit_without_model(score_texts, pairs, workers, scoring).result()
        return scored

    score = partial(
        score_answers,
        examples=examples,
        workers=run.sandbox_workers,
        scoring=study.scoring,
        score=None if executor.is_local else score_on_cluster,
    )
    decoder = PromptDecoder(
        requests,
        study.engine,
        submit,
        ahead=not executor.is_local,
        on_batch=lambda: run.tracker.report_decoded(spec.name, task, decoder.forwards),
    )
    arms = decode_arms(study, spec, job.chosen, decoder, score)
    run.tracker.finish_decoding(spec.name, task)
    info = {
        "reference": spec.reference,
        "axes": arms.axes,
        "missing": {name: one.reason for name, one in job.missing.items()} | arms.missing,
        "joint": arms.joint,
        **({"searches": arms.searches} if study.searches else {}),
        "prompts": {role: len(of_role) for role, of_role in requests.items()},
        "policies": decoder.policies,
        "forwards": decoder.forwards,
        "seconds": time.monotonic() - began,
        "versions": versions(),
    }
    table = decodes_table(job.shard, arms.frame, named=study.has_renamed_diagnostics)
    return [ShardContent({"decodes": table}, info)]
