"""Bits on a GPU: a row has its own, whoever stands beside it, and kernels have those of the plain operations.

What can be said about arithmetic alone is tested on a CPU, too.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.gpu.kernel_bits import Case, attention_case, chain, requests
from tests.gpu.names import get
from tests.gpu.networks import inputs, random_network
from tests.helpers.gpu import gpu

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
DTYPES = {**HALF, "fp32": torch.float32}
VOCABULARY = 126_464
NEVER = float("-inf")
dtypes = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
half = pytest.mark.parametrize("dtype", HALF.values(), ids=HALF)


def a_case(shape, dtype, device="cuda"):
    return Case(shape, dtype, device, torch.Generator(device).manual_seed(3))


def same_bits(one, other):
    """Equal numbers, where NaN equals NaN and 0 is not -0."""
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[one.element_size()]
    nan = one.isnan() & other.isnan() if one.is_floating_point() else torch.zeros_like(one, dtype=torch.bool)
    equal = one.contiguous().view(bits) == other.contiguous().view(bits)
    return one.shape == other.shape and one.dtype == other.dtype and bool((equal | nan).all())


# The head.


@gpu
@dtypes
@pytest.mark.parametrize("shape", ["llada-8b", "dream-7b", "mini"])
def test_logits_do_not_depend_on_how_many_slots_are_read(shape, dtype):
    """The head's rows come in packs of one size: a product of few rows runs another kernel, which rounds otherwise."""
    network = random_network(shape, dtype, "cuda", layers=1)
    view = inputs(network, (96,), 64)
    whole_RV = network(view, get("Needs")()).logits_RV
    assert len(whole_RV) == 64
    for count in (1, 2, 3, 9, 17, 33, 50):
        wanted_BN = view.wanted_BN & (view.wanted_BN.long().cumsum(-1) <= count)
        some_RV = network(replace(view, wanted_BN=wanted_BN), get("Needs")()).logits_RV
        assert same_bits(some_RV, whole_RV[:count]), count


# The pass over the vocabulary.


def some_rows(request, rows):
    """The request for some of its rows."""

    def cut(tensor):
        return None if tensor is None else tensor[rows]

    draw, whole = request.draw, request.draw.uniform_vocab
    entries = None if whole is None else lambda row_C: whole(rows[row_C])
    draw = replace(draw, uniform_RD=cut(draw.uniform_RD), bits_RD=cut(draw.bits_RD), uniform_vocab=entries)
    return replace(request, draw=draw, given_R=cut(request.given_R), previous_R=cut(request.previous_R))


@gpu
@dtypes
@pytest.mark.parametrize("shape", ["llada-8b", "mini"])
@pytest.mark.parametrize("name", ["statistics", "plain_statistics"])
def test_statistics_of_a_row_are_its_own(name, shape, dtype):
    """Alone, in a small batch, and in one of several chunks; at several temperatures, with filters, for each draw."""
    case, count = a_case(shape, dtype), 290 if shape == "llada-8b" else 2100
    logits_RV = case.normal(count, case.shape.vocab, scale=3.0)
    for kind, request in requests(case, count, plain=name == "plain_statistics"):
        whole = get(name)(logits_RV, request)
        for rows in ([0], [count - 1], [3, 270, 1], list(range(40))):
            rows_U = torch.tensor(rows, device="cuda")
            alone = get(name)(logits_RV[rows_U], some_rows(request, rows_U))
            for name, part, expected in zip(whole._fields, alone, whole, strict=True):
                assert same_bits(part, expected[rows_U]), (kind, rows, name)


def quotients(temperature):
    """Pairs of neighbouring numbers that are equal once divided by the temperature, and are not once multiplied by its
    reciprocal; and the other way round. With them the larger number of each pair after the division.
    """
    draw = np.random.default_rng(5)
    low = draw.uniform(1.0, 8.0, 200_000).astype(np.float32)
    high = np.nextafter(low, np.float32(9.0), dtype=np.float32)
    by = np.float32(temperature)
    divided = low / by == high / by
    multiplied = low * (np.float32(1) / by) == high * (np.float32(1) / by)
    chosen = np.flatnonzero(divided != multiplied)
    pairs = np.stack([low[chosen], high[chosen]], -1)[:200]
    return torch.from_numpy(pairs), torch.from_numpy(np.where(divided[chosen], 0, 1)[:200])


