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
        ({"task": 3}, "task is 3; allowed: "),
        ({"axis": None}, "axis is None; allowed: "),
        ({"scorer": []}, r"scorer is \[\]"),
        ({"seed": "a"}, "seed is 'a'; allowed: "),
        ({"batch_size": 1.5}, "batch_size is 1.5"),
        ({"rollouts": True}, "rollouts is True; allowed: "),
        ({"steps_share": "half"}, "steps_share is 'half'; allowed: "),
        ({"work_dir": -1}, "work_dir is -1"),
        ({"step": 2}, "unknown option 'step'; did you mean"),
    ],
)
def test_types(model, changes, message):
    with pytest.raises(ConfigError, match=message):
        unmask.calibrate(model, **{**GOOD, **changes})


def test_a_name_is_no_model():
    with pytest.raises(ConfigError, match=r"model is 'zz'; allowed: a loaded model; e\.g\. unmask\.load\('mini'\)"):
        unmask.calibrate("zz", **GOOD)
