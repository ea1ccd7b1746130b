"""Studies that are not complete: what is missing is named, and what nothing can be said about is refused."""

import numpy as np
import pytest

from tests.helpers import made_studies as made
from tests.helpers.findings import fact, reasons
from unmask.base.errors import SchemaError
from unmask.lab.analysis import Findings, analyse, read_study
from unmask.lab.analysis.load import to_frame
from unmask.lab.analysis.steps import analyse_opportunity
from unmask.lab.store.manifest import write_manifest


def measure(store, resamples=20):
    """Opportunity alone."""
    study = read_study(store)
    return Findings(to_frame(analyse_opportunity(study, resamples)), study, resamples)


class TestIncomplete:
    def test_tasks_and_models_that_are_not_there_yet(self, tmp_path):
        tables = made.known()
        lost = ("small", "sort", "evaluation")
        del tables[lost]
        place = made.store(
            tmp_path / "s",
            tables,
            models={"small": "small", "later": "later"},
            unfinished=[lost],
            unavailable={"gsm8k": "no file gsm8k.jsonl"},
        )
        found = measure(place)
        assert not found.study.complete
        assert set(found.select("opportunity", measure="fixed")["task"]) == {"fill"}
        assert reasons(found, "opportunity", "model", "task") == {
            ("small", "sort"): "no evaluation prompt is finished yet",
            ("small", "gsm8k"): "no file gsm8k.jsonl",
            ("later", "fill"): "no validation prompt is finished yet",
            ("later", "sort"): "no validation prompt is finished yet",
            ("later", "gsm8k"): "no file gsm8k.jsonl",
        }
        extents = found.study.extents.set_index(["model", "task", "split"])
        assert extents.loc[("small", "sort", "evaluation"), ["planned", "shards"]].tolist() == [1, 0]
        assert np.isnan(extents.loc[("later", "fill", "validation"), "planned"])
        assert ("small", "gsm8k", "validation") not in extents.index

    def test_part_of_a_task_is_marked(self, tmp_path):
        place = made.store(tmp_path / "s", made.known())
        manifest = place.manifest
        later = {"task": "fill", "split": "evaluation", "block": 1, "prompts": 1}
        manifest["models"]["small"]["shards"]["small.fill.evaluation.0001.beef"] = later
        write_manifest(place.files, manifest)
        found = measure(place)
        assert fact(found, "opportunity", "partial", task="fill", axis="score") == "1 of 2 evaluation shards"
        assert fact(found, "opportunity", "partial", task="sort", axis="score") == ""
        assert fact(found, "opportunity", "partial", task="mean over tasks", axis="score") == "part of fill"
        assert not found.study.complete

    def test_a_model_without_room_for_any_prompt(self, tmp_path):
        tables = made.known()
        del tables["small", "sort", "validation"], tables["small", "sort", "evaluation"]
        place = made.store(tmp_path / "s", tables, unavailable={"sort": "later"})
        manifest = place.manifest
        manifest["tasks"]["sort"] = {"data": "d", "version": "1"}
        write_manifest(place.files, manifest)
        found = measure(place)
        assert set(reasons(found, "opportunity", "task", "axis").values()) == {
            "no validation prompt fits into the model"
        }
        assert found.study.complete


@pytest.mark.parametrize(("split", "other"), [("evaluation", "validation"), ("validation", "evaluation")])
def test_half_a_study_says_what_is_missing(tmp_path, split, other):
    """Interrupted before its other half began: no numbers, but every reason."""
    tables = made.known()
    lost = [key for key in tables if key[2] != split]
    found = analyse(made.store(tmp_path / "s", {k: v for k, v in tables.items() if k not in lost}, unfinished=lost))
    assert set(found.frame["note"]) == {f"no {other} prompt is finished yet"}
    assert len(found.frame) == 6
    assert not found.study.complete


class TestRefusals:
    def test_nothing_finished(self, tmp_path):
        place = made.store(tmp_path / "s", {}, unfinished=[("small", "fill", "evaluation")])
        with pytest.raises(SchemaError, match=r"'made'.*0 finished shards; allowed.*unmask study run"):
            read_study(place)


def test_cost_adds_up(tmp_path):
    costs = read_study(made.store(tmp_path / "s", made.known())).costs
    whole = costs[costs["axis"] == "all"].iloc[0]
    assert whole["seconds"] == pytest.approx(4 * 1.5)
    assert whole["naive"] == 4 * 3 * 50 == costs[costs["axis"] != "all"]["naive"].sum()
    assert whole["trajectory"] == 4 * 7


class TestFindings:
    def test_one_number_by_its_place(self, tmp_path):
        found = analyse(made.store(tmp_path / "s", made.known()), resamples=20)
        delta = found.estimate("opportunity", "delta", task="fill", axis="score")
        assert delta.value == pytest.approx(0.125)
        with pytest.raises(KeyError, match="3 rows are opportunity delta"):
            found.estimate("opportunity", "delta", model="small", task="fill")
