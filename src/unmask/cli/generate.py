"""`unmask generate`, `infill` and `likelihood`: decode prompts, fill blanks, and say how probable texts are."""

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import Field
from rich.text import Text

from unmask.api.options import DecodeOptions, LikelihoodOptions, MethodOptions
from unmask.base.errors import ConfigError, UnmaskError, require
from unmask.base.files import format_path, os_error_text, read_file
from unmask.base.json_files import parse_json
from unmask.base.options import Options
from unmask.cli.options import ComposeOptions, Json, LoadOptions, ModelName, options_as_flags
from unmask.cli.terminal import (
    Console,
    DecodeScreen,
    make_name_table,
    make_table,
    print_json,
    print_note,
    print_text,
    spell_settings,
    split_filled_text,
)

if TYPE_CHECKING:  # `unmask generate --help` must not wait for torch.
    from unmask.api import Generation, Likelihoods, Model

SECONDS_PER_STEP = 0.15
"""Pause after each step under --watch, so that the eye can follow."""
LABELS = {
    "reconstruction": "reconstruction: parts are ours, or untested against its authors' files; say so with results",
    "this library": "this library's own, not a published method",
    "own": "own code, not of this library",
}
"""What has to be said of a method that was not checked against its authors' code."""


class OutputOptions(Options):
    """Where results go."""

    save: Path | None = Field(
        None, description="Keep every step in FILE.npz: `unmask view` shows it, Model.branch goes on from any step."
    )
    json_: bool = Field(False, description="Machine-readable output and nothing else on stdout.")
    quiet: bool = Field(False, description="Only the texts, one per line.")
    watch: bool = Field(False, description="Show the canvases as they fill in.")

    def check_place(self) -> None:
        """Refuse a file that cannot be written before the work, not after it."""
        if self.save is not None and self.save.is_dir():
            raise ConfigError(f"--save {str(self.save)!r} is a folder; allowed: a file; add a name such as run.npz")
        if self.save is not None and not self.save.parent.is_dir():
            raise ConfigError(
                f"--save {str(self.save)!r} is in a folder that does not exist; allowed: an existing one; "
                f"make {str(self.save.parent)!r} first"
            )


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
    load: LoadOptions,
    options: DecodeOptions,
    compose: ComposeOptions,
    output: OutputOptions,
) -> None:
    """Continue one or more prompts.

    The answer starts as masked positions. At every step the model predicts all of them, and the policy decides
    which to reveal; after --steps steps none is left, or when it says so (`unmask methods show`).

    \b
    Examples:
      unmask generate "Add 2 and 3." --watch
      unmask generate --policy dream --set alg=topk_margin --temperature 0.7 --samples 4
      unmask generate --model exact --model-option n=10 --policy fixed --set kappa=above:0.9
      unmask generate --score margin --region block:32 --cardinality eb:0.1 --commitment remdm-conf
      unmask generate --policy klass --preset gsm8k --set threshold=0.8
      unmask generate --policy selective --gate gate.json
      unmask generate --policy mine.py:SureOrOne:threshold=0.8
      unmask generate --prompt-file prompts.txt --json > answers.json
    """
    keywords = make_keywords(options, compose)
    output.check_place()
    prompts = _read_prompts([*(text or []), *(prompt or [])], prompt_file)
    loaded = load.load(model)
    shown = [one for one in prompts or [loaded.default_prompt] for _ in range(options.samples)]
    done = _decode(loaded, loaded.generate, prompts, keywords, output, shown)
    _show(done, output, [Text(answer, "bold") for answer in done.texts])


@options_as_flags
def infill(
    text: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXT",
            help="Text with [MASK] for each missing token, [MASK*N] for N of them. For the model exact `_`, too.",
        ),
    ],
    model: ModelName = "mini",
    *,
    load: LoadOptions,
    options: DecodeOptions,
    compose: ComposeOptions,
    output: OutputOptions,
) -> None:
    """Fill the blanks of one or more texts; on a terminal what was filled in is underlined.

    \b
    Examples:
      unmask infill 'Two and two is [MASK].'
      unmask infill --model exact 'ab__[MASK]d' --quiet
      unmask infill --model exact 'ab____d' --policy wino --set block_length=4 --watch
      unmask infill --model dream 'The capital of France is [MASK*2].'
    """
    keywords = make_keywords(options, compose)
    output.check_place()
    loaded = load.load(model)
    done = _decode(loaded, loaded.infill, text, keywords, output)
    free = done.trajectory.state.answer_BL.tolist()
    styles = {True: "bold underline", False: ""}
    texts = []
    for tokens, free_L in zip(done.tokens, free, strict=True):
        parts = split_filled_text(loaded.codec, tokens, free_L[: len(tokens)])
        texts.append(Text.assemble(*((part, styles[filled]) for part, filled in parts)))
    _show(done, output, texts)


