"""A comparison as files, page and terminal tables: what every policy is worth beside what it costs."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from math import isnan, nan
from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table

from unmask.base.errors import ConfigError, SchemaError
from unmask.base.files import read_file
from unmask.lab.compare import CompareSummary, Comparison, SpeedSummary
from unmask.lab.compare.store import SAME, check_same
from unmask.lab.compare.summary import MACRO, MEASURES, NEAR_ZERO, SPEEDS
from unmask.report import files
from unmask.report.compare_page import compare_page
from unmask.report.compare_words import (
    OWN,
    TIME_LEGEND,
    UNSURE,
    Line,
    format_measure,
    format_number,
    front_mark,
    gain_mark,
    label_legends,
    panel_title,
    remarks,
    shown_name,
    sign_legends,
    time_remarks,
)
from unmask.report.table import escape_latex, plain
from unmask.report.trade_off import CostPanel, CostPoint, trade_off
from unmask.stats import Estimate

PAGE = "compare.html"
SUMMARY_FORMAT, TIMING_FORMAT = "unmask-compare-summary-2", "unmask-compare-timing-1"


def write_comparison(
    comparison: Comparison,
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
        "compare.csv": answers_csv(comparison.answers).encode(),
        "summary.md": markdown(comparison, summary, picks).encode(),
        "summary.json": (summary_json(comparison, summary) + "\n").encode(),
        "table.tex": latex(comparison, summary).encode(),
        "figure.svg": forwards_figure(comparison, summary),
        "figure.pdf": forwards_figure(comparison, summary, "pdf"),
    }
    contents[PAGE] = compare_page(comparison, summary, contents["figure.svg"]).encode()
    if speed is not None:
        timing = json.dumps(timing_document(comparison, speed), indent=2, ensure_ascii=False) + "\n"
        contents["timing.md"] = timing_markdown(comparison, summary, speed).encode()
        contents["timing.json"] = timing.encode()
        contents["figure-time.svg"] = time_figure(comparison, summary, speed)
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
    """Read the best policy of each task from the summary.json of an earlier run."""
    try:
        picks = json.loads(read_file(path))["picks"]
        return {str(task): str(policy) for task, policy in picks.items()}
    except OSError as error:
        raise ConfigError(f"{str(path)!r} cannot be read ({error.strerror}); allowed: a summary.json") from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise SchemaError(
            f"{str(path)!r} has no picks; allowed: the summary.json of `unmask compare`; run it again"
        ) from error


# Files of numbers


def answers_csv(answers: pd.DataFrame) -> str:
    """Every answer with what it cost; an empty cell where there is no utility."""
    columns = [name for name in answers if name != "answer"]
    at = columns.index("forwards")
    steps = answers.assign(steps=answers["forwards"] - answers["extra_forwards"])
    return str(steps[[*columns[:at], "steps", *columns[at:], "answer"]].to_csv(index=False, lineterminator="\n"))


def summary_json(comparison: Comparison, summary: CompareSummary, speed: SpeedSummary | None = None) -> str:
    """All numbers and the configuration behind them; null where there is no number.

    With `speed` what a clock says is there as well, under `timing`: it is not the same twice.
    """
    document = {
        "format": SUMMARY_FORMAT,
        "split": summary.split,
        "reference": summary.reference,
        "tasks": [asdict(run) for run in summary.tasks],
        **_line_entries(summary.lines, MEASURES),
        "macro_tasks": summary.macro_tasks,
        "near_zero": summary.near_zero,
        "without": summary.without,
        "left_out": [asdict(left) for left in summary.left_out],
        "near_zero_below": NEAR_ZERO,
        "picks": summary.picks(),
        "config": comparison.config,
        **({} if speed is None else {"timing": timing_document(comparison, speed)}),
    }
    return json.dumps(plain(document), indent=2, ensure_ascii=False, allow_nan=False)


def timing_document(comparison: Comparison, speed: SpeedSummary) -> dict[str, Any]:
    """Wall time as plain values: the lines, and every batch as it was measured."""
    batches = []
    for batch in comparison.times.to_dict("records"):
        place = {name: batch.pop(name) for name in ("task", "policy", "batch")}
        batches.append({**place, "time": None if pd.isna(batch["seconds"]) else batch})
    document: dict[str, Any] = plain(
        {
            "format": TIMING_FORMAT,
            "note": TIME_LEGEND,
            "run": comparison.run,
            "machine": comparison.machine,
            **_line_entries(speed.lines, SPEEDS),
            "measured": speed.measured,
            "earlier": speed.earlier,
            "elsewhere": speed.elsewhere,
            "unknown": speed.unknown,
            "machines": speed.machines,
            "batches": batches,
        }
    )
    return document


def _line_entries(lines: pd.DataFrame, measures: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Lines of tasks and of the mean as JSON has them: a measure is an object with its mean, interval and count."""
    entries: dict[str, list[dict[str, Any]]] = {"lines": [], "macro": []}
    ends = {f"{measure}_{end}" for measure in measures for end in ("low", "high", "n")}
    for line in lines.to_dict("records"):
        entry = {name: value for name, value in line.items() if name not in ends}
        for name in measures:
            entry[str(name)] = {"mean": line[name], **{end: line[f"{name}_{end}"] for end in ("low", "high", "n")}}
        entries["macro" if line["task"] == MACRO else "lines"].append(entry)
    return entries


