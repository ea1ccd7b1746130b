"""The numbers of the paper's protocol: cross-fitting, calibration, resampling, ranking. No torch.

What is named here needs NumPy alone, because a light install opens gate files. `unmask.stats.protocol`, `.measures` and
`.learned` need pandas or scikit-learn (`pip install 'unmask[lab]'`) and are imported by their own names.
"""

from unmask.stats.fitting import (
    FIXED_BY,
    STAGES,
    Calibration,
    CalibrationSettings,
    Detector,
    FixedAction,
    StageSchedule,
    Threshold,
    fit_detector,
    fit_schedule,
    gate_levels,
    stages,
)
from unmask.stats.guarantee import MARGIN, fitted_half, sequential_test, smallest_margin, worst_differences
from unmask.stats.ranking import COVERAGES, TIE, auroc, pareto_front, spearman, top_sums, wilson, zero_rounding
from unmask.stats.resampling import (
    FEWEST,
    PROMPT_RESAMPLES,
    RESAMPLES,
    Array,
    Bools,
    Estimate,
    Ints,
    NotEnough,
    bootstrap,
    estimate_measures,
    estimate_ratio,
    mean_of_task_means,
    mean_over_tasks,
    task_seeds,
    weighted_mean,
)
from unmask.stats.theorem import adaptation_gap, frequency_margin, opportunity, pairwise_gap, reversal_lower_bound

__all__ = [
    "COVERAGES", "FEWEST", "FIXED_BY", "MARGIN", "PROMPT_RESAMPLES", "RESAMPLES", "STAGES", "TIE",
    "Array", "Bools", "Calibration", "CalibrationSettings", "Detector", "Estimate", "FixedAction", "Ints",
    "NotEnough", "StageSchedule", "Threshold",
    "adaptation_gap", "auroc", "bootstrap", "estimate_measures", "estimate_ratio", "fit_detector", "fit_schedule",
    "fitted_half", "frequency_margin", "gate_levels", "mean_of_task_means", "mean_over_tasks", "opportunity",
    "pairwise_gap", "pareto_front", "reversal_lower_bound", "sequential_test", "smallest_margin", "spearman",
    "stages", "task_seeds", "top_sums", "weighted_mean", "wilson", "worst_differences", "zero_rounding",
]  # fmt: skip
