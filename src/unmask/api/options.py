"""The options of `generate`, `infill` and `branch`, each told once: name, type, default, what it does, what is allowed.

The Python interface, the command line, their checks and the recorded configuration are made from the fields of
`DecodeOptions`; `unmask compare` and `unmask calibrate` share some of them. Loads no torch: `unmask --help` is quick.
"""

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.base.errors import require
from unmask.base.options import fits

if TYPE_CHECKING:
    from unmask.adapt import Gate
    from unmask.core import Policy, Search, Trajectory


@dataclass(frozen=True)
class Allowed:
    """Which values an option may have, and what to do about others."""

    test: Callable[[Any], bool]
    words: str
    remedy: str


@dataclass(frozen=True)
class OptionSpec:
    """What the field of an option cannot say itself: how it is typed on the command line, what it does, its check."""

    help: str
    flags: tuple[str, ...] = ()
    """As typed; empty for the field's name with dashes."""
    alias: str = ""
    """Another name, in Python and on the command line."""
    type: Any = None
    """On the command line, where it differs from the field's."""
    metavar: str | None = None
    min: float | None = None
    allowed: Allowed | None = None
    only: str = ""
    """The one command that has it; empty for all."""
    begins: bool = False
    """Decided when a run begins: a branch cannot change it."""
    in_shell: bool = True
    of_proposal: bool = False
    """Handed on to `core.SamplingParams`, which checks it."""
    needs_eos: bool = False
    """Without an end-of-text token it would silently do nothing."""


MOST_TOP = 16
"""What one pass over the vocabulary finds on a GPU; beyond it other code would run, and the tokens might differ."""

RECORDED = ("cfg_scale", "eos_fill", "approximate", "seed", "samples")
"""Options that stand in a configuration by their names, in this order."""

BRANCH = "branch"
"""The command that inherits what it is not told."""

SPEC = "option"
"""Where a field keeps its `OptionSpec`."""


def option(default: Any, help: str, *flags: str, **more: Any) -> Any:
    """A field of a dataclass of options; `more` is what `OptionSpec` has."""
    return field(default=default, metadata={SPEC: OptionSpec(help, flags, **more)})


def shared(name: str, **changes: Any) -> Any:
    """A field of `DecodeOptions` for another command, with what is different there."""
    (original,) = (f for f in fields(DecodeOptions) if f.name == name)
    return field(default=original.default, metadata={SPEC: replace(original.metadata[SPEC], **changes)})


