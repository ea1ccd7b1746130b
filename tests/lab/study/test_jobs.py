"""A study cut into jobs: prompts, requests, and shards named after what they hold."""

import json
from dataclasses import replace

import pytest

from tests.helpers.own_tasks import LINES, parsed
from unmask.api.request import Request
from unmask.base.errors import OtherStudy
from unmask.lab.branching import BatchSettings
from unmask.lab.store import Shard, Store
from unmask.lab.study.jobs import Job, group_jobs, plan_jobs
from unmask.lab.study.prompts import load_examples


def test_shards_depend_on_the_data_and_the_rule(prompt_file, tiny_model, tmp_path):
    study = parsed(prompt_file.parent)
    Store.create(tmp_path / "out", study.config)
    changed = [parsed(prompt_file.parent, own__mine__score="exact")]
    prompt_file.write_text("\n".join(map(json.dumps, [*LINES[:-1], LINES[-1] | {"target": "x"}])), encoding="utf-8")
    changed.append(parsed(prompt_file.parent))
    names = []
    for one in (study, *changed):
        names.append({job.shard.name for job in plan_jobs(one, one.models[0], tiny_model, load_examples(one)[0])})
    assert not names[0] & names[1]
    assert not names[0] & names[2]
    for one in changed:
        with pytest.raises(OtherStudy, match="own differ"):
            Store.create(tmp_path / "out", one.config)


def test_a_shard_is_keyed_by_name_source_reference_options_and_study(prompt_file, tiny_model):
    study = parsed(prompt_file.parent)
    (spec,) = study.models
    others = [
        (study, replace(spec, name=f"{spec.name} "), tiny_model),
        (study, replace(spec, name=spec.name.upper()), tiny_model),
        (study, replace(spec, model="elsewhere"), tiny_model),
        (study, replace(spec, reference="dream"), tiny_model),
        (study, spec, replace(tiny_model, options={**tiny_model.options, "dtype": "bf16"})),
        (replace(study, seed=study.seed + 1), spec, tiny_model),
    ]
    keys = [
        {job.shard.name.casefold() for job in plan_jobs(one, of, model, load_examples(one)[0])}
        for one, of, model in ((study, spec, tiny_model), *others)
    ]
    assert len(set.union(*keys)) == sum(map(len, keys))
    again = plan_jobs(study, spec, tiny_model, load_examples(study)[0])
    assert {job.shard.name.casefold() for job in again} == keys[0]


def test_shards_of_one_bucket_fill_a_forward_together():
    """Of whatever task; never more prompts than rows, unless one shard has more by itself."""

    def job(name: str, length: int, prompts: int) -> Job:
        one = Request("p", (0,) * length, (False,) * length, 1, (0, length))
        return Job(
            Shard(kind="branches", model="m", task=name, split="validation", block=0, depends="k"), (one,) * prompts, ()
        )

    work = [job("a", 30, 3), job("b", 60, 3), job("c", 31, 5), job("d", 20, 1), job("e", 64, 9), job("f", 33, 2)]
    groups = group_jobs(BatchSettings(rows=8, bucket=32), work)
    assert [[one.shard.task for one in group] for group in groups] == [["a", "c"], ["b"], ["d"], ["e"], ["f"]]


def test_every_worker_gets_two_groups():
    one = Request("p", (0,) * 8, (False,) * 8, 1, (0, 8))
    work = [
        Job(Shard(kind="branches", model="m", task="t", split="validation", block=at, depends="k"), (one,) * 2, ())
        for at in range(16)
    ]
    engine = BatchSettings(rows=16, bucket=32)
    sizes = {workers: [len(group) for group in group_jobs(engine, work, workers)] for workers in (1, 2, 4, 8, 64)}
    assert sizes == {1: [8, 8], 2: [4] * 4, 4: [2] * 8, 8: [1] * 16, 64: [1] * 16}