def check_division(name, device):
    seen = 0
    for temperature in (0.3, 0.7, 0.9, 1.3, 3.0):
        pairs_R2, first_R = (values.to(device) for values in quotients(temperature))
        logits_RV = torch.full((len(pairs_R2), 600), -20.0, device=device)
        logits_RV[:, [7, 590]] = pairs_R2
        uniform_RD = torch.full((len(pairs_R2), 1), 0.5, dtype=torch.float64, device=device)
        drawn = get("TokenDraw")(temperature, uniform_RD=uniform_RD)
        result = get(name)(logits_RV, get("StatsRequest")(2, draw=drawn, filtered=True))
        # Of equal quotients the lower token comes first, of others the larger one.
        expected_R = torch.where(first_R == 0, 7, 590)
        assert torch.equal(result.filtered_top_RK[:, 0], expected_R), temperature
        seen += len(pairs_R2)
    assert seen > 300


def test_logits_are_divided_by_the_temperature_on_a_cpu():
    check_division("plain_statistics", "cpu")


@gpu
@pytest.mark.parametrize("name", ["statistics", "plain_statistics"])
def test_logits_are_divided_by_the_temperature(name):
    """Not multiplied by its reciprocal, which rounds otherwise: the tokens drawn are those that a CPU draws."""
    check_division(name, "cuda")


# Attention.


@gpu
@dtypes
@pytest.mark.parametrize("shape", ["llada-8b", "dream-7b", "mini"])
def test_attention_is_the_kernel_that_the_read_out_needs(shape, dtype):
    """Torch left to itself picks another one for some lengths, and reading attention out would change the bits."""
    case = a_case(shape, dtype)
    with torch.inference_mode():
        for batch, slots in ((1, 32), (1, 96), (4, 128), (3, 256), (2, 480), (1, 1024)):
            q, k, v, bias = attention_case(case, batch, slots)
            assert same_bits(get("attend")(q, k, v, bias), get("attend_lse")(q, k, v, bias)[0]), (batch, slots)


@gpu
@half
@pytest.mark.parametrize("shape", ["llada-8b", "dream-7b", "mini"])
@pytest.mark.parametrize("engine", ["eager", "fused"])
def test_reading_attention_out_moves_no_bit(engine, shape, dtype):
    network = random_network(shape, dtype, "cuda", engine)
    for prompts, blanks in (((20,), 12), ((90, 64, 33), 38), ((200, 120), 56), ((400,), 80)):
        view = inputs(network, prompts, blanks)
        for _ in range(3):  # plain, recorded, replayed
            plain_RV = network(view, get("Needs")()).logits_RV.clone()
            watched_RV = network(view, get("Needs")(attention=True)).logits_RV
            assert same_bits(plain_RV, watched_RV), (prompts, blanks)


@gpu
@half
@pytest.mark.parametrize("shape", ["llada-8b", "dream-7b", "mini"])
def test_attention_and_its_read_out_are_a_rows_own(shape, dtype):
    """The same row alone and among others: the read-out by both paths."""
    case = a_case(shape, dtype)
    with torch.inference_mode():
        for slots in (32, 96, 224):
            q, k, v, bias = attention_case(case, 4, slots)
            sums = get("attend_lse")(q, k, v, bias)[1]
            watched = get("Watched")(q, k, sums)
            assert get("fused_readout_takes")(watched)
            for name in ("fused_readout", "plain_readout"):
                whole_BNN = get(name)([watched, watched], bias)
                for b in range(4):
                    alone = get("Watched")(*(part[b : b + 1] for part in (q, k, sums)))
                    row_BNN = get(name)([alone, alone], bias[b : b + 1])
                    if name == "fused_readout":
                        assert same_bits(row_BNN, whole_BNN[b : b + 1]), (slots, b)
                    seen = bias[b].flatten() == 0
                    total = row_BNN[0, seen].sum(-1)
                    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=2e-2)
            torch.testing.assert_close(
                get("fused_readout")([watched], bias), get("plain_readout")([watched], bias), rtol=2e-2, atol=2e-3
            )


