"""The report on policies evaluated end to end: a line per answer as CSV, tables in Markdown, JSON and on screen."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isnan
from pathlib import Path
from typing import Any

from rich.table import Table

from unmask.errors import ConfigError, SchemaError
from unmask.lab.compare import AnswerRow, Evaluation
from unmask.lab.compare_summary import MACRO, CompareSummary, PolicyLine
from unmask.report import files
from unmask.stats.paired import Interval

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
        theirs = json.loads(path.read_text(encoding="utf-8"))["config"]
        differ = [name for name, value in config.items() if theirs.get(name) != value]
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise ConfigError(
            f"{str(path)!r} is there and no summary of `unmask compare`; allowed: a new folder, or that of the same "
            "comparison; choose another --out"
        ) from error
    if differ:
        raise ConfigError(
            f"{str(path)!r} is of another comparison ({', '.join(differ)} differ); allowed: a new folder, or that of "
            "the same comparison; choose another --out, or delete the file"
        )


def read_picks(path: str | Path) -> dict[str, str]:
    """The best policy of each task in the summary.json of an earlier run."""
    try:
        picks = json.loads(Path(path).read_text(encoding="utf-8"))["picks"]
        return {str(task): str(policy) for task, policy in picks.items()}
    except OSError as error:
        raise ConfigError(f"{str(path)!r} cannot be read ({error.strerror}); allowed: a summary.json") from error
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise SchemaError(
            f"{str(path)!r} has no picks; allowed: the summary.json of `unmask compare`; run it again"
        ) from error


def table_csv(rows: Sequence[AnswerRow]) -> str:
    """Every answer; an empty cell where there is no utility."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(AnswerRow._fields)
    writer.writerows(["" if isinstance(cell, float) and isnan(cell) else cell for cell in row] for row in rows)
    return text.getvalue()


def summary_json(evaluation: Evaluation, summary: CompareSummary) -> str:
    """All numbers and the configuration behind them; null where there is no number."""
    document = {**asdict(summary), "picks": summary.picks(), "config": evaluation.config}
    return json.dumps(_plain(document), indent=2, ensure_ascii=False, allow_nan=False)


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
            parts += [f"\n## {_heading(summary, task)}\n", _table(_HEADS, [_cells(line) for line in lines])]
    return "\n".join(parts) + f"\n\n{LEGEND}\n"


def card_table(summary: CompareSummary, picks: Mapping[str, str] | None = None) -> str:
    """For a model card: per task the reference's utility and a candidate with its paired interval.

    The candidate is the best on these very prompts, the reference itself if none is better, or the one that `picks`
    name: `Summary.picks` of another split.
    """
    rows = []
    for task in (*(run.task for run in summary.tasks), MACRO):
        lines = {line.policy: line for line in summary.of(task)}
        if summary.reference in lines:
            reference = lines[summary.reference]
            best = summary.best(task) if picks is None else lines.get(picks.get(task, ""))
            rows.append([task, str(reference.utility.n), _interval(reference.utility), *_best(best)])
    table = _table(("task", "prompts", "reference", "candidate", "its utility", "difference"), rows)
    chosen = "here, on the same prompts: its interval flatters" if picks is None else "beforehand, on other prompts"
    return f"{table}\n\nMeans with 95 % intervals over prompts. The best candidate was chosen {chosen}."


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
        own = [lines.get((task, policy)) for task in (*tasks, MACRO)]
        spent = [line.forwards for line in own[:-1] if line is not None]
        table.add_row(
            policy,
            *("" if line is None else _number(line.utility.mean) + (_mark(line) or " ") for line in own),
            f"{sum(spent) / len(spent):.1f}",
            style="bold" if policy == summary.reference else "",
        )
    return table


def remarks(summary: CompareSummary) -> list[str]:
    """What is missing from the table, in words."""
    found = [f"{run.task}: not available ({run.unavailable})" for run in summary.tasks if run.unavailable]
    found += [
        f"{run.task}: {count(run.skipped, 'prompt')} skipped, longer with the answer than the model's limit"
        for run in summary.tasks
        if run.skipped
    ]
    found += [f"{left.task}: without {left.policy} ({left.reason})" for left in summary.left_out]
    for line in summary.lines:
        if line.unscored:
            found.append(f"{line.task}: {count(line.unscored, 'answer')} of {line.policy} could not be judged")
    return found


def count(number: int, noun: str) -> str:
    """1 answer, 2 answers."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


_HEADS = ("policy", "prompts", "utility", "difference", "forwards")


def _cells(line: PolicyLine) -> list[str]:
    return [
        line.policy,
        str(line.utility.n),
        _interval(line.utility),
        _signed(line.difference) + (f" {_mark(line)}" if _mark(line) else ""),
        f"{line.forwards:.1f}",
    ]


def _best(line: PolicyLine | None) -> list[str]:
    if line is None:
        return ["", "", ""]
    mark = f" {_mark(line)}" if _mark(line) else ""
    return [line.policy, _number(line.utility.mean), _signed(line.difference) + mark]


def _mark(line: PolicyLine) -> str:
    return ABOVE if line.difference.low > 0 else BELOW if line.difference.high < 0 else ""


def _heading(summary: CompareSummary, task: str) -> str:
    if task == MACRO:
        return f"Mean over {count(len(summary.macro_tasks), 'task')}"
    run = next(run for run in summary.tasks if run.task == task)
    return f"{task} (horizon {run.horizon}, {count(run.steps, 'step')})"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    sides = ["---" if head in ("task", "policy", "candidate") else "---:" for head in heads]
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, sides, *rows))


def _interval(value: Interval) -> str:
    return f"{_number(value.mean)} [{_number(value.low)}, {_number(value.high)}]"


def _signed(value: Interval) -> str:
    return f"{value.mean:+.3f} [{value.low:+.3f}, {value.high:+.3f}]" if not isnan(value.mean) else "none"


def _number(value: float) -> str:
    return "none" if isnan(value) else f"{value:.3f}"


def _plain(value: Any) -> Any:
    """JSON has no NaN."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and isnan(value) else value
