"""Self-contained HTML pages, to keep, send and open without a network: their frame, pages of runs and of states."""

import html
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files as resources
from typing import Any

import pandas as pd

from unmask.lab.analysis.states import StateEvidence
from unmask.report.run_data import RunData

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; font-src data:"
"""Content security policy: nothing is fetched from anywhere, whatever a prompt or an answer on the page says."""
RUN_MODULES = ("dom.js", "grid.js")
DRAW_RUNS = 'for (const element of findAll(".run-grid")) drawRun(element, readData(element.dataset.run));'
STATES_FORMAT = 1
"""Format of the values that `states.js` reads."""


def page(
    title: str,
    body: str,
    *,
    styles: Sequence[str] = (),
    modules: Sequence[str] = (),
    start: str = "",
    data: Mapping[str, Any] | None = None,
) -> str:
    """Return a page around `body`, which is escaped HTML.

    `styles` and `modules` name files of the package, a module after those that it imports. `start` is the code that
    runs last, and may use what the modules export; they read the values of `data` by their ids.
    """
    islands = "\n".join(embed_json(name, value) for name, value in (data or {}).items())
    style = "\n".join(map(read_asset, ("base.css", *styles)))
    # A closing tag inside a script would end the element.
    script = f"{bundle_modules(tuple(modules))}\n{start}".replace("</script", "<\\/script")
    inside = f'<script type="module">\n{script}</script>' if modules else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>
{style}
</style>
</head>
<body>
{body}
{islands}
{inside}
</body>
</html>
"""


def embed_json(name: str, value: Any) -> str:
    """Return a JSON value as a script element; no text inside it can end the element or begin another."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    safe = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return f'<script type="application/json" id="{html.escape(name)}">{safe}</script>'


@cache
def bundle_modules(modules: Sequence[str]) -> str:
    """Join ES modules into one script, because a page opened from a disk cannot import any."""
    parts = []
    for name in modules:
        text = read_asset(name)
        exports = ", ".join(re.findall(r"^export (?:async )?(?:function|const) (\w+)", text, re.MULTILINE))
        body = re.sub(r"^import .*?;$|^export ", "", text, flags=re.MULTILINE)
        parts.append(f"const {{ {exports} }} = (() => {{\n{body}\nreturn {{ {exports} }};\n}})();")
    return "\n".join(parts)


@cache
def read_asset(name: str, package: str = "unmask.report") -> str:
    """Return a style or script file that travels with the package."""
    return resources(package).joinpath("static", name).read_text(encoding="utf-8")


# Runs


def run_page(run: RunData) -> str:
    """Return a page around one run."""
    return runs_page([run])


def runs_page(runs: Sequence[RunData], note: str = "") -> str:
    """Return a page with several runs, the rows of one decode, one below the other."""
    first, several = runs[0], len(runs) > 1
    title = f"{len(runs)} runs" if several else f"{first['model'] or 'a model'} decoded by {first['policy']}"
    parts = [
        f"<section>\n{f'<h2>Row {row}</h2>' if several else ''}\n{_run_facts(run)}\n"
        f'<div class="run-grid" data-run="run-{row}"></div>\n</section>'
        for row, run in enumerate(runs)
    ]
    more = f"<p>{html.escape(note)}</p>" if note else ""
    body = f"""<main>
<h1>{html.escape(title)}</h1>
{"".join(parts)}
{more}
<footer>Made by unmask. This page needs no network.</footer>
</main>"""
    return page(title, body, styles=["grid.css"], modules=RUN_MODULES, start=DRAW_RUNS, data=_collect_run_data(runs))


def futures_page(runs: Sequence[RunData]) -> str:
    """Return a read-only page with runs side by side: the first is the one that the others branched from."""
    first = runs[0]
    title = f"{first['model']}: {'one run' if len(runs) == 1 else f'{len(runs)} futures of one prompt'}"
    parts = []
    for at, run in enumerate(runs):
        known = at and run["score"] is not None and first["score"] is not None
        change = f" ({run['score'] - first['score']:+.3g})" if known else ""
        scored = "no score" if run["score"] is None else f"score {run['score']:.4g}{change}"
        why = f'<p class="note">{html.escape(run["explanation"])}</p>' if run["explanation"] else ""
        parts.append(
            f'<section class="future">\n<h2>{"A branch" if at else "The run"}: {html.escape(run["policy"])}</h2>\n'
            f'<p class="score">{scored}</p>\n{why}\n<pre class="answer">{html.escape(run["text"])}</pre>\n'
            f'<div class="run-grid" data-run="run-{at}"></div>\n</section>'
        )
    body = f"""<main>
<h1>{html.escape(title)}</h1>
<h2>Prompt</h2>
<pre class="prompt">{html.escape(first["prompt"])}</pre>
<div class="futures">{"".join(parts)}</div>
<footer>A read-only copy made by unmask view. This page needs no network and decodes nothing.</footer>
</main>"""
    return page(title, body, styles=["grid.css"], modules=RUN_MODULES, start=DRAW_RUNS, data=_collect_run_data(runs))


