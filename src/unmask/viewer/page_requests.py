"""Requests of a page, checked once: registered names, plain settings, bounded sizes.

Nothing in a request is ever run or opened. A policy is a name of `METHODS`, never a user's own code, and settings are
plain values of the method's own, none of which names a file. Values are checked again where every caller's options are.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from unmask.axes import AXES
from unmask.base.errors import ConfigError, UnknownName, require
from unmask.base.files import storable
from unmask.base.json_files import parse_json
from unmask.base.options import Options
from unmask.methods import METHODS, describe_policy

LONGEST_PROMPT = 20_000
"""Characters of a prompt."""
MOST = 4096
"""Largest number of new tokens and of steps, and largest number in a policy's settings."""
FILE_SETTINGS = ("head",)
"""Settings of methods that name files, which a page may not set."""
_WORD = re.compile(r"[A-Za-z0-9_.:+*=-]{0,80}", re.ASCII)


def _check_method(name: str) -> str:
    if name not in METHODS:
        raise UnknownName("policy", name, METHODS)
    return name


def _check_axis(name: str) -> str:
    if name not in AXES:
        raise UnknownName("axis", name, AXES)
    return name


# Half a character of UTF-16 can be in a JSON text, and in no file.
_CLEAN = BeforeValidator(lambda value: storable(value) if isinstance(value, str) else value)
_TEXT = {"allowed": "a text that is neither empty nor too long", "hint": "change it"}
Name = Annotated[str, _CLEAN, Field(min_length=1, max_length=300, json_schema_extra=_TEXT)]
Prompt = Annotated[str, _CLEAN, Field(min_length=1, max_length=LONGEST_PROMPT, json_schema_extra=_TEXT)]
Method = Annotated[Name, BeforeValidator(lambda value: _check_method(value) if isinstance(value, str) else value)]
Axis = Annotated[Name, BeforeValidator(lambda value: _check_axis(value) if isinstance(value, str) else value)]
Count = Annotated[int, Field(ge=1, le=MOST)]
Index = Annotated[int, Field(ge=0, le=1 << 31)]


class RunOptions(Options):
    """Options of `generate` that a page may set: none of them names a file or a function."""

    max_new_tokens: Count | None = None
    steps: Count | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    sampler: Name | None = None
    cfg_scale: float | None = None
    seed: int | None = None
    eos_fill: bool | None = None
    logits_eos_inf: bool | None = None
    confidence_eos_eot_inf: bool | None = None
    eos_penalty: float | None = None
    cache: Name | None = None
    cache_refresh: Index | None = None


class TaskPrompt(Options):
    """A prompt of a task, by its id; with `study` it is decoded with the settings of the study that is open."""

    task: Name
    split: Name
    id: Name
    study: bool = False


class RunRequest(Options):
    """A prompt to decode: the user's own, or one of a task."""

    model: Annotated[str, _CLEAN, Field(min_length=1, max_length=1000, json_schema_extra=_TEXT)]
    prompt: Prompt | None = None
    task: TaskPrompt | None = None
    policy: Method | None = None
    options: RunOptions = RunOptions()
    settings: Mapping[str, Any] = {}

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        one = (self.prompt is None) != (self.task is None)
        require(one, "prompt and task", (self.prompt, self.task), "one of the two", "give one of them")
        check_settings(self.policy, self.settings)
        return self


class BranchChange(Options):
    """What to do at a state instead: take a candidate of an axis, a method's step, or a token at a position."""

    axis: Axis | None = None
    candidate: Name | None = None
    policy: Method | None = None
    settings: Mapping[str, Any] = {}
    position: Index | None = None
    token: Index | None = None
    text: Name | None = None

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        kinds = [kind for kind in ("axis", "policy", "position") if getattr(self, kind) is not None]
        require(len(kinds) == 1, "instead", kinds, "an axis, a policy or a position", "choose one of them")
        if self.axis is not None:
            require(self.candidate is not None, "candidate", None, "a candidate of the axis", "choose one")
        if self.position is not None:
            one = (self.token is None) != (self.text is None)
            require(one, "token and text", (self.token, self.text), "one of the two", "choose a token")
        check_settings(self.policy, self.settings)
        return self


class BranchRequest(Options):
    """A run to continue from the state before one of its steps, counted from 0, with a change."""

    run: Name
    step: Annotated[int, Field(ge=0, le=1 << 20)]
    instead: BranchChange
    rest: bool = False
    """Whether the change holds from here on, or for this step alone."""


class ExportRequest(Options):
    """Runs to save on one read-only page."""

    runs: Annotated[tuple[Name, ...], Field(min_length=1, max_length=8, json_schema_extra={"allowed": "1 to 8 runs"})]


def parse_body(content: bytes) -> Mapping[str, Any]:
    """Read the JSON object of a request."""
    try:
        value = parse_json(content)
    except ValueError as error:
        raise ConfigError(f"the request is not JSON ({error}); allowed: an object; reload the page") from error
    require(isinstance(value, Mapping), "the request", value, "a JSON object", "reload the page")
    body: Mapping[str, Any] = value
    return body


def plain_settings(method: str) -> dict[str, Any]:
    """Return the settings of a method that a page may change, with their defaults: plain values that JSON has."""
    settings = describe_policy(METHODS[method].default)
    plain = (bool, int, float, str, type(None))
    return {
        name: value
        for name, value in settings.items()
        if name != "name" and name not in FILE_SETTINGS and isinstance(value, plain) and magnitude(value) < float("inf")
    }


def magnitude(value: Any) -> float:
    """Return the absolute value of a number, or 0 for anything else."""
    return abs(value) if isinstance(value, int | float) else 0.0


def check_settings(policy: str | None, settings: Mapping[str, Any]) -> None:
    """Refuse settings that the page does not offer for this policy, long words and large numbers."""
    known = plain_settings(policy) if policy is not None else {}
    for name, value in settings.items():
        if name not in known:
            raise UnknownName(f"setting of {policy or 'no policy'}", name[:100], known)
        ok = isinstance(value, bool | int | float | None) and magnitude(value) <= MOST
        ok = ok or (isinstance(value, str) and _WORD.fullmatch(value) is not None)
        require(ok, f"setting {name}", value, f"a number up to {MOST}, a truth value or a plain word", "change it")
