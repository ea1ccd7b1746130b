"""Wall time and GPU hours of a cluster, worked out by hand."""

import math
from dataclasses import replace

import pytest

from tests.helpers.paths import STUDIES
from tests.helpers.tiny_studies import table
from unmask.api.request import text_side
from unmask.base.errors import ConfigError
from unmask.lab.branching import BatchSettings
from unmask.lab.run.cluster_cost import Cut, Phase, ShardSize, cluster_cost, cut_of, makespan, together
from unmask.lab.run.estimate import decodes_of, estimate
from unmask.lab.run.jobs import in_groups, jobs_of, prompts_of
from unmask.lab.study import Study


@pytest.fixture(name="study")
def _study():
    """Two tasks, 8 validation and 12 evaluation prompts in shards of 10."""
    return Study.read(STUDIES / "demo.toml")


def made_up(study, expected, end_to_end, seconds):
    """Lines with round numbers."""
    rows = [row for spec in study.models for row in estimate(study, spec)]
    return [row._replace(expected=expected, end_to_end=end_to_end, seconds=seconds, prompts=20) for row in rows]


TASKS = ("unique-list-commit", "carry-rtl")
CUT = Cut(
    [ShardSize(task, None, many) for task in TASKS for many in (8, 10, 2)],
    {task: {"validation": [8], "evaluation": [8, 4]} for task in TASKS},
)
CUTS = {"mini": CUT}


def test_pieces_go_to_who_is_free_first():
    assert makespan([3, 2, 2, 5], 1) == 12
    # 3 | 2, 2 at 4 | then 5 to the first, free at 3: 8.
    assert makespan([3, 2, 2, 5], 2) == 8
    assert makespan([3, 2, 2, 5], 9) == 5
    assert makespan([], 4) == 0


def test_by_hand(study):
    """30 s of branches and 10 s of whole runs for each task of 20 prompts: 1.5 s a prompt."""
    rows = made_up(study, expected=300, end_to_end=100, seconds=40.0)
    cost = cluster_cost(study, rows, CUTS, workers=2, gpus_per_worker=4, load_seconds=5)
    load, branches, whole = cost.phases
    assert load == Phase("load", "mini", 2, 5, 5, 5)
    # Forwards have 8 rows, so no two shards go together: 12, 15, 3, 12, 15, 3 seconds. One has 12, 3, 12 and 3.
    assert branches == Phase("branches", "mini", 6, 60, 30, 15)
    # Each task: one batch of validation prompts of every policy there, and two of evaluation prompts.
    decodes = decodes_of(study, "llada")
    second = 10 / (8 * decodes.validation + 12 * decodes.evaluation)
    here, there = math.ceil(decodes.validation), math.ceil(decodes.evaluation)
    pieces = [8 * second * decodes.validation / here] * here
    pieces += [rows * second * decodes.evaluation / there for rows in (8, 4) for _ in range(there)]
    assert (whole.pieces, whole.work) == (2 * (here + 2 * there), pytest.approx(20))
    assert whole.wall == pytest.approx(makespan([*pieces, *pieces], 2))
    # A candidate, then the selective policy, then the random gate.
    assert whole.longest == pytest.approx(3 * 8 * second)
    assert cost.wall == pytest.approx(35 + whole.wall)
    assert (cost.gpus, cost.one_worker) == (8, pytest.approx(85))
    assert cost.gpu_hours == pytest.approx(cost.wall * 8 / 3600)
    assert cost.busy == pytest.approx(80 / (2 * cost.wall))


def test_no_number_of_workers_beats_what_comes_one_after_the_other(study):
    rows = made_up(study, expected=300, end_to_end=100, seconds=40.0)
    cost = cluster_cost(study, rows, CUTS, workers=1000, load_seconds=5)
    assert cost.wall == pytest.approx(5 + 15 + cost.phases[-1].longest)
    assert cost.phases[-1].wall == cost.phases[-1].longest < 10
    assert cost.gpu_hours == pytest.approx(cost.wall * 1000 / 3600)


def test_without_whole_runs_there_is_one_phase(study):
    rows = made_up(study, expected=300, end_to_end=0, seconds=30.0)
    cost = cluster_cost(replace(study, end_to_end=False), rows, CUTS, workers=3, gpus_per_worker=0)
    assert [phase.name for phase in cost.phases] == ["load", "branches"]
    assert cost.gpu_hours == 0


def test_several_models_are_loaded_one_after_the_other(study):
    """And once more for whole runs, which wait for all branches."""
    two = replace(study, models=(study.models[0], replace(study.models[0], name="other")))
    cuts = {"mini": CUT, "other": CUT}
    cost = cluster_cost(two, made_up(two, 300, 100, 40.0), cuts, workers=2, load_seconds=5)
    loads = [phase.model for phase in cost.phases if phase.name == "load"]
    assert loads == ["mini", "other", "mini", "other"]
    assert cost.wall == pytest.approx(4 * 5 + 2 * 30 + 2 * cost.phases[-1].wall)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("rows", [1, 4, 64])
def test_pieces_are_those_of_the_run(tiny_folder, tiny_load, rows, workers):
    study = Study.parse(table(models__0__model=str(tiny_folder)))
    (spec,), model = study.models, tiny_load(study.models[0])
    tasks, _ = prompts_of(study)
    planned = jobs_of(study, spec, model, tasks)
    cut = cut_of(study, spec, tasks, text_side(model))
    assert [shard.prompts for shard in cut.shards] == [len(job.requests) for job in planned]
    engine = BatchSettings(rows, bucket=study.engine.bucket)
    groups = [[len(job.requests) for job in group] for group in in_groups(engine, planned, workers)]
    assert [[shard.prompts for shard in group] for group in together(cut.shards, rows, workers)] == groups


def test_pieces_without_a_tokenizer(study):
    small = replace(study, engine=BatchSettings(8, live=8))
    assert cut_of(small, small.models[0], None, None) == CUT
    assert [[one.prompts for one in group] for group in together(CUT.shards, 12)] == [[8], [10, 2], [8], [10, 2]]


@pytest.mark.parametrize(
    ("change", "words"),
    [({"workers": 0}, "workers is 0; allowed: 1 or more"), ({"gpus_per_worker": -1.0}, "gpus_per_worker is -1.0")],
)
def test_what_is_refused(study, change, words):
    rows = made_up(study, 300, 100, 40.0)
    with pytest.raises(ConfigError, match=words):
        cluster_cost(study, rows, CUTS, **{"workers": 2, **change})


def test_without_times_nothing_is_guessed(study):
    with pytest.raises(ConfigError, match="a rate, or a forward that was measured"):
        cluster_cost(study, made_up(study, 300, 100, None), CUTS, workers=2)
