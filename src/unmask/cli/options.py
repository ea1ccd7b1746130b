"""Fields of `Options` as flags of a command, and the options that several commands share."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic import Field
from pydantic.fields import FieldInfo

from unmask.api.options import FUNCTION_OPTIONS, OPTIONS, MethodOptions
from unmask.base.errors import ConfigError, require
from unmask.base.options import Options, parse_policy_spec, parse_settings
from unmask.cli.progress import show_loading

if TYPE_CHECKING:  # `unmask generate --help` and the Tab key must not wait for torch.
    from unmask.api import Model
    from unmask.lab.cluster import Executor, Ray

# Names that the Tab key completes. Their tables need torch, which takes seconds to load; a test compares the two.
MODEL_NAMES = ("mini", "mini-dream", "exact", "llada", "llada-1.5", "dream", "masked-lm")
# fmt: off
METHOD_NAMES = (
    "llada", "fast-dllm", "fast-dllm-dream", "klass", "eb-sampler", "dos", "dus", "dsb", "swordsman", "dcd", "vsb",
    "remdm", "remdm-llada", "wino", "core", "info-gain", "lookum", "soar", "order-token-search", "medal", "demask",
    "ddpd", "p2", "dream", "best-of", "revised", "fixed", "composed",
)
# fmt: on


def complete_model(incomplete: str) -> list[str]:
    """Return the models whose names begin so."""
    return [name for name in MODEL_NAMES if name.startswith(incomplete)]


def complete_method(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return what `--policy` of a command takes and begins so."""
    more = ("all", "reference") if ctx.info_name == "compare" else ("selective",)
    return [name for name in (*METHOD_NAMES, *more) if name.startswith(incomplete)]


def complete_task(incomplete: str) -> list[str]:
    """Return the tasks whose names begin so."""
    from unmask.tasks import CONTROLS, TASKS

    return [name for name in (*TASKS, *CONTROLS, "constructed", "all") if name.startswith(incomplete)]


ModelName = Annotated[
    str,
    typer.Option(
        "--model", "-m", help="A name of `unmask models`, a hub id or a folder.", autocompletion=complete_model
    ),
]
DataDir = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Official data files. Default: $UNMASK_DATA, else the hub.")
]
SandboxWorkers = Annotated[
    int | None, typer.Option(min=1, help="Programs run side by side (HumanEval). Default: all cores.")
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output and nothing else on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, and only the shortest output.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="A setting of the policy, e.g. `block_length=4`, `alg=origin`. Repeatable."
    ),
]

PYTHON_ONLY = ("planner", "record", "on_step", "macro_without", "warm_up")
"""Fields without a flag: they take objects, or serve those who write experiments in Python."""
POLICY_HELP = (
    "Which method; `unmask methods` lists them; `selective` takes a --gate. Or a class of your own, whose code runs: "
    "path.py:Class or package.module:Class. Settings may follow, :KEY=VALUE,... Default: the model's reference."
)
FLAGS: dict[str, dict[str, Any]] = {
    "policy": {"flags": ("--policy", "-p"), "metavar": "NAME[:KEY=VALUE,...]", "autocompletion": complete_method},
    "quiet": {"flags": ("--quiet", "-q")},
    "watch": {"flags": ("--watch", "-w")},
    "save": {"metavar": "FILE.npz"},
    "task": {"metavar": "NAME", "autocompletion": complete_task},
    "preset": {"metavar": "TASK"},
    "gate": {"type": Path | None, "metavar": "FILE.json"},
    "scorer": {"metavar": "RULE"},
    "published": {"metavar": "NAME"},
    "fixed_by": {"metavar": "HOW"},
    "guarantee": {"metavar": "RISK"},
    "work_dir": {"metavar": "FOLDER"},
    "data_dir": {"metavar": "FOLDER"},
    "policies_from": {"metavar": "FILE"},
    "model_option": {"metavar": "KEY=VALUE"},
    "ray": {"metavar": "local|auto|HOST:PORT"},
}
"""What a field cannot say about its flag. Everything else comes from its name, type, default and description."""


