"""The states behind a study's numbers: the right ones, with what was really tried there."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from tests.helpers import made_studies as made
from unmask.base.errors import ConfigError
from unmask.core import Trajectory
from unmask.lab.analysis.states import STATE_COLUMNS, collect_state_evidence, list_largest, state_key

AXES = {"score": ("confidence", "margin", "uniform"), "region": ("full", "block:8"), "commitment": ("all", "none")}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Scores of a few values, so that many are equal, and some that could not be judged."""
    rng = np.random.default_rng(4)

    def score():
        q_PSR = rng.choice([0.0, 1 / 3, 0.5, 1.0], size=(5, 4, 2))
        q_PSR[rng.random(q_PSR.shape) < 0.15] = np.nan
        return q_PSR

    tables = {
        ("small", task, split): {axis: {name: score() for name in names} for axis, names in AXES.items()}
        for task, split in product(("fill", "sort"), ("validation", "evaluation"))
    }
    return made.store(tmp_path_factory.mktemp("drawn") / "study", tables)


def brute_force(store):
    """By state, then by axis and candidate: the mean change against the reference, branch by branch."""
    rows = store.read_arrow("branches").to_pylist()
    utility = {
        (*(row[c] for c in STATE_COLUMNS), row["axis"], row["candidate"], row["rollout"]): row["utility"]
        for row in rows
    }
    changes: dict = {}
    for *state, axis, candidate, rollout in utility:
        reference = AXES[axis][0]
        own, other = (utility[(*state, axis, name, rollout)] for name in (candidate, reference))
        if candidate != reference and own is not None and other is not None:
            changes.setdefault(tuple(state), {}).setdefault((axis, candidate), []).append(own - other)
    return {state: {what: sum(of) / len(of) for what, of in tried.items()} for state, tried in changes.items()}


@pytest.mark.parametrize("sign", [1, -1])
def test_the_ten_largest_are_those_of_brute_force(drawn, sign):
    truth = brute_force(drawn)
    extreme = {state: max(sign * change for change in tried.values()) for state, tried in truth.items()}
    told = collect_state_evidence(drawn)
    listed = told.gains if sign == 1 else told.losses
    assert len(listed) == 10
    sizes = sorted((size for size in extreme.values() if size > 0), reverse=True)
    assert (sign * listed["difference"]).tolist() == pytest.approx(sizes[:10])
    states = list(listed[STATE_COLUMNS].itertuples(index=False, name=None))
    assert len(set(states)) == 10
    for one, state in zip(listed.itertuples(), states, strict=True):
        assert sign * one.difference == pytest.approx(extreme[state])
        assert one.difference == pytest.approx(truth[state][one.axis, one.candidate])
        assert one.utility - one.reference == pytest.approx(one.difference)
    assert {*told.gains["key"], *told.losses["key"]} == {state["key"] for state in told.states}
    assert told.compared == 2 * 2 * 5 * 4


def test_every_action_of_a_state_has_its_own_difference(drawn):
    truth = brute_force(drawn)
    for state in collect_state_evidence(drawn).states:
        tried, actions = truth[tuple(state[name] for name in STATE_COLUMNS)], state["actions"]
        candidates = [a for a in actions if a["kind"] == "candidate" and a["difference"] is not None]
        assert {(a["axis"], a["name"]): a["difference"] for a in candidates} == pytest.approx(tried)
        assert {a["name"] for a in actions if a["kind"] == "reference"} == {"confidence", "full", "all"}
        assert sum(outcome["rollouts"] for outcome in actions[0]["outcomes"]) == 2


def test_among_equals_every_prompt_and_task_comes_once_before_a_second():
    names = [*STATE_COLUMNS, "axis", "candidate", "difference", "utility", "reference", "size"]

    def one(task, prompt, state, difference=0.5):
        return ("m", task, "evaluation", prompt, state, "score", "margin", difference, 1.0, 0.5, round(difference, 9))

    states = [one("a", "p", 0), one("a", "p", 1), one("a", "q", 0), one("b", "r", 0), one("b", "s", 0, 0.5 + 1e-12)]
    listed = list_largest(pd.DataFrame([*states, one("b", "z", 3, 0.6)], columns=names), 1, 6)
    order = list(zip(listed["prompt"], listed["state"], strict=True))
    assert order == [("z", 3), ("p", 0), ("r", 0), ("q", 0), ("s", 0), ("p", 1)]


def test_a_state_by_its_name(drawn):
    key = state_key("small", "sort", "validation-0-3", 2)
    told = collect_state_evidence(drawn, keys=[key, key], count=1)
    assert told.states[0]["key"] == key
    assert len(told.states) <= 3
    with pytest.raises(
        ConfigError,
        match=r"the study has no state 'small/sort/validation-0-3/9'; allowed: MODEL/TASK/.*"
        r"such as small/sort/validation-0-3/",
    ):
        collect_state_evidence(drawn, keys=["small/sort/validation-0-3/9"])


@pytest.fixture(scope="module")
def states(tiny_run, tiny_model):
    """Every state of a real study."""
    table = tiny_run.read_arrow("states")
    keys = [state_key(row["model"], row["task"], row["prompt"], row["state"]) for row in table.to_pylist()]
    return collect_state_evidence(tiny_run, {"tiny": tiny_model.codec}, keys=keys).states


class TestOfARealStudy:
    def test_canvases_are_those_of_the_trajectory(self, states, tiny_run, tiny_model):
        rows = {(row["prompt"], row["state"]): row for row in tiny_run.read_arrow("states").to_pylist()}
        assert len(states) == len(rows)
        for state in states:
            row = rows[state["prompt"], state["state"]]
            stored = Trajectory.from_bytes(row["trajectory"]).state
            masked = stored.masked_BL[0].tolist()
            spelt = [tiny_model.codec.decode([token]) for token in row["tokens"]]
            assert list(state["tokens"]) == [None if masked[at] else text for at, text in enumerate(spelt)]
            assert state["masked"] == sum(text is None for text in state["tokens"])

    def test_first_steps_answers_and_reasons_are_those_of_the_branches(self, states, tiny_run, tiny_model):
        rows = tiny_run.read_arrow("branches").to_pylist()
        for state in states:
            here = [row for row in rows if (row["prompt"], row["state"]) == (state["prompt"], state["state"])]
            said = {
                (
                    *(action[name] for name in ("axis", "name")),
                    *(outcome[name] for name in ("answer", "reason", "utility")),
                    tuple(map(tuple, outcome["revealed"])),
                )
                for action in state["actions"]
                if action["kind"] != "proposal"
                for outcome in action["outcomes"]
            }
            for row in here:
                row["put"] = tuple(
                    (position, tiny_model.codec.decode([token]))
                    for position, token in zip(row["revealed"], row["revealed_tokens"], strict=True)
                )
            keys = ("axis", "candidate", "answer", "reason", "utility", "put")
            assert said == {tuple(row[key] for key in keys) for row in here}

    def test_proposals_are_there_with_their_signal(self, states, tiny_run):
        rows = [row for row in tiny_run.read_arrow("readings").to_pylist() if not row["abstained"]]
        assert rows
        said = {
            (state["prompt"], state["state"], action["axis"], action["name"], action["signal"])
            for state in states
            for action in state["actions"]
            if action["kind"] == "proposal"
        }
        assert said == {(r["prompt"], r["state"], r["axis"], r["diagnostic"], r["signal"]) for r in rows}
