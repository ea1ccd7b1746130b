"""E4 from decodes made by hand, whose numbers can be worked out."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tests.helpers import made_studies as made
from tests.helpers.made_gates import known_gates, set_tau
from unmask.base.errors import SchemaError
from unmask.lab.analysis.detection import detect
from unmask.lab.analysis.end_to_end import CHOSEN, CONTROLS, DECODED_ARMS, DIFFERENCES, JOINT, JOINT_FIXED, end_to_end
from unmask.lab.analysis.opportunity import measure
from unmask.lab.choose import choices
from unmask.lab.store import Shard, Store, plain_schema, table_hash
from unmask.lab.store.manifest import write_manifest
from unmask.stats import Threshold


@pytest.fixture(scope="module", autouse=True)
def _made():
    """Gates that are known: that of the region is half open."""
    with pytest.MonkeyPatch.context() as patch:
        known_gates(patch)
        yield


def measured(place, resamples=100):
    e1 = measure(place, resamples=resamples)
    findings = detect(place, e1, draws=20)
    return findings, end_to_end(place, e1, findings)


def decodes(place, utilities, *, steps=None, best="block:8", joint=None, task="find", model="small", missing=None):
    """One unit. `utilities` by axis and arm are lists over prompts, of the draws in lists of lists; None is unjudged.

    `steps` by arm are evaluated and deviated of every row.
    """
    chosen = choices(place)
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


FLAT = {arm: [0.5] * 4 for arm in (*DECODED_ARMS, *CONTROLS)}
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


def cell(findings, task="find", axis="region"):
    (one,) = [c for c in findings.cells if (c.task, c.axis) == (task, axis)]
    return one


class TestKnownTruth:
    def test_numbers(self, place):
        decodes(place, {"region": KNOWN}, steps=STEPS)
        _, findings = measured(place)
        one = cell(findings)
        means = {arm: np.mean(values) for arm, values in KNOWN.items()}
        assert {arm: e.value for arm, e in one.utility.items()} == pytest.approx(means)
        assert set(one.difference) == set(DIFFERENCES)
        for (a, b), estimate in one.difference.items():
            assert estimate.value == pytest.approx(means[a] - means[b])
            assert estimate.low <= estimate.value <= estimate.high
        assert one.coverage == {"always": 1.0, "selective": 0.25, "random gate": 0.375}
        assert (one.wins, one.losses, one.ties) == (2, 1, 1)
        assert (one.prompts, one.unjudged) == (4, 0)
        assert (one.fixed_name, one.end_to_end_name, one.chosen) == ("full", "block:8", True)
        assert one.out_of_fold == 0.25
        assert [(m.task, m.reason) for m in findings.missing] == [("other", "not decoded end to end yet")]

    def test_differences_are_paired(self, place):
        """Arms that differ by as much on every prompt differ for certain, however unlike the prompts are."""
        spread = [0.0, 0.2, 0.5, 0.75]
        paired = {**FLAT, "fixed": spread, "selective": [u + 0.25 for u in spread]}
        decodes(place, {"region": paired}, steps=STEPS)
        one = cell(measured(place)[1])
        gain = one.difference["selective", "fixed"]
        assert (gain.low, gain.value, gain.high) == pytest.approx((0.25, 0.25, 0.25))
        assert one.utility["fixed"].low < one.utility["fixed"].high

    def test_means_over_tasks_count_tasks_alike(self, place):
        decodes(place, {"region": KNOWN}, steps=STEPS)
        worse = {**FLAT, "selective": [0.25] * 4}
        decodes(place, {"region": worse}, steps={**STEPS, "selective": (8, 4)}, task="other")
        _, findings = measured(place)
        for mean in findings.means:
            assert mean.tasks == ("find", "other")
            assert mean.utility["selective"].value == pytest.approx((0.625 + 0.25) / 2)
            assert mean.difference["selective", "fixed"].value == pytest.approx((0.125 - 0.25) / 2)
            assert mean.coverage == pytest.approx((0.25 + 0.5) / 2)
            assert (mean.better, mean.worse, mean.same) == (1, 1, 0)
            assert (mean.significant_up, mean.significant_down) == (0, 1)
            assert mean.partial == ""
        assert [mean.axis for mean in findings.means] == [CHOSEN, "region"]

    def test_a_task_that_is_missing_is_named(self, place):
        decodes(place, {"region": KNOWN}, steps=STEPS)
        assert {mean.partial for mean in measured(place)[1].means} == {"without other"}

    def test_the_same_tables_give_the_same_numbers(self, place):
        decodes(place, {"region": KNOWN}, steps=STEPS)
        assert measured(place)[1] == measured(place)[1]

    def test_never(self, place, monkeypatch):
        set_tau(monkeypatch, lambda states: Threshold(None, 0, -0.5, 0.1, "made shut"))
        decodes(place, {"region": FLAT}, steps={"always": (8, 8), "selective": (None, 0), "random gate": (None, 0)})
        one = cell(measured(place)[1])
        assert one.never == "made shut"
        assert one.coverage == {"always": 1.0, "selective": 0.0, "random gate": 0.0}
        assert (one.wins, one.losses, one.ties) == (0, 0, 4)

    def test_without_any_signal_there_is_no_coverage(self, place):
        decodes(place, {"region": FLAT}, steps=dict.fromkeys(STEPS, (0, 0)))
        _, findings = measured(place)
        assert np.isnan(list(cell(findings).coverage.values())).all()
        assert np.isnan([mean.coverage for mean in findings.means]).all()


class TestUnjudged:
    def test_a_prompt_without_one_arm_is_left_out_and_counted(self, place):
        lost = {**KNOWN, "stage": [0.5, None, 0.5, 0.0]}
        lost["random gate"] = [[1.0, 0.5, None, 0.0], [0.0, 0.5, 0.5, 1.0]]
        decodes(place, {"region": lost}, steps=STEPS)
        one = cell(measured(place)[1])
        assert (one.prompts, one.unjudged) == (2, 2)
        assert one.utility["selective"].value == pytest.approx((1.0 + 0.25) / 2)
        assert one.difference["selective", "fixed"].value == pytest.approx(0.125)
        assert (one.wins, one.losses, one.ties) == (1, 1, 0)

    def test_nothing_judged_is_missing(self, place):
        decodes(place, {"region": {**KNOWN, "always": [None] * 4}}, steps=STEPS)
        _, findings = measured(place)
        assert ("find", "no evaluation prompt has a judged answer of every arm") in [
            (lost.task, lost.reason) for lost in findings.missing
        ]
        assert findings.cells == findings.means == ()

    def test_an_axis_that_could_not_be_decoded_is_named(self, place):
        decodes(place, {}, missing={"region": "no validation prompt has a judged answer"})
        assert "no validation prompt has a judged answer" in [lost.reason for lost in measured(place)[1].missing]


class TestAxes:
    @pytest.fixture
    def both(self, tmp_path):
        """Two axes of a dream-type model, region and the extension."""
        tables, read = made.diagnosed({"find": "finds"}, axis="commitment", names=("all", "none"))
        other, more = made.diagnosed({"find": "finds"})
        for key in tables:
            tables[key] |= other[key]
            read[key] |= more[key]
        return made.store(tmp_path / "both", tables, read=read, reference="dream")

    def test_revision_of_dream_is_never_chosen_and_stands_apart(self, both):
        decodes(both, {"commitment": KNOWN, "region": FLAT}, steps=STEPS)
        _, findings = measured(both)
        # Its gate promises as much as the region's, and comes first.
        assert {c.axis: c.chosen for c in findings.cells} == {"commitment": False, "region": True}
        apart, rest = findings.of(extension=True), findings.of(extension=False)
        assert [c.axis for c in apart.cells] == [m.axis for m in apart.means] == ["commitment"]
        assert [m.axis for m in rest.means] == [CHOSEN, "region"]
        chosen = next(m for m in rest.means if m.axis == CHOSEN)
        assert chosen.utility["selective"].value == pytest.approx(0.5)
        assert apart.joints == ()

    def test_joint(self, both):
        joint = {"reference": [0.0, 0.0, 1.0, 1.0], JOINT_FIXED: [0.5] * 4, JOINT: [1.0, 0.5, 0.5, None]}
        gates = {"region": {f"p{at}": [8, at] for at in range(4)}}
        about = {"axes": ["region"], "gates": gates}
        decodes(both, {"region": KNOWN, "commitment": FLAT, JOINT: joint}, steps=STEPS, joint=about)
        (one,) = measured(both)[1].joints
        assert (one.prompts, one.unjudged, one.axes) == (3, 1, ("region",))
        assert one.utility["selective"].value == pytest.approx((1.0 + 0.75 + 0.5) / 3)
        assert one.difference[JOINT, JOINT_FIXED].value == pytest.approx(0.5 / 3)
        assert one.difference[JOINT, "selective"].value == pytest.approx((2.0 - 2.25) / 3)
        assert one.coverage == {"region": pytest.approx((0 + 1 + 2) / 24)}


class TestHeadlines:
    both = TestAxes.both

    def test_with_and_without_the_revision_extension(self, both):
        decodes(both, {"commitment": KNOWN, "region": FLAT}, steps=STEPS)
        lines = {(one.by, one.revision): one for one in measured(both)[1].headlines}
        assert list(lines) == [(by, revision) for by in ("lift", "opportunity") for revision in (False, True)]
        # The extension's gate promises as much, its opportunity is as large, and it comes first.
        assert {key: one.axes for key, one in lines.items()} == {
            key: {"find": "commitment" if key[1] else "region"} for key in lines
        }
        assert lines["lift", True].mean.utility["selective"].value == pytest.approx(0.625)
        assert lines["lift", False].mean.utility["selective"].value == pytest.approx(0.5)
        assert [one.usual for one in lines.values()] == [True, False, False, False]

    def test_the_setting_says_which_axis_is_the_chosen_one(self, tmp_path, monkeypatch):
        """The region's gate promises more; commitment has the larger opportunity."""
        tables, read = made.diagnosed({"find": "finds"}, axis="commitment", names=("all", "none"))
        other, more = made.diagnosed({"find": "finds"}, rate=0.1)
        for key in tables:
            tables[key] |= other[key]
            read[key] |= more[key]
        place = made.store(tmp_path / "two", tables, read=read)

        def gate(states):
            return Threshold(0.0, 0.5, 0.3 if "full" in states.candidates else 0.2, 0.1)

        set_tau(monkeypatch, gate)
        decodes(place, {"commitment": KNOWN, "region": FLAT}, steps=STEPS)
        for by, axis in (("lift", "region"), ("opportunity", "commitment")):
            write_manifest(place.files, {**place.manifest, "study": {**place.manifest["study"], "axis_by": by}})
            _, findings = measured(Store.open(place.folder))
            assert [c.axis for c in findings.cells if c.chosen] == [axis]
            assert {one.by: one.axes["find"] for one in findings.headlines} == {
                "lift": "region",
                "opportunity": "commitment",
            }
            assert [one.by for one in findings.headlines if one.usual] == [by]

    def test_by_lift_and_by_opportunity(self, place):
        decodes(place, {"region": KNOWN}, steps=STEPS)
        lines = measured(place)[1].headlines
        assert [(one.by, one.revision) for one in lines] == [("lift", False), ("opportunity", False)]
        assert lines[0].mean == next(m for m in measured(place)[1].means if m.axis == CHOSEN)


