"""A training run as a TOML file, read strictly: everything that affects the result is a key, and every key is given."""

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

FAMILIES = ("llada", "dream")
DTYPES = ("bf16", "fp32")
EXPORTS = ("bf16", "fp16", "fp32")
OPTIMIZERS = ("adamw", "muon")
FEWEST_TOKENS = 300
"""256 bytes, the control tokens, and a few merges."""


@dataclass(frozen=True)
class NetworkSettings:
    """The network."""

    family: str
    """Whose format and conventions: `llada`, or `dream` (logits one slot early, biases on q, k and v)."""
    layers: int
    width: int
    heads: int
    kv_heads: int
    mlp: int
    context: int
    """The longest sequence, as config.json states it."""
    theta: float
    """Base of the rotary frequencies."""
    norm_eps: float
    init_std: float
    """Of the normal numbers that every matrix starts from."""

    def __post_init__(self) -> None:
        require(self.family in FAMILIES, "family of model", self.family, " or ".join(FAMILIES), "pick one")
        for name in ("layers", "width", "heads", "kv_heads", "mlp", "context"):
            _positive("model", name, getattr(self, name))
        for name in ("theta", "norm_eps", "init_std"):
            _positive("model", name, getattr(self, name))
        # As `Spec` checks, which needs torch, and rows are made without it.
        pairs = 2 * self.heads
        allowed = f"a multiple of {pairs}, twice the heads"
        require(self.width % pairs == 0, "width of model", self.width, allowed, "change width or heads")
        ok = self.heads % self.kv_heads == 0
        allowed = f"a divisor of {self.heads}, the heads"
        require(ok, "kv_heads of model", self.kv_heads, allowed, "change heads or kv_heads")


@dataclass(frozen=True)
class VocabularySettings:
    """The byte-level BPE tokenizer."""

    size: int
    """Tokens in all, control tokens included: the rows of embedding and head."""
    examples: int
    """How many examples of each source it is learnt from."""

    def __post_init__(self) -> None:
        ok = FEWEST_TOKENS <= self.size <= 32768
        require(ok, "size of tokenizer", self.size, f"{FEWEST_TOKENS} to 32768", "2048 to 8192 suit a small model")
        _positive("tokenizer", "examples", self.examples)


@dataclass(frozen=True)
class Source:
    """One kind of training text."""

    weight: float
    """Its share of the objective is this over the sum of all weights."""
    examples: int
    """Distinct examples: with the weight and the number of steps this sets how often each is seen."""

    def __post_init__(self) -> None:
        _positive("source", "weight", self.weight)
        _positive("source", "examples", self.examples)


@dataclass(frozen=True)
class Data:
    """How examples become rows."""

    lengths: Sequence[int]
    """Rows are padded to the first of these that they fit in; a longer example is left out, and counted."""
    validation: int
    """Held-out examples of each source."""

    def __post_init__(self) -> None:
        ok = 1 <= len(self.lengths) <= 8 and min(self.lengths) >= 16 and list(self.lengths) == sorted(set(self.lengths))
        # Compiled code exists once per length, and torch gives up after eight.
        allowed = "one to eight rising lengths, 16 or more"
        require(ok, "lengths of data", list(self.lengths), allowed, "for example [192, 288, 480]")
        _positive("data", "validation", self.validation)
        object.__setattr__(self, "lengths", tuple(self.lengths))


@dataclass(frozen=True)
class Optimizer:
    """AdamW or Muon with a warm-up and a cosine to the end."""

    kind: str
    """`adamw`, or `muon`: that for the layers' matrices, AdamW for the rest."""
    steps: int
    batch: int
    """Rows per step, all lengths together."""
    rate: float
    """The highest learning rate."""
    final_rate: float
    warmup: int
    """Steps of linear growth."""
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    """Of matrices; norms and biases have none."""
    clip: float
    """Largest norm of the gradient."""
    least_ratio: float
    """The mask ratio is uniform between this and 1; its inverse is the weight."""

    def __post_init__(self) -> None:
        require(self.kind in OPTIMIZERS, "kind of optimizer", self.kind, " or ".join(OPTIMIZERS), "pick one")
        for name in ("steps", "batch", "rate", "eps", "clip"):
            _positive("optimizer", name, getattr(self, name))
        allowed = f"0 to {self.rate}, the rate"
        require(0 <= self.final_rate <= self.rate, "final_rate of optimizer", self.final_rate, allowed, "lower it")
        ok = 0 <= self.warmup < self.steps
        require(ok, "warmup of optimizer", self.warmup, f"0 to {self.steps - 1}, before the last step", "shorten it")
        ok = all(0 <= beta < 1 for beta in self.betas)
        require(ok, "betas of optimizer", list(self.betas), "two numbers from 0 to below 1", "for example [0.9, 0.95]")
        ok = 0 <= self.weight_decay < math.inf
        require(ok, "weight_decay of optimizer", self.weight_decay, "0 or more", "0 turns it off")
        ok = 0 < self.least_ratio < 1
        require(ok, "least_ratio of optimizer", self.least_ratio, "above 0, below 1", "LLaDA uses 0.001")
        object.__setattr__(self, "betas", tuple(self.betas))


