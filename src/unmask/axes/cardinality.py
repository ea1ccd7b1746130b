"""The cardinality axis: how many of the eligible positions to reveal in a step."""

import sys
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from unmask.axes.rules import Number, Rule, parse_rule
from unmask.base.errors import require
from unmask.core import Action, Prediction, State

CANDIDATES = ("schedule", "count:1", "count:2", "count:4", "count:8", "share:0.25", "share:0.5", "share:1.0")


def reveal_count(kappa_B: Tensor, n_B: Tensor) -> Tensor:
    """Return k = ceil(kappa * n). For kappa = k / n the result is k, although the product may be a bit larger."""
    exact_B = kappa_B.double() * n_B.double()
    # Far above the rounding error of the product, which is 1e-16 n, and far below one position.
    slack_B = 1e-6 * n_B.double()
    k_B = (exact_B - slack_B).ceil().long()
    return torch.minimum(k_B.clamp(min=0), n_B)


def fraction(k_B: Tensor | int, n_B: Tensor) -> Tensor:
    """Return the reveal fraction kappa of k out of n positions: 1 if k > n, and 0 if n = 0."""
    k_B = n_B.clamp(max=k_B) if isinstance(k_B, int) else torch.minimum(k_B, n_B)
    return k_B.double() / n_B.clamp(min=1).double()


def reveal_set(chosen_BL: Tensor, eligible_BL: Tensor) -> tuple[Tensor, Tensor]:
    """Return region and kappa that reveal exactly the chosen set; (eligible, 0) for rows that choose nothing."""
    any_B = chosen_BL.any(-1)
    return torch.where(any_B[:, None], chosen_BL, eligible_BL), any_B.double()


