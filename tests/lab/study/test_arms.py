"""The arms of E4 on a tiny network: what is decoded, once, resumed and refused, and what it depends on."""

import math
import multiprocessing
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch

from tests.helpers.cases import each_case
from tests.helpers.findings import fact, reasons
from tests.helpers.made_gates import known_gates, set_tau
from tests.helpers.tiny_studies import SMALL, by_hash
from unmask import engine
from unmask.api.load import load
from unmask.base.errors import ConfigError, OtherStudy, SchemaError
from unmask.base.json_files import to_hashed_json
from unmask.lab.analysis import analyse
from unmask.lab.analysis.runs import CONTROLS, DECODED_ARMS, GATED_ARMS, JOINT, JOINT_FIXED
from unmask.lab.store import FORMAT, Store
from unmask.lab.store.shard import encode_shard, read_info
from unmask.lab.study import StudyConfig, arms, prompts, protocol
from unmask.lab.study.protocol import run_study
from unmask.lab.study.validation import AxisCalibration, fit_calibrations
from unmask.stats import Calibration, Threshold

TASKS = ["csv-missing-cells", "carry-rtl"]
RAW = {
    "name": "tiny",
    "seed": 4,
    "tasks": TASKS,
    "axes": ["score", "region", "commitment"],
    "diagnostics": ["region", "score"],
    "end_to_end": True,
    "states": 3,
    "rollouts": 2,
    "temperature": 0.0,
    "splits": {"validation": 4, "evaluation": 3},
    "steps": {"share": 0.5, "tasks": dict.fromkeys(TASKS, 6)},
    "revision": {"variant": "conf"},
    "candidates": {
        "score": ["confidence", "margin"],
        "region": ["full", "block:8", "dilated:2"],
        "commitment": ["all", "none"],
    },
    "engine": {"rows": 8, "bucket": 352, "prompts": 4},
    "models": [{"name": "tiny", "model": "mini", "reference": "llada"}],
}


@each_case(
    ("changes", "message"),
    [
        ({"diagnostics": []}, "end_to_end is True; allowed: true with diagnostics"),
        ({"end_to_end": "yes"}, "allowed: true or false"),
        ({"end_to_end": 1}, "allowed: true or false"),
        ({"gates": ["maen"]}, "did you mean mean"),
        ({"gates": ["mean"], "end_to_end": False}, "allowed: names with end_to_end = true"),
        ({"axis_by": "gain"}, "axis_by"),
    ],
)
def test_impossible_settings_of_whole_runs_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        StudyConfig.parse({**RAW, **changes})


def test_whole_runs_and_gates_leave_the_hash_of_a_study():
    config = StudyConfig.parse(RAW).config
    for changes in ({"end_to_end": False}, {"gates": ["mean"], "axis_by": "lift"}):
        assert StudyConfig.parse({**RAW, **changes}).config == config
    assert StudyConfig.parse({**RAW, "axis_by": "opportunity"}).config["axis_by"] == "opportunity"


@pytest.fixture(scope="module", autouse=True)
def _made():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prompts, "score_texts", by_hash)
        known_gates(patch)
        yield


@pytest.fixture(scope="module")
def folder(scaled, tmp_path_factory):
    where = tmp_path_factory.mktemp("ck") / "llada"
    return scaled.llada(where, **SMALL | {"layers": 2})


@pytest.fixture(scope="module")
def study(folder):
    return StudyConfig.parse({**RAW, "models": [{"name": "tiny", "model": str(folder), "reference": "llada"}]})


@pytest.fixture(scope="module")
def loaded(folder):
    model = load(str(folder), device="cpu", dtype="fp32")
    return lambda spec: model


@pytest.fixture(scope="module")
def branched(study, loaded, tmp_path_factory):
    """A study that was run before anybody thought of decoding end to end."""
    place = Store.create(tmp_path_factory.mktemp("study") / "out", study.config)
    assert run_study(replace(study, end_to_end=False), place, loaded).complete
    return place


