"""The evidence behind a study's numbers: single states, and what every candidate made of them.

No model is run: the tables hold the canvas of each state, the first step of each branch, its answer, score and reason.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from unmask.base.errors import ConfigError, format_value
from unmask.base.files import replace_surrogates
from unmask.core import Trajectory
from unmask.lab.analysis.load import nothing_finished_error, read_extents, unfinished_shards
from unmask.lab.store import Store
from unmask.models import Codec

DEFAULT_COUNT = 10
"""Default number of states to list, both with the largest gains and with the largest losses."""
STATE_COLUMNS = ["model", "task", "split", "prompt", "state"]
OUTCOME_COLUMNS = ["utility", "reason", "answer", "revealed", "revealed_tokens", "remasked"]
"""Columns of a branch's outcome. Rollouts that agree in all of them are shown as one."""

Json = dict[str, Any]


@dataclass(frozen=True)
class StateEvidence:
    """States with the largest gains and losses, as the page of states shows them."""

    study: str
    gains: pd.DataFrame = field(repr=False)
    """States by their best candidate: names of the state, axis, candidate, difference to the reference, and key."""
    losses: pd.DataFrame = field(repr=False)
    """States by their worst candidate, with the same columns."""
    states: Sequence[Json] = field(repr=False)
    """States that were asked for, then those of both lists, each once: values of the page, format 1."""
    compared: int
    """Number of states of the study."""
    rollouts: int
    missing: Sequence[str]
    """Missing tasks and shards of the study, in words."""
    unspelled: Sequence[str]
    """Models whose tokens are shown as numbers, because their tokenizer is not here."""


def collect_state_evidence(
    store: Store, codecs: Mapping[str, Codec] | None = None, *, keys: Sequence[str] = (), count: int = DEFAULT_COUNT
) -> StateEvidence:
    """Find the states with the largest gains and losses, and those that `keys` name; `codecs` by name of the model."""
    manifest, codecs = store.manifest, codecs or {}
    branches = store.read("branches", ["step", "masked", "is_reference", *OUTCOME_COLUMNS])
    if branches.empty:
        raise nothing_finished_error(store)
    changes = candidate_changes(branches)
    gains, losses = (list_largest(changes, sign, count) for sign in (1, -1))
    rows = [x[STATE_COLUMNS].itertuples(index=False, name=None) for x in (_find_states(branches, keys), gains, losses)]
    shown = list(dict.fromkeys(key for some in rows for key in some))
    readings = store.read("readings", ["axis", "diagnostic", "signal", "abstained", *OUTCOME_COLUMNS])
    states = store.read("states", ["horizon", "tokens", "fixed", "trajectory"])
    # The few rows of a large study that states are looked up in.
    prompts = {prompt for _, _, _, prompt, _ in shown}
    by_state = [dict(list(x[x["prompt"].isin(prompts)].groupby(STATE_COLUMNS))) for x in (branches, readings, states)]
    return StateEvidence(
        study=str(manifest["study"]["name"]),
        gains=gains,
        losses=losses,
        states=[
            describe_state(key, by_state[0][key], by_state[1].get(key), by_state[2].get(key), codecs) for key in shown
        ],
        compared=len(branches[STATE_COLUMNS].drop_duplicates()),
        rollouts=int(manifest["study"]["rollouts"]),
        missing=list(_describe_missing_parts(manifest, store)),
        unspelled=[model for model in dict.fromkeys(model for model, *_ in shown) if model not in codecs],
    )


def state_key(model: str, task: str, prompt: str, state: int) -> str:
    """Build the name of a state for the command line. Names are compared as a whole, never parsed."""
    return f"{model}/{task}/{prompt}/{state}"


# Ranking


