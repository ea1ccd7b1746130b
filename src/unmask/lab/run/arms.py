"""E4, carried out: the arms that validation prompts chose, decoded from beginning to end.

One model and task is one unit of work, there whole or not at all. Its key is a hash of its shards' names (which stand
for study, model, task and prompts) and of all calibrations, so a unit is never taken for another.
"""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from unmask.adapt import Adaptive, Arms, joint_arm
from unmask.axes import AXES
from unmask.base.environment import versions
from unmask.base.errors import OtherStudy
from unmask.core import Policy, Search
from unmask.lab.choose import (
    CONTROLS,
    DECODED_ARMS,
    DRAWS,
    JOINT,
    JOINT_FIXED,
    Choice,
    Missing,
    choices,
    choose_axis,
    is_extension,
)
from unmask.lab.controls import with_controls
from unmask.lab.gates import FURTHER_DRAWS, random_arm, selective_arm
from unmask.lab.run.decode_cache import DecodeCache, DecodedRow, DecodeLine
from unmask.lab.run.estimate import Decodes
from unmask.lab.run.jobs import Job
from unmask.lab.run.judging import Judge, JudgedAnswer
from unmask.lab.run.progress import DecodeProgress
from unmask.lab.run.site import Site
from unmask.lab.run.tables import decodes_table
from unmask.lab.searches import SEARCH, described
from unmask.lab.store import Shard, Store, fingerprint
from unmask.lab.study import ROLES, Study
from unmask.lab.study_models import ModelSpec
from unmask.methods import Composed, with_remasking
from unmask.stats import Calibration, NotEnough
from unmask.stats.protocol import choose_fixed


@dataclass(frozen=True)
class DecodeJob:
    """One unit, and what it is made of."""

    unit: Shard
    chosen: Mapping[str, Choice]
    """By diagnostic."""
    missing: Mapping[str, Missing]
    """Diagnostics that nothing can be chosen for, with the reason."""


def decode_arms(
    study: Study,
    store: Store,
    site: Site,
    *,
    tell: Callable[[DecodeProgress], None] = lambda now: None,
) -> str:
    """Decode what is not there yet. Returns why it stopped early, empty if it did not.

    All branches of a model and task must be there, for they choose what is decoded: where a shard was set aside nothing
    is decoded, or a later run that completes it would choose something else. `tell` hears what is being decoded, and
    how much is left.
    """
    chosen = choices(store, study.gates)
    incomplete = {(failure.model, failure.task) for failure in store.failures.set_aside()}
    works = {
        spec.name: [
            work
            for work in works_of(store, spec, chosen, study.searches)
            if (spec.name, work.unit.task) not in incomplete
        ]
        for spec in study.models
    }
    ahead = _Ahead(study, store, works, tell)
    for spec in study.models:
        pending = [work for work in works[spec.name] if not store.is_finished(work.unit)]
        if not pending:
            continue
        planned = site.planned(spec)
        # Says no if this is not the model that the branches came from.
        store.set_metadata("models", spec.name, planned.provenance)
        do = partial(_decode_unit, study, spec, site, planned.jobs, store, ahead)
        if reason := site.each(pending, lambda work: work.unit, do):
            return reason
    return ""


class _Ahead:
    """Row-forwards that are left: those of units that are not there, less what is done of the one in hand."""

    def __init__(
        self,
        study: Study,
        store: Store,
        works: Mapping[str, Sequence[DecodeJob]],
        tell: Callable[[DecodeProgress], None],
    ):
        self.store, self.tell = store, tell
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

    def heard(self, unit: Shard, done: int) -> None:
        """So many row-forwards of a unit are done."""
        with self.lock:
            self.done[unit] = done
            open_units = [one for one in self.units if not self.store.is_finished(one)]
            left = sum(max(0, self.expected[one] - self.done[one]) for one in open_units)
            total = sum(self.expected.values())
            self.tell(DecodeProgress(f"{unit.model}/{unit.task}", self.done.total(), left, total))


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
        evaluation += 2 + (chosen.fixed.action != chosen.reference) + _staged(chosen)
        evaluation += 0 if chosen.tau.value is None else 1 + DRAWS
        evaluation += (1 + FURTHER_DRAWS) * sum(gate.tau.value is not None for gate in choice.gates.values())
    return Decodes(validation, evaluation + (2 if len(joined) >= 2 else 0))


def _staged(chosen: Calibration) -> bool:
    """A schedule with one action is that action."""
    return any(action != chosen.fixed.action for action in chosen.schedule.action_K)


