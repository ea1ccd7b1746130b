"""Options of the library as flags, options that several commands have, and a policy from its text."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from unmask.api.options import FUNCTION_OPTIONS, OPTIONS, MethodOptions
from unmask.base.errors import ConfigError
from unmask.base.options import Options, parse_settings, parse_spec
from unmask.cli.completion import compared, methods, models
from unmask.cli.completion import tasks as task_names
from unmask.report.console import loading

if TYPE_CHECKING:
    from unmask.api import Model
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
            return load(name, on_progress=on_progress, **self.load_settings)

    def remote(self, name: str, cluster: "Ray") -> "RemoteModel":
        """The same on the workers of a cluster."""
        from unmask.api.load import load

        return load(name, cluster=cluster, **self.load_settings)

    @property
    def load_settings(self) -> dict[str, Any]:
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
        """The rules that were given, by axis."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}

    def merge_rules(self, policy: str | None, settings: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
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


# Options of the library as flags

PYTHON_ONLY = ("planner", "record", "on_step")
"""Options that name objects, or nothing that a command line needs."""

FLAGS: dict[str, dict[str, Any]] = {
    "policy": {
        "type": str | None,
        "flags": ("--policy", "-p"),
        "autocompletion": methods,
        "help": "Which method; `unmask methods` lists them; `selective` takes a --gate. Or a class of your own, whose "
        "code runs: path.py:Class or package.module:Class. Settings may follow, :KEY=VALUE,... Default: the model's "
        "reference.",
    },
    "preset": {"metavar": "TASK"},
    "max_new_tokens": {"flags": ("--max-new-tokens", "--gen-length")},
    "gate": {"type": Path | None, "metavar": "FILE.json"},
    "estimator": {"type": str, "flags": ("--bound",)},
    "batch_size": {"flags": ("--batch",)},
    "data_dir": {"type": Path | None, "metavar": "FOLDER"},
    "sandbox_workers": {"flags": ("--jobs",)},
    "scorer": {"flags": ("--score",), "metavar": "RULE"},
    "compute_matched": {"flags": ("--matched",)},
    "policies_from": {"type": Path | None, "flags": ("--picks",), "metavar": "FILE"},
    "published": {"flags": ("--figures",), "metavar": "NAME"},
    "macro_without": {"metavar": "NAME"},
}
"""What a field cannot say itself: another type or flag in the shell, the Tab key's proposals."""

POLICY = "NAME[:KEY=VALUE,...]"

COMMAND_FLAGS: dict[str, dict[str, dict[str, Any]]] = {
    "compare": {
        "task": {"metavar": "NAME", "autocompletion": task_names},
        "policy": {"flags": ("--policy", "-p"), "metavar": POLICY, "autocompletion": compared},
        "max_new_tokens": {"flags": ("--horizon",)},
    },
    "verify": {"task": {"metavar": "NAME"}},
    "calibrate": {
        # The flag is named: some releases of typer take a name from a metavar that differs from it in case only.
        "task": {"type": str, "flags": ("--task",), "metavar": "TASK", "autocompletion": task_names},
        "max_new_tokens": {"flags": ("--horizon",)},
        "batch_size": {"flags": ("--rows",)},
        "fixed_by": {"flags": ("--fixed",), "metavar": "HOW"},
        "guarantee": {"metavar": "RISK"},
        "work_dir": {"type": Path | None, "flags": ("--work",), "metavar": "FOLDER"},
    },
}
"""Where a command differs from `FLAGS`."""

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="A setting of the policy, e.g. `block_length=4`, `alg=origin`. Repeatable."
    ),
]


def options_as_flags(function: Callable[..., None]) -> Callable[..., None]:
    """Make a command with a flag for every field of its parameters that are groups of options.

    A group is a class of the library's `Options`, or a dataclass whose annotations are typer's.
    """
    parameters = inspect.signature(function).parameters
    groups = {name: _flags_of(p.annotation, function.__name__) for name, p in parameters.items()}

    def command(**given: Any) -> None:
        chosen: dict[str, Any] = {}
        for name, parameter in parameters.items():
            values = {flag.name: given[flag.name] for flag in groups[name]}
            chosen[name] = _read_group(parameter.annotation, values) if values else given[name]
        function(**chosen)

    flags = [flag for name, p in parameters.items() for flag in (groups[name] or [p])]
    command.__dict__["__signature__"] = Signature([flag.replace(kind=Parameter.KEYWORD_ONLY) for flag in flags])
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    return command


def _flags_of(kind: Any, command: str) -> list[Parameter]:
    """The flags of a group; none for a plain parameter."""
    if is_dataclass(kind):
        return [
            Parameter(
                f.name,
                Parameter.KEYWORD_ONLY,
                default=Parameter.empty if f.default is MISSING else f.default,
                annotation=f.type,
            )
            for f in fields(kind)
        ]
    if not (isinstance(kind, type) and issubclass(kind, Options)):
        return []
    if not issubclass(kind, MethodOptions):
        return [_flag(name, field, command) for name, field in kind.model_fields.items()]
    names = FUNCTION_OPTIONS["log_likelihood" if command == "score" else command]
    flags = [_flag(name, kind.model_fields[name], command) for name in names if name not in PYTHON_ONLY]
    flags.insert(1, Parameter("settings", Parameter.KEYWORD_ONLY, default=None, annotation=Settings))
    return flags


def _flag(name: str, field: FieldInfo, command: str) -> Parameter:
    """Make the flag of an option. Without a name of its own, a truth value would get a second flag, --no-..."""
    own = {**COMMAND_FLAGS.get(command, {}).get(name, FLAGS.get(name, {}))}
    hint: Any = own.pop("type", field.annotation)
    default = field.default
    if get_origin(hint) is tuple:
        # A flag that may be repeated.
        inner: Any = get_args(hint)[0]
        hint, default = list[inner] | None, None
    flags = own.pop("flags", (f"--{name.replace('_', '-')}",))
    hint = Annotated[hint, typer.Option(*flags, **{"help": field.description, **own})]
    if field.is_required():
        default = Parameter.empty
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _read_group(kind: Any, values: dict[str, Any]) -> Any:
    """Check the values of a group. Settings of the policy are keywords like any other."""
    if not issubclass(kind, Options):
        return kind(**values)
    if not issubclass(kind, MethodOptions):
        repeated = {name for name, field in kind.model_fields.items() if get_origin(field.annotation) is tuple}
        given = {name: value for name, value in values.items() if not (name in repeated and value is None)}
        return kind(**{name: tuple(value) if name in repeated else value for name, value in given.items()})
    settings = parse_settings(values.pop("settings"))
    for key in settings:
        if key in OPTIONS or key in kind.model_fields:
            raise ConfigError(
                f"--set {key}=... names no setting of a policy; allowed: what `unmask methods` lists; "
                f"see whether there is an option --{key.replace('_', '-')}"
            )
    return kind(**values, **settings)


def policy_of(
    text: str, more: Mapping[str, Any] | None = None, also: Sequence[str] = (), family: str | None = None
) -> "Policy | Search":
    """A policy as a command line has it; a class of the user's own is run.

    `more` are settings from elsewhere, `also` names that the caller knows besides. `preset=TASK` among the settings is
    one of the method's presets, for models of this family.
    """
    from unmask.methods import parse_policy

    return parse_policy(text, more, also, family=family)
