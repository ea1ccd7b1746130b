"""Figures as values: what is drawn, whoever draws it. `interactive` makes them for a page, `printed` for a paper.

Colours are names of the page's style, which has one value for light and one for dark.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from unmask.axes import AXES, STUDY_AXES
from unmask.stats import Estimate

INK, SOFT = "--ink", "--soft"
MODELS = tuple(f"--model-{at}" for at in range(1, 7))
"""Of models in their order; they begin anew where there are more."""
SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down")
"""One for each axis, by its place among `STUDY_AXES`: colour alone does not reach everybody."""
MEAN_SHAPE = "hexagon"
"""For what is of no single axis."""


def shape_of(axis: str) -> str:
    return SHAPES[STUDY_AXES.index(axis) % len(SHAPES)] if axis in STUDY_AXES else MEAN_SHAPE


def colour_of(axis: str) -> str:
    """Coordinates of an action have their own; whole methods have one; a mean is of none."""
    return f"--{axis}" if axis in AXES else "--methods" if axis in STUDY_AXES else INK


@dataclass(frozen=True)
class Dot:
    """A number with its interval, and what a reader asks about it."""

    series: str
    """Its name in the legend."""
    value: Estimate
    shape: str
    colour: str
    doubt: bool = False
    """Hollow."""
    about: Sequence[str] = ()
    """Lines for who points at it: what it is of, how many prompts, remarks."""


@dataclass(frozen=True)
class Whiskers:
    """Dots and their intervals on one scale, a row for each, under common names."""

    rows: Sequence[tuple[str, Sequence[Dot]]]
    x: str
    title: str = ""
    shapes: Mapping[str, str] = field(default_factory=dict)
    """What shapes mean, where the legend's names do not say it."""


@dataclass(frozen=True)
class ChartLine:
    """One curve; with a band where it has ends."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    width: float = 2.0
    dash: str = "solid"
    """solid, dot or dash."""
    shape: str = ""
    """Of markers at its points; none where empty."""
    joined: bool = True
    doubt: bool = False
    about: Sequence[str] = ()


@dataclass(frozen=True)
class Lines:
    """Curves over one scale."""

    title: str
    x: str
    y: str
    lines: Sequence[ChartLine]
    ticks: Sequence[str] = ()
    """Names of the places 0, 1, 2, ... where x is none of numbers."""
    x_share: bool = False
    """Per cent."""
    y_share: bool = False
    levels: Mapping[str, float] = field(default_factory=dict)
    """Lines across, by name."""
    remark: str = ""
    """What to say in the panel itself."""


@dataclass(frozen=True)
class HeatMap:
    """A number for each row and column; None where there is none."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[Estimate | None]]
    about: Sequence[Sequence[Sequence[str]]]
    """Lines for who points at a cell."""


Chart = Whiskers | Lines | HeatMap


@dataclass(frozen=True)
class ReportFigure:
    """A figure with what stands above and below it."""

    name: str
    """Of its file, and of its place on the page."""
    title: str
    panels: Sequence[Chart]
    caption: str = ""
    table: str = ""
    """The table that has its numbers, by name."""
    choice: str = ""
    """What it is called among others of its kind."""


@dataclass(frozen=True)
class Gallery:
    """Figures of one kind with one caption, of which one is shown at a time."""

    name: str
    title: str
    caption: str
    ask: str
    """What is chosen: model, setting."""
    figures: tuple[ReportFigure, ...]
    table: str = ""
