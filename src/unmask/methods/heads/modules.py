"""The networks that are learned on hidden rows: DEMASK's dependence between positions, DDPD's chance of being noise."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEAST_LOG = -30.0
"""Of the probability of a token that stands: a feature, so it must be finite."""


class DependenceHead(nn.Module):
    """D_ij = sigmoid((W_q e_i + a) . (W_k e_j + c) / sqrt(d) + b), 0 on the diagonal: how much revealing j moves i.

    e = gelu(W layer_norm(h)). On the rows themselves the product learns its texts by heart and is worse than a
    constant on others: what matters, how open i and j still are, is no linear function of a hidden row.
    """

    DROP = 0.2
    """Share of a row's numbers left out in training."""

    def __init__(self, width: int, size: int):
        super().__init__()
        self.inner = nn.Linear(width, 2 * size)
        self.query, self.key = nn.Linear(2 * size, size), nn.Linear(2 * size, size)
        # Most pairs hardly depend on each other.
        self.bias = nn.Parameter(torch.full((), -4.0))

    def logits(self, hidden_BNH: Tensor) -> Tensor:
        """Before the sigmoid, query by key."""
        rows_BNH = F.dropout(F.layer_norm(hidden_BNH.float(), hidden_BNH.shape[-1:]), self.DROP, self.training)
        e_BNE = F.gelu(self.inner(rows_BNH))
        q_BNK, k_BNK = self.query(e_BNE), self.key(e_BNE)
        return q_BNK @ k_BNK.transpose(-1, -2) / math.sqrt(q_BNK.shape[-1]) + self.bias

    def forward(self, hidden_BNH: Tensor) -> Tensor:
        return self.logits(hidden_BNH).sigmoid() * (1 - torch.eye(hidden_BNH.shape[-2], device=hidden_BNH.device))


class PlannerHead(nn.Module):
    """g_l: is the token that stands at l noise? From its hidden row and the probability that the model gives it."""

    def __init__(self, width: int, size: int):
        super().__init__()
        self.inner, self.outer = nn.Linear(width + 1, size), nn.Linear(size, 1)

    def forward(self, hidden_BNH: Tensor, p_BN: Tensor) -> Tensor:
        log_p_BN1 = p_BN.float().clamp(min=math.exp(LEAST_LOG)).log()[..., None]
        features = torch.cat((hidden_BNH.float(), log_p_BN1), -1)
        logits: Tensor = self.outer(F.gelu(self.inner(features))).squeeze(-1)
        return logits


HEADS: dict[str, type[DependenceHead] | type[PlannerHead]] = {"demask": DependenceHead, "ddpd": PlannerHead}
"""By the method that reads them."""
