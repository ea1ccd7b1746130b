"""A loaded model: `generate` or `infill` text with any unmasking method."""

import hashlib
import inspect
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from unmask.adapt import Gate
from unmask.core import Denoiser, Noise, Policy, Proposal, Search, State, Trajectory, row_key
from unmask.decode import decode
from unmask.denoisers import ApproximateCache, Codec, Guided, Network, Prompt, canvas_of
from unmask.errors import ConfigError, UnknownName, require
from unmask.options import check_types, fits
from unmask.policies import METHODS, make, settings
from unmask.versions import versions

OnStep = Callable[[Trajectory], None]


@dataclass(frozen=True)
class Generation:
    """What `generate` and `infill` return: one row per prompt and sample, the samples of a prompt side by side."""

    texts: tuple[str, ...]
    """The new text of each row; the whole text when infilling."""
    tokens: tuple[tuple[int, ...], ...]
    """The tokens of `texts`."""
    canvases: tuple[str, ...]
    """Prompt and answer of each row."""
    trajectory: Trajectory
    """How every row got there; without steps under `record=False`."""
    config: dict[str, Any]
    """The resolved configuration: enough to repeat the run. Plain JSON values."""

    @property
    def text(self) -> str:
        """The text of the only row."""
        rows = len(self.texts)
        require(rows == 1, "the number of texts", rows, "1", "use .texts, which has one for each prompt and sample")
        return self.texts[0]

    @property
    def row_forwards(self) -> tuple[int, ...]:
        """Denoiser passes spent on each row, looks ahead and guidance included."""
        return tuple(self.trajectory.forwards_B.tolist())

    @property
    def forwards(self) -> int:
        """Passes of all rows together."""
        return sum(self.row_forwards)

    @property
    def processed(self) -> int:
        """Tokens that the denoiser read in those passes."""
        return int(self.trajectory.processed_B.sum())

    @property
    def tokens_per_forward(self) -> float:
        return int(self.trajectory.state.answer_BL.sum()) / self.forwards

    def to_json(self) -> str:
        """Everything but the trajectory; the same run gives the same bytes."""
        steps = self.trajectory.state.step_B.tolist()
        columns = zip(self.texts, self.canvases, self.tokens, steps, self.row_forwards, strict=True)
        names = ("text", "canvas", "tokens", "steps", "forwards")
        document = {
            "rows": [_plain(dict(zip(names, row, strict=True))) for row in columns],
            "forwards": self.forwards,
            "processed_tokens": self.processed,
            "tokens_per_forward": self.tokens_per_forward,
            "config": self.config,
        }
        # Lists of numbers on one line. No string is touched: inside one, a line break is written as "\\n".
        spread = json.dumps(document, indent=2, ensure_ascii=False)
        return re.sub(r"\[\n[\s\d,-]*\]", lambda found: re.sub(r"\s+", " ", found[0]), spread)


