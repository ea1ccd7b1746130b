"""Study files that are refused, and studies on a tiny network: killed, shared, resumed, run out of disk."""

import errno
import json
import multiprocessing
import os
import random
import signal
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from unmask.catalog import load
from unmask.cli.app import main
from unmask.core import Trajectory
from unmask.decode import decode
from unmask.errors import ConfigError, ContractError, OtherStudy, SchemaError, StorageError, UnknownName
from unmask.lab.run import judging
from unmask.lab.run.driver import run_study
from unmask.lab.store import store as storage
from unmask.lab.store.hashes import table_hash
from unmask.lab.store.store import Store
from unmask.lab.study import Study
from unmask.policies import Fixed, Revised

STUDIES = Path(__file__).resolve().parents[2] / "studies"

TEXT = """
name = "tiny"
seed = 3
tasks = ["csv-missing-cells"]
axes = ["score", "commitment"]
states = 3
rollouts = 2
temperature = 0.0
diagnostics = ["score", "commitment"]

[[models]]
name = "tiny"
model = "FOLDER"
reference = "llada"
options = { device = "cpu", dtype = "fp32" }

[splits]
validation = 3
evaluation = 2

[steps]
share = 0.5
tasks = { csv-missing-cells = 4 }

[revision]
variant = "conf"

[candidates]
score = ["confidence", "margin", "stability"]

[engine]
rows = 4
bucket = 512
prompts = 1
"""


def table(**changes):
    raw = tomllib.loads(TEXT)
    for path, value in changes.items():
        *way, last = path.split("__")
        at = raw
        for key in way:
            at = at[int(key)] if isinstance(at, list) else at[key]
        if value is ...:
            del at[last]
        else:
            at[last] = value
    return raw


class TestFiles:
    def test_a_whole_one(self):
        study = Study.parse(table())
        assert study.steps == {"csv-missing-cells": 4}
        assert list(study.sets("llada")["score"]) == ["confidence", "margin", "stability"]
        assert list(study.sets("llada")["commitment"]) == ["all", "none", "confidence:0.9", "margin:0.5"]
        plan = study.plan("llada")
        assert plan.reference == Fixed()
        assert plan.continuation("score").policy == Fixed()
        assert isinstance(plan.continuation("commitment").policy, Revised)

    @pytest.mark.parametrize("path", sorted(STUDIES.glob("*.toml")), ids=lambda path: path.stem)
    def test_the_ones_that_come_with_it(self, path):
        study = Study.read(path)
        assert study.states == (4 if path.stem == "demo" else 8)
        assert study.rollouts == 4
        assert json.dumps(study.config)

    @pytest.mark.parametrize(
        "key", ["seed", "states", "rollouts", "temperature", "revision", "splits", "tasks", "axes"]
    )
    def test_what_alters_a_conclusion_has_no_default(self, key):
        with pytest.raises(ConfigError, match=f"no '{key}'.*allowed"):
            Study.parse(table(**{key: ...}))

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"rollout": 4}, "did you mean rollouts"),
            ({"axes": ["scores"]}, "did you mean score"),
            ({"tasks": ["csv-missing-cell"]}, "did you mean csv-missing-cells"),
            ({"tasks": []}, "a list of names"),
            ({"tasks": ["carry-rtl", "carry-rtl"]}, "none twice"),
            ({"seed": -1}, "0 or more"),
            ({"seed": True}, "whole number"),
            ({"states": 0}, "1 or more"),
            ({"rollouts": 2.5}, "whole number"),
            ({"temperature": -0.1}, "0 or more"),
            ({"temperature": "0"}, "a number"),
            ({"models": []}, "one .*or more"),
            ({"models__0__reference": "lada"}, "did you mean llada"),
            ({"models__0__reference": ...}, "no 'reference'"),
            ({"models__0__dtype": "fp32"}, "known: model, name"),
            ({"splits__validation": 1}, "2 or more"),
            ({"splits__evaluation": 0}, "1 or more"),
            ({"splits__test": 5}, "unknown key of splits"),
            ({"splits__evaluation": {"from": "validation", "start": 2, "prompts": 5}}, "in one of them only"),
            ({"splits__evaluation": {"from": "evaluatoin", "prompts": 5}}, "did you mean evaluation"),
            ({"steps__share": 0}, "above 0"),
            ({"steps__tasks": {"carry-rtl": 4}}, "unknown task of steps.tasks"),
            ({"steps__tasks": {"csv-missing-cells": 17}}, "1 to 16"),
            ({"revision__variant": "caps"}, "did you mean cap"),
            ({"revision__rate": 0.1}, "unknown key of revision"),
            ({"revision__eta": "much"}, "eta of revision"),
            ({"candidates__region": ["full"]}, "unknown axis of candidates"),
            ({"candidates__score": ["margin", "confidence"]}, "put it first"),
            ({"candidates__score": ["confidence", "marign"]}, "did you mean margin"),
            ({"engine__rows": 0}, "1 or more"),
            ({"engine__bucket": 33}, "multiple of 32"),
            ({"engine__row": 3}, "did you mean rows"),
            ({"budget": {"hours": 3}}, "known: minutes"),
        ],
    )
    def test_refusals_name_what_is_allowed(self, changes, message):
        with pytest.raises(ConfigError, match=message):
            Study.parse(table(**changes))

    def test_files_that_are_none(self, tmp_path):
        with pytest.raises(ConfigError, match="cannot be read"):
            Study.read(tmp_path / "none.toml")
        (tmp_path / "bad.toml").write_text("name = ")
        with pytest.raises(ConfigError, match="not TOML"):
            Study.read(tmp_path / "bad.toml")

    def test_stretches_of_one_split_may_meet_but_not_overlap(self):
        Study.parse(table(splits__evaluation={"from": "validation", "start": 3, "prompts": 5}))


