"""The gate of a calibration whose harm is bounded: which prompts are fitted on, and thresholds tested on the others."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from unmask.adapt import Arms, Guarantee
from unmask.base.errors import require
from unmask.lab.whole_runs import RunDecoder
from unmask.stats import (
    MARGIN,
    Bools,
    Threshold,
    fitted_half,
    gate_levels,
    sequential_test,
    smallest_margin,
    worst_differences,
)


class Tolerance(NamedTuple):
    """What may go wrong, and how often."""

    risk: float
    """Probability, over validation prompts, that decoding with the gate is worse by more than the margin."""
    margin: float
    """Of mean utility, below the fixed action."""


def tolerance_of(guarantee: float | None, margin: float | None, prompts: int) -> Tolerance | None:
    """As somebody asks for it; None where nobody does."""
    if guarantee is None:
        require(margin is None, "margin", margin, "none without a guarantee", "add --guarantee 0.05, or drop it")
        return None
    margin = MARGIN if margin is None else margin
    require(0 < guarantee < 1, "guarantee", guarantee, "above 0, below 1", "0.05 lets one gate in twenty be harmful")
    require(0 < margin < 1, "margin", margin, "above 0, below 1", "0.05 is a twentieth of the range of utilities")
    require(prompts >= 4, "prompts", prompts, "4 or more with a guarantee", "half are fitted on, half are tested on")
    return Tolerance(guarantee, margin)


def fitted_prompts(prompts: Sequence[str], tolerance: Tolerance | None, seed: int) -> Bools:
    """Which prompts make choices: half of them where the others are to test what was chosen."""
    return np.ones(len(prompts), dtype=np.bool_) if tolerance is None else fitted_half(len(prompts), seed)


def guaranteed(arms: Arms, runs: RunDecoder, fitted_P: Bools, tolerance: Tolerance) -> tuple[Arms, Guarantee]:
    """The arms with the threshold that passed, or with a gate that stays shut."""
    levels = gate_levels(arms.calibration.detector)
    tried = [_with_tau(arms, Threshold(level)) for level in levels]
    runs.planned += len(levels)
    fixed_P = runs.utilities(arms.fixed)
    gated_PH = np.stack([runs.utilities(one.selective) for one in tried], 1)
    gain_PH = worst_differences(gated_PH, fixed_P)
    test = sequential_test(gain_PH[fitted_P], gain_PH[~fitted_P], risk=tolerance.risk, margin=tolerance.margin)
    tested = int((~fitted_P).sum())
    found = Guarantee(
        risk=tolerance.risk,
        margin=tolerance.margin,
        fitted=int(fitted_P.sum()),
        tested=tested,
        thresholds=len(test.tested),
        difference=test.difference,
        bound=test.bound,
    )
    if test.chosen is not None:
        return tried[test.chosen], found
    reason = test.reason
    if test.tested and (least := smallest_margin(tested, tolerance.risk)) > tolerance.margin:
        reason += f" (without a gain, {tested} can show a margin of {least:.3f} at best)"
    return _with_tau(arms, Threshold(None, reason=reason)), found


def _with_tau(arms: Arms, tau: Threshold) -> Arms:
    return replace(arms, calibration=replace(arms.calibration, tau=tau))