@dataclass(frozen=True)
class Model:
    """A denoiser that can read and write text."""

    name: str
    denoiser: Denoiser = field(repr=False)
    codec: Codec = field(repr=False)
    options: Mapping[str, Any]
    length: int | None = None
    """Positions of the longest canvas; None for no limit."""
    opening: str = ""
    """Stands in for a prompt nobody gave."""
    horizon: int | None = None
    """New tokens when nobody says how many; None for the rest of the canvas."""
    reference: str = "llada"
    """The method its authors decode with: the policy when nobody names one."""

    @property
    def fingerprint(self) -> str:
        """Which model this is: a hash of a checkpoint's files, or of what else it was made from."""
        known = self.options.get("fingerprint")
        made_from = json.dumps([self.name, _plain(self.options)], sort_keys=True)
        return str(known or hashlib.sha256(made_from.encode()).hexdigest()[:16])

    def default_prompt(self) -> str:
        """The prompt used when none is given."""
        return self.opening

    def generate(
        self,
        prompt: Prompt | Sequence[Prompt] | None = None,
        *,
        max_new_tokens: int | None = None,
        steps: int | None = None,
        **options: Any,
    ) -> Generation:
        """Answer each prompt with `max_new_tokens` tokens (default: the model's `horizon`) in `steps` steps.

        A prompt is a text (one user turn, for models with a chat template) or a conversation: a list of
        {"role": ..., "content": ...}. Half as many steps as new tokens, rounded up, is the default, or a gate's own
        share. `gen_length` is another name for `max_new_tokens`.

        Further options, with their defaults: policy=None (the model's reference; a name or an object), seed=0,
        samples=1, temperature=0, top_p=1, top_k=0, sampler="inverse", logits_eos_inf=False,
        confidence_eos_eot_inf=False, eos_penalty=0, cfg_scale=0, eos_fill=False, cache=None ("prefix" or "dual":
        approximate), cache_refresh=0, record=True, on_step=None, gate=None (a calibrated gate or its file, for
        policy="selective"), force_gate=False (True: though it is another model's). Any other keyword is a setting of
        the policy, by the name its authors use: block_length, remasking (llada), alg, alg_temp (dream); `unmask
        methods` lists them. A row's random numbers depend on seed, sample and its own first canvas, so a prompt gets
        the same answer in any batch.
        """
        wanted = _alias("max_new_tokens", max_new_tokens, "gen_length", options)
        given: Any = self.default_prompt() if prompt is None else prompt
        prompts = [given] if _is_conversation(given) else self._texts("prompt", given)
        share = self._open_gate(options)
        rows = [_Row.generate(one, self, wanted, steps, share) for one in prompts]
        return self._decode("generate", rows, prompt is None, **options)

    def infill(self, text: str | Sequence[str], *, steps: int | None = None, **options: Any) -> Generation:
        """Fill the blanks of each text, written "[MASK]" or with the model's own mask sign; the rest is given.

        The default for `steps` is half as many as there are blanks, rounded up, or a gate's own share. Further options
        as for `generate`.
        """
        share = self._open_gate(options)
        rows = [_Row.infill(one, self, steps, share) for one in self._texts("text", text)]
        return self._decode("infill", rows, False, **options)

    def _decode(
        self,
        task: str,
        rows: "Sequence[_Row]",
        default_prompt: bool,
        /,
        *,
        policy: str | Policy | Search | None = None,
        seed: int = 0,
        samples: int = 1,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        sampler: str = "inverse",
        logits_eos_inf: bool = False,
        confidence_eos_eot_inf: bool = False,
        eos_penalty: float = 0.0,
        cfg_scale: float = 0.0,
        eos_fill: bool = False,
        cache: str | None = None,
        cache_refresh: int = 0,
        record: bool = True,
        on_step: OnStep | None = None,
        gate: Gate | None = None,
        force_gate: bool = False,
        **policy_settings: Any,
    ) -> Generation:
        """What `generate` and `infill` share: every option but the canvas."""
        require(isinstance(force_gate, bool), "force_gate", force_gate, "True or False", "drop the quotes")
        idle = force_gate and gate is None
        require(not idle, "force_gate", force_gate, "False without a gate", "name a gate, or leave it out")
        if gate is not None and not force_gate:
            gate.check_model(self.fingerprint)
        return _Decoding(
            task=task,
            model=self,
            policy=_policy(policy, policy_settings, gate, self.reference),
            gate=gate,
            proposal=_proposal(
                temperature=temperature,
                top_p=top_p,
                top_k=top_k,
                sampler=sampler,
                logits_eos_inf=logits_eos_inf,
                confidence_eos_eot_inf=confidence_eos_eot_inf,
                eos_penalty=eos_penalty,
            ),
            cfg_scale=cfg_scale,
            eos_fill=eos_fill,
            cache=cache,
            cache_refresh=cache_refresh,
            seed=seed,
            samples=samples,
            default_prompt=default_prompt,
        ).decode(rows, record, on_step)

    def _open_gate(self, options: dict[str, Any]) -> float:
        """Put a gate in the place of its file; the share of steps it was calibrated with, or the default."""
        gate = options.get("gate")
        if gate is None:
            return 0.5
        known = isinstance(gate, Gate | str | Path)
        require(known, "gate", gate, "a gate or the path of its file", "e.g. gate='gate.json'")
        options["gate"] = found = gate if isinstance(gate, Gate) else Gate.load(gate)
        return found.steps_share

    def _texts(self, name: str, given: Any) -> list[Any]:
        require(isinstance(given, Sequence), name, given, "a text, or a list of texts", f"pass the {name} as a string")
        texts = [given] if isinstance(given, str) else list(given)
        require(bool(texts), name, texts, "one text or more", f"pass a {name}")
        for text in texts:
            ok = isinstance(text, str) or (name == "prompt" and _is_conversation(text))
            allowed = "a text, or a list of texts" + (" or conversations" if name == "prompt" else "")
            require(ok, name, text, allowed, f"pass the {name} as a string")
            require(len(text) > 0, name, text, "one character or more", f"write a {name}")
        return texts


