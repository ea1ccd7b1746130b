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
