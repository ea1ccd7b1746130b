"""From the options of `generate`, `infill` and `branch` to a policy, sampling parameters and a denoiser."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from unmask.adapt import Gate
from unmask.api.options import GEN_LENGTH, OPTIONS, DecodeOptions, MethodOptions, check_options
from unmask.api.request import STEPS_SHARE, LoadedModel
from unmask.axes import AXES
from unmask.base.errors import ConfigError, SchemaError, UnknownName, format_value, require
from unmask.core import Denoiser, Policy, SamplingParams, Search, Trajectory
from unmask.engine import decode, decode_one_step
from unmask.methods import (
    METHODS,
    Composed,
    describe_policy,
    find_preset,
    make_policy,
    method_status,
    preset_family,
    register_reference,
    with_head,
)
from unmask.models import BlockCache, ExactDenoiser, GuidedDenoiser, Network

SELECTIVE = "selective"
"""Name of the policy in a gate file."""

SAMPLING = [field.name for field in fields(SamplingParams) if field.name in DecodeOptions.model_fields]
"""Names of the options that become `SamplingParams`, which checks their ranges."""

END_OPTIONS = ("eos_fill", "logits_eos_inf", "confidence_eos_eot_inf", "eos_penalty")
"""Names of the options that need a model with an end-of-text token."""


@dataclass(frozen=True)
class ResolvedOptions:
    """Checked options of a run as objects: policy, sampling parameters, gate and planner."""

    model: LoadedModel
    options: DecodeOptions
    policy: Policy | Search
    sampling: SamplingParams
    gate: Gate | None
    preset: str | None
    """Key of the preset that gave the policy's settings; None without a preset."""
    planner: Denoiser | None
    """The second network, which some policies consult; None without one."""
    steps_share: float
    """Number of steps per blank, used if the options give no number of steps."""

    def take_first_step(self, start: Trajectory, policy: Policy) -> Trajectory:
        """Take one step with another policy, under the model and the sampling parameters of this run."""
        start = replace(start, sampling=self.sampling)
        denoiser, options = build_denoiser(self.model, self.options, self.policy), self.options
        return decode_one_step(denoiser, policy, start, eos_fill=options.eos_fill, record_top=options.record_top)

    def decode(self, start: Trajectory) -> Trajectory:
        """Decode a trajectory to its end with these options."""
        return decode(
            build_denoiser(self.model, self.options, self.policy),
            self.policy,
            start,
            sampling=self.sampling,
            planner=self.planner,
            eos_fill=self.options.eos_fill,
            record=self.options.record,
            record_top=self.options.record_top,
            on_step=self.options.on_step,
        )

    @property
    def config(self) -> dict[str, Any]:
        """The configuration recorded with a run, as JSON values; keys and order never change, as it is hashed."""
        options, model, planner = self.options, self.model, self.options.planner
        config = {
            "model": {"name": model.name, **json_values(model.options)},
            "fingerprint": model.fingerprint,
            "policy": json_values(describe_policy(self.policy)),
            "method": method_status(self.policy),
        }
        if isinstance(self.policy, Composed) and self.policy.name == "composed":
            config["action"] = json_values(self.policy.rules)
        if self.preset:
            config["preset"] = self.preset
        if planner is not None:
            own = hasattr(planner, "fingerprint")
            config["planner"] = f"{planner.name} ({planner.fingerprint})" if own else type(planner).__name__
        if self.gate is not None:
            forced = self.gate.fingerprint != model.fingerprint
            config["gate"] = {**json_values(self.gate.summary), "forced": forced}
        return {
            **config,
            "proposal": json_values(asdict(self.sampling)),  # stored name
            "cfg_scale": options.cfg_scale,
            "eos_fill": options.eos_fill,
            "approximate": {"cache": options.cache, "refresh": options.cache_refresh} if options.cache else False,
            "seed": options.seed,
            "samples": options.samples,
            # Added after results had been stored: omitted at its default, so that configurations stay equal.
            **({"record_top": options.record_top} if options.record_top else {}),
        }


