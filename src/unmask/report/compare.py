"""The report on policies evaluated end to end: a line per answer as CSV, tables in Markdown, JSON and on screen."""

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from math import isnan, nan
from pathlib import Path
from typing import Any

from unmask.base.errors import ConfigError, SchemaError
from unmask.base.files import read_file
from unmask.lab.compare import AnswerRow, Evaluation
from unmask.lab.compare_speed import SpeedLine, SpeedSummary
from unmask.lab.compare_store import SAME, check_same
from unmask.lab.compare_summary import MACRO, NEAR_ZERO, CompareSummary, PolicyLine
from unmask.methods import RECONSTRUCTION
from unmask.report import files
from unmask.report.compare_page import compare_page, plotly_script
from unmask.report.compare_screen import (
    LABEL_LEGEND,
    TIME_LEGEND,
    UNSURE,
    front_mark,
    legends,
    mark,
    panel_title,
    remarks,
    shown_name,
    time_remarks,
)
from unmask.report.csv import records_csv
from unmask.report.markdown import grid_markdown
from unmask.report.plain import plain
from unmask.report.sheet import Column, Sheet, attribute
from unmask.report.trade_off import CostPanel, CostPoint, trade_off
from unmask.stats import Estimate

PAGE = "compare.html"
SUMMARY_FORMAT, TIMING_FORMAT = "unmask-compare-summary-2", "unmask-compare-timing-1"
_COLUMNS = tuple(name for name in AnswerRow._fields if name != "answer")
CSV_COLUMNS = (*_COLUMNS[: _COLUMNS.index("forwards")], "steps", *_COLUMNS[_COLUMNS.index("forwards") :], "answer")


def write(
    evaluation: Evaluation,
    summary: CompareSummary,
    out: str | Path,
    picks: Mapping[str, str] | None = None,
    speed: SpeedSummary | None = None,
) -> tuple[Path, ...]:
    """Write the files of a comparison into a folder; `picks` as for `card_table`.

    All but those of `speed` have the same bytes in every run.
    """
    place = files.folder(out)
    contents = {
        "compare.csv": table_csv(evaluation.rows).encode(),
        "summary.md": markdown(evaluation, summary, picks).encode(),
        "summary.json": (summary_json(evaluation, summary) + "\n").encode(),
        "figure.svg": forwards_figure(evaluation, summary),
    }
    script = plotly_script()
    if script is not None:
        contents[PAGE] = compare_page(evaluation, summary, script).encode()
    if speed is not None:
        contents |= {
            "timing.md": timing_markdown(evaluation, summary, speed).encode(),
            "timing.json": (
                json.dumps(timing_document(evaluation, speed), indent=2, ensure_ascii=False) + "\n"
            ).encode(),
            "figure-time.svg": time_figure(evaluation, summary, speed),
        }
    return tuple(files.write(place / name, content) for name, content in contents.items())


def check_folder(out: str | Path, config: Mapping[str, Any]) -> None:
    """Refuse a folder that holds another comparison; `config` is the `plan` of this one."""
    path = Path(out) / "summary.json"
    if not path.exists():
        return
    try:
        theirs = dict(json.loads(path.read_text(encoding="utf-8"))["config"])
    except (OSError, ValueError, TypeError, LookupError, RecursionError) as error:
        raise ConfigError(f"{str(path)!r} is there and no summary of `unmask compare`; {SAME}") from error
    check_same(path, theirs, config)


def read_picks(path: str | Path) -> dict[str, str]:
    """The best policy of each task in the summary.json of an earlier run."""
    try:
        picks = json.loads(read_file(path))["picks"]
        return {str(task): str(policy) for task, policy in picks.items()}
    except OSError as error:
        raise ConfigError(f"{str(path)!r} cannot be read ({error.strerror}); allowed: a summary.json") from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise SchemaError(
            f"{str(path)!r} has no picks; allowed: the summary.json of `unmask compare`; run it again"
        ) from error


def table_csv(rows: Sequence[AnswerRow]) -> str:
    """Every answer; an empty cell where there is no utility."""
    return records_csv(CSV_COLUMNS, rows)


def summary_json(evaluation: Evaluation, summary: CompareSummary, speed: SpeedSummary | None = None) -> str:
    """All numbers and the configuration behind them; null where there is no number.

    With `speed` what a clock says is there as well, under `timing`: it is not the same twice.
    """
    document = {
        "format": SUMMARY_FORMAT,
        **asdict(summary, dict_factory=_entry),
        "near_zero_below": NEAR_ZERO,
        "picks": summary.picks(),
        "config": evaluation.config,
        **({} if speed is None else {"timing": timing_document(evaluation, speed)}),
    }
    return json.dumps(plain(document), indent=2, ensure_ascii=False, allow_nan=False)


