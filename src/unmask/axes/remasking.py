"""Remasking: which revisable positions go back to the mask. ReMDM's sigma in its cap, rescale, conf and loop forms.

Time runs from t = 1 (all masked) to 0; alpha is the probability of being clean, 1 - t on the linear schedule. A
revealed position is re-masked with probability sigma; a masked one is revealed with the probability that keeps the
marginals at alpha_s. The second number is for samplers that reveal at random; ours reveals by action.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.base.errors import UnknownName, require
from unmask.core import State

VARIANTS = ("cap", "rescale", "conf", "loop")


def sigma_max(alpha_t: Tensor, alpha_s: Tensor) -> Tensor:
    """Largest valid sigma: min(1, (1 - alpha_s) / alpha_t); 1 where alpha_t = 0."""
    safe_t = torch.where(alpha_t > 0, alpha_t, torch.ones_like(alpha_t))
    return torch.where(alpha_t > 0, ((1 - alpha_s) / safe_t).clamp(max=1), torch.ones_like(alpha_t))


def loop_alpha(t: Tensor, t_on: float, t_off: float, alpha_on: float) -> Tensor:
    """Alpha under `loop`: it rises to alpha_on, holds while looping, and rises to 1."""
    rising = (1 - t) * alpha_on / (1 - t_on)
    finishing = 1 - t * (1 - alpha_on) / t_off
    held = torch.full_like(t, alpha_on)
    return torch.where(t > t_on, rising, torch.where(t > t_off, held, finishing))


def reveal_probability(alpha_t: Tensor, alpha_s: Tensor, sigma: Tensor) -> Tensor:
    """Probability of revealing a mask, (alpha_s - (1 - sigma) alpha_t) / (1 - alpha_t): it keeps the marginals."""
    return (alpha_s - (1 - sigma) * alpha_t) / (1 - alpha_t)


@dataclass(frozen=True)
class ReMDM:
    """The re-masking operator.

    Sigma is, with sigma_max as its largest valid value: `cap`, at most eta; `rescale`, eta times sigma_max; `loop`, eta
    for t_on >= t > t_off and 0 elsewhere; `conf`, eta times sigma_max, spread over the revisable positions by
    softmax(-psi), so that those that were least sure when revealed go first. Without `eta` the published one is taken.
    """

    variant: str = "cap"
    eta: float | None = None
    t_on: float = 0.55
    t_off: float = 0.05
    alpha_on: float = 0.9

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise UnknownName("ReMDM variant", self.variant, VARIANTS)
        require(0 <= self.rate <= 1, "eta", self.eta, "0 to 1", "published values lie between 0.008 and 0.04")
        ordered = 0 <= self.t_off < self.t_on < 1
        require(ordered, "t_off, t_on", (self.t_off, self.t_on), "0 <= t_off < t_on < 1", "e.g. 0.05, 0.55")
        require(0 < self.alpha_on < 1, "alpha_on", self.alpha_on, "above 0, below 1", "e.g. 0.9")
        if self.variant == "loop":
            limit = (1 - self.alpha_on) / self.alpha_on
            require(self.rate <= limit, "eta", self.rate, f"at most {limit:.4g}", "or the marginals break")

    @property
    def rate(self) -> float:
        published = {"cap": 0.008, "rescale": 0.015, "conf": 1.0, "loop": 0.02}
        return published[self.variant] if self.eta is None else self.eta

    def sigma(self, state: State, psi_BL: Tensor) -> Tensor:
        """Re-mask probability of every position: 0 off the revisable ones and on the last step.

        alpha_t = step / horizon; under `loop` t is the same clock read backwards.
        """
        # float64: the clock is compared with edges such as 0.55, and float32 would put a step on the other side.
        alpha_t_B = state.step_B.double() / state.horizon_B
        alpha_s_B = ((state.step_B + 1).double() / state.horizon_B).clamp(max=1)
        # Not 1 - alpha_t, whose rounding would move the edges of the loop.
        t_B = (state.horizon_B - state.step_B).double() / state.horizon_B
        sigma_BL = self.rates(t_B, alpha_t_B, alpha_s_B, psi_BL, state.revisable_BL)
        last_B1 = (state.step_B >= state.horizon_B - 1)[:, None]
        return torch.where(last_B1, 0.0, sigma_BL)

    def rates(self, t_B: Tensor, alpha_t_B: Tensor, alpha_s_B: Tensor, psi_BL: Tensor, revisable_BL: Tensor) -> Tensor:
        """Re-mask probability of every revisable position at the times that the caller gives; 0 elsewhere."""
        if self.variant == "conf":
            logits_BL = torch.where(revisable_BL, -psi_BL.double(), float("-inf"))
            sigma_BL = logits_BL.softmax(-1) * sigma_max(alpha_t_B, alpha_s_B)[:, None]
            # A position with infinite psi, of which nothing is known, stays. The softmax of a row without any known
            # position is NaN, but then there is nothing to take it.
            return self.rate * torch.where(logits_BL.isfinite(), sigma_BL, 0.0)
        return torch.where(revisable_BL, self.shared_sigma(t_B, alpha_t_B, alpha_s_B)[:, None], 0.0)

    def expected_remasks(self, positions: int, steps: int) -> float:
        """Approximate number of re-masks in a run whose revealed positions all stay revisable."""
        taken = torch.arange(1, max(1, steps - 1), dtype=torch.float64)
        alpha_t, alpha_s = taken / steps, (taken + 1) / steps
        if self.variant == "conf":
            return float(self.rate * sigma_max(alpha_t, alpha_s).sum())
        return float((positions * alpha_t * self.shared_sigma((steps - taken) / steps, alpha_t, alpha_s)).sum())

    def remask(self, state: State, psi_BL: Tensor, uniform_BL: Tensor) -> Tensor:
        """Flags of the positions to mask again; `uniform_BL` has one uniform for each."""
        return uniform_BL < self.sigma(state, psi_BL)

    def shared_sigma(self, t_B: Tensor, alpha_t_B: Tensor, alpha_s_B: Tensor) -> Tensor:
        """Sigma that all positions of a row have in common; 0 under `conf`, which has none."""
        if self.variant == "conf":
            return torch.zeros_like(alpha_t_B)
        if self.variant == "cap":
            return sigma_max(alpha_t_B, alpha_s_B).clamp(max=self.rate)
        if self.variant == "rescale":
            return self.rate * sigma_max(alpha_t_B, alpha_s_B)
        looping_B = (t_B <= self.t_on) & (t_B > self.t_off)
        return torch.where(looping_B, torch.full_like(t_B, self.rate), 0.0)
