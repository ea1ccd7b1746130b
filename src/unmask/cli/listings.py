"""`unmask models`, `unmask methods` and `unmask tasks`: list what there is, and show one of them.

Tables of models and methods are imported where they are used, so that `unmask tasks` and every --help load no torch.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from unmask.base.errors import ConfigError, require
from unmask.cli.options import DataDir, Json, SandboxWorkers, complete_method, complete_task
from unmask.cli.progress import show_bar
from unmask.cli.terminal import Console, make_entry, make_table, print_text, spell_settings, wide_console
from unmask.tasks import (
    CONTROLS,
    SPLITS,
    TASKS,
    example_values,
    explain_verdict,
    export_tasks,
    find_task,
    score_predictions,
)

FAILED = 1
"""Exit code where a worked example does not come out as computed by hand."""


def models(json_: Json = False) -> None:
    """List the models, their options, and how they run on this machine."""
    import torch

    from unmask.api import MODELS
    from unmask.core import choose_statistics
    from unmask.models.execution import choose_execution, resolve_device

    rows: list[dict[str, Any]] = []
    for name, entry in MODELS.items():
        options = dict(entry.options())
        device = resolve_device(options["device"]) if "device" in options else torch.device("cpu")
        row: dict[str, Any] = {"name": name, "about": entry.about, "status": entry.status(), "options": options}
        if "engine" in options:
            row["engine"] = asdict(choose_execution(options["engine"], device))
        rows.append(row | {"statistics": asdict(choose_statistics(device))})
    if json_:
        print_text(json.dumps(rows, indent=2))
        return
    console = Console()
    for row in rows:
        settings = f"--model-option {spell_settings(row['options'])}"
        console.print(make_entry(row["name"], row["status"], row["about"], settings))
        console.print()
    console.print("[dim]--model takes a hub id or a checkpoint folder, too.[/]")


methods = typer.Typer(help="List the unmasking methods, or show one of them.", rich_markup_mode=None)


@methods.callback(invoke_without_command=True)
def list_methods(context: typer.Context, json_: Json = False) -> None:
    """List the unmasking methods: their row of the taxonomy, how far they can be trusted, and their settings."""
    if context.invoked_subcommand is not None:
        return
    from unmask.methods import METHODS, TAXONOMY

    rows = [describe_method(name) for name in METHODS]
    if json_:
        print_text(json.dumps(rows, indent=2))
        return
    console = wide_console()
    fields = ("name", *TAXONOMY, "label")
    console.print(make_table(("method", *fields[1:]), [[row[field] for field in fields] for row in rows]))
    for row in rows:
        console.print()
        settings = f"--set {spell_settings(row['settings'])}"
        console.print(make_entry(row["name"], row["citation"], row["about"], settings))


@methods.command("show")
def show_method(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A method of `unmask methods`.", autocompletion=complete_method)
    ],
    example: Annotated[
        bool, typer.Option("--example", help="Run its worked example and compare it with the outcome found by hand.")
    ] = False,
    json_: Json = False,
) -> None:
    """Show one method: its row of the taxonomy, settings, presets, and where it differs from its authors' code.

    \b
    Examples:
      unmask methods show klass
      unmask methods show klass --example
    """
    if not example and name.lower() == SELECTIVE_ENTRY["name"]:
        print_text(json.dumps(SELECTIVE_ENTRY, indent=2) if json_ else "\n".join(_selective_lines()))
        return
    from unmask.methods import METHODS

    name = {method.lower(): method for method in METHODS}.get(name.lower(), name)
    if example:
        _show_example(name, json_)
        return
    row = describe_method(name)
    print_text(json.dumps(row, indent=2) if json_ else "\n".join(_method_lines(row)))


SELECTIVE_ENTRY = {
    "name": "selective",
    "about": "The calibrated gate of a task: the model's reference, and another action where a signal says so.",
    "needs": "a gate, which `unmask calibrate` makes for a model and a task",
    "settings": "those of the gate's file; none is set by hand",
    "read": "docs/protocol.md",
    "try": "unmask generate --model mini --policy selective --gate gate.json PROMPT",
}
"""The gate of a task is used like a method, but is none of the table: what it does is in its file."""


def describe_method(name: str) -> dict[str, Any]:
    """Return everything that is known of a method, as plain values."""
    from unmask.methods import TAXONOMY, describe_policy, examples, find_method

    info = find_method(name)
    policy = info.default
    fields = ("citation", *TAXONOMY, "learned", "label", "version", "made_for")
    return {
        "name": name,
        "about": info.about,
        **{field: getattr(info, field) for field in fields},
        "settings": {key: value for key, value in describe_policy(policy).items() if key != "name"},
        "presets": {preset: dict(values) for preset, values in info.presets.items()},
        "differs": list(info.differs),
        "bound_by_steps": policy.steps == "end",  # stored name
        "reads_steps": policy.steps != "ignore",  # stored name
        "example": f"unmask methods show {name} --example" if name in examples.example_names() else None,
    }


def _selective_lines() -> list[str]:
    row, heads = SELECTIVE_ENTRY, {"needs": "needs", "settings": "settings", "read": "read on", "try": "try it"}
    return [f"{row['name']}: {row['about']}", "", *(f"  {head:<12} {row[key]}" for key, head in heads.items())]


def _method_lines(row: Mapping[str, Any]) -> list[str]:
    from unmask.methods import TAXONOMY

    lines = [f"{row['name']}: {row['about']}", f"  {row['citation']} ({row['label']})", ""]
    lines += [f"  {axis:<12} {row[axis]}" for axis in TAXONOMY]
    lines += ["", f"  settings     {spell_settings(row['settings'])}"]
    schedule = "set a schedule, but do not end the run" if row["reads_steps"] else "change nothing"
    steps = "end the run" if row["bound_by_steps"] else f"{schedule}: it goes on until all is filled"
    lines.append(f"  steps        {steps}")
    if row["made_for"]:
        lines.append(f"  made for     {row['made_for']}")
    lines += [f"  preset       {name}: --policy {_spell_policy(row['name'], v)}" for name, v in row["presets"].items()]
    lines += [f"  differs      {difference}" for difference in row["differs"]]
    if row["presets"]:
        task = next(iter(row["presets"])).rpartition("/")[2]
        lines.append(f"  by name      unmask generate --policy {row['name']} --preset {task}")
    lines += ["", f"  try it       unmask generate --model mini --policy {row['name']} PROMPT"]
    if row["example"]:
        lines.append(f"  example      {row['example']}")
    return lines


def _spell_policy(name: str, settings: Mapping[str, Any]) -> str:
    """Spell a policy with its settings as --policy takes it."""
    return f"{name}:{','.join(spell_settings({key: value}) for key, value in settings.items())}" if settings else name


def _show_example(name: str, as_json: bool) -> None:
    """Run a method's worked example step by step; exit with 1 where the outcome is not the one found by hand."""
    from unmask.methods import examples

    results = [examples.run_case(case) for case in examples.load_cases(name)]
    cases, lines = [], [f"{name}: worked example of {examples.example_source(name)}"]
    for result in results:
        case, found = result.case, dict(result.found)
        steps = [
            {**step, "revealed": {str(at): token for at, token in step["revealed"].items()}} for step in result.steps
        ]
        cases.append({
            "title": case.title,
            "settings": dict(case.settings),
            "steps": steps,
            "found": found,
            "expected": dict(case.expected),
            "as_expected": result.as_expected,
        })  # fmt: skip
        lines += ["", f"{case.title}  ({_spell_policy(name, case.settings)})"]
        for number, step in enumerate(steps, start=case.taken + 1):
            revealed = ", ".join(f"{at}={token}" for at, token in step["revealed"].items()) or "nothing"
            remasked = f"; re-masks {', '.join(map(str, step['remasked']))}" if step["remasked"] else ""
            lines.append(f"  step {number:<2} reveals {revealed}{remasked}")
        lines += [] if steps else [f"  {what} {value}" for what, value in found.items()]
        expected = "; ".join(f"{what} {value}" for what, value in case.expected.items())
        lines.append(f"  {'as expected' if result.as_expected else 'NOT as expected'}: {expected}")
    right = sum(result.as_expected for result in results)
    lines += ["", f"{right} of {len(results)} as expected; positions and tokens count from 0"]
    if as_json:
        document = {"method": name, "sheet": examples.example_source(name), "cases": cases}
        print_text(json.dumps(document, indent=2))
    else:
        print_text("\n".join(lines))
    if right < len(results):
        raise typer.Exit(FAILED)


