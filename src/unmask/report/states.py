"""The page of states: where a candidate was better or worse than the reference, and what each of them wrote."""

import html
from typing import Any

import pandas as pd

from unmask.lab.analysis.states import StateEvidence
from unmask.look.page import asset, page

FORMAT = 1
"""Format of the values that the page's script reads."""


def states_page(evidence: StateEvidence) -> str:
    """Return one self-contained page; the lists are there without a script, too."""
    title = f"States of the study {evidence.study}"
    body = f"""<main>
<h1>{html.escape(title)}</h1>
<p>A <b>state</b> is a canvas half-way through a run of the reference. From each, every candidate action was tried for
one step, and the reference went on from there. Below are the states where one of them ended better than the reference
itself, and worse: reversals, the evidence for the numbers of the report.</p>
{_warnings(evidence)}
<div class="lists">
{_list("Largest gains", evidence.gains, "No candidate was better than the reference at any state.")}
{_list("Largest losses", evidence.losses, "No candidate was worse than the reference at any state.")}
</div>
<p class="note">Score of the candidate's answer less that of the reference's from the same state, {_rollouts(evidence)}.
These are the extremes of {evidence.compared:,} states, and extremes are partly luck: the report estimates opportunity
so that luck cancels out.</p>
<section id="state" aria-label="The chosen state" tabindex="-1"></section>
<footer>Made by unmask. This page needs no network.</footer>
</main>"""
    begin = "unmaskStates(document.getElementById('state'), JSON.parse(document.getElementById('states').textContent));"
    styles, scripts = [asset("grid.css"), asset("states.css")], [asset("states.js"), begin]
    return page(title, body, styles=styles, scripts=scripts, data={"states": states_data(evidence)})


def states_data(evidence: StateEvidence) -> dict[str, Any]:
    """Return what the page's script draws, of JSON's types only (format 1)."""
    unspelled = list(evidence.unspelled)
    return {"format": FORMAT, "study": evidence.study, "unspelled": unspelled, "states": list(evidence.states)}


def _rollouts(evidence: StateEvidence) -> str:
    one = evidence.rollouts == 1
    return "of one rollout" if one else f"the mean of up to {evidence.rollouts} rollouts with shared random numbers"


def _warnings(evidence: StateEvidence) -> str:
    lines = [*evidence.missing]
    if evidence.unspelled:
        names = ", ".join(evidence.unspelled)
        lines.append(f"the tokenizer of {names} is not on this machine, so tokens are shown as numbers")
    return "".join(f'<p class="warn">{html.escape(line[0].upper() + line[1:])}.</p>' for line in lines)


def _list(title: str, states: pd.DataFrame, nothing: str) -> str:
    if states.empty:
        return f"<section><h2>{title}</h2><p>{nothing}</p></section>"
    heads = "".join(f'<th{align} scope="col">{head}</th>' for head, align in _HEADS)
    rows = "\n".join(_row(one) for one in states.itertuples())
    return (
        f'<section><h2>{title}</h2><div class="wide"><table class="ranked"><thead><tr>{heads}</tr></thead>'
        f"<tbody>\n{rows}\n</tbody></table></div></section>"
    )


_HEADS = (("change", ""), ("state", ' class="left"'), ("axis", ' class="left"'), ("candidate", ' class="left"'))


def _row(one: Any) -> str:
    sign = "better" if one.difference > 0 else "worse"
    # Prompts of the suite are named after their task.
    task = "" if one.prompt.startswith(one.task) else f"{one.task}, "
    where = f"{task}{one.prompt}, state {one.state}"
    key = html.escape(one.key)
    return (
        f'<tr><td class="{sign}">{one.difference:+.3f}</td>'
        f'<td class="left"><button type="button" class="plain" data-state="{key}" title="{key}">{html.escape(where)}'
        f'</button></td><td class="left axis-{html.escape(one.axis)}">{html.escape(one.axis)}</td>'
        f'<td class="left">{html.escape(one.candidate)}</td></tr>'
    )
