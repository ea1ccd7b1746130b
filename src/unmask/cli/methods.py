"""`unmask methods`: which unmasking methods there are, and what is known of each."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unmask.cli.completion import methods as completed
from unmask.cli.options import Json
from unmask.cli.progress import wide_console
from unmask.report.console import say

if TYPE_CHECKING:
    from unmask.methods.examples import WorkedResult

methods = typer.Typer(
    help="The unmasking methods: rows of the paper's taxonomy, settings and sources.", rich_markup_mode=None
)


@methods.callback(invoke_without_command=True)
def table(context: typer.Context, json_: Json = False) -> None:
    """List the unmasking methods: their row of the taxonomy, how far they can be trusted, and their settings."""
    if context.invoked_subcommand is not None:
        return
    from unmask.methods import METHODS, TAXONOMY
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
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A method of `unmask methods`.", autocompletion=completed)
    ],
    json_: Json = False,
) -> None:
    """Say what is known of one method: its row, settings, presets, and where it leaves its authors.

    \b
    Example:
      unmask methods show klass
    """
    from unmask.api import SELECTIVE

    if name.lower() == SELECTIVE:
        say(json.dumps(_SELECTIVE, indent=2) if json_ else "\n".join(_selective_lines()))
        return
    row = about(_known(name))
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
    "read": "docs/protocol.md",
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


@methods.command()
def example(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A method that `unmask methods show` names one for.", autocompletion=completed
        ),
    ],
    json_: Json = False,
) -> None:
    """Run a method's worked example step by step, and compare it with the outcome computed by hand.

    \b
    Example:
      unmask methods example klass
    """
    from unmask.methods import examples

    name = _known(name)
    results = [examples.run_case(case) for case in examples.load_cases(name)]
    if json_:
        document = {
            "method": name,
            "sheet": examples.example_source(name),
            "cases": [_told(result) for result in results],
        }
        say(json.dumps(document, indent=2))
    else:
        for line in _example_lines(name, examples.example_source(name), results):
            say(line)
    if not all(result.as_expected for result in results):
        raise typer.Exit(1)


def _known(name: str) -> str:
    """The method that is meant, however it is capitalised."""
    from unmask.methods import METHODS

    return {method.lower(): method for method in METHODS}.get(name.lower(), name)


def _told(result: "WorkedResult") -> dict[str, Any]:
    steps = [{**step, "revealed": {str(at): token for at, token in step["revealed"].items()}} for step in result.steps]
    return {
        "title": result.case.title,
        "settings": dict(result.case.settings),
        "steps": steps,
        "found": dict(result.found),
        "expected": dict(result.case.expected),
        "as_expected": result.as_expected,
    }


def _example_lines(name: str, sheet: str, results: "list[WorkedResult]") -> list[str]:
    lines = [f"{name}: worked example of {sheet}"]
    for result in results:
        lines += ["", f"{result.case.title}  ({policy_text(name, result.case.settings)})"]
        for number, step in enumerate(result.steps, start=result.case.taken + 1):
            shown = ", ".join(f"{at}={token}" for at, token in step["revealed"].items()) or "nothing"
            again = f"; re-masks {', '.join(map(str, step['remasked']))}" if step["remasked"] else ""
            lines.append(f"  step {number:<2} reveals {shown}{again}")
        if not result.steps:
            lines += [f"  {what} {value}" for what, value in result.found.items()]
        said = "; ".join(f"{what} {value}" for what, value in result.case.expected.items())
        lines.append(f"  {'as expected' if result.as_expected else 'NOT as expected'}: {said}")
    good = sum(result.as_expected for result in results)
    return [*lines, "", f"{good} of {len(results)} as expected; positions and tokens count from 0"]


def policy_text(name: str, settings: Mapping[str, Any]) -> str:
    """A policy as --policy takes it."""
    from unmask.report.terminal import settings_line

    return f"{name}:{','.join(settings_line({key: value}) for key, value in settings.items())}" if settings else name


def about(name: str) -> dict[str, Any]:
    """Everything a method says of itself, as plain values."""
    from unmask.methods import TAXONOMY, describe_policy, examples, find_method

    info = find_method(name)
    policy = info.default
    said = ("citation", *TAXONOMY, "learned", "label", "version", "made_for")
    return {
        "name": name,
        "about": info.about,
        **{field: getattr(info, field) for field in said},
        "settings": {key: value for key, value in describe_policy(policy).items() if key != "name"},
        "presets": {preset: dict(values) for preset, values in info.presets.items()},
        "differs": list(info.differs),
        "bound_by_steps": policy.steps == "end",  # stored name
        "reads_steps": policy.steps != "ignore",  # stored name
        "example": f"unmask methods example {name}" if name in examples.example_names() else None,
    }


def _lines(row: dict[str, Any]) -> list[str]:
    from unmask.methods import TAXONOMY
    from unmask.report.terminal import settings_line

    lines = [f"{row['name']}: {row['about']}", f"  {row['citation']} ({row['label']})", ""]
    lines += [f"  {axis:<12} {row[axis]}" for axis in TAXONOMY]
    lines += ["", f"  settings     {settings_line(row['settings'])}"]
    schedule = "set a schedule, but do not end the run" if row["reads_steps"] else "change nothing"
    steps = "end the run" if row["bound_by_steps"] else f"{schedule}: it goes on until all is filled"
    lines.append(f"  steps        {steps}")
    if row["made_for"]:
        lines.append(f"  made for     {row['made_for']}")
    for preset, values in row["presets"].items():
        lines.append(f"  preset       {preset}: --policy {policy_text(row['name'], values)}")
    for difference in row["differs"]:
        lines.append(f"  differs      {difference}")
    if row["presets"]:
        task = next(iter(row["presets"])).rpartition("/")[2]
        lines.append(f"  by name      unmask generate --policy {row['name']} --preset {task}")
    lines += ["", f"  try it       unmask generate --model mini --policy {row['name']} PROMPT"]
    if row["example"]:
        lines.append(f"  example      {row['example']}")
    return lines
