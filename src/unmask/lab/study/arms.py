"""E4: the arms that validation prompts chose, decoded from beginning to end on the prompts of one model and task.

Every candidate is decoded on validation prompts, which choose the end-to-end fixed action. Then come, on evaluation
prompts, for each diagnostic: reference, fixed, stage, always and selective, the end-to-end fixed action, and random
gates with the coverage of selective; further gates; all axes together; searches with controls that cost as much.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from unmask.adapt import Adaptive, Arms, joint_arm
from unmask.api import LoadedModel, Request
from unmask.axes import AXES
from unmask.core import Policy, SamplingParams, Search
from unmask.lab.branching import BatchSettings
from unmask.lab.controls import add_controls
from unmask.lab.study.config import ModelSpec, StudyConfig
from unmask.lab.study.decode import decode_prompts
from unmask.lab.study.prompts import add_texts
from unmask.lab.study.validation import (
    CONTROLS,
    DECODED_ARMS,
    DRAWS,
    FURTHER_DRAWS,
    JOINT,
    JOINT_FIXED,
    SEARCH,
    AxisCalibration,
    choose_axis,
    is_extension,
    random_arm,
    selective_arm,
)
from unmask.methods import Composed, with_remasking
from unmask.stats import Calibration, NotEnough
from unmask.stats.protocol import choose_fixed

VALIDATION, EVALUATION = "validation", "evaluation"


class PromptGroup(NamedTuple):
    """Prompts that are decoded together, each with the number of its draw."""

    requests: Sequence[Request]
    draws: Sequence[int]
    slots: int
    """Width of their canvases."""


def decode_group(
    model: LoadedModel, seed: int, temperature: float, policy: Policy | Search, group: PromptGroup
) -> pd.DataFrame:
    """Decode a group of prompts and add the texts of their answers."""
    frame = decode_prompts(
        model,
        group.requests,
        policy,
        seed=seed,
        draws=group.draws,
        slots=group.slots,
        sampling=SamplingParams(temperature=temperature),
        count_coverage=True,
    )
    return add_texts(frame, group.requests, model.codec)


class PromptDecoder:
    """Decodes the prompts of one model and task with any policy, each policy once however many arms it stands for."""

    def __init__(
        self,
        requests: Mapping[str, Sequence[Request]],
        settings: BatchSettings,
        submit: "Callable[[Policy | Search, PromptGroup], Future[pd.DataFrame]]",
        *,
        ahead: bool = False,
        on_batch: Callable[[], None] = lambda: None,
    ):
        """Prepare to decode. `submit` starts a group of prompts; with `ahead` groups start before they are needed."""
        self.requests, self.settings, self.submit = requests, settings, submit
        self.ahead, self.on_batch = ahead, on_batch
        self.policies = 0
        """Policies decoded so far, on either role."""
        self.forwards = 0
        """Row-forwards so far."""
        # Lists, because policies may not be hashable.
        self._begun: list[tuple[Policy | Search, str, int, list[Future[pd.DataFrame]]]] = []
        self._decoded: list[tuple[Policy | Search, str, int, pd.DataFrame]] = []

    def prepare(self, policies: Iterable[Policy | Search], role: str) -> None:
        """Start decoding with policies that will be needed, if there are workers for them."""
        for policy in policies if self.ahead else ():
            self._start_groups(policy, role, 1)

    def decode(self, policy: Policy | Search, role: str, draws: int = 1) -> pd.DataFrame:
        """Decode every prompt of a role `draws` times; the first draw has the random numbers of all arms."""
        for known, where, times, frame in self._decoded:
            if (where, times) == (role, draws) and known == policy:
                return frame
        frames = []
        for future in self._start_groups(policy, role, draws):
            self.on_batch()
            frames.append(future.result())
        frame = pd.concat(frames, ignore_index=True)
        self._decoded.append((policy, role, draws, frame))
        self.policies += 1
        self.forwards += int(frame["forwards"].sum())
        return frame

    def _start_groups(self, policy: Policy | Search, role: str, draws: int) -> "Iterable[Future[pd.DataFrame]]":
        for known, where, times, futures in self._begun:
            if (where, times) == (role, draws) and known == policy:
                return futures
        if not self.ahead:
            # One at a time: a result is there as soon as it was asked for.
            return (self.submit(policy, group) for group in self._group_prompts(role, draws))
        futures = [self.submit(policy, group) for group in self._group_prompts(role, draws)]
        self._begun.append((policy, role, draws, futures))
        return futures

    def _group_prompts(self, role: str, draws: int) -> list[PromptGroup]:
        """Group the prompts of a role into batches of one canvas width.

        The width is once, twice, four times the bucket and follows from the prompt alone: few widths, because a decode
        takes as long with ten rows as with a hundred, and none that depends on a prompt's company.
        """
        bucket, most = self.settings.bucket, max(self.settings.rows, self.settings.live)
        rows = [(request, draw) for draw in range(draws) for request in self.requests[role]]
        by_width: dict[int, list[tuple[Request, int]]] = {}
        for request, draw in rows:
            width = bucket << (-(-len(request.canvas) // bucket) - 1).bit_length()
            by_width.setdefault(width, []).append((request, draw))
        groups = []
        for width, same in sorted(by_width.items()):
            for first in range(0, len(same), most):
                requests, numbers = zip(*same[first : first + most], strict=True)
                groups.append(PromptGroup(requests, numbers, width))
        return groups


class DecodedArms(NamedTuple):
    """The decoded arms of one model and task, and how they were chosen."""

    frame: pd.DataFrame
    """A row for each arm, prompt and draw: axis, arm, split, diagnostic, evaluated, deviated, utility and the rest."""
    axes: dict[str, dict[str, Any]]
    """Choices by diagnostic, as they are stored."""
    missing: dict[str, str]
    """Diagnostics without an end-to-end fixed action, and why."""
    joint: dict[str, Any] | None
    searches: dict[str, dict[str, Any]]
    """By search: its base, its control, and what they cost."""


def decode_arms(
    study: StudyConfig,
    spec: ModelSpec,
    chosen: Mapping[str, AxisCalibration],
    decoder: PromptDecoder,
    score: Callable[[pd.DataFrame], pd.DataFrame],
) -> DecodedArms:
    """Decode and score all arms of one model and task. `chosen` has the calibrations by diagnostic."""
    plan = study.branch_plan(spec.reference)
    # By diagnostic, in the order of the study's axes.
    arms = {
        name: Arms(
            axis,
            spec.reference,
            choice.calibration,
            plan.diagnostics[name],
            study.revision if AXES[axis].revises else None,
        )
        for axis in study.axes
        for name, choice in chosen.items()
        if choice.axis == axis
    }
    searches: dict[str, Policy | Search] = dict(study.searches)
    if searches:
        searches = {"reference": plan.reference, **searches}
    # All diagnostics of an axis have the same candidates.
    tried = {
        (one.axis, name): plan.candidates[one.axis][name]
        for one in arms.values()
        for name in one.calibration.candidates
    }
    decoder.prepare(tried.values(), VALIDATION)
    decoder.prepare(_known_policies(arms, chosen, searches, plan.candidates), EVALUATION)

    frames = [
        label(decoder.decode(policy, VALIDATION), axis, name, VALIDATION) for (axis, name), policy in tried.items()
    ]
    scored = [score(pd.concat(frames, ignore_index=True))] if frames else []
    best, missing = {}, {}
    for name, one in arms.items():
        try:
            best[name] = _best_end_to_end(scored[0], one.axis, chosen[name].calibration)
        except NotEnough:
            missing[name] = "no validation prompt has a judged answer of every candidate end to end"

    joined = _choose_joined_axes(spec.reference, {name: arms[name] for name in best}, chosen)
    decoder.prepare([plan.candidates[arms[name].axis][action] for name, action in best.items()], EVALUATION)
    decoder.prepare(_joint_policies(joined), EVALUATION)
    frames = []
    for name, action in best.items():
        frames += _decode_evaluated_arms(
            name, arms[name], plan.candidates[arms[name].axis], action, chosen[name], decoder
        )
    joint_frames, joint = _decode_joint(joined, decoder)
    search_frames, about_searches = _decode_searches(searches, decoder)
    frames += [*joint_frames, *search_frames]
    if frames:
        scored.append(score(pd.concat(frames, ignore_index=True)))
    about = {name: _choice_json(name, chosen[name], action) for name, action in best.items()}
    return DecodedArms(pd.concat(scored, ignore_index=True), about, missing, joint, about_searches)


def label(
    frame: pd.DataFrame, axis: str, arm: str, split: str, diagnostic: str = "", gate: str | None = None
) -> pd.DataFrame:
    """Label decoded rows with their arm. `gate` is the diagnostic whose coverage is counted; None for a plain arm."""
    counts = [row.get(gate, (None, None)) if gate else (None, None) for row in frame["coverage"]]
    evaluated, deviated = zip(*counts, strict=True)
    counted = {"evaluated": pd.array(evaluated, "Int64"), "deviated": pd.array(deviated, "Int64")}
    return frame.assign(axis=axis, arm=arm, split=split, diagnostic=diagnostic, **counted)


def _known_policies(
    arms: Mapping[str, Arms],
    chosen: Mapping[str, AxisCalibration],
    searches: Mapping[str, Policy | Search],
    candidates: Mapping[str, Mapping[str, Policy]],
) -> Iterable[Policy | Search]:
    """Yield the policies for evaluation prompts that are known before anything is decoded."""
    for name, one in arms.items():
        yield from (one.reference, one.fixed, *([one.stage] if is_staged(one.calibration) else []), one.always)
        gates = [one.with_calibration(gate, list(candidates[one.axis])) for gate in chosen[name].gates.values()]
        yield from (under.selective for under in (one, *gates) if under.calibration.tau.value is not None)
    yield from add_controls(searches)[0].values()


def is_staged(calibration: Calibration) -> bool:
    """Tell whether the stage schedule has other actions than the fixed one."""
    return any(action != calibration.fixed.action for action in calibration.schedule.action_K)


def _best_end_to_end(tried: pd.DataFrame, axis: str, calibration: Calibration) -> str:
    """Return the candidate that is best end to end on validation prompts; the fixed action wins ties."""
    own = tried[tried["axis"] == axis]
    utility_PA = np.array([own.loc[own["arm"] == name, "utility"] for name in calibration.candidates]).T
    # The reference is the first candidate, to which ties without the fixed action go.
    return calibration.candidates[choose_fixed(utility_PA[:, :, None], reference=calibration.fixed.action).action]


def _decode_evaluated_arms(
    name: str,
    arms: Arms,
    candidates: Mapping[str, Policy],
    best: str,
    choice: AxisCalibration,
    decoder: PromptDecoder,
) -> list[pd.DataFrame]:
    """Decode the arms of one diagnostic on evaluation prompts, and those of its further gates."""
    plain = {
        "reference": arms.reference,
        "fixed": arms.fixed,
        "stage": arms.stage if is_staged(arms.calibration) else arms.fixed,
        "end-to-end fixed": candidates[best],
    }
    selective, random = _decode_gate_and_control(name, arms, DRAWS, decoder)
    gated = {
        "always": label(decoder.decode(arms.always, EVALUATION), arms.axis, "always", EVALUATION, name, name),
        "selective": selective,
        "random gate": random,
    }
    frames = [
        gated[arm] if arm in gated else label(decoder.decode(plain[arm], EVALUATION), arms.axis, arm, EVALUATION, name)
        for arm in (*DECODED_ARMS, *CONTROLS)
    ]
    for gate, calibration in choice.gates.items():
        under = arms.with_calibration(calibration, list(candidates))
        selective, random = _decode_gate_and_control(name, under, FURTHER_DRAWS, decoder)
        frames += [selective.assign(arm=selective_arm(gate)), random.assign(arm=random_arm(gate))]
    return frames


def _decode_gate_and_control(
    name: str, arms: Arms, draws: int, decoder: PromptDecoder
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Decode the selective arm, and a random gate that deviates at the same share of steps with a signal.

    A gate that never opens is the fixed arm: it is not decoded again to count signals that nobody acts on, and its
    control is the same run.
    """
    labelled = partial(label, axis=arms.axis, split=EVALUATION, diagnostic=name)
    if arms.calibration.tau.value is None:
        fixed = labelled(decoder.decode(arms.fixed, EVALUATION), arm="selective")
        fixed["deviated"] = pd.array([0] * len(fixed), "Int64")
        return fixed, fixed.assign(arm="random gate")
    selective = labelled(decoder.decode(arms.selective, EVALUATION), arm="selective", gate=name)
    deviated = int(selective["deviated"].sum())
    if deviated == 0:
        return selective, selective.assign(arm="random gate")
    coverage = deviated / int(selective["evaluated"].sum())
    random = decoder.decode(arms.random_gate(coverage), EVALUATION, draws)
    return selective, labelled(random, arm="random gate", gate=name)