tasks = typer.Typer(help="The ten tasks: list them, look at prompts, score answers.", rich_markup_mode=None)

SplitNames = Annotated[list[str] | None, typer.Option("--split", help="development, validation or evaluation.")]


@tasks.callback(invoke_without_command=True)
def list_tasks(context: typer.Context, json_: Json = False) -> None:
    """The ten tasks and their controls: list them, look at prompts, score answers.

    \b
    Examples:
      unmask tasks --json
      unmask tasks show carry-rtl -n 3
      unmask tasks show --out tasks
      unmask tasks score carry-rtl --predictions answers.jsonl
    """
    if context.invoked_subcommand is not None:
        return
    listed: list[dict[str, Any]] = [
        {
            "name": task.name,
            "title": task.title,
            "horizon": task.max_new_tokens,  # stored name
            "source": task.source,
            "output": task.output,
            "utility": task.scorer.name,
            "counts": dict(task.counts),
            "version": task.version,
            "control": task.name in CONTROLS,
        }
        for task in (*TASKS.values(), *CONTROLS.values())
    ]
    if json_:
        print_text(json.dumps(listed, indent=2))
        return
    fields = ("name", "horizon", "source", "utility")
    rows = [[*(str(row[field]) for field in fields), *map(str, row["counts"].values())] for row in listed]
    Console().print(make_table(("name", "tokens", "source", "utility", "dev", "val", "eval"), rows))
    Console().print(
        f"[dim]Tokens: the length of the answer. {', '.join(CONTROLS)}: a control, not one of the ten. "
        "`unmask tasks show NAME` prints prompts.[/]"
    )


