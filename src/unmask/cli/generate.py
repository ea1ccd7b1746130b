"""`unmask generate` and `unmask infill`: prompts, or texts with blanks, decoded by any method."""

import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unmask.api.options import DecodeOptions, MethodOptions
from unmask.base.errors import ConfigError, UnmaskError, require
from unmask.cli.completion import models
from unmask.cli.options import ComposeOptions, Json, LoadOptions, options_as_flags, policy_of
from unmask.cli.progress import note
from unmask.report.console import Console, say, say_json

if TYPE_CHECKING:
    from rich.text import Text

    from unmask.api import Generation, Model

ModelName = Annotated[
    str, typer.Option("--model", "-m", help="Which model; `unmask models` lists them.", autocompletion=models)
]


@dataclass(frozen=True, kw_only=True)
class LoadAnyOptions(LoadOptions):
    """The same for a model that need not be a network."""

    model_option: Annotated[
        list[str] | None,
        typer.Option("--model-option", metavar="KEY=VALUE", help="An option of the model, e.g. `n=6`. Repeatable."),
    ] = None
    device: Annotated[
        str | None, typer.Option(help="Where a checkpoint runs: cpu, cuda, cuda:1, ...; default: a GPU.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class ShowOptions:
    """Where results go."""

    save: Annotated[
        Path | None, typer.Option(metavar="FILE.npz", help="Keep every step: Model.branch goes on from any of them.")
    ] = None
    json: Json = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the texts, one per line.")] = False
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show the canvases as they fill in.")] = False
    delay: Annotated[float, typer.Option(min=0.0, help="Seconds between two steps under --watch.")] = 0.15

    def run(
        self, model: "Model", decode: Callable[[Any], "Generation"], policy: Any, prompts: Sequence[str] = ()
    ) -> None:
        """Decode, show and save; `prompts` are those of the rows as they were typed, where they are no part of them."""
        self._check()
        with self._watching(model, prompts) as watching, warnings.catch_warnings():
            # Said below, without a line of source.
            warnings.filterwarnings("ignore", "the gate was calibrated")
            with blaming(policy):
                done = decode(watching)
        for remark in done.config.get("warnings", ()):
            note(f"warning: {remark}")
        if self.save is not None:
            try:
                done.trajectory.save(self.save)
            except OSError as error:
                raise ConfigError(
                    f"--save {str(self.save)!r} cannot be written ({error.strerror}); choose another"
                ) from error
        if self.json:
            say_json(done.to_json())
        elif self.quiet:
            say("\n".join(self._texts(model, done)))
        else:
            self._pretty(model, done)

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

    def _texts(self, model: "Model", done: "Generation") -> Sequence[str]:
        """What was decoded, as plain text."""
        return done.texts

    def _shown(self, model: "Model", done: "Generation", console: Console) -> "list[Text]":
        """The same for people."""
        from rich.text import Text

        return [Text(text, "bold") for text in done.texts]

    def _watching(self, model: "Model", prompts: Sequence[str]) -> Any:
        if not self.watch:
            return nullcontext()
        from unmask.report.terminal import DecodeScreen

        # Under --json and --quiet stdout belongs to the result.
        console = Console(stderr=self.json or self.quiet)
        fillers = model.denoiser.vocabulary.eos_ids
        return DecodeScreen(model.codec, console, self.delay, prompts=prompts, fillers=fillers)

    def _pretty(self, model: "Model", done: "Generation") -> None:
        """The answer first: how it was made comes after it."""
        from unmask.adapt import coverage
        from unmask.report.terminal import named, results

        console = Console()
        rows = done.config["rows"]
        taken = done.trajectory.state.step_B.tolist()
        texts = self._shown(model, done, console)
        console.print(results([row["prompt"] for row in rows], texts, taken, done.row_forwards))
        console.print()
        console.print(_spent(done), highlight=False)
        for name, covered in (coverage(done.trajectory) if "gate" in done.config else {}).items():
            deviated, evaluated = int(covered.deviated_B.sum()), int(covered.evaluated_B.sum())
            console.print(f"{name} adapted on {deviated} of {evaluated} steps with a signal", highlight=False)
        console.print()
        console.print(named(_compact(done)))
        if self.save is not None:
            console.print(f"\nevery step is in {self.save}", highlight=False, soft_wrap=True)


@dataclass(frozen=True, kw_only=True)
class InfillShowOptions(ShowOptions):
    """The same for a text of which parts were filled in: on a terminal they are underlined."""

    mark: Annotated[bool, typer.Option("--mark", help="Put [[ ]] around what was filled in, in a pipe too.")] = False

    def _texts(self, model: "Model", done: "Generation") -> Sequence[str]:
        if not self.mark:
            return done.texts
        return ["".join(f"[[{text}]]" if new else text for text, new in row) for row in _filled(model, done)]

    def _shown(self, model: "Model", done: "Generation", console: Console) -> "list[Text]":
        from rich.text import Text

        if self.mark or not console.is_terminal:
            return [Text(text, "bold") for text in self._texts(model, done)]
        styles = {True: "bold underline", False: ""}
        return [Text.assemble(*((text, styles[new]) for text, new in row)) for row in _filled(model, done)]


@options_as_flags
def generate(
    text: Annotated[
        list[str] | None, typer.Argument(metavar="[PROMPT]...", help="What to answer. Default: the model's own prompt.")
    ] = None,
    prompt: Annotated[
        list[str] | None, typer.Option("--prompt", metavar="TEXT", help="The same as an option. Repeatable.")
    ] = None,
    prompt_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A file with one prompt per line, or FILE.jsonl with a `prompt` in each line; - reads stdin.",
        ),
    ] = None,
    model: ModelName = "mini",
    *,
    load: LoadAnyOptions,
    options: DecodeOptions,
    compose: ComposeOptions,
    show: ShowOptions,
) -> None:
    """Continue one or more prompts.

    The answer starts as masked positions. At every step the model predicts all of them, and the policy decides
    which to reveal; after --steps steps none is left, or when it says so (`unmask methods show`).

    \b
    Examples:
      unmask generate --prompt ab --steps 3 --watch
      unmask generate --policy dream --set alg=topk_margin --temperature 0.7 --samples 4
      unmask generate --policy fixed --set 'kappa=above:0.9' --model-option n=10 --model-option vocab=3
      unmask generate --score margin --region block:32 --cardinality eb:0.1 --commitment remdm-conf
      unmask generate --policy klass --preset gsm8k --set threshold=0.8
      unmask generate --policy selective --gate gate.json
      unmask generate --policy mine.py:SureOrOne:threshold=0.8
      unmask generate --prompt-file prompts.txt --json > answers.json
    """
    keywords = method_keywords(options, compose)
    prompts = _prompts([*(text or []), *(prompt or [])], prompt_file)
    loaded = load.load(model)
    asked = [one for one in prompts or [loaded.default_prompt] for _ in range(max(options.samples, 0))]
    show.run(
        loaded, lambda on_step: loaded.generate(prompts, on_step=on_step, **keywords), keywords.get("policy"), asked
    )


