"""Remasking: which revisable positions are masked again. ReMDM's sigma in its forms cap, rescale, conf and loop.

Time runs from t = 1 (all masked) to 0, and alpha is the probability that a position is not masked: 1 - t on the linear
schedule. A revealed position is masked again with probability sigma. Samplers that reveal at random then reveal a mask
with the probability that keeps the marginals at alpha_s (`reveal_probability`).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.base.errors import UnknownName, require
from unmask.core import State

VARIANTS = ("cap", "rescale", "conf", "loop")


def sigma_max(alpha_t: Tensor, alpha_s: Tensor) -> Tensor:
    """Return the largest valid sigma: min(1, (1 - alpha_s) / alpha_t), or 1 if alpha_t = 0."""
    # `where` computes both branches: dividing by a safe number avoids a NaN in the branch that is not used.
    safe_t = torch.where(alpha_t > 0, alpha_t, torch.ones_like(alpha_t))
    return torch.where(alpha_t > 0, ((1 - alpha_s) / safe_t).clamp(max=1), torch.ones_like(alpha_t))


def loop_alpha(t: Tensor, t_on: float, t_off: float, alpha_on: float) -> Tensor:
    """Return alpha under `loop`: it rises to alpha_on, stays there during the loop, and rises to 1."""
    rising = (1 - t) * alpha_on / (1 - t_on)
    finishing = 1 - t * (1 - alpha_on) / t_off
    held = torch.full_like(t, alpha_on)
    return torch.where(t > t_on, rising, torch.where(t > t_off, held, finishing))


def reveal_probability(alpha_t: Tensor, alpha_s: Tensor, sigma: Tensor) -> Tensor:
    """Return the probability of revealing a mask that keeps the marginals at alpha_s."""
    return (alpha_s - (1 - sigma) * alpha_t) / (1 - alpha_t)


@dataclass(frozen=True)
class ReMDM:
    """The remasking operator of ReMDM.

    Sigma depends on the variant: `cap`, sigma_max but at most eta; `rescale`, eta times sigma_max; `loop`, eta for
    t_on >= t > t_off, else 0; `conf`, eta times sigma_max, distributed over revisable positions by softmax(-psi), so
    that tokens that were unsure when revealed are masked first. If `eta` is None, the published value is used.
    """

    variant: str = "cap"
    eta: float | None = None
    t_on: float = 0.55
    t_off: float = 0.05
    alpha_on: float = 0.9

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise UnknownName("ReMDM variant", self.variant, VARIANTS)
        require(0 <= self.effective_eta <= 1, "eta", self.eta, "0 to 1", "published values lie between 0.008 and 0.04")
        ordered = 0 <= self.t_off < self.t_on < 1
        require(ordered, "t_off, t_on", (self.t_off, self.t_on), "0 <= t_off < t_on < 1", "e.g. 0.05, 0.55")
        require(0 < self.alpha_on < 1, "alpha_on", self.alpha_on, "above 0, below 1", "e.g. 0.9")
        if self.variant == "loop":
            limit = (1 - self.alpha_on) / self.alpha_on
            require(
                self.effective_eta <= limit, "eta", self.effective_eta, f"at most {limit:.4g}", "or the marginals break"
            )

    @property
    def effective_eta(self) -> float:
        published = {"cap": 0.008, "rescale": 0.015, "conf": 1.0, "loop": 0.02}
        return published[self.variant] if self.eta is None else self.eta

    def sigma(self, state: State, psi_BL: Tensor) -> Tensor:
        """Return the probability that each position is masked again; 0 in the last step and where it is not revisable.

        The time is alpha_t = step / horizon, and t = 1 - alpha_t under `loop`.
        """
        # In float64: t is compared with edges such as 0.55, and float32 would put some steps on the other side.
        alpha_t_B = state.step_B.double() / state.horizon_B
        alpha_s_B = ((state.step_B + 1).double() / state.horizon_B).clamp(max=1)
        # Not computed as 1 - alpha_t, whose rounding would put some steps on the other side of the edges.
        t_B = (state.horizon_B - state.step_B).double() / state.horizon_B
        sigma_BL = self.sigma_at(t_B, alpha_t_B, alpha_s_B, psi_BL, state.revisable_BL)
        last_B1 = (state.step_B >= state.horizon_B - 1)[:, None]
        return torch.where(last_B1, 0.0, sigma_BL)

    def sigma_at(
        self, t_B: Tensor, alpha_t_B: Tensor, alpha_s_B: Tensor, psi_BL: Tensor, revisable_BL: Tensor
    ) -> Tensor:
        """Return the remasking probability of every revisable position at given times; 0 for all other positions."""
        if self.variant == "conf":
            logits_BL = torch.where(revisable_BL, -psi_BL.double(), float("-inf"))
            sigma_BL = logits_BL.softmax(-1) * sigma_max(alpha_t_B, alpha_s_B)[:, None]
            # Positions with infinite psi, which means unknown, are not masked. If all are unknown, the softmax is NaN,
            # and `where` replaces all of it.
            return self.effective_eta * torch.where(logits_BL.isfinite(), sigma_BL, 0.0)
        return torch.where(revisable_BL, self.sigma_per_row(t_B, alpha_t_B, alpha_s_B)[:, None], 0.0)

    def expected_remasks(self, positions: int, steps: int) -> float:
        """Estimate the number of remasked positions in a run whose revealed positions all stay revisable."""
        taken = torch.arange(1, max(1, steps - 1), dtype=torch.float64)
        alpha_t, alpha_s = taken / steps, (taken + 1) / steps
        if self.variant == "conf":
            return float(self.effective_eta * sigma_max(alpha_t, alpha_s).sum())
        return float((positions * alpha_t * self.sigma_per_row((steps - taken) / steps, alpha_t, alpha_s)).sum())

    def remask(self, state: State, psi_BL: Tensor, uniform_BL: Tensor) -> Tensor:
        """Draw the positions to mask again; `uniform_BL` has one uniform number per position."""
        return uniform_BL < self.sigma(state, psi_BL)

    def sigma_per_row(self, t_B: Tensor, alpha_t_B: Tensor, alpha_s_B: Tensor) -> Tensor:
        """Return the remasking probability that all positions of a row share; 0 for `conf`, where they differ."""
        if self.variant == "conf":
            return torch.zeros_like(alpha_t_B)
        if self.variant == "cap":
            return sigma_max(alpha_t_B, alpha_s_B).clamp(max=self.effective_eta)
        if self.variant == "rescale":
            return self.effective_eta * sigma_max(alpha_t_B, alpha_s_B)
        looping_B = (t_B <= self.t_on) & (t_B > self.t_off)
        return torch.where(looping_B, torch.full_like(t_B, self.effective_eta), 0.0)
