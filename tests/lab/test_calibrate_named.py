"""`unmask.calibrate` refuses what makes no sense before it measures anything."""

import pytest

import unmask
from tests.helpers.cases import each_case
from unmask.base.errors import ConfigError

GOOD = {"task": "carry-rtl", "axis": "region"}


@pytest.fixture(scope="module")
def model():
    return unmask.load("exact")


@each_case(
    ("changes", "message"),
    [
        ({"task": 3}, "task of calibrate is 3; allowed: str"),
        ({"axis": None}, "axis of calibrate is None; allowed: str"),
        ({"score": []}, r"score of calibrate is \[\]"),
        ({"seed": "a"}, "seed of calibrate is 'a'; allowed: int"),
        ({"rows": 1.5}, "rows of calibrate is 1.5"),
        ({"rollouts": True}, "rollouts of calibrate is True; allowed: int"),
        ({"steps_share": "half"}, "steps_share of calibrate is 'half'; allowed: int | float"),
        ({"work": -1}, "work of calibrate is -1"),
        ({"step": 2}, "unknown option of calibrate 'step'; did you mean"),
    ],
)
def test_types(model, changes, message):
    with pytest.raises(ConfigError, match=message):
        unmask.calibrate(model, **{**GOOD, **changes})


def test_a_name_is_no_model():
    with pytest.raises(ConfigError, match=r"model is 'zz'; allowed: a loaded model; e\.g\. unmask\.load\('mini'\)"):
        unmask.calibrate("zz", **GOOD)