@dataclass(frozen=True)
class Run:
    """Arithmetic, and what is written when. Intervals are in steps; 0 is never."""

    dtype: str
    """`bf16`: products in bfloat16, weights and optimizer in float32. `fp32`: everything in float32."""
    compile: bool
    """Fuse the layers' small operations; the first steps then take longer. CUDA only."""
    graph: bool
    """Record a whole step as a CUDA graph and replay it: one launch per step. CUDA only."""
    export: str
    """The type of the stored weights."""
    log_every: int
    validate_every: int
    checkpoint_every: int
    score_every: int
    score_prompts: int
    """Development prompts per task for the suite scores."""

    def __post_init__(self) -> None:
        require(self.dtype in DTYPES, "dtype of run", self.dtype, " or ".join(DTYPES), "pick one")
        require(self.export in EXPORTS, "export of run", self.export, ", ".join(EXPORTS), "pick one")
        _positive("run", "log_every", self.log_every)
        for name in ("validate_every", "checkpoint_every", "score_every", "score_prompts"):
            require(getattr(self, name) >= 0, f"{name} of run", getattr(self, name), "0 or more", "0 turns it off")
        asked = self.score_every == 0 or self.score_prompts > 0
        require(asked, "score_prompts of run", self.score_prompts, "1 or more with score_every", "score some prompts")


@dataclass(frozen=True)
class Config:
    """A training run. Two runs with equal configurations on equal data give equal models, up to rounding on a GPU."""

    seed: int
    model: NetworkSettings
    tokenizer: VocabularySettings
    data: Data
    sources: Mapping[str, Source] = field(hash=False)
    optimizer: Optimizer
    run: Run

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**31, "seed", self.seed, "0 to 2147483647", "pick one in this range")
        require(bool(self.sources), "sources", {}, f"one or more of {', '.join(SOURCES)}", "add a [sources.NAME] table")
        for name in self.sources:
            check_name("source", name, SOURCES)
        longest, context = self.data.lengths[-1], self.model.context
        require(longest <= context, "lengths of data", longest, f"up to {context}, the context", "raise the context")
        rows, kinds = self.optimizer.batch, len(self.data.lengths)
        require(rows >= kinds, "batch of optimizer", rows, f"{kinds} or more, one row of each length", "raise it")

    @classmethod
    def read(cls, path: str | Path) -> "Config":
        """The configuration in a TOML file."""
        return cls.of(read_toml(path, "configuration"), str(path))

    @classmethod
    def of(cls, document: Mapping[str, Any], where: str = "the configuration") -> "Config":
        """From nested tables, as TOML has them."""
        tables = {
            "model": NetworkSettings,
            "tokenizer": VocabularySettings,
            "data": Data,
            "optimizer": Optimizer,
            "run": Run,
        }
        check_keys(where, document, [part.name for part in fields(cls)])
        parts: dict[str, Any] = {
            name: parse_part(kind, document[name], f"[{name}] of {where}") for name, kind in tables.items()
        }
        named = document["sources"]
        require(isinstance(named, Mapping), "sources", named, "tables [sources.NAME]", "see configs/mini.toml")
        for name in named:
            check_name("source", name, SOURCES)
        sources = {name: parse_part(Source, named[name], f"[sources.{name}] of {where}") for name in named}
        check_types(cls, {"seed": document["seed"]}, where)
        return cls(seed=document["seed"], sources=MappingProxyType(sources), **parts)

    def flat(self) -> dict[str, Any]:
        """Every value under its dotted name."""
        flat: dict[str, Any] = {}
        _flatten("", self, flat)
        return flat

    @property
    def digest(self) -> str:
        """A hash of every value."""
        return hash_of(self.flat())


def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Where two flat configurations differ, in words; `theirs` is the stored one."""
    names = [name for name in {**theirs, **ours} if ours.get(name) != theirs.get(name)]
    return [f"{name} is {_shown(ours, name)}, was {_shown(theirs, name)}" for name in names]


def hash_of(value: Any) -> str:
    """SHA-256 of a JSON value."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _shown(flat: Mapping[str, Any], name: str) -> str:
    return json.dumps(flat[name]) if name in flat else "absent"


def _flatten(name: str, value: Any, flat: dict[str, Any]) -> None:
    if is_dataclass(value):
        value = {part.name: getattr(value, part.name) for part in fields(value)}
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _flatten(f"{name}.{key}" if name else key, inner, flat)
    else:
        flat[name] = list(value) if isinstance(value, tuple) else value


def _positive(table: str, name: str, value: float) -> None:
    ok = 0 < value < math.inf
    whole = isinstance(value, int)
    require(ok, f"{name} of {table}", value, "1 or more" if whole else "above 0", "raise it")
