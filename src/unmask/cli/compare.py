"""`unmask compare`: decoding policies on the task suite, end to end, with paired intervals."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unmask.base.errors import ConfigError, UnknownName, format_value
from unmask.cli.cluster import ClusterOptions
from unmask.cli.compare_policies import ALL_METHODS, REFERENCE, candidates, extras, published, saving
from unmask.cli.completion import compared
from unmask.cli.completion import tasks as task_names
from unmask.cli.options import POLICY, DataDir, Jobs, LoadOptions, ModelName, options_as_flags
from unmask.cli.progress import AnswerLines, bar, note, watching, wide_console
from unmask.report.console import say, say_json

if TYPE_CHECKING:
    from unmask.api import Model
    from unmask.core import Policy, Search
    from unmask.lab.cluster.model_workers import ModelWorkers
    from unmask.lab.compare import ComparePlan, CompareProgress, Evaluation
    from unmask.lab.compare_matched import MatchedControl
    from unmask.lab.compare_speed import SpeedSummary
    from unmask.lab.compare_summary import CompareSummary
    from unmask.tasks import Task

FEW_PROMPTS = 10
"""Of each task, where nobody said what to compare: a first look, not a result."""


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """What is decoded, and by which policies."""

    task: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            autocompletion=task_names,
            help="A task of `unmask tasks`, its controls included, `constructed`, or `all` for the ten. Repeatable. "
            "Default: constructed. Or one of your own, alone: FILE.jsonl, or code, which runs.",
        ),
    ] = None
    score: Annotated[
        str | None,
        typer.Option(metavar="RULE", help="How answers to a task of your own are scored, as for `unmask calibrate`."),
    ] = None
    horizon: Annotated[
        int | None, typer.Option(min=1, help="Tokens that an answer to a task of your own may take.")
    ] = None
    split: Annotated[
        str, typer.Option(help="development, validation, evaluation, or `fresh`: new prompts of the generators.")
    ] = "development"
    prompts: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="The first so many of each task. Default: the whole split; 500 fresh; 10 if no policy is named.",
        ),
    ] = None
    axis: Annotated[
        list[str] | None,
        typer.Option(help="Candidates of score, region, cardinality or commitment, or `all`. Repeatable."),
    ] = None
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            metavar=POLICY,
            autocompletion=compared,
            help="Another policy, e.g. wino:block_length=8; `all`: every published method that suits the model; "
            "`reference`: the model's own alone; or a class of your own, whose code runs: path.py:Class or "
            "package.module:Class, then :KEY=VALUE... Repeatable.",
        ),
    ] = None
    matched: Annotated[
        bool,
        typer.Option(
            "--matched",
            help="With every search its base method, and best of n of that with as many forwards: the most probable of "
            "n answers, all but the first drawn at temperature 0.6.",
        ),
    ] = False
    steps: Annotated[int | None, typer.Option(min=1, help="Steps for every task. Default: half its horizon.")] = None
    temperature: Annotated[float, typer.Option(min=0.0, help="0 takes the most probable token, above 0 draws one.")] = (
        0.0
    )
    batch: Annotated[
        int | None, typer.Option(min=1, help="Rows decoded together. Default: what memory is sure to hold.")
    ] = None
    seed: Annotated[int, typer.Option(help="Seed of all random numbers, the bootstrap's included.")] = 0
    resamples: Annotated[int, typer.Option(min=1, help="Bootstrap draws behind the intervals.")] = 2000
    macro_without: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A task that is shown and left out of the mean over tasks. Repeatable."),
    ] = None
    warm_up: Annotated[
        bool,
        typer.Option("--warm-up", help="Decode each policy's first batch of a task once before its time is measured."),
    ] = False
    data_dir: DataDir = None
    jobs: Jobs = None
    picks: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="summary.json of a run on other prompts: its best candidates go into the short table, and without "
            "--axis they are the ones decoded.",
        ),
    ] = None


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

    def somewhere(self, config: dict[str, Any]) -> "CompareOutput":
        """With a folder of its own for a comparison of which nobody said where it goes; it is named after the plan."""
        from unmask.lab.compare_store import content_hash
        from unmask.report import files

        if self.out is not None or self.json or self.quiet:
            return self
        place = Path("out", f"compare-{content_hash(config)[:8]}")
        files.check_place(place)
        note(f"results go to {place} (--out names another folder)")
        return replace(self, out=place)

    def say_what_is_kept(self, done: int, total: int) -> None:
        """After Ctrl-C: answers are kept by whole batches."""
        from unmask.lab.compare_store import finished_batches
        from unmask.report.formats import counted

        kept = 0 if self.out is None else finished_batches(self.out)
        batches = counted(kept, "finished batch")
        what = f"{done} of {total} answers" if done else "no batch was finished"
        if self.out is None:
            note(f"stopped: {what}, and nothing is kept; with --out FOLDER the same command goes on")
        elif not kept:
            note(f"stopped: {what}, nothing is kept yet; the same command begins again")
        else:
            note(f"stopped: {what}; {batches} kept in {str(self.out)!r}; the same command goes on")

    def show(
        self,
        evaluation: "Evaluation",
        summary: "CompareSummary",
        speed: "SpeedSummary",
        picks: Any,
        seconds: float,
    ) -> None:
        """Write the files, and print the table."""
        from unmask.report import compare as page
        from unmask.report import compare_screen as screen
        from unmask.report.compare_plot import plot
        from unmask.report.formats import counted

        written = page.write(evaluation, summary, self.out, picks, speed) if self.out is not None else ()
        if evaluation.damaged and not self.quiet:
            note(f"{counted(len(evaluation.damaged), 'damaged file')} of {self.out}: decoded again")
        if written and page.PAGE not in [path.name for path in written] and not self.quiet:
            note("no page: the package plotly is not installed; `pip install 'unmask[lab]'`, and run the same command")
        if self.json:
            say_json(page.summary_json(evaluation, summary, speed))
            return
        if not self.quiet:
            console = wide_console()
            for table in screen.screens(summary, speed, console.width):
                console.print(table)
                console.print()
            drawn = plot(summary, console.width)
            for line in (*drawn, *([""] if drawn else [])):
                console.print(line, highlight=False, markup=False, soft_wrap=True)
            for line in screen.verdict(summary):
                console.print(line, style="bold", highlight=False, markup=False)
            answers = f"{counted(len(evaluation.rows), 'answer')} in {seconds:.1f} s."
            said = (*screen.remarks(summary), *screen.time_remarks(speed), answers, *screen.legends(summary, speed))
            for line in said:
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
      unmask compare --model exact --task mine.jsonl --score exact --horizon 6 --split evaluation --policy all
      unmask compare --model mini --split fresh --prompts 1000 --axis all --out out/fresh
      unmask compare --model llada --policy all --on ray --address auto --out out/llada
      unmask compare --model mini --split evaluation --picks out/fresh/summary.json --out out/card
    """
    from unmask.lab.compare_speed import summarise_speed
    from unmask.lab.compare_summary import summarise
    from unmask.methods import ANY_FAMILY
    from unmask.report import compare as page

    # What is wrong with the command line comes before the model is read, and the folder before the work is done.
    tasks, axes = _tasks(options.task or ["constructed"], options.score, options.horizon), _axes(options.axis or [])
    extras(options.policy, ANY_FAMILY)
    _check_split(options.split)
    without = _without(options.macro_without or [], [task.name for task in tasks])
    picks = page.read_picks(options.picks) if options.picks is not None else None
    output.check()
    if options.split == "evaluation" and not output.quiet:
        note("evaluation prompts are for showing a result once; tune on development, validation or fresh prompts")
    with cluster.opened(load, model) as (loaded, workers):
        plan = _plan(loaded, options, tasks, axes, picks, quiet=output.quiet)
        config = plan.config(loaded)
        if not (axes or options.policy or picks is not None):
            output = output.somewhere(config)
        if output.out is not None:
            page.check_folder(output.out, config)
        started = time.monotonic()
        evaluation = _evaluated(loaded, workers, plan, options, output)
        seconds = time.monotonic() - started
    if not evaluation.rows:
        raise ConfigError(f"nothing could be decoded: {evaluation.tasks[0].task}: {evaluation.tasks[0].unavailable}")
    summary = summarise(evaluation, resamples=options.resamples, macro_without=without)
    output.show(evaluation, summary, summarise_speed(evaluation, summary, resamples=options.resamples), picks, seconds)


