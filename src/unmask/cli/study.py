"""`unmask study`: how much there is to gain from adapting, measured by branching from real states."""

import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unmask.base.errors import ConfigError
from unmask.cli.interrupts import stoppable
from unmask.cli.options import DataDir, Jobs, Json
from unmask.cli.progress import Pace, note, watching, wide_console
from unmask.cli.study_check import check
from unmask.cli.study_plan import FILE, check_models, load_model, plan, span
from unmask.cli.study_states import report_folder, states, write_states
from unmask.cli.where import Address, GpusPerWorker, On, Workers, where_of
from unmask.report.console import Console, say, say_json

if TYPE_CHECKING:
    from unmask.lab.store import Failure, Store
    from unmask.lab.study import Study
    from unmask.lab.study.progress import StudyProgress
    from unmask.lab.study.protocol import StudyOutcome

INCOMPLETE = 3
"""Exit code of `study run` where the budget is spent or shards are set aside."""

study = typer.Typer(
    help="Measure adaptation opportunity: branch every candidate action from states of the reference's runs.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

study.command()(plan)
study.command()(check)
study.command()(states)


@study.command()
def run(
    file: FILE,
    out: Annotated[
        str,
        typer.Option(metavar="FOLDER", help="Where the tables go (or an address: s3://...); what is there is kept."),
    ],
    data_dir: DataDir = None,
    jobs: Jobs = None,
    naive: Annotated[
        bool, typer.Option("--naive", help="Run every branch for itself: the same tables, many times the work.")
    ] = False,
    accept_code: Annotated[
        bool, typer.Option("--accept-code", help="Go on though other code of this version began; the manifest says so.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Try again what was set aside after three attempts.")
    ] = False,
    on: On = None,
    address: Address = None,
    gpus_per_worker: GpusPerWorker = None,
    workers: Workers = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress; only the hashes of the tables.")] = False,
) -> None:
    """Carry a study out, or go on with it.

    It may be stopped at any moment, in any way: the same command goes on, and the tables come out the same. Several
    processes may work on one folder. A shard that fails three times is set aside, and the rest goes on.

    \b
    Exit code: 0 complete; 3 not complete (the budget is spent, or shards are set aside); 130 Ctrl-C; 143 SIGTERM;
    2 something is refused; 1 something unexpected.

    \b
    Examples:
      unmask study run studies/demo.toml --out out/study
      unmask study run studies/demo.toml --out out/study --on ray --address auto
    """
    from unmask.lab.study import Study
    from unmask.lab.study.protocol import run_study

    _check_path("--out", out)
    cluster = where_of(on, address, gpus_per_worker, workers)
    chosen = Study.read(file)
    check_models(chosen)
    store = _created(out, chosen, accept_code)
    with store, stoppable(lambda: f"{_kept(store)}; the same command goes on"), watch(quiet) as on_progress:
        outcome = run_study(
            chosen,
            store,
            load_model,
            data_dir=data_dir,
            sandbox_workers=jobs,
            naive=naive,
            retry_failed=retry_failed,
            cluster=cluster,
            on_progress=on_progress,
            on_failure=_complain,
            on_wait=note,
        )
    _conclude(store, outcome, quiet)


def _created(out: str, chosen: "Study", accept_code: bool) -> "Store":
    from unmask.lab.store import Store

    store = Store.create(out, chosen.config, accept_code=accept_code)
    for name in store.damaged_names:
        note(f"damaged, set aside in {store.folder}/damaged and made again: {name}")
    return store


def _conclude(store: Any, outcome: "StudyOutcome", quiet: bool) -> None:
    """The hashes of a complete study, or why it is not, what is kept, and its own exit code."""
    if not quiet:
        for line in _summary(store):
            say(line)
    if not outcome.complete:
        retry = "; correct what failed and add --retry-failed to try it again" if outcome.failures else ""
        note(f"not complete: {outcome.reason}; {_kept(store)}; the same command goes on{retry}")
        raise typer.Exit(INCOMPLETE)
    for name, digest in outcome.hashes.items():
        say(f"{name} {digest}")


def _check_path(name: str, path: str | Path) -> None:
    """Refuse what no file system takes, before anything is read or made; addresses are the store's to refuse."""
    from unmask.lab.store import scheme_of

    if scheme_of(str(path)):
        return
    try:
        os.lstat(Path(path) / "manifest.json")
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        shown = str(path) if len(str(path)) <= 80 else f"{str(path)[:40]}... ({len(str(path)):,} characters)"
        raise ConfigError(
            f"{name} is {shown!r}, no path ({reason}); allowed: a folder; choose a shorter one"
        ) from error


def _kept(store: Any) -> str:
    """What is finished, in words; of how many, once the models have been met."""
    manifest, there = store.manifest, len(store.names())
    planned = sum(len(model["shards"]) for model in manifest["models"].values())
    known = len(manifest["models"]) == len(manifest["study"]["models"])
    units = len(store.names("decodes"))
    decoded = f" and {units} decoded end to end" if units else ""
    return f"{there} of {planned} shards{decoded} are kept" if known else f"{there} shards{decoded} are kept"


def _complain(failure: "Failure") -> None:
    """One attempt has failed."""
    from unmask.lab.store import ATTEMPTS

    then = "set aside" if failure.is_set_aside else "tried again after the others"
    note(f"failed: {failure.name} (attempt {failure.attempts} of {ATTEMPTS}; {then}): {failure.error}")


@study.command()
def status(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="What `unmask study run` was given as --out.")],
    json_: Json = False,
) -> None:
    """Say how far a study is, and what it has saved so far."""
    from unmask.lab.store import Store

    _check_path("FOLDER", folder)
    store = Store.open(folder)
    if json_:
        say(json.dumps(_status(store), indent=2))
        return
    for line in _summary(store):
        say(line)
    for line in _tracebacks(store):
        say(line)