@options_as_flags
def infill(
    text: Annotated[
        list[str], typer.Argument(metavar="TEXT", help="Text with a `_` or `[MASK]` for each missing token.")
    ],
    model: ModelName = "mini",
    *,
    load: LoadAnyOptions,
    options: DecodeOptions,
    compose: ComposeOptions,
    show: InfillShowOptions,
) -> None:
    """Fill the blanks of one or more texts.

    \b
    Examples:
      unmask infill 'ab__[MASK]d'
      unmask infill 'ab__[MASK]d' --quiet --mark
      unmask infill 'ab____d' --policy wino --set block_length=4 --watch
    """
    keywords = method_keywords(options, compose)
    loaded = load.load(model)
    show.run(loaded, lambda on_step: loaded.infill(text, on_step=on_step, **keywords), keywords.get("policy"))


def method_keywords(options: MethodOptions, compose: ComposeOptions | None = None) -> dict[str, Any]:
    """The options as keywords of a model's functions, with the policy made: before a model is read for nothing."""
    from unmask.api import SELECTIVE
    from unmask.methods import ANY_FAMILY, METHODS, find_preset, make_policy, split_policy

    text, settings = options.policy, options.settings
    if compose is not None:
        text, settings = compose.merge_rules(text, settings)
    keywords = {name: value for name, value in options if value is not None and name not in options.settings}
    # With a gate the text names the reference that the gate was calibrated around.
    if text is None or text == SELECTIVE:
        return keywords | settings
    name, given = split_policy(text, settings, also=[SELECTIVE])
    if options.preset is None and "preset" not in given:
        return keywords | {"policy": policy_of(text, settings, also=[SELECTIVE])}
    # Which family's preset it is, the model says.
    inner = given.pop("preset", None)
    if options.preset is not None and inner is not None:
        raise ConfigError("the preset is given twice, in --policy and with --preset; allowed: once; drop one")
    preset = str(inner) if options.preset is None else options.preset
    if name not in METHODS:
        raise ConfigError(f"--preset {preset!r} goes with a method of `unmask methods`, not with {name}; leave it out")
    published = find_preset(name, preset, ANY_FAMILY)[1]
    make_policy(name, **{**published, **given})  # for its checks
    return {**keywords, "policy": name, "preset": preset, **given}


