"""A study's folder for people: its prompts, the states of each, and what every candidate led to.

Tables are read shard by shard when a page needs them; every file is compared with its hash, and a damaged one is named.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from unmask.api import find_saved_codec, policy_from_config
from unmask.axes import AXES, ReMDM
from unmask.base.errors import ConfigError, UnknownName, UnmaskError
from unmask.base.files import replace_surrogates
from unmask.core import Policy
from unmask.lab.analysis.states import OUTCOME_COLUMNS, STATE_COLUMNS, candidate_changes, describe_state
from unmask.lab.store import Store
from unmask.lab.study.prompts import select_examples
from unmask.methods import candidate, candidates, reference_of
from unmask.models import Codec
from unmask.tasks import DataDir, Example, find_task

Json = dict[str, Any]
COLUMNS = {
    "branches": ["step", "masked", "is_reference", *OUTCOME_COLUMNS],
    "readings": ["axis", "diagnostic", "signal", "abstained", *OUTCOME_COLUMNS],
    "states": ["step", "horizon", "tokens", "fixed", "trajectory"],
}
"""Columns of the tables that pages show."""


class StudyFolder:
    """The folder that `unmask study run` wrote, for reading."""

    def __init__(self, folder: Path, data_dir: DataDir = None):
        self.store, self.data_dir = Store.open(folder), data_dir
        self.manifest = self.store.manifest
        self.study: Mapping[str, Any] = self.manifest["study"]
        self.shards = list(self.store.infos().items())
        # A page asks several times for the same tables.
        self._tables = lru_cache(maxsize=4)(self._read_tables)
        self.codec = lru_cache(maxsize=8)(self._find_codec)

    @property
    def specs(self) -> dict[str, Mapping[str, Any]]:
        """The models of the study file by name."""
        return {spec["name"]: spec for spec in self.study["models"]}

    # Results

    def summary(self) -> Json:
        """Return which models, tasks and splits have results, and how many shards are missing."""
        cells: dict[tuple[str, str, str], Json] = {}
        for shard, info in self.shards:
            cell = cells.setdefault((shard.model, shard.task, shard.split), {"states": 0, "branches": 0})
            cell["states"] += info["states"]
            cell["branches"] += info["branches"]
        tasks = self.manifest["tasks"].items()
        return {
            "name": self.study["name"],
            "folder": str(self.store.folder),
            "cells": [dict(zip(("model", "task", "split"), key, strict=True)) | cell for key, cell in cells.items()],
            "finished": len(self.shards),
            "planned": sum(len(model["shards"]) for model in self.manifest["models"].values()),
            "unavailable": {task: about["unavailable"] for task, about in tasks if "unavailable" in about},
        }

    def prompts(self, model: str, task: str, split: str) -> list[Json]:
        """Return every prompt of a cell with its reference's utility and the largest changes, largest gains first."""
        branches, texts = self._tables(model, task, split)["branches"], self._prompt_texts(task, split)
        changes = candidate_changes(branches).groupby("prompt")["difference"].agg(["min", "max"])
        references = branches[branches["is_reference"]].groupby("prompt")["utility"].mean()
        rows = []
        for prompt, states in branches.groupby("prompt")["state"].nunique().items():
            gain, loss = (float(changes[end].get(prompt, float("nan"))) for end in ("max", "min"))
            reference = float(references.get(prompt, float("nan")))
            known = {"reference": reference, "gain": gain, "loss": loss}
            rows.append(
                {"prompt": prompt, "text": texts.get(prompt), "states": int(states)}
                | {name: None if value != value else value for name, value in known.items()}
            )
        return sorted(rows, key=lambda row: (-(row["gain"] or 0.0), row["loss"] or 0.0, row["prompt"]))

    def states(self, model: str, task: str, split: str, prompt: str) -> list[Json]:
        """Return the states of one prompt as `states.js` draws them: the canvas, and what every candidate led to."""
        tables = self._tables(model, task, split)
        parts = {name: dict(list(x[x["prompt"] == prompt].groupby(STATE_COLUMNS))) for name, x in tables.items()}
        if not parts["branches"]:
            raise UnknownName("prompt", prompt, list(dict.fromkeys(tables["branches"]["prompt"]))[:20])
        codec = self.codec(model)
        codecs = {} if codec is None else {model: codec}
        return [
            describe_state(key, branches, parts["readings"].get(key), parts["states"].get(key), codecs)
            for key, branches in parts["branches"].items()
        ]

    def stored_states(self, model: str, task: str, split: str, prompt: str) -> list[tuple[int, list[int]]]:
        """Return step and tokens of each stored state, to compare a repeated run with."""
        states = self._tables(model, task, split)["states"]
        own = states[states["prompt"] == prompt]
        return [(int(step), list(tokens)) for step, tokens in zip(own["step"], own["tokens"], strict=True)]

    def _read_tables(self, model: str, task: str, split: str) -> dict[str, pd.DataFrame]:
        """Read the tables of the finished shards of a model, task and split."""
        wanted = [shard for shard, _ in self.shards if (shard.model, shard.task, shard.split) == (model, task, split)]
        if not wanted:
            known = {f"{shard.model}, {shard.task}, {shard.split}" for shard, _ in self.shards}
            raise UnknownName("part of the study", f"{model}, {task}, {split}", known)
        return {name: self.store.read(name, columns, shards=wanted) for name, columns in COLUMNS.items()}

    def _prompt_texts(self, task: str, split: str) -> dict[str, str]:
        """Return prompts by id; none where the task's data are not on this machine."""
        try:
            return {example.id: replace_surrogates(example.prompt) for example in self._load_examples(task, split)}
        except UnmaskError:
            return {}

    def _find_codec(self, model: str) -> Codec | None:
        """Return the model's tokenizer, if it is on this machine."""
        spec = self._find_spec(model)
        return find_saved_codec({"model": {**(spec.get("options") or {}), "name": spec["model"]}})

    # The study's own prompts, policies and options

    def example(self, task: str, split: str, id: str) -> Example:
        """Return the prompt with this id, as the study took it."""
        for example in self._load_examples(task, split):
            if example.id == id:
                return example
        raise ConfigError(
            f"{id} is no {split} prompt of {task} here; allowed: the data of the study; see `unmask tasks`"
        )

    def reference(self, model: str) -> Policy:
        """Return the study's reference policy; a policy from a user's own file is refused, not run."""
        spec = self._find_spec(model)
        name, settings = spec["reference"], spec.get("policy") or {}
        if not settings:
            return reference_of(candidates(name))
        if "class" in settings:
            raise ConfigError(
                f"the reference of {model} is {settings.get('name')!r}, code of somebody's own, which is not run "
                "here; allowed: registered methods; look at its stored answers"
            )
        policy = policy_from_config(settings)
        assert isinstance(policy, Policy)
        return policy

    def options(self, task: str) -> Json:
        """Return how the study decodes a task, as options of `generate`."""
        return {
            "max_new_tokens": find_task(task).max_new_tokens,
            "steps": self.study["steps"][task],
            "seed": self.study["seed"],
            "temperature": self.study["temperature"],
        }

    def candidate_names(self, model: str) -> dict[str, list[str]]:
        """Return the study's candidates by axis, around the model's reference."""
        named = self.study.get("candidates", {}).get(self._find_spec(model)["reference"], {})
        return {axis: list(names) for axis, names in named.items() if axis in AXES}

    def candidate(self, model: str, axis: str, name: str) -> Policy:
        """Return a candidate with the study's own re-masking operator."""
        given = self.study.get("revision")
        return candidate(self._find_spec(model)["reference"], axis, name, ReMDM(**given) if given else None)

    @property
    def scoring(self) -> str:
        return str(self.study.get("scoring", "ours"))

    def _find_spec(self, model: str) -> Mapping[str, Any]:
        if model not in self.specs:
            raise UnknownName("model of the study", model, self.specs)
        return self.specs[model]

    def _load_examples(self, task: str, split: str) -> tuple[Example, ...]:
        if task in self.study.get("own", {}):
            raise ConfigError(
                f"{task} is a task of somebody's own, whose prompts are not in the study's folder; allowed: tasks of "
                "`unmask tasks`; look at its stored answers"
            )
        part = self.study["splits"][split]
        return select_examples(
            find_task(task), part["split"], start=part["start"], prompts=part["prompts"], data_dir=self.data_dir
        )