def candidate_changes(branches: pd.DataFrame) -> pd.DataFrame:
    """Compute the change in mean utility by each candidate, over rollouts where it and the reference were judged."""
    by = [*STATE_COLUMNS, "axis"]
    columns = [*by, "rollout", "utility"]
    reference = branches.loc[branches["is_reference"], columns].rename(columns={"utility": "reference"})
    # Joined rollout by rollout: both share their random numbers, so that a difference is the action's.
    pairs = branches.loc[~branches["is_reference"], [*columns, "candidate"]].merge(reference, on=[*by, "rollout"])
    pairs = pairs.assign(difference=pairs["utility"] - pairs["reference"]).dropna(subset="difference")
    means = pairs.groupby([*by, "candidate"])[["difference", "utility", "reference"]].mean().reset_index()
    # Rounded: a mean of thirds is equal to another one, whatever its last bits.
    return means.assign(size=means["difference"].round(9))


def list_largest(changes: pd.DataFrame, sign: int, count: int) -> pd.DataFrame:
    """List states that some candidate improves (sign 1) or worsens (sign -1), by the candidate that does so most.

    The largest differences come first; among equal ones, one of each prompt and task before a second of any.
    """
    best = changes.assign(size=-sign * changes["size"])
    best = best[best["size"] < 0]
    columns = [*STATE_COLUMNS, "axis", "candidate", "difference", "utility", "reference"]
    if best.empty:
        return pd.DataFrame(columns=[*columns, "key"])
    # Of equal candidates the first axis and name.
    best = (
        best.sort_values(["size", "axis", "candidate"], kind="stable")
        .drop_duplicates(STATE_COLUMNS)
        .sort_values(["size", *STATE_COLUMNS])
    )
    best["again"] = best.groupby(["size", *STATE_COLUMNS[:-1]]).cumcount()
    best = best.sort_values(["size", "again", *STATE_COLUMNS])
    best["of_task"] = best.groupby(["size", "again", "model", "task"]).cumcount()
    best = best.sort_values(["size", "again", "of_task", *STATE_COLUMNS]).head(count)
    keys = [state_key(*names) for names in best[["model", "task", "prompt", "state"]].itertuples(index=False)]
    return best[columns].assign(key=keys).reset_index(drop=True)


