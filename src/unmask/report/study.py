"""The report on a study: headlines, then E1 to E4 with a figure and a table each, then what was run.

`study_report` puts findings into words, tables and figures once; `write_report` writes them as a page, Markdown, CSV,
LaTeX and images.
"""

import base64
import gzip
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup, escape

from unmask.axes import POLICY
from unmask.base.errors import UnknownName
from unmask.lab.analysis import Findings
from unmask.lab.analysis.load import ALL_AXES, MEAN, MISSING
from unmask.lab.analysis.runs import CHOSEN_AXIS
from unmask.report import files, pages, study_tables
from unmask.report.drawing import IMAGES
from unmask.report.figures import StudyFigure, study_figures
from unmask.report.headlines import BETTER, HINT_BETTER, Answer, answer_questions, headline_frame
from unmask.report.study_tables import LEGEND
from unmask.report.table import Table, count_noun, to_json, to_plain
from unmask.stats import FEWEST_PROMPTS

FILE_LIST = "report-files.json"
"""Names of the files of the report in a folder, so that the next one can remove those it does not write."""
GLOSSARY = {
    "state": "an answer part-way through decoding, with some positions still masked",
    "axis": "one part of the next step: how positions are ranked (score), which may be chosen (region), how many are "
    "revealed (cardinality), whether they may still change (commitment)",
    "action": "one choice on an axis; the fixed action is the choice that was best everywhere on validation prompts",
    "opportunity": "what the best action of each state would have gained over the fixed one, in task utility from 0 "
    "to 1, seen in hindsight (Δ_adapt)",
    "gate": "the rule that decides, from a signal known before acting, whether to leave the fixed action",
}
PAPER_LABELS = {
    "e1-all": "fig:e1-all",
    "opportunity": "tab:app-e1-full",
    "reversal": "tab:reversal-anatomy",
    "e3-concentration": "tab:opportunity-concentration",
    "e3-detection": "tab:opportunity-detector",
    "e3-coverage": "tab:selective-coverage, tab:coverage-controls",
    "e4-end-to-end": "tab:e4-selective-decoding, tab:app-mini-e4-full",
}
"""What the paper calls its figures and tables, by our names."""
EXTENSION_NOTE = (
    "Dream's native decoder is monotone: what it has revealed stays. Its commitment results are those of a revision "
    "extension of it, with a re-masking operator that it does not have, and are reported apart."
)
JOINT_NOTE = (
    "Beyond the paper: it adapts one axis at a time. Here all diagnosed axes deviate in one decoder, each by its own "
    "gate. These results count in no answer above."
)
READINGS_NOTE = (
    "Where the paper leaves room, a conclusion may depend on the reading. Each row changes one choice. The reading "
    "`ours` has one diagnostic for each axis; the tables above choose among all diagnostics of the study, and differ "
    "from it where an axis has several."
)
_EXTENSION_TITLE = "revision extension of a monotone native decoder"


@dataclass(frozen=True)
class Section:
    """A part of a report under a title of its own."""

    title: str
    tables: Sequence[Table]
    part: str = ""
    """Of the paper's experiments: E1 to E4; empty where it belongs to none."""
    figures: Sequence[StudyFigure] = ()
    note: str = ""
    legend: Mapping[str, str] = field(default_factory=dict)
    """What the signs in its tables, and in all that follow, mean."""


@dataclass(frozen=True)
class Report:
    """What a study found, in words, tables and figures."""

    study: str
    complete: bool
    warnings: Sequence[str]
    """What is not there."""
    answers: Sequence[Answer]
    headlines: Table
    notes: Sequence[str]
    sections: Sequence[Section]
    screens: Sequence[Table]
    """Short tables, for a terminal."""
    run: Mapping[str, str]
    """In short: what was run, on what, how long it took, what is missing."""
    command: Sequence[str]
    """Which command made the numbers, in lines."""
    facts: Mapping[str, str]
    resamples: int
    hashes: Mapping[str, str]
    manifest: Mapping[str, Any]

    @property
    def title(self) -> str:
        return f"Adaptation opportunity: {self.study}"

    @property
    def intervals(self) -> str:
        """Meaning of the brackets in tables."""
        return f"95 % percentile intervals from {self.resamples:,} resamples of prompts"

    @property
    def tables(self) -> list[Table]:
        """Every table, in the order of the sections."""
        return [self.headlines, *(table for section in self.sections for table in section.tables)]

    @property
    def figures(self) -> list[StudyFigure]:
        """Every figure, in the order of the sections."""
        return [figure for section in self.sections for figure in section.figures]

    @property
    def signs(self) -> dict[str, str]:
        """Meaning of the signs in the short tables."""
        shown = {sign for table in self.screens for marks in table.frame["marks"] for sign in marks}
        return {sign: meaning for sign, meaning in LEGEND.items() if sign in shown}

    @property
    def versions(self) -> str:
        return ", ".join(f"{part} {version}" for part, version in self.manifest["versions"].items())


