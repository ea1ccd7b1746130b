"""Studies made by hand: utilities that are known go in, a store comes out. No model is run."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from unmask.adapt.diagnostics import DIAGNOSTICS
from unmask.base.environment import versions
from unmask.lab.store import Shard, Store, plain_schema
from unmask.lab.store.schemas import FIRST_STEP, SUMMARY

LENGTH = 8
"""Positions of every answer; states lie evenly along it."""
NOTHING = {name: [] for name in FIRST_STEP}
"""Of a branch whose first step nobody looks at."""


def config(models, tasks, axes, rollouts, temperature, reference):
    prompts = {"split": "evaluation", "start": 0, "prompts": 100}
    return {
        "name": "made",
        "seed": 5,
        "models": [{"name": name, "model": source, "reference": reference} for name, source in models.items()],
        "tasks": tasks,
        "axes": axes,
        "splits": {"validation": {**prompts, "split": "validation"}, "evaluation": prompts},
        "states": 4,
        "steps": dict.fromkeys(tasks, 4),
        "rollouts": rollouts,
        "temperature": temperature,
        "candidates": {},
    }


def _state(shard, p, s):
    """Which state a row is about."""
    prompt = f"{shard.split}-{shard.block}-{p}"
    return {"model": shard.model, "task": shard.task, "split": shard.split, "prompt": prompt, "state": s}


def branches(shard, axes, reason):
    """Rows from axes of candidates, the reference first, each with utilities (prompts, states, rollouts)."""
    rows = []
    for axis, candidates in axes.items():
        for at, (candidate, q_PSR) in enumerate(candidates.items()):
            for (p, s, r), utility in np.ndenumerate(q_PSR):
                rows.append(
                    {
                        **_state(shard, p, s),
                        "step": s,
                        "masked": LENGTH - s * LENGTH // q_PSR.shape[1],
                        "axis": axis,
                        "candidate": candidate,
                        "is_reference": at == 0,
                        "rollout": r,
                        "utility": None if np.isnan(utility) else float(utility),
                        "reason": reason if np.isnan(utility) else "compared",
                        "answer": "",
                        **NOTHING,
                    }
                )
    return pa.Table.from_pylist(rows, schema=plain_schema("branches"))


@dataclass
class Reading:
    """What a diagnostic said at each state of a shard; NaN signals abstain."""

    signal_PS: Any
    utility_PSR: Any
    snapped: str = ""
    same: tuple = ()
    ingredients: Any = None
    """Of each state, as JSON; none where it is missing."""
    summary: Any = None
    """By name of `SUMMARY`, (P, S); 0 for the others. Without it there are no such columns."""


def readings(shard, axes):
    rows, sure = [], [name for name, _ in SUMMARY] if any(read.summary is not None for read in axes.values()) else []
    for name, read in axes.items():
        for (p, s), signal in np.ndenumerate(read.signal_PS):
            abstained = bool(np.isnan(signal))
            utility = [None if np.isnan(u) else float(u) for u in read.utility_PSR[p, s]]
            rows.append(
                {
                    **_state(shard, p, s),
                    "axis": DIAGNOSTICS[name].axis,
                    "diagnostic": name,
                    "signal": None if abstained else float(signal),
                    "abstained": abstained,
                    "snapped": None if abstained else read.snapped,
                    "same": [] if abstained else list(read.same),
                    "utility": [] if abstained else utility,
                    "reason": [] if abstained else ["compared"] * len(utility),
                    "answer": [] if abstained else [""] * len(utility),
                    **{name: [] if abstained else [[]] * len(utility) for name in FIRST_STEP},
                    "ingredients": "{}" if abstained or read.ingredients is None else read.ingredients[p][s],
                    **{name: float(read.summary[name][p, s]) if name in read.summary else 0.0 for name in sure},
                }
            )
    return pa.Table.from_pylist(rows, schema=plain_schema("readings", sure))


def _shard(model, task, split):
    return Shard(kind="branches", model=model, task=task, split=split, block=0, depends="0" * 16)


def _planned(shard):
    """As a manifest names a shard."""
    return {"task": shard.task, "split": shard.split, "block": shard.block, "prompts": 1}


def store(
    folder,
    tables,
    *,
    models=None,
    axes=None,
    temperature=0.0,
    unfinished=(),
    unavailable=None,
    reason="timed out",
    read=None,
    reference="llada",
    **keys,
):
    """`tables` by (model, task, split) hold axes of candidates, and `read` readings by diagnostic; `unfinished` are
    shards that are only planned. `keys` are further ones of the study."""
    models = models or {"small": "small"}
    tasks = list(dict.fromkeys([task for _, task, _ in (*tables, *unfinished)] + list(unavailable or {})))
    axes = axes or list(next(iter(tables.values()), {"score": None}))
    some = [q for held in tables.values() for named in held.values() for q in named.values()]
    how = config(models, tasks, axes, some[0].shape[2] if some else 4, temperature, reference)
    place = Store.create(folder, how | keys)
    shards = {key: _shard(*key) for key in (*tables, *unfinished)}
    for task in tasks:
        why = (unavailable or {}).get(task)
        place.set_metadata("tasks", task, {"unavailable": why} if why else {"data": "d" * 16, "version": "1"})
    for name, source in models.items():
        mine = {shard.name: _planned(shard) for (model, _, _), shard in shards.items() if model == name}
        if mine:
            about = {"model": source, "device": "cpu", "options": {"fingerprint": "f" * 16, "family": "llada"}}
            place.set_metadata("models", name, {**about, "reference": reference, "shards": mine})
    for key, held in tables.items():
        table = branches(shards[key], held, reason)
        work = {"branches": 6, "done": 10, "rollouts": 30, "first": 4, "futures": 6}
        prompts = sorted(set(table["prompt"].to_pylist()))
        info = {
            "prompts": prompts,
            "states": len(prompts) * 4,
            "branches": len(table),
            "judged": len(table) - table["utility"].null_count,
            "utility": 1.0,
            "forwards": {"naive": 50, "done": 10, "trajectory": 7, "recalled": 2, "calls": 3},
            "axes": dict.fromkeys(held, work),
            "seconds": 1.5,
            "versions": versions(),
        }
        own = {"readings": readings(shards[key], read[key])} if read else {}
        place.write(shards[key], {"branches": table, **own}, info)
    return place


def whole(folder):
    """A small store with every kind of file in it."""
    tables, read = diagnosed({"find": "finds"}, prompts=2)
    place = store(folder, tables, read=read)
    unit = Shard(kind="decodes", model="small", task="find", depends="d" * 16)
    row = {"model": "small", "task": "find", "axis": "region", "arm": "fixed", "draw": 0, "split": "evaluation"}
    row |= {"prompt": "p0", "utility": 0.5, "reason": "compared", "answer": "\u6a21", "forwards": 3}
    info = {"axes": {}, "versions": versions()}
    place.write(unit, {"decodes": pa.Table.from_pylist([row], schema=plain_schema("decodes"))}, info)
    place.finish()
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


# Diagnostics with planted truth


def planted(seed, kind="finds", prompts=24, rate=0.25, rollouts=4, names=("full", "block:8")):
    """Candidates and a diagnostic of one axis. The second candidate gains 0.4 at `rate` of the states after the first,
    and loses 0.2 elsewhere; the diagnostic, which says nothing at the first state, would always take an action of its
    own, which gains 0.3 and loses 0.1.

    Its signal finds those states, is useless, is constant or abstains everywhere.
    """
    rng = np.random.default_rng(seed)
    good_PS = rng.random((prompts, 4)) < rate
    good_PS[:, 0] = False
    noise_PS = rng.normal(size=good_PS.shape)
    signal_PS = {
        "finds": good_PS + 0.1 * noise_PS,
        "useless": noise_PS,
        "constant": np.ones(good_PS.shape),
        "abstains": np.full(good_PS.shape, np.nan),
    }[kind]
    signal_PS[:, 0] = np.nan
    candidates = {names[0]: flat(0.5, prompts, 4, rollouts), names[1]: spread(np.where(good_PS, 0.9, 0.3), rollouts)}
    return candidates, Reading(signal_PS, spread(np.where(good_PS, 0.8, 0.4), rollouts), names[1])


def spread(q_PS, rollouts=4):
    """The same in every rollout."""
    return np.repeat(q_PS[:, :, None], rollouts, 2)


def diagnosed(kinds, *, model="small", axis="region", seed=0, **how):
    """Tables and readings of tasks by what their signal does."""
    tables, read = {}, {}
    for at, (task, kind) in enumerate(kinds.items()):
        for split, offset in (("validation", 0), ("evaluation", 1)):
            candidates, reading = planted(seed + 10 * at + offset, kind, **how)
            tables[model, task, split] = {axis: candidates}
            read[model, task, split] = {axis: reading}
    return tables, read


def learnable(kinds, *, axis="region", seed=0, **how):
    """As `diagnosed` with a useless signal. Beside it, an ingredient and the entropy vary together; on tasks of the
    kind `together` their difference tells where there is something to gain, which neither tells alone."""
    tables, read = diagnosed(dict.fromkeys(kinds, "useless"), axis=axis, seed=seed, **how)
    for at, ((model, task, split), held) in enumerate(tables.items()):
        rng, (first, second) = np.random.default_rng([seed, at]), held[axis].values()
        good_PS = (second > first).any(2)
        common_PS = rng.normal(size=good_PS.shape)
        own = read[model, task, split][axis]
        own.summary = {"entropy_mean": common_PS + 5 + good_PS * (kinds[task] == "together")}
        own.ingredients = [[json.dumps({"nu_B": float(x), "wide_BL": [x, None]}) for x in row] for row in common_PS]
    return tables, read


def evidence(signal_PS, other_PS):
    """Ingredients whose signal is the one over `margin` and the other one over `confidence`, the reference."""
    told = []
    for row, others in zip(signal_PS, other_PS, strict=True):
        mu = [[1 - float(other), 1 - float(signal), 1.0, 0.0, 0.0] for signal, other in zip(row, others, strict=True)]
        eye = np.eye(5).tolist()
        told.append([json.dumps({"alpha_BJ": eye[2], "mu_BJ": m, "pairs_B": 9, "sigma_BJJ": eye}) for m in mu])
    return told
