"""Controls of searches: n is what the search's forwards pay for, task by task, and the table shows what both cost."""

from statistics import fmean

import pytest

from tests.helpers.compared import rows
from tests.helpers.oracle import CARRY, oracle
from unmask.lab.compare import ComparePlan, run_comparison
from unmask.lab.controls import ComputeMatchedControl, add_controls
from unmask.methods import SOAR, BestOf, LLaDA, LookUM, fixed_action

LOOKUM, CONTROL = "lookum", "best of n like lookum"


def plan(policies, **more):
    arms, controls = add_controls(policies)
    return ComparePlan(
        tasks=[CARRY], split="development", policies=arms, controls=controls, **{"prompts": 3, "steps": 8, **more}
    )


def spent(evaluation, arm):
    return fmean(row.forwards for row in rows(evaluation) if row.policy == arm)


def test_bases_and_controls_are_arms_of_their_own_and_none_twice():
    arms, controls = add_controls({"reference": fixed_action(), "greedy": LLaDA(), "lookum": LookUM(), "soar": SOAR()})
    assert [*arms] == ["reference", "greedy", "lookum", "soar", "base of soar"]
    assert controls == {
        "best of n like lookum": ComputeMatchedControl("lookum", "greedy", BestOf(LLaDA())),
        "best of n like soar": ComputeMatchedControl("soar", "base of soar", BestOf(SOAR().baseline)),
    }


@pytest.mark.parametrize(("search", "base", "n"), [(41.5, 16.0, 2), (48.0, 16.0, 3), (31.9, 16.0, 1), (5.0, 16.0, 1)])
def test_as_many_decodes_as_the_search_pays_for(search, base, n):
    assert ComputeMatchedControl("s", "b", BestOf()).affordable_n({"s": search, "b": base}) == n


@pytest.fixture(scope="module")
def matched():
    return run_comparison(oracle(), plan({"reference": fixed_action(), LOOKUM: LookUM(paths=4)}))


def test_the_control_spends_no_more_than_the_search(matched):
    n = matched.config["matched_n"][CONTROL][CARRY]
    assert n == int(spent(matched, LOOKUM) / spent(matched, "base of lookum")) > 1
    assert spent(matched, CONTROL) == n * spent(matched, "base of lookum") <= spent(matched, LOOKUM)
    assert matched.policies == ("reference", LOOKUM, "base of lookum", CONTROL)
    assert matched.config["matched"][CONTROL]["of"] == LOOKUM


def test_a_control_is_that_best_of_n(matched):
    n = matched.config["matched_n"][CONTROL][CARRY]
    again = run_comparison(oracle(), plan({"reference": fixed_action(), "best": BestOf(LLaDA(), n=n)}))
    assert [row.answer for row in rows(again) if row.policy == "best"] == [
        row.answer for row in rows(matched) if row.policy == CONTROL
    ]


def test_without_its_search_there_is_no_control():
    found = run_comparison(oracle(), plan({"reference": fixed_action(), LOOKUM: LookUM(budget=1)}))
    reasons = {lost.policy: lost.reason for lost in found.left_out}
    assert "budget is 1; allowed: 8 or more" in reasons[LOOKUM]
    assert reasons[CONTROL].startswith(f"lookum could not decode {CARRY}; allowed: controls of arms that can")
    assert "matched" not in run_comparison(oracle(), plan({"reference": fixed_action()})).config