@pytest.fixture(scope="module")
def folder(scaled, tmp_path_factory):
    return scaled.llada(tmp_path_factory.mktemp("ck") / "llada", layers=1, d_model=32, mlp=64, heads=2, kv_heads=2)


@pytest.fixture(scope="module")
def study(folder):
    return Study.parse(table(models__0__model=str(folder)))


@pytest.fixture(scope="module")
def loaded(folder):
    model = load(str(folder), device="cpu", dtype="fp32")
    return lambda spec: model


@pytest.fixture(scope="module")
def whole(study, loaded, tmp_path_factory):
    """An uninterrupted run."""
    place = Store.create(tmp_path_factory.mktemp("study") / "out", study.config)
    outcome = run_study(study, place, loaded)
    assert outcome.complete
    return place


def test_what_a_run_leaves(whole, study, loaded):
    branches, states = whole.table("branches"), whole.table("states")
    assert len(states) == 5 * 3
    assert len(branches) == 5 * 3 * 2 * (3 + 4)
    assert set(branches["split"].to_pylist()) == {"validation", "evaluation"}
    manifest = whole.manifest
    assert manifest["study"] == json.loads(json.dumps(study.config))
    assert manifest["models"]["tiny"]["options"]["fingerprint"]
    assert manifest["tasks"]["csv-missing-cells"]["data"]
    assert set(manifest["versions"]) == {"unmask", "torch", "numpy", "python"}
    found = whole.utilities("tiny", "csv-missing-cells", "validation", "score")
    assert found.utility_SAR.shape == (9, 3, 2)
    assert found.candidates[0] == "confidence"
    assert not np.isnan(found.utility_SAR).any()
    with pytest.raises(UnknownName, match="axis"):
        whole.utilities("tiny", "csv-missing-cells", "validation", "region")
    with pytest.raises(UnknownName, match="table"):
        whole.table("branch")


def test_the_naive_engine_and_other_shards_give_the_same_tables(whole, study, loaded, tmp_path):
    naive = Store.create(tmp_path / "naive", study.config)
    run_study(study, naive, loaded, naive=True)
    assert naive.content_hash() == whole.content_hash()
    wide = replace(study, shard=5, engine=replace(study.engine, waiting=8))
    other = Store.create(tmp_path / "wide", wide.config)
    run_study(wide, other, loaded)
    assert len(other.names()) == 2
    assert other.content_hash() == whole.content_hash()


def test_states_reload_and_go_on(whole, loaded):
    """A stored state, continued by the reference, ends as the reference did; and its past is there."""
    model = loaded(None)
    rows = whole.table("states").to_pylist()
    answers = {}
    for row in whole.table("branches").to_pylist():
        if row["is_reference"]:
            answers[row["prompt"]] = row["answer"]
    for row in rows[:4]:
        traj = whole.state("tiny", "csv-missing-cells", row["prompt"], row["state"])
        n = len(row["tokens"])
        assert traj.state.tokens_BL[0, :n].tolist() == row["tokens"]
        assert traj.state.committed_BL[0, :n].tolist() == row["committed"]
        assert int(traj.state.step_B[0]) == row["step"]
        # As many as the commitment diagnostic reads.
        assert len(traj.steps) == min(row["step"], 4)
        if traj.steps:
            before, revealed = traj.last.state, traj.last.revealed_BL
            assert torch.equal(before.tokens_BL[~revealed], traj.state.tokens_BL[~revealed])
        end = decode(model.denoiser, Fixed(), traj)
        length = int(end.state.length_B[0])
        canvas = end.state.tokens_BL[0, :length][~end.state.fixed_BL[0, :length]]
        assert model.codec.answer(canvas.tolist()).encode("utf-8", "replace").decode() == answers[row["prompt"]]
    assert Trajectory.from_bytes(traj.to_bytes()).to_bytes() == traj.to_bytes()
    with pytest.raises(UnknownName, match="prompt"):
        whole.state("tiny", "csv-missing-cells", "nobody", 0)


