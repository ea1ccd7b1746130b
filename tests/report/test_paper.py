"""The paper's numbers as they were typed: complete, in order, and consistent with one another."""

import re
from collections import defaultdict
from dataclasses import replace

import pytest

from tests.helpers.paths import ROOT
from unmask.axes import AXES
from unmask.report.paper import MACRO, compare_with_paper, paper_model, paper_numbers
from unmask.tasks import TASKS

ARMS = ("reference", "fixed", "stage", "always", "selective")
PAPER = ROOT.parent / "shared" / "paper.tex"


def by_row():
    """End-to-end rows by model and task."""
    rows = defaultdict(dict)
    for one in paper_numbers():
        if one.line > 3800:
            rows[one.model, one.task][one.quantity] = one.value
    return rows


def test_names_are_those_of_the_package():
    numbers = paper_numbers()
    assert len(numbers) == 352
    assert {one.task for one in numbers} == {*TASKS, MACRO}
    assert {one.axis for one in numbers} == {*AXES, "chosen"}
    assert {one.model for one in numbers} == {"llada", "llada-1.5", "dream"}
    assert paper_model("GSAI-ML/LLaDA-1.5") == paper_model("llada-1.5") == "llada-1.5"
    assert paper_model("mini") is None


def test_every_model_has_ten_tasks_whose_means_are_the_macro_rows():
    rows = by_row()
    assert len(rows) == 33
    for model in ("llada", "llada-1.5", "dream"):
        tasks = [rows[model, task] for task in TASKS]
        for arm in ARMS:
            mean = sum(row[arm] for row in tasks) / 10
            assert rows[model, MACRO][arm] == pytest.approx(mean, abs=1.1e-3), (model, arm)


def test_differences_are_selective_less_fixed():
    for key, row in by_row().items():
        assert row["delta"] == pytest.approx(row["selective"] - row["fixed"], abs=1.1e-3), key


def test_what_stands_in_two_tables_is_the_same():
    """Captured at 10 % of one setting stands in up to four of them."""
    seen = defaultdict(set)
    for one in paper_numbers():
        seen[one.model, one.task, one.axis, one.quantity].add(one.value)
    assert all(len(values) == 1 for values in seen.values())


@pytest.mark.skipif(not PAPER.exists(), reason="the paper's source is not here")
def test_the_line_says_it():
    lines = PAPER.read_text(encoding="utf-8").split("\n")
    for one in paper_numbers():
        digits = [float(d) for d in re.findall(r"-?\d*\.?\d+", lines[one.line - 1])]
        assert any(abs(d - one.value) < 1e-9 or abs(d - 100 * one.value) < 1e-6 for d in digits), one


# Beside ours

TASK = "constrained-json-fill"


def as_model(found, source, **options):
    """The same findings, of a model and a task that the paper has."""
    study = found.study.manifest["study"]
    models = [
        spec | {"model": source, "options": options} if spec["name"] == "mini" else spec for spec in study["models"]
    ]
    manifest = found.study.manifest | {"study": study | {"models": models}}
    frame = found.frame.assign(task=found.frame["task"].replace("mine", TASK))
    return replace(found, frame=frame, study=replace(found.study, manifest=manifest))


@pytest.mark.parametrize(
    ("source", "options"),
    [("llada", {}), ("GSAI-ML/LLaDA-8B-Instruct", {}), ("llada", {"path": "GSAI-ML/LLaDA-8B-Instruct"})],
)
def test_numbers_of_the_same_setting_stand_side_by_side(whole, source, options):
    found = as_model(whole, source, **options)
    rows = compare_with_paper(found)
    assert set(rows["model"]) == {"mini"}
    assert set(rows["task"]) >= {TASK, MACRO}
    theirs = {
        (one.task, one.axis, one.quantity, one.value, one.line) for one in paper_numbers() if one.model == "llada"
    }
    assert set(rows[["task", "axis", "quantity", "paper", "line"]].itertuples(index=False, name=None)) <= theirs
    region = rows[(rows["task"] == TASK) & (rows["axis"] == "region")]
    # The paper has some quantities in two of its tables.
    region = region.drop_duplicates("quantity").set_index("quantity")["ours"]
    where = {"model": "mini", "task": TASK, "axis": "region"}
    assert region["positive_rate"] == found.estimate("opportunity", "positive_rate", **where).value
    captured = found.estimate("diagnostics", "captured", at=0.1, proposal="raw", **where)
    assert region["captured_10"] == pytest.approx(captured.value, nan_ok=True)


def test_of_any_other_model_there_is_nothing_to_show(whole):
    assert compare_with_paper(whole).empty
