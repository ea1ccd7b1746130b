"""`unmask study plan`: what a study will take, said without a GPU, without weights and in seconds."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unmask.base.errors import require
from unmask.cli.options import DataDir, Json
from unmask.cli.progress import wide_console
from unmask.report.console import loading, say

if TYPE_CHECKING:
    import pandas as pd

    from unmask.api import Model
    from unmask.lab.study import Study
    from unmask.lab.study_models import ModelSpec

FILE = Annotated[Path, typer.Argument(metavar="FILE", help="A study file; docs/study.md describes it.")]
UNKNOWN = "?"


def plan(
    file: FILE,
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
    Examples:
      unmask study plan studies/paper.toml --rate 400
    """
    from unmask.lab.study import Study
    from unmask.lab.study.forecast import uncounted_methods

    ok = rate is None or (math.isfinite(rate) and rate > 0)
    require(ok, "--rate", rate, "row-forwards a second, above 0", "`unmask study status` of an earlier run has one")
    require(not (measure and rate), "--rate", rate, "nothing beside --measure", "leave one of them out")
    chosen = Study.read(file)
    check_models(chosen)
    frame, unavailable = _forecast(chosen, data_dir, measure, rate)
    if json_:
        rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
        document = {"study": chosen.config, "estimates": rows, "uncounted": uncounted_methods(chosen)}
        say(json.dumps({**document, "unavailable": unavailable}, indent=2, default=str))
        return
    wide_console().print(_table(frame))
    for line in _remarks(chosen, frame, uncounted_methods(chosen), unavailable):
        say(line)


def check_models(study: "Study") -> None:
    """Refuse models and options that could not be loaded, before anything is made."""
    from unmask.api import check_model_name

    for spec in study.models:
        check_model_name(spec.model, spec.options)


def load_model(spec: "ModelSpec") -> "Model":
    """A model of a study, with a bar while it loads."""
    from unmask.api.load import load

    with loading() as on_progress:
        return load(spec.model, on_progress=on_progress, **spec.options)


def _forecast(
    study: "Study", data_dir: Path | None, measure: bool, rate: float | None
) -> "tuple[pd.DataFrame, dict[str, str]]":
    """The forecast, and tasks whose data is not here."""
    from unmask.api import text_side, text_side_of
    from unmask.lab.study.forecast import forecast, measured_rate
    from unmask.lab.study.prompts import load_examples

    models = {spec.name: load_model(spec) for spec in study.models} if measure else {}
    texts = {
        spec.name: text_side(models[spec.name]) if measure else text_side_of(spec.model, spec.options)
        for spec in study.models
    }
    tasks = None
    unavailable: dict[str, str] = {}
    if any(text is not None for text in texts.values()):
        tasks, unavailable = load_examples(study, data_dir)
    rates = {spec.name: rate for spec in study.models} if rate else {}
    if measure:
        widest = forecast(study, tasks, texts).groupby("model")["width"].max()
        rates = {name: measured_rate(model, study, int(widest[name])) for name, model in models.items()}
    return forecast(study, tasks, texts, rates), unavailable


def _table(frame: "pd.DataFrame") -> Any:
    """One line per model and task, and one for all."""
    from unmask.report.terminal import columns

    counts = ["prompts", "states", "branches", "proposals", "forwards", "whole_runs"]
    heads = ["model", "task", *counts[:4], "forwards, at most", "whole runs, at most", "canvas", "time, at most"]
    everything = {**frame[counts].sum(), "model": "all", "task": "", "width": None, "seconds": None}
    if frame["width"].notna().all():
        everything["width"] = frame["width"].max()
    if frame["seconds"].notna().all():
        everything["seconds"] = frame["seconds"].sum()
    lines = []
    for row in [*frame.astype(object).where(frame.notna(), None).to_dict("records"), everything]:
        width = UNKNOWN if row["width"] is None else f"{int(row['width'])}"
        seconds = UNKNOWN if row["seconds"] is None else span(row["seconds"])
        lines.append([row["model"], row["task"], *(f"{int(row[name]):,}" for name in counts), width, seconds])
    return columns(heads, lines)


def _remarks(study: "Study", frame: "pd.DataFrame", uncounted: list[str], unavailable: dict[str, str]) -> list[str]:
    lines = [f"no data here, counted all the same: {task}: {reason}" for task, reason in unavailable.items()]
    if uncounted:
        lines.append(f"Not counted: looks ahead of {', '.join(uncounted)}, which come on top of everything.")
    minutes = study.budget.minutes
    if minutes is not None and frame["seconds"].notna().all():
        runs = max(1, math.ceil(frame["seconds"].sum() / 60 / minutes))
        enough = "enough" if runs == 1 else f"spent at most {runs} times; run again"
        lines.append(f"The budget of {minutes:g} minutes is {enough}.")
    lines.append(
        "Row-forwards, at most: equal work is done once, which at temperature 0 often leaves a small part, and so are "
        "equal arms."
    )
    lines.append(
        f"{UNKNOWN}: the width of the canvas needs the model's tokenizer on this machine, times --measure or --rate."
    )
    return lines


def span(seconds: float) -> str:
    """A time for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
