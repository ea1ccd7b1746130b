"""Block caches, invariant batches and memory on LLaDA-8B's shape, all in one run.

    python bench/caches.py --json caches.json        one GPU of 80 GB or more; about a minute
    python bench/caches.py --small                   a few small layers on whatever device there is

Random bf16 weights; prompt 128, answer 128 in blocks of 32. A step counts as one token: the threshold rule finds
several, but not on random weights. `x` is over the eager loop without a cache, in the same run.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from layers import ANSWER, BLOCK, SMALL, SPEC, Results, a_network, a_state, kernels, machine, median, synchronise

from unmask.core import Needs, Noise, State, View, row_key
from unmask.decode import decode
from unmask.denoisers import ApproximateCache, Network
from unmask.denoisers.engines import choose_engine, use_engine
from unmask.denoisers.invariance import Floors
from unmask.denoisers.network import PACK
from unmask.policies import make


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where the numbers go")
    parser.add_argument("--small", action="store_true", help="a small network")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--section", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    args = parser.parse_args()
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    results = Results(args.json)
    results.put("machine", machine(device))
    print(json.dumps(results.values["machine"]), flush=True)
    network = a_network(SMALL if args.small else SPEC, device)
    for batch in args.batch if "caches" in args.section else ():
        with results.section(f"caches {batch}"):
            caches(network, batch, results)
    for name, measure in SECTIONS.items():
        if name in args.section and measure is not None:
            with results.section(name):
                measure(network, results)
    print(f"done after {time.perf_counter() - results.began:.0f} s")


def caches(network: Network, batch: int, results: Results) -> None:
    """Tokens per second of whole decodes."""
    best = choose_engine("auto", network.device).engine
    eager = tokens_per_second(use_engine(network, "eager"), batch, "llada")
    found = {"eager, no cache": eager}
    fast = use_engine(network, best)
    for policy in ("llada", "fast-dllm")[: 2 if batch == 1 else 1]:
        found[f"{best}, no cache, {policy}"] = tokens_per_second(fast, batch, policy)
        for kind in ("prefix", "dual"):
            found[f"{best}, {kind}, {policy}"] = tokens_per_second(fast, batch, policy, kind)
    results.put(f"tokens/s B={batch}", found)
    for name, rate in found.items():
        print(f"B {batch:2d}  {name:32s} {rate:8.1f} tokens/s  x {rate / eager:.2f}", flush=True)


def tokens_per_second(network: Network, batch: int, policy: str, kind: str | None = None) -> float:
    """Of the better of two decodes: those before compile and record."""
    chosen = make(policy, block_length=BLOCK)
    noise = Noise.of([row_key(0, f"bench {b}") for b in range(batch)], network.device)
    rates = []
    for steps in (ANSWER // 16, ANSWER // 16, ANSWER // 2, ANSWER // 2):
        start = a_state(network, batch, steps)
        denoiser = network if kind is None else ApproximateCache(network, kind, BLOCK)
        synchronise(network.device)
        began = time.perf_counter()
        end = decode(denoiser, chosen, start, noise=noise, record=False)
        synchronise(network.device)
        # One token a step, whatever number of steps was timed.
        rates.append(batch * int(end.forwards_B.max()) / (time.perf_counter() - began))
    return max(rates[2:])


def one_pass(network: Network, results: Results) -> None:
    """Milliseconds of a partial pass alone, and of a complete one, one row."""
    fast = use_engine(network, choose_engine("auto", network.device).engine)
    view = View.of(a_state(fast, 1, ANSWER), Needs())
    view = replace(view, row_B=torch.zeros(1, dtype=torch.long, device=fast.device))
    found = {"no cache": median(lambda: fast(view, Needs()), fast.device, 9)}
    for kind in ("prefix", "dual"):
        wrapper = ApproximateCache(fast, kind, BLOCK)
        for _ in range(4):
            wrapper(view, Needs())
        found[kind] = median(lambda w=wrapper: w(view, Needs()), fast.device, 15)
        kernels(lambda w=wrapper: w(view, Needs()), f"a partial pass, {kind}", fast.device)
    results.put("pass ms", found)
    print("one pass, one row:", {name: round(ms, 2) for name, ms in found.items()}, flush=True)


def invariant(network: Network, results: Results) -> None:
    """How many rows a pass needs for a row's bits not to depend on them, whether they then do not, and the cost."""
    engine = choose_engine("auto", network.device).engine
    plain = use_engine(network, engine)
    sure = use_engine(network, engine, invariant=True)
    state = a_state(network, 32, ANSWER, wanted=BLOCK)
    slots = state.tokens_BL.shape[1]
    began = time.perf_counter()
    floors = Floors(network.model)
    found = {"rows": floors.rows(slots, slots), "packs": floors.packs(PACK)}
    found["probe_s"] = time.perf_counter() - began
    whole = View.of(state, Needs())
    for size in (1, 2, 3, 4, 8, 32):
        view = View.of(state.select(torch.arange(size, device=network.device)), Needs())
        one: dict[str, object] = {}
        for name, net in (("plain", plain), ("invariant", sure)):
            truth_RV = net(whole, Needs()).logits_RV.clone()
            one[f"{name}_same"] = torch.equal(net(view, Needs()).logits_RV, truth_RV[: size * BLOCK])
            one[f"{name}_ms"] = median(lambda n=net, v=view: n(v, Needs()), network.device, 5)
        found[f"B={size}"] = one
        print(f"B {size:2d} ", one, flush=True)
    results.put("invariant", found)
    print("bounds:", found["rows"], found["packs"], f"found in {found['probe_s']:.2f} s", flush=True)


