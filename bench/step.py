"""One decoding step on the CPU: statistics + policy + transition, against a plain float64-softmax loop.

    python bench/step.py [--repeat 5] [--json]

The plain loop is what LLaDA's reference does after the network: argmax of the logits, a float64 softmax, gather,
and a top-k per row. Both sides get the same float32 logits of 16 wanted positions per row and must reveal the same
tokens. Ratios are plain / ours, measured alternately in one run (median); above 1 ours is faster. Memory is the
peak that a step adds on top of the logits, as a multiple of the logits' bytes, in a process of its own.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import time

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

import torch

from unmask.core import NO_LOOK_AHEAD, Logits, Needs, Noise, Proposal, State, Trajectory, View, Vocabulary, propose
from unmask.policies import LLaDA
from unmask.transition import apply

WANTED = 16


class Step:
    """A batch at its first step, with fixed logits."""

    def __init__(self, batch: int, vocab: int, seed: int = 0):
        generator = torch.Generator().manual_seed(seed)
        self.mask_id = vocab
        self.state = State.from_prompts([[0]] * batch, new_tokens=WANTED, steps=WANTED // 2, mask_id=vocab)
        self.logits_RV = torch.randn(batch * WANTED, vocab, generator=generator).mul_(3)
        self.vocabulary = Vocabulary(vocab, vocab)
        self.noise = Noise(torch.zeros(batch, dtype=torch.long))
        self.previous = None

    def remember(self) -> None:
        """Keep a posterior of the step before, so that divergences have something to compare with."""
        needs = Needs(divergence=True)
        moved = self.logits_RV + 0.1 * torch.randn(1, self.logits_RV.shape[1])
        self.previous = self._predict(moved, needs).posterior

    def ours(self, divergence: bool = False) -> torch.Tensor:
        prediction = self._predict(self.logits_RV, Needs(divergence=divergence))
        traj = Trajectory.start(self.state, self.noise)
        traj = type(traj)(**{**traj.__dict__, "prediction": prediction})
        change = apply(self.state, prediction, LLaDA().act(traj, NO_LOOK_AHEAD)).checked()
        return change.state.tokens_BL

    def _predict(self, logits_RV: torch.Tensor, needs: Needs):
        view = View.of(self.state, needs)
        return propose(
            Logits(logits_RV, view.wanted_BN),
            view,
            Proposal(),
            needs,
            self.vocabulary,
            noise=self.noise,
            step_B=self.state.step_B,
            previous=self.previous,
        )

    def plain(self) -> torch.Tensor:
        x = self.state.tokens_BL.clone()
        batch = x.shape[0]
        logits = self.logits_RV.view(batch, WANTED, -1)
        x0 = torch.argmax(logits, dim=-1)
        p = torch.softmax(logits.to(torch.float64), dim=-1)
        confidence = torch.gather(p, -1, x0.unsqueeze(-1)).squeeze(-1)
        for row in range(batch):
            _, index = torch.topk(confidence[row], k=2)
            x[row, index + 1] = x0[row, index]
        return x


def measure(batch: int, vocab: int, repeat: int) -> dict[str, float]:
    step = Step(batch, vocab)
    step.remember()
    same = torch.equal(step.ours(), step.plain()) and torch.equal(step.ours(True), step.plain())
    times: dict[str, list[float]] = {"plain": [], "ours": [], "ours_kl": []}
    runs = {"plain": step.plain, "ours": step.ours, "ours_kl": lambda: step.ours(True)}
    for _ in range(repeat):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    median = {name: statistics.median(values) for name, values in times.items()}
    return {
        "batch": batch,
        "vocab": vocab,
        "rows": batch * WANTED,
        "plain_ms": 1e3 * median["plain"],
        "ours_ms": 1e3 * median["ours"],
        "ours_kl_ms": 1e3 * median["ours_kl"],
        "ratio": median["plain"] / median["ours"],
        "ratio_kl": median["plain"] / median["ours_kl"],
        "same_tokens": same,
    }


def _high_water() -> int:
    """Peak resident bytes of this process since the mark was last reset (Linux)."""
    with open("/proc/self/status") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def _peak(kind: str, batch: int, vocab: int, answer: "multiprocessing.Queue[float]") -> None:
    """Peak memory of one step, as a multiple of the logits; a small step warms the libraries up."""
    getattr(Step(2, vocab), kind)()
    step = Step(batch, vocab)
    with open("/proc/self/clear_refs", "w") as mark:
        mark.write("5")
    before = _high_water()
    getattr(step, kind)()
    answer.put(1 + (_high_water() - before) / (step.logits_RV.numel() * 4))


def peak_memory(kind: str, batch: int, vocab: int) -> float:
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=_peak, args=(kind, batch, vocab, answer))
    process.start()
    value = answer.get()
    process.join()
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    options = parser.parse_args()
    rows = []
    if not options.json:
        print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {WANTED} wanted positions per row")
        print(f"{'B':>4} {'V':>7} {'plain ms':>9} {'ours ms':>9} {'ratio':>6} {'with KL':>9} {'ratio':>6}  same tokens")
    for vocab in (1_000, 32_000, 126_464):
        for batch in (1, 32, 256):
            row = measure(batch, vocab, options.repeat)
            rows.append(row)
            if not options.json:
                print(
                    f"{batch:>4} {vocab:>7} {row['plain_ms']:>9.2f} {row['ours_ms']:>9.2f} {row['ratio']:>6.2f} "
                    f"{row['ours_kl_ms']:>9.2f} {row['ratio_kl']:>6.2f}  {'yes' if row['same_tokens'] else 'NO'}"
                )
    memory = {kind: peak_memory(kind, 32, 126_464) for kind in ("ours", "plain")}
    if options.json:
        versions = {"torch": torch.__version__, "threads": torch.get_num_threads()}
        print(json.dumps({**versions, "rows": rows, "memory": memory}))
    else:
        peaks = ", ".join(f"{kind} {value:.2f}x the logits" for kind, value in memory.items())
        print(f"peak memory of a step, B = 32, V = 126464: {peaks}")


if __name__ == "__main__":
    main()
