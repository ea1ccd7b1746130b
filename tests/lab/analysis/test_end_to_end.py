"""Arms decoded end to end: run, killed, resumed and shared on a tiny network; measured on decodes made by hand."""

import json
import math
import multiprocessing
import shutil
import zlib
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch

from tests.helpers import made_studies as made
from unmask.catalog import load
from unmask.errors import ConfigError, OtherStudy, SchemaError
from unmask.lab.analysis.detection import detect
from unmask.lab.analysis.end_to_end import (
    ARMS,
    CHOSEN,
    CONTROLS,
    DIFFERENCES,
    GATED,
    JOINT,
    JOINT_FIXED,
    end_to_end,
)
from unmask.lab.analysis.opportunity import measure
from unmask.lab.choose import Choice, choices, choose_axis, settings_of
from unmask.lab.compare import evaluate
from unmask.lab.run import arms, decode_cache, judging
from unmask.lab.run.driver import run_study
from unmask.lab.store.hashes import table_hash
from unmask.lab.store.schemas import loose
from unmask.lab.store.shards import Unit
from unmask.lab.store.store import Store
from unmask.lab.study import Study
from unmask.stats import Calibration, Threshold, calibration, fit_detector

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
    "engine": {"rows": 8, "bucket": 512, "prompts": 4},
    "models": [{"name": "tiny", "model": "mini", "reference": "llada"}],
}


# The study file


class TestFile:
    def test_needs_diagnostics(self):
        with pytest.raises(ConfigError, match="end_to_end is True; allowed: true with diagnostics"):
            Study.parse({key: value for key, value in RAW.items() if key != "diagnostics"})

    @pytest.mark.parametrize("value", ["yes", 1, None])
    def test_is_true_or_false(self, value):
        with pytest.raises(ConfigError, match="allowed: true or false"):
            Study.parse({**RAW, "end_to_end": value})

    def test_branches_do_not_depend_on_it(self):
        on, off = (Study.parse({**RAW, "end_to_end": value}) for value in (True, False))
        assert on.end_to_end
        assert not Study.parse({key: value for key, value in RAW.items() if key != "end_to_end"}).end_to_end
        assert on.config == off.config


# A real run


def by_hash(pairs, jobs=None):
    """Utilities without sense but with variety: a network with random weights is never right."""
    return [(zlib.crc32(f"{text} {example.id}".encode()) % 5 / 4, "made") for text, example in pairs]


def rising(seen, bins):
    """Bins of the real signal whose prediction rises with it, below 0 in the lower half."""
    found = fit_detector(seen, bins)
    return replace(found, g_B=np.linspace(-0.5, 0.5, len(found.g_B)))


def half_open(seen, bins, **how):
    """The upper half of the region's signals opens its gate, nothing the score's."""
    if "full" not in seen.table.candidates and "all" not in seen.table.candidates:
        return Threshold(None, 0.0, -0.25, 0.1, "made shut")
    return Threshold(0.0, 0.5, 0.25, 0.1, "")


def patched(patch):
    patch.setattr(judging, "scores", by_hash)
    patch.setattr(calibration, "fit_detector", rising)
    patch.setattr(calibration, "fit_gate", half_open)


@pytest.fixture(scope="module", autouse=True)
def _made():
    with pytest.MonkeyPatch.context() as patch:
        patched(patch)
        yield


@pytest.fixture(scope="module")
def folder(scaled, tmp_path_factory):
    where = tmp_path_factory.mktemp("ck") / "llada"
    return scaled.llada(where, layers=2, d_model=32, mlp=64, heads=2, kv_heads=2)


@pytest.fixture(scope="module")
def study(folder):
    return Study.parse({**RAW, "models": [{"name": "tiny", "model": str(folder), "reference": "llada"}]})


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
    table = place.table("decodes")
    for column, value in wanted.items():
        table = table.filter(pc.equal(table[column], value))
    return table.to_pylist()


def answers(place, axis, arm, task=TASKS[0], split="evaluation"):
    found = rows_of(place, axis=axis, arm=arm, task=task, split=split)
    return {(row["prompt"], row["draw"]): row["answer"] for row in found}


def measured(place, resamples=100):
    e1 = measure(place, resamples=resamples)
    found = detect(place, e1, draws=20)
    return found, end_to_end(place, e1, found)


