"""An unmasking decision: the paper's Eq. (1), plus what published methods need beyond it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from torch import Tensor

from unmask.core.rows import Selectable, select

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

    def select(self, rows_U: Tensor) -> "Action":
        return replace(self, **{f.name: select(getattr(self, f.name), rows_U) for f in fields(self)})

    def join(self, others: "Sequence[Action]") -> "Action":
        joined: Action = super().join(others)
        alike = all(other.rule == self.rule for other in others)
        return joined if alike else replace(joined, rule=None)