def _plan(
    model: "Model",
    options: CompareOptions,
    tasks: "list[Task]",
    axes: list[str],
    picks: dict[str, str] | None,
    *,
    quiet: bool,
) -> "ComparePlan":
    """What is to be decoded; where nobody said by which policies, those that may save forwards, on a few prompts."""
    from unmask.lab.compare import ComparePlan
    from unmask.methods import preset_family

    extra = extras(options.policy, preset_family(model.reference, model.options))
    unnamed = not (axes or options.policy or picks is not None)
    if unnamed:
        extra = saving(model, options.prompts or FEW_PROMPTS, quiet=quiet)
    elif any(text.strip() == ALL_METHODS for text in options.policy or []):
        extra = {**published(model, quiet=quiet), **extra}
    only = {*picks.values()} - {*extra, REFERENCE} if picks is not None and not axes else None
    policies, controls = _arms(model, {**candidates(model.reference, axes, only), **extra}, options.matched)
    return ComparePlan(
        tasks=tasks,
        split=options.split,
        policies=policies,
        controls=controls,
        prompts=options.prompts or (FEW_PROMPTS if unnamed else None),
        steps=options.steps,
        temperature=options.temperature,
        seed=options.seed,
    )


def _arms(
    model: "Model", policies: "dict[str, Policy | Search]", matched: bool
) -> "tuple[dict[str, Policy | Search], dict[str, MatchedControl]]":
    """The policies with the heads of this model, and the controls of its searches where they are asked for."""
    from unmask.lab.compare_matched import with_controls
    from unmask.methods import with_head
    from unmask.models import ExactDenoiser

    exact = isinstance(model.denoiser, ExactDenoiser)
    own = {name: with_head(policy, model.name, model.fingerprint, exact) for name, policy in policies.items()}
    if not matched:
        return own, {}
    arms, controls = with_controls(own)
    if not controls:
        raise ConfigError("--matched is given without a search; allowed: with --policy soar or such; name one")
    return arms, controls


