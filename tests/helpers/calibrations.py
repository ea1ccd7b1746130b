"""Calibrations with the choices that a test wants."""

import math

import numpy as np

from unmask.stats import Calibration, CalibrationSettings, Detector, FixedAction, StageSchedule, Threshold


def made(names, *, fixed=0, stages=None, starts=(0.0,), g=(0.0, 0.1), tau=0.05, out_of_fold=0.01, proposal="raw"):
    """A calibration with these choices."""
    count = len(names)
    return Calibration(
        candidates=tuple(names),
        reference=0,
        fixed=FixedAction(fixed, np.linspace(0.4, 0.5, count), 100, 0),
        schedule=StageSchedule(np.array([fixed] * 4 if stages is None else stages), np.full(4, 25)),
        detector=Detector(np.array(starts), np.array(g), np.full(len(g), 50), np.full(len(g), 5), 7),
        theta=Threshold(-math.inf, 0.0, 0.0, 0.0, ""),
        tau=Threshold(tau, 0.01, out_of_fold, 0.002, "" if tau is not None else "nothing gains"),
        prompts=20,
        settings=CalibrationSettings(seed=0, proposal=proposal),
    )
