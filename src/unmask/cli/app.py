"""The command line. Everything it prints on request goes to stdout; errors are one line on stderr."""

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unmask import __version__
from unmask.cli.calibrate import calibrate
from unmask.cli.compare import compare
from unmask.cli.options import Dtype, load_model, pairs
from unmask.cli.study import study
from unmask.cli.tasks import tasks
from unmask.cli.train import train
from unmask.errors import ConfigError, UnmaskError
from unmask.report.console import Console, PipeClosed, progress, say

if TYPE_CHECKING:
    from unmask.api import Generation, Model

# Some CPUs, often virtual ones, advertise AMX without letting programs use it; a bf16 matrix product then dies with
# an illegal instruction. oneDNN stops at plain AVX-512 if told so before torch is imported, which happens below,
# inside the commands: `unmask --help` should not wait for torch.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

# What typer raises for a command line that makes no sense; only its subclasses have public names.
_UsageError: Any = typer.BadParameter.__bases__[0]

OK, UNEXPECTED, REFUSED, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 130, 141

app = typer.Typer(
    name="unmask",
    help="Decode masked diffusion language models with published unmasking methods.\n\n\b\nStart with:\n"
    "  unmask generate --watch         decode something and look on\n"
    "  unmask demo --out out/demo      compare the methods; the report goes to out/demo\n",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(tasks, name="tasks")
app.add_typer(study, name="study")
app.command()(compare)
app.command()(calibrate)
app.command()(train)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in takewhile(lambda argument: argument.startswith("-"), arguments)
    try:
        code = app(arguments or ["--help"], prog_name="unmask", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else OK
    except _UsageError as error:
        return _complain(f"{error.format_message()} (--help shows what is allowed)", debug, REFUSED)
    except UnmaskError as error:
        return _complain(str(error), debug, REFUSED)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except (PipeClosed, BrokenPipeError):
        # Or the interpreter would try to flush once more as it ends, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except Exception as error:
        return _complain(
            f"unexpected {type(error).__name__}: {error} (`unmask --debug ...` tells more)", debug, UNEXPECTED
        )


def _complain(message: str, debug: bool, code: int) -> int:
    if debug:
        traceback.print_exc()
    print("error:", " ".join(message.split()), file=sys.stderr)
    return code


def _version(wanted: bool) -> None:
    if wanted:
        say(f"unmask {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback with every error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    """Options of every command."""


# One name for every option that `generate` and `infill` share.
ModelName = Annotated[str, typer.Option("--model", "-m", help="Which model; `unmask models` lists them.")]
ModelOptions = Annotated[
    list[str] | None,
    typer.Option("--model-option", metavar="KEY=VALUE", help="An option of the model, e.g. `n=6`. Repeatable."),
]
Device = Annotated[str | None, typer.Option(help="Where a checkpoint runs: cpu, cuda, cuda:1, ...; default: a GPU.")]
PolicyName = Annotated[
    str | None,
    typer.Option(
        "--policy",
        "-p",
        help="Which method; `unmask methods` lists them; `selective` takes a --gate. Default: the model's reference.",
    ),
]
PolicySettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="A setting of the policy, e.g. `block_length=4`, `alg=origin`. Repeatable."
    ),
]
Steps = Annotated[
    int | None, typer.Option(help="Denoising steps. Default: half the number of masked positions, rounded up.")
]
Seed = Annotated[int, typer.Option(help="Seed of all random numbers.")]
Samples = Annotated[int, typer.Option(help="Answers per prompt; they differ if anything is drawn at random.")]
Temperature = Annotated[float, typer.Option(help="0 takes the most probable token, above 0 draws one.")]
TopP = Annotated[
    float, typer.Option(help="Nucleus filter: for drawn tokens, and for the scores of dream at any temperature.")
]
TopK = Annotated[int, typer.Option(help="Top-k filter, 0 for none; acts like --top-p.")]
Sampler = Annotated[
    str, typer.Option(help="How tokens are drawn above temperature 0: `inverse`, or `gumbel` as LLaDA's own loop.")
]
CfgScale = Annotated[float, typer.Option(help="Classifier-free guidance, two forwards per step; 0 for none.")]
EosFill = Annotated[bool, typer.Option("--eos-fill", help="Once end of text is revealed, fill what follows with it.")]
LogitsEosInf = Annotated[bool, typer.Option("--logits-eos-inf", help="Never propose end of text.")]
ConfidenceEosEotInf = Annotated[
    bool, typer.Option("--confidence-eos-eot-inf", help="Reveal end of text and end of turn last.")
]
EosPenalty = Annotated[float, typer.Option(help="Subtracted from the logits of end of text and end of turn.")]
Cache = Annotated[
    str | None,
    typer.Option(help="Approximate: reuse keys and values outside the active block. `prefix` or `dual`, as Fast-dLLM."),
]
CacheRefresh = Annotated[int, typer.Option(help="A complete pass every so many of a block; 0 for one at its start.")]
GateFile = Annotated[
    Path | None,
    typer.Option("--gate", metavar="FILE.json", help="A calibrated gate, for `--policy selective`: when to deviate."),
]
ForceGate = Annotated[bool, typer.Option("--force-gate", help="Use a gate that was calibrated on another model.")]
Save = Annotated[
    Path | None, typer.Option(metavar="FILE.npz", help="Keep every step: read it with unmask.Trajectory.load.")
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output and nothing else on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only the texts, one per line.")]
WatchIt = Annotated[bool, typer.Option("--watch", "-w", help="Show the canvases as they fill in.")]
Delay = Annotated[float, typer.Option(min=0.0, help="Seconds between two steps under --watch.")]


@app.command()
def generate(
    text: Annotated[
        list[str] | None, typer.Argument(metavar="[PROMPT]...", help="What to answer. Default: the model's own prompt.")
    ] = None,
    prompt: Annotated[
        list[str] | None, typer.Option("--prompt", metavar="TEXT", help="The same as an option. Repeatable.")
    ] = None,
    prompt_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file with one prompt per line; - reads stdin.")
    ] = None,
    model: ModelName = "mini",
    model_option: ModelOptions = None,
    device: Device = None,
    dtype: Dtype = None,
    policy: PolicyName = None,
    set_: PolicySettings = None,
    max_new_tokens: Annotated[
        int | None,
        typer.Option("--max-new-tokens", "--gen-length", help="Tokens to add. Default: the model's own number."),
    ] = None,
    steps: Steps = None,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    top_k: TopK = 0,
    sampler: Sampler = "inverse",
    cfg_scale: CfgScale = 0.0,
    seed: Seed = 0,
    samples: Samples = 1,
    eos_fill: EosFill = False,
    logits_eos_inf: LogitsEosInf = False,
    confidence_eos_eot_inf: ConfidenceEosEotInf = False,
    eos_penalty: EosPenalty = 0.0,
    cache: Cache = None,
    cache_refresh: CacheRefresh = 0,
    gate: GateFile = None,
    force_gate: ForceGate = False,
    save: Save = None,
    json_: Json = False,
    quiet: Quiet = False,
    watch: WatchIt = False,
    delay: Delay = 0.15,
) -> None:
    """Continue one or more prompts.

    The answer starts as masked positions. At every step the model predicts all of them, and the policy decides
    which to reveal; after --steps steps none is left.

    \b
    Examples:
      unmask generate --prompt ab --steps 3 --watch
      unmask generate --policy dream --set alg=topk_margin --temperature 0.7 --samples 4
      unmask generate --policy fixed --set 'kappa=above:0.9' --model-option n=10 --model-option vocab=3
      unmask generate --policy selective --gate gate.json
      unmask generate --prompt-file prompts.txt --json > answers.json
    """
    show = _Show(save, json_, quiet, watch, delay)
    proposal = (temperature, top_p, top_k, sampler, logits_eos_inf, confidence_eos_eot_inf, eos_penalty)
    run = (steps, seed, samples, cfg_scale, eos_fill, cache, cache_refresh)
    chosen = _Chosen(policy, pairs("--set", set_), *run, *proposal, gate, force_gate)
    prompts = _prompts([*(text or []), *(prompt or [])], prompt_file)
    loaded = load_model(model, model_option, device=device, dtype=dtype)
    show.run(loaded, lambda on: loaded.generate(prompts, max_new_tokens=max_new_tokens, on_step=on, **chosen.keywords))


@app.command()
def infill(
    text: Annotated[
        list[str], typer.Argument(metavar="TEXT", help="Text with a `_` or `[MASK]` for each missing token.")
    ],
    model: ModelName = "mini",
    model_option: ModelOptions = None,
    device: Device = None,
    dtype: Dtype = None,
    policy: PolicyName = None,
    set_: PolicySettings = None,
    steps: Steps = None,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    top_k: TopK = 0,
    sampler: Sampler = "inverse",
    cfg_scale: CfgScale = 0.0,
    seed: Seed = 0,
    samples: Samples = 1,
    eos_fill: EosFill = False,
    logits_eos_inf: LogitsEosInf = False,
    confidence_eos_eot_inf: ConfidenceEosEotInf = False,
    eos_penalty: EosPenalty = 0.0,
    cache: Cache = None,
    cache_refresh: CacheRefresh = 0,
    gate: GateFile = None,
    force_gate: ForceGate = False,
    save: Save = None,
    json_: Json = False,
    quiet: Quiet = False,
    watch: WatchIt = False,
    delay: Delay = 0.15,
) -> None:
    """Fill the blanks of one or more texts.

    \b
    Examples:
      unmask infill 'ab__[MASK]d'
      unmask infill 'ab____d' --policy wino --set block_length=4 --watch
    """
    show = _Show(save, json_, quiet, watch, delay)
    proposal = (temperature, top_p, top_k, sampler, logits_eos_inf, confidence_eos_eot_inf, eos_penalty)
    run = (steps, seed, samples, cfg_scale, eos_fill, cache, cache_refresh)
    chosen = _Chosen(policy, pairs("--set", set_), *run, *proposal, gate, force_gate)
    loaded = load_model(model, model_option, device=device, dtype=dtype)
    show.run(loaded, lambda on: loaded.infill(text, on_step=on, **chosen.keywords))


@app.command()
def methods(json_: Json = False) -> None:
    """List the unmasking methods and their settings."""
    from unmask.policies import METHODS, make, settings
    from unmask.report.terminal import columns, entry, settings_line

    axes = ("score", "cardinality", "region", "commitment", "planning")
    found = [
        {
            "name": name,
            "source": method.source,
            "about": (method.policy.__doc__ or "").partition("\n")[0],
            **{axis: getattr(method, axis) for axis in axes},
            "settings": {key: value for key, value in settings(make(name)).items() if key != "name"},
        }
        for name, method in METHODS.items()
    ]
    if json_:
        say(json.dumps(found, indent=2))
        return
    console = Console()
    console.print(columns(("method", *axes), [[m["name"], *(m[axis] for axis in axes)] for m in found]))
    for m in found:
        console.print()
        console.print(entry(m["name"], m["source"], m["about"], f"--set {settings_line(m['settings'])}"))


@app.command()
def models(json_: Json = False) -> None:
    """List the models and their options."""
    from unmask.catalog import MODELS
    from unmask.report.terminal import entry, settings_line

    found: list[dict[str, Any]] = [
        {"name": name, "about": m.about, "status": m.status(), "options": asdict(m.options())}
        for name, m in MODELS.items()
    ]
    if json_:
        say(json.dumps(found, indent=2))
        return
    console = Console()
    for m in found:
        console.print(entry(m["name"], m["status"], m["about"], f"--model-option {settings_line(m['options'])}"))
        console.print()
    console.print("[dim]--model takes a hub id or a checkpoint folder, too.[/]")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the report goes; made if need be.")],
    problems: Annotated[int, typer.Option(min=1, help="Distributions per family of problems.")] = 6,
    seeds: Annotated[int, typer.Option(min=2, help="Runs of the policies that draw random numbers.")] = 16,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the paths of the files.")] = False,
) -> None:
    """Compare the methods and write a report.

    Every method decodes small problems whose best answers are known, so that what it gains and what it spends can be
    computed. It takes about half a minute.

    \b
    Example:
      unmask demo --out out/demo      then open out/demo/demo.html in a browser
    """
    from unmask.lab import CONTENDERS, run_demo
    from unmask.lab import problems as make_problems
    from unmask.report import files, terminal
    from unmask.report.demo.files import summarise, write

    # Refuse a folder that cannot be written to before the work, not after.
    files.folder(out)
    chosen = make_problems(problems)
    with progress("comparing", len(chosen) * len(CONTENDERS), quiet) as advance:
        comparison = run_demo(chosen, CONTENDERS, seeds=seeds, on_done=lambda problem, label: advance(problem.name))
    written = write(comparison, out)
    if not quiet:
        console = Console()
        console.print(terminal.comparison(summarise(comparison.rows)))
        console.print(
            "[dim]Expected utility: P(answer) / P(most probable answer), mean of "
            f"{len(chosen)} problems. * no other policy here does as well with fewer forwards, or better with as "
            "many.[/]"
        )
    for path in written.paths:
        say(str(path))


@dataclass(frozen=True)
class _Chosen:
    """The options that `generate` and `infill` hand on as they are."""

    policy: str | None
    settings: dict[str, Any]
    steps: int | None
    seed: int
    samples: int
    cfg_scale: float
    eos_fill: bool
    cache: str | None
    cache_refresh: int
    temperature: float
    top_p: float
    top_k: int
    sampler: str
    logits_eos_inf: bool
    confidence_eos_eot_inf: bool
    eos_penalty: float
    gate: Path | None
    force_gate: bool

    @property
    def keywords(self) -> dict[str, Any]:
        from unmask.api import OPTIONS

        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "settings"}
        for key in self.settings:
            if key in OPTIONS:
                raise ConfigError(
                    f"--set {key}=... names no setting of a policy; allowed: what `unmask methods` lists; "
                    f"see whether there is an option --{key.replace('_', '-')}"
                )
        return {**own, **self.settings}


@dataclass(frozen=True)
class _Show:
    """Where results go."""

    save: Path | None
    json: bool
    quiet: bool
    watch: bool
    delay: float

    def run(self, model: "Model", decode: Callable[[Any], "Generation"]) -> None:
        """Decode, show and save."""
        self._check()
        with self._watching(model) as watching:
            done = decode(watching)
        if self.save is not None:
            try:
                done.trajectory.save(self.save)
            except OSError as error:
                raise ConfigError(
                    f"--save {str(self.save)!r} cannot be written ({error.strerror}); choose another"
                ) from error
        if self.json:
            say(done.to_json())
        elif self.quiet:
            say("\n".join(done.texts))
        else:
            self._pretty(done)

    def _check(self) -> None:
        """Before the work, not after."""
        if self.save is None:
            return
        if self.save.is_dir():
            raise ConfigError(f"--save {str(self.save)!r} is a folder; allowed: a file; add a name such as run.npz")
        if not self.save.parent.is_dir():
            raise ConfigError(
                f"--save {str(self.save)!r} is in a folder that does not exist; allowed: an existing one; "
                f"make {str(self.save.parent)!r} first"
            )

    def _watching(self, model: "Model") -> Any:
        if not self.watch:
            return nullcontext()
        from unmask.report.terminal import DecodeScreen

        # Under --json and --quiet stdout belongs to the result.
        return DecodeScreen(model.codec, Console(stderr=self.json or self.quiet), self.delay)

    def _pretty(self, done: "Generation") -> None:
        from unmask.adapt import coverage
        from unmask.report.terminal import named, results

        console = Console()
        console.print(named(_compact(done.config)))
        console.print()
        rows = done.config["rows"]
        taken = done.trajectory.state.step_B.tolist()
        console.print(results([row["prompt"] for row in rows], done.texts, taken, done.row_forwards))
        console.print()
        tokens = sum(row["new_tokens"] for row in rows)
        console.print(
            f"{tokens} tokens, {done.forwards} forwards: {done.tokens_per_forward:.2f} tokens per forward",
            highlight=False,
        )
        for axis, found in (coverage(done.trajectory) if "gate" in done.config else {}).items():
            deviated, evaluated = int(found.deviated_B.sum()), int(found.evaluated_B.sum())
            console.print(f"{axis} adapted on {deviated} of {evaluated} steps with a signal", highlight=False)
        if self.save is not None:
            console.print(f"every step is in {self.save}", highlight=False, soft_wrap=True)


def _compact(config: Mapping[str, Any]) -> dict[str, str]:
    """The resolved configuration in a few lines; --json has all of it."""
    from unmask.report.terminal import settings_line

    def line(part: Mapping[str, Any]) -> str:
        return f"{part['name']}  {settings_line({k: v for k, v in part.items() if k != 'name'})}"

    keep = ("cfg_scale", "eos_fill", "seed", "samples")
    steps = sorted({row["steps"] for row in config["rows"]})
    run = settings_line({"steps": steps[0] if len(steps) == 1 else steps, **{k: config[k] for k in keep}})
    cache = {"cache": f"APPROXIMATE  {settings_line(config['approximate'])}"} if config["approximate"] else {}
    return {
        "model": line(config["model"]),
        "policy": line(config["policy"]),
        **({"gate": settings_line(_gate_line(config["gate"]))} if "gate" in config else {}),
        "proposal": settings_line(config["proposal"]),
        **cache,
        "run": run + (" (no prompt given: the model's own)" if config["default_prompt"] else ""),
    }


def _gate_line(gate: Mapping[str, Any]) -> dict[str, Any]:
    """Which gate it is, where it opens and what to expect of it."""
    keep = ("axis", "fixed", "tau", "task", "forced")
    lift = gate["lift"]
    expected = f"{lift['value']:+.4f} [{lift['low']:+.4f}, {lift['high']:+.4f}]"
    return {"hash": gate["hash"][:12], **{key: gate[key] for key in keep}, "lift": expected}


def _prompts(given: list[str] | None, file: Path | None) -> list[str] | None:
    """None if there are none: the model has its own."""
    if file is None:
        return given or None
    if given:
        raise ConfigError("prompts and --prompt-file are both given; allowed: one of them; drop one")
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(
            f"--prompt-file {str(file)!r} cannot be read ({reason}); allowed: a text file with one prompt per line; "
            "check the path"
        ) from error
    lines = text.rstrip("\n").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line:
            raise ConfigError(
                f"line {number} of --prompt-file {str(file)!r} is empty; allowed: one prompt per line; remove the line"
            )
    return lines
