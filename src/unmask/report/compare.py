"""Comparisons and verifications as files, page and terminal tables: what every policy is worth beside what it costs."""

import html
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from math import isfinite, isnan, nan
from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table

from unmask.base.errors import ConfigError, SchemaError
from unmask.base.files import read_file
from unmask.lab.compare import CompareSummary, Comparison, SpeedSummary
from unmask.lab.compare.run import LeftOut
from unmask.lab.compare.store import SAME, check_same_comparison
from unmask.lab.compare.summary import MACRO, MEASURES, NEAR_ZERO, SPEEDS
from unmask.lab.verify import Target, VerifiedRun
from unmask.methods import RECONSTRUCTION, describe_policy
from unmask.report import files
from unmask.report.drawing import CostPoint, Draw, Size, save_figure, themed_picture, trade_off
from unmask.report.pages import page
from unmask.report.table import count_noun, escape_latex, markdown_grid, to_plain
from unmask.stats import Estimate

SUMMARY_FORMAT, TIMING_FORMAT, VERIFY_FORMAT = "unmask-compare-summary-2", "unmask-compare-timing-1", "unmask-verify-1"
OWN = "own"
"""Label of a policy of the user's own."""
ABOVE, BELOW, RECONSTRUCTED, OWN_MARK, SURE, UNSURE = "↑", "↓", "†", "*", "●", "○"
LEGEND = f"{ABOVE} better than the reference on the same prompts, {BELOW} worse: the 95 % interval leaves out zero."
FRONT_LEGEND = (
    f"front: {UNSURE} no other policy has at least this utility for no more forwards; {SURE} beyond noise: better than "
    "each that needs no more forwards (so is the cheapest, however bad), the paired interval leaves out zero."
)
LABEL_LEGENDS = {
    RECONSTRUCTION: f"{RECONSTRUCTED} reconstruction: parts are ours, or untested against its authors' files.",
    OWN: f"{OWN_MARK} a method of your own.",
}
TIME_LEGEND = "Wall time is to be compared within one run on one machine only; no other number depends on it."
Line = Mapping[str, Any]
"""A line of a summary: values by column name."""


def write_comparison(
    comparison: Comparison,
    summary: CompareSummary,
    out: str | Path,
    picks: Mapping[str, str] | None = None,
    speed: SpeedSummary | None = None,
) -> tuple[Path, ...]:
    """Write the files of a comparison into a folder; `picks` as for `card_table`.

    The same comparison gives the same bytes, except in the files of `speed`.
    """
    place = files.folder(out)
    forwards = _forwards_figure(comparison, summary)
    contents = {
        "compare.csv": answers_csv(comparison.answers).encode(),
        "summary.md": markdown(comparison, summary, picks).encode(),
        "summary.json": (summary_json(comparison, summary) + "\n").encode(),
        "table.tex": latex(comparison, summary).encode(),
        "figure.svg": save_figure(*forwards, "svg"),
        "figure.pdf": save_figure(*forwards, "pdf"),
        "compare.html": compare_page(comparison, summary).encode(),
    }
    if speed is not None:
        timing = json.dumps(timing_document(comparison, speed), indent=2, ensure_ascii=False) + "\n"
        contents["timing.md"] = timing_markdown(comparison, summary, speed).encode()
        contents["timing.json"] = timing.encode()
        contents["figure-time.svg"] = save_figure(*_time_figure(comparison, summary, speed), "svg")
    return tuple(files.write(place / name, content) for name, content in contents.items())


def check_folder(out: str | Path, config: Mapping[str, Any]) -> None:
    """Refuse a folder that holds another comparison; `config` is the plan of this one."""
    path = Path(out) / "summary.json"
    if not path.exists():
        return
    try:
        theirs = dict(json.loads(path.read_text(encoding="utf-8"))["config"])
    except (OSError, ValueError, TypeError, LookupError, RecursionError) as error:
        raise ConfigError(f"{str(path)!r} is there and no summary of `unmask compare`; {SAME}") from error
    check_same_comparison(path, theirs, config)


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
    """Return every answer with its cost as CSV; an empty cell where there is no utility."""
    columns = [name for name in answers if name != "answer"]
    at = columns.index("forwards")
    steps = answers.assign(steps=answers["forwards"] - answers["extra_forwards"])
    return str(steps[[*columns[:at], "steps", *columns[at:], "answer"]].to_csv(index=False, lineterminator="\n"))