def study_report(findings: Findings) -> Report:
    """Make the report of a study: answers, notes, tables and figures."""
    study = findings.study
    headlines = headline_frame(_question_frames(findings))
    fingerprint = study.manifest["fingerprint"]
    return Report(
        study=str(study.config["name"]),
        complete=study.complete,
        warnings=list(_warnings(findings)),
        answers=answer_questions(headlines, _find_shares_of_best_tenth(findings), asked=bool(study.diagnosed_axes)),
        headlines=study_tables.make_table("headlines", headlines),
        notes=list(_notes(findings)),
        sections=list(_sections(findings)),
        screens=list(_make_terminal_tables(findings)),
        run=_summarise_run(findings),
        command=(
            f"unmask study run FILE --out {study.folder}",
            f"FILE: study {study.config['name']}, fingerprint {fingerprint[:12]}",
        ),
        facts=_facts(findings),
        resamples=findings.resamples,
        hashes=study.hashes,
        manifest=study.manifest,
    )


# Headlines


def _question_frames(findings: Findings) -> dict[str, pd.DataFrame]:
    """Return the settings that answer each question, as `headline_frame` reads them."""
    frames: dict[str, pd.DataFrame] = {}
    cells = study_tables.opportunity_settings(findings)
    cells = cells[cells["task"] != MEAN]
    if len(cells):
        # All axes count here, that of an extension, too: opportunity is what candidates gain, not what a decoder has.
        cells = cells.assign(diagnostic=cells["axis"])
        frames["opportunity"] = _question_rows(findings, cells, "delta", "positive_prompts", apart=False)
    whole = study_tables.diagnosed_settings(findings)
    cells = whole[(whole["task"] != MEAN) & (whole["proposal"] == "raw")]
    if len(cells):
        frames["ranking"] = _question_rows(
            findings, cells, "auroc", "positive_prompts", chance=0.5, also="auroc_among_low"
        )
        frames["one step"] = _question_rows(findings, cells, "lift_selective", "positive_prompts", shut="tau_never")
    arms = study_tables.arm_settings(findings)
    means = arms[(arms["axis"] == CHOSEN_AXIS) & (arms["task"] == MEAN)]
    if len(means):
        gain = study_tables.GAIN
        frame = _question_rows(findings, means, f"difference_{gain}", f"{gain}_differ", shut="shut")
        frames["whole answers"] = frame.assign(place=[count_noun(int(tasks), "task") for tasks in means["tasks"]])
    learned = study_tables.learned_settings(findings)
    means = learned[(learned["task"] == MEAN) & (learned["axis"] == ALL_AXES)]
    if len(means):
        frames["learned"] = _question_rows(findings, means, "difference_ranked_lift_10", "positive_prompts")
    return frames


def _question_rows(
    findings: Findings,
    frame: pd.DataFrame,
    number: str,
    prompts: str,
    *,
    chance: float = 0.0,
    shut: str = "",
    also: str = "",
    apart: bool = True,
) -> pd.DataFrame:
    extends = [apart and findings.study.extends(m, a) for m, a in zip(frame["model"], frame["axis"], strict=True)]
    return pd.DataFrame(
        {
            "model": frame["model"],
            "extension": extends,
            "place": frame["diagnostic"] + " on " + frame["task"],
            "value": frame[number],
            "low": frame[f"{number}_low"],
            "high": frame[f"{number}_high"],
            "chance": chance,
            "prompts": frame[prompts],
            "shut": frame[shut] > 0 if shut else False,
            "also": frame[also] if also else inf,
        }
    )