@pytest.fixture
def copy(branched, tmp_path):
    """Its branches, to go on from."""
    shutil.copytree(branched.folder, tmp_path / "copy")
    return Store.open(tmp_path / "copy")


@pytest.fixture(scope="module")
def whole(branched, study, loaded, tmp_path_factory):
    """An uninterrupted run."""
    place = Store(tmp_path_factory.mktemp("whole") / "out")
    shutil.copytree(branched.folder, place.folder)
    place = Store.create(place.folder, study.config)
    outcome = run_study(study, place, loaded)
    assert outcome.complete
    assert outcome.hashes == place.content_hash()
    return place


def rows_of(place, **wanted):
    table = place.read_arrow("decodes")
    for column, value in wanted.items():
        table = table.filter(pc.equal(table[column], value))
    return table.to_pylist()


def answers(place, axis, arm, task=TASKS[0], split="evaluation"):
    rows = rows_of(place, axis=axis, arm=arm, task=task, split=split)
    return {(row["prompt"], row["draw"]): row["answer"] for row in rows}


def measured(place, resamples=100):
    return analyse(place, resamples=resamples, draws=20)


@pytest.fixture(scope="module")
def further(branched, study, loaded, tmp_path_factory):
    """The same branches, decoded with further gates; that of the mean is open wherever there is a signal."""
    place = Store(tmp_path_factory.mktemp("gates") / "out")
    shutil.copytree(branched.folder, place.folder)
    place = Store.create(place.folder, study.config)
    with pytest.MonkeyPatch.context() as patch:
        set_tau(patch, lambda states: Threshold(-math.inf, 0.5, 0.25, 0.1), rule="mean")
        assert run_study(replace(study, gates=("mean", "lift-together")), place, loaded).complete
    return place


class TestGates:
    """Other readings of the gate, decoded beside the usual one."""

    def test_each_is_an_arm_of_its_own_and_changes_no_other(self, further, whole):
        names = {"selective mean", "random gate mean", "selective lift-together", "random gate lift-together"}
        rows = rows_of(further, axis="region", split="evaluation")
        assert {row["arm"] for row in rows} == {*DECODED_ARMS, *CONTROLS, *names}
        usual = [row for row in further.read_arrow("decodes").to_pylist() if row["arm"] not in names]
        key = "model", "task", "axis", "arm", "split", "prompt", "draw"
        in_order = [
            sorted(t, key=lambda r: [r[k] for k in key]) for t in (usual, whole.read_arrow("decodes").to_pylist())
        ]
        assert in_order[0] == in_order[1]

    def test_the_gate_that_is_always_open_is_always(self, further):
        assert answers(further, "region", "selective mean") == answers(further, "region", "always")
        assert answers(further, "region", "selective lift-together") == answers(further, "region", "selective")


