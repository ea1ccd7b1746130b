"""A comparison as one page: what is cheapest without a loss, utility against forwards, and tables to sort."""

import html
import json
from typing import Any

from unmask.lab.compare import CompareSummary, Comparison
from unmask.lab.compare.summary import MACRO, MEASURES
from unmask.report.compare_words import (
    FRONT_LEGEND,
    SURE,
    UNSURE,
    Line,
    conclusions,
    format_measure,
    label_legends,
    panel_title,
    remarks,
    shown_name,
)
from unmask.report.pages import page
from unmask.report.themed import picture

PAGE_COLUMNS: tuple[tuple[str, str], ...] = (
    ("policy", "policy"),
    ("utility", "utility"),
    ("difference", "difference to the reference"),
    ("forwards", "forwards per answer"),
    ("forwards_ratio", "× reference"),
    ("answer_tokens_per_forward", "answer tokens per forward"),
    ("extra_forwards", "extra forwards"),
    ("remasks", "re-masks"),
    ("front", "front"),
)


def compare_page(comparison: Comparison, summary: CompareSummary, figure: bytes) -> str:
    """Make the page around an SVG figure. No wall time is on it: the same comparison is the same page."""
    tasks = [task for task in summary.line_tasks if task != MACRO]
    if MACRO in summary.line_tasks and len(tasks) > 1:
        tasks.insert(0, MACRO)
    title = f"{comparison.config['model']['name']}: policies compared on the {comparison.split} prompts"
    drawn = picture(figure.decode("utf-8"), "Utility against forwards per answer; the tables below have the numbers")
    notes = "".join(f"<li>{html.escape(text)}</li>" for text in (*remarks(summary), *label_legends(summary)))
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
<p class="note">A click on a head sorts.</p>
{tables}
<h2>What to know</h2>
<ul class="note">{notes}</ul>
<details><summary>The resolved configuration</summary><pre tabindex="0">{config}</pre></details>
<footer>Made by <code>unmask compare</code>; compare.csv beside this page has every answer.</footer>
</main>"""
    return page(
        title,
        body,
        styles=["compare.css"],
        modules=["dom.js"],
        start="sortTablesOnClick();",
    )


def _page_table(summary: CompareSummary, task: str, first: bool) -> str:
    """A task's table, folded away unless it is the first."""
    heads = "".join(
        f'<th scope="col" aria-sort="none" class="{"left" if key == "policy" else "right"}">'
        f'<button type="button">{html.escape(head)}</button></th>'
        for key, head in PAGE_COLUMNS
    )
    rows = []
    for line in summary.of(task).to_dict("records"):
        kind = ' class="reference"' if line["policy"] == summary.reference else ""
        rows.append(f"<tr{kind}>{''.join(_page_cell(line, key) for key, _ in PAGE_COLUMNS)}</tr>")
    return (
        f"<details{' open' if first else ''}><summary>{html.escape(panel_title(summary, task))}</summary>"
        f'<div class="wide" tabindex="0"><table class="sortable"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div></details>"
    )


def _page_cell(line: Line, key: str) -> str:
    """Return one cell."""
    value: Any = line[key]
    if key == "policy":
        text = shown_name(line)
    elif key == "front":
        value = 2 if line["sure"] else 1 if line["front"] else 0
        text = ("", UNSURE, f"{SURE} sure")[value]
    elif key in MEASURES:
        text = format_measure(line, key, 3 if key in ("utility", "difference") else 2, "–")
    else:
        text = f"{value:.1f}"
    left = ' class="left"' if key == "policy" else ""
    return f"<td{left}>{html.escape(text)}</td>"
