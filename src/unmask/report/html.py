"""A report as one self-contained HTML page. What draws its figures travels inside: to make it takes plotly."""

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files as resources
from importlib.util import find_spec
from typing import Any

import jinja2
from markupsafe import Markup

from unmask.base.errors import ConfigError
from unmask.look import page as look
from unmask.report.csv import table_csv
from unmask.report.figures.interactive import panel
from unmask.report.figures.numbers import figure_csv
from unmask.report.latex import table_latex
from unmask.report.markdown import grid_markdown
from unmask.report.report import Report
from unmask.report.sections import IN_THE_PAPER


class NoPlotly(ConfigError):
    """The page's figures cannot be put in."""


@dataclass(frozen=True)
class Opening:
    """What another page shows before a study, which then is its last part."""

    title: str
    body: Markup
    """Begins with the page's h1, and says what is missing."""
    contents: Mapping[str, str]
    """By id of a part: what it is called."""
    styles: Sequence[str] = ()
    scripts: Sequence[str] = ()
    data: Mapping[str, Any] = field(default_factory=dict)


def page(report: Report, states: str | None = None, opening: Opening | None = None) -> str:
    """With style, figures and all numbers inside: one file to keep or to send. `states` is a page beside it."""
    library = plotly_script()
    body = _template().render(
        report=report,
        states=states,
        opening=opening,
        in_the_paper=IN_THE_PAPER,
        config=json.dumps(report.manifest, indent=2, ensure_ascii=False),
    )
    figures = {f.name: [panel(chart, report.command) for chart in f.panels] for f in report.figures}
    inside = {"numbers": _json(_numbers(report)), "figures": _json(figures), "plotly": library}
    return look.page(
        opening.title if opening else report.title,
        "\n".join((body, *(packed(name, text) for name, text in inside.items()))),
        styles=[look.asset("report.css", "unmask.report"), *(opening.styles if opening else ())],
        scripts=[look.asset("report.js", "unmask.report"), *(opening.scripts if opening else ())],
        data=opening.data if opening else None,
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _numbers(report: Report) -> Mapping[str, Mapping[str, str]]:
    """By table and figure: its text in each format."""
    tables = {
        s.name: {"csv": table_csv(s), "md": f"{grid_markdown(s)}\n", "tex": table_latex(s)} for s in report.sheets
    }
    return tables | {f"figure:{f.name}": {"csv": figure_csv(f)} for f in report.figures}


def plotly_script() -> str:
    """The library that draws figures, from the installed package; nothing of it is imported."""
    if find_spec("plotly") is None:
        raise NoPlotly(
            "report.html needs plotly, which is not installed here; everything else is written; install it "
            "(`pip install 'unmask[lab]'`), or make the report on a machine that has it"
        )
    return resources("plotly").joinpath("package_data/plotly.min.js").read_text(encoding="utf-8")


@cache
def packed(name: str, text: str) -> str:
    """Text for the page's scripts at a fraction of its size; a browser unpacks it when it is first needed."""
    inside = base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()
    return f'<script type="text/plain" id="{name}">{inside}</script>'


@cache
def _template() -> jinja2.Template:
    source = resources("unmask.report").joinpath("report.html.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["slug"] = _slug
    return environment.from_string(source)


def _slug(title: Any) -> str:
    """A name for a place on the page."""
    words = "".join(c if c.isalnum() else " " for c in str(title).lower()).split()
    return f"s-{'-'.join(words)}"