class TestRun:
    def test_switched_on_later_it_adds_a_table_and_changes_none(self, branched, whole):
        before, after = branched.content_hash(), whole.content_hash()
        assert set(after) - set(before) == {"decodes"}
        assert {name: after[name] for name in before} == before
        assert branched.names() == whole.names()
        assert {**branched.manifest, "finished": 0} == {**whole.manifest, "finished": 0}
        assert len(whole.names("decodes")) == len(TASKS)

    def test_every_arm_of_every_axis_is_there(self, whole):
        for task in TASKS:
            for axis in ("score", "region"):
                rows = rows_of(whole, task=task, axis=axis, split="evaluation")
                assert {row["arm"] for row in rows} == {*DECODED_ARMS, *CONTROLS}
                draws = {arm: {r["draw"] for r in rows if r["arm"] == arm} for arm in (*DECODED_ARMS, *CONTROLS)}
                wanted = {0, 1, 2, 3} if axis == "region" else {0}
                assert draws.pop("random gate") == wanted
                assert set(map(tuple, draws.values())) == {(0,)}
                for row in rows:
                    gate = row["arm"] in GATED_ARMS
                    assert (row["deviated"] is not None) == gate
                    assert row["forwards"] >= 1
            tried = rows_of(whole, task=task, axis="region", split="validation")
            assert {row["arm"] for row in tried} == set(RAW["candidates"]["region"])
            assert {row["arm"] for row in rows_of(whole, task=task, axis=JOINT)} == {"reference", JOINT_FIXED, JOINT}
        assert not rows_of(whole, axis="commitment")

    def test_the_reference_answers_as_it_does_in_the_branches(self, whole):
        table = whole.read_arrow("branches").to_pylist()
        answers_in_branches = {
            (r["task"], r["prompt"]): r["answer"] for r in table if r["is_reference"] and r["state"] == 0
        }
        rows = [row for row in rows_of(whole, arm="reference") if row["axis"] != JOINT]
        assert len(rows) == 2 * 3 * len(TASKS)
        assert all(row["answer"] == answers_in_branches[row["task"], row["prompt"]] for row in rows)

    def test_the_random_gate_deviates_about_as_often(self, whole):
        for task in TASKS:
            rows = rows_of(whole, task=task, axis="region")
            share = {}
            for arm in ("selective", "random gate"):
                of_arm = [row for row in rows if row["arm"] == arm]
                share[arm] = sum(r["deviated"] for r in of_arm) / sum(r["evaluated"] for r in of_arm)
            assert 0 < share["selective"] < 1
            assert share["random gate"] == pytest.approx(share["selective"], abs=0.25)

    def test_a_gate_that_never_opens_is_the_fixed_arm(self, whole):
        for arm in ("selective", "random gate"):
            assert answers(whole, "score", arm) == answers(whole, "score", "fixed")
            rows = rows_of(whole, axis="score", arm=arm)
            assert {(row["evaluated"], row["deviated"]) for row in rows} == {(None, 0)}


def counted(monkeypatch):
    """Calls of the decoder, as policies and first rows; and what was judged."""
    seen, judged = [], []
    real = engine.decode

    def decode(denoiser, policy, start, **how):
        rows = start.state.tokens_BL.tolist(), start.noise.key_B.tolist()
        assert (policy, rows) not in seen
        seen.append((policy, rows))
        return real(denoiser, policy, start, **how)

    def scores(pairs, jobs, scoring):
        judged.extend((text, example.id) for text, example in pairs)
        return by_hash(pairs)

    monkeypatch.setattr("unmask.lab.study.decode.decode", decode)
    monkeypatch.setattr(prompts, "score_texts", scores)
    return seen, judged


class TestOnce:
    def test_equal_policies_are_decoded_once_and_equal_answers_judged_once(
        self, copy, whole, study, loaded, monkeypatch
    ):
        seen, judged = counted(monkeypatch)
        run_study(study, copy, loaded)
        assert copy.content_hash() == whole.content_hash()
        infos = list(copy.infos("decodes").values())
        assert len(seen) == sum(info["policies"] for info in infos)
        runs = {tuple(row[key] for key in ("task", "axis", "arm", "split")) for row in rows_of(copy)}
        # Each axis has its arms and its candidates, the joint arm its three.
        assert len(runs) == len(TASKS) * (2 * 7 + 3 + 2 + 3)
        # The reference alone stands for two candidates, and for the first arm of two axes and of the joint one.
        assert sum(info["policies"] for info in infos) <= len(runs) - 3 * len(TASKS)
        assert len(judged) == len(set(judged))

    def test_nothing_is_loaded_where_all_is_there(self, whole, study):
        def no(spec):
            raise AssertionError("loaded")

        before = whole.content_hash()
        assert run_study(study, whole, no).hashes == before


class Killed(BaseException):
    """No error of the work."""


def work(study, loaded, out):
    torch.set_num_threads(1)
    run_study(study, Store.create(out, study.config), loaded)


