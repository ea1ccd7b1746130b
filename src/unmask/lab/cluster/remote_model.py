"""A model on the workers of a cluster: many prompts decoded side by side, and one `Generation` of all of them.

Prompts are cut into batches by their lengths alone, never by who is free: so the forwards have the same shapes on any
number of workers, and the tokens are those of one process that decodes the same batches.
"""

import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NoReturn

from unmask.api import DecodeOptions, Generation, Model, check_options, check_texts
from unmask.base.errors import ConfigError, require
from unmask.core import join_runs, map_tensors
from unmask.lab.cluster.carry import Parcel, packed
from unmask.lab.cluster.model_workers import ModelWorkers, model_workers
from unmask.lab.cluster.stand_in import stand_in
from unmask.lab.cluster.where import Ray
from unmask.models import Prompt

BATCH_SIZE = 32
"""Rows that a worker decodes together, where no number is given."""


@dataclass(frozen=True)
class ModelName:
    """What a worker loads: a name, a hub id or a folder that is there, and options."""

    model: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class LoadOne:
    """Loads the same model, whatever a study calls it: for workers."""

    load: Callable[[ModelName], Model]
    name: ModelName

    def __call__(self, spec: Any) -> Model:
        return self.load(self.name)


class RemoteModel:
    """A model that each worker of a cluster has loaded; `close` it, or use it as a context, to let them go."""

    def __init__(self, cluster: Ray, load: Callable[[ModelName], Model], name: ModelName):
        """Connect, start workers and have the model loaded by one of them: what is wrong with it is heard now."""
        require(
            isinstance(cluster, Ray), "cluster", cluster, "a Ray(...), or None for this process", "e.g. cluster=Ray()"
        )
        self.loader = LoadOne(load, name)
        """Whoever has workers of its own loads the same model."""
        with ExitStack() as stack:
            self.workers: ModelWorkers = stack.enter_context(model_workers(cluster, load, name))
            self.here: Model = self.workers.call(stand_in, what=f"loading {name.model}")
            """The model without its network: names, options, codec."""
            self.close = weakref.finalize(self, stack.pop_all().close)
            """Let the workers go; a cluster that was started for them is stopped."""

    def __enter__(self) -> "RemoteModel":
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = f"{self.workers.pool.size} workers" if self.close.alive else "closed"
        return f"RemoteModel({self.here.name!r}, {state})"

    @property
    def name(self) -> str:
        return self.here.name

    @property
    def options(self) -> Mapping[str, Any]:
        return self.here.options

    @property
    def fingerprint(self) -> str:
        return self.here.fingerprint

    def generate(
        self, prompt: Prompt | Sequence[Prompt] | None = None, *, batch_size: int = BATCH_SIZE, **options: Any
    ) -> Generation:
        """`Model.generate` with the same options, `batch_size` rows of similar length at a time on each worker."""
        given: Any = self.here.default_prompt if prompt is None else prompt
        prompts = check_texts("prompt", given)
        return self._decoded("generate", prompts, batch_size, options, default_prompt=prompt is None)

    def infill(self, text: str | Sequence[str], *, batch_size: int = BATCH_SIZE, **options: Any) -> Generation:
        """`Model.infill` with the same options, in the same way."""
        return self._decoded("infill", check_texts("text", text), batch_size, options, default_prompt=False)

    def branch(self, *given: Any, **options: Any) -> NoReturn:
        """One row is no work for many: refused."""
        raise ConfigError(
            "branch continues one row; allowed: generate and infill on a cluster; unmask.load(...) without cluster= "
            "branches from what this model returned"
        )

    def log_likelihood(self, *given: Any, **options: Any) -> NoReturn:
        """Refused."""
        raise ConfigError(
            "log_likelihood is not spread over workers; allowed: generate and infill on a cluster; load the model "
            "without cluster="
        )

    def _decoded(
        self, task: str, prompts: Sequence[Any], batch_size: int, options: Mapping[str, Any], *, default_prompt: bool
    ) -> Generation:
        require(self.close.alive, "the model", "closed", "one whose workers are there", "load it again")
        ok = type(batch_size) is int and batch_size >= 1
        require(ok, "batch_size", batch_size, "1 or more rows", "decode at least one at a time")
        check_options(task, options)
        asked = DecodeOptions(**options)
        if asked.on_step is not None:
            raise ConfigError(
                "on_step is given, but the steps are taken by workers; allowed: None on a cluster; leave it out"
            )
        groups = in_batches(prompts, max(1, batch_size // asked.samples))
        parcel = packed((task, dict(options)))
        calls = [(parcel, None if default_prompt else [prompts[at] for at in group]) for group in groups]
        parts = list(self.workers.in_order(_decode, calls, what=task))
        each = range(asked.samples)
        whole = merged(parts, [[at * asked.samples + sample for at in group for sample in each] for group in groups])
        for remark in whole.config.get("warnings", ()):
            # Said by the workers, too, where nobody hears it.
            warnings.warn(remark, stacklevel=3)
        return whole


def _decode(model: Model, parcel: Parcel, prompts: Sequence[Any] | None) -> Generation:
    """On a worker: one batch, with its tensors where every process can read them."""
    task, options = parcel.open()
    out: Generation = getattr(model, task)(prompts, **options)
    return replace(out, trajectory=map_tensors(out.trajectory, lambda tensor: tensor.cpu()))


def in_batches(prompts: Sequence[Any], most: int) -> list[list[int]]:
    """Places of the prompts that are decoded together: of similar length, so many at a time."""
    by_length = sorted(range(len(prompts)), key=lambda at: (_length(prompts[at]), at))
    return [by_length[at : at + most] for at in range(0, len(by_length), most)]


def _length(prompt: Any) -> int:
    """Characters; those of all turns of a conversation."""
    return len(prompt) if isinstance(prompt, str) else sum(len(str(turn.get("content", ""))) for turn in prompt)


def merged(generations: Sequence[Generation], rows: Sequence[Sequence[int]] | None = None) -> Generation:
    """One generation of several that differ in their prompts alone; `rows` says where the rows of each belong.

    Without `rows` they stand behind each other.
    """
    require(bool(generations), "generations", [], "one or more", "decode something")
    if rows is None:
        ends = [sum(len(one.texts) for one in generations[:at]) for at in range(len(generations) + 1)]
        rows = [range(start, end) for start, end in pairwise(ends)]
    run = join_runs([one.trajectory for one in generations], rows)
    config = _merged_config([one.config for one in generations], rows)
    order = sorted(range(len(config["rows"])), key=[place for own in rows for place in own].__getitem__)

    def every(name: str) -> tuple[Any, ...]:
        values = [value for one in generations for value in getattr(one, name)]
        return tuple(values[at] for at in order)

    return Generation(
        texts=every("texts"),
        tokens=every("tokens"),
        canvases=every("canvases"),
        trajectory=replace(run, config=config),
        config=config,
        policy=generations[0].policy,
        answer_tokens=every("answer_tokens"),
        codec=generations[0].codec,
    )


def _merged_config(configs: Sequence[Mapping[str, Any]], rows: Sequence[Sequence[int]]) -> dict[str, Any]:
    """What all have, the lines of all rows in their places, and every warning once, in a run's own order."""
    first = configs[0]
    shared = [name for name in dict.fromkeys(key for config in configs for key in config) if name not in _OF_PARTS]
    differ = [name for name in shared if any(config.get(name) != first.get(name) for config in configs)]
    require(not differ, "configurations", f"different in {', '.join(differ)}", "those of one call", "merge its parts")
    pairs = zip(configs, rows, strict=True)
    lines = {place: line for config, own in pairs for place, line in zip(own, config["rows"], strict=True)}
    remarks = list(dict.fromkeys(text for config in configs for text in config.get("warnings", ())))
    of_parts = {"rows": [lines[place] for place in sorted(lines)], **({"warnings": remarks} if remarks else {})}
    names = [name for name in (*first, *of_parts) if name != "warnings"]
    if remarks:
        names.insert(names.index("default_prompt"), "warnings")
    return {name: of_parts.get(name, first.get(name)) for name in names}


_OF_PARTS = ("rows", "warnings")
