"""Calibrations on a tiny network and on planted tables; studies with tasks of one's own."""

import json
import math
import shutil
from itertools import product

import numpy as np
import pytest

import unmask
from tests.helpers.cases import each_case
from tests.helpers.compared import compare, rows
from unmask.adapt import DIAGNOSTICS, Arms, EndToEnd, Gate
from unmask.api.load import load
from unmask.base.errors import ConfigError, ContractError, NotComplete, UnknownName
from unmask.lab import calibrate as lab
from unmask.lab.calibrate import calibrate, describe_gate, estimate_lift, summarise_runs
from unmask.lab.store import Store
from unmask.lab.study import protocol
from unmask.methods import candidates
from unmask.stats import CalibrationSettings, draw_fitted_half
from unmask.stats.protocol import (
    ProposedAction,
    ValidationSet,
    fit_calibration,
)
from unmask.tasks import open_task, own_task


def runs_of(*values):
    names = ("reference", "fixed", "selective", "low", "high", "prompts", "differ")
    return EndToEnd(**dict(zip(names, values, strict=True)))


QUICK = {"prompts": 3, "states": 2, "rollouts": 2, "batch_size": 4}


@pytest.fixture
def model(tiny_model):
    return tiny_model


class TestCalibrations:
    def test_a_gate_from_validation_prompts_alone(self, model, task, tmp_path):
        gate = calibrate(model, task=task, axis="region", work_dir=tmp_path / "work", **QUICK)
        store = Store.open(tmp_path / "work")
        assert set(store.read_arrow("branches")["split"].to_pylist()) == {"validation"}
        prompts = {e.id for e in task.examples("validation")[:3]}
        assert set(store.read_arrow("states")["prompt"].to_pylist()) == prompts
        assert len(store.read_arrow("readings")) == 3 * 2
        assert (gate.model, gate.fingerprint, gate.task) == (model.name, model.fingerprint, "mine")
        assert (gate.arms.axis, gate.arms.calibration.prompts, gate.steps_share) == ("region", 3, 0.5)
        # A network with random weights never says the word.
        assert gate.arms.calibration.tau.value is None
        assert (gate.lift.value, gate.lift.low, gate.lift.high) == (0, 0, 0)
        assert gate.lift.how.startswith("the gate never opens and decodes as the fixed action")
        out = model.generate("Say w0.", gate=gate, max_new_tokens=6)
        assert out.tokens == model.generate("Say w0.", policy=gate.arms.fixed, max_new_tokens=6, steps=3).tokens

    @pytest.mark.parametrize("axis", ["score", "cardinality", "commitment"])
    def test_the_other_axes(self, model, prompt_file, scorer, tmp_path, axis):
        task = own_task("mine", str(prompt_file), scorer=scorer("fair"), max_new_tokens=6)
        gate = calibrate(model, task=task, axis=axis, work_dir=tmp_path / "work", **QUICK)
        assert gate.arms.axis == axis
        assert (gate.arms.operator is not None) == (axis == "commitment")
        gate.save(tmp_path / "gate.json")
        assert Gate.load(tmp_path / "gate.json").hash == gate.hash
        assert model.generate("Say w0.", gate=tmp_path / "gate.json", max_new_tokens=6).texts

    def test_a_killed_one_goes_on(self, model, task, tmp_path, monkeypatch):
        monkeypatch.setattr(lab, "SHARD_PROMPTS", 1)
        monkeypatch.setattr(protocol, "group_jobs", lambda settings, jobs, workers: [[job] for job in jobs])
        whole = calibrate(model, task=task, axis="region", work_dir=tmp_path / "whole", **QUICK)
        real, ran = protocol.branch_prompts, []

        def dies(*given):
            if len(ran) == 2:
                raise KeyboardInterrupt
            ran.append(given)
            return real(*given)

        monkeypatch.setattr(protocol, "branch_prompts", dies)
        with pytest.raises(KeyboardInterrupt):
            calibrate(model, task=task, axis="region", work_dir=tmp_path / "cut", **QUICK)
        assert len(Store.open(tmp_path / "cut").names()) == 2
        ran.clear()
        again = calibrate(model, task=task, axis="region", work_dir=tmp_path / "cut", **QUICK)
        assert len(ran) == 1
        assert again.to_json() == whole.to_json()
        assert Store.open(tmp_path / "cut").content_hash() == Store.open(tmp_path / "whole").content_hash()

    def test_no_gate_comes_of_work_that_was_set_aside(self, model, prompt_file, scorer, tmp_path, monkeypatch):
        monkeypatch.setattr(lab, "SHARD_PROMPTS", 1)
        (tmp_path / "bad.txt").write_text("p3")
        task = own_task("mine", str(prompt_file), scorer=scorer("leaves"), max_new_tokens=6)
        with pytest.raises(
            NotComplete, match=r"1 shard was set aside after 3 attempts .*returned no more.*remove '.*failed'"
        ):
            calibrate(model, task=task, axis="region", work_dir=tmp_path / "work", **QUICK)
        (tmp_path / "bad.txt").write_text("")
        shutil.rmtree(tmp_path / "work" / "failed")
        assert calibrate(model, task=task, axis="region", work_dir=tmp_path / "work", **QUICK)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"prompts": 1}, "prompts is 1; allowed: 2"),
            ({"states": 0}, "states is 0"),
            ({"rollouts": 0}, "rollouts is 0"),
            ({"steps_share": 0.0}, "steps_share is 0"),
            ({"steps_share": 1.5}, "steps_share is 1.5"),
            ({"seed": -1}, "seed is -1"),
            ({"batch_size": 0}, "batch_size is 0"),
            ({"axis": "commitment", "rollouts": 1}, "2 or more on the commitment axis"),
            ({"axis": "regoin"}, "did you mean region"),
            ({"fixed_by": "one_step"}, "did you mean one-step"),
            ({"guarantee": 1.0, "prompts": 4}, "guarantee is 1.0; allowed: above 0, below 1"),
            ({"guarantee": 0.05, "margin": 0.0, "prompts": 4}, "margin is 0.0; allowed: above 0, below 1"),
            ({"guarantee": 0.05}, "prompts is 3; allowed: 4 or more with a guarantee"),
            ({"margin": 0.1}, "margin is 0.1; allowed: none without a guarantee"),
        ],
    )
    def test_refused(self, model, task, tmp_path, changes, message):
        given = {"axis": "region"} | QUICK | changes
        with pytest.raises(ConfigError, match=message):
            calibrate(model, task=task, axis=given.pop("axis"), work_dir=tmp_path / "work", **given)
        assert not (tmp_path / "work").exists()

    def test_nothing_that_can_be_scored(self, model, prompt_file, scorer, tmp_path):
        task = own_task("mine", str(prompt_file), scorer=scorer("always"), max_new_tokens=6)
        with pytest.raises(ContractError, match="no answer to mine could be scored"):
            calibrate(model, task=task, axis="region", work_dir=tmp_path / "work", **QUICK)

    def test_in_python(self, model, prompt_file, tmp_path):
        given = {"task": str(prompt_file), "axis": "region", "scorer": "contains", "max_new_tokens": 6}
        gate = unmask.calibrate(model, **given, **QUICK, work_dir=tmp_path / "work")
        assert gate.to_json() == unmask.calibrate(model, **given, **QUICK).to_json()
        assert (tmp_path / "work" / "manifest.json").exists()
        with pytest.raises(UnknownName, match="did you mean prompts"):
            unmask.calibrate(model, **given, prompt=3)
        with pytest.raises(UnknownName, match="did you mean region"):
            unmask.calibrate(model, **given | {"axis": "regions"})


