"""A report on a terminal: short tables, notes, where the files are, and the answers last."""

from rich.text import Text

from unmask.report.console import Console, say
from unmask.report.study import Report
from unmask.report.terminal import columns


def show(report: Report, written: str, console: Console) -> None:
    """Print it; `written` says where the files are."""
    for table in report.screens:
        console.print(columns([column.head or "" for column in table.shown], table.cells))
    for sign, meaning in report.signs.items():
        say(f"{sign} {meaning}")
    for text in (*report.notes, *report.warnings):
        console.print(Text(f"\n{text}"), soft_wrap=not console.is_terminal)
    say(f"\nwritten: {written}")
    for answer in report.answers:
        console.print(Text(f"\n{answer.question}", style="bold"))
        console.print(Text(answer.verdict), soft_wrap=not console.is_terminal)