class TestStored:
    def test_nothing_decoded_is_nothing(self, place):
        assert measured(place)[1] is None
        assert len(place.read_arrow("decodes")) == 0

    def test_twice(self, place):
        decodes(place, {"region": KNOWN}, steps=STEPS)
        ((shard, info),) = place.infos("decodes").items()
        other = replace(shard, depends="older")
        place.write(other, {"decodes": place.read_arrow("decodes")}, {**info, "unit": other.stored_fields})
        with pytest.raises(SchemaError, match="decoded end to end twice"):
            measured(place)

    def test_an_arm_is_missing(self, place):
        decodes(place, {"region": {arm: KNOWN[arm] for arm in KNOWN if arm != "stage"}}, steps=STEPS)
        with pytest.raises(SchemaError, match="have no arm stage"):
            measured(place)

    @pytest.mark.parametrize("content", ["{", json.dumps({"format": "unmask-study-1"})])
    def test_a_broken_unit(self, place, content):
        decodes(place, {"region": KNOWN}, steps=STEPS)
        ((place.folder / "decodes") / place.names("decodes")[0] / "unit.json").write_text(content)
        with pytest.raises(SchemaError, match=r"allowed|cannot be read"):
            measured(place)

    def test_hash_sees_every_value(self, place):
        decodes(place, {"region": KNOWN}, steps=STEPS)
        table, digest = place.read_arrow("decodes"), place.content_hash()["decodes"]
        assert table_hash(table) == digest
        for at, column in enumerate(table.schema):
            values = table[column.name].to_pylist()
            values[0] = "other" if pa.types.is_string(column.type) else 7
            changed = table.set_column(at, column, pa.array(values, column.type))
            assert table_hash(changed) != digest, column.name
