"""The demonstration on one self-contained page: verdicts and pictures first, then runs, methods and the study."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files as resources
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from unmask.lab.analysis import Findings
from unmask.lab.analysis.states import StateEvidence
from unmask.lab.demo import FAMILIES, DemoComparison, DemoRun
from unmask.report.demo.figure import trade_off_svg, trade_off_words
from unmask.report.demo.opportunity import opportunity_svg, opportunity_words
from unmask.report.demo.order import order_svg, order_words
from unmask.report.demo.summary import DemoSummary, summarise
from unmask.report.demo.verdicts import DemoVerdict, verdicts
from unmask.report.figures import FEW
from unmask.report.pages import states_data
from unmask.report.study import Opening, Report, model_name
from unmask.report.study import page as study_page
from unmask.report.table import count_noun
from unmask.report.themed import picture

STATES = 2
"""With the largest gains, and as many with the largest losses."""
TITLE = "Does adapting pay? The demonstration of unmask"
GLOSSARY = {
    "canvas": "the answer as a row of masks to fill",
    "forward": "one run of the network over the canvas",
    "state": "the canvas before one step",
    "axis": "one of the four choices of every step: which tokens first (score), where (region), how many at once "
    "(cardinality), for good or not (commitment)",
    "branch": "the same state finished after another choice",
    "gate": "a rule that says, before a step, whether to leave the usual choice",
    "utility": "how good an answer is, from 0 to 1",
}


@dataclass(frozen=True)
class DemoResults:
    """All that the page shows."""

    comparison: DemoComparison
    runs: Sequence[DemoRun]
    records: Sequence[Mapping[str, Any]]
    """Of the runs, in their order, as `look.run` makes them."""
    findings: Findings
    report: Report
    """Of the findings."""
    evidence: StateEvidence | None = None
    """The study's states with the largest gains and losses."""

    @property
    def summaries(self) -> list[DemoSummary]:
        return summarise(self.comparison.rows)

    @property
    def verdicts(self) -> tuple[DemoVerdict, ...]:
        return verdicts(self.summaries, self.report.answers)


def page(results: DemoResults) -> str:
    """HTML with style, pictures, scripts and runs inside: one file to keep or to send."""
    body = _template().render(
        warnings=results.report.warnings,
        verdicts=results.verdicts,
        glossary=GLOSSARY,
        groups=_groups(results.runs),
        **_pictures(results),
        **_on_methods(results),
        **_on_study(results.findings),
        **_on_states(results),
    )
    opening = Opening(
        title=TITLE,
        body=Markup(body),
        contents=_contents(results),
        styles=["grid.css", "states.css", "demo.css"],
        modules=["grid.js", "states.js", "demo.js"],
        start="startDemo();",
        data={"runs-data": list(results.records), "states-data": _states_data(results.evidence)},
    )
    return study_page(results.report, opening=opening)


def _contents(results: DemoResults) -> dict[str, str]:
    states = {} if results.evidence is None else {"states": "States and branches"}
    parts = {"verdicts": "In short", "runs": "Runs to look at", **states, "methods": "The methods"}
    return {**parts, "study": "The study in full"}


def _pictures(results: DemoResults) -> dict[str, Markup]:
    summaries, opportunity = results.summaries, results.findings
    labels = [s.label for s in summaries if not s.baseline]
    gains = opportunity_svg(opportunity)
    return {
        "trade_off": Markup(picture(trade_off_svg(summaries), trade_off_words(summaries))),
        "order": Markup(picture(order_svg(results.comparison, labels), order_words(results.comparison))),
        "opportunity": Markup(picture(gains, opportunity_words(opportunity)) if gains else ""),
    }


def _on_methods(results: DemoResults) -> dict[str, Any]:
    config, summaries = results.comparison.config, results.summaries
    families = list(summaries[0].by_family)
    return {
        "problems": len(config["problems"]),
        "positions": config["problems"][0]["n"],
        "summaries": summaries,
        "families": families,
        "structures": {family: FAMILIES.get(family, "") for family in families},
        "example": results.comparison.example,
        "config": config,
        "config_json": json.dumps(config, indent=2),
        "settings": _settings,
    }


def _on_study(findings: Findings) -> dict[str, Any]:
    models = dict.fromkeys(findings.select("opportunity", measure="fixed")["model"])
    return {
        "models": " and ".join(model_name(findings, model) for model in models),
        "few": FEW,
        "states_count": count_noun(int(findings.study.extents["states"].sum()), "state"),
    }


def _on_states(results: DemoResults) -> dict[str, Any]:
    evidence, utilities = results.evidence, results.findings.study.utilities
    shown = [] if evidence is None else pd.concat([evidence.gains, evidence.losses]).to_dict("records")
    usual = {(task, axis): table.candidates[0] for (_, task, axis, _), table in utilities.items()}
    return {
        "ranked": [{**one, "usual": usual.get((one["task"], one["axis"]), "")} for one in shown],
        "compared": "" if evidence is None else f"{evidence.compared:,}",
    }


def _states_data(evidence: StateEvidence | None) -> dict[str, Any]:
    return {"states": []} if evidence is None else states_data(evidence)


def _groups(runs: Sequence[DemoRun]) -> list[dict[str, Any]]:
    """Runs of one prompt under one title."""
    tasks = list(dict.fromkeys(run.task for run in runs))
    groups = []
    for at, task in enumerate(tasks):
        own = [(number, run) for number, run in enumerate(runs) if run.task == task]
        example = own[0][1].example
        groups.append(
            {
                "at": at,
                "title": task,
                "prompt": example.prompt,
                "target": example.target,
                "runs": [_run_panel(number, run) for number, run in own],
            }
        )
    return groups


def _run_panel(at: int, run: DemoRun) -> dict[str, Any]:
    return {
        "at": at,
        "label": run.shown.label,
        "look_for": run.shown.look_for,
        "forwards": run.forwards,
        "utility": "not judged" if run.utility is None else f"{run.utility:.2f}",
        "text": run.judged.text,
    }


def _settings(policy: Mapping[str, Any], path: str = "") -> str:
    parts = []
    for key, value in policy.items():
        if isinstance(value, Mapping):
            parts.append(_settings(value, f"{path}{key}."))
        elif key != "name":
            parts.append(f"{path}{key}={json.dumps(value)}")
        elif path:
            parts.append(f"{path[:-1]}={value}")
    return ", ".join(parts)


@cache
def _template() -> jinja2.Template:
    source = resources("unmask.report").joinpath("templates", "demo.html.j2").read_text(encoding="utf-8")
    return jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(source)
