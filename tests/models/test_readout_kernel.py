"""The read-out's kernel against torch's operations: under Triton's interpreter, or on the GPU where there is one."""

import pytest
import torch

from tests.helpers.interpreted import kernels_of
from unmask.models.attention_readout import mean_attention
from unmask.models.transformer import AttentionInputs

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")


@pytest.fixture(scope="module")
def kernel():
    return kernels_of("unmask.models.triton_kernels")


def a_layer(rows, heads, keys, slots, width, bias, dtype, seed):
    """Queries and keys as a layer leaves them, heads beside each other, and the log-sum-exp of their scores."""
    draw = torch.Generator().manual_seed(seed)
    q, k = (
        torch.randn(rows, slots, n, width, generator=draw).to(dtype).to(DEVICE).transpose(1, 2) for n in (heads, keys)
    )
    score = q.double() @ k.double().repeat_interleave(heads // keys, 1).transpose(-1, -2) * width**-0.5
    return AttentionInputs(q, k, torch.logsumexp(score + bias.double(), -1).float())


def a_bias(rows, queries, slots, dtype):
    """The last slots of every other row are padding."""
    bias = torch.zeros(rows, 1, queries, slots, dtype=dtype, device=DEVICE)
    bias[::2, ..., slots - 5 :] = float("-inf")
    return bias


@pytest.mark.parametrize(
    ("rows", "heads", "keys", "slots", "width", "queries"),
    [(1, 2, 2, 32, 16, 1), (3, 4, 2, 96, 32, 1), (2, 2, 1, 70, 16, 70)],
)
@pytest.mark.parametrize("dtype", [torch.float16, *([torch.bfloat16] if CUDA else [])])
def test_probabilities_are_those_of_the_plain_read_out(kernel, rows, heads, keys, slots, width, queries, dtype):
    bias = a_bias(rows, queries, slots, dtype)
    layers = [a_layer(rows, heads, keys, slots, width, bias, dtype, seed) for seed in range(2)]
    got_BNN, plain_BNN = kernel.fused_mean_attention(layers, bias), mean_attention(layers, bias)
    torch.testing.assert_close(got_BNN, plain_BNN, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(got_BNN.sum(-1), torch.ones_like(got_BNN[..., 0]), rtol=1e-5, atol=0)
    assert (got_BNN[::2, :, slots - 5 :] == 0).all()


def test_a_row_is_the_same_bits_alone(kernel):
    bias = a_bias(3, 1, 64, torch.float16)
    whole = a_layer(3, 2, 1, 64, 16, bias, torch.float16, 0)
    alone = AttentionInputs(*(part[1:2] for part in whole))
    assert torch.equal(
        kernel.fused_mean_attention([alone], bias[1:2])[0], kernel.fused_mean_attention([whole], bias)[1]
    )


def test_only_half_precision_and_whole_tiles(kernel):
    half = a_layer(1, 1, 1, 8, 16, a_bias(1, 1, 8, torch.float16), torch.float16, 0)
    assert kernel.supports_readout(half)
    assert not kernel.supports_readout(half._replace(q_BMNF=half.q_BMNF.float()))
    assert not kernel.supports_readout(half._replace(q_BMNF=half.q_BMNF[..., :12]))