def _choose_joined_axes(reference: str, arms: Mapping[str, Arms], chosen: Mapping[str, AxisCalibration]) -> list[Arms]:
    """Choose one diagnostic of each axis for the joint arm, as validation prompts would; extensions are left out."""
    of_axis: dict[str, dict[str, tuple[float, float]]] = {}
    for name, one in arms.items():
        if not is_extension(reference, one.axis):
            of_axis.setdefault(one.axis, {})[name] = (chosen[name].lift, chosen[name].opportunity)
    best = [choose_axis(expected) for expected in of_axis.values()]
    joined = [arms[name] for name in best if name is not None]
    return joined if len(joined) >= 2 else []


def _never_opens(arms: Sequence[Arms]) -> bool:
    return all(one.calibration.tau.value is None for one in arms)


def _joint_policies(joined: Sequence[Arms]) -> list[Policy]:
    """Return the joint arm without gates and with them; an empty list for fewer than two axes."""
    if not joined:
        return []
    policy = joint_arm(joined)
    inner = policy.base if isinstance(policy, Composed) else policy
    assert isinstance(inner, Adaptive)
    # The operator stays only where something is left revisable.
    revises = any(
        AXES[one.axis].revises and one.calibration.fixed.action != one.calibration.reference for one in joined
    )
    keeps = revises and isinstance(policy, Composed)
    fixed = with_remasking(inner.fixed, policy.operator) if keeps and isinstance(policy, Composed) else inner.fixed
    return [fixed, fixed if _never_opens(joined) else policy]


