"""A study's folder for people: its prompts, the states of each, and what every candidate came to there.

Read shard by shard as pages ask; every file is compared with its hash, and a damaged one is named.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from unmask.api import policy_from_config, saved_codec
from unmask.axes import AXES, STUDY_AXES, ReMDM
from unmask.base.errors import ConfigError, UnknownName, UnmaskError
from unmask.base.files import storable
from unmask.core import Policy
from unmask.lab.store import Store
from unmask.lab.study.prompts import select_examples
from unmask.methods import candidate, candidates, reference_of
from unmask.models import Codec
from unmask.report.run_data import end_tokens
from unmask.tasks import DataDir, Example, find_task

Plain = dict[str, Any]
"""JSON's types only."""
MASKED = "\u2591"
FILLER = "\u220e"
"""A masked token, and one that ends a text, whatever their long names; as the grid draws them."""


class StudyFolder:
    """What `unmask study run` left, to be looked at."""

    def __init__(self, folder: Path, data_dir: DataDir = None):
        self.store, self.data_dir = Store.open(folder), data_dir
        self.manifest = self.store.manifest
        self.study: Mapping[str, Any] = self.manifest["study"]
        self.shards = list(self.store.infos().items())
        # One page asks several times for one cell; its tables are read once.
        self._cell = lru_cache(maxsize=4)(self._read_cell)
        self._codec = lru_cache(maxsize=8)(self._find_codec)

    @property
    def specs(self) -> dict[str, Mapping[str, Any]]:
        """The models of the study file by name."""
        return {spec["name"]: spec for spec in self.study["models"]}

    # What there is

    def summary(self) -> Plain:
        """Models, tasks and splits with what is finished, and what is missing."""
        cells: dict[tuple[str, str, str], Plain] = {}
        for shard, info in self.shards:
            cell = cells.setdefault((shard.model, shard.task, shard.split), {"states": 0, "branches": 0})
            cell["states"] += info["states"]
            cell["branches"] += info["branches"]
        planned = sum(len(model["shards"]) for model in self.manifest["models"].values())
        return {
            "name": self.study["name"],
            "folder": str(self.store.folder),
            "cells": [dict(zip(("model", "task", "split"), key, strict=True)) | cell for key, cell in cells.items()],
            "finished": len(self.shards),
            "planned": planned,
            "unavailable": {
                task: about["unavailable"] for task, about in self.manifest["tasks"].items() if "unavailable" in about
            },
        }

    def prompts(self, model: str, task: str, split: str) -> list[Plain]:
        """Every prompt of a cell, those first where some candidate changes most."""
        _, branches = self._cell(model, task, split)
        texts = self._texts(task, split)
        rows = [_of_prompt(id, axes, texts.get(id)) for id, axes in _by_prompt(branches).items()]
        return sorted(rows, key=lambda row: (-(row["gain"] or 0.0), row["loss"] or 0.0, row["prompt"]))

    def states(self, model: str, task: str, split: str, prompt: str) -> list[Plain]:
        """The states of one prompt: the canvas, and by axis what every candidate came to."""
        states, branches = self._cell(model, task, split)
        own = states.filter(pc.equal(states["prompt"], prompt))
        if not len(own):
            raise UnknownName("prompt", prompt, pc.unique(states["prompt"]).to_pylist()[:20])
        of_prompt = branches.filter(pc.equal(branches["prompt"], prompt)).to_pylist()
        codec = self._codec(model)
        return [
            {
                "state": row["state"],
                "step": row["step"],
                "masked": row["masked"],
                "taken": row["taken"],
                "canvas": None if codec is None else _canvas(codec, row["tokens"], row["fixed"]),
                "axes": _by_axis([one for one in of_prompt if one["state"] == row["state"]]),
            }
            for row in own.to_pylist()
        ]

    def stored(self, model: str, task: str, split: str, prompt: str) -> list[tuple[int, list[int]]]:
        """Step and canvas of each stored state, to compare a repeated run with."""
        states, _ = self._cell(model, task, split)
        own = states.filter(pc.equal(states["prompt"], prompt))
        return [(row["step"], row["tokens"]) for row in own.select(["step", "tokens"]).to_pylist()]

    # What it was made with

    def example(self, task: str, split: str, id: str) -> Example:
        """The prompt with this id, as the study took it."""
        for example in self._examples(task, split):
            if example.id == id:
                return example
        raise ConfigError(
            f"{id} is no {split} prompt of {task} here; allowed: the data of the study; see `unmask tasks`"
        )

    def reference(self, model: str) -> Policy:
        """Whose run the states lie on, and who continues every branch. Code of somebody's own is not run."""
        spec = self._spec(model)
        name, described = spec["reference"], spec.get("policy") or {}
        if not described:
            return reference_of(candidates(name))
        if "class" in described:
            raise ConfigError(
                f"the reference of {model} is {described.get('name')!r}, code of somebody's own, which is not run "
                "here; allowed: registered methods; look at its stored answers"
            )
        policy = policy_from_config(described)
        assert isinstance(policy, Policy)
        return policy

    def options(self, task: str) -> Plain:
        """How the study decodes a task, as `generate` takes it."""
        return {
            "max_new_tokens": find_task(task).max_new_tokens,
            "steps": self.study["steps"][task],
            "seed": self.study["seed"],
            "temperature": self.study["temperature"],
        }

    def choices(self, model: str) -> dict[str, list[str]]:
        """The study's candidates by axis, around the model's reference."""
        named = self.study.get("candidates", {}).get(self._spec(model)["reference"], {})
        return {axis: list(names) for axis, names in named.items() if axis in AXES}

    def candidate(self, model: str, axis: str, name: str) -> Policy:
        """A candidate with the study's own revision operator."""
        given = self.study.get("revision")
        return candidate(self._spec(model)["reference"], axis, name, ReMDM(**given) if given else None)

    @property
    def scoring(self) -> str:
        return str(self.study.get("scoring", "ours"))

    def _spec(self, model: str) -> Mapping[str, Any]:
        if model not in self.specs:
            raise UnknownName("model of the study", model, self.specs)
        return self.specs[model]

    def _examples(self, task: str, split: str) -> tuple[Example, ...]:
        if task in self.study.get("own", {}):
            raise ConfigError(
                f"{task} is a task of somebody's own, whose prompts are not in the study's folder; allowed: tasks of "
                "`unmask tasks`; look at its stored answers"
            )
        part = self.study["splits"][split]
        return select_examples(
            find_task(task), part["split"], start=part["start"], prompts=part["prompts"], data_dir=self.data_dir
        )

    def _texts(self, task: str, split: str) -> dict[str, str]:
        """Prompts by id, where they can be found."""
        try:
            return {example.id: example.prompt for example in self._examples(task, split)}
        except UnmaskError:
            return {}

    def _find_codec(self, model: str) -> Codec | None:
        """The model's tokenizer, if it is on this machine."""
        spec = self._spec(model)
        return saved_codec({"model": {**(spec.get("options") or {}), "name": spec["model"]}})

    def _read_cell(self, model: str, task: str, split: str) -> tuple[pa.Table, pa.Table]:
        """States and branches of the finished shards of a model, task and split."""
        wanted = [shard for shard, _ in self.shards if (shard.model, shard.task, shard.split) == (model, task, split)]
        if not wanted:
            known = {f"{shard.model}, {shard.task}, {shard.split}" for shard, _ in self.shards}
            raise UnknownName("part of the study", f"{model}, {task}, {split}", known)
        states, branches = (
            self.store.read_arrow(name, kept, shards=wanted).select(kept)
            for name, kept in (("states", _STATE), ("branches", _BRANCH))
        )
        return states, branches


