"""A comparison as one page: what is cheapest without a loss, utility against forwards, and the numbers to sort."""

import html
import json
from collections.abc import Sequence
from math import isfinite
from typing import Any

from unmask.lab.compare import Evaluation
from unmask.lab.compare_summary import MACRO, CompareSummary, PolicyLine
from unmask.look.page import asset, page
from unmask.report.compare_screen import FRONT_LEGEND, LABEL_LEGEND, legends, panel_title, remarks, shown_name, verdict
from unmask.report.plain import plain
from unmask.stats import Estimate

HEADS = (
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


def compare_page(evaluation: Evaluation, summary: CompareSummary, script: str) -> str:
    """The page; `script` is plotly's. No wall time is on it: the same comparison is the same page."""
    tasks = _tasks(summary)
    title = f"{evaluation.config['model']['name']}: policies compared on the {evaluation.split} prompts"
    return page(
        title,
        _body(title, evaluation, summary, tasks),
        styles=[asset("compare_page.css", "unmask.report")],
        scripts=[script, asset("compare_page.js", "unmask.report")],
        data={"panels": plain([_panel(summary, task) for task in tasks])},
    )


def plotly_script() -> str | None:
    """The script that draws the figure; None where the package is not installed."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        return None
    return str(get_plotlyjs())


def _tasks(summary: CompareSummary) -> list[str]:
    """The mean over tasks first, where there are several."""
    tasks = [task for task in summary.shown if task != MACRO]
    return [*([MACRO] if summary.macro and len(tasks) > 1 else []), *tasks]


def _body(title: str, evaluation: Evaluation, summary: CompareSummary, tasks: Sequence[str]) -> str:
    choices = "".join(
        f'<option value="{at}">{html.escape(panel_title(summary, task))}</option>' for at, task in enumerate(tasks)
    )
    notes = "".join(f"<li>{html.escape(text)}</li>" for text in remarks(summary))
    signs = "".join(f"<li>{html.escape(text)}</li>" for text in legends(summary) if text == LABEL_LEGEND)
    config = html.escape(json.dumps(evaluation.config, indent=2, ensure_ascii=False))
    tables = "".join(_table(summary, task, at == 0) for at, task in enumerate(tasks))
    return f"""<main>
<h1>{html.escape(title)}</h1>
<p class="verdict">{html.escape(" ".join(verdict(summary)))}</p>
<p class="note">Every policy decoded the same prompts. A forward is one pass of the model: what an answer costs.
Utility is what it is worth, from 0 to 1. Bars are 95 % intervals over prompts.</p>
<h2>Utility against forwards</h2>
<p><label>Task <select id="task">{choices}</select></label></p>
<div id="figure" class="figure" role="img"
aria-label="Utility against forwards per answer; the tables below have the numbers"></div>
<p class="note">Left is cheap, up is good. {html.escape(FRONT_LEGEND)}</p>
<h2>The numbers</h2>
<p class="note">A click on a head sorts.</p>
{tables}
<h2>What to know</h2>
<ul class="note">{notes}{signs}</ul>
<details><summary>The resolved configuration</summary><pre tabindex="0">{config}</pre></details>
<footer>Made by <code>unmask compare</code>; compare.csv beside this page has every answer.</footer>
</main>"""


def _table(summary: CompareSummary, task: str, first: bool) -> str:
    """A task's table, folded away unless it is the first."""
    heads = "".join(
        f'<th scope="col" class="{"left" if key == "policy" else "right"}">'
        f'<button type="button">{html.escape(head)}</button></th>'
        for key, head in HEADS
    )
    rows = "".join(_row(line, line.policy == summary.reference) for line in summary.of(task))
    return (
        f"<details{' open' if first else ''}><summary>{html.escape(panel_title(summary, task))}</summary>"
        f'<div class="wide" tabindex="0"><table class="sortable"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody>'
        "</table></div></details>"
    )


def _row(line: PolicyLine, reference: bool) -> str:
    cells = []
    for key, _ in HEADS:
        value, shown = _cell(line, key)
        left = ' class="left"' if key == "policy" else ""
        cells.append(f'<td{left} data-value="{html.escape(str(value))}">{html.escape(shown)}</td>')
    kind = ' class="reference"' if reference else ""
    return f"<tr{kind}>{''.join(cells)}</tr>"


def _cell(line: PolicyLine, key: str) -> tuple[Any, str]:
    """What a column sorts by, and what it shows."""
    if key == "policy":
        return line.policy, shown_name(line)
    if key == "front":
        return (2 if line.sure else 1 if line.front else 0), ("● sure" if line.sure else "○" if line.front else "")
    value = getattr(line, key)
    if isinstance(value, Estimate):
        places = 3 if key in ("utility", "difference") else 2
        sign = "+" if key == "difference" else ""
        if not isfinite(value.value):
            return "", "–"
        ends = f" [{value.low:{sign}.{places}f}, {value.high:{sign}.{places}f}]" if isfinite(value.low) else ""
        return value.value, f"{value.value:{sign}.{places}f}{ends}"
    return value, f"{value:.1f}"


def _panel(summary: CompareSummary, task: str) -> dict[str, Any]:
    """What the figure of a task shows; names and numbers only."""
    points = [
        {
            "name": shown_name(line),
            "reference": line.policy == summary.reference,
            "front": line.front,
            "sure": line.sure,
            "utility": _ends(line.utility),
            "forwards": _ends(line.forwards),
            "difference": _ends(line.difference),
            "n": line.utility.n,
        }
        for line in summary.of(task)
        if isfinite(line.utility.value) and isfinite(line.forwards.value)
    ]
    return {"title": panel_title(summary, task), "points": points}


def _ends(value: Estimate) -> list[float]:
    return [value.value, value.low, value.high]