def _decode_joint(joined: Sequence[Arms], decoder: PromptDecoder) -> tuple[list[pd.DataFrame], dict[str, Any] | None]:
    """Decode the joint arm, which adapts all axes together, and its controls; nothing for fewer than two axes."""
    if not joined:
        return [], None
    fixed, policy = _joint_policies(joined)
    frames = [
        label(decoder.decode(plain, EVALUATION), JOINT, arm, EVALUATION, JOINT)
        for arm, plain in (("reference", joined[0].reference), (JOINT_FIXED, fixed))
    ]
    frame = decoder.decode(policy, EVALUATION)
    never = _never_opens(joined)
    counts: dict[str, dict[str, list[int | None]]] = {}
    for one in joined:
        pairs = zip(frame["prompt"], frame["coverage"], strict=True)
        counts[one.axis] = {
            prompt: [None, 0] if never else list(coverage[one.diagnostic.name]) for prompt, coverage in pairs
        }
    totals = [tuple(sum(gate[at] for gate in coverage.values()) for at in (0, 1)) for coverage in frame["coverage"]]
    evaluated, deviated = zip(*([(None, 0)] * len(frame) if never else totals), strict=True)
    joint = label(frame, JOINT, JOINT, EVALUATION, JOINT)
    frames.append(joint.assign(evaluated=pd.array(evaluated, "Int64"), deviated=pd.array(deviated, "Int64")))
    about: dict[str, Any] = {"axes": list(counts), "gates": counts}
    if any(one.diagnostic.name != one.axis for one in joined):
        about["diagnostics"] = [one.diagnostic.name for one in joined]
    return frames, about


