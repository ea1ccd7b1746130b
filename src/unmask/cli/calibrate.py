"""`unmask calibrate`: from a model and a task to a gate file that `generate` takes."""

import os
import shlex
from dataclasses import dataclass, replace
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unmask.base.errors import ConfigError
from unmask.cli.cluster import ClusterOptions
from unmask.cli.completion import methods
from unmask.cli.completion import tasks as task_names
from unmask.cli.options import DataDir, Json, LoadOptions, ModelName, options_as_flags, policy_of
from unmask.cli.study import watch
from unmask.report.console import say

if TYPE_CHECKING:
    from unmask.adapt import Gate
    from unmask.tasks import Task


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """What the gate is for."""

    task: Annotated[
        str,
        typer.Option(
            # Said: some releases of typer take an option's name from a metavar that differs from it in case only.
            "--task",
            metavar="TASK",
            autocompletion=task_names,
            help="A name of `unmask tasks`, a file FILE.jsonl, or code, which runs: package.module:function or "
            "path.py:function.",
        ),
    ]
    axis: Annotated[str, typer.Option(help="What may change by state: score, region, cardinality or commitment.")]
    out: Annotated[Path, typer.Option(metavar="FILE.json", help="Where the gate goes.")]
    score: Annotated[
        str | None,
        typer.Option(
            metavar="RULE",
            help="How answers to a task of your own are scored: exact, answer, contains, number, json, parts, "
            "blanks, or code, which runs: package.module:function, path.py:function.",
        ),
    ] = None
    horizon: Annotated[
        int | None, typer.Option(min=1, help="Tokens that an answer to a task of your own may take.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class MeasureOptions:
    """How much is measured, and where it is kept."""

    prompts: Annotated[int, typer.Option(min=2, help="Up to so many validation prompts.")] = 100
    states: Annotated[int, typer.Option(min=1, help="States of each prompt's trajectory.")] = 8
    rollouts: Annotated[int, typer.Option(min=1, help="Per state and candidate.")] = 4
    steps_share: Annotated[float, typer.Option(help="Steps by the task's horizon, above 0 up to 1.")] = 0.5
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random numbers, the bootstrap's included.")] = 0
    rows: Annotated[
        int | None, typer.Option(min=1, help="Canvases of one forward. Default: 4 on a CPU, 64 elsewhere.")
    ] = None
    fixed: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="How the fixed action is chosen on validation prompts: end-to-end (whole runs) or one-step (one "
            "transition, then the reference: the paper's).",
        ),
    ] = "end-to-end"
    guarantee: Annotated[
        float | None,
        typer.Option(
            metavar="RISK",
            help="Choose the threshold so that, but for this probability over validation prompts, decoding with the "
            "gate is not worse than the fixed action by more than --margin; e.g. 0.05.",
        ),
    ] = None
    margin: Annotated[
        float | None,
        typer.Option(help="Mean utility that a gate with a guarantee may lose at most. Default: 0.05."),
    ] = None
    data_dir: DataDir = None
    work: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where measurements are kept, to go on from. Default: FILE.json.study."),
    ] = None


@options_as_flags
def calibrate(
    model: ModelName,
    chosen: TaskOptions,
    load: LoadOptions,
    measured: MeasureOptions,
    cluster: ClusterOptions,
    json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress; only the path of the gate.")] = False,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            "-p",
            metavar="POLICY",
            autocompletion=methods,
            help="What decodes in place of the model's own reference: NAME, package.module:Class or path.py:Class "
            "(which run), then :key=value,... Whoever uses the gate names it again.",
        ),
    ] = None,
) -> None:
    """Find out when a decoder should leave its fixed action on a task, and write that as a gate.

    Candidates of the axis are tried at states of validation prompts, its diagnostic is read there, and a detector is
    fitted to both. Then the prompts are decoded from beginning to end, to see whether the gate may be used at all. It
    may be stopped at any moment: the same command goes on.

    \b
    Examples:
      unmask calibrate --model mini --task carry-rtl --axis region --out gate.json
      unmask calibrate --model mini --task mine.jsonl --score exact --horizon 32 --axis region --out gate.json
      unmask calibrate --model mini --task carry-rtl --axis region --guarantee 0.05 --out gate.json
      unmask calibrate --model llada --task gsm8k --axis region --on ray --address auto --out gate.json
      unmask generate --model mini --gate gate.json "..."
    """
    # What is wrong with the command line comes before the model is read, and long before the gate is written.
    from unmask.lab.calibrate import calibrate as measure
    from unmask.lab.calibrate import check_axis
    from unmask.methods import register_reference
    from unmask.report.plain import plain
    from unmask.tasks import check_scorer, open_task

    out = chosen.out
    reference = None if policy is None else register_reference(policy_of(policy))
    check_axis(chosen.axis)
    task = open_task(chosen.task, scorer=chosen.score, max_new_tokens=chosen.horizon)
    check_scorer(task)
    _check_place(out)
    work = out.with_name(f"{out.name}.study") if measured.work is None else measured.work
    with cluster.lent(load, model) as (loaded, workers):
        if reference is not None:
            loaded = replace(loaded, reference=reference)
        with watch(quiet or json) as on_progress:
            options = vars(measured) | {"work": work, "cluster": workers}
            gate = measure(loaded, task, chosen.axis, **options, on_progress=on_progress)
    gate.save(out)
    use = _command(model, load.model_option, out, task, policy)
    if json:
        say(dumps(plain(_document(gate, out, work, use)), indent=2, allow_nan=False))
    else:
        say(str(out) if quiet else _report(gate, out, work, use))


def _check_place(out: Path) -> None:
    if out.is_dir():
        raise ConfigError(f"--out is {str(out)!r}, a folder; allowed: a file; name one in it")
    if not os.access(out.parent, os.W_OK):
        raise ConfigError(f"the folder of --out {str(out)!r} is not there or not yours; allowed: one that is; make it")


def _command(model: str, options: list[str] | None, out: Path, task: "Task", policy: str | None) -> str:
    """How to decode with the gate, as one would type it."""
    fills = task.examples("validation")[0].has_blanks
    parts = ["unmask", "infill" if fills else "generate", "--model", model]
    parts += [text for option in options or [] for text in ("--model-option", option)]
    parts += [] if policy is None else ["--policy", policy]
    parts += ["--gate", str(out)]
    parts += [] if fills else ["--max-new-tokens", str(task.max_new_tokens)]
    return f'{shlex.join(parts)} "..."'


def _report(gate: "Gate", out: Path, work: Path, use: str) -> str:
    from unmask.lab.calibrate import verdict

    worse = gate.end_to_end is not None and gate.end_to_end.worse
    how = "to try it all the same: " if worse else "use it:  "
    return f"{gate.inspect()}\n\n{verdict(gate)}\nwritten: {out} (measurements: {work})\n{how}{use}"


def _document(gate: "Gate", out: Path, work: Path, use: str) -> dict[str, Any]:
    from unmask.lab.calibrate import verdict

    return {
        "gate": str(out),
        "study": str(work),
        "opens": gate.arms.calibration.tau.value is not None,
        "prompts": gate.arms.calibration.prompts,
        "verdict": verdict(gate),
        "generate": use,
        **gate.summary,
    }
