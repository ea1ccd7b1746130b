"""`unmask score`: how probable texts are under a method, and the perplexity of a file."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unmask.base.errors import ConfigError, UnknownName
from unmask.base.files import format_path, os_error_text, read_file
from unmask.base.json_files import parse_json
from unmask.base.options import parse_settings
from unmask.cli.completion import methods
from unmask.cli.generate import LoadAnyOptions, ModelName, blaming
from unmask.cli.options import Json, expanded, policy_of
from unmask.report.console import Console, say_json

if TYPE_CHECKING:
    from unmask.api.likelihood import Likelihoods

_FIELDS = ({"text"}, {"text", "prompt"})


@dataclass(frozen=True, kw_only=True)
class QuantityOptions:
    """Which quantity, and how it is computed."""

    tokens_per_step: Annotated[int, typer.Option(help="Of the method's schedule; 1 is the usual perplexity.")] = 1
    temperature: Annotated[float, typer.Option(help="At which tokens are drawn; 1 is the model itself.")] = 1.0
    bound: Annotated[
        str,
        typer.Option(
            help="`exact` (DUEL); or without a method: `monte-carlo`, LLaDA's lower bound, estimated; `oracle`, the "
            "best order of the text's tokens."
        ),
    ] = "exact"
    samples: Annotated[
        int | None, typer.Option(help="Masked copies of a text, of --bound monte-carlo. [default: 128]")
    ] = None
    seed: Annotated[int, typer.Option(help="Of the masked copies, and of the interval.")] = 0
    oracle_block: Annotated[
        int | None, typer.Option(help="Tokens among which the order is looked for, of --bound oracle. [default: 4]")
    ] = None
    batch: Annotated[int, typer.Option(help="Canvases that go through the model together.")] = 16

    def settings(self) -> dict[str, Any]:
        """Keywords of `Model.log_likelihood`; options are refused where the quantity does not read them."""
        from unmask.api.likelihood import QUANTITIES

        if self.bound not in QUANTITIES:
            raise UnknownName("bound", self.bound, QUANTITIES)
        for name, bound in (("samples", "monte-carlo"), ("oracle_block", "oracle")):
            value = getattr(self, name)
            if value is not None and self.bound != bound:
                option = f"--{name.replace('_', '-')}"
                raise ConfigError(
                    f"{option} is {value} with --bound {self.bound}; allowed: with --bound {bound}; leave it out"
                )
        keywords = {"bound": "estimator", "batch": "batch_size"}
        return {keywords.get(name, name): value for name, value in asdict(self).items() if value is not None}


@expanded
def score(
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
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            "-p",
            help="The method whose likelihood it is. Default: the model's reference.",
            autocompletion=methods,
        ),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of the method. Repeatable.")
    ] = None,
    json: Json = False,
    *,
    quantity: QuantityOptions,
    load: LoadAnyOptions,
) -> None:
    """Say how probable texts are: the exact log-likelihood under a method, and the perplexity of all.

    The method must choose positions without chance and keep what it reveals. The number is that of the method as a
    sampler: positions as it chooses them at temperature 0, tokens drawn there.

    \b
    Examples:
      unmask score --model exact abcdabcd
      unmask score --file answers.jsonl --policy fast-dllm --set threshold=0.8 --json
      unmask score --file texts.txt --bound monte-carlo --samples 256 --seed 1
      unmask score --file texts.txt --bound oracle --oracle-block 4
    """
    texts, prompts = _texts(text or [], file, prompt)
    chosen: dict[str, Any] = {}
    if policy is not None:
        chosen["policy"] = policy_of(policy, parse_settings(set_))
    elif set_:
        raise ConfigError("--set is given without --policy; allowed: settings of a method; name it with --policy")
    settings = quantity.settings()
    loaded = load.load(model)
    with blaming(chosen.get("policy")):
        found = loaded.log_likelihood(texts, prompt=prompts, **settings, **chosen)
    say_json(found.to_json()) if json else _pretty(found)


def _pretty(found: "Likelihoods") -> None:
    from unmask.report.terminal import columns

    console = Console()
    console.print(found.quantity, highlight=False, soft_wrap=True)
    console.print()
    heads = ("log-likelihood", "error", "tokens", "perplexity", "forwards", "text")
    rows = [
        [
            f"{row.log_likelihood:.4f}",
            "exact" if row.standard_error is None and row.order else _number(row.standard_error),
            str(len(row.tokens)),
            f"{row.perplexity:.4f}",
            str(row.forwards),
            row.text if len(row.text) <= 40 else f"{row.text[:37]}...",
        ]
        for row in found.rows
    ]
    console.print(columns(heads, rows))
    console.print()
    whole = found.perplexity
    interval = f" [{whole.low:.4f}, {whole.high:.4f}]" if whole.low == whole.low else ""
    texts = "1 text" if len(found.rows) == 1 else f"{len(found.rows)} texts"
    console.print(f"perplexity {whole.value:.4f}{interval} of {found.tokens} tokens, {texts}", highlight=False)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _texts(given: list[str], file: Path | None, prompt: str | None) -> tuple[list[str], Any]:
    """Texts and the prompt of all, or of each."""
    if file is None:
        if not given:
            raise ConfigError("no text is given; allowed: texts, or --file FILE; pass one")
        return given, prompt
    if given:
        raise ConfigError("texts and --file are both given; allowed: one of them; drop one")
    try:
        lines = read_file(file).decode("utf-8-sig").rstrip("\n").split("\n")
    except (OSError, ValueError) as error:
        reason = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else os_error_text(error)
        raise ConfigError(
            f"--file {format_path(file)} cannot be read ({reason}); allowed: a file with one text per line; check it"
        ) from error
    lines = [line.removesuffix("\r") for line in lines]
    if lines == [""]:
        raise ConfigError(f"--file {format_path(file)} has no text; allowed: one text per line; name another file")
    empty = next((number for number, line in enumerate(lines, start=1) if not line), None)
    if empty is not None:
        raise ConfigError(
            f"line {empty} of --file {format_path(file)} is empty; allowed: one text per line; remove the line"
        )
    if file.suffix.lower() != ".jsonl":
        return lines, prompt
    records = [_record(line, number, file) for number, line in enumerate(lines, start=1)]
    return [record["text"] for record in records], [record.get("prompt", prompt) for record in records]


def _record(line: str, number: int, file: Path) -> dict[str, str]:
    try:
        record = parse_json(line)
    except ValueError as error:
        record, why = None, f" ({error})"
    else:
        why = ""
    ok = isinstance(record, dict) and set(record) in _FIELDS and all(isinstance(v, str) for v in record.values())
    if not ok:
        raise ConfigError(
            f"line {number} of --file {format_path(file)} is {line[:60]!r}{why}; allowed: an object with the texts "
            "`text` and, where there is one, `prompt`; correct the line"
        )
    return dict(record)
