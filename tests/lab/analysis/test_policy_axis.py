"""The fixed method and the one for each stage, against plain loops over the stored branches."""

from collections import defaultdict
from statistics import mean

import pytest

from tests.helpers.findings import fact
from tests.helpers.method_studies import NAMES
from unmask.lab.analysis import analyse
from unmask.lab.analysis.steps import METHOD_PAIRS, pair_name


def by_state(store, role):
    """Mean utility by state and method, and the stage of each state."""
    rows = [row for row in store.read_arrow("branches").to_pylist() if row["split"] == role]
    most = defaultdict(int)
    for row in rows:
        most[row["prompt"]] = max(most[row["prompt"]], row["masked"])
    values, stage = defaultdict(lambda: defaultdict(list)), {}
    for row in rows:
        key = (row["prompt"], row["state"])
        values[key][row["candidate"]].append(row["utility"])
        stage[key] = min(int(4 * (1 - row["masked"] / most[row["prompt"]])), 3)
    return {key: {name: mean(us) for name, us in named.items()} for key, named in values.items()}, stage


def best(states, preferred):
    """The largest mean; of equal ones the preferred, then the reference, then by name."""
    value = {name: mean(state[name] for state in states) for name in NAMES}
    order = [*preferred, *sorted(NAMES[1:])]
    return max(order, key=lambda name: (round(value[name], 9), -order.index(name)))


@pytest.fixture(scope="module")
def found(methods_run):
    return analyse(methods_run, resamples=20)


def said(found, measure, **where):
    return fact(found, "methods", measure, **where)


def test_fixed_and_stage_arms(methods_run, found):
    validation, stage = by_state(methods_run, "validation")
    fixed = best(list(validation.values()), [NAMES[0]])
    assert said(found, "fixed") == fixed
    wanted = []
    for k in range(4):
        members = [state for key, state in validation.items() if stage[key] == k]
        wanted.append(best(members, [fixed, NAMES[0]]) if members else fixed)
    assert [said(found, "stage_method", at=k) for k in range(4)] == wanted
    evaluation, where = by_state(methods_run, "evaluation")
    arms = {
        "reference": mean(state[NAMES[0]] for state in evaluation.values()),
        "fixed": mean(state[fixed] for state in evaluation.values()),
        "stage": mean(state[wanted[where[key]]] for key, state in evaluation.items()),
    }
    for arm, value in arms.items():
        assert said(found, "utility", arm=arm) == pytest.approx(value), arm
    for one, other in METHOD_PAIRS:
        difference = said(found, "utility", arm=one) - said(found, "utility", arm=other)
        assert said(found, "difference", arm=pair_name(one, other)) == pytest.approx(difference)
    assert said(found, "states") == len(evaluation)


def test_the_oracle_gains_what_e1_says(found):
    task = found.select("methods").iloc[0]["task"]
    e1 = found.estimate("opportunity", "delta", axis="policy", task=task)
    assert said(found, "difference", arm="oracle - fixed") == pytest.approx(e1.value)


def test_what_methods_take(methods_run, found):
    rows = methods_run.read_arrow("branches").to_pylist()
    costs = found.study.method_costs
    for cost in costs.itertuples():
        own = [row for row in rows if row["candidate"] == cost.candidate]
        assert cost.branches == len(own)
        assert cost.extra_forwards == pytest.approx(mean(row["extra_forwards"] for row in own))
        assert cost.extra_tokens == pytest.approx(mean(row["extra_tokens"] for row in own))
    assert costs[costs["extra_forwards"] > 0]["candidate"].tolist() == [NAMES[3]]


def test_other_studies_have_none(tiny_run):
    found = analyse(tiny_run, resamples=5, draws=5)
    assert found.select("methods").empty
    assert found.study.method_costs.empty