def wanted_only(network: Network, results: Results) -> None:
    """Milliseconds of a forward with 32 wanted slots per row, and with the last layer for these alone."""
    plain = use_engine(network, choose_engine("auto", network.device).engine)
    found = {}
    for batch in (1, 8, 32):
        view = View.of(a_state(network, batch, ANSWER, wanted=BLOCK), Needs())
        found[f"B={batch}"] = [
            median(lambda n=net, v=view: n(v, Needs()), network.device, 7)
            for net in (plain, replace(plain, wanted_only=True))
        ]
    results.put("wanted only ms", found)
    print("all slots, wanted only:", {name: [round(ms, 2) for ms in both] for name, both in found.items()}, flush=True)


def memory(network: Network, results: Results) -> None:
    """Peak memory of a decode of 64 rows of 512 slots, half of them answers, weights included; and with a cache."""
    if network.device.type != "cuda":
        return
    fast = use_engine(network, choose_engine("auto", network.device).engine)
    prompts = torch.randint(0, 200, (64, 256), generator=torch.Generator().manual_seed(0)).tolist()
    state = State.from_prompts(
        prompts, new_tokens=256, steps=8, mask_id=network.vocabulary.mask_id, device=network.device
    )
    noise = Noise.of([row_key(0, f"bench {b}") for b in range(64)], network.device)
    for kind in (None, "dual"):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        denoiser = fast if kind is None else ApproximateCache(fast, kind, 32)
        began = time.perf_counter()
        decode(denoiser, make("llada", block_length=32), state, noise=noise, record=False)
        synchronise(network.device)
        found = {
            "allocated_gb": torch.cuda.max_memory_allocated() / 1e9,
            "reserved_gb": torch.cuda.max_memory_reserved() / 1e9,
            "seconds": time.perf_counter() - began,
        }
        results.put(f"B=64 L=512 {kind or 'no cache'}", found)
        print(f"B 64 L 512 {kind or 'no cache'}:", found, flush=True)


SECTIONS: dict[str, Callable[[Network, Results], None] | None] = {
    "caches": None,
    "pass": one_pass,
    "invariant": invariant,
    "wanted": wanted_only,
    "memory": memory,
}


if __name__ == "__main__":
    main()
