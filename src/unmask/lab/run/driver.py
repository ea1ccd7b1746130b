"""A study, carried out: prompts to blocks, blocks to branches, branches to shards. Resumes by itself."""

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import torch

from unmask.axes import AXES
from unmask.core import Needs, View
from unmask.errors import ConfigError, ContractError, SchemaError, require
from unmask.lab.branch import (
    PROPOSAL,
    AxisCost,
    Block,
    Branch,
    BranchCost,
    EngineSettings,
    ReferenceRun,
    StoredReading,
    run,
    spaced,
)
from unmask.lab.branch import BranchProgress as Inside
from unmask.lab.compare import FRESH, FRESH_FROM, scores
from unmask.lab.store.store import SCHEMAS, Shard, Store, Unit, fingerprint
from unmask.lab.study import ModelSpec, PromptRange, Study
from unmask.request import Request, TextModel, begin, generation
from unmask.tasks import Example, Task, examples, training
from unmask.tasks.base import DataDir
from unmask.versions import versions

Load = Callable[[ModelSpec], TextModel]
"""Loads a model of the study."""

Piece = TypeVar("Piece")

POLL = 0.5
"""Seconds between looks at shards that another process is working on."""


@dataclass(frozen=True)
class Job:
    """The work of one shard."""

    shard: Shard
    starts: tuple[Request, ...]
    members: tuple[Example, ...]


class StudyProgress(NamedTuple):
    """Where a study stands; what was there before this process came is counted, but not its time."""

    shard: str
    shards: int
    shards_total: int
    states: int
    states_total: int
    branches: int
    branches_total: int
    forwards: int
    """Row-forwards of this process."""
    naive: int
    """What they would have been without merging, over finished shards."""
    done: int
    """Row-forwards behind `naive`."""
    utility: float
    """Mean over all branches that were judged."""
    unjudged: int
    seconds: float
    left: float
    """Seconds still to go, NaN before anybody knows."""
    decoded: float = math.nan
    """Share of the end-to-end decoding that is done; NaN before it has begun."""