@study.command()
def report(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="What `unmask study run` was given as --out.")],
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where it goes. Default: DIR/report.")] = None,
    figures: Annotated[
        str | None, typer.Option(metavar="KIND", help="Every figure for a paper, too: pdf, svg or png.")
    ] = None,
    json_: Json = False,
) -> None:
    """Say how much opportunity a study found, how concentrated, whether predictable, and whether acting on it pays.

    Writes a page, Markdown, and the tables as CSV and LaTeX; the answers are the last screen. The last two questions
    need diagnostics in the study, and decoding end to end its own setting. A study that is still running is reported on
    what is finished. --figures draws every figure in the paper's layout, into the folder `figures` beside the page.

    \b
    Examples:
      unmask study report out/study
      unmask study report out/study --figures pdf
    """
    from unmask.lab.analysis import analyse
    from unmask.lab.store import Store
    from unmask.report.screen import show
    from unmask.report.study import study_report, to_document, write_report

    _check_path("DIR", folder)
    target = report_folder(folder, out)
    _check_path("--out", target)
    store = Store.open(folder)
    made = study_report(analyse(store))
    written = write_report(made, target, figures=figures, states=lambda beside: write_states(store, beside)[0])
    if json_:
        values = {**to_document(made), "files": [str(path) for path in written]}
        say_json(json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False))
        return
    what = f"{written[0]}, its states and {len(made.tables)} tables as CSV and LaTeX"
    what += f", {len(made.figures)} figures as {figures}" if figures else ""
    show(made, what, wide_console())


def _status(store: Any) -> dict[str, Any]:
    from unmask.lab.analysis.load import sum_costs

    manifest, infos, there = store.manifest, list(store.infos().values()), set(store.names())
    failed = [failure.to_json() for failure in store.failures.all()]
    work = sum_costs(infos)
    whole = {name: sum(info["forwards"][name] for info in infos) for name in ("trajectory", "recalled", "calls")}
    models = {
        name: {"shards": len(planned["shards"]), "finished": len(there & set(planned["shards"]))}
        for name, planned in manifest["models"].items()
    }
    branched = len(models) == len(manifest["study"]["models"]) and all(
        m["shards"] == m["finished"] for m in models.values()
    )
    # A study that leaves a task out is not complete.
    branched &= not any(about.get("unavailable") for about in manifest["tasks"].values())
    # A study file may switch decoding on later, so that none is there says nothing.
    decoded, units = len(store.names("decodes")), _units(infos)
    branches, judged = sum(i["branches"] for i in infos), sum(i["judged"] for i in infos)
    return {
        "study": manifest["study"]["name"],
        "held": store.files.lease_holder or None,
        "complete": branched and not any(one["set_aside"] for one in failed) and decoded in (0, units),
        "models": models,
        "tasks": manifest["tasks"],
        "states": sum(info["states"] for info in infos),
        "branches": branches,
        "decoded": decoded,
        "units": units,
        "failed": failed,
        "unjudged": branches - judged,
        "utility": sum(info["utility"] for info in infos) / judged if judged else None,
        "forwards": {name: int(count) for name, count in work.sum().items()} | whole,
        "axes": {axis: {name: int(count) for name, count in counts.items()} for axis, counts in work.iterrows()},
        "seconds": sum(info["seconds"] for info in infos),
    }


def _units(infos: Sequence[Any]) -> int:
    """Models and tasks that can be decoded end to end: those with branches to choose by."""
    shards = [info["shard"] for info in infos]
    return len({(shard["model"], shard["task"]) for shard in shards if shard["split"] == "validation"})


