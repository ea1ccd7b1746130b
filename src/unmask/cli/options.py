"""Options that several commands have, and command-line texts as values: KEY=VALUE pairs, the model they describe."""

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unmask.errors import ConfigError
from unmask.report.console import loading

if TYPE_CHECKING:
    from unmask.api import Model

ModelName = Annotated[str, typer.Option("--model", "-m", help="A name of `unmask models`, a hub id or a folder.")]
ModelOption = Annotated[
    list[str] | None, typer.Option("--model-option", metavar="KEY=VALUE", help="An option of the model. Repeatable.")
]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ...; default: a GPU if there is one.")]
Dtype = Annotated[str | None, typer.Option(help="bf16, fp16 or fp32; default: bf16 on a GPU, fp32 on a CPU.")]
DataDir = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Official data files. Default: $UNMASK_DATA, else the hub.")
]


def load_model(name: str, options: list[str] | None, **named: str | None) -> "Model":
    """A model with the options of --model-option and those that have an option of their own."""
    from unmask.catalog import load

    chosen = pairs("--model-option", options)
    for key, value in named.items():
        if value is None:
            continue
        if key in chosen:
            raise ConfigError(f"--{key} and --model-option {key}=... are both given; allowed: one of them; drop one")
        chosen[key] = value
    with loading() as on_progress:
        return load(name, on_progress=on_progress, **chosen)


def pairs(option: str, given: list[str] | None) -> dict[str, Any]:
    """KEY=VALUE texts as a dict."""
    found: dict[str, Any] = {}
    for text in given or []:
        key, equals, raw = text.partition("=")
        if not (key.strip() and equals):
            raise ConfigError(f"{option} {text!r} is not KEY=VALUE; allowed: e.g. block_length=4; add the value")
        if key.strip() in found:
            raise ConfigError(f"{option} {key.strip()} is given twice; allowed: once; drop one of them")
        found[key.strip()] = parse_value(raw)
    return found


def split_commas(text: str) -> list[str]:
    """KEY=VALUE,KEY=VALUE cut at the commas outside of brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        else:
            depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth <= 0 and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts] if text.strip() else []


def parse_value(raw: str) -> Any:
    """A value as TOML would read it (4, 0.5, true, [1, 2], {a = 1}, "text"), `none`, or the bare text."""
    text = raw.strip()
    if text.lower() in ("none", "null"):
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    value = parsed["value"] if list(parsed) == ["value"] else text
    return value if isinstance(value, int | float | str | list | dict) else text
