"""A study on a tiny network: what a run leaves, and that neither merging nor shards change a number."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.helpers.own_tasks import parsed
from tests.helpers.tiny_studies import TEXT, by_hash, table
from unmask import lab
from unmask.base.errors import ContractError, OtherStudy, UnknownName
from unmask.cli.app import main
from unmask.core import Trajectory
from unmask.engine import decode
from unmask.lab.store import Store
from unmask.lab.study import StudyConfig, prompts
from unmask.lab.study.config import Budget
from unmask.lab.study.protocol import run_study
from unmask.methods import fixed_action


def test_what_a_run_leaves(tiny_run, tiny_study, tiny_load):
    branches, states = tiny_run.read_arrow("branches"), tiny_run.read_arrow("states")
    assert len(states) == 5 * 3
    assert len(branches) == 5 * 3 * 2 * (3 + 4)
    assert set(branches["split"].to_pylist()) == {"validation", "evaluation"}
    manifest = tiny_run.manifest
    assert manifest["study"] == json.loads(json.dumps(tiny_study.config))
    assert manifest["models"]["tiny"]["options"]["fingerprint"]
    assert manifest["tasks"]["csv-missing-cells"]["data"]
    assert set(manifest["versions"]) == {"unmask", "torch", "numpy", "python", "threads"}
    utilities = tiny_run.utilities("tiny", "csv-missing-cells", "validation", "score")
    assert utilities.utility_SAR.shape == (9, 3, 2)
    assert utilities.candidates[0] == "confidence"
    assert not np.isnan(utilities.utility_SAR).any()
    with pytest.raises(UnknownName, match="axis"):
        tiny_run.utilities("tiny", "csv-missing-cells", "validation", "region")
    with pytest.raises(UnknownName, match="table"):
        tiny_run.read("branch")


def test_the_naive_engine_and_other_shards_give_the_same_tables(tiny_run, tiny_study, tiny_load, tmp_path):
    naive = Store.create(tmp_path / "naive", tiny_study.config)
    run_study(tiny_study, naive, tiny_load, naive=True)
    assert naive.content_hash() == tiny_run.content_hash()
    wide = replace(tiny_study, shard=5, engine=replace(tiny_study.engine, waiting=8))
    other = Store.create(tmp_path / "wide", wide.config)
    run_study(wide, other, tiny_load)
    assert len(other.names()) == 2
    assert other.content_hash() == tiny_run.content_hash()


def test_a_study_file_is_enough(tiny_run, tiny_folder, tmp_path, monkeypatch):
    """Read, stored under its name, and its models loaded by theirs."""
    file = tmp_path / "study.toml"
    file.write_text(TEXT.replace("FOLDER", str(tiny_folder)), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    outcome = lab.run_study(file)
    assert outcome.hashes == tiny_run.content_hash() == Store.open("out/tiny").content_hash()
    assert lab.run_study(str(file), "elsewhere").hashes == outcome.hashes
    assert lab.run_study(StudyConfig.read(file), tmp_path / "elsewhere").hashes == outcome.hashes


def test_states_reload_and_go_on(tiny_run, tiny_load):
    """A stored state, continued by the reference, ends as the reference did; and its past is there."""
    model = tiny_load(None)
    rows = tiny_run.read_arrow("states").to_pylist()
    answers = {}
    for row in tiny_run.read_arrow("branches").to_pylist():
        if row["is_reference"]:
            answers[row["prompt"]] = row["answer"]
    for row in rows[:4]:
        traj = Trajectory.from_bytes(row["trajectory"])
        n = len(row["tokens"])
        assert traj.state.tokens_BL[0, :n].tolist() == row["tokens"]
        assert traj.state.committed_BL[0, :n].tolist() == row["committed"]
        assert int(traj.state.step_B[0]) == row["step"]
        # As many as the commitment diagnostic reads.
        assert len(traj.steps) == min(row["step"], 4)
        if traj.steps:
            before, revealed = traj.last.state, traj.last.revealed_BL
            assert torch.equal(before.tokens_BL[~revealed], traj.state.tokens_BL[~revealed])
        end = decode(model.denoiser, fixed_action(), traj)
        length = int(end.state.length_B[0])
        canvas = end.state.tokens_BL[0, :length][~end.state.fixed_BL[0, :length]]
        assert model.codec.answer(canvas.tolist()).encode("utf-8", "replace").decode() == answers[row["prompt"]]
    assert Trajectory.from_bytes(traj.to_bytes()).to_bytes() == traj.to_bytes()


class TestUtilities:
    def test_what_cannot_be_judged_is_missing_not_zero(self, tiny_study, tiny_load, tmp_path, monkeypatch):
        nobody = [(float("nan"), "no evaluator here")]
        monkeypatch.setattr(prompts, "score_texts", lambda pairs, *_: nobody * len(pairs))
        place = Store.create(tmp_path / "out", tiny_study.config)
        run_study(tiny_study, place, tiny_load)
        table = place.read_arrow("branches")
        assert table["utility"].null_count == len(table)
        assert set(table["reason"].to_pylist()) == {"no evaluator here"}
        assert np.isnan(place.utilities("tiny", "csv-missing-cells", "evaluation", "score").utility_SAR).all()
        (info, *_) = place.infos().values()
        assert info["judged"] == 0

    def test_are_scored_as_the_study_says_branches_and_whole_runs(self, tiny_folder, tiny_load, tmp_path, monkeypatch):
        """With diagnostics of one axis, to be quick; decoding end to end judges, too."""
        heard = []

        def scores(pairs, jobs, scoring):
            heard.append(scoring)
            return by_hash(pairs)

        monkeypatch.setattr(prompts, "score_texts", scores)
        one = {"axes": ["score"], "diagnostics": ["score"], "revision": ..., "end_to_end": True}
        study = StudyConfig.parse(table(models__0__model=str(tiny_folder), scoring="paper", **one))
        place = Store.create(tmp_path / "out", study.config)
        assert run_study(study, place, tiny_load).complete
        assert place.names("decodes")
        # A shard of branches for each of five prompts, then candidates and arms.
        assert len(heard) > 5
        assert set(heard) == {"paper"}


def test_data_that_is_not_there_is_left_out_with_a_reason(tiny_folder, tiny_load, tmp_path):
    raw = table(models__0__model=str(tiny_folder), tasks=["csv-missing-cells", "gsm8k"], splits__validation=2)
    study = StudyConfig.parse(raw)
    place = Store.create(tmp_path / "out", study.config)
    (tmp_path / "data").mkdir()
    outcome = run_study(study, place, tiny_load, data_dir=tmp_path / "data")
    assert list(outcome.unavailable) == ["gsm8k"]
    assert place.manifest["tasks"]["gsm8k"]["unavailable"]


def test_budget_stops_between_shards(tiny_study, tiny_load, tmp_path):
    short = replace(tiny_study, budget=Budget(minutes=1e-9))
    outcome = run_study(short, Store.create(tmp_path / "out", short.config), tiny_load)
    assert not outcome.complete
    assert "budget" in outcome.reason


def test_results_of_another_model_are_refused(tiny_run, tiny_study, tiny_load, tmp_path):
    place = Store.create(tmp_path / "out", tiny_study.config)
    place.set_metadata("models", "tiny", {"options": {"fingerprint": "f00d"}, "shards": {"missing": {}}})
    with pytest.raises(OtherStudy, match="options"):
        run_study(tiny_study, place, tiny_load)


def test_commands(tiny_run, tiny_folder, tmp_path, capsys):
    file = tmp_path / "study.toml"
    file.write_text(TEXT.replace("FOLDER", str(tiny_folder)))
    assert main(["study", "plan", str(file), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    (estimate,) = plan["estimates"]
    assert estimate["states"] == 15
    assert estimate["branches"] == 15 * 2 * 7
    # Seven candidates and two proposals at three states, two rollouts each; the reference's run; a step computed again.
    assert estimate["forwards"] == 5 * (2 * (7 + 2) * (4 + 3 + 2) + 4 + 3)
    assert estimate["seconds"] is None, "nothing was measured"
    out = tmp_path / "out"
    assert main(["study", "run", str(file), "--out", str(out)]) == 0
    said = capsys.readouterr()
    hashes = tiny_run.content_hash()
    assert said.out.splitlines()[-3:] == [f"{name} {hashes[name]}" for name in ("states", "branches", "readings")]
    assert "row-forwards instead of" in said.out
    assert "branches" in said.err
    assert main(["study", "status", str(out), "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert status["complete"]
    assert status["forwards"]["naive"] == sum(work["naive"] for work in status["axes"].values())
    assert main(["study", "run", str(file), "--out", str(out), "--quiet"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert main(["study", "status", str(tmp_path / "none")]) == 2


class TestOwnTasks:
    def test_what_cannot_be_scored_is_counted(self, prompt_file, tiny_load, scorer, tmp_path):
        study = parsed(prompt_file.parent, own__mine__score=scorer("sometimes"))
        store = Store.create(tmp_path / "out", study.config)
        assert run_study(study, store, tiny_load).complete
        table = store.read_arrow("branches")
        odd = {"p0", "p3", "p5"} & set(table["prompt"].to_pylist())
        assert odd, "none of the prompts that raise is in the study"
        for row in table.select(["prompt", "utility", "reason"]).to_pylist():
            raised = row["prompt"] in odd
            assert row["utility"] == (None if raised else 0.5)
            assert (f"ValueError for prompt {row['prompt']}: cannot tell" in row["reason"]) == raised
        assert (
            sum(info["branches"] - info["judged"] for info in list(store.infos().values()))
            == table["utility"].null_count
            > 0
        )

    def test_a_function_that_always_raises_stops_the_study(self, prompt_file, tiny_load, scorer, tmp_path):
        study = parsed(prompt_file.parent, own__mine__score=scorer("always"))
        store = Store.create(tmp_path / "out", study.config)
        for _ in range(2):
            with pytest.raises(ContractError, match=r"no answer to mine could be scored \(.*ValueError.*cannot tell"):
                run_study(study, store, tiny_load)

    def test_an_impossible_utility_leaves_nothing_behind(self, prompt_file, tiny_load, scorer, tmp_path):
        study = parsed(prompt_file.parent, own__mine__score=scorer("high"))
        store = Store.create(tmp_path / "out", study.config)
        with pytest.raises(ContractError, match=r"returned 1.7 for prompt 'p\d'"):
            run_study(study, store, tiny_load)
        assert list((store.folder / "shards").iterdir()) == []
