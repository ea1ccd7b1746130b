"""Numbers from tables: NumPy in, numbers out. Imports nothing else of this package."""

from unmask.stats.reversal import (
    FrequencyMargin,
    adaptation_gap,
    best_fixed,
    frequency_margin,
    opportunity,
    pairwise_gap,
    reversal_lower_bound,
)

__all__ = [
    "FrequencyMargin",
    "adaptation_gap",
    "best_fixed",
    "frequency_margin",
    "opportunity",
    "pairwise_gap",
    "reversal_lower_bound",
]
