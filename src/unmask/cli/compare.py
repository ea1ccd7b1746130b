"""`unmask compare`: decoding policies on tasks, end to end, with paired intervals."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import Field

from unmask.base.errors import ConfigError
from unmask.base.options import Options
from unmask.cli.options import ClusterOptions, LoadOptions, ModelName, options_as_flags
from unmask.cli.progress import explain_interrupts, show_answers
from unmask.cli.terminal import print_json, print_note, print_text, wide_console
from unmask.lab.compare import (
    CompareProgress,
    CompareSummary,
    Comparison,
    open_tasks,
    plan_comparison,
    run_comparison,
    summarise,
    summarise_speed,
)
from unmask.lab.compare.plan import CompareOptions, check_split, default_split, order_axes, parse_policies
from unmask.lab.compare.store import content_hash, count_finished
from unmask.report import compare as report
from unmask.report import files
from unmask.report.table import count_noun


class CompareOutput(Options):
    """Where results go."""

    out: Path | None = Field(
        None,
        description="Where compare.csv, summary.md, summary.json, the figures, timing and every finished batch go: the "
        "same command goes on.",
    )
    json_: bool = Field(False, description="summary.json on stdout and nothing else there.")
    quiet: bool = Field(False, description="No progress; only the paths of the files.")

    def check_place(self) -> None:
        """Refuse a folder that cannot be used before the work, not after it."""
        if self.quiet and self.out is None and not self.json_:
            raise ConfigError(
                "--quiet is given without --out: nothing would be shown; allowed: with --out or --json; add one"
            )
        if self.out is not None:
            files.check_place(self.out)


@options_as_flags
def compare(
    model: ModelName, load: LoadOptions, options: CompareOptions, cluster: ClusterOptions, output: CompareOutput
) -> None:
    """Compare decoding policies on the tasks.

    Every policy decodes the same prompts; utilities get bootstrap intervals over prompts, differences to the model's
    reference are paired. Without --axis and --policy it is compared with the methods that may need fewer forwards, on a
    few prompts. With --out it may be stopped at any moment: the same command goes on; a page of the result is there.

    \b
    Examples:
      unmask compare --model mini
      unmask compare --model mini --task constructed --axis region --out out/compare
      unmask compare --model mini --task carry-rtl --policy wino:block_length=8 --policy fixed:kappa=above:0.9
      unmask compare --model mini --task constructed --policy all --out out/methods
      unmask compare --model mini --task carry-rtl --policy mine.py:SureOrOne:threshold=0.8
      unmask compare --model mini --task constructed --policy soar --policy medal --compute-matched --out out/searches
      unmask compare --model mini --task mine.jsonl --scorer exact --max-new-tokens 16
      unmask compare --model mini --split fresh --prompts 1000 --axis all --out out/fresh
      unmask compare --model llada --policy all --ray auto --out out/llada
      unmask compare --model mini --split evaluation --policies-from out/fresh/summary.json --out out/card
    """
    # A wrong command line is refused before the model is read, and a wrong folder before the work is done.
    tasks = open_tasks(options)
    order_axes(options.axis)
    parse_policies(options.policy)
    check_split(options.split)
    picks = None if options.policies_from is None else report.read_picks(options.policies_from)
    output.check_place()
    if default_split(options, tasks) == "evaluation" and not output.quiet:
        print_note("evaluation prompts are for showing a result once; tune on development, validation or fresh prompts")
    with cluster.open_model(load, model) as (loaded, executor):
        on_note = (lambda text: None) if output.quiet else print_note
        plan = plan_comparison(loaded, options, tasks, picks, on_note=on_note)
        config = plan.config(loaded)
        folder = output.out
        if folder is None and not (options.names_policies or output.json_ or output.quiet):
            folder = _default_folder(config)
        if folder is not None:
            report.check_folder(folder, config)
        started = time.monotonic()
        with _show_progress(folder, output.quiet) as on_progress:
            comparison = run_comparison(
                loaded,
                plan,
                batch_size=options.batch_size,
                data_dir=options.data_dir,
                sandbox_workers=options.sandbox_workers,
                work_dir=folder,
                warm_up=options.warm_up,
                on_progress=on_progress,
                executor=executor,
            )
        seconds = time.monotonic() - started
    if comparison.answers.empty:
        raise ConfigError(f"nothing could be decoded: {comparison.tasks[0].task}: {comparison.tasks[0].unavailable}")
    summary = summarise(comparison, resamples=options.resamples, macro_without=options.macro_without)
    _show(comparison, summary, folder, output, picks, seconds, options.resamples)


def _default_folder(config: dict[str, Any]) -> Path:
    """Return a folder named after the plan, for a first look of which nobody said where it goes."""
    folder = Path("out", f"compare-{content_hash(config)[:8]}")
    files.check_place(folder)
    print_note(f"results go to {folder} (--out names another folder)")
    return folder


@contextmanager
def _show_progress(folder: Path | None, quiet: bool) -> Iterator[Callable[[CompareProgress], None]]:
    """Show progress on stderr, and after Ctrl-C say what is kept: whole batches."""
    last: CompareProgress | None = None

    def describe() -> str:
        done = f"{last.done} of {last.total} answers" if last is not None and last.done else "no batch was finished"
        finished = 0 if folder is None else count_finished(folder)
        if folder is None:
            return f"{done}, and nothing is kept; with --out FOLDER the same command goes on"
        if not finished:
            return f"{done}, nothing is kept yet; the same command begins again"
        return f"{done}; {count_noun(finished, 'finished batch')} kept in {str(folder)!r}; the same command goes on"

    with explain_interrupts(describe), show_answers("encoding prompts", quiet, at_once=False) as show:

        def on_progress(now: CompareProgress) -> None:
            nonlocal last
            last = now
            show(now)

        yield on_progress


def _show(
    comparison: Comparison,
    summary: CompareSummary,
    folder: Path | None,
    output: CompareOutput,
    picks: dict[str, str] | None,
    seconds: float,
    resamples: int,
) -> None:
    """Write the files, and print tables and conclusions."""
    speed = summarise_speed(comparison, summary, resamples=resamples)
    written = () if folder is None else report.write_comparison(comparison, summary, folder, picks, speed)
    if not output.quiet and comparison.damaged:
        print_note(f"{count_noun(len(comparison.damaged), 'damaged file')} of {folder}: decoded again")
    if output.json_:
        print_json(report.summary_json(comparison, summary, speed))
        return
    if not output.quiet:
        console = wide_console()
        for table in report.screen_tables(summary, speed, console.width):
            console.print(table)
            console.print()
        for line in report.conclusions(summary):
            console.print(line, style="bold", highlight=False, markup=False)
        answers = f"{count_noun(len(comparison.answers), 'answer')} in {seconds:.1f} s."
        notes = (*report.remarks(summary), *report.time_remarks(speed), answers)
        for line in (*notes, *report.sign_legends(summary, speed)):
            console.print(line, style="dim", highlight=False, markup=False)
    for path in written:
        print_text(str(path))
