"""Cardinality: how many of the eligible positions to reveal now."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unmask.base.errors import UnknownName, require
from unmask.core import Action, Prediction, State

CANDIDATES = ("schedule", "count:1", "count:2", "count:4", "count:8", "share:0.25", "share:0.5", "share:1.0")


def reveal_count(kappa_B: Tensor, n_B: Tensor) -> Tensor:
    """k = ceil(kappa * n), right for every kappa = k / n: the float product may overshoot k by a rounding error."""
    exact_B = kappa_B.double() * n_B.double()
    slack_B = 1e-6 * n_B.double()
    k_B = (exact_B - slack_B).ceil().long()
    return torch.minimum(k_B.clamp(min=0), n_B)


def fraction(k_B: Tensor | int, n_B: Tensor) -> Tensor:
    """The kappa that reveals k of n, all of them if k > n; 0 of 0 is 0."""
    k_B = n_B.clamp(max=k_B) if isinstance(k_B, int) else torch.minimum(k_B, n_B)
    return k_B.double() / n_B.clamp(min=1).double()


def reveal_set(chosen_BL: Tensor, eligible_BL: Tensor) -> tuple[Tensor, Tensor]:
    """(region, kappa) that reveal exactly the chosen set; where it is empty, nothing of the eligible ones."""
    any_B = chosen_BL.any(-1)
    return torch.where(any_B[:, None], chosen_BL, eligible_BL), any_B.double()


def k_min(state: State) -> Tensor:
    """ceil(m_t / h_t): the smallest batch that still finishes within the horizon."""
    return _ceil_div(state.masked_BL.sum(-1), state.remaining_B)


def at_least(kappa_B: Tensor, k_B: Tensor, n_B: Tensor) -> Tensor:
    """The kappa that reveals what it did, and k of n at least."""
    return torch.maximum(kappa_B, fraction(k_B, n_B))


def llada_quota(masks_B: Tensor, steps_B: Tensor, step_B: Tensor) -> Tensor:
    """LLaDA's even split: floor(M / S), and one more in the first M mod S steps."""
    return masks_B // steps_B + (step_B < masks_B % steps_B).long()


def dream_count(masks_B: Tensor, steps_B: Tensor, step_B: Tensor, eps: float = 1e-3) -> Tensor:
    """Dream's linear time grid: int(M (1 - s/t)), everything at the last step. float32, as the authors compute it."""
    kept_B = dream_keep(steps_B, step_B, eps)
    count_B = (masks_B.float() * (1 - kept_B)).long()
    return torch.where(step_B >= steps_B - 1, masks_B, count_B)


def dream_keep(steps_B: Tensor, step_B: Tensor, eps: float = 1e-3) -> Tensor:
    """s/t of Dream's grid: the probability that a mask survives the step."""
    i_B = torch.minimum(step_B, steps_B - 1)
    return _grid(i_B + 1, steps_B, eps) / _grid(i_B, steps_B, eps)


