"""From the options of `generate` and `infill` to a policy, a proposal and a denoiser, and the run itself."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from unmask.adapt import Gate
from unmask.api.options import ALIASES, BRANCH, OPTIONS, DecodeOptions, option_fields
from unmask.api.request import STEPS_SHARE, LoadedModel, Request, start_trajectory, steps_of
from unmask.axes import AXES
from unmask.base.errors import ConfigError, SchemaError, UnknownName, format_value, require, warn_caller
from unmask.base.options import check_types
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
"""The policy that a gate holds."""


@dataclass(frozen=True)
class ResolvedOptions:
    """All that decides a result, apart from the prompts: options whose names have become what they name."""

    model: LoadedModel
    options: DecodeOptions
    policy: Policy | Search
    sampling: SamplingParams
    gate: Gate | None
    preset: str | None = None
    """The key of the preset that the policy was made with."""

    @property
    def share(self) -> float:
        """Steps / blanks, where the options do not give a number of steps."""
        return STEPS_SHARE if self.gate is None else self.gate.steps_share

    def start(self, requests: Sequence[Request]) -> Trajectory:
        """Every request as often as there are samples, the samples of one side by side."""
        samples = range(self.options.samples)
        repeated = [request for request in requests for _ in samples]
        return start_trajectory(
            self.model.denoiser,
            repeated,
            self.options.seed,
            streams=[*samples] * len(requests),
            extra_steps=self.policy.extra_steps,
        )

    def first(self, start: Trajectory, policy: Policy) -> Trajectory:
        """One step of another policy, as this run reads the model."""
        start = replace(start, sampling=self.sampling)
        options = self.options
        return decode_one_step(
            self._denoiser(), policy, start, eos_fill=options.eos_fill, record_top=options.record_top
        )

    def decode(self, start: Trajectory) -> Trajectory:
        return decode(
            self._denoiser(),
            self.policy,
            start,
            sampling=self.sampling,
            planner=_network(self.options.planner),
            eos_fill=self.options.eos_fill,
            record=self.options.record,
            record_top=self.options.record_top,
            on_step=self.options.on_step,
        )

    @property
    def config(self) -> dict[str, Any]:
        """What was resolved, in JSON's types."""
        forced = self.gate is not None and self.gate.fingerprint != self.model.fingerprint
        return {
            "model": {"name": self.model.name, **plain(self.model.options)},
            "fingerprint": self.model.fingerprint,
            "policy": plain(describe_policy(self.policy)),
            "method": method_status(self.policy),
            **(
                {"action": plain(self.policy.rules)}
                if isinstance(self.policy, Composed) and self.policy.name == "composed"
                else {}
            ),
            **({"preset": self.preset} if self.preset else {}),
            **({"planner": _described(self.options.planner)} if self.options.planner is not None else {}),
            **({"gate": {**plain(self.gate.summary), "forced": forced}} if self.gate else {}),
            "proposal": plain(asdict(self.sampling)),
            **self.options.recorded,
        }

    def remarks(self, requests: Sequence[Request]) -> dict[str, list[str]]:
        """What a reader of the result must know besides: a gate at other steps. Said aloud, too."""
        if self.gate is None:
            return {}
        said = (self.gate.at_other_steps(r.steps, steps_of(self.share, r.blanks), r.blanks) for r in requests)
        remarks = [remark for remark in dict.fromkeys(said) if remark]
        for remark in remarks:
            warn_caller(remark)
        return {"warnings": remarks} if remarks else {}

    def _denoiser(self) -> Denoiser:
        """The model, with what was asked for around it; a cache is as old as the run."""
        denoiser, cache, cfg_scale = self.model.denoiser, self.options.cache, self.options.cfg_scale
        if cache is None:
            return GuidedDenoiser(denoiser, cfg_scale) if cfg_scale else denoiser
        if not isinstance(denoiser, Network):
            raise ConfigError(f"cache is {cache!r}; allowed: None with {self.model.name}; leave it out")
        require(not cfg_scale, "cfg_scale", cfg_scale, "0 with a cache", "leave one of them out")
        return BlockCache(denoiser, cache, _cached_block(self.policy, cache), self.options.cache_refresh)