class LoadOptions(Options):
    """How a model is loaded."""

    model_option: tuple[str, ...] = Field(
        (), description="An option of the model, e.g. `n=6` of exact; `unmask models` lists them. Repeatable."
    )
    device: str | None = Field(None, description="cpu, cuda, cuda:1, ...; default: a GPU if there is one.")
    dtype: str | None = Field(None, description="bf16, fp16 or fp32; default: bf16 on a GPU, fp32 on a CPU.")

    @property
    def keywords(self) -> dict[str, Any]:
        """Keywords of `unmask.load`."""
        chosen = parse_settings(self.model_option, "--model-option", lists=("accept",))
        for key, value in (("device", self.device), ("dtype", self.dtype)):
            if value is not None:
                both = f"--{key} and --model-option {key}=... are both given; allowed: one of them; drop one"
                if key in chosen:
                    raise ConfigError(both)
                chosen[key] = value
        return chosen

    def load(self, name: str) -> "Model":
        """Load a model, with a bar that counts the bytes."""
        from unmask.api.load import load

        with show_loading() as on_progress:
            return load(name, on_progress=on_progress, **self.keywords)


class ClusterOptions(Options):
    """Where the work runs: here, or on a Ray cluster."""

    ray: str | None = Field(
        None,
        description="Run on a Ray cluster: `local` starts one on this machine and stops it at the end; auto or "
        "HOST:PORT names a running one. See docs/cluster.md.",
    )
    workers: int | None = Field(None, description="Workers at most. Default: as many as fit.")
    gpus_per_worker: float | None = Field(None, description="GPUs of a worker. Default: one where the cluster has any.")

    @property
    def cluster(self) -> "Ray | None":
        """The cluster; None for this process. Options of a cluster are refused without one."""
        from unmask.lab.cluster import Ray

        if self.ray is None:
            for name, value in {"--workers": self.workers, "--gpus-per-worker": self.gpus_per_worker}.items():
                require(value is None, name, value, "nothing without --ray", "add --ray local, or leave it out")
            return None
        address = None if self.ray == "local" else self.ray
        return Ray(address=address, gpus_per_worker=self.gpus_per_worker, workers=self.workers)

    @contextmanager
    def open_model(self, load: LoadOptions, name: str) -> "Iterator[tuple[Model, Executor | None]]":
        """Open a model of this process; or one without its network, and the workers of a cluster that have it."""
        from unmask.api.load import load as load_on_cluster

        cluster = self.cluster
        if cluster is None:
            yield load.load(name), None
            return
        with load_on_cluster(name, cluster=cluster, **load.keywords) as model:
            yield model.here, model.executor


