"""From the options of `generate` and `infill` to a policy, a proposal and a denoiser, and the run itself."""

import inspect
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from unmask.adapt import Gate
from unmask.core import Denoiser, Policy, Proposal, Search, Trajectory
from unmask.decode import decode, one_step
from unmask.decode_options import ALIASES, BRANCH, OPTIONS, DecodeOptions, option_fields
from unmask.denoisers import ApproximateCache, Guided, Network
from unmask.errors import ConfigError, SchemaError, UnknownName, require, shown
from unmask.options import check_types
from unmask.policies import METHODS, make, settings, standing
from unmask.policies.candidates import around
from unmask.request import STEPS_SHARE, CalibratedModel, Request, begin, steps_of

SELECTIVE = "selective"
"""The policy that a gate holds."""


@dataclass(frozen=True)
class Resolved:
    """All that decides a result, apart from the prompts: options whose names have become what they name."""

    model: CalibratedModel
    options: DecodeOptions
    policy: Policy | Search
    proposal: Proposal
    gate: Gate | None

    @property
    def share(self) -> float:
        """Steps / blanks, where the options do not give a number of steps."""
        return STEPS_SHARE if self.gate is None else self.gate.steps_share

    def start(self, requests: Sequence[Request]) -> Trajectory:
        """Every request as often as there are samples, the samples of one side by side."""
        samples = range(self.options.samples)
        repeated = [request for request in requests for _ in samples]
        return begin(
            self.model.denoiser,
            repeated,
            self.options.seed,
            streams=[*samples] * len(requests),
            own_clock=self.policy.own_clock,
        )

    def first(self, start: Trajectory, policy: Policy) -> Trajectory:
        """One step of another policy, as this run reads the model."""
        start = replace(start, proposal=self.proposal)
        return one_step(self._denoiser(), policy, start, eos_fill=self.options.eos_fill)

    def decode(self, start: Trajectory) -> Trajectory:
        return decode(
            self._denoiser(),
            self.policy,
            start,
            proposal=self.proposal,
            eos_fill=self.options.eos_fill,
            record=self.options.record,
            on_step=self.options.on_step,
        )

    @property
    def config(self) -> dict[str, Any]:
        """What was resolved, in JSON's types."""
        forced = self.gate is not None and self.gate.fingerprint != self.model.fingerprint
        return {
            "model": {"name": self.model.name, **plain(self.model.options)},
            "fingerprint": self.model.fingerprint,
            "policy": plain(settings(self.policy)),
            "method": standing(self.policy),
            **({"gate": {**plain(self.gate.summary), "forced": forced}} if self.gate else {}),
            "proposal": plain(asdict(self.proposal)),
            **self.options.recorded,
        }

    def remarks(self, requests: Sequence[Request]) -> dict[str, list[str]]:
        """What a reader of the result must know besides: a gate at other steps. Said aloud, too."""
        if self.gate is None:
            return {}
        said = (self.gate.at_other_steps(r.steps, steps_of(self.share, r.blanks), r.blanks) for r in requests)
        remarks = [remark for remark in dict.fromkeys(said) if remark]
        for remark in remarks:
            warnings.warn(remark, stacklevel=_outside())
        return {"warnings": remarks} if remarks else {}

    def _denoiser(self) -> Denoiser:
        """The model, with what was asked for around it; a cache is as old as the run."""
        denoiser, cache, cfg_scale = self.model.denoiser, self.options.cache, self.options.cfg_scale
        if cache is None:
            return Guided(denoiser, cfg_scale) if cfg_scale else denoiser
        if not isinstance(denoiser, Network):
            raise ConfigError(f"cache is {cache!r}; allowed: None with {self.model.name}; leave it out")
        require(not cfg_scale, "cfg_scale", cfg_scale, "0 with a cache", "leave one of them out")
        policy_settings = settings(self.policy)
        if "block_length" not in policy_settings:
            raise ConfigError(
                f"cache is {cache!r}, but {self.policy.name} does not decode block by block; allowed: policies "
                "with a block_length, such as llada; choose one, or leave the cache out"
            )
        if isinstance(self.policy, Search) or self.policy.looks_ahead:
            raise ConfigError(
                f"cache is {cache!r}, but {self.policy.name} looks ahead, and every look is a complete pass; "
                "allowed: None with it; leave the cache out"
            )
        block_length = policy_settings["block_length"] or 2**31
        return ApproximateCache(denoiser, cache, block_length, self.options.cache_refresh)


