"""`unmask demo`: what this package is about, on one page: methods, runs to look at, and a whole study."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unmask.base.errors import OtherStudy, SchemaError
from unmask.cli.interrupts import stoppable
from unmask.cli.options import DataDir
from unmask.cli.progress import note
from unmask.cli.study import INCOMPLETE, watch
from unmask.cli.study_plan import load_model
from unmask.report.console import Console, progress, say

if TYPE_CHECKING:
    from unmask.api import Model
    from unmask.lab.demo import DemoComparison, DemoRun
    from unmask.lab.store import Store
    from unmask.lab.study import Study
    from unmask.lab.study.protocol import StudyOutcome
    from unmask.lab.study_models import ModelSpec
    from unmask.report.demo.page import DemoResults


def demo(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where it goes; made if need be.")] = Path("out/demo"),
    problems: Annotated[int, typer.Option(min=1, help="Distributions per family of problems.")] = 6,
    seeds: Annotated[int, typer.Option(min=2, help="Runs of the policies that draw random numbers.")] = 16,
    study: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A study file of your own. Default: a small one of `mini`.")
    ] = None,
    data_dir: DataDir = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the paths of the files.")] = False,
) -> None:
    """Look at all of it: methods where the best answer is known, runs of a small model, and a study of it.

    One page shows what came out, verdicts first. It takes under four minutes on two cores. It may be stopped at any
    moment: the same command goes on.

    \b
    Example:
      unmask demo --out out/demo      then open out/demo/report.html in a browser
    """
    from unmask.lab.demo import DEMO_STUDY
    from unmask.lab.study import Study
    from unmask.report import files
    from unmask.report.demo.files import write

    # Refuse a folder that cannot be used before the work, not after.
    chosen = Study.read(study or DEMO_STUDY)
    files.folder(out)
    store = _open_store(out, chosen)
    with stoppable(lambda: f"what is finished is kept in {str(out)!r}; the same command goes on"):
        comparison = _run_problems(out / "problems.json", problems, seeds, quiet)
        load = _load_once()
        runs, records = _decode_examples(chosen, load, data_dir, quiet)
        outcome = _run_demo_study(chosen, store, load, data_dir, quiet)
        results = _collect_results(chosen, comparison, runs, records, store, load)
        written = write(results, out)
    _show(results, written, quiet)
    if not outcome.complete:
        note(f"not complete: {outcome.reason}; the page says what is missing; the same command goes on")
        raise typer.Exit(INCOMPLETE)


def _open_store(out: Path, study: "Study") -> "Store":
    """The folder of the demo's study; one that cannot be gone on with is refused with what to do."""
    from unmask.lab.store import Store

    try:
        return Store.create(out / "study", study.config)
    except (OtherStudy, SchemaError) as error:
        raise OtherStudy(
            f"{str(out)!r} holds another demo ({error}); allowed: a new folder, or one that this version began; remove "
            "it, or choose another with --out"
        ) from error


def _run_problems(path: Path, problems: int, seeds: int, quiet: bool) -> "DemoComparison":
    from unmask.lab.demo import CONTENDERS, demo_problems, load_or_run_demo

    chosen = demo_problems(problems)
    with progress("methods on problems with known answers", len(chosen) * len(CONTENDERS), quiet) as advance:
        return load_or_run_demo(
            path, chosen, CONTENDERS, seeds=seeds, on_done=lambda problem, label: advance(problem.name)
        )


def _load_once() -> "Callable[[ModelSpec], Model]":
    """Runs and study share a model."""
    kept: dict[str, Model] = {}

    def load(spec: "ModelSpec") -> "Model":
        if spec.name not in kept:
            kept.clear()
            kept[spec.name] = load_model(spec)
        return kept[spec.name]

    return load


def _decode_examples(
    study: "Study", load: "Callable[[ModelSpec], Model]", data_dir: Path | None, quiet: bool
) -> "tuple[Sequence[DemoRun], list[dict[str, Any]]]":
    """A few runs of the study's first model, as values and as records to draw."""
    from unmask.lab.demo import SHOWN, make_demo_runs
    from unmask.lab.study.prompts import load_examples
    from unmask.report.run_data import run_data

    spec = study.models[0]
    tasks, _ = load_examples(study, data_dir)
    with progress("a few runs to look at", len(tasks) * len(SHOWN), quiet) as advance:
        model = load(spec)
        runs = make_demo_runs(model, study, tasks, on_done=lambda run: advance(f"{run.shown.label} on {run.task}"))
    records = [
        run_data(
            run.trajectory,
            0,
            model.codec,
            prompt=run.example.prompt,
            model=spec.name,
            policy=run.shown.label,
            score=run.utility,
            explanation=run.judged.reason,
            top=3,
        )
        for run in runs
    ]
    return runs, records


def _run_demo_study(
    study: "Study", store: "Store", load: "Callable[[ModelSpec], Model]", data_dir: Path | None, quiet: bool
) -> "StudyOutcome":
    from unmask.lab.study.protocol import run_study

    with watch(quiet) as on_progress:
        return run_study(
            study,
            store,
            load,
            data_dir=data_dir,
            on_progress=on_progress,
            on_failure=lambda failure: note(f"failed: {failure.name}: {failure.error}"),
        )


def _collect_results(
    study: "Study",
    comparison: "DemoComparison",
    runs: "Sequence[DemoRun]",
    records: list[dict[str, Any]],
    store: "Store",
    load: "Callable[[ModelSpec], Model]",
) -> "DemoResults":
    from unmask.lab.analysis import analyse
    from unmask.lab.analysis.states import state_evidence
    from unmask.report.demo.page import STATES, DemoResults
    from unmask.report.study import study_report

    found = analyse(store)
    # The first model is loaded; tokens of others are shown as numbers.
    codecs = {study.models[0].name: load(study.models[0]).codec}
    return DemoResults(
        comparison, runs, records, found, study_report(found), state_evidence(store, codecs, count=STATES)
    )


def _show(results: "DemoResults", written: Any, quiet: bool) -> None:
    """The verdicts and the page's address last, where they stay in sight."""
    from rich.text import Text

    from unmask.report import terminal

    if quiet:
        for path in written.paths:
            say(str(path))
        return
    console = Console()
    console.print(terminal.comparison(results.summaries))
    say("utility: P(answer) / P(best answer); *: none here scores as high with fewer forwards")
    for verdict in results.verdicts:
        line = Text.assemble((f"\n{verdict.question} ", "bold"), verdict.sentence)
        console.print(line, soft_wrap=not console.is_terminal)
    say(f"\npage: {written.page}\n      {written.page.resolve().as_uri()}")
