"""The evidence behind a study's numbers: single states, and what every candidate made of them.

No model is run: the tables hold the canvas of each state, the first step of each branch, its answer, score and reason.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unmask.base.errors import ConfigError, SchemaError, format_value
from unmask.base.files import storable
from unmask.core import Trajectory
from unmask.lab.analysis.completeness import checked_manifest, extents_of, unfinished
from unmask.lab.store import Store, parts, utilities_of
from unmask.models import Codec

COUNT = 10
"""States with the largest gains, and with the largest losses, that are listed first."""
STATE = ("model", "task", "split", "prompt", "state")


@dataclass(frozen=True)
class RankedState:
    """A state by its best, or its worst, candidate."""

    model: str
    task: str
    split: str
    prompt: str
    state: int
    axis: str
    candidate: str
    difference: float
    """Mean utility of the candidate's branches less the reference's, over rollouts in which both were judged."""
    utility: float
    reference: float

    @property
    def key(self) -> str:
        """How a state is named on a command line."""
        return key_of(self.model, self.task, self.prompt, self.state)


@dataclass(frozen=True)
class Outcome:
    """What came of one branch, or of several rollouts that went the same way."""

    rollouts: int
    utility: float | None
    """None where the evaluator could not tell."""
    reason: str
    answer: str
    revealed: tuple[tuple[int, str], ...]
    """The branch's first step: positions and the tokens put there."""
    remasked: tuple[int, ...]


@dataclass(frozen=True)
class TriedAction:
    """A candidate, the reference, or what a diagnostic proposed, at one state."""

    axis: str
    name: str
    kind: str
    """`reference`, `candidate` or `proposal`."""
    outcomes: tuple[Outcome, ...]
    utility: float | None
    """Mean of the judged rollouts."""
    difference: float | None
    """Against the reference of the same axis, rollout by rollout; None where no rollout of both was judged."""
    signal: float | None = None
    """Of a proposal."""


@dataclass(frozen=True)
class StateEvidence:
    """One state, and all that was tried there."""

    model: str
    task: str
    split: str
    prompt: str
    state: int
    step: int
    masked: int
    horizon: int
    tokens: tuple[str | None, ...]
    """The canvas; None where it is masked. Empty where the study kept none."""
    fixed: tuple[bool, ...]
    fillers: tuple[str, ...]
    """Texts of the tokens that only fill up a canvas."""
    actions: tuple[TriedAction, ...]

    @property
    def key(self) -> str:
        return key_of(self.model, self.task, self.prompt, self.state)


@dataclass(frozen=True)
class Evidence:
    """What the page of states shows."""

    study: str
    gains: tuple[RankedState, ...]
    losses: tuple[RankedState, ...]
    states: tuple[StateEvidence, ...]
    """Those that were asked for, then those of both lists, each once."""
    compared: int
    """States of the study."""
    rollouts: int
    missing: tuple[str, ...]
    """What of the study is not there, in words."""
    unspelled: tuple[str, ...]
    """Models whose tokens are shown as numbers, because their tokenizer is not here."""


def key_of(model: str, task: str, prompt: str, state: int) -> str:
    """The name of a state; compared as a whole, never taken apart."""
    return f"{model}/{task}/{prompt}/{state}"


def evidence(
    store: Store, codecs: Mapping[str, Codec] | None = None, *, keys: Sequence[str] = (), count: int = COUNT
) -> Evidence:
    """The states with the largest gains and losses, and those that `keys` name; `codecs` by name of the model."""
    manifest, codecs = checked_manifest(store), codecs or {}
    table = store.read_arrow("branches")
    if not len(table):
        raise SchemaError(
            f"study {manifest['study']['name']!r} in {str(store.folder)!r} has 0 finished shards; allowed: 1 or more; "
            "carry it on with `unmask study run` and the same --out"
        )
    gains, losses = (largest(ranked(table, sign), count) for sign in (1, -1))
    asked = [_found(table, key) for key in dict.fromkeys(keys)]
    chosen = dict.fromkeys([*asked, *(_columns(one) for one in (*gains, *losses))])
    branches, readings, states = (
        _of_prompts(one, chosen) for one in (table, store.read_arrow("readings"), store.read_arrow("states"))
    )
    return Evidence(
        study=str(manifest["study"]["name"]),
        gains=gains,
        losses=losses,
        states=tuple(_state(state, branches, readings, states, codecs) for state in chosen),
        compared=table.group_by(list(STATE)).aggregate([]).num_rows,
        rollouts=int(manifest["study"]["rollouts"]),
        missing=tuple(_missing(manifest, store)),
        unspelled=tuple(dict.fromkeys(model for model, *_ in chosen if model not in codecs)),
    )