def resolve(model: CalibratedModel, options: DecodeOptions) -> Resolved:
    """Look up what the options name, and refuse what this model does not have."""
    given = options.policy if options.gate is not None and isinstance(options.policy, Policy) else None
    # The reference that the gate was calibrated around, if it is this one: its file holds no more than a name.
    name = None if given is None else around(given)
    gate = _gate(options.gate)
    if gate is not None and given is not None:
        todo = "drop the policy or the gate"
        require(gate.arms.reference_kind == name, "policy", given.name, "the reference of the gate", todo)
        options = replace(options, policy=None)
    if gate is not None and not options.force_gate:
        gate.check_model(model.fingerprint)
    policy = _policy(options, gate, model.reference)
    check_types(Proposal, options.proposal, "the proposal")
    proposal = Proposal(**options.proposal)
    _check_end_of_text(model, options)
    return Resolved(model, options, policy, proposal, gate)


def _outside() -> int:
    """How far up a warning has to go to stand at the line of whoever called the package."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "unmask":
        frame, level = frame.f_back, level + 1
    return level


def inherited(
    traj: Trajectory, told: Mapping[str, Any], policy: Policy | Search | None
) -> tuple[DecodeOptions, Mapping[str, Any]]:
    """The options of a branch, and the gate's line where its gate goes on.

    What was told, and of the run it leaves all the rest; `policy` is that run's own where it is at hand.
    """
    config = traj.config or {}
    for key in told:
        if key in OPTIONS | ALIASES and key not in {f.name for f in option_fields(BRANCH)}:
            raise ConfigError(f"{key} is no option of branch; allowed: what a run can change half-way; leave it out")
    settings_told = {key: value for key, value in told.items() if key not in OPTIONS}
    options = {key: value for key, value in told.items() if key in OPTIONS}
    try:
        cache = config["approximate"] or {"cache": None, "refresh": 0}
        kept = {name: config[name] for name in ("cfg_scale", "eos_fill", "seed")}
        kept |= {"cache": cache["cache"], "cache_refresh": cache["refresh"]}
        was, gate = config["policy"], {"gate": config["gate"]} if "gate" in config else {}
        proposal = {name: getattr(traj.proposal, name) for name in DecodeOptions().proposal}
    except (LookupError, TypeError, AttributeError) as error:
        raise SchemaError(
            f"the run's configuration makes no sense ({error}); allowed: what generate writes; decode it again"
        ) from error
    if "policy" in told or "gate" in told:
        return DecodeOptions(**{**kept, **proposal, **options, "settings": settings_told}), {}
    if settings_told:
        require(not gate, "policy settings", sorted(settings_told), "none with a gate", "they are in its file")
        chosen = {"policy": was["name"], "settings": {**_given(was), **settings_told}}
        return DecodeOptions(**{**kept, **proposal, **options, **chosen}), {}
    if policy is None and gate:
        raise ConfigError("the run was decoded with a gate, which its file does not hold; name it: gate='gate.json'")
    again = {"policy": policy or remade(was)}
    return DecodeOptions(**{**kept, **proposal, **options, **again}), gate


def remade(described: Mapping[str, Any]) -> Policy | Search:
    """A policy from its settings as they stand in a configuration; refused unless it has just these again."""
    name = described.get("name") if isinstance(described, Mapping) else None
    remedy = "name the policy: policy=..."
    if name not in METHODS:
        raise ConfigError(
            f"the run's policy is {name!r}; allowed: one of {', '.join(METHODS)}, or one you name; {remedy}"
        )
    try:
        policy = make(str(name), **_given(described))
        same = plain(settings(policy)) == plain(described)
    except (ConfigError, TypeError) as error:
        raise ConfigError(f"the run's settings of {name} are not those of this version ({error}); {remedy}") from error
    require(same, f"settings of {name} in the run", dict(described), "settings of this version", remedy)
    return policy


def _given(described: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as `make` takes them: parts that are policies as objects, parts of other parts by dotted names."""
    parts = METHODS[described["name"]]() if described.get("name") in METHODS else None
    options: dict[str, Any] = {}
    for key, value in described.items():
        if key == "name":
            continue
        if isinstance(value, Mapping) and "name" in value:
            options[key] = remade(value)
        elif isinstance(value, Mapping) and is_dataclass(getattr(parts, key, None)):
            options |= {f"{key}.{inner}": setting for inner, setting in value.items()}
        else:
            options[key] = tuple(value) if isinstance(value, list) else value
    return options


