"""What the fused statistics must keep, on any device: each case compares them with the plain path.

`python -m tests.helpers.kernel_cases` runs all under Triton's interpreter, which must be switched on before Triton is
loaded, and prints what went wrong by case.
"""

import gc
import json
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace

if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"

import torch
from torch import Tensor

from unmask.core import (
    Edit,
    Noise,
    Posterior,
    SamplingParams,
    State,
    TokenDraw,
    Vocabulary,
    vocab_statistics,
    vocab_statistics_triton,
)
from unmask.core.noise import uniform_per_token
from unmask.core.vocab_statistics import StatsRequest, VocabStats, compute_vocab_stats_in_torch
from unmask.engine import decode
from unmask.methods import make_policy
from unmask.models import Network, Transformer, TransformerSpec

NEVER = float("-inf")
BOUND = 5e-6
"""Absolute and relative: float32 sums in another order, and exponentials of another library."""
SMALL = 64
"""Tokens per piece here, so that small vocabularies have several."""


def logits(seed: int, rows: int, vocab: int, dtype: torch.dtype = torch.float32, scale: float = 3.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(rows, vocab, generator=generator) * scale).to(dtype)


def posterior(logits_RV: Tensor, edit: Edit) -> Posterior:
    logz_R = compute_vocab_stats_in_torch(logits_RV, StatsRequest(edit=edit)).logz_R
    return Posterior(logits_RV, logz_R, torch.arange(len(logits_RV), device=logits_RV.device)[:, None], edit)


def inverse(temperature: float, seed: int, rows: int, draws: int) -> TokenDraw:
    generator = torch.Generator().manual_seed(seed)
    return TokenDraw(temperature, uniform_RD=torch.rand(rows, draws, generator=generator, dtype=torch.float64))


def gumbel(temperature: float, rows: int, vocab: int, draws: int) -> TokenDraw:
    """As a proposal draws: counters of row, step, position and purpose."""
    position_R, zero_R = torch.arange(rows), torch.zeros(rows, dtype=torch.long)
    purposes = [f"token/{d}" for d in range(draws)]
    bits_RD = torch.stack([Noise.of([5]).bits(zero_R, position_R, zero_R, p) for p in purposes], -1)
    table_RVD = torch.stack([uniform_per_token(bits_R, vocab) for bits_R in bits_RD.unbind(-1)], -1)
    return TokenDraw(temperature, uniform_vocab=lambda row_C: table_RVD.to(row_C.device)[row_C], bits_RD=bits_RD)


