"""Reports on a terminal."""

import io

from tests.helpers import made_reports
from unmask.report.console import Console
from unmask.report.screen import show, table_screen


def test_order(capsys):
    console = Console(width=100)
    show(made_reports.report(made_reports.fruit()), "here", console)
    said = capsys.readouterr().out
    parts = [
        "Δ_taste",
        "† not ripe",
        "One <note>.",
        "Not complete & late.",
        "written: here",
        "How much?",
        "Yes.",
        "A lot.",
    ]
    assert [said.index(part) for part in parts] == sorted(said.index(part) for part in parts)
    assert said.endswith("\n\nHow much?\nYes.\nA lot.\nReally.\n")


def test_a_table_has_the_cells_that_people_see():
    console = Console(file=io.StringIO(), width=100)
    console.print(table_screen(made_reports.fruit()))
    head, first, *_ = console.file.getvalue().splitlines()
    assert head.split() == ["fruit", "eaten", "Δ_taste", "note"]
    assert first.split() == ["apple", "&", "pear", "12,345", "0.5000", "[0.2500,", "0.7500]"]
