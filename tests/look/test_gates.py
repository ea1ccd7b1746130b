"""What a gate said at each step, from a run's notes and configuration."""

import math

import pytest

from tests.helpers.adaptive_arms import joint, selective
from unmask.adapt import DetectorRule
from unmask.adapt.diagnostics import DIAGNOSTICS
from unmask.api.load import load
from unmask.look.gates import acting, edge
from unmask.look.run import run_record
from unmask.methods import fixed_action, with_remasking

INF = math.inf


@pytest.fixture(scope="module")
def model():
    return load("exact", n=10)


def gated(tau=0.1, starts=(0.0,), expected=(0.0, 0.2)):
    return selective(fixed_action(), DIAGNOSTICS["region"], DetectorRule(starts, expected, tau))


def signals(model):
    """What the region's diagnostic reads at each step, whatever the gate does."""
    record = run_record(model.generate("ab", policy=gated(tau=None), steps=5).trajectory, 0, model.codec)
    return [step["signal"] for step in record["steps"]]


def test_signal_threshold_and_words_follow_the_gate(model):
    told = sorted(signal for signal in signals(model) if signal is not None)
    assert len(set(told)) > 1
    border = (told[0] + told[-1]) / 2
    run = model.generate("ab", policy=gated(starts=(border,)), steps=5).trajectory
    record = run_record(run, 0, model.codec)
    for step, seen in zip(record["steps"], run.row(0).steps, strict=True):
        notes = seen.action.notes
        assert step["policy"] == "selective"
        assert step["open"] == bool(notes["region/deviated_B"][0])
        if not bool(notes["region/evaluated_B"][0]):
            assert (step["signal"], step["threshold"]) == (None, None)
            assert step["why"] == "region: no signal, so the fixed action"
            continue
        assert step["signal"] == pytest.approx(float(notes["region/signal_B"][0]), abs=1e-6)
        assert step["threshold"] == border
        assert step["open"] == (float(notes["region/signal_B"][0]) >= border)
        words = f"region: the gate {'opened' if step['open'] else 'stayed shut'}, signal {step['signal']:.3g}"
        assert step["why"].startswith(words)
    assert {step["open"] for step in record["steps"]} == {True, False}


def test_around_a_gate_the_threshold_is_the_same(model):
    run = model.generate("ab", policy=with_remasking(gated(starts=(-5.0,))), steps=5).trajectory
    told = [step for step in run_record(run, 0, model.codec)["steps"] if step["signal"] is not None]
    assert told
    assert {step["threshold"] for step in told} == {-5.0}


def test_of_several_gates_each_is_told(model):
    names = ("score", "region")
    lookups = (DetectorRule((), (0.0,), None), DetectorRule((-5.0,), (0.0, 1.0), 0.5))
    policy = joint(fixed_action(), tuple(DIAGNOSTICS[name] for name in names), lookups)
    steps = run_record(model.generate("ab", policy=policy, steps=5).trajectory, 0, model.codec)["steps"]
    opened = [step for step in steps if step["open"]]
    assert opened
    assert {step["threshold"] for step in opened} == {-5.0}
    assert any("score: the gate stayed shut" in step["why"] and "never opens" in step["why"] for step in opened)


def test_a_branch_has_the_gate_of_each_part(model):
    whole = model.generate("ab", policy=gated(starts=(-5.0,)), steps=5)
    other = model.branch(whole, step=2, policy=gated(starts=(-7.0,)), action=fixed_action(cardinality=0.3))
    steps = run_record(other.trajectory, 0, model.codec)["steps"]
    assert {step["threshold"] for step in steps[:2] if step["signal"] is not None} == {-5.0}
    assert {step["threshold"] for step in steps[3:] if step["signal"] is not None} == {-7.0}
    taken = steps[2]
    assert (taken["policy"], taken["signal"], taken["open"]) == ("fixed", None, None)
    assert taken["why"] == "the branch begins here, with an action of its own"


@pytest.mark.parametrize(("signal", "border"), [(-1.0, 0.0), (0.5, 0.0), (1.5, 2.0), (2.0, 2.0), (9.0, 2.0)])
def test_the_border_a_signal_is_measured_against(signal, border):
    """Open from 0 to 1 and from 2 on."""
    assert edge(DetectorRule((0.0, 1.0, 2.0), (0.0, 1.0, 0.0, 1.0), 0.5), signal) == border


def test_borders_of_gates_that_open_below_always_and_never():
    below = DetectorRule((1.0,), (1.0, 0.0), 0.5)
    assert (edge(below, 0.0), edge(below, 3.0)) == (None, 1.0)
    assert edge(DetectorRule((1.0,), (1.0, 0.0), -INF), 3.0) is None
    assert edge(DetectorRule((1.0,), (1.0, 0.0), None), 3.0) is None


@pytest.mark.parametrize("branch", [1, {}, {"step": "x"}, {"step": 3, "from": 4}, {"step": 3, "from": {"branch": []}}])
def test_a_configuration_that_makes_no_sense_says_nothing(branch):
    assert acting({"branch": branch}, 0) == {}
