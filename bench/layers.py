"""How a network of LLaDA-8B's shape runs under each engine, in one run: forwards, steps, products alone, memory.

    python bench/layers.py --json layers.json --profile        one GPU of 40 GB or more; three to four minutes
    python bench/layers.py --small                             a few small layers on whatever device there is

Random bf16 weights; prompt 128, answer 128 in 64 steps, blocks of 32. A step is a whole one: forward, statistics,
policy, transition. `products` are the layers' and the head's matrix products alone, at the same shapes, with the same
weights: the floor of a forward. `rate` is what the products of a forward need at the speed of one large product, as a
share of the forward. Every section stands alone: one that fails prints its traceback, and the results so far are in
the file.
"""

import argparse
import json
import statistics
import time
import traceback
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from unmask.core import Needs, Noise, State, View, Vocabulary, row_key
from unmask.decode import decode
from unmask.denoisers.engines import ENGINES, choose_engine, use_engine
from unmask.denoisers.kernels import fused_ops
from unmask.denoisers.network import Network
from unmask.denoisers.readout import default_layers
from unmask.denoisers.transformer import PLAIN, Layer, Rotation, Spec, Transformer
from unmask.lab.bench.subject import SHAPES
from unmask.policies import make

PROMPT, ANSWER, STEPS, BLOCK = 128, 128, 64, 32
SPEC = SHAPES["llada-8b"].spec
SMALL = replace(SPEC, vocab=1024, width=128, layers=3, heads=4, kv_heads=4, mlp=384)


class Results:
    """Numbers by section, in a file as soon as they are there."""

    def __init__(self, path: Path | None):
        self.path, self.began = path, time.perf_counter()
        self.values: dict[str, Any] = {}

    def put(self, section: str, value: Any) -> None:
        self.values[section] = value
        if self.path is not None:
            self.path.write_text(json.dumps(self.values, indent=1) + "\n")

    @contextmanager
    def section(self, name: str):  # type: ignore[no-untyped-def]
        try:
            yield
        except Exception:
            print(f"-- {name} failed\n{traceback.format_exc()}", flush=True)
            self.put(f"{name} failed", traceback.format_exc().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where the numbers go")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--engine", nargs="+", choices=ENGINES)
    parser.add_argument("--small", action="store_true", help="a small network")
    parser.add_argument("--profile", action="store_true", help="also the kernels by time")
    args = parser.parse_args()
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    results = Results(args.json)
    results.put("machine", machine(device))
    print(json.dumps(results.values["machine"]), flush=True)
    network = a_network(SMALL if args.small else SPEC, device)
    print(f"built after {time.perf_counter() - results.began:.0f} s", flush=True)
    rate = 0.0
    with results.section("rate"), torch.inference_mode():
        rate = product_rate(device, 8192 if device.type == "cuda" else 512)
        results.put("rate_tflops", rate)
        print(f"one large product: {rate / 1e12:.0f} TFLOP/s")
    if device.type == "cuda":
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            with results.section(f"kernels {dtype}"), torch.inference_mode():
                against_plain(network.model.spec, dtype, device, results)
    engines = args.engine or (["eager", "graph", "fused", "compile"] if device.type == "cuda" else ["eager"])
    for batch in args.batch:
        with results.section(f"products {batch}"), torch.inference_mode():
            ms = median(lambda b=batch: products(network.model, b * (PROMPT + ANSWER), b * BLOCK), device, 7)
            results.put(f"products B={batch}", ms)
            print(f"products alone   B {batch:3d} {ms:8.2f} ms", flush=True)
    with results.section("shapes"), torch.inference_mode():
        shapes(network.model, args.batch, results)
    plain: dict[int, torch.Tensor] = {}
    for engine in engines:
        for batch in args.batch:
            with results.section(f"{engine} {batch}"):
                measure(network, engine, batch, rate, results, plain, args.profile)
    if device.type == "cuda":
        with results.section("rows"):
            rows_alone(network, results)
        with results.section("memory"):
            large_batch(network, results)
    print(f"done after {time.perf_counter() - results.began:.0f} s")