class TestInterrupted:
    def test_a_kill_loses_the_unit_in_flight_only(self, copy, whole, study, loaded, monkeypatch):
        calls = []
        real = engine.decode
        first = list(whole.infos("decodes").values())[1]["policies"] + 3

        def decode(*given, **how):
            calls.append(1)
            if len(calls) > first:
                raise Killed
            return real(*given, **how)

        monkeypatch.setattr("unmask.lab.study.decode.decode", decode)
        with pytest.raises(Killed):
            run_study(study, copy, loaded)
        assert len(copy.names("decodes")) == 1
        assert not [p for p in copy.folder.rglob("*") if p.name.startswith(".")]
        monkeypatch.setattr("unmask.lab.study.decode.decode", real)
        kept = ((copy.folder / "decodes") / copy.names("decodes")[0] / "unit.json").read_bytes()
        assert run_study(study, copy, loaded).hashes == whole.content_hash()
        assert kept in [((copy.folder / "decodes") / name / "unit.json").read_bytes() for name in copy.names("decodes")]

    def test_two_processes_share_the_work(self, copy, whole, study, loaded):
        context = multiprocessing.get_context("fork")
        children = [context.Process(target=work, args=(study, loaded, copy.folder)) for _ in range(2)]
        for child in children:
            child.start()
        for child in children:
            child.join(120)
            assert child.exitcode == 0
        assert copy.content_hash() == whole.content_hash()

    def test_of_another_model_it_is_refused(self, copy, study, loaded):
        class Other:
            def __getattr__(self, name):
                return {"fingerprint": "f00d"} if name == "options" else getattr(loaded(None), name)

        with pytest.raises(OtherStudy, match="not what it was"):
            run_study(study, copy, lambda spec: Other())
        assert copy.names("decodes") == []

    def test_decodes_of_other_calibrations_are_refused(self, whole, study, loaded, tmp_path, monkeypatch):
        shutil.copytree(whole.folder, tmp_path / "old")
        old = Store.open(tmp_path / "old")
        set_tau(monkeypatch, lambda states: Threshold(None, reason="shut"))
        with pytest.raises(OtherStudy, match="other calibrations"):
            run_study(study, old, loaded)
        with pytest.raises(SchemaError, match="another calibration"):
            measured(old)

    @pytest.mark.parametrize(("off", "taken"), [(1e-13, True), (1e-5, False)])
    def test_another_machine_may_round_otherwise(self, whole, tmp_path, off, taken):
        shutil.copytree(whole.folder, tmp_path / "moved")
        for path in (tmp_path / "moved" / "decodes").glob("*/unit.json"):
            unit = read_info(Store(tmp_path / "moved").files, "decodes", path.parent.name)[1]
            for entry in unit["axes"].values():
                one = Calibration.from_json(entry["calibration"])
                means_A = one.fixed.mean_A * (1 + off)
                entry["calibration"] = replace(one, fixed=replace(one.fixed, mean_A=means_A)).to_json()
            path.write_text(to_hashed_json(FORMAT, unit))
        moved = Store.open(tmp_path / "moved")
        if taken:
            counts = [len(measured(place).select("arms", measure="chosen")) for place in (moved, whole)]
            assert counts[0] == counts[1] > 0
        else:
            with pytest.raises(SchemaError, match="another calibration"):
                measured(moved)


def forced(choice):
    """Arms of the region axis that all differ: the reference is not fixed, stages differ, the gate is half open."""
    one = choice.calibration
    return AxisCalibration(
        choice.axis,
        replace(
            one,
            fixed=replace(one.fixed, action=1),
            schedule=replace(one.schedule, action_K=np.array([0, 1, 2, 0])),
            tau=Threshold(0.0, 0.1, 0.1, 0.1, ""),
        ),
        choice.opportunity,
    )


