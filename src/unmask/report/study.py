"""The report on a study: a page, Markdown, a CSV file per table, JSON, and what a terminal shows.

E1 always; E2 and E3 where the study has readings.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files as resources
from math import isfinite
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup
from rich.table import Table

from unmask.lab.e1 import E1
from unmask.lab.e23 import E23
from unmask.policies.candidates import AXES
from unmask.report import files, study_e23_tables, study_e23_words, study_tables, study_words
from unmask.report.study_e23_figure import setting_figure
from unmask.report.study_figure import concentration_figure, gap_figure
from unmask.report.study_tables import LEGEND, Sheet, mark, number, share, table_csv, table_markdown
from unmask.report.study_words import name, warnings
from unmask.report.terminal import columns
from unmask.stats import Estimate
from unmask.stats.opportunity import FEWEST

__all__ = ["Written", "answer", "document", "legend", "markdown", "page", "screen", "screen_e23", "write"]


@dataclass(frozen=True)
class Written:
    """Where the parts of a report are."""

    page: Path
    text: Path
    tables: tuple[Path, ...]

    @property
    def paths(self) -> tuple[Path, ...]:
        return (self.page, self.text, *self.tables)


@dataclass(frozen=True)
class Part:
    """A section of the page on diagnostics."""

    title: str
    note: str
    detected: E23
    sheets: tuple[Sheet, ...]


def write(found: E1, out: str | Path, detected: E23 | None = None) -> Written:
    """Write report.html, report.md and a CSV file per table into a folder."""
    place = files.folder(out)
    return Written(
        page=files.write(place / "report.html", page(found, detected).encode()),
        text=files.write(place / "report.md", markdown(found, detected).encode()),
        tables=tuple(files.write(place / f"{s.name}.csv", table_csv(s).encode()) for s in _sheets(found, detected)),
    )


def answer(found: E1, detected: E23 | None = None) -> tuple[str, ...]:
    """All sentences."""
    return (*study_words.answer(found), *(study_e23_words.answer(found, detected) if detected else ()))


def page(found: E1, detected: E23 | None = None) -> str:
    """HTML with style and figures inside: one file to keep or to send."""
    told = warnings(found)
    return _template().render(
        name=found.name,
        axes=AXES,
        warnings=told,
        words=answer(found, detected)[len(told) :],
        figures=[
            {
                "name": name(found, model),
                "gap": Markup(gap_figure(found, model, at)),
                "concentration": Markup(concentration_figure(found, model, at)),
            }
            for at, model in enumerate(found.models)
        ],
        few=f"fewer than {FEWEST} prompts with a gain, not to be relied on",
        legend=LEGEND,
        resamples=f"{found.resamples:,}",
        sheets=study_tables.sheets(found),
        parts=[
            {
                "title": part.title,
                "note": part.note,
                "sheets": part.sheets,
                "figures": _settings(found, part.detected, at),
            }
            for at, part in enumerate(_parts(detected))
        ],
        facts=_facts(found),
        config=_config(found),
        versions=_versions(found),
    )


def _settings(found: E1, detected: E23, part: int) -> list[dict[str, str]]:
    return [
        {
            "name": f"{name(found, cell.model)}: {cell.axis} on {cell.task}",
            "figure": Markup(setting_figure(cell, f"setting-{part}-{at}")),
        }
        for at, cell in enumerate(detected.cells)
    ]


def _parts(detected: E23 | None) -> list[Part]:
    """Diagnostics of native decoders first; the revision extension apart; then what has no numbers."""
    if detected is None:
        return []
    own, apart = detected.of(extension=False), detected.of(extension=True)
    missing = study_e23_tables.missing_sheet(detected)
    found = [Part("Diagnostics", "", own, (*study_e23_tables.sheets(own), missing))]
    if apart.cells:
        title = "Diagnostics: revision extension of a monotone native decoder"
        found.append(Part(title, study_e23_words.EXTENSION, apart, study_e23_tables.sheets(apart, "-revision")))
    return found


def _sheets(found: E1, detected: E23 | None) -> tuple[Sheet, ...]:
    return (*study_tables.sheets(found), *(sheet for part in _parts(detected) for sheet in part.sheets))


def markdown(found: E1, detected: E23 | None = None) -> str:
    """The words and every table but the longest."""
    parts = [f"# Adaptation opportunity: {found.name}", *answer(found, detected)]
    parts.append("\n".join(f"- {sign} {meaning}" for sign, meaning in LEGEND.items()))
    parts.append(f"Brackets: 95 % percentile intervals from {found.resamples:,} resamples of prompts.")
    parts += _tables(study_tables.sheets(found), "##")
    for part in _parts(detected):
        parts += [f"## {part.title}", *([part.note] if part.note else []), *_tables(part.sheets, "###")]
    parts += ["## Configuration", "\n".join(f"- {key}: `{value}`" for key, value in _facts(found).items())]
    parts += [f"```json\n{_config(found)}\n```", _versions(found)]
    return "\n\n".join(parts) + "\n"


def _tables(shown: Iterable[Sheet], level: str) -> Iterator[str]:
    for sheet in shown:
        if not sheet.aside:
            yield from (f"{level} {sheet.title}", sheet.note, table_markdown(sheet))


def screen(found: E1) -> Table:
    """What fits on a terminal."""
    heads = ("task", "axis", "fixed action", "Δ_adapt", "", "positive", "top 10 % hold")
    several = len(found.models) > 1
    rows = [
        [
            *([c.model] if several else []),
            c.task,
            c.axis,
            c.fixed_name,
            number(c.overall.delta),
            mark(c.overall, c.partial),
            share(c.overall.positive_rate.value),
            share(c.overall.concentration[0.1].value),
        ]
        for c in found.cells
    ]
    return columns((*(["model"] if several else []), *heads), rows)


def screen_e23(detected: E23) -> Table:
    """What fits on a terminal, of the diagnostics' own actions."""
    heads = ("task", "axis", "AUROC", "selective lift", "", "deviates at", "")
    several = len({c.model for c in detected.cells}) > 1
    rows = []
    for c in detected.cells:
        utility = c.raw.utility
        lift, auroc = number(utility.lift["selective"]), number(utility.detection.auroc)
        signs, said = mark(utility, c.partial), study_e23_tables.verdict(utility)
        own = [c.task, c.axis, auroc, lift, signs, share(utility.coverage.value), said]
        rows.append([*([c.model] if several else []), *own])
    return columns((*(["model"] if several else []), *heads), rows)