def k_min(state: State) -> Tensor:
    """Return ceil(m_t / h_t), the smallest number of positions per step that finishes within the horizon."""
    return -(-state.masked_BL.sum(-1) // state.remaining_B)


def llada_quota(masks_B: Tensor, steps_B: Tensor, step_B: Tensor) -> Tensor:
    """Return LLaDA's even split of M masks over S steps: floor(M / S), and one more in the first M mod S steps."""
    return masks_B // steps_B + (step_B < masks_B % steps_B).long()


def dream_count(masks_B: Tensor, steps_B: Tensor, step_B: Tensor, eps: float = 1e-3) -> Tensor:
    """Return the count of Dream's linear time grid: int(M (1 - s/t)), and all masks at the last step."""
    # In float32, as the authors compute it: float64 would truncate to other counts.
    count_B = (masks_B.float() * (1 - dream_keep(steps_B, step_B, eps))).long()
    return torch.where(step_B >= steps_B - 1, masks_B, count_B)


def dream_keep(steps_B: Tensor, step_B: Tensor, eps: float = 1e-3) -> Tensor:
    """Return s/t of Dream's time grid: the probability that a mask survives the step."""
    # A run with more steps than planned stays on the last interval, because the grid ends there.
    i_B = torch.minimum(step_B, steps_B - 1)
    return _time_grid_entry(i_B + 1, steps_B, eps) / _time_grid_entry(i_B, steps_B, eps)


def _time_grid_entry(i_B: Tensor, steps_B: Tensor, eps: float) -> Tensor:
    """Return entry i of torch.linspace(1, eps, steps + 1), bit for bit."""
    # `linspace` computes the first half from the start and the second half from the end, with one rounding per entry.
    end = torch.full((), eps, dtype=torch.float32, device=steps_B.device)
    stride_B = ((end - 1) / steps_B.float()).double()
    from_left_B = 1 + stride_B * i_B
    from_right_B = end.double() - stride_B * (steps_B - i_B)
    return torch.where(i_B < (steps_B + 1) // 2, from_left_B, from_right_B).float()


def count_above(score_BL: Tensor, threshold: float, region_BL: Tensor) -> Tensor:
    """Count the positions of the region that reach a threshold; at least 1, so that every run finishes."""
    return ((score_BL >= threshold) & region_BL).sum(-1).clamp(min=1)


def count_by_factor(score_BL: Tensor, factor: float, region_BL: Tensor, *, authors_tail: bool = False) -> Tensor:
    """Count positions from the highest score down, until one fails Fast-dLLM's factor rule.

    From the second position on, the r-th needs a score of at least 1 - factor / (r + 1). With `authors_tail` the last
    candidate always passes if the one before it does, as in the authors' function.
    """
    n_B = region_BL.sum(-1)
    # In float64, because a score is compared with 1 - factor / (r + 1), which float32 would round.
    sorted_BL = torch.where(region_BL, score_BL.double(), float("-inf")).sort(-1, descending=True).values
    rank_L = torch.arange(1, sorted_BL.shape[1] + 1, device=sorted_BL.device)
    passes_BL = (sorted_BL >= 1 - factor / (rank_L + 1)) | (rank_L == 1)
    k_B = torch.minimum(passes_BL.long().cumprod(-1).sum(-1), n_B)
    if not authors_tail:
        return k_B
    return torch.where(k_B == n_B - 1, n_B, k_B)


def entropy_budget(order_BL: Tensor, entropy_BL: Tensor, region_BL: Tensor, budget: float) -> Tensor:
    """Count the longest prefix, best score first, whose sum of entropies is at most their maximum plus a budget.

    This is the rule of EB-Sampler. The difference bounds the error in nats of drawing the prefix independently. The
    first position is always counted.
    """
    key_BL = torch.where(region_BL, order_BL.double(), float("-inf"))
    place_BL = key_BL.sort(dim=-1, descending=True, stable=True).indices
    # In float64, because the budget is compared with a difference of running sums.
    entropy_BL = torch.where(region_BL, entropy_BL.double(), 0.0).gather(1, place_BL)
    bound_BL = entropy_BL.cumsum(-1) - entropy_BL.cummax(-1).values
    rank_L = torch.arange(bound_BL.shape[1], device=bound_BL.device)
    # By rounding the bound may fall again behind the first position that exceeds it; only the prefix counts.
    within_BL = (bound_BL <= budget) | (rank_L == 0)
    return torch.minimum(within_BL.long().cumprod(-1).sum(-1), region_BL.sum(-1))


BELOW = ":below"
"""Suffix of a rule that may reveal fewer than k_min positions."""

_SHARE = Number("share", "X", "X in [0, 1]", 0.5)
TABLE: dict[str, Rule] = {
    "schedule": Rule(lambda state, **_: k_min(state)),
    "quota": Rule(lambda state, **_: llada_quota(state.answer_BL.sum(-1), state.horizon_B, state.step_B)),
    "count": Rule(
        lambda state, number, **_: number,
        (Number("count", "K", "K a whole number from 1 to 1000000", 4, low=1, high=1_000_000, whole=True),),
    ),
    "share": Rule(lambda state, number, **_: number, (_SHARE,)),
    "above": Rule(
        lambda state, number, confidence_BL, region_BL, **_: count_above(confidence_BL, number, region_BL),
        (replace(_SHARE, name="threshold"),),
    ),
    "factor": Rule(
        lambda state, number, confidence_BL, region_BL, **_: count_by_factor(confidence_BL, number, region_BL),
        (Number("factor", "X", "X 0 or more", 1, high=sys.float_info.max),),
    ),
    "eb": Rule(
        lambda state, number, entropy_BL, order_BL, region_BL, **_: entropy_budget(
            -entropy_BL if order_BL is None else order_BL, entropy_BL, region_BL, number
        ),
        (Number("gamma", "X", "X 0 or more", 0.1, high=float("inf")),),
    ),
    "all": Rule(lambda state, **_: 1.0),
}
_BY_STEPS = ("schedule", "quota", "count", "share")
_SHARES = ("share", "all")


@dataclass(frozen=True)
class Cardinality:
    """A cardinality rule by its text.

    Rules that follow the number of steps: "schedule" (k_min), "quota" (LLaDA's even split), "count:4", "share:0.25".
    Rules that follow the prediction: "above:0.9" (confidence), "factor:1" (Fast-dLLM), "eb:0.1" (EB-Sampler's budget in
    nats), "all".

    If the steps end a run, no rule reveals fewer than k_min = ceil(m_t / h_t) positions: "count:1" is max(1, k_min).
    Otherwise the last step would have to reveal all that is left. "count:1:below" is the bare count.
    """

    rule: str
    number: float = 0.0
    below: bool = False
    """Whether fewer than k_min positions may be revealed before the last step."""

    @classmethod
    def parse(cls, text: str | float, setting: str = "kappa") -> "Cardinality":
        """Parse a rule, or a number, which is kappa itself. `setting` is the name of the setting in messages."""
        share = _parse_share(text)
        if share is not None:
            require(0 <= share <= 1, setting, share, "a share in [0, 1]", "e.g. 0.5 reveals half of the region")
            return cls("share", float(share))
        assert isinstance(text, str)
        rule, numbers = parse_rule(text.removesuffix(BELOW), TABLE, "cardinality", setting, given=text)
        below = text.endswith(BELOW)
        hint = f"e.g. 'count:4{BELOW}'"
        require(bool(numbers) or not below, setting, text, f"'{BELOW[1:]}' after a number", hint)
        return cls(rule, numbers[0] if numbers else 0.0, below)

    @property
    def by_steps(self) -> bool:
        """Whether the rule follows the number of steps. With all other rules a run ends when no mask is left."""
        return self.rule in _BY_STEPS

    @property
    def needs_order(self) -> bool:
        """Whether the count depends on the order of the positions."""
        return self.rule == "eb"

    def __call__(
        self, state: State, prediction: Prediction, region_BL: Tensor, order_BL: Tensor | None = None
    ) -> Tensor:
        """Return the share of the region to reveal. `order_BL` has scores, for rules that need an order."""
        length, n_B = region_BL.shape[1], region_BL.sum(-1)
        count = TABLE[self.rule].function(
            state,
            number=int(self.number) if self.rule == "count" else self.number,
            confidence_BL=prediction.confidence_BN[:, :length],
            entropy_BL=prediction.clean.entropy_BN[:, :length],
            order_BL=order_BL,
            region_BL=region_BL,
        )
        return torch.full_like(n_B, count, dtype=torch.float64) if self.rule in _SHARES else fraction(count, n_B)

    def within_steps(
        self, state: State, prediction: Prediction, region_BL: Tensor, order_BL: Tensor | None = None
    ) -> Tensor:
        """Return the share if the steps end the run: at least k_min positions, and all of them in the last step."""
        kappa_B = self(state, prediction, region_BL, order_BL)
        finishing_B = torch.maximum(kappa_B, fraction(k_min(state), region_BL.sum(-1)))
        return torch.where(state.remaining_B == 1, finishing_B, kappa_B) if self.below else finishing_B

    def describe(self) -> dict[str, Any]:
        """Return the rule as JSON values, for listings."""
        value = {number.name: self.number for number in TABLE[self.rule].numbers}
        below = {"below": True} if self.below else {}
        return {"rule": self.rule, **value, "within_steps": self.by_steps, **below}

    def __str__(self) -> str:
        if not TABLE[self.rule].numbers:
            return self.rule
        return f"{self.rule}:{int(self.number) if self.rule == 'count' else self.number}" + BELOW * self.below


def without_floor(name: str) -> str:
    """Return the text of a rule with ":below" added, so that k_min is no limit. Rules without a number stay."""
    rule = "share" if _parse_share(name) is not None else name.partition(":")[0]
    plain = rule not in TABLE or not TABLE[rule].numbers or name.endswith(BELOW)
    return name if plain else f"{Cardinality.parse(name)}{BELOW}"


def _parse_share(text: str | float) -> float | None:
    try:
        return float(text) if isinstance(text, str) else text
    except ValueError:
        return None


def distance(state: State, one: Action, other: Action, revealed_BL: Tensor) -> Tensor:
    """Return the difference between the numbers of positions that two actions reveal."""

    def count_B(action: Action) -> Tensor:
        return reveal_count(action.kappa_B, (action.region_BL & state.masked_BL).sum(-1))

    return (count_B(one) - count_B(other)).abs().double()
