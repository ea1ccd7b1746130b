"""Small joints asked directly: what brute force knows of a canvas, without a denoiser or a decoder."""

import numpy as np

from unmask.models import JointDistribution


def told(joint: JointDistribution, canvas: dict[int, int]) -> np.ndarray:
    """Probabilities of every token at every position, given the tokens that stand (by position)."""
    return joint.marginals(canvas)


def free(joint: JointDistribution, canvas: dict[int, int]) -> list[int]:
    return [at for at in range(joint.n) if at not in canvas]


def remaining_entropy(joint: JointDistribution, canvas: dict[int, int]) -> float:
    """Mean entropy of what is masked, 0 where nothing is."""
    p = told(joint, canvas)[free(joint, canvas)]
    return float(-(p * np.log(p)).sum(-1).mean()) if len(p) else 0.0


def remaining_confidence(joint: JointDistribution, canvas: dict[int, int]) -> float:
    """Mean of the largest probabilities of what is masked, 1 where nothing is."""
    places = free(joint, canvas)
    return float(told(joint, canvas)[places].max(-1).mean()) if places else 1.0