def _decode_searches(
    searches: Mapping[str, Policy | Search], decoder: PromptDecoder
) -> tuple[list[pd.DataFrame], dict[str, dict[str, Any]]]:
    """Decode each search, its base method, and best-of-n of the base method at the same number of forwards."""
    arms, controls = add_controls(searches)
    frames, spent, about = [], {}, {}
    for arm, policy in arms.items():
        frame = decoder.decode(policy, EVALUATION)
        spent[arm] = float(np.mean(frame["forwards"]))
        frames.append(label(frame, SEARCH, arm, EVALUATION, SEARCH))
    for arm, control in controls.items():
        n = control.affordable_n(spent)
        frame = decoder.decode(replace(control.policy, n=n), EVALUATION)
        cost = {**spent, arm: float(np.mean(frame["forwards"]))}
        forwards = {name: cost[name] for name in ("reference", control.search, control.base, arm)}
        about[control.search] = {"base": control.base, "control": arm, "n": n, "forwards": forwards}
        frames.append(label(frame, SEARCH, arm, EVALUATION, SEARCH))
    return frames, about


def _choice_json(name: str, choice: AxisCalibration, best: str) -> dict[str, Any]:
    """Return a choice as `unit.json` stores it; with its axis if the diagnostic has another name."""
    opportunity = choice.opportunity if math.isfinite(choice.opportunity) else None
    about: dict[str, Any] = {
        "calibration": choice.calibration.to_json(),
        "opportunity": opportunity,
        "end_to_end": best,
    }
    if choice.gates:
        about["gates"] = {gate: one.to_json() for gate, one in choice.gates.items()}
    return about if name == choice.axis else {**about, "axis": choice.axis}