@dataclass
class _Tally:
    """What finished shards add up to."""

    shards: int = 0
    states: int = 0
    branches: int = 0
    naive: int = 0
    done: int = 0
    judged: int = 0
    utility: float = 0.0

    def add(self, info: Mapping[str, Any]) -> None:
        self.shards += 1
        for key in ("states", "branches", "judged"):
            setattr(self, key, getattr(self, key) + info[key])
        self.naive += info["forwards"]["naive"]
        self.done += info["forwards"]["done"]
        self.utility += info["utility"]


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended."""

    complete: bool
    stopped: str
    """Why it is not complete; empty if it is."""
    hashes: Mapping[str, str]
    unavailable: Mapping[str, str] = field(default_factory=dict)
    """Tasks that nothing was measured on, and why."""


def run_study(
    study: Study,
    store: Store,
    load: Load,
    *,
    data_dir: DataDir = None,
    jobs: int | None = None,
    naive: bool = False,
    on_progress: Callable[[StudyProgress], None] = lambda now: None,
) -> RunOutcome:
    """Do what is not done yet. Returns when every shard is there, or the budget is spent."""
    began = time.monotonic()
    minutes = study.budget.minutes
    kept: dict[str, TextModel] = {}

    def spent() -> str:
        over = minutes is not None and time.monotonic() - began > 60 * minutes
        return f"the budget of {minutes:g} minutes is spent" if over else ""

    def once(spec: ModelSpec) -> TextModel:
        """The model, loaded again only if another one was in between."""
        if spec.name not in kept:
            kept.clear()
            kept[spec.name] = load(spec)
        return kept[spec.name]

    tasks, unavailable = prompts_of(study, data_dir)
    for task, found in tasks.items():
        remasks = study.revision.expected(study.task(task).horizon, study.steps[task])
        known = {"version": study.task(task).version, "data": _data_hash(found), "expected_remasks": round(remasks, 3)}
        store.note("tasks", task, known)
    for task, reason in unavailable.items():
        store.note("tasks", task, {"unavailable": reason})
    engine = replace(study.engine, merge=not naive)
    watch = ProgressTracker(study, tasks, store, began, on_progress)
    for spec in study.models:
        if _all_there(store, spec):
            continue
        if reason := _branch(study, store, spec, once(spec), tasks, engine, jobs, watch, spent):
            return RunOutcome(False, reason, {}, unavailable)
    _check_scorers(study, store)
    if study.end_to_end:
        # Not at the top: arms are made of what is calibrated on tables, and whoever reads those imports this module.
        from unmask.lab.run.arms import decode_arms

        if reason := decode_arms(study, store, once, tasks, jobs=jobs, stop=spent, tell=watch.decoded):
            return RunOutcome(False, reason, {}, unavailable)
    watch.refresh()
    return RunOutcome(True, "", store.content_hash(), unavailable)


def _branch(
    study: Study,
    store: Store,
    spec: ModelSpec,
    model: TextModel,
    tasks: Mapping[str, Mapping[str, Sequence[Example]]],
    engine: EngineSettings,
    jobs: int | None,
    watch: "ProgressTracker",
    stop: Callable[[], str],
) -> str:
    """The shards of one model. Returns why it stopped early, empty if it did not."""
    work = jobs_of(study, spec, model, tasks)
    store.note("models", spec.name, provenance(spec, model, work))
    watch.planned[spec.name] = len(work)
    plan = study.plan(spec.reference)

    def do(job: Job) -> None:
        started = time.monotonic()
        block = run(model.denoiser, plan, job.starts, engine, watch.inside(spec.name, job.shard.name))
        _store(store, study, job, model, block, jobs, time.monotonic() - started)
        watch.finished(job.shard.name)

    pending = [job for job in work if not store.finished(job.shard)]
    return work_through(store, pending, lambda job: job.shard, do, stop, watch.refresh)


def work_through(
    store: Store,
    pending: Sequence[Piece],
    place: Callable[[Piece], Shard | Unit],
    do: Callable[[Piece], None],
    stop: Callable[[], str],
    came: Callable[[], None] = lambda: None,
) -> str:
    """Do every piece that no other process does, and wait for theirs.

    Returns why it stopped early, empty if it did not. `came` is called where another process has finished one.
    """
    while pending:
        waiting = []
        for piece in pending:
            if reason := stop():
                return reason
            with store.claim(place(piece)) as mine:
                if mine:
                    do(piece)
                elif not store.finished(place(piece)):
                    waiting.append(piece)
                else:
                    came()
        if waiting:
            # Another process has them; should it die, they are ours.
            time.sleep(POLL)
        pending = waiting
    return ""


def prompts_of(study: Study, data_dir: DataDir = None) -> tuple[dict[str, dict[str, list[Example]]], dict[str, str]]:
    """Examples by task and role; and tasks whose data is not there, with the reason."""
    found: dict[str, dict[str, list[Example]]] = {}
    unavailable = {}
    for task in study.tasks:
        try:
            found[task] = {role: _members(study.task(task), part, data_dir) for role, part in study.splits.items()}
        except (ConfigError, SchemaError) as error:
            unavailable[task] = str(error)
            continue
        seen: dict[str, str] = {}
        for role, members in found[task].items():
            for example in members:
                other = seen.setdefault(example.prompt, role)
                require(
                    other == role,
                    f"prompt {example.id} of {task}",
                    f"in {other} and {role}",
                    "in one of them",
                    "choose stretches that do not overlap",
                )
    if not found:
        task, reason = next(iter(unavailable.items()))
        raise ConfigError(f"no task of the study has data: {task}: {reason}")
    return found, unavailable


def _members(task: Task, part: PromptRange, data_dir: DataDir) -> list[Example]:
    if part.split == FRESH:
        if task.generator is None:
            raise ConfigError(f"{task.name} has no {FRESH} prompts; allowed: constructed tasks; use one of its splits")
        return list(islice(training(task, FRESH_FROM + part.start), part.prompts))
    members = list(examples(task, part.split, data_dir))[part.start : part.start + part.prompts]
    # JSON Mode Eval has fewer than others: "up to" so many.
    require(bool(members), f"{part.split} prompts of {task.name}", 0, "one or more", "start earlier")
    return members


def jobs_of(
    study: Study, spec: ModelSpec, model: TextModel, tasks: Mapping[str, Mapping[str, Sequence[Example]]]
) -> list[Job]:
    """The shards of a model: prompts of one bucket, so many at a time, in the order of their split."""
    identity = _identity(spec, model)
    found = []
    for task, roles in tasks.items():
        for role, members in roles.items():
            pairs = [(request_of(model, study.task(task), study.steps[task], example), example) for example in members]
            fits = [(s, e) for s, e in pairs if model.length is None or len(s.canvas) <= model.length]
            buckets = sorted({s.slots(study.engine.bucket) for s, _ in fits})
            block = 0
            for slots in buckets:
                same = [(s, e) for s, e in fits if s.slots(study.engine.bucket) == slots]
                for at in range(0, len(same), study.shard):
                    part = same[at : at + study.shard]
                    version = study.task(task).version
                    depends = fingerprint([study.config, identity, task, version, role, _hash_of(part)])
                    shard = Shard(spec.name, task, role, block, depends)
                    found.append(Job(shard, tuple(s for s, _ in part), tuple(e for _, e in part)))
                    block += 1
    return found


def request_of(model: TextModel, task: Task, steps: int, example: Example) -> Request:
    """The canvas that `compare` and `generate` decode, too."""
    return generation(model, example.prompt, task.horizon, steps, example.id)


def provenance(spec: ModelSpec, model: TextModel, work: Sequence[Job]) -> dict[str, Any]:
    """What the manifest keeps of a model."""
    return {**_identity(spec, model), "reference": spec.reference, "shards": [job.shard.name for job in work]}


def _identity(spec: ModelSpec, model: TextModel) -> dict[str, Any]:
    device = model.denoiser.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return {"model": spec.model, "options": dict(model.options), "device": name}


def _all_there(store: Store, spec: ModelSpec) -> bool:
    """Whether a model need not be loaded."""
    known = store.manifest["models"].get(spec.name)
    return known is not None and set(known["shards"]) <= set(store.names())


def _hash_of(pairs: Sequence[tuple[Request, Example]]) -> str:
    digest = hashlib.sha256()
    for start, example in pairs:
        digest.update(repr((start.id, start.canvas, start.steps, example.target)).encode())
    return digest.hexdigest()


def _data_hash(roles: Mapping[str, Sequence[Example]]) -> str:
    return fingerprint({role: [[e.id, e.prompt, e.target] for e in members] for role, members in roles.items()})


def _store(
    store: Store, study: Study, job: Job, model: TextModel, block: Block, jobs: int | None, seconds: float
) -> None:
    verdicts = judge(model, job.members, block.branches, jobs)
    both = list(zip(block.branches, verdicts, strict=True))
    mine = [pair for pair in both if pair[0].candidate != PROPOSAL]
    branches, judged = [b for b, _ in mine], [v for _, v in mine]
    references = {axis: next(iter(named)) for axis, named in study.sets(_reference(study, job)).items()}
    known = [utility for _, utility, _ in judged if not math.isnan(utility)]
    report, total = block.report, block.report.total
    info = {
        "shard": asdict(job.shard),
        "prompts": [start.id for start in job.starts],
        "states": sum(len(path.sampled) for path in block.paths),
        "branches": len(branches),
        "judged": len(known),
        "utility": math.fsum(known),
        "forwards": {"naive": total.naive, "done": total.done, "trajectory": report.trajectory}
        | {"recalled": report.recalled, "calls": report.calls},
        "axes": {axis: asdict(work) for axis, work in report.axes.items()},
        "seconds": seconds,
        "versions": versions(),
    }
    tables = (states_table(job.shard, block.paths), branches_table(job.shard, branches, judged, references))
    proposals = [pair for pair in both if pair[0].candidate == PROPOSAL]
    store.write(job.shard, *tables, info, readings_table(job.shard, block.readings, proposals))


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


def _reference(study: Study, job: Job) -> str:
    return next(spec.reference for spec in study.models if spec.name == job.shard.model)


class Answered(Protocol):
    """What can be judged: the tokens of an answer to a prompt."""

    @property
    def prompt(self) -> str: ...
    @property
    def answer(self) -> tuple[int, ...]: ...


def judge(
    model: TextModel, members: Sequence[Example], branches: Sequence[Answered], jobs: int | None = None
) -> list[tuple[str, float, str]]:
    """Text, utility and reason of every branch; NaN where the evaluator could not tell. Equal answers once."""
    by_id = {example.id: example for example in members}
    keys = list(dict.fromkeys((branch.prompt, branch.answer) for branch in branches))
    texts = [model.codec.answer(list(answer)) for _, answer in keys]
    verdicts = scores([(text, by_id[prompt]) for text, (prompt, _) in zip(texts, keys, strict=True)], jobs)
    known = {key: (text, *verdict) for key, text, verdict in zip(keys, texts, verdicts, strict=True)}
    return [known[branch.prompt, branch.answer] for branch in branches]


def branches_table(
    shard: Shard,
    branches: Sequence[Branch],
    judged: Sequence[tuple[str, float, str]],
    references: Mapping[str, str],
) -> pa.Table:
    n = len(branches)
    return pa.table(
        {
            "model": [shard.model] * n,
            "task": [shard.task] * n,
            "split": [shard.split] * n,
            "prompt": [b.prompt for b in branches],
            "state": [b.state for b in branches],
            "step": [b.step for b in branches],
            "masked": [b.masked for b in branches],
            "axis": [b.axis for b in branches],
            "candidate": [b.candidate for b in branches],
            "is_reference": [references[b.axis] == b.candidate for b in branches],
            "rollout": [b.rollout for b in branches],
            "utility": [None if math.isnan(u) else u for _, u, _ in judged],
            "reason": [reason for _, _, reason in judged],
            # Half a character at the end of an answer is no text.
            "answer": [text.encode("utf-8", "replace").decode() for text, _, _ in judged],
        },
        schema=loose("branches"),
    )


def readings_table(
    shard: Shard, readings: Sequence[StoredReading], proposals: Sequence[tuple[Branch, tuple[str, float, str]]]
) -> pa.Table:
    """What diagnostics said, and what their proposals were worth; nothing where they abstained."""
    worth: dict[tuple[str, int, str], list[tuple[float, str]]] = {}
    for branch, (_, utility, reason) in proposals:
        worth.setdefault((branch.prompt, branch.state, branch.axis), []).append((utility, reason))
    rows = [(r, [] if r.abstained else worth[r.prompt, r.state, r.axis]) for r in readings]
    return pa.table(
        {
            "model": [shard.model] * len(rows),
            "task": [shard.task] * len(rows),
            "split": [shard.split] * len(rows),
            "prompt": [r.prompt for r, _ in rows],
            "state": [r.state for r, _ in rows],
            "axis": [r.axis for r, _ in rows],
            "signal": [None if math.isnan(r.signal) else r.signal for r, _ in rows],
            "abstained": [r.abstained for r, _ in rows],
            "snapped": [None if r.abstained else r.snapped for r, _ in rows],
            "same": [[] if r.abstained else list(r.same) for r, _ in rows],
            "utility": [[None if math.isnan(u) else u for u, _ in found] for _, found in rows],
            "reason": [[reason for _, reason in found] for _, found in rows],
            "ingredients": [r.ingredients for r, _ in rows],
        },
        schema=loose("readings"),
    )


def states_table(shard: Shard, paths: Sequence[ReferenceRun]) -> pa.Table:
    rows = [(path, sampled) for path in paths for sampled in path.sampled]
    lengths = [len(path.start.canvas) for path, _ in rows]
    states = [sampled.traj.state for _, sampled in rows]
    cut = list(zip(states, lengths, strict=True))
    return pa.table(
        {
            "model": [shard.model] * len(rows),
            "task": [shard.task] * len(rows),
            "split": [shard.split] * len(rows),
            "prompt": [sampled.prompt for _, sampled in rows],
            "state": [sampled.index for _, sampled in rows],
            "step": [sampled.step for _, sampled in rows],
            "masked": [sampled.masked for _, sampled in rows],
            "horizon": [path.start.steps for path, _ in rows],
            "taken": [path.steps for path, _ in rows],
            "tokens": [state.tokens_BL[0, :n].tolist() for state, n in cut],
            "fixed": [state.fixed_BL[0, :n].tolist() for state, n in cut],
            "committed": [state.committed_BL[0, :n].tolist() for state, n in cut],
            "trajectory": [sampled.traj.to_bytes() for _, sampled in rows],
        },
        schema=loose("states"),
    )


def loose(name: str) -> pa.Schema:
    """The schema with plain strings; the store turns them into dictionaries."""
    plain = [(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in SCHEMAS[name]]
    return pa.schema(plain)


class ProgressTracker:
    """Turns what happens into progress."""

    def __init__(
        self,
        study: Study,
        tasks: Mapping[str, Mapping[str, Sequence[Example]]],
        store: Store,
        began: float,
        tell: Callable[[StudyProgress], None],
    ):
        self.store, self.began, self.tell = store, began, tell
        self.per_state = {
            spec.name: study.rollouts * sum(len(named) for named in study.sets(spec.reference).values())
            for spec in study.models
        }
        proposals = study.rollouts * len(study.diagnostics)
        self.candidates = {name: count / (count + proposals) for name, count in self.per_state.items()}
        """Share of branches that are candidates'; tables count those of proposals apart."""
        prompts = [(task, len(members)) for task, roles in tasks.items() for members in roles.values()]
        states = {task: len(spaced(study.steps[task], study.states)) for task in tasks}
        each = sum(states[task] * count for task, count in prompts)
        self.states_total = each * len(study.models)
        self.branches_total = each * sum(self.per_state.values())
        about = sum(-(-count // study.shard) for _, count in prompts)
        self.planned = {spec.name: about for spec in study.models}
        """Shards by model; a guess until its prompts have met its tokenizer."""
        self.counted: set[str] = set()
        self.tally = _Tally()
        self.forwards = 0
        self.live = Inside(0, 0, 0)
        self.decoding = math.nan
        """When that began."""
        self.refresh()
        self.before = self.tally.branches

    def refresh(self) -> None:
        for name, info in zip(self.store.names(), self.store.infos(), strict=False):
            if name not in self.counted:
                self.counted.add(name)
                self.tally.add(info)

    def inside(self, model: str, shard: str) -> Callable[[Inside], None]:
        def heard(now: Inside) -> None:
            self.live = now._replace(branches=round(now.branches * self.candidates[model]))
            self.tell(self.now(shard))

        return heard

    def decoded(self, name: str, share: float) -> None:
        """Of the end-to-end decoding, of which a share is done."""
        if math.isnan(self.decoding):
            self.decoding = time.monotonic()
        spent = time.monotonic() - self.decoding
        left = spent * (1 - share) / share if share > 0 else math.nan
        self.tell(self.now(name)._replace(left=left, decoded=share))

    def finished(self, shard: str) -> None:
        self.forwards += self.live.forwards
        self.live = Inside(0, 0, 0)
        self.refresh()
        self.tell(self.now(shard))

    def now(self, shard: str) -> StudyProgress:
        tally, spent = self.tally, time.monotonic() - self.began
        branches = tally.branches + self.live.branches
        mine = branches - self.before
        left = spent / mine * max(0, self.branches_total - branches) if mine > 0 else math.nan
        return StudyProgress(
            shard=shard,
            shards=tally.shards,
            shards_total=sum(self.planned.values()),
            states=tally.states + self.live.states,
            states_total=self.states_total,
            branches=branches,
            branches_total=self.branches_total,
            forwards=self.forwards + self.live.forwards,
            naive=tally.naive,
            done=tally.done,
            utility=tally.utility / tally.judged if tally.judged else math.nan,
            unjudged=tally.branches - tally.judged,
            seconds=spent,
            left=left,
        )


# Before anything runs


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


def estimate(
    study: Study, spec: ModelSpec, model: TextModel, tasks: Mapping[str, Mapping[str, Sequence[Example]]]
) -> Iterator[CostEstimate]:
    """Counts from the plan, time from a measured forward of every bucket's shape."""
    sets = study.sets(spec.reference)
    measured: dict[int, float] = {}
    for task, roles in tasks.items():
        steps = study.steps[task]
        starts = [request_of(model, study.task(task), steps, e) for members in roles.values() for e in members]
        starts = [s for s in starts if model.length is None or len(s.canvas) <= model.length]
        at = spaced(steps, study.states)
        left = [steps - step for step in at]
        naive = sum(left) * study.rollouts * sum(len(named) for named in sets.values())
        expected = _expected(study, sets, left)
        per_row = 0.0
        slots = 0
        for start in starts:
            slots = max(slots, size := start.slots(study.engine.bucket))
            if size not in measured:
                measured[size] = _timed(model, study, start, size)
            per_row += measured[size] / study.engine.rows / len(starts)
        n = len(starts)
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


def _timed(model: TextModel, study: Study, start: Request, slots: int) -> float:
    """Seconds of one forward of the study's shape, everything masked."""
    traj = begin(model.denoiser, [start] * study.engine.rows, study.seed, slots)
    view, needs = View.of(traj.state, Needs()), Needs()
    spent = []
    for _ in range(3):
        began = time.perf_counter()
        model.denoiser(view, needs)
        if model.denoiser.device.type == "cuda":
            torch.cuda.synchronize()
        spent.append(time.perf_counter() - began)
    return min(spent)


def totals(infos: Sequence[Mapping[str, Any]]) -> BranchCost:
    """The reports of finished shards, added up."""
    whole = BranchCost()
    for info in infos:
        forwards = info["forwards"]
        axes = {axis: AxisCost(**work) for axis, work in info["axes"].items()}
        whole += BranchCost(axes, forwards["trajectory"], forwards["recalled"], forwards["calls"])
    return whole
