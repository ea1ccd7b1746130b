"""`unmask study`: how much there is to gain from adapting, measured by branching from real states."""

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from rich.live import Live
from rich.panel import Panel
from rich.table import Table

from unmask.api import Model, check_model_name, find_saved_codec, find_text_info, get_text_info
from unmask.api.load import load
from unmask.base.errors import ConfigError, require
from unmask.cli.options import ClusterOptions, DataDir, Json, Quiet, SandboxWorkers, options_as_flags
from unmask.cli.progress import Pace, explain_interrupts, show_loading, show_progress
from unmask.cli.terminal import Console, make_table, print_json, print_note, print_report, print_text, wide_console
from unmask.lab.analysis import analyse
from unmask.lab.analysis.load import sum_costs
from unmask.lab.analysis.states import StateEvidence, collect_state_evidence
from unmask.lab.store import ATTEMPTS, DamagedManifest, Failure, Store, scheme_of
from unmask.lab.store.remote import open_files
from unmask.lab.study import StudyConfig
from unmask.lab.study.config import ModelSpec
from unmask.lab.study.forecast import forecast, measured_rate, uncounted_methods
from unmask.lab.study.progress import StudyProgress
from unmask.lab.study.prompts import load_examples
from unmask.lab.study.protocol import StudyOutcome, run_study
from unmask.report import files
from unmask.report.pages import states_page
from unmask.report.study import study_report, to_document, write_report

DAMAGED, INCOMPLETE = 1, 3
"""Exit codes: a file of a study is damaged; the budget is spent or shards are set aside."""
STATES_PAGE = "states.html"

study = typer.Typer(
    help="Measure adaptation opportunity: branch every candidate action from states of the reference's runs.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
StudyFile = Annotated[Path, typer.Argument(metavar="FILE", help="A study file; docs/study.md describes it.")]
StudyFolder = Annotated[str, typer.Argument(metavar="FOLDER", help="The --out of `unmask study run`.")]


def load_model(spec: ModelSpec) -> Model:
    """Load a model of a study, with a bar that counts the bytes."""
    with show_loading() as on_progress:
        return load(spec.model, on_progress=on_progress, **spec.options)


def _read_study(file: Path) -> StudyConfig:
    """Read a study file; models and options that could not be loaded are refused before anything is made."""
    chosen = StudyConfig.read(file)
    for spec in chosen.models:
        check_model_name(spec.model, spec.options)
    return chosen


@study.command()
def plan(
    file: StudyFile,
    data_dir: DataDir = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Load the models and time full forwards, here and now.")
    ] = False,
    rate: Annotated[
        float | None, typer.Option(metavar="X", help="Row-forwards a second on the machine that will run it.")
    ] = None,
    json_: Json = False,
) -> None:
    """Say what a study will take before anything runs.

    Prompts, states and branches follow from the file. Forwards are an upper bound: equal work is done once, and how
    much of it there is depends on what the model says. Times need a rate, by --measure or --rate.

    \b
    Example:
      unmask study plan studies/paper.toml --rate 400
    """
    ok = rate is None or (math.isfinite(rate) and rate > 0)
    require(ok, "--rate", rate, "row-forwards a second, above 0", "`unmask study status` of an earlier run has one")
    require(not (measure and rate), "--rate", rate, "nothing beside --measure", "leave one of them out")
    chosen = _read_study(file)
    models = {spec.name: load_model(spec) for spec in chosen.models} if measure else {}
    texts = {
        spec.name: get_text_info(models[spec.name]) if measure else find_text_info(spec.model, spec.options)
        for spec in chosen.models
    }
    # Without any tokenizer there is nothing to measure prompts with.
    tasks, unavailable = load_examples(chosen, data_dir) if any(texts.values()) else (None, {})
    rates = {spec.name: rate for spec in chosen.models} if rate else {}
    if measure:
        widest = forecast(chosen, tasks, texts).groupby("model")["width"].max()
        rates = {name: measured_rate(model, chosen, int(widest[name])) for name, model in models.items()}
    frame, uncounted = forecast(chosen, tasks, texts, rates), uncounted_methods(chosen)
    if json_:
        rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
        document = {"study": chosen.config, "estimates": rows, "uncounted": uncounted, "unavailable": unavailable}
        print_text(json.dumps(document, indent=2, default=str))
        return
    wide_console().print(_forecast_table(frame))
    for task, reason in unavailable.items():
        print_text(f"no data here, counted all the same: {task}: {reason}")
    if uncounted:
        print_text(f"Not counted: looks ahead of {', '.join(uncounted)}, which come on top of everything.")
    minutes = chosen.budget.minutes
    if minutes is not None and frame["seconds"].notna().all():
        runs = max(1, math.ceil(frame["seconds"].sum() / 60 / minutes))
        enough = "enough" if runs == 1 else f"spent at most {runs} times; run again"
        print_text(f"The budget of {minutes:g} minutes is {enough}.")
    print_text("Forwards are of one row, and an upper bound: equal work and equal arms are decoded once.")
    print_text("?: the width of the canvas needs the model's tokenizer on this machine, times --measure or --rate.")


