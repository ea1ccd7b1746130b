"""A joint distribution small enough to enumerate, and the denoiser whose posteriors are its true conditionals.

Everything that a masked diffusion model only approximates is exact here, so the theorems can be tested as identities.
All numbers are float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log, sqrt
from types import MappingProxyType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unmask.base.errors import DenoiserError, UnknownName, require
from unmask.core import ModelInput, ModelOutput, Needs, Vocabulary

Array = NDArray[np.float64]
Evidence = Mapping[int, int]
"""The observed token of each observed variable."""

MAX_ENTRIES = 2**22
INFORMATION_FLOOR = 1e-12
"""Mutual information below this is rounding, not dependence: entropies of a table cancel to about 1e-15."""
MEMO_LIMIT = 100_000
"""Number of results that an exact denoiser memoises before it clears its memo."""

EDGES: Mapping[str, Callable[[int], list[tuple[int, int]]]] = MappingProxyType(
    {
        "dense": lambda n: [(i, j) for i in range(n) for j in range(i + 1, n)],
        "chain": lambda n: [(i, i + 1) for i in range(n - 1)],
        "pairs": lambda n: [(i, i + 1) for i in range(0, n - 1, 2)],
        "far": lambda n: [(i, i + n // 2) for i in range(n - n // 2) if n > 1],
    }
)
"""Pairs of coupled variables among n variables, by the name of the structure."""


@dataclass(frozen=True, eq=False)
class JointDistribution:
    """A joint distribution of n tokens: a table `p` of shape (V,) * n with the probability of every sequence."""

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
        """Draw a random distribution: log p = unary Gaussian terms + dependence * Gaussian couplings on the edges.

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
        # In this order whatever the structure: float64 sums of another order would give other bits, and other models.
        logits = np.zeros((vocab,) * n)
        for i in range(n):
            logits += unary_nV[i].reshape([vocab if axis == i else 1 for axis in range(n)])
        for i, j in EDGES[structure](n):
            logits += scale * pairwise[i, j].reshape([vocab if axis in (i, j) else 1 for axis in range(n)])
        p = np.exp(logits - logits.max())
        return cls(p / p.sum())

    @property
    def n(self) -> int:
        """Number of variables, which is the length of a sequence."""
        return self.p.ndim

    @property
    def vocab(self) -> int:
        """Number of tokens that a variable can have."""
        return self.p.shape[0]

    def prob(self, x: Sequence[int]) -> float:
        """Return the probability of one whole sequence."""
        require(len(x) == self.n, "the length of x", len(x), f"{self.n}", "pass one token a variable")
        self._check_evidence(dict(enumerate(x)))
        return float(self.p[tuple(x)])

    def marginals(self, evidence: Evidence) -> Array:
        """Compute the conditional of every variable, P(X_i | evidence on the others), shape (n, V).

        Visible variables get an informative row too, because their own token is left out; revision needs that.
        Visible axes are sliced away first, then leading axes are summed away one by one, so the cost is about two
        passes over the table that is left.
        """
        self._check_evidence(evidence)
        rows_nV = np.empty((self.n, self.vocab))
        table = np.ascontiguousarray(self.p[self._evidence_index(evidence)])
        for i in range(self.n):
            if i in evidence:
                # Its own token is left out, so the sliced table, which holds it fixed, does not serve.
                rows_nV[i] = self._sum_out_others((i,), evidence)
            else:
                table = table.reshape(self.vocab, -1)
                rows_nV[i] = table.sum(1)
                table = table.sum(0)
        return rows_nV / rows_nV.sum(1, keepdims=True)

    def prefix(self, m: int) -> JointDistribution:
        """Return the joint distribution of the first m variables alone."""
        require(1 <= m <= self.n, "m", m, f"1..{self.n}", "keep at least one variable")
        return JointDistribution(self.p.sum(tuple(range(m, self.n))))

    def coupling(self, evidence: Evidence) -> Array:
        """Compute the mutual information of all pairs of variables given the evidence on the others, rows scaled to 1.

        It stands in for the attention from query j to key i: zero on the diagonal, and uniform over the others where
        j depends on nothing.
        """
        self._check_evidence(evidence)
        if self.n == 1:
            return np.zeros((1, 1))
        pairs = EDGES["dense"](self.n)
        # All pairs at once: one pass of NumPy instead of n * n / 2.
        information_P = _mutual_information(np.stack([self._sum_out_others(pair, evidence) for pair in pairs]))
        weight_nn = np.zeros((self.n, self.n))
        for (i, j), information in zip(pairs, information_P, strict=True):
            weight_nn[i, j] = weight_nn[j, i] = information if information > INFORMATION_FLOOR else 0.0
        total_n1 = weight_nn.sum(1, keepdims=True)
        uniform_nn = (1 - np.eye(self.n)) / (self.n - 1)
        return np.where(total_n1 > 0, weight_nn / np.where(total_n1 > 0, total_n1, 1), uniform_nn)

    def _check_evidence(self, evidence: Evidence) -> None:
        for i, token in evidence.items():
            require(0 <= i < self.n, "an evidence variable", i, f"0..{self.n - 1}", "drop it")
            require(0 <= token < self.vocab, f"the token at {i}", token, f"0..{self.vocab - 1}", "drop masks")

    def _evidence_index(self, evidence: Evidence, skip: tuple[int, ...] = ()) -> tuple[int | slice, ...]:
        """Return the index that selects the evidence in the table and keeps all other axes."""
        return tuple(evidence[i] if i in evidence and i not in skip else slice(None) for i in range(self.n))

    def _sum_out_others(self, variables: tuple[int, ...], evidence: Evidence) -> Array:
        """Sum all other variables out of the table, after fixing those with evidence; the result is unnormalised."""
        open_axes = [i for i in range(self.n) if i not in evidence or i in variables]
        axes = [open_axes.index(i) for i in variables]
        front = np.moveaxis(self.p[self._evidence_index(evidence, skip=variables)], axes, range(len(variables)))
        shape = (self.vocab,) * len(variables)
        return np.asarray(front.reshape(self.vocab ** len(variables), -1).sum(1).reshape(shape))


