"""What validation chooses: the axis of E4, the settings, and whose readings stored rows are."""

import numpy as np
import pyarrow as pa
import pytest

from tests.helpers import made_studies as made
from tests.helpers.cases import each_case
from unmask.base.errors import UnknownName
from unmask.lab.analysis import analyse
from unmask.lab.store import utilities_of
from unmask.lab.store.manifest import write_manifest
from unmask.lab.study.validation import (
    choose_axis,
    diagnostic_names,
    fit_calibrations,
    is_extension,
)
from unmask.stats.protocol import choose_fixed

NAN = float("nan")


@each_case(
    ("by", "expected", "axis"),
    [
        ("lift", {}, None),
        ("lift", {"score": (0.1, 0.0), "region": (0.2, 0.0)}, "region"),
        ("lift", {"score": (0.0, 0.1), "region": (0.0, 0.3), "cardinality": (0.0, 0.2)}, "region"),
        ("lift", {"score": (0.1, 0.2), "region": (0.1, 0.2)}, "score"),
        ("lift", {"score": (0.1 + 1e-17, 0.2), "region": (0.1, 0.3)}, "region"),
        ("lift", {"score": (0.0, NAN), "region": (0.0, -0.1)}, "region"),
        # A gate that never opens promises nothing; one that loses out of fold is never left open.
        ("lift", {"score": (0.0, 0.9), "region": (0.01, 0.0)}, "region"),
        ("opportunity", {}, None),
        ("opportunity", {"score": (0.0, 0.9), "region": (0.01, 0.0)}, "score"),
        ("opportunity", {"score": (0.0, 0.2), "region": (0.1, 0.2)}, "region"),
        ("opportunity", {"score": (0.5, NAN), "region": (0.0, -0.1)}, "region"),
    ],
)
def test_the_axis_with_the_largest_promise_is_chosen(by, expected, axis):
    assert choose_axis(expected, by) == axis


def test_only_commitment_extends_dream():
    """Stored names in place of an axis, `chosen` and `joint`, extend nothing."""
    cells = [("dream", axis) for axis in ("commitment", "region", "chosen", "joint")] + [("llada", "commitment")]
    assert [is_extension(*cell) for cell in cells] == [True, False, False, False, False]


def test_one_rollout_of_something_that_draws(tmp_path):
    tables, read = made.diagnosed({"find": "finds"}, axis="commitment", names=("all", "none"), rollouts=1)
    (lost,) = fit_calibrations(made.store(tmp_path / "s", tables, read=read)).values()
    assert lost.reason.startswith("1 rollout of something that draws")


def test_rows_belong_to_diagnostics_by_name():
    assert diagnostic_names({"axes": ["score", "region"]}) == {"score": ("score",), "region": ("region",)}
    stored = {"axes": ["region", "score"], "diagnostics": {"region": {}, "region:share": {}}}
    assert diagnostic_names(stored) == {"region": ("region", "region:share"), "score": ("score",)}
    with pytest.raises(UnknownName, match="diagnostic of the stored study"):
        diagnostic_names({"axes": ["region"], "diagnostics": {"regoin": {}}})


def listed(place, *names):
    """The store of a study that lists these diagnostics."""
    manifest = place.manifest
    manifest["study"]["diagnostics"] = {name: {} for name in names}
    write_manifest(place.files, manifest)
    return place


def test_several_of_one_axis_are_each_as_if_alone(tmp_path):
    """Beside a diagnostic that finds opportunity one that does not, on the same branches: neither moves the other."""
    tables, finds = made.diagnosed({"find": "finds"})
    _, noise = made.diagnosed({"find": "useless"}, seed=1)
    name = "region:diagnosed"
    both = {key: {"region": finds[key]["region"], name: noise[key]["region"]} for key in finds}
    kinds = {"both": both, "region": finds, name: {key: {name: said["region"]} for key, said in noise.items()}}
    chosen, cells = {}, {}
    for what, read in kinds.items():
        names = [n for n in ("region", name) if what in ("both", n)]
        place = listed(made.store(tmp_path / what.replace(":", "-"), tables, read=read), *names)
        chosen[what] = fit_calibrations(place)
        rows = analyse(place, resamples=50, draws=20).select("diagnostics", task="find")
        cells[what] = {one: own.reset_index(drop=True) for one, own in rows.groupby("diagnostic", sort=False)}
    assert list(chosen["both"]) == [("small", "find", "region"), ("small", "find", name)]
    assert list(cells["both"]) == ["region", name]
    for one in ("region", name):
        (alone,) = chosen[one].values()
        assert chosen["both"]["small", "find", one].calibration.to_json() == alone.calibration.to_json()
        assert cells["both"][one].equals(cells[one][one])
    assert not cells["both"]["region"]["value"].equals(cells["both"][name]["value"])


@pytest.mark.parametrize("order", ["full window:16 block:8 dilated:2", "full block:8 dilated:2 window:16"])
def test_ties_go_to_the_reference_then_by_name(order):
    """Whatever the order of the study file, and of the rows."""
    worth = {"full": 0.2, "window:16": 0.5, "block:8": 0.5, "dilated:2": 0.5}
    columns = ("prompt", "state", "step", "masked", "candidate", "is_reference", "rollout", "utility")
    rows = [(f"p{p}", 0, 0, 4, name, name == "full", 0, worth[name]) for p in range(3) for name in order.split()]
    table = utilities_of(pa.table(dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True))))
    assert table.candidates == ("full", "block:8", "dilated:2", "window:16")
    assert table.candidates[choose_fixed(table.utility_SAR, reference=0).action] == "block:8"
    level = np.where(np.isfinite(table.utility_SAR), 0.5, np.nan)
    assert table.candidates[choose_fixed(level, reference=0).action] == "full"