# Tables: heads, and what stands below each

Column = tuple[str, Callable[[Line], str]]


def _measure(head: str, name: str, places: int) -> Column:
    return head, lambda line: format_measure(line, name, places)


_NAME: Column = ("policy", shown_name)
_DIFFERENCE: Column = ("difference", lambda line: f"{format_measure(line, 'difference', 3)} {gain_mark(line)}".rstrip())
_FRONT: Column = ("front", front_mark)
LINE_COLUMNS: tuple[Column, ...] = (
    _NAME,
    ("prompts", lambda line: str(line["utility_n"])),
    _measure("utility", "utility", 3),
    _DIFFERENCE,
    _measure("forwards", "forwards", 1),
    _measure("x reference", "forwards_ratio", 2),
    _measure("tokens/forward", "answer_tokens_per_forward", 2),
    _measure("positions/forward", "tokens_per_forward", 2),
    ("extra forwards", lambda line: f"{line['extra_forwards']:.1f}"),
    ("planner forwards", lambda line: f"{line['planner_forwards']:.1f}"),
    ("re-masks", lambda line: f"{line['remasks']:.1f}"),
    ("tokens read", lambda line: f"{line['processed_tokens']:.0f}"),
    _FRONT,
)
TIME_COLUMNS: tuple[Column, ...] = (
    ("policy", lambda line: str(line["policy"])),
    _measure("seconds/prompt", "seconds", 4),
    _measure("x reference", "ratio", 2),
    _measure("tokens/s", "answer_tokens_per_second", 0),
    _measure("positions/s", "tokens_per_second", 0),
    ("batches", lambda line: str(line["batches"])),
    ("first batch", lambda line: "yes" if line["cold"] else ""),
    ("front", lambda line: UNSURE if line["front"] else ""),
)
_LEFT = ("policy", "task", "candidate", "front", "first batch")
"""Heads of columns of words; numbers stand on the right."""


def _markdown_table(columns: Sequence[Column], lines: Sequence[Line]) -> str:
    heads = [head for head, _ in columns]
    sides = ["---" if head in _LEFT else "---:" for head in heads]
    cells = [[show(line) for _, show in columns] for line in lines]
    rows = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in (heads, sides, *cells)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def markdown(comparison: Comparison, summary: CompareSummary, picks: Mapping[str, str] | None = None) -> str:
    """Everything but the answers: the short table, then every task and policy."""
    config = comparison.config
    model = config["model"]
    fingerprint = f", fingerprint {model['fingerprint']}" if "fingerprint" in model else ""
    parts = [
        f"# {_title(comparison)}\n",
        f"Device {config['device']}{fingerprint}; temperature {config['temperature']}, seed {config['seed']}; steps: "
        "half the horizon unless stated; `summary.json` has the whole configuration.\n",
        card_table(summary, picks),
        *(f"\n- {text}" for text in remarks(summary)),
    ]
    for task in summary.line_tasks:
        table = _markdown_table(LINE_COLUMNS, summary.of(task).to_dict("records"))
        parts += [f"\n## {panel_title(summary, task)}\n", table]
    return "\n".join([*parts, *(f"\n{text}" for text in sign_legends(summary))]) + "\n"