def resolve(model: LoadedModel, options: DecodeOptions) -> ResolvedOptions:
    """Turn options into policy, sampling parameters, gate and planner; refuse options that do not fit the model."""
    gate, preset = None, None
    if options.gate is None:
        preset, policy = resolve_policy(model, options)
    else:
        gate, policy = _resolve_gate(model, options)
    sampling = resolve_sampling(model, options)
    idle = isinstance(policy, Search) and options.record_top != 0
    require(not idle, "record_top", options.record_top, f"0 with a search such as {policy.name}", "leave it out")
    planner = options.planner
    if hasattr(planner, "codec"):
        planner = planner.denoiser  # a whole model
    if policy.needs.planner and planner is None:
        raise ConfigError(
            f"{policy.name} asks a planner, a second network, and the run has none; allowed: planner=false, or from "
            "Python model.generate(..., planner=another_model); a command line cannot name one"
        )
    if planner is not None:
        if not policy.needs.planner:
            raise ConfigError(f"planner is given, but {policy.name} asks none; allowed: p2(planner=True); leave it out")
        ours, theirs = ((v.size, v.mask_id) for v in (model.denoiser.vocabulary, planner.vocabulary))
        require(ours == theirs, "size and mask of the planner", theirs, f"{ours}", "choose another planner")
    # A cache that does not fit is refused now, not when prompts have been read.
    build_denoiser(model, options, policy)
    steps_share = STEPS_SHARE if gate is None else gate.steps_share
    return ResolvedOptions(model, options, policy, sampling, gate, preset, planner, steps_share)


def build_denoiser(model: LoadedModel, options: DecodeOptions, policy: Policy | Search) -> Denoiser:
    """Wrap a model's network in guidance or in a new block cache, as the options say.

    A cache serves one run. Keys and values of anything but the leftmost open block come from an earlier pass, so a
    method must fill one block after the other and read masked positions alone.
    """
    cache, denoiser = options.cache, model.denoiser
    if cache is None:
        return GuidedDenoiser(denoiser, options.cfg_scale) if options.cfg_scale else denoiser
    if not isinstance(denoiser, Network):
        raise ConfigError(f"cache is {cache!r}; allowed: None with {model.name}; leave it out")
    require(not options.cfg_scale, "cfg_scale", options.cfg_scale, "0 with a cache", "leave one of them out")
    if isinstance(policy, Search) or policy.looks_ahead:
        raise ConfigError(
            f"cache is {cache!r}, but {policy.name} looks ahead, and every look is a complete pass; "
            "allowed: None with it; leave the cache out"
        )
    needs = policy.needs
    reads = {"attention": needs.attention, "shadow slots": needs.shadows, "revealed positions": needs.revealed}
    why = next((f"it reads {part}" for part, needed in reads.items() if needed), "")
    if not why and not (policy.block_cache and hasattr(policy, "block_length")):
        why = "it does not fill one block after the other, for good"
        if isinstance(policy, Composed) and policy.name == "composed":
            why += f" (region={policy.region}, commitment={policy.commitment})"
    if why:
        raise ConfigError(
            f"cache is {cache!r}, but with {policy.name} {why}; allowed: policies that fill blocks of a "
            "block_length and declare `block_cache = True`, such as llada; choose one, or leave the cache out"
        )
    # Without a length of its own, a method has one block: the whole answer.
    block: int = policy.block_length or 2**31  # type: ignore[attr-defined]
    return BlockCache(denoiser, cache, block, options.cache_refresh)


