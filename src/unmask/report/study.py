"""The report on a study: a page, Markdown, a CSV file per table, JSON, and what a terminal shows.

E1 always; E2 and E3 where the study has readings; E4 where it decoded its arms end to end.
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

from unmask.lab.analysis.detection import DetectionFindings
from unmask.lab.analysis.end_to_end import CHOSEN, EndToEndFindings, EndToEndMean
from unmask.lab.analysis.opportunity import OpportunityFindings
from unmask.policies.candidates import AXES
from unmask.report import files
from unmask.report.figures.detection import setting_figure
from unmask.report.figures.end_to_end import end_to_end_figure
from unmask.report.figures.opportunity import concentration_figure, gap_figure
from unmask.report.tables import detection as study_e23_tables
from unmask.report.tables import end_to_end as study_e4_tables
from unmask.report.tables import opportunity as study_tables
from unmask.report.tables.opportunity import LEGEND, PARTIAL, Sheet, mark, number, share, table_csv, table_markdown
from unmask.report.terminal import columns
from unmask.report.words import detection as study_e23_words
from unmask.report.words import end_to_end as study_e4_words
from unmask.report.words import opportunity as study_words
from unmask.report.words.opportunity import Answer, name, warnings
from unmask.stats import Estimate
from unmask.stats.opportunity import FEWEST

__all__ = [
    "Answer",
    "StudyFiles",
    "answer",
    "document",
    "legend",
    "markdown",
    "notes",
    "page",
    "screen",
    "screen_e4",
    "screen_e23",
    "warnings",
    "write",
]


@dataclass(frozen=True)
class StudyFiles:
    """Where the parts of a report are."""

    page: Path
    text: Path
    tables: tuple[Path, ...]

    @property
    def paths(self) -> tuple[Path, ...]:
        return (self.page, self.text, *self.tables)


@dataclass(frozen=True)
class PageSection:
    """A section of the page on what goes beyond E1."""

    title: str
    note: str
    sheets: tuple[Sheet, ...]
    settings: DetectionFindings | None = None
    """Each with a figure of its own."""
    decoded: EndToEndFindings | None = None
    """A figure for each model."""


def write(
    found: OpportunityFindings,
    out: str | Path,
    detected: DetectionFindings | None = None,
    decoded: EndToEndFindings | None = None,
) -> StudyFiles:
    """Write report.html, report.md and a CSV file per table into a folder."""
    place = files.folder(out)
    shown = _sheets(found, detected, decoded)
    return StudyFiles(
        page=files.write(place / "report.html", page(found, detected, decoded).encode()),
        text=files.write(place / "report.md", markdown(found, detected, decoded).encode()),
        tables=tuple(files.write(place / f"{s.name}.csv", table_csv(s).encode()) for s in shown),
    )


# Words


def answer(
    found: OpportunityFindings, detected: DetectionFindings | None = None, decoded: EndToEndFindings | None = None
) -> tuple[Answer, ...]:
    """The four questions that every study is asked."""
    if detected is None:
        predictable = f"Not asked: {study_e23_words.NOT_ASKED}"
        pays = f"Not measured: {study_e23_words.NOT_ASKED}"
    else:
        own = detected.of(extension=False).cells
        predictable = study_e23_words.predictable(found, own)
        pays = f"{study_e23_words.pays(found, own)}\n{_end_to_end(found, decoded)}"
    return (
        Answer("How much?", study_words.how_much(found)),
        Answer("How concentrated?", study_words.how_concentrated(found)),
        Answer("Predictable?", predictable),
        Answer("Does acting pay?", pays),
    )


def _end_to_end(found: OpportunityFindings, decoded: EndToEndFindings | None) -> str:
    if decoded is None:
        return study_e4_words.NOT_MEASURED
    return study_e4_words.pays(found, decoded.of(extension=False))


def notes(
    found: OpportunityFindings, detected: DetectionFindings | None = None, decoded: EndToEndFindings | None = None
) -> tuple[str, ...]:
    """What goes with the answers: how far to trust them, what stands apart, what is not in them."""
    told = [*study_words.notes(found)]
    if detected is not None:
        told += study_e23_words.notes(found, detected)
        told += _extension(found, detected, decoded)
    if decoded is not None:
        told += study_e4_words.notes(decoded)
    return tuple(told)


def _extension(
    found: OpportunityFindings, detected: DetectionFindings, decoded: EndToEndFindings | None
) -> Iterator[str]:
    """The revision extension counts in no answer and has its own."""
    apart = detected.of(extension=True).cells
    if apart:
        pays = [study_e23_words.pays(found, apart)]
        pays += [study_e4_words.extension(found, decoded.of(extension=True))] if decoded is not None else []
        told = (
            study_e23_words.EXTENSION,
            "Predictable?",
            study_e23_words.predictable(found, apart),
            "Does acting pay?",
        )
        yield " ".join((*told, *pays)).rstrip()


# The page


def page(
    found: OpportunityFindings, detected: DetectionFindings | None = None, decoded: EndToEndFindings | None = None
) -> str:
    """HTML with style and figures inside: one file to keep or to send."""
    return _template().render(
        name=found.name,
        axes=AXES,
        warnings=warnings(found),
        answers=answer(found, detected, decoded),
        notes=notes(found, detected, decoded),
        figures=[
            {
                "name": name(found, model),
                "gap": Markup(gap_figure(found, model, at)),
                "concentration": Markup(concentration_figure(found, model, at)),
            }
            for at, model in enumerate(found.models)
        ],
        few=f"fewer than {FEWEST} prompts with a gain, not to be relied on",
        differ=f"the two differ on fewer than {FEWEST} prompts, not to be relied on",
        legend=LEGEND,
        resamples=f"{found.resamples:,}",
        sheets=study_tables.sheets(found),
        parts=[
            {
                "title": part.title,
                "note": part.note,
                "sheets": part.sheets,
                "figures": _settings(found, part.settings, at) if part.settings else [],
                "gains": _gains(found, part.decoded, at) if part.decoded else [],
            }
            for at, part in enumerate(_parts(detected, decoded))
        ],
        facts=_facts(found),
        config=_config(found),
        versions=_versions(found),
    )


def _settings(found: OpportunityFindings, detected: DetectionFindings, part: int) -> list[dict[str, str]]:
    return [
        {
            "name": f"{name(found, cell.model)}: {cell.axis} on {cell.task}",
            "figure": Markup(setting_figure(cell, f"setting-{part}-{at}")),
        }
        for at, cell in enumerate(detected.cells)
    ]


def _gains(found: OpportunityFindings, decoded: EndToEndFindings, part: int) -> list[dict[str, str]]:
    models = dict.fromkeys(c.model for c in study_e4_tables.chosen_cells(decoded))
    return [
        {
            "name": name(found, model),
            "figure": Markup(end_to_end_figure(decoded, model, f"end-to-end-{part}-{at}")),
        }
        for at, model in enumerate(models)
    ]


def _parts(detected: DetectionFindings | None, decoded: EndToEndFindings | None) -> list[PageSection]:
    return [*_diagnostics(detected), *_decodes(decoded)]


_APART = "revision extension of a monotone native decoder"


def _diagnostics(detected: DetectionFindings | None) -> Iterator[PageSection]:
    """Native decoders first, with what has no numbers; the revision extension apart."""
    if detected is None:
        return
    own, apart = detected.of(extension=False), detected.of(extension=True)
    missing = study_e23_tables.missing_sheet(detected)
    yield PageSection("Diagnostics", "", (*study_e23_tables.sheets(own), missing), settings=own)
    if apart.cells:
        sheets = study_e23_tables.sheets(apart, "-revision")
        yield PageSection(f"Diagnostics: {_APART}", study_e23_words.EXTENSION, sheets, settings=apart)


def _decodes(decoded: EndToEndFindings | None) -> Iterator[PageSection]:
    """The same order; then what goes beyond the paper."""
    if decoded is None:
        return
    e4, own, apart = study_e4_tables, decoded.of(extension=False), decoded.of(extension=True)
    sheets = (e4.full_sheet(own), e4.axes_sheet(own), e4.controls_sheet(own), e4.missing_sheet(decoded))
    yield PageSection("End to end", "", sheets, decoded=own)
    if apart.cells:
        more = (e4.axes_sheet(apart, "-revision"), e4.controls_sheet(apart, "-revision"))
        yield PageSection(f"End to end: {_APART}", study_e23_words.EXTENSION, more)
    if decoded.joints:
        yield PageSection(
            "End to end: all axes together, beyond the paper", study_e4_words.BEYOND, (e4.joint_sheet(decoded),)
        )


def _sheets(
    found: OpportunityFindings, detected: DetectionFindings | None, decoded: EndToEndFindings | None
) -> tuple[Sheet, ...]:
    return (*study_tables.sheets(found), *(sheet for part in _parts(detected, decoded) for sheet in part.sheets))


def markdown(
    found: OpportunityFindings, detected: DetectionFindings | None = None, decoded: EndToEndFindings | None = None
) -> str:
    """The words and every table but the longest."""
    parts = [f"# Adaptation opportunity: {found.name}", *warnings(found)]
    for one in answer(found, detected, decoded):
        parts += [f"## {one.question}", *one.text.splitlines()]
    told = notes(found, detected, decoded)
    parts += ["## Notes", "\n".join(f"- {text}" for text in told)] if told else []
    parts += ["## Tables", "\n".join(f"- {sign} {meaning}" for sign, meaning in LEGEND.items())]
    parts.append(f"Brackets: 95 % percentile intervals from {found.resamples:,} resamples of prompts.")
    parts += _tables(study_tables.sheets(found))
    for part in _parts(detected, decoded):
        parts += [f"## {part.title}", *([part.note] if part.note else []), *_tables(part.sheets)]
    parts += ["## Configuration", "\n".join(f"- {key}: `{value}`" for key, value in _facts(found).items())]
    parts += [f"```json\n{_config(found)}\n```", _versions(found)]
    return "\n\n".join(parts) + "\n"


def _tables(shown: Iterable[Sheet]) -> Iterator[str]:
    for sheet in shown:
        if not sheet.aside:
            yield from (f"### {sheet.title}", sheet.note, table_markdown(sheet))


# The terminal


def screen(found: OpportunityFindings) -> Table:
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


def screen_e23(detected: DetectionFindings) -> Table:
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


def screen_e4(decoded: EndToEndFindings) -> Table:
    """What fits on a terminal, of the axes that validation chose."""
    heads = ("task", "axis", *(head.lower() for head in study_e4_tables.ARM_HEADS.values()))
    heads = (*heads, "selective − fixed", "", "coverage", "")
    several = len({c.model for c in decoded.cells}) > 1
    rows = []
    for model in dict.fromkeys(c.model for c in decoded.cells):
        for c in study_e4_tables.chosen_cells(decoded, model):
            own = [*(number(c.utility[arm].value) for arm in study_e4_tables.ARM_HEADS)]
            own += [number(c.difference[study_e4_tables.GAIN]), "", study_e4_tables.covered(c)]
            rows.append([*([model] if several else []), c.task, c.axis, *own, study_e4_tables.cell_verdict(c)])
        for m in _chosen_means(decoded, model):
            own = [*(number(m.utility[arm].value) for arm in study_e4_tables.ARM_HEADS)]
            own += [number(m.difference[study_e4_tables.GAIN]), PARTIAL * bool(m.partial), share(m.coverage)]
            said = study_e4_tables.mean_verdict(decoded, m)
            rows.append([*([model] if several else []), study_e4_tables.MEAN, "", *own, said])
    return columns((*(["model"] if several else []), *heads), rows)


def _chosen_means(decoded: EndToEndFindings, model: str | None = None) -> list[EndToEndMean]:
    return [m for m in decoded.means if m.axis == CHOSEN and model in (None, m.model)]


def legend(
    found: OpportunityFindings, detected: DetectionFindings | None = None, decoded: EndToEndFindings | None = None
) -> list[str]:
    """The signs that the screens show, in words."""
    used = {sign for c in found.cells for sign in mark(c.overall, c.partial)}
    if detected is not None:
        used |= {sign for c in detected.cells for sign in mark(c.raw.utility, c.partial)}
    if decoded is not None:
        used |= {PARTIAL for m in _chosen_means(decoded) if m.partial}
    return [f"{sign} {meaning}" for sign, meaning in LEGEND.items() if sign in used]


def document(
    found: OpportunityFindings, detected: DetectionFindings | None = None, decoded: EndToEndFindings | None = None
) -> dict[str, Any]:
    """Everything as plain values; None where there is no number."""
    return {
        "study": found.name,
        "complete": found.complete,
        "warnings": list(warnings(found)),
        "answer": [{"question": one.question, "text": one.text} for one in answer(found, detected, decoded)],
        "notes": list(notes(found, detected, decoded)),
        "unreliable_below": FEWEST,
        "resamples": found.resamples,
        "tables": {sheet.name: _records(sheet) for sheet in _sheets(found, detected, decoded)},
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


def _facts(found: OpportunityFindings) -> dict[str, str]:
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


def _config(found: OpportunityFindings) -> str:
    return json.dumps(found.manifest, indent=2, ensure_ascii=False)


def _versions(found: OpportunityFindings) -> str:
    return ", ".join(f"{part} {version}" for part, version in found.manifest["versions"].items())


def _template() -> jinja2.Template:
    source = resources("unmask.report").joinpath("study.html.j2").read_text(encoding="utf-8")
    return jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(source)
