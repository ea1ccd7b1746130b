"""Studies of tasks of one's own: files, scoring functions, and what cannot be scored."""

import json
import sys

import pytest

from tests.helpers.own_tasks import LINES, TEXT
from tests.helpers.tiny_studies import changed
from unmask.errors import ConfigError, ContractError, OtherStudy
from unmask.lab.analysis.opportunity import measure
from unmask.lab.run.driver import run_study
from unmask.lab.run.jobs import jobs_of, prompts_of, request_of
from unmask.lab.store import Store
from unmask.lab.study import Study
from unmask.tasks import find


def parsed(folder, **changes):
    return Study.parse(changed(TEXT, **changes), folder)


@pytest.fixture
def model(tiny_model):
    return tiny_model


class TestStudies:
    def test_an_own_task_beside_one_of_the_suite(self, prompt_file):
        study = parsed(prompt_file.parent, tasks=["carry-rtl", "mine"])
        assert study.steps == {"carry-rtl": 16, "mine": 3}
        assert (study.task("mine").horizon, study.task("carry-rtl").horizon) == (6, 32)
        tasks, _ = prompts_of(study)
        assert [len(members) for members in tasks["mine"].values()] == [3, 2]
        assert study.config["own"]["mine"]["data"] == study.task("mine").version
        assert json.dumps(study.config)

    def test_a_file_is_looked_for_beside_the_study(self, prompt_file, monkeypatch):
        (prompt_file.parent / "study.toml").write_text(TEXT, encoding="utf-8")
        monkeypatch.chdir("/")
        assert Study.read(prompt_file.parent / "study.toml").own["mine"].counts["validation"] == 4

    def test_a_study_without_one_has_the_configuration_it_always_had(self, prompt_file):
        assert "own" not in parsed(prompt_file.parent, tasks=["carry-rtl"], own=...).config

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"own__mine__prompts": "none.jsonl"}, "cannot be read"),
            ({"own__mine__prompt": "x"}, "did you mean prompts"),
            ({"own__mine__horizon": ...}, "own.mine has no 'horizon'"),
            ({"own__mine__score": "exakt"}, "did you mean exact"),
            ({"own__mine__score": 3}, "score of own.mine"),
            ({"own": {"other": {}}}, "own.other has no 'prompts'"),
            ({"tasks": ["carry-rtl"]}, "own.mine is not among the tasks"),
            ({"tasks": ["mine", "mien"]}, "did you mean mine"),
            ({"own__mine": 3}, "own.mine is 3"),
        ],
    )
    def test_refused(self, prompt_file, changes, message):
        with pytest.raises(ConfigError, match=message):
            parsed(prompt_file.parent, **changes)

    def test_carried_out_and_reported(self, prompt_file, model, tmp_path):
        study = parsed(prompt_file.parent)
        store = Store.create(tmp_path / "out", study.config)
        assert run_study(study, store, lambda spec: model).complete
        branches = store.table("branches")
        roles = {e.id: role for role, members in prompts_of(study)[0]["mine"].items() for e in members}
        seen = set(zip(branches["prompt"].to_pylist(), branches["split"].to_pylist(), strict=True))
        assert seen == set(roles.items())
        assert store.manifest["tasks"]["mine"]["version"] == study.task("mine").version
        (cell,) = measure(store).cells
        assert (cell.task, cell.axis) == ("mine", "region")

    def test_end_to_end(self, prompt_file, model, tmp_path):
        study = parsed(prompt_file.parent, diagnostics=["region"], end_to_end=True)
        store = Store.create(tmp_path / "out", study.config)
        outcome = run_study(study, store, lambda spec: model)
        assert outcome.complete
        assert set(outcome.hashes) == {"states", "branches", "readings", "decodes"}

    def test_shards_depend_on_the_data_and_the_rule(self, prompt_file, model, tmp_path):
        study = parsed(prompt_file.parent)
        Store.create(tmp_path / "out", study.config)
        changed = [parsed(prompt_file.parent, own__mine__score="exact")]
        prompt_file.write_text("\n".join(map(json.dumps, [*LINES[:-1], LINES[-1] | {"target": "x"}])), encoding="utf-8")
        changed.append(parsed(prompt_file.parent))
        names = []
        for one in (study, *changed):
            names.append({job.shard.name for job in jobs_of(one, one.models[0], model, prompts_of(one)[0])})
        assert not names[0] & names[1]
        assert not names[0] & names[2]
        for one in changed:
            with pytest.raises(OtherStudy, match="own differ"):
                Store.create(tmp_path / "out", one.config)

    def test_a_request_has_the_horizon_of_its_task(self, task, model):
        example = task.members["validation"][0]
        assert request_of(model, task, 3, example).steps == 3
        assert request_of(model, find("carry-rtl"), 3, example).answer != request_of(model, task, 3, example).answer

    def test_what_cannot_be_scored_is_counted(self, prompt_file, model, scorer, tmp_path):
        study = parsed(prompt_file.parent, own__mine__score=scorer("sometimes"))
        store = Store.create(tmp_path / "out", study.config)
        assert run_study(study, store, lambda spec: model).complete
        table = store.table("branches")
        odd = {"p0", "p3", "p5"} & set(table["prompt"].to_pylist())
        assert odd, "none of the prompts that raise is in the study"
        for row in table.select(["prompt", "utility", "reason"]).to_pylist():
            raised = row["prompt"] in odd
            assert row["utility"] == (None if raised else 0.5)
            assert (f"ValueError for prompt {row['prompt']}: cannot tell" in row["reason"]) == raised
        assert sum(info["branches"] - info["judged"] for info in store.infos()) == table["utility"].null_count > 0

    def test_a_function_that_always_raises_stops_the_study(self, prompt_file, model, scorer, tmp_path):
        study = parsed(prompt_file.parent, own__mine__score=scorer("always"))
        store = Store.create(tmp_path / "out", study.config)
        for _ in range(2):
            with pytest.raises(ContractError, match=r"no answer to mine could be scored \(.*ValueError.*cannot tell"):
                run_study(study, store, lambda spec: model)

    def test_an_impossible_utility_leaves_nothing_behind(self, prompt_file, model, scorer, tmp_path):
        study = parsed(prompt_file.parent, own__mine__score=scorer("high"))
        store = Store.create(tmp_path / "out", study.config)
        with pytest.raises(ContractError, match=r"returned 1.7 for prompt 'p\d'"):
            run_study(study, store, lambda spec: model)
        assert list(store.shards.iterdir()) == []

    def test_equal_answers_are_scored_once(self, prompt_file, model, scorer, tmp_path):
        name = scorer("fair")
        study = parsed(prompt_file.parent, own__mine__score=name)
        store = Store.create(tmp_path / "out", study.config)
        run_study(study, store, lambda spec: model)
        calls = sys.modules[name.partition(":")[0]].calls
        table = store.table("branches")
        assert sorted(set(calls)) == sorted(set(table["prompt"].to_pylist()))
        assert len(calls) < len(table)
