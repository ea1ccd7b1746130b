"""E4 from decodes made by hand, whose numbers can be worked out."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.helpers import made_studies as made
from tests.helpers.calibrations import made as made_calibration
from tests.helpers.findings import fact, reasons
from tests.helpers.made_gates import known_gates, set_tau
from unmask.base.errors import SchemaError
from unmask.lab.analysis import analyse
from unmask.lab.analysis.load import MEAN
from unmask.lab.analysis.runs import (
    ARM_PAIRS,
    ARMS,
    CHOSEN_AXIS,
    ArmTables,
    DecodedChoice,
    DecodedTask,
    Sampling,
    _variant_rows,
    pair_name,
    paired_numbers,
    protocol_variants,
)
from unmask.lab.store import Shard, plain_schema
from unmask.lab.study.validation import JOINT, JOINT_FIXED, fit_calibrations
from unmask.stats import Threshold

GAIN = "selective - fixed"


@pytest.fixture(scope="module", autouse=True)
def _made():
    """Gates that are known: that of the region is half open."""
    with pytest.MonkeyPatch.context() as patch:
        known_gates(patch)
        yield


def measured(place, resamples=100):
    return analyse(place, resamples=resamples, draws=20)


def decodes(place, utilities, *, steps=None, best="block:8", joint=None, task="find", model="small", missing=None):
    """One unit. `utilities` by axis and arm are lists over prompts, of the draws in lists of lists; None is unjudged.

    `steps` by arm are evaluated and deviated of every row.
    """
    chosen = fit_calibrations(place)
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
    shard = Shard(kind="decodes", model=model, task=task, depends="0" * 16)
    place.write(shard, {"decodes": pa.Table.from_pylist(rows, schema=plain_schema("decodes"))}, info)


FLAT = {arm: [0.5] * 4 for arm in ARMS}
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


def said(found, measure, task="find", axis="region", **where):
    return fact(found, "arms", measure, task=task, axis=axis, **where)


def gain_of(found, task="find", axis="region"):
    return found.estimate("arms", "difference", task=task, axis=axis, arm=GAIN)


class TestKnownTruth:
    def test_numbers(self, place):
        decodes(place, {"region": KNOWN}, steps=STEPS)
        found = measured(place)
        means = {arm: np.mean(values) for arm, values in KNOWN.items()}
        assert {arm: said(found, "utility", arm=arm) for arm in ARMS} == pytest.approx(means)
        for one, other in ARM_PAIRS:
            estimate = found.estimate("arms", "difference", task="find", axis="region", arm=pair_name(one, other))
            assert estimate.value == pytest.approx(means[one] - means[other])
            assert estimate.low <= estimate.value <= estimate.high
        coverage = {arm: said(found, "coverage", arm=arm) for arm in ("always", "selective", "random gate")}
        assert coverage == {"always": 1.0, "selective": 0.25, "random gate": 0.375}
        assert [said(found, name, arm=GAIN) for name in ("won", "lost", "tied")] == [2, 1, 1]
        assert [said(found, name) for name in ("prompts", "unjudged", "chosen", "out_of_fold")] == [4, 0, 1, 0.25]
        assert [said(found, name) for name in ("fixed", "end_to_end")] == ["full", "block:8"]
        assert reasons(found, "arms", "task") == {("other",): "not decoded end to end yet"}

    def test_differences_are_paired(self, place):
        """Arms that differ by as much on every prompt differ for certain, however unlike the prompts are."""
        spread = [0.0, 0.2, 0.5, 0.75]
        paired = {**FLAT, "fixed": spread, "selective": [u + 0.25 for u in spread]}
        decodes(place, {"region": paired}, steps=STEPS)
        found = measured(place)
        gain = gain_of(found)
        assert (gain.low, gain.value, gain.high) == pytest.approx((0.25, 0.25, 0.25))
        fixed = found.estimate("arms", "utility", task="find", axis="region", arm="fixed")
        assert fixed.low < fixed.high

    def test_means_over_tasks_count_tasks_alike(self, place):
        decodes(place, {"region": KNOWN}, steps=STEPS)
        worse = {**FLAT, "selective": [0.25] * 4}
        decodes(place, {"region": worse}, steps={**STEPS, "selective": (8, 4)}, task="other")
        found = measured(place)
        for axis in (CHOSEN_AXIS, "region"):
            assert said(found, "utility", MEAN, axis, arm="selective") == pytest.approx((0.625 + 0.25) / 2)
            assert gain_of(found, MEAN, axis).value == pytest.approx((0.125 - 0.25) / 2)
            assert said(found, "coverage", MEAN, axis, arm="selective") == pytest.approx((0.25 + 0.5) / 2)
            counts = ("tasks", "better", "worse", "same", "significant_up", "significant_down", "prompts")
            assert [said(found, name, MEAN, axis) for name in counts] == [2, 1, 1, 0, 0, 1, 8]
            assert said(found, "partial", MEAN, axis) == ""

    def test_a_gate_that_never_opens(self, place, monkeypatch):
        set_tau(monkeypatch, lambda states: Threshold(None, 0, -0.5, 0.1, "made shut"))
        decodes(place, {"region": FLAT}, steps={"always": (8, 8), "selective": (None, 0), "random gate": (None, 0)})
        found = measured(place)
        assert said(found, "never") == "made shut"
        assert said(found, "shut") == said(found, "shut", MEAN) == 1
        coverage = [said(found, "coverage", arm=arm) for arm in ("always", "selective", "random gate")]
        assert coverage == [1.0, 0.0, 0.0]


class TestUnjudged:
    def test_a_prompt_without_one_arm_is_left_out_and_counted(self, place):
        lost = {**KNOWN, "stage": [0.5, None, 0.5, 0.0]}
        lost["random gate"] = [[1.0, 0.5, None, 0.0], [0.0, 0.5, 0.5, 1.0]]
        decodes(place, {"region": lost}, steps=STEPS)
        found = measured(place)
        assert [said(found, name) for name in ("prompts", "unjudged")] == [2, 2]
        assert said(found, "utility", arm="selective") == pytest.approx((1.0 + 0.25) / 2)
        assert gain_of(found).value == pytest.approx(0.125)
        assert [said(found, name, arm=GAIN) for name in ("won", "lost", "tied")] == [1, 1, 0]

    def test_nothing_judged_is_missing(self, place):
        decodes(place, {"region": {**KNOWN, "always": [None] * 4}}, steps=STEPS)
        found = measured(place)
        assert reasons(found, "arms", "task")[("find",)] == "no evaluation prompt has a judged answer of every arm"
        assert found.select("arms", measure="utility").empty


@pytest.fixture
def both(tmp_path):
    """Two axes of a dream-type model, region and the extension."""
    tables, read = made.diagnosed({"find": "finds"}, axis="commitment", names=("all", "none"))
    other, more = made.diagnosed({"find": "finds"})
    for key in tables:
        tables[key] |= other[key]
        read[key] |= more[key]
    return made.store(tmp_path / "both", tables, read=read, reference="dream")


class TestAxes:
    def test_revision_of_dream_is_never_chosen(self, both):
        decodes(both, {"commitment": KNOWN, "region": FLAT}, steps=STEPS)
        found = measured(both)
        # Its gate promises as much as the region's, and comes first.
        assert [said(found, "chosen", axis=axis) for axis in ("commitment", "region")] == [0, 1]
        assert said(found, "utility", MEAN, CHOSEN_AXIS, arm="selective") == pytest.approx(0.5)

    def test_joint(self, both):
        joint = {"reference": [0.0, 0.0, 1.0, 1.0], JOINT_FIXED: [0.5] * 4, JOINT: [1.0, 0.5, 0.5, None]}
        gates = {"region": {f"p{at}": [8, at] for at in range(4)}}
        about = {"axes": ["region"], "gates": gates}
        decodes(both, {"region": KNOWN, "commitment": FLAT, JOINT: joint}, steps=STEPS, joint=about)
        found = measured(both)
        assert [fact(found, "joint", name) for name in ("prompts", "unjudged", "axes")] == [3, 1, "region"]
        assert fact(found, "joint", "utility", arm="selective") == pytest.approx((1.0 + 0.75 + 0.5) / 3)
        assert fact(found, "joint", "difference", arm="joint - joint fixed") == pytest.approx(0.5 / 3)
        assert fact(found, "joint", "difference", arm="joint - selective") == pytest.approx((2.0 - 2.25) / 3)
        assert fact(found, "joint", "coverage", arm="region") == pytest.approx((0 + 1 + 2) / 24)


class TestHeadlines:
    def test_with_and_without_the_revision_extension(self, both):
        decodes(both, {"commitment": KNOWN, "region": FLAT}, steps=STEPS)
        found = measured(both)
        # The extension's gate promises as much, its opportunity is as large, and it comes first.
        axes = found.select("headlines", measure="axes").set_index("at")["note"].to_dict()
        assert axes == {
            f"{by}{more}": f"{axis} 1"
            for by in ("lift", "opportunity")
            for more, axis in (("", "region"), (", with revision", "commitment"))
        }
        assert fact(found, "headlines", "utility", arm="selective", at="lift, with revision") == pytest.approx(0.625)
        assert found.select("headlines", measure="usual")["value"].tolist() == [1, 0, 0, 0]


class TestStored:
    def test_twice(self, place):
        decodes(place, {"region": KNOWN}, steps=STEPS)
        ((shard, info),) = place.infos("decodes").items()
        other = replace(shard, depends="older")
        place.write(other, {"decodes": place.read_arrow("decodes")}, {**info, "unit": other.stored_fields})
        with pytest.raises(SchemaError, match="decoded end to end twice"):
            measured(place)

    @pytest.mark.parametrize("content", ["{", json.dumps({"format": "unmask-study-1"})])
    def test_a_broken_unit(self, place, content):
        decodes(place, {"region": KNOWN}, steps=STEPS)
        (place.folder / "decodes" / place.names("decodes")[0] / "unit.json").write_text(content)
        with pytest.raises(SchemaError, match=r"allowed|cannot be read"):
            measured(place)


# Readings of the paper


def variant_names(variants):
    return [(one.anchor, one.changed) for one in variants]


class TestVariants:
    def test_anchors_and_one_change_at_a_time(self):
        names = ["score", "region", "cardinality", "cardinality:program"]
        variants = list(protocol_variants(names, ["mean-together"], False))
        assert variant_names(variants) == [
            ("ours", ""),
            ("ours", "cardinality:program"),
            ("ours", "gate mean-together"),
            ("ours", "axis by opportunity"),
            ("literal", ""),
            ("literal", "cardinality"),
            ("literal", "gate lift"),
            ("literal", "axis by lift"),
        ]
        ours, literal = variants[0], variants[4]
        assert (ours.gate, ours.by, ours.diagnostics["cardinality"]) == ("lift", "lift", "cardinality")
        assert (literal.gate, literal.by) == ("mean-together", "opportunity")
        assert literal.diagnostics["cardinality"] == "cardinality:program"
        for at, anchor in ((range(1, 4), ours), (range(5, 8), literal)):
            for one in (variants[i] for i in at):
                different = [one.gate != anchor.gate, one.by != anchor.by, one.diagnostics != anchor.diagnostics]
                assert sum(different) == 1, "one choice at a time"

    def test_revision_is_a_choice_where_it_extends_a_decoder(self):
        variants = list(protocol_variants(["score", "commitment"], [], True))
        named = [(one.anchor, one.changed, one.revision) for one in variants if "revision" in one.changed]
        assert named == [("ours", "with revision", True), ("literal", "without revision", False)]


class Study:
    """What is asked of a study: which axes extend its decoder."""

    def __init__(self, extension=""):
        self.extension = extension

    def extends(self, model, axis):
        return axis == self.extension


def unit(task, **by_name):
    """Each diagnostic: axis, lift, opportunity, what its selective arm gains over the fixed one (0.5) by gate."""
    choices, tables = {}, {}
    for name, (axis, lift, opportunity, gains) in by_name.items():
        gates = {gate: made_calibration(["schedule", "a"], tau=0.1, out_of_fold=lift) for gate in gains}
        choices[name] = DecodedChoice(axis, gates["lift"], opportunity, "schedule", gates)
        utility, steps = {"reference": 0.4, "fixed": 0.5}, {}
        for gate, gain in gains.items():
            more = "" if gate == "lift" else f" {gate}"
            utility |= {f"selective{more}": 0.5 + gain, f"random gate{more}": 0.45}
            steps[f"selective{more}"] = (8.0, 2.0)
        prompts = list("abcd")
        evaluated, deviated = (pd.DataFrame({arm: x[k] for arm, x in steps.items()}, index=prompts) for k in (0, 1))
        tables[name] = ArmTables(pd.DataFrame(utility, index=prompts), evaluated, deviated)
    return DecodedTask("m", task, choices, tables, {})


def readings_of(units, extension=""):
    """Rows by reading, then by measure and arm."""
    found = {}
    for row in _variant_rows(Study(extension), units, Sampling(0, 50)):
        found.setdefault(row["at"], {})[row["measure"], row["arm"]] = row.get("value", row.get("note"))
    return found


class TestReadings:
    def test_of_runs_made_by_hand(self):
        gains = {"lift": 0.1, "mean-together": -0.2}
        other = {"lift": 0.0, "mean-together": 0.05}
        found = readings_of([unit("t", region=("region", 0.3, 0.1, gains), score=("score", 0.1, 0.4, other))])
        ours, literal = found["ours, as it is"], found["literal, as it is"]
        assert (ours["axes", ""], literal["axes", ""]) == ("region 1", "score 1")
        assert ours["difference", GAIN] == pytest.approx(0.1)
        assert literal["difference", GAIN] == pytest.approx(0.05)
        assert found["ours, but for gate mean-together"]["difference", GAIN] == pytest.approx(-0.2)
        assert found["ours, but for axis by opportunity"]["axes", ""] == "score 1"
        assert ours["difference", "selective - reference"] == pytest.approx(0.2)
        assert ours["difference", "selective - random gate"] == pytest.approx(0.15)
        assert [ours[name] for name in (("coverage", "selective"), ("open", ""), ("better", ""), ("worse", ""))] == [
            0.25,
            1,
            1,
            0,
        ]

    def test_tasks_count_the_same(self):
        units = [unit(task, region=("region", 0.3, 0.1, {"lift": gain})) for task, gain in (("s", 0.1), ("t", -0.3))]
        ours = readings_of(units)["ours, as it is"]
        assert ours["difference", GAIN] == pytest.approx(-0.1)
        assert (ours["better", ""], ours["worse", ""]) == (1, 1)


class TestPairedNumbers:
    """Prompts are drawn whole, so that arms of one prompt stay pairs; each task counts the same."""

    def test_a_constant_difference_has_no_interval(self):
        base = pd.DataFrame({"other": [0.0, 0.2, 0.5]})
        numbers = paired_numbers({"task": base.assign(one=base["other"] + 0.25)}, [("one", "other")], Sampling(1, 50))
        gain = numbers["difference", "one - other"]
        assert (gain.low, gain.value, gain.high) == pytest.approx((0.25, 0.25, 0.25))
        assert [numbers[what, "one - other"] for what in ("won", "lost", "tied")] == [3, 0, 0]
        assert numbers["utility", "other"].value == pytest.approx(0.7 / 3)
        assert numbers["utility", "other"].low < numbers["utility", "other"].high

    def test_tasks_count_the_same(self):
        used = {"long": pd.DataFrame({"one": np.full(9, 0.2)}), "short": pd.DataFrame({"one": np.full(1, 0.8)})}
        assert paired_numbers(used, [], Sampling(1, 20))["utility", "one"].value == pytest.approx(0.5)