class TestRun:
    def test_switched_on_later_it_adds_a_table_and_changes_none(self, branched, whole):
        before, after = branched.content_hash(), whole.content_hash()
        assert set(after) - set(before) == {"decodes"}
        assert {name: after[name] for name in before} == before
        assert branched.names() == whole.names()
        assert branched.manifest == whole.manifest
        assert len(whole.decoded()) == len(TASKS)

    def test_every_arm_of_every_axis_is_there(self, whole):
        for task in TASKS:
            for axis in ("score", "region"):
                found = rows_of(whole, task=task, axis=axis, split="evaluation")
                assert {row["arm"] for row in found} == {*ARMS, *CONTROLS}
                draws = {arm: {r["draw"] for r in found if r["arm"] == arm} for arm in (*ARMS, *CONTROLS)}
                wanted = {0, 1, 2, 3} if axis == "region" else {0}
                assert draws.pop("random gate") == wanted
                assert set(map(tuple, draws.values())) == {(0,)}
                for row in found:
                    gate = row["arm"] in GATED
                    assert (row["deviated"] is not None) == gate
                    assert row["forwards"] >= 1
            tried = rows_of(whole, task=task, axis="region", split="validation")
            assert {row["arm"] for row in tried} == set(RAW["candidates"]["region"])
            assert {row["arm"] for row in rows_of(whole, task=task, axis=JOINT)} == {"reference", JOINT_FIXED, JOINT}
        assert not rows_of(whole, axis="commitment")

    def test_the_reference_answers_as_it_does_in_the_branches(self, whole):
        table = whole.table("branches").to_pylist()
        known = {(r["task"], r["prompt"]): r["answer"] for r in table if r["is_reference"] and r["state"] == 0}
        found = [row for row in rows_of(whole, arm="reference") if row["axis"] != JOINT]
        assert len(found) == 2 * 3 * len(TASKS)
        assert all(row["answer"] == known[row["task"], row["prompt"]] for row in found)

    def test_arms_answer_as_the_decoder_of_the_suite(self, whole, study, loaded):
        choice = choices(whole)["tiny", TASKS[0], "region"]
        one = arms.Arms("region", "llada", choice.calibration, study.plan("llada").diagnostics["region"])
        policies = {"reference": one.reference, "always": one.always, "selective": one.selective}
        found = evaluate(
            loaded(None), [TASKS[0]], split="evaluation", policies=policies, prompts=3, steps=6, seed=study.seed
        )
        for arm in policies:
            texts = {(r.prompt, 0): r.answer.encode("utf-8", "replace").decode() for r in found.rows if r.policy == arm}
            assert answers(whole, "region", arm) == texts

    def test_calibrations_are_those_of_the_steps(self, whole):
        found, _ = measured(whole)
        assert len(found.cells) == 4
        stored = {
            (info["unit"]["task"], axis): entry["calibration"]
            for info in whole.decode_infos()
            for axis, entry in info["axes"].items()
        }
        assert {(c.task, c.axis): c.raw.calibration.to_json() for c in found.cells} == stored

    def test_the_random_gate_deviates_about_as_often(self, whole):
        for task in TASKS:
            found = rows_of(whole, task=task, axis="region")
            share = {}
            for arm in ("selective", "random gate"):
                mine = [row for row in found if row["arm"] == arm]
                share[arm] = sum(r["deviated"] for r in mine) / sum(r["evaluated"] for r in mine)
            assert 0 < share["selective"] < 1
            assert share["random gate"] == pytest.approx(share["selective"], abs=0.25)

    def test_a_gate_that_never_opens_is_the_fixed_arm(self, whole):
        for arm in ("selective", "random gate"):
            assert answers(whole, "score", arm) == answers(whole, "score", "fixed")
            found = rows_of(whole, axis="score", arm=arm)
            assert {(row["evaluated"], row["deviated"]) for row in found} == {(None, 0)}

    def test_what_it_says(self, whole):
        _, found = measured(whole)
        assert [(c.task, c.axis) for c in found.cells] == [(t, a) for t in TASKS for a in ("score", "region")]
        assert [c.axis for c in found.cells if c.chosen] == ["region", "region"]
        assert {c.never for c in found.cells} == {"", "made shut"}
        assert {m.axis: m.tasks for m in found.means} == dict.fromkeys((CHOSEN, "score", "region"), tuple(TASKS))
        assert [j.axes for j in found.joints] == [("score", "region")] * 2
        assert all(joint.coverage["score"] == 0 < joint.coverage["region"] for joint in found.joints)
        assert found.missing == ()


