"""A comparison out of numbers: no model, so that every mean, ratio and front is known beforehand."""

import pandas as pd

from unmask.lab.compare import Comparison
from unmask.lab.compare.run import ANSWER_COLUMNS, TIME_COLUMNS, TaskRun

HERE = "a device, 1 threads, machine aaaaaa"


def made(utilities, forwards=None, *, tokens=8, written=None, labels=None, times=(), run="now"):
    """`utilities` and `forwards` by task and policy, a list over prompts each; `times` are `timed` batches.

    `written` of the `tokens` of every answer are no filler.
    """
    rows, runs = [], []
    for task, by_policy in utilities.items():
        for policy, worth in by_policy.items():
            spent = (forwards or {}).get(task, {}).get(policy, [4] * len(worth))
            for at, (utility, count) in enumerate(zip(worth, spent, strict=True)):
                spent_row = (count, 1, 2, 3, 10 * count, tokens)
                rows.append((task, policy, str(at), utility, "", *spent_row, "x", written))
        runs.append(TaskRun(task, tokens, 4, prompts=len(worth)))
    policies = tuple(dict.fromkeys(row[1] for row in rows))
    methods = {policy: {"label": (labels or {}).get(policy, "verified")} for policy in policies}
    config = {"seed": 0, "methods": methods, "model": {"name": "made"}, "device": "cpu", "temperature": 0.0}
    return Comparison(
        split="fresh",
        policies=policies,
        tasks=tuple(runs),
        answers=pd.DataFrame(rows, columns=list(ANSWER_COLUMNS)),
        left_out=(),
        config=config,
        times=pd.DataFrame(list(times), columns=["task", "policy", "batch", *TIME_COLUMNS], dtype=object),
        run=run,
        machine=HERE,
    )


def timed(task, policy, batch, seconds, *, rows=2, cold=False, run="now", machine=HERE):
    """A measured batch; without seconds, one whose file is lost."""
    place = {"task": task, "policy": policy, "batch": batch}
    if seconds is None:
        return place
    counts = {"rows": rows, "tokens": 8 * rows, "answer_tokens": 2 * rows}
    return {**place, "seconds": seconds, **counts, "cold": cold, "run": run, "machine": machine}
