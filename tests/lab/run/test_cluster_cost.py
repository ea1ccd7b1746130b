"""Wall time and GPU hours of a cluster, worked out by hand."""

from dataclasses import replace

import pytest

from tests.helpers.paths import STUDIES
from tests.helpers.tiny_studies import table
from unmask.errors import ConfigError
from unmask.lab.run.cluster_cost import Phase, cluster_cost, makespan, shards_of
from unmask.lab.run.estimate import estimate
from unmask.lab.run.jobs import jobs_of, prompts_of
from unmask.lab.study import Study
from unmask.request import text_side


@pytest.fixture(name="study")
def _study():
    """Two tasks, 8 validation and 12 evaluation prompts in shards of 10."""
    return Study.read(STUDIES / "demo.toml")


def made_up(study, expected, end_to_end, seconds):
    """Lines with round numbers."""
    rows = [row for spec in study.models for row in estimate(study, spec)]
    return [row._replace(expected=expected, end_to_end=end_to_end, seconds=seconds, prompts=20) for row in rows]


SHARDS = {"mini": {"unique-list-commit": [8, 10, 2], "carry-rtl": [8, 10, 2]}}


def test_pieces_go_to_who_is_free_first():
    assert makespan([3, 2, 2, 5], 1) == 12
    # 3 | 2, 2 at 4 | then 5 to the first, free at 3: 8.
    assert makespan([3, 2, 2, 5], 2) == 8
    assert makespan([3, 2, 2, 5], 9) == 5
    assert makespan([], 4) == 0


def test_by_hand(study):
    """30 s of branches and 10 s of whole runs for each task of 20 prompts: 1.5 s a prompt."""
    rows = made_up(study, expected=300, end_to_end=100, seconds=40.0)
    cost = cluster_cost(study, rows, SHARDS, workers=2, gpus_per_worker=4, load_seconds=5)
    assert cost.phases == (
        Phase("load", "mini", 2, 5, 5, 5),
        # 12, 15, 3, 12, 15, 3 seconds: one has 12, 3 and 12 and then 3, the other 15 and 15.
        Phase("branches", "mini", 6, 60, 30, 15),
        Phase("end to end", "mini", 2, 20, 10, 10),
    )
    assert (cost.wall, cost.gpus, cost.one_worker) == (45, 8, 85)
    assert cost.gpu_hours == pytest.approx(45 * 8 / 3600)
    assert cost.busy == pytest.approx(80 / 90)


def test_no_number_of_workers_beats_the_longest_pieces(study):
    rows = made_up(study, expected=300, end_to_end=100, seconds=40.0)
    cost = cluster_cost(study, rows, SHARDS, workers=1000, load_seconds=5)
    assert cost.wall == 5 + 15 + 10
    assert cost.gpu_hours == pytest.approx(30 * 1000 / 3600)


def test_without_whole_runs_there_is_one_phase(study):
    rows = made_up(study, expected=300, end_to_end=0, seconds=30.0)
    cost = cluster_cost(replace(study, end_to_end=False), rows, SHARDS, workers=3, gpus_per_worker=0)
    assert [phase.name for phase in cost.phases] == ["load", "branches"]
    assert cost.gpu_hours == 0


def test_several_models_are_loaded_one_after_the_other(study):
    """And once more for whole runs, which wait for all branches: but the last model is there already."""
    two = replace(study, models=(study.models[0], replace(study.models[0], name="other")))
    shards = {**SHARDS, "other": SHARDS["mini"]}
    cost = cluster_cost(two, made_up(two, 300, 100, 40.0), shards, workers=2, load_seconds=5)
    loads = [phase.model for phase in cost.phases if phase.name == "load"]
    assert loads == ["mini", "other", "mini", "other"]
    assert cost.wall == 4 * 5 + 2 * 30 + 2 * 10


def test_shards_are_those_of_the_run(tiny_folder, tiny_load):
    study = Study.parse(table(models__0__model=str(tiny_folder)))
    (spec,), model = study.models, tiny_load(study.models[0])
    tasks, _ = prompts_of(study)
    planned = jobs_of(study, spec, model, tasks)
    found = shards_of(study, spec, tasks, text_side(model))
    assert {task: len(many) for task, many in found.items()} == {study.tasks[0]: len(planned)}
    assert sorted(found[study.tasks[0]]) == sorted(len(job.requests) for job in planned)


def test_shards_without_a_tokenizer(study):
    found = shards_of(study, study.models[0], None, None)
    assert found == {"unique-list-commit": [8, 10, 2], "carry-rtl": [8, 10, 2]}


@pytest.mark.parametrize(
    ("change", "words"),
    [({"workers": 0}, "workers is 0; allowed: 1 or more"), ({"gpus_per_worker": -1.0}, "gpus_per_worker is -1.0")],
)
def test_what_is_refused(study, change, words):
    rows = made_up(study, 300, 100, 40.0)
    with pytest.raises(ConfigError, match=words):
        cluster_cost(study, rows, SHARDS, **{"workers": 2, **change})


def test_without_times_nothing_is_guessed(study):
    with pytest.raises(ConfigError, match="a rate, or a forward that was measured"):
        cluster_cost(study, made_up(study, 300, 100, None), SHARDS, workers=2)