def ranked(table: pa.Table, sign: int) -> list[RankedState]:
    """Every state that some candidate betters (sign 1) or worsens (sign -1), by the candidate that does so most."""
    best: dict[tuple[Any, ...], RankedState] = {}
    for (model, task, split, axis), part in parts(table, ("model", "task", "split", "axis")):
        if not pc.any(part["is_reference"]).as_py():
            continue
        held = utilities_of(part)
        change_SA = _mean(held.utility_SAR - held.utility_SAR[:, :1])
        for s, a in zip(*np.nonzero(sign * np.nan_to_num(change_SA) > 0), strict=True):
            where = (model, task, split, held.prompt_S[s], int(held.state_S[s]))
            if where in best and sign * change_SA[s, a] <= sign * best[where].difference:
                continue
            both_R = ~np.isnan(held.utility_SAR[s, a] - held.utility_SAR[s, 0])
            means = (float(held.utility_SAR[s, at, both_R].mean()) for at in (a, 0))
            best[where] = RankedState(*where, axis, held.candidates[a], float(change_SA[s, a]), *means)
    return list(best.values())


def largest(states: Iterable[RankedState], count: int) -> tuple[RankedState, ...]:
    """The largest differences first; among equal ones, one of each prompt and task before a second of any."""
    ordered = sorted(states, key=lambda one: (-_size(one), _columns(one)))
    of_prompt: Counter[Any] = Counter()
    again = []
    for one in ordered:
        prompt = (_size(one), one.model, one.task, one.split, one.prompt)
        again.append((-_size(one), of_prompt[prompt], one))
        of_prompt[prompt] += 1
    again.sort(key=lambda entry: (*entry[:2], _columns(entry[2])))
    of_task: Counter[Any] = Counter()
    placed = []
    for size, earlier, one in again:
        task = (size, earlier, one.model, one.task)
        placed.append((size, earlier, of_task[task], one))
        of_task[task] += 1
    placed.sort(key=lambda entry: (*entry[:3], _columns(entry[3])))
    return tuple(entry[3] for entry in placed[:count])


def _size(one: RankedState) -> float:
    """Rounded: a mean of thirds is equal to another one, whatever its last bits."""
    return round(abs(one.difference), 9)


def _columns(one: RankedState) -> tuple[str, str, str, str, int]:
    return one.model, one.task, one.split, one.prompt, one.state


def _mean(values: np.ndarray) -> np.ndarray:
    """Over the last axis and what is there of it; NaN where nothing is."""
    there = ~np.isnan(values)
    count = there.sum(-1)
    return np.where(count > 0, np.where(there, values, 0.0).sum(-1) / np.maximum(count, 1), np.nan)


def _found(table: pa.Table, key: str) -> tuple[str, str, str, str, int]:
    """The state of this name."""
    rows = table.group_by(list(STATE)).aggregate([]).to_pylist()
    named = {key_of(row["model"], row["task"], row["prompt"], row["state"]): row for row in rows}
    if key not in named:
        close = get_close_matches(key[:200], list(named), n=3) or list(named)[:3]
        raise ConfigError(
            f"the study has no state {format_value(key)}; allowed: MODEL/TASK/PROMPT/NUMBER, one of {len(named):,}, "
            f"such as {', '.join(close)}; name one of those"
        )
    row = named[key]
    return row["model"], row["task"], row["split"], row["prompt"], row["state"]


def _of_prompts(table: pa.Table, states: Iterable[tuple[Any, ...]]) -> pa.Table:
    """The few rows of a large study that states are looked up in."""
    prompts = pa.array(sorted({state[STATE.index("prompt")] for state in states}), pa.string())
    return table.filter(pc.is_in(pc.cast(table["prompt"], pa.string()), prompts))


def _rows(table: pa.Table, state: tuple[Any, ...]) -> list[dict[str, Any]]:
    for column, value in zip(STATE, state, strict=True):
        table = table.filter(pc.equal(table[column], value))
    return table.to_pylist()


