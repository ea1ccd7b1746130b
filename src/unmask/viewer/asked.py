"""What a page asks for, checked: registered names, typed settings, bounded sizes. Nothing of it is ever run or opened.

A policy is a name of `METHODS`, never code of somebody's own and never a file; settings of a policy are plain values,
and a setting that names a file cannot be given. What is left is checked again where every caller's options are
(`decode_options`, `policies.make`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from unmask.axes import AXES
from unmask.base.errors import ConfigError, UnknownName, require
from unmask.base.files import storable
from unmask.base.json_files import parse_json
from unmask.base.options import check_keys
from unmask.methods import METHODS

LONGEST_PROMPT = 20_000
"""Characters."""
MOST = 4096
"""New tokens, steps, and any number among a policy's settings."""
RUN_OPTIONS = (
    "max_new_tokens",
    "steps",
    "temperature",
    "top_p",
    "top_k",
    "sampler",
    "cfg_scale",
    "seed",
    "eos_fill",
    "logits_eos_inf",
    "confidence_eos_eot_inf",
    "eos_penalty",
    "cache",
    "cache_refresh",
)
"""Options of `generate` that a page may set: none of them names a file or a function."""
_FILES = ("head",)
"""Settings of policies that name files."""
_WORD = re.compile(r"[A-Za-z0-9_.:+*=-]{0,80}", re.ASCII)


@dataclass(frozen=True)
class TaskPrompt:
    """A prompt of a task, by where it stands; `study` is whether the study's own settings decode it."""

    task: str
    split: str
    id: str
    study: bool = False


@dataclass(frozen=True)
class AskedRun:
    """A prompt to decode."""

    model: str
    prompt: str | None
    of_task: TaskPrompt | None
    policy: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Deviation:
    """What to do at a state instead: a candidate of an axis, a method, or a token at a position."""

    axis: str | None = None
    candidate: str | None = None
    policy: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    position: int | None = None
    token: int | None = None
    text: str | None = None


@dataclass(frozen=True)
class AskedBranch:
    """A run to go on with from one of its states, counted from 0, otherwise."""

    run: str
    step: int
    instead: Deviation
    rest: bool = False
    """From here on; otherwise for this step alone."""


def body(content: bytes) -> Mapping[str, Any]:
    """A request's JSON, which is an object."""
    try:
        value = parse_json(content)
    except ValueError as error:
        raise ConfigError(f"the request is not JSON ({error}); allowed: an object; reload the page") from error
    require(isinstance(value, Mapping), "the request", value, "a JSON object", "reload the page")
    found: Mapping[str, Any] = value
    return found


def asked_run(value: Mapping[str, Any]) -> AskedRun:
    check_keys("the request", value, ("model",), ("prompt", "task", "policy", "options", "settings"))
    one = ("prompt" in value) != ("task" in value)
    require(one, "the request", sorted(value), "a prompt, or a task's", "give one of them")
    of_task = _task_prompt(value["task"]) if "task" in value else None
    return AskedRun(
        model=_text("model", value["model"], 1000),
        prompt=None if of_task else _text("prompt", value["prompt"], LONGEST_PROMPT),
        of_task=of_task,
        policy=_policy(value.get("policy")),
        options=_options(value.get("options", {})),
        settings=_settings(value.get("settings", {})),
    )


def asked_branch(value: Mapping[str, Any]) -> AskedBranch:
    check_keys("the request", value, ("run", "step", "instead"), ("rest",))
    rest = value.get("rest", False)
    require(isinstance(rest, bool), "rest", rest, "true or false", "reload the page")
    return AskedBranch(_text("run", value["run"], 64), whole("step", value["step"]), _instead(value["instead"]), rest)


def whole(name: str, value: Any, most: int = 1 << 20) -> int:
    """A count."""
    require(type(value) is int and 0 <= value <= most, name, value, f"a whole number, 0 to {most}", "change it")
    return int(value)


def _instead(value: Any) -> Deviation:
    check_keys("instead", value, (), ("axis", "candidate", "policy", "settings", "position", "token", "text"))
    kinds = [kind for kind in ("axis", "policy", "position") if kind in value]
    require(len(kinds) == 1, "instead", sorted(value), "an axis, a policy or a position", "choose one of them")
    if kinds == ["policy"]:
        policy = _policy(value["policy"])
        require(policy is not None, "policy", value["policy"], "a name of `unmask methods`", "choose one")
        return Deviation(policy=policy, settings=_settings(value.get("settings", {})))
    if kinds == ["axis"]:
        axis = _text("axis", value["axis"], 40)
        if axis not in AXES:
            raise UnknownName("axis", axis, AXES)
        return Deviation(axis=axis, candidate=_text("candidate", value.get("candidate"), 200))
    place = whole("position", value["position"])
    if "token" in value:
        return Deviation(position=place, token=whole("token", value["token"], 1 << 31))
    return Deviation(position=place, text=_text("token", value.get("text"), 200))


def _task_prompt(value: Any) -> TaskPrompt:
    check_keys("task", value, ("task", "split", "id"), ("study",))
    study = value.get("study", False)
    require(isinstance(study, bool), "study", study, "true or false", "reload the page")
    task, split, id = (_text(name, value[name], 300) for name in ("task", "split", "id"))
    return TaskPrompt(task, split, id, study)


def _policy(name: Any) -> str | None:
    """A registered name. `MODULE:Class` and files are for command lines, whose user runs code anyway."""
    if name is None:
        return None
    text = _text("policy", name, 200)
    if text not in METHODS:
        raise UnknownName("policy", text, METHODS)
    return text


def _options(value: Any) -> dict[str, Any]:
    check_keys("options", value, (), RUN_OPTIONS)
    for name in ("max_new_tokens", "steps"):
        given = value.get(name)
        if given is not None:
            require(type(given) is int and 1 <= given <= MOST, name, given, f"a whole number, 1 to {MOST}", "change it")
    return dict(value)


def _settings(value: Any) -> dict[str, Any]:
    require(isinstance(value, Mapping) and len(value) <= 40, "settings", value, "a table of settings", "change them")
    for key, given in value.items():
        name = _text("setting", key, 100)
        closed = name.rpartition(".")[2] in _FILES
        require(not closed, f"setting {name}", given, "nothing from a page: it names a file", "leave it out")
        plain = given is None or isinstance(given, bool) or (isinstance(given, int | float) and abs(given) <= MOST)
        ok = plain or (isinstance(given, str) and _WORD.fullmatch(given) is not None)
        require(ok, f"setting {name}", given, f"a number up to {MOST}, a truth value or a plain word", "change it")
    return dict(value)


def _text(name: str, value: Any, longest: int) -> str:
    ok = isinstance(value, str) and 0 < len(value) <= longest
    require(ok, name, value, f"a text of 1 to {longest} characters", "change it")
    return storable(value)