def timing_document(evaluation: Evaluation, speed: SpeedSummary) -> dict[str, Any]:
    """Wall time as plain values: the lines, and every batch as it was measured."""
    batches = [asdict(batch) for batch in evaluation.times]
    document: dict[str, Any] = plain(
        {
            "format": TIMING_FORMAT,
            "note": TIME_LEGEND,
            "run": evaluation.run,
            "machine": evaluation.machine,
            **asdict(speed, dict_factory=_entry),
            "batches": batches,
        }
    )
    return document


def timing_markdown(evaluation: Evaluation, summary: CompareSummary, speed: SpeedSummary) -> str:
    """Wall time in tables."""
    parts = [f"# Wall time: {_title(evaluation)}\n", f"{TIME_LEGEND} Machines: {'; '.join(speed.machines)}."]
    parts += [f"\n- {text}" for text in time_remarks(speed)]
    for task in summary.shown:
        parts += [f"\n## {panel_title(summary, task)}\n", grid_markdown(Sheet("time", "", "", _TIME, speed.of(task)))]
    return "\n".join(parts) + "\n"


def forwards_figure(evaluation: Evaluation, summary: CompareSummary, image: str = "svg") -> bytes:
    """Utility against forwards per answer."""
    costs = {(line.task, line.policy): line.forwards.value for line in (*summary.lines, *summary.macro)}
    fronts = {(line.task, line.policy) for line in (*summary.lines, *summary.macro) if line.front}
    notes = ("Filled: on the front beyond noise, better than each policy that needs no more forwards.",)
    return _figure(evaluation, summary, costs, fronts, "forwards per answer", notes, image)


def time_figure(evaluation: Evaluation, summary: CompareSummary, speed: SpeedSummary, image: str = "svg") -> bytes:
    """Utility against milliseconds per answer."""
    lines = (*speed.lines, *speed.macro)
    costs = {(line.task, line.policy): 1000 * line.seconds.value for line in lines}
    fronts = {(line.task, line.policy) for line in lines if line.front}
    notes = (TIME_LEGEND, *time_remarks(speed))
    return _figure(evaluation, summary, costs, fronts, "milliseconds of decoding per answer", notes, image)


def _figure(
    evaluation: Evaluation,
    summary: CompareSummary,
    costs: Mapping[tuple[str, str], float],
    fronts: Set[tuple[str, str]],
    cost: str,
    notes: Sequence[str],
    image: str,
) -> bytes:
    names = {line.policy: shown_name(line) for line in summary.lines}
    filled = cost.startswith("forwards")
    panels = [
        CostPanel(
            panel_title(summary, task),
            tuple(
                CostPoint(
                    names[line.policy],
                    costs.get((task, line.policy), nan),
                    line.utility,
                    (task, line.policy) in fronts,
                    line.sure and filled,
                    line.policy == summary.reference,
                )
                for line in summary.of(task)
            ),
        )
        for task in summary.shown
    ]
    marks = [
        "Step line: the Pareto front, members named. Diamond: the reference. Bars: 95 % intervals over prompts.",
        *notes,
        *([LABEL_LEGEND] if any(line.label == RECONSTRUCTION for line in summary.lines) else []),
    ]
    title = f"Utility against {cost}: {_title(evaluation)}"
    return trade_off(panels, list(names.values()), title=title, cost=cost, notes=marks, image=image)


def _title(evaluation: Evaluation) -> str:
    return f"{evaluation.config['model']['name']} on the {evaluation.split} prompts"


def markdown(evaluation: Evaluation, summary: CompareSummary, picks: Mapping[str, str] | None = None) -> str:
    """Everything but the answers: the short table, then every task and policy."""
    config = evaluation.config
    model = config["model"]
    fingerprint = f", fingerprint {model['fingerprint']}" if "fingerprint" in model else ""
    parts = [
        f"# {_title(evaluation)}\n",
        f"Device {config['device']}{fingerprint}; temperature {config['temperature']}, seed {config['seed']}; steps: "
        "half the horizon unless stated; `summary.json` has the whole configuration.\n",
        card_table(summary, picks),
        *(f"\n- {text}" for text in remarks(summary)),
    ]
    for task in summary.shown:
        sheet = Sheet("lines", "", "", _LINE, summary.of(task))
        parts += [f"\n## {panel_title(summary, task)}\n", grid_markdown(sheet)]
    return "\n".join([*parts, *(f"\n{text}" for text in legends(summary))]) + "\n"