def _state(
    state: tuple[str, str, str, str, int],
    branches: pa.Table,
    readings: pa.Table,
    states: pa.Table,
    codecs: Mapping[str, Codec],
) -> StateEvidence:
    spell, rows = _spelling(codecs.get(state[0])), _rows(branches, state)
    kept = next(iter(_rows(states, state)), None)
    tokens: tuple[str | None, ...] = ()
    if kept is not None:
        mask = Trajectory.from_bytes(kept["trajectory"]).state.mask_id
        pairs = zip(kept["tokens"], kept["fixed"], strict=True)
        tokens = tuple(None if token == mask and not given else spell(token) for token, given in pairs)
    ends = getattr(codecs.get(state[0]), "eos_ids", ())
    return StateEvidence(
        *state,
        step=rows[0]["step"],
        masked=rows[0]["masked"],
        horizon=0 if kept is None else kept["horizon"],
        tokens=tokens,
        fixed=() if kept is None else tuple(kept["fixed"]),
        fillers=tuple(spell(token) for token in ends),
        actions=(*_actions(rows, spell), *_proposals(_rows(readings, state), rows, spell)),
    )


def _actions(rows: Sequence[Mapping[str, Any]], spell: Callable[[int], str]) -> Iterator[TriedAction]:
    """The reference of each axis first, then its candidates, the best first."""
    for axis in dict.fromkeys(row["axis"] for row in rows):
        tried: dict[str, list[Mapping[str, Any]]] = {}
        for row in rows:
            if row["axis"] == axis:
                tried.setdefault(row["candidate"], []).append(row)
        reference = _reference(rows, axis)
        made = [
            _action(axis, name, "reference" if of_name[0]["is_reference"] else "candidate", of_name, reference, spell)
            for name, of_name in tried.items()
        ]
        yield from sorted(made, key=_best_first)


def _best_first(action: TriedAction) -> tuple[Any, ...]:
    unknown = action.difference is None
    return action.kind != "reference", unknown, -(action.difference or 0.0), action.name


def _proposals(
    readings: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], spell: Callable[[int], str]
) -> Iterator[TriedAction]:
    """What diagnostics would have done, where they proposed something."""
    lists = ("utility", "reason", "answer", "revealed", "revealed_tokens", "remasked")
    for reading in readings:
        if reading["abstained"]:
            continue
        each = zip(*(reading[name] for name in lists), strict=True)
        own = [{**dict(zip(lists, values, strict=True)), "rollout": r} for r, values in enumerate(each)]
        axis, name = reading["axis"], reading["diagnostic"]
        made = _action(axis, name, "proposal", own, _reference(rows, axis), spell)
        yield replace(made, signal=reading["signal"])


def _reference(rows: Sequence[Mapping[str, Any]], axis: str) -> dict[int, float | None]:
    """Utility by rollout."""
    return {row["rollout"]: row["utility"] for row in rows if row["axis"] == axis and row["is_reference"]}


def _action(
    axis: str,
    name: str,
    kind: str,
    rows: Sequence[Mapping[str, Any]],
    reference: Mapping[int, float | None],
    spell: Callable[[int], str],
) -> TriedAction:
    judged = [row["utility"] for row in rows if row["utility"] is not None]
    pairs = [(row["utility"], reference.get(row["rollout"])) for row in rows]
    changes = [own - other for own, other in pairs if own is not None and other is not None]
    return TriedAction(
        axis=axis,
        name=name,
        kind=kind,
        outcomes=tuple(_outcomes(rows, spell)),
        utility=sum(judged) / len(judged) if judged else None,
        difference=sum(changes) / len(changes) if changes else None,
    )


def _outcomes(rows: Sequence[Mapping[str, Any]], spell: Callable[[int], str]) -> Iterator[Outcome]:
    """Rollouts that went the same way are one."""
    what = ("utility", "reason", "answer", "revealed", "revealed_tokens", "remasked")
    same: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        same.setdefault(json.dumps([row[name] for name in what]), []).append(row)
    for alike in same.values():
        row = alike[0]
        put = zip(row["revealed"], map(spell, row["revealed_tokens"]), strict=True)
        yield Outcome(len(alike), row["utility"], row["reason"], row["answer"], tuple(put), tuple(row["remasked"]))


def _spelling(codec: Codec | None) -> Callable[[int], str]:
    """The text of one token; its number where nobody knows the text."""
    if codec is None:
        return lambda token: f"<{token}>"
    return cache(lambda token: storable(codec.decode([token])))


def _missing(manifest: Mapping[str, Any], store: Store) -> Iterator[str]:
    """What a reader must know that the lists could not see."""
    extents = list(extents_of(manifest, list(store.infos().values())))
    for task, about in manifest["tasks"].items():
        if about.get("unavailable"):
            yield f"{task} is left out: {about['unavailable']}"
    for model, task in dict.fromkeys((extent.model, extent.task) for extent in extents):
        if not_there := unfinished(extents, model, task):
            yield f"{model} on {task} is not finished: {not_there}"
