"""`unmask verify`: a model's GSM8K and HumanEval with its authors' settings, against their published figures."""

from pathlib import Path

import pandas as pd
import typer
from pydantic import Field

from unmask.base.errors import UnknownName
from unmask.base.options import Options
from unmask.cli.options import LoadOptions, ModelName, options_as_flags
from unmask.cli.progress import explain_interrupts, show_answers
from unmask.cli.terminal import print_json, print_note, print_text, wide_console
from unmask.lab.verify import (
    Agreement,
    Target,
    VerifiedRun,
    VerifyOptions,
    check_data_files,
    choose_target,
    choose_tasks,
    prepare_run,
    published_names,
    verify_run,
)
from unmask.report import compare as report
from unmask.report import files
from unmask.report.compare import answers_csv

FAILED = 1
"""Exit code of --strict where a figure was not reached."""


class VerifyOutput(Options):
    """Where results go."""

    out: Path | None = Field(
        None, description="Where verify.json, answers.csv and every finished batch go: the same command goes on."
    )
    json_: bool = Field(False, description="verify.json on stdout and nothing else there.")
    quiet: bool = Field(False, description="No progress and no estimate.")
    strict: bool = Field(False, description="End with exit code 1 where a figure is not reached.")


@options_as_flags
def verify(model: ModelName, load: LoadOptions, options: VerifyOptions, output: VerifyOutput) -> None:
    """Check a model against its authors' figures.

    GSM8K and HumanEval, all problems, decoded with the settings and prompts that the authors report their figures for;
    the share of right answers with a 95 % interval, and whether the figure lies in it. A model that has no figure is
    decoded with the settings of its family: a trial of the procedure. With --out it may be stopped at any moment: the
    same command goes on. Exit code 0 whatever the verdict; with --strict 1 where one is "below".

    \b
    Examples:
      unmask verify --model llada --out out/verify
      unmask verify --model llada-1.5 --task humaneval --data-dir data
      unmask verify --model path/to/weights --published llada --prompts 200 --strict
      unmask verify --model mini --prompts 4 --out out/trial
    """
    # A wrong command line, and data that is not there, are refused before the model is read.
    names = choose_tasks(options.task, options.published or model)
    if options.published is not None and options.published not in published_names():
        raise UnknownName("name of figures", options.published, published_names())
    if output.out is not None:
        files.folder(output.out)
    check_data_files(names, options.data_dir)
    loaded = load.load(model)
    target = choose_target(model, loaded.options.get("family"), options.published)
    prepared = [prepare_run(loaded, target, name, prompts=options.prompts, data_dir=options.data_dir) for name in names]
    for one in [] if output.quiet else prepared:
        print_note(
            f"{one.run.name}: {len(one.chosen)} of {one.problems} problems, {one.run.new_tokens} tokens in "
            f"{one.run.steps} steps each: at most {one.forwards} forwards of one row"
        )
    where = "nothing is kept; with --out FOLDER" if output.out is None else f"finished batches are in {output.out};"
    results: list[VerifiedRun] = []
    for one in prepared:
        interrupts = explain_interrupts(lambda: f"{where} the same command goes on")
        with interrupts, show_answers("encoding problems", output.quiet, at_once=True) as on_progress:
            results.append(
                verify_run(
                    loaded,
                    one,
                    target,
                    seed=options.seed,
                    batch_size=options.batch_size,
                    sandbox_workers=options.sandbox_workers,
                    work_dir=None if output.out is None else output.out / one.run.name,
                    on_progress=on_progress,
                )
            )
    _show(loaded.name, target, results, output)
    if output.strict and any(one.agreement is Agreement.BELOW for one in results):
        raise typer.Exit(FAILED)


def _show(model: str, target: Target, results: list[VerifiedRun], output: VerifyOutput) -> None:
    """Write the files, and print the table."""
    text = report.verify_json(model, target, results)
    if output.out is not None:
        answers = pd.concat([one.answers for one in results], ignore_index=True)
        files.write(output.out / "answers.csv", answers_csv(answers).encode())
        files.write(output.out / "verify.json", f"{text}\n".encode())
    for name in (name for one in results for name in one.damaged):
        print_note(f"{name} of {output.out} was damaged: decoded again")
    if output.json_:
        print_json(text)
        return
    console = wide_console()
    console.print(report.verify_table(results))
    for line in report.verify_remarks(results):
        console.print(line, style="dim", highlight=False, markup=False)
    if output.out is not None:
        print_text(str(output.out / "verify.json"))
