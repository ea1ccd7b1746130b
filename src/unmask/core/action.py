"""An unmasking decision: the paper's Eq. (1), plus what published methods need beyond it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import torch
from torch import Tensor

from unmask.core.rows import Selectable, select
from unmask.core.state import State

RULES = ("confidence", "margin", "certainty", "stability", "dependency")
"""The J scoring rules, in the order of alpha's entries."""


@dataclass(frozen=True, repr=False)
class Action(Selectable):
    """a_t = (alpha, r, kappa, c) for B rows, on the whole canvas; `apply` cuts r and c to M_t and N_t.

    To reveal just some set, make it the region and kappa 1; to wait, name a region and set kappa to 0.
    """

    alpha_BJ: Tensor
    """Weights of the scoring rules, on the simplex."""
    region_BL: Tensor
    """Where positions may be revealed."""
    kappa_B: Tensor
    """Share of the eligible positions to reveal, in [0, 1]."""
    commit_BL: Tensor
    """Which of the newly revealed positions become final."""
    remask_BL: Tensor | None = None
    """Revisable positions to re-open before anything is revealed."""
    tokens_BL: Tensor | None = None
    """Tokens that override the proposal where >= 0 (token-level search)."""
    notes: Mapping[str, Tensor] = field(default_factory=dict)
    """Small tensors with the batch first that the method wants back at its next step."""
    rule: str | None = field(default=None, metadata={"omitted_if_none": True})
    """The scoring rule that has all of the weight, so that `apply` need not compute the others. None says nothing: the
    mixture is then computed from all five rules, to the same bits. Steps and files do not keep it."""

    @classmethod
    def top(
        cls,
        state: State,
        open_BL: Tensor,
        k_B: Tensor,
        *,
        commit: bool = True,
        remask_BL: Tensor | None = None,
        tokens_BL: Tensor | None = None,
        notes: Mapping[str, Tensor] | None = None,
    ) -> "Action":
        """Reveal the `k_B` most confident masked positions of the region `open_BL`, all of them where it has fewer.

        Unlike `reveal` the region stays the whole open one, and `kappa_B` is the share of it: diagnostics read both.
        `commit` makes what is revealed final.
        """
        n_B = (open_BL & state.masked_BL).sum(-1)
        kappa_B = torch.minimum(k_B, n_B).double() / n_B.clamp(min=1).double()
        return cls._by_confidence(open_BL, kappa_B, commit, remask_BL, tokens_BL, notes)

    @classmethod
    def reveal(
        cls,
        chosen_BL: Tensor,
        *,
        of: Tensor,
        commit: bool = True,
        remask_BL: Tensor | None = None,
        tokens_BL: Tensor | None = None,
        notes: Mapping[str, Tensor] | None = None,
    ) -> "Action":
        """Reveal exactly the chosen positions. A row that chose none waits: it reveals nothing of the positions `of`.

        `commit` makes what is revealed final.
        """
        any_B = chosen_BL.any(-1)
        region_BL = torch.where(any_B[:, None], chosen_BL, of)
        return cls._by_confidence(region_BL, any_B.double(), commit, remask_BL, tokens_BL, notes)

    @classmethod
    def _by_confidence(
        cls,
        region_BL: Tensor,
        kappa_B: Tensor,
        commit: bool,
        remask_BL: Tensor | None,
        tokens_BL: Tensor | None,
        notes: Mapping[str, Tensor] | None,
    ) -> "Action":
        # Filled on the device: copying a list of weights there would make the host wait, and no CUDA graph can hold it.
        alpha_BJ = torch.zeros((len(kappa_B), len(RULES)), dtype=torch.float64, device=kappa_B.device)
        alpha_BJ[:, RULES.index("confidence")].fill_(1)
        return cls(
            alpha_BJ=alpha_BJ,
            region_BL=region_BL,
            kappa_B=kappa_B,
            commit_BL=torch.full_like(region_BL, commit),
            remask_BL=remask_BL,
            tokens_BL=tokens_BL,
            notes=notes or {},
            rule="confidence",
        )

    def select(self, rows_U: Tensor) -> "Action":
        return replace(self, **{f.name: select(getattr(self, f.name), rows_U) for f in fields(self)})

    def join(self, others: "Sequence[Action]") -> "Action":
        joined: Action = super().join(others)
        alike = all(other.rule == self.rule for other in others)
        return joined if alike else replace(joined, rule=None)
