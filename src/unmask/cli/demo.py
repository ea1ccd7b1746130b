"""`unmask demo`: what this package is about, on one page: methods, runs to look at, and a whole study."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from unmask.api import Model
from unmask.base.errors import OtherStudy, SchemaError
from unmask.cli.options import DataDir, Quiet
from unmask.cli.progress import explain_interrupts, show_bar
from unmask.cli.study import INCOMPLETE, load_model, show_study_progress
from unmask.cli.terminal import Console, make_table, print_note, print_text
from unmask.lab.analysis import analyse
from unmask.lab.analysis.states import collect_state_evidence
from unmask.lab.demo import (
    CONTENDERS,
    DEMO_STUDY,
    SHOWN_METHODS,
    DemoComparison,
    DemoRun,
    demo_problems,
    load_or_run_demo,
    make_demo_runs,
)
from unmask.lab.store import Store
from unmask.lab.study import StudyConfig
from unmask.lab.study.config import ModelSpec
from unmask.lab.study.prompts import load_examples
from unmask.lab.study.protocol import run_study
from unmask.report import files
from unmask.report.demo import STATES, DemoResults, write_demo
from unmask.report.run_data import run_data
from unmask.report.study import study_report


def demo(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where it goes; made if need be.")] = Path("out/demo"),
    problems: Annotated[int, typer.Option(min=1, help="Distributions per family of problems.")] = 6,
    seeds: Annotated[int, typer.Option(min=2, help="Runs of the policies that draw random numbers.")] = 16,
    study: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A study file of your own. Default: a small one of `mini`.")
    ] = None,
    data_dir: DataDir = None,
    quiet: Quiet = False,
) -> None:
    """Look at all of it: methods where the best answer is known, runs of a small model, and a study of it.

    One page shows what came out, verdicts first. It takes under four minutes on two cores. It may be stopped at any
    moment: the same command goes on.

    \b
    Example:
      unmask demo --out out/demo      then open out/demo/report.html in a browser
    """
    chosen = StudyConfig.read(study or DEMO_STUDY)
    # A folder that cannot be used is refused before the work, not after.
    files.folder(out)
    try:
        store = Store.create(out / "study", chosen.config)
    except (OtherStudy, SchemaError) as error:
        raise OtherStudy(
            f"{str(out)!r} holds another demo ({error}); allowed: a new folder, or one that this version began; remove "
            "it, or choose another with --out"
        ) from error
    loaded: dict[str, Model] = {}

    def load_once(spec: ModelSpec) -> Model:
        # Runs and study share a model; only one is kept in memory.
        if spec.name not in loaded:
            loaded.clear()
            loaded[spec.name] = load_model(spec)
        return loaded[spec.name]

    with explain_interrupts(lambda: f"what is finished is kept in {str(out)!r}; the same command goes on"):
        comparison = _compare_methods(out / "problems.json", problems, seeds, quiet)
        runs, records = _decode_runs(chosen, load_once(chosen.models[0]), data_dir, quiet)
        with show_study_progress(quiet) as on_progress:
            outcome = run_study(
                chosen,
                store,
                load_once,
                data_dir=data_dir,
                on_progress=on_progress,
                on_failure=lambda failure: print_note(f"failed: {failure.name}: {failure.error}"),
            )
        findings = analyse(store)
        # Tokens of models other than the first are shown as numbers.
        codecs = {chosen.models[0].name: load_once(chosen.models[0]).codec}
        states = collect_state_evidence(store, codecs, count=STATES)
        results = DemoResults(comparison, runs, records, findings, study_report(findings), states)
        written = write_demo(results, out)
    if quiet:
        print_text("\n".join(map(str, written)))
    else:
        _show(results, written.page)
    if not outcome.complete:
        print_note(f"not complete: {outcome.reason}; the page says what is missing; the same command goes on")
        raise typer.Exit(INCOMPLETE)


def _compare_methods(path: Path, problems: int, seeds: int, quiet: bool) -> DemoComparison:
    """Run the methods on problems with known answers, or read what an earlier run of this code has kept."""
    chosen = demo_problems(problems)
    with show_bar("methods on problems with known answers", len(chosen) * len(CONTENDERS), quiet) as update:
        return load_or_run_demo(
            path,
            chosen,
            CONTENDERS,
            seeds=seeds,
            on_done=lambda problem, label: update(advance=1, description=problem.name),
        )


def _decode_runs(
    study: StudyConfig, model: Model, data_dir: Path | None, quiet: bool
) -> tuple[tuple[DemoRun, ...], list[dict[str, Any]]]:
    """Decode a few prompts by the methods to look at; return the runs, and their data for the page."""
    tasks, _ = load_examples(study, data_dir)
    with show_bar("a few runs to look at", len(tasks) * len(SHOWN_METHODS), quiet) as update:

        def on_done(run: DemoRun) -> None:
            update(advance=1, description=f"{run.shown.label} on {run.task}")

        runs = make_demo_runs(model, study, tasks, on_done=on_done)
    records = [
        run_data(
            run.trajectory,
            0,
            model.codec,
            prompt=run.example.prompt,
            model=study.models[0].name,
            policy=run.shown.label,
            score=run.utility,
            explanation=run.judged.reason,
            top=3,
        )
        for run in runs
    ]
    return runs, records


def _show(results: DemoResults, page: Path) -> None:
    """Print the table, then the answers and the page's address, where they stay in sight."""
    console = Console()
    numbers = ("utility", "s.e.", "forwards", "tokens/forward")
    rows = []
    for one in results.summaries:
        cells = (one.label + " *" * one.frontier, *one.cells.values())
        rows.append([Text(cell, "dim italic" if one.baseline else "") for cell in cells])
    console.print(make_table(("policy", *numbers, "computed"), rows, numbers))
    print_text("utility: P(answer) / P(best answer); *: none here scores as high with fewer forwards")
    for verdict in results.verdicts:
        line = Text.assemble((f"\n{verdict.question} ", "bold"), verdict.verdict)
        console.print(line, soft_wrap=not console.is_terminal)
    print_text(f"\npage: {page}\n      {page.resolve().as_uri()}")
