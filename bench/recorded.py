"""A whole step of a network of LLaDA-8B's shape, as the plain loop runs it and recorded: milliseconds, in one run.

    python bench/recorded.py --json recorded.json --profile 1 32  one GPU of 40 GB or more; about a minute
    python bench/recorded.py --small                              a few small layers on whatever device there is

Random bf16 weights; prompt 128, answer 128, blocks of 32, the default engine. `selective` reads all four diagnostics at
every step. The fourth decode is timed: the first runs the plain loop, the second its first steps one operation at a
time, the third records the opening ones. `same` says whether both loops gave the same tokens.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from layers import ANSWER, BLOCK, SMALL, SPEC, STEPS, Results, a_network, a_state, kernels, machine, median, synchronise

from unmask.adapt.detector import Lookup
from unmask.adapt.joint import JointPolicy
from unmask.core import Needs, Noise, Policy, View, row_key
from unmask.decode import decode
from unmask.denoisers.engines import choose_engine, use_engine
from unmask.denoisers.network import Network
from unmask.diagnostics import FOUR
from unmask.policies import Fixed, make

AUTHORS = {1: 29.4, 8: 68.1, 32: 261.1}
"""Milliseconds of a step of the authors' loop on their own code, measured once on one H200 at this shape."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where the numbers go")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--small", action="store_true", help="a small network")
    parser.add_argument("--profile", type=int, nargs="*", default=[], help="also the kernels by time, at these batches")
    args = parser.parse_args()
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    results = Results(args.json)
    results.put("machine", machine(device))
    print(json.dumps(results.values["machine"]), flush=True)
    network = use_engine(a_network(SMALL if args.small else SPEC, device), choose_engine("auto", device).engine)
    print(f"built after {time.perf_counter() - results.began:.0f} s", flush=True)
    for batch in args.batch:
        with results.section(f"B={batch}"):
            measure(network, batch, results, batch in args.profile)
    print(f"done after {time.perf_counter() - results.began:.0f} s")


def measure(network: Network, batch: int, results: Results, profiled: bool) -> None:
    device = network.device
    view = View.of(a_state(network, batch, STEPS, wanted=BLOCK), Needs())
    found: dict[str, float | bool] = {"forward": median(lambda: network(view, Needs()), device, 5)}
    # Few steps of the slowest batches are enough: all have the same shapes.
    steps = STEPS if batch < 8 else STEPS // 4 if batch < 32 else STEPS // 8
    plain = replace(network, recorder=None)
    for name, policy in policies().items():
        few = ANSWER // BLOCK if name == "llada" else 6
        once, tokens = timed(plain, policy, batch, steps, few)
        again, same = timed(network, policy, batch, steps, few)
        found |= {f"{name} plain": once, f"{name} recorded": again, f"{name} same": bool(torch.equal(tokens, same))}
        results.put(f"B={batch}", found)
        if profiled and name != "llada":
            kernels(lambda p=policy, n=few: run(network, p, batch, n), f"{few} recorded steps, {name}", device)
    found["selective / fixed"] = found["selective recorded"] / found["fixed recorded"]
    if batch in AUTHORS:
        found["authors / ours"] = AUTHORS[batch] / found["llada recorded"]
    if device.type == "cuda":
        found["memory_gb"] = torch.cuda.max_memory_allocated() / 1e9
    results.put(f"B={batch}", found)
    shown = (f"{k} {v if isinstance(v, bool) else format(v, '.2f')}" for k, v in found.items())
    print(f"B {batch:3d}  " + ", ".join(shown), flush=True)


def policies() -> dict[str, Policy]:
    """The authors' loop; a fixed policy, and selective adaptation around it with everything that it can read."""
    never = Lookup((), (0.0,), 1.0)
    diagnostics = tuple(kind() for kind in FOUR)
    llada = make("llada", block_length=BLOCK)
    assert isinstance(llada, Policy)
    own = Fixed(region=f"block:{BLOCK}")
    return {"llada": llada, "fixed": own, "selective": JointPolicy(own, diagnostics, (never,) * 4)}


def timed(
    network: Network, policy: Policy, batch: int, steps: int, few: int, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, torch.Tensor]:
    """Milliseconds per step of a whole decode, and its tokens."""
    for _ in range(3 if network.recorder is not None else 1):
        run(network, policy, batch, few)
    synchronise(network.device)
    began = clock()
    tokens_BL = run(network, policy, batch, steps)
    synchronise(network.device)
    return 1e3 * (clock() - began) / steps, tokens_BL


def run(network: Network, policy: Policy, batch: int, steps: int) -> torch.Tensor:
    noise = Noise.of([row_key(0, f"bench {b}") for b in range(batch)], network.device)
    return decode(network, policy, a_state(network, batch, steps), noise=noise, record=False).state.tokens_BL


if __name__ == "__main__":
    main()