def _check_size(n: int, vocab: int) -> None:
    require(n >= 1, "n", n, ">= 1", "use at least one variable")
    require(vocab >= 2, "vocab", vocab, ">= 2", "use at least two tokens")
    # Compared in logs: the exact power of a mistyped n would itself be slow to compute.
    fits = n * log(vocab) <= log(MAX_ENTRIES) + 1e-9
    require(fits, "the table size", f"{vocab}**{n}", f"<= {MAX_ENTRIES} entries", "lower n or vocab")


def _mutual_information(table_PVV: Array) -> Array:
    """Compute the mutual information of each unnormalised table over two variables."""
    joint_PVV = table_PVV / table_PVV.sum((1, 2), keepdims=True)
    product_PVV = joint_PVV.sum(1, keepdims=True) * joint_PVV.sum(2, keepdims=True)
    return np.asarray((joint_PVV * np.log(joint_PVV / product_PVV)).sum((1, 2)))


@dataclass(frozen=True)
class ExactDenoiser:
    """A denoiser whose posteriors are the true conditionals of a joint distribution.

    A slot stands for the variable of its position. Its posterior never counts a token of that variable itself, so a
    revealed position still gets an informative prediction, and a shadow slot that may not read its original predicts
    it from the rest. Canvases shorter than the joint use the marginal of their variables.
    """

    joint: JointDistribution
    eos_ids: tuple[int, ...] = ()
    # Each distinct row is computed alone and remembered, so a batch cannot change a bit of it.
    _memo: dict[object, Array] = field(default_factory=dict, repr=False, compare=False)

    @property
    def mask_id(self) -> int:
        """Token of a masked position: one past the last token of the distribution."""
        return self.joint.vocab

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(self.joint.vocab, self.mask_id, self.eos_ids)

    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        self._check_input(inputs)
        rows: list[Array] = []
        for b, wanted_N in enumerate(inputs.wanted_BN):
            log_p_nV: Array | None = None
            for slot in wanted_N.nonzero().flatten().tolist():
                if log_p_nV is None or inputs.attend_BNN is not None:
                    # Without an attention mask all slots of a row read the same tokens.
                    attend_N = None if inputs.attend_BNN is None else inputs.attend_BNN[b, slot]
                    log_p_nV = self._compute_log_marginals(self._visible_tokens(inputs, b, attend_N))
                rows.append(log_p_nV[int(inputs.position_BN[b, slot])])
        packed = np.stack(rows) if rows else np.zeros((0, self.joint.vocab))
        device = inputs.tokens_BN.device
        return ModelOutput(
            torch.from_numpy(packed).to(device),
            inputs.wanted_BN,
            attention_BNN=self._dependence_as_attention(inputs).to(device) if needs.attention else None,
            hidden_RH=torch.from_numpy(packed).to(device) if needs.hidden else None,
        )

    def _compute_log_marginals(self, visible: dict[int, int]) -> Array:
        return self._recall(tuple(sorted(visible.items())), lambda: np.log(self.joint.marginals(visible)))

    def _dependence_as_attention(self, inputs: ModelInput) -> Tensor:
        """Compute the mutual information between slots, which stands in for attention; rows sum to one."""
        batch, slots = inputs.tokens_BN.shape
        out_BNN = torch.zeros(batch, slots, slots, dtype=torch.float64)
        for b in range(batch):
            valid_S = inputs.valid_BN[b].nonzero().flatten().cpu()
            position_S = inputs.position_BN[b].cpu()[valid_S]
            coupling = torch.from_numpy(
                self._compute_coupling(int(position_S.max()) + 1, self._visible_tokens(inputs, b))
            )
            read_SS = coupling[position_S][:, position_S]
            out_BNN[b, valid_S[:, None], valid_S] = read_SS / read_SS.sum(-1, keepdim=True).clamp(min=1e-300)
        return out_BNN

    def _visible_tokens(self, inputs: ModelInput, b: int, attend_N: Tensor | None = None) -> dict[int, int]:
        """Collect the tokens of a row by position, without masks, padding and slots that may not be attended to."""
        visible_N = inputs.valid_BN[b] & (inputs.tokens_BN[b] != self.mask_id)
        if attend_N is not None:
            visible_N = visible_N & attend_N
        position_S, token_S = inputs.position_BN[b][visible_N], inputs.tokens_BN[b][visible_N]
        return dict(zip(position_S.tolist(), token_S.tolist(), strict=True))

    def _compute_coupling(self, length: int, visible: dict[int, int]) -> Array:
        key = ("coupling", length, tuple(sorted(visible.items())))
        return self._recall(key, lambda: self.joint.prefix(length).coupling(visible))

    def _recall(self, key: object, compute: Callable[[], Array]) -> Array:
        """Return the memoised result of a key; compute it if it is missing."""
        if key not in self._memo:
            if len(self._memo) >= MEMO_LIMIT:
                self._memo.clear()
            self._memo[key] = compute()
        return self._memo[key]

    def _check_input(self, inputs: ModelInput) -> None:
        last = int(torch.where(inputs.valid_BN, inputs.position_BN, 0).max())
        if last >= self.joint.n:
            raise DenoiserError(
                f"a canvas reaches position {last}; allowed: 0 to {self.joint.n - 1}, the joint's variables; "
                "shorten prompt plus answer, or build a longer joint"
            )
        token_BN = torch.where(inputs.valid_BN, inputs.tokens_BN, 0)
        low, high = int(token_BN.min()), int(token_BN.max())
        if low < 0 or high > self.mask_id:
            raise DenoiserError(
                f"a canvas holds token {high if high > self.mask_id else low}; allowed: 0 to {self.joint.vocab - 1}, "
                f"or {self.mask_id} for a mask; encode the text with this model's tokenizer"
            )
