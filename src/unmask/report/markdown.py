"""Tables and reports as Markdown."""

import json
from collections.abc import Iterator, Sequence

from unmask.report.report import Report, Section
from unmask.report.sheet import AnySheet


def markdown(report: Report) -> str:
    """The words and every table but the longest."""
    parts = [f"# {report.title}", *report.warnings]
    for answer in report.answers:
        parts += [f"## {answer.question}", f"**{answer.verdict}**", *answer.text.splitlines()]
    if report.notes:
        parts += ["## Notes", _bullets(report.notes)]
    for section in report.sections:
        parts += _section(report, section)
    parts += ["## Configuration", _bullets([f"{key}: `{value}`" for key, value in report.facts.items()])]
    parts += [f"```json\n{json.dumps(report.manifest, indent=2, ensure_ascii=False)}\n```", report.versions]
    return "\n\n".join(parts) + "\n"


def _section(report: Report, section: Section) -> Iterator[str]:
    if not section.sheets:
        return
    yield f"## {section.title}"
    if section.legend:
        yield _bullets([f"{sign} {meaning}" for sign, meaning in section.legend.items()])
        yield f"Brackets: {report.intervals}."
    if section.note:
        yield section.note
    for sheet in section.sheets:
        if not sheet.aside:
            yield from (f"### {sheet.title}", sheet.note, table_markdown(sheet))


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def table_markdown(sheet: AnySheet) -> str:
    """The cells that people see, or why there are none."""
    return grid_markdown(sheet) if sheet.rows else sheet.empty


def grid_markdown(sheet: AnySheet) -> str:
    """Heads and cells, even where there are only heads."""
    heads = [column.head or "" for column in sheet.heads]
    sides = ["---" if column.left else "---:" for column in sheet.heads]
    return "\n".join(f"| {' | '.join(_inline(cell) for cell in line)} |" for line in (heads, sides, *sheet.shown))


def _inline(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
