"""`unmask compare`: decoding policies on the task suite, end to end, with paired intervals."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unmask.base.errors import ConfigError
from unmask.cli.cluster import ClusterOptions
from unmask.cli.options import LoadOptions, ModelName, options_as_flags
from unmask.cli.progress import AnswerLines, bar, note, watching, wide_console
from unmask.lab.compare.plan import CompareOptions
from unmask.report.console import say, say_json

if TYPE_CHECKING:
    from unmask.lab.compare import CompareProgress, CompareSummary, Comparison, SpeedSummary


@dataclass(frozen=True, kw_only=True)
class CompareOutput:
    """Where results go."""

    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where compare.csv, summary.md, summary.json, the figures, timing and every finished batch go: the "
            "same command goes on.",
        ),
    ] = None
    json: Annotated[bool, typer.Option("--json", help="summary.json on stdout and nothing else there.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress; only the paths of the files.")] = False

    def check(self) -> None:
        """Before the work, not after."""
        from unmask.report import files

        if self.quiet and self.out is None and not self.json:
            raise ConfigError(
                "--quiet is given without --out: nothing would be shown; allowed: with --out or --json; add one"
            )
        if self.out is not None:
            files.check_place(self.out)

    def with_default_folder(self, config: dict[str, Any]) -> "CompareOutput":
        """Name a folder after the plan, for a comparison of which nobody said where it goes."""
        from unmask.lab.compare.store import content_hash
        from unmask.report import files

        if self.out is not None or self.json or self.quiet:
            return self
        place = Path("out", f"compare-{content_hash(config)[:8]}")
        files.check_place(place)
        note(f"results go to {place} (--out names another folder)")
        return replace(self, out=place)

    def report_stop(self, done: int, total: int) -> None:
        """Say after Ctrl-C what is kept: whole batches."""
        from unmask.lab.compare.store import count_finished
        from unmask.report.table import count_noun

        kept = 0 if self.out is None else count_finished(self.out)
        batches = count_noun(kept, "finished batch")
        what = f"{done} of {total} answers" if done else "no batch was finished"
        if self.out is None:
            note(f"stopped: {what}, and nothing is kept; with --out FOLDER the same command goes on")
        elif not kept:
            note(f"stopped: {what}, nothing is kept yet; the same command begins again")
        else:
            note(f"stopped: {what}; {batches} kept in {str(self.out)!r}; the same command goes on")

    def show(
        self,
        comparison: "Comparison",
        summary: "CompareSummary",
        speed: "SpeedSummary",
        picks: "dict[str, str] | None",
        seconds: float,
    ) -> None:
        """Write the files, and print the tables."""
        from unmask.report import compare as report
        from unmask.report import compare_words as words
        from unmask.report.table import count_noun

        written = () if self.out is None else report.write_comparison(comparison, summary, self.out, picks, speed)
        if comparison.damaged and not self.quiet:
            note(f"{count_noun(len(comparison.damaged), 'damaged file')} of {self.out}: decoded again")
        if written and report.PAGE not in [path.name for path in written] and not self.quiet:
            note("no page: the package plotly is not installed; `pip install 'unmask[lab]'`, and run the same command")
        if self.json:
            say_json(report.summary_json(comparison, summary, speed))
            return
        if not self.quiet:
            console = wide_console()
            for table in report.screen_tables(summary, speed, console.width):
                console.print(table)
                console.print()
            for line in words.conclusions(summary):
                console.print(line, style="bold", highlight=False, markup=False)
            answers = f"{count_noun(len(comparison.answers), 'answer')} in {seconds:.1f} s."
            notes = (*words.remarks(summary), *words.time_remarks(speed), answers)
            for line in (*notes, *words.sign_legends(summary, speed)):
                console.print(line, style="dim", highlight=False, markup=False)
        for path in written:
            say(str(path))


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
      unmask compare --model mini --task constructed --policy soar --policy medal --matched --out out/searches
      unmask compare --model exact --task mine.jsonl --score exact --horizon 6 --policy all
      unmask compare --model mini --split fresh --prompts 1000 --axis all --out out/fresh
      unmask compare --model llada --policy all --on ray --address auto --out out/llada
      unmask compare --model mini --split evaluation --picks out/fresh/summary.json --out out/card
    """
    from unmask.lab.compare import open_tasks, plan_comparison, run_comparison, summarise, summarise_speed
    from unmask.lab.compare.plan import check_axes, check_split, default_split, parse_policies
    from unmask.report import compare as report

    # What is wrong with the command line comes before the model is read, and the folder before the work is done.
    tasks = open_tasks(options)
    check_axes(options.axis)
    parse_policies(options.policy)
    check_split(options.split)
    picks = None if options.policies_from is None else report.read_picks(options.policies_from)
    output.check()
    if default_split(options, tasks) == "evaluation" and not output.quiet:
        note("evaluation prompts are for showing a result once; tune on development, validation or fresh prompts")
    with cluster.open_model(load, model) as (loaded, executor):
        plan = plan_comparison(loaded, options, tasks, picks, on_note=(lambda text: None) if output.quiet else note)
        config = plan.config(loaded)
        if not options.names_policies:
            output = output.with_default_folder(config)
        if output.out is not None:
            report.check_folder(output.out, config)
        started = time.monotonic()
        with _progress(output) as on_progress:
            comparison = run_comparison(
                loaded,
                plan,
                batch_size=options.batch_size,
                data_dir=options.data_dir,
                sandbox_workers=options.sandbox_workers,
                work_dir=output.out,
                warm_up=options.warm_up,
                on_progress=on_progress,
                executor=executor,
            )
        seconds = time.monotonic() - started
    if comparison.answers.empty:
        raise ConfigError(f"nothing could be decoded: {comparison.tasks[0].task}: {comparison.tasks[0].unavailable}")
    summary = summarise(comparison, resamples=options.resamples, macro_without=options.macro_without)
    output.show(comparison, summary, summarise_speed(comparison, summary, resamples=options.resamples), picks, seconds)


@contextmanager
def _progress(output: CompareOutput) -> "Iterator[Callable[[CompareProgress], None]]":
    """Show progress on stderr, and after Ctrl-C what is kept."""
    done = total = 0

    @contextmanager
    def screen() -> "Iterator[Callable[[CompareProgress], None]]":
        with bar("encoding prompts") as show:
            yield lambda now: show(now.done, now.total, f"{now.task}  {now.policy}")

    try:
        lines = AnswerLines(lambda now, text: f"{text}  {now.task}  {now.policy}", at_once=False)
        with watching(lines.show, screen, quiet=output.quiet) as show:

            def on_progress(now: "CompareProgress") -> None:
                nonlocal done, total
                done, total = now.done, now.total
                show(now)

            yield on_progress
    except KeyboardInterrupt:
        output.report_stop(done, total)
        raise
