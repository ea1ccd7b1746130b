"""The score axis: which masked positions are revealed first. Five scoring rules in [0, 1] and their mixtures."""

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
"""Orders that are no mixture of the scoring rules: lowest entropy first (EB-Sampler), and random."""


def confidence(prediction: Prediction) -> Tensor:
    """Return the probability of the sampled token, before temperature and filters."""
    return prediction.confidence_BN


def margin(prediction: Prediction) -> Tensor:
    """Return the difference of the two largest probabilities, before temperature and filters."""
    return prediction.clean.margin_BN


def certainty(prediction: Prediction) -> Tensor:
    """Return one minus the entropy as a share of its maximum, ln V."""
    return (1 - prediction.clean.entropy_BN / math.log(prediction.vocab)).clamp(0, 1)


def stability(prediction: Prediction) -> Tensor:
    """Return exp(-KL(p_t || p_{t-1})), new posterior first; the confidence if there is no previous posterior."""
    if prediction.drift_BN is None:
        return torch.full_like(prediction.confidence_BN, float("nan"))
    # NaN marks positions that were not masked a step ago, and so have no previous posterior.
    known_BN = ~prediction.drift_BN.isnan()
    return torch.where(known_BN, (-prediction.drift_BN).exp(), prediction.confidence_BN)


def dependency(prediction: Prediction) -> Tensor:
    """Return the share of a position's attention that is on visible tokens."""
    if prediction.visible_BN is None:
        return torch.full_like(prediction.confidence_BN, float("nan"))
    return prediction.visible_BN.clamp(0, 1)


_FUNCTIONS = dict(zip(RULES, (confidence, margin, certainty, stability, dependency), strict=True))


def score_all_rules(prediction: Prediction, length: int) -> Tensor:
    """Return the score of every position under every rule; 0 where nothing was predicted.

    A rule whose input was not computed is NaN. Cached in the prediction, because diagnostics and `apply` need the same
    scores.
    """
    kept: dict[int, Tensor] = prediction.__dict__.setdefault("landscapes", {})
    if length not in kept:
        kept[length] = torch.stack([_score_on_canvas(rule, prediction, length) for rule in RULES], -1)
    return kept[length]


def _score_on_canvas(rule: str, prediction: Prediction, length: int) -> Tensor:
    # In float64: scores that differ in float32 must not become equal when a mixture is rounded.
    score_BL = _FUNCTIONS[rule](prediction)[:, :length].double()
    # A rule whose input was not computed is NaN even at unwanted slots, so that `apply` can tell.
    return torch.where(prediction.wanted_BN[:, :length] | score_BL.isnan(), score_BL, 0.0)


def mix(alpha_BJ: Tensor, score_BLJ: Tensor) -> Tensor:
    """Return the mixture s = sum_j alpha_j s^(j) of the rules. A rule with weight 0 is ignored, even if it is NaN."""
    weight_B1J = alpha_BJ[:, None, :]
    # A plain product would be NaN for a rule that was not computed, because 0 * NaN is NaN.
    terms_BLJ = torch.where(weight_B1J == 0, torch.zeros_like(score_BLJ), weight_B1J * score_BLJ)
    return terms_BLJ.sum(-1)


def order(alpha_BJ: Tensor, prediction: Prediction, length: int, rule: str | None = None) -> Tensor:
    """Return the score of each canvas position under a mixture.

    `rule` names the only rule with any weight, if the caller knows it. The others are then not computed, and the bits
    are the same, because adding zeros changes nothing.
    """
    return (
        mix(alpha_BJ, score_all_rules(prediction, length))
        if rule is None
        else _score_on_canvas(rule, prediction, length)
    )


def best(score_BL: Tensor, eligible_BL: Tensor, k_B: Tensor) -> Tensor:
    """Return the k eligible positions with the highest scores; of equal scores the lower position first."""
    # NaN would be sorted first. At -1 it comes after every score, and before positions that are not eligible.
    key_BL = torch.where(eligible_BL, score_BL.nan_to_num(-1.0), float("-inf"))
    # A stable sort, because `topk` and other sorts order equal scores differently on different devices.
    order_BL = key_BL.sort(dim=-1, descending=True, stable=True).indices
    rank_L = torch.arange(order_BL.shape[1], device=order_BL.device)
    # The inverse permutation: the place of each position in the order.
    place_BL = torch.empty_like(order_BL).scatter_(1, order_BL, rank_L.expand_as(order_BL))
    return eligible_BL & (place_BL < k_B[:, None])


def weights(mixture: Mixture) -> list[float]:
    """Return the J weights of a mixture; refuse weights that are negative or do not sum to 1."""
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
    """Parse a sum of rules, such as "0.7*confidence+0.3*margin"; without numbers all weights are equal."""
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
    """Return the one rule with a weight, for `Action.rule`; None if several rules have one."""
    alpha = weights(mixture)
    return RULES[alpha.index(1.0)] if sorted(alpha) == [0.0] * (len(RULES) - 1) + [1.0] else None


def describe_mixture(mixture: Mixture) -> dict[str, Any]:
    """Return a mixture as JSON values, for listings."""
    if isinstance(mixture, str) and mixture in (*RULES, *ORDERS):
        return {"rule": mixture}
    named = mixture if isinstance(mixture, str) else "mixture"
    return {"rule": named, "weights": {n: w for n, w in zip(RULES, weights(mixture), strict=True) if w}}


def alpha_rows(mixture: Mixture, state: State) -> Tensor:
    """Return the weights of a mixture as `alpha_BJ`, repeated for each row of a state."""
    return _weights_on_device(tuple(weights(mixture)), state.tokens_BL.device).repeat(state.batch, 1)


@cache
def _weights_on_device(alpha: tuple[float, ...], device: torch.device) -> Tensor:
    """Return weights as a tensor. Cached: a copy to a GPU makes the host wait, and breaks CUDA graphs."""
    with torch.inference_mode(False):
        return torch.tensor(alpha, dtype=torch.float64, device=device)


def needs(mixture: Mixture) -> Needs:
    """Return the parts of a prediction that the rules of a mixture read."""
    by_name = dict(zip(RULES, weights(mixture), strict=True))
    return Needs(divergence=by_name["stability"] > 0, attention=by_name["dependency"] > 0)


def action_distance(state: State, one: Action, other: Action, revealed_BL: Tensor) -> Tensor:
    """Return the L1 distance between the mixture weights of two actions, for each row."""
    return (one.alpha_BJ.double() - other.alpha_BJ.double()).abs().sum(-1)
