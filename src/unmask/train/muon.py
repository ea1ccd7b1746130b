"""Muon (Jordan et al. 2024): momentum whose matrices are made orthogonal before they are applied.

Scaled as in Liu et al. 2025 (arXiv 2502.16982), so that an update is as large as AdamW's and takes its learning rate.
"""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from unmask.models import StackedLinear, Transformer

MOMENTUM = 0.95
ITERATIONS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Coefficients of the polynomial that takes singular values from anywhere in (0, 1] near 1 in few iterations."""
SCALE = 0.2
"""Root mean square of an update over the learning rate, about that of AdamW."""


def orthogonalize(x: Tensor) -> Tensor:
    """Make each matrix of a stack nearly orthogonal: all but the smallest singular values are from 0.65 to 1.25."""
    a, b, c = COEFFICIENTS
    # bfloat16 is twice as fast on a GPU and as good: the iteration corrects its own rounding.
    y = x.to(torch.bfloat16) if x.is_cuda else x
    wide = y.shape[1] <= y.shape[2]
    # The smaller side first: the Gram matrix is then the smaller one, and the products below are cheaper.
    y = y if wide else y.mT
    # The Frobenius norm bounds the largest singular value, and the polynomial converges from below one only.
    y = y / (y.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(ITERATIONS):
        gram = y @ y.mT
        y = torch.baddbmm(y, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), y, beta=a)
    return (y if wide else y.mT).to(x.dtype)


class Muon(torch.optim.Optimizer):
    """Optimizer Muon: Nesterov momentum, made orthogonal for each matrix, and AdamW's weight decay.

    `parts` holds for each parameter the row counts of the matrices that are stored one above the other in it. Taking
    such a parameter as one matrix, as `torch.optim.Muon` does, gives other numbers. With a learning rate in a tensor a
    step can be recorded as a CUDA graph.
    """

    def __init__(
        self, params: Iterable[Tensor], parts: Sequence[Sequence[int]], lr: float | Tensor, weight_decay: float
    ):
        super().__init__(list(params), {"lr": lr, "weight_decay": weight_decay})
        self._parts = [tuple(rows) for rows in parts]

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter once. All of them need a gradient."""
        (group,) = self.param_groups
        params = group["params"]
        grads = [p.grad for p in params]
        for p in params:
            if not self.state[p]:
                self.state[p]["momentum"] = torch.zeros_like(p)
        momenta = [self.state[p]["momentum"] for p in params]
        torch._foreach_lerp_(momenta, grads, 1 - MOMENTUM)
        # Nesterov: the gradient is blended with the new momentum, not with the one before.
        ahead = torch._foreach_lerp(grads, momenta, MOMENTUM)
        # Matrices of one shape are stacked, whichever parameter they are in: one product instead of many small ones.
        kinds: dict[torch.Size, list[tuple[Tensor, Tensor]]] = {}
        for p, update, rows in zip(params, ahead, self._parts, strict=True):
            for weight, part in zip(p.detach().split(rows), update.split(rows), strict=True):
                kinds.setdefault(part.shape, []).append((weight, part))
        rate = group["lr"]
        kept = 1 - rate * group["weight_decay"]
        for shape, pairs in kinds.items():
            weights = [weight for weight, _ in pairs]
            size = SCALE * math.sqrt(max(shape))
            updates = orthogonalize(torch.stack([part for _, part in pairs])) * (-size * rate)
            torch._foreach_mul_(weights, kept)
            torch._foreach_add_(weights, list(updates.unbind()))


def layer_matrices(model: Transformer) -> dict[Tensor, tuple[int, ...]]:
    """Map each weight matrix of the layers to the row counts of the matrices stored in it, such as q, k and v."""
    rows_of: dict[Tensor, tuple[int, ...]] = {}
    for module in model.layers.modules():
        if isinstance(module, StackedLinear):
            rows_of[module.weight] = module.rows
        elif isinstance(module, nn.Linear):
            rows_of[module.weight] = (module.out_features,)
    return rows_of
