"""`unmask calibrate`: from a model and a task to a gate file that `generate` takes."""

import os
import shlex
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from unmask.adapt import Gate
from unmask.base.errors import ConfigError
from unmask.cli.options import (
    ClusterOptions,
    Json,
    LoadOptions,
    ModelName,
    Quiet,
    complete_method,
    options_as_flags,
)
from unmask.cli.study import show_study_progress
from unmask.cli.terminal import print_text
from unmask.lab.calibrate import CalibrateOptions, describe_gate
from unmask.lab.calibrate import calibrate as make_gate
from unmask.methods import parse_policy
from unmask.report.table import to_plain
from unmask.tasks import Task, check_scorer, open_task


@options_as_flags
def calibrate(
    model: ModelName,
    out: Annotated[Path, typer.Option(metavar="FILE.json", help="Where the gate goes.")],
    options: CalibrateOptions,
    load: LoadOptions,
    cluster: ClusterOptions,
    json: Json = False,
    quiet: Quiet = False,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            "-p",
            metavar="NAME[:KEY=VALUE,...]",
            autocompletion=complete_method,
            help="What decodes in place of the model's own reference: NAME, package.module:Class or path.py:Class "
            "(which run). Whoever uses the gate names it again.",
        ),
    ] = None,
) -> None:
    """Make a gate for a task: a file that says at which states a decoder should deviate from its fixed action.

    Every candidate of the axis is tried at states of validation prompts, a detector is fitted to the results, and
    whole answers are decoded with and without the gate. It may be stopped at any moment: the same command goes on.

    \b
    Examples:
      unmask calibrate --model mini --task carry-rtl --axis region --out gate.json
      unmask calibrate --model mini --task mine.jsonl --scorer exact --max-new-tokens 32 --axis region --out gate.json
      unmask calibrate --model mini --task carry-rtl --axis region --guarantee 0.05 --out gate.json
      unmask calibrate --model llada --task gsm8k --axis region --ray auto --out gate.json
      unmask generate --model mini --gate gate.json "..."
    """
    # A wrong command line is refused before the model is read, and long before the gate is written.
    reference = None if policy is None else parse_policy(policy)
    task = open_task(str(options.task), scorer=options.scorer, max_new_tokens=options.max_new_tokens)
    check_scorer(task)
    if out.is_dir():
        raise ConfigError(f"--out is {str(out)!r}, a folder; allowed: a file; name one in it")
    if not os.access(out.parent, os.W_OK):
        raise ConfigError(f"the folder of --out {str(out)!r} is not there or not yours; allowed: one that is; make it")
    work_dir = out.with_name(f"{out.name}.study") if options.work_dir is None else Path(options.work_dir)
    # The task is opened already, so that its code runs once.
    keywords = dict(options) | {"task": task, "scorer": None, "max_new_tokens": None, "work_dir": work_dir}
    with cluster.open_model(load, model) as (loaded, executor), show_study_progress(quiet or json) as on_progress:
        gate = make_gate(loaded, policy=reference, cluster=executor, on_progress=on_progress, **keywords)
    gate.save(out)
    use = _spell_command(model, load, out, task, policy)
    if json:
        document = {
            "gate": str(out),
            "study": str(work_dir),
            "opens": gate.arms.calibration.tau.value is not None,
            "prompts": gate.arms.calibration.prompts,
            "verdict": describe_gate(gate),
            "generate": use,
            **gate.summary,
        }
        print_text(dumps(to_plain(document), indent=2, allow_nan=False))
    else:
        print_text(str(out) if quiet else _describe_result(gate, out, work_dir, use))


def _spell_command(model: str, load: LoadOptions, out: Path, task: Task, policy: str | None) -> str:
    """Spell the command that decodes with the gate, as one would type it."""
    has_blanks = task.examples("validation")[0].has_blanks
    parts = ["unmask", "infill" if has_blanks else "generate", "--model", model]
    parts += [text for option in load.model_option for text in ("--model-option", option)]
    parts += [] if policy is None else ["--policy", policy]
    parts += ["--gate", str(out)]
    parts += [] if has_blanks else ["--max-new-tokens", str(task.max_new_tokens)]
    return f'{shlex.join(parts)} "..."'


def _describe_result(gate: Gate, out: Path, work_dir: Path, use: str) -> str:
    worse = gate.end_to_end is not None and gate.end_to_end.worse
    how = "to try it all the same: " if worse else "use it:  "
    return f"{gate.inspect()}\n\n{describe_gate(gate)}\nwritten: {out} (measurements: {work_dir})\n{how}{use}"
