"""Read-only copies to send: one self-contained page of some runs, or of a study's states. Nothing on it can decode."""

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from unmask.report.pages import asset, page
from unmask.viewer.studies import StudyFolder

Plain = Mapping[str, Any]
MOST_PROMPTS = 40
"""Prompts of a study's page: those first where a candidate changes most."""
_GRIDS = """"use strict";
JSON.parse(document.getElementById("runs").textContent).forEach(function (record, at) {
  unmaskGrid(document.getElementById("run-" + at), record, {});
});"""


def exported_runs(records: Sequence[Plain]) -> str:
    """Runs side by side, each with its grid: the first is the one that the others leave."""
    first = records[0]
    title = f"{first['model']}: {'one run' if len(records) == 1 else f'{len(records)} futures of one prompt'}"
    futures = "\n".join(_run(at, record, first) for at, record in enumerate(records))
    body = f"""<main class="export">
<h1>{html.escape(title)}</h1>
<h2>Prompt</h2>
<pre class="prompt">{html.escape(first["prompt"])}</pre>
<div class="futures">{futures}</div>
<footer>A read-only copy made by unmask view. This page needs no network and decodes nothing.</footer>
</main>"""
    styles = [asset("grid.css"), asset("view.css", "unmask.viewer")]
    return page(title, body, styles=styles, scripts=[asset("grid.js"), _GRIDS], data={"runs": list(records)})


def exported_study(study: StudyFolder) -> str:
    """The states of a study's prompts with every candidate's answers and scores, as far as they are finished."""
    summary = study.summary()
    title = f"States of the study {summary['name']}"
    cells = summary["cells"]
    rows = [
        (row["gain"] or 0.0, cell, row)
        for cell in cells
        for row in study.prompts(cell["model"], cell["task"], cell["split"])
    ]
    chosen = sorted(rows, key=lambda row: -row[0])[:MOST_PROMPTS]
    shown = "\n".join(_prompt(study, cell, row) for _, cell, row in chosen)
    missing = summary["planned"] - summary["finished"]
    warning = f'<p class="warn">{missing} of {summary["planned"]} shards are not finished yet.</p>' if missing else ""
    body = f"""<main class="export">
<h1>{html.escape(title)}</h1>
<p>{len(rows)} prompts; {len(chosen)} of them are here, those first where one candidate's action at one state changes
the score most. A <em>state</em> is a half-filled answer of the reference's run. Every <em>candidate</em> changes one
axis of one decision there, and the reference goes on; the score is the mean of all its rollouts.</p>
{warning}
{shown}
<footer>A read-only copy made by unmask view. This page needs no network and decodes nothing.</footer>
</main>"""
    return page(title, body, styles=[asset("view.css", "unmask.viewer")])


def _run(at: int, record: Plain, first: Plain) -> str:
    change = _change(record["score"], first["score"]) if at else ""
    why = f'<p class="note">{html.escape(record["explanation"])}</p>' if record["explanation"] else ""
    return f"""<section class="future">
<h2>{"The run" if at == 0 else "A branch"}: {html.escape(record["policy"])}</h2>
<p class="score">{html.escape(_score(record["score"], record["explanation"] is not None))}{change}</p>
{why}
<pre class="answer">{html.escape(record["text"])}</pre>
<div id="run-{at}"></div>
</section>"""


def _prompt(study: StudyFolder, cell: Plain, row: Plain) -> str:
    states = study.states(cell["model"], cell["task"], cell["split"], row["prompt"])
    where = f"{cell['model']}, {cell['task']}, {cell['split']}: {row['prompt']}"
    text = f'<pre class="prompt">{html.escape(row["text"])}</pre>' if row["text"] is not None else ""
    gain = "" if row["gain"] is None else f"best change {row['gain']:+.3g}, worst {row['loss']:+.3g}"
    return f"""<details>
<summary>{html.escape(where)} <span class="note">{gain}</span></summary>
{text}
{"".join(map(_state, states))}
</details>"""


def _state(state: Plain) -> str:
    canvas = "" if state["canvas"] is None else f'<pre class="canvas">{html.escape(state["canvas"])}</pre>'
    rows = "".join(_rows(axis, named) for axis, named in state["axes"].items())
    head = '<tr><th class="left">axis</th><th class="left">candidate</th><th>score</th><th>change</th>'
    return f"""<h3>After {state["step"]} of {state["taken"]} steps, {state["masked"]} positions masked</h3>
{canvas}
<div class="wide" tabindex="0" role="group" aria-label="Candidates at this state"><table><thead>{head}
<th class="left">answers</th></tr></thead><tbody>{rows}</tbody></table></div>"""


def _rows(axis: str, named: Iterable[Plain]) -> str:
    named = list(named)
    own = next((row["mean"] for row in named if row["is_reference"]), None)
    return "".join(_row(axis, row, own) for row in named)


def _row(axis: str, row: Plain, own: float | None) -> str:
    score = "-" if row["mean"] is None else f"{row['mean']:.3g}"
    change = "" if row["is_reference"] else _change(row["mean"], own)
    name = f"{row['candidate']}{' (reference)' if row['is_reference'] else ''}"
    answers = "".join(
        f"<li>{html.escape(one['text'] or '')}<br><span class='note'>{_worth(one['utility'])}, {one['times']} of "
        f"{row['rollouts']}: {html.escape(one['reason'] or '')}</span></li>"
        for one in row["answers"]
    )
    cells = f'<td class="left">{html.escape(axis)}</td><td class="left">{html.escape(name)}</td>'
    return f'<tr>{cells}<td>{score}</td><td>{change}</td><td class="left answers"><ul>{answers}</ul></td></tr>'


def _score(score: float | None, judged: bool) -> str:
    if score is not None:
        return f"score {score:.4g}"
    return "score unavailable" if judged else "no score: nobody said what the right answer is"


def _worth(utility: float | None) -> str:
    return "not judged" if utility is None else f"{utility:.3g}"


def _change(score: float | None, own: float | None) -> str:
    if score is None or own is None:
        return ""
    kind = "same" if score == own else "better" if score > own else "worse"
    return f' <span class="{kind}">{score - own:+.3g}</span>'
