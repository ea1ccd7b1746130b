"""A training run as a TOML file. Everything that affects the result is a key, and every key must be given."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from unmask.base.errors import require
from unmask.base.options import check_keys, check_name, check_types, parse_part, read_toml
from unmask.train.sources import SOURCES


@dataclass(frozen=True)
class NetworkConfig:
    """Sizes of the network, and the family whose format and conventions it follows."""

    family: str
    """`llada`, or `dream`: logits one slot early, biases on q, k and v."""
    layers: int
    width: int
    heads: int
    kv_heads: int
    mlp: int
    context: int
    """Longest sequence, as the exported config.json states it."""
    theta: float
    """Base of the rotary frequencies."""
    norm_eps: float
    init_std: float
    """Standard deviation of the normal numbers that every matrix starts from."""

    def __post_init__(self) -> None:
        _check_choice("model", "family", self.family, ("llada", "dream"))
        _check_positive("model", self, "layers", "width", "heads", "kv_heads", "mlp", "context")
        _check_positive("model", self, "theta", "norm_eps", "init_std")
        # `TransformerSpec` checks both as well, but it needs torch, and rows are made without it.
        pairs = 2 * self.heads
        allowed = f"a multiple of {pairs}, twice the heads"
        require(self.width % pairs == 0, "width of model", self.width, allowed, "change width or heads")
        allowed = f"a divisor of {self.heads}, the heads"
        require(
            self.heads % self.kv_heads == 0, "kv_heads of model", self.kv_heads, allowed, "change heads or kv_heads"
        )


@dataclass(frozen=True)
class TokenizerConfig:
    """The byte-level BPE tokenizer."""

    size: int
    """Number of tokens, control tokens included: the rows of embedding and head."""
    examples: int
    """Examples of each source that the tokenizer is learned from, at most."""

    def __post_init__(self) -> None:
        # At least 256 bytes, the control tokens, and a few merges.
        require(
            300 <= self.size <= 32768, "size of tokenizer", self.size, "300 to 32768", "2048 to 8192 suit a small model"
        )
        _check_positive("tokenizer", self, "examples")


@dataclass(frozen=True)
class SourceConfig:
    """One kind of training text."""

    weight: float
    """The source's share of the objective is its weight over the sum of all weights."""
    examples: int
    """Number of different examples. With the weight and the steps it sets how often each one is seen."""

    def __post_init__(self) -> None:
        _check_positive("source", self, "weight", "examples")


@dataclass(frozen=True)
class DataConfig:
    """How examples become rows of tokens."""

    lengths: Sequence[int]
    """A row is padded to the first of these lengths that it fits in. Longer examples are left out and counted."""
    validation: int
    """Held-out examples of each source."""

    def __post_init__(self) -> None:
        ok = 1 <= len(self.lengths) <= 8 and min(self.lengths) >= 16 and list(self.lengths) == sorted(set(self.lengths))
        # Compiled code exists once per length, and torch gives up after eight.
        allowed = "one to eight rising lengths, 16 or more"
        require(ok, "lengths of data", list(self.lengths), allowed, "for example [192, 288, 480]")
        _check_positive("data", self, "validation")
        object.__setattr__(self, "lengths", tuple(self.lengths))


@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW or Muon, with a linear warm-up and a cosine decay to the last step."""

    kind: str
    """`adamw`, or `muon`: Muon for the layers' matrices and AdamW for the rest."""
    steps: int
    batch: int
    """Rows per step, all lengths together."""
    rate: float
    """Highest learning rate."""
    final_rate: float
    warmup: int
    """Steps of linear growth."""
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    """Weight decay of matrices; norms and biases have none."""
    clip: float
    """Largest norm of the gradient."""
    least_ratio: float
    """Mask ratios are uniform between this and 1. A token's weight is the inverse of its ratio."""

    def __post_init__(self) -> None:
        _check_choice("optimizer", "kind", self.kind, ("adamw", "muon"))
        _check_positive("optimizer", self, "steps", "batch", "rate", "eps", "clip")
        allowed = f"0 to {self.rate}, the rate"
        require(0 <= self.final_rate <= self.rate, "final_rate of optimizer", self.final_rate, allowed, "lower it")
        allowed = f"0 to {self.steps - 1}, before the last step"
        require(0 <= self.warmup < self.steps, "warmup of optimizer", self.warmup, allowed, "shorten it")
        ok = all(0 <= beta < 1 for beta in self.betas)
        require(ok, "betas of optimizer", list(self.betas), "two numbers from 0 to below 1", "for example [0.9, 0.95]")
        ok = 0 <= self.weight_decay < math.inf
        require(ok, "weight_decay of optimizer", self.weight_decay, "0 or more", "0 turns it off")
        ok = 0 < self.least_ratio < 1
        require(ok, "least_ratio of optimizer", self.least_ratio, "above 0, below 1", "LLaDA uses 0.001")
        object.__setattr__(self, "betas", tuple(self.betas))