def legend(found: E1, detected: E23 | None = None) -> list[str]:
    """The signs that the screens show, in words."""
    used = {sign for c in found.cells for sign in mark(c.overall, c.partial)}
    if detected is not None:
        used |= {sign for c in detected.cells for sign in mark(c.raw.utility, c.partial)}
    return [f"{sign} {meaning}" for sign, meaning in LEGEND.items() if sign in used]


def document(found: E1, detected: E23 | None = None) -> dict[str, Any]:
    """Everything as plain values; None where there is no number."""
    return {
        "study": found.name,
        "complete": found.complete,
        "answer": list(answer(found, detected)),
        "unreliable_below": FEWEST,
        "resamples": found.resamples,
        "tables": {sheet.name: _records(sheet) for sheet in _sheets(found, detected)},
        "hashes": dict(found.hashes),
        "manifest": found.manifest,
    }


def _records(sheet: Sheet) -> list[dict[str, Any]]:
    keys = [column.key for column in sheet.columns]
    return [{key: _plain(value) for key, value in zip(keys, row, strict=True) if key} for row in sheet.rows]


def _plain(value: Any) -> Any:
    if isinstance(value, Estimate):
        ends = {end: _plain(getattr(value, end)) for end in ("value", "low", "high")}
        return {**ends, "undefined": value.undefined}
    return None if isinstance(value, float) and not isfinite(value) else value


def _facts(found: E1) -> dict[str, str]:
    study = found.manifest["study"]
    splits = {role: f"{part['prompts']} from {part['split']}" for role, part in study["splits"].items()}
    return {
        "study": f"{found.name}, fingerprint {found.manifest['fingerprint']}",
        "states per prompt": str(study["states"]),
        "rollouts": str(study["rollouts"]),
        "temperature": f"{study['temperature']:g}",
        "prompts": ", ".join(f"{role}: {told}" for role, told in splits.items()),
        "steps": _pairs(study["steps"]),
        "seed": str(study["seed"]),
        "candidates": "; ".join(
            f"{reference} {axis}: {', '.join(named)}"
            for reference, sets in study["candidates"].items()
            for axis, named in sets.items()
        ),
        "data": _pairs({task: about.get("data", "none") for task, about in found.manifest["tasks"].items()}),
        **{f"hash of {table}": digest for table, digest in found.hashes.items()},
    }


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())


def _config(found: E1) -> str:
    return json.dumps(found.manifest, indent=2, ensure_ascii=False)


def _versions(found: E1) -> str:
    return ", ".join(f"{part} {version}" for part, version in found.manifest["versions"].items())


def _template() -> jinja2.Template:
    source = resources("unmask.report").joinpath("study.html.j2").read_text(encoding="utf-8")
    return jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(source)
