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

import torch

from unmask.api import DecodeOptions, Generation, Model, check_options, check_texts
from unmask.base.environment import machine_name
from unmask.base.errors import ConfigError, require
from unmask.core import ModelInput, ModelOutput, Needs, Vocabulary, join_runs, map_tensors
from unmask.lab.cluster.executor import Executor, run_in_order
from unmask.lab.cluster.ray_executor import Ray, RayExecutor
from unmask.models import ExactDenoiser, Prompt

BATCH_SIZE = 32
"""Rows that a worker decodes together, where no number is given."""


@dataclass(frozen=True)
class ModelName:
    """The model that workers load: a name, a hub id or a folder, with load options."""

    model: str
    options: Mapping[str, Any]


_LOADED: dict[str, Model] = {}
"""The model of `LoadOne` in this process."""


@dataclass(frozen=True)
class LoadOne:
    """Loads one model whatever name a spec gives it, because a calibration names it otherwise than `RemoteModel`."""

    load: Callable[[ModelName], Model]
    name: ModelName

    def __call__(self, spec: Any) -> Model:
        key = repr(self.name)
        if key not in _LOADED:
            _LOADED.clear()
            _LOADED[key] = self.load(self.name)
        return _LOADED[key]


@dataclass(frozen=True)
class RemoteDenoiserStub:
    """Placeholder, in the driver, for a network that only workers have: its vocabulary, device and machine."""

    vocabulary: Vocabulary
    device: torch.device
    machine: str
    device_name: str

    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        raise ConfigError(
            "the network is on the workers of a cluster; allowed: generate and infill of the model, compare and "
            "calibrate with cluster=; load it here for anything else"
        )


def without_network(model: Any) -> Any:
    """Return a model with a placeholder for its network, to be sent to the driver."""
    denoiser = model.denoiser
    if isinstance(denoiser, ExactDenoiser):
        return model
    device = denoiser.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return replace(model, denoiser=RemoteDenoiserStub(denoiser.vocabulary, device, machine_name(device), name))


