"""Seconds to score 10,000 predictions of each task that runs no program, on one core.

    python bench/tasks.py [--data-dir DIR] [--predictions 10000] [--json]

The predictions are right, half right and wrong in turn, with a few sentences of reasoning before the answer.
Without a data folder (or UNMASK_DATA) the official tasks are left out. The target is 5 seconds for each.
"""

import argparse
import json
import time
from itertools import cycle, islice

from unmask.tasks import TASKS, Example, MissingData, examples, score

REASONING = "Let me look at this step by step. There are 12 of these and 30 of those, so it follows. " * 3


def predictions(members: tuple[Example, ...], n: int) -> list[tuple[str, Example]]:
    shapes = cycle(
        (
            lambda e: f"{REASONING}\n<answer>{e.target}</answer>",
            lambda e: f"{REASONING}\n<answer>{e.target[: len(e.target) // 2]}</answer>",
            lambda e: f"{REASONING}\n{e.target}",
            lambda e: f"{REASONING}\nI do not know: {{ and }} and 3.",
        )
    )
    return [(shape(e), e) for shape, e in islice(zip(shapes, cycle(members), strict=False), n)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data-dir")
    parser.add_argument("--predictions", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    seconds = {}
    for name in TASKS:
        if name == "humaneval":
            continue
        try:
            members = examples(name, "evaluation", options.data_dir)
        except MissingData:
            continue
        pairs = predictions(members, options.predictions)
        start = time.perf_counter()
        total = sum(score(text, example).utility or 0.0 for text, example in pairs)
        seconds[name] = round(time.perf_counter() - start, 3)
        if not options.json:
            print(f"{name:<24}{seconds[name]:>8.3f} s   mean utility {total / len(pairs):.3f}")
    if options.json:
        print(json.dumps(seconds))


if __name__ == "__main__":
    main()
