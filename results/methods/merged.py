"""Several comparisons of one model on the same prompts as one: python merged.py NAME OUT FOLDER...

Writes OUT/NAME.md and NAME.json, and a figure. Rows of a policy that several folders have are taken from the first.
"""

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from unmask.lab.compare import AnswerRow, Evaluation, TaskRun
from unmask.lab.compare_failed import LeftOut
from unmask.lab.compare_summary import MACRO, CompareSummary, summarise
from unmask.report import compare as report
from unmask.stats import macro_intervals

MERGED = ("policies", "methods", "matched", "matched_n", "tasks", "steps", "batch")


def read_rows(folder: Path) -> list[AnswerRow]:
    """The answers of a folder, as they were judged there."""
    with (folder / "compare.csv").open(encoding="utf-8", newline="") as file:
        return [_row(line) for line in csv.DictReader(file)]


def _row(line: dict[str, str]) -> AnswerRow:
    numbers = {name: int(line[name]) for name in AnswerRow._fields[5:-1]}
    utility = float(line["utility"] or "nan")
    return AnswerRow(
        line["task"], line["policy"], line["prompt"], utility, line["reason"], **numbers, answer=line["answer"]
    )


def merge(folders: list[Path]) -> Evaluation:
    """One evaluation; its configuration names what all have alike, and every policy."""
    documents = [json.loads((folder / "summary.json").read_text(encoding="utf-8")) for folder in folders]
    config: dict[str, Any] = dict(documents[0]["config"])
    for document in documents[1:]:
        for key in MERGED:
            config[key] = _both(document["config"].get(key, {}), config.get(key, {}))
    rows: dict[tuple[str, str, str], AnswerRow] = {}
    for folder in folders:
        for row in read_rows(folder):
            rows.setdefault((row.task, row.policy, row.prompt), row)
    tasks = {run["task"]: TaskRun(**run) for document in documents for run in document["tasks"]}
    policies = tuple(dict.fromkeys(row.policy for row in rows.values()))
    ordered = sorted(rows.values(), key=lambda row: ([*tasks].index(row.task), policies.index(row.policy)))
    left_out = tuple(LeftOut(**lost) for document in documents for lost in document["left_out"])
    return Evaluation(documents[0]["split"], policies, tuple(tasks.values()), tuple(ordered), left_out, config)


def _both(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Keys of both, those of values as well where both are tables."""
    joined = {**one, **other}
    for key in set(one) & set(other):
        if isinstance(one[key], dict) and isinstance(other[key], dict):
            joined[key] = _both(one[key], other[key])
    return joined


def against_controls(evaluation: Evaluation, summary: CompareSummary) -> str:
    """Every search less its control, which costs no more: paired over prompts, tasks counting the same."""
    utility = {(row.task, row.policy, row.prompt): row.utility for row in evaluation.rows}
    spent = {(line.task, line.policy): line.forwards.value for line in summary.macro}
    lines = ["| search | less best of n | forwards | of best of n |", "|---|---|---|---|"]
    for control, about in evaluation.config.get("matched", {}).items():
        columns = []
        for task in summary.macro_tasks:
            prompts = dict.fromkeys(row.prompt for row in evaluation.rows if row.task == task)
            pairs = [(utility.get((task, about["of"], p)), utility.get((task, control, p))) for p in prompts]
            columns.append(np.array([[a - b] for a, b in pairs if a is not None and b is not None]))
        if all(len(column) for column in columns) and columns:
            (gain,) = macro_intervals(columns, seed=evaluation.config["seed"], resamples=2000)
            costs = [spent[MACRO, arm] for arm in (about["of"], control)]
            shown = f"{gain.value:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"
            lines.append(f"| {about['of']} | {shown} | {costs[0]:.1f} | {costs[1]:.1f} |")
    return "\n".join(lines) + "\n"


def main(name: str, out: str, *folders: str) -> None:
    evaluation = merge([Path(folder) for folder in folders])
    summary = summarise(evaluation)
    place = Path(out)
    text = f"{report.markdown(evaluation, summary)}\n## Searches against best of n\n\n"
    (place / f"{name}.md").write_text(text + against_controls(evaluation, summary), encoding="utf-8")
    (place / f"{name}.json").write_text(report.summary_json(evaluation, summary) + "\n", encoding="utf-8")
    (place / f"figure-{name}.svg").write_bytes(report.forwards_figure(evaluation, summary))


if __name__ == "__main__":
    main(*sys.argv[1:])
