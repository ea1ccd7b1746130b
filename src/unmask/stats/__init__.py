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
    list_gate_thresholds,
    stage_numbers,
)
from unmask.stats.guarantee import MARGIN, draw_fitted_half, sequential_test, smallest_margin, worst_case_differences
from unmask.stats.ranking import (
    COVERAGES,
    TIE,
    auroc,
    pareto_front,
    spearman,
    sum_top_states,
    wilson_interval,
    zero_rounding,
)
from unmask.stats.resampling import (
    FEWEST_PROMPTS,
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
from unmask.stats.theorem import (
    adaptation_gap,
    frequency_margin,
    opportunity,
    pairwise_adaptation_gap,
    reversal_lower_bound,
)