@pytest.fixture(scope="module")
def exact():
    """What it says at a place depends on what stands at others."""
    return load("exact", seed=1)


ECHOED = ["".join(letters) for n in (1, 2) for letters in product("abcd", repeat=n)]


class TestEndToEnd:
    """Targets are what the reference says, so that it is always right; `count:1:below` leaves most to the last step."""

    @pytest.fixture
    def echo(self, exact, scorer, tmp_path, monkeypatch):
        """A task of 20 prompts, and a calibration that finds in it what the table says."""

        def call(table, mode="same", policy=None):
            said = exact.generate(ECHOED, policy=policy, max_new_tokens=6, steps=3).texts
            rows = [{"prompt": p, "target": text, "id": p} for p, text in zip(ECHOED, said, strict=True)]
            text = "\n".join(json.dumps(row | {"split": "validation"}) for row in rows)
            (tmp_path / "echo.jsonl").write_text(text, encoding="utf-8")
            monkeypatch.setattr(lab, "_read_states", lambda *given: table)
            return own_task("echo", str(tmp_path / "echo.jsonl"), scorer=scorer(mode), max_new_tokens=6)

        return call

    @pytest.fixture
    def gate_from(self, exact, tmp_path):
        def call(task, work="work", **changes):
            small = {"states": 1, "rollouts": 2, "batch_size": 8, "fixed_by": "one-step"}
            return calibrate(exact, task=task, axis="cardinality", work_dir=tmp_path / work, **small | changes)

        return call

    def test_a_fixed_action_that_is_ruinous_at_every_step(self, echo, gate_from):
        gate = gate_from(echo(one_step("count:1:below")))
        assert gate.summary["fixed"] == "count:1:below"
        runs = gate.end_to_end
        assert (runs.reference, runs.prompts) == (1, 20)
        assert runs.fixed == runs.selective <= 0.5
        assert runs.differ >= 10
        assert runs.low < runs.difference < runs.high < 0
        assert describe_gate(gate).endswith(
            f"Decoded end to end, the same prompts score 1.000 with the reference, {runs.fixed:.3f} with the fixed "
            f"action at every step and {runs.fixed:.3f} with this gate: worse than the reference "
            f"([{runs.low:+.3f}, {runs.high:+.3f}]), so do not use it."
        )

    @pytest.mark.parametrize("opens", [False, True])
    def test_the_numbers_are_those_of_decoding(self, exact, echo, gate_from, opens):
        task = echo(one_step("count:1:below", opens))
        gate = gate_from(task)
        assert (gate.arms.calibration.tau.value is not None) == opens
        arms = {"reference": gate.arms.reference, "fixed": gate.arms.fixed, "selective": gate.arms.selective}
        ran = compare(exact, [task], split="validation", policies=arms, steps=3, batch_size=5)
        assert {name: getattr(gate.end_to_end, name) for name in arms} == pytest.approx(
            {name: ran.mean_utilities(name)["echo"] for name in arms}
        )
        assert (gate.end_to_end.fixed == gate.end_to_end.selective) == (not opens)

    def test_equal_policies_are_decoded_once(self, echo, gate_from, monkeypatch):
        real, ran = lab.decode_prompts, []

        def counted(model, requests, policy, **how):
            ran.append((policy, len(requests)))
            return real(model, requests, policy, **how)

        monkeypatch.setattr(lab, "decode_prompts", counted)
        gate = gate_from(echo(one_step("schedule")))
        assert gate.arms.fixed == gate.arms.reference
        assert ran == [(gate.arms.reference, rows) for rows in (8, 8, 4)]
        assert gate.end_to_end == runs_of(1.0, 1.0, 1.0, 0.0, 0.0, 20, 0)
        assert describe_gate(gate).endswith("no prompt is worth more or less than with the reference (20 prompts).")
        ran.clear()
        gate = gate_from(echo(one_step("count:1:below")), "fixed")
        assert [policy for policy, _ in ran] == [gate.arms.reference] * 3 + [gate.arms.fixed] * 3

    def test_the_fixed_action_is_the_best_one_of_whole_runs(self, echo, gate_from, tmp_path):
        gate = gate_from(echo(one_step("count:1:below")), fixed_by="end-to-end")
        assert (gate.summary["fixed"], gate.summary["fixed_by"]) == ("schedule", "end-to-end")
        assert gate.end_to_end.fixed == gate.end_to_end.reference == 1
        assert "fixed action: schedule (best end to end, mean utility 1.0000, 20 prompts)" in gate.inspect()
        gate.save(tmp_path / "gate.json")
        assert Gate.load(tmp_path / "gate.json").arms.calibration.settings.fixed == "end-to-end"
        older = gate_from(echo(one_step("count:1:below")), "older")
        assert "fixed_by" not in older.summary

    @pytest.fixture
    def adapts(self, echo):
        """A task on which the diagnostic is always right: targets are what is said when every gate is open."""
        table = one_step("count:1:below", opens=True, prompts=ECHOED)
        chosen = fit_calibration(table, CalibrationSettings(seed=0))
        return echo(table, policy=Arms("cardinality", "llada", chosen, DIAGNOSTICS["cardinality"]).always)

    def test_a_guarantee(self, adapts, gate_from, tmp_path):
        """Half of the prompts show that leaving the fixed action gains."""
        gate = gate_from(adapts, guarantee=0.2, margin=0.4)
        held = gate.guarantee
        assert (held.risk, held.margin, held.fitted, held.tested) == (0.2, 0.4, 10, 10)
        assert gate.arms.calibration.prompts == 10
        assert gate.arms.calibration.tau.value is not None
        assert -0.4 <= held.bound < held.difference
        assert "on the 10 validation prompts that it was tested on" in gate.lift.how
        gate.save(tmp_path / "gate.json")
        assert Gate.load(tmp_path / "gate.json").guarantee == held
        said = "guarantee: not worse than the fixed action by more than 0.4, end to end, with probability 0.8 over"
        assert f"{said} validation prompts (10 tested, 10 fitted on)" in gate.inspect()

    def test_a_guarantee_that_cannot_be_given_shuts_the_gate(self, echo, gate_from):
        task = echo(one_step("count:1:below", opens=True, prompts=ECHOED))
        assert gate_from(task, "open").arms.calibration.tau.value is not None
        gate = gate_from(task, "shut", guarantee=0.0001, margin=0.01)
        assert gate.arms.calibration.tau.value is None
        assert gate.end_to_end.selective == gate.end_to_end.fixed
        assert (gate.guarantee.difference, gate.guarantee.bound) == (0, 0)
        assert "is not shown by 10 prompts (without a gain, 10 can show a margin of" in describe_gate(gate)

    def test_a_guarantee_is_of_the_tested_prompts_alone(self, adapts, gate_from, exact):
        gate = gate_from(adapts, guarantee=0.2, margin=0.4)
        arms = {"fixed": gate.arms.fixed, "selective": gate.arms.selective}
        ran = compare(exact, [adapts], split="validation", policies=arms, steps=3)
        utility = {(row.policy, row.prompt): row.utility for row in rows(ran)}
        tested = [p for p, fits in zip(ECHOED, draw_fitted_half(20, 0), strict=True) if not fits]
        gains = [utility["selective", p] - utility["fixed", p] for p in tested]
        assert 0 < gate.guarantee.difference == pytest.approx(sum(gains) / 10)

    def test_batches_change_nothing(self, echo, gate_from):
        task = echo(one_step("count:1:below", opens=True))
        assert gate_from(task, "one", batch_size=3).to_json() == gate_from(task, "other", batch_size=20).to_json()

    def test_prompts_without_a_judged_answer_are_left_out_of_all(self, exact, echo, gate_from):
        task = echo(one_step("count:1:below"), "picky")
        gate = gate_from(task)
        ran = compare(exact, [task], split="validation", policies={"fixed": gate.arms.fixed}, steps=3)
        judged = [row.utility for row in rows(ran) if not math.isnan(row.utility)]
        assert 0 < len(judged) < 20
        assert (gate.end_to_end.reference, gate.end_to_end.prompts) == (1, len(judged))
        assert gate.end_to_end.fixed == pytest.approx(sum(judged) / len(judged))