@options_as_flags
def likelihood(
    text: Annotated[list[str] | None, typer.Argument(metavar="[TEXT]...", help="Texts to score.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", metavar="FILE", help='One text per line; of FILE.jsonl {"text": ..., "prompt": ...} per line.'
        ),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What every text answers. Default: nothing.")
    ] = None,
    model: ModelName = "mini",
    json: Json = False,
    *,
    options: LikelihoodOptions,
    load: LoadOptions,
) -> None:
    """Say how probable texts are: the exact log-likelihood under a method, and the perplexity of all.

    The method must choose positions without chance and keep what it reveals. The number is that of the method as a
    sampler: positions as it chooses them at temperature 0, tokens drawn there.

    \b
    Examples:
      unmask likelihood --model exact abcdabcd
      unmask likelihood "2 + 3 = 5" --policy fast-dllm --set threshold=0.8 --json
      unmask likelihood --file texts.txt --estimator monte-carlo --samples 256 --seed 1
      unmask likelihood --file texts.txt --estimator oracle --oracle-block 4
    """
    texts, prompts = _read_texts(text or [], file, prompt)
    keywords = make_keywords(options)
    loaded = load.load(model)
    with _blame_own_policy(keywords.get("policy")):
        found = loaded.log_likelihood(texts, prompt=prompts, **keywords)
    print_json(found.to_json()) if json else _show_likelihoods(found)


def make_keywords(options: MethodOptions, compose: ComposeOptions | None = None) -> dict[str, Any]:
    """Return the options as keywords of a model's functions. The policy is made, so that it is checked at once."""
    from unmask.api import SELECTIVE
    from unmask.methods import ANY_FAMILY, METHODS, find_preset, make_policy, parse_policy, split_policy

    text, settings = options.policy, options.settings
    if compose is not None:
        text, settings = compose.merge_rules(text, settings)
    keywords = {name: value for name, value in options if value is not None and name not in options.settings}
    # With a gate the text names the reference that the gate was calibrated around.
    if text is None or text == SELECTIVE:
        return keywords | settings
    name, given = split_policy(text, settings, also=[SELECTIVE])
    if options.preset is None and "preset" not in given:
        return keywords | {"policy": parse_policy(text, settings, [SELECTIVE])}
    inner = given.pop("preset", None)
    if options.preset is not None and inner is not None:
        raise ConfigError("the preset is given twice, in --policy and with --preset; allowed: once; drop one")
    preset = str(inner) if options.preset is None else options.preset
    if name not in METHODS:
        raise ConfigError(f"--preset {preset!r} goes with a method of `unmask methods`, not with {name}; leave it out")
    # The model's family picks among presets of one name, so the name is kept; this only checks the settings.
    make_policy(name, **{**find_preset(name, preset, ANY_FAMILY)[1], **given})
    return {**keywords, "policy": name, "preset": preset, **given}


# Prompts and texts


def _read_prompts(given: list[str], file: Path | None) -> list[Any] | None:
    """Return the prompts, or None where the model's own is to be used."""
    if file is None:
        return given or None
    if given:
        raise ConfigError("prompts and --prompt-file are both given; allowed: one of them; drop one")
    lines = _read_lines("--prompt-file", file, "prompt")
    if file.suffix != ".jsonl":
        return list(lines)
    prompts = []
    for number, line in enumerate(lines, start=1):
        where, row = _parse_line("--prompt-file", file, number, line)
        prompt = row.get("prompt") if isinstance(row, dict) else row
        allowed = "a text, or an object with a `prompt`: a text, or a conversation as a list of turns"
        require(isinstance(prompt, str | list), where, line, allowed, "name the field so")
        prompts.append(prompt)
    return prompts


def _read_texts(given: list[str], file: Path | None, prompt: str | None) -> tuple[list[str], Any]:
    """Return texts, and the prompt of all or a list with that of each."""
    if file is None:
        if not given:
            raise ConfigError("no text is given; allowed: texts, or --file FILE; pass one")
        return given, prompt
    if given:
        raise ConfigError("texts and --file are both given; allowed: one of them; drop one")
    lines = _read_lines("--file", file, "text")
    if file.suffix.lower() != ".jsonl":
        return lines, prompt
    rows = []
    for number, line in enumerate(lines, start=1):
        where, row = _parse_line("--file", file, number, line)
        ok = isinstance(row, dict) and "text" in row and set(row) <= {"text", "prompt"}
        ok = ok and all(isinstance(value, str) for value in row.values())
        require(ok, where, line, "an object with the texts `text` and, if there is one, `prompt`", "correct the line")
        rows.append(row)
    return [row["text"] for row in rows], [row.get("prompt", prompt) for row in rows]


