"""A study's work as workers do it: functions of a context, whose results travel; and what is judged beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from unmask.api import LoadedModel
from unmask.base.errors import ConfigError, NotEnoughMemory, OtherStudy, UnmaskError
from unmask.core import Policy, Search
from unmask.lab.branching import BatchSettings
from unmask.lab.cluster.connect import ray_module
from unmask.lab.cluster.workers import WorkerContext
from unmask.lab.store import fingerprint
from unmask.lab.study.arms import PromptGroup, decode_group
from unmask.lab.study.config import Study
from unmask.lab.study.jobs import Job, Members, provenance
from unmask.lab.study.progress import progress_of
from unmask.lab.study.prompts import add_texts, score_texts
from unmask.lab.study.shards import BranchedShard, FinishedShard, branch_group, score_shard
from unmask.lab.study.site import PlannedWork, planned_work
from unmask.lab.study_models import REFERENCES, ModelSpec
from unmask.methods import candidates, reference_of, register_reference
from unmask.tasks import Example


@dataclass(frozen=True)
class CarriedStudy:
    """A study as it travels: with the references that only the process which read its file knows by name."""

    study: Study
    engine: BatchSettings
    tasks: Members
    references: Mapping[str, Policy]
    fingerprint: str
    """Of its configuration: hashes of code and data among it must come out the same everywhere."""

    @classmethod
    def of(cls, study: Study, engine: BatchSettings, tasks: Members) -> "CarriedStudy":
        own = {spec.reference for spec in study.models} - set(REFERENCES)
        references = {name: reference_of(candidates(name)) for name in sorted(own)}
        return cls(study, engine, tasks, references, fingerprint(study.config))

    def unpacked(self) -> Study:
        """The study, in a process that has not read its file; refused where it is another one here."""
        for name, policy in self.references.items():
            # Who read the file has checked what it may be.
            _check_same("the reference", name, register_reference(policy, whole=True))
        _check_same("the study", self.fingerprint, fingerprint(self.study.config))
        return self.study


def _check_same(what: str, there: str, here: str) -> None:
    if there != here:
        raise ConfigError(
            f"{what} is {here} on a worker and {there} in the driver: its own code or data is not the same there; "
            "allowed: equal files; put what the code reads beside it on every node, or into the code"
        )


def plan_model(context: WorkerContext, spec: ModelSpec) -> PlannedWork:
    """The shards of a model."""
    study = context.value.unpacked()
    return planned_work(study, spec, _model(context, spec), context.value.tasks)


def branch_shards(
    context: WorkerContext, spec: ModelSpec, expected: Mapping[str, object], jobs: Sequence[Job]
) -> list[np.ndarray]:
    """Shards that are computed together, each packed by itself with the texts of its answers."""
    study, model = context.value.unpacked(), _model(context, spec)
    _check_model(spec, model, expected)
    branched = [
        replace(one, frames=one.frames._replace(branches=add_texts(one.frames.branches, one.job.requests, model.codec)))
        for one in branch_group(model, study, spec, context.value.engine, jobs, context.tell)
    ]
    context.count("unmask_shards", len(branched))
    context.count("unmask_row_forwards", sum(progress_of(one.frames).forwards for one in branched))
    return [_packed(one) for one in branched]


def judge_shard(shards: Sequence[np.ndarray], at: int, scoring: str, jobs: int) -> FinishedShard:
    """One of the shards that a worker has computed: scored, as tables."""
    return score_shard(_unpacked(shards[at]), None, workers=jobs, scoring=scoring)


def decode_part(context: WorkerContext, spec: ModelSpec, policy: Policy | Search, group: PromptGroup) -> pd.DataFrame:
    """Prompts that are decoded together from beginning to end, with the texts of their answers."""
    study, model = context.value.unpacked(), _model(context, spec)
    frame = decode_group(model, study.seed, study.temperature, policy, group)
    context.count("unmask_row_forwards", int(frame["forwards"].sum()))
    return frame


def judge_pairs(pairs: Sequence[tuple[str, Example]], jobs: int, scoring: str) -> list[tuple[float, str]]:
    """Utility and reason of each answer."""
    return score_texts(pairs, jobs, scoring)


def _model(context: WorkerContext, spec: ModelSpec) -> LoadedModel:
    """What one worker cannot load, no shard is to blame for."""
    try:
        model: LoadedModel = context.model(spec)
    except (ConfigError, NotEnoughMemory):
        raise
    except UnmaskError as error:
        raise ConfigError(f"{spec.model} cannot be loaded by a worker: {error}") from error
    return model


def _check_model(spec: ModelSpec, model: LoadedModel, expected: Mapping[str, object]) -> None:
    """Refuse another checkpoint or kind of device than the one that the shards were planned with."""
    mine = provenance(spec, model, [])
    differ = sorted(key for key in mine if key != "shards" and mine[key] != expected[key])
    if differ:
        told = "; ".join(f"{key} {mine[key]!r} here, {expected[key]!r} before" for key in differ)
        raise OtherStudy(
            f"the workers' models are not the same ({told[:300]}); allowed: one checkpoint and one kind of device; "
            "give the study nodes of one kind"
        )


def _packed(value: BranchedShard) -> np.ndarray:
    """As an array, which the object store shares between processes without a copy."""
    return np.frombuffer(ray_module().cloudpickle.dumps(value), np.uint8)


def _unpacked(content: np.ndarray) -> BranchedShard:
    value: BranchedShard = ray_module().cloudpickle.loads(content)
    return value