@contextmanager
def blaming(policy: Any) -> Iterator[None]:
    """Say of an error in somebody's own policy whose it is, and where it happened."""
    try:
        yield
    except Exception as error:
        from unmask.base.user_code import describe_error, innermost_frame, is_shipped

        kind = type(policy)
        if policy is None or isinstance(policy, str) or is_shipped(kind) or isinstance(error, ConfigError):
            raise
        frame = innermost_frame(error, kind)
        if frame is None and not isinstance(error, UnmaskError):
            raise
        where = f" in {frame.name}, line {frame.lineno} of {frame.filename}" if frame else ""
        raise ConfigError(
            f"the policy {policy.name} ({kind.__qualname__}) failed{where}: {describe_error(error)}; correct it "
            "(`unmask --debug ...` shows the traceback)"
        ) from error


def _filled(model: "Model", done: "Generation") -> "list[list[tuple[str, bool]]]":
    """Each row's text in parts, and whether a part was filled in."""
    from unmask.report.terminal import text_parts

    free = done.trajectory.state.answer_BL.tolist()
    return [
        text_parts(model.codec, tokens, free_L[: len(tokens)]) for tokens, free_L in zip(done.tokens, free, strict=True)
    ]


def _spent(done: "Generation") -> str:
    """What it cost, and of how many tokens; positions that only fill the canvas up are said apart."""
    cost, written = done.cost, sum(done.answer_tokens)
    filler = f" (and {cost.tokens - written} positions of filler)" if cost.tokens > written else ""
    return (
        f"{_number(written, 'token')} of answer{filler}, {_number(cost.forwards, 'forward')} ({cost.extra_forwards} "
        f"extra): {done.tokens_per_forward:.2f} tokens per forward, {_number(cost.remasks, 're-mask')}, "
        f"{_number(cost.processed_tokens, 'token')} read"
    )