# What is said about planted tables


def one_step(best, opens=False, prompts=tuple(range(12))):
    """A table of the cardinality axis: `best` gains at every state, or on average.

    With `opens` the other action is better at half of the states, which the signal finds.
    """
    reference, _, *further = candidates("llada")["cardinality"]
    names = (reference, "count:1:below", *further)
    half_S = np.tile([True, True, False, False], len(prompts))
    q_SA = np.full((len(half_S), len(names)), 0.1)
    q_SA[:, :2] = 0.5
    q_SA[:, 1 - names.index(best)] = np.where(half_S, 0.8, 0.0) if opens else 0.3
    q_SAR = np.repeat(q_SA[:, :, None], 4, 2)
    proposed_SR = q_SAR[:, 1 - names.index(best)]
    nowhere_SA = np.zeros((len(half_S), len(names)), bool)
    return ValidationSet(
        prompt_S=np.repeat(prompts, 4),
        place_S=np.tile(np.arange(4), len(prompts)),
        masked_S=np.tile([1.0, 0.75, 0.5, 0.25], len(prompts)),
        q_SAR=q_SAR,
        signal_S=np.where(half_S, 1e-3, -1.0),
        abstained_S=np.zeros(len(half_S), bool),
        proposals=dict.fromkeys(("raw", "snapped"), ProposedAction(proposed_SR, nowhere_SA)),
        candidates=names,
        reference=0,
    )


