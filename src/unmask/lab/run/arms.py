"""E4, carried out: the arms that validation prompts chose, decoded from beginning to end.

One model and task is one unit of work, there whole or not at all. Its key is a hash of its shards' names (which stand
for study, model, task and prompts) and of all calibrations, so a unit is never taken for another.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch

from unmask.adapt import Arms, Coverage, JointPolicy, coverage, joint_arm
from unmask.axes import AXES
from unmask.core import Noise, Policy, Trajectory, row_key
from unmask.core import Proposal as Drawing
from unmask.decode import decode
from unmask.errors import OtherStudy
from unmask.lab.analysis.detection import Choice, choices, is_extension
from unmask.lab.analysis.end_to_end import ARMS, CONTROLS, JOINT, JOINT_FIXED
from unmask.lab.analysis.opportunity import Missing
from unmask.lab.run.driver import Job, jobs_of, judge, loose, provenance, work_through
from unmask.lab.store.store import Store, Unit, fingerprint
from unmask.lab.study import ROLES, ModelSpec, Study
from unmask.policies import Revised
from unmask.request import Request, TextModel, begin
from unmask.stats import choose_fixed
from unmask.stats.errors import NotEnough
from unmask.tasks import Example
from unmask.versions import versions

DRAWS = 4
"""Runs of the random gate, averaged for each prompt."""


@dataclass(frozen=True)
class DecodeJob:
    """One unit, and what it is made of."""

    unit: Unit
    chosen: Mapping[str, Choice]
    """By axis."""
    missing: Mapping[str, str]
    """Diagnosed axes that nothing can be chosen for, with the reason."""


class DecodedRow(NamedTuple):
    """One prompt, decoded once."""

    prompt: str
    draw: int
    answer: tuple[int, ...]
    """Its tokens."""
    forwards: int
    gates: Mapping[str, tuple[int, int]]
    """By axis: steps at which there was a signal, and at which the fixed action was left."""


class DecodeLine(NamedTuple):
    """A row of the table to be, before it is judged."""

    axis: str
    arm: str
    split: str
    found: DecodedRow
    evaluated: int | None = None
    deviated: int | None = None


def decode_arms(
    study: Study,
    store: Store,
    load: Callable[[ModelSpec], TextModel],
    tasks: Mapping[str, Mapping[str, Sequence[Example]]],
    *,
    jobs: int | None = None,
    stop: Callable[[], str] = str,
    tell: Callable[[str, float], None] = lambda name, share: None,
) -> str:
    """Decode what is not there yet; all branches must be. Returns why it stopped early, empty if it did not.

    `stop` says before each unit whether there is a reason to; `tell` hears what is being decoded, and
    which share of all work is done.
    """
    found = choices(store)
    works = {spec.name: list(works_of(store, spec, found)) for spec in study.models}
    everything = [work for own in works.values() for work in own]

    def heard(name: str, part: float) -> None:
        done = sum(store.finished(work.unit) for work in everything)
        tell(name, (done + part) / len(everything))

    for spec in study.models:
        pending = [work for work in works[spec.name] if not store.finished(work.unit)]
        if not pending:
            continue
        model = load(spec)
        planned = jobs_of(study, spec, model, tasks)
        # Says no if this is not the model that the branches came from.
        store.note("models", spec.name, provenance(spec, model, planned))
        do = partial(_carry_out, study, spec, model, planned, store, jobs, heard)
        if reason := work_through(store, pending, lambda work: work.unit, do, stop):
            return reason
    return ""


def works_of(
    store: Store, spec: ModelSpec, found: Mapping[tuple[str, str, str], Choice | Missing]
) -> Iterator[DecodeJob]:
    """The units of a model, known without loading it; refused where something else was decoded in their place."""
    shards = store.manifest["models"][spec.name]["shards"]
    there = {(info["unit"]["model"], info["unit"]["task"]): info["unit"]["depends"] for info in store.decode_infos()}
    for task in dict.fromkeys(task for model, task, _ in found if model == spec.name):
        mine = {axis: one for (model, own, axis), one in found.items() if (model, own) == (spec.name, task)}
        chosen = {axis: one for axis, one in mine.items() if isinstance(one, Choice)}
        missing = {axis: one.reason for axis, one in mine.items() if isinstance(one, Missing)}
        calibrations = {axis: one.calibration.to_json() for axis, one in chosen.items()}
        names = sorted(name for name in shards if name.rsplit(".", 4)[1] == task)
        unit = Unit(spec.name, task, fingerprint([names, calibrations, missing, DRAWS]))
        if there.get((spec.name, task), unit.depends) != unit.depends:
            raise OtherStudy(
                f"{spec.name}, {task} was decoded end to end with other calibrations than its branches give now (key "
                f"{there[spec.name, task]}, now {unit.depends}); allowed: the same ones; remove that folder from "
                f"{str(store.decodes)!r} to decode it again"
            )
        yield DecodeJob(unit, chosen, missing)


def _carry_out(
    study: Study,
    spec: ModelSpec,
    model: TextModel,
    planned: Sequence[Job],
    store: Store,
    jobs: int | None,
    heard: Callable[[str, float], None],
    work: DecodeJob,
) -> None:
    began = time.monotonic()
    mine = [job for job in planned if job.shard.task == work.unit.task]
    starts = {role: [s for job in mine if job.shard.split == role for s in job.starts] for role in ROLES}
    members = [example for job in mine for example in job.members]
    # If no two of its policies were equal.
    most = sum(len(one.calibration.candidates) + len(ARMS) + len(CONTROLS) for one in work.chosen.values()) + 3
    bench = DecodeCache(
        model, study, starts, lambda done: heard(f"{spec.name}/{work.unit.task}", min(done / most, 1.0))
    )
    court = Judge(model, members, jobs)
    run = _ArmDecoder(study, spec, work, bench, court)
    lines = list(run.lines())
    verdicts = court.judge([line.found for line in lines])
    info = {
        "unit": asdict(work.unit),
        "reference": spec.reference,
        "axes": {axis: _told(work.chosen[axis], best) for axis, best in run.best.items()},
        "missing": {**work.missing, **run.missing},
        "joint": run.joint,
        "prompts": {role: len(mine) for role, mine in starts.items()},
        "policies": bench.policies,
        "forwards": bench.forwards,
        "seconds": time.monotonic() - began,
        "versions": versions(),
    }
    store.write_decodes(work.unit, decodes_table(work.unit, lines, verdicts), info)


def _told(choice: Choice, best: str) -> dict[str, Any]:
    opportunity = choice.opportunity if math.isfinite(choice.opportunity) else None
    return {"calibration": choice.calibration.to_json(), "opportunity": opportunity, "end_to_end": best}


class DecodeCache:
    """Decodes the prompts of one task, each policy once however often it is asked for."""

    def __init__(
        self,
        model: TextModel,
        study: Study,
        starts: Mapping[str, Sequence[Request]],
        heard: Callable[[int], None] = lambda policies: None,
    ):
        self.model, self.study, self.starts, self.heard = model, study, starts, heard
        self.forwards = 0
        """Row-forwards."""
        self._known: list[tuple[Policy, str, int, list[DecodedRow]]] = []

    @property
    def policies(self) -> int:
        """Decoded so far, on either role."""
        return len(self._known)

    def decode(self, policy: Policy, role: str, draws: int = 1) -> list[DecodedRow]:
        """Every prompt of the role, `draws` times with random numbers of its own; the first has those of all arms."""
        for known, where, times, found in self._known:
            if (where, times) == (role, draws) and known == policy:
                return found
        rows = [(start, draw) for draw in range(draws) for start in self.starts[role]]
        engine = self.study.engine
        most = max(engine.rows, engine.live)
        found = []
        # A row's canvas follows from its prompt, whoever is decoded beside it.
        room = {start.id: _room(start, engine.bucket) for start, _ in rows}
        for slots in sorted(set(room.values())):
            same = [row for row in rows if room[row[0].id] == slots]
            for at in range(0, len(same), most):
                self.heard(self.policies)
                found += self._batch(policy, same[at : at + most], slots)
        self._known.append((policy, role, draws, found))
        self.forwards += sum(one.forwards for one in found)
        return found

    def _batch(self, policy: Policy, rows: Sequence[tuple[Request, int]], slots: int) -> Iterator[DecodedRow]:
        denoiser, seed = self.model.denoiser, self.study.seed
        start = begin(denoiser, [start for start, _ in rows], seed, slots)
        noise = Noise.of([row_key(seed, start.key, draw) for start, draw in rows], denoiser.device)
        counted = _Counted(start)
        with torch.inference_mode():
            end = decode(
                denoiser,
                policy,
                start,
                noise=noise,
                proposal=Drawing(temperature=self.study.temperature),
                record=False,
                on_step=counted.add,
            )
        gates = {axis: torch.stack((c.evaluated_B, c.deviated_B), 1).tolist() for axis, c in counted.so_far.items()}
        table = torch.cat((end.state.tokens_BL, end.forwards_B[:, None]), 1).cpu().numpy()
        for at, ((one, draw), row) in enumerate(zip(rows, table, strict=True)):
            answer = tuple(row[slice(*one.answer)].tolist())
            mine = {axis: (counts[at][0], counts[at][1]) for axis, counts in gates.items()}
            yield DecodedRow(one.id, draw, answer, int(row[-1]), mine)


def _room(start: Request, bucket: int) -> int:
    """Once, twice, four times the bucket: few sizes, for a decode takes as long with ten rows as with a hundred."""
    return bucket << (-(-len(start.canvas) // bucket) - 1).bit_length()


@dataclass
class _Counted:
    """Coverage of a run that is not recorded, step by step."""

    start: Trajectory
    so_far: dict[str, Coverage] = field(default_factory=dict)

    def add(self, traj: Trajectory) -> None:
        """Steps name their rows by number, so they are counted beside all rows that began."""
        for axis, new in coverage(replace(self.start, steps=traj.steps[-1:])).items():
            old = self.so_far.get(axis)
            self.so_far[axis] = new if old is None else _sum(old, new)


def _sum(one: Coverage, other: Coverage) -> Coverage:
    return Coverage(one.steps_B + other.steps_B, one.evaluated_B + other.evaluated_B, one.deviated_B + other.deviated_B)


class Judge:
    """Judges answers, each once however many arms give it."""

    def __init__(self, model: TextModel, members: Sequence[Example], jobs: int | None):
        self.model, self.members, self.jobs = model, members, jobs
        self._known: dict[tuple[str, tuple[int, ...]], tuple[str, float, str]] = {}

    def judge(self, found: Sequence[DecodedRow]) -> list[tuple[str, float, str]]:
        """Text, utility (NaN for none) and reason."""
        new = [one for one in found if (one.prompt, one.answer) not in self._known]
        for one, verdict in zip(new, judge(self.model, self.members, new, self.jobs), strict=True):
            self._known[one.prompt, one.answer] = verdict
        return [self._known[one.prompt, one.answer] for one in found]


class _ArmDecoder:
    """One unit: what is decoded for each axis, and in which order."""

    def __init__(self, study: Study, spec: ModelSpec, work: DecodeJob, bench: DecodeCache, court: Judge):
        self.work, self.bench, self.court = work, bench, court
        plan = study.plan(spec.reference)
        self.reference, self.candidates = spec.reference, plan.candidates
        self.arms = {
            axis: Arms(
                axis,
                spec.reference,
                choice.calibration,
                plan.diagnostics[axis],
                study.revision if AXES[axis].revises else None,
            )
            for axis in study.axes
            if (choice := work.chosen.get(axis)) is not None
        }
        self.best: dict[str, str] = {}
        """By axis: the candidate that is best end to end on validation prompts."""
        self.missing: dict[str, str] = {}
        self.joint: dict[str, Any] | None = None

    def lines(self) -> Iterator[DecodeLine]:
        """All rows of the unit."""
        tried = [line for axis in self.arms for line in self._candidates(axis)]
        utility = [utility for _, utility, _ in self.court.judge([line.found for line in tried])]
        yield from tried
        for axis in self.arms:
            mine = [(line.arm, u) for line, u in zip(tried, utility, strict=True) if line.axis == axis]
            self._choose(axis, mine)
        for axis in self.best:
            yield from self._evaluation(axis)
        yield from self._joint()

    def _candidates(self, axis: str) -> Iterator[DecodeLine]:
        """Every candidate on the validation prompts."""
        for name in self.work.chosen[axis].calibration.candidates:
            decoded = self.bench.decode(self.candidates[axis][name], "validation")
            yield from (DecodeLine(axis, name, "validation", one) for one in decoded)

    def _choose(self, axis: str, tried: Sequence[tuple[str, float]]) -> None:
        """The best candidate end to end: of equal ones the fixed action, then the reference."""
        found = self.work.chosen[axis].calibration
        utility_PA = np.array([[u for arm, u in tried if arm == name] for name in found.candidates]).T
        try:
            # The reference is the first candidate, to which ties without the fixed action go.
            best = choose_fixed(utility_PA[:, :, None], reference=found.fixed.action).action
            self.best[axis] = found.candidates[best]
        except NotEnough:
            self.missing[axis] = "no validation prompt has a judged answer of every candidate end to end"

    def _evaluation(self, axis: str) -> Iterator[DecodeLine]:
        arms, chosen = self.arms[axis], self.work.chosen[axis].calibration
        # A schedule with one action is that action.
        staged = any(action != chosen.fixed.action for action in chosen.schedule.action_K)
        plain = {
            "reference": arms.reference,
            "fixed": arms.fixed,
            "stage": arms.stage if staged else arms.fixed,
            "end-to-end fixed": self.candidates[axis][self.best[axis]],
        }
        always = [_gated(axis, "always", one) for one in self.bench.decode(arms.always, "evaluation")]
        selective = self._selective(axis)
        gated = {"always": always, "selective": selective, "random gate": self._random(axis, selective)}
        for arm in (*ARMS, *CONTROLS):
            if arm in gated:
                yield from gated[arm]
            else:
                yield from (_plain(axis, arm, one) for one in self.bench.decode(plain[arm], "evaluation"))

    def _selective(self, axis: str) -> list[DecodeLine]:
        """A gate that never opens is the fixed arm. It is not decoded again to count signals nobody acts on."""
        arms = self.arms[axis]
        if self.work.chosen[axis].calibration.tau.value is None:
            fixed = self.bench.decode(arms.fixed, "evaluation")
            return [DecodeLine(axis, "selective", "evaluation", one, None, 0) for one in fixed]
        return [_gated(axis, "selective", one) for one in self.bench.decode(arms.selective, "evaluation")]

    def _random(self, axis: str, selective: Sequence[DecodeLine]) -> list[DecodeLine]:
        """As many deviations as selective made on these prompts; where it made none, it is the same run, once."""
        deviated = sum(line.deviated or 0 for line in selective)
        if deviated == 0:
            return [line._replace(arm="random gate") for line in selective]
        share = deviated / sum(line.evaluated or 0 for line in selective)
        runs = self.bench.decode(self.arms[axis].random_gate(share), "evaluation", DRAWS)
        return [_gated(axis, "random gate", one) for one in runs]

    def _joint(self) -> Iterator[DecodeLine]:
        """All axes together, where there are two or more that the reference's decoder has."""
        axes = [axis for axis in self.best if not is_extension(self.reference, axis)]
        if len(axes) < 2:
            return
        policy = joint_arm([self.arms[axis] for axis in axes])
        base = _joint_fixed(policy, [self.arms[axis] for axis in axes])
        never = all(self.work.chosen[axis].calibration.tau.value is None for axis in axes)
        reference = self.arms[axes[0]].reference
        for arm, plain in (("reference", reference), (JOINT_FIXED, base)):
            yield from (_plain(JOINT, arm, one) for one in self.bench.decode(plain, "evaluation"))
        found = self.bench.decode(base if never else policy, "evaluation")
        counts: dict[str, dict[str, list[int | None]]] = {axis: {} for axis in axes}
        for one in found:
            for axis in axes:
                counts[axis][one.prompt] = [None, 0] if never else list(one.gates[axis])
            evaluated, deviated = (sum(gate[at] for gate in one.gates.values()) for at in (0, 1))
            yield DecodeLine(JOINT, JOINT, "evaluation", one, None if never else evaluated, 0 if never else deviated)
        self.joint = {"axes": axes, "gates": counts}