@tasks.command("show")
def show_task(
    name: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Tasks. Default with --out: all ten.", autocompletion=complete_task),
    ] = None,
    n: Annotated[int, typer.Option("-n", help="How many prompts are printed.")] = 3,
    split: SplitNames = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write all examples as TASK.SPLIT.jsonl there. Default split: all three."),
    ] = None,
    data_dir: DataDir = None,
    json_: Json = False,
) -> None:
    """Print the first prompts of a task with their targets, or write whole splits as JSONL files.

    \b
    Examples:
      unmask tasks show carry-rtl -n 2 --split validation
      unmask tasks show carry-rtl html-close-tags --out tasks
    """
    if out is not None:
        for path in export_tasks(out, name or None, tuple(split or SPLITS), data_dir):
            print_text(str(path))
        return
    require(n >= 1, "number of examples", n, "1 or more", "ask for at least one")
    if not name:
        raise ConfigError("no task is given; allowed: a name of `unmask tasks`, or --out FOLDER for all; name one")
    chosen = [
        one
        for each in name
        for part in split or ["development"]
        for one in find_task(each).examples(part, data_dir)[:n]
    ]
    if json_:
        print_text(json.dumps([example_values(example) for example in chosen], indent=2))
        return
    for example in chosen:
        print_text(f"--- {example.id}  level {example.level}\n{example.prompt}\n>>> {example.target}\n")


@tasks.command("score")
def score_answers(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A task of `unmask tasks`.", autocompletion=complete_task)
    ],
    predictions: Annotated[
        Path, typer.Option(metavar="FILE", help='JSONL with {"id": ..., "text": ...} per line, from any model.')
    ],
    split: Annotated[str, typer.Option(help="development, validation or evaluation.")] = "evaluation",
    data_dir: DataDir = None,
    sandbox_workers: SandboxWorkers = None,
    explain_: Annotated[bool, typer.Option("--explain", help="Walk through every verdict.")] = False,
    json_: Json = False,
) -> None:
    """Score a file of answers."""
    total = len(find_task(name).examples(split, data_dir))
    with show_bar("scoring", total, quiet=json_) as update:
        summary, verdicts = score_predictions(
            name,
            predictions,
            split,
            data_dir,
            sandbox_workers,
            on_verdict=lambda verdict: update(advance=1, description=verdict.id),
        )
    if json_:
        listed = [
            {"id": v.id, "utility": v.utility, "reason": v.reason, "parts": [asdict(part) for part in v.parts]}
            for v in verdicts
        ]
        print_text(json.dumps({**summary, "verdicts": listed}, indent=2))
        return
    if explain_:
        for verdict in verdicts:
            print_text(f"--- {verdict.id}\n" + "\n".join(explain_verdict(verdict)) + "\n")
    mean = "none" if summary["mean"] is None else f"{summary['mean']:.4f}"
    print_text(f"{name}, {split}: mean utility {mean} over {summary['scored']} of {summary['examples']} examples")
    perfect, unavailable, missing = summary["perfect"], summary["unavailable"], len(summary["missing"])
    print_text(f"perfect {perfect}, unavailable {unavailable}, without a prediction {missing}")
    for level in summary["levels"]:
        print_text(f"  level {level['level']}: {level['mean']:.4f} over {level['scored']}")
    if summary["elsewhere"] or summary["unknown"]:
        elsewhere, unknown = len(summary["elsewhere"]), len(summary["unknown"])
        print_text(f"left out: {elsewhere} ids of another split, {unknown} unknown ids")