class ComposeOptions(Options):
    """A policy put together from one rule for each axis."""

    score: str | None = Field(
        None,
        description="Compose a policy: confidence, margin, certainty, stability, dependency, uniform, entropy, random, "
        "or a mixture such as `confidence+margin`, `0.7*confidence+0.3*margin`.",
    )
    region: str | None = Field(
        None,
        description="full, block:N, last-block:N, window:N, dilated:N, near:N, groups:N (DUS), sliding:N[:LONGEST] "
        "(DSB) or masks:N[:LONGEST] (DCD).",
    )
    cardinality: str | None = Field(
        None,
        description="schedule, quota (LLaDA), count:K, share:X; above:X, factor:F (Fast-dLLM), eb:GAMMA (EB-Sampler) "
        "or all, which --steps does not bound.",
    )
    commitment: str | None = Field(
        None,
        description="all, none, confidence:X, margin:X, remdm-cap, remdm-rescale, remdm-conf, remdm-loop (each with "
        ":ETA), or both: `confidence:0.9+remdm-conf`.",
    )

    def merge_rules(self, policy: str | None, settings: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
        """Return policy and settings with the rules, which go neither with another policy nor with its settings."""
        rules = {axis: rule for axis, rule in self if rule is not None}
        if not rules:
            return policy, dict(settings)
        names = ", ".join(f"--{axis}" for axis in rules)
        if policy is not None and parse_policy_spec(policy)[0] != "composed":
            raise ConfigError(
                f"--policy {policy!r} and {names} are both given; allowed: a policy, or rules that compose one; drop "
                "either"
            )
        if settings:
            raise ConfigError(
                f"--set {', '.join(settings)} and {names} are both given; allowed: --set with --policy; drop either"
            )
        return policy or "composed", rules


def options_as_flags(function: Callable[..., None]) -> Callable[..., None]:
    """Make a command of a function: each parameter that is a class of `Options` becomes a flag for every field."""
    parameters = inspect.signature(function).parameters
    flags_of = {
        name: _make_flags(p.annotation, function.__name__)
        for name, p in parameters.items()
        if isinstance(p.annotation, type) and issubclass(p.annotation, Options)
    }

    def command(**given: Any) -> None:
        for name, flags in flags_of.items():
            values = {flag.name: given.pop(flag.name) for flag in flags}
            given[name] = _read_options(parameters[name].annotation, values)
        function(**given)

    signature = [flag for name, p in parameters.items() for flag in flags_of.get(name, [p])]
    command.__dict__["__signature__"] = Signature([p.replace(kind=Parameter.KEYWORD_ONLY) for p in signature])
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    return command


def _make_flags(kind: type[Options], command: str) -> list[Parameter]:
    names = list(kind.model_fields)
    if issubclass(kind, MethodOptions):
        names = list(FUNCTION_OPTIONS["log_likelihood" if command == "likelihood" else command])
    flags = [_make_flag(name, kind.model_fields[name], command) for name in names if name not in PYTHON_ONLY]
    if issubclass(kind, MethodOptions):
        # Settings of the policy, which are extra fields of these options.
        flags.insert(1, Parameter("settings", Parameter.KEYWORD_ONLY, default=None, annotation=Settings))
    return flags


def _make_flag(name: str, field: FieldInfo, command: str) -> Parameter:
    extra = {**FLAGS.get(name, {})}
    hint: Any = extra.pop("type", field.annotation)
    default = Parameter.empty if field.is_required() else field.default
    help_text = field.description
    if name == "policy" and hint is Any:
        hint, help_text = str | None, POLICY_HELP
    elif get_origin(hint) is tuple:
        hint, default = list[str] | None, None  # A flag that may be repeated.
    elif get_origin(hint) is Literal:
        hint = str  # Checked by the options, in their wording.
    elif Path in get_args(hint):
        hint = Path | None
    elif name == "task":
        hint = str
    # Without a name of its own a truth value would get a second flag, --no-...
    flags = extra.pop("flags", (f"--{name.strip('_').replace('_', '-')}",))
    if name == "max_new_tokens" and command == "generate":
        flags = (*flags, "--gen-length")  # LLaDA's name
    option = typer.Option(*flags, help=help_text, **extra)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[hint, option])


def _read_options(kind: type[Options], values: dict[str, Any]) -> Options:
    """Check the values of the flags of one class."""
    settings = parse_settings(values.pop("settings", None))
    for key in settings:
        if key in OPTIONS or key in kind.model_fields:
            raise ConfigError(
                f"--set {key}=... names no setting of a policy; allowed: what `unmask methods` lists; "
                f"see whether there is an option --{key.replace('_', '-')}"
            )
    repeated = {name for name, field in kind.model_fields.items() if get_origin(field.annotation) is tuple}
    given = {name: value for name, value in values.items() if not (name in repeated and value is None)}
    return kind(**{name: tuple(value) if name in repeated else value for name, value in given.items()}, **settings)
