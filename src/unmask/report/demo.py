"""The page of `unmask demo`: one answer per question, runs to look at, states, methods, and then the study's report."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import pandas as pd
from markupsafe import Markup
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from unmask.lab.analysis import Findings
from unmask.lab.analysis.load import MEAN
from unmask.lab.analysis.states import StateEvidence
from unmask.lab.demo import AT_ONCE, FAMILIES, DemoComparison, DemoRow, DemoRun
from unmask.report import files
from unmask.report.drawing import (
    FAINT,
    GRID,
    INK,
    PAPER,
    CostPoint,
    draw_cost_panel,
    drawable,
    fit_layout,
    themed_picture,
)
from unmask.report.figures import FEW, draw_intervals, interval_rows
from unmask.report.headlines import Answer
from unmask.report.pages import states_data
from unmask.report.run_data import RunData
from unmask.report.study import Opening, Report, model_name, render_template
from unmask.report.study import page as study_page
from unmask.report.study_tables import opportunity_settings
from unmask.report.table import count_noun
from unmask.stats import Estimate

STATES = 2
"""States with the largest gains that are shown, and as many with the largest losses."""
AS_GOOD = 0.99
"""Share of the best utility from which on a cheaper policy counts as good as the best."""
_EQUAL = 1e-9
"""Expected utilities and forwards closer than this differ by rounding only."""
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
QUESTIONS = {
    "How much?": "Could another choice help?",
    "How concentrated?": "Is that in few places?",
    "Predictable?": "Can it be predicted?",
    "Does acting pay?": "Does acting on it pay?",
}
"""The questions of every study, worded for a reader who knows none of its terms."""


@dataclass(frozen=True)
class DemoResults:
    """Results of the demo that its page shows."""

    comparison: DemoComparison
    runs: Sequence[DemoRun]
    records: Sequence[RunData]
    """Values of the runs, in their order."""
    findings: Findings
    report: Report
    """The report on the findings."""
    evidence: StateEvidence | None = None
    """The study's states with the largest gains and losses."""

    @property
    def summaries(self) -> "list[DemoSummary]":
        return summarise(self.comparison.rows)

    @property
    def verdicts(self) -> list[Answer]:
        return demo_verdicts(self.summaries, self.report.answers)


class DemoFiles(NamedTuple):
    """The files that `write_demo` wrote."""

    page: Path
    rows: Path


def write_demo(results: DemoResults, out: str | Path) -> DemoFiles:
    """Write report.html and problems.csv into a folder."""
    place = files.folder(out)
    rows = files.write(place / "problems.csv", rows_csv(results.comparison.rows).encode())
    return DemoFiles(files.write(place / "report.html", demo_page(results).encode()), rows)


def rows_csv(rows: Sequence[DemoRow]) -> str:
    """Return every row of the comparison with all digits; an empty cell where there is no number."""
    names = [*(f.name for f in fields(DemoRow)), "tokens_per_forward"]
    values = [[getattr(row, name) for name in names] for row in rows]
    # Objects: a column of counts with a missing one would become floats.
    return pd.DataFrame(values, columns=names, dtype=object).to_csv(index=False, lineterminator="\n")


def demo_page(results: DemoResults) -> str:
    """Return the page with style, pictures, scripts and runs inside: one file to keep or to send."""
    comparison, findings, evidence = results.comparison, results.findings, results.evidence
    summaries = results.summaries
    ranked = [] if evidence is None else pd.concat([evidence.gains, evidence.losses]).to_dict("records")
    usual = {(task, axis): table.candidates[0] for (_, task, axis, _), table in findings.study.utilities.items()}
    models = dict.fromkeys(findings.select("opportunity", measure="fixed")["model"])
    body = render_template(
        "demo.html.j2",
        warnings=results.report.warnings,
        verdicts=results.verdicts,
        glossary=GLOSSARY,
        groups=_group_runs(results.runs),
        trade_off=_trade_off_picture(summaries),
        opportunity=_opportunity_picture(findings),
        order=_order_picture(comparison, [s.label for s in summaries if not s.baseline]),
        problems=len(comparison.config["problems"]),
        positions=comparison.config["problems"][0]["n"],
        summaries=summaries,
        families={family: FAMILIES.get(family, "") for family in summaries[0].by_family},
        example=comparison.example,
        seeds=comparison.config["seeds"],
        config_json=json.dumps(comparison.config, indent=2),
        models=" and ".join(model_name(findings, model) for model in models),
        few=FEW,
        ranked=[{**one, "usual": usual.get((one["task"], one["axis"]), "")} for one in ranked],
        compared="" if evidence is None else f"{evidence.compared:,}",
        states_count=count_noun(int(findings.study.extents["states"].sum()), "state"),
    )
    states = {} if evidence is None else {"states": "States and branches"}
    contents = {"verdicts": "In short", "runs": "Runs to look at", **states, "methods": "The methods"}
    opening = Opening(
        title="Does adapting pay? The demonstration of unmask",
        body=Markup(body),
        contents={**contents, "study": "The study in full"},
        styles=["grid.css", "states.css", "demo.css"],
        modules=["grid.js", "states.js", "demo.js"],
        start="startDemo();",
        data={
            "runs-data": list(results.records),
            "states-data": {"states": []} if evidence is None else states_data(evidence),
        },
    )
    return study_page(results.report, opening=opening)