def planted(kind, prompts=40, seed=0):
    """The second action gains 0.4 at a quarter of the states and loses 0.2 elsewhere; the signal finds them, or is 1.

    With "none" it never gains, and with "all" the second or the third action gains at every state, the first being best
    on average.
    """
    rng = np.random.default_rng(seed)
    good_S = rng.random(prompts * 4) < {"none": 0.0, "all": 0.5}.get(kind, 0.25)
    signal_S = np.ones(len(good_S)) if kind == "constant" else good_S + 0.1 * rng.normal(size=len(good_S))
    gain_S = np.where(good_S, 0.4, -0.5 if kind == "all" else -0.2)
    third_S = np.where(good_S, 0.0, 0.9 if kind == "all" else 0.0)
    q_SA = np.stack([np.full(len(good_S), 0.5), 0.5 + gain_S, third_S], 1)
    q_SAR = np.repeat(q_SA[:, :, None], 4, 2)
    nowhere_SA = np.zeros((len(good_S), 3), bool)
    return ValidationSet(
        prompt_S=np.repeat(np.arange(prompts), 4),
        place_S=np.tile(np.arange(4), prompts),
        masked_S=np.tile([1.0, 0.75, 0.5, 0.25], prompts),
        q_SAR=q_SAR,
        signal_S=signal_S,
        abstained_S=np.zeros(len(good_S), bool),
        proposals=dict.fromkeys(("raw", "snapped"), ProposedAction(q_SAR[:, 1], nowhere_SA)),
        candidates=("full", "block:8", "block:16"),
        reference=0,
    )


