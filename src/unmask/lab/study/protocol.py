"""A study in the order of the paper's evaluation protocol, from prompts to tables. Resumes by itself.

    prompts      disjoint ranges of prompts for validation and for evaluation: `load_examples` (run/jobs.py)
    states       the reference decodes every prompt, and spaced states of its run are kept: `sample_states`
                 (branching/states.py)
    branches     every candidate and every proposal is tried at every state, and the reference continues each to the
                 end, rollout by rollout: `branch` (branching/graph.py); the random numbers of a rollout are a function
                 of prompt, step and rollout, so that candidates share them: `stream` (branching/plan.py)
    utilities    the answer of every branch is scored: `score_answers` (prompts.py)
    choices      validation prompts choose the fixed action, the stages, the detector and its thresholds: `choices`
                 (choose.py), `fit_calibration` (stats/protocol.py)
    whole runs   the arms that were chosen decode evaluation prompts from beginning to end, a random gate with the
                 coverage of the selective one among them: `decode_arms` (arms.py)

What is measured with these tables is `lab/analysis`. A stage is there or not, shard by shard: a run that was stopped
goes on where it was. Whether this process or workers of a cluster carry it out is the matter of the `Site`.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow.compute as pc

from unmask.base.environment import versions
from unmask.base.errors import ContractError, OtherStudy, warn_once
from unmask.core import Search
from unmask.lab.choose import DRAWS, Choice, Missing, choices, is_extension
from unmask.lab.cluster.driver import on_cluster
from unmask.lab.cluster.where import Ray
from unmask.lab.gates import FURTHER_DRAWS
from unmask.lab.searches import described
from unmask.lab.store import ATTEMPTS, Failure, Failures, Shard, Store, fingerprint
from unmask.lab.study.arms import decode_arms, is_staged
from unmask.lab.study.config import ROLES, Study
from unmask.lab.study.forecast import Decodes
from unmask.lab.study.jobs import Job, load_examples, task_metadata
from unmask.lab.study.progress import DecodeProgress, ProgressTracker, StudyProgress
from unmask.lab.study.site import Load, Site, StudyOrder, ThisProcess
from unmask.lab.study.tables import decodes_table
from unmask.lab.study_models import ModelSpec
from unmask.tasks import DataDir


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


def run_study(
    study: Study | str | Path,
    store: Store | str | Path | None = None,
    load: Load = ModelSpec.load,
    *,
    cluster: Ray | None = None,
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
    `out/` and the study's name. On a `cluster` workers compute, and this process plans and stores.
    `sandbox_workers` programs run side by side to score code. `retry_failed` forgets what failed before. `on_failure`
    gets every attempt that fails, `on_wait` for whose shards this process waits.
    """
    began = time.monotonic()
    study = study if isinstance(study, Study) else Study.read(Path(study))
    with ExitStack() as stack:
        if not isinstance(store, Store):
            store = stack.enter_context(Store.create(f"out/{study.name}" if store is None else store, study.config))
        failures = store.failures
        if retry_failed:
            failures.forget_all()

        # Prompts: disjoint roles, and every data file is read before the first forward.
        examples, unavailable = load_examples(study, data_dir)
        for task, roles in examples.items():
            store.set_metadata("tasks", task, task_metadata(study, task, roles))
        for task, reason in unavailable.items():
            warn_once(f"the study leaves {task} out: {reason}")
            store.set_metadata("tasks", task, {"unavailable": reason})

        tracker = ProgressTracker(study, examples, store, began, on_progress)

        def on_failed_attempt(failure: Failure) -> None:
            tracker.count_failure(failure)
            on_failure(failure)

        settings = replace(study.engine, merge=not naive)
        stop = _budget(study, began)
        order = StudyOrder(study, store, examples, settings, sandbox_workers, tracker, stop, on_failed_attempt, on_wait)
        with _site(cluster, order, load) as site:
            # States, branches and utilities of all prompts.
            stopped = branch_prompts(order, site, failures)
            if not stopped:
                _check_scorers(study, store)
            # Choices on validation prompts, then whole runs of the arms on evaluation prompts.
            if not stopped and study.end_to_end:
                stopped = decode_tasks(study, store, site, on_progress=tracker.report_decoding)
        tracker.refresh()
        failed = tuple(failures.set_aside())
        reason = stopped or _in_words(failed, unavailable)
        return StudyOutcome(not reason, reason, {} if reason else store.finish(), unavailable, failed)


def _site(cluster: Ray | None, order: StudyOrder, load: Load) -> AbstractContextManager[Site]:
    return nullcontext(ThisProcess(order, load)) if cluster is None else on_cluster(cluster, order, load)