@dataclass(frozen=True)
class RunConfig:
    """Arithmetic of the run, and what it writes when. Intervals count steps; 0 is never."""

    dtype: str
    """`bf16`: products in bfloat16, weights and optimizer in float32. `fp32`: everything in float32."""
    compile: bool
    """Fuse the layers' small operations. The first steps take longer. CUDA only."""
    graph: bool
    """Record a whole step as a CUDA graph and replay it with one launch per step. CUDA only."""
    export: str
    """Type of the stored weights."""
    log_every: int
    validate_every: int
    checkpoint_every: int
    score_every: int
    score_prompts: int
    """Development prompts of each task for the suite scores."""

    def __post_init__(self) -> None:
        _check_choice("run", "dtype", self.dtype, ("bf16", "fp32"))
        _check_choice("run", "export", self.export, ("bf16", "fp16", "fp32"))
        _check_positive("run", self, "log_every")
        for name in ("validate_every", "checkpoint_every", "score_every", "score_prompts"):
            require(getattr(self, name) >= 0, f"{name} of run", getattr(self, name), "0 or more", "0 turns it off")
        ok = self.score_every == 0 or self.score_prompts > 0
        require(ok, "score_prompts of run", self.score_prompts, "1 or more with score_every", "score some prompts")


_TABLES: dict[str, Any] = {
    "model": NetworkConfig,
    "tokenizer": TokenizerConfig,
    "data": DataConfig,
    "optimizer": OptimizerConfig,
    "run": RunConfig,
}


@dataclass(frozen=True)
class TrainConfig:
    """A training run. Equal configurations on equal data give equal models, up to rounding on a GPU."""

    seed: int
    model: NetworkConfig
    tokenizer: TokenizerConfig
    data: DataConfig
    sources: Mapping[str, SourceConfig] = field(hash=False)
    optimizer: OptimizerConfig
    run: RunConfig

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**31, "seed", self.seed, "0 to 2147483647", "pick one in this range")
        require(bool(self.sources), "sources", {}, f"one or more of {', '.join(SOURCES)}", "add a [sources.NAME] table")
        longest, context = self.data.lengths[-1], self.model.context
        require(longest <= context, "lengths of data", longest, f"up to {context}, the context", "raise the context")
        rows, lengths = self.optimizer.batch, len(self.data.lengths)
        require(rows >= lengths, "batch of optimizer", rows, f"{lengths} or more, one row of each length", "raise it")

    @classmethod
    def read(cls, path: str | Path) -> "TrainConfig":
        """Read a TOML file."""
        return cls.of(read_toml(path, "configuration"), str(path))

    @classmethod
    def of(cls, document: Mapping[str, Any], where: str = "the configuration") -> "TrainConfig":
        """Build the configuration from nested tables, as TOML has them."""
        check_keys(where, document, [part.name for part in fields(cls)])
        check_types(cls, {"seed": document["seed"]}, where)
        parts = {name: parse_part(table, document[name], f"[{name}] of {where}") for name, table in _TABLES.items()}
        named = document["sources"]
        require(isinstance(named, Mapping), "sources", named, "tables [sources.NAME]", "see configs/mini.toml")
        for name in named:
            check_name("source", name, SOURCES)
        sources = {name: parse_part(SourceConfig, named[name], f"[sources.{name}] of {where}") for name in named}
        return cls(seed=document["seed"], sources=MappingProxyType(sources), **parts)

    def flat(self) -> dict[str, Any]:
        """Every value under its dotted name, as manifests and `run.json` store it."""

        def flatten(name: str, value: Any) -> dict[str, Any]:
            if is_dataclass(value):
                value = {part.name: getattr(value, part.name) for part in fields(value)}
            if not isinstance(value, Mapping):
                return {name: list(value) if isinstance(value, tuple) else value}
            inner = (flatten(f"{name}.{key}" if name else key, part) for key, part in value.items())
            return {key: part for table in inner for key, part in table.items()}

        return flatten("", self)

    @property
    def digest(self) -> str:
        """SHA-256 of all values. Exported manifests store it as `config_sha256`."""
        return hash_json(self.flat())


def describe_differences(ours: Mapping[str, Any], stored: Mapping[str, Any]) -> list[str]:
    """Say for each key in which two flat configurations differ what it is and what it was."""

    def show(flat: Mapping[str, Any], name: str) -> str:
        return json.dumps(flat[name]) if name in flat else "absent"

    names = [name for name in {**stored, **ours} if ours.get(name) != stored.get(name)]
    return [f"{name} is {show(ours, name)}, was {show(stored, name)}" for name in names]


def hash_json(value: Any) -> str:
    """SHA-256 of a JSON value in a canonical form."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _check_choice(table: str, name: str, value: str, choices: Sequence[str]) -> None:
    allowed = f"{', '.join(choices[:-1])} or {choices[-1]}"
    require(value in choices, f"{name} of {table}", value, allowed, "pick one")


def _check_positive(table: str, values: object, *names: str) -> None:
    for name in names:
        value = getattr(values, name)
        allowed = "1 or more" if isinstance(value, int) else "above 0"
        require(0 < value < math.inf, f"{name} of {table}", value, allowed, "raise it")
