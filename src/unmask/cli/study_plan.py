"""`unmask study plan`: what a study will take, said without a GPU, without weights and in seconds."""

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unmask.base.errors import require
from unmask.cli.options import DataDir, Json
from unmask.cli.progress import wide_console
from unmask.cli.study_cost import ClusterAsked, LoadSeconds, cost_document, cost_remarks, cost_table
from unmask.cli.where import GpusPerWorker, On, Workers
from unmask.report.console import loading, say

if TYPE_CHECKING:
    from unmask.api import Model
    from unmask.lab.study import Study
    from unmask.lab.study.cluster_cost import Cut
    from unmask.lab.study.forecast import CostEstimate
    from unmask.lab.study.jobs import Members
    from unmask.lab.study_models import ModelSpec

FILE = Annotated[Path, typer.Argument(metavar="FILE", help="A study file; docs/study.md describes it.")]
UNKNOWN = "?"


def plan(
    file: FILE,
    data_dir: DataDir = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Load the models and time a forward of every shape, here and now.")
    ] = False,
    rate: Annotated[
        float | None, typer.Option(metavar="X", help="Row-forwards a second on the machine that will run it.")
    ] = None,
    on: On = None,
    workers: Workers = None,
    gpus_per_worker: GpusPerWorker = None,
    load_seconds: LoadSeconds = None,
    json_: Json = False,
) -> None:
    """Say what a study will take before anything runs.

    States, branches and forwards follow from the file. Buckets and memory are said where the model's tokenizer is on
    this machine, times with --measure or --rate. End to end, the arms are chosen by the branches: which of them are the
    same is known by experience only.

    \b
    Examples:
      unmask study plan studies/paper.toml --rate 400
      unmask study plan studies/llada-8b.toml --rate 160 --on ray --workers 16 --load-seconds 60
    """
    from unmask.lab.study import Study
    from unmask.lab.study.forecast import MERGED_FROM

    cluster = ClusterAsked(on, workers, gpus_per_worker, load_seconds)
    cluster.check(timed=measure or rate is not None)

    ok = rate is None or (math.isfinite(rate) and rate > 0)
    require(ok, "--rate", rate, "row-forwards a second, above 0", "`unmask study status` of an earlier run has one")
    require(not (measure and rate), "--rate", rate, "nothing beside --measure", "leave one of them out")
    chosen = Study.read(file)
    check_models(chosen)
    rows, unavailable, cuts, loading_took = _estimates(chosen, data_dir, measure, rate)
    cost = None if on is None else cluster.cost(chosen, rows, cuts, loading_took)
    if json_:
        told = {"study": chosen.config, "estimates": [dict(row._asdict()) for row in rows], "unavailable": unavailable}
        told |= {} if cost is None else {"cluster": cost_document(cost)}
        say(json.dumps(told | {"merged_from": MERGED_FROM}, indent=2, default=str))
        return
    wide_console().print(_table(rows))
    for line in _remarks(chosen, rows, unavailable):
        say(line)
    if cost is not None:
        wide_console().print(cost_table(cost, span))
        for line in cost_remarks(cost, span):
            say(line)


def check_models(study: "Study") -> None:
    """Refuse models and options that could not be loaded, before anything is made."""
    from unmask.api import check_model

    for spec in study.models:
        check_model(spec.model, spec.options)


def load_model(spec: "ModelSpec") -> "Model":
    """A model of a study, with a bar while it loads."""
    from unmask.api.load import load

    with loading() as on_progress:
        return load(spec.model, on_progress=on_progress, **spec.options)