def _group_runs(runs: Sequence[DemoRun]) -> list[dict[str, Any]]:
    """Return the runs of each prompt under one title."""
    groups: dict[str, dict[str, Any]] = {}
    for number, run in enumerate(runs):
        example = run.example
        about = {"at": len(groups), "title": run.task, "prompt": example.prompt, "target": example.target, "runs": []}
        groups.setdefault(run.task, about)["runs"].append(
            {
                "at": number,
                "label": run.shown.label,
                "look_for": run.shown.look_for,
                "forwards": run.forwards,
                "utility": "not judged" if run.utility is None else f"{run.utility:.2f}",
                "text": run.judged.text,
            }
        )
    return list(groups.values())


# Policies on problems with known answers


@dataclass(frozen=True)
class DemoSummary:
    """A policy's means over the problems, each counting the same."""

    label: str
    method: str
    utility: float
    stderr: float
    by_family: Mapping[str, float]
    """Mean utility in each family of problems."""
    forwards: float | None
    tokens_per_forward: float | None
    deterministic: bool
    seeds: int
    frontier: bool = False
    """Whether no other policy here has at least its utility for at most its forwards."""

    @property
    def baseline(self) -> bool:
        """Whether this row is a bound rather than a method."""
        return not self.method

    @property
    def forward_count(self) -> float:
        """Forwards as a number, 0 for none."""
        return self.forwards or 0.0

    @property
    def cells(self) -> dict[str, str]:
        """Table cells of this policy by their heads, without its name."""
        return {
            "utility": f"{self.utility:.3f}",
            "s.e.": "" if self.deterministic else f"{self.stderr:.3f}",
            "forwards": "" if self.forwards is None else f"{self.forwards:.2f}",
            "tokens/forward": "" if self.tokens_per_forward is None else f"{self.tokens_per_forward:.2f}",
            "computed": "exactly" if self.deterministic else f"{self.seeds} seeds",
        }


def summarise(rows: Sequence[DemoRow]) -> list[DemoSummary]:
    """Return a summary of each policy: best utility first, then fewest forwards."""
    by_label: dict[str, list[DemoRow]] = {}
    for row in rows:
        by_label.setdefault(row.label, []).append(row)
    means = [_summarise_policy(own) for own in by_label.values()]
    summaries = [replace(one, frontier=_is_undominated(one, means)) for one in means]
    return sorted(summaries, key=lambda s: (-round(s.utility, 9), s.forward_count, s.label))


def _summarise_policy(rows: Sequence[DemoRow]) -> DemoSummary:
    count = len(rows)
    families: dict[str, list[float]] = {}
    for row in rows:
        families.setdefault(row.family, []).append(row.utility)
    spent = [row.forwards for row in rows if row.forwards is not None]
    forwards = sum(spent) / count if spent else None
    return DemoSummary(
        label=rows[0].label,
        method=rows[0].method,
        utility=sum(row.utility for row in rows) / count,
        # Problems are not a sample: the only error is that of the seeds, independent from problem to problem.
        stderr=sqrt(sum(row.stderr**2 for row in rows)) / count,
        by_family={family: sum(values) / len(values) for family, values in families.items()},
        forwards=forwards,
        tokens_per_forward=None if forwards is None else sum(row.new_tokens for row in rows) / count / forwards,
        deterministic=all(row.deterministic for row in rows),
        seeds=max(row.seeds for row in rows),
    )


def _is_undominated(one: DemoSummary, others: Sequence[DemoSummary]) -> bool:
    if one.forwards is None:
        return False
    for other in others:
        if other.forwards is not None:
            no_worse = other.utility >= one.utility - _EQUAL and other.forwards <= one.forwards + _EQUAL
            better = other.utility > one.utility + _EQUAL or other.forwards < one.forwards - _EQUAL
            if no_worse and better:
                return False
    return True


def demo_verdicts(summaries: Sequence[DemoSummary], answers: Sequence[Answer]) -> list[Answer]:
    """Return each question with its answer in one sentence: on the methods first, then those of every study."""
    verdicts = []
    policies = [s for s in summaries if not s.baseline and s.forwards is not None]
    at_once = next((s for s in summaries if s.label == AT_ONCE), None)
    if policies and at_once is not None:
        best = policies[0]
        cheap = min((s for s in policies if s.utility >= AS_GOOD * best.utility), key=lambda s: s.forward_count)
        tokens = cheap.forward_count * (cheap.tokens_per_forward or 0)
        lead = "Yes, up to a point" if best.utility > at_once.utility else "No"
        sentence = (
            f"{lead}: where the best answer is known, one forward for everything reaches a utility of "
            f"{at_once.utility:.2f}, the best method {best.utility:.2f}; {cheap.label} gets {cheap.utility:.2f} with "
            f"{cheap.forward_count:.1f} forwards for {tokens:.0f} tokens."
        )
        verdicts.append(Answer("Do more forwards help?", sentence))
    return verdicts + [Answer(QUESTIONS.get(one.question, one.question), one.verdict) for one in answers]