def summary_json(comparison: Comparison, summary: CompareSummary, speed: SpeedSummary | None = None) -> str:
    """Return all numbers and their configuration as JSON; null where there is no number.

    `speed` adds wall times under `timing`, which are not the same twice.
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
    return json.dumps(to_plain(document), indent=2, ensure_ascii=False, allow_nan=False)


def timing_document(comparison: Comparison, speed: SpeedSummary) -> dict[str, Any]:
    """Return wall times as plain values: the summary's lines, and every batch as it was measured."""
    batches = []
    for batch in comparison.times.to_dict("records"):
        place = {name: batch.pop(name) for name in ("task", "policy", "batch")}
        batches.append({**place, "time": None if pd.isna(batch["seconds"]) else batch})
    counts = {name: getattr(speed, name) for name in ("measured", "earlier", "elsewhere", "unknown", "machines")}
    about = {"format": TIMING_FORMAT, "note": TIME_LEGEND, "run": comparison.run, "machine": comparison.machine}
    document: dict[str, Any] = to_plain({**about, **_line_entries(speed.lines, SPEEDS), **counts, "batches": batches})
    return document


def _line_entries(lines: pd.DataFrame, measures: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Return lines of tasks and of the mean for JSON: a measure is an object with its mean, interval and count."""
    entries: dict[str, list[dict[str, Any]]] = {"lines": [], "macro": []}
    ends = {f"{measure}_{end}" for measure in measures for end in ("low", "high", "n")}
    for line in lines.to_dict("records"):
        entry = {name: value for name, value in line.items() if name not in ends}
        for name in measures:
            entry[str(name)] = {"mean": line[name], **{end: line[f"{name}_{end}"] for end in ("low", "high", "n")}}
        entries["macro" if line["task"] == MACRO else "lines"].append(entry)
    return entries


# Tables of text

Column = tuple[str, Callable[[Line], str]]
"""Head of a column, and its cell of a line."""


def _measure(head: str, name: str, places: int) -> Column:
    return head, lambda line: format_measure(line, name, places)


def _difference(line: Line) -> str:
    return f"{format_measure(line, 'difference', 3)} {gain_mark(line)}".rstrip()


LINE_COLUMNS: tuple[Column, ...] = (
    ("policy", lambda line: shown_name(line)),
    ("prompts", lambda line: str(line["utility_n"])),
    _measure("utility", "utility", 3),
    ("difference", _difference),
    _measure("forwards", "forwards", 1),
    _measure("x reference", "forwards_ratio", 2),
    _measure("tokens/forward", "answer_tokens_per_forward", 2),
    _measure("positions/forward", "tokens_per_forward", 2),
    ("extra forwards", lambda line: f"{line['extra_forwards']:.1f}"),
    ("planner forwards", lambda line: f"{line['planner_forwards']:.1f}"),
    ("re-masks", lambda line: f"{line['remasks']:.1f}"),
    ("tokens read", lambda line: f"{line['processed_tokens']:.0f}"),
    ("front", lambda line: front_mark(line)),
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
PAGE_HEADS = ("policy", "utility", "difference", "forwards", "x reference", "tokens/forward", "re-masks", "front")
"""Columns of LINE_COLUMNS that a page of usual width holds; files have all."""
_LEFT = ("policy", "task", "candidate", "front", "first batch")
"""Heads of columns of words; numbers stand on the right."""


def _markdown_table(columns: Sequence[Column], lines: Sequence[Line]) -> str:
    heads = [head for head, _ in columns]
    return markdown_grid(heads, [head in _LEFT for head in heads], [[cell(x) for _, cell in columns] for x in lines])


def markdown(comparison: Comparison, summary: CompareSummary, picks: Mapping[str, str] | None = None) -> str:
    """Return everything but the answers as Markdown: the short table, then every task and policy."""
    config = comparison.config
    fingerprint = f", fingerprint {config['model']['fingerprint']}" if "fingerprint" in config["model"] else ""
    parts = [
        f"# {_title(comparison)}\n",
        f"Device {config['device']}{fingerprint}; temperature {config['temperature']}, seed {config['seed']}; steps: "
        "half the horizon unless stated; `summary.json` has the whole configuration.\n",
        card_table(summary, picks),
        *(f"\n- {text}" for text in remarks(summary)),
    ]
    for task in summary.tasks_with_lines:
        table = _markdown_table(LINE_COLUMNS, summary.task_lines(task).to_dict("records"))
        parts += [f"\n## {panel_title(summary, task)}\n", table]
    return "\n".join([*parts, *(f"\n{text}" for text in sign_legends(summary))]) + "\n"


def card_table(summary: CompareSummary, picks: Mapping[str, str] | None = None) -> str:
    """Return the table for a model card: per task the reference's utility and a candidate with its paired interval.

    The candidate is the best on these very prompts, the reference itself if none is better, or the one that `picks`
    name: `CompareSummary.picks` of another split.
    """
    rows: list[Line] = []
    for task in (*(run.task for run in summary.tasks), MACRO):
        lines = {line["policy"]: line for line in summary.task_lines(task).to_dict("records")}
        if summary.reference in lines:
            best = summary.best_policy(task) if picks is None else lines.get(picks.get(task, ""))
            rows.append({"reference": lines[summary.reference], "best": best})
    columns: tuple[Column, ...] = (
        ("task", lambda row: row["reference"]["task"]),
        ("prompts", lambda row: str(row["reference"]["utility_n"])),
        ("reference", lambda row: format_measure(row["reference"], "utility", 3)),
        ("candidate", lambda row: "" if row["best"] is None else row["best"]["policy"]),
        ("its utility", lambda row: "" if row["best"] is None else f"{row['best']['utility']:.3f}"),
        ("difference", lambda row: "" if row["best"] is None else _difference(row["best"])),
    )
    chosen = "here, on the same prompts: its interval flatters" if picks is None else "beforehand, on other prompts"
    table = _markdown_table(columns, rows)
    return f"{table}\n\nMeans with 95 % intervals over prompts. The best candidate was chosen {chosen}."


def timing_markdown(comparison: Comparison, summary: CompareSummary, speed: SpeedSummary) -> str:
    """Return wall times as Markdown."""
    parts = [f"# Wall time: {_title(comparison)}\n", f"{TIME_LEGEND} Machines: {'; '.join(speed.machines)}."]
    parts += [f"\n- {text}" for text in time_remarks(speed)]
    for task in summary.tasks_with_lines:
        table = _markdown_table(TIME_COLUMNS, speed.task_lines(task).to_dict("records"))
        parts += [f"\n## {panel_title(summary, task)}\n", table]
    return "\n".join(parts) + "\n"


def latex(comparison: Comparison, summary: CompareSummary) -> str:
    """Return a table for a paper (package booktabs): every task and policy, the user's own methods in bold."""
    heads = ("method", "utility", "difference", "forwards", r"$\times$ reference", "tokens/forward")
    rows = []
    for task in summary.tasks_with_lines:
        rows.append(rf"\midrule \multicolumn{{{len(heads)}}}{{l}}{{{escape_latex(panel_title(summary, task))}}} \\")
        for line in summary.task_lines(task).to_dict("records"):
            name, is_reference = escape_latex(shown_name(line)), line["policy"] == summary.reference
            cells = [rf"\textbf{{{name}}}" if line["label"] == OWN else name]
            for measure, places, of_reference in (
                ("utility", 3, True),
                ("difference", 3, False),
                ("forwards", 1, True),
                ("forwards_ratio", 2, False),
                ("answer_tokens_per_forward", 2, True),
            ):
                shown = of_reference or not is_reference
                cells.append(escape_latex(format_measure(line, measure, places, "–")) if shown else "")
            rows.append(" & ".join(cells) + r" \\")
    notes = ["Means with 95 % intervals over prompts; differences and ratios to the reference on the same prompts."]
    comments = [f"% {' '.join(text.split())}" for text in (_title(comparison), *notes, *label_legends(summary))]
    top = [rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}", r"\toprule", " & ".join(heads) + r" \\"]
    return "\n".join([*comments, *top, *rows, r"\bottomrule", r"\end{tabular}", ""])


# Figures and page


def _forwards_figure(comparison: Comparison, summary: CompareSummary) -> tuple[Draw, Size]:
    """Return the drawing of utility against forwards per answer, and its size."""
    notes = ["Filled: on the front beyond noise, better than each policy that needs no more forwards."]
    return _figure(comparison, summary, summary.lines, "forwards", "forwards per answer", notes)


def _time_figure(comparison: Comparison, summary: CompareSummary, speed: SpeedSummary) -> tuple[Draw, Size]:
    """Return the drawing of utility against milliseconds per answer, and its size."""
    lines = speed.lines.assign(cost=1000 * speed.lines["seconds"], sure=False)
    notes = [TIME_LEGEND, *time_remarks(speed)]
    return _figure(comparison, summary, lines, "cost", "milliseconds of decoding per answer", notes)


def _figure(
    comparison: Comparison, summary: CompareSummary, costs: pd.DataFrame, column: str, cost: str, notes: Sequence[str]
) -> tuple[Draw, Size]:
    """Return a drawing with a panel per task. `costs` has the cost in `column`, and who is on the front."""
    by_place = {(line["task"], line["policy"]): line for line in costs.to_dict("records")}
    nowhere = {column: nan, "front": False, "sure": False}
    panels, names = [], {}
    for task in summary.tasks_with_lines:
        points = []
        for line in summary.task_lines(task).to_dict("records"):
            policy = line["policy"]
            names[policy] = shown_name(line)
            there = by_place.get((task, policy), nowhere)
            utility = Estimate(line["utility"], line["utility_low"], line["utility_high"])
            marks = {"reference": policy == summary.reference, "own": line["label"] == OWN}
            points.append(CostPoint(names[policy], there[column], utility, there["front"], there["sure"], **marks))
        panels.append((panel_title(summary, task), points))
    legend = "Step line: the Pareto front, members named. Diamond: the reference. Bars: 95 % intervals over prompts."
    foot = [legend, *notes, *label_legends(summary)]
    return trade_off(panels, list(names.values()), f"Utility against {cost}: {_title(comparison)}", cost, foot)


def compare_page(comparison: Comparison, summary: CompareSummary) -> str:
    """Return the page: what is cheapest without a loss, utility against forwards, and tables to sort."""
    tasks = [task for task in summary.tasks_with_lines if task != MACRO]
    if MACRO in summary.tasks_with_lines and len(tasks) > 1:
        tasks.insert(0, MACRO)
    title = f"{comparison.config['model']['name']}: policies compared on the {comparison.split} prompts"
    notes = "".join(f"<li>{html.escape(text)}</li>" for text in (*remarks(summary), *label_legends(summary)))
    drawn = themed_picture(*_forwards_figure(comparison, summary), "Utility against forwards per answer")
    config = html.escape(json.dumps(comparison.config, indent=2, ensure_ascii=False))
    tables = "".join(_page_table(summary, task, at == 0) for at, task in enumerate(tasks))
    body = f"""<main>
<h1>{html.escape(title)}</h1>
<p class="verdict">{html.escape(" ".join(conclusions(summary)))}</p>
<p class="note">Every policy decoded the same prompts. A forward is one pass of the model: what an answer costs.
Utility is what it is worth, from 0 to 1. Bars are 95 % intervals over prompts.</p>
<h2>Utility against forwards</h2>
<figure>{drawn}</figure>
<p class="note">Left is cheap, up is good. {html.escape(FRONT_LEGEND)}</p>
<h2>The numbers</h2>
<p class="note">A click on a head sorts. {html.escape(LEGEND)}</p>
{tables}
<h2>What to know</h2>
<ul class="note">{notes}</ul>
<details><summary>The resolved configuration</summary><pre tabindex="0">{config}</pre></details>
<footer>Made by <code>unmask compare</code>; compare.csv beside this page has every answer.</footer>
</main>"""
    return page(title, body, styles=["report.css"], modules=["dom.js"], start="sortTablesOnClick();")


def _page_table(summary: CompareSummary, task: str, is_open: bool) -> str:
    """Return a task's table, folded unless it is the first."""
    columns = [
        (head, cell, ' class="left"' if head in _LEFT else "") for head, cell in LINE_COLUMNS if head in PAGE_HEADS
    ]
    heads = "".join(
        f'<th scope="col" aria-sort="none"{side}><button type="button">{head}</button></th>'
        for head, _, side in columns
    )
    rows = []
    for line in summary.task_lines(task).to_dict("records"):
        kind = ' class="reference"' if line["policy"] == summary.reference else ""
        rows.append(
            f"<tr{kind}>{''.join(f'<td{side}>{html.escape(cell(line))}</td>' for _, cell, side in columns)}</tr>"
        )
    return (
        f"<details{' open' if is_open else ''}><summary>{html.escape(panel_title(summary, task))}</summary>"
        f'<div class="wide" tabindex="0"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div></details>"
    )


# Words


def _title(comparison: Comparison) -> str:
    return f"{comparison.config['model']['name']} on the {comparison.split} prompts"


def conclusions(summary: CompareSummary) -> list[str]:
    """Say which policy is cheapest without a loss and which is best; nothing where nothing is compared."""
    task = MACRO if MACRO in summary.tasks_with_lines else next(iter(summary.tasks_with_lines), "")
    lines = summary.task_lines(task)
    if len(lines) < 2 or summary.reference not in set(lines["policy"]):
        return []
    reference, cheap, best = (
        summary.line(task, summary.reference),
        summary.cheapest_policy(task),
        summary.best_policy(task),
    )

    def worth(line: Line) -> str:
        gain = f"{format_measure(line, 'difference', 3)} on {line['difference_n']} prompts"
        return f"utility {line['utility']:.3f} ({gain})"

    if cheap is None:
        words = ["No policy saves forwards without losing utility beyond noise."]
    else:
        words = [
            f"Cheapest without a loss beyond noise: {cheap['policy']}, {cheap['forwards']:.1f} forwards per answer "
            f"instead of {reference['forwards']:.1f}, {worth(cheap)}."
        ]
    if best is not None and best["difference_low"] > 0:
        words.append(f"Best: {best['policy']}, {worth(best)}, for {best['forwards']:.1f} forwards.")
    return words


def remarks(summary: CompareSummary) -> list[str]:
    """Say what is missing from the tables, and why."""
    lines = [f"{run.task}: not available ({run.unavailable})" for run in summary.tasks if run.unavailable]
    lines += [
        f"{run.task}: {count_noun(run.skipped, 'prompt')} skipped, longer with the answer than the model's limit"
        for run in summary.tasks
        if run.skipped
    ]
    near = f"no policy's mean utility reaches {NEAR_ZERO:g}"
    lines += [f"{task}: near 0, shown and not averaged ({near})" for task in summary.near_zero]
    lines += [f"{task}: shown and not averaged" for task in summary.without]
    lines += _left_out(summary.left_out)
    of_tasks = summary.lines[summary.lines["task"] != MACRO]
    for policy, made_for in dict(zip(of_tasks["policy"], of_tasks["made_for"], strict=True)).items():
        if made_for:
            lines.append(f"{policy} is made for {made_for}: at other settings it is not what its authors run")
    for line in of_tasks[of_tasks["unscored"] > 0].to_dict("records"):
        lines.append(
            f"{line['task']}: {count_noun(line['unscored'], 'answer')} of {line['policy']} could not be judged"
        )
    return lines


def _left_out(left_out: Sequence[LeftOut]) -> list[str]:
    """Name each reason once, with the policies that share it on the same tasks."""
    tasks: dict[tuple[str, str], list[str]] = {}
    for left in left_out:
        tasks.setdefault((left.policy, left.reason), []).append(left.task)
    policies: dict[tuple[str, str], list[str]] = {}
    for (policy, reason), where in tasks.items():
        policies.setdefault((", ".join(where), reason), []).append(policy)
    return [f"{where}: without {', '.join(names)} ({reason})" for (where, reason), names in policies.items()]


def time_remarks(speed: SpeedSummary) -> list[str]:
    """Say where and when seconds were measured, and what is in them."""
    lines = []
    if speed.earlier:
        where = f", {speed.elsewhere} of them on another machine or device" if speed.elsewhere else ""
        lines.append(
            f"seconds of {count_noun(speed.earlier, 'batch')} are of an earlier run{where}"
            + (f"; those of {count_noun(speed.measured, 'batch')} are of this one" if speed.measured else "")
        )
    if speed.unknown:
        lines.append(f"seconds of {count_noun(speed.unknown, 'batch')} are lost: the answers count, the time does not")
    if speed.lines["cold"].any():
        lines.append("seconds are those of first batches, compiling and recording included (in Python: warm_up=True)")
    return lines


def label_legends(summary: CompareSummary) -> list[str]:
    """Explain the marks behind the policies' names, one for each kind of label that occurs."""
    return [text for label, text in LABEL_LEGENDS.items() if label in set(summary.lines["label"])]


def sign_legends(summary: CompareSummary, speed: SpeedSummary | None = None) -> list[str]:
    """Explain the signs that stand in the tables."""
    averaged = set(summary.task_lines(MACRO)["policy"])
    own = len(summary.tasks_with_lines) > 1 and not set(summary.lines["policy"]) <= averaged
    return [
        LEGEND,
        FRONT_LEGEND,
        "x fwd, x time: how many times the reference's. tokens /fwd, /s: of the answer, without what fills it up.",
        *label_legends(summary),
        *(["~ over the tasks that it decoded, not those of the mean."] if own else []),
        *([TIME_LEGEND] if speed is not None else []),
    ]


def panel_title(summary: CompareSummary, task: str) -> str:
    """Name a task with its size, or the mean with the number of its tasks."""
    if task == MACRO:
        return f"Mean over {count_noun(len(summary.macro_tasks), 'task')}"
    run = next(run for run in summary.tasks if run.task == task)
    return f"{task} (horizon {run.horizon}, {count_noun(run.steps, 'step')})"


def shown_name(line: Line) -> str:
    """Return a policy's name with the mark of its label; a class in a user's file is named without the folder."""
    name = str(line["policy"])
    if line["label"] == OWN:
        return name.rpartition("/")[2] + OWN_MARK
    return name + (RECONSTRUCTED if line["label"] == RECONSTRUCTION else "")


def front_mark(line: Line) -> str:
    """Return the mark of a member of the Pareto front; an empty text for others."""
    return SURE if line["sure"] else UNSURE if line["front"] else ""


def gain_mark(line: Line) -> str:
    """Return an arrow if the interval of the difference to the reference excludes 0, else an empty text."""
    return ABOVE if line["difference_low"] > 0 else BELOW if line["difference_high"] < 0 else ""


def format_measure(line: Line, name: str, places: int, missing: str = "none") -> str:
    """Format a measure with its interval; differences have signs."""
    value, low, high = line[name], line[f"{name}_low"], line[f"{name}_high"]
    if not isfinite(value):
        return missing
    spec = f"+.{places}f" if name == "difference" else f".{places}f"
    return f"{value:{spec}}" + (f" [{low:{spec}}, {high:{spec}}]" if isfinite(low) else "")


# The terminal

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
"""Head, column, digits and factor of each cost, the most wanted first; a wide terminal shows more of them. Heads are
broken where a column of six characters breaks them."""
_COST_WIDTH, _ESSENTIAL = 7, 4


def screen_tables(summary: CompareSummary, speed: SpeedSummary | None = None, width: int = 100) -> list[Table]:
    """Return tables of utilities by task and of costs: one table where both fit into so many characters."""
    tasks = [task for task in summary.tasks_with_lines if task != MACRO]
    columns = [*tasks, *([MACRO] if MACRO in summary.tasks_with_lines and len(tasks) > 1 else [])]
    by_place = {(line["task"], line["policy"]): line for line in summary.lines.to_dict("records")}
    names = {policy: shown_name(line) for (_, policy), line in by_place.items()}
    name_width = min(max([10, *map(len, names.values())]), max(32, width // 3))
    room = max(width, 60) - (name_width + 1) - _COST_WIDTH * len(columns)
    together = room >= _ESSENTIAL * _COST_WIDTH
    tables = [Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim") for _ in range(2 - together)]
    for table in tables:
        table.add_column("policy", overflow="fold", min_width=10, max_width=name_width)
    for task in columns:
        head = "mean" if task == MACRO else task.replace("-", " ")
        tables[0].add_column(head, justify="right", overflow="fold", width=6)
    fitting = (room if together else width - name_width - 1) // _COST_WIDTH
    costs = SCREEN_COSTS[: max(_ESSENTIAL, fitting)]
    if not summary.lines["planner_forwards"].any():
        costs = tuple(cost for cost in costs if cost[1] != "planner_forwards")
    for head, *_ in costs:
        tables[-1].add_column(head, justify="right", overflow="fold", width=_COST_WIDTH - 1)
    for policy, name in names.items():
        worth = []
        for task in columns:
            line = by_place.get((task, policy))
            shown = "" if line is None else "none" if isnan(line["utility"]) else f"{line['utility']:.3f}"
            worth.append("" if line is None else shown + (gain_mark(line) or " "))
        spent = _screen_costs(summary, speed, policy, costs)
        style = "bold" if policy == summary.reference else ""
        for table, cells in zip(tables, [[*worth, *spent]] if together else [worth, spent], strict=True):
            table.add_row(name, *cells, style=style)
    return tables


def _screen_costs(
    summary: CompareSummary, speed: SpeedSummary | None, policy: str, costs: Sequence[tuple[str, str, int, float]]
) -> list[str]:
    """Return costs over the tasks of the mean; for a policy that lacks some of these, over its own, marked `~`."""
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
        own_tasks = column == "forwards" and not in_mean.any() and len(summary.tasks_with_lines) > 1
        mean = factor * values.mean(skipna=False)
        cells.append(("–" if isnan(mean) else f"{mean:.{digits}f}") + ("~" if own_tasks else ""))
    return cells


# Verification


def verify_table(found: Sequence[VerifiedRun]) -> Table:
    """Return the terminal's table of a verification, a line per task."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("task")
    for heading in ("right", "of", "percent", "95 % interval", "published", "forwards"):
        table.add_column(heading, justify="right")
    table.add_column("verdict", overflow="fold")
    for one in found:
        share, known = one.share, bool(one.share.n)
        table.add_row(
            one.run.name,
            str(one.right),
            str(share.n),
            f"{100 * share.value:.1f}" if known else "",
            f"{100 * share.low:.1f} to {100 * share.high:.1f}" if known else "",
            "not known" if one.run.figure is None else f"{one.run.figure:g}",
            str(one.forwards),
            one.agreement.value,
        )
    return table


def verify_remarks(found: Sequence[VerifiedRun]) -> list[str]:
    """Say the verdicts in words, what each run is not, and what differs from the authors' evaluation."""
    lines = []
    for one in found:
        lines += [f"{one.run.name}: {text}" for text in (one.conclusion, *one.labels)]
        if one.run.source:
            lines.append(f"{one.run.name}: the figure is from {one.run.source}")
    differs = dict.fromkeys(text for one in found for text in one.run.differs)
    return [*lines, *(f"differs from the authors: {text}" for text in differs)]


def verify_json(model: str, target: Target, found: Sequence[VerifiedRun]) -> str:
    """Return everything but answers and times as JSON; the same run gives the same bytes."""
    tasks = []
    for one in found:
        run = one.run
        settings = {
            "new_tokens": run.new_tokens,
            "steps": run.steps,
            "policy": describe_policy(run.policy),
            "temperature": run.sampling.temperature,
            "top_p": run.sampling.top_p,
            "logits_eos_inf": run.sampling.logits_eos_inf,
            "confidence_eos_eot_inf": run.sampling.confidence_eos_eot_inf,
            "shots": one.prepared.shots,
            "authors_shots": run.shots,
            "prompt": run.prompt,
        }
        tasks.append(
            {
                "name": run.name,
                "settings": settings,
                "published": {"percent": run.figure, "source": run.source or None},
                "problems": one.prepared.problems,
                "chosen": len(one.prepared.chosen),
                "judged": one.share.n,
                "right": one.right,
                "percent": 100 * one.share.value,
                "low": 100 * one.share.low,
                "high": 100 * one.share.high,
                "forwards": one.forwards,
                "verdict": one.agreement.value,
                "says": one.conclusion,
                "labels": one.labels,
                "differs": run.differs,
                "too_long": one.too_long,
                "unjudged": one.unjudged,
                "config": one.config,
            }
        )
    body = {
        "format": VERIFY_FORMAT,
        "model": model,
        "settings_of": target.published.hub,
        "trial": target.trial,
        "tasks": tasks,
        "data": {path: sha256 for one in found for path, sha256 in one.prepared.files.items()},
    }
    return json.dumps(to_plain(body), indent=2, ensure_ascii=False, allow_nan=False)