def resolve(model: LoadedModel, options: DecodeOptions) -> ResolvedOptions:
    """Look up what the options name, and refuse what this model does not have."""
    given = options.policy if options.gate is not None and isinstance(options.policy, Policy) else None
    # The reference that the gate was calibrated around, if it is this one: its file holds no more than a name.
    name = None if given is None else register_reference(given)
    gate = _gate(options.gate)
    if gate is not None and given is not None:
        todo = "drop the policy or the gate"
        require(gate.arms.reference_kind == name, "policy", given.name, "the reference of the gate", todo)
        options = replace(options, policy=None)
    if gate is not None and not options.force_gate:
        gate.check_model(model.fingerprint)
    preset, policy = _policy(options, gate, model)
    check_types(SamplingParams, options.sampling, "the proposal")
    sampling = SamplingParams(**options.sampling)
    _check_end_of_text(model, options)
    kept = not (isinstance(policy, Search) and options.record_top)
    require(kept, "record_top", options.record_top, f"0 with a search such as {policy.name}", "it keeps what it reads")
    _check_networks(model, options, policy)
    resolved = ResolvedOptions(model, options, policy, sampling, gate, preset)
    if options.cache is not None:
        resolved._denoiser()  # refused now, not when prompts have been read
    exact = isinstance(model.denoiser, ExactDenoiser)
    return replace(resolved, policy=with_head(policy, model.name, model.fingerprint, exact))


