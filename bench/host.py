"""What a step costs beside its forward on the CPU: one short row of a small model.

    python bench/host.py [--repeat 7] [--profile] [--json]

One row is decoded to its end; the time inside the denoiser is counted apart, in the same run. The ratio is a step over
its forward (median of the repeats). `mini` is the model of the package; `tiny` has one narrow layer, so that nearly all
of its step is the host's. `--profile` says where the host's part goes.
"""

import argparse
import cProfile
import json
import os
import pstats
import statistics
import time
from dataclasses import dataclass, field

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from unmask.catalog import load
from unmask.core import Denoiser, Logits, Needs, Noise, Policy, Proposal, State, View, Vocabulary
from unmask.core.contracts import DenoiserAround
from unmask.decode import decode
from unmask.denoisers.network import Network
from unmask.denoisers.transformer import Spec, Transformer
from unmask.policies import make

PROMPT, ANSWER, STEPS = 12, 20, 10


@dataclass
class Timed(DenoiserAround):
    """Counts the seconds inside the denoiser."""

    denoiser: Denoiser
    spent: list[float] = field(default_factory=list)

    def __call__(self, view: View, needs: Needs) -> Logits:
        began = time.perf_counter()
        answer = self.denoiser(view, needs)
        self.spent.append(time.perf_counter() - began)
        return answer


def tiny() -> Network:
    model = Transformer.empty(Spec(512, 64, 1, 2, 2, 128, 1e4, 1e-5, False, True), "cpu", torch.float32)
    torch.manual_seed(0)
    for name, values in model.named_parameters():
        torch.nn.init.ones_(values) if "norm" in name else torch.nn.init.normal_(values, std=0.02)
    return Network(model.requires_grad_(False), Vocabulary(512, 511, (510,)))


def once(denoiser: Denoiser, policy: Policy, proposal: Proposal) -> dict[str, float]:
    """Milliseconds of a step, and of its forward."""
    vocabulary = denoiser.vocabulary
    prompt = torch.randint(0, 400, (PROMPT,), generator=torch.Generator().manual_seed(0)).tolist()
    start = State.from_prompts([prompt], new_tokens=ANSWER, steps=STEPS, mask_id=vocabulary.mask_id)
    timed = Timed(denoiser)
    began = time.perf_counter()
    with torch.inference_mode():
        decode(timed, policy, start, noise=Noise.of([1]), proposal=proposal)
    steps = len(timed.spent)
    return {"step": 1e3 * (time.perf_counter() - began) / steps, "forward": 1e3 * sum(timed.spent) / steps}


def measure(denoiser: Denoiser, repeat: int, proposal: Proposal) -> dict[str, float]:
    policy = make("llada")
    once(denoiser, policy, proposal)
    runs = [once(denoiser, policy, proposal) for _ in range(repeat)]
    step, forward = (statistics.median(run[name] for run in runs) for name in ("step", "forward"))
    return {"step": step, "forward": forward, "host": step - forward, "ratio": step / forward}


def profile(denoiser: Denoiser) -> None:
    policy, noted = make("llada"), cProfile.Profile()
    noted.enable()
    for _ in range(10):
        once(denoiser, policy, Proposal())
    noted.disable()
    pstats.Stats(noted).sort_stats("tottime").print_stats(45)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    args = parser.parse_args()
    torch.set_num_threads(1)
    models: dict[str, Denoiser] = {"mini": load("mini").denoiser, "tiny": tiny()}
    proposals = {"greedy": Proposal(), "sampled": Proposal(temperature=0.7)}
    found = {
        f"{model}, {name}": measure(denoiser, args.repeat, proposal)
        for model, denoiser in models.items()
        for name, proposal in proposals.items()
    }
    if args.json:
        print(json.dumps({"torch": torch.__version__, "found": found}))
        return
    for name, numbers in found.items():
        print(
            f"{name:15s} "
            + ", ".join(f"{kind} {value:.2f}{'x' if kind == 'ratio' else ' ms'}" for kind, value in numbers.items())
        )
    if args.profile:
        profile(models["tiny"])


if __name__ == "__main__":
    main()