def card_table(summary: CompareSummary, picks: Mapping[str, str] | None = None) -> str:
    """Make the table for a model card: per task the reference's utility and a candidate with its paired interval.

    The candidate is the best on these very prompts, the reference itself if none is better, or the one that `picks`
    name: `CompareSummary.picks` of another split.
    """
    rows: list[Line] = []
    for task in (*(run.task for run in summary.tasks), MACRO):
        lines = {line["policy"]: line for line in summary.of(task).to_dict("records")}
        if summary.reference in lines:
            best = summary.best(task) if picks is None else lines.get(picks.get(task, ""))
            rows.append({"reference": lines[summary.reference], "best": best})
    columns: tuple[Column, ...] = (
        ("task", lambda row: row["reference"]["task"]),
        ("prompts", lambda row: str(row["reference"]["utility_n"])),
        ("reference", lambda row: format_measure(row["reference"], "utility", 3)),
        ("candidate", lambda row: "" if row["best"] is None else row["best"]["policy"]),
        ("its utility", lambda row: "" if row["best"] is None else f"{row['best']['utility']:.3f}"),
        ("difference", lambda row: "" if row["best"] is None else _DIFFERENCE[1](row["best"])),
    )
    chosen = "here, on the same prompts: its interval flatters" if picks is None else "beforehand, on other prompts"
    table = _markdown_table(columns, rows)
    return f"{table}\n\nMeans with 95 % intervals over prompts. The best candidate was chosen {chosen}."


def timing_markdown(comparison: Comparison, summary: CompareSummary, speed: SpeedSummary) -> str:
    """Wall time in tables."""
    parts = [f"# Wall time: {_title(comparison)}\n", f"{TIME_LEGEND} Machines: {'; '.join(speed.machines)}."]
    parts += [f"\n- {text}" for text in time_remarks(speed)]
    for task in summary.line_tasks:
        table = _markdown_table(TIME_COLUMNS, speed.of(task).to_dict("records"))
        parts += [f"\n## {panel_title(summary, task)}\n", table]
    return "\n".join(parts) + "\n"