def counted(monkeypatch):
    """Calls of the decoder, as policies and first rows; and what was judged."""
    seen, judged = [], []
    real = decode_cache.decode

    def decode(denoiser, policy, start, **how):
        rows = start.state.tokens_BL.tolist(), how["noise"].key_B.tolist()
        assert (policy, rows) not in seen
        seen.append((policy, rows))
        return real(denoiser, policy, start, **how)

    def scores(pairs, jobs):
        judged.extend((text, example.id) for text, example in pairs)
        return by_hash(pairs)

    monkeypatch.setattr(decode_cache, "decode", decode)
    monkeypatch.setattr(judging, "scores", scores)
    return seen, judged


class TestOnce:
    def test_equal_policies_are_decoded_once_and_equal_answers_judged_once(
        self, copy, whole, study, loaded, monkeypatch
    ):
        seen, judged = counted(monkeypatch)
        run_study(study, copy, loaded)
        assert copy.content_hash() == whole.content_hash()
        infos = copy.decode_infos()
        assert len(seen) == sum(info["policies"] for info in infos)
        runs = {tuple(row[key] for key in ("task", "axis", "arm", "split")) for row in rows_of(copy)}
        # Each axis has its arms and its candidates, the joint arm its three.
        assert len(runs) == len(TASKS) * (2 * 7 + 3 + 2 + 3)
        # The reference alone stands for two candidates, and for the first arm of two axes and of the joint one.
        assert sum(info["policies"] for info in infos) <= len(runs) - 3 * len(TASKS)
        assert len(judged) == len(set(judged))

    def test_progress_tells_branches_and_then_decodes(self, study, loaded, tmp_path):
        told = []
        run_study(study, Store.create(tmp_path / "out", study.config), loaded, on_progress=told.append)
        branches = [now for now in told if math.isnan(now.decoded)]
        assert all(now.branches <= now.branches_total for now in branches)
        assert branches[-1].branches == branches[-1].branches_total
        shares = [now.decoded for now in told[len(branches) :]]
        assert len(shares) > 4
        assert shares == sorted(shares)
        assert 0 == shares[0] < shares[-1] < 1

    def test_nothing_is_loaded_where_all_is_there(self, whole, study):
        def no(spec):
            raise AssertionError("loaded")

        before = whole.content_hash()
        assert run_study(study, whole, no).hashes == before


class Killed(Exception):
    pass


def work(study, loaded, out):
    torch.set_num_threads(1)
    run_study(study, Store.create(out, study.config), loaded)


