"""The decoder's detector opens where the calibration's does."""

import numpy as np
import pytest
import torch

from unmask.adapt import DetectorRule
from unmask.base.errors import ConfigError

NAN, INF = float("nan"), float("inf")


def opens(rule, *signals):
    return rule.opens(torch.tensor(signals, dtype=torch.float64), None).tolist()


def test_a_bin_holds_its_start():
    rule = DetectorRule((0.0, 1.0), (0.0, 0.2, 0.1), tau=0.15)
    assert opens(rule, -0.001, 0.0, 0.999, 1.0) == [False, True, True, False]


def test_signals_beyond_all_belong_to_the_end_bins():
    rule = DetectorRule((0.0, 1.0), (0.5, 0.0, 0.5), tau=0.1)
    assert opens(rule, -INF, -1e300, 0.5, 1e300, INF) == [True, True, False, True, True]


def test_a_bin_without_a_state_expects_nothing(kit):
    found = kit.made(["a"], starts=(), g=(NAN,), tau=-INF)
    rule = DetectorRule.of(found)
    assert rule.expected == (None,)
    assert opens(rule, 0.0) == found.tau.is_reached(found.detector.predict([0.0])).tolist() == [False]


@pytest.mark.parametrize("tau", [None, -INF, 0.0, 0.05, 0.3])
def test_as_the_calibration_does(tau, kit):
    rng = np.random.default_rng(0)
    starts = np.sort(rng.normal(size=9))
    found = kit.made(["a"], starts=starts, g=rng.normal(0.05, 0.1, size=10), tau=tau)
    signals = [*rng.normal(scale=2, size=200), *starts, *np.nextafter(starts, -INF), NAN, INF, -INF]
    assert opens(DetectorRule.of(found), *signals) == found.tau.is_reached(found.detector.predict(signals)).tolist()


@pytest.mark.parametrize(("starts", "expected"), [((1.0, 0.0), (0.0, 0.0, 0.0)), ((0.0,), (0.0,))])
def test_impossible_bins_are_refused(starts, expected):
    with pytest.raises(ConfigError, match="calibrate again"):
        DetectorRule(starts, expected, None)
