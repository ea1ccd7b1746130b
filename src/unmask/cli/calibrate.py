"""`unmask calibrate`: from a model and a task to a gate file that `generate` takes."""

import os
import shlex
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unmask.base.errors import ConfigError
from unmask.cli.cluster import ClusterOptions
from unmask.cli.completion import methods
from unmask.cli.options import Json, LoadOptions, ModelName, options_as_flags, policy_of
from unmask.cli.study import watch
from unmask.lab.calibrate import CalibrateOptions
from unmask.lab.calibrate import calibrate as make_gate
from unmask.report.console import say

if TYPE_CHECKING:
    from unmask.adapt import Gate
    from unmask.tasks import Task


@options_as_flags
def calibrate(
    model: ModelName,
    out: Annotated[Path, typer.Option(metavar="FILE.json", help="Where the gate goes.")],
    options: CalibrateOptions,
    load: LoadOptions,
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
    """Make a gate for a task: a file that says at which states a decoder should leave its fixed action.

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
    from unmask.report.table import plain
    from unmask.tasks import check_scorer, open_task

    reference = None if policy is None else policy_of(policy)
    task = open_task(str(options.task), scorer=options.scorer, max_new_tokens=options.max_new_tokens)
    check_scorer(task)
    _check_place(out)
    work = out.with_name(f"{out.name}.study") if options.work_dir is None else Path(options.work_dir)
    # The task is opened, its code has run once.
    chosen = dict(options) | {"task": task, "scorer": None, "max_new_tokens": None, "work_dir": work}
    with cluster.open_model(load, model) as (loaded, executor), watch(quiet or json) as on_progress:
        gate = make_gate(loaded, policy=reference, cluster=executor, on_progress=on_progress, **chosen)
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
    from unmask.lab.calibrate import describe_gate

    worse = gate.end_to_end is not None and gate.end_to_end.worse
    how = "to try it all the same: " if worse else "use it:  "
    return f"{gate.inspect()}\n\n{describe_gate(gate)}\nwritten: {out} (measurements: {work})\n{how}{use}"


def _document(gate: "Gate", out: Path, work: Path, use: str) -> dict[str, Any]:
    from unmask.lab.calibrate import describe_gate

    return {
        "gate": str(out),
        "study": str(work),
        "opens": gate.arms.calibration.tau.value is not None,
        "prompts": gate.arms.calibration.prompts,
        "verdict": describe_gate(gate),
        "generate": use,
        **gate.summary,
    }
