"""The kernels of a layer against the plain path: under Triton's interpreter, or on the GPU where there is one."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.helpers.cases import each_case
from tests.helpers.interpreted import kernels_of
from unmask.models import TransformerSpec
from unmask.models.attention_readout import mean_attention
from unmask.models.network import run_layers
from unmask.models.transformer import PLAIN, AttentionInputs, Rotation

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
WIDTHS = [1, 7, 96, 257]
HEADS = [(1, 1, 2), (4, 2, 16), (3, 1, 10), (28, 4, 128)]

types = each_case("dtype", TYPES.values(), ids=TYPES)
widths = each_case("width", WIDTHS)


@pytest.fixture(scope="module")
def fused():
    return kernels_of("unmask.models.triton_kernels").FusedOps()


def drawn(*shape, seed=0, scale=2.0, dtype=torch.float32):
    """The same numbers on every device."""
    return (scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))).to(dtype).to(DEVICE)


def steps_apart(got, expected):
    """How many numbers of their type lie between two results, at most."""
    kind = {4: torch.int32, 2: torch.int16}[got.element_size()]

    def counted(x):
        bits = x.contiguous().view(kind).long()
        return torch.where(bits < 0, torch.iinfo(kind).min - bits, bits)

    return int((counted(got) - counted(expected)).abs().max()) if got.numel() else 0


# Residual and norm.


@types
@widths
def test_residual_is_exact_and_norm_within_two_units(width, dtype, fused):
    """The squares are summed in another order: 3 units in the last place of float32; of a shorter type 2, and rarely:
    one where the scaled number is rounded the other way, and a weight can make two of it.
    """
    x, delta, weight = (drawn(2, 3, width, seed=s, dtype=dtype) for s in range(3))
    weight = weight[0, 0].contiguous()
    total, normed = PLAIN.add_norm(x, delta, weight, 1e-5)
    got_total, got_normed = fused.add_norm(x.clone(), delta, weight, 1e-5)
    assert torch.equal(got_total, total)
    assert got_normed.dtype == dtype
    assert steps_apart(got_normed, normed) <= (3 if dtype == torch.float32 else 2)
    assert (got_normed != normed).float().mean() <= (1.0 if dtype == torch.float32 else 0.01)


@types
def test_norm_of_exact_sums_is_the_plain_one_to_the_bit(dtype, fused):
    """Small whole numbers: no order of summation rounds, so that nothing but the rounding of the rest is left."""
    x = torch.randint(-8, 9, (4, 64), generator=torch.Generator().manual_seed(1)).to(dtype).to(DEVICE)
    weight = drawn(64, seed=2, dtype=dtype)
    scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)
    expected = weight * (x.float() * scale).to(dtype)
    got = fused.add_norm(x.clone(), None, weight, 1e-5)[1]
    # The interpreter's reciprocal root is NumPy's, not torch's: rows where the two agree.
    mean = x.float().pow(2).mean(-1).cpu().numpy()
    same = torch.from_numpy(1 / np.sqrt(mean + np.float32(1e-5))) == scale[:, 0].cpu()
    same = same.to(DEVICE) if DEVICE.type == "cpu" else torch.ones_like(same, device=DEVICE)
    assert same.any()
    assert torch.equal(got[same], expected[same])


def test_norm_of_zeros_and_nan_is_the_plain_one(fused):
    x = torch.stack([torch.zeros(8), torch.full((8,), float("nan")), torch.full((8,), float("inf"))]).to(DEVICE)
    for dtype in TYPES.values():
        weight = torch.ones(8, dtype=dtype, device=DEVICE)
        expected = PLAIN.add_norm(x.to(dtype), None, weight, 1e-5)[1]
        with np.errstate(invalid="ignore", divide="ignore"):
            got = fused.add_norm(x.to(dtype), None, weight, 1e-5)[1]
        assert torch.equal(got.isnan(), expected.isnan())
        assert torch.equal(got[0], expected[0])


# Rotation.


@types
@each_case("wide", [True, False], ids=["float32", "own type"])
@each_case(("heads", "kv_heads", "dim"), HEADS)
@each_case("packed", [True, False], ids=["packed", "apart"])
def test_rotation_equals_the_plain_one_to_the_bit(heads, kv_heads, dim, wide, dtype, packed, fused):
    spec = spec_of(heads, kv_heads, dim, wide)
    position_BN = torch.tensor([[0, 1, 5], [700, 3, 4095]], device=DEVICE)
    rotation = Rotation.of(position_BN, spec, dtype)
    qkv = drawn(2, 3, sum(spec.qkv), dtype=dtype)
    expected = PLAIN.rotate(*qkv.split(spec.qkv, -1), rotation, dim)
    parts = qkv.clone().split(spec.qkv, -1)
    got = fused.rotate(*(parts if packed else [part.contiguous() for part in parts]), rotation, dim)
    for one, other in zip(got, expected, strict=True):
        assert one.shape == other.shape
        assert torch.equal(one, other)


def spec_of(heads, kv_heads, dim, wide):
    return TransformerSpec(
        vocab=8,
        width=heads * dim,
        layers=1,
        heads=heads,
        kv_heads=kv_heads,
        mlp=8,
        theta=5e5,
        eps=1e-5,
        qkv_bias=False,
        rope_float32=wide,
    )


# SwiGLU.


@types
@widths
def test_gate_equals_the_plain_one_to_the_bit(width, dtype, fused):
    """On a GPU the kernel calls the `exp` that torch calls. The interpreter's is NumPy's: there the plain path, spelt
    out with that one, to the bit, and torch's within what the two differ by.
    """
    gate, up = drawn(2, 3, 2 * width, scale=4.0, dtype=dtype).split(width, -1)
    expected, got = PLAIN.gate(gate, up), fused.gate(gate, up)
    if DEVICE.type == "cpu":
        assert steps_apart(got, expected) <= (8 if dtype == torch.float32 else 2)
        decay = torch.from_numpy(np.exp(-gate.float().numpy()))
        expected = (gate.float() / (1 + decay)).to(dtype) * up
    assert torch.equal(got, expected)


# Rows.


@types
def test_kernels_give_a_row_the_same_bits_alone_and_in_a_batch(dtype, fused):
    spec, many = spec_of(4, 2, 16, True), 9
    x, delta, weight = drawn(1, many, 96, dtype=dtype), drawn(1, many, 96, seed=1, dtype=dtype), drawn(96, dtype=dtype)
    qkv, position_BN = drawn(1, many, sum(spec.qkv), dtype=dtype), torch.arange(many, device=DEVICE)[None]

    def all_three(rows):
        x_new, normed = fused.add_norm(x[:, rows].clone(), delta[:, rows].clone(), weight, 1e-5)
        rotation = Rotation.of(position_BN[:, rows], spec, dtype)
        q, k, v = fused.rotate(*qkv[:, rows].clone().split(spec.qkv, -1), rotation, 16)
        gated = fused.gate(*qkv[:, rows].clone()[..., :96].chunk(2, -1))
        return x_new, normed, q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), gated

    everyone = all_three(list(range(many)))
    for rows in ([0], [4], [8, 2], [5, 6, 7]):
        for part, whole in zip(all_three(rows), everyone, strict=True):
            assert torch.equal(part, whole[:, rows])


# All of a network.


@torch.inference_mode()
@pytest.mark.parametrize(("kind", "dtype"), [("llada", "fp32"), ("dream", "bf16")])
def test_network_of_kernels_equals_the_plain_one(kind, dtype, transformer, fused):
    model = transformer(kind, TYPES[dtype]).to(DEVICE)
    draw = torch.Generator().manual_seed(0)
    slots = 32 if DEVICE.type == "cuda" else 3  # attention on a GPU wants aligned rows, and the decoder pads to 32
    tokens_BN = torch.randint(0, 200, (2, slots), generator=draw).to(DEVICE)
    position_BN = torch.arange(slots, device=DEVICE).expand(2, slots)
    bias = torch.zeros(2, 1, 1, slots, dtype=TYPES[dtype], device=DEVICE)
    plain = head_of(model, run_layers(model, tokens_BN, position_BN, bias, watch=(1,)))
    with np.errstate(over="ignore"):
        got = head_of(model.use_ops(fused), run_layers(model, tokens_BN, position_BN, bias, watch=(1,)))
    again = head_of(model.use_ops(PLAIN), run_layers(model, tokens_BN, position_BN, bias, watch=(1,)))
    assert torch.equal(again.logits, plain.logits)
    within = 1e-5 if dtype == "fp32" else 0.1
    torch.testing.assert_close(got.logits, plain.logits, rtol=0, atol=within * float(plain.logits.abs().max()))
    torch.testing.assert_close(got.attention, plain.attention, rtol=0, atol=1e-5 if dtype == "fp32" else 0.05)
    if dtype == "fp32":
        assert torch.equal(got.logits.argmax(-1), plain.logits.argmax(-1))


def head_of(model, output):
    return SimpleNamespace(logits=model.head(model.norm(output.x_BNH)).float(), attention=output.attention_BNN)


# The attention read-out.


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
@pytest.mark.parametrize("dtype", [torch.float16, *([torch.bfloat16] if DEVICE.type == "cuda" else [])])
def test_readout_equals_the_plain_one(kernel, rows, heads, keys, slots, width, queries, dtype):
    bias = a_bias(rows, queries, slots, dtype)
    layers = [a_layer(rows, heads, keys, slots, width, bias, dtype, seed) for seed in range(2)]
    got_BNN, plain_BNN = kernel.fused_mean_attention(layers, bias), mean_attention(layers, bias)
    torch.testing.assert_close(got_BNN, plain_BNN, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(got_BNN.sum(-1), torch.ones_like(got_BNN[..., 0]), rtol=1e-5, atol=0)
    assert (got_BNN[::2, :, slots - 5 :] == 0).all()


def test_readout_gives_a_row_the_same_bits_alone(kernel):
    bias = a_bias(3, 1, 64, torch.float16)
    whole = a_layer(3, 2, 1, 64, 16, bias, torch.float16, 0)
    alone = AttentionInputs(*(part[1:2] for part in whole))
    assert torch.equal(
        kernel.fused_mean_attention([alone], bias[1:2])[0], kernel.fused_mean_attention([whole], bias)[1]
    )


def test_readout_takes_half_precision_and_whole_tiles(kernel):
    half = a_layer(1, 1, 1, 8, 16, a_bias(1, 1, 8, torch.float16), torch.float16, 0)
    assert kernel.supports_readout(half)
    assert not kernel.supports_readout(half._replace(q_BMNF=half.q_BMNF.float()))
    assert not kernel.supports_readout(half._replace(q_BMNF=half.q_BMNF[..., :12]))
