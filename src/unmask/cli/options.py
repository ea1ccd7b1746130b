"""Options that several commands have, dataclasses of options as commands, and command-line texts as values."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_origin

import typer

from unmask.api.options import SPEC, OptionSpec
from unmask.base.errors import ConfigError
from unmask.base.options import parse_settings, parse_spec
from unmask.cli.completion import OF_OPTIONS, models
from unmask.report.console import loading

if TYPE_CHECKING:
    from unmask.api.model import Model
    from unmask.core import Policy, Search
    from unmask.lab.cluster import Ray
    from unmask.lab.cluster.remote_model import RemoteModel

ModelName = Annotated[
    str,
    typer.Option("--model", "-m", help="A name of `unmask models`, a hub id or a folder.", autocompletion=models),
]
DataDir = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Official data files. Default: $UNMASK_DATA, else the hub.")
]
Jobs = Annotated[int | None, typer.Option(min=1, help="Programs run side by side (HumanEval). Default: all cores.")]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output and nothing else on stdout.")]


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """How a model is loaded."""

    model_option: Annotated[
        list[str] | None,
        typer.Option("--model-option", metavar="KEY=VALUE", help="An option of the model. Repeatable."),
    ] = None
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ...; default: a GPU if there is one.")] = None
    dtype: Annotated[str | None, typer.Option(help="bf16, fp16 or fp32; default: bf16 on a GPU, fp32 on a CPU.")] = None

    def load(self, name: str) -> "Model":
        """A model with the options of --model-option and those that have an option of their own."""
        from unmask.api.load import load

        with loading() as on_progress:
            return load(name, on_progress=on_progress, **self.chosen)

    def remote(self, name: str, cluster: "Ray") -> "RemoteModel":
        """The same on the workers of a cluster."""
        from unmask.api.load import load

        return load(name, cluster=cluster, **self.chosen)

    @property
    def chosen(self) -> dict[str, Any]:
        """The options by name."""
        chosen = parse_settings(self.model_option, "--model-option", lists=("accept",))
        for key, value in (("device", self.device), ("dtype", self.dtype)):
            if value is None:
                continue
            if key in chosen:
                raise ConfigError(
                    f"--{key} and --model-option {key}=... are both given; allowed: one of them; drop one"
                )
            chosen[key] = value
        return chosen


@dataclass(frozen=True, kw_only=True)
class ComposeOptions:
    """A policy put together: one rule for each axis."""

    score: Annotated[
        str | None,
        typer.Option(
            metavar="RULE",
            help="Compose a policy: confidence, margin, certainty, stability, dependency, "
            "uniform, entropy, random, or a mixture such as `confidence+margin`, `0.7*confidence+0.3*margin`.",
        ),
    ] = None
    region: Annotated[
        str | None,
        typer.Option(
            metavar="RULE",
            help="full, block:N, last-block:N, window:N, dilated:N, near:N, groups:N (DUS), "
            "sliding:N[:LONGEST] (DSB) or masks:N[:LONGEST] (DCD).",
        ),
    ] = None
    cardinality: Annotated[
        str | None,
        typer.Option(
            metavar="RULE",
            help="schedule, quota (LLaDA), count:K, share:X; above:X, factor:F (Fast-dLLM), "
            "eb:GAMMA (EB-Sampler) or all, which --steps does not bound.",
        ),
    ] = None
    commitment: Annotated[
        str | None,
        typer.Option(
            metavar="RULE",
            help="all, none, confidence:X, margin:X, remdm-cap, remdm-rescale, remdm-conf, "
            "remdm-loop (each with :ETA), or both: `confidence:0.9+remdm-conf`.",
        ),
    ] = None

    @property
    def rules(self) -> dict[str, Any]:
        """What was given."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}

    def merged(self, policy: str | None, settings: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
        """Policy and settings with the rules; refused beside another policy, or beside settings of one."""
        if not self.rules:
            return policy, dict(settings)
        options = ", ".join(f"--{name}" for name in self.rules)
        if policy is not None and parse_spec(policy)[0] != "composed":
            raise ConfigError(
                f"--policy {policy!r} and {options} are both given; allowed: a policy, or rules that compose one; drop "
                "either"
            )
        if settings:
            raise ConfigError(
                f"--set {', '.join(settings)} and {options} are both given; allowed: --set with --policy; drop either"
            )
        return policy or "composed", self.rules


def expanded(function: Callable[..., None]) -> Callable[..., None]:
    """A command that has an option for every field of its parameters that are dataclasses.

    A field says in its annotation what it is on the command line, as a parameter does for typer, or it was made with
    `unmask.api.options.option`. A mapping is typed as KEY=VALUE, repeatedly.
    """
    parameters = inspect.signature(function).parameters
    parts = {name: _fields(p.annotation, function.__name__) for name, p in parameters.items()}

    def command(**given: Any) -> None:
        chosen: dict[str, Any] = {}
        for name, parameter in parameters.items():
            values = {f.name: _value(f, given[f.name]) for f in parts[name]}
            chosen[name] = parameter.annotation(**values) if parts[name] else given[name]
        function(**chosen)

    shown = [one for name, p in parameters.items() for one in (map(_parameter, parts[name]) if parts[name] else [p])]
    command.__dict__["__signature__"] = Signature([p.replace(kind=Parameter.KEYWORD_ONLY) for p in shown])
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    return command


def _fields(kind: Any, command: str) -> list[Field[Any]]:
    """The fields of a dataclass that are options of this command."""
    texts = [(f, f.metadata.get(SPEC, OptionSpec(""))) for f in (fields(kind) if is_dataclass(kind) else ())]
    return [f for f, text in texts if text.in_shell and text.only in ("", command)]


def _parameter(declared: Field[Any]) -> Parameter:
    """A field as typer wants it."""
    default = Parameter.empty if declared.default is MISSING else declared.default
    hint: Any = declared.type
    if get_origin(hint) is not Annotated:
        text: OptionSpec = declared.metadata[SPEC]
        pair = _is_mapping(declared)
        default, hint = (None, list[str] | None) if pair else (default, text.type or hint)
        metavar = "KEY=VALUE" if pair else text.metavar
        named = OF_OPTIONS.get(declared.name)
        shown: Any = {"help": text.help, "metavar": metavar, "min": text.min, "autocompletion": named}
        hint = Annotated[hint, typer.Option(*_flags(declared), **shown)]
    return Parameter(declared.name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _flags(declared: Field[Any]) -> list[str]:
    """How it is typed; nothing where typer finds the same."""
    text: OptionSpec = declared.metadata[SPEC]
    # Without a flag of its own a truth value would get a second one, --no-...
    if not text.flags and (text.alias or declared.type is bool):
        return [f"--{name.replace('_', '-')}" for name in (declared.name, text.alias) if name]
    return list(text.flags)


def _value(declared: Field[Any], given: Any) -> Any:
    return parse_settings(given, declared.metadata[SPEC].flags[0]) if _is_mapping(declared) else given


def _is_mapping(declared: Field[Any]) -> bool:
    return get_origin(declared.type) is Mapping


POLICY = "NAME[:KEY=VALUE,...]"


def policy_of(
    text: str, more: Mapping[str, Any] | None = None, also: Sequence[str] = (), family: str | None = None
) -> "Policy | Search":
    """A policy as a command line has it; a class of the user's own is run.

    `more` are settings from elsewhere, `also` names that the caller knows besides. `preset=TASK` among the settings is
    one of the method's presets, for models of this family.
    """
    from unmask.methods import parse_policy

    return parse_policy(text, more, also, family=family)