class TestInterrupted:
    def test_a_kill_loses_the_unit_in_flight_only(self, copy, whole, study, loaded, monkeypatch):
        calls = []
        real = decode_cache.decode
        first = whole.decode_infos()[1]["policies"] + 3

        def decode(*given, **how):
            calls.append(1)
            if len(calls) > first:
                raise Killed
            return real(*given, **how)

        monkeypatch.setattr(decode_cache, "decode", decode)
        with pytest.raises(Killed):
            run_study(study, copy, loaded)
        assert len(copy.decoded()) == 1
        assert not [p for p in copy.folder.rglob("*") if p.name.startswith(".")]
        monkeypatch.setattr(decode_cache, "decode", real)
        kept = (copy.decodes / copy.decoded()[0] / "unit.json").read_bytes()
        assert run_study(study, copy, loaded).hashes == whole.content_hash()
        assert kept in [(copy.decodes / name / "unit.json").read_bytes() for name in copy.decoded()]

    def test_while_writing(self, copy, whole, study, loaded, monkeypatch):
        def full(data, file, **options):
            file.write(b"half")
            raise Killed

        monkeypatch.setattr(pq, "write_table", full)
        with pytest.raises(Killed):
            run_study(study, copy, loaded)
        assert copy.decoded() == []
        assert "decodes" not in copy.content_hash()
        monkeypatch.undo()
        assert run_study(study, copy, loaded).hashes == whole.content_hash()

    def test_two_processes_share_the_work(self, copy, whole, study, loaded):
        context = multiprocessing.get_context("fork")
        children = [context.Process(target=work, args=(study, loaded, copy.folder)) for _ in range(2)]
        for child in children:
            child.start()
        for child in children:
            child.join(120)
            assert child.exitcode == 0
        assert copy.content_hash() == whole.content_hash()

    def test_the_budget_stops_between_units(self, copy, study, loaded):
        outcome = run_study(replace(study, budget=replace(study.budget, minutes=1e-9)), copy, loaded)
        assert not outcome.complete
        assert "budget" in outcome.stopped
        assert copy.decoded() == []

    def test_of_another_model_it_is_refused(self, copy, study, loaded):
        class Other:
            def __getattr__(self, name):
                return {"fingerprint": "f00d"} if name == "options" else getattr(loaded(None), name)

        with pytest.raises(OtherStudy, match="not what it was"):
            run_study(study, copy, lambda spec: Other())
        assert copy.decoded() == []

    def test_decodes_of_other_calibrations_are_refused(self, whole, study, loaded, tmp_path, monkeypatch):
        shutil.copytree(whole.folder, tmp_path / "old")
        old = Store.open(tmp_path / "old")
        monkeypatch.setattr(calibration, "fit_gate", lambda *given, **how: Threshold(None, 0, 0, 0, "shut"))
        with pytest.raises(OtherStudy, match="other calibrations"):
            run_study(study, old, loaded)
        with pytest.raises(SchemaError, match="another calibration"):
            measured(old)

    @pytest.mark.parametrize(("off", "taken"), [(1e-13, True), (1e-5, False)])
    def test_another_machine_may_round_otherwise(self, whole, tmp_path, off, taken):
        shutil.copytree(whole.folder, tmp_path / "moved")
        for path in (tmp_path / "moved" / "decodes").glob("*/unit.json"):
            unit = json.loads(path.read_text())
            for entry in unit["axes"].values():
                one = Calibration.from_json(entry["calibration"])
                means_A = one.fixed.mean_A * (1 + off)
                entry["calibration"] = replace(one, fixed=replace(one.fixed, mean_A=means_A)).to_json()
            path.write_text(json.dumps(unit))
        moved = Store.open(tmp_path / "moved")
        if taken:
            assert len(measured(moved)[1].cells) == len(measured(whole)[1].cells) > 0
        else:
            with pytest.raises(SchemaError, match="another calibration"):
                measured(moved)


def forced(found):
    """Arms of the region axis that all differ: the reference is not fixed, stages differ, the gate is half open."""
    one = found.calibration
    return Choice(
        found.axis,
        replace(
            one,
            fixed=replace(one.fixed, action=1),
            schedule=replace(one.schedule, action_K=np.array([0, 1, 2, 0])),
            tau=Threshold(0.0, 0.1, 0.1, 0.1, ""),
        ),
        found.opportunity,
    )


def test_every_arm_has_an_effect(copy, study, loaded, monkeypatch):
    asked = {key: one for key, one in choices(copy).items() if key[1:] == (TASKS[0], "region")}
    monkeypatch.setattr(arms, "choices", lambda store: {key: forced(one) for key, one in asked.items()})
    monkeypatch.setattr(arms, "choose_fixed", lambda q_PAR, reference: replace(one.fixed, action=2))
    (one,) = (found.calibration for found in asked.values())
    run_study(study, copy, loaded)
    found = {arm: answers(copy, "region", arm) for arm in (*ARMS, *CONTROLS)}
    random = found.pop("random gate")
    for at, arm in enumerate(found):
        for other in list(found)[:at]:
            assert found[arm] != found[other], (arm, other)
    by_draw = [{prompt: text for (prompt, draw), text in random.items() if draw == d} for d in range(4)]
    assert any(run != by_draw[0] for run in by_draw[1:])
    # With one axis there is nothing to join.
    assert not rows_of(copy, axis=JOINT)
    assert copy.decode_infos()[0]["axes"]["region"]["end_to_end"] == one.candidates[2]


