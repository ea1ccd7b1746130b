"""Commitment: which newly revealed positions become final."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unmask.axes.revision import VARIANTS, ReMDM
from unmask.base.errors import UnknownName, require
from unmask.core import Action, Prediction, State

CANDIDATES = ("all", "none", "confidence:0.9", "margin:0.5")
RULES = ("all", "none", "confidence", "margin")


def everything(state: State) -> Tensor:
    return torch.ones_like(state.fixed_BL)


def nothing(state: State) -> Tensor:
    return torch.zeros_like(state.fixed_BL)


def by_confidence(state: State, prediction: Prediction, threshold: float) -> Tensor:
    return prediction.confidence_BN[:, : state.fixed_BL.shape[1]] >= threshold


def by_margin(state: State, prediction: Prediction, threshold: float) -> Tensor:
    return prediction.clean.margin_BN[:, : state.fixed_BL.shape[1]] >= threshold


@dataclass(frozen=True)
class Commitment:
    """A named rule: "all", "none", "confidence:0.9", "margin:0.5"."""

    rule: str
    threshold: float = 0.0

    @classmethod
    def parse(cls, text: str, name: str = "commit") -> "Commitment":
        rule, _, raw = text.partition(":")
        if rule in ("all", "none"):
            require(not raw, name, text, f"'{rule}'", "this rule takes no threshold")
            return cls(rule)
        if rule not in RULES:
            raise UnknownName("commitment", rule, RULES)
        try:
            threshold = float(raw)
        except ValueError:
            threshold = -1.0
        require(0 <= threshold <= 1, name, text, f"'{rule}:X', X in [0, 1]", f"e.g. '{rule}:0.9'")
        return cls(rule, threshold)

    def __call__(self, state: State, prediction: Prediction) -> Tensor:
        if self.rule == "all":
            return everything(state)
        if self.rule == "none":
            return nothing(state)
        rule = by_confidence if self.rule == "confidence" else by_margin
        return rule(state, prediction, self.threshold)

    def __str__(self) -> str:
        return self.rule if self.rule in ("all", "none") else f"{self.rule}:{self.threshold:g}"


def described(rule: Commitment, operator: ReMDM | None) -> dict[str, Any]:
    """What is final, and what may take the rest back."""
    threshold = {"threshold": rule.threshold} if rule.rule in ("confidence", "margin") else {}
    if operator is None:
        return {"rule": rule.rule, **threshold, "operator": None}
    return {"rule": rule.rule, **threshold, "operator": f"remdm-{operator.variant}", "eta": operator.rate}


REMDM = tuple(f"remdm-{variant}" for variant in VARIANTS)


def parse_revisable(text: str) -> tuple[Commitment, ReMDM | None]:
    """A rule, an operator that re-masks ("remdm-conf", "remdm-cap:0.02"), or both: "confidence:0.9+remdm-conf".

    An operator alone leaves everything revisable.
    """
    plain = [part for part in text.split("+") if not part.startswith("remdm")]
    operators = [part for part in text.split("+") if part.startswith("remdm")]
    once = len(plain) <= 1 and len(operators) <= 1
    require(once, "commitment", text, "one rule, one operator, or RULE+OPERATOR", "e.g. 'confidence:0.9+remdm-conf'")
    name = plain[0] if plain else "none"
    if name.partition(":")[0] not in RULES:
        raise UnknownName("commitment", name.partition(":")[0], (*RULES, *REMDM))
    rule = Commitment.parse(name, "commitment")
    if not operators:
        return rule, None
    todo = "write 'none', a threshold, or the operator alone"
    require(rule.rule != "all", "commitment", text, "an operator where something is left revisable", todo)
    return rule, _operator(operators[0])


def _operator(text: str) -> ReMDM:
    name, colon, raw = text.partition(":")
    if name not in REMDM:
        raise UnknownName("commitment", name, (*RULES, *REMDM))
    if not colon:
        return ReMDM(name.removeprefix("remdm-"))
    try:
        eta = float(raw)
    except ValueError:
        eta = -1.0
    require(0 <= eta <= 1, "commitment", text, f"'{name}:ETA', ETA in [0, 1]", f"e.g. '{name}' for the published one")
    return ReMDM(name.removeprefix("remdm-"), eta)


def distance(state: State, one: Action, other: Action, revealed_BL: Tensor) -> Tensor:
    """Revealed positions that only one of them commits."""
    return ((one.commit_BL ^ other.commit_BL) & revealed_BL).sum(-1).double()
