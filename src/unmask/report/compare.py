"""The report on policies evaluated end to end: a line per answer as CSV, tables in Markdown, JSON and on screen."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isnan
from pathlib import Path
from typing import Any

from rich.table import Table

from unmask.errors import ConfigError, SchemaError
from unmask.lab.compare import AnswerRow, Evaluation
from unmask.lab.compare_store import SAME, check_same
from unmask.lab.compare_summary import MACRO, CompareSummary, PolicyLine
from unmask.plain_files import read_plain
from unmask.report import files
from unmask.report.csv import records_csv
from unmask.report.formats import counted
from unmask.report.markdown import grid_markdown
from unmask.report.plain import plain
from unmask.report.sheet import Column, Sheet, attribute
from unmask.stats import Estimate

ABOVE, BELOW = "↑", "↓"
LEGEND = f"{ABOVE} better than the reference on the same prompts, {BELOW} worse: the 95 % interval leaves out zero."


def write(
    evaluation: Evaluation, summary: CompareSummary, out: str | Path, picks: Mapping[str, str] | None = None
) -> tuple[Path, ...]:
    """Write compare.csv, summary.md and summary.json into a folder; `picks` as for `card_table`."""
    place = files.folder(out)
    return (
        files.write(place / "compare.csv", table_csv(evaluation.rows).encode()),
        files.write(place / "summary.md", markdown(evaluation, summary, picks).encode()),
        files.write(place / "summary.json", (summary_json(evaluation, summary) + "\n").encode()),
    )


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
        picks = json.loads(read_plain(path))["picks"]
        return {str(task): str(policy) for task, policy in picks.items()}
    except OSError as error:
        raise ConfigError(f"{str(path)!r} cannot be read ({error.strerror}); allowed: a summary.json") from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise SchemaError(
            f"{str(path)!r} has no picks; allowed: the summary.json of `unmask compare`; run it again"
        ) from error


def table_csv(rows: Sequence[AnswerRow]) -> str:
    """Every answer; an empty cell where there is no utility."""
    return records_csv(AnswerRow._fields, rows)


def summary_json(evaluation: Evaluation, summary: CompareSummary) -> str:
    """All numbers and the configuration behind them; null where there is no number."""
    document = {**asdict(summary, dict_factory=_entry), "picks": summary.picks(), "config": evaluation.config}
    return json.dumps(plain(document), indent=2, ensure_ascii=False, allow_nan=False)


def markdown(evaluation: Evaluation, summary: CompareSummary, picks: Mapping[str, str] | None = None) -> str:
    """Everything but the answers: the short table, then every task and policy."""
    config = evaluation.config
    model = config["model"]
    fingerprint = f", fingerprint {model['fingerprint']}" if "fingerprint" in model else ""
    parts = [
        f"# {model['name']} on the {summary.split} prompts\n",
        f"Device {config['device']}{fingerprint}; temperature {config['temperature']}, seed {config['seed']}; steps: "
        "half the horizon unless stated; `summary.json` has the whole configuration.\n",
        card_table(summary, picks),
        *(f"\n- {text}" for text in remarks(summary)),
    ]
    for task in (*(run.task for run in summary.tasks), MACRO):
        lines = summary.of(task)
        if lines:
            parts += [f"\n## {_heading(summary, task)}\n", _lines_table(lines)]
    return "\n".join(parts) + f"\n\n{LEGEND}\n"


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


def screen(summary: CompareSummary) -> Table:
    """Mean utilities, policies by tasks."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("policy", overflow="fold", min_width=10)
    tasks = [run.task for run in summary.tasks if not run.unavailable]
    for task in (*tasks, MACRO):
        table.add_column(task.replace("-", " "), justify="right", overflow="fold", width=7)
    table.add_column("for wards", justify="right", width=5)
    lines = {(line.task, line.policy): line for line in (*summary.lines, *summary.macro)}
    for policy in dict.fromkeys(line.policy for line in summary.lines):
        by_task = [lines.get((task, policy)) for task in (*tasks, MACRO)]
        spent = [line.forwards for line in by_task[:-1] if line is not None]
        table.add_row(
            policy,
            *("" if line is None else _number(line.utility.value) + (_mark(line) or " ") for line in by_task),
            f"{sum(spent) / len(spent):.1f}",
            style="bold" if policy == summary.reference else "",
        )
    return table


def remarks(summary: CompareSummary) -> list[str]:
    """What is missing from the table, in words."""
    lines = [f"{run.task}: not available ({run.unavailable})" for run in summary.tasks if run.unavailable]
    lines += [
        f"{run.task}: {counted(run.skipped, 'prompt')} skipped, longer with the answer than the model's limit"
        for run in summary.tasks
        if run.skipped
    ]
    lines += [f"{left.task}: without {left.policy} ({left.reason})" for left in summary.left_out]
    for line in summary.lines:
        if line.unscored:
            lines.append(f"{line.task}: {counted(line.unscored, 'answer')} of {line.policy} could not be judged")
    return lines


_LINE: tuple[Column[PolicyLine], ...] = (
    attribute("policy", "policy", left=True),
    attribute("prompts", "prompts", path="utility.n"),
    Column("utility", "utility", lambda line: _interval(line.utility)),
    Column("difference", "difference", lambda line: _difference(line)),
    Column("forwards", "forwards", lambda line: f"{line.forwards:.1f}"),
)


def _lines_table(lines: Sequence[PolicyLine]) -> str:
    return grid_markdown(Sheet("lines", "", "", _LINE, lines))


def _difference(line: PolicyLine) -> str:
    return f"{_signed(line.difference)} {_mark(line)}".rstrip()


def _mark(line: PolicyLine) -> str:
    return ABOVE if line.difference.low > 0 else BELOW if line.difference.high < 0 else ""


def _heading(summary: CompareSummary, task: str) -> str:
    if task == MACRO:
        return f"Mean over {counted(len(summary.macro_tasks), 'task')}"
    run = next(run for run in summary.tasks if run.task == task)
    return f"{task} (horizon {run.horizon}, {counted(run.steps, 'step')})"


def _interval(value: Estimate) -> str:
    return f"{_number(value.value)} [{_number(value.low)}, {_number(value.high)}]"


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
