"""A joint distribution small enough to enumerate: the ground truth behind the toy denoiser.

Every quantity a masked diffusion model only approximates (conditionals, mutual information, the loss of
revealing in parallel) is exact here, so the theorems can be tested as identities. NumPy only, float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unmask.base.errors import UnknownName, require

Array = NDArray[np.float64]
Evidence = Mapping[int, int]

MAX_ENTRIES = 2**22
NO_EVIDENCE: Evidence = MappingProxyType({})
# Entropies of an enumerated table cancel to about 1e-15; information below this is rounding, not dependence.
INFORMATION_FLOOR = 1e-12

EDGES: Mapping[str, Callable[[int], list[tuple[int, int]]]] = MappingProxyType(
    {
        "dense": lambda n: [(i, j) for i in range(n) for j in range(i + 1, n)],
        "chain": lambda n: [(i, i + 1) for i in range(n - 1)],
        "pairs": lambda n: [(i, i + 1) for i in range(0, n - 1, 2)],
        "far": lambda n: [(i, i + n // 2) for i in range(n - n // 2) if n > 1],
    }
)


class Mode(NamedTuple):
    """The most probable completion and its probability given the evidence."""

    tokens: tuple[int, ...]
    prob: float


@dataclass(frozen=True, eq=False)
class JointDistribution:
    """A strictly positive table `p` of shape (V,) * n; `p[x]` is the probability of the sequence x.

    Evidence maps a variable to its observed token. Information is in nats.
    """

    p: Array

    def __post_init__(self) -> None:
        p = np.array(self.p, dtype=np.float64, order="C")
        require(len(set(p.shape)) == 1, "the shape of p", p.shape, "(V,) * n", "use one axis a variable")
        _check_size(p.ndim, p.shape[0])
        require(bool((p > 0).all()), "the smallest entry of p", float(p.min()), "> 0", "lower the dependence")
        require(abs(p.sum() - 1) <= 1e-9, "the sum of p", float(p.sum()), "1", "divide p by its sum")
        p.setflags(write=False)
        object.__setattr__(self, "p", p)

    @classmethod
    def random(cls, n: int, vocab: int, *, dependence: float, seed: int, structure: str = "dense") -> JointDistribution:
        """Draw log p = unary Gaussian terms + dependence * Gaussian couplings on the structure's edges.

        The draws do not depend on `dependence` or `structure`, so a sweep over either varies nothing else.
        Dense couplings shrink by 1/sqrt(n-1), which keeps their sum at each variable on one scale.
        """
        _check_size(n, vocab)
        require(0 <= dependence <= 1e6, "dependence", dependence, "0 to 1e6, finite and >= 0", "use 0 for independence")
        if structure not in EDGES:
            raise UnknownName("structure", structure, EDGES)
        rng = np.random.default_rng(seed)
        unary_nV = rng.standard_normal((n, vocab))
        pairwise = {edge: rng.standard_normal((vocab, vocab)) for edge in EDGES["dense"](n)}
        scale = dependence / sqrt(max(n - 1, 1)) if structure == "dense" else dependence
        logits = np.zeros((vocab,) * n)
        for i in range(n):
            logits += unary_nV[i].reshape(_axes_shape(n, vocab, i))
        for i, j in EDGES[structure](n):
            logits += scale * pairwise[i, j].reshape(_axes_shape(n, vocab, i, j))
        p = np.exp(logits - logits.max())
        return cls(p / p.sum())

    @property
    def n(self) -> int:
        return self.p.ndim

    @property
    def vocab(self) -> int:
        return self.p.shape[0]

    def prob(self, x: Sequence[int]) -> float:
        """The probability of one whole sequence."""
        require(len(x) == self.n, "the length of x", len(x), f"{self.n}", "pass one token a variable")
        evidence = self._checked(dict(enumerate(x)))
        return float(self.p[tuple(evidence[i] for i in range(self.n))])

    def log_prob(self, x: Sequence[int]) -> float:
        """The log-probability of one whole sequence."""
        return log(self.prob(x))

    def marginals(self, evidence: Evidence) -> Array:
        """Row i is P(X_i | all evidence except on i itself), shape (n, V).

        Leaving a variable's own token out gives visible variables an informative row too, which is what
        revision needs. Visible axes are sliced away first, then leading axes are summed away one by one, so
        the cost is about two passes over the table that is left.
        """
        evidence = self._checked(evidence)
        rows_nV = np.empty((self.n, self.vocab))
        table = np.ascontiguousarray(self.p[self._index(evidence)])
        for i in self._free(evidence):
            table = table.reshape(self.vocab, -1)
            rows_nV[i] = table.sum(1)
            table = table.sum(0)
        for i in evidence:
            rows_nV[i] = self._table((i,), evidence)
        return rows_nV / rows_nV.sum(1, keepdims=True)

    def prefix(self, m: int) -> JointDistribution:
        """The marginal of the first m variables."""
        require(1 <= m <= self.n, "m", m, f"1..{self.n}", "keep at least one variable")
        return JointDistribution(self.p.sum(tuple(range(m, self.n))))

    def entropy(self, variables: Iterable[int], given: Iterable[int] = (), evidence: Evidence = NO_EVIDENCE) -> float:
        """H(X_A | X_G, evidence), averaged over the given variables; observed variables carry none."""
        given = frozenset(given)
        return self._entropy(given.union(variables), evidence) - self._entropy(given, evidence)

    def mutual_information(
        self,
        left: Iterable[int],
        right: Iterable[int],
        given: Iterable[int] = (),
        evidence: Evidence = NO_EVIDENCE,
    ) -> float:
        """I(X_A; X_B | X_G, evidence), averaged over the given variables."""
        left, right, given = frozenset(left), frozenset(right), frozenset(given)
        parts = self.entropy(left, given, evidence) + self.entropy(right, given, evidence)
        return parts - self.entropy(left | right, given, evidence)

    def total_correlation(
        self, variables: Iterable[int], given: Iterable[int] = (), evidence: Evidence = NO_EVIDENCE
    ) -> float:
        """TC(X_A | X_G, evidence): what factorising one batch throws away (`thm:cardinality_regime`)."""
        variables, given = frozenset(variables), frozenset(given)
        parts = sum(self.entropy((i,), given, evidence) for i in sorted(variables))
        return parts - self.entropy(variables, given, evidence)

    def coupling(self, evidence: Evidence) -> Array:
        """Entry [j, i] is I(X_j; X_i | all evidence except on i and j), each row scaled to sum to 1.

        It stands in for the attention from query j to key i: zero on the diagonal, and uniform over the
        others where j depends on nothing.
        """
        evidence = self._checked(evidence)
        if self.n == 1:
            return np.zeros((1, 1))
        pairs = EDGES["dense"](self.n)
        information_P = _pair_information(np.stack([self._table(pair, evidence) for pair in pairs]))
        weight_nn = np.zeros((self.n, self.n))
        for (i, j), information in zip(pairs, information_P, strict=True):
            weight_nn[i, j] = weight_nn[j, i] = information if information > INFORMATION_FLOOR else 0.0
        total_n1 = weight_nn.sum(1, keepdims=True)
        uniform_nn = (1 - np.eye(self.n)) / (self.n - 1)
        return np.where(total_n1 > 0, weight_nn / np.where(total_n1 > 0, total_n1, 1), uniform_nn)

    def mode(self, evidence: Evidence) -> Mode:
        """The most probable completion; among ties the lexicographically smallest."""
        evidence = self._checked(evidence)
        table = self._conditional(evidence)
        best = np.unravel_index(int(table.argmax()), table.shape)
        value_of = dict(zip(self._free(evidence), best, strict=True)) | dict(evidence)
        return Mode(tuple(int(value_of[i]) for i in range(self.n)), float(table[best]))

    def factorised(self, batches: Iterable[Iterable[int]], evidence: Evidence = NO_EVIDENCE) -> Array:
        """Q_S: each batch drawn as a product of conditionals given the evidence and the earlier batches.

        One axis per unresolved variable, in ascending order; the batches must partition those variables
        (`thm:cardinality_regime`).
        """
        evidence = self._checked(evidence)
        free = self._free(evidence)
        schedule = [tuple(batch) for batch in batches]
        held = sorted(i for batch in schedule for i in batch)
        require(held == free, "batches", schedule, f"a partition of {free}", "place each variable once")
        table = self._conditional(evidence)
        axis_of = {i: axis for axis, i in enumerate(free)}
        q = np.ones_like(table)
        seen: set[int] = set()
        for batch in schedule:
            for axis in (axis_of[i] for i in batch):
                others = tuple(a for a in range(table.ndim) if a != axis and a not in seen)
                with_context = table.sum(others, keepdims=True)
                q = q * (with_context / with_context.sum(axis, keepdims=True))
            seen.update(axis_of[i] for i in batch)
        return q

    def schedule_loss(self, batches: Iterable[Iterable[int]], evidence: Evidence = NO_EVIDENCE) -> float:
        """L(S) = KL(P || Q_S) by enumerating both tables.

        P comes first: the loss averages over true sequences. It is not computed through total correlation,
        so `eq:cardinality_tc_decomposition` stays something to test.
        """
        q = self.factorised(batches, evidence)
        p = self._conditional(self._checked(evidence))
        return float((p * (np.log(p) - np.log(q))).sum())

    def sample(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        """Draw `size` whole sequences, shape (size, n), by inverting the cumulative table."""
        cumulative = self.p.ravel().cumsum()
        drawn = np.searchsorted(cumulative, rng.random(size) * cumulative[-1], side="right")
        # Rounding in the product above may reach the last edge, which is no cell.
        cells = np.unravel_index(np.minimum(drawn, cumulative.size - 1), self.p.shape)
        return np.stack(cells, axis=-1).astype(np.int64)

    def _checked(self, evidence: Evidence) -> Evidence:
        for i, token in evidence.items():
            require(0 <= i < self.n, "an evidence variable", i, f"0..{self.n - 1}", "drop it")
            require(0 <= token < self.vocab, f"the token at {i}", token, f"0..{self.vocab - 1}", "drop masks")
        return evidence

    def _free(self, evidence: Evidence) -> list[int]:
        return [i for i in range(self.n) if i not in evidence]

    def _index(self, evidence: Evidence, skip: tuple[int, ...] = ()) -> tuple[int | slice, ...]:
        return tuple(evidence[i] if i in evidence and i not in skip else slice(None) for i in range(self.n))

    def _conditional(self, evidence: Evidence) -> Array:
        """P(X_free | evidence), one axis per free variable."""
        table = np.asarray(self.p[self._index(evidence)])
        return np.asarray(table / table.sum())

    def _table(self, kept: tuple[int, ...], evidence: Evidence) -> Array:
        """Unnormalised table over the `kept` variables given all evidence except on them."""
        open_axes = [i for i in range(self.n) if i not in evidence or i in kept]
        axes = [open_axes.index(i) for i in kept]
        front = np.moveaxis(self.p[self._index(evidence, skip=kept)], axes, range(len(kept)))
        shape = (self.vocab,) * len(kept)
        return np.asarray(front.reshape(self.vocab ** len(kept), -1).sum(1).reshape(shape))

    def _entropy(self, variables: frozenset[int], evidence: Evidence) -> float:
        known = variables.issubset(range(self.n))
        require(known, "variables", sorted(variables), f"0..{self.n - 1}", "drop those outside")
        evidence = self._checked(evidence)
        dropped = tuple(axis for axis, i in enumerate(self._free(evidence)) if i not in variables)
        marginal = self._conditional(evidence).sum(dropped)
        return float(-(marginal * np.log(marginal)).sum())


def _check_size(n: int, vocab: int) -> None:
    require(n >= 1, "n", n, ">= 1", "use at least one variable")
    require(vocab >= 2, "vocab", vocab, ">= 2", "use at least two tokens")
    # Compared in logs: the exact power of a mistyped n would itself be slow to compute.
    fits = n * log(vocab) <= log(MAX_ENTRIES) + 1e-9
    require(fits, "the table size", f"{vocab}**{n}", f"<= {MAX_ENTRIES} entries", "lower n or vocab")


def _axes_shape(n: int, vocab: int, *axes: int) -> tuple[int, ...]:
    return tuple(vocab if axis in axes else 1 for axis in range(n))


def _pair_information(table_PVV: Array) -> Array:
    joint_PVV = table_PVV / table_PVV.sum((1, 2), keepdims=True)
    product_PVV = joint_PVV.sum(1, keepdims=True) * joint_PVV.sum(2, keepdims=True)
    return np.asarray((joint_PVV * np.log(joint_PVV / product_PVV)).sum((1, 2)))