def branch_options(
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
        kept |= {"record_top": config.get("record_top", 0)} if told.get("record", True) else {}
        was, gate = config["policy"], {"gate": config["gate"]} if "gate" in config else {}
        proposal = {name: getattr(traj.sampling, name) for name in DecodeOptions().sampling}
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
        policy = make_policy(str(name), **_given(described))
        same = plain(describe_policy(policy)) == plain(described)
    except (ConfigError, TypeError) as error:
        raise ConfigError(f"the run's settings of {name} are not those of this version ({error}); {remedy}") from error
    require(same, f"settings of {name} in the run", dict(described), "settings of this version", remedy)
    return policy


def _given(described: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as `make` takes them: parts that are policies as objects, parts of other parts by dotted names."""
    parts = METHODS[described["name"]].default if described.get("name") in METHODS else None
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
        raise ConfigError(
            f"gate is {format_value(gate)}; allowed: the path of a gate file; check it ({error})"
        ) from error


def _policy(options: DecodeOptions, gate: Gate | None, model: LoadedModel) -> tuple[str | None, Policy | Search]:
    """The policy, and the key of the preset it was made with."""
    policy, given = options.policy, options.settings
    if gate is not None:
        asked = policy is None or policy == SELECTIVE
        require(asked, "policy", policy, f"{SELECTIVE!r} with a gate", "drop the policy or the gate")
        require(not given, "policy settings", sorted(given), "none with a gate", "they are in its file")
        require(options.preset is None, "preset", options.preset, "none with a gate", "leave it out")
        return None, gate.policy()
    if policy == SELECTIVE:
        raise ConfigError(f"policy is {SELECTIVE!r}; allowed: with a calibrated gate; name its file, gate='gate.json'")
    if policy is None:
        policy = _composes(given) or model.reference
    if isinstance(policy, Policy | Search):
        require(not given, "policy settings", sorted(given), "none with a policy object", "set them on the object")
        require(options.preset is None, "preset", options.preset, "none with a policy object", "name the method")
        return None, policy
    require(isinstance(policy, str), "policy", policy, "a name or a policy object", "see `unmask methods`")
    if policy not in METHODS:
        name, _, given_there = policy.partition(":")
        if name in METHODS:
            raise ConfigError(
                f"policy is {policy!r}; allowed: a name, with its settings as keywords; write policy={name!r} and "
                f"{given_there or 'KEY=VALUE'} beside it"
            )
        raise UnknownName("policy", policy, [*METHODS, SELECTIVE])
    _refuse_misspelt(given, set(describe_policy(make_policy(policy))) - {"name"})
    if options.preset is None:
        return None, make_policy(policy, **given)
    family = preset_family(model.reference, model.options)
    key, published = find_preset(policy, options.preset, family)
    return key, make_policy(policy, **{**published, **given})


def _composes(given: Mapping[str, Any]) -> str | None:
    """The name of the composition where settings without a policy are rules of the axes."""
    if not given.keys() & AXES.keys():
        return None
    others = sorted(given.keys() - AXES.keys())
    todo = "drop them, or name a policy that has them"
    require(not others, "policy settings", others, f"{', '.join(AXES)} alone: a composition", todo)
    return "composed"


def _refuse_misspelt(given: Mapping[str, Any], of_policy: set[str]) -> None:
    """Unknown keywords land among the policy's settings; a misspelt option of `generate` deserves its own hint."""
    for key in given:
        head = key.partition(".")[0]
        if head in OPTIONS:
            raise ConfigError(f"{key} is no option of infill; allowed: the options of Model.infill; leave it out")
        if head not in of_policy and (head == "name" or get_close_matches(head, OPTIONS | ALIASES)):
            raise UnknownName("option", key, OPTIONS | ALIASES | of_policy)


def _check_end_of_text(model: LoadedModel, options: DecodeOptions) -> None:
    """An end-of-text option on a model that has no such token would silently do nothing."""
    for name, value in options.about_eos.items():
        if value and not model.denoiser.vocabulary.eos_ids:
            raise ConfigError(
                f"{name} is {value!r}, but {model.name} as loaded has no end-of-text token; allowed: models "
                "that have one; leave the option out, or name the token when loading (exact: eos='a')"
            )


def _check_networks(model: LoadedModel, options: DecodeOptions, policy: Policy | Search) -> None:
    """A planner where one is asked, and nowhere else; attention where it is read."""
    planner = _network(options.planner)
    if policy.needs.planner and planner is None:
        raise ConfigError(
            f"{policy.name} asks a planner, a second network, and the run has none; allowed: planner=false, or from "
            "Python model.generate(..., planner=another_model); a command line cannot name one"
        )
    if planner is not None and not policy.needs.planner:
        raise ConfigError(f"planner is given, but {policy.name} asks none; allowed: p2(planner=True); leave it out")
    if planner is not None:
        ours, theirs = model.denoiser.vocabulary, planner.vocabulary
        same = (ours.size, ours.mask_id) == (theirs.size, theirs.mask_id)
        words = (theirs.size, theirs.mask_id)
        require(same, "size and mask of the planner", words, f"{(ours.size, ours.mask_id)}", "choose another planner")
    layers = getattr(model.denoiser, "readout", getattr(model.denoiser, "readout_layers", None))
    if policy.needs.attention and layers is not None and not layers:
        raise ConfigError(
            f"{policy.name} reads attention, which {model.name} as loaded does not give; allowed: a model with layers "
            "to read it from; load it with readout=[LAYER, ...], or choose another policy"
        )


def _network(planner: Any) -> Denoiser | None:
    """The network of a planner that may be a whole model."""
    return getattr(planner, "denoiser", planner) if hasattr(planner, "codec") else planner


def _described(planner: Any) -> str:
    return f"{planner.name} ({planner.fingerprint})" if hasattr(planner, "fingerprint") else type(planner).__name__


def _cached_block(policy: Policy | Search, cache: str) -> int:
    """The block length for a cache, which holds all but the leftmost open block."""
    if isinstance(policy, Search) or policy.looks_ahead:
        raise ConfigError(
            f"cache is {cache!r}, but {policy.name} looks ahead, and every look is a complete pass; "
            "allowed: None with it; leave the cache out"
        )
    needs = policy.needs
    reads = {"attention": needs.attention, "shadow slots": needs.shadows, "revealed positions": needs.revealed}
    why = next((f"it reads {what}" for what, asked in reads.items() if asked), "")
    if why or not policy.block_cache or not hasattr(policy, "block_length"):
        why = why or _why_no_blocks(policy)
        raise ConfigError(
            f"cache is {cache!r}, but with {policy.name} {why}; allowed: policies that fill blocks of a block_length, "
            "such as llada; choose one, or leave the cache out"
        )
    return policy.block_length or 2**31


def _why_no_blocks(policy: Policy) -> str:
    """Why a cache of one block cannot serve a policy that has `block_cache = False`."""
    if isinstance(policy, Composed) and policy.name == "composed":
        by_blocks = str(policy.region).partition(":")[0] in ("full", "block")
        return (
            f"commitment={policy.commitment} re-masks anywhere in the answer"
            if by_blocks
            else f"region={policy.region} does not fill block after block"
        )
    if hasattr(policy, "block_length"):
        return "it does not declare `block_cache = True`"
    return "it does not decode block by block"
