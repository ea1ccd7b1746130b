"""A study as a page sees it: its stored answers, and the same again from the model."""

import shutil

import pytest

from unmask.base.errors import ConfigError, SchemaError, UnknownName
from unmask.lab.store import Store
from unmask.viewer.studies import StudyFolder

CELL = {"model": "mini", "task": "unique-list-commit", "split": "evaluation"}


@pytest.fixture(scope="module")
def prompts(client):
    return client.get("api/study/prompts?" + "&".join(f"{k}={v}" for k, v in CELL.items()))


def states_of(client, prompt):
    return client.get("api/study/states?" + "&".join(f"{k}={v}" for k, v in {**CELL, "prompt": prompt}.items()))


def test_summary_lists_models_tasks_and_splits(client):
    study = client.get("api/about")["study"]
    assert (study["name"], study["finished"], study["planned"]) == ("look", study["planned"], study["finished"])
    assert {(cell["model"], cell["task"], cell["split"]) for cell in study["cells"]} >= {tuple(CELL.values())}


def test_prompts_have_their_largest_changes(client, prompts, study):
    table = Store.open(study).utilities(*CELL.values(), "cardinality")
    assert len(prompts) == 2
    assert [row["gain"] for row in prompts] == sorted((row["gain"] for row in prompts), reverse=True)
    change_SA = table.utility_SAR.mean(-1) - table.utility_SAR.mean(-1)[:, [table.candidates.index("schedule")]]
    assert max(row["gain"] for row in prompts) == pytest.approx(change_SA.max())
    assert min(row["loss"] for row in prompts) == pytest.approx(change_SA.min())
    assert all("\n" in row["text"] or row["text"] for row in prompts)


@pytest.mark.slow
def test_stored_branches_are_decoded_again(client, prompts):
    """From the reference's run to every candidate's answer: the same text and score as in the tables."""
    prompt = prompts[0]["prompt"]
    where = {"task": CELL["task"], "split": CELL["split"], "id": prompt, "study": True}
    run = client.told("api/run", {"model": "mini", "task": where})["end"]
    assert run["notes"] == []
    tried = 0
    for state in states_of(client, prompt):
        for action in state["actions"]:
            change = {"axis": action["axis"], "candidate": action["name"]}
            asked = {"run": run["run"], "step": state["step"], "instead": change}
            branch = client.told("api/branch", asked)["end"]["record"]
            stored = action["outcomes"][0]
            assert (branch["text"], branch["score"]) == (stored["answer"], stored["utility"])
            tried += 1
    assert tried == 6


def test_states_have_canvas_and_candidates(client, prompts):
    states = states_of(client, prompts[0]["prompt"])
    assert [state["step"] for state in states] == [0, 3]
    for state in states:
        assert state["tokens"].count(None) == state["masked"]
        assert [one["kind"] for one in state["actions"]] == ["reference", "candidate", "candidate"]


def test_unknown_parts_are_refused(client, study, prompts):
    folder = StudyFolder(study)
    with pytest.raises(UnknownName, match="part of the study"):
        folder.prompts("mini", "carry-rtl", "evaluation")
    with pytest.raises(UnknownName, match="prompt"):
        folder.states(*CELL.values(), "nobody")
    with pytest.raises(ConfigError, match="no evaluation prompt"):
        folder.example("unique-list-commit", "evaluation", "nobody")


def test_damaged_tables_are_named(study, tmp_path):
    copy = tmp_path / "study"
    shutil.copytree(study, copy)
    table = next(copy.glob("shards/*evaluation*/branches.parquet"))
    table.write_bytes(table.read_bytes()[:-5])
    with pytest.raises(SchemaError, match=table.parent.name):
        StudyFolder(copy).prompts(*CELL.values())


def test_code_named_by_a_study_is_not_run(study):
    folder = StudyFolder(study)
    folder.study = {**folder.study, "models": [{**folder.study["models"][0], "reference": "mine-0123456789ab"}]}
    folder.study["models"][0]["policy"] = {"name": "mine", "class": "Mine, code 1"}
    with pytest.raises(ConfigError, match="is not run here"):
        folder.reference("mini")


def test_unfinished_studies_count_missing_shards(study, tmp_path):
    folder = shutil.copytree(study, tmp_path / "study")
    shutil.rmtree(next((folder / "shards").iterdir()))
    summary = StudyFolder(folder).summary()
    assert summary["finished"] == summary["planned"] - 1