def card_table(summary: CompareSummary, picks: Mapping[str, str] | None = None) -> str:
    """For a model card: per task the reference's utility and a candidate with its paired interval.

    The candidate is the best on these very prompts, the reference itself if none is better, or the one that `picks`
    name: `Summary.picks` of another split.
    """
    columns: tuple[Column[CardRow], ...] = (
        attribute("task", "task", path="reference.task", left=True),
        attribute("prompts", "prompts", path="reference.utility.n"),
        Column("reference", "reference", lambda row: _interval(row.reference.utility)),
        Column("candidate", "candidate", lambda row: row.best.policy if row.best else "", left=True),
        Column("utility", "its utility", lambda row: _number(row.best.utility.value) if row.best else ""),
        Column("difference", "difference", lambda row: _difference(row.best) if row.best else ""),
    )
    table = grid_markdown(Sheet("card", "", "", columns, list(_card_rows(summary, picks))))
    chosen = "here, on the same prompts: its interval flatters" if picks is None else "beforehand, on other prompts"
    return f"{table}\n\nMeans with 95 % intervals over prompts. The best candidate was chosen {chosen}."


@dataclass(frozen=True)
class CardRow:
    """The reference on one task, and the candidate beside it; None where there is none."""

    reference: PolicyLine
    best: PolicyLine | None


def _card_rows(summary: CompareSummary, picks: Mapping[str, str] | None) -> Iterator[CardRow]:
    for task in (*(run.task for run in summary.tasks), MACRO):
        lines = {line.policy: line for line in summary.of(task)}
        if summary.reference in lines:
            best = summary.best(task) if picks is None else lines.get(picks.get(task, ""))
            yield CardRow(lines[summary.reference], best)


_LINE: tuple[Column[PolicyLine], ...] = (
    Column("policy", "policy", lambda line: shown_name(line), left=True),
    attribute("prompts", "prompts", path="utility.n"),
    Column("utility", "utility", lambda line: _interval(line.utility)),
    Column("difference", "difference", lambda line: _difference(line)),
    Column("forwards", "forwards", lambda line: _range(line.forwards, 1)),
    Column("forwards_ratio", "x reference", lambda line: _range(line.forwards_ratio, 2)),
    Column("answer_tokens_per_forward", "tokens/forward", lambda line: _range(line.answer_tokens_per_forward, 2)),
    Column("tokens_per_forward", "positions/forward", lambda line: _range(line.tokens_per_forward, 2)),
    Column("extra_forwards", "extra forwards", lambda line: f"{line.extra_forwards:.1f}"),
    Column("planner_forwards", "planner forwards", lambda line: f"{line.planner_forwards:.1f}"),
    Column("remasks", "re-masks", lambda line: f"{line.remasks:.1f}"),
    Column("processed_tokens", "tokens read", lambda line: f"{line.processed_tokens:.0f}"),
    Column("front", "front", lambda line: front_mark(line), left=True),
)

_TIME: tuple[Column[SpeedLine], ...] = (
    attribute("policy", "policy", left=True),
    Column("seconds", "seconds/prompt", lambda line: _range(line.seconds, 4)),
    Column("ratio", "x reference", lambda line: _range(line.ratio, 2)),
    Column("answer_tokens_per_second", "tokens/s", lambda line: _range(line.answer_tokens_per_second, 0)),
    Column("tokens_per_second", "positions/s", lambda line: _range(line.tokens_per_second, 0)),
    attribute("batches", "batches"),
    Column("cold", "first batch", lambda line: "yes" if line.cold else "", left=True),
    Column("front", "front", lambda line: UNSURE if line.front else "", left=True),
)


def _difference(line: PolicyLine) -> str:
    return f"{_signed(line.difference)} {mark(line)}".rstrip()


def _interval(value: Estimate) -> str:
    return f"{_number(value.value)} [{_number(value.low)}, {_number(value.high)}]"


def _range(value: Estimate, places: int) -> str:
    if isnan(value.value):
        return "none"
    ends = "" if isnan(value.low) else f" [{value.low:.{places}f}, {value.high:.{places}f}]"
    return f"{value.value:.{places}f}{ends}"


def _signed(value: Estimate) -> str:
    return f"{value.value:+.3f} [{value.low:+.3f}, {value.high:+.3f}]" if not isnan(value.value) else "none"


def _entry(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """A dataclass as an entry of `summary.json`; an estimate is there with its mean and its prompts."""
    entry = dict(fields)
    if "undefined" not in entry:
        return entry
    return {"mean": entry["value"], "low": entry["low"], "high": entry["high"], "n": entry["n"]}


def _number(value: float) -> str:
    return "none" if isnan(value) else f"{value:.3f}"
