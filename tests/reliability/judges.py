"""What is wrong with a page, a table or a LaTeX file that hostile text went into."""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path

from tests.reliability.hostile import MARK

_PICTURES = ("data:image/png;base64,", "data:image/svg+xml;base64,")
"""No script runs in an image."""


class _Page(HTMLParser):
    """What a browser would see: elements with their attributes, and how many scripts."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.alive: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        picture = tag == "img" and (dict(attrs).get("src") or "").startswith(_PICTURES)
        if MARK in tag or (tag in ("img", "iframe", "object", "embed", "base", "form") and not picture):
            self.alive.append(f"<{tag}>")
        for name, value in attrs:
            scheme = (value or "").strip().lower().startswith(("javascript:", "data:text"))
            if name.startswith("on") or MARK in name or (name in ("href", "src", "action") and scheme):
                self.alive.append(f"{name}={value!r}")

    handle_startendtag = handle_starttag


def html_faults(text: str, scripts: int) -> Iterator[str]:
    page = _Page()
    page.feed(text)
    yield from (f"HTML: {what} is alive" for what in page.alive)
    if page.scripts != scripts:
        yield f"HTML: {page.scripts} scripts, {scripts} are the page's own"


def csv_faults(name: str, text: str) -> Iterator[str]:
    rows = list(csv.reader(io.StringIO(text)))
    if len({len(row) for row in rows}) > 1:
        yield f"{name}: rows of {sorted({len(row) for row in rows})} cells"


def latex_faults(name: str, text: str) -> Iterator[str]:
    """Commands that no table of ours has; `\\input` of a cell is `\\textbackslash{}input`."""
    for command in re.findall(r"\\([A-Za-z]+)", text):
        if command not in COMMANDS:
            yield f"{name}: \\{command} is alive"
    # A sign that LaTeX reads stands after a backslash, or in a line of the table's own.
    rest = re.sub(r"(?m)^%.*$|\$-\$|\$\\[a-zA-Z]+\$", "", text)
    for sign in re.findall(r"(?<!\\)[#$%]", rest):
        yield f"{name}: {sign} is not escaped"


COMMANDS = {"begin", "end", "toprule", "midrule", "bottomrule", "multicolumn", "dag", "ddag", "pm", "times", "infty"}
COMMANDS |= {"textbackslash", "textasciicircum", "textasciitilde", "textless", "textgreater", "textbar", "Delta", "tau"}
COMMANDS |= {"rightleftharpoons"}


def markdown_faults(name: str, text: str) -> Iterator[str]:
    """Tables keep their columns; HTML in Markdown is the reader's to stop, not ours."""
    width = 0
    for line in text.splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        if cells and width and cells != width:
            yield f"{name}: a row of {cells - 1} cells in a table of {width - 1}"
        width = cells


def file_faults(place: Path, scripts: Mapping[str, int]) -> Iterator[str]:
    """Of everything a command wrote; `scripts` says how many each page has of its own."""
    judges = {".csv": csv_faults, ".tex": latex_faults, ".md": markdown_faults}
    for path in sorted(p for p in place.rglob("*") if p.is_file()):
        text = path.read_bytes().decode("utf-8")
        if path.suffix == ".html":
            yield from html_faults(text, scripts.get(path.name, 0))
        elif path.suffix in judges:
            yield from judges[path.suffix](path.name, text)
        elif path.suffix == ".json":
            json.loads(text)
