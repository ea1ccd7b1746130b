"""A report as one self-contained HTML page."""

import html
import json
from functools import cache
from importlib.resources import files as resources

import jinja2
from markupsafe import Markup

from unmask.report.report import Report

_LIGHT = ("#0072b2", "#c24e00", "#00795a", "#a23f7c")
_DARK = ("#56b4e9", "#f0883e", "#2fc99b", "#e08fbd")
"""One for each axis, by its place; they begin anew where there are more."""


def page(report: Report) -> str:
    """With style and figures inside: one file to keep or to send."""
    return _template().render(
        report=report,
        light=_palette(report.axes, _LIGHT),
        dark=_palette(report.axes, _DARK),
        config=json.dumps(report.manifest, indent=2, ensure_ascii=False),
    )


def _palette(axes: tuple[str, ...], colours: tuple[str, ...]) -> str:
    return " ".join(f"--{axis}: {colours[at % len(colours)]};" for at, axis in enumerate(axes))


def _prose(text: str) -> Markup:
    """Text between tags, where quotation marks may stay."""
    return Markup(html.escape(text, quote=False))


@cache
def _template() -> jinja2.Template:
    source = resources("unmask.report").joinpath("report.html.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["prose"] = _prose
    return environment.from_string(source)
