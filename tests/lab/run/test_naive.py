"""Forwards that are counted before anything runs, beside those that a run took."""

import csv

from tests.helpers.cases import each_case
from tests.helpers.paths import RESULTS, STUDIES
from tests.helpers.tiny_studies import table
from unmask.api.request import Request
from unmask.lab.branching import BatchSettings, branch
from unmask.lab.run.naive import naive_forwards, prompts_asked, proposal_forwards
from unmask.lab.study import Study
from unmask.models import ExactDenoiser, JointDistribution

MODEL = ExactDenoiser(JointDistribution.random(9, 2, dependence=2.0, seed=0))
ALL = {"axes": ["score", "region", "cardinality", "commitment"], "diagnostics": [], "candidates": ...}


@each_case("below", [False, True])
@each_case("reference", ["llada", "dream"])
@each_case("steps", [3, 8])
def test_are_those_of_the_engine_that_merges_nothing(reference, below, steps):
    """Eight blanks: shares and counts that end a branch early, and Dream's grid, which ends it late."""
    study = Study.parse(table(**ALL, models__0__reference=reference, below_k_min=below))
    start = Request("", (1, *(MODEL.mask_id,) * 8), (True, *(False,) * 8), steps, (1, 9))
    ran = branch(MODEL, study.plan(reference), [start], BatchSettings(rows=16, merge=False))
    counted = naive_forwards(study, reference, 8, steps)
    done = ran.costs.groupby("axis")["done"].sum()
    assert {axis: (done[axis], True) for axis in study.axes} == dict(counted)


def test_are_those_of_the_published_run():
    """results/mini. Its tables count proposals, too, which on the cardinality axis may be done early."""
    study = Study.read(STUDIES / "mini.toml")
    with (RESULTS / "mini" / "cost.csv").open(encoding="utf-8") as file:
        took = {(row["model"], row["axis"]): int(row["naive"]) for row in csv.DictReader(file)}
    prompts = {task: sum(prompts_asked(study, task).values()) for task in study.tasks}
    proposed = sum(n * proposal_forwards(study, study.steps[task]) for task, n in prompts.items())
    each = proposed // len(study.diagnostics)
    for spec in study.models:
        by_task = {
            task: naive_forwards(study, spec.reference, study.task(task).max_new_tokens, study.steps[task])
            for task in prompts
        }
        for axis in study.axes:
            counted = sum(n * by_task[task][axis].forwards for task, n in prompts.items())
            proposals = each * sum(name.split(":")[0] == axis for name in study.diagnostics)
            exact = took[spec.name, axis] == counted + proposals
            early = counted < took[spec.name, axis] < counted + proposals
            assert exact or (early and axis == "cardinality" and spec.reference == "llada"), (spec.name, axis)


def test_prompts_are_those_that_the_task_has():
    study = Study.read(STUDIES / "paper.toml")
    assert prompts_asked(study, "humaneval") == {"validation": 40, "evaluation": 100}
    assert prompts_asked(study, "json-mode-eval") == {"validation": 16, "evaluation": 68}
    assert prompts_asked(study, "carry-rtl") == {"validation": 100, "evaluation": 100}
    fresh = {"from": "fresh", "start": 10**6, "prompts": 7}
    assert prompts_asked(Study.parse(table(splits__evaluation=fresh)), "csv-missing-cells")["evaluation"] == 7


def test_counts_that_the_model_decides_are_at_most():
    study = Study.parse(table(**ALL | {"candidates": {"cardinality": ["schedule", "above:0.9"]}}))
    counted = naive_forwards(study, "llada", 16, 4)["cardinality"]
    assert (counted.forwards, counted.exact) == (2 * 2 * (4 + 3 + 2), False)