def _in_words(failed: Sequence[Failure], unavailable: Mapping[str, str]) -> str:
    """Why a study that ran to its end is not complete; empty if it is."""
    reasons = []
    if failed:
        many = "1 shard was" if len(failed) == 1 else f"{len(failed)} shards were"
        reasons.append(f"{many} set aside after {ATTEMPTS} attempts (the first: {failed[0].name}: {failed[0].error})")
    reasons += [f"{task} was left out: {reason}" for task, reason in unavailable.items()]
    return "; ".join(reasons)


def _budget(study: Study, began: float) -> Callable[[], str]:
    """A function that gives the reason to stop once the minutes of the study are over, before that nothing."""
    minutes = study.budget.minutes

    def spent() -> str:
        over = minutes is not None and time.monotonic() - began > 60 * minutes
        return f"the budget of {minutes:g} minutes is spent" if over else ""

    return spent


# Branches


def branch_prompts(order: StudyOrder, site: Site, failures: Failures) -> str:
    """Branch and score the prompts of all models. Returns why it stopped early, empty if it did not."""
    store, tracker = order.store, order.tracker
    for spec in order.study.models:
        if _nothing_to_do(store, spec, failures):
            continue
        work = site.plan_work(spec)
        store.set_metadata("models", spec.name, work.provenance)
        tracker.planned[spec.name] = len(work.jobs)
        tracker.start()
        if reason := site.branch(spec, [job for job in work.jobs if not store.is_finished(job.shard)]):
            return reason
    return ""


def _nothing_to_do(store: Store, spec: ModelSpec, failures: Failures) -> bool:
    """Whether a model need not be loaded: all its shards are there, or set aside."""
    noted = store.manifest["models"].get(spec.name)
    done = {*store.names(), *(failure.name for failure in failures.set_aside())}
    return noted is not None and set(noted["shards"]) <= done


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


# Whole runs


@dataclass(frozen=True)
class DecodeJob:
    """The whole runs of one model and task, there whole or not at all, and the choices that they are made of.

    The key of the unit is a hash of the names of its shards, which stand for study, model, task and prompts, and of all
    calibrations, so that it is never taken for another.
    """

    unit: Shard
    chosen: Mapping[str, Choice]
    """By diagnostic."""
    missing: Mapping[str, Missing]
    """Diagnostics that nothing can be chosen for, with the reason."""


def decode_tasks(
    study: Study, store: Store, site: Site, *, on_progress: Callable[[DecodeProgress], None] = lambda now: None
) -> str:
    """Choose on validation prompts, and decode the chosen arms. Returns why it stopped early, empty if it did not.

    All branches of a model and task must be there, for they choose what is decoded: where a shard was set aside nothing
    is decoded, or a later run that completes it would choose something else.
    """
    chosen = choices(store, study.gates)
    incomplete = {(failure.model, failure.task) for failure in store.failures.set_aside()}
    works = {
        spec.name: [
            work
            for work in plan_decodes(store, spec, chosen, study.searches)
            if (spec.name, work.unit.task) not in incomplete
        ]
        for spec in study.models
    }
    ahead = _WorkAhead(study, store, works, on_progress)
    for spec in study.models:
        pending = [work for work in works[spec.name] if not store.is_finished(work.unit)]
        if not pending:
            continue
        planned = site.plan_work(spec)
        # Refused if this is not the model that the branches came from.
        store.set_metadata("models", spec.name, planned.provenance)
        do = partial(_decode_task, study, spec, site, planned.jobs, store, ahead)
        if reason := site.each(pending, lambda work: work.unit, do):
            return reason
    return ""


def plan_decodes(
    store: Store,
    spec: ModelSpec,
    chosen: Mapping[tuple[str, str, str], Choice | Missing],
    searches: Mapping[str, Search],
) -> Iterator[DecodeJob]:
    """The whole runs of a model, known without loading it; refused where others were decoded in their place."""
    shards = store.manifest["models"][spec.name]["shards"]
    there = {(shard.model, shard.task): shard for shard in store.infos("decodes")}
    for task in dict.fromkeys(task for model, task, _ in chosen if model == spec.name):
        of_task = {name: one for (model, other, name), one in chosen.items() if (model, other) == (spec.name, task)}
        usable = {name: one for name, one in of_task.items() if isinstance(one, Choice)}
        missing = {name: one for name, one in of_task.items() if isinstance(one, Missing)}
        calibrations = {name: one.calibration.to_json() for name, one in usable.items()}
        reasons = {name: one.reason for name, one in missing.items()}
        names = sorted(name for name, about in shards.items() if about["task"] == task)
        further = {name: {g: c.to_json() for g, c in one.gates.items()} for name, one in usable.items() if one.gates}
        made_of = [names, calibrations, reasons, DRAWS, *([further, FURTHER_DRAWS] if further else [])]
        made_of += [described(searches)] if searches else []
        unit = Shard(kind="decodes", model=spec.name, task=task, depends=fingerprint(made_of))
        if there.get((spec.name, task), unit) != unit:
            raise OtherStudy(
                f"{spec.name}, {task} was decoded end to end with other calibrations or searches than the study gives "
                f"now; allowed: the same ones; remove {there[spec.name, task].name!r} from "
                f"{f'{store.folder}/decodes'!r} to decode it again"
            )
        yield DecodeJob(unit, usable, missing)