@dataclass(frozen=True, kw_only=True)
class DecodeOptions:
    """How prompts are decoded: everything but the prompts."""

    policy: "str | Policy | Search | None" = option(
        None,
        "Which method; `unmask methods` lists them; `selective` takes a --gate. Or a class of your own, whose code "
        "runs: path.py:Class or package.module:Class. Settings may follow, :KEY=VALUE,... Default: the model's "
        "reference.",
        *("--policy", "-p"),
        type=str | None,
    )
    settings: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={
            SPEC: OptionSpec("A setting of the policy, e.g. `block_length=4`, `alg=origin`. Repeatable.", ("--set",))
        },
    )
    preset: str | None = option(
        None,
        "Published settings of the policy for a task, e.g. `gsm8k`, those of the model's family; `unmask methods show "
        "NAME` lists them. --set goes before them.",
        metavar="TASK",
        begins=True,
    )
    max_new_tokens: int | None = option(
        None, "Tokens to add. Default: the model's own number.", alias="gen_length", only="generate", begins=True
    )
    steps: int | None = option(
        None, "Denoising steps. Default: half the number of masked positions, rounded up.", begins=True
    )
    temperature: float = option(0.0, "0 takes the most probable token, above 0 draws one.", of_proposal=True)
    top_p: float = option(
        1.0, "Nucleus filter: for drawn tokens, and for the scores of dream at any temperature.", of_proposal=True
    )
    top_k: int = option(0, "Top-k filter, 0 for none; acts like --top-p.", of_proposal=True)
    sampler: str = option(
        "inverse",
        "How tokens are drawn above temperature 0: `inverse`, or `gumbel` as LLaDA's own loop.",
        of_proposal=True,
    )
    cfg_scale: float = option(
        0.0,
        "Classifier-free guidance, two forwards per step; 0 for none.",
        allowed=Allowed(
            lambda value: fits(value, float) and 0 <= value < float("inf"), "a number >= 0", "0 means no guidance"
        ),
    )
    seed: int = option(
        0,
        "Seed of all random numbers.",
        allowed=Allowed(lambda value: -(2**63) <= value < 2**63, "a 64-bit number", "choose a smaller one"),
    )
    samples: int = option(
        1,
        "Answers per prompt; they differ if anything is drawn at random.",
        allowed=Allowed(
            lambda value: 1 <= value <= 100_000,
            "1 to 100000",
            "ask for at least one answer, and for more in several runs",
        ),
        begins=True,
    )
    eos_fill: bool = option(False, "Once end of text is revealed, fill what follows with it.", needs_eos=True)
    logits_eos_inf: bool = option(False, "Never propose end of text.", of_proposal=True, needs_eos=True)
    confidence_eos_eot_inf: bool = option(
        False, "Reveal end of text and end of turn last.", of_proposal=True, needs_eos=True
    )
    eos_penalty: float = option(
        0.0, "Subtracted from the logits of end of text and end of turn.", of_proposal=True, needs_eos=True
    )
    cache: str | None = option(
        None,
        "Approximate: reuse keys and values outside the active block. `prefix` or `dual`, as Fast-dLLM.",
        begins=True,
    )
    cache_refresh: int = option(0, "A complete pass every so many of a block; 0 for one at its start.", begins=True)
    gate: "Gate | str | Path | None" = option(
        None,
        "A calibrated gate, for `--policy selective`: when to deviate.",
        type=Path | None,
        metavar="FILE.json",
    )
    force_gate: bool = option(False, "Use a gate that was calibrated on another model.")
    planner: Any = option(None, "A second model, or its network, for a policy that asks one.", in_shell=False)
    record: bool = option(True, "Keep every step in the trajectory.", in_shell=False)
    record_top: int = option(
        0,
        "Keep so many of the most probable tokens of each position in every recorded step; 0: as many as the policy "
        "reads, two at least.",
        allowed=Allowed(lambda value: 0 <= value <= MOST_TOP, f"0 to {MOST_TOP}", "5 is common"),
    )
    on_step: "Callable[[Trajectory], None] | None" = option(
        None, "Called with the rows that still run after every step.", in_shell=False
    )

    def __post_init__(self) -> None:
        for f in fields(self):
            if not f.metadata[SPEC].of_proposal:
                _check(f, getattr(self, f.name))
        idle = self.cache is None and self.cache_refresh != 0
        require(not idle, "cache_refresh", self.cache_refresh, "0 without a cache", "name a cache, or leave it out")
        named = self.preset is None or (isinstance(self.preset, str) and bool(self.preset))
        require(named, "preset", self.preset, "the name of a preset", "`unmask methods show NAME` lists them")
        idle = self.record_top != 0 and not self.record
        require(not idle, "record_top", self.record_top, "0 with record=False", "record the steps, or leave it out")
        idle = self.force_gate and self.gate is None
        require(not idle, "force_gate", self.force_gate, "False without a gate", "name a gate, or leave it out")

    @classmethod
    def of(cls, command: str, keywords: Mapping[str, Any]) -> "DecodeOptions":
        """The options that a call named; every other keyword is a setting of the policy."""
        given = dict(keywords)
        for f in option_fields(command):
            _take_alias(f.name, f.metadata[SPEC].alias, given)
        named = {f.name: given.pop(f.name) for f in option_fields(command) if f.name in given}
        return cls(**named, settings=given)

    @property
    def keywords(self) -> dict[str, Any]:
        """The same as keywords of `generate` or `infill`; None is the default wherever it is a value."""
        values = {f.name: getattr(self, f.name) for f in option_fields()}
        return {name: value for name, value in values.items() if value is not None} | dict(self.settings)

    @property
    def sampling(self) -> dict[str, Any]:
        """What `core.SamplingParams` takes."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.metadata[SPEC].of_proposal}

    @property
    def about_eos(self) -> dict[str, Any]:
        """What a model without an end-of-text token does not have."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.metadata[SPEC].needs_eos}

    @property
    def approximate(self) -> dict[str, Any] | bool:
        """The cache: everything else is exact."""
        return {"cache": self.cache, "refresh": self.cache_refresh} if self.cache else False

    @property
    def recorded(self) -> dict[str, Any]:
        """What stands in the configuration as it was given; policy, gate and proposal stand there resolved."""
        kept = {"record_top": self.record_top} if self.record_top else {}
        return {name: getattr(self, name) for name in RECORDED} | kept


def option_fields(command: str | None = None) -> list[Field[Any]]:
    """The options that have a name of their own: those of one command, or all."""
    named = [f for f in fields(DecodeOptions) if f.name != "settings"]
    if command == BRANCH:
        return [f for f in named if not f.metadata[SPEC].begins]
    return [f for f in named if command is None or f.metadata[SPEC].only in ("", command)]


OPTIONS = frozenset({"prompt", *(f.name for f in option_fields())})
"""Every keyword of `generate`: what cannot be the name of a policy's setting."""

ALIASES = frozenset(f.metadata[SPEC].alias for f in option_fields()) - {""}


def said(command: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options among a call's names (its `locals()`) and the policy's settings beside them, as one set of keywords.

    The methods of `unmask.Model` spell their options out, so that editors complete them; a test holds the two together.
    An alias that nobody used is left out, and so is what a branch inherits.
    """
    silent = [f.metadata[SPEC].alias for f in option_fields(command)]
    silent += [f.name for f in option_fields(command)] if command == BRANCH else []
    names = [*(f.name for f in option_fields(command)), *ALIASES]
    kept = {n: given[n] for n in names if n in given and not (n in silent and given[n] is None)}
    return {**given["settings"], **kept}


def check_whole(name: str, value: object) -> None:
    require(fits(value, int), name, value, "a whole number", "write a plain int, without quotes or fraction")


def _check(declared: Field[Any], value: Any) -> None:
    """A value against the type of its option, and against what is allowed."""
    if declared.type is bool:
        require(isinstance(value, bool), declared.name, value, "True or False", "drop the quotes")
    elif declared.type is int or (declared.type == int | None and value is not None):
        check_whole(declared.name, value)
    allowed: Allowed | None = declared.metadata[SPEC].allowed
    if allowed is not None:
        require(allowed.test(value), declared.name, value, allowed.words, allowed.remedy)


def _take_alias(name: str, alias: str, given: dict[str, Any]) -> None:
    """Put a value under the first of its two names."""
    if alias in given:
        value, other = given.get(name), given.pop(alias)
        require(value is None, f"{name} and {alias}", (value, other), "one of the two", "they mean the same")
        given[name] = other
