"""An evaluation out of numbers: no model, so that every mean, ratio and front is known beforehand."""

from unmask.lab.compare import AnswerRow, Evaluation, TaskRun
from unmask.lab.compare_timing import BatchTime, TimedBatch

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
                rows.append(AnswerRow(task, policy, str(at), utility, "", *spent_row, "x", written))
        runs.append(TaskRun(task, tokens, 4, prompts=len(worth)))
    policies = tuple(dict.fromkeys(row.policy for row in rows))
    methods = {policy: {"label": (labels or {}).get(policy, "verified")} for policy in policies}
    config = {"seed": 0, "methods": methods, "model": {"name": "made"}, "device": "cpu", "temperature": 0.0}
    return Evaluation(
        "fresh", policies, tuple(runs), tuple(rows), (), config, times=tuple(times), run=run, machine=HERE
    )


def timed(task, policy, batch, seconds, *, rows=2, cold=False, run="now", machine=HERE):
    time = None if seconds is None else BatchTime(seconds, rows, 8 * rows, cold, run, machine, 2 * rows)
    return TimedBatch(task, policy, batch, time)
