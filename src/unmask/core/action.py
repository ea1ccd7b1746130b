"""An unmasking decision: the paper's Eq. (1), plus what published methods need beyond it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from unmask.core.rows import Shown

RULES = ("confidence", "margin", "certainty", "stability", "dependency")
"""The J scoring rules, in the order of alpha's entries."""


@dataclass(frozen=True, repr=False)
class Action(Shown):
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