def _find_shares_of_best_tenth(findings: Findings) -> list[float]:
    """Return the shares of the gain that the best tenth of states holds, where a gain was shown or else hinted at."""
    cells = study_tables.opportunity_settings(findings)
    cells = cells[cells["task"] != MEAN]
    if not len(cells):
        return []
    words = study_tables.conclude_rows(cells, "delta", "positive_prompts")
    held = cells["concentration_10"].groupby(words).agg(list)
    return held.get(BETTER) or held.get(HINT_BETTER) or []


# Words


def _warnings(findings: Findings) -> Iterator[str]:
    """Say which parts of the study are missing."""
    study = findings.study
    missing = findings.select("opportunity", measure=MISSING)
    if not study.complete:
        planned = study.extents["planned"]
        there = (
            f"{study.extents['shards'].sum()}{f' of {planned.sum():.0f}' if planned.notna().all() else ''} shards are"
        )
        lost = missing[~missing["task"].isin(list(study.unavailable))]
        waiting = sorted({f"{task} of {model}" for model, task in zip(lost["model"], lost["task"], strict=True)})
        rest = f" There are no numbers yet for {', '.join(waiting)}." if waiting else ""
        yield f"This study is not complete: {there} finished. What follows is about those alone.{rest}"
    yield from (f"Left out: {task}: {reason}" for task, reason in study.unavailable.items())
    if not len(findings.select("opportunity", measure="fixed")):
        why = sorted({f"{row.model}, {row.task}, {row.axis}: {row.note}" for row in missing.itertuples()})
        yield f"Nothing could be measured. {'; '.join(why)}."
    for failure in study.failures:
        yield (
            f"Set aside after {count_noun(failure.attempts, 'attempt')}: {failure.name}: {failure.error}. Correct "
            "that; `unmask study run` with --retry-failed tries it again."
        )


def _notes(findings: Findings) -> Iterator[str]:
    """Say how far the numbers can be trusted, and what the answers leave out."""
    study = findings.study
    cells = study_tables.opportunity_settings(findings)
    cells = cells[cells["task"] != MEAN]
    if len(cells):
        states, noisy = int(cells["states"].sum()), int(cells["noisy"].sum())
        naive, crossfitted = ((cells[name] * cells["states"]).sum() / max(states, 1) for name in ("naive", "delta"))
        yield (
            f"Rollouts differ at {noisy:,} of {states:,} state-axis comparisons; without cross-fitting the mean gap "
            f"would be {naive:.4f} instead of {crossfitted:.4f}. Where many differ, the truth lies between the two, "
            "and the audit's brackets are the numbers to report."
            if noisy
            else f"Rollouts never differ in {states:,} state-axis comparisons, so there was no noise to correct for."
        )
        models = ", ".join(model_name(findings, model) for model in dict.fromkeys(cells["model"]))
        yield (
            "Δ_adapt is what hindsight could gain with these candidates in one step, not what a policy gains. These "
            f"are numbers of {models} on these tasks and of no other model."
        )
    if lost := int(study.unjudged["branches"].sum()):
        yield f"{lost:,} of {study.branches:,} branches could not be judged; they are missing, not 0."
    if len(findings.select("methods")):
        yield (
            "The policy axis has no diagnostic: it has opportunity, a fixed method and one for each stage. What its "
            "methods take beside one forward is in the table of their costs, not in their utilities."
        )
    diagnosed = findings.select("diagnostics")
    if any(study.extends(model, axis) for model, axis in zip(diagnosed["model"], diagnosed["axis"], strict=True)):
        yield EXTENSION_NOTE
    counts = findings.frame[findings.frame["experiment"].isin(["arms", "joint"]) & (findings.frame["task"] != MEAN)]
    unjudged, used = (int(counts[counts["measure"] == name]["value"].sum()) for name in ("unjudged", "prompts"))
    if unjudged:
        yield (
            f"End to end, {unjudged:,} of {unjudged + used:,} prompts, counted once for each axis, are left out: "
            "some arm's answer could not be judged; they are missing, not 0."
        )
    for experiment, what in (("diagnostics", "Diagnostics"), ("arms", "End to end")):
        if count := len(findings.select(experiment, measure=MISSING)):
            yield f"{what}: {count_noun(count, 'setting')} without numbers; the tables have the reasons."