def _decode_task(
    study: Study,
    spec: ModelSpec,
    site: Site,
    planned: Sequence[Job],
    store: Store,
    ahead: "_WorkAhead",
    work: DecodeJob,
) -> None:
    """Decode, score and store the arms of one model and task."""
    began = time.monotonic()
    of_task = [job for job in planned if job.shard.task == work.unit.task]
    requests = {role: [s for job in of_task if job.shard.split == role for s in job.requests] for role in ROLES}
    examples = [example for job in of_task for example in job.members]
    decoder = site.decoder(spec, requests, lambda: ahead.update(work.unit, decoder.forwards))
    arms = decode_arms(study, spec, work.chosen, decoder, partial(site.score, examples=examples))
    info = {
        "reference": spec.reference,
        "axes": arms.axes,
        "missing": {name: lost.reason for name, lost in work.missing.items()} | arms.missing,
        "joint": arms.joint,
        **({"searches": arms.searches} if study.searches else {}),
        "prompts": {role: len(of_role) for role, of_role in requests.items()},
        "policies": decoder.policies,
        "forwards": decoder.forwards,
        "seconds": time.monotonic() - began,
        "versions": versions(),
    }
    store.write(work.unit, {"decodes": decodes_table(work.unit, arms.frame, named=study.has_renamed_diagnostics)}, info)
    with ahead.lock:
        ahead.done[work.unit] = decoder.forwards


class _WorkAhead:
    """Row-forwards that are left: those of units that are not there, less what is done of the ones under way."""

    def __init__(
        self,
        study: Study,
        store: Store,
        works: Mapping[str, Sequence[DecodeJob]],
        on_progress: Callable[[DecodeProgress], None],
    ):
        self.store, self.on_progress = store, on_progress
        self.units = [work.unit for of_model in works.values() for work in of_model]
        prompts = _prompts_by_role(store)
        self.expected = {
            work.unit: decodes_chosen(work, spec.reference).forwards(
                prompts[spec.name, work.unit.task], study.steps[work.unit.task]
            )
            for spec in study.models
            for work in works[spec.name]
        }
        """At most: some of its policies may turn out to be equal."""
        self.done: Counter[Shard] = Counter()
        """Row-forwards of this process."""
        self.lock = threading.Lock()
        """Several units may be under way."""

    def update(self, unit: Shard, done: int) -> None:
        """Report that so many row-forwards of a unit are done."""
        with self.lock:
            self.done[unit] = done
            open_units = [one for one in self.units if not self.store.is_finished(one)]
            left = sum(max(0, self.expected[one] - self.done[one]) for one in open_units)
            total = sum(self.expected.values())
            self.on_progress(DecodeProgress(f"{unit.model}/{unit.task}", self.done.total(), left, total))


def _prompts_by_role(store: Store) -> dict[tuple[str, str], Counter[str]]:
    """How many prompts of a model and task have branches."""
    prompts: dict[tuple[str, str], Counter[str]] = {}
    for shard, info in store.infos().items():
        of_task = prompts.setdefault((shard.model, shard.task), Counter())
        of_task[shard.split] += len(info["prompts"])
    return prompts


def decodes_chosen(work: DecodeJob, reference: str) -> Decodes:
    """How often each prompt is decoded, at most, now that everything but the end-to-end fixed action is chosen."""
    validation, evaluation = 1, 1
    joined = {choice.axis for choice in work.chosen.values() if not is_extension(reference, choice.axis)}
    validation += sum(len(one.calibration.candidates) - 1 for one in {c.axis: c for c in work.chosen.values()}.values())
    for choice in work.chosen.values():
        chosen = choice.calibration
        # Always, and the end-to-end fixed action.
        evaluation += 2 + (chosen.fixed.action != chosen.reference) + is_staged(chosen)
        evaluation += 0 if chosen.tau.value is None else 1 + DRAWS
        evaluation += (1 + FURTHER_DRAWS) * sum(gate.tau.value is not None for gate in choice.gates.values())
    return Decodes(validation, evaluation + (2 if len(joined) >= 2 else 0))