def test_all_gates_shut(copy, study, loaded, monkeypatch):
    """Then no adaptive arm but the one that always acts is decoded."""
    monkeypatch.setattr(calibration, "fit_gate", lambda *given, **how: Threshold(None, 0.0, 0.0, 0.1, "made shut"))
    run_study(study, copy, loaded)
    for task in TASKS:
        assert answers(copy, JOINT, JOINT, task) == answers(copy, JOINT, JOINT_FIXED, task)
    assert {(r["evaluated"], r["deviated"]) for r in rows_of(copy, arm=JOINT)} == {(None, 0)}
    _, found = measured(copy)
    assert all(joint.coverage == {"score": 0.0, "region": 0.0} for joint in found.joints)


@pytest.mark.parametrize("reference", ["llada", "dream"])
def test_with_revision(scaled, tmp_path, reference):
    """Commitment joins the other axes of a decoder that may revise, and stays apart from one that never does."""
    small = {} if reference == "dream" else {"d_model": 32, "mlp": 64, "heads": 2, "kv_heads": 2}
    folder = getattr(scaled, reference)(tmp_path / "ck", layers=2, **small)
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
    study = Study.parse(raw)
    place = Store.create(tmp_path / "out", study.config)
    model = load(str(folder), device="cpu", dtype="fp32")
    assert run_study(study, place, lambda spec: model).complete
    _, found = measured(place)
    assert [c.axis for c in found.cells] == raw["axes"]
    (joint,) = found.joints
    assert joint.axes == (("score", "region") if reference == "dream" else ("score", "region", "commitment"))
    assert not next(c for c in found.cells if c.axis == "commitment").never
    assert [c.axis for c in found.of(extension=True).cells] == (["commitment"] if reference == "dream" else [])
    assert {c.axis for c in found.cells if c.chosen} <= set(raw["axes"][:2]) | set(joint.axes)


def test_what_evaluation_says_chooses_nothing(whole, tmp_path):
    shutil.copytree(whole.folder, tmp_path / "turned")
    turned = Store.open(tmp_path / "turned")
    rng = np.random.default_rng(0)
    changed = 0
    for name in turned.names():
        if ".evaluation." not in name:
            continue
        path = turned.shards / name / "branches.parquet"
        table = pq.read_table(path)
        utility = rng.permutation(table["utility"].to_numpy())
        changed += int((utility != table["utility"].to_numpy()).sum())
        at = table.column_names.index("utility")
        pq.write_table(table.set_column(at, table.schema.field(at), pa.array(utility)), path)
        path = turned.shards / name / "readings.parquet"
        table = pq.read_table(path)
        lists = [[1 - u for u in row] for row in table["utility"].to_pylist()]
        at = table.column_names.index("utility")
        pq.write_table(table.set_column(at, table.schema.field(at), pa.array(lists, table.schema.field(at).type)), path)
    assert changed > 100
    before, after = choices(whole), choices(turned)
    assert {key: one.calibration.to_json() for key, one in before.items()} == {
        key: one.calibration.to_json() for key, one in after.items()
    }
    assert {key: one.opportunity for key, one in before.items()} == {k: one.opportunity for k, one in after.items()}
    (steps, found), (other_steps, other) = measured(whole), measured(turned)
    lift = [c.raw.utility.lift["always"].value for c in steps.cells]
    assert lift != [c.raw.utility.lift["always"].value for c in other_steps.cells]
    assert [(c.task, c.axis) for c in found.cells if c.chosen] == [(c.task, c.axis) for c in other.cells if c.chosen]


def test_one_rollout_of_something_that_draws(tmp_path):
    tables, read = made.diagnosed({"find": "finds"}, axis="commitment", names=("all", "none"), rollouts=1)
    (lost,) = choices(made.store(tmp_path / "s", tables, read=read)).values()
    assert lost.reason.startswith("1 rollout of something that draws")


# Decodes made by hand


