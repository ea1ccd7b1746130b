"""`unmask demo`: the methods on problems whose best answers are known."""

from pathlib import Path
from typing import Annotated

import typer

from unmask.report.console import Console, progress, say


def demo(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the report goes; made if need be.")],
    problems: Annotated[int, typer.Option(min=1, help="Distributions per family of problems.")] = 6,
    seeds: Annotated[int, typer.Option(min=2, help="Runs of the policies that draw random numbers.")] = 16,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the paths of the files.")] = False,
) -> None:
    """Compare the methods and write a report.

    Every method decodes small problems whose best answers are known, so that what it gains and what it spends can be
    computed. It takes about half a minute.

    \b
    Example:
      unmask demo --out out/demo      then open out/demo/demo.html in a browser
    """
    from unmask.lab import CONTENDERS, run_demo
    from unmask.lab import problems as make_problems
    from unmask.report import files, terminal
    from unmask.report.demo.files import summarise, write

    # Refuse a folder that cannot be written to before the work, not after.
    files.folder(out)
    chosen = make_problems(problems)
    with progress("comparing", len(chosen) * len(CONTENDERS), quiet) as advance:
        comparison = run_demo(chosen, CONTENDERS, seeds=seeds, on_done=lambda problem, label: advance(problem.name))
    written = write(comparison, out)
    if not quiet:
        console = Console()
        console.print(terminal.comparison(summarise(comparison.rows)))
        console.print(
            "[dim]Expected utility: P(answer) / P(most probable answer), mean of "
            f"{len(chosen)} problems. * no other policy here does as well with fewer forwards, or better with as "
            "many.[/]"
        )
    for path in written.paths:
        say(str(path))