def test_every_arm_has_an_effect(copy, study, loaded, monkeypatch):
    asked = {key: one for key, one in fit_calibrations(copy).items() if key[1:] == (TASKS[0], "region")}
    monkeypatch.setattr(protocol, "fit_calibrations", lambda *given: {key: forced(one) for key, one in asked.items()})
    monkeypatch.setattr(arms, "choose_fixed", lambda q_PAR, reference: replace(one.fixed, action=2))
    (one,) = (choice.calibration for choice in asked.values())
    run_study(study, copy, loaded)
    texts = {arm: answers(copy, "region", arm) for arm in (*DECODED_ARMS, *CONTROLS)}
    random = texts.pop("random gate")
    for at, arm in enumerate(texts):
        for other in list(texts)[:at]:
            assert texts[arm] != texts[other], (arm, other)
    by_draw = [{prompt: text for (prompt, draw), text in random.items() if draw == d} for d in range(4)]
    assert any(run != by_draw[0] for run in by_draw[1:])
    # With one axis there is nothing to join.
    assert not rows_of(copy, axis=JOINT)
    assert next(iter(copy.infos("decodes").values()))["axes"]["region"]["end_to_end"] == one.candidates[2]


def test_all_gates_shut(copy, study, loaded, monkeypatch):
    """Then no adaptive arm but the one that always acts is decoded."""
    set_tau(monkeypatch, lambda states: Threshold(None, error=0.1, reason="made shut"))
    run_study(study, copy, loaded)
    for task in TASKS:
        assert answers(copy, JOINT, JOINT, task) == answers(copy, JOINT, JOINT_FIXED, task)
    assert {(r["evaluated"], r["deviated"]) for r in rows_of(copy, arm=JOINT)} == {(None, 0)}
    assert set(measured(copy).select("joint", measure="coverage")["value"]) == {0.0}


@pytest.mark.parametrize("reference", ["llada", "dream"])
def test_with_revision(scaled, tmp_path, reference):
    """Commitment joins the other axes of a decoder that may revise, and stays apart from one that never does."""
    width = "hidden" if reference == "dream" else "d_model"
    small = {width: 32, "layers": 2, "mlp": 64, "heads": 2, "kv_heads": 2}
    folder = getattr(scaled, reference)(tmp_path / "ck", **small)
    raw = {
        **RAW,
        "tasks": TASKS[:1],
        "axes": ["score", "region", "commitment"],
        "diagnostics": ["commitment", "region", "score"],
        "states": 2,
        "splits": {"validation": 2, "evaluation": 2},
        "steps": {"share": 0.5, "tasks": {TASKS[0]: 4}},
        "candidates": {"region": ["full", "block:8"], "commitment": ["all", "none"]},
        "models": [{"name": "tiny", "model": str(folder), "reference": reference}],
    }
    study = StudyConfig.parse(raw)
    place = Store.create(tmp_path / "out", study.config)
    model = load(str(folder), device="cpu", dtype="fp32")
    assert run_study(study, place, lambda spec: model).complete
    found = measured(place)
    chosen = found.select("arms", measure="chosen")
    assert chosen["axis"].tolist() == raw["axes"]
    joint = fact(found, "joint", "axes")
    assert joint == ("score, region" if reference == "dream" else "score, region, commitment")
    assert not fact(found, "arms", "never", task=TASKS[0], axis="commitment")
    assert found.study.extends("tiny", "commitment") == (reference == "dream")
    assert set(chosen[chosen["value"] > 0]["axis"]) <= set(joint.split(", "))


def without(rows, *names):
    return [{key: value for key, value in row.items() if key not in names} for row in rows]


@pytest.fixture(scope="module")
def named(folder, loaded, tmp_path_factory):
    """One small study with the diagnostics of each list, by its last; all of it run."""
    small = {"tasks": TASKS[:1], "states": 2, "splits": {"validation": 2, "evaluation": 2}}
    small |= {"steps": {"share": 0.5, "tasks": {TASKS[0]: 4}}, "axes": ["score", "region"]}
    small |= {"candidates": {axis: RAW["candidates"][axis] for axis in small["axes"]}}
    places = {}
    for names in (["score", "region"], ["score", "region:share"], ["score", "region", "region:share"]):
        models = [{"name": "tiny", "model": str(folder), "reference": "llada"}]
        study = StudyConfig.parse({**RAW, **small, "diagnostics": names, "models": models})
        place = Store.create(tmp_path_factory.mktemp("named") / "out", study.config)
        assert run_study(study, place, loaded).complete
        places[tuple(names[1:])] = place
    return places