def _forecast_table(frame: pd.DataFrame) -> Table:
    """Make a table with a line per model and task, and one for all."""
    counts = ["prompts", "states", "branches", "proposals", "forwards", "whole_runs"]
    heads = ["model", "task", *counts[:4], "forwards, at most", "whole runs, at most", "canvas", "time, at most"]
    total = {**frame[counts].sum(), "model": "all", "task": "", "width": None, "seconds": None}
    if frame["width"].notna().all():
        total["width"] = frame["width"].max()
    if frame["seconds"].notna().all():
        total["seconds"] = frame["seconds"].sum()
    lines = []
    for row in [*frame.astype(object).where(frame.notna(), None).to_dict("records"), total]:
        width = "?" if row["width"] is None else f"{int(row['width'])}"
        seconds = "?" if row["seconds"] is None else _spell_seconds(row["seconds"])
        lines.append([row["model"], row["task"], *(f"{int(row[name]):,}" for name in counts), width, seconds])
    return make_table(heads, lines)


def _spell_seconds(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@study.command()
@options_as_flags
def run(
    file: StudyFile,
    out: Annotated[
        str,
        typer.Option(metavar="FOLDER", help="Where the tables go (or an address: s3://...); what is there is kept."),
    ],
    data_dir: DataDir = None,
    sandbox_workers: SandboxWorkers = None,
    allow_code_change: Annotated[
        bool,
        typer.Option("--allow-code-change", help="Go on though other code began this study; the manifest says so."),
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Try again what was set aside after three attempts.")
    ] = False,
    quiet: Quiet = False,
    *,
    cluster: ClusterOptions,
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
      unmask study run studies/demo.toml --out out/study --ray auto
    """
    _check_path("--out", out)
    place, chosen = cluster.cluster, _read_study(file)
    store = Store.create(out, chosen.config, accept_code=allow_code_change)
    for name in store.damaged_names:
        print_note(f"damaged, set aside in {store.folder}/damaged and made again: {name}")
    interrupts = explain_interrupts(lambda: f"{_describe_kept(store)}; the same command goes on")
    with store, interrupts, show_study_progress(quiet) as on_progress:
        outcome = run_study(
            chosen,
            store,
            load_model,
            data_dir=data_dir,
            sandbox_workers=sandbox_workers,
            retry_failed=retry_failed,
            cluster=place,
            on_progress=on_progress,
            on_failure=_print_failure,
            on_wait=print_note,
        )
    _finish(store, outcome, quiet)


def _finish(store: Any, outcome: StudyOutcome, quiet: bool) -> None:
    """Print the hashes of a complete study; otherwise say why it is not complete, and exit with a code of its own."""
    for line in [] if quiet else _summary_lines(store):
        print_text(line)
    if not outcome.complete:
        retry = "; correct what failed and add --retry-failed to try it again" if outcome.failures else ""
        print_note(f"not complete: {outcome.reason}; {_describe_kept(store)}; the same command goes on{retry}")
        raise typer.Exit(INCOMPLETE)
    for name, digest in outcome.hashes.items():
        print_text(f"{name} {digest}")


def _print_failure(failure: Failure) -> None:
    then = "set aside" if failure.is_set_aside else "tried again after the others"
    print_note(f"failed: {failure.name} (attempt {failure.attempts} of {ATTEMPTS}; {then}): {failure.error}")


def _check_path(name: str, path: str | Path) -> None:
    """Refuse a path that no file system takes, before anything is made. Addresses of object stores are not checked."""
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


def _describe_kept(store: Any) -> str:
    """Say what is finished; of how many shards, once every model was loaded."""
    manifest, finished, decoded = store.manifest, len(store.names()), len(store.names("decodes"))
    planned = sum(len(model["shards"]) for model in manifest["models"].values())
    is_known = len(manifest["models"]) == len(manifest["study"]["models"])
    runs = f" and {decoded} decoded end to end" if decoded else ""
    return f"{finished} of {planned} shards{runs} are kept" if is_known else f"{finished} shards{runs} are kept"


@study.command()
def status(
    folder: StudyFolder,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every file and compare it with its hashes; exit 1 on damage.")
    ] = False,
    json_: Json = False,
) -> None:
    """Say how far a study is and what it has saved; with --verify, whether its files are still what was written.

    Nothing is changed. `unmask study run` with the same --out sets what is damaged aside and measures it again.

    \b
    Examples:
      unmask study status out/study
      unmask study status out/study --verify
    """
    _check_path("FOLDER", folder)
    if verify:
        _verify_files(Store(folder), json_)
        return
    store = Store.open(folder)
    if json_:
        print_text(json.dumps(_summarise_store(store), indent=2))
        return
    for line in (*_summary_lines(store), *_traceback_lines(store)):
        print_text(line)


def _verify_files(store: Any, as_json: bool) -> None:
    """Check bytes, values and names of every file and the manifest; exit with 1 if something is damaged or gone."""
    damage = store.check()
    damaged = {one.name for one in damage}
    shards, decodes, planned, codes = 0, 0, None, Counter[str]()
    try:
        planned = sum(len(model["shards"]) for model in store.manifest["models"].values())
        shards, decodes = (len(set(store.names(kind)) - damaged) for kind in ("branches", "decodes"))
        if not damage:
            codes = Counter(info["code"] for kind in ("branches", "decodes") for info in store.infos(kind).values())
    except DamagedManifest:
        pass  # The manifest is among the damage already.
    if as_json:
        # The key "units" is a stored name: shards of whole runs.
        document = {"folder": str(store.folder), "shards": shards, "units": decodes, "planned": planned}
        document |= {"sound": not damage, "damaged": [asdict(one) for one in damage], "code": codes}
        print_text(json.dumps(document, indent=2))
    else:
        print_text(f"{store.folder}: {'damaged' if damage else 'sound'}")
        if planned is not None:
            print_text(f"  {shards} of {planned} planned shards and {decodes} decoded units are there and sound")
        for one in damage:
            print_text(f"  damaged: {one.name}: {one.reason}; {one.redo}")
        for code, count in codes.items() if len(codes) > 1 else ():
            print_text(f"  made with code {code}: {count} shards and units")
        if damage:
            print_text(f"`unmask study run FILE --out {store.folder}` sets it aside and measures it again")
    if damage:
        raise typer.Exit(DAMAGED)


@study.command()
def report(
    folder: StudyFolder,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where it goes. Default: FOLDER/report.")] = None,
    figures: Annotated[
        str | None, typer.Option(metavar="KIND", help="Every figure for a paper, too: pdf, svg or png.")
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="MODEL/TASK/PROMPT/NUMBER",
            help="Write only the page of single states, with this one first. Repeatable.",
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Say how much opportunity a study found, how concentrated, whether predictable, and whether acting on it pays.

    Writes a page, Markdown, the tables as CSV and LaTeX, and a page of single states: those where a candidate gained
    or lost most, with every candidate's next canvas, final text and score. The answers are the last screen. A study
    that is still running is reported on what is finished. --figures draws every figure in the paper's layout, into the
    folder `figures` beside the page.

    \b
    Examples:
      unmask study report out/study
      unmask study report out/study --figures pdf
      unmask study report out/study --state mini/carry-rtl/carry-rtl-v1-0018/2
    """
    _check_path("FOLDER", folder)
    target = _report_folder(folder, out)
    _check_path("--out", target)
    store = Store.open(folder)
    if state:
        require(not json_, "--json", True, "nothing beside --state", "leave one of them out")
        evidence = find_states(store, state)
        _print_states(_write_states(evidence, target), evidence)
        return
    made = study_report(analyse(store))
    written = write_report(
        made, target, figures=figures, states=lambda beside: _write_states(find_states(store), beside)
    )
    if json_:
        values = {**to_document(made), "files": [str(path) for path in written]}
        print_json(json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False))
        return
    what = f"{written[0]}, its states and {len(made.tables)} tables as CSV and LaTeX"
    what += f", {len(made.figures)} figures as {figures}" if figures else ""
    print_report(made, what, wide_console())


def _report_folder(folder: str, out: Path | None) -> Path:
    """Return the folder of the pages: beside the tables by default, and always on this machine."""
    chosen = os.path.join(folder, "report") if out is None else str(out)
    local = scheme_of(chosen) in ("", "file")
    require(local, "--out", None if out is None else chosen, "a folder of this machine", "add --out FOLDER")
    return Path(open_files(chosen).address)


def find_states(store: Store, keys: Sequence[str] = ()) -> StateEvidence:
    """Find the states where a candidate gained or lost most; those named in `keys` come first."""
    # Models whose tokenizer is not on this machine are left out: their states show token numbers.
    specs = store.manifest["study"]["models"]
    found = {
        spec["name"]: find_saved_codec({"model": {**spec.get("options", {}), "name": spec["model"]}}) for spec in specs
    }
    codecs = {name: codec for name, codec in found.items() if codec is not None}
    return collect_state_evidence(store, codecs, keys=keys)


def _write_states(evidence: StateEvidence, folder: Path) -> Path:
    return files.write(files.folder(folder) / STATES_PAGE, states_page(evidence).encode("utf-8"))


def _print_states(page: Path, evidence: StateEvidence) -> None:
    for line in evidence.missing:
        print_note(f"not complete: {line}")
    if evidence.unspelled:
        names = ", ".join(evidence.unspelled)
        print_note(f"the tokenizer of {names} is not on this machine: tokens are shown as numbers")
    for name, ranked in (("gain", evidence.gains), ("loss", evidence.losses)):
        for first in ranked[:1].itertuples():
            print_text(f"largest {name}: {first.difference:+.3f} at {first.key}, {first.axis} {first.candidate}")
    print_text(f"{len(evidence.states)} of {evidence.compared:,} states are in {page}")


def _summarise_store(store: Any) -> dict[str, Any]:
    """Return how far a study is, what it has measured, and what that cost."""
    manifest, infos, finished = store.manifest, list(store.infos().values()), set(store.names())
    failed = [failure.to_json() for failure in store.failures.all()]
    work = sum_costs(infos)
    calls = {name: sum(info["forwards"][name] for info in infos) for name in ("trajectory", "recalled", "calls")}
    models = {
        name: {"shards": len(planned["shards"]), "finished": len(finished & set(planned["shards"]))}
        for name, planned in manifest["models"].items()
    }
    branched = len(models) == len(manifest["study"]["models"]) and all(
        m["shards"] == m["finished"] for m in models.values()
    )
    # A study that leaves a task out is not complete.
    branched &= not any(about.get("unavailable") for about in manifest["tasks"].values())
    # Models and tasks that can be decoded end to end: those with validation branches to choose by.
    shards = [info["shard"] for info in infos]
    units = len({(shard["model"], shard["task"]) for shard in shards if shard["split"] == "validation"})
    # A study file may switch decoding on later, so that no decoded run says nothing.
    decoded = len(store.names("decodes"))
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
        "forwards": {name: int(count) for name, count in work.sum().items()} | calls,
        "axes": {axis: {name: int(count) for name, count in counts.items()} for axis, counts in work.iterrows()},
        "seconds": sum(info["seconds"] for info in infos),
    }