def calibrate(
    model: Model,
    *,
    task: str,
    axis: str,
    score: str | None = None,
    horizon: int | None = None,
    work: str | Path | None = None,
    **options: Any,
) -> Gate:
    """When to leave the fixed action on a task: a gate for `model.generate(..., gate=gate)`, or to `save`.

    `task` is a name of the suite, a JSONL file or a dotted Python name; the last two need a scoring rule, `score`, and
    the tokens that an answer may take, `horizon`. `work` is a folder that keeps the measurements, so that a call that
    was cut short can be repeated; without one they are thrown away.

    Further options, with their defaults: prompts=100, states=8, rollouts=4, steps_share=0.5, seed=0, rows=None,
    data_dir=None, jobs=None, on_progress. docs/adapt.md says what they do.
    """
    from unmask.lab.calibrate import calibrate as measure
    from unmask.tasks.own import task_of

    known = [name for name in inspect.signature(measure).parameters if name not in ("model", "task", "axis", "work")]
    for name in options:
        if name not in known:
            raise UnknownName("option of calibrate", name, [*known, "score", "horizon", "work"])
    chosen = task_of(task, score=score, horizon=horizon)
    if work is not None:
        return measure(model, chosen, axis, work=work, **options)
    with TemporaryDirectory(prefix="unmask-") as folder:
        return measure(model, chosen, axis, work=folder, **options)


@dataclass(frozen=True)
class _Row:
    """One canvas to decode."""

    text: Prompt
    canvas: list[int]
    given: list[bool]
    steps: int
    new: slice
    """Where the text is that the user gets back."""

    @classmethod
    def generate(cls, text: Prompt, model: Model, new_tokens: int | None, steps: int | None, share: float) -> "_Row":
        prompt = model.codec.encode(text)
        count = _new_tokens(len(prompt) + len(model.codec.closing), new_tokens, model)
        canvas, given = canvas_of(model.codec, prompt, count, model.denoiser.vocabulary.mask_id)
        return cls(text, canvas, given, _steps(steps, count, share), slice(len(prompt), len(prompt) + count))

    @classmethod
    def infill(cls, text: str, model: Model, steps: int | None, share: float) -> "_Row":
        canvas = model.codec.canvas(text)
        blanks = sum(token == model.denoiser.vocabulary.mask_id for token in canvas)
        require(blanks > 0, "text", text, f"one {model.codec.mask!r} or [MASK] or more", "mark what is to be filled")
        _check_length("text", len(canvas), model)
        given = [token != model.denoiser.vocabulary.mask_id for token in canvas]
        return cls(text, canvas, given, _steps(steps, blanks, share), slice(None))