def _tracebacks(store: Any) -> Iterator[str]:
    """Of what was set aside, each once."""

    names: dict[str, list[str]] = {}
    for failure in store.failures.set_aside():
        names.setdefault(failure.traceback, []).append(failure.name)
    for traceback, failed in names.items():
        yield f"traceback of {', '.join(failed)}:"
        yield from (f"  {line}" for line in traceback.splitlines())


def _summary(store: Any) -> Iterator[str]:
    now = _status(store)
    aside = [one for one in now["failed"] if one["set_aside"]]
    why = f": {len(aside)} shard{'s' * (len(aside) > 1)} set aside" if aside else ""
    yield f"study {now['study']}: {'complete' if now['complete'] else f'not complete{why}'}"
    if now["held"]:
        yield f"  {now['held']}"
    for one in now["failed"]:
        what = "set aside" if one["set_aside"] else "failed so far"
        yield f"  {what}: {one['name']}, {one['attempts']} attempt{'s' * (one['attempts'] > 1)}: {one['error']}"
    for name, model in now["models"].items():
        yield f"  {name}: {model['finished']} of {model['shards']} shards"
    for task, about in now["tasks"].items():
        if about.get("unavailable"):
            yield f"  left out: {task}: {about['unavailable']}"
    mean = "none judged yet" if now["utility"] is None else f"mean utility {now['utility']:.4f}"
    missing = f", {now['unjudged']:,} could not be judged" if now["unjudged"] else ""
    yield f"  {now['states']:,} states, {now['branches']:,} branches, {mean}{missing}"
    if now["decoded"]:
        yield f"  decoded end to end: {now['decoded']} of {now['units']} models and tasks"
    work = now["forwards"]
    if not work["done"]:
        return
    yield (
        f"  {work['done']:,} row-forwards instead of {work['naive']:,} ({work['naive'] / work['done']:.1f}x fewer), "
        f"{now['seconds']:.0f} s"
    )
    for axis, spent in now["axes"].items():
        saved = {
            "identical rollouts": spent["rollouts"],
            "first transitions": spent["first"],
            "merged futures": spent["futures"],
        }
        reasons = ", ".join(f"{why} {count:,}" for why, count in saved.items() if count)
        yield f"    {axis}: {spent['done']:,} of {spent['naive']:,}; saved: {reasons or 'nothing'}"


def watch(quiet: bool) -> "AbstractContextManager[Callable[[StudyProgress], None]]":
    """A live panel on stderr; where that is no terminal, a line now and then."""
    pace = Pace()

    def lines(now: "StudyProgress") -> None:
        if pace.due():
            note("  ".join(f"{name} {value}" for name, value in _facts(now).items()))

    return watching(lines, _screen, quiet=quiet)


@contextmanager
def _screen() -> "Iterator[Callable[[StudyProgress], None]]":
    from rich.live import Live

    pace = Pace(every=0.2)
    with Live(console=Console(stderr=True), transient=True, refresh_per_second=5) as live:
        yield lambda now: live.update(_panel(now)) if pace.due() else None


def _facts(now: "StudyProgress") -> dict[str, str]:
    left = {"left": "?" if math.isnan(now.left) else span(now.left)}
    trouble = {"unjudged": f"{now.unjudged:,}"} if now.unjudged else {}
    trouble |= {"failed": f"{now.failed:,}"} if now.failed else {}
    if now.running:
        left |= {"under way": f"{now.running}"}
    if not math.isnan(now.decoded):
        return {"end to end": f"{now.decoded:.0%}", "decoding": now.shard} | left | trouble
    rate = now.forwards / now.seconds if now.seconds > 0 else 0.0
    merged = 1 - now.done / now.naive if now.naive else math.nan
    return {
        "shards": f"{now.shards}/{now.shards_total}",
        "states": f"{now.states:,}/{now.states_total:,}",
        "branches": f"{now.branches:,}/{now.branches_total:,}",
        "forwards/s": f"{rate:,.0f}",
        "merged": "-" if math.isnan(merged) else f"{merged:.1%}",
        "utility": "-" if math.isnan(now.utility) else f"{now.utility:.4f}",
        **left,
        **trouble,
    }


def _panel(now: "StudyProgress") -> Any:
    from rich.panel import Panel
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    facts = list(_facts(now).items())
    grid.add_row(*(f"[dim]{name}[/]" for name, _ in facts))
    grid.add_row(*(value for _, value in facts))
    # The name of a shard ends in its key.
    title = now.shard.rsplit(".", 1)[0] if math.isnan(now.decoded) else now.shard
    return Panel(grid, title=title, title_align="left")