def _estimates(
    study: "Study", data_dir: Path | None, measure: bool, rate: float | None
) -> "tuple[list[CostEstimate], dict[str, str], dict[str, Cut], float]":
    """Lines of all models, tasks whose data is not here, how work is cut, and seconds of the slowest loading."""
    from unmask.api import text_side, text_side_of
    from unmask.lab.study.cluster_cost import cut_of
    from unmask.lab.study.forecast import ForwardTimer, estimate
    from unmask.lab.study.jobs import load_examples

    models: dict[str, Model | None] = {}
    loading_took = 0.0
    for spec in study.models:
        began = time.monotonic()
        models[spec.name] = load_model(spec) if measure else None
        loading_took = max(loading_took, time.monotonic() - began) if measure else 0.0
    texts = {
        spec.name: text_side_of(spec.model, spec.options) if model is None else text_side(model)
        for spec, model in zip(study.models, models.values(), strict=True)
    }
    tasks: Members | None = None
    unavailable: dict[str, str] = {}
    if any(text is not None for text in texts.values()):
        tasks, unavailable = load_examples(study, data_dir)
    rows: list[CostEstimate] = []
    for spec in study.models:
        model = models[spec.name]
        timer = None if model is None else ForwardTimer(model, study)
        rows += estimate(study, spec, tasks, text=texts[spec.name], timer=timer, rate=rate)
    cuts = {spec.name: cut_of(study, spec, tasks, texts[spec.name]) for spec in study.models}
    return rows, unavailable, cuts, loading_took


def _table(estimates: "Sequence[CostEstimate]") -> Any:
    """One line per model and task, and one for all."""
    from unmask.report.terminal import columns

    heads = ("model", "task", "prompts", "states", "branches", "proposals", "forwards, naive", "merged", "end to end")
    lines = [*(_line(row.model, row.task, [row]) for row in estimates), _line("all", "", estimates)]
    return columns((*heads, "at most", "bucket", "memory", "time"), lines)


def _line(model: str, task: str, rows: "Sequence[CostEstimate]") -> list[str]:
    def total(name: str) -> str:
        return f"{sum(getattr(row, name) for row in rows):,}"

    exact = all(row.naive_exact for row in rows)
    counts = [total(name) for name in ("prompts", "states", "branches", "proposals")]
    merged = [row.merged for row in rows if row.merged is not None]
    between = " to ".join(f"{sum(ends):,}" for ends in zip(*merged, strict=True))
    slots = [row.slots for row in rows if row.slots is not None]
    memory = [row.memory for row in rows if row.memory is not None]
    seconds = [row.seconds for row in rows if row.seconds is not None]
    return [
        model,
        task,
        *counts,
        ("" if exact else "≤ ") + total("naive"),
        between if len(merged) == len(rows) else f"about {total('expected')}",
        total("end_to_end"),
        total("end_to_end_most"),
        f"{max(slots)}" if len(slots) == len(rows) else UNKNOWN,
        f"{max(memory) / 2**20:,.0f} MiB" if len(memory) == len(rows) else UNKNOWN,
        span(sum(seconds)) if len(seconds) == len(rows) else UNKNOWN,
    ]


def _remarks(study: "Study", rows: "Sequence[CostEstimate]", unavailable: dict[str, str]) -> list[str]:
    from unmask.lab.study.forecast import MERGED_FROM

    lines = [f"no data here, counted all the same: {task}: {reason}" for task, reason in unavailable.items()]
    if on_top := dict.fromkeys(name for row in rows for name in row.on_top):
        lines.append(f"Not counted: looks ahead of {', '.join(on_top)}, which come on top of everything.")
    seconds = [row.seconds for row in rows if row.seconds is not None]
    minutes = study.budget.minutes
    if minutes is not None and len(seconds) == len(rows):
        runs = max(1, math.ceil(sum(seconds) / 60 / minutes))
        enough = "enough" if runs == 1 else f"spent about {runs} times; run again"
        lines.append(f"The budget of {minutes:g} minutes is {enough}.")
    lines.append(
        "Row-forwards. `naive` is exact for the candidates (≤: at most), proposals come on top; `merged` is what was "
        f"left of both in the run of {MERGED_FROM}, whose models are small; `end to end` is by experience, `at most` "
        "if no two arms are the same."
    )
    lines.append(
        f"{UNKNOWN}: buckets and memory (beside the weights) need the model's tokenizer on this machine, times "
        "--measure or --rate."
    )
    return lines


def span(seconds: float) -> str:
    """A time for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
