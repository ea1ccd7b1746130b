"""What the diagnostics cost: each, and all four together, as a share of one decoding step. Ratios of one run.

    python bench/diagnostics.py                                  the shipped model `mini` on the CPU
    python bench/diagnostics.py --model dream-7b --device cuda   a shape of `unmask bench`, with random weights

A step is forward, statistics, reference action and transition. `plain` asks the network for nothing extra; `needs` is
the same step with the attention read-out and the divergences that the diagnostics read. All shares are of the plain
step; `together` is what a decoder pays that reads all four: needs and readings. The state is half way through the
answer. Times are medians, measured in turns, each after a plain step that is not timed: what a GPU has just done
decides how fast it runs.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

import torch

import unmask
from unmask.core import (
    NO_LOOK_AHEAD,
    Action,
    Denoiser,
    LookAhead,
    Needs,
    Noise,
    Policy,
    Proposal,
    State,
    Trajectory,
    View,
)
from unmask.decode import decode
from unmask.diagnostics import FOUR, Diagnostic, replay
from unmask.lab.bench.subject import SHAPES, random_network
from unmask.policies import Fixed
from unmask.runner import Runner
from unmask.transition import apply

NEEDS = Needs(divergence=True, attention=True)


class Enough(Exception):
    """The decode has come to the state that is measured."""


@dataclass(frozen=True)
class Until(Policy):
    """The reference, with the diagnostics' needs and memory, up to a step."""

    name: ClassVar[str] = "until"
    stop: int
    kept: list[Trajectory]

    @property
    def needs(self) -> Needs:
        return NEEDS

    @property
    def memory(self) -> int:
        return max(kind().memory for kind in FOUR)

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        if int(traj.state.step_B[0]) == self.stop:
            self.kept.append(traj)
            raise Enough
        return Fixed().act(traj, look_ahead)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mini", help="a model that `unmask.load` knows, llada-8b or dream-7b")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--prompt", type=int, default=64, help="tokens of the prompt")
    parser.add_argument("--new", type=int, default=64, help="tokens of the answer; half as many steps")
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    denoiser = load(args.model, torch.device(args.device))
    print(f"{args.model} on {args.device}, prompt {args.prompt}, answer {args.new}, {torch.get_num_threads()} threads")
    names = ["divergence", "attention", "needs", *(kind.name for kind in FOUR), "all four", "together"]
    print(f"{'B':>4} {'plain ms':>9} " + " ".join(f"{name:>17}" for name in names))
    for batch in args.batch:
        ms = measure(denoiser, batch, args)
        step = ms["plain"]
        for name in ("divergence", "attention", "needs"):
            ms[name] -= step
        ms["together"] = ms["needs"] + ms["all four"]
        cells = [f"{ms[name]:7.2f} ms {ms[name] / step:6.1%}" for name in names]
        print(f"{batch:>4} {step:>9.2f} " + " ".join(f"{cell:>17}" for cell in cells), flush=True)


def load(name: str, device: torch.device) -> Denoiser:
    if name not in SHAPES:
        return unmask.load(name, device=str(device)).denoiser
    return random_network(SHAPES[name], device, torch.bfloat16)


def measure(denoiser: Denoiser, batch: int, args: argparse.Namespace) -> dict[str, float]:
    traj = half_way(denoiser, batch, args)
    action = Fixed().act(traj, NO_LOOK_AHEAD)
    readers: list[Diagnostic] = [kind() for kind in FOUR]
    runner = Runner(denoiser, Proposal())

    def step(needs: Needs) -> None:
        seen = runner.observe(traj, View.of(traj.state, needs), needs)
        apply(seen.state, seen.seen, Fixed().act(seen, NO_LOOK_AHEAD))

    calls: dict[str, Callable[[], object]] = {
        "plain": lambda: step(Needs()),
        "divergence": lambda: step(Needs(divergence=True)),
        "attention": lambda: step(Needs(attention=True)),
        "needs": lambda: step(NEEDS),
        **{r.axis: (lambda r=r: replay.read(r, traj, action)) for r in readers},
        "all four": lambda: replay.read_all(readers, traj, action),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    # The second reading of a shape is recorded, and the third is the first replay.
    for turn in range(args.repeats + 3):
        for name, call in calls.items():
            calls["plain"]()
            spent = timed(call, args.device)
            if turn > 2:
                times[name].append(spent)
    return {name: 1e3 * statistics.median(values) for name, values in times.items()}


def half_way(denoiser: Denoiser, batch: int, args: argparse.Namespace) -> Trajectory:
    draw = torch.Generator().manual_seed(batch)
    prompts = torch.randint(0, 200, (batch, args.prompt), generator=draw).tolist()
    steps = args.new // 2
    start = State.from_prompts(
        prompts, new_tokens=args.new, steps=steps, mask_id=denoiser.vocabulary.mask_id, device=args.device
    )
    policy = Until(steps // 2, [])
    with suppress(Enough):
        decode(denoiser, policy, start, noise=Noise.of(list(range(batch)), args.device), record=False)
    return policy.kept[0]


def timed(call: Callable[[], object], device: str) -> float:
    synchronise(device)
    began = time.perf_counter()
    call()
    synchronise(device)
    return time.perf_counter() - began


def synchronise(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