def everything(seed: int, rows: int, vocab: int, dtype: torch.dtype, draw: TokenDraw) -> tuple[Tensor, StatsRequest]:
    """Logits, and a request that asks for all there is."""
    z_RV, old_RV = logits(seed, rows, vocab, dtype), logits(seed + 1, rows, vocab, dtype)
    edit = Edit((vocab - 1, 0), (NEVER, -1.5)) if vocab > 3 else Edit()
    given_R, old_R = torch.arange(rows) % vocab - 1, torch.arange(rows).flip(0) - 1
    untrusted = (0, vocab // 2) if vocab > 3 else ()
    request = StatsRequest(3, edit, draw, True, untrusted, given_R, posterior(old_RV, edit), old_R)
    return z_RV, request


def moved(request: StatsRequest, device: str) -> StatsRequest:
    def there(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.to(device)

    draw, old = request.draw, request.previous
    draw = replace(draw, uniform_RD=there(draw.uniform_RD), bits_RD=there(draw.bits_RD))
    if old is not None:
        old = replace(old, logits_RV=there(old.logits_RV), logz_R=there(old.logz_R), slot_BN=there(old.slot_BN))
    return replace(
        request, draw=draw, previous=old, given_R=there(request.given_R), previous_R=there(request.previous_R)
    )


def run(z_RV: Tensor, request: StatsRequest, device: str, piece: int = SMALL) -> VocabStats:
    """The kernels' answer, on the host."""
    before, vocab_statistics_triton.PIECE = vocab_statistics_triton.PIECE, piece
    try:
        z_RV, request = z_RV.to(device), moved(request, device)
        assert vocab_statistics_triton.kernels_support(z_RV, request)
        variant = vocab_statistics_triton.KernelVariant.of(z_RV, request)
        made = vocab_statistics_triton.run_kernels(variant, z_RV, request)
        return VocabStats(*(part.cpu() for part in made))
    finally:
        vocab_statistics_triton.PIECE = before


def near(got: VocabStats, want: VocabStats, names: list[str] | None = None) -> None:
    """Equal tokens; numbers within the bound."""
    for name in names or VocabStats._fields:
        a, b = getattr(got, name), getattr(want, name)
        assert a.shape == b.shape, name
        assert a.dtype == b.dtype, name
        if a.is_floating_point():
            torch.testing.assert_close(
                a, b, rtol=BOUND, atol=BOUND, equal_nan=True, msg=lambda text, n=name: f"{n}: {text}"
            )
        else:
            assert torch.equal(a, b), name


def same(one: VocabStats, other: VocabStats, rows: Tensor) -> None:
    """Bitwise, NaN included: `one` is the given rows of `other`."""
    for name, a, b in zip(VocabStats._fields, one, other, strict=True):
        b = b[rows]
        if a.is_floating_point():
            a, b = a.contiguous().view(torch.int32), b.contiguous().view(torch.int32)
        assert torch.equal(a, b), name


def rows_of(request: StatsRequest, rows: Tensor) -> StatsRequest:
    draw = request.draw
    parts = {n: None if (t := getattr(draw, n)) is None else t[rows] for n in ("uniform_RD", "bits_RD")}
    return replace(
        request,
        draw=replace(draw, **parts),
        given_R=None if request.given_R is None else request.given_R[rows],
        previous_R=None if request.previous_R is None else request.previous_R[rows],
    )


def all_at_once(device: str, vocab: int, dtype: torch.dtype, sampler: str) -> None:
    rows = 4
    draw = inverse(0.7, vocab, rows, 2) if sampler == "inverse" else gumbel(0.7, rows, vocab, 2)
    z_RV, request = everything(vocab, rows, vocab, dtype, draw)
    near(run(z_RV, request, device), compute_vocab_stats_in_torch(z_RV, request))


def greedy(device: str, vocab: int, dtype: torch.dtype) -> None:
    z_RV = logits(vocab, 3, vocab, dtype)
    for request in (
        StatsRequest(),
        StatsRequest(5, Edit((1,), (NEVER,)), filtered=True, given_R=torch.tensor([0, -1, 1])),
    ):
        got = run(z_RV, request, device)
        near(got, compute_vocab_stats_in_torch(z_RV, request))
        assert torch.equal(got.confidence_RD[:, 0], got.p_RK[:, 0])
        assert torch.equal(got.proposed_R, got.p_RK[:, 0])


def ties(device: str) -> None:
    z_RV = torch.randint(0, 3, (6, 300), generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    z_RV[5] = 1.0
    want_RK = z_RV.float().sort(dim=-1, descending=True, stable=True).indices[:, :6]
    assert torch.equal(run(z_RV, StatsRequest(top_k=6), device).top_RK, want_RK)
    # Above temperature 0 other logits may be equal than at 0: the tempered ones count.
    near_RV = torch.tensor([[1.0, 1.0 + 2**-23, 0.5]])
    request = StatsRequest(draw=TokenDraw(3.0, uniform_RD=torch.full((1, 1), 0.5).double()), filtered=True)
    near(run(near_RV, request, device), compute_vocab_stats_in_torch(near_RV, request))


def few_possible_tokens(device: str) -> None:
    z_RV = torch.full((4, 200), NEVER)
    z_RV[0, 150], z_RV[1, 0], z_RV[2, [70, 199]] = 2.0, 1.0, 3.0
    draw = inverse(1.0, 0, 4, 1)
    for request in (StatsRequest(top_k=3), StatsRequest(top_k=3, draw=draw)):
        got, want = run(z_RV, request, device), compute_vocab_stats_in_torch(z_RV, request)
        same_rows = torch.arange(3)
        near(*(VocabStats(*(values[same_rows] for values in stats)) for stats in (got, want)))
        assert got.logz_R.isfinite().tolist() == [True, True, True, False]
        assert got.token_RD[3, 0] in range(200)


def one_sided(device: str) -> None:
    """Tokens that are barred, or all but impossible, on one side only: divergences meet the floor of log p."""
    z_RV, old_RV = logits(0, 4, 300), logits(1, 4, 300)
    z_RV[0, :20], old_RV[1, 5:30] = NEVER, NEVER
    z_RV[2, 64:128], old_RV[2, 200:] = torch.finfo(torch.float32).min, -1e9
    z_RV[3] -= 1e5
    request = StatsRequest(previous=posterior(old_RV, Edit((7,), (NEVER,))), previous_R=torch.arange(4))
    near(
        run(z_RV, request, device),
        compute_vocab_stats_in_torch(z_RV, request),
        ["entropy_R", "drift_R", "displacement_R"],
    )


def small_steps(device: str) -> None:
    """Hardly anything has changed: the divergences keep their digits as well as the plain path does."""
    old_RV = logits(0, 4, 300)
    z_RV = old_RV + 1e-3 * logits(1, 4, 300)
    previous = posterior(old_RV, Edit())
    got = run(z_RV, StatsRequest(previous=previous, previous_R=torch.arange(4)), device)
    log_p, log_q = (t.double().log_softmax(-1) for t in (z_RV, old_RV))
    want_R = (log_p.exp() * (log_p - log_q)).sum(-1)
    assert (got.drift_R.double() - want_R).abs().max() < 2e-6
    same_R = run(old_RV, StatsRequest(previous=previous, previous_R=torch.arange(4)), device).drift_R
    assert (same_R >= 0).all()
    assert same_R.max() < 2e-6


def edges_of_uniforms(device: str) -> None:
    z_RV = torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.0, NEVER, NEVER, 0.0], [NEVER, 0.0, NEVER, NEVER]])
    u_RD = torch.tensor([[0.25, 0.5, 0.75]]).double().expand(3, 3)
    assert run(z_RV, StatsRequest(draw=TokenDraw(1.0, uniform_RD=u_RD)), device).token_RD.tolist() == [
        [1, 2, 3],
        [0, 3, 3],
        [1, 1, 1],
    ]
    z_RV = torch.tensor([[0.0, 1.0, NEVER, 2.0], [NEVER, 1.0, 0.0, 1.0]])
    u_RD = torch.tensor([[2.0**-53, 1 - 2.0**-53]]).double().expand(2, 2)
    got = run(z_RV, StatsRequest(draw=TokenDraw(1.0, uniform_RD=u_RD)), device)
    assert got.token_RD.tolist() == [[0, 3], [1, 3]]