def _collect_run_data(runs: Sequence[RunData]) -> dict[str, RunData]:
    return {f"run-{row}": run for row, run in enumerate(runs)}


def _run_facts(run: RunData) -> str:
    """Return prompt, answer and score as a list above the grid."""
    facts = [("Prompt", run["prompt"]), ("Answer", run["text"])]
    if run["score"] is not None:
        facts.append(("Score", f"{run['score']:.4g}"))
    if run["explanation"]:
        facts.append(("Explanation", run["explanation"]))
    lines = "".join(f"<dt>{name}</dt><dd>{html.escape(text)}</dd>" for name, text in facts)
    return f'<dl class="facts">{lines}</dl>'


# States


def states_page(evidence: StateEvidence) -> str:
    """Return the page of a study's states: where a candidate ended better or worse than the reference."""
    title = f"States of the study {evidence.study}"
    warnings = list(evidence.missing)
    if evidence.unspelled:
        names = ", ".join(evidence.unspelled)
        warnings.append(f"the tokenizer of {names} is not on this machine, so tokens are shown as numbers")
    warned = "".join(f'<p class="warn">{html.escape(text[0].upper() + text[1:])}.</p>' for text in warnings)
    one = evidence.rollouts == 1
    rollouts = "of one rollout" if one else f"the mean of up to {evidence.rollouts} rollouts with shared random numbers"
    body = f"""<main>
<h1>{html.escape(title)}</h1>
<p>A <b>state</b> is a canvas half-way through a run of the reference. From each, every candidate action was tried for
one step, and the reference went on from there. Below are the states where one of them ended better than the reference
itself, and worse: reversals, the evidence for the numbers of the report.</p>
{warned}
<div class="lists">
{_list_of_states("Largest gains", evidence.gains, "No candidate was better than the reference at any state.")}
{_list_of_states("Largest losses", evidence.losses, "No candidate was worse than the reference at any state.")}
</div>
<p class="note">Score of the candidate's answer less that of the reference's from the same state, {rollouts}.
These are the extremes of {evidence.compared:,} states, and extremes are partly luck: the report estimates opportunity
so that luck cancels out.</p>
<section id="state" aria-label="The chosen state" tabindex="-1"></section>
<footer>Made by unmask. This page needs no network.</footer>
</main>"""
    start, modules = 'drawStates(byId("state"), readData("states"));', ("dom.js", "states.js")
    styles, data = ["grid.css", "states.css"], {"states": states_data(evidence)}
    return page(title, body, styles=styles, modules=modules, start=start, data=data)


def states_data(evidence: StateEvidence) -> dict[str, Any]:
    """Return the values that `states.js` draws as plain JSON types."""
    values = {"unspelled": list(evidence.unspelled), "states": list(evidence.states)}
    return {"format": STATES_FORMAT, "study": evidence.study, **values}


def _list_of_states(title: str, states: pd.DataFrame, nothing: str) -> str:
    if states.empty:
        return f"<section><h2>{title}</h2><p>{nothing}</p></section>"
    heads = "".join(f'<th class="left" scope="col">{name}</th>' for name in ("state", "axis", "candidate"))
    rows = []
    for one in states.itertuples():
        sign = "better" if one.difference > 0 else "worse"
        # Prompts of the package's own tasks are named after their task.
        task = "" if one.prompt.startswith(one.task) else f"{one.task}, "
        where, key, axis = (html.escape(x) for x in (f"{task}{one.prompt}, state {one.state}", one.key, one.axis))
        rows.append(
            f'<tr><td class="{sign}">{one.difference:+.3f}</td>'
            f'<td class="left"><button type="button" class="plain" data-state="{key}" title="{key}">{where}</button>'
            f'</td><td class="left axis-{axis}">{axis}</td><td class="left">{html.escape(one.candidate)}</td></tr>'
        )
    return (
        f'<section><h2>{title}</h2><div class="wide"><table class="ranked"><thead><tr><th scope="col">change</th>'
        f"{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div></section>"
    )