def model_name(findings: Findings, model: str) -> str:
    """Return a model's name in the study, followed by what was loaded if that has another name."""
    source = next(str(spec["model"]) for spec in findings.study.config["models"] if spec["name"] == model)
    last = source.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    return model if last.lower() == model.lower() else f"{model} ({source})"


def _summarise_run(findings: Findings) -> dict[str, str]:
    """Summarise models, tasks and samples of the study for the first screen, a few words each."""
    study, config = findings.study, findings.study.config
    seconds = float(study.costs["seconds"].sum()) if len(study.costs) else 0.0
    devices = sorted({str(about["device"]) for about in study.manifest["models"].values() if about.get("device")})
    spent = [f"{_spell_duration(seconds)} of branching"] + [
        f"{_spell_duration(study.decode_seconds)} of whole answers"
    ] * bool(study.decode_seconds)
    missing = len(findings.select("opportunity", measure=MISSING))
    unjudged = int(study.unjudged["branches"].sum())
    lacks = ["the study is not complete"] * (not study.complete)
    lacks += [f"{count_noun(missing, 'model-task-axis cell')} without numbers"] * bool(missing)
    lacks += [f"{unjudged:,} futures that could not be judged"] * bool(unjudged)
    return {
        "models": ", ".join(f"{model_name(findings, s['name'])}, {s['reference']} reference" for s in config["models"]),
        "tasks": f"{len(config['tasks'])}: {', '.join(config['tasks'])}",
        "axes": ", ".join(config["axes"]),
        "prompts of a task": ", ".join(f"{part['prompts']} {role}" for role, part in config["splits"].items()),
        "tried": f"{study.branches:,} futures of {study.extents['states'].sum():,} states",
        "time": f"{' and '.join(spent)}{' on ' * bool(devices)}{', '.join(devices)}",
        "missing": "; ".join(lacks) or "nothing",
    }


def _spell_duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def _facts(findings: Findings) -> dict[str, str]:
    manifest, study = findings.study.manifest, findings.study.config
    splits = {role: f"{part['prompts']} from {part['split']}" for role, part in study["splits"].items()}
    return {
        "study": f"{study['name']}, fingerprint {manifest['fingerprint']}",
        "states per prompt": str(study["states"]),
        "rollouts": str(study["rollouts"]),
        "temperature": f"{study['temperature']:g}",
        **({"scoring": study["scoring"]} if "scoring" in study else {}),
        "prompts": ", ".join(f"{role}: {prompts}" for role, prompts in splits.items()),
        "steps": _pairs(study["steps"]),
        "seed": str(study["seed"]),
        "candidates": "; ".join(
            f"{reference} {axis}: {', '.join(names)}"
            for reference, sets in study["candidates"].items()
            for axis, names in sets.items()
        ),
        "data": _pairs({task: about.get("data", "none") for task, about in manifest["tasks"].items()}),
        **{f"hash of {table}": digest for table, digest in findings.study.hashes.items()},
    }


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())


# Sections and short tables


