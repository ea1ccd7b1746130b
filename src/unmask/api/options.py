"""The options of `generate`, `infill`, `branch` and `log_likelihood`, each spelled once.

A field is the keyword in Python, the flag in the shell and, where it is recorded, the key of a configuration. A keyword
that is no field is a setting of the policy. This module loads no torch, so that `unmask --help` is quick.
"""

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

from pydantic import ConfigDict, Field, model_validator

from unmask.base.errors import ConfigError, require
from unmask.base.options import Options

F = TypeVar("F", bound=Callable[..., Any])

GEN_LENGTH = "gen_length"
"""Second name of the option `max_new_tokens`, from LLaDA's code."""

FIXED_AT_START = frozenset({"preset", "max_new_tokens", "steps", "samples", "cache", "cache_refresh"})
"""Options that are decided when a run starts: a branch cannot change them."""

MOST_RECORD_TOP = 16
"""Largest allowed `record_top`: beyond it a GPU would run other code, and the tokens might differ."""


class MethodOptions(Options):
    """Options that `generate` and `log_likelihood` share: the method, and how tokens are sampled."""

    # Settings of the policy are keywords beside the options, so unknown keywords are kept, and checked with the policy.
    model_config = ConfigDict(extra="allow")

    policy: Any = Field(
        None,
        description="Which method: a name of `unmask methods`, or an object; `selective` takes a gate. Default: the "
        "model's reference.",
    )
    preset: str | None = Field(
        None,
        min_length=1,
        description="Published settings of the policy for a task, e.g. `gsm8k`, those of the model's family; `unmask "
        "methods show NAME` lists them. Settings of your own go before them.",
        json_schema_extra={"allowed": "the name of a preset", "hint": "`unmask methods show NAME` lists them"},
    )
    temperature: float = Field(0.0, description="0 takes the most probable token, above 0 draws one.")
    top_p: float = Field(
        1.0, description="Nucleus filter: for drawn tokens, and for the scores of dream at any temperature."
    )
    top_k: int = Field(0, description="Top-k filter, 0 for none; acts like top_p.")
    cfg_scale: float = Field(
        0.0,
        ge=0,
        lt=float("inf"),
        description="Classifier-free guidance, two forwards per step; 0 for none.",
        json_schema_extra={"allowed": "a finite number, 0 or more", "hint": "0 means no guidance"},
    )
    seed: int = Field(
        0,
        ge=-(2**63),
        lt=2**63,
        description="Seed of all random numbers.",
        json_schema_extra={"allowed": "a whole number of 64 bits", "hint": "choose a smaller one"},
    )
    logits_eos_inf: bool = Field(False, description="Never propose end of text.")
    eos_penalty: float = Field(0.0, description="Subtracted from the logits of end of text and end of turn.")

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the policy: keywords that are no option."""
        return dict(self.model_extra or {})


class DecodeOptions(MethodOptions):
    """Options of `generate`: every keyword except the prompts."""

    max_new_tokens: int | None = Field(None, description="Tokens to add. Default: the model's own number.")
    steps: int | None = Field(
        None,
        description="Denoising steps. Default: half the number of masked positions, rounded up, or a gate's own share.",
    )
    sampler: str = Field(
        "inverse", description="How tokens are drawn above temperature 0: `inverse`, or `gumbel` as LLaDA's own loop."
    )
    samples: int = Field(
        1, ge=1, le=100_000, description="Answers per prompt; they differ if anything is drawn at random."
    )
    eos_fill: bool = Field(False, description="Once end of text is revealed, fill what follows with it.")
    confidence_eos_eot_inf: bool = Field(False, description="Reveal end of text and end of turn last.")
    cache: str | None = Field(
        None,
        description="Approximate: reuse keys and values outside the active block. `prefix` or `dual`, as Fast-dLLM.",
    )
    cache_refresh: int = Field(
        0,
        description="With a cache: recompute the whole canvas in every N-th pass of a block. 0: only in the first pass "
        "of each block.",
    )
    gate: Any = Field(None, description="A calibrated gate or its file, for the policy `selective`: when to deviate.")
    force_gate: bool = Field(False, description="Use a gate that was calibrated on another model.")
    planner: Any = Field(None, description="A second model, or its network, for a policy that asks one.")
    record: bool = Field(True, description="Keep every step in the trajectory.")
    record_top: int = Field(
        0,
        ge=0,
        le=MOST_RECORD_TOP,
        description="Keep so many of the most probable tokens of each position in every recorded step; 0: as many as "
        "the policy reads, two at least.",
    )
    on_step: Any = Field(None, description="Called with the rows that still run after every step.")

    @model_validator(mode="before")
    @classmethod
    def _take_gen_length(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Accept LLaDA's name for `max_new_tokens`, but not both names."""
        if GEN_LENGTH not in given:
            return given
        one, other = given.get("max_new_tokens"), given[GEN_LENGTH]
        names = f"max_new_tokens and {GEN_LENGTH}"
        require(one is None, names, (one, other), "one of the two", "they mean the same")
        return {**{name: value for name, value in given.items() if name != GEN_LENGTH}, "max_new_tokens": other}

    @model_validator(mode="after")
    def _check_together(self) -> "DecodeOptions":
        """Refuse options that would have no effect together with the others."""
        idle = self.cache is None and self.cache_refresh != 0
        require(not idle, "cache_refresh", self.cache_refresh, "0 without a cache", "name a cache, or leave it out")
        idle = self.record_top != 0 and not self.record
        require(not idle, "record_top", self.record_top, "0 with record=False", "record the steps, or leave it out")
        idle = self.force_gate and self.gate is None
        require(not idle, "force_gate", self.force_gate, "False without a gate", "name a gate, or leave it out")
        return self

    @property
    def keywords(self) -> dict[str, Any]:
        """These options as keywords for `generate` or `infill`, without those that are None."""
        return {name: value for name, value in self if value is not None}