class RemoteModel:
    """A model that each worker of a cluster has loaded; `close` it, or use it as a context, to let them go."""

    def __init__(self, cluster: Ray, load: Callable[[ModelName], Model], name: ModelName):
        """Connect, and let one worker load the model, so that an error of loading it is raised here."""
        require(
            isinstance(cluster, Ray), "cluster", cluster, "a Ray(...), or None for this process", "e.g. cluster=Ray()"
        )
        with ExitStack() as stack:
            self.executor: Executor = stack.enter_context(RayExecutor(cluster, LoadOne(load, name)))
            """Runs calls with this model on the workers."""
            self.here: Model = self.executor.submit(without_network, None).result()
            """The model without its network: names, options, codec."""
            self.close = weakref.finalize(self, stack.pop_all().close)
            """Let the workers go; a cluster that was started for them is stopped."""

    def __enter__(self) -> "RemoteModel":
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = f"{self.executor.workers} workers" if self.close.alive else "closed"
        return f"RemoteModel({self.here.name!r}, {state})"

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.here.name

    @property
    def options(self) -> Mapping[str, Any]:
        """Options that the model was loaded with."""
        return self.here.options

    @property
    def fingerprint(self) -> str:
        """Hash of the weights."""
        return self.here.fingerprint

    def generate(
        self, prompt: Prompt | Sequence[Prompt] | None = None, *, batch_size: int = BATCH_SIZE, **options: Any
    ) -> Generation:
        """Generate as `Model.generate` does, `batch_size` rows of similar length at a time on each worker."""
        given: Any = self.here.default_prompt if prompt is None else prompt
        prompts = check_texts("prompt", given)
        return self._decode("generate", prompts, batch_size, options, default_prompt=prompt is None)

    def infill(self, text: str | Sequence[str], *, batch_size: int = BATCH_SIZE, **options: Any) -> Generation:
        """Infill as `Model.infill` does, `batch_size` rows of similar length at a time on each worker."""
        return self._decode("infill", check_texts("text", text), batch_size, options, default_prompt=False)

    def branch(self, *given: Any, **options: Any) -> NoReturn:
        """Refuse to branch: a single row cannot be spread over several workers."""
        raise ConfigError(
            "branch continues one row; allowed: generate and infill on a cluster; unmask.load(...) without cluster= "
            "branches from what this model returned"
        )

    def log_likelihood(self, *given: Any, **options: Any) -> NoReturn:
        """Refuse to compute likelihoods, which a model in this process does."""
        raise ConfigError(
            "log_likelihood is not spread over workers; allowed: generate and infill on a cluster; load the model "
            "without cluster="
        )

    def _decode(
        self, task: str, prompts: Sequence[Any], batch_size: int, options: Mapping[str, Any], *, default_prompt: bool
    ) -> Generation:
        require(self.close.alive, "the model", "closed", "one whose workers are there", "load it again")
        ok = type(batch_size) is int and batch_size >= 1
        require(ok, "batch_size", batch_size, "1 or more rows", "decode at least one at a time")
        check_options(task, options)
        chosen = DecodeOptions(**options)
        if chosen.on_step is not None:
            raise ConfigError(
                "on_step is given, but the steps are taken by workers; allowed: None on a cluster; leave it out"
            )
        groups = group_prompts(prompts, max(1, batch_size // chosen.samples))
        calls = [(task, dict(options), None if default_prompt else [prompts[at] for at in group]) for group in groups]
        parts = list(run_in_order(self.executor, decode_batch, None, calls))
        samples = chosen.samples
        rows = [[at * samples + sample for at in group for sample in range(samples)] for group in groups]
        whole = merge_generations(parts, rows)
        for remark in whole.config.get("warnings", ()):
            # Workers have given them too, where nobody sees them.
            warnings.warn(remark, stacklevel=3)
        return whole


def decode_batch(model: Model, task: str, options: Mapping[str, Any], prompts: Sequence[Any] | None) -> Generation:
    """Decode one batch on a worker, and move its tensors where every process can read them."""
    out: Generation = getattr(model, task)(prompts, **options)
    return replace(out, trajectory=map_tensors(out.trajectory, lambda tensor: tensor.cpu()))


def group_prompts(prompts: Sequence[Any], most: int) -> list[list[int]]:
    """Return indices of the prompts that are decoded together: those of similar length, so many at a time."""
    by_length = sorted(range(len(prompts)), key=lambda at: (_length(prompts[at]), at))
    return [by_length[at : at + most] for at in range(0, len(by_length), most)]


def _length(prompt: Any) -> int:
    """Count the characters of a prompt, or of all turns of a conversation."""
    return len(prompt) if isinstance(prompt, str) else sum(len(str(turn.get("content", ""))) for turn in prompt)


def merge_generations(generations: Sequence[Generation], rows: Sequence[Sequence[int]] | None = None) -> Generation:
    """Merge generations that differ in their prompts alone; `rows` are the final row numbers of each one's rows.

    Without `rows` they are put one after the other.
    """
    require(bool(generations), "generations", [], "one or more", "decode something")
    if rows is None:
        ends = [sum(len(one.texts) for one in generations[:at]) for at in range(len(generations) + 1)]
        rows = [range(start, end) for start, end in pairwise(ends)]
    run = join_runs([one.trajectory for one in generations], rows)
    config = _merge_configs([one.config for one in generations], rows)
    order = sorted(range(len(config["rows"])), key=[place for own in rows for place in own].__getitem__)

    def join_field(name: str) -> tuple[Any, ...]:
        values = [value for one in generations for value in getattr(one, name)]
        return tuple(values[at] for at in order)

    return Generation(
        texts=join_field("texts"),
        tokens=join_field("tokens"),
        canvases=join_field("canvases"),
        trajectory=replace(run, config=config),
        config=config,
        policy=generations[0].policy,
        answer_tokens=join_field("answer_tokens"),
        codec=generations[0].codec,
    )


def _merge_configs(configs: Sequence[Mapping[str, Any]], rows: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Merge configurations: what all have, the entries of all rows in their order, and every warning once."""
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