def works_of(
    store: Store,
    spec: ModelSpec,
    chosen: Mapping[tuple[str, str, str], Choice | Missing],
    searches: Mapping[str, Search],
) -> Iterator[DecodeJob]:
    """The units of a model, known without loading it; refused where something else was decoded in their place."""
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


def _decode_unit(
    study: Study,
    spec: ModelSpec,
    site: Site,
    planned: Sequence[Job],
    store: Store,
    ahead: _Ahead,
    work: DecodeJob,
) -> None:
    began = time.monotonic()
    of_task = [job for job in planned if job.shard.task == work.unit.task]
    requests = {role: [s for job in of_task if job.shard.split == role for s in job.requests] for role in ROLES}
    members = [example for job in of_task for example in job.members]
    cache, judge = site.whole_runs(spec, requests, members, lambda policies: ahead.heard(work.unit, cache.forwards))
    decoder = _ArmDecoder(study, spec, work, cache, judge)
    lines = list(decoder.lines())
    info = {
        "reference": spec.reference,
        "axes": decoder.about_axes(),
        "missing": {name: lost.reason for name, lost in work.missing.items()} | decoder.missing,
        "joint": decoder.joint,
        **({"searches": decoder.searched} if study.searches else {}),
        "prompts": {role: len(of_role) for role, of_role in requests.items()},
        "policies": cache.policies,
        "forwards": cache.forwards,
        "seconds": time.monotonic() - began,
        "versions": versions(),
    }
    table = decodes_table(work.unit, lines, decoder.judged(lines), named=study.renamed)
    store.write(work.unit, {"decodes": table}, info)
    with ahead.lock:
        ahead.done[work.unit] = cache.forwards


