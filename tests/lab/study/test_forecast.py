"""What a study will take, at most, beside what it took."""

import pytest

from tests.helpers.tiny_studies import by_hash, table
from unmask.api.request import get_text_info
from unmask.lab.branching import BatchSettings, branch
from unmask.lab.store import Store
from unmask.lab.study import StudyConfig, prompts
from unmask.lab.study.forecast import forecast
from unmask.lab.study.jobs import plan_jobs
from unmask.lab.study.prompts import load_examples
from unmask.lab.study.protocol import run_study


@pytest.fixture(name="study")
def _study(tiny_folder):
    return StudyConfig.parse(table(models__0__model=str(tiny_folder), end_to_end=True))


class TestWholeRuns:
    def test_are_counted_as_if_no_two_arms_were_the_same(self, study, tiny_study):
        (whole,), (branches,) = (forecast(one).to_dict("records") for one in (study, tiny_study))
        # Candidates on 3 validation prompts, the reference once; 2 evaluation prompts; 4 steps.
        assert whole["whole_runs"] == 4 * (3 * (1 + 2 + 3) + 2 * (1 + 2 * 9 + 2))
        assert branches["whole_runs"] == 0
        assert whole["forwards"] == branches["forwards"]

    def test_bound_a_run(self, study, tiny_load, tmp_path, monkeypatch):
        """A network with random weights, whose branches seldom agree and whose utilities are made."""
        monkeypatch.setattr(prompts, "score_texts", by_hash)
        store = Store.create(tmp_path / "out", study.config)
        assert run_study(study, store, tiny_load).complete
        (unit,) = store.infos("decodes").values()
        (row,) = forecast(study).to_dict("records")
        assert 0 < unit["forwards"] <= row["whole_runs"]
        counted = [info["forwards"] for info in store.infos().values()]
        done = sum(work["done"] + work["trajectory"] + work["recalled"] for work in counted)
        assert 0 < done <= row["forwards"]


@pytest.mark.slow
@pytest.mark.parametrize("reference", ["llada", "dream"])
def test_branches_that_share_nothing_stay_within_the_bound(reference, tiny_folder, tiny_model):
    study = StudyConfig.parse(table(models__0__model=str(tiny_folder), models__0__reference=reference, candidates=...))
    tasks, _ = load_examples(study)
    (row,) = forecast(study, tasks).to_dict("records")
    requests = [r for job in plan_jobs(study, study.models[0], tiny_model, tasks) for r in job.requests]
    settings = BatchSettings(study.engine.rows, bucket=study.engine.bucket, merge=False)
    frames = branch(tiny_model.denoiser, study.branch_plan(reference), requests, settings)
    assert row["branches"] + row["proposals"] == len(frames.branches)
    assert row["states"] == len(frames.states)
    assert 0.8 * row["forwards"] < frames.costs["done"].sum() <= row["forwards"]


class TestWithoutAModel:
    def test_what_is_not_known_is_missing(self, study, tiny_load):
        """All prompts of the study fit into the tiny model."""
        name, text = study.models[0].name, get_text_info(tiny_load(study.models[0]))
        tasks, _ = load_examples(study)
        bare, here = forecast(study), forecast(study, tasks, {name: text}, {name: 50.0})
        assert bare[["width", "seconds"]].isna().all(axis=None)
        assert here["width"].tolist() == [352]
        assert here["seconds"].tolist() == [(bare["forwards"] + bare["whole_runs"]).item() / 50]
        known = ["prompts", "states", "branches", "proposals", "forwards", "whole_runs"]
        assert bare[known].equals(here[known])
