"""The commitment axis: which newly revealed positions become final."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unmask.axes.remasking import VARIANTS, ReMDM
from unmask.axes.rules import Rule, RuleNumber, parse_rule
from unmask.base.errors import UnknownName, require
from unmask.core import Action, Prediction, State

CANDIDATES = ("all", "none", "confidence:0.9", "margin:0.5")


_THRESHOLD = RuleNumber("threshold", "X", "X in [0, 1]", 0.9)
TABLE: dict[str, Rule] = {
    "all": Rule(lambda state, prediction: torch.ones_like(state.fixed_BL)),
    "none": Rule(lambda state, prediction: torch.zeros_like(state.fixed_BL)),
    # A prediction may have more slots than the canvas has positions.
    "confidence": Rule(
        lambda state, prediction, threshold: prediction.confidence_BN[:, : state.fixed_BL.shape[1]] >= threshold,
        (_THRESHOLD,),
    ),
    "margin": Rule(
        lambda state, prediction, threshold: prediction.clean.margin_BN[:, : state.fixed_BL.shape[1]] >= threshold,
        (_THRESHOLD,),
    ),
}
"""Name of a rule -> which positions it commits; "confidence" and "margin" compare the sampled token's probability and
the difference of the two largest probabilities with a threshold."""
REMDM = tuple(f"remdm-{variant}" for variant in VARIANTS)


@dataclass(frozen=True)
class Commitment:
    """A commitment rule by its text: "all", "none", "confidence:0.9", "margin:0.5"."""

    rule: str
    thresholds: tuple[float, ...] = ()

    @classmethod
    def parse(cls, text: str, setting: str = "commit") -> "Commitment":
        rule, thresholds = parse_rule(text, TABLE, "commitment", setting)
        return cls(rule, tuple(thresholds))

    def __call__(self, state: State, prediction: Prediction) -> Tensor:
        return TABLE[self.rule].function(state, prediction, *self.thresholds)

    def __str__(self) -> str:
        return ":".join((self.rule, *(f"{threshold:g}" for threshold in self.thresholds)))


def parse_commitment(text: str) -> tuple[Commitment, ReMDM | None]:
    """Parse a rule, a remasking operator ("remdm-conf", "remdm-cap:0.02"), or both ("confidence:0.9+remdm-conf").

    With an operator alone nothing is committed.
    """
    parts = text.split("+")
    operators = [part for part in parts if part.startswith("remdm")]
    plain = [part for part in parts if not part.startswith("remdm")] or ["none"]
    once = len(plain) == 1 and len(operators) <= 1
    require(once, "commitment", text, "one rule, one operator, or RULE+OPERATOR", "e.g. 'confidence:0.9+remdm-conf'")
    if plain[0].partition(":")[0] not in TABLE:
        raise UnknownName("commitment", plain[0].partition(":")[0], (*TABLE, *REMDM))
    rule = Commitment.parse(plain[0], "commitment")
    if not operators:
        return rule, None
    hint = "write 'none', a threshold, or the operator alone"
    require(rule.rule != "all", "commitment", text, "an operator where something is left revisable", hint)
    name, colon, raw = operators[0].partition(":")
    if name not in REMDM:
        raise UnknownName("commitment", name, (*TABLE, *REMDM))
    eta = RuleNumber("eta", "ETA", "ETA in [0, 1]", 0.02).read(raw) if colon else None
    allowed, hint = f"'{name}:ETA', ETA in [0, 1]", f"e.g. '{name}' for the published one"
    require(not colon or eta is not None, "commitment", operators[0], allowed, hint)
    return rule, ReMDM(name.removeprefix("remdm-"), eta)


def describe_commitment(rule: Commitment, operator: ReMDM | None) -> dict[str, Any]:
    """Return rule and remasking operator as JSON values, for listings."""
    thresholds = dict(zip(("threshold",), rule.thresholds, strict=False))
    if operator is None:
        return {"rule": rule.rule, **thresholds, "operator": None}
    return {"rule": rule.rule, **thresholds, "operator": f"remdm-{operator.variant}", "eta": operator.effective_eta}


def action_distance(state: State, one: Action, other: Action, revealed_BL: Tensor) -> Tensor:
    """Count the revealed positions that only one of the two actions commits."""
    return ((one.commit_BL ^ other.commit_BL) & revealed_BL).sum(-1).double()