def test_an_opportunity_that_is_there_is_found():
    table = planted("finds")
    chosen = fit_calibration(table, CalibrationSettings(seed=0))
    lift = estimate_lift(table, chosen)
    assert lift.value == pytest.approx(chosen.tau.out_of_fold)
    assert 0 < lift.low < lift.value < lift.high
    # A quarter of the states gains 0.4.
    assert lift.value == pytest.approx(0.1, abs=0.03)
    assert "out of fold" in lift.how
    assert "40 validation prompts" in lift.how


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("constant", "no threshold gains anything"),
        ("none", "no validation state has a positive opportunity"),
        ("all", "every validation state has a positive opportunity"),
    ],
)
def test_no_opportunity_is_said_and_not_raised(kind, reason):
    table = planted(kind)
    chosen = fit_calibration(table, CalibrationSettings(seed=0))
    lift = estimate_lift(table, chosen)
    assert (lift.value, lift.low, lift.high) == (0, 0, 0)
    assert reason in lift.how
    assert "decodes as the fixed action" in lift.how


def gate_of(kind):
    table = planted(kind)
    chosen = fit_calibration(table, CalibrationSettings(seed=0))
    arms = Arms("region", "llada", chosen, DIAGNOSTICS["region"], None)
    lift = estimate_lift(table, chosen)
    about = {"model": "small", "fingerprint": "f" * 16, "task": "mine", "steps_share": 0.5}
    return Gate(**about, arms=arms, lift=lift)


