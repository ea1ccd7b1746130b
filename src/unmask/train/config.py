"""Configuration of a training run, a TOML file. Everything that affects the result is a key; none has a default."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from unmask.base.errors import require
from unmask.base.options import Options, check_name, read_toml
from unmask.train.sources import SOURCES

Count = Annotated[int, Field(ge=1)]
Interval = Annotated[int, Field(ge=0, json_schema_extra={"hint": "0 turns it off"})]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class NetworkConfig(Options):
    """Sizes of the network, and the family whose format and conventions it follows."""

    family: Literal["llada", "dream"]
    """`llada`, or `dream`: logits one slot early, biases on q, k and v."""
    layers: Count
    width: Count
    heads: Count
    kv_heads: Count
    mlp: Count
    context: Count
    """Longest sequence, as the exported config.json states it."""
    theta: Positive
    """Base of the rotary frequencies."""
    norm_eps: Positive
    init_std: Positive
    """Standard deviation of the normal numbers that every matrix starts from."""


class TokenizerConfig(Options):
    """Size of the byte-level BPE tokenizer, and the texts that it is learned from."""

    # At least 256 bytes, the control tokens, and a few merges.
    size: int = Field(ge=300, le=32768, json_schema_extra={"hint": "2048 to 8192 suit a small model"})
    """Number of tokens, control tokens included: the rows of embedding and head."""
    examples: Count
    """Examples of each source that the tokenizer is learned from, at most."""


class SourceConfig(Options):
    """Weight and number of examples of one source of training texts."""

    weight: Positive
    """The source's share of the objective is its weight over the sum of all weights."""
    examples: Count
    """Number of different examples. With the weight and the steps it sets how often each one is seen."""


class DataConfig(Options):
    """Lengths of the rows of tokens, and the number of held-out examples."""

    lengths: tuple[int, ...]
    """A row is padded to the first of these lengths that it fits in. Longer examples are left out and counted."""
    validation: Count
    """Held-out examples of each source."""

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        given = list(self.lengths)
        ok = 1 <= len(given) <= 8 and min(given) >= 16 and given == sorted(set(given))
        # Compiled code exists once per length, and torch gives up after eight.
        require(ok, "lengths", given, "one to eight rising lengths, 16 or more", "for example [192, 288, 480]")
        return self


class OptimizerConfig(Options):
    """AdamW or Muon, with a linear warm-up and a cosine decay to the last step."""

    kind: Literal["adamw", "muon"]
    """`adamw`, or `muon`: Muon for the layers' matrices and AdamW for the rest."""
    steps: Count
    batch: Count
    """Rows per step, all lengths together."""
    rate: Positive
    """Highest learning rate."""
    final_rate: float = Field(ge=0)
    warmup: int = Field(ge=0)
    """Steps of linear growth."""
    betas: tuple[float, float]
    eps: Positive
    weight_decay: float = Field(ge=0, allow_inf_nan=False)
    """Weight decay of matrices; norms and biases have none."""
    clip: Positive
    """Largest norm of the gradient."""
    least_ratio: float = Field(gt=0, lt=1, json_schema_extra={"hint": "LLaDA uses 0.001"})
    """Mask ratios are uniform between this and 1. A token's weight is the inverse of its ratio."""

    @model_validator(mode="after")
    def _check_numbers(self) -> Self:
        allowed = f"0 to {self.rate}, the rate"
        require(self.final_rate <= self.rate, "final_rate", self.final_rate, allowed, "lower it")
        allowed = f"0 to {self.steps - 1}, before the last step"
        require(self.warmup < self.steps, "warmup", self.warmup, allowed, "shorten it")
        ok = all(0 <= beta < 1 for beta in self.betas)
        require(ok, "betas", list(self.betas), "two numbers from 0 to below 1", "for example [0.9, 0.95]")
        return self


class RunConfig(Options):
    """Precision and compilation of a run, and the intervals, in steps, at which it logs, validates and saves."""

    dtype: Literal["bf16", "fp32"]
    """`bf16`: products in bfloat16, weights and optimizer in float32. `fp32`: everything in float32."""
    compile: bool
    """Fuse the layers' small operations. The first steps take longer. CUDA only."""
    graph: bool
    """Record a whole step as a CUDA graph and replay it with one launch per step. CUDA only."""
    export: Literal["bf16", "fp16", "fp32"]
    """Type of the stored weights."""
    log_every: Count
    validate_every: Interval
    checkpoint_every: Interval
    score_every: Interval
    score_prompts: int = Field(ge=0)
    """Development prompts of each task for the suite scores."""

    @model_validator(mode="after")
    def _check_score_prompts(self) -> Self:
        ok = self.score_every == 0 or self.score_prompts > 0
        require(ok, "score_prompts", self.score_prompts, "1 or more with score_every", "score some prompts")
        return self


class TrainConfig(Options):
    """Complete configuration of a training run. Equal ones on equal data give equal models, up to rounding on a GPU."""

    seed: int = Field(ge=0, lt=2**31)
    model: NetworkConfig
    tokenizer: TokenizerConfig
    data: DataConfig
    sources: dict[str, SourceConfig] = Field(json_schema_extra={"allowed": "tables [sources.NAME]"})
    optimizer: OptimizerConfig
    run: RunConfig

    @model_validator(mode="after")
    def _check_tables_agree(self) -> Self:
        require(bool(self.sources), "sources", {}, f"one or more of {', '.join(SOURCES)}", "add a [sources.NAME] table")
        for name in self.sources:
            check_name("source", name, SOURCES)
        longest, context = self.data.lengths[-1], self.model.context
        require(longest <= context, "lengths", longest, f"up to {context}, the context", "raise the context")
        rows, lengths = self.optimizer.batch, len(self.data.lengths)
        require(rows >= lengths, "batch", rows, f"{lengths} or more, one row of each length", "raise it")
        return self

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a configuration from a TOML file."""
        return cls.from_table(read_toml(path, "configuration"), str(path))

    def flatten(self) -> dict[str, Any]:
        """Return all values as one mapping from dotted names, as checkpoints and manifests store it."""

        def walk_table(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
            for name, value in table.items():
                if isinstance(value, Mapping):
                    yield from walk_table(f"{prefix}{name}.", value)
                else:
                    yield prefix + name, list(value) if isinstance(value, tuple) else value

        return dict(walk_table("", self.model_dump()))

    @property
    def digest(self) -> str:
        """SHA-256 of all values of the configuration. Exported manifests store it as `config_sha256`."""
        return hash_json(self.flatten())


def describe_differences(ours: Mapping[str, Any], stored: Mapping[str, Any]) -> list[str]:
    """List the keys in which two flattened configurations differ, each with its new and old value."""

    def show_value(flat: Mapping[str, Any], name: str) -> str:
        return json.dumps(flat[name]) if name in flat else "absent"

    names = [name for name in {**stored, **ours} if ours.get(name) != stored.get(name)]
    return [f"{name} is {show_value(ours, name)}, was {show_value(stored, name)}" for name in names]


def hash_json(value: Any) -> str:
    """Return the SHA-256 of a JSON value in a canonical form."""
    # NaN equals nothing, not even itself, and would make every run another one.
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