class TestSeveralDiagnosticsOfAnAxis:
    def test_each_has_the_arms_that_it_has_alone(self, named):
        both = named["region", "region:share"]
        for name in ("region", "region:share"):
            alone = rows_of(named[name,], axis="region", split="evaluation")
            mine = rows_of(both, axis="region", split="evaluation", diagnostic=name)
            assert mine
            assert without(mine, "diagnostic") == without(alone, "diagnostic")
            info, other = next(iter(named[name,].infos("decodes").values())), next(iter(both.infos("decodes").values()))
            assert info["axes"][name] == other["axes"][name]
        read = [
            (row["diagnostic"], row["revealed"]) for row in both.read_arrow("readings").to_pylist() if row["utility"]
        ]
        share, plain = ([what for name, what in read if name == one] for one in ("region:share", "region"))
        assert len(share) == len(plain)
        assert share != plain


def test_what_evaluation_says_chooses_nothing(whole, tmp_path):
    shutil.copytree(whole.folder, tmp_path / "turned")
    turned = Store.open(tmp_path / "turned")
    rng = np.random.default_rng(0)
    changed = 0
    for name in turned.names():
        if ".evaluation." not in name:
            continue
        shard, info = read_info(turned.files, "branches", name)
        folder = turned.folder / shard.path
        tables = {kind: pq.read_table(folder / f"{kind}.parquet") for kind in shard.layout.tables}
        table = tables["branches"]
        utility = rng.permutation(table["utility"].to_numpy())
        changed += int((utility != table["utility"].to_numpy()).sum())
        at = table.column_names.index("utility")
        tables["branches"] = table.set_column(at, table.schema.field(at), pa.array(utility))
        table = tables["readings"]
        lists = [[1 - u for u in row] for row in table["utility"].to_pylist()]
        at = table.column_names.index("utility")
        field = table.schema.field(at)
        tables["readings"] = table.set_column(at, field, pa.array(lists, field.type))
        for file, content in encode_shard(shard, tables, info).items():
            (folder / file).write_bytes(content)
    assert changed > 100
    before, after = fit_calibrations(whole), fit_calibrations(turned)
    assert {key: one.calibration.to_json() for key, one in before.items()} == {
        key: one.calibration.to_json() for key, one in after.items()
    }
    assert {key: one.opportunity for key, one in before.items()} == {k: one.opportunity for k, one in after.items()}
    found, other = measured(whole), measured(turned)
    lifts = [one.select("diagnostics", measure="lift", arm="always")["value"].tolist() for one in (found, other)]
    assert lifts[0] != lifts[1]
    chosen = [one.select("arms", measure="chosen")["value"].tolist() for one in (found, other)]
    assert chosen[0] == chosen[1]


def test_answers_that_nobody_can_judge(copy, study, loaded, monkeypatch):
    """Of a real run: the axis is left out with its reason, what was decoded is kept."""
    monkeypatch.setattr(prompts, "score_texts", lambda pairs, *_: [(float("nan"), "timed out") for _ in pairs])
    run_study(study, copy, loaded)
    rows = rows_of(copy)
    assert {row["split"] for row in rows} == {"validation"}
    assert {(row["utility"], row["reason"]) for row in rows} == {(None, "timed out")}
    found = measured(copy)
    assert set(found.select("arms")["measure"]) == {"missing"}
    assert set(reasons(found, "arms", "task", "axis").values()) == {
        "no validation prompt has a judged answer of every candidate end to end"
    }