def _read_lines(option: str, file: Path, what: str) -> list[str]:
    """Read a file with one prompt or text per line; `-` is stdin."""
    name, allowed = f"{option} {format_path(file)}", f"allowed: a text file with one {what} per line"
    try:
        # Some editors put a byte order mark at the start of a file.
        text = sys.stdin.read() if str(file) == "-" else read_file(file).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else os_error_text(error)
        raise ConfigError(f"{name} cannot be read ({reason}); {allowed}; check the path") from error
    if not text.strip():
        raise ConfigError(f"{name} is empty; {allowed}; write one into it")
    lines = [line.removesuffix("\r") for line in text.rstrip("\n").split("\n")]
    for number, line in enumerate(lines, start=1):
        if not line:
            raise ConfigError(f"line {number} of {name} is empty; {allowed}; remove the line")
    return lines


def _parse_line(option: str, file: Path, number: int, line: str) -> tuple[str, Any]:
    where = f"line {number} of {option} {format_path(file)}"
    try:
        return where, parse_json(line)
    except ValueError as error:
        raise ConfigError(f"{where} is no JSON ({error}); allowed: JSON in each line; correct the line") from error


# Decoding and its output


def _decode(
    model: "Model",
    function: Callable[..., "Generation"],
    texts: Sequence[Any] | None,
    keywords: Mapping[str, Any],
    output: OutputOptions,
    shown: Sequence[str] = (),
) -> "Generation":
    """Decode, draw the canvases if asked to, and save the run. `shown` are the prompts to draw above the answers."""
    screen: Any = nullcontext()
    if output.watch:
        # Under --json and --quiet stdout belongs to the result.
        console = Console(stderr=output.json_ or output.quiet)
        fillers = model.denoiser.vocabulary.eos_ids
        screen = DecodeScreen(model.codec, console, SECONDS_PER_STEP, prompts=shown, fillers=fillers)
    with screen as on_step, warnings.catch_warnings(), _blame_own_policy(keywords.get("policy")):
        # Printed below, without a line of source.
        warnings.filterwarnings("ignore", "the gate was calibrated")
        done = function(texts, on_step=on_step, **keywords)
    for remark in done.config.get("warnings", ()):
        print_note(f"warning: {remark}")
    if output.save is not None:
        try:
            done.trajectory.save(output.save)
        except OSError as error:
            raise ConfigError(
                f"--save {str(output.save)!r} cannot be written ({error.strerror}); choose another"
            ) from error
    return done


def _show(done: "Generation", output: OutputOptions, texts: Sequence[Text]) -> None:
    """Print a result: the answers first, then what they cost and how they were made."""
    from unmask.adapt import coverage

    if output.json_:
        print_json(done.to_json())
        return
    if output.quiet:
        print_text("\n".join(done.texts))
        return
    console = Console()
    rows = zip(done.config["rows"], texts, done.trajectory.state.step_B.tolist(), done.row_forwards, strict=True)
    cells: list[list[str | Text]] = [
        [str(at), row["prompt"], text, str(steps), str(cost)] for at, (row, text, steps, cost) in enumerate(rows)
    ]
    heads = ("row", "prompt", "text", "steps", "forwards")
    console.print(make_table(heads, cells, numbers=("row", "steps", "forwards")))
    console.print()
    console.print(_describe_cost(done), highlight=False)
    for name, covered in (coverage(done.trajectory) if "gate" in done.config else {}).items():
        deviated, evaluated = int(covered.deviated_B.sum()), int(covered.evaluated_B.sum())
        console.print(f"{name} adapted on {deviated} of {evaluated} steps with a signal", highlight=False)
    console.print()
    console.print(make_name_table(_summarise_config(done)))
    if output.save is not None:
        console.print(f"\nevery step is in {output.save}", highlight=False, soft_wrap=True)


@contextmanager
def _blame_own_policy(policy: Any) -> Iterator[None]:
    """Say of an error in a user's own policy which policy it is and where it happened."""
    try:
        yield
    except Exception as error:
        from unmask.base.user_code import describe_error, innermost_frame, is_shipped_code

        kind = type(policy)
        if policy is None or isinstance(policy, str) or is_shipped_code(kind) or isinstance(error, ConfigError):
            raise
        frame = innermost_frame(error, kind)
        if frame is None and not isinstance(error, UnmaskError):
            raise
        where = f" in {frame.name}, line {frame.lineno} of {frame.filename}" if frame else ""
        raise ConfigError(
            f"the policy {policy.name} ({kind.__qualname__}) failed{where}: {describe_error(error)}; correct it "
            "(`unmask --debug ...` shows the traceback)"
        ) from error