def latex(comparison: Comparison, summary: CompareSummary) -> str:
    """Make a table for a paper (package booktabs): every task and policy, methods of one's own in bold."""
    heads = ("method", "utility", "difference", "forwards", r"$\times$ reference", "tokens/forward")
    rows = []
    for task in summary.line_tasks:
        rows.append(rf"\midrule \multicolumn{{{len(heads)}}}{{l}}{{{escape_latex(panel_title(summary, task))}}} \\")
        for line in summary.of(task).to_dict("records"):
            name = escape_latex(shown_name(line))
            is_reference = line["policy"] == summary.reference
            cells = [
                rf"\textbf{{{name}}}" if line["label"] == OWN else name,
                escape_latex(format_measure(line, "utility", 3, "–")),
                "" if is_reference else escape_latex(format_measure(line, "difference", 3, "–")),
                escape_latex(format_measure(line, "forwards", 1, "–")),
                "" if is_reference else escape_latex(format_measure(line, "forwards_ratio", 2, "–")),
                escape_latex(format_measure(line, "answer_tokens_per_forward", 2, "–")),
            ]
            rows.append(" & ".join(cells) + r" \\")
    notes = ["Means with 95 % intervals over prompts; differences and ratios to the reference on the same prompts."]
    return "\n".join(
        [
            *(f"% {' '.join(text.split())}" for text in (_title(comparison), *notes, *label_legends(summary))),
            rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}",
            r"\toprule",
            " & ".join(heads) + r" \\",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


# Figures


def forwards_figure(comparison: Comparison, summary: CompareSummary, image: str = "svg") -> bytes:
    """Draw utility against forwards per answer."""
    notes = ["Filled: on the front beyond noise, better than each policy that needs no more forwards."]
    return _figure(comparison, summary, summary.lines, "forwards", "forwards per answer", notes, image)


def time_figure(comparison: Comparison, summary: CompareSummary, speed: SpeedSummary, image: str = "svg") -> bytes:
    """Draw utility against milliseconds per answer."""
    lines = speed.lines.assign(cost=1000 * speed.lines["seconds"], sure=False)
    notes = [TIME_LEGEND, *time_remarks(speed)]
    return _figure(comparison, summary, lines, "cost", "milliseconds of decoding per answer", notes, image)


def _figure(
    comparison: Comparison,
    summary: CompareSummary,
    costs: pd.DataFrame,
    column: str,
    cost: str,
    notes: Sequence[str],
    image: str,
) -> bytes:
    """Draw a panel per task. `costs` has the cost in `column`, and who is on the front, by task and policy."""
    by_place = {(line["task"], line["policy"]): line for line in costs.to_dict("records")}
    nowhere = {column: nan, "front": False, "sure": False}
    panels, names = [], {}
    for task in summary.line_tasks:
        points = []
        for line in summary.of(task).to_dict("records"):
            names[line["policy"]] = shown_name(line)
            there = by_place.get((task, line["policy"]), nowhere)
            points.append(
                CostPoint(
                    names[line["policy"]],
                    there[column],
                    Estimate(line["utility"], line["utility_low"], line["utility_high"]),
                    front=there["front"],
                    sure=there["sure"],
                    reference=line["policy"] == summary.reference,
                    own=line["label"] == OWN,
                )
            )
        panels.append(CostPanel(panel_title(summary, task), tuple(points)))
    marks = "Step line: the Pareto front, members named. Diamond: the reference. Bars: 95 % intervals over prompts."
    foot = [marks, *notes, *label_legends(summary)]
    title = f"Utility against {cost}: {_title(comparison)}"
    return trade_off(panels, list(names.values()), title=title, cost=cost, notes=foot, image=image)


def _title(comparison: Comparison) -> str:
    return f"{comparison.config['model']['name']} on the {comparison.split} prompts"


# The terminal

_COST_WIDTH, _ESSENTIAL = 7, 4
SCREEN_COSTS: tuple[tuple[str, str, int, float], ...] = (
    ("for wards", "forwards", 1, 1),
    ("tokens /fwd", "answer_tokens_per_forward", 2, 1),
    ("ms/ prompt", "seconds", 1, 1000),
    ("front", "front", 0, 1),
    ("x fwd", "forwards_ratio", 2, 1),
    ("x time", "ratio", 2, 1),
    ("re- masks", "remasks", 1, 1),
    ("extra fwd", "extra_forwards", 1, 1),
    ("tokens read", "processed_tokens", 0, 1),
    ("tokens /s", "answer_tokens_per_second", 0, 1),
    ("planner fwd", "planner_forwards", 1, 1),
)
"""Head, column, digits and factor of what a policy costs; the most wanted first, and a wide terminal shows more."""


def screen_tables(summary: CompareSummary, speed: SpeedSummary | None = None, width: int = 100) -> list[Table]:
    """Make the tables of utilities by task and of costs: one table where both fit into so many characters."""
    tasks = [task for task in summary.line_tasks if task != MACRO]
    columns = [*tasks, *([MACRO] if MACRO in summary.line_tasks and len(tasks) > 1 else [])]
    by_place = {(line["task"], line["policy"]): line for line in summary.lines.to_dict("records")}
    names = {policy: shown_name(line) for (_, policy), line in by_place.items()}
    name_width = min(max([10, *map(len, names.values())]), max(32, width // 3))
    room = max(width, 60) - (name_width + 1) - _COST_WIDTH * len(columns)
    together = room >= _ESSENTIAL * _COST_WIDTH
    first = _screen_table(name_width)
    second = first if together else _screen_table(name_width)
    for task in columns:
        first.add_column("mean" if task == MACRO else task.replace("-", " "), justify="right", overflow="fold", width=6)
    fitting = (room if together else width - name_width - 1) // _COST_WIDTH
    costs = SCREEN_COSTS[: max(_ESSENTIAL, fitting)]
    if not summary.lines["planner_forwards"].any():
        costs = tuple(cost for cost in costs if cost[1] != "planner_forwards")
    for head, *_ in costs:
        second.add_column(head, justify="right", overflow="fold", width=_COST_WIDTH - 1)
    for policy, name in names.items():
        worth = [_screen_utility(by_place.get((task, policy))) for task in columns]
        spent = _screen_costs(summary, speed, policy, costs)
        style = "bold" if policy == summary.reference else ""
        first.add_row(name, *worth, *(spent if together else ()), style=style)
        if not together:
            second.add_row(name, *spent, style=style)
    return [first] if together else [first, second]


def _screen_table(name_width: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("policy", overflow="fold", min_width=10, max_width=name_width)
    return table


def _screen_utility(line: Line | None) -> str:
    if line is None:
        return ""
    return ("none" if isnan(line["utility"]) else f"{line['utility']:.3f}") + (gain_mark(line) or " ")


def _screen_costs(
    summary: CompareSummary, speed: SpeedSummary | None, policy: str, costs: Sequence[tuple[str, str, int, float]]
) -> list[str]:
    """Costs over the tasks of the mean, or where a policy did not decode all of these, over its own (`~`)."""
    lines = summary.lines[summary.lines["policy"] == policy]
    in_mean = lines["task"] == MACRO
    lines = lines[in_mean] if in_mean.any() else lines
    times = pd.DataFrame() if speed is None else speed.lines
    if len(times):
        times = times[(times["policy"] == policy) & times["task"].isin(lines["task"])]
    cells = []
    for _, column, digits, factor in costs:
        if column == "front":
            cells.append(front_mark(lines.iloc[0]) if in_mean.any() else "")
            continue
        values = lines[column] if column in lines else times[column] if column in times else pd.Series([nan])
        own_tasks = column == "forwards" and not in_mean.any() and len(summary.line_tasks) > 1
        cells.append(format_number(factor * values.mean(skipna=False), digits) + ("~" if own_tasks else ""))
    return cells
