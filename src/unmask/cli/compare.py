"""`unmask compare`: decoding policies on the task suite, end to end, with paired intervals."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unmask.cli.options import DataDir, Device, Dtype, ModelName, ModelOption, load_model, pairs, split_commas
from unmask.errors import ConfigError, UnknownName
from unmask.report.console import Console, say

if TYPE_CHECKING:
    from unmask.core import Policy, Search
    from unmask.lab.compare import CompareProgress

REFERENCE = "reference"


def compare(
    model: ModelName,
    model_option: ModelOption = None,
    device: Device = None,
    dtype: Dtype = None,
    task: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A task of `unmask tasks`, `constructed` or `all`. Repeatable."),
    ] = None,
    split: Annotated[
        str, typer.Option(help="development, validation, evaluation, or `fresh`: new prompts of the generators.")
    ] = "development",
    prompts: Annotated[
        int | None, typer.Option(min=1, help="The first so many of each task. Default: the whole split; 500 fresh.")
    ] = None,
    axis: Annotated[
        list[str] | None,
        typer.Option(help="Candidates of score, region, cardinality or commitment, or `all`. Repeatable."),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            metavar="NAME[:KEY=VALUE,...]",
            help="Another policy, e.g. wino:block_length=8. Repeatable.",
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps for every task. Default: half its horizon.")] = None,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="0 takes the most probable token, above 0 draws one.")
    ] = 0.0,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Rows decoded together. Default: what memory is sure to hold.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers, the bootstrap's included.")] = 0,
    resamples: Annotated[int, typer.Option(min=1, help="Bootstrap draws behind the intervals.")] = 2000,
    data_dir: DataDir = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Programs run side by side (HumanEval). Default: all cores.")
    ] = None,
    picks: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="summary.json of a run on other prompts: its best candidates go into the short table, and without "
            "--axis they are the ones decoded.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where compare.csv, summary.md and summary.json go.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="summary.json on stdout and nothing else there.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress; only the paths of the files.")] = False,
) -> None:
    """Compare decoding policies on the tasks.

    Every policy decodes the same prompts; utilities get bootstrap intervals over prompts, differences to the model's
    reference are paired. Without --axis and --policy only the reference is scored.

    \b
    Examples:
      unmask compare --model mini --task constructed --axis region --out out/compare
      unmask compare --model mini --task carry-rtl --policy wino:block_length=8 --policy fixed:kappa=above:0.9
      unmask compare --model mini --split fresh --prompts 1000 --axis all --out out/fresh
      unmask compare --model mini --split evaluation --picks out/fresh/summary.json --out out/card
    """
    from unmask.lab.compare import evaluate, plan, summarise
    from unmask.report import compare as page
    from unmask.report import files
    from unmask.report.formats import counted

    # What is wrong with the command line comes before the model is read, and the folder before the work is done.
    if quiet and out is None and not json_:
        raise ConfigError(
            "--quiet is given without --out: nothing would be shown; allowed: with --out or --json; add one"
        )
    names, axes, extra = _tasks(task or ["constructed"]), _axes(axis or []), _extras(policy or [])
    _check_split(split)
    chosen = page.read_picks(picks) if picks is not None else None
    if out is not None:
        files.folder(out)
    if split == "evaluation" and not quiet:
        _note("evaluation prompts are for showing a result once; tune on development, validation or fresh prompts")
    loaded = load_model(model, model_option, device=device, dtype=dtype)
    only = {*chosen.values()} - {*extra, REFERENCE} if chosen is not None and not axes else None
    policies = {**_candidates(loaded.reference, axes, only), **extra}
    asked: dict[str, Any] = {
        "split": split,
        "policies": policies,
        "prompts": prompts,
        "steps": steps,
        "temperature": temperature,
        "seed": seed,
    }
    if out is not None:
        page.check_folder(out, plan(loaded, names, **asked))
    started = time.monotonic()
    with _watch(quiet) as on_progress:
        evaluation = evaluate(
            loaded,
            names,
            **asked,
            batch=batch,
            data_dir=data_dir,
            jobs=jobs,
            on_progress=on_progress,
        )
    seconds = time.monotonic() - started
    if not evaluation.rows:
        raise ConfigError(f"nothing could be decoded: {evaluation.tasks[0].task}: {evaluation.tasks[0].unavailable}")
    summary = summarise(evaluation, resamples=resamples)
    written = page.write(evaluation, summary, out, chosen) if out is not None else ()
    if json_:
        say(page.summary_json(evaluation, summary))
        return
    if not quiet:
        # A file has no width of its own; rich would take it for a terminal of 80 columns.
        console = Console() if sys.stdout.isatty() else Console(width=160)
        console.print(page.screen(summary))
        for line in page.remarks(summary):
            console.print(line, style="dim", highlight=False, markup=False)
        answers = counted(len(evaluation.rows), "answer")
        console.print(f"[dim]{answers} in {seconds:.1f} s. {page.LEGEND}[/]", highlight=False)
    for path in written:
        say(str(path))


def _tasks(given: list[str]) -> list[str]:
    """Names of tasks in the order of the suite's table, controls last."""
    from unmask.tasks import CONTROLS, TASKS

    groups = {"all": [*TASKS], "constructed": [name for name, task in TASKS.items() if task.generator]}
    wanted: set[str] = set()
    for name in given:
        if name not in (*groups, *TASKS, *CONTROLS):
            raise UnknownName("task", name, [*groups, *TASKS, *CONTROLS])
        wanted |= set(groups.get(name, [name]))
    return [name for name in (*TASKS, *CONTROLS) if name in wanted]


