"""The masked diffusion loss: cross entropy of masked answer tokens, each weighed by one over its mask ratio.

For a row whose answer has n tokens, with t uniform and every answer token masked with probability t,

    loss = E_t E_masks [ 1 / (t n)  sum over masked i of  -log p(x_i | the rest) ],

a bound on the answer's negative log-likelihood per token (LLaDA, Eq. (5) of its fine-tuning).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.models import Transformer


def token_losses(
    model: Transformer,
    tokens_BN: Tensor,
    valid_BN: Tensor,
    hidden_BN: Tensor,
    place_R: Tensor,
    mask_id: int,
    shift: int,
) -> Tensor:
    """Compute -log p of R masked tokens in float32, given the visible tokens of their rows.

    `place_R` are places in the flattened batch. `valid_BN` tells tokens from padding, which no token attends to.
    With `shift` 1 the prediction for a place is read one slot before it.
    """
    target_R = tokens_BN.flatten().index_select(0, place_R)
    input_BN = tokens_BN.masked_fill(hidden_BN, mask_id)
    position_BN = torch.arange(tokens_BN.shape[1], device=tokens_BN.device).expand_as(tokens_BN)
    # The bias must have the type of the queries, which autocast decides: attention refuses any other.
    kind = tokens_BN.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else model.dtype
    bias_BN = torch.zeros_like(valid_BN, dtype=dtype).masked_fill(~valid_BN, float("-inf"))
    x_BNH = model(input_BN, position_BN, bias_BN[:, None, None, :]).x_BNH
    # Only R rows go through the head: the logits of all slots would be B * N * V numbers.
    logits_RV = model.head(model.norm(x_BNH.flatten(0, 1).index_select(0, place_R - shift)))
    # In float32: the log of a small probability is beyond what bfloat16 resolves.
    return F.cross_entropy(logits_RV.float(), target_R, reduction="none")
