"""A run as plain values: replaying them gives every canvas, and gates are reported as they decided."""

import json
import math

import pytest
import torch

from tests.helpers.adaptive_arms import joint, selective
from unmask.adapt import DetectorRule
from unmask.adapt.diagnostics import DIAGNOSTICS
from unmask.api.load import load
from unmask.base.errors import ConfigError
from unmask.core import Action, Noise, State, Trajectory
from unmask.engine import GivenAction, decode, decode_one_step
from unmask.methods import fixed_action, with_remasking
from unmask.report.run_data import end_tokens, nearest_threshold, policy_settings, run_data, step_data, token_speller


@pytest.fixture(scope="module")
def exact():
    return load("exact", n=10)


def replay(data):
    """The canvas at the start and after each step, as a page builds it."""
    tokens = list(data["tokens"])
    yield list(tokens)
    for step in data["steps"]:
        for position, text, _ in step["changes"]:
            tokens[position] = text
        yield list(tokens)


def canvases(run, codec):
    """The same from the trajectory itself."""
    length = int(run.state.length_B[0])
    free, mask = run.state.answer_BL[0].tolist(), run.state.mask_id
    for canvas in run.canvases():
        tokens = canvas[:length].tolist()
        yield [None if free[p] and token == mask else codec.decode([token]) for p, token in enumerate(tokens)]


@pytest.mark.parametrize("policy", ["llada", "remdm", "revised", "wino", "core", "best-of", "fixed"])
def test_replaying_the_changes_gives_every_canvas(policy, exact):
    run = exact.generate(["ab", "cda"], policy=policy, temperature=0.8, seed=3).trajectory
    for row in (0, 1):
        data = run_data(run, row, exact.codec)
        assert list(replay(data)) == list(canvases(run.row(row), exact.codec))
        assert json.loads(json.dumps(data, allow_nan=False)) == data


def test_run_data_names_model_prompt_and_fillers():
    mini = load("mini")
    out = mini.generate("What is 2+2?", max_new_tokens=24)
    data = run_data(out.trajectory, 0, mini.codec, score=0.5, explanation="half right")
    assert (data["model"], data["policy"], data["prompt"]) == ("mini", "llada", "What is 2+2?")
    assert (data["text"], data["score"], data["explanation"]) == (out.text, 0.5, "half right")
    ends, first = set(mini.denoiser.vocabulary.eos_ids), data["fixed"].index(False)
    assert end_tokens(mini.codec) == ends
    final = out.trajectory.state.tokens_BL[0].tolist()
    assert data["filler"] == [False] * first + [token in ends for token in final[first:]]
    assert any(data["filler"])
    assert data["tokens"][first:] == [None] * 24


def test_confidence_is_that_of_the_token_when_it_was_filled_in(exact):
    run = exact.generate("ab", policy="remdm", seed=1).trajectory
    for step, own in zip(run_data(run, 0, exact.codec)["steps"], run.row(0).steps, strict=True):
        filled = [change for change in step["changes"] if change[1] is not None]
        assert [change[0] for change in filled] == own.revealed_BL[0].nonzero().flatten().tolist()
        for position, _, confidence in filled:
            assert confidence == pytest.approx(float(own.prediction.confidence_BN[0, position]), abs=1e-4)


def test_position_refilled_in_its_step_is_listed_twice():
    """Re-masked and filled with the token that it had: the canvas stays the same, the changes do not."""
    model = load("exact", n=6)
    start = model.generate("ab", policy="fixed", commit="none", steps=2).trajectory.resume(0, 1)
    there = start.state.revisable_BL
    action = Action(
        alpha_BJ=torch.tensor([[1.0, 0.0, 0.0, 0.0, 0.0]]),
        region_BL=there,
        kappa_B=torch.ones(1),
        commit_BL=torch.ones_like(there),
        remask_BL=there,
        tokens_BL=torch.where(there, start.state.tokens_BL, -1),
    )
    run = decode_one_step(model.denoiser, GivenAction(action), start)
    last = run_data(run, 0, model.codec)["steps"][-1]
    places = there[0].nonzero().flatten().tolist()
    assert [change[0] for change in last["changes"] if change[1] is None] == places
    assert [change[2] for change in last["changes"] if change[1] is not None] == [None] * len(places)
    assert last["why"] == f"{len(places)} position{'s' * (len(places) > 1)} re-masked"


def test_saved_run_gives_the_same_values(exact, tmp_path):
    out = exact.infill("ab__cd____", policy="remdm")
    out.trajectory.save(tmp_path / "run.npz")
    data = run_data(Trajectory.load(tmp_path / "run.npz"), 0, exact.codec, top=2)
    assert data == run_data(out.trajectory, 0, exact.codec, top=2)
    assert (data["text"], data["prompt"]) == (out.text, "ab__cd____")
    assert data["fixed"] == [letter != "_" for letter in "ab__cd____"]


def test_run_without_configuration_has_its_prompt_and_text(exact):
    state = State.from_prompts([[0, 1]], new_tokens=4, steps=2, mask_id=exact.denoiser.vocabulary.mask_id)
    run = decode(exact.denoiser, fixed_action(), state, noise=Noise.of([7]))
    data = run_data(run, 0, exact.codec)
    assert (data["model"], data["policy"], data["prompt"]) == ("", "fixed", "ab")
    assert data["text"] == exact.codec.decode(run.state.tokens_BL[0, 2:6].tolist())


