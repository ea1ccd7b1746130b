"""What a study has to do: prompts to requests, requests to shards, and what they were made of."""

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from unmask.api import LoadedModel, Request
from unmask.base.errors import ConfigError, SchemaError, require
from unmask.lab.branching import BatchSettings
from unmask.lab.store import Shard, fingerprint
from unmask.lab.study.config import PromptRange, Study
from unmask.lab.study.prompts import example_request, select_examples
from unmask.lab.study_models import ModelSpec
from unmask.tasks import DataDir, Example, Task

W = TypeVar("W")
Members = Mapping[str, Mapping[str, Sequence[Example]]]
"""Examples by task and role."""


@dataclass(frozen=True)
class Job:
    """The work of one shard."""

    shard: Shard
    requests: tuple[Request, ...]
    members: tuple[Example, ...]


def load_examples(study: Study, data_dir: DataDir = None) -> tuple[dict[str, dict[str, list[Example]]], dict[str, str]]:
    """Examples by task and role; and tasks whose data is not there, with the reason."""
    tasks: dict[str, dict[str, list[Example]]] = {}
    unavailable = {}
    for task in study.tasks:
        try:
            tasks[task] = {role: _members(study.task(task), part, data_dir) for role, part in study.splits.items()}
        except (ConfigError, SchemaError) as error:
            unavailable[task] = str(error)
            continue
        _check_apart(task, tasks[task])
    if not tasks:
        task, reason = next(iter(unavailable.items()))
        raise ConfigError(f"no task of the study has data: {task}: {reason}")
    return tasks, unavailable


def _members(task: Task, part: PromptRange, data_dir: DataDir) -> list[Example]:
    members = list(select_examples(task, part.split, start=part.start, prompts=part.prompts, data_dir=data_dir))
    # JSON Mode Eval has fewer than others: "up to" so many.
    require(bool(members), f"{part.split} prompts of {task.name}", 0, "one or more", "start earlier")
    return members


def _check_apart(task: str, roles: Mapping[str, Sequence[Example]]) -> None:
    """Refuse a prompt that stands in two roles."""
    seen: dict[str, str] = {}
    for role, members in roles.items():
        for example in members:
            other = seen.setdefault(example.prompt, role)
            require(
                other == role,
                f"prompt {example.id} of {task}",
                f"in {other} and {role}",
                "in one of them",
                "choose stretches that do not overlap",
            )


def plan_jobs(study: Study, spec: ModelSpec, model: LoadedModel, tasks: Members) -> list[Job]:
    """The shards of a model: prompts of one bucket, so many at a time, in the order of their split."""
    return [
        job
        for task, roles in tasks.items()
        for role, members in roles.items()
        for job in _jobs(study, spec, model, task, role, members)
    ]


def _jobs(
    study: Study, spec: ModelSpec, model: LoadedModel, task: str, role: str, members: Sequence[Example]
) -> list[Job]:
    about, bucket = study.task(task), study.engine.bucket
    jobs: list[Job] = []
    pairs = [(example_request(model, about, study.steps[task], example), example) for example in members]
    fits = [(s, e) for s, e in pairs if model.max_length is None or len(s.canvas) <= model.max_length]
    for slots in sorted({s.padded_length(bucket) for s, _ in fits}):
        same = [(s, e) for s, e in fits if s.padded_length(bucket) == slots]
        for at in range(0, len(same), study.shard):
            part = same[at : at + study.shard]
            made_of = [study.config, spec.name, spec.reference, _identity(spec, model), task, about.version, role]
            shard = Shard(
                kind="branches",
                model=spec.name,
                task=task,
                split=role,
                block=len(jobs),
                depends=fingerprint([*made_of, _hash_of(part)]),
            )
            jobs.append(Job(shard, tuple(s for s, _ in part), tuple(e for _, e in part)))
    return jobs


def most_together(rows: int, prompts: int, workers: int) -> int:
    """Prompts that are done together at most: as many as a forward has rows, but every worker gets two such groups."""
    return rows if workers == 1 else min(rows, max(1, -(-prompts // (2 * workers))))


def group_jobs(engine: BatchSettings, jobs: Sequence[Job], workers: int = 1) -> list[list[Job]]:
    """Jobs that are done together, so that forwards are full: of one bucket."""

    def slots(job: Job) -> int:
        return max(request.padded_length(engine.bucket) for request in job.requests)

    return group_alike(jobs, slots, lambda job: len(job.requests), engine.rows, workers)


def group_alike(
    work: Sequence[W], alike: Callable[[W], Hashable], prompts: Callable[[W], int], rows: int, workers: int
) -> list[list[W]]:
    """Put work that is alike together, with at most `most_together` prompts unless one has more by itself.

    Groups are in the order of their first pieces.
    """
    most = most_together(rows, sum(map(prompts, work)), workers)
    groups: list[list[W]] = []
    growing: dict[Hashable, list[W]] = {}
    for one in work:
        group = growing.get(alike(one), [])
        if not group or sum(map(prompts, group)) + prompts(one) > most:
            group = growing[alike(one)] = []
            groups.append(group)
        group.append(one)
    return groups


def provenance(spec: ModelSpec, model: LoadedModel, work: Sequence[Job]) -> dict[str, Any]:
    """Metadata of a model for the manifest, with the meaning of the names of its shards."""
    shards = {
        job.shard.name: {
            "task": job.shard.task,
            "split": job.shard.split,
            "block": job.shard.block,
            "prompts": len(job.requests),
        }
        for job in work
    }
    return {**_identity(spec, model), "reference": spec.reference, "shards": shards}


def task_metadata(study: Study, task: str, roles: Mapping[str, Sequence[Example]]) -> dict[str, Any]:
    """Metadata of a task for the manifest."""
    remasks = (
        study.revision.expected_remasks(study.task(task).max_new_tokens, study.steps[task]) if study.revision else 0.0
    )
    data = fingerprint({role: [[e.id, e.prompt, e.target] for e in members] for role, members in roles.items()})
    return {"version": study.task(task).version, "data": data, "expected_remasks": round(remasks, 3)}


def _identity(spec: ModelSpec, model: LoadedModel) -> dict[str, Any]:
    device = model.denoiser.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return {"model": spec.model, "options": dict(model.options), "device": name}


def _hash_of(pairs: Sequence[tuple[Request, Example]]) -> str:
    digest = hashlib.sha256()
    for request, example in pairs:
        digest.update(repr((request.id, request.canvas, request.steps, example.target)).encode())
    return digest.hexdigest()