def decodes(place, utilities, *, steps=None, best="block:8", joint=None, task="find", model="small", missing=None):
    """One unit. `utilities` by axis and arm are lists over prompts, of the draws in lists of lists; None is unjudged.

    `steps` by arm are evaluated and deviated of every row.
    """
    chosen = choices(place)
    rows = []
    for axis, by_arm in utilities.items():
        for arm, values in by_arm.items():
            counts = (steps or {}).get(arm)
            for draw, of_draw in enumerate(values if isinstance(values[0], list) else [values]):
                for at, utility in enumerate(of_draw):
                    rows.append(
                        {
                            "model": model,
                            "task": task,
                            "axis": axis,
                            "arm": arm,
                            "draw": draw,
                            "split": "evaluation",
                            "prompt": f"p{at}",
                            "utility": utility,
                            "reason": "timed out" if utility is None else "compared",
                            "answer": "",
                            "evaluated": None if counts is None else counts[0],
                            "deviated": None if counts is None else counts[1],
                            "forwards": 4,
                        }
                    )
    info = {
        "unit": {"model": model, "task": task, "depends": "0" * 16},
        "axes": {
            axis: {
                "calibration": chosen[model, task, axis].calibration.to_json(),
                "opportunity": chosen[model, task, axis].opportunity,
                "end_to_end": best,
            }
            for axis in utilities
            if axis != JOINT
        },
        "missing": missing or {},
        "joint": joint,
    }
    place.write_decodes(Unit(model, task, "0" * 16), pa.Table.from_pylist(rows, schema=loose("decodes")), info)


FLAT = {arm: [0.5] * 4 for arm in (*ARMS, *CONTROLS)}
KNOWN = {
    "reference": [0.0, 0.0, 1.0, 1.0],
    "fixed": [0.5, 0.5, 0.5, 0.5],
    "stage": [0.5, 0.5, 0.5, 0.0],
    "always": [0.0, 1.0, 0.0, 0.0],
    "selective": [1.0, 0.75, 0.5, 0.25],
    "end-to-end fixed": [0.25, 0.5, 0.75, 1.0],
    "random gate": [[1.0, 0.5, 0.5, 0.0], [0.0, 0.5, 0.5, 1.0]],
}
STEPS = {"always": (8, 8), "selective": (8, 2), "random gate": (8, 3)}


@pytest.fixture
def planted():
    return made.diagnosed({"find": "finds", "other": "useless"})


@pytest.fixture
def place(planted, tmp_path):
    tables, read = planted
    return made.store(tmp_path / "s", tables, read=read)


def cell(found, task="find", axis="region"):
    (one,) = [c for c in found.cells if (c.task, c.axis) == (task, axis)]
    return one


class TestKnownTruth:
    def test_numbers(self, place):
        decodes(place, {"region": KNOWN}, steps=STEPS)
        _, found = measured(place)
        one = cell(found)
        means = {arm: np.mean(values) for arm, values in KNOWN.items()}
        assert {arm: e.value for arm, e in one.utility.items()} == pytest.approx(means)
        assert set(one.difference) == set(DIFFERENCES)
        for (a, b), estimate in one.difference.items():
            assert estimate.value == pytest.approx(means[a] - means[b])
            assert estimate.low <= estimate.value <= estimate.high
        assert one.coverage == {"always": 1.0, "selective": 0.25, "random gate": 0.375}
        assert (one.wins, one.losses, one.ties) == (2, 1, 1)
        assert (one.prompts, one.unjudged) == (4, 0)
        assert (one.fixed_name, one.end_to_end_name, one.chosen) == ("full", "block:8", True)
        assert one.out_of_fold == 0.25
        assert [(m.task, m.reason) for m in found.missing] == [("other", "not decoded end to end yet")]

    def test_differences_are_paired(self, place):
        """Arms that differ by as much on every prompt differ for certain, however unlike the prompts are."""
        spread = [0.0, 0.2, 0.5, 0.75]
        paired = {**FLAT, "fixed": spread, "selective": [u + 0.25 for u in spread]}
        decodes(place, {"region": paired}, steps=STEPS)
        one = cell(measured(place)[1])
        gain = one.difference["selective", "fixed"]
        assert (gain.low, gain.value, gain.high) == pytest.approx((0.25, 0.25, 0.25))
        assert one.utility["fixed"].low < one.utility["fixed"].high

    def test_means_over_tasks_count_tasks_alike(self, place):
        decodes(place, {"region": KNOWN}, steps=STEPS)
        worse = {**FLAT, "selective": [0.25] * 4}
        decodes(place, {"region": worse}, steps={**STEPS, "selective": (8, 4)}, task="other")
        _, found = measured(place)
        for mean in found.means:
            assert mean.tasks == ("find", "other")
            assert mean.utility["selective"].value == pytest.approx((0.625 + 0.25) / 2)
            assert mean.difference["selective", "fixed"].value == pytest.approx((0.125 - 0.25) / 2)
            assert mean.coverage == pytest.approx((0.25 + 0.5) / 2)
            assert (mean.better, mean.worse, mean.same) == (1, 1, 0)
            assert (mean.significant_up, mean.significant_down) == (0, 1)
            assert mean.partial == ""
        assert [mean.axis for mean in found.means] == [CHOSEN, "region"]

    def test_a_task_that_is_missing_is_named(self, place):
        decodes(place, {"region": KNOWN}, steps=STEPS)
        assert {mean.partial for mean in measured(place)[1].means} == {"without other"}

    def test_the_same_tables_give_the_same_numbers(self, place):
        decodes(place, {"region": KNOWN}, steps=STEPS)
        assert measured(place)[1] == measured(place)[1]

    def test_never(self, place, monkeypatch):
        monkeypatch.setattr(calibration, "fit_gate", lambda *given, **how: Threshold(None, 0, -0.5, 0.1, "made shut"))
        decodes(place, {"region": FLAT}, steps={"always": (8, 8), "selective": (None, 0), "random gate": (None, 0)})
        one = cell(measured(place)[1])
        assert one.never == "made shut"
        assert one.coverage == {"always": 1.0, "selective": 0.0, "random gate": 0.0}
        assert (one.wins, one.losses, one.ties) == (0, 0, 4)

    def test_without_any_signal_there_is_no_coverage(self, place):
        decodes(place, {"region": FLAT}, steps=dict.fromkeys(STEPS, (0, 0)))
        _, found = measured(place)
        assert np.isnan(list(cell(found).coverage.values())).all()
        assert np.isnan([mean.coverage for mean in found.means]).all()