def plain(value: Any) -> Any:
    """The same value in JSON's types."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no infinities
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _gate(gate: Any) -> Gate | None:
    """A gate, or that of a file."""
    if gate is None or isinstance(gate, Gate):
        return gate
    require(isinstance(gate, str | Path), "gate", gate, "a gate or the path of its file", "e.g. gate='gate.json'")
    try:
        return Gate.load(gate)
    except ValueError as error:
        # A name that no file can have: a zero byte, half a character.
        raise ConfigError(f"gate is {shown(gate)}; allowed: the path of a gate file; check it ({error})") from error


def _policy(options: DecodeOptions, gate: Gate | None, reference: str) -> Policy | Search:
    policy, given = options.policy, options.settings
    if gate is not None:
        asked = policy is None or policy == SELECTIVE
        require(asked, "policy", policy, f"{SELECTIVE!r} with a gate", "drop the policy or the gate")
        require(not given, "policy settings", sorted(given), "none with a gate", "they are in its file")
        return gate.policy()
    if policy == SELECTIVE:
        raise ConfigError(f"policy is {SELECTIVE!r}; allowed: with a calibrated gate; name its file, gate='gate.json'")
    policy = reference if policy is None else policy
    if isinstance(policy, Policy | Search):
        require(not given, "policy settings", sorted(given), "none with a policy object", "set them on the object")
        return policy
    require(isinstance(policy, str), "policy", policy, "a name or a policy object", "see `unmask methods`")
    if policy not in METHODS:
        raise UnknownName("policy", policy, [*METHODS, SELECTIVE])
    _refuse_misspelt(given, set(settings(make(policy))) - {"name"})
    return make(policy, **given)


def _refuse_misspelt(given: Mapping[str, Any], of_policy: set[str]) -> None:
    """Unknown keywords land among the policy's settings; a misspelt option of `generate` deserves its own hint."""
    for key in given:
        head = key.partition(".")[0]
        if head in OPTIONS:
            raise ConfigError(f"{key} is no option of infill; allowed: the options of Model.infill; leave it out")
        if head not in of_policy and (head == "name" or get_close_matches(head, OPTIONS | ALIASES)):
            raise UnknownName("option", key, OPTIONS | ALIASES | of_policy)


def _check_end_of_text(model: CalibratedModel, options: DecodeOptions) -> None:
    """An end-of-text option on a model that has no such token would silently do nothing."""
    for name, value in options.about_eos.items():
        if value and not model.denoiser.vocabulary.eos_ids:
            raise ConfigError(
                f"{name} is {value!r}, but {model.name} as loaded has no end-of-text token; allowed: models "
                "that have one; leave the option out, or name the token when loading (exact: eos='a')"
            )