class LikelihoodOptions(MethodOptions):
    """Options of `log_likelihood`: the estimator and its settings."""

    estimator: Literal["exact", "monte-carlo", "oracle"] = Field(
        "exact",
        description="`exact` (DUEL); or without a method: `monte-carlo`, LLaDA's lower bound, estimated; `oracle`, the "
        "best order of the text's tokens.",
    )
    tokens_per_step: int = Field(
        1, ge=1, le=100_000, description="Tokens in a step of the method's schedule; 1 is the usual perplexity."
    )
    temperature: float = Field(
        1.0,
        gt=0,
        lt=float("inf"),
        description="Temperature at which tokens are drawn; 1 is the model itself.",
        json_schema_extra={"allowed": "above 0, finite", "hint": "1 is the model itself"},
    )
    samples: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="Masked copies of a text, for the estimator monte-carlo. Default: 128.",
    )
    oracle_block: int | None = Field(
        None,
        ge=1,
        le=12,
        description="Tokens among which the oracle looks for the best order, 2^N - 1 forwards each. Default: 4.",
    )
    batch_size: int = Field(16, ge=1, le=100_000, description="Canvases that go through the model together.")

    @model_validator(mode="after")
    def _check_estimator(self) -> "LikelihoodOptions":
        """Refuse options that the estimator does not read."""
        method = sorted({*self.settings, *(name for name in ("policy", "preset") if getattr(self, name) is not None)})
        if self.estimator != "exact" and method:
            raise ConfigError(
                f"{', '.join(method)} given; allowed: no method under estimator={self.estimator!r}; leave it out"
            )
        for name, reader in (("samples", "monte-carlo"), ("oracle_block", "oracle")):
            value = getattr(self, name)
            idle = value is not None and self.estimator != reader
            require(not idle, name, value, f"None without estimator={reader!r}", "leave it out")
        return self


FUNCTION_OPTIONS = {
    "generate": tuple(DecodeOptions.model_fields),
    "infill": tuple(name for name in DecodeOptions.model_fields if name != "max_new_tokens"),
    "branch": tuple(name for name in DecodeOptions.model_fields if name not in FIXED_AT_START),
    "log_likelihood": tuple(LikelihoodOptions.model_fields),
}
"""Names of the options of each method of `Model`, in the order of their declaration."""

OPTIONS = frozenset({"prompt", GEN_LENGTH, *DecodeOptions.model_fields})
"""All keywords of `generate`, which no setting of a policy may have as its name."""


def check_options(function: str, given: Iterable[str]) -> None:
    """Refuse options that belong to another function; unknown names pass, as settings of the policy."""
    names = FUNCTION_OPTIONS[function]
    for name in given:
        if name in OPTIONS and name not in names and not (name == GEN_LENGTH and function == "generate"):
            raise ConfigError(
                f"{name} is no option of {function}; allowed: {', '.join(names)}, and settings of the policy; leave it "
                "out"
            )


def document_options(function: F) -> F:
    """Decorate a method with `**options`: list its options in signature and docstring, for `help`."""
    declared = LikelihoodOptions if function.__name__ == "log_likelihood" else DecodeOptions
    # A branch inherits what is not given.
    inherits = function.__name__ == "branch"
    *own, _ = inspect.signature(function).parameters.values()
    described = [inspect.cleandoc(function.__doc__ or ""), "", "Options:"]
    for name in FUNCTION_OPTIONS[function.__name__]:
        field = declared.model_fields[name]
        own.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None if inherits else field.default))
        described.append(f"    {name}: {field.description}")
    function.__doc__ = "\n".join(described)
    settings = inspect.Parameter("settings", inspect.Parameter.VAR_KEYWORD)
    function.__dict__["__signature__"] = inspect.Signature([*own, settings])
    return function