class TestUnjudged:
    def test_a_prompt_without_one_arm_is_left_out_and_counted(self, place):
        lost = {**KNOWN, "stage": [0.5, None, 0.5, 0.0]}
        lost["random gate"] = [[1.0, 0.5, None, 0.0], [0.0, 0.5, 0.5, 1.0]]
        decodes(place, {"region": lost}, steps=STEPS)
        one = cell(measured(place)[1])
        assert (one.prompts, one.unjudged) == (2, 2)
        assert one.utility["selective"].value == pytest.approx((1.0 + 0.25) / 2)
        assert one.difference["selective", "fixed"].value == pytest.approx(0.125)
        assert (one.wins, one.losses, one.ties) == (1, 1, 0)

    def test_nothing_judged_is_missing(self, place):
        decodes(place, {"region": {**KNOWN, "always": [None] * 4}}, steps=STEPS)
        _, found = measured(place)
        assert ("find", "no evaluation prompt has a judged answer of every arm") in [
            (lost.task, lost.reason) for lost in found.missing
        ]
        assert found.cells == found.means == ()

    def test_an_axis_that_could_not_be_decoded_is_named(self, place):
        decodes(place, {}, missing={"region": "no validation prompt has a judged answer"})
        assert "no validation prompt has a judged answer" in [lost.reason for lost in measured(place)[1].missing]

    def test_answers_that_nobody_can_judge(self, copy, study, loaded, monkeypatch):
        """Of a real run: the axis is left out with its reason, what was decoded is kept."""
        monkeypatch.setattr(judging, "scores", lambda pairs, jobs: [(float("nan"), "timed out") for _ in pairs])
        run_study(study, copy, loaded)
        found = rows_of(copy)
        assert {row["split"] for row in found} == {"validation"}
        assert {(row["utility"], row["reason"]) for row in found} == {(None, "timed out")}
        _, e4 = measured(copy)
        assert e4.cells == ()
        assert {lost.reason for lost in e4.missing} == {
            "no validation prompt has a judged answer of every candidate end to end"
        }


