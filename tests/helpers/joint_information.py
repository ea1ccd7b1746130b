"""Information and losses of an enumerable joint distribution, in nats: oracles of the cardinality theorem."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from unmask.models import JointDistribution


@dataclass(frozen=True)
class Information:
    """Entropies of the variables of a joint, conditional on evidence: observed tokens by variable."""

    joint: JointDistribution

    def conditional(self, evidence) -> np.ndarray:
        """P(X_free | evidence), one axis per variable that is not observed."""
        table = self.joint.p[tuple(evidence.get(i, slice(None)) for i in range(self.joint.n))]
        return np.asarray(table / table.sum())

    def free(self, evidence) -> list[int]:
        return [i for i in range(self.joint.n) if i not in evidence]

    def entropy(self, variables: Iterable[int], given: Iterable[int] = (), evidence=None) -> float:
        """H(X_A | X_G, evidence), averaged over the given variables; observed variables carry none."""
        given, evidence = frozenset(given), evidence or {}

        def joint_entropy(kept: frozenset[int]) -> float:
            dropped = tuple(axis for axis, i in enumerate(self.free(evidence)) if i not in kept)
            marginal = self.conditional(evidence).sum(dropped)
            return float(-(marginal * np.log(marginal)).sum())

        return joint_entropy(given.union(variables)) - joint_entropy(given)

    def mutual_information(self, left, right, given=(), evidence=None) -> float:
        """I(X_A; X_B | X_G, evidence), averaged over the given variables."""
        left, right = frozenset(left), frozenset(right)
        parts = self.entropy(left, given, evidence) + self.entropy(right, given, evidence)
        return parts - self.entropy(left | right, given, evidence)

    def total_correlation(self, variables, given=(), evidence=None) -> float:
        """TC(X_A | X_G, evidence): the loss of factorising one batch (`thm:cardinality_regime`)."""
        variables = frozenset(variables)
        parts = sum(self.entropy((i,), given, evidence) for i in sorted(variables))
        return parts - self.entropy(variables, given, evidence)

    def factorised(self, batches, evidence=None) -> np.ndarray:
        """Q_S: each batch drawn as a product of conditionals given the evidence and the earlier batches."""
        free = self.free(evidence or {})
        assert sorted(i for batch in batches for i in batch) == free, "batches partition the free variables"
        table = self.conditional(evidence or {})
        axis_of = {i: axis for axis, i in enumerate(free)}
        q, seen = np.ones_like(table), set()
        for batch in batches:
            for axis in (axis_of[i] for i in batch):
                others = tuple(a for a in range(table.ndim) if a != axis and a not in seen)
                with_context = table.sum(others, keepdims=True)
                q = q * (with_context / with_context.sum(axis, keepdims=True))
            seen.update(axis_of[i] for i in batch)
        return q

    def schedule_loss(self, batches, evidence=None) -> float:
        """L(S) = KL(P || Q_S) by enumerating both tables: the loss averages over true sequences.

        It does not go through total correlation, so `eq:cardinality_tc_decomposition` stays something to test.
        """
        p, q = self.conditional(evidence or {}), self.factorised(batches, evidence)
        return float((p * (np.log(p) - np.log(q))).sum())