@dataclass(frozen=True)
class _Decoding:
    """A resolved request: all that decides the result, apart from the rows."""

    task: str
    model: Model
    policy: Policy | Search
    proposal: Proposal
    cfg_scale: float
    eos_fill: bool
    cache: str | None
    cache_refresh: int
    seed: int
    samples: int
    default_prompt: bool = False
    gate: Gate | None = None

    def __post_init__(self) -> None:
        _whole("seed", self.seed)
        require(-(2**63) <= self.seed < 2**63, "seed", self.seed, "a 64-bit number", "choose a smaller one")
        _whole("samples", self.samples)
        ok = 1 <= self.samples <= 100_000
        require(ok, "samples", self.samples, "1 to 100000", "ask for at least one answer, and for more in several runs")
        ok = fits(self.cfg_scale, float) and 0 <= self.cfg_scale < float("inf")
        require(ok, "cfg_scale", self.cfg_scale, "a number >= 0", "0 means no guidance")
        require(isinstance(self.eos_fill, bool), "eos_fill", self.eos_fill, "True or False", "drop the quotes")
        _whole("cache_refresh", self.cache_refresh)
        idle = self.cache is None and self.cache_refresh != 0
        require(not idle, "cache_refresh", self.cache_refresh, "0 without a cache", "name a cache, or leave it out")
        self._check_end_of_text()

    def decode(self, rows: Sequence[_Row], record: bool, on_step: OnStep | None) -> Generation:
        require(isinstance(record, bool), "record", record, "True or False", "drop the quotes")
        repeated = [(row, sample) for row in rows for sample in range(self.samples)]
        keys = [row_key(self.seed, np.array(row.canvas, "<i8").tobytes(), sample) for row, sample in repeated]
        denoiser = self._denoiser()
        start = State.from_canvases(
            [row.canvas for row, _ in repeated],
            steps=[row.steps for row, _ in repeated],
            mask_id=denoiser.vocabulary.mask_id,
            given=[row.given for row, _ in repeated],
            device=denoiser.device,
        )
        end = decode(
            denoiser,
            self.policy,
            start,
            noise=Noise.of(keys, denoiser.device),
            proposal=self.proposal,
            eos_fill=self.eos_fill,
            record=record,
            on_step=on_step,
        )
        canvases = [tuple(end.state.tokens_BL[b, : len(row.canvas)].tolist()) for b, (row, _) in enumerate(repeated)]
        answers = [canvas[row.new] for canvas, (row, _) in zip(canvases, repeated, strict=True)]
        return Generation(
            texts=tuple(map(self._text, answers)),
            tokens=tuple(answers),
            canvases=tuple(map(self.model.codec.decode, canvases)),
            trajectory=end,
            config=self._config(repeated, keys),
        )

    def _text(self, tokens: Sequence[int]) -> str:
        """What the user reads: an answer ends where the model ended it, an infilled text does not."""
        codec = self.model.codec
        return codec.answer(tokens) if self.task == "generate" else codec.text(tokens)

    def _denoiser(self) -> Denoiser:
        """The model, with what was asked for around it; a cache is as old as the run."""
        model = self.model.denoiser
        if self.cache is None:
            return Guided(model, self.cfg_scale) if self.cfg_scale else model
        if not isinstance(model, Network):
            raise ConfigError(f"cache is {self.cache!r}; allowed: None with {self.model.name}; leave it out")
        require(not self.cfg_scale, "cfg_scale", self.cfg_scale, "0 with a cache", "leave one of them out")
        known = settings(self.policy)
        if "block_length" not in known:
            raise ConfigError(
                f"cache is {self.cache!r}, but {self.policy.name} does not decode block by block; allowed: policies "
                "with a block_length, such as llada; choose one, or leave the cache out"
            )
        if isinstance(self.policy, Search) or self.policy.looks_ahead:
            raise ConfigError(
                f"cache is {self.cache!r}, but {self.policy.name} looks ahead, and every look is a complete pass; "
                "allowed: None with it; leave the cache out"
            )
        return ApproximateCache(model, self.cache, known["block_length"] or 2**31, self.cache_refresh)

    def _config(self, repeated: Sequence[tuple[_Row, int]], keys: Sequence[int]) -> dict[str, Any]:
        return {
            "task": self.task,
            "model": {"name": self.model.name, **_plain(self.model.options)},
            "policy": _plain(settings(self.policy) if is_dataclass(self.policy) else {"name": self.policy.name}),
            **({"gate": self._gate_shown(self.gate)} if self.gate else {}),
            "proposal": _plain(asdict(self.proposal)),
            "cfg_scale": self.cfg_scale,
            "eos_fill": self.eos_fill,
            # Everything but a cache is exact.
            "approximate": {"cache": self.cache, "refresh": self.cache_refresh} if self.cache else False,
            "seed": self.seed,
            "samples": self.samples,
            "default_prompt": self.default_prompt,
            "rows": [
                {
                    "prompt": _plain(row.text),
                    "sample": sample,
                    "key": key,
                    "new_tokens": row.given.count(False),
                    "steps": row.steps,
                }
                for (row, sample), key in zip(repeated, keys, strict=True)
            ],
            "versions": versions(),
        }

    def _gate_shown(self, gate: Gate) -> dict[str, Any]:
        return {**_plain(gate.summary), "forced": gate.fingerprint != self.model.fingerprint}

    def _check_end_of_text(self) -> None:
        """An end-of-text option on a model that has no such token would silently do nothing."""
        asked = {
            "eos_fill": self.eos_fill,
            "logits_eos_inf": self.proposal.logits_eos_inf,
            "confidence_eos_eot_inf": self.proposal.confidence_eos_eot_inf,
            "eos_penalty": self.proposal.eos_penalty,
        }
        for name, value in asked.items():
            if value and not self.model.denoiser.vocabulary.eos_ids:
                raise ConfigError(
                    f"{name} is {value!r}, but {self.model.name} as loaded has no end-of-text token; allowed: models "
                    "that have one; leave the option out, or name the token when loading (exact: eos='a')"
                )