def _sections(findings: Findings) -> Iterator[Section]:
    """Yield the sections: native decoders first, then the revision extension, then what goes beyond the paper."""
    has, config = set(findings.frame["experiment"]), findings.study.config
    figures, tables = study_figures(findings), study_tables.opportunity_tables(findings)
    much = [tables[name] for name in ("opportunity", "means", "stages", "audit")]
    yield Section("Opportunity", much, "E1", figures["opportunity"], legend=LEGEND)
    few = [tables[name] for name in ("concentration", "reversal", "pairs")]
    yield Section("Concentration", few, "E1", figures["concentration"])
    if POLICY in config["axes"]:
        yield Section("Methods", study_tables.method_tables(findings), "E1")
    if "diagnostics" in has:
        native, apart = (study_tables.diagnostic_tables(findings, extension) for extension in (False, True))
        tables_of = [*native, study_tables.missing_table(findings, "diagnostics")]
        yield Section("Diagnostics", tables_of, "E2, E3", figures["diagnostics"])
        if len(apart[0].frame):
            yield Section(f"Diagnostics: {_EXTENSION_TITLE}", apart, "E2, E3", figures["revision"], EXTENSION_NOTE)
    if config.get("learned", False):
        native, apart = (study_tables.learned_tables(findings, extension) for extension in (False, True))
        tables_of = [*native, *(apart if len(apart[0].frame) else []), study_tables.missing_table(findings, "learned")]
        yield Section("Learned detector", tables_of, "E3")
    if "arms" in has:
        native, apart = (study_tables.arm_tables(findings, extension) for extension in (False, True))
        yield Section("End to end", [*native, study_tables.missing_table(findings, "arms")], "E4", figures["arms"])
        if choices := study_tables.choice_tables(findings):
            title = "End to end: what depends on a choice of ours"
            yield Section(title, choices, "E4", figures["readings"], READINGS_NOTE)
        if len(apart[0].frame):
            yield Section(f"End to end: {_EXTENSION_TITLE}", apart, "E4", note=EXTENSION_NOTE)
    if "joint" in has:
        joint = [study_tables.joint_table(findings)]
        yield Section("End to end: all axes together, beyond the paper", joint, "E4", note=JOINT_NOTE)
    if "searches" in has:
        yield Section("End to end: searches, beyond the paper", [study_tables.search_table(findings)], "E4")
    if len((paper := study_tables.paper_table(findings)).frame):
        yield Section("Beside the paper", [paper])
    yield Section("What was run, and what is missing", study_tables.inventory_tables(findings))


def _make_terminal_tables(findings: Findings) -> Iterator[Table]:
    """Make short tables for a terminal: raw proposals, and the axes that validation chose."""
    several = len(findings.study.references) > 1
    model = "model=model | " if several else ""
    cells = study_tables.opportunity_settings(findings)
    if len(cells := cells[cells["task"] != MEAN]):
        yield study_tables.make_table("screen-opportunity", cells, model=model)
    whole = study_tables.diagnosed_settings(findings)
    if len(cells := whole[(whole["proposal"] == "raw") & (whole["task"] != MEAN)]):
        names = study_tables.setting_columns(cells, *(["model"] * several), "task")
        yield study_tables.make_table("screen-detection", cells, setting=names)
    arms = study_tables.arm_settings(findings)
    if len(cells := study_tables.chosen_rows(study_tables.split_extension(findings, arms)[0])):
        yield study_tables.make_table("screen-end-to-end", cells, model=model)


# Files


@dataclass(frozen=True)
class Opening:
    """The part of a larger page that stands before a study's report."""

    title: str
    body: Markup
    """Begins with the page's h1, and says what is missing."""
    contents: Mapping[str, str]
    """Titles of its parts by their ids."""
    styles: Sequence[str] = ()
    modules: Sequence[str] = ()
    start: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


def write_report(
    report: Report, folder: str | Path, *, figures: str | None = None, states: Callable[[Path], Path] | None = None
) -> list[Path]:
    """Write report.html, report.md, a CSV and a LaTeX file per table, and with `figures` (pdf, svg, png) each figure.

    `states` writes a page of single states into the folder and returns its path. Files that an earlier report wrote
    there and this one does not are removed: they would be of other numbers.
    """
    if figures is not None and figures not in IMAGES:
        raise UnknownName("kind of figures", figures, IMAGES)
    place = files.folder(folder)
    beside = None if states is None else states(place)
    html = page(report, None if beside is None else beside.name)
    written = [files.write(place / "report.html", html.encode()), *([beside] if beside else [])]
    written.append(files.write(place / "report.md", markdown(report).encode()))
    written += [files.write(place / f"{table.name}.csv", table.to_csv().encode()) for table in report.tables]
    written += [files.write(place / f"{table.name}.tex", table.to_latex().encode()) for table in report.tables]
    if figures is not None:
        files.folder(place / "figures")
        written += [figure.save(place / "figures" / f"{figure.name}.{figures}") for figure in report.figures]
    _remove_stale(place, [str(path.relative_to(place)) for path in written])
    return written


