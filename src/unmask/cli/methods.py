"""`unmask methods`: which unmasking methods there are, and what is known of each."""

import json
from dataclasses import fields
from typing import Annotated, Any

import typer

from unmask.cli.options import Json
from unmask.cli.progress import wide_console
from unmask.report.console import say

methods = typer.Typer(
    help="The unmasking methods: rows of the paper's taxonomy, settings and sources.", rich_markup_mode=None
)


@methods.callback(invoke_without_command=True)
def table(context: typer.Context, json_: Json = False) -> None:
    """List the unmasking methods: their row of the taxonomy, how far they can be trusted, and their settings."""
    if context.invoked_subcommand is not None:
        return
    from unmask.core.card import TAXONOMY
    from unmask.policies import METHODS
    from unmask.report.terminal import columns, entry, settings_line

    rows = [about(name) for name in METHODS]
    if json_:
        say(json.dumps(rows, indent=2))
        return
    console = wide_console()
    heads = ("name", *TAXONOMY, "label")
    console.print(columns(("method", *heads[1:]), [[row[head] for head in heads] for row in rows]))
    for row in rows:
        console.print()
        console.print(entry(row["name"], row["citation"], row["about"], f"--set {settings_line(row['settings'])}"))


@methods.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A method of `unmask methods`.")],
    json_: Json = False,
) -> None:
    """Say what is known of one method: its row, settings, presets, and where it leaves its authors.

    \b
    Example:
      unmask methods show klass
    """
    from unmask.policies import METHODS
    from unmask.resolve import SELECTIVE

    if name.lower() == SELECTIVE:
        say(json.dumps(_SELECTIVE, indent=2) if json_ else "\n".join(_selective_lines()))
        return
    by_lower = {method.lower(): method for method in METHODS}
    row = about(by_lower.get(name.lower(), name))
    if json_:
        say(json.dumps(row, indent=2))
        return
    for line in _lines(row):
        say(line)


_SELECTIVE = {
    "name": "selective",
    "about": "The calibrated gate of a task: the model's reference, and another action where a signal says so.",
    "needs": "a gate, which `unmask calibrate` makes for a model and a task",
    "settings": "those of the gate's file; none is set by hand",
    "read": "docs/adapt.md",
    "try": "unmask generate --model mini --policy selective --gate gate.json PROMPT",
}
"""No method of the table: what it does is in the gate's file."""


def _selective_lines() -> list[str]:
    heads = {"needs": "needs", "settings": "settings", "read": "read on", "try": "try it"}
    return [
        f"{_SELECTIVE['name']}: {_SELECTIVE['about']}",
        "",
        *(f"  {text:<12} {_SELECTIVE[key]}" for key, text in heads.items()),
    ]


def about(name: str) -> dict[str, Any]:
    """Everything a method says of itself, as plain values."""
    from unmask.core.card import Card
    from unmask.policies import METHODS, make, settings

    policy = make(name)
    card = policy.card
    assert card is not None  # of every method in the table
    texts = {f.name: getattr(card, f.name) for f in fields(Card) if f.name not in ("presets", "differs")}
    return {
        "name": name,
        "about": (METHODS[name].__doc__ or "").partition("\n")[0],
        **texts,
        "settings": {key: value for key, value in settings(policy).items() if key != "name"},
        "presets": {preset: dict(values) for preset, values in card.presets.items()},
        "differs": list(card.differs),
    }


def _lines(row: dict[str, Any]) -> list[str]:
    from unmask.core.card import TAXONOMY
    from unmask.report.terminal import settings_line

    lines = [f"{row['name']}: {row['about']}", f"  {row['citation']} ({row['label']})", ""]
    lines += [f"  {axis:<12} {row[axis]}" for axis in TAXONOMY]
    lines += ["", f"  settings     {settings_line(row['settings'])}"]
    for preset, values in row["presets"].items():
        lines.append(f"  preset       {preset}: {settings_line(values) or 'the defaults'}")
    for difference in row["differs"]:
        lines.append(f"  differs      {difference}")
    lines += ["", f"  try it       unmask generate --model mini --policy {row['name']} PROMPT"]
    return lines
