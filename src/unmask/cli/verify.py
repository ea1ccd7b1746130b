"""`unmask verify`: a model's GSM8K and HumanEval with its authors' settings, against their published figures."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unmask.base.errors import UnknownName
from unmask.cli.options import LoadOptions, ModelName, options_as_flags
from unmask.cli.progress import AnswerLines, bar, note, watching, wide_console
from unmask.lab.verify import VerifyOptions
from unmask.report.console import say, say_json

if TYPE_CHECKING:
    from unmask.lab.compare import CompareProgress
    from unmask.lab.verify import PreparedRun, Target, VerifiedRun

FAILED = 1
"""The exit code of --strict where a figure was not reached."""


@dataclass(frozen=True, kw_only=True)
class VerifyOutput:
    """Where results go."""

    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where verify.json, answers.csv and every finished batch go: the same command goes on.",
        ),
    ] = None
    json: Annotated[bool, typer.Option("--json", help="verify.json on stdout and nothing else there.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no estimate.")] = False
    strict: Annotated[bool, typer.Option("--strict", help="End with exit code 1 where a figure is not reached.")] = (
        False
    )

    def show(self, model: str, target: "Target", found: "list[VerifiedRun]") -> None:
        """Write the files, and print the table."""
        import pandas as pd

        from unmask.report import compare as report
        from unmask.report import files
        from unmask.report.compare import answers_csv

        text = report.verify_json(model, target, found)
        if self.out is not None:
            answers = pd.concat([one.answers for one in found], ignore_index=True)
            files.write(self.out / "answers.csv", answers_csv(answers).encode())
            files.write(self.out / "verify.json", f"{text}\n".encode())
        for name in (name for one in found for name in one.damaged):
            note(f"{name} of {self.out} was damaged: decoded again")
        if self.json:
            say_json(text)
            return
        console = wide_console()
        console.print(report.verify_table(found))
        for line in report.verify_remarks(found):
            console.print(line, style="dim", highlight=False, markup=False)
        if self.out is not None:
            say(str(self.out / "verify.json"))


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
      unmask verify --model path/to/weights --figures llada --prompts 200 --strict
      unmask verify --model mini --prompts 4 --out out/trial
    """
    from unmask.lab.verify import (
        Agreement,
        check_data,
        choose_target,
        choose_tasks,
        prepare_run,
        published_names,
        verify_run,
    )
    from unmask.report import files

    # What is wrong with the command line, and data that are not there, come before the model is read.
    names = choose_tasks(options.task, options.published or model)
    if options.published is not None and options.published not in published_names():
        raise UnknownName("name of figures", options.published, published_names())
    if output.out is not None:
        files.folder(output.out)
    check_data(names, options.data_dir)
    loaded = load.load(model)
    target = choose_target(model, loaded.options.get("family"), options.published)
    prepared = [prepare_run(loaded, target, name, prompts=options.prompts, data_dir=options.data_dir) for name in names]
    _estimate(prepared, output.quiet)
    found: list[VerifiedRun] = []
    for one in prepared:
        with _show_progress(output) as show:
            found.append(
                verify_run(
                    loaded,
                    one,
                    target,
                    seed=options.seed,
                    batch_size=options.batch_size,
                    sandbox_workers=options.sandbox_workers,
                    work_dir=None if output.out is None else output.out / one.run.name,
                    on_progress=show,
                )
            )
    output.show(loaded.name, target, found)
    if output.strict and any(one.agreement is Agreement.BELOW for one in found):
        raise typer.Exit(FAILED)


def _estimate(prepared: "list[PreparedRun]", quiet: bool) -> None:
    """Say before the run begins what it costs at most."""
    if quiet:
        return
    for one in prepared:
        note(
            f"{one.run.name}: {len(one.chosen)} of {one.problems} problems, {one.run.new_tokens} tokens in "
            f"{one.run.steps} steps each: at most {one.forwards} forwards of one row"
        )


@contextmanager
def _show_progress(output: VerifyOutput) -> "Iterator[Callable[[CompareProgress], None]]":
    """Progress on stderr, and after Ctrl-C what is kept."""
    try:
        lines = AnswerLines(lambda now, text: f"{now.task}: {text}", at_once=True)
        with watching(lines.show, _screen, quiet=output.quiet) as show:
            yield show
    except KeyboardInterrupt:
        kept = (
            "nothing is kept; with --out FOLDER"
            if output.out is None
            else f"finished batches are in {str(output.out)!r};"
        )
        note(f"stopped: {kept} the same command goes on")
        raise


@contextmanager
def _screen() -> "Iterator[Callable[[CompareProgress], None]]":
    with bar("encoding problems") as show:
        yield lambda now: show(now.done, now.total, now.task)
