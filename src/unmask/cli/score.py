"""`unmask score`: how probable texts are under a method, and the perplexity of a file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unmask.api.options import LikelihoodOptions
from unmask.base.errors import ConfigError
from unmask.base.files import format_path, os_error_text, read_file
from unmask.base.json_files import parse_json
from unmask.cli.generate import LoadAnyOptions, ModelName, blaming, method_keywords
from unmask.cli.options import Json, options_as_flags
from unmask.report.console import Console, say_json

if TYPE_CHECKING:
    from unmask.api import Likelihoods

_FIELDS = ({"text"}, {"text", "prompt"})


@options_as_flags
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
    json: Json = False,
    *,
    options: LikelihoodOptions,
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
    keywords = method_keywords(options)
    loaded = load.load(model)
    with blaming(keywords.get("policy")):
        found = loaded.log_likelihood(texts, prompt=prompts, **keywords)
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