def work(study, loaded, out):
    """What a child process does."""
    torch.set_num_threads(1)
    run_study(study, Store.create(out, study.config), loaded)


def spawn(study, loaded, out):
    child = multiprocessing.get_context("fork").Process(target=work, args=(study, loaded, out))
    child.start()
    return child


class TestKilled:
    def test_twenty_times_at_random_moments(self, study, loaded, tmp_path):
        longer = replace(study, splits={role: replace(part, prompts=6) for role, part in study.splits.items()})
        straight = Store.create(tmp_path / "straight", longer.config)
        run_study(longer, straight, loaded)
        draw = random.Random(0)
        kills = seen = 0
        for _ in range(20):
            child = spawn(longer, loaded, tmp_path / "out")
            child.join(draw.uniform(0.02, 0.4))
            if child.is_alive():
                os.kill(child.pid, signal.SIGKILL)
                kills += 1
            child.join()
            if (tmp_path / "out" / "shards").is_dir():
                there = len(Store(tmp_path / "out").names())
                assert there >= seen
                seen = there
        assert kills >= 5
        last = Store.create(tmp_path / "out", longer.config)
        assert run_study(longer, last, loaded).complete
        assert last.content_hash() == straight.content_hash()
        assert not [p for p in (tmp_path / "out").rglob("*") if p.name.startswith(".")]

    def test_two_processes_share_the_work(self, whole, study, loaded, tmp_path):
        children = [spawn(study, loaded, tmp_path / "out") for _ in range(2)]
        for child in children:
            child.join(60)
            assert child.exitcode == 0
        assert Store.open(tmp_path / "out").content_hash() == whole.content_hash()

    def test_a_dead_process_holds_nothing(self, whole, study, loaded, tmp_path, monkeypatch):
        """Its lock is free and its litter is removed."""
        monkeypatch.setattr(storage, "rename_folder", lambda partial, target: os.kill(os.getpid(), signal.SIGKILL))
        child = spawn(study, loaded, tmp_path / "out")
        child.join(60)
        assert child.exitcode == -signal.SIGKILL
        monkeypatch.undo()
        place = Store.open(tmp_path / "out")
        assert place.names() == []
        assert [p for p in place.shards.iterdir() if p.name.startswith(".")]
        run_study(study, place, loaded)
        assert place.content_hash() == whole.content_hash()
        assert not [p for p in place.shards.iterdir() if p.name.startswith(".")]


