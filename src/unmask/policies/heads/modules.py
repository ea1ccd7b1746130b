"""The networks that are learned on hidden rows: DEMASK's dependence between positions, DDPD's chance of being noise."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEAST_LOG = -30.0
"""Of the probability of a token that stands: a feature, so it must be finite."""


class DependenceHead(nn.Module):
    """D_ij = sigmoid((W_q h_i) . (W_k h_j) / sqrt(d) + b), 0 on the diagonal: how much revealing j moves i."""

    def __init__(self, width: int, size: int):
        super().__init__()
        self.query, self.key = nn.Linear(width, size, bias=False), nn.Linear(width, size, bias=False)
        self.bias = nn.Parameter(torch.full((), -2.0))

    def logits(self, hidden_BNH: Tensor) -> Tensor:
        """Before the sigmoid, query by key."""
        q_BNK, k_BNK = self.query(hidden_BNH.float()), self.key(hidden_BNH.float())
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