def measure(
    network: Network,
    engine: str,
    batch: int,
    rate: float,
    results: Results,
    plain: dict[int, torch.Tensor],
    profiled: bool,
) -> None:
    device = network.device
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    run = use_engine(network, engine)
    view = View.of(a_state(network, batch, STEPS, wanted=BLOCK), Needs())
    for _ in range(3):  # the first compiles, the second records
        logits_RV = run(view, Needs()).logits_RV
    forward = median(lambda: run(view, Needs()), device, 7)
    found: dict[str, Any] = {
        "forward_ms": forward,
        "rate": flops(network.model.spec, batch) / max(rate, 1) / forward * 1e3,
    }
    if engine == "eager":
        plain[batch] = logits_RV[: 8 * BLOCK].clone()
    elif batch in plain:
        part_RV = logits_RV[: 8 * BLOCK]
        found["off"] = float((part_RV.float() - plain[batch].float()).abs().max())
        found["flips"] = float((part_RV.argmax(-1) != plain[batch].argmax(-1)).float().mean())
    if profiled and engine in ("fused", "compile"):
        found["kernels"] = kernels(lambda: run(view, Needs()), f"{engine} B {batch}", device)
    # Few steps of the slowest rows are enough: all have the same shapes.
    steps = STEPS if batch < 32 or engine == "fused" else STEPS // 4
    found["step_ms"], found["tokens"] = decode_time(run, batch, steps)
    if device.type == "cuda":
        found["memory_gb"] = torch.cuda.max_memory_allocated() / 1e9
    results.put(f"{engine} B={batch}", found)
    line = "  ".join(f"{k} {v:.4g}" for k, v in found.items() if isinstance(v, float))
    print(f"{engine:8s} B {batch:3d}  {line}", flush=True)


