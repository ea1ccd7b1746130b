"""`unmask tasks`: list the suite, look at prompts, export them, score a model's answers."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from unmask.base.errors import require
from unmask.cli.options import DataDir, Json
from unmask.report.console import Console, progress, say

tasks = typer.Typer(
    help="The ten tasks: list them, look at prompts, export them, score answers.",
    invoke_without_command=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Which task; `unmask tasks` lists them.")]
Split = Annotated[str, typer.Option(help="development, validation or evaluation.")]


@tasks.callback()
def listing(context: typer.Context, json_: Json = False) -> None:
    """The ten tasks and their controls: list them, look at prompts, export them, score answers.

    \b
    Examples:
      unmask tasks --json
      unmask tasks show carry-rtl -n 3
      unmask tasks export --out tasks
      unmask tasks score carry-rtl --predictions answers.jsonl
    """
    if context.invoked_subcommand is not None:
        return
    from unmask.tasks import CONTROLS, TASKS

    listed = [
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
        say(json.dumps(listed, indent=2))
        return
    from unmask.report.terminal import columns

    shown = ("name", "horizon", "source", "utility")
    rows = [
        [*(str(row[head]) for head in shown), *map(str, task.counts.values())]
        for row, task in zip(listed, (*TASKS.values(), *CONTROLS.values()), strict=True)
    ]
    Console().print(columns((*shown, "dev", "val", "eval"), rows))
    controls = ", ".join(CONTROLS)
    Console().print(
        f"[dim]Horizon: tokens of the answer. {controls}: a control, not one of the ten. "
        "`unmask tasks show NAME` prints prompts.[/]"
    )


@tasks.command()
def show(
    name: Name,
    n: Annotated[int, typer.Option("-n", help="How many.")] = 3,
    split: Split = "development",
    data_dir: DataDir = None,
    json_: Json = False,
) -> None:
    """Print the first prompts of a split with their targets."""
    from unmask.tasks import example_record, find_task

    require(n >= 1, "number of examples", n, "1 or more", "ask for at least one")
    examples = find_task(name).examples(split, data_dir)[:n]
    if json_:
        say(json.dumps([example_record(example) for example in examples], indent=2))
        return
    for example in examples:
        say(f"--- {example.id}  level {example.level}\n{example.prompt}\n>>> {example.target}\n")


@tasks.command()
def export(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where TASK.SPLIT.jsonl files go; made if need be.")],
    name: Annotated[
        list[str] | None, typer.Option("--task", metavar="NAME", help="Only this task. Repeatable. Default: all ten.")
    ] = None,
    split: Annotated[list[str] | None, typer.Option(help="Only this split. Repeatable. Default: all three.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Write the examples of tasks and splits as JSONL, one file each."""
    from unmask.tasks import SPLITS, export_tasks

    for path in export_tasks(out, name or None, tuple(split or SPLITS), data_dir):
        say(str(path))


@tasks.command()
def score(
    name: Name,
    predictions: Annotated[
        Path, typer.Option(metavar="FILE", help='JSONL with {"id": ..., "text": ...} per line, from any model.')
    ],
    split: Split = "evaluation",
    data_dir: DataDir = None,
    jobs: Annotated[int | None, typer.Option(help="Programs run side by side (HumanEval). Default: all cores.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Walk through every verdict.")] = False,
    json_: Json = False,
) -> None:
    """Score a file of answers."""
    from unmask.tasks import explain as explain_verdict
    from unmask.tasks import find_task, score_predictions

    total = len(find_task(name).examples(split, data_dir))
    with progress("scoring", total, quiet=json_) as advance:
        summary, verdicts = score_predictions(
            name, predictions, split, data_dir, jobs, on_verdict=lambda verdict: advance(verdict.id)
        )
    if json_:
        listed = [
            {"id": v.id, "utility": v.utility, "reason": v.reason, "parts": [asdict(p) for p in v.parts]}
            for v in verdicts
        ]
        say(json.dumps({**summary, "verdicts": listed}, indent=2))
        return
    if explain:
        for verdict in verdicts:
            say(f"--- {verdict.id}\n" + "\n".join(explain_verdict(verdict)) + "\n")
    mean = "none" if summary["mean"] is None else f"{summary['mean']:.4f}"
    say(f"{name}, {split}: mean utility {mean} over {summary['scored']} of {summary['examples']} examples")
    perfect, unavailable, missing = summary["perfect"], summary["unavailable"], len(summary["missing"])
    say(f"perfect {perfect}, unavailable {unavailable}, without a prediction {missing}")
    for level in summary["levels"]:
        say(f"  level {level['level']}: {level['mean']:.4f} over {level['scored']}")
    if summary["elsewhere"] or summary["unknown"]:
        say(f"left out: {len(summary['elsewhere'])} ids of another split, {len(summary['unknown'])} unknown ids")
