"""Readings of the paper side by side: which there are, and what each says of runs made by hand."""

import numpy as np
import pytest

from tests.helpers.calibrations import made
from unmask.lab.analysis.decoded import ArmGrid, DecodedUnit, StoredChoice
from unmask.lab.analysis.readings import reading_means, readings_of
from unmask.report.tables.readings import readings_sheet


def named(reading):
    return reading.anchor, reading.changed


class TestWhichThereAre:
    def test_anchors_and_one_change_at_a_time(self):
        found = list(readings_of(["score", "region", "cardinality", "cardinality:program"], ["mean-together"], False))
        assert [named(one) for one in found] == [
            ("ours", ""),
            ("ours", "cardinality:program"),
            ("ours", "gate mean-together"),
            ("ours", "axis by opportunity"),
            ("literal", ""),
            ("literal", "cardinality"),
            ("literal", "gate lift"),
            ("literal", "axis by lift"),
        ]
        ours, literal = found[0], found[4]
        assert (ours.gate, ours.by, ours.diagnostics["cardinality"]) == ("lift", "lift", "cardinality")
        assert (literal.gate, literal.by) == ("mean-together", "opportunity")
        assert literal.diagnostics["cardinality"] == "cardinality:program"
        for at, anchor in ((range(1, 4), ours), (range(5, 8), literal)):
            for one in (found[i] for i in at):
                different = [one.gate != anchor.gate, one.by != anchor.by, one.diagnostics != anchor.diagnostics]
                assert sum(different) == 1, "one choice at a time"

    def test_revision_is_a_choice_where_it_extends_a_decoder(self):
        found = list(readings_of(["score", "commitment"], [], True))
        assert [(named(one), one.revision) for one in found if "revision" in one.changed] == [
            (("ours", "with revision"), True),
            (("literal", "without revision"), False),
        ]


def unit(task, *, reference="llada", **by_name):
    """Each diagnostic: axis, lift, opportunity, what its selective arm gains over the fixed one (0.5) by gate."""
    chosen, grids = {}, {}
    for name, (axis, lift, opportunity, gains) in by_name.items():
        name = name.replace("__", ":")
        gates = {gate: made(["schedule", "a"], tau=0.1, out_of_fold=lift) for gate in gains if gate != "lift"}
        usual = made(["schedule", "a"], tau=0.1 if lift else None, out_of_fold=lift)
        chosen[name] = StoredChoice(axis, usual, opportunity, "schedule", gates)
        utility = {"reference": np.full(4, 0.4), "fixed": np.full(4, 0.5)}
        steps = {}
        for gate, gain in gains.items():
            arm, control = (
                ("selective", "random gate") if gate == "lift" else (f"selective {gate}", f"random gate {gate}")
            )
            utility |= {arm: np.full(4, 0.5 + gain), control: np.full(4, 0.45)}
            steps[arm] = np.tile([8.0, 2.0], (4, 1))
        grids[name] = ArmGrid(tuple("abcd"), utility, steps)
    return DecodedUnit("m", task, reference, chosen, None, grids, {}, None)


def by_name(units):
    return {named(one.reading): one for one in reading_means(units, seed=0, resamples=50)}


class TestWhatTheySay:
    def test_of_runs_made_by_hand(self):
        gains = {"lift": 0.1, "mean-together": -0.2}
        units = [
            unit(
                "t", region=("region", 0.3, 0.1, gains), score=("score", 0.1, 0.4, {"lift": 0.0, "mean-together": 0.05})
            )
        ]
        found = by_name(units)
        ours, literal = found["ours", ""], found["literal", ""]
        assert (ours.chosen, literal.chosen) == ({"t": "region"}, {"t": "score"})
        assert ours.difference["selective", "fixed"].value == pytest.approx(0.1)
        assert literal.difference["selective", "fixed"].value == pytest.approx(0.05)
        assert found["ours", "gate mean-together"].difference["selective", "fixed"].value == pytest.approx(-0.2)
        assert found["ours", "axis by opportunity"].chosen == {"t": "score"}
        assert ours.difference["selective", "reference"].value == pytest.approx(0.2)
        assert ours.difference["selective", "random gate"].value == pytest.approx(0.15)
        assert (ours.coverage, ours.open, ours.better, ours.worse) == (0.25, 1, 1, 0)

    def test_tasks_count_the_same(self):
        units = [unit(task, region=("region", 0.3, 0.1, {"lift": gain})) for task, gain in (("s", 0.1), ("t", -0.3))]
        (ours,) = (one for name, one in by_name(units).items() if name == ("ours", ""))
        assert ours.difference["selective", "fixed"].value == pytest.approx(-0.1)
        assert (ours.better, ours.worse) == (1, 1)

    def test_a_decoder_is_extended_only_where_the_reading_says_so(self):
        both = {"score": ("score", 0.1, 0.1, {"lift": 0.0}), "commitment": ("commitment", 0.3, 0.3, {"lift": 0.1})}
        found = by_name([unit("t", reference="dream", **both)])
        assert found["ours", ""].chosen == {"t": "score"}
        assert found["ours", "with revision"].chosen == {"t": "commitment"}
        assert found["literal", ""].chosen == {"t": "commitment"}

    def test_the_table(self):
        rows = list(by_name([unit("t", region=("region", 0.3, 0.1, {"lift": 0.1}))]).values())
        sheet = readings_sheet(rows)
        assert sheet.name == "e4-readings"
        assert len(sheet.items) == len(rows)