@each_case(
    ("runs", "words"),
    [
        (runs_of(0.904, 0.385, 0.385, -0.58, -0.46, 100, 60), "worse than the reference ([-0.580, -0.460]), so do"),
        (runs_of(0.9, 0.8, 0.8, -0.2, -0.02, 40, 4), "([-0.200, -0.020]), but only 4 of 40 prompts differ, so this"),
        (runs_of(0.5, 0.4, 0.52, -0.01, 0.05, 40, 12), "no clear difference to the reference ([-0.010, +0.050]; 12"),
        (runs_of(0.5, 0.4, 0.6, 0.0, 0.2, 40, 12), "no clear difference to the reference"),
        (runs_of(0.5, 0.5, 0.4, -0.2, 0.0, 40, 12), "no clear difference to the reference"),
        (runs_of(0.5, 0.5, 0.7, 0.1, 0.3, 40, 20), "better than the reference ([+0.100, +0.300]). These are the"),
        (runs_of(0.5, 0.5, 0.7, 0.1, 0.3, 40, 9), "([+0.100, +0.300]), but only 9 of 40 prompts differ, so this"),
        (None, "could all be judged: what whole runs are worth is not known."),
    ],
)
def test_the_verdict_on_whole_runs(runs, words):
    gate = Gate(**{**vars(gate_of("finds")), "end_to_end": runs})
    text = describe_gate(gate)
    assert words in text
    assert text.startswith("Expected lift over the fixed action")
    clear = runs is not None and "no clear" not in text
    assert ("do not use it" in text) == (clear and runs.high < 0)
    assert ("calibrated on, which flatters" in text) == (clear and runs.low > 0)


def test_whole_runs_summarise_runs():
    rng = np.random.default_rng(0)
    utility_PA = rng.random((30, 3))
    ids = [f"p{n}" for n in range(30)]
    runs = summarise_runs(utility_PA, ids, seed=3)
    assert (runs.reference, runs.fixed, runs.selective) == pytest.approx(tuple(utility_PA.mean(0)))
    assert runs.low < runs.difference < runs.high
    assert (runs.prompts, runs.differ) == (30, 30)
    assert runs == summarise_runs(utility_PA, ids, seed=3) != summarise_runs(utility_PA, ids, seed=4)
    missing_PA = utility_PA.copy()
    missing_PA[[1, 4, 9], [0, 1, 2]] = math.nan
    left = [n for n in range(30) if n not in (1, 4, 9)]
    assert summarise_runs(missing_PA, ids, seed=3) == summarise_runs(utility_PA[left], [ids[n] for n in left], seed=3)
    assert summarise_runs(np.full((3, 3), math.nan), ids[:3], seed=0) is None
    # Each prompt lacks one of the three.
    assert summarise_runs(np.where(np.eye(3) == 1, math.nan, 0.5), ids[:3], seed=0) is None


def test_the_whole_chain_on_the_small_model(tmp_path):
    prompt = "A page was cut off after <{}><p>hello. Give only the missing closing tags inside <answer>...</answer>."
    tags = ("main", "nav", "div", "section")
    lines = [{"prompt": prompt.format(tag), "target": f"</p></{tag}>"} for tag in tags]
    (tmp_path / "tags.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    model = load("mini", device="cpu", dtype="fp32")
    task = open_task(str(tmp_path / "tags.jsonl"), scorer="exact", max_new_tokens=16)
    gate = calibrate(model, task=task, axis="region", work_dir=tmp_path / "work", states=2, rollouts=2)
    gate.save(tmp_path / "gate.json")
    assert math.isfinite(gate.lift.value)
    # The model knows how to close tags.
    assert gate.arms.calibration.fixed.mean_A.max() > 0.5
    out = model.generate(prompt.format("header"), gate=str(tmp_path / "gate.json"), max_new_tokens=16)
    assert out.text.strip() == "<answer></p></header></answer>"
    assert out.config["gate"]["hash"] == gate.hash
