"""What a learned detector reads, from stored rows."""

import json
from math import isnan

import numpy as np
import pytest

from unmask.lab.analysis.features import feature_frame, feature_names, read_states, reading_terms
from unmask.lab.store import Utilities
from unmask.lab.store.schemas import SUMMARY

NAN = float("nan")


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
STAGE = ["masked share", "step share", *(name for name, _ in SUMMARY)]


def test_the_detectors_own_signal_is_not_read_twice():
    read = read_states(READ)
    assert feature_names(read, "one") == (*STAGE, "one: nu", "other: signal", "other: abstained", "other: k")
    assert feature_names(read, "other") == (*STAGE, "one: signal", "one: abstained", "one: nu", "other: k")


def test_a_row_for_each_state_in_the_order_of_the_utilities():
    states = Utilities(("a", "a"), np.array([1, 0]), np.array([3, 0]), np.array([2, 8]), ("x",), np.zeros((2, 1, 1)))
    names = feature_names(read_states(READ), "one")
    value_SN = feature_frame(read_states(READ), names, states, np.array([0.25, 1.0]), 6).to_numpy()
    sure = [0.5 + at for at in range(len(SUMMARY))]
    assert value_SN[0].tolist() == [0.25, 0.5, *sure, 1.0, 0.4, 0.0, 5.0]
    assert value_SN[1].tolist() == pytest.approx([1.0, 0.0, *sure, NAN, 0.3, 0.0, 4.0], nan_ok=True)


def test_names_are_those_of_validation_states():
    """What only held-out states have is not looked at, and what they lack is not known."""
    held_out = read_states({"one": {("b", 0): row(0.9, tail_B=7)}, "other": {("b", 0): row(0.8)}})
    states = Utilities(("b",), np.array([0]), np.array([0]), np.array([8]), ("x",), np.zeros((1, 1, 1)))
    names = feature_names(read_states(READ), "one")
    values = feature_frame(held_out, names, states, np.ones(1), 6).iloc[0]
    assert isnan(values["one: nu"])
    assert isnan(values["other: k"])
    assert values["other: signal"] == 0.8
    assert not any("tail" in name for name in names)