# Pictures


def _trade_off_picture(summaries: Sequence[DemoSummary]) -> Markup:
    """Draw the utility of each policy against its forwards, and name the best trade-offs for a screen reader."""
    shown = sorted((s for s in summaries if s.forwards is not None), key=lambda s: s.forward_count)
    best = [f"{s.label} {s.utility:.2f} with {s.forward_count:.1f}" for s in shown if s.frontier]
    words = (
        f"Expected utility of {len(shown)} policies against forwards per answer. None does better for as many "
        f"forwards than these: {'; '.join(best)}."
    )
    points = [
        CostPoint(
            s.label,
            s.forward_count,
            Estimate(s.utility, s.utility - s.stderr, s.utility + s.stderr),
            s.frontier,
            s.frontier,
        )
        for s in shown
    ]

    def draw(fig: Figure) -> None:
        ax = fig.add_axes((0.1, 0.13, 0.88, 0.84))
        ax.axhline(1.0, color=FAINT, lw=0.8, ls=(0, (4, 3)))
        draw_cost_panel(
            ax, points, None, "forwards per answer (fewer is cheaper)", "expected utility (1 is the best answer)"
        )

    return Markup(themed_picture(draw, (6.4, 4.1), words))


def _opportunity_picture(findings: Findings) -> Markup:
    """Draw what hindsight could add at one step, by task and axis; nothing where nothing was measured."""
    cells = opportunity_settings(findings)
    cells = cells[(cells["task"] != MEAN) & cells["delta"].notna()] if "delta" in cells else cells[:0]
    if cells.empty:
        return Markup("")
    best = cells.loc[cells["delta"].idxmax()]
    words = (
        "What the best choice at one step would add to the utility, for each task and axis, with 95 % intervals. The "
        f"largest is {best['axis']} on {best['task']}: {best['delta']:.3f}, from {best['delta_low']:.3f} to "
        f"{best['delta_high']:.3f}."
    )
    several = cells["model"].nunique() > 1
    groups = [drawable(name, 60) for name in (cells["model"] + ": " + cells["task"] if several else cells["task"])]
    rows = interval_rows(cells, "delta", groups, cells["unreliable"] != "", cells["axis"])
    height = max(4.1, 0.9 + 0.2 * (len(cells) + len(set(groups))))
    title = "gain in utility from the best choice at one step, 95 % interval"
    return Markup(
        themed_picture(lambda fig: draw_intervals(fit_layout(fig).subplots(), rows, title), (6.4, height), words)
    )


def _order_picture(comparison: DemoComparison, labels: Sequence[str]) -> Markup:
    """Draw at which step each policy filled each position of one canvas, a row for each of `labels`."""
    reveals = sorted(comparison.reveals, key=lambda reveal: labels.index(reveal.label))
    length, last = len(reveals[0].step), max(max(reveal.step) for reveal in reveals)
    words = (
        f"The step at which each of {len(reveals)} policies filled each position of one canvas "
        f"({comparison.example}), and the utility of its answer."
    )
    shades = matplotlib.colormaps["Blues"]

    def draw(fig: Figure) -> None:
        ax = fit_layout(fig).subplots()
        for y, reveal in enumerate(reveals):
            for x, step in enumerate(reveal.step):
                colour = GRID if step == 0 else to_hex(shades(0.12 + 0.8 * (step - 1) / max(last - 1, 1)))
                ax.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor=PAPER, lw=1.5))
                # Colours of cells do not change with the theme, so neither does the ink on them.
                red, green, blue = to_rgb(colour)
                ink = "#fefefe" if 0.3 * red + 0.6 * green + 0.1 * blue < 0.5 else "#1f1f1f"
                text, ink = (drawable(reveal.text[x]), FAINT) if step == 0 else (str(step), ink)
                ax.text(x, y, text, ha="center", va="center", size=8.5, color=ink)
                if reveal.remasked[x]:
                    ax.text(x + 0.42, y - 0.38, "↺", ha="right", va="top", size=7.5, color=ink)
            ax.text(length - 0.3, y, f"{reveal.utility:.2f}", va="center", size=8.5)
        ax.set(xlim=(-0.5, length + 0.6), ylim=(len(reveals) - 0.5, -0.5))
        ax.set_yticks(range(len(reveals)), [drawable(reveal.label) for reveal in reveals], color=INK, size=9)
        prompt = sum(step == 0 for step in reveals[0].step)
        names = {(prompt - 1) / 2: "prompt", length + 0.05: "utility"}
        names |= {float(x): str(x - prompt + 1) for x in range(prompt, length)}
        ax.set_xticks(list(names), list(names.values()), color=FAINT, size=8.5)
        ax.set_xlabel("position in the answer; in the cell: the step that filled it")
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)

    return Markup(themed_picture(draw, (6.4, 0.7 + 0.27 * len(reveals)), words))
