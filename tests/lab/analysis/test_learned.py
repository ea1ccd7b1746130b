"""From stores with planted truth to the learned detector's findings; what it may not see, what it does not change."""

import sys

import numpy as np
import pytest

from tests.helpers import made_studies as made
from tests.helpers.made_findings import quick
from unmask.base.errors import ConfigError, SchemaError
from unmask.lab.analysis.learned import EVERY

KINDS = {"find": "together", "guess": "alone"}
LIFT, RANK = ("ranked_lift", 0.1), ("auroc", "")


def store(folder, kinds=KINDS, *, change=None, learned=True, **how):
    tables, read = made.learnable(kinds, **{"prompts": 40, **how})
    if change is not None:
        change(tables, read)
    return made.store(folder / "study", tables, read=read, **({"learned": True} if learned else {}))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return quick(store(tmp_path_factory.mktemp("learned")))


def cell(found, task):
    (one,) = [c for c in found.learned.cells if c.task == task]
    return one


def test_it_wins_where_only_a_combination_tells_and_nowhere_else(found):
    win, same = cell(found, "find").numbers, cell(found, "guess").numbers
    for name in (RANK, ("auroc_within", ""), ("captured", 0.1), LIFT):
        assert win["difference", *name].positive, name
        assert not same["difference", *name].positive, name
    assert win["learned", *RANK].value > 0.8
    assert win["difference", "selective", ""].positive


def test_the_bins_and_the_controls_are_those_of_e3(found):
    for one in found.learned.cells:
        (e3,) = [c.raw for c in found.detection.cells if c.key == one.key]
        assert one.numbers["bins", *RANK] == e3.measures["auroc"]
        assert one.numbers["bins", "auroc_within", ""] == e3.measures["auroc_within"]
        assert one.numbers["bins", "selective", ""] == e3.measures["lift", "selective"]
        assert one.controls is e3.measures
        assert one.unreliable == e3.measures.unreliable


def test_what_it_read_is_named_and_weighed(found):
    detector = cell(found, "find").detector
    heaviest = np.array(detector.names)[np.argsort(-np.abs(detector.weight_M))[:2]]
    assert {name.removeprefix("region: ") for name in heaviest} <= {
        "entropy_mean",
        "nu",
        "wide mean",
        "wide least",
        "wide most",
    }
    assert detector.prompts == 40


def test_means_over_tasks(found):
    (one, every) = found.learned.means
    assert (one.diagnostic, one.tasks, one.settings) == ("region", ("find", "guess"), 2)
    assert (every.axis, every.tasks, every.settings) == (EVERY, ("find", "guess"), 2)
    for key in one.numbers:
        values = [cell(found, task).numbers[key].value for task in KINDS]
        assert one.numbers[key].value == pytest.approx(np.mean(values)), key
    assert not one.extension
    assert found.learned.of(extension=True).cells == ()


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
    for task in KINDS:
        one, same = cell(found, task).detector, cell(other, task).detector
        assert one.weight_M.tolist() == same.weight_M.tolist()
        assert (one.penalty, one.tau) == (same.penalty, same.tau)
        assert cell(found, task).numbers != cell(other, task).numbers


def test_asking_for_it_changes_nothing_else(found, tmp_path):
    without = quick(store(tmp_path, learned=False))
    assert without.learned is None
    for one, same in zip(found.detection.cells, without.detection.cells, strict=True):
        assert one.raw.measures["auroc"] == same.raw.measures["auroc"]
        assert one.raw.calibration.to_json() == same.raw.calibration.to_json()


def test_too_few_prompts_have_a_reason(tmp_path):
    learned = quick(store(tmp_path, {"find": "together"}, prompts=8)).learned
    (lost,) = learned.missing
    assert (lost.task, lost.diagnostic) == ("find", "region")
    assert "8 validation prompts have a state with a signal" in lost.reason
    assert learned.cells == learned.means == ()


def test_without_scikit_learn_the_report_names_the_extra(tmp_path, monkeypatch):
    place = store(tmp_path, {"find": "together"}, prompts=12)
    monkeypatch.delitem(sys.modules, "unmask.stats.learned")
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    with pytest.raises(ConfigError, match=r"scikit-learn.*pip install 'unmask\[lab\]'"):
        quick(place)


def test_readings_without_what_it_reads_are_refused(tmp_path):
    def stripped(tables, read):
        for held in read.values():
            held["region"].summary = None

    with pytest.raises(SchemaError, match="the readings have no entropy_mean"):
        quick(store(tmp_path, {"find": "together"}, change=stripped, prompts=12))