OPTIONS = frozenset(
    {*inspect.signature(Model.generate).parameters, *inspect.signature(Model._decode).parameters}
    - {"self", "task", "rows", "options", "policy_settings", "default_prompt"}
)
"""Every option of `generate`: what cannot be the name of a policy's setting."""


def _proposal(**options: Any) -> Proposal:
    check_types(Proposal, options, "the proposal")
    return Proposal(**options)


SELECTIVE = "selective"
"""The policy that a gate holds."""


def _policy(
    policy: str | Policy | Search | None, options: Mapping[str, Any], gate: Gate | None, reference: str
) -> Policy | Search:
    if gate is not None:
        asked = policy is None or policy == SELECTIVE
        require(asked, "policy", policy, f"{SELECTIVE!r} with a gate", "drop the policy or the gate")
        require(not options, "policy settings", sorted(options), "none with a gate", "they are in its file")
        return gate.policy()
    if policy == SELECTIVE:
        raise ConfigError(f"policy is {SELECTIVE!r}; allowed: with a calibrated gate; name its file, gate='gate.json'")
    policy = reference if policy is None else policy
    if isinstance(policy, Policy | Search):
        require(not options, "policy settings", sorted(options), "none with a policy object", "set them on the object")
        return policy
    require(isinstance(policy, str), "policy", policy, "a name or a policy object", "see `unmask methods`")
    if policy not in METHODS:
        raise UnknownName("policy", policy, [*METHODS, SELECTIVE])
    _refuse_misspelt(options, set(settings(make(policy))) - {"name"})
    return make(policy, **options)


def _refuse_misspelt(options: Mapping[str, Any], known: set[str]) -> None:
    """Unknown keywords land among the policy's settings; a misspelt option of `generate` deserves its own hint."""
    for key in options:
        head = key.partition(".")[0]
        if head in OPTIONS:
            raise ConfigError(f"{key} is no option of infill; allowed: the options of Model.infill; leave it out")
        if head not in known and (head == "name" or get_close_matches(head, [*OPTIONS, "gen_length"])):
            raise UnknownName("option", key, OPTIONS | known | {"gen_length"})


def _is_conversation(value: object) -> bool:
    """A list of messages, as opposed to a list of prompts."""
    return isinstance(value, list | tuple) and len(value) > 0 and all(isinstance(turn, Mapping) for turn in value)


def _alias(name: str, value: int | None, other: str, options: dict[str, Any]) -> int | None:
    """The value under either of its names."""
    if other not in options:
        return value
    given: int = options.pop(other)
    require(value is None, f"{name} and {other}", (value, given), "one of the two", "they mean the same")
    return given


def _new_tokens(prompt: int, wanted: int | None, model: Model) -> int:
    if wanted is None and model.horizon is not None:
        wanted = model.horizon if model.length is None else min(model.horizon, max(model.length - prompt, 1))
    if wanted is None:
        if model.length is None:
            raise ConfigError(f"max_new_tokens is None; allowed: 1 or more with {model.name}; say how many")
        _check_length("prompt", prompt + 1, model)
        return model.length - prompt
    _whole("max_new_tokens", wanted)
    _check_length("prompt", prompt + 1, model)
    room = None if model.length is None else model.length - prompt
    allowed = "1 or more" if room is None else f"1 to {room} ({prompt} of {model.length} positions are the prompt)"
    fits = wanted >= 1 and (room is None or wanted <= room)
    require(fits, "max_new_tokens", wanted, allowed, "change it, or shorten the prompt")
    return wanted


def _check_length(name: str, needed: int, model: Model) -> None:
    if model.length is not None and needed > model.length:
        raise ConfigError(
            f"the {name} needs a canvas of {needed} positions; allowed: at most {model.length} with {model.name}; "
            f"shorten the {name}" + (", or load a longer canvas (n=...)" if model.name == "exact" else "")
        )


def _steps(steps: int | None, blanks: int, share: float) -> int:
    """By default a share of the blanks, rounded up; `State` refuses more steps than blanks."""
    if steps is None:
        # 1e-9: a product such as 0.1 * 30 may lie a rounding error above its whole number.
        return max(math.ceil(share * blanks - 1e-9), 1)
    _whole("steps", steps)
    return steps


def _whole(name: str, value: object) -> None:
    require(fits(value, int), name, value, "a whole number", "drop the quotes or the fraction")


def _plain(value: Any) -> Any:
    """The same value in JSON's types."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no infinities
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
