"""Numbers from tables: NumPy in, numbers out. Imports nothing else of this package."""

from unmask.stats.bootstrap import (
    Estimate,
    against,
    macro_intervals,
    mean_interval,
    mean_intervals,
    paired_difference,
    paired_differences,
    ratio_intervals,
)
from unmask.stats.calibration import Calibration, CalibrationSettings, DetectorFileError, calibrate, gate_lift
from unmask.stats.capture import COVERAGES, concentration, top_sums
from unmask.stats.crossfit import CrossFit, cross_fit
from unmask.stats.detection import (
    AtCoverage,
    Curve,
    Detection,
    ExperimentSettings,
    Scored,
    detection_measures,
    random_coverage,
)
from unmask.stats.detector import (
    Detector,
    Schedule,
    Threshold,
    fit_detector,
    fit_gate,
    fit_schedule,
    fit_theta,
)
from unmask.stats.errors import NotEnough
from unmask.stats.estimates import Audit, FixedAction, Gap, audit, choose_fixed, choose_fixed_by_task, gap, stages
from unmask.stats.experiment import Experiment
from unmask.stats.opportunity import Opportunity, OpportunitySummary, PairEstimates, summary
from unmask.stats.pairs import Bidirectional, bidirectional, over, pairwise_reversal
from unmask.stats.ranking import auroc, spearman
from unmask.stats.reversal import (
    FrequencyMargin,
    adaptation_gap,
    best_fixed,
    frequency_margin,
    pairwise_gap,
    reversal_lower_bound,
)
from unmask.stats.selection import ActionChoice, ActionSelection, Viability, select_actions
from unmask.stats.selective import ARMS, SelectiveUtility, TransitionUtility, selective_utility
from unmask.stats.tables import Graded, HeldOutTable, LeakageError, ProposedAction, ValidationTable, grade

__all__ = [
    "ARMS",
    "COVERAGES",
    "ActionChoice",
    "ActionSelection",
    "AtCoverage",
    "Audit",
    "Bidirectional",
    "Calibration",
    "CalibrationSettings",
    "CrossFit",
    "Curve",
    "Detection",
    "Detector",
    "DetectorFileError",
    "Estimate",
    "Experiment",
    "ExperimentSettings",
    "FixedAction",
    "FrequencyMargin",
    "Gap",
    "Graded",
    "HeldOutTable",
    "LeakageError",
    "NotEnough",
    "Opportunity",
    "OpportunitySummary",
    "PairEstimates",
    "ProposedAction",
    "Schedule",
    "Scored",
    "SelectiveUtility",
    "Threshold",
    "TransitionUtility",
    "ValidationTable",
    "Viability",
    "adaptation_gap",
    "against",
    "audit",
    "auroc",
    "best_fixed",
    "bidirectional",
    "calibrate",
    "choose_fixed",
    "choose_fixed_by_task",
    "concentration",
    "cross_fit",
    "detection_measures",
    "fit_detector",
    "fit_gate",
    "fit_schedule",
    "fit_theta",
    "frequency_margin",
    "gap",
    "gate_lift",
    "grade",
    "macro_intervals",
    "mean_interval",
    "mean_intervals",
    "over",
    "paired_difference",
    "paired_differences",
    "pairwise_gap",
    "pairwise_reversal",
    "random_coverage",
    "ratio_intervals",
    "reversal_lower_bound",
    "select_actions",
    "selective_utility",
    "spearman",
    "stages",
    "summary",
    "top_sums",
]
