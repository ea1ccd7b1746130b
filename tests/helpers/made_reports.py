"""A small report made by hand, for tests of what it is written as."""

from typing import NamedTuple

from unmask.report.formats import count, number, text_or_none
from unmask.report.report import Answer, Gallery, Report, ReportFigure, Section
from unmask.report.sheet import Column, Sheet, attribute
from unmask.stats import Estimate


class Fruit(NamedTuple):
    name: str
    eaten: int
    taste: Estimate | None
    ripe: bool = True


FRUIT = (
    Fruit("apple & pear", 12345, Estimate(0.5, 0.25, 0.75, 2)),
    Fruit("50 %_|off|\nplums", 3, None, ripe=False),
    Fruit("", 0, Estimate(-0.125, -0.5, float("nan"))),
)


def fruit(items=FRUIT, **how):
    columns = (
        attribute("name", "fruit", text_or_none, left=True),
        attribute("eaten", "eaten", count),
        attribute("taste", "Δ_taste", number, wide=True),
        attribute("ripe", None),
        Column(None, "note", lambda item: "†" * (not item.ripe)),
    )
    return Sheet("fruit", "What was eaten", "Of <all> kinds.", columns, items, **how)


def report(*sheets, **how):
    return Report(
        **{
            "study": "fruit <1>",
            "complete": False,
            "warnings": ("Not complete & late.",),
            "answers": (Answer("How much?", "A lot.\nReally."),),
            "notes": ("One <note>.",),
            "sections": (
                Section("Pictures", figures=(ReportFigure("<svg/>", "above", "It's below."),)),
                Section("Tables", legend={"†": "not ripe"}, sheets=sheets),
                Section("More", "A word.", gallery=Gallery("How to read.", "1 picture", (ReportFigure("<svg/>"),))),
            ),
            "screens": sheets,
            "signs": {"†": "not ripe"},
            "axes": ("sweet", "sour"),
            "facts": {"seed": "5"},
            "resamples": 2000,
            "unreliable_below": 10,
            "hashes": {"branches": "abc"},
            "manifest": {"study": {"name": "fruit"}, "versions": {"unmask": "1", "numpy": "2"}},
            **how,
        }
    )