def _describe_cost(done: "Generation") -> str:
    """Return the cost in words; positions that only fill the canvas up are no tokens of the answer."""
    cost, tokens = done.cost, sum(done.answer_tokens)
    filler = f" (and {cost.tokens - tokens} positions of filler)" if cost.tokens > tokens else ""
    return (
        f"{_count(tokens, 'token')} of answer{filler}, {_count(cost.forwards, 'forward')} ({cost.extra_forwards} "
        f"extra): {done.tokens_per_forward:.2f} tokens per forward, {_count(cost.remasks, 're-mask')}, "
        f"{_count(cost.processed_tokens, 'token')} read"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _summarise_config(done: "Generation") -> dict[str, str]:
    """Return the resolved configuration in a few lines; --json has all of it."""
    from unmask.base.user_code import is_shipped_code

    config, policy = done.config, done.policy
    lines = {name: _describe_part(config[name]) for name in ("model", "policy")}
    label = config["method"]["label"]
    # A gate around a published method is labelled "own", but is no code of the user's.
    if label in LABELS and not (label == "own" and is_shipped_code(type(policy))):
        lines["label"] = LABELS[label]
    if "preset" in config:
        lines["preset"] = f"{config['preset']}  (the method's settings alone, not the run's)"
    if "action" in config:
        lines["action"] = " | ".join(f"{axis} {_describe_rule(part)}" for axis, part in config["action"].items())
    if "gate" in config:
        lines["gate"] = _describe_gate(config["gate"])
    lines["sampling"] = spell_settings(config["proposal"])  # stored name
    if config["approximate"]:
        lines["cache"] = f"APPROXIMATE  {spell_settings(config['approximate'])}"
    steps = sorted({row["steps"] for row in config["rows"]})
    kept = {name: config[name] for name in ("cfg_scale", "eos_fill", "seed", "samples")}
    lines["run"] = spell_settings({"steps": steps[0] if len(steps) == 1 else steps, **kept})
    if policy.steps != "end":
        effect = "set a schedule, but do not end the run" if policy.steps == "pace" else "change nothing"
        lines["run"] += f" (steps {effect}: {policy.name} goes on until all is filled)"
    if config["default_prompt"]:
        lines["run"] += " (no prompt given: the model's own)"
    return lines


def _describe_part(part: Mapping[str, Any]) -> str:
    return f"{part['name']}  {spell_settings({name: value for name, value in part.items() if name != 'name'})}"


def _describe_rule(part: Mapping[str, Any]) -> str:
    settings = {k: v for k, v in part.items() if k not in ("rule", "within_steps") and v is not None and v != {}}
    return f"{part['rule']} {spell_settings(settings)}".rstrip()


def _describe_gate(gate: Mapping[str, Any]) -> str:
    """Say which gate it is, where it opens and what to expect of it."""
    lift = gate["lift"]
    line = {"hash": gate["hash"][:12], **{key: gate[key] for key in ("axis", "fixed", "tau", "task", "forced")}}
    line["lift"] = f"{lift['value']:+.4f} [{lift['low']:+.4f}, {lift['high']:+.4f}]"
    if "guarantee" in gate:
        promise = gate["guarantee"]
        line |= {"guarantee": f"{1 - promise['risk']:g}", "margin": promise["margin"], "n": promise["tested"]}
    return spell_settings(line)


def _show_likelihoods(found: "Likelihoods") -> None:
    console = Console()
    console.print(found.quantity, highlight=False, soft_wrap=True)
    console.print()
    rows = []
    for row in found.rows:
        error = "-" if row.standard_error is None else f"{row.standard_error:.4f}"
        rows.append([
            f"{row.log_likelihood:.4f}",
            "exact" if row.standard_error is None and row.order else error,
            str(len(row.tokens)),
            f"{row.perplexity:.4f}",
            str(row.forwards),
            row.text if len(row.text) <= 40 else f"{row.text[:37]}...",
        ])  # fmt: skip
    console.print(make_table(("log-likelihood", "error", "tokens", "perplexity", "forwards", "text"), rows))
    console.print()
    whole = found.perplexity
    interval = f" [{whole.low:.4f}, {whole.high:.4f}]" if whole.low == whole.low else ""
    total = f"perplexity {whole.value:.4f}{interval} of {found.tokens} tokens, {_count(len(found.rows), 'text')}"
    console.print(total, highlight=False)