def against_plain(spec: Spec, dtype: torch.dtype, device: torch.device, results: Results) -> None:
    """Each kernel beside the plain operations, on 2,048 slots: numbers that differ, and milliseconds."""
    ops, rows = fused_ops(), 2048
    x, delta, qkv, wide = (
        torch.randn(8, rows // 8, n, device=device).to(dtype)
        for n in (spec.width, spec.width, sum(spec.qkv), 2 * spec.mlp)
    )
    weight = torch.randn(spec.width, device=device).to(dtype)
    position_BN = torch.arange(rows // 8, device=device).expand(8, -1)
    found: dict[str, Any] = {}
    for angles in ("float32", "own type"):
        rotation = Rotation.of(position_BN, replace(spec, rope_float32=angles == "float32"), dtype)
        work = {
            f"rotate {angles}": lambda o, q, r=rotation: o.rotate(*q.split(spec.qkv, -1), r, spec.head_dim)[:2],
            "add_norm": lambda o, q: o.add_norm(x if o is PLAIN else x.clone(), delta, weight, spec.eps),
            "gate": lambda o, q: (o.gate(*wide.split(spec.mlp, -1)),),
        }
        for name, call in work.items():
            plain, fused = call(PLAIN, qkv.clone()), call(ops, qkv.clone())
            found[name] = {
                "differ": [int((a != b).sum()) for a, b in zip(plain, fused, strict=True)],
                "off": max(float((a.float() - b.float()).abs().max()) for a, b in zip(plain, fused, strict=True)),
                "plain_ms": median(lambda c=call: c(PLAIN, qkv), device, 15),
                "fused_ms": median(lambda c=call: c(ops, qkv), device, 15),
            }
    results.put(f"kernels {dtype}", found)
    for name, values in found.items():
        print(f"{str(dtype)[6:]:9s} {name:16s} {values}", flush=True)


def decode_time(run: Network, batch: int, steps: int) -> tuple[float, int]:
    """Milliseconds per step of a whole decode, and a number that tells two results apart."""
    policy = make("llada", block_length=BLOCK)
    noise = Noise.of([row_key(0, f"bench {b}") for b in range(batch)], run.device)
    decode(run, policy, a_state(run, batch, ANSWER // BLOCK), noise=noise, record=False)
    start = a_state(run, batch, steps)
    synchronise(run.device)
    began = time.perf_counter()
    end = decode(run, policy, start, noise=noise, record=False)
    synchronise(run.device)
    spent = time.perf_counter() - began
    tokens_BL = end.state.tokens_BL
    weight_L = torch.arange(1, tokens_BL.shape[1] + 1, device=run.device)
    return 1e3 * spent / steps, int((tokens_BL * weight_L).sum())


def rows_alone(network: Network, results: Results) -> None:
    """Whether a row's logits are the same bits among other neighbours, and in batches of 4, 8, 16 and 32."""
    run = use_engine(network, choose_engine("auto", network.device).engine)
    view = View.of(a_state(network, 32, STEPS, wanted=BLOCK), Needs())
    whole = run(view, Needs()).logits_RV[: 4 * BLOCK].clone()
    order = torch.tensor([*range(4), *reversed(range(4, 32))], device=network.device)
    found: dict[str, bool] = {}
    for size in (32, 16, 8, 4, 2, 1):
        part = replace(
            view,
            **{
                n: getattr(view, n)[order[:size]]
                for n in ("tokens_BN", "position_BN", "valid_BN", "fixed_BN", "wanted_BN")
            },
        )
        rows = min(size, 4) * BLOCK
        found[str(size)] = torch.equal(run(part, Needs()).logits_RV[:rows], whole[:rows])
    results.put("same bits as in a batch of 32", found)
    print("same bits as in a batch of 32:", found)


def large_batch(network: Network, results: Results) -> None:
    """Peak memory of recorded passes over 64 rows of 512 slots, weights included."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    run = use_engine(network, choose_engine("auto", network.device).engine)
    prompts = torch.randint(0, 200, (64, 512 - BLOCK), generator=torch.Generator().manual_seed(0)).tolist()
    mask_id = network.vocabulary.mask_id
    state = State.from_prompts(prompts, new_tokens=BLOCK, steps=8, mask_id=mask_id, device=network.device)
    view = View.of(state, Needs())
    ms = median(lambda: run(view, Needs()), network.device, 3)
    found = {"gb": torch.cuda.max_memory_allocated() / 1e9, "reserved_gb": torch.cuda.max_memory_reserved() / 1e9}
    results.put("B=64 L=512", found | {"forward_ms": ms})
    print("B 64 L 512:", found, f"{ms:.1f} ms")


def products(model: Transformer, rows: int, wanted: int) -> torch.Tensor:
    """Every matrix product of a forward, and nothing else."""
    spec, x = model.spec, noise_like(model, rows, model.spec.width)
    wide = noise_like(model, rows, spec.mlp)
    for layer in model.layers:
        assert isinstance(layer, Layer)
        F.linear(x, layer.qkv.weight)
        F.linear(x, layer.out.weight)
        F.linear(x, layer.gate_up.weight)
        F.linear(wide, layer.down.weight)
    return F.linear(x[:wanted], model.head.weight)


def shapes(model: Transformer, batches: list[int], results: Results) -> None:
    """TFLOP/s of each product of a layer, half a second of it without pause; and of one large product, as long."""
    device, layer = model.device, model.layers[0]
    assert isinstance(layer, Layer)
    size = 8192 if device.type == "cuda" else 256
    square = torch.randn(size, size, device=device, dtype=model.dtype)
    large = sustained(lambda: square @ square, 2.0 * size**3, device)
    results.put("sustained large product", large)
    print(f"one large product, sustained: {large:.0f} TFLOP/s")
    weights = {
        "qkv": layer.qkv.weight,
        "out": layer.out.weight,
        "gate_up": layer.gate_up.weight,
        "down": layer.down.weight,
    }
    for batch in batches:
        rows = batch * (PROMPT + ANSWER)
        found = {}
        for name, weight in weights.items():
            x = torch.randn(rows, weight.shape[1], device=device, dtype=model.dtype)
            found[name] = sustained(lambda a=x, w=weight: F.linear(a, w), 2.0 * rows * weight.numel(), device)
        results.put(f"products TFLOP/s B={batch}", found)
        print(f"products B {batch:3d}: " + ", ".join(f"{n} {v:.0f}" for n, v in found.items()) + " TFLOP/s", flush=True)


def sustained(work: Callable[[], object], flop: float, device: torch.device, seconds: float = 0.5) -> float:
    """TFLOP/s of the second half of some time, so that clocks have settled."""
    one = max(median(work, device, 3), 1e-3) / 1e3
    count = max(4, int(seconds / one))
    for half in range(2):
        if half:
            synchronise(device)
        began = time.perf_counter()
        for _ in range(count // 2):
            work()
    synchronise(device)
    return flop * (count // 2) / (time.perf_counter() - began) / 1e12


_NOISE: dict[tuple[int, int], torch.Tensor] = {}


def noise_like(model: Transformer, rows: int, width: int) -> torch.Tensor:
    if (rows, width) not in _NOISE:
        _NOISE.clear() if len(_NOISE) > 1 else None
        _NOISE[rows, width] = torch.randn(rows, width, device=model.device, dtype=model.dtype)
    return _NOISE[rows, width]


def flops(spec: Spec, batch: int) -> float:
    """Of the layers' products and attention over all slots, and of the head over the wanted ones."""
    slots = PROMPT + ANSWER
    layer = sum(spec.qkv) * spec.width + spec.width**2 + 3 * spec.mlp * spec.width
    attention = 2 * slots * spec.width
    return 2.0 * batch * (slots * spec.layers * (layer + attention) + BLOCK * spec.vocab * spec.width)


def product_rate(device: torch.device, n: int) -> float:
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
    return 2.0 * n**3 / median(lambda: a @ b, device, 15) * 1e3


def kernels(work: Callable[[], object], title: str, device: torch.device) -> list[tuple[str, int, float]]:
    """Kernels by time of one call: name, calls, milliseconds."""
    cuda = device.type == "cuda"
    activity = torch.profiler.ProfilerActivity.CUDA if cuda else torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[activity]) as profile:
        work()
        synchronise(device)
    times = [
        (e.key, e.count, (e.self_device_time_total if cuda else e.self_cpu_time_total) / 1e3)
        for e in profile.key_averages()
    ]
    times.sort(key=lambda row: -row[2])
    print(f"  {title}: {sum(t for *_, t in times):.2f} ms in {sum(n for _, n, _ in times)} kernels")
    for name, count, ms in times[:16]:
        print(f"    {ms:8.3f} ms {count:5d} x  {name[:110]}")
    return times[:40]


def a_network(spec: Spec, device: torch.device) -> Network:
    """Drawn where it lives; norms of ones."""
    torch.manual_seed(0)
    model = Transformer.empty(spec, device, torch.bfloat16 if device.type == "cuda" else torch.float32)
    with torch.no_grad():
        for name, values in model.named_parameters():
            torch.nn.init.normal_(values, std=0.02) if "norm" not in name else torch.nn.init.ones_(values)
    return Network(model.requires_grad_(False), Vocabulary(spec.vocab, spec.vocab - 1), 0, default_layers(spec.layers))


def a_state(network: Network, batch: int, steps: int, wanted: int = ANSWER) -> State:
    """Prompts of one length; with fewer wanted slots the rest of the answer belongs to the prompt."""
    draw = torch.Generator().manual_seed(batch)
    prompts = torch.randint(0, 200, (32, PROMPT + ANSWER - wanted), generator=draw.manual_seed(0))[:batch].tolist()
    mask_id = network.vocabulary.mask_id
    return State.from_prompts(
        prompts, new_tokens=wanted, steps=min(steps, wanted), mask_id=mask_id, device=network.device
    )


def median(work: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Milliseconds, after two calls to warm up."""
    spent = []
    for _ in range(repeats + 2):
        synchronise(device)
        began = time.perf_counter()
        work()
        synchronise(device)
        spent.append(1e3 * (time.perf_counter() - began))
    return statistics.median(spent[2:])


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def machine(device: torch.device) -> dict[str, Any]:
    choice = choose_engine("auto", device)
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "default engine": choice.engine,
        "why": choice.why,
    }


if __name__ == "__main__":
    main()
