"""Calibrations whose gates are known beforehand, whatever the tables say."""

from dataclasses import replace

import numpy as np

from unmask.lab.analysis import steps
from unmask.lab.study import validation
from unmask.stats import Threshold
from unmask.stats.protocol import fit_calibration


def set_tau(patch, tau_of, rule="lift"):
    """Calibrations of a rule whose threshold is `tau_of(states)`, for all who calibrate a study."""
    fit = validation.fit_calibration

    def fit_known(states, settings, whole_runs=None):
        made = fit(states, settings, whole_runs)
        return replace(made, tau=tau_of(states)) if settings.rule == rule else made

    patch.setattr(validation, "fit_calibration", fit_known)
    patch.setattr(steps, "fit_calibration", fit_known)


def known_gates(patch):
    """Gates of the region and of commitment are open for the upper half of the real signals, all others shut."""

    def rising(states, settings, whole_runs=None):
        made = fit_calibration(states, settings, whole_runs)
        return replace(made, detector=replace(made.detector, g_B=np.linspace(-0.5, 0.5, len(made.detector.g_B))))

    def half_open(states):
        opens = "full" in states.candidates or "all" in states.candidates
        return Threshold(0.0, 0.5, 0.25, 0.1) if opens else Threshold(None, 0.0, -0.25, 0.1, "made shut")

    patch.setattr(validation, "fit_calibration", rising)
    set_tau(patch, half_open)