def rows_alone(device: str, vocab: int, dtype: torch.dtype, sampler: str) -> None:
    """A row's bits are its own: alone, among others, in another order, from an odd address."""
    draw = inverse(0.7, 0, 5, 1) if sampler == "inverse" else gumbel(0.7, 5, vocab, 1)
    z_RV, request = everything(0, 5, vocab, dtype, draw)
    whole = run(z_RV, request, device)
    same(run(z_RV, request, device), whole, torch.arange(5))
    for rows in (torch.tensor([4]), torch.tensor([2, 0]), torch.arange(5).flip(0)):
        same(run(z_RV[rows], rows_of(request, rows), device), whole, rows)
    odd_RV = torch.cat((torch.zeros(1, dtype=dtype), z_RV.flatten())).to(device)[1:].view_as(z_RV)
    same(run(odd_RV, request, device), whole, torch.arange(5))


def bad_logits(device: str, bad: float) -> None:
    z_RV = logits(0, 4, 200)
    spoilt_RV = z_RV.clone()
    spoilt_RV[2, 150] = bad
    for draw in (TokenDraw(), inverse(0.7, 0, 4, 1)):
        clean, got = (run(t, StatsRequest(draw=draw), device) for t in (z_RV, spoilt_RV))
        assert got.logz_R.isfinite().tolist() == [True, True, False, True]
        assert torch.equal(got.p_RK[[0, 1, 3]], clean.p_RK[[0, 1, 3]])
        assert ((got.token_RD >= 0) & (got.token_RD < 200)).all()