class _ArmDecoder:
    """One unit: what is decoded for each diagnostic, and in which order."""

    def __init__(self, study: Study, spec: ModelSpec, work: DecodeJob, cache: DecodeCache, judge: Judge):
        self.work, self.cache, self.judge = work, cache, judge
        plan = study.plan(spec.reference)
        self.reference, self.candidates = spec.reference, plan.candidates
        diagnostics = {diagnostic.name: diagnostic for diagnostic in plan.diagnostics.values()}
        self.arms = {
            name: Arms(
                axis,
                spec.reference,
                choice.calibration,
                diagnostics[name],
                study.revision if AXES[axis].revises else None,
            )
            for axis in study.axes
            for name, choice in work.chosen.items()
            if choice.axis == axis
        }
        """By diagnostic, in the order of the study's axes."""
        self.best: dict[str, str] = {}
        """By diagnostic: the candidate that is best end to end on validation prompts."""
        self.missing: dict[str, str] = {}
        """By diagnostic, as it is stored."""
        self.joint: dict[str, Any] | None = None
        self.searches: dict[str, Policy | Search] = {**study.searches}
        if study.searches:
            self.searches = {"reference": plan.reference, **study.searches}
        self.searched: dict[str, dict[str, Any]] = {}
        """By search: its base, its control, and what they cost."""

    def about_axes(self) -> dict[str, dict[str, Any]]:
        """What was chosen, by diagnostic, as it is stored."""
        return {name: _about(name, self.work.chosen[name], best) for name, best in self.best.items()}

    def judged(self, lines: Sequence[DecodeLine]) -> list[JudgedAnswer]:
        return self.judge.judge([(line.row.prompt, line.row.answer) for line in lines])

    def lines(self) -> Iterator[DecodeLine]:
        """All rows of the unit."""
        # All diagnostics of an axis have the same candidates.
        of_axis = {arms.axis: name for name, arms in reversed(self.arms.items())}
        self._foresee(of_axis)
        tried = [line for name in self.arms if name in of_axis.values() for line in self._candidates(name)]
        verdicts = self.judged(tried)
        yield from tried
        for name, arms in self.arms.items():
            pairs = [(line.arm, v.utility) for line, v in zip(tried, verdicts, strict=True) if line.axis == arms.axis]
            self._choose(name, pairs)
        best = [self.candidates[self.arms[name].axis][candidate] for name, candidate in self.best.items()]
        self.cache.foresee([*best, *self._joint_policies(self._joined())], "evaluation")
        for name in self.best:
            yield from self._evaluation(name)
        yield from self._joint()
        yield from self._searched()

    def _foresee(self, of_axis: Mapping[str, str]) -> None:
        """All that waits for nothing that is decoded: the candidates, and of every diagnostic what is calibrated."""
        candidates = (
            self.candidates[axis][candidate]
            for axis, name in of_axis.items()
            for candidate in self.work.chosen[name].calibration.candidates
        )
        self.cache.foresee(candidates, "validation")
        for name, arms in self.arms.items():
            gates = self.work.chosen[name].gates.values()
            under = [arms, *(arms.with_calibration(gate, list(self.candidates[arms.axis])) for gate in gates)]
            selective = [one.selective for one in under if one.calibration.tau.value is not None]
            staged = [arms.stage] if _staged(arms.calibration) else []
            self.cache.foresee([arms.reference, arms.fixed, *staged, arms.always, *selective], "evaluation")
        self.cache.foresee(with_controls(self.searches)[0].values(), "evaluation")

    def _candidates(self, name: str) -> Iterator[DecodeLine]:
        """Every candidate on the validation prompts."""
        axis = self.arms[name].axis
        for candidate in self.work.chosen[name].calibration.candidates:
            rows = self.cache.decode(self.candidates[axis][candidate], "validation")
            yield from (DecodeLine(axis, candidate, "validation", row) for row in rows)

    def _choose(self, name: str, tried: Sequence[tuple[str, float]]) -> None:
        """The best candidate end to end: of equal ones the fixed action, then the reference."""
        chosen = self.work.chosen[name].calibration
        utility_PA = np.array([[u for arm, u in tried if arm == candidate] for candidate in chosen.candidates]).T
        try:
            # The reference is the first candidate, to which ties without the fixed action go.
            best = choose_fixed(utility_PA[:, :, None], reference=chosen.fixed.action).action
            self.best[name] = chosen.candidates[best]
        except NotEnough:
            why = "no validation prompt has a judged answer of every candidate end to end"
            self.missing[name] = why

    def _evaluation(self, name: str) -> Iterator[DecodeLine]:
        arms, chosen = self.arms[name], self.work.chosen[name].calibration
        plain = {
            "reference": arms.reference,
            "fixed": arms.fixed,
            "stage": arms.stage if _staged(chosen) else arms.fixed,
            "end-to-end fixed": self.candidates[arms.axis][self.best[name]],
        }
        always = [_gated(arms, "always", row) for row in self.cache.decode(arms.always, "evaluation")]
        selective = self._selective(arms)
        gated = {"always": always, "selective": selective, "random gate": self._random(arms, selective)}
        for arm in (*DECODED_ARMS, *CONTROLS):
            if arm in gated:
                yield from gated[arm]
            else:
                rows = self.cache.decode(plain[arm], "evaluation")
                yield from (_plain(arms.axis, arm, row, name) for row in rows)
        for gate, calibration in self.work.chosen[name].gates.items():
            under = arms.with_calibration(calibration, list(self.candidates[arms.axis]))
            further = self._selective(under)
            yield from (line._replace(arm=selective_arm(gate)) for line in further)
            yield from (line._replace(arm=random_arm(gate)) for line in self._random(under, further, FURTHER_DRAWS))

    def _selective(self, arms: Arms) -> list[DecodeLine]:
        """A gate that never opens is the fixed arm. It is not decoded again to count signals nobody acts on."""
        if arms.calibration.tau.value is None:
            fixed, name = self.cache.decode(arms.fixed, "evaluation"), arms.diagnostic.name
            return [DecodeLine(arms.axis, "selective", "evaluation", row, None, 0, name) for row in fixed]
        return [_gated(arms, "selective", row) for row in self.cache.decode(arms.selective, "evaluation")]

    def _random(self, arms: Arms, selective: Sequence[DecodeLine], draws: int = DRAWS) -> list[DecodeLine]:
        """As many deviations as selective made on these prompts; where it made none, it is the same run, once."""
        deviated = sum(line.deviated or 0 for line in selective)
        if deviated == 0:
            return [line._replace(arm="random gate") for line in selective]
        share = deviated / sum(line.evaluated or 0 for line in selective)
        runs = self.cache.decode(arms.random_gate(share), "evaluation", draws)
        return [_gated(arms, "random gate", row) for row in runs]

    def _joint(self) -> Iterator[DecodeLine]:
        """All axes together, where there are two or more that the reference's decoder has."""
        joined = self._joined()
        if len(joined) < 2:
            return
        base, policy = self._joint_policies(joined)
        never = _never(joined)
        for arm, plain in (("reference", joined[0].reference), (JOINT_FIXED, base)):
            yield from (_plain(JOINT, arm, row, JOINT) for row in self.cache.decode(plain, "evaluation"))
        counts: dict[str, dict[str, list[int | None]]] = {arms.axis: {} for arms in joined}
        for row in self.cache.decode(policy, "evaluation"):
            for arms in joined:
                counts[arms.axis][row.prompt] = [None, 0] if never else list(row.gates[arms.diagnostic.name])
            evaluated, deviated = (sum(gate[at] for gate in row.gates.values()) for at in (0, 1))
            counted = {"evaluated": None if never else evaluated, "deviated": 0 if never else deviated}
            yield DecodeLine(JOINT, JOINT, "evaluation", row, **counted, diagnostic=JOINT)
        self.joint = {"axes": list(counts), "gates": counts}
        if any(arms.diagnostic.name != arms.axis for arms in joined):
            self.joint["diagnostics"] = [arms.diagnostic.name for arms in joined]

    def _joint_policies(self, joined: Sequence[Arms]) -> list[Policy]:
        """The joint arm with all gates shut, and with those that open; none where fewer than two axes are joined."""
        if len(joined) < 2:
            return []
        policy = joint_arm(joined)
        base = _joint_fixed(policy, joined)
        return [base, base if _never(joined) else policy]

    def _joined(self) -> list[Arms]:
        """One diagnostic of each axis that the reference's decoder has: the one that validation would choose."""
        native = [name for name in self.best if not is_extension(self.reference, self.arms[name].axis)]
        of_axis: dict[str, dict[str, tuple[float, float]]] = {}
        for name in native:
            choice = self.work.chosen[name]
            of_axis.setdefault(choice.axis, {})[name] = (choice.lift, choice.opportunity)
        best = [choose_axis(promised) for promised in of_axis.values()]
        return [self.arms[name] for name in best if name is not None]

    def _searched(self) -> Iterator[DecodeLine]:
        """The study's searches, the methods they build on, and best of n of those with as many forwards."""
        arms, controls = with_controls(self.searches)
        spent: dict[str, float] = {}
        for arm, policy in arms.items():
            rows = self.cache.decode(policy, "evaluation")
            spent[arm] = float(np.mean([row.forwards for row in rows]))
            yield from (_plain(SEARCH, arm, row, SEARCH) for row in rows)
        for arm, control in controls.items():
            n = control.affordable_n(spent)
            rows = self.cache.decode(replace(control.policy, n=n), "evaluation")
            cost = {**spent, arm: float(np.mean([row.forwards for row in rows]))}
            forwards = {name: cost[name] for name in ("reference", control.search, control.base, arm)}
            self.searched[control.search] = {"base": control.base, "control": arm, "n": n, "forwards": forwards}
            yield from (_plain(SEARCH, arm, row, SEARCH) for row in rows)