def _summary_lines(store: Any) -> Iterator[str]:
    now = _summarise_store(store)
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
    ratio = work["naive"] / work["done"]
    yield f"  {work['done']:,} row-forwards instead of {work['naive']:,} ({ratio:.1f}x fewer), {now['seconds']:.0f} s"
    reasons = {"rollouts": "identical rollouts", "first": "first transitions", "futures": "merged futures"}
    for axis, spent in now["axes"].items():
        saved = ", ".join(f"{reason} {spent[name]:,}" for name, reason in reasons.items() if spent[name])
        yield f"    {axis}: {spent['done']:,} of {spent['naive']:,}; saved: {saved or 'nothing'}"


def _traceback_lines(store: Any) -> Iterator[str]:
    """Yield the tracebacks of what was set aside, each once."""
    names: dict[str, list[str]] = {}
    for failure in store.failures.set_aside():
        names.setdefault(failure.traceback, []).append(failure.name)
    for traceback, failed in names.items():
        yield f"traceback of {', '.join(failed)}:"
        yield from (f"  {line}" for line in traceback.splitlines())


def show_study_progress(quiet: bool) -> AbstractContextManager[Callable[[StudyProgress], None]]:
    """Show a live panel on stderr; where that is no terminal, a line now and then."""
    pace = Pace()

    def print_line(now: StudyProgress) -> None:
        if pace.is_due():
            print_note("  ".join(f"{name} {value}" for name, value in progress_facts(now).items()))

    return show_progress(print_line, _open_panel, quiet=quiet)


@contextmanager
def _open_panel() -> Iterator[Callable[[StudyProgress], None]]:
    pace = Pace(seconds=0.2)
    with Live(console=Console(stderr=True), transient=True, refresh_per_second=5) as live:
        yield lambda now: live.update(progress_panel(now)) if pace.is_due() else None


def progress_facts(now: StudyProgress) -> dict[str, str]:
    """Return where a study stands as names and values."""
    left = {"left": "?" if math.isnan(now.left) else _spell_seconds(now.left)}
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


def progress_panel(now: StudyProgress) -> Panel:
    """Draw where a study stands."""
    grid = Table.grid(padding=(0, 2))
    facts = progress_facts(now)
    grid.add_row(*(f"[dim]{name}[/]" for name in facts))
    grid.add_row(*facts.values())
    # The name of a shard ends in its key.
    title = now.shard.rsplit(".", 1)[0] if math.isnan(now.decoded) else now.shard
    return Panel(grid, title=title, title_align="left")
