"""Studies made by hand: utilities that are known go in, a store comes out. No model is run."""

import numpy as np
import pyarrow as pa

from unmask.lab.store import STATES, Shard, Store

LENGTH = 8
"""Positions of every answer; states lie evenly along it."""


def config(models, tasks, axes, rollouts, temperature):
    prompts = {"split": "evaluation", "start": 0, "prompts": 100}
    return {
        "name": "made",
        "seed": 5,
        "models": [{"name": name, "model": source, "reference": "llada"} for name, source in models.items()],
        "tasks": tasks,
        "axes": axes,
        "splits": {"validation": {**prompts, "split": "validation"}, "evaluation": prompts},
        "states": 4,
        "steps": dict.fromkeys(tasks, 4),
        "rollouts": rollouts,
        "temperature": temperature,
        "candidates": {},
    }


def branches(shard, axes, reason):
    """Rows from axes of candidates, the reference first, each with utilities (prompts, states, rollouts)."""
    rows = []
    for axis, candidates in axes.items():
        for at, (candidate, q_PSR) in enumerate(candidates.items()):
            for (p, s, r), utility in np.ndenumerate(q_PSR):
                rows.append(
                    {
                        "model": shard.model,
                        "task": shard.task,
                        "split": shard.split,
                        "prompt": f"{shard.split}-{shard.block}-{p}",
                        "state": s,
                        "step": s,
                        "masked": LENGTH - s * LENGTH // q_PSR.shape[1],
                        "axis": axis,
                        "candidate": candidate,
                        "is_reference": at == 0,
                        "rollout": r,
                        "utility": None if np.isnan(utility) else float(utility),
                        "reason": reason if np.isnan(utility) else "compared",
                        "answer": "",
                    }
                )
    return pa.Table.from_pylist(rows)


def store(
    folder, tables, *, models=None, axes=None, temperature=0.0, unfinished=(), unavailable=None, reason="timed out"
):
    """`tables` by (model, task, split) hold axes of candidates; `unfinished` are shards that are only planned."""
    models = models or {"small": "small"}
    tasks = list(dict.fromkeys([task for _, task, _ in (*tables, *unfinished)] + list(unavailable or {})))
    axes = axes or list(next(iter(tables.values()), {"score": None}))
    some = [q for held in tables.values() for named in held.values() for q in named.values()]
    place = Store.create(folder, config(models, tasks, axes, some[0].shape[2] if some else 4, temperature))
    shards = {key: Shard(*key, 0, "0" * 16) for key in (*tables, *unfinished)}
    for task in tasks:
        why = (unavailable or {}).get(task)
        place.note("tasks", task, {"unavailable": why} if why else {"data": "d" * 16, "version": "1"})
    for name, source in models.items():
        mine = [shard.name for (model, _, _), shard in shards.items() if model == name]
        if mine:
            about = {"model": source, "device": "cpu", "options": {"fingerprint": "f" * 16, "family": "llada"}}
            place.note("models", name, {**about, "reference": "llada", "shards": mine})
    for key, held in tables.items():
        table = branches(shards[key], held, reason)
        work = {"branches": 6, "done": 10, "rollouts": 30, "first": 4, "futures": 5, "settled": 1}
        prompts = sorted(set(table["prompt"].to_pylist()))
        info = {
            "shard": {"model": key[0], "task": key[1], "split": key[2], "block": 0, "depends": "0" * 16},
            "prompts": prompts,
            "states": len(prompts) * 4,
            "branches": len(table),
            "judged": len(table) - table["utility"].null_count,
            "utility": 1.0,
            "forwards": {"naive": 50, "done": 10, "trajectory": 7, "recalled": 2, "calls": 3},
            "axes": dict.fromkeys(held, work),
            "seconds": 1.5,
            "versions": {},
        }
        place.write(shards[key], STATES.empty_table(), table, info)
    return place


def flat(value, prompts=20, states=4, rollouts=4):
    """One utility everywhere."""
    return np.full((prompts, states, rollouts), float(value))


def known(prompts=20, rollouts=4):
    """Two tasks whose numbers can be worked out by hand; see `TRUTH`."""
    size = {"prompts": prompts, "rollouts": rollouts}
    late = flat(0.0, **size)
    late[:, 3] = 1.0
    fill = {
        "validation": {
            "score": {"confidence": flat(0.1, 3, 4, rollouts), "margin": flat(0.4, 3, 4, rollouts)},
            "region": {"full": flat(0.6, 3, 4, rollouts), "block:8": flat(0.5, 3, 4, rollouts)},
            "commitment": {"all": flat(0.3, 3, 4, rollouts), "none": flat(0.3, 3, 4, rollouts)},
        },
        "evaluation": {
            "score": {"confidence": late, "margin": flat(0.5, **size)},
            "region": {"full": flat(0.2, **size), "block:8": flat(0.9, **size)},
            "commitment": {"all": flat(0.3, **size), "none": flat(0.3, **size)},
        },
    }
    sort = {
        split: {axis: {name: q * 0 + 0.5 for name, q in named.items()} for axis, named in axes.items()}
        for split, axes in fill.items()
    }
    both = {"fill": fill, "sort": sort}
    return {("small", task, split): axes for task, splits in both.items() for split, axes in splits.items()}


TRUTH = {
    ("fill", "score"): ("margin", 0.5, 0.125),
    ("fill", "region"): ("full", 0.2, 0.7),
    ("fill", "commitment"): ("all", 0.3, 0.0),
    ("sort", "score"): ("confidence", 0.5, 0.0),
    ("sort", "region"): ("full", 0.5, 0.0),
    ("sort", "commitment"): ("all", 0.5, 0.0),
}
"""Fixed action, its utility on evaluation states, and the opportunity over it."""
