"""The fused statistics on a GPU: right, fast, and what they do for a step.

    python bench/fused.py [--json PATH]

First the cases of tests/helpers/kernel_cases.py and rows of LLaDA's and Dream's vocabularies against the plain path;
then both paths' times over rows (medians, ratios of one run, logits read per second); then whole decodes of a network
of LLaDA-8B's width with 2 layers. A section that fails says so and the others go on.
"""

import argparse
import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from unmask.checkpoints.read import use_engine
from unmask.core import (
    Edit,
    Needs,
    Noise,
    Posterior,
    Proposal,
    State,
    Trajectory,
    Vocabulary,
    row_key,
    vocab_statistics_choice,
    vocab_statistics_triton,
)
from unmask.core.vocab_statistics import StatsRequest, TokenDraw, VocabStats, vocab_stats
from unmask.decode import decode
from unmask.denoisers.network import Network
from unmask.denoisers.transformer import Spec, Transformer
from unmask.policies import make

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.helpers import kernel_cases

LLADA, DREAM = 126_464, 152_064
DEVICE = "cuda"
ROWS = 70
KINDS = ("greedy", "divergence", "inverse", "gumbel")
LARGE = (
    (LLADA, torch.bfloat16, KINDS),
    (DREAM, torch.bfloat16, KINDS[:2]),
    (LLADA, torch.float32, KINDS[2:3]),
    (50_257, torch.float16, KINDS[2:]),
)
PIECES = ((1024, 1), (2048, 1), (2048, 2), (2048, 4), (4096, 2), (4096, 4), (8192, 4))
FOUND: dict[str, object] = {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where all numbers go")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("needs a GPU: there is none")
        return
    FOUND["machine"] = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    for section in (cases, large, pieces, times, step):
        began = time.perf_counter()
        print(f"\n== {section.__name__}", flush=True)
        try:
            FOUND[section.__name__] = section()
        except Exception:
            traceback.print_exc(file=sys.stdout)
            FOUND[section.__name__] = traceback.format_exc()
        print(f"   ({time.perf_counter() - began:.1f} s)", flush=True)
        if args.json:
            args.json.write_text(json.dumps(FOUND, indent=1))


def cases() -> dict[str, str]:
    found = {}
    for name, case in kernel_cases.CASES.items():
        try:
            case(DEVICE)
            found[name] = "ok"
        except Exception:
            found[name] = traceback.format_exc()
            print(f"FAILED {name}: {found[name][-1500:]}")
    print(f"{sum(v == 'ok' for v in found.values())} of {len(found)} cases hold")
    return found


def made(kind: str, rows: int, vocab: int, dtype: torch.dtype, seed: int = 0) -> tuple[Tensor, StatsRequest]:
    """Logits on the GPU and a request: greedy, divergence, inverse, gumbel."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    z_RV = torch.randn(rows, vocab, generator=generator, device=DEVICE, dtype=torch.float32).mul_(3).to(dtype)
    edit = Edit((vocab - 8,), (float("-inf"),))
    if kind == "divergence":
        old_RV = torch.randn(rows, vocab, generator=generator, device=DEVICE, dtype=torch.float32).mul_(3).to(dtype)
        logz_R = vocab_stats(old_RV, StatsRequest(edit=edit)).logz_R
        every_R = torch.arange(rows, device=DEVICE)
        return z_RV, StatsRequest(
            edit=edit, previous=Posterior(old_RV, logz_R, every_R[:, None], edit), previous_R=every_R
        )
    if kind == "inverse":
        u_RD = torch.rand(rows, 1, generator=generator, device=DEVICE, dtype=torch.float64)
        return z_RV, StatsRequest(edit=edit, draw=TokenDraw(0.7, uniform_RD=u_RD), filtered=True)
    if kind == "gumbel":
        draw = kernel_cases.gumbel(0.7, rows, 1, 1)
        bits_RD = draw.bits_RD.to(DEVICE)

        def uniform_vocab(row_C: Tensor) -> Tensor:
            return kernel_cases.entries(bits_RD[row_C, 0], vocab)[..., None]

        return z_RV, StatsRequest(edit=edit, draw=TokenDraw(0.7, uniform_vocab=uniform_vocab, bits_RD=bits_RD))
    return z_RV, StatsRequest(edit=edit)


def run(z_RV: Tensor, request: StatsRequest) -> VocabStats:
    return vocab_statistics_triton.run_kernels(vocab_statistics_triton.KernelVariant.of(z_RV, request), z_RV, request)


def large() -> dict[str, dict[str, object]]:
    """Whole vocabularies: the largest difference to the plain path, unequal tokens, and rows alone."""
    found = {}
    for vocab, dtype, kinds in LARGE:
        for kind in kinds:
            z_RV, request = made(kind, ROWS, vocab, dtype)
            got, want = run(z_RV, request), vocab_stats(z_RV, request)
            worst = {f.name: difference(getattr(got, f.name), getattr(want, f.name)) for f in fields(VocabStats)}
            flips = {n: worst.pop(n) for n in ("top_RK", "token_RD", "filtered_top_RK")}
            again = run(z_RV, request)
            alone = all(
                torch.equal(bits(getattr(part, f.name)), bits(getattr(got, f.name)[rows]))
                for rows in (torch.tensor([ROWS - 1]), torch.tensor([3, 5]), torch.arange(ROWS // 2))
                for part in (run(z_RV[rows.to(DEVICE)], kernel_cases.rows_of(request, rows.to(DEVICE))),)
                for f in fields(VocabStats)
            ) and all(torch.equal(bits(getattr(again, f.name)), bits(getattr(got, f.name))) for f in fields(VocabStats))
            name = f"{vocab} {str(dtype)[6:]} {kind}"
            found[name] = {"worst": worst, "unequal": flips, "rows alone": alone}
            top = max(worst, key=lambda n: worst[n])
            print(
                f"{name:36s} worst {worst[top]:.1e} ({top}); unequal tokens {flips}; alone equal: {alone}",
                flush=True,
            )
    return found


def bits(values: Tensor) -> Tensor:
    return values.contiguous().view(torch.int32) if values.is_floating_point() else values


def difference(one: Tensor, other: Tensor) -> float:
    """The largest absolute difference of numbers, how many tokens are unequal."""
    if not one.is_floating_point():
        return int((one != other).sum())
    assert torch.equal(one.isnan(), other.isnan())
    return float((one - other).nan_to_num(0).abs().max())


def milliseconds(work: Callable[[], object], repeats: int = 15) -> float:
    """Median by events on the device."""
    for _ in range(3):
        work()
    spans = []
    for _ in range(repeats):
        began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        began.record()
        work()
        ended.record()
        ended.synchronize()
        spans.append(began.elapsed_time(ended))
    return statistics.median(spans)


def pieces() -> dict[str, float]:
    """Other sizes of a piece and numbers of warps, for LLaDA's vocabulary: ms at 4,096 rows and at 32."""
    found = {}
    before = vocab_statistics_triton.PIECE, vocab_statistics_triton.WARPS
    for kind in ("greedy", "divergence"):
        for rows in (4096, 32):
            z_RV, request = made(kind, rows, LLADA, torch.bfloat16)
            for piece, warps in PIECES:
                vocab_statistics_triton.PIECE, vocab_statistics_triton.WARPS = piece, warps
                found[f"{kind} {rows} rows, {piece}, {warps} warps"] = milliseconds(partial(run, z_RV, request))
    vocab_statistics_triton.PIECE, vocab_statistics_triton.WARPS = before
    for name, ms in found.items():
        print(f"{name:45s} {ms:8.3f} ms")
    return found


def times() -> list[dict[str, object]]:
    """Both paths over rows; the host's part is the time to launch without waiting."""
    rate = copy_rate()
    print(f"a large copy: {rate:.0f} GB/s (read and written)")
    found: list[dict[str, object]] = [{"copy GB/s": rate}]
    for kind, sizes in (
        ("greedy", (32, 128, 512, 1024, 4096)),
        ("divergence", (32, 128, 1024, 4096)),
        ("inverse", (32, 1024)),
        ("gumbel", (32, 256)),
    ):
        for rows in sizes:
            z_RV, request = made(kind, rows, LLADA, torch.bfloat16)
            plain = milliseconds(partial(vocab_stats, z_RV, request), 5)
            ours = milliseconds(partial(run, z_RV, request))
            host = host_ms(partial(run, z_RV, request)), host_ms(partial(vocab_stats, z_RV, request))
            read = rows * LLADA * 2 * (2 if kind == "divergence" else 1) / ours / 1e6
            found.append({"kind": kind, "rows": rows, "plain": plain, "fused": ours, "host": host, "GB/s": read})
            print(
                f"{kind:10s} rows {rows:5d}: plain {plain:8.3f} ms, fused {ours:7.3f} ms ({plain / ours:5.1f}x), "
                f"{read:5.0f} GB/s ({read / 4800:.0%} of 4.8 TB/s); to launch {host[0]:.3f} ms, plain {host[1]:.3f}",
                flush=True,
            )
    return found


def copy_rate() -> float:
    source = torch.randn(1 << 28, device=DEVICE)
    target = torch.empty_like(source)
    return 2 * source.numel() * 4 / milliseconds(lambda: target.copy_(source)) / 1e6


def host_ms(work: Callable[[], object], repeats: int = 20) -> float:
    torch.cuda.synchronize()
    spans = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        spans.append(1e3 * (time.perf_counter() - began))
        torch.cuda.synchronize()
    return statistics.median(spans)


@contextmanager
def chosen(path: str) -> Iterator[None]:
    before = os.environ.get(vocab_statistics_choice.VARIABLE)
    os.environ[vocab_statistics_choice.VARIABLE] = path
    yield
    os.environ.pop(vocab_statistics_choice.VARIABLE)
    if before is not None:
        os.environ[vocab_statistics_choice.VARIABLE] = before


def network() -> Network:
    """LLaDA-8B's width, 2 layers, random weights."""
    spec = Spec(LLADA, 4096, 2, 32, 32, 12288, 500000.0, 1e-5, False, True)
    model = Transformer.empty(spec, DEVICE, torch.bfloat16)
    torch.manual_seed(0)
    for name, values in model.named_parameters():
        torch.nn.init.normal_(values, std=0.02) if "norm" not in name else torch.nn.init.ones_(values)
    return use_engine(Network(model.requires_grad_(False), Vocabulary(LLADA, 126_336, (126_081, 126_348))), "graph")


def step() -> list[dict[str, object]]:
    """A step of whole decodes, both ways: prompt 128, answer 128 in 64 steps, blocks of 32."""
    found = []
    denoiser = network()
    methods = {
        "llada": (make("llada", block_length=32), Proposal()),
        "sampled": (make("llada"), Proposal(temperature=0.7)),
    }
    for batch in (1, 8, 32):
        prompts = torch.randint(0, 1000, (batch, 128), generator=torch.Generator().manual_seed(0)).tolist()
        start = State.from_prompts(prompts, new_tokens=128, steps=64, mask_id=126_336, device=DEVICE)
        noise = Noise.of([row_key(0, row) for row in range(batch)], DEVICE)
        for name, (policy, proposal) in methods.items():
            spent: dict[str, list[float]] = {"plain": [], "fused": []}
            ends = {}
            for path in ("plain", "fused", "plain", "fused"):
                with chosen(path), torch.inference_mode():
                    torch.cuda.synchronize()
                    began = time.perf_counter()
                    ends[path] = decode(denoiser, policy, start, noise=noise, proposal=proposal, record=False)
                    torch.cuda.synchronize()
                    spent[path].append(1e3 * (time.perf_counter() - began) / 64)
            forward = milliseconds(partial(denoiser, policy.view(Trajectory.start(start, noise)), Needs()), 7)
            equal = float((ends["plain"].state.tokens_BL == ends["fused"].state.tokens_BL).float().mean())
            best = {path: min(values) for path, values in spent.items()}
            found.append({"B": batch, "method": name, "ms": best, "forward": forward, "equal tokens": equal})
            print(
                f"B {batch:3d} {name:8s}: step plain {best['plain']:7.3f} ms, fused {best['fused']:7.3f} ms "
                f"({best['plain'] / best['fused']:.2f}x); forward {forward:.3f} ms; equal tokens {equal:.2%}",
                flush=True,
            )
    return found


if __name__ == "__main__":
    main()