class TestAxes:
    def test_choosing(self):
        assert choose_axis({}) is None
        assert choose_axis({"score": (0.1, 0.0), "region": (0.2, 0.0)}) == "region"
        assert choose_axis({"score": (0.0, 0.1), "region": (0.0, 0.3), "cardinality": (0.0, 0.2)}) == "region"
        assert choose_axis({"score": (0.1, 0.2), "region": (0.1, 0.2)}) == "score"
        assert choose_axis({"score": (0.1 + 1e-17, 0.2), "region": (0.1, 0.3)}) == "region"
        assert choose_axis({"score": (0.0, float("nan")), "region": (0.0, -0.1)}) == "region"
        # A gate that never opens promises nothing; one that loses out of fold is never left open.
        assert choose_axis({"score": (0.0, 0.9), "region": (0.01, 0.0)}) == "region"

    @pytest.fixture
    def both(self, tmp_path):
        """Two axes of a dream-type model, region and the extension."""
        tables, read = made.diagnosed({"find": "finds"}, axis="commitment", names=("all", "none"))
        other, more = made.diagnosed({"find": "finds"})
        for key in tables:
            tables[key] |= other[key]
            read[key] |= more[key]
        return made.store(tmp_path / "both", tables, read=read, reference="dream")

    def test_revision_of_dream_is_never_chosen_and_stands_apart(self, both):
        decodes(both, {"commitment": KNOWN, "region": FLAT}, steps=STEPS)
        _, found = measured(both)
        # Its gate promises as much as the region's, and comes first.
        assert {c.axis: c.chosen for c in found.cells} == {"commitment": False, "region": True}
        apart, rest = found.of(extension=True), found.of(extension=False)
        assert [c.axis for c in apart.cells] == [m.axis for m in apart.means] == ["commitment"]
        assert [m.axis for m in rest.means] == [CHOSEN, "region"]
        chosen = next(m for m in rest.means if m.axis == CHOSEN)
        assert chosen.utility["selective"].value == pytest.approx(0.5)
        assert apart.joints == ()

    def test_joint(self, both):
        joint = {"reference": [0.0, 0.0, 1.0, 1.0], JOINT_FIXED: [0.5] * 4, JOINT: [1.0, 0.5, 0.5, None]}
        gates = {"region": {f"p{at}": [8, at] for at in range(4)}}
        about = {"axes": ["region"], "gates": gates}
        decodes(both, {"region": KNOWN, "commitment": FLAT, JOINT: joint}, steps=STEPS, joint=about)
        (one,) = measured(both)[1].joints
        assert (one.prompts, one.unjudged, one.axes) == (3, 1, ("region",))
        assert one.utility["selective"].value == pytest.approx((1.0 + 0.75 + 0.5) / 3)
        assert one.difference[JOINT, JOINT_FIXED].value == pytest.approx(0.5 / 3)
        assert one.difference[JOINT, "selective"].value == pytest.approx((2.0 - 2.25) / 3)
        assert one.coverage == {"region": pytest.approx((0 + 1 + 2) / 24)}


class TestStored:
    def test_nothing_decoded_is_nothing(self, place):
        assert measured(place)[1] is None
        assert len(place.table("decodes")) == 0

    def test_twice(self, place):
        decodes(place, {"region": KNOWN}, steps=STEPS)
        (name,) = place.decoded()
        shutil.copytree(place.decodes / name, place.decodes / f"{name[:-1]}1")
        with pytest.raises(SchemaError, match="decoded end to end twice"):
            measured(place)

    def test_an_arm_is_missing(self, place):
        decodes(place, {"region": {arm: KNOWN[arm] for arm in KNOWN if arm != "stage"}}, steps=STEPS)
        with pytest.raises(SchemaError, match="have no arm stage"):
            measured(place)

    @pytest.mark.parametrize("content", ["{", json.dumps({"format": "unmask-study-1"})])
    def test_a_broken_unit(self, place, content):
        decodes(place, {"region": KNOWN}, steps=STEPS)
        (place.decodes / place.decoded()[0] / "unit.json").write_text(content)
        with pytest.raises(SchemaError, match=r"allowed|cannot be read"):
            measured(place)

    def test_settings_have_one_home(self, place):
        found, _ = measured(place)
        assert settings_of(place.manifest["study"]) == found.settings.calibration

    def test_hash_sees_every_value(self, place):
        decodes(place, {"region": KNOWN}, steps=STEPS)
        table, digest = place.table("decodes"), place.content_hash()["decodes"]
        assert table_hash(table) == digest
        for at, column in enumerate(table.schema):
            values = table[column.name].to_pylist()
            values[0] = "other" if pa.types.is_string(column.type) else 7
            changed = table.set_column(at, column, pa.array(values, column.type))
            assert table_hash(changed) != digest, column.name