def _plain(axis: str, arm: str, one: DecodedRow) -> DecodeLine:
    return DecodeLine(axis, arm, "evaluation", one)


def _gated(axis: str, arm: str, one: DecodedRow) -> DecodeLine:
    return DecodeLine(axis, arm, "evaluation", one, *one.gates[axis])


def _joint_fixed(joint: Policy, arms: Sequence[Arms]) -> Policy:
    """The joint arm with all gates shut; the operator stays only where something is left revisable."""
    inner = joint.base if isinstance(joint, Revised) else joint
    assert isinstance(inner, JointPolicy)
    revises = any(AXES[one.axis].revises and one.calibration.fixed.action != one.calibration.reference for one in arms)
    return Revised(inner.fixed, joint.operator) if revises and isinstance(joint, Revised) else inner.fixed


def decodes_table(unit: Unit, lines: Sequence[DecodeLine], verdicts: Sequence[tuple[str, float, str]]) -> pa.Table:
    n = len(lines)
    return pa.table(
        {
            "model": [unit.model] * n,
            "task": [unit.task] * n,
            "axis": [line.axis for line in lines],
            "arm": [line.arm for line in lines],
            "draw": [line.found.draw for line in lines],
            "split": [line.split for line in lines],
            "prompt": [line.found.prompt for line in lines],
            "utility": [None if math.isnan(utility) else utility for _, utility, _ in verdicts],
            "reason": [reason for _, _, reason in verdicts],
            # Half a character at the end of an answer is no text.
            "answer": [text.encode("utf-8", "replace").decode() for text, _, _ in verdicts],
            "evaluated": [line.evaluated for line in lines],
            "deviated": [line.deviated for line in lines],
            "forwards": [line.found.forwards for line in lines],
        },
        schema=loose("decodes"),
    )
