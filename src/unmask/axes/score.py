"""Score: which masked positions come first. Five rules in [0, 1] and their mixtures."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from unmask.base.errors import UnknownName, require
from unmask.core import RULES, Action, Needs, Prediction, State

CANDIDATES = ("confidence", "margin", "certainty", "stability", "dependency", "uniform")

Mixture = str | Mapping[str, float] | Sequence[float]
"""The name of a rule, "uniform", a sum of rules ("confidence+margin", "0.7*confidence+0.3*margin"), weights by the
name of the rule, or all J weights in the order of `RULES`."""

ORDERS = ("entropy", "random")
"""Orders that are not a mixture of the rules: least entropy first (EB-Sampler's), and at random."""


def confidence(prediction: Prediction) -> Tensor:
    """Probability of the sampled token before temperature and filters; at temperature 0 it is the largest one."""
    return prediction.confidence_BN


def margin(prediction: Prediction) -> Tensor:
    """Difference of the two largest probabilities, before temperature and filters."""
    return prediction.clean.margin_BN


def certainty(prediction: Prediction) -> Tensor:
    """One minus the entropy as a share of its maximum, ln V."""
    return (1 - prediction.clean.entropy_BN / math.log(prediction.vocab)).clamp(0, 1)


def stability(prediction: Prediction) -> Tensor:
    """exp(-KL(p_t || p_{t-1})), new posterior first; confidence where there is no previous posterior."""
    if prediction.drift_BN is None:
        return torch.full_like(prediction.confidence_BN, float("nan"))
    known_BN = ~prediction.drift_BN.isnan()
    return torch.where(known_BN, (-prediction.drift_BN).exp(), prediction.confidence_BN)


def dependency(prediction: Prediction) -> Tensor:
    """Share of the position's attention that rests on visible tokens."""
    if prediction.visible_BN is None:
        return torch.full_like(prediction.confidence_BN, float("nan"))
    return prediction.visible_BN.clamp(0, 1)


_FUNCTIONS = dict(zip(RULES, (confidence, margin, certainty, stability, dependency), strict=True))


def landscape(prediction: Prediction, length: int) -> Tensor:
    """Scores of all rules on the canvas, s_BLJ: 0 at unwanted slots, NaN for a rule whose ingredient was not asked for.

    The result is kept with the prediction, because several diagnostics and `apply` ask for the same one. Tensors of a
    prediction are never written to, so it cannot become stale.
    """
    kept: dict[int, Tensor] = prediction.__dict__.setdefault("landscapes", {})
    if length not in kept:
        kept[length] = torch.stack([_score_on_canvas(rule, prediction, length) for rule in RULES], -1)
    return kept[length]


def _score_on_canvas(rule: str, prediction: Prediction, length: int) -> Tensor:
    # In float64: scores that differ in float32 must not become ties by the rounding of a mixture's sum.
    score_BL = _FUNCTIONS[rule](prediction)[:, :length].double()
    # A rule without its ingredient is NaN everywhere, unwanted slots included, so that `apply` finds it.
    return torch.where(prediction.wanted_BN[:, :length] | score_BL.isnan(), score_BL, 0.0)


def mix(alpha_BJ: Tensor, score_BLJ: Tensor) -> Tensor:
    """s = sum_j alpha_j s^(j). A rule of weight 0 contributes nothing, even where it is NaN."""
    weight_B1J = alpha_BJ[:, None, :]
    # Not a product alone: 0 * NaN is NaN, and a rule that was not computed is NaN.
    terms_BLJ = torch.where(weight_B1J == 0, torch.zeros_like(score_BLJ), weight_B1J * score_BLJ)
    return terms_BLJ.sum(-1)


def order(alpha_BJ: Tensor, prediction: Prediction, length: int, rule: str | None = None) -> Tensor:
    """Score of each canvas position under the mixture.

    `rule` names the only rule that has any weight, where the caller knows it: the other rules are then not computed.
    The bits are the same, because a sum with zeros changes nothing.
    """
    return mix(alpha_BJ, landscape(prediction, length)) if rule is None else _score_on_canvas(rule, prediction, length)


def best(score_BL: Tensor, eligible_BL: Tensor, k_B: Tensor) -> Tensor:
    """The k eligible positions of highest score; ties go to the lower position."""
    # Sorting puts NaN first; at -1 it comes behind every score, and before positions that may not be revealed.
    key_BL = torch.where(eligible_BL, score_BL.nan_to_num(-1.0), float("-inf"))
    # Stable, because `topk` and other sorts break ties differently from device to device.
    order_BL = key_BL.sort(dim=-1, descending=True, stable=True).indices
    rank_L = torch.arange(order_BL.shape[1], device=order_BL.device)
    place_BL = torch.empty_like(order_BL).scatter_(1, order_BL, rank_L.expand_as(order_BL))
    return eligible_BL & (place_BL < k_B[:, None])


def weights(mixture: Mixture) -> list[float]:
    """The J weights of a mixture, checked to lie on the simplex."""
    if isinstance(mixture, str):
        if mixture == "uniform":
            return [1 / len(RULES)] * len(RULES)
        mixture = _parse_sum(mixture)
    if isinstance(mixture, Mapping):
        for name in mixture:
            if name not in RULES:
                raise UnknownName("scoring rule", name, [*RULES, "uniform"])
        mixture = [float(mixture.get(name, 0.0)) for name in RULES]
    alpha = [float(w) for w in mixture]
    require(len(alpha) == len(RULES), "alpha", alpha, f"{len(RULES)} weights", f"order: {', '.join(RULES)}")
    on_simplex = min(alpha) >= 0 and abs(sum(alpha) - 1) < 1e-6
    require(on_simplex, "alpha", alpha, "weights >= 0 that sum to 1", "divide the weights by their sum")
    return alpha


def _parse_sum(text: str) -> dict[str, float]:
    """The weights of a sum of rules; without any number all weigh the same."""
    hint = "e.g. 'confidence+margin' or '0.7*confidence+0.3*margin'"
    terms = [term.strip().rpartition("*") for term in text.split("+")]
    names = [name.strip() for _, _, name in terms]
    numbers = [number.strip() for number, star, _ in terms if star]
    all_or_none = len(numbers) in (0, len(terms))
    require(all_or_none, "score", text, "rules with a plus between, a weight before each or none", hint)
    require(len(set(names)) == len(names), "score", text, "every rule once", hint)
    try:
        values = [float(number) for number in numbers] or [1 / len(names)] * len(names)
    except ValueError:
        require(False, "score", text, "rules with a plus between, a weight before each or none", hint)
        raise
    return dict(zip(names, values, strict=True))


def only_weighted_rule(mixture: Mixture) -> str | None:
    """Return the rule that has all the weight, for `Action.rule`; None if several rules have weight."""
    alpha = weights(mixture)
    return RULES[alpha.index(1.0)] if sorted(alpha) == [0.0] * (len(RULES) - 1) + [1.0] else None


def describe_mixture(mixture: Mixture) -> dict[str, Any]:
    """The rule of a composition, with the weights of a mixture."""
    if isinstance(mixture, str) and mixture in (*RULES, *ORDERS):
        return {"rule": mixture}
    named = mixture if isinstance(mixture, str) else "mixture"
    return {"rule": named, "weights": {n: w for n, w in zip(RULES, weights(mixture), strict=True) if w}}


def rows(mixture: Mixture, state: State) -> Tensor:
    """The mixture as alpha_BJ, one copy per row that the caller owns."""
    return _weights_on_device(tuple(weights(mixture)), state.tokens_BL.device).repeat(state.batch, 1)


@cache
def _weights_on_device(alpha: tuple[float, ...], device: torch.device) -> Tensor:
    """The weights as a tensor, copied once: each copy makes the host wait, and no CUDA graph can hold one."""
    with torch.inference_mode(False):
        return torch.tensor(alpha, dtype=torch.float64, device=device)


def needs(mixture: Mixture) -> Needs:
    """Ingredients that a policy with this mixture must ask of the denoiser."""
    by_name = dict(zip(RULES, weights(mixture), strict=True))
    return Needs(divergence=by_name["stability"] > 0, attention=by_name["dependency"] > 0)


def distance(state: State, one: Action, other: Action, revealed_BL: Tensor) -> Tensor:
    """Per-row L1 distance between mixture weights."""
    return (one.alpha_BJ.double() - other.alpha_BJ.double()).abs().sum(-1)
