"""From stores with planted truth to the learned detector's findings; what it may not see, what it does not change."""

import json
from math import isnan

import numpy as np
import pytest

from tests.helpers import made_studies as made
from tests.helpers.findings import fact, reasons
from unmask.lab.analysis import analyse
from unmask.lab.analysis.learned import feature_names, reading_terms, state_features
from unmask.lab.analysis.load import ALL_AXES, MEAN
from unmask.lab.store.schemas import SUMMARY

KINDS = {"find": "together", "guess": "alone"}
NAN = float("nan")


def quick(place):
    return analyse(place, resamples=200, draws=50)


def store(folder, kinds=KINDS, *, change=None, learned=True, **how):
    tables, read = made.learnable(kinds, **{"prompts": 40, **how})
    if change is not None:
        change(tables, read)
    return made.store(folder / "study", tables, read=read, **({"learned": True} if learned else {}))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return quick(store(tmp_path_factory.mktemp("learned")))


def difference(found, task, measure, at=""):
    return found.estimate("learned", measure, task=task, arm="difference", at=at)


def test_it_wins_where_only_a_combination_tells_and_nowhere_else(found):
    for measure, at in (("auroc", ""), ("auroc_within", ""), ("captured", 0.1), ("ranked_lift", 0.1)):
        assert difference(found, "find", measure, at).positive, measure
        assert not difference(found, "guess", measure, at).positive, measure
    assert found.estimate("learned", "auroc", task="find", arm="learned").value > 0.8
    assert difference(found, "find", "selective").positive


def test_the_bins_and_the_controls_are_those_of_e3(found):
    for task in KINDS:
        e3 = {"task": task, "proposal": "raw"}
        for mine, theirs in ((("auroc", ""), ("auroc", "")), (("selective", ""), ("lift", "selective"))):
            bins = found.estimate("learned", mine[0], task=task, arm="bins")
            assert bins == found.estimate("diagnostics", theirs[0], arm=theirs[1], **e3)
        for control in ("concentration", "random_lift", "oracle_lift"):
            mine = found.estimate("learned", control, task=task, at=0.1)
            assert mine == found.estimate("diagnostics", control, at=0.1, **e3)
        assert fact(found, "learned", "unreliable", task=task) == fact(found, "diagnostics", "unreliable", **e3)


def test_means_over_tasks(found):
    for axis in ("region", ALL_AXES):
        where = {"task": MEAN, "axis": axis}
        assert [fact(found, "learned", name, **where) for name in ("tasks", "settings")] == [2, 2]
        for arm in ("bins", "learned", "difference"):
            values = [fact(found, "learned", "auroc", task=task, arm=arm) for task in KINDS]
            assert fact(found, "learned", "auroc", arm=arm, **where) == pytest.approx(np.mean(values))


def test_evaluation_prompts_have_no_say_in_what_is_fitted(found, tmp_path):
    def turned(tables, read):
        for (_, _, split), held in tables.items():
            if split == "evaluation":
                held["region"] = {name: 1 - q_PSR for name, q_PSR in held["region"].items()}
        for (_, _, split), held in read.items():
            if split == "evaluation":
                held["region"].signal_PS, held["region"].utility_PSR = (
                    -held["region"].signal_PS,
                    1 - held["region"].utility_PSR,
                )

    other = quick(store(tmp_path, change=turned))
    fitted = ["weight", "weight_column", "penalty", "tau", "tau_out_of_fold"]
    columns = ["task", "measure", "at", "value", "note"]
    one, same = (f.select("learned") for f in (found, other))
    one, same = (rows[rows["measure"].isin(fitted)][columns].reset_index(drop=True) for rows in (one, same))
    assert one.equals(same)
    assert difference(found, "find", "auroc") != difference(other, "find", "auroc")


def test_asking_for_it_changes_nothing_else(found, tmp_path):
    without = quick(store(tmp_path, learned=False))
    assert without.select("learned").empty
    assert without.select("diagnostics").equals(found.select("diagnostics"))


def test_too_few_prompts_have_a_reason(tmp_path):
    found = quick(store(tmp_path, {"find": "together"}, prompts=8))
    (reason,) = reasons(found, "learned", "task").values()
    assert "8 validation prompts have a state with a signal" in reason
    assert set(found.select("learned")["measure"]) == {"missing"}


# What it reads, from stored rows


def row(signal, summary=0.5, **ingredients):
    silent = signal is None
    sure = {name: summary + at for at, (name, _) in enumerate(SUMMARY)}
    return {"signal": signal, "abstained": silent, "ingredients": json.dumps(ingredients), **sure}


def test_ingredients_become_numbers_that_every_state_has():
    terms = reading_terms(row(0.25, nu_B=2, mu_BJ=[1.0, NAN], sigma_BJJ=[[4.0, 9.0], [9.0, 5.0]], beta_BL=[1, NAN, 3]))
    assert {name: value for name, value in terms.items() if name != "mu 1"} == {
        "signal": 0.25,
        "abstained": 0.0,
        "nu": 2.0,
        "mu 0": 1.0,
        "sigma 0": 4.0,
        "sigma 1": 5.0,
        "beta mean": 2.0,
        "beta least": 1.0,
        "beta most": 3.0,
    }
    assert isnan(terms["mu 1"])


def test_what_is_not_known_is_nan_and_never_infinite():
    terms = reading_terms(row(None, value_BK=[NAN, float("-inf")], k_B=float("inf")))
    assert terms.pop("abstained") == 1.0
    assert set(terms) == {"signal", "value mean", "value least", "value most", "k"}
    assert all(map(isnan, terms.values()))


READ = {
    "one": {("a", 0): row(None), ("a", 1): row(0.1, nu_B=1)},
    "other": {("a", 0): row(0.3, k_B=4), ("a", 1): row(0.4, k_B=5)},
}
INPUTS = ["masked share", "step share", *(name for name, _ in SUMMARY)]


def test_the_detectors_own_signal_is_not_read_twice():
    assert feature_names(state_features(READ), "one") == [
        *INPUTS,
        "one: nu",
        "other: signal",
        "other: abstained",
        "other: k",
    ]
    assert feature_names(state_features(READ), "other") == [
        *INPUTS,
        "one: signal",
        "one: abstained",
        "one: nu",
        "other: k",
    ]


def test_numbers_of_a_state_are_those_of_all_diagnostics():
    features = state_features(READ).by_state
    assert list(features) == [("a", 0), ("a", 1)]
    assert [features["a", 1][name] for name in ("one: nu", "one: signal", "other: k")] == [1.0, 0.1, 5.0]
    assert isnan(features["a", 0]["one: signal"])
    assert [features["a", 0][name] for name, _ in SUMMARY] == [0.5 + at for at in range(len(SUMMARY))]
