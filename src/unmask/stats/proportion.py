"""How sure a share of right answers is."""

import math
from statistics import NormalDist

from unmask.stats.bootstrap import LEVEL, Estimate


def wilson(right: int, n: int, level: float = LEVEL) -> Estimate:
    """A share with Wilson's interval, which keeps its level near 0 and 1 too; NaN where nothing was counted.

    A bootstrap of n wrong answers would have no width.
    """
    if not 0 <= right <= n:
        raise ValueError(f"right is {right} of n = {n}; it must be from 0 to n")
    if n == 0:
        return Estimate(math.nan, math.nan, math.nan, n=0)
    share, z = right / n, NormalDist().inv_cdf((1 + level) / 2)
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    # At the ends the interval touches 0 or 1 but for rounding.
    return Estimate(share, max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)), n=n)