_STATE = ["prompt", "state", "step", "masked", "taken", "tokens", "fixed"]
_BRANCH = ["prompt", "state", "step", "axis", "candidate", "is_reference", "rollout", "utility", "reason", "answer"]


def _by_prompt(branches: pa.Table) -> dict[str, list[Plain]]:
    """Mean utilities of every state and candidate, by prompt."""
    keys = ["prompt", "state", "axis", "candidate", "is_reference"]
    found: dict[str, list[Plain]] = {}
    for row in branches.group_by(keys).aggregate([("utility", "mean")]).to_pylist():
        found.setdefault(row["prompt"], []).append(row)
    return found


def _of_prompt(id: str, rows: Iterable[Plain], text: str | None) -> Plain:
    """One line of the list: what the reference gets, and the most that a candidate changes at some state."""
    rows = list(rows)
    own = {(r["state"], r["axis"]): r["utility_mean"] for r in rows if r["is_reference"]}
    judged = [u for u in own.values() if u is not None]
    changes = [
        r["utility_mean"] - own[r["state"], r["axis"]]
        for r in rows
        if r["utility_mean"] is not None and own.get((r["state"], r["axis"])) is not None
    ]
    return {
        "prompt": id,
        "text": None if text is None else storable(text),
        "states": len({r["state"] for r in rows}),
        "reference": sum(judged) / len(judged) if judged else None,
        "gain": max(changes, default=None),
        "loss": min(changes, default=None),
    }


def _by_axis(rows: Iterable[Plain]) -> dict[str, list[Plain]]:
    """Candidates of one state by axis, the reference first and then the best."""
    axes: dict[str, dict[str, list[Plain]]] = {}
    for row in rows:
        axes.setdefault(row["axis"], {}).setdefault(row["candidate"], []).append(row)
    in_order = sorted(axes.items(), key=lambda one: STUDY_AXES.index(one[0]) if one[0] in STUDY_AXES else len(axes))
    return {axis: sorted(map(_candidate, named.values()), key=_place) for axis, named in in_order}


def _candidate(rollouts: list[Plain]) -> Plain:
    """One candidate at one state: its mean, and each answer once."""
    judged = [row["utility"] for row in rollouts if row["utility"] is not None]
    answers: dict[tuple[Any, ...], int] = {}
    for row in rollouts:
        key = (row["answer"], row["utility"], row["reason"])
        answers[key] = answers.get(key, 0) + 1
    return {
        "candidate": rollouts[0]["candidate"],
        "is_reference": rollouts[0]["is_reference"],
        "mean": sum(judged) / len(judged) if judged else None,
        "rollouts": len(rollouts),
        "answers": [
            {"text": text, "utility": utility, "reason": reason, "times": times}
            for (text, utility, reason), times in answers.items()
        ],
    }


def _place(row: Plain) -> tuple[bool, float, str]:
    return not row["is_reference"], -(row["mean"] if row["mean"] is not None else -1.0), row["candidate"]


def _canvas(codec: Codec, tokens: list[int], fixed: list[bool]) -> str:
    """The answer's part of a canvas; masks, and tokens that only fill it up, as one sign each."""
    ends, text = end_tokens(codec), ""
    answer = [token for token, given in zip(tokens, fixed, strict=True) if not given]
    # A character of several tokens needs them decoded together.
    for is_end, group in groupby(answer, key=lambda token: token in ends):
        tokens = list(group)
        text += FILLER * len(tokens) if is_end else codec.decode(tokens)
    return storable(text.replace(codec.mask, MASKED))