def _axes(given: list[str]) -> list[str]:
    from unmask.policies.candidates import AXES

    for name in given:
        if name not in (*AXES, "all"):
            raise UnknownName("axis", name, (*AXES, "all"))
    return [name for name in AXES if name in given or "all" in given]


def _check_split(split: str) -> None:
    from unmask.lab.compare import FRESH
    from unmask.tasks import SPLITS

    if split not in (*SPLITS, FRESH):
        raise UnknownName("split", split, (*SPLITS, FRESH))


def _extras(given: list[str]) -> "dict[str, Policy | Search]":
    """Policies named on the command line, labelled as they were written."""
    from unmask.policies import make

    found: dict[str, Policy | Search] = {}
    for text in given:
        name, _, rest = text.partition(":")
        if text in found or text == REFERENCE:
            raise ConfigError(f"--policy {text} is given twice; allowed: once; drop one of them")
        found[text] = make(name.strip(), **pairs("--policy", split_commas(rest)))
    return found


def _candidates(reference: str, axes: list[str], only: set[str] | None) -> "dict[str, Policy | Search]":
    """The reference first, then every other candidate of the axes, none twice; or those of all axes named in `only`."""
    from unmask.policies import METHODS, make
    from unmask.policies.candidates import AXES, candidates, reference_of

    if reference not in ("llada", "dream") and not axes and not only and reference in METHODS:
        return {REFERENCE: make(reference)}
    sets = candidates(reference)
    found: dict[str, Policy | Search] = {REFERENCE: reference_of(sets)}
    for axis in axes if only is None else AXES:
        found |= {f"{axis}={name}": p for name, p in sets[axis].items() if p not in found.values()}
    if only is None:
        return found
    for name in only:
        if name not in found:
            raise UnknownName("candidate of --picks", name, found)
    return {name: policy for name, policy in found.items() if name == REFERENCE or name in only}


@contextmanager
def _watch(quiet: bool) -> "Iterator[Callable[[CompareProgress], None]]":
    """A bar on stderr; where that is no terminal, a line now and then."""
    if quiet:
        yield lambda now: None
    elif not sys.stderr.isatty():
        yield _CompareLines().show
    else:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        shown = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*shown, console=Console(stderr=True), transient=True) as bar:
            bar_id = bar.add_task("encoding prompts", total=None)
            yield lambda now: bar.update(
                bar_id, completed=now.done, total=now.total, description=f"{now.task}  {now.policy}"
            )


class _CompareLines:
    """A line every few seconds, and one at the end."""

    def __init__(self, every: float = 5.0) -> None:
        self.every, self.started = every, time.monotonic()
        self.told = self.started

    def show(self, now: "CompareProgress") -> None:
        at = time.monotonic()
        if at - self.told < self.every and now.done < now.total:
            return
        self.told, spent = at, at - self.started
        left = spent / now.done * (now.total - now.done)
        _note(f"{now.done}/{now.total} answers, {spent:.0f} s, about {left:.0f} s left  {now.task}  {now.policy}")


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