def _number(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _compact(done: "Generation") -> dict[str, str]:
    """The resolved configuration in a few lines; --json has all of it."""
    from unmask.report.terminal import settings_line

    config = done.config

    def line(part: Mapping[str, Any]) -> str:
        return f"{part['name']}  {settings_line({k: v for k, v in part.items() if k != 'name'})}"

    keep = ("cfg_scale", "eos_fill", "seed", "samples")
    steps = sorted({row["steps"] for row in config["rows"]})
    does = "set a schedule, but do not end the run" if done.policy.steps != "ignore" else "change nothing"
    free = "" if done.policy.steps == "end" else f" (steps {does}: {done.policy.name} goes on until all is filled)"
    run = settings_line({"steps": steps[0] if len(steps) == 1 else steps, **{k: config[k] for k in keep}})
    cache = {"cache": f"APPROXIMATE  {settings_line(config['approximate'])}"} if config["approximate"] else {}
    return {
        "model": line(config["model"]),
        "policy": line(config["policy"]),
        **_standing(done.policy, config["method"]["label"]),
        **(
            {"preset": f"{config['preset']}  (the method's settings alone, not the run's)"}
            if "preset" in config
            else {}
        ),
        **({"action": action_line(config["action"])} if "action" in config else {}),
        **({"gate": settings_line(_gate_line(config["gate"]))} if "gate" in config else {}),
        "proposal": settings_line(config["proposal"]),
        **cache,
        "run": run + free + (" (no prompt given: the model's own)" if config["default_prompt"] else ""),
    }


def _standing(policy: Any, label: str) -> dict[str, str]:
    """What has to be said of a method that was not checked against its authors' code."""
    from unmask.base.user_code import is_shipped

    if label == "own" and is_shipped(type(policy)):
        return {}  # a gate around a method
    words = {
        "reconstruction": "reconstruction: parts are ours, or untested against its authors' files; say so with results",
        "this library": "this library's own, not a published method",
        "own": "own code, not of this library",
    }
    return {"label": words[label]} if label in words else {}


def action_line(action: Mapping[str, Mapping[str, Any]]) -> str:
    """The four axes on a line, each with its rule and parameters."""
    from unmask.report.terminal import settings_line

    def rule(part: Mapping[str, Any]) -> str:
        shown = {k: v for k, v in part.items() if k not in ("rule", "within_steps") and v is not None and v != {}}
        return " ".join(filter(None, (part["rule"], settings_line(shown))))

    return " | ".join(f"{axis} {rule(part)}" for axis, part in action.items())


def _gate_line(gate: Mapping[str, Any]) -> dict[str, Any]:
    """Which gate it is, where it opens and what to expect of it."""
    keep = ("axis", "fixed", "tau", "task", "forced")
    lift = gate["lift"]
    expected = f"{lift['value']:+.4f} [{lift['low']:+.4f}, {lift['high']:+.4f}]"
    line = {"hash": gate["hash"][:12], **{key: gate[key] for key in keep}, "lift": expected}
    if "guarantee" not in gate:
        return line
    held = gate["guarantee"]
    return line | {"guarantee": f"{1 - held['risk']:g}", "margin": held["margin"], "n": held["tested"]}


def _prompts(given: list[str] | None, file: Path | None) -> list[Any] | None:
    """None if there are none: the model has its own."""
    if file is None:
        return given or None
    if given:
        raise ConfigError("prompts and --prompt-file are both given; allowed: one of them; drop one")
    try:
        # A mark that some editors put before a text is no part of the first prompt.
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(
            f"--prompt-file {str(file)!r} cannot be read ({reason}); allowed: a text file with one prompt per line; "
            "check the path"
        ) from error
    if not text.strip():
        raise ConfigError(f"--prompt-file {str(file)!r} is empty; allowed: one prompt per line; write one into it")
    lines = text.rstrip("\n").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line:
            raise ConfigError(
                f"line {number} of --prompt-file {str(file)!r} is empty; allowed: one prompt per line; remove the line"
            )
    if file.suffix != ".jsonl":
        return lines
    return [_json_prompt(line, f"line {number} of --prompt-file {str(file)!r}") for number, line in enumerate(lines, 1)]


def _json_prompt(line: str, where: str) -> Any:
    """Read the prompt of a JSON line: a text, or an object with a `prompt`, which is a text or a conversation."""
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{where} is no JSON ({error}); allowed: a text, or an object with a prompt") from error
    prompt = row.get("prompt") if isinstance(row, dict) else row
    require(isinstance(prompt, str | list), where, line, "a text, or an object with a prompt", "name the field so")
    return prompt
