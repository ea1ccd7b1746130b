"""A small report made by hand, for tests of what it is written as."""

from typing import NamedTuple

from unmask.report.figures.chart import ChartLine, Dot, Gallery, Lines, ReportFigure, Whiskers
from unmask.report.formats import count, number, text_or_none
from unmask.report.report import Answer, Report, Section
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


def whiskers():
    eaten = Dot("sweet", Estimate(0.5, 0.25, 0.75), "circle", "--score", about=("apple <b>", "n: 3 mouths"))
    left = Dot("sour", Estimate(-0.125, -0.5, float("nan")), "square", "--ink", True, ("lemon", "n: 1 mouth"))
    return Whiskers([("apple <b>", [eaten]), ("lemon %{x}", [left])], "Δ_taste")


def lines():
    curve = ChartLine(
        "sweet", (0.0, 1.0), (0.0, 0.5), "--score", (0.0, 0.25), (0.0, 0.75), about=("sweet", "n: 3 mouths")
    )
    return Lines("Taste <i>", "share", "taste", (curve,), x_share=True, levels={"τ": 0.25})


def figures():
    one = ReportFigure("taste", "Tastes & smells", (whiskers(),), "It's below.", "fruit")
    kinds = tuple(ReportFigure(f"kind-{k}", f"Kind {k}", (lines(),) * k, choice=f"kind <{k}>") for k in (1, 2))
    return one, Gallery("kinds", "By kind", "How to read.", "Kind", kinds, "fruit")


def report(*sheets, **how):
    return Report(
        **{
            "study": "fruit <1>",
            "complete": False,
            "warnings": ("Not complete & late.",),
            "answers": (Answer("How much?", "A lot.\nReally.", "Yes."),),
            "notes": ("One <note>.",),
            "sections": (
                Section("Tables", part="E1", figures=figures(), legend={"†": "not ripe"}, sheets=sheets),
                Section("More", "A word."),
            ),
            "screens": sheets,
            "signs": {"†": "not ripe"},
            "glossary": {"fruit": "what <grows>"},
            "run": {"time": "3 seconds"},
            "command": ("eat --all", "of: fruit <1>"),
            "facts": {"seed": "5"},
            "resamples": 2000,
            "unreliable_below": 10,
            "hashes": {"branches": "abc"},
            "manifest": {"study": {"name": "fruit"}, "versions": {"unmask": "1", "numpy": "2"}},
            **how,
        }
    )
