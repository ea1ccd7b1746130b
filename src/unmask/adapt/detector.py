"""The opportunity detector as a decoder asks it: which signals open the gate. `eq:opportunity_detector`"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from unmask.base.errors import require
from unmask.stats import Calibration


@dataclass(frozen=True)
class Lookup:
    """Bins of the signal with their expected opportunity, and from which opportunity on to deviate."""

    starts: tuple[float, ...]
    """Where the bins after the first start; a bin holds its start and ends before the next."""
    expected: tuple[float | None, ...]
    """Mean validation opportunity of each bin; None where there was no state."""
    tau: float | None
    """The least expected opportunity at which to deviate; None is never, -inf wherever there is a signal."""

    def __post_init__(self) -> None:
        rising = all(low < high for low, high in pairwise(self.starts))
        require(rising, "starts of the bins", self.starts, "rising numbers", "calibrate again")
        bins = len(self.starts) + 1
        ok = len(self.expected) == bins
        require(ok, "expected opportunities", self.expected, f"one for each of {bins} bins", "calibrate again")

    @classmethod
    def of(cls, calibration: Calibration) -> "Lookup":
        """What validation chose."""
        expected = tuple(None if g != g else g for g in calibration.detector.g_B.tolist())
        return cls(tuple(calibration.detector.start_E.tolist()), expected, calibration.tau.value)

    def opens(self, signal_B: Tensor) -> Tensor:
        """Where the expected opportunity is tau or more; nowhere without a signal.

        The bins are compared with as numbers: a table on the device would have to be copied there in every step.
        """
        open_B = torch.zeros_like(signal_B, dtype=torch.bool)
        for start, end in self.stretches:
            inside_B = signal_B >= start
            open_B = open_B | (inside_B if end is None else inside_B & (signal_B < end))
        return open_B

    @cached_property
    def stretches(self) -> tuple[tuple[float, float | None], ...]:
        """Neighbouring open bins as one, from its start to its end; the last bin has none."""
        edges = [float("-inf"), *self.starts, None]
        stretches: list[tuple[float, float | None]] = []
        for (start, end), expected in zip(pairwise(edges), self.expected, strict=True):
            if start is None or self.tau is None or expected is None or expected < self.tau:
                continue
            if stretches and stretches[-1][1] == start:
                start = stretches.pop()[0]
            stretches.append((start, end))
        return tuple(stretches)
