"""What the model's prediction says of a state as a whole: how sure it is of the positions that are still masked."""

from typing import NamedTuple

import numpy as np
import torch

from unmask.core import Trajectory


class StateSummary(NamedTuple):
    """Of the masked positions of one state: entropy in nats, and the most probable token's lead over the second.

    NaN where nothing is masked."""

    entropy_mean: float
    entropy_spread: float
    """Standard deviation."""
    entropy_least: float
    entropy_most: float
    margin_mean: float
    margin_spread: float
    margin_least: float
    margin_most: float


def summarised(traj: Trajectory) -> list[StateSummary]:
    """Row by row. Only masked positions are summed, on the host: neither padding nor company can change a bit."""
    length, clean = traj.state.tokens_BL.shape[1], traj.current_prediction.clean
    masked_BL = traj.state.masked_BL & traj.current_prediction.wanted_BN[:, :length]
    parts = (masked_BL, clean.entropy_BN[:, :length], clean.margin_BN[:, :length])
    masked_BL, *values = torch.stack([part.double() for part in parts]).cpu().numpy()
    rows = zip(masked_BL > 0, *values, strict=True)
    return [
        StateSummary(*_numbers(entropy_L[open_L]), *_numbers(margin_L[open_L])) for open_L, entropy_L, margin_L in rows
    ]


def _numbers(x: np.ndarray) -> tuple[float, float, float, float]:
    if not len(x):
        return (float("nan"),) * 4
    return float(x.mean()), float(x.std()), float(x.min()), float(x.max())