def resolve_policy(model: LoadedModel, options: MethodOptions) -> tuple[str | None, Policy | Search]:
    """Return the policy that the options name, and the key of the preset it was made with."""
    name, settings = options.policy, options.settings
    if isinstance(name, Policy | Search):
        require(
            not settings, "policy settings", sorted(settings), "none with a policy object", "set them on the object"
        )
        require(options.preset is None, "preset", options.preset, "none with a policy object", "name the method")
        return None, _fit_to_model(model, name)
    if name is None:
        name = model.reference
        if settings.keys() & AXES.keys():
            name, others = "composed", sorted(settings.keys() - AXES.keys())
            hint = "drop them, or name a policy that has them"
            require(not others, "policy settings", others, f"{', '.join(AXES)} alone: a composition", hint)
    require(isinstance(name, str), "policy", name, "a name or a policy object", "see `unmask methods`")
    if name == SELECTIVE:
        raise ConfigError(f"policy is {name!r}; allowed: with a calibrated gate; name its file, gate='gate.json'")
    if name not in METHODS:
        method, _, text = name.partition(":")
        if method in METHODS:
            raise ConfigError(
                f"policy is {name!r}; allowed: a name, with its settings as keywords; write policy={method!r} and "
                f"{text or 'KEY=VALUE'} beside it"
            )
        raise UnknownName("policy", name, [*METHODS, SELECTIVE])
    # Its settings at their defaults: the names that keywords may have.
    own = set(describe_policy(make_policy(name))) - {"name"}
    known = {*type(options).model_fields, GEN_LENGTH, *own}
    for key in settings:
        # An unknown keyword looks like a setting; a misspelt option deserves its own hint.
        head = key.partition(".")[0]
        if head not in own and (head in ("name", *known) or get_close_matches(head, known - own)):
            raise UnknownName("option", key, known)
    preset: str | None = None
    published: Mapping[str, Any] = {}
    if options.preset is not None:
        family = preset_family(model.reference, model.options)
        preset, published = find_preset(name, options.preset, family)
    return preset, _fit_to_model(model, make_policy(name, **{**published, **settings}))


def _resolve_gate(model: LoadedModel, options: DecodeOptions) -> tuple[Gate, Policy | Search]:
    """Return the gate of the options, read from its file if a path is given, and the policy in it."""
    policy, settings, hint = options.policy, options.settings, "drop the policy or the gate"
    # Registered before the file is read, which names the reference that the gate was calibrated around.
    reference = register_reference(policy) if isinstance(policy, Policy) else None
    gate = options.gate
    if not isinstance(gate, Gate):
        require(isinstance(gate, str | Path), "gate", gate, "a gate or the path of its file", "e.g. gate='gate.json'")
        try:
            gate = Gate.load(gate)
        except ValueError as error:
            # A name that no file can have: a zero byte, half a character.
            raise ConfigError(
                f"gate is {format_value(gate)}; allowed: the path of a gate file; check it ({error})"
            ) from error
    if reference is not None:
        require(gate.arms.reference_kind == reference, "policy", policy.name, "the reference of the gate", hint)
    else:
        require(policy in (None, SELECTIVE), "policy", policy, f"{SELECTIVE!r} with a gate", hint)
    require(not settings, "policy settings", sorted(settings), "none with a gate", "they are in its file")
    require(options.preset is None, "preset", options.preset, "none with a gate", "leave it out")
    # Thresholds mean nothing on another model.
    if not options.force_gate:
        gate.check_model(model.fingerprint)
    return gate, _fit_to_model(model, gate.policy())


def _fit_to_model(model: LoadedModel, policy: Policy | Search) -> Policy | Search:
    """Give a learned policy the head of this model; refuse a policy that reads attention where there is none."""
    # Named `readout` by our networks and `readout_layers` by masked language models; others always give attention.
    layers = getattr(model.denoiser, "readout", getattr(model.denoiser, "readout_layers", None))
    if policy.needs.attention and layers is not None and not layers:
        raise ConfigError(
            f"{policy.name} reads attention, which {model.name} as loaded does not give; allowed: a model with layers "
            "to read it from; load it with readout=[LAYER, ...], or choose another policy"
        )
    return with_head(policy, model.name, model.fingerprint, isinstance(model.denoiser, ExactDenoiser))