def _grid(i_B: Tensor, steps_B: Tensor, eps: float) -> Tensor:
    """Entry i of torch.linspace(1, eps, steps + 1), bit for bit: filled from both ends, one rounding per entry."""
    end = torch.full((), eps, dtype=torch.float32, device=steps_B.device)
    stride_B = ((end - 1) / steps_B.float()).double()
    from_left_B = 1 + stride_B * i_B
    from_right_B = end.double() - stride_B * (steps_B - i_B)
    return torch.where(i_B < (steps_B + 1) // 2, from_left_B, from_right_B).float()


def linear_share(masks_B: Tensor, left_B: Tensor, steps_B: Tensor) -> Tensor:
    """Info-Gain's schedule: round(masks * (1 - s/t)), halves to even, at least 1; s and t are times after and before.

    Exactly that would be masks / left. The authors take the ratio of two float32 times and multiply in float64, which
    puts some halves on one side and some on the other: 4 masks in 3 steps go 1, 1, 2. Tokens follow, so we do the same.
    """
    left_B = left_B.clamp(min=1)
    before_B, after_B = (_noised(n_B / steps_B.double()) for n_B in (left_B, left_B - 1))
    ratio_B = (after_B / before_B).double()
    return (masks_B.double() * (1 - ratio_B)).round().long().clamp(min=1)


def _noised(time_B: Tensor) -> Tensor:
    """1 - alpha(t) of the linear schedule alpha(t) = 1 - t, rounded where the authors' float32 is."""
    return 1 - (1 - time_B.float())


def above(score_BL: Tensor, threshold: float, region_BL: Tensor) -> Tensor:
    """How many eligible positions pass a threshold; at least one, or unsure positions would never finish."""
    return ((score_BL >= threshold) & region_BL).sum(-1).clamp(min=1)


def factor_count(score_BL: Tensor, factor: float, region_BL: Tensor, *, authors_tail: bool = False) -> Tensor:
    """Fast-dLLM's factor rule: rank r >= 2 needs a score of 1 - f / (r + 1), up to the first failure; rank 1 is free.

    The authors' function accepts one more where the scan ends on the last candidate, passed or failed: `authors_tail`.
    """
    n_B = region_BL.sum(-1)
    sorted_BL = torch.where(region_BL, score_BL.double(), float("-inf")).sort(-1, descending=True).values
    rank_L = torch.arange(1, sorted_BL.shape[1] + 1, device=sorted_BL.device)
    passes_BL = (sorted_BL >= 1 - factor / (rank_L + 1)) | (rank_L == 1)
    k_B = torch.minimum(passes_BL.long().cumprod(-1).sum(-1), n_B)
    if not authors_tail:
        return k_B
    return torch.where(k_B == n_B - 1, n_B, k_B)


def entropy_budget(order_BL: Tensor, entropy_BL: Tensor, region_BL: Tensor, budget: float) -> Tensor:
    """EB-Sampler: the longest prefix, best score first, whose entropies sum to at most their maximum plus the budget.

    The difference bounds what drawing the prefix independently loses (in nats); one position is always within it.
    """
    key_BL = torch.where(region_BL, order_BL.double(), float("-inf"))
    place_BL = key_BL.sort(dim=-1, descending=True, stable=True).indices
    entropy_BL = torch.where(region_BL, entropy_BL.double(), 0.0).gather(1, place_BL)
    bound_BL = entropy_BL.cumsum(-1) - entropy_BL.cummax(-1).values
    rank_L = torch.arange(bound_BL.shape[1], device=bound_BL.device)
    # A sum of non-negative numbers that is rounded may still fall by an ulp; the prefix is what counts.
    within_BL = (bound_BL <= budget) | (rank_L == 0)
    return torch.minimum(within_BL.long().cumprod(-1).sum(-1), region_BL.sum(-1))


def _ceil_div(a_B: Tensor, b_B: Tensor) -> Tensor:
    return -(-a_B // b_B)


RULES = ("schedule", "quota", "count", "share", "above", "factor", "eb", "all")
_PLAIN = ("schedule", "quota", "all")
_BOUNDED = ("schedule", "quota", "count", "share")
BELOW = "below"
"""What a count ends in that may fall below k_min."""


@dataclass(frozen=True)
class Cardinality:
    """A named count rule.

    By the steps: "schedule" (k_min), "quota" (LLaDA's even split), "count:4", "share:0.25". By what the model says, as
    long as it takes: "above:0.9" (confidence), "factor:1" (Fast-dLLM), "eb:0.1" (EB-Sampler's budget in nats), "all".

    Where steps bound a decoder, no rule reveals fewer than k_min = ceil(m_t / h_t): "count:1" is max(1, k_min), or the
    last step would have to reveal what the others left. "count:1:below" is the bare count.
    """

    rule: str
    value: float = 0.0
    below: bool = False
    """Whether it may fall below k_min before the last step."""

    @classmethod
    def parse(cls, text: str | float | int, name: str = "kappa") -> "Cardinality":
        """A number alone is kappa itself; `name` is what messages call the setting."""
        alone = _number(text) if isinstance(text, str) else None
        text = text if alone is None else alone
        if isinstance(text, int | float):
            require(0 <= text <= 1, name, text, "a share in [0, 1]", "e.g. 0.5 reveals half of the region")
            return cls("share", float(text))
        text, bare, below = text.partition(f":{BELOW}")
        rule, _, raw = text.partition(":")
        if rule not in RULES:
            raise UnknownName("cardinality", rule, RULES)
        ok = not bare or (rule not in _PLAIN and raw != "" and not below)
        require(ok, name, text + bare + below, f"'{BELOW}' once, after a value", f"e.g. 'count:4:{BELOW}'")
        if rule in _PLAIN:
            require(not raw, name, text, f"'{rule}'", "this rule takes no value")
            return cls(rule)
        value = _number(raw)
        if rule == "count":
            ok = value is not None and 1 <= value <= 1e6 and value.is_integer()
            require(ok, name, text, "'count:K', K a whole number from 1 to 1000000", "e.g. 'count:4'")
        elif rule in ("factor", "eb"):
            # An infinite budget is all at once; an infinite factor would be the same by a detour.
            ok = value is not None and value >= 0 and (rule == "eb" or value < float("inf"))
            require(ok, name, text, f"'{rule}:X', X 0 or more", f"e.g. '{rule}:{1 if rule == 'factor' else 0.1}'")
        else:
            ok = value is not None and 0 <= value <= 1
            require(ok, name, text, f"'{rule}:X', X in [0, 1]", f"e.g. '{rule}:0.5'")
        return cls(rule, value or 0.0, below=bool(bare))

    @property
    def bounded(self) -> bool:
        """Whether the rule goes by the steps; the others go on until nothing is left."""
        return self.rule in _BOUNDED

    @property
    def spends(self) -> bool:
        """Whether the count depends on the order in which positions are revealed."""
        return self.rule == "eb"

    def __call__(
        self, state: State, prediction: Prediction, region_BL: Tensor, order_BL: Tensor | None = None
    ) -> Tensor:
        """kappa_B over the given region; a budget is spent along `order_BL`, what positions are revealed by."""
        n_B = region_BL.sum(-1)
        if self.rule in ("share", "all"):
            return torch.full_like(n_B, self.value if self.rule == "share" else 1.0, dtype=torch.float64)
        return fraction(self._count(state, prediction, region_BL, order_BL), n_B)

    def within_steps(
        self, state: State, prediction: Prediction, region_BL: Tensor, order_BL: Tensor | None = None
    ) -> Tensor:
        """The same for a decoder that has its steps and no more: k_min at least, and at the last step all of it."""
        kappa_B = self(state, prediction, region_BL, order_BL)
        finishing_B = at_least(kappa_B, k_min(state), region_BL.sum(-1))
        return torch.where(state.remaining_B == 1, finishing_B, kappa_B) if self.below else finishing_B

    def _count(self, state: State, prediction: Prediction, region_BL: Tensor, order_BL: Tensor | None) -> Tensor | int:
        length = region_BL.shape[1]
        confidence_BL = prediction.confidence_BN[:, :length]
        if self.rule == "count":
            return int(self.value)
        if self.rule == "above":
            return above(confidence_BL, self.value, region_BL)
        if self.rule == "factor":
            return factor_count(confidence_BL, self.value, region_BL)
        if self.rule == "eb":
            entropy_BL = prediction.clean.entropy_BN[:, :length]
            return entropy_budget(-entropy_BL if order_BL is None else order_BL, entropy_BL, region_BL, self.value)
        if self.rule == "quota":
            return llada_quota(state.answer_BL.sum(-1), state.horizon_B, state.step_B)
        return k_min(state)

    @property
    def described(self) -> dict[str, Any]:
        """The rule, its value, and whether it goes by the steps."""
        names = {"eb": "gamma", "above": "threshold"}
        value = {} if self.rule in _PLAIN else {names.get(self.rule, self.rule): self.value}
        below = {"below": True} if self.below else {}
        return {"rule": self.rule, **value, "within_steps": self.bounded, **below}

    def __str__(self) -> str:
        if self.rule in _PLAIN:
            return self.rule
        value = int(self.value) if self.rule == "count" else self.value
        return f"{self.rule}:{value}" + f":{BELOW}" * self.below


def below(name: str) -> str:
    """The name of the same rule without the floor of k_min; of one that has no value of its own, the name it has."""
    rule = "share" if _number(name) is not None else name.partition(":")[0]
    bare = rule in _PLAIN or rule not in RULES or name.endswith(f":{BELOW}")
    return name if bare else f"{Cardinality.parse(name)}:{BELOW}"


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def distance(state: State, one: Action, other: Action, revealed_BL: Tensor) -> Tensor:
    """Of the numbers of positions revealed."""
    return (_count(state, one) - _count(state, other)).abs().double()


def _count(state: State, action: Action) -> Tensor:
    return reveal_count(action.kappa_B, (action.region_BL & state.masked_BL).sum(-1))
