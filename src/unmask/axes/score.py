"""Score: which masked positions come first. Five rules in [0, 1] and their mixtures."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from unmask.base.errors import UnknownName, require
from unmask.core import RULES, Action, Needs, Posterior, Prediction, State, Trajectory

CANDIDATES = ("confidence", "margin", "certainty", "stability", "dependency", "uniform")

Mixture = str | Mapping[str, float] | Sequence[float]
"""A rule's name, "uniform", rules with a plus ("confidence+margin", "0.7*confidence+0.3*margin"), weights by rule name,
or all J weights in the order of `RULES`."""

ORDERS = ("entropy", "random")
"""Orders that are no mixture of the rules: least entropy first (EB-Sampler's own), and by lot."""


def confidence(prediction: Prediction) -> Tensor:
    """p(proposed token); the largest probability at temperature 0."""
    return prediction.confidence_BN


def margin(prediction: Prediction) -> Tensor:
    """p1 - p2 of the clean posterior."""
    return prediction.clean.margin_BN


def certainty(prediction: Prediction) -> Tensor:
    """1 - H / ln V."""
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


_BY_NAME = {
    "confidence": confidence,
    "margin": margin,
    "certainty": certainty,
    "stability": stability,
    "dependency": dependency,
}


def landscape(prediction: Prediction, length: int) -> Tensor:
    """All rules on the canvas, s_BLJ: 0 at slots nobody asked about, NaN for a rule whose ingredient was not.

    Kept with the prediction, whose tensors are never written to: several diagnostics and `apply` ask for the same one.
    """
    kept: dict[int, Tensor] = prediction.__dict__.setdefault("landscapes", {})
    if length not in kept:
        score_BLJ = torch.stack([_BY_NAME[name](prediction)[:, :length].double() for name in RULES], -1)
        kept[length] = torch.where(prediction.wanted_BN[:, :length, None] | score_BLJ.isnan(), score_BLJ, 0.0)
    return kept[length]


def only_rule(alpha_BJ: Tensor) -> str | None:
    """The rule that `pure` made these weights of; None for any others, whatever they are: they are not looked at."""
    return _VERTICES.get(alpha_BJ.data_ptr())


def mix(alpha_BJ: Tensor, score_BLJ: Tensor) -> Tensor:
    """s = sum_j alpha_j s^(j). A rule of weight 0 contributes nothing, even where it is NaN."""
    weight_B1J = alpha_BJ[:, None, :]
    terms_BLJ = torch.where(weight_B1J == 0, torch.zeros_like(score_BLJ), weight_B1J * score_BLJ)
    return terms_BLJ.sum(-1)


def order(alpha_BJ: Tensor, prediction: Prediction, length: int) -> Tensor:
    """What the mixture orders the canvas by. Of a single rule the others are not computed: the same bits."""
    rule = only_rule(alpha_BJ)
    if rule is None:
        return mix(alpha_BJ, landscape(prediction, length))
    score_BL = _BY_NAME[rule](prediction)[:, :length].double()
    return torch.where(prediction.wanted_BN[:, :length] | score_BL.isnan(), score_BL, 0.0)


def best(score_BL: Tensor, eligible_BL: Tensor, k_B: Tensor) -> Tensor:
    """The k eligible positions of highest score; ties go to the lower position."""
    key_BL = torch.where(eligible_BL, score_BL.nan_to_num(-1.0), float("-inf"))
    order_BL = key_BL.sort(dim=-1, descending=True, stable=True).indices
    rank_L = torch.arange(order_BL.shape[1], device=order_BL.device)
    place_BL = torch.empty_like(order_BL).scatter_(1, order_BL, rank_L.expand_as(order_BL))
    return eligible_BL & (place_BL < k_B[:, None])


def noisy(traj: Trajectory, posterior: Posterior, temperature: float) -> tuple[Tensor, Tensor]:
    """Best token of z / temperature plus the step's Gumbel noise on every slot asked about, and its log p there."""
    known_BL = posterior.slot_BN[:, : traj.state.tokens_BL.shape[1]] >= 0
    row_R, position_R = known_BL.nonzero(as_tuple=True)
    log_p_RV = posterior.log_prob(posterior.slot_BN[row_R, position_R]).double()
    step_R = traj.state.step_B[row_R]
    uniform_RV = traj.noise.uniform_vocab(step_R, position_R, row_R, log_p_RV.shape[1], "token")
    best_R = (log_p_RV / temperature - uniform_RV.log().neg().log()).log_softmax(-1).max(-1)
    score_BL = torch.zeros(known_BL.shape, dtype=torch.float64, device=known_BL.device)
    token_BL = torch.zeros(known_BL.shape, dtype=torch.long, device=known_BL.device)
    score_BL[known_BL], token_BL[known_BL] = best_R.values, best_R.indices
    return token_BL, score_BL


def weights(mixture: Mixture) -> list[float]:
    """The J weights of a mixture, checked to lie on the simplex."""
    if isinstance(mixture, str):
        if mixture == "uniform":
            return [1 / len(RULES)] * len(RULES)
        mixture = _terms(mixture)
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


def described(mixture: Mixture) -> dict[str, Any]:
    """The rule of a composition, with the weights of a mixture."""
    if isinstance(mixture, str) and mixture in (*RULES, *ORDERS):
        return {"rule": mixture}
    named = mixture if isinstance(mixture, str) else "mixture"
    return {"rule": named, "weights": {n: w for n, w in zip(RULES, weights(mixture), strict=True) if w}}


def _terms(text: str) -> dict[str, float]:
    """The weights of a sum of rules; without any number all weigh the same."""
    terms = [term.strip() for term in text.split("+")]
    pairs = [("", term) if "*" not in term else tuple(map(str.strip, term.split("*", 1))) for term in terms]
    weighted = [weight for weight, _ in pairs if weight]
    todo = "e.g. 'confidence+margin' or '0.7*confidence+0.3*margin'"
    allowed = "rules with a plus between, a weight before each or none"
    require(len(weighted) in (0, len(pairs)), "score", text, allowed, todo)
    names = [name for _, name in pairs]
    require(len(set(names)) == len(names), "score", text, "every rule once", todo)
    try:
        return {name: float(weight) if weighted else 1 / len(pairs) for weight, name in pairs}
    except ValueError:
        require(False, "score", text, allowed, todo)
        raise


def pure(name: str, state: State) -> Tensor:
    """A vertex of the simplex for every row."""
    return rows(name, state)


def rows(mixture: Mixture, state: State) -> Tensor:
    """The mixture as alpha_BJ."""
    alpha = _of_text(mixture) if isinstance(mixture, str) else tuple(weights(mixture))
    return _on_device(alpha, state.tokens_BL.device).expand(state.batch, len(RULES))


@cache
def _of_text(mixture: str) -> tuple[float, ...]:
    """Read once, not in every step."""
    return tuple(weights(mixture))


@cache
def _on_device(alpha: tuple[float, ...], device: torch.device) -> Tensor:
    """Copied once: each copy makes the host wait, and none can be recorded. A policy's tensors are never written to."""
    with torch.inference_mode(False):
        made_J = torch.tensor(alpha, dtype=torch.float64, device=device)
    if sorted(alpha) == [0.0] * (len(RULES) - 1) + [1.0]:
        _VERTICES[made_J.data_ptr()] = RULES[alpha.index(1.0)]
    return made_J


_VERTICES: dict[int, str] = {}
"""Where the weights of single rules lie; they are kept, so that nothing else can lie there."""


def needs(mixture: Mixture) -> Needs:
    """What a policy with this mixture must ask of the denoiser."""
    by_name = dict(zip(RULES, weights(mixture), strict=True))
    return Needs(divergence=by_name["stability"] > 0, attention=by_name["dependency"] > 0)


def distance(state: State, one: Action, other: Action, revealed_BL: Tensor) -> Tensor:
    """Of the mixtures, summed over rules."""
    return (one.alpha_BJ.double() - other.alpha_BJ.double()).abs().sum(-1)