def test_top_tokens_are_as_many_as_recorded(exact):
    assert "top" not in run_data(exact.generate("ab", steps=4).trajectory, 0, exact.codec)["steps"][0]
    for recorded, count in ((0, 2), (4, 4)):
        run = exact.generate("ab", steps=4, record_top=recorded).trajectory
        steps = run_data(run, 0, exact.codec, top=4)["steps"]
        assert sorted(map(int, steps[0]["top"])) == [change[0] for change in steps[0]["changes"]]
        assert {len(top) for step in steps for top in step["top"].values()} == {count}


def test_steps_that_are_followed_equal_those_of_the_finished_run(exact):
    spell, followed = token_speller(exact.codec), {0: [], 1: []}

    def follow(traj):
        for at, row in enumerate(traj.rows_B.tolist()):
            number = len(followed[row]) + 1
            followed[row].append(step_data(traj.last, traj.state, spell, number=number, at=at))

    run = exact.generate(["a", "abcda"], policy="remdm", on_step=follow).trajectory
    for row in (0, 1):
        assert followed[row] == run_data(run, row, exact.codec)["steps"]


def test_runs_without_steps_and_missing_rows_are_refused(exact):
    with pytest.raises(ConfigError, match="row 0 has no steps"):
        run_data(exact.generate("ab", record=False).trajectory, 0, exact.codec)
    with pytest.raises(ConfigError, match="row is 5"):
        run_data(exact.generate("ab").trajectory, 5, exact.codec)


# Gates


def gated(tau=0.1, starts=(0.0,), expected=(0.0, 0.2)):
    return selective(fixed_action(), DIAGNOSTICS["region"], DetectorRule(starts, expected, tau))


def count_steps(model, **policy):
    return run_data(model.generate("ab", steps=5, **policy).trajectory, 0, model.codec)["steps"]


def test_signal_threshold_and_words_follow_the_gate(exact):
    signals = sorted(s["signal"] for s in count_steps(exact, policy=gated(tau=None)) if s["signal"] is not None)
    border = (signals[0] + signals[-1]) / 2
    run = exact.generate("ab", policy=gated(starts=(border,)), steps=5).trajectory
    steps = run_data(run, 0, exact.codec)["steps"]
    for step, own in zip(steps, run.row(0).steps, strict=True):
        notes = own.action.notes
        assert step["policy"] == "selective"
        assert step["open"] == bool(notes["region/deviated_B"][0])
        if not bool(notes["region/evaluated_B"][0]):
            assert (step["signal"], step["threshold"]) == (None, None)
            assert step["why"] == "region: no signal, so the fixed action"
            continue
        assert step["signal"] == pytest.approx(float(notes["region/signal_B"][0]), abs=1e-6)
        assert step["threshold"] == border
        assert step["open"] == (float(notes["region/signal_B"][0]) >= border)
        assert step["why"].startswith(f"region: the gate {'opened' if step['open'] else 'stayed shut'}, signal")
    assert {step["open"] for step in steps} == {True, False}


def test_gate_inside_another_policy_has_its_threshold(exact):
    steps = count_steps(exact, policy=with_remasking(gated(starts=(-5.0,))))
    assert {step["threshold"] for step in steps if step["signal"] is not None} == {-5.0}


def test_joint_gates_are_each_described(exact):
    rules = (DetectorRule((), (0.0,), None), DetectorRule((-5.0,), (0.0, 1.0), 0.5))
    policy = joint(fixed_action(), tuple(DIAGNOSTICS[name] for name in ("score", "region")), rules)
    opened = [step for step in count_steps(exact, policy=policy) if step["open"]]
    assert {step["threshold"] for step in opened} == {-5.0}
    assert any("score: the gate stayed shut" in step["why"] and "never opens" in step["why"] for step in opened)


def test_branch_has_the_gate_of_each_part(exact):
    whole = exact.generate("ab", policy=gated(starts=(-5.0,)), steps=5)
    other = exact.branch(whole, step=2, policy=gated(starts=(-7.0,)), action=fixed_action(cardinality=0.3))
    steps = run_data(other.trajectory, 0, exact.codec)["steps"]
    assert {step["threshold"] for step in steps[:2] if step["signal"] is not None} == {-5.0}
    assert {step["threshold"] for step in steps[3:] if step["signal"] is not None} == {-7.0}
    assert (steps[2]["policy"], steps[2]["signal"], steps[2]["open"]) == ("fixed", None, None)
    assert steps[2]["why"] == "the branch begins here, with an action of its own"


@pytest.mark.parametrize(
    ("starts", "expected", "tau", "signal", "border"),
    [
        # Open from 0 to 1 and from 2 on.
        *(
            ((0.0, 1.0, 2.0), (0.0, 1.0, 0.0, 1.0), 0.5, *pair)
            for pair in ((-1, 0), (0.5, 0), (1.5, 2), (2, 2), (9, 2))
        ),
        # Open below 1, always, never.
        ((1.0,), (1.0, 0.0), 0.5, 0.0, None),
        ((1.0,), (1.0, 0.0), 0.5, 3.0, 1.0),
        ((1.0,), (1.0, 0.0), -math.inf, 3.0, None),
        ((1.0,), (1.0, 0.0), None, 3.0, None),
    ],
)
def test_nearest_threshold(starts, expected, tau, signal, border):
    assert nearest_threshold(DetectorRule(starts, expected, tau), signal) == border


@pytest.mark.parametrize("branch", [1, {}, {"step": "x"}, {"step": 3, "from": 4}, {"step": 3, "from": {"branch": []}}])
def test_odd_configurations_have_no_settings(branch):
    assert policy_settings({"branch": branch}, 0) == {}