def _find_states(branches: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Find the states with the given names, each once; refuse unknown names."""
    states = branches[STATE_COLUMNS].drop_duplicates()
    named = [state_key(*names) for names in states[["model", "task", "prompt", "state"]].itertuples(index=False)]
    places = {name: at for at, name in enumerate(named)}
    for key in (key for key in keys if key not in places):
        close = get_close_matches(key[:200], named, n=3) or named[:3]
        raise ConfigError(
            f"the study has no state {format_value(key)}; allowed: MODEL/TASK/PROMPT/NUMBER, one of {len(named):,}, "
            f"such as {', '.join(close)}; name one of those"
        )
    return states.iloc[[places[key] for key in dict.fromkeys(keys)]]


# One state


def describe_state(
    key: tuple[str, str, str, str, int],
    branches: pd.DataFrame,
    readings: pd.DataFrame | None,
    states: pd.DataFrame | None,
    codecs: Mapping[str, Codec],
) -> Json:
    """Describe one state and every action tried there, in the JSON that the page of states reads."""
    codec = codecs.get(key[0])
    spell = _make_speller(codec)
    kept = None if states is None or states.empty else states.iloc[0]
    tokens: list[str | None] = []
    if kept is not None:
        mask = Trajectory.from_bytes(kept["trajectory"]).state.mask_id
        pairs = zip(kept["tokens"], kept["fixed"], strict=True)
        tokens = [None if token == mask and not given else spell(int(token)) for token, given in pairs]
    model, task, split, prompt, state = key
    return {
        "model": model,
        "task": task,
        "split": split,
        "prompt": prompt,
        "state": int(state),
        "step": int(branches["step"].iloc[0]),
        "masked": int(branches["masked"].iloc[0]),
        "horizon": 0 if kept is None else int(kept["horizon"]),
        "tokens": tokens,
        "fixed": [] if kept is None else [bool(given) for given in kept["fixed"]],
        "fillers": [spell(token) for token in getattr(codec, "eos_ids", ())],
        "actions": [*_tried_actions(branches, spell), *_proposed_actions(readings, branches, spell)],
        "key": state_key(model, task, prompt, state),
    }


def _tried_actions(branches: pd.DataFrame, spell: Callable[[int], str]) -> Iterator[Json]:
    """Yield the reference of each axis, then its candidates, the best first."""
    for axis, own in branches.groupby("axis", sort=False):
        reference = _utility_by_rollout(own[own["is_reference"]])
        actions = []
        for name, rows in own.groupby("candidate", sort=False):
            kind = "reference" if rows["is_reference"].iloc[0] else "candidate"
            actions.append(
                _describe_action(str(axis), str(name), kind, rows[["rollout", *OUTCOME_COLUMNS]], reference, spell)
            )
        yield from sorted(actions, key=_action_order)


def _action_order(action: Json) -> tuple[Any, ...]:
    """Return the sort key of an action: the reference first, then by falling difference, unknown ones last."""
    unknown = action["difference"] is None
    return action["kind"] != "reference", unknown, -(action["difference"] or 0.0), action["name"]


def _proposed_actions(
    readings: pd.DataFrame | None, branches: pd.DataFrame, spell: Callable[[int], str]
) -> Iterator[Json]:
    """Yield the actions that diagnostics proposed; a reading holds its rollouts as lists."""
    for reading in () if readings is None else readings[~readings["abstained"]].to_dict("records"):
        rows = pd.DataFrame({name: list(reading[name]) for name in OUTCOME_COLUMNS}).reset_index(names="rollout")
        reference = _utility_by_rollout(branches[branches["is_reference"] & (branches["axis"] == reading["axis"])])
        action = _describe_action(reading["axis"], reading["diagnostic"], "proposal", rows, reference, spell)
        yield action | {"signal": _to_json(reading["signal"])}


def _utility_by_rollout(rows: pd.DataFrame) -> pd.Series:
    """Return the utilities of branches, indexed by rollout."""
    return rows.set_index("rollout")["utility"].astype(float)


def _describe_action(
    axis: str, name: str, kind: str, rows: pd.DataFrame, reference: pd.Series, spell: Callable[[int], str]
) -> Json:
    """Describe a candidate, the reference or a proposal at one state."""
    utility = _utility_by_rollout(rows)
    changes = (utility - reference.reindex(utility.index)).dropna()
    # Rollouts that went the same way are one outcome.
    same: dict[str, list[Any]] = {}
    for values in rows[OUTCOME_COLUMNS].itertuples(index=False, name=None):
        same.setdefault(json.dumps([_to_json(value) for value in values]), []).append(values)
    outcomes = []
    for alike, found in same.items():
        worth, reason, answer, revealed, tokens, remasked = json.loads(alike)
        put = [[position, spell(token)] for position, token in zip(revealed, tokens, strict=True)]
        outcome = {"rollouts": len(found), "utility": worth, "reason": reason, "answer": answer, "revealed": put}
        outcomes.append(outcome | {"remasked": remasked})
    return {
        "axis": axis,
        "name": name,
        "kind": kind,
        "outcomes": outcomes,
        "utility": _to_json(utility.mean()),
        "difference": _to_json(changes.mean()),
        "signal": None,
    }


def _to_json(value: Any) -> Any:
    """Convert a cell to JSON's types."""
    if isinstance(value, np.ndarray):
        return [_to_json(item) for item in value.tolist()]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and value != value else value


def _make_speller(codec: Codec | None) -> Callable[[int], str]:
    """Return a function from a token to its text, or to its number where there is no tokenizer."""
    if codec is None:
        return lambda token: f"<{token}>"
    return cache(lambda token: replace_surrogates(codec.decode([token])))


def _describe_missing_parts(manifest: Mapping[str, Any], store: Store) -> Iterator[str]:
    """Yield remarks on tasks and shards that are missing."""
    extents = read_extents(manifest, list(store.infos().values()))
    for task, about in manifest["tasks"].items():
        if about.get("unavailable"):
            yield f"{task} is left out: {about['unavailable']}"
    for (model, task), not_there in unfinished_shards(extents).items():
        if not_there:
            yield f"{model} on {task} is not finished: {not_there}"