def decodes(device: str) -> None:
    """Whole runs: the same tokens and probabilities as the plain path's, greedy and drawn, with divergences."""
    spec = TransformerSpec(131, 32, 1, 2, 2, 64, 1e4, 1e-5, False, True)
    model = Transformer.empty(spec, device, torch.float32)
    draw = torch.Generator().manual_seed(0)
    for name, values in model.named_parameters():
        values.data = (
            torch.ones(values.shape).to(device)
            if "norm" in name
            else torch.randn(values.shape, generator=draw).to(device)
        )
    denoiser = Network(model.requires_grad_(False), Vocabulary(131, 130, (129,)))
    start = State.from_prompts([[1, 2], [3, 4]], new_tokens=4, steps=2, mask_id=130, device=device)
    proposals = (
        SamplingParams(confidence_eos_eot_inf=True),
        SamplingParams(0.7),
        SamplingParams(0.7, sampler="gumbel"),
    )
    for sampling in proposals:
        ends = {}
        for path in ("plain", "fused"):
            os.environ[vocab_statistics.VARIABLE] = path
            try:
                policy, noise = make_policy("fixed", alpha="stability"), Noise.of([1, 2], device)
                ends[path] = decode(denoiser, policy, start, noise=noise, sampling=sampling)
            finally:
                del os.environ[vocab_statistics.VARIABLE]
        assert torch.equal(ends["plain"].state.tokens_BL, ends["fused"].state.tokens_BL)
        for one, other in zip(ends["plain"].steps, ends["fused"].steps, strict=True):
            assert torch.equal(one.revealed_BL, other.revealed_BL)
            torch.testing.assert_close(one.confidence_BL, other.confidence_BL, rtol=BOUND, atol=BOUND, equal_nan=True)
    assert vocab_statistics._failures
    assert not any(vocab_statistics._failures.values())


def many_temperatures(device: str) -> None:
    """A server sees any number of temperatures: none of them leaves a tensor behind."""
    z_RV = logits(0, 2, 7)

    def tensors_left() -> int:
        gc.collect()
        return sum(isinstance(value, Tensor) for value in gc.get_objects())

    run(z_RV, StatsRequest(draw=inverse(0.5, 0, 2, 1)), device)
    before = tensors_left()
    for step in range(20):
        run(z_RV, StatsRequest(draw=inverse(1.0 + step / 100, 0, 2, 1)), device)
    assert tensors_left() == before


CASES: dict[str, Callable[[str], None]] = {
    "whole decodes": decodes,
    "ties": ties,
    "few possible tokens": few_possible_tokens,
    "one-sided": one_sided,
    "small steps": small_steps,
    "edges of uniforms": edges_of_uniforms,
    "many temperatures": many_temperatures,
    "not a number": lambda device: bad_logits(device, float("nan")),
    "infinite": lambda device: bad_logits(device, float("inf")),
    "all at once, 2 tokens": lambda device: all_at_once(device, 2, torch.float32, "inverse"),
    "all at once, 7 tokens": lambda device: all_at_once(device, 7, torch.bfloat16, "gumbel"),
    "all at once, 130 tokens": lambda device: all_at_once(device, 130, torch.float16, "inverse"),
    "all at once, 257 tokens": lambda device: all_at_once(device, 257, torch.float32, "gumbel"),
    "all at once, 320 tokens": lambda device: all_at_once(device, 320, torch.bfloat16, "inverse"),
    "greedy, 2 tokens": lambda device: greedy(device, 2, torch.float32),
    "greedy, 129 tokens": lambda device: greedy(device, 129, torch.bfloat16),
    "rows alone, inverse": lambda device: rows_alone(device, 192, torch.bfloat16, "inverse"),
    "rows alone, odd vocabulary": lambda device: rows_alone(device, 131, torch.bfloat16, "inverse"),
    "rows alone, gumbel": lambda device: rows_alone(device, 131, torch.float32, "gumbel"),
}


def tried() -> dict[str, str]:
    """What went wrong under the interpreter, by case; empty words where nothing did."""
    found = {}
    for name, case in CASES.items():
        try:
            case("cpu")
            found[name] = ""
        except Exception:
            found[name] = traceback.format_exc()
    return found


if __name__ == "__main__":
    json.dump(tried(), sys.stdout)