def _evaluated(
    model: "Model",
    workers: "ModelWorkers | None",
    plan: "ComparePlan",
    options: CompareOptions,
    output: CompareOutput,
) -> "Evaluation":
    """The answers, with progress on stderr."""
    from unmask.lab.compare import run_comparison
    from unmask.lab.compare_remote import ClusterDecoder

    done = total = 0
    jobs, warm_up = options.jobs, options.warm_up
    decoder = None if workers is None else ClusterDecoder(workers, model, plan, jobs, warm_up)

    def told(now: "CompareProgress") -> None:
        nonlocal done, total
        done, total = now.done, now.total
        show(now)

    try:
        lines = AnswerLines(lambda now, told: f"{told}  {now.task}  {now.policy}", at_once=False)
        with watching(lines.show, _screen, quiet=output.quiet) as show:
            return run_comparison(
                model,
                plan,
                batch=options.batch,
                data_dir=options.data_dir,
                jobs=options.jobs,
                work=output.out,
                warm_up=options.warm_up,
                on_progress=told,
                decoder=decoder,
            )
    except KeyboardInterrupt:
        output.say_what_is_kept(done, total)
        raise


def _tasks(given: list[str], score: str | None, horizon: int | None) -> "list[Task]":
    """Tasks in the order of the suite's table, controls last; or the one of the user's own."""
    from unmask.tasks import CONTROLS, TASKS, check_scorer, is_own, open_task

    own = [name for name in given if is_own(name)]
    if own or score is not None or horizon is not None:
        if len(given) > 1:
            raise ConfigError(
                f"--task is {', '.join(map(format_value, given))}; allowed: a task of your own alone, or those of the "
                "suite without --score and --horizon; compare them one after the other"
            )
        task = open_task(given[0], scorer=score, max_new_tokens=horizon)
        check_scorer(task)
        return [task]
    groups = {"all": [*TASKS], "constructed": [name for name, task in TASKS.items() if task.generator]}
    wanted: set[str] = set()
    for name in given:
        if name not in (*groups, *TASKS, *CONTROLS):
            raise UnknownName("task", name, [*groups, *TASKS, *CONTROLS])
        wanted |= set(groups.get(name, [name]))
    return [task for name, task in {**TASKS, **CONTROLS}.items() if name in wanted]


def _without(given: list[str], tasks: list[str]) -> list[str]:
    for name in given:
        if name not in tasks:
            raise UnknownName("task of --macro-without", name, tasks)
    return list(dict.fromkeys(given))


def _axes(given: list[str]) -> list[str]:
    from unmask.axes import AXES

    for name in given:
        if name not in (*AXES, "all"):
            raise UnknownName("axis", name, (*AXES, "all"))
    return [name for name in AXES if name in given or "all" in given]


def _check_split(split: str) -> None:
    from unmask.lab.compare import FRESH
    from unmask.tasks import SPLITS

    if split not in (*SPLITS, FRESH):
        raise UnknownName("split", split, (*SPLITS, FRESH))


@contextmanager
def _screen() -> "Iterator[Callable[[CompareProgress], None]]":
    with bar("encoding prompts") as show:
        yield lambda now: show(now.done, now.total, f"{now.task}  {now.policy}")