def test_a_full_disk_loses_the_shard_in_flight_only(whole, study, loaded, tmp_path, monkeypatch):
    place = Store.create(tmp_path / "out", study.config)
    written = []
    real = pq.write_table

    def full(data, file, **options):
        written.append(1)
        # Three tables a shard.
        if len(written) > 7:
            file.write(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        real(data, file, **options)

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(StorageError, match=r"No space left on device.*run the study again"):
        run_study(study, place, loaded)
    assert len(place.names()) == 2
    assert not [p for p in place.shards.iterdir() if p.name.startswith(".")]
    monkeypatch.undo()
    run_study(study, place, loaded)
    assert place.content_hash() == whole.content_hash()


class TestOtherResults:
    def test_of_another_study(self, whole, study):
        before = sorted((p, p.stat().st_mtime_ns) for p in whole.folder.rglob("*"))
        other = replace(study, seed=4)
        with pytest.raises(OtherStudy, match="seed differ"):
            Store.create(whole.folder, other.config)
        assert sorted((p, p.stat().st_mtime_ns) for p in whole.folder.rglob("*")) == before

    def test_of_another_version(self, study, tmp_path):
        place = Store.create(tmp_path / "out", study.config)
        path = place.folder / "manifest.json"
        manifest = place.manifest
        path.write_text(json.dumps({**manifest, "format": "unmask-study-0"}))
        with pytest.raises(SchemaError, match="unmask-study-0"):
            Store.create(place.folder, study.config)
        with pytest.raises(SchemaError, match="unmask-study-0"):
            Store.open(place.folder)
        path.write_text(json.dumps({**manifest, "versions": {**manifest["versions"], "torch": "1.0"}}))
        with pytest.raises(OtherStudy, match=r"torch 1\.0 then"):
            Store.create(place.folder, study.config)
        path.write_text("{")
        with pytest.raises(SchemaError, match="cannot be read"):
            Store.open(place.folder)

    def test_of_another_model(self, whole, study, loaded, tmp_path):
        place = Store.create(tmp_path / "out", study.config)
        place.note("models", "tiny", {"options": {"fingerprint": "f00d"}, "shards": ["missing"]})
        with pytest.raises(OtherStudy, match="options"):
            run_study(study, place, loaded)

    def test_a_folder_that_is_something_else(self, study, tmp_path):
        (tmp_path / "thesis.tex").write_text("mine")
        with pytest.raises(OtherStudy, match="no study in it"):
            Store.create(tmp_path, study.config)
        with pytest.raises(SchemaError, match="no study"):
            Store.open(tmp_path / "nowhere")

    def test_a_damaged_table(self, study, loaded, tmp_path):
        small = replace(study, splits={**study.splits})
        place = Store.create(tmp_path / "out", small.config)
        run_study(small, place, loaded)
        path = place.shards / place.names()[0] / "branches.parquet"
        path.write_bytes(path.read_bytes()[:100])
        with pytest.raises(SchemaError, match="remove the shard"):
            place.table("branches")


class TestUtilities:
    def test_what_cannot_be_judged_is_missing_not_zero(self, study, loaded, tmp_path, monkeypatch):
        monkeypatch.setattr(judging, "scores", lambda pairs, jobs: [(float("nan"), "no evaluator here")] * len(pairs))
        place = Store.create(tmp_path / "out", study.config)
        run_study(study, place, loaded)
        table = place.table("branches")
        assert table["utility"].null_count == len(table)
        assert set(table["reason"].to_pylist()) == {"no evaluator here"}
        assert np.isnan(place.utilities("tiny", "csv-missing-cells", "evaluation", "score").utility_SAR).all()
        (info, *_) = place.infos()
        assert info["judged"] == 0

    def test_outside_of_the_unit_interval_is_refused(self, study, loaded, tmp_path, monkeypatch):
        monkeypatch.setattr(judging, "scores", lambda pairs, jobs: [(1.5, "generous")] * len(pairs))
        place = Store.create(tmp_path / "out", study.config)
        with pytest.raises(ContractError, match=r"1\.5; allowed: 0 to 1"):
            run_study(study, place, loaded)
        assert place.names() == []

    def test_data_that_is_not_there_is_left_out_with_a_reason(self, folder, loaded, tmp_path):
        raw = table(models__0__model=str(folder), tasks=["csv-missing-cells", "gsm8k"], splits__validation=2)
        study = Study.parse(raw)
        place = Store.create(tmp_path / "out", study.config)
        (tmp_path / "data").mkdir()
        outcome = run_study(study, place, loaded, data_dir=tmp_path / "data")
        assert list(outcome.unavailable) == ["gsm8k"]
        assert place.manifest["tasks"]["gsm8k"]["unavailable"]


def test_hash_is_of_values():
    one = pa.table({"a": ["x", None], "b": [[1, 2], []], "c": [0.5, None]})
    assert table_hash(one) == table_hash(one.slice(0, 2))
    for other in (
        {"a": ["x", ""], "b": [[1, 2], []], "c": [0.5, None]},
        {"a": ["x", None], "b": [[1], [2]], "c": [0.5, None]},
        {"a": ["x", None], "b": [[1, 2], []], "c": [0.5, 0.0]},
    ):
        assert table_hash(pa.table(other)) != table_hash(one)


def test_budget_stops_between_shards(study, loaded, tmp_path):
    short = replace(study, budget=replace(study.budget, minutes=1e-9))
    outcome = run_study(short, Store.create(tmp_path / "out", short.config), loaded)
    assert not outcome.complete
    assert "budget" in outcome.stopped


def test_commands(whole, folder, tmp_path, capsys):
    file = tmp_path / "study.toml"
    file.write_text(TEXT.replace("FOLDER", str(folder)))
    assert main(["study", "plan", str(file), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    (found,) = plan["estimates"]
    assert found["states"] == 15
    assert found["branches"] == 15 * 2 * 7
    assert found["naive"] == 5 * (4 + 3 + 2) * 2 * 7
    assert 0 < found["expected"] < found["naive"]
    assert found["seconds"] > 0
    out = tmp_path / "out"
    assert main(["study", "run", str(file), "--out", str(out)]) == 0
    said = capsys.readouterr()
    hashes = whole.content_hash()
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
