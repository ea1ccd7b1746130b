"""How fast the models of the package answer: one prompt alone, and many together.

python bench/generate.py

A 48-token answer in 24 steps by the model's reference decoder; then 64 canvases of 128 positions, of which 48 are the
answer, decoded together. Loading is told apart.
"""

import argparse
import time
from functools import partial

import torch

from unmask.catalog import load
from unmask.core import Noise, State
from unmask.decode import decode
from unmask.policies import make

ANSWER, CANVAS, ROWS = 48, 128, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="*", default=["mini", "mini-dream"])
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    print(f"{torch.get_num_threads()} threads; the best of {args.repeat}")
    for name in args.model:
        began = time.perf_counter()
        model = load(name)
        loaded = time.perf_counter() - began
        one = best(args.repeat, partial(model.generate, max_new_tokens=ANSWER))
        many = best(args.repeat, partial(together, model))
        print(f"{name}: loaded in {loaded:.2f} s; one answer {one:.2f} s; {ROWS} rows {ROWS / many:.1f} rows/s")


def together(model) -> None:  # type: ignore[no-untyped-def]
    """Canvases of one length, so that the number means the same for every model."""
    vocabulary = model.denoiser.vocabulary
    draw = torch.Generator().manual_seed(0)
    prompts = torch.randint(0, vocabulary.mask_id // 2, (ROWS, CANVAS - ANSWER), generator=draw).tolist()
    start = State.from_prompts(prompts, new_tokens=ANSWER, steps=ANSWER // 2, mask_id=vocabulary.mask_id)
    with torch.inference_mode():
        decode(model.denoiser, make(model.reference), start, noise=Noise.of(list(range(ROWS))), record=False)


def best(repeat: int, work) -> float:  # type: ignore[no-untyped-def]
    spent = []
    for _ in range(repeat):
        began = time.perf_counter()
        work()
        spent.append(time.perf_counter() - began)
    return min(spent)


if __name__ == "__main__":
    main()
