"""From branches and verdicts to rows: every column says what happened."""

from dataclasses import replace

import pytest

from tests.helpers.tiny_studies import table
from unmask.lab.store import Store
from unmask.lab.store.schemas import FIRST_STEP, SUMMARY
from unmask.lab.study import StudyConfig
from unmask.lab.study.protocol import run_study


def stepped(tokens, row, mask):
    """The canvas after a stored first step."""
    canvas = list(tokens)
    for position in row["remasked"]:
        canvas[position] = mask
    for position, token in zip(row["revealed"], row["revealed_tokens"], strict=True):
        assert canvas[position] == mask
        canvas[position] = token
    return canvas


def test_stored_first_steps_lead_to_the_stored_next_states(tiny_run, tiny_model):
    """The reference's branch goes where the reference went; a page needs no model to show that."""
    mask = tiny_model.denoiser.vocabulary.mask_id
    states = {(row["prompt"], row["state"]): row for row in tiny_run.read_arrow("states").to_pylist()}
    followed = 0
    for row in tiny_run.read_arrow("branches").to_pylist():
        state, later = states[row["prompt"], row["state"]], states.get((row["prompt"], row["state"] + 1))
        canvas = stepped(state["tokens"], row, mask)
        assert len(row["revealed"]) == row["masked"] - canvas.count(mask)
        if row["is_reference"] and later is not None and later["step"] == row["step"] + 1:
            followed += 1
            assert canvas == later["tokens"]
            final = [at in row["newly_committed"] or was for at, was in enumerate(state["committed"])]
            assert final == later["committed"]
    assert followed


def test_readings_carry_their_proposals(tiny_run, tiny_model):
    mask = tiny_model.denoiser.vocabulary.mask_id
    states = {(row["prompt"], row["state"]): row for row in tiny_run.read_arrow("states").to_pylist()}
    branches = {}
    for row in tiny_run.read_arrow("branches").to_pylist():
        branches[row["prompt"], row["state"], row["axis"], row["candidate"], row["rollout"]] = row
    spoken = same = 0
    for row in tiny_run.read_arrow("readings").to_pylist():
        assert row["diagnostic"] == row["axis"]
        rollouts = 0 if row["abstained"] else 2
        assert {len(row[name]) for name in ("utility", "reason", "answer", *FIRST_STEP)} == {rollouts}
        for rollout in range(rollouts):
            spoken += 1
            first = {name: row[name][rollout] for name in FIRST_STEP}
            canvas = stepped(states[row["prompt"], row["state"]]["tokens"], first, mask)
            for name in row["same"]:
                same += 1
                other = branches[row["prompt"], row["state"], row["axis"], name, rollout]
                assert first == {name: other[name] for name in FIRST_STEP}
                assert (row["answer"][rollout], row["utility"][rollout]) == (other["answer"], other["utility"])
                assert stepped(states[row["prompt"], row["state"]]["tokens"], other, mask) == canvas
    assert spoken
    assert same


@pytest.mark.parametrize("names", [("\u6a21\u578b", "-"), ("mini llada", "Mini-LLaDA"), (".hidden", "x" * 200)])
def test_models_of_any_name_are_measured(names, tiny_folder, tiny_load, tmp_path):
    raw = table(models__0__model=str(tiny_folder), diagnostics=[], axes=["score"], states=1, rollouts=1)
    raw["models"] = [{**raw["models"][0], "name": name} for name in names]
    study = replace(StudyConfig.parse(raw), shard=3)
    store = Store.create(tmp_path / "out", study.config)
    assert run_study(study, store, tiny_load).complete
    assert len(store.names()) == 4
    assert set(store.read_arrow("branches")["model"].to_pylist()) == set(names)
    assert run_study(study, Store.create(tmp_path / "out", study.config), tiny_load).complete


def test_how_sure_predictions_were_is_stored_where_it_is_asked_for(tiny_folder, tiny_load, tiny_run, tmp_path):
    """And nowhere else: of the tables nothing but these columns differs."""
    study = StudyConfig.parse(table(models__0__model=str(tiny_folder), learned=True))
    place = Store.create(tmp_path / "out", study.config)
    assert run_study(study, place, tiny_load).complete
    names = [name for name, _ in SUMMARY]
    plain, asked = tiny_run.read_arrow("readings"), place.read_arrow("readings")
    assert asked.column_names == [*plain.column_names, *names]
    assert asked.drop_columns(names).equals(plain)
    assert place.read_arrow("branches").equals(tiny_run.read_arrow("branches"))
    sure = asked.select(["prompt", "state", "diagnostic", *names]).to_pylist()
    assert all(0 <= row["entropy_least"] <= row["entropy_mean"] <= row["entropy_most"] for row in sure)
    assert all(0 <= row["margin_least"] <= row["margin_mean"] <= row["margin_most"] <= 1 for row in sure)
    by_diagnostic = [
        [{key: row[key] for key in ("prompt", "state", *names)} for row in sure if row["diagnostic"] == name]
        for name in study.diagnostics
    ]
    assert by_diagnostic[0] == by_diagnostic[1]