# Between the products.


@gpu
@dtypes
def test_the_gate_is_the_plain_one_at_every_number(dtype):
    """Its quotient is rounded once, its exponential is torch's, and no product is fused with a sum."""
    if dtype == torch.float32:
        numbers = torch.randn(1 << 22, generator=torch.Generator("cuda").manual_seed(0), device="cuda") * 12
    else:
        every = torch.arange(-(1 << 15), 1 << 15, device="cuda").to(torch.int16).view(dtype)
        # Below this the results are denormal, which kernels may flush.
        numbers = every[every.isfinite() & (every.float().abs() >= 2.0**-10)]
        assert len(numbers) > 30_000 if dtype == torch.bfloat16 else len(numbers) > 20_000
    ops, plain = get("FusedOps")(), get("PLAIN")
    for factor in (1.0, 0.3, -7.0):
        up = torch.full_like(numbers, factor)
        got, expected = ops.gate(numbers[None], up[None]), plain.gate(numbers[None], up[None])
        wrong = int((got != expected).logical_and(~(got.isnan() & expected.isnan())).sum())
        assert not wrong, f"{wrong} of {len(numbers)} numbers"


@gpu
@dtypes
@pytest.mark.parametrize("shape", ["llada-8b", "dream-7b", "mini"])
def test_a_rotation_is_the_plain_one(shape, dtype):
    case = a_case(shape, dtype)
    spec, dim = case.shape.spec(1), case.shape.head_dim
    for rows in (1, 50):
        rotate = get("Rotation").of(case.integers(4096, 3, rows), spec, dtype)
        qkv = case.normal(3, rows, sum(spec.qkv), scale=2.0)
        expected = get("PLAIN").rotate(*qkv.split(spec.qkv, -1), rotate, dim)
        got = get("FusedOps")().rotate(*qkv.clone().split(spec.qkv, -1), rotate, dim)
        for one, other in zip(got, expected, strict=True):
            assert torch.equal(one, other)


@gpu
@dtypes
@pytest.mark.parametrize("shape", ["llada-8b", "dream-7b", "mini"])
def test_a_norm_is_the_rows_own(shape, dtype):
    case, ops = a_case(shape, dtype), get("FusedOps")()
    x, delta, weight = (
        case.normal(600, case.shape.width),
        case.normal(600, case.shape.width),
        case.normal(case.shape.width),
    )
    whole = ops.add_norm(x.clone(), delta, weight, 1e-5)
    for rows in ([0], [599], [7, 3], list(range(100, 164))):
        for one, other in zip(ops.add_norm(x[rows].clone(), delta[rows], weight, 1e-5), whole, strict=True):
            assert same_bits(one, other[rows])


# Regions.


def region_case(length, device, seed):
    draw = torch.Generator().manual_seed(seed)
    score_BL = torch.rand(16, length, generator=draw, dtype=torch.float64)
    open_BL = torch.rand(16, length, generator=draw) < 0.9
    nu_B = torch.rand(16, generator=draw, dtype=torch.float64)
    budget_B = (open_BL.sum(-1) * torch.linspace(0, 1, 16)).long()
    return [value.to(device) for value in (score_BL, open_BL, nu_B, budget_B)]


@gpu
@pytest.mark.parametrize("length", [31, 126, 254, 510, 1000])
def test_the_region_triton_finds_the_sets_of_the_plain_program(length):
    """Over and over: its programs read what their other warps have written, and wait for them."""
    values = region_case(length, "cuda", length)
    expected_BL = get("best_region")(*(value.cpu() for value in values)).cuda()
    places = chain(*values[:3])
    for _ in range(20):
        assert torch.equal(get("best_region")(*values), expected_BL)
        found_BW = get("best_sets")(*places, values[3])
        assert torch.equal(found_BW, expected_BL)