def resolve_sampling(model: LoadedModel, options: MethodOptions) -> SamplingParams:
    """Return the sampling parameters; refuse end-of-text options for a model without an end-of-text token."""
    given = dict(options)
    # They would silently do nothing.
    for name in END_OPTIONS:
        if given.get(name) and not model.denoiser.vocabulary.eos_ids:
            raise ConfigError(
                f"{name} is {given[name]!r}, but {model.name} as loaded has no end-of-text token; allowed: models "
                "that have one; leave the option out, or name the token when loading (exact: eos='a')"
            )
    return SamplingParams(**{name: given[name] for name in SAMPLING if name in given})


# Branches


def branch_options(
    traj: Trajectory, given: Mapping[str, Any], policy: Policy | Search | None
) -> tuple[DecodeOptions, Mapping[str, Any]]:
    """Return the options of a branch, with missing ones inherited from the run, and the run's recorded gate entry.

    `policy` is the run's own object; None for a run from a file, whose policy is made again from its settings.
    """
    check_options("branch", given)
    config = traj.config or {}
    settings = sorted(key for key in given if key not in OPTIONS)
    try:
        cache = config["approximate"] or {"cache": None, "refresh": 0}
        inherited = {name: config[name] for name in ("cfg_scale", "eos_fill", "seed")}
        inherited |= {"cache": cache["cache"], "cache_refresh": cache["refresh"]}
        inherited |= {"record_top": config.get("record_top", 0)} if given.get("record", True) else {}
        described, gate = config["policy"], {"gate": config["gate"]} if "gate" in config else {}
        inherited |= {name: getattr(traj.sampling, name) for name in SAMPLING}
    except (LookupError, TypeError, AttributeError) as error:
        raise SchemaError(
            f"the run's configuration makes no sense ({error}); allowed: what generate writes; decode it again"
        ) from error
    # Another policy starts with its own settings: those of the run's policy would not fit it.
    if "policy" in given or "gate" in given:
        return DecodeOptions(**{**inherited, **given}), {}
    if settings:
        require(not gate, "policy settings", settings, "none with a gate", "they are in its file")
        own = {"policy": described["name"], **_read_settings(described)}
        return DecodeOptions(**{**inherited, **own, **given}), {}
    if policy is None and gate:
        raise ConfigError("the run was decoded with a gate, which its file does not hold; name it: gate='gate.json'")
    return DecodeOptions(**{**inherited, "policy": policy or policy_from_config(described), **given}), gate


def policy_from_config(described: Mapping[str, Any]) -> Policy | Search:
    """Make a policy from its recorded settings; refuse settings that differ from those of this version."""
    name = described.get("name") if isinstance(described, Mapping) else None
    hint = "name the policy: policy=..."
    if name not in METHODS:
        raise ConfigError(
            f"the run's policy is {name!r}; allowed: one of {', '.join(METHODS)}, or one you name; {hint}"
        )
    try:
        policy = make_policy(str(name), **_read_settings(described))
        # Settings that came or went since the file was written would change the run silently.
        same = json_values(describe_policy(policy)) == json_values(described)
    except (ConfigError, TypeError) as error:
        raise ConfigError(f"the run's settings of {name} are not those of this version ({error}); {hint}") from error
    require(same, f"settings of {name} in the run", dict(described), "settings of this version", hint)
    return policy


def _read_settings(described: Mapping[str, Any]) -> dict[str, Any]:
    """Convert recorded settings to keywords of `make_policy`: policies as objects, other parts by dotted keys."""
    usual = METHODS[described["name"]].default if described.get("name") in METHODS else None
    settings: dict[str, Any] = {}
    for key, value in described.items():
        if key == "name":
            continue
        if isinstance(value, Mapping) and "name" in value:
            settings[key] = policy_from_config(value)
        elif isinstance(value, Mapping) and is_dataclass(getattr(usual, key, None)):
            settings |= {f"{key}.{inner}": setting for inner, setting in value.items()}
        else:
            settings[key] = tuple(value) if isinstance(value, list) else value
    return settings


def json_values(value: Any) -> Any:
    """Convert a value to JSON types; infinities and unknown objects become texts."""
    if isinstance(value, Mapping):
        return {str(k): json_values(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [json_values(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
