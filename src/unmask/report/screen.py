"""A report on a terminal: short tables, notes, where the files are, and the answers last."""

from rich.table import Table
from rich.text import Text

from unmask.report.console import Console, say
from unmask.report.report import Report
from unmask.report.sheet import AnySheet
from unmask.report.terminal import columns


def table_screen(sheet: AnySheet) -> Table:
    """The cells that people see."""
    return columns([column.head or "" for column in sheet.heads], sheet.shown)


def show(report: Report, written: str, console: Console) -> None:
    """Print it; `written` says where the files are."""
    for sheet in report.screens:
        console.print(table_screen(sheet))
    for sign, meaning in report.signs.items():
        say(f"{sign} {meaning}")
    for text in (*report.notes, *report.warnings):
        console.print(Text(f"\n{text}"), soft_wrap=not console.is_terminal)
    say(f"\nwritten: {written}")
    for answer in report.answers:
        console.print(Text(f"\n{answer.question}", style="bold"))
        console.print(Text(answer.verdict, style="bold"), soft_wrap=not console.is_terminal)
        console.print(Text(answer.text), soft_wrap=not console.is_terminal)