def _never(arms: Sequence[Arms]) -> bool:
    """Whether no gate of theirs ever opens."""
    return all(one.calibration.tau.value is None for one in arms)


def _about(name: str, choice: Choice, best: str) -> dict[str, Any]:
    """The axis is said where the diagnostic is not called so."""
    opportunity = choice.opportunity if math.isfinite(choice.opportunity) else None
    about = {"calibration": choice.calibration.to_json(), "opportunity": opportunity, "end_to_end": best}
    further = {"gates": {gate: one.to_json() for gate, one in choice.gates.items()}} if choice.gates else {}
    return {**about, **further} if name == choice.axis else {**about, **further, "axis": choice.axis}


def _plain(axis: str, arm: str, row: DecodedRow, diagnostic: str) -> DecodeLine:
    return DecodeLine(axis, arm, "evaluation", row, diagnostic=diagnostic)


def _gated(arms: Arms, arm: str, row: DecodedRow) -> DecodeLine:
    name = arms.diagnostic.name
    return DecodeLine(arms.axis, arm, "evaluation", row, *row.gates[name], name)


def _joint_fixed(joint: Policy, arms: Sequence[Arms]) -> Policy:
    """The joint arm with all gates shut; the operator stays only where something is left revisable."""
    inner = joint.base if isinstance(joint, Composed) else joint
    assert isinstance(inner, Adaptive)
    revises = any(AXES[one.axis].revises and one.calibration.fixed.action != one.calibration.reference for one in arms)
    return with_remasking(inner.fixed, joint.operator) if revises and isinstance(joint, Composed) else inner.fixed
