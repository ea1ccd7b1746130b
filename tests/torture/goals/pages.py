"""Hostile text through every page: nothing comes to life in HTML, no cell of other formats leaves its place."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

from tests.helpers import made_demo
from tests.torture.case import Case, Failure, Goal
from tests.torture.goals.answers import SCORER
from tests.torture.hostile import MARK, TEXTS
from tests.torture.made import PROMPTS, STUDY, WORKS, Made
from tests.torture.process import unmask
from unmask.text import storable

SHORT = tuple(dict.fromkeys(storable(text)[:2000] for text in TEXTS))


def try_case(case: Case, folder: Path, made: Made) -> Failure | None:
    found = list(KINDS[case.number % len(KINDS)](case, folder))
    return Failure("; ".join(found[:5])) if found else None


class _Page(HTMLParser):
    """What a browser would see: elements with their attributes, and how many scripts."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.alive: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        picture = tag == "img" and (dict(attrs).get("src") or "").startswith("data:image/png;base64,")
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
    """Tables keep their columns; HTML in Markdown is the reader's to stop, as docs/reliability.md says."""
    width = 0
    for line in text.splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        if cells and width and cells != width:
            yield f"{name}: a row of {cells - 1} cells in a table of {width - 1}"
        width = cells


def file_faults(place: Path, scripts: int) -> Iterator[str]:
    """Of everything a command wrote."""
    judges = {".csv": csv_faults, ".tex": latex_faults, ".md": markdown_faults}
    for path in sorted(p for p in place.rglob("*") if p.is_file()):
        text = path.read_bytes().decode("utf-8")
        if path.suffix == ".html":
            yield from html_faults(text, scripts)
        elif path.suffix in judges:
            yield from judges[path.suffix](path.name, text)
        elif path.suffix == ".json":
            json.loads(text)


def _study(case: Case, folder: Path) -> Iterator[str]:
    """Names of a study and of a model, prompts, ids, and reasons of a scorer."""
    rng = case.rng
    study, model, id, reason = (rng.choice(SHORT) for _ in range(4))
    WORKS["study"].prepare(folder)
    text = STUDY.replace('"contains"', '"scoring:score"').replace('"tortured"', _toml(study + "s"))
    (folder / "study.toml").write_text(text.replace('name = "exact"', f"name = {_toml(model + 'm')}"), encoding="utf-8")
    lines = [{"prompt": p, "target": f"{reason}{p}", "id": f"{id}{n}"} for n, p in enumerate(PROMPTS)]
    (folder / "mine.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    scorer = SCORER.format(text=reason, ids=tuple(f"{id}{n}" for n in range(0, 16, 3)), act="raise ValueError(TEXT)")
    (folder / "scoring.py").write_text(scorer, encoding="utf-8")
    what = f"study {study[:30]!r}, model {model[:30]!r}, ids {id[:30]!r}, reasons {reason[:30]!r}"
    for command in (
        WORKS["study"].arguments,
        ("study", "report", "study", "--out", "page"),
        ("study", "status", "study"),
    ):
        ended = unmask(*command, folder=folder)
        if ended.code == 2 and "allowed" in ended.err and not ended.trouble:
            return
        if ended.trouble or ended.code:
            yield f"{what}: {' '.join(map(str, command[:2]))}: {ended.trouble or ended.last}"
            return
    yield from (f"{what}: {fault}" for fault in file_faults(folder / "page", scripts=0))


def _toml(text: str) -> str:
    """A TOML text: JSON's, but for the characters that TOML wants escaped and JSON does not."""
    return json.dumps(text).replace("\x7f", "\\u007f")


def _demo(case: Case, folder: Path) -> Iterator[str]:
    """Labels of policies, families of problems, and what was decoded."""
    from unmask.report.demo.files import markdown, table_csv
    from unmask.report.demo.page import page

    label, family, answer = (case.rng.choice(SHORT) for _ in range(3))
    old = made_demo.COMPARISON

    def named(name: str) -> str:
        return f"{name}{label}" if name in {r.label for r in made_demo.REVEALS} else name

    rows = tuple(replace(row, label=named(row.label), family=f"{row.family}{family}") for row in old.rows)
    reveals = tuple(replace(reveal, label=named(reveal.label), text=answer or "a") for reveal in old.reveals)
    config = json.loads(json.dumps(old.config))
    for problem in config["problems"]:
        problem["family"] += family
    for contender in config["contenders"]:
        contender["label"] = named(contender["label"])
    made = replace(old, rows=rows, reveals=reveals, config=config)
    what = f"label {label[:30]!r}, family {family[:30]!r}, answer {answer[:30]!r}"
    faults = [*html_faults(page(made, b"png"), 0), *markdown_faults("demo.md", markdown(made))]
    yield from (f"{what}: {fault}" for fault in (*faults, *csv_faults("demo.csv", table_csv(made.rows))))


def _compare(case: Case, folder: Path) -> Iterator[str]:
    """Answers, reasons, prompts and policies of a comparison."""
    from unmask.lab.compare import AnswerRow, Evaluation, LeftOut, TaskRun
    from unmask.lab.compare_summary import summarise
    from unmask.report import compare as page

    rng = case.rng
    policy, reason, answer, prompt = (rng.choice(SHORT) for _ in range(4))
    policies = ("reference", f"p{policy}")
    rows = tuple(
        AnswerRow("carry-rtl", name, f"{prompt}{n}", rng.random(), reason, 1, 1, answer)
        for name in policies
        for n in range(3)
    )
    runs = (TaskRun("carry-rtl", 8, 4, prompts=3), TaskRun("gsm8k", 8, 4, unavailable=reason))
    out = (LeftOut("carry-rtl", f"q{policy}", reason),)
    versions = {"unmask": "0", "python": "3", "torch": "2", "numpy": "2"}
    config = {
        "model": {"name": prompt},
        "device": "cpu",
        "split": "fresh",
        "seed": 0,
        "temperature": 0.0,
        "versions": versions,
    }
    evaluation = Evaluation("fresh", (*policies, f"q{policy}"), runs, rows, out, config)
    page.write(evaluation, summarise(evaluation, resamples=5), folder / "compared")
    what = f"policy {policy[:30]!r}, reason {reason[:30]!r}, answer {answer[:30]!r}, prompt {prompt[:30]!r}"
    yield from (f"{what}: {fault}" for fault in file_faults(folder / "compared", 0))


KINDS: tuple[Callable[[Case, Path], Iterator[str]], ...] = (_study, _demo, _compare)
GOAL = Goal("pages", "hostile text through every page", try_case, sample=30)
