"""What a study will take, before anything runs: counts, an upper bound of forwards, and seconds at a measured rate.

Prompts, states and branches follow from the study file. How much equal work there is to be done once depends on what
the model says, so forwards are a bound: every branch by itself, no two arms alike, every gate open. What is not known
is missing, never guessed.
"""

import time
from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd
import torch

from unmask.api import LoadedModel, TextInfo, start_trajectory, token_request
from unmask.axes import POLICY
from unmask.core import ModelInput, Needs
from unmask.lab.branching import spaced_steps
from unmask.lab.study.config import ROLES, StudyConfig
from unmask.lab.study.jobs import Examples
from unmask.lab.study.validation import DRAWS, FURTHER_DRAWS, is_extension
from unmask.methods import has_own_input, reference_of

ARMS_OF_A_DIAGNOSTIC = 5 + DRAWS
"""Arms of each diagnostic beside the reference, counting every draw of the random gate."""


class DecodeCounts(NamedTuple):
    """Upper bounds of how often each prompt of a role is decoded from beginning to end."""

    validation: int
    evaluation: int

    def forwards(self, prompts: Mapping[str, int], steps: int) -> int:
        """Return row-forwards for so many prompts by role, if every run takes all its steps."""
        return steps * sum(each * prompts.get(role, 0) for role, each in self._asdict().items())


def decodes_at_most(study: StudyConfig, reference: str) -> DecodeCounts:
    """Count decodes of candidates and arms, as if no two arms were the same."""
    if not study.end_to_end:
        return DecodeCounts(0, 0)
    sets = study.candidate_sets(reference)
    axes = dict.fromkeys(study.diagnosed_axes)
    joined = sum(not is_extension(reference, axis) for axis in axes) >= 2
    # The reference is a candidate of every axis and an arm of each diagnostic, and decoded once.
    candidates = 1 + sum(len(sets[axis]) - 1 for axis in axes)
    each = ARMS_OF_A_DIAGNOSTIC + len(study.gates) * (1 + FURTHER_DRAWS)
    return DecodeCounts(candidates, 1 + len(study.diagnostics) * each + 2 * joined)


def prompts_by_role(study: StudyConfig, task: str, tasks: Examples | None = None) -> dict[str, int]:
    """Count prompts by role; without the task's data, as many as the file asks for and the task has."""
    if tasks is not None and task in tasks:
        return {role: len(members) for role, members in tasks[task].items()}
    there, prompts = study.task(task).counts, {}
    for role in ROLES:
        part = study.splits[role]
        # Fresh prompts have no end.
        most = max(0, there[part.split] - part.start) if part.split in there else part.prompts
        prompts[role] = min(part.prompts, most)
    return prompts


def forecast(
    study: StudyConfig,
    tasks: Examples | None = None,
    texts: Mapping[str, TextInfo | None] | None = None,
    rates: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """Forecast a study: a row for each model and task. `texts` (tokenizers) and `rates` (row-forwards/s) are by model.

    Columns: model, task, prompts, states, branches (of candidates), proposals (branches of diagnostics), forwards (of
    the reference's runs and all branches, at most), whole_runs (forwards of the arms, at most), width (of the widest
    canvas; needs data and a tokenizer) and seconds (of both, at most; needs a rate). Prompts that do not fit into the
    model are counted where there is no tokenizer to tell.
    """
    rows = []
    for spec in study.models:
        text, rate = (texts or {}).get(spec.name), (rates or {}).get(spec.name)
        sets = study.candidate_sets(spec.reference)
        candidates = sum(len(named) for named in sets.values())
        own_inputs = sum(has_own_input(policy) for policy in sets.get(POLICY, {}).values())
        for task in study.tasks:
            steps, prompts = study.steps[task], prompts_by_role(study, task, tasks)
            widths = _widths(study, task, tasks, text)
            if widths is not None:
                prompts = {role: len(found) for role, found in widths.items()}
            count, at = sum(prompts.values()), spaced_steps(steps, study.states)
            each = study.rollouts * (candidates + len(study.diagnostics))
            # A run takes `steps` forwards, a branch those that are left at its state, and one more where a method reads
            # an input of its own there. The last step before a state may be computed again.
            of_branches = each * sum(steps - step for step in at) + study.rollouts * own_inputs * len(at)
            forwards = count * (steps + len(at) + of_branches)
            whole_runs = decodes_at_most(study, spec.reference).forwards(prompts, steps)
            rows.append(
                {
                    "model": spec.name,
                    "task": task,
                    "prompts": count,
                    "states": count * len(at),
                    "branches": count * len(at) * study.rollouts * candidates,
                    "proposals": count * len(at) * study.rollouts * len(study.diagnostics),
                    "forwards": forwards,
                    "whole_runs": whole_runs,
                    "width": None
                    if widths is None
                    else max((w for found in widths.values() for w in found), default=0),
                    "seconds": None if rate is None else (forwards + whole_runs) / rate,
                }
            )
    return pd.DataFrame(rows)


def uncounted_methods(study: StudyConfig) -> list[str]:
    """List the methods that look ahead, whose further forwards come on top of the bound."""
    names: dict[str, None] = {}
    for spec in study.models:
        sets = study.candidate_sets(spec.reference)
        for name, policy in sets.get(POLICY, {}).items():
            if policy.looks_ahead:
                at_every_step = policy == reference_of(sets)
                names[f"{name} (the reference, at every step)" if at_every_step else name] = None
    return [*names, *study.searches]


def _widths(
    study: StudyConfig, task: str, tasks: Examples | None, text: TextInfo | None
) -> dict[str, list[int]] | None:
    """Return canvas widths of the prompts that fit into the model, by role; None without tokenizer or data."""
    if tasks is None or text is None or task not in tasks:
        return None
    bucket, most = study.engine.bucket, study.task(task).max_new_tokens
    widths = {}
    for role, members in tasks[task].items():
        lengths = (
            text.count_infill_canvas(e.prompt) if e.has_blanks else text.count_prompt_canvas(e.prompt, most)
            for e in members
        )
        fits = (n for n in lengths if text.max_length is None or n <= text.max_length)
        widths[role] = [-(-length // bucket) * bucket for length in fits]
    return widths


def measured_rate(model: LoadedModel, study: StudyConfig, width: int) -> float:
    """Measure row-forwards per second of full forwards on canvases of `width`."""
    closing = len(model.codec.closing)
    blanks = min(max(study.task(task).max_new_tokens for task in study.tasks), width - closing)
    request = token_request(model, [0] * (width - blanks - closing), blanks, 1)
    traj = start_trajectory(model.denoiser, [request] * study.engine.rows, study.seed, width)
    inputs, needs, spent = ModelInput.of(traj.state, Needs()), Needs(), []
    for _ in range(3):
        began = time.perf_counter()
        model.denoiser(inputs, needs)
        if model.denoiser.device.type == "cuda":
            torch.cuda.synchronize()
        spent.append(time.perf_counter() - began)
    return study.engine.rows / min(spent)