def _remove_stale(place: Path, names: Sequence[str]) -> None:
    """Remove the files of an earlier report that this one does not have, then write the new list of files."""
    listed = place / FILE_LIST
    try:
        earlier = json.loads(listed.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        earlier = []
    for name in earlier if isinstance(earlier, list) else []:
        path = (place / str(name)).resolve()
        # A list that somebody changed must not remove anything elsewhere.
        if name not in names and path.is_relative_to(place.resolve()):
            path.unlink(missing_ok=True)
    files.write(listed, json.dumps(sorted(names), indent=1).encode())


def page(report: Report, states: str | None = None, opening: Opening | None = None) -> str:
    """Return the report as one page with style, figures and numbers inside. `states` is a page beside it."""
    body = render_template(
        "report.html.j2",
        report=report,
        states=states,
        opening=opening,
        in_the_paper=PAPER_LABELS,
        glossary=GLOSSARY,
        tasks=report.manifest["study"]["tasks"],
        pictures={figure.name: Markup(figure.to_html()) for figure in report.figures},
        config=json.dumps(report.manifest, indent=2, ensure_ascii=False),
    )
    numbers = pack_text("numbers", to_json({table.name: table.to_csv() for table in report.tables}))
    return pages.page(
        opening.title if opening else report.title,
        f"{body}\n{numbers}",
        styles=["report.css", *(opening.styles if opening else ())],
        modules=["dom.js", "report.js", *(opening.modules if opening else ())],
        start=f"startReport();\n{opening.start if opening else ''}",
        data=opening.data if opening else None,
    )


def pack_text(name: str, text: str) -> str:
    """Return a script element with a compressed text, which the browser unpacks when it is first needed."""
    inside = base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()
    return f'<script type="text/plain" id="{name}">{inside}</script>'


def render_template(name: str, **values: Any) -> str:
    """Fill in a template of the package; every value is escaped unless it is `Markup`."""
    return _open_templates().get_template(name).render(**values)


@cache
def _open_templates() -> jinja2.Environment:
    loader = jinja2.PackageLoader("unmask.report")
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters |= {"slug": _slug, "wrap_interval": _wrap_interval}
    return environment


def _wrap_interval(cell: str) -> Markup:
    """Return a cell whose interval stands on a line of its own, so that tables stay as wide as the page."""
    value, bracket, ends = cell.partition(" [")
    return Markup('{}<span class="ends">[{}</span>').format(value, ends) if bracket else escape(cell)


def _slug(title: str) -> str:
    """Return the id of a section: its title in lower case, with hyphens."""
    return f"s-{'-'.join(''.join(c if c.isalnum() else ' ' for c in title.lower()).split())}"


def markdown(report: Report) -> str:
    """Return the report as Markdown, without the longest tables."""
    parts = [f"# {report.title}", *report.warnings]
    for answer in report.answers:
        parts += [f"## {answer.question}", answer.verdict]
    parts += [f"## {report.headlines.title}", report.headlines.note, _write_grid(report.headlines)]
    if report.notes:
        parts += ["## Notes", _write_bullets(report.notes)]
    for section in report.sections:
        parts.append(f"## {section.title}")
        if section.legend:
            parts += [
                _write_bullets([f"{sign} {meaning}" for sign, meaning in section.legend.items()]),
                f"Brackets: {report.intervals}.",
            ]
        parts += [section.note] * bool(section.note)
        for table in (table for table in section.tables if not table.files_only):
            parts += [f"### {table.title}", *([table.note] if table.note else []), _write_grid(table)]
    parts += ["## Configuration", _write_bullets([f"{key}: `{value}`" for key, value in report.facts.items()])]
    parts += [f"```json\n{json.dumps(report.manifest, indent=2, ensure_ascii=False)}\n```", report.versions]
    return "\n\n".join(parts) + "\n"


def _write_grid(table: Table) -> str:
    return table.to_markdown() if len(table.frame) else table.empty


def _write_bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def to_document(report: Report) -> dict[str, Any]:
    """Return the report for JSON; None where there is no number."""
    return {
        "study": report.study,
        "complete": report.complete,
        "warnings": list(report.warnings),
        "answer": [answer._asdict() for answer in report.answers],
        "notes": list(report.notes),
        "unreliable_below": FEWEST_PROMPTS,
        "resamples": report.resamples,
        "tables": {table.name: table.to_records() for table in report.tables},
        "hashes": dict(report.hashes),
        "manifest": to_plain(dict(report.manifest)),
    }
