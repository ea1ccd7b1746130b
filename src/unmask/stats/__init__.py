"""Numbers from tables: NumPy in, numbers out. Imports nothing else of this package."""

from unmask.stats.bootstrap import Estimate, ratio_intervals
from unmask.stats.capture import COVERAGES, concentration, top_sums
from unmask.stats.crossfit import CrossFit, cross_fit
from unmask.stats.estimates import Audit, FixedAction, Gap, audit, choose_fixed, choose_fixed_by_task, gap, stages
from unmask.stats.opportunity import Opportunity, PairEstimates, Summary, summary
from unmask.stats.pairs import Bidirectional, bidirectional, over, pairwise_reversal
from unmask.stats.reversal import (
    FrequencyMargin,
    adaptation_gap,
    best_fixed,
    frequency_margin,
    pairwise_gap,
    reversal_lower_bound,
)

__all__ = [
    "COVERAGES",
    "Audit",
    "Bidirectional",
    "CrossFit",
    "Estimate",
    "FixedAction",
    "FrequencyMargin",
    "Gap",
    "Opportunity",
    "PairEstimates",
    "Summary",
    "adaptation_gap",
    "audit",
    "best_fixed",
    "bidirectional",
    "choose_fixed",
    "choose_fixed_by_task",
    "concentration",
    "cross_fit",
    "frequency_margin",
    "gap",
    "over",
    "pairwise_gap",
    "pairwise_reversal",
    "ratio_intervals",
    "reversal_lower_bound",
    "stages",
    "summary",
    "top_sums",
]
