"""Revision: which revisable positions go back to the mask. ReMDM's sigma in its cap, rescale, conf and loop forms.

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
    """min(1, (1 - alpha_s) / alpha_t); 1 where alpha_t = 0."""
    safe_t = torch.where(alpha_t > 0, alpha_t, torch.ones_like(alpha_t))
    return torch.where(alpha_t > 0, ((1 - alpha_s) / safe_t).clamp(max=1), torch.ones_like(alpha_t))


def sigma_cap(alpha_t: Tensor, alpha_s: Tensor, eta: float) -> Tensor:
    return sigma_max(alpha_t, alpha_s).clamp(max=eta)


def sigma_rescale(alpha_t: Tensor, alpha_s: Tensor, eta: float) -> Tensor:
    return eta * sigma_max(alpha_t, alpha_s)


def sigma_conf(alpha_t_B: Tensor, alpha_s_B: Tensor, psi_BL: Tensor, revisable_BL: Tensor) -> Tensor:
    """sigma_max spread by softmax(-psi) over the revisable positions: the least sure when revealed goes first.

    0 where psi is infinite: a position that nothing is known about stays.
    """
    logits_BL = torch.where(revisable_BL, -psi_BL, float("-inf"))
    known_BL = logits_BL.isfinite()
    # The softmax of a row without any is NaN, but then there is nothing to take it.
    return torch.where(known_BL, logits_BL.softmax(-1) * sigma_max(alpha_t_B, alpha_s_B)[:, None], 0.0)


def loop_alpha(t: Tensor, t_on: float, t_off: float, alpha_on: float) -> Tensor:
    """Rise to alpha_on, hold while looping, rise to 1."""
    rising = (1 - t) * alpha_on / (1 - t_on)
    finishing = 1 - t * (1 - alpha_on) / t_off
    held = torch.full_like(t, alpha_on)
    return torch.where(t > t_on, rising, torch.where(t > t_off, held, finishing))


def sigma_loop(t: Tensor, eta: float, t_on: float, t_off: float) -> Tensor:
    """eta inside the loop, 0 outside; t = t_on loops, t = t_off does not."""
    return torch.where((t <= t_on) & (t > t_off), torch.full_like(t, eta), 0.0)


def reveal_probability(alpha_t: Tensor, alpha_s: Tensor, sigma: Tensor) -> Tensor:
    """(alpha_s - (1 - sigma) alpha_t) / (1 - alpha_t): what keeps the marginals for any valid sigma."""
    return (alpha_s - (1 - sigma) * alpha_t) / (1 - alpha_t)


@dataclass(frozen=True)
class ReMDM:
    """The re-masking operator with its published settings as defaults (cap 0.008, rescale 0.015, loop 0.02)."""

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
        alpha_t_B = state.step_B.double() / state.horizon_B
        alpha_s_B = ((state.step_B + 1).double() / state.horizon_B).clamp(max=1)
        # Not 1 - alpha_t, whose rounding would move the edges of the loop.
        t_B = (state.horizon_B - state.step_B).double() / state.horizon_B
        sigma_BL = self.rates(t_B, alpha_t_B, alpha_s_B, psi_BL, state.revisable_BL)
        last_B1 = (state.step_B >= state.horizon_B - 1)[:, None]
        return torch.where(last_B1, 0.0, sigma_BL)

    def rates(self, t_B: Tensor, alpha_t_B: Tensor, alpha_s_B: Tensor, psi_BL: Tensor, revisable_BL: Tensor) -> Tensor:
        """sigma of every revisable position on a clock of the caller's, 0 elsewhere."""
        if self.variant == "conf":
            return self.rate * sigma_conf(alpha_t_B, alpha_s_B, psi_BL.double(), revisable_BL)
        return torch.where(revisable_BL, self.shared(t_B, alpha_t_B, alpha_s_B)[:, None], 0.0)

    def expected(self, positions: int, steps: int) -> float:
        """Re-masks of a run that leaves all it reveals revisable, about: as if as many were open as the clock says."""
        taken = torch.arange(1, max(1, steps - 1), dtype=torch.float64)
        alpha_t, alpha_s = taken / steps, (taken + 1) / steps
        if self.variant == "conf":
            return float(self.rate * sigma_max(alpha_t, alpha_s).sum())
        return float((positions * alpha_t * self.shared((steps - taken) / steps, alpha_t, alpha_s)).sum())

    def remask(self, state: State, psi_BL: Tensor, uniform_BL: Tensor) -> Tensor:
        """Positions to re-open, one uniform each."""
        return uniform_BL < self.sigma(state, psi_BL)

    def shared(self, t_B: Tensor, alpha_t_B: Tensor, alpha_s_B: Tensor) -> Tensor:
        """The sigma that all positions of a row have in common; 0 under `conf`, which has none."""
        if self.variant == "conf":
            return torch.zeros_like(alpha_t_B)
        if self.variant == "cap":
            return sigma_cap(alpha_t_B, alpha_s_B, self.rate)
        if self.variant == "rescale":
            return sigma_rescale(alpha_t_B, alpha_s_B, self.rate)
        return sigma_loop(t_B, self.rate, self.t_on, self.t_off)
